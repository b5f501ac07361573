//! Where bytes are read from: owned files, referred ones under their stamp, and the byte store.

use std::collections::VecDeque;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, SeekFrom};

use super::files::FileFound;
use super::folders::{Temporary, open_stand_in, share};
use super::kept_bytes::KeptBytes;
use super::store_core::StoreCore;
use crate::error::StoreError;
use crate::hashing::{LIVE_PIECE, append_range};
use crate::stamp::Stamp;
use towpath_byte_store::ByteStoreError;
use towpath_content::Oid;
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
    /// The byte store, for which an empty file stands.
    Kept {
        /// Path of the stand-in.
        path: PathBuf,
        /// The object.
        oid: Oid,
        /// Its bytes.
        size: u64,
        /// Place of its bytes, in words.
        place: String,
    },
    /// Somebody's file.
    Referred(FileFound),
}

impl BytesOrigin {
    fn path(&self) -> &Path {
        match self {
            Self::Owned { path, .. } | Self::Kept { path, .. } => path,
            Self::Referred(found) => &found.path,
        }
    }

    const fn size(&self) -> u64 {
        match self {
            Self::Owned { size, .. } | Self::Kept { size, .. } => *size,
            Self::Referred(found) => found.stamp.size,
        }
    }

    /// Error that it means when the file is not as it was.
    pub(crate) fn loss(&self) -> StoreError {
        match self {
            Self::Owned { path, .. } => StoreError::Corrupt { what: path.display().to_string() },
            Self::Kept { place, .. } => StoreError::Corrupt { what: place.clone() },
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

/// Places where readers of one object may go on reading: those of some that read it side by side.
const READERS: usize = 8;

/// An open file that holds an object, or the stand-in of one that is in the byte store.
#[derive(Debug)]
pub(crate) struct OpenedBytes {
    file: File,
    kept: Option<Arc<KeptBytes>>,
    pub(crate) origin: BytesOrigin,
    used: Mutex<Instant>,
    /// Ends of what was read lately, the newest last.
    ends: Mutex<VecDeque<u64>>,
}

impl OpenedBytes {
    /// Opens the file; it must still be as it is on record. An owned one is locked, together with
    /// other readers, so that it is not evicted; one that is just being removed is lost. So is a stand-in.
    pub(crate) fn open(origin: BytesOrigin, core: &StoreCore) -> Result<Self, StoreError> {
        let (file, kept) = match &origin {
            BytesOrigin::Kept { path, .. } => (open_stand_in(path), Some(Arc::clone(core.kept()?))),
            _ => (open_without_waiting(origin.path()), None),
        };
        let file = file.map_err(|error| origin.explain(error))?;
        let is_owned = !matches!(origin, BytesOrigin::Referred(_));
        if is_owned && !share(&file).map_err(|error| origin.explain(error))? {
            return Err(origin.loss());
        }
        let (used, ends) = (Mutex::new(Instant::now()), Mutex::new(VecDeque::from([0])));
        let source = Self { file, kept, origin, used, ends };
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
            BytesOrigin::Kept { .. } => Ok(true),
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
        let read = match (&self.kept, &self.origin) {
            (Some(kept), BytesOrigin::Kept { oid, size, .. }) => {
                let is_reading_on = *size > LIVE_PIECE && self.reads_on(&range);
                let read = kept.append(oid, *size, range, is_reading_on, buf);
                read.map_err(|error| self.explain_kept(error))
            }
            _ => append_range(&self.file, range, buf).map_err(|error| self.origin.explain(error)),
        };
        let result = read.and_then(|()| self.check());
        if result.is_err() {
            buf.truncate(front);
        }
        result
    }

    /// True if the range begins where somebody ended lately; notes where it ends.
    fn reads_on(&self, range: &Range<u64>) -> bool {
        let mut ends = lock(&self.ends);
        let found = ends.iter().position(|end| *end == range.start);
        found.and_then(|at| ends.remove(at));
        if ends.len() >= READERS {
            ends.pop_front();
        }
        ends.push_back(range.end);
        found.is_some()
    }

    /// Bytes that are gone, or are fewer than they were, are lost; anything else passes or can be mended.
    fn explain_kept(&self, error: ByteStoreError) -> StoreError {
        match error {
            ByteStoreError::NotHere | ByteStoreError::Refused { .. } => self.origin.loss(),
            error => StoreError::Bytes(error),
        }
    }

    /// Bytes of an object that may be fetched whole; `None` if it need not be.
    pub(crate) fn spool_limit(&self) -> Option<u64> {
        self.kept.as_ref().map(|kept| kept.spool)
    }

    /// The file, to be read in other ways than from here: that of the bytes, or a copy made now of what is in the
    /// byte store.
    pub(crate) fn whole_file(&self, core: &StoreCore) -> Result<WholeFile<'_>, StoreError> {
        let (Some(kept), BytesOrigin::Kept { oid, size, .. }) = (&self.kept, &self.origin) else {
            return Ok(WholeFile::Here(&self.file));
        };
        let copy = core.folders.temporary()?;
        kept.fetch(oid, *size, &copy).map_err(|error| match error {
            StoreError::Bytes(error) => self.explain_kept(error),
            error => error,
        })?;
        Ok(WholeFile::Copied(copy))
    }

    /// True if the file has a hole where `range` lies.
    pub(crate) fn is_hole(&self, range: &Range<u64>) -> bool {
        let is_sparse =
            self.kept.is_none() && self.file.metadata().is_ok_and(|found| found.blocks() * 512 < found.len());
        is_sparse
            && !range.is_empty()
            && data_after(&self.file, range.start) >= range.end
            && self.check().is_ok()
    }
}

/// All bytes of an object in a file.
pub(crate) enum WholeFile<'a> {
    /// The very file.
    Here(&'a File),
    /// A copy, which goes when it is dropped.
    Copied(Temporary),
}

impl WholeFile<'_> {
    /// The file.
    pub(crate) const fn file(&self) -> &File {
        match self {
            Self::Here(file) => file,
            Self::Copied(copy) => copy.file(),
        }
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
