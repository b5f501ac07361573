//! One entry as the scan found it.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, major, minor, openat, readlinkat, statat};
use rustix::io::Errno;
use towpath_content::tree::{Entry, Kind, MAX_TARGET, Metadata, Owner};

use crate::error::FileError;
use crate::stamp::Stamp;

/// An entry, and what a descriptor does not say of it.
#[derive(Debug)]
pub struct Found {
    /// The entry as a descriptor has it; a file's OID and extents, extended attributes, names of
    /// owners and hard links are not filled in.
    pub entry: Entry,
    /// What it looked like.
    pub stamp: Stamp,
    /// How many names it has.
    pub links: u64,
    /// For a regular file: the way to its bytes.
    pub file: Option<ScannedFile>,
}

/// A regular file that a scan saw. Holds its directory open: keep few of them.
#[derive(Debug, Clone)]
pub struct ScannedFile {
    dir: Arc<OwnedFd>,
    name: Vec<u8>,
    path: PathBuf,
    stamp: Stamp,
    sparse: bool,
}

impl ScannedFile {
    /// Opens it for reading, if its name still stands for the file that was seen; it may have
    /// other bytes by now, which its stamp would show.
    pub fn open(&self) -> Result<File, FileError> {
        let file =
            open_regular(self.dir.as_fd(), &self.name).map_err(|e| FileError::new("open", &self.path, e))?;
        check_same(file, &self.stamp).map_err(|how| FileError::changed("open", &self.path, how))
    }

    /// What it looked like.
    pub const fn stamp(&self) -> &Stamp {
        &self.stamp
    }

    /// Its path, for messages.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// True if it takes less room on disk than it has bytes: ask
    /// [`data_extents`](crate::data_extents) where its holes are.
    pub const fn looks_sparse(&self) -> bool {
        self.sparse
    }
}

impl Found {
    /// Looks at `name` in `dir`. A directory that is found is described as it was before opening.
    pub(super) fn look(dir: &Arc<OwnedFd>, name: &[u8], path: &dyn Fn() -> PathBuf) -> Result<Self, Errno> {
        let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let mut found = Self::describe(name, &stat, kind(&stat, dir.as_fd(), name)?);
        if let Kind::File { size, .. } = found.entry.kind {
            let sparse = u64::try_from(stat.st_blocks).is_ok_and(|blocks| blocks.saturating_mul(512) < size);
            let dir = Arc::clone(dir);
            found.file =
                Some(ScannedFile { dir, name: name.to_vec(), path: path(), stamp: found.stamp, sparse });
        }
        Ok(found)
    }

    /// An open directory.
    pub(super) fn directory(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Self, Errno> {
        Ok(Self::describe(name, &fstat(dir)?, Kind::Directory))
    }

    fn describe(name: &[u8], stat: &Stat, kind: Kind) -> Self {
        let stamp = Stamp::from_stat(stat);
        let metadata = Metadata {
            mode: stat.st_mode & 0o7777,
            user: Owner { id: stat.st_uid, name: Vec::new() },
            group: Owner { id: stat.st_gid, name: Vec::new() },
            modified: stamp.modified,
            xattrs: Vec::new(),
        };
        let entry = Entry { name: name.to_vec(), kind, metadata, hard_link: None };
        Self { entry, stamp, links: widened(stat.st_nlink), file: None }
    }
}

/// The type of the kernel's link count differs between architectures.
fn widened(count: impl Into<u64>) -> u64 {
    count.into()
}

fn kind(stat: &Stat, dir: BorrowedFd<'_>, name: &[u8]) -> Result<Kind, Errno> {
    let (major, minor) = (major(stat.st_rdev), minor(stat.st_rdev));
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Ok(Kind::Directory),
        FileType::RegularFile => {
            let size = u64::try_from(stat.st_size).map_err(|_| Errno::OVERFLOW)?;
            Ok(Kind::File { size, oid: None, extents: None })
        }
        FileType::Symlink => read_target(dir, name).map(|target| Kind::Symlink { target }),
        FileType::Fifo => Ok(Kind::Fifo),
        FileType::Socket => Ok(Kind::Socket),
        FileType::CharacterDevice => Ok(Kind::CharDevice { major, minor }),
        FileType::BlockDevice => Ok(Kind::BlockDevice { major, minor }),
        FileType::Unknown => Err(Errno::OPNOTSUPP),
    }
}

fn read_target(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Vec<u8>, Errno> {
    let target = readlinkat(dir, name, Vec::new())?.into_bytes();
    match target.len() {
        1..=MAX_TARGET => Ok(target),
        _ => Err(Errno::NAMETOOLONG),
    }
}

/// Opens for reading without following a link or waiting for a pipe's writer.
pub(super) fn open_regular(dir: BorrowedFd<'_>, name: &[u8]) -> Result<File, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    openat(dir, name, flags, Mode::empty()).map(File::from)
}

/// Checks that an opened file is the regular file that was seen.
pub(super) fn check_same(file: File, seen: &Stamp) -> Result<File, &'static str> {
    let stat = fstat(&file).map_err(|_| "cannot be looked at")?;
    let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if regular && Stamp::from_stat(&stat).same_file(seen) { Ok(file) } else { Err("another file now") }
}
