//! Puts by open descriptor: of a regular file, which is referred to if it still has its name, and
//! of a pipe, which is read to its end.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{OFlags, fcntl_getfl};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use towpath_api::{ApiError, ErrorKind, Input, OpenPutRequest, Parts, PutKind, PutReply};

use towpath_service::boundaries::Boundaries;
use towpath_service::put::{self, OpenStream};
use towpath_service::ticket_ends::terms;
use towpath_service::{PutSource, Service};

/// Bytes read at once from a file without a name.
const PART: usize = 256 << 10;

/// Puts what `passed` is. A file's ticket comes as that of a put by name does; of a pipe all is read
/// before the answer, unless its ticket was asked for by `POST /v1/puts`.
pub(crate) async fn put(
    service: &Arc<Service>,
    passed: OwnedFd,
    request: &OpenPutRequest,
    boundaries: Boundaries,
) -> Result<PutReply, ApiError> {
    let file = File::from(passed);
    let unreadable = |error: std::io::Error| {
        ApiError::new(ErrorKind::Usage, format!("the descriptor can't be used: {error}"))
    };
    let metadata = file.metadata().map_err(unreadable)?;
    let mode = fcntl_getfl(&file).map_err(|error| unreadable(error.into()))?;
    if mode & OFlags::RWMODE == OFlags::WRONLY || mode.contains(OFlags::PATH) {
        return Err(ApiError::new(ErrorKind::Usage, "the descriptor is not open for reading"));
    }
    let kind = metadata.file_type();
    if kind.is_file() {
        // The descriptor of a tree is read, whatever name it has.
        if request.kind == PutKind::Blob
            && let Some(path) = named(&file, &metadata)
        {
            let holder = service.holder(request.session.as_deref())?;
            let how = (terms(&request.terms())?, boundaries);
            return put::put_named(service, PutSource::of(&path)?, holder, how).await;
        }
        boundaries.check_size(metadata.len())?;
        return stream(service, request, read_file(file), &boundaries).await;
    }
    if kind.is_fifo() {
        let pipe = pipe::Receiver::from_file(file).map_err(unreadable)?;
        return stream(service, request, Box::new(pipe), &boundaries).await;
    }
    let message = "only a regular file or a pipe can be put by descriptor";
    Err(ApiError::new(ErrorKind::Usage, message).hint("send the bytes to /v1/put-stream"))
}

/// The name under which the file still lies.
fn named(file: &File, metadata: &std::fs::Metadata) -> Option<PathBuf> {
    use std::os::fd::AsRawFd;
    let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    let there = std::fs::symlink_metadata(&path).ok()?;
    ((there.dev(), there.ino()) == (metadata.dev(), metadata.ino())).then_some(path)
}

async fn stream(
    service: &Arc<Service>,
    request: &OpenPutRequest,
    input: Input<'_>,
    boundaries: &Boundaries,
) -> Result<PutReply, ApiError> {
    let (put, _) = OpenStream::begin(service, request)?;
    put.fill(input, boundaries).await
}

/// Reads from the front, whatever place the application is at; it may go on reading.
fn read_file(file: File) -> Input<'static> {
    let (parts, inbox) = mpsc::channel(2);
    tokio::task::spawn_blocking(move || {
        let mut at = 0;
        loop {
            let mut part = vec![0; PART];
            let read = file.read_at(&mut part, at).map(|len| part.truncate(len));
            at += part.len() as u64;
            let is_last = read.is_err() || part.is_empty();
            if parts.blocking_send(read.map(|()| part.into())).is_err() || is_last {
                return;
            }
        }
    });
    Box::new(Parts::new(inbox))
}
