//! Files that bytes are read from: owned ones, and referred ones under their stamp.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, SeekFrom};

use super::files::FileFound;
use super::folders::share;
use crate::error::StoreError;
use crate::hashing::append_range;
use crate::stamp::Stamp;
use towpath_content::lock::lock;

/// Origin of an object's bytes, as it is on record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BytesOrigin {
    /// A file of the store's own.
    Owned {
        /// Its path.
        path: PathBuf,
        /// The object's bytes.
        size: u64,
    },
    /// Somebody's file.
    Referred(FileFound),
}

impl BytesOrigin {
    fn path(&self) -> &Path {
        match self {
            Self::Owned { path, .. } => path,
            Self::Referred(found) => &found.path,
        }
    }

    const fn size(&self) -> u64 {
        match self {
            Self::Owned { size, .. } => *size,
            Self::Referred(found) => found.stamp.size,
        }
    }

    /// Error that it means when the file is not as it was.
    pub(crate) fn loss(&self) -> StoreError {
        match self {
            Self::Owned { path, .. } => StoreError::Corrupt { what: path.display().to_string() },
            Self::Referred(found) => StoreError::SourceChanged { path: found.path.clone() },
        }
    }

    pub(crate) fn explain(&self, error: io::Error) -> StoreError {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::UnexpectedEof => {
                self.loss()
            }
            _ => StoreError::io("reading", self.path(), error),
        }
    }
}

/// An open file that holds an object.
#[derive(Debug)]
pub(crate) struct OpenedBytes {
    pub(crate) file: File,
    pub(crate) origin: BytesOrigin,
    used: Mutex<Instant>,
}

impl OpenedBytes {
    /// Opens the file; it must still be as it is on record. An owned one is locked, together with
    /// other readers, so that it is not evicted; one that is just being removed is lost.
    pub(crate) fn open(origin: BytesOrigin) -> Result<Self, StoreError> {
        let file = open_without_waiting(origin.path()).map_err(|error| origin.explain(error))?;
        let is_owned = matches!(origin, BytesOrigin::Owned { .. });
        if is_owned && !share(&file).map_err(|error| origin.explain(error))? {
            return Err(origin.loss());
        }
        let source = Self { file, origin, used: Mutex::new(Instant::now()) };
        source.check().map(|()| source)
    }

    /// True if the file still lies where it was opened.
    pub(crate) fn is_in_place(&self) -> bool {
        let identity = |found: Metadata| (found.dev(), found.ino());
        let (open, there) = (self.file.metadata(), std::fs::metadata(self.origin.path()));
        open.ok().map(identity).is_some_and(|open| there.ok().map(identity) == Some(open))
    }

    /// Time since anybody read from it.
    pub(crate) fn since_use(&self) -> Duration {
        lock(&self.used).elapsed()
    }

    /// The object's bytes.
    pub(crate) const fn size(&self) -> u64 {
        self.origin.size()
    }

    /// Checks that the file is as it is on record. An owned file is nobody else's to change, so
    /// its length suffices.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let is_same = match &self.origin {
            BytesOrigin::Owned { size, .. } => self.file.metadata().map(|found| found.len() == *size),
            BytesOrigin::Referred(found) => Stamp::of(&self.file).map(|stamp| stamp == found.stamp),
        };
        match is_same {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.origin.loss()),
            Err(error) => Err(self.origin.explain(error)),
        }
    }

    /// Replaces the contents of `buf` with a range of the file that was not changed meanwhile.
    pub(crate) fn read(&self, range: Range<u64>, buf: &mut Vec<u8>) -> Result<(), StoreError> {
        buf.clear();
        self.append(range, buf)
    }

    /// Appends to `buf` a range of the file that was not changed meanwhile; nothing if that fails.
    pub(crate) fn append(&self, range: Range<u64>, buf: &mut Vec<u8>) -> Result<(), StoreError> {
        *lock(&self.used) = Instant::now();
        let front = buf.len();
        let read = append_range(&self.file, range, buf).map_err(|error| self.origin.explain(error));
        let result = read.and_then(|()| self.check());
        if result.is_err() {
            buf.truncate(front);
        }
        result
    }

    /// True if the file has a hole where `range` lies.
    pub(crate) fn is_hole(&self, range: &Range<u64>) -> bool {
        let is_sparse = self.file.metadata().is_ok_and(|found| found.blocks() * 512 < found.len());
        is_sparse
            && !range.is_empty()
            && data_after(&self.file, range.start) >= range.end
            && self.check().is_ok()
    }
}

/// Opens a file for reading. What has since become a pipe is not waited for.
pub(crate) fn open_without_waiting(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)
}

/// Position of the first data at or after `offset`: the file's end if there are none, `offset`
/// if the file system does not say.
fn data_after(file: &File, offset: u64) -> u64 {
    match rustix::fs::seek(file, SeekFrom::Data(offset)) {
        Ok(found) => found,
        Err(rustix::io::Errno::NXIO) => u64::MAX,
        Err(_) => offset,
    }
}
