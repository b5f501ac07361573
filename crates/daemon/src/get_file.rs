//! One file of a get: a target that is a temporary beside its final name.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use towpath_content::Oid;
use towpath_content::pieces::Value;
use towpath_content::tree::{Metadata, Time};
use towpath_files::{Body, FileError, Overwrite, Policy, SingleFile};
use towpath_store::FileRecord;
use towpath_store::{About, DiskStore};
use towpath_transfer::Target;

use crate::lock::lock;
use crate::put_tree::store_stamp;
use crate::resume::{Record, wait_while_busy};

/// Metadata of a new file whose source tells nothing.
const DEFAULT_MODE: u32 = 0o644;

/// A file on its way to `path`.
pub struct FileTarget {
    path: PathBuf,
    record: Record,
    store: std::sync::Arc<DiskStore>,
    file: Mutex<Option<SingleFile>>,
    body: OnceLock<Body>,
    /// Bytes the temporary has; it grows while a live object does.
    len: Mutex<u64>,
    existing: Mutex<Vec<Range<u64>>>,
    about: Mutex<About>,
    failure: Mutex<Option<FileError>>,
}

impl FileTarget {
    /// A target for `path`; goes on with what `record` says was left.
    pub fn new(path: &Path, record: Record, store: std::sync::Arc<DiskStore>) -> Self {
        Self {
            path: path.into(),
            record,
            store,
            file: Mutex::default(),
            body: OnceLock::new(),
            len: Mutex::default(),
            existing: Mutex::default(),
            about: Mutex::default(),
            failure: Mutex::default(),
        }
    }

    /// The error behind a failed write, with its path.
    pub fn failure(&self) -> Option<FileError> {
        lock(&self.failure).take()
    }

    /// Notes what the source says of the object.
    pub fn set_about(&self, about: &About) {
        *lock(&self.about) = about.clone();
    }

    fn note<T>(&self, result: Result<T, FileError>) -> io::Result<T> {
        result.map_err(|error| {
            let kind = io_error(&error);
            *lock(&self.failure) = Some(error);
            kind
        })
    }

    fn body(&self) -> io::Result<&Body> {
        self.body.get().ok_or_else(|| io::Error::other("the file was not begun"))
    }

    /// Makes room up to `end`.
    fn grow(&self, body: &Body, end: u64) -> Result<(), FileError> {
        let mut len = lock(&self.len);
        if end > *len {
            body.set_size(end)?;
            *len = end;
        }
        Ok(())
    }

    fn open(&self, size: Option<u64>) -> Result<SingleFile, FileError> {
        if let Some(temp) = self.record.temp() {
            match wait_while_busy(|| SingleFile::reopen(&self.path, temp)) {
                Ok(file) => {
                    let left = file.data_ranges().collect::<Result<Vec<_>, _>>().unwrap_or_default();
                    *lock(&self.existing) = left;
                    if let Some(size) = size {
                        file.body().set_size(size)?;
                    }
                    return Ok(file);
                }
                Err(error @ FileError::Busy { .. }) => return Err(error),
                Err(error) => tracing::debug!(%error, "what was left is gone"),
            }
        }
        let file = SingleFile::create(&self.path, size.unwrap_or(0))?;
        if let Err(error) = self.record.set_temp(file.temp_name()) {
            tracing::warn!(%error, "an interruption now would begin from the front");
        }
        Ok(file)
    }

    fn finish(&self, oid: &Oid, size: u64, values: Vec<Value>) -> Result<(), FileError> {
        let Some(file) = lock(&self.file).take() else { return Ok(()) };
        file.body().set_size(size)?;
        let about = lock(&self.about).clone();
        let metadata = Metadata {
            mode: about.mode.unwrap_or(DEFAULT_MODE),
            modified: about.modified.unwrap_or_else(now),
            ..Metadata::default()
        };
        let stamp = file.finish(&metadata, &Policy::default(), Overwrite::Never)?;
        self.record.remove();
        remember(&self.store, &self.path, &stamp, oid, values);
        Ok(())
    }
}

impl Target for FileTarget {
    fn begin(&self, size: Option<u64>, about: &About) -> io::Result<()> {
        if *about != About::default() {
            self.set_about(about);
        }
        if self.body.get().is_some() {
            return Ok(());
        }
        let file = self.note(self.open(size))?;
        *lock(&self.len) = file.body().size();
        let _ = self.body.set(file.body().clone());
        *lock(&self.file) = Some(file);
        Ok(())
    }

    fn existing(&self) -> Vec<Range<u64>> {
        lock(&self.existing).clone()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.note(self.body()?.read_at(offset, buf))
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let body = self.body()?;
        self.note(self.grow(body, offset + bytes.len() as u64))?;
        self.note(body.write_piece(offset, bytes, false))
    }

    fn write_zeros(&self, range: Range<u64>) -> io::Result<()> {
        let body = self.body()?;
        self.note(self.grow(body, range.end))?;
        write_zeros(body, &range, &lock(&self.existing)).or_else(|error| self.note(Err(error)))
    }

    fn complete(&self, oid: &Oid, size: u64, values: Vec<Value>) -> io::Result<()> {
        self.note(self.finish(oid, size, values))
    }
}

/// A new file has a hole there already; what an earlier run left is written over.
pub fn write_zeros(body: &Body, range: &Range<u64>, existing: &[Range<u64>]) -> Result<(), FileError> {
    let is_fresh = existing.iter().all(|left| left.end <= range.start || range.end <= left.start);
    if is_fresh {
        return Ok(());
    }
    let zeros = vec![0; 64 << 10];
    let mut at = range.start;
    while at < range.end {
        let len = (range.end - at).min(zeros.len() as u64);
        body.write_piece(at, &zeros[..len as usize], false)?;
        at += len;
    }
    Ok(())
}

/// Tells the index what a file that was just written holds, so that the same bytes need not cross
/// the network again.
pub fn remember(store: &DiskStore, path: &Path, stamp: &towpath_files::Stamp, oid: &Oid, values: Vec<Value>) {
    let whole = path.parent().and_then(|dir| dir.canonicalize().ok()).zip(path.file_name());
    if let Some((dir, name)) = whole
        && let Some(record) = file_record(&dir.join(name), stamp, oid, values)
        && let Err(error) = store.remember(&[record])
    {
        tracing::warn!(%error, "the file could not be indexed");
    }
}

/// A record of a file that was just written and checked; `path` is absolute and without symlinks.
pub fn file_record(
    path: &Path,
    stamp: &towpath_files::Stamp,
    oid: &Oid,
    values: Vec<Value>,
) -> Option<FileRecord> {
    let stamp = store_stamp(stamp);
    let (dir, name) = (path.parent()?.to_path_buf(), path.file_name()?.to_owned());
    // Its modification time was set by us; unless that is now, a later writer changes it.
    let age = i128::from(stamp.ctime_ns) - i128::from(stamp.mtime_ns);
    let settled = age.unsigned_abs() > towpath_store::stamp::COARSE_TICK.as_nanos();
    let values = Some(values).filter(|values| values.len() > 1);
    Some(FileRecord { dir, name, stamp, settled, oid: *oid, values })
}

/// The system's error inside a file error.
pub fn io_error(error: &FileError) -> io::Error {
    let kind = match error {
        FileError::NoSpace { .. } => io::ErrorKind::StorageFull,
        FileError::Exists { .. } => io::ErrorKind::AlreadyExists,
        FileError::Vanished { .. } => io::ErrorKind::NotFound,
        FileError::Permission { .. } => io::ErrorKind::PermissionDenied,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error.to_string())
}

fn now() -> Time {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Time { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() }
}
