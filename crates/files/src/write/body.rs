//! The bytes of a file that is not finished: written in any order, read back, found again.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, fchmod, flock, fstat, openat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::error::FileError;
use crate::sparse::{DataRanges, write_sparse};
use crate::stamp::Stamp;

/// An open temporary file. Clones share it; any thread may write pieces that do not overlap, and
/// nobody may once the file was committed or finished.
#[derive(Debug, Clone)]
pub struct FileBody {
    shared: Arc<SharedFile>,
}

#[derive(Debug)]
struct SharedFile {
    file: File,
    size: AtomicU64,
    /// For messages only.
    path: PathBuf,
}

impl FileBody {
    /// Makes the file `name` in `dir`, empty of data, and locks it.
    pub(crate) fn create(dir: impl AsFd, name: &str, size: u64, path: PathBuf) -> Result<Self, FileError> {
        let body = Self::new(open_new(&dir, name, &path)?, path);
        body.claim().and_then(|()| body.set_size(size)).inspect_err(|_| {
            // The error tells more than a failure to clean up after it would.
            let _ = unlinkat(&dir, name, AtFlags::empty());
        })?;
        Ok(body)
    }

    /// Makes the file `name` in `dir` of these bytes. It is not locked: nobody goes on with it.
    pub(crate) fn create_of(
        dir: impl AsFd,
        name: &str,
        bytes: &[u8],
        sparse: bool,
        path: PathBuf,
    ) -> Result<Self, FileError> {
        let body = Self::new(open_new(&dir, name, &path)?, path);
        let written = match sparse {
            // Zeros at its end make no file longer.
            true => body.set_size(bytes.len() as u64).and_then(|()| body.write_piece(0, bytes, true)),
            false => {
                body.shared.size.store(bytes.len() as u64, Ordering::Relaxed);
                body.write_piece(0, bytes, false)
            }
        };
        written.inspect_err(|_| {
            let _ = unlinkat(&dir, name, AtFlags::empty());
        })?;
        Ok(body)
    }

    /// Opens the file `name` in `dir` that an earlier run made, unless another process has it.
    pub(crate) fn reopen(dir: impl AsFd, name: &str, path: PathBuf) -> Result<Self, FileError> {
        let file = match open_left(&dir, name, OFlags::RDWR, &path) {
            Err(FileError::Permission { .. }) => {
                unlock_mode(&open_left(&dir, name, OFlags::RDONLY, &path)?, &path)?;
                open_left(&dir, name, OFlags::RDWR, &path)?
            }
            opened => opened?,
        };
        let body = Self::new(file, path);
        body.claim()?;
        body.shared.size.store(body.stamp()?.size, Ordering::Relaxed);
        Ok(body)
    }

    /// Opens `name` in `dir`, the second name of a complete file that was `seen`, for its metadata alone. `None`: it is
    /// another file, or has more names. It is not locked: nobody goes on with it.
    pub(crate) fn open_linked(dir: impl AsFd, name: &str, seen: &Stamp, path: PathBuf) -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(dir, name, flags, Mode::empty()).ok()?);
        let stat = fstat(&file).ok()?;
        let is_it = stat.st_nlink == 2 && Stamp::from_stat(&stat).same_bytes(seen);
        let body = is_it.then(|| Self::new(file, path))?;
        body.shared.size.store(seen.size, Ordering::Relaxed);
        Some(body)
    }

    fn new(file: File, path: PathBuf) -> Self {
        Self { shared: Arc::new(SharedFile { file, size: AtomicU64::new(0), path }) }
    }

    fn claim(&self) -> Result<(), FileError> {
        lock(self.file()).map_err(|e| FileError::new("lock", self.path(), e))
    }

    /// Writes `bytes` at `offset`; outside the file's size it is refused. With `sparse`, whole
    /// aligned blocks of zeros become holes.
    pub fn write_piece(&self, offset: u64, bytes: &[u8], sparse: bool) -> Result<(), FileError> {
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > self.size()) {
            return Err(FileError::refused("write", self.path(), "a piece beyond the end of the file"));
        }
        let file = &self.shared.file;
        let written =
            if sparse { write_sparse(file, offset, bytes) } else { file.write_all_at(bytes, offset) };
        written.map_err(|e| FileError::new("write", self.path(), e))
    }

    /// Fills `buf` from `offset`.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), FileError> {
        let read = self.shared.file.read_exact_at(buf, offset);
        read.map_err(|e| FileError::new("read", self.path(), e))
    }

    /// The runs that may hold data, ascending; what lies between was never written, or is zero.
    pub fn data_ranges(&self) -> impl Iterator<Item = io::Result<Range<u64>>> {
        DataRanges::new(&self.shared.file, self.size())
    }

    /// Bytes the file has, written or not.
    pub fn size(&self) -> u64 {
        self.shared.size.load(Ordering::Relaxed)
    }

    /// Makes the file longer or shorter, for objects whose size is learned late.
    pub fn set_size(&self, size: u64) -> Result<(), FileError> {
        self.shared.file.set_len(size).map_err(|e| FileError::new("set size of", self.path(), e))?;
        self.shared.size.store(size, Ordering::Relaxed);
        Ok(())
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.shared.file
    }

    pub(crate) fn path(&self) -> &Path {
        &self.shared.path
    }

    pub(crate) fn stamp(&self) -> Result<Stamp, FileError> {
        Stamp::of(self.file()).map_err(|e| FileError::new("stat", self.path(), e))
    }

    pub(crate) fn sync_data(&self) -> Result<(), Errno> {
        rustix::fs::fdatasync(self.file())
    }
}

/// Marks a temporary as in use by this process. File systems that know no locks do without.
pub(crate) fn lock(file: impl AsFd) -> Result<(), Errno> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::AGAIN) => Err(Errno::AGAIN),
        _ => Ok(()),
    }
}

/// Makes a file that is not there.
fn open_new(dir: impl AsFd, name: &str, path: &Path) -> Result<File, FileError> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(dir, name, flags, Mode::RUSR | Mode::WUSR);
    opened.map(File::from).map_err(|e| FileError::new("create", path, e))
}

/// Opens what an earlier run left.
fn open_left(dir: impl AsFd, name: &str, access: OFlags, path: &Path) -> Result<File, FileError> {
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = openat(dir, name, flags, Mode::empty());
    let file = File::from(opened.map_err(|e| FileError::new("open", path, e))?);
    check_ours(&file, path)?;
    Ok(file)
}

/// A file that had its final mode already may be read-only; here it is unfinished again.
fn unlock_mode(file: &File, path: &Path) -> Result<(), FileError> {
    let unlocked = fchmod(file, Mode::RUSR | Mode::WUSR);
    unlocked.map_err(|e| FileError::new("resume", path, e))
}

/// A temporary of an earlier run is a regular file of this user with no other name.
fn check_ours(file: &File, path: &Path) -> Result<(), FileError> {
    let stat = fstat(file).map_err(|e| FileError::new("stat", path, e))?;
    let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if regular && stat.st_nlink == 1 && stat.st_uid == geteuid().as_raw() {
        return Ok(());
    }
    Err(FileError::changed("resume", path, "not the temporary file that was left there"))
}
