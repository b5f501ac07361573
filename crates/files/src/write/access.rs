//! Directories of this user that this user may not read or write into: made accessible while
//! something is done in them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::geteuid;

use crate::confine::open_dir;
use crate::metadata::{HeldMetadata, hold};

/// Access that the owner of a directory needs to work in it.
const ACCESS: u32 = 0o700;

/// Opens the directory `name` in `parent` for work in it, and tells which mode it had if that had
/// to be changed.
pub(super) fn open_accessible(parent: BorrowedFd<'_>, name: &[u8]) -> Result<(OwnedFd, Option<u32>), Errno> {
    match open_dir(parent, name) {
        Err(Errno::ACCESS) => {
            let held = hold(parent, name)?;
            let had = make_accessible(HeldMetadata::Named(held.as_fd()))?;
            open_dir(parent, name).map(|dir| (dir, had))
        }
        opened => {
            let dir = opened?;
            let had = make_accessible(HeldMetadata::Open(dir.as_fd()))?;
            Ok((dir, had))
        }
    }
}

/// Gives the owner leave to work in a directory, if that is this user; tells the mode it had.
pub(super) fn make_accessible(dir: HeldMetadata<'_>) -> Result<Option<u32>, Errno> {
    let stat = dir.stat()?;
    let is_dir = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir();
    let mode = stat.st_mode & 0o7777;
    if !is_dir || mode & ACCESS == ACCESS || stat.st_uid != geteuid().as_raw() {
        return Ok(None);
    }
    dir.set_mode(mode | ACCESS)?;
    Ok(Some(mode))
}
