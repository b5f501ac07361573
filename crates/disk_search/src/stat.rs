//! STAT: which files and directories lie in a directory. Their names alone come for less.

use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Access, AtFlags, FileType, RawDir, accessat, fstat, statat};
use rustix::io::Errno;
use towpath_store::Stamp;

use super::open::{self, MountId};
use super::{Cancel, Cost, DiskMeter, SearchError};

/// Entries reported at once.
const PART: usize = 1024;
/// Bytes the kernel fills per call; some hundred names.
const BUFFER: usize = 32 * 1024;

/// A directory to look into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryId {
    /// Absolute, without symbolic links.
    pub path: Arc<Path>,
    /// The file system it must lie in; `None` for one that the search may begin in.
    pub mount: Option<MountId>,
}

impl DirectoryId {
    /// One that a search begins in, on whichever file system it lies.
    pub fn start(path: &Path) -> Self {
        Self { path: path.into(), mount: None }
    }
}

/// A regular file that this user may read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The directory.
    pub dir: Arc<Path>,
    /// The file's name in it.
    pub name: OsString,
    /// Its device and inode, size and times.
    pub stamp: Stamp,
}

impl Candidate {
    /// Its path.
    pub fn path(&self) -> PathBuf {
        self.dir.join(&self.name)
    }
}

/// An open directory.
#[derive(Debug)]
pub struct OpenedDirectory {
    path: Arc<Path>,
    dir: OwnedFd,
    mount: MountId,
    identity: (u64, u64),
}

impl OpenedDirectory {
    /// Opens a directory, if it lies in the file system it must lie in.
    pub fn open(directory: &DirectoryId) -> Result<Self, SearchError> {
        let path = Arc::clone(&directory.path);
        let failed = |error: Errno| SearchError::of(&path, error);
        let dir = open::directory(&path)?;
        let mount = open::mount_of(&dir).map_err(failed)?;
        if directory.mount.is_some_and(|expected| expected != mount) {
            return Err(SearchError::OtherFileSystem(path.to_path_buf()));
        }
        let own = fstat(&dir).map_err(failed)?;
        Ok(Self { identity: (own.st_dev, own.st_ino), path, dir, mount })
    }

    /// Its device and inode, by which one that is reached twice is noticed.
    pub fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// A directory in it.
    pub fn below(&self, name: &OsStr) -> DirectoryId {
        DirectoryId { path: self.path.join(name).into(), mount: Some(self.mount) }
    }

    /// Tells what lies in it as it tells itself, without a look at any of that: for much less than [`stat`]. Some file
    /// systems don't tell kinds. `each` returns false to end it.
    pub fn names(&self, each: &mut dyn FnMut(&OsStr, FileType) -> bool) -> Result<(), SearchError> {
        let mut buffer = Vec::<u8>::with_capacity(BUFFER);
        let spare: &mut [MaybeUninit<u8>] = buffer.spare_capacity_mut();
        let mut entries = RawDir::new(&self.dir, spare);
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(|error| SearchError::of(&self.path, error))?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." && !each(name, entry.file_type()) {
                return Err(SearchError::Cancelled);
            }
        }
        Ok(())
    }
}

/// Part of what lies in a directory; a huge one comes in many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The directory's device and inode, by which one that is reached twice is noticed.
    pub identity: (u64, u64),
    /// Files worth looking at.
    pub files: Vec<Candidate>,
    /// Directories. Those on another file system are found out when they are looked into.
    pub directories: Vec<DirectoryId>,
}

impl Listing {
    fn len(&self) -> usize {
        self.files.len() + self.directories.len()
    }
}

/// Tells what lies in a directory, in parts; `each` returns false to end it. Symbolic links, special
/// files, empty files, and files that this user may not read or that `leave_out` names are left out.
pub fn stat(
    directory: &DirectoryId,
    leave_out: &dyn Fn(&OsStr) -> bool,
    cancel: &Cancel,
    each: &mut dyn FnMut(Listing) -> bool,
) -> (Result<(), SearchError>, Cost) {
    let mut meter = DiskMeter::start();
    let result = list(directory, leave_out, cancel, &mut meter, each);
    (result, meter.stop())
}

fn list(
    directory: &DirectoryId,
    leave_out: &dyn Fn(&OsStr) -> bool,
    cancel: &Cancel,
    meter: &mut DiskMeter,
    each: &mut dyn FnMut(Listing) -> bool,
) -> Result<(), SearchError> {
    cancel.check()?;
    let dir = OpenedDirectory::open(directory)?;
    meter.cost.stats += 1;
    let begin = || Listing { identity: dir.identity, files: Vec::new(), directories: Vec::new() };
    let mut part = begin();
    dir.names(&mut |name, kind| {
        if !leave_out(name) {
            look(&dir, name, kind, meter, &mut part);
        }
        if part.len() < PART {
            return true;
        }
        let full = std::mem::replace(&mut part, begin());
        !cancel.is_cancelled() && meter.aside(|| each(full))
    })?;
    if meter.aside(|| each(part)) { Ok(()) } else { Err(SearchError::Cancelled) }
}

/// Adds one entry, if it is worth it. What is gone by now, or may not be looked at, is not.
fn look(dir: &OpenedDirectory, name: &OsStr, kind: FileType, meter: &mut DiskMeter, part: &mut Listing) {
    match kind {
        FileType::Directory => part.directories.push(dir.below(name)),
        FileType::RegularFile | FileType::Unknown => {
            meter.cost.stats += 1;
            let Ok(found) = statat(&dir.dir, name, AtFlags::SYMLINK_NOFOLLOW) else { return };
            match FileType::from_raw_mode(found.st_mode) {
                FileType::Directory => part.directories.push(dir.below(name)),
                FileType::RegularFile if found.st_size > 0 && may_read(&dir.dir, name, found.st_mode) => {
                    let stamp = Stamp::from_stat(&found);
                    part.files.push(Candidate { dir: Arc::clone(&dir.path), name: name.into(), stamp });
                }
                _ => {}
            }
        }
        _ => {}
    }
}

/// True if this process may read it. A file that everyone may read is the usual case, and needs no second call.
fn may_read(dir: impl AsFd, name: &OsStr, mode: u32) -> bool {
    mode & 0o444 == 0o444 || accessat(dir, name, Access::READ_OK, AtFlags::EACCESS).is_ok()
}
