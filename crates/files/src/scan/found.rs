//! One entry as the scan found it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, major, minor, openat, readlinkat, statat};
use rustix::io::Errno;
use towpath_content::tree::{Entry, Kind, MAX_TARGET, Metadata, Owner, Xattr};

use super::ScanOptions;
use crate::confine::Links;
use crate::error::FileError;
use crate::metadata::{Held, named_group, named_user, read_attributes};
use crate::stamp::Stamp;

/// An entry, and what a descriptor does not say of it.
#[derive(Debug)]
pub struct Found {
    /// The entry as a descriptor has it; a file's OID and extents are not filled in, and extended
    /// attributes, names of owners and hard links only where the [`ScanOptions`] ask for them.
    pub entry: Entry,
    /// What it looked like.
    pub stamp: Stamp,
    /// How many names it has.
    pub links: u64,
    /// For a regular file: the way to its bytes.
    pub file: Option<ScannedFile>,
    /// Why some of its attributes are missing. A scan tells it as a failure of its own.
    pub incomplete: Option<FileError>,
}

/// A regular file that a scan saw. Holds its directory open: keep few of them.
#[derive(Debug, Clone)]
pub struct ScannedFile {
    dir: Arc<OwnedFd>,
    name: Vec<u8>,
    path: PathBuf,
    stamp: Stamp,
    sparse: bool,
    links: Links,
}

impl ScannedFile {
    /// Opens it for reading, if its name still stands for the file that was seen; it may have
    /// other bytes by now, which its stamp would show.
    pub fn open(&self) -> Result<File, FileError> {
        let file = open_regular(self.dir.as_fd(), &self.name, self.links)
            .map_err(|e| FileError::new("open", &self.path, e))?;
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

/// A name whose inode was looked at, before anything of it is read.
#[derive(Debug)]
pub(crate) struct Sighted {
    stat: Stat,
    /// Held if more than the stat is to be read, so that all of it is read of one inode.
    held: Option<OwnedFd>,
}

impl Sighted {
    /// Looks at `name` in `dir`.
    pub(crate) fn at(dir: BorrowedFd<'_>, name: &[u8], options: &ScanOptions) -> Result<Self, Errno> {
        if !options.which_attributes().any() {
            let flags = if options.follow_links { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
            return statat(dir, name, flags).map(|stat| Self { stat, held: None });
        }
        let links = if options.follow_links { OFlags::empty() } else { OFlags::NOFOLLOW };
        let held = openat(dir, name, OFlags::PATH | OFlags::CLOEXEC | links, Mode::empty())?;
        Ok(Self { stat: fstat(&held)?, held: Some(held) })
    }

    pub(crate) fn is_dir(&self) -> bool {
        FileType::from_raw_mode(self.stat.st_mode) == FileType::Directory
    }

    pub(crate) const fn device(&self) -> u64 {
        self.stat.st_dev
    }

    /// Reads what the options ask for.
    pub(crate) fn describe(
        self,
        dir: &Arc<OwnedFd>,
        name: &[u8],
        path: &dyn Fn() -> PathBuf,
        options: &ScanOptions,
    ) -> Result<Found, Errno> {
        let kind = self.kind(dir.as_fd(), name)?;
        let held = self.held.as_ref().map(|held| Held::Named(held.as_fd()));
        let mut found = Found::new(name, &self.stat, kind, held, path, options);
        if let Kind::File { size, .. } = found.entry.kind {
            let blocks = u64::try_from(self.stat.st_blocks);
            found.file = Some(ScannedFile {
                dir: Arc::clone(dir),
                name: name.to_vec(),
                path: path(),
                stamp: found.stamp,
                sparse: blocks.is_ok_and(|blocks| blocks.saturating_mul(512) < size),
                links: options.links(),
            });
        }
        Ok(found)
    }

    fn kind(&self, dir: BorrowedFd<'_>, name: &[u8]) -> Result<Kind, Errno> {
        match &self.held {
            Some(held) => kind(&self.stat, held.as_fd(), b""),
            None => kind(&self.stat, dir, name),
        }
    }
}

impl Found {
    /// Looks at `name` in `dir`. A directory that is found is described as it was before opening.
    pub(crate) fn look(
        dir: &Arc<OwnedFd>,
        name: &[u8],
        path: &dyn Fn() -> PathBuf,
        options: &ScanOptions,
    ) -> Result<Self, Errno> {
        Sighted::at(dir.as_fd(), name, options)?.describe(dir, name, path, options)
    }

    /// An open directory.
    pub(crate) fn directory(
        dir: BorrowedFd<'_>,
        name: &[u8],
        path: &dyn Fn() -> PathBuf,
        options: &ScanOptions,
    ) -> Result<Self, Errno> {
        let held = options.which_attributes().any().then_some(Held::Open(dir));
        Ok(Self::new(name, &fstat(dir)?, Kind::Directory, held, path, options))
    }

    fn new(
        name: &[u8],
        stat: &Stat,
        kind: Kind,
        held: Option<Held<'_>>,
        path: &dyn Fn() -> PathBuf,
        options: &ScanOptions,
    ) -> Self {
        let stamp = Stamp::from_stat(stat);
        let read = |held| read_attributes(held, options.which_attributes());
        let (xattrs, failed): (Vec<Xattr>, Option<io::Error>) = held.map_or_else(Default::default, read);
        let (user, group) = owners(stat, options.owner_names);
        let metadata =
            Metadata { mode: stat.st_mode & 0o7777, user, group, modified: stamp.modified, xattrs };
        Self {
            entry: Entry { name: name.to_vec(), kind, metadata, hard_link: None },
            stamp,
            links: widened(stat.st_nlink),
            file: None,
            incomplete: failed.map(|error| FileError::new("read attributes of", &path(), error)),
        }
    }
}

fn owners(stat: &Stat, named: bool) -> (Owner, Owner) {
    if named {
        return (named_user(stat.st_uid), named_group(stat.st_gid));
    }
    let owner = |id| Owner { id, name: Vec::new() };
    (owner(stat.st_uid), owner(stat.st_gid))
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

/// Opens for reading without waiting for a pipe's writer, or following a link unless told to.
pub(crate) fn open_regular(dir: BorrowedFd<'_>, name: &[u8], links: Links) -> Result<File, Errno> {
    let nofollow = if links == Links::Follow { OFlags::empty() } else { OFlags::NOFOLLOW };
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | nofollow;
    openat(dir, name, flags, Mode::empty()).map(File::from)
}

/// Checks that an opened file is the regular file that was seen.
pub(crate) fn check_same(file: File, seen: &Stamp) -> Result<File, &'static str> {
    let stat = fstat(&file).map_err(|_| "cannot be looked at")?;
    let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if regular && Stamp::from_stat(&stat).same_file(seen) { Ok(file) } else { Err("another file now") }
}
