//! Mounted file systems and what lies in them: renames do not cross from one to another.

use std::os::fd::AsFd;

use rustix::fs::{AtFlags, StatxFlags, fstat, statx};
use rustix::io::Errno;

/// A mounted file system. Two mounts of one device are two, and so are two subvolumes of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mount {
    device: u64,
    /// 0 where the kernel does not tell (before Linux 5.8).
    id: u64,
}

impl Mount {
    /// The one that an open file or directory lies in.
    pub(crate) fn of(fd: impl AsFd) -> Result<Self, Errno> {
        let device = fstat(&fd)?.st_dev;
        let told = statx(&fd, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok();
        let told = told.filter(|told| told.stx_mask & StatxFlags::MNT_ID.bits() != 0);
        Ok(Self { device, id: told.map_or(0, |told| told.stx_mnt_id) })
    }
}
