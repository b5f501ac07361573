//! An inode that is held by a descriptor, and the calls that read or change its metadata.
//!
//! Some things cannot be opened: symbolic links, devices and pipes without side effects, files
//! that their owner may not read. They are held by a descriptor that only stands for them
//! (`O_PATH`), which the system takes by its number in `/proc/self/fd` where a call has no form
//! for descriptors. Such a path leads to the held inode and nowhere else, whatever has its name.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Stat, Timestamps, XattrFlags, chmodat, chownat, fchmod, fchown,
    fgetxattr, flistxattr, flistxattr_query, fremovexattr, fsetxattr, fstat, futimens, getxattr, listxattr,
    listxattr_query, openat, removexattr, setxattr, utimensat,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

/// The most bytes one attribute, or the list of all names, can have on Linux.
const MOST: usize = 64 * 1024;
/// Times that a list of attributes is tried again which grows while it is read.
const RETRIES: usize = 8;

/// A held inode.
#[derive(Debug, Clone, Copy)]
pub(crate) enum HeldMetadata<'a> {
    /// Opened for reading or writing.
    Open(BorrowedFd<'a>),
    /// Held without being opened.
    Named(BorrowedFd<'a>),
}

/// Holds what has the name `name` in `dir`, without opening it or following a link.
pub(crate) fn hold(dir: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    openat(dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Calls with the path of a held descriptor. There, "not there" can only mean that `/proc` is not.
fn by_proc<T>(fd: BorrowedFd<'_>, call: impl FnOnce(&str) -> Result<T, Errno>) -> Result<T, Errno> {
    call(&format!("/proc/self/fd/{}", fd.as_raw_fd()))
        .map_err(|e| if e == Errno::NOENT { Errno::NOSYS } else { e })
}

impl HeldMetadata<'_> {
    const fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Open(fd) | Self::Named(fd) => *fd,
        }
    }

    pub(crate) fn stat(&self) -> Result<Stat, Errno> {
        fstat(self.fd())
    }

    /// The names of all extended attributes, each ended by NUL.
    pub(super) fn attribute_names(&self) -> Result<Vec<u8>, Errno> {
        for _ in 0..RETRIES {
            let len = match self {
                Self::Open(fd) => flistxattr_query(fd)?,
                Self::Named(fd) => by_proc(*fd, |path| listxattr_query(path))?,
            };
            if len == 0 {
                return Ok(Vec::new());
            }
            let mut names = Vec::with_capacity(len);
            let read = match self {
                Self::Open(fd) => flistxattr(fd, spare_capacity(&mut names)),
                Self::Named(fd) => by_proc(*fd, |path| listxattr(path, spare_capacity(&mut names))),
            };
            match read {
                Err(Errno::RANGE) => {}
                read => return read.map(|_| names),
            }
        }
        Err(Errno::RANGE)
    }

    /// The value of one attribute; `None` if it has none of that name.
    pub(super) fn attribute(&self, name: &CStr) -> Result<Option<Vec<u8>>, Errno> {
        let mut value = Vec::with_capacity(MOST);
        let read = match self {
            Self::Open(fd) => fgetxattr(fd, name, spare_capacity(&mut value)),
            Self::Named(fd) => by_proc(*fd, |path| getxattr(path, name, spare_capacity(&mut value))),
        };
        match read {
            Ok(_) => Ok(Some(value)),
            Err(Errno::NODATA) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// True if what is made in this directory begins with an ACL. If in doubt, it does.
    pub(crate) fn hands_on(&self) -> bool {
        !matches!(self.attribute(super::attributes::DEFAULT), Ok(None) | Err(Errno::OPNOTSUPP))
    }

    pub(super) fn set_attribute(&self, name: &CStr, value: &[u8]) -> Result<(), Errno> {
        match self {
            Self::Open(fd) => fsetxattr(fd, name, value, XattrFlags::empty()),
            Self::Named(fd) => by_proc(*fd, |path| setxattr(path, name, value, XattrFlags::empty())),
        }
    }

    pub(super) fn remove_attribute(&self, name: &CStr) -> Result<(), Errno> {
        match self {
            Self::Open(fd) => fremovexattr(fd, name),
            Self::Named(fd) => by_proc(*fd, |path| removexattr(path, name)),
        }
    }

    pub(super) fn set_owner(&self, user: Option<Uid>, group: Option<Gid>) -> Result<(), Errno> {
        match self {
            Self::Open(fd) => fchown(fd, user, group),
            Self::Named(fd) => chownat(fd, "", user, group, AtFlags::EMPTY_PATH),
        }
    }

    /// Not for symbolic links, which have no mode.
    pub(crate) fn set_mode(&self, mode: u32) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(mode);
        match self {
            Self::Open(fd) => fchmod(fd, mode),
            Self::Named(fd) => by_proc(*fd, |path| chmodat(CWD, path, mode, AtFlags::empty())),
        }
    }

    pub(super) fn set_times(&self, times: &Timestamps) -> Result<(), Errno> {
        match self {
            Self::Open(fd) => futimens(fd, times),
            Self::Named(fd) => match utimensat(fd, "", times, AtFlags::EMPTY_PATH) {
                // Before Linux 5.8.
                Err(Errno::INVAL) => by_proc(*fd, |path| utimensat(CWD, path, times, AtFlags::empty())),
                done => done,
            },
        }
    }
}

/// Kind of file that a stat is of.
pub(super) const fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}
