//! Choice of the entries that a scan shows.

use std::os::fd::BorrowedFd;

use crate::error::FileError;
use crate::path::RelPath;

/// Hides entries from a scan. Paths are relative to the held root of the scan.
pub trait Prune {
    /// The directory at `path` was opened, and its names were not looked at yet; called for the
    /// scan's first directory too. On an error, which is told, it is not read and not left.
    fn enter(&mut self, dir: BorrowedFd<'_>, path: &RelPath) -> Result<(), FileError>;

    /// The innermost directory that was entered ends.
    fn leave(&mut self);

    /// True if the entry `name` of the directory `dir` is reported, and entered. Nothing of it was read but its kind.
    fn shows(&mut self, dir: &RelPath, name: &[u8], is_dir: bool) -> bool;
}
