//! Stamp of a file when it was seen, to tell later whether it is still the same.

use rustix::fs::Stat;
use towpath_content::tree::Time;

/// Device, inode, size and times of a file. Any change of its bytes changes its stamp, except one
/// within the same tick of the clock as the last change before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Stamp {
    /// Device number of the file system.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Bytes.
    pub size: u64,
    /// Last modification of the bytes (mtime).
    pub modified: Time,
    /// Last change of bytes or metadata (ctime).
    pub changed: Time,
}

impl Stamp {
    /// The stamp of an open file.
    pub fn of(file: &std::fs::File) -> std::io::Result<Self> {
        Ok(Self::from_stat(&rustix::fs::fstat(file)?))
    }

    /// True if both are of the same inode, changed or not.
    pub const fn same_file(&self, other: &Self) -> bool {
        self.device == other.device && self.inode == other.inode
    }

    /// True if both are of the same inode and its bytes have not changed, whatever became of its
    /// names and metadata. Tells also an inode whose number was given to another file.
    pub fn same_bytes(&self, other: &Self) -> bool {
        Self { changed: other.changed, ..*self } == *other
    }

    /// The stamp of whatever a descriptor stands for.
    pub(crate) fn held(fd: impl std::os::fd::AsFd) -> Result<Self, rustix::io::Errno> {
        rustix::fs::fstat(fd).map(|stat| Self::from_stat(&stat))
    }

    pub(crate) fn from_stat(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: time(stat.st_mtime, stat.st_mtime_nsec),
            changed: time(stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}

/// The type of the kernel's nanoseconds differs between architectures.
fn time(seconds: i64, nanos: impl TryInto<u32>) -> Time {
    Time { seconds, nanos: nanos.try_into().unwrap_or(0) }
}
