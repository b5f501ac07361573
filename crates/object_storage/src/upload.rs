//! Large puts: parts of a file, some under way at once, which become one object at the end.
//!
//! Parts that a failure leaves are taken back. What a crash leaves, only the bucket's own rules remove.

use std::collections::VecDeque;
use std::io::Read;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStoreExt, PutPayload};
use std::sync::Arc;
use tokio::task::JoinHandle;
use towpath_byte_store::ByteStoreError;
use towpath_byte_store::files::expect_end;

use crate::requests::Requests;

/// Bytes of a part, and of what is put at once. Servers want 5 MiB or more.
pub(crate) const PART: u64 = 8 << 20;
/// Parts of an object, at most.
const MAX_PARTS: u64 = 10_000;
/// Bytes of a part, at most, which bounds memory.
const MAX_PART: u64 = 64 << 20;
/// Bytes under way at once.
const UNDER_WAY: u64 = 32 << 20;

type PartUnderWay = JoinHandle<object_store::Result<()>>;

/// Reads the next `size` bytes.
pub(crate) fn read_part(bytes: &mut dyn Read, size: u64) -> Result<Bytes, ByteStoreError> {
    let mut part = vec![0; size as usize];
    bytes.read_exact(&mut part).map_err(ByteStoreError::Input)?;
    Ok(part.into())
}

/// Length of the parts of an object; `None` if it would have too many.
const fn part_length(size: u64) -> Option<u64> {
    let least = size.div_ceil(MAX_PARTS);
    if least > MAX_PART {
        return None;
    }
    Some(if least > PART { least } else { PART })
}

/// Puts bytes in parts.
pub(crate) fn put(
    requests: &Requests,
    path: &Path,
    bytes: &mut dyn Read,
    size: u64,
) -> Result<(), ByteStoreError> {
    let length = part_length(size);
    let length =
        length.ok_or(ByteStoreError::Refused { why: "object storage takes at most 625 GiB at once" })?;
    let (client, to) = (Arc::clone(&requests.client), path.clone());
    let mut upload = requests.wait("writing to", async move { client.put_multipart(&to).await })?;
    match send_parts(requests, &mut *upload, bytes, size, length) {
        Ok(()) => complete(requests, path, upload, size),
        Err(error) => {
            // The first error is the one to be told.
            let _ = requests.wait("writing to", async move { upload.abort().await });
            Err(error)
        }
    }
}

fn send_parts(
    requests: &Requests,
    upload: &mut dyn MultipartUpload,
    bytes: &mut dyn Read,
    size: u64,
    length: u64,
) -> Result<(), ByteStoreError> {
    let at_once = (UNDER_WAY / length).max(1) as usize;
    let mut under_way = VecDeque::new();
    let mut at = 0;
    let mut sent = Ok(());
    while at < size && sent.is_ok() {
        let part = match read_part(bytes, length.min(size - at)) {
            Ok(part) => part,
            Err(error) => {
                sent = Err(error);
                break;
            }
        };
        at += part.len() as u64;
        let part = upload.put_part(PutPayload::from(part));
        under_way.extend(requests.runtime().map(|runtime| runtime.spawn(part)));
        while under_way.len() >= at_once && sent.is_ok() {
            sent = finish(requests, under_way.pop_front());
        }
    }
    // All are waited for, also after an error: they would disturb the abort.
    for part in under_way {
        let ended = finish(requests, Some(part));
        sent = sent.and(ended);
    }
    sent.and_then(|()| expect_end(bytes))
}

fn finish(requests: &Requests, part: Option<PartUnderWay>) -> Result<(), ByteStoreError> {
    let Some(part) = part else { return Ok(()) };
    requests.wait("writing to", async move {
        part.await.map_err(|source| object_store::Error::JoinError { source })?
    })
}

/// Makes the parts one object. A server may have done so and have failed to say it.
fn complete(
    requests: &Requests,
    path: &Path,
    mut upload: Box<dyn MultipartUpload>,
    size: u64,
) -> Result<(), ByteStoreError> {
    let result = requests.wait("writing to", async move { upload.complete().await.map(drop) });
    match result {
        Err(error) => {
            let (client, path) = (Arc::clone(&requests.client), path.clone());
            let found = requests.wait("reading in", async move { client.head(&path).await });
            if found.is_ok_and(|found| found.size == size) { Ok(()) } else { Err(error) }
        }
        Ok(()) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_grow_with_the_object_and_are_never_too_many() {
        let cases = [
            (PART + 1, Some(PART)),
            (PART * MAX_PARTS, Some(PART)),
            (PART * MAX_PARTS + 1, Some(PART + 1)),
            (MAX_PART * MAX_PARTS, Some(MAX_PART)),
            (MAX_PART * MAX_PARTS + 1, None),
            (u64::MAX, None),
        ];
        for (size, length) in cases {
            assert_eq!(part_length(size), length, "{size}");
        }
    }
}
