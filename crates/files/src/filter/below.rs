//! A filter asked by a scan that begins below the top of the transfer.

use std::os::fd::BorrowedFd;

use super::walk::Filter;
use crate::error::FileError;
use crate::path::RelPath;
use crate::scan::Prune;

/// Hides what a filter does not show; the scan's first directory lies at `top` for the filter.
pub struct FilterBelow<'f> {
    top: &'f RelPath,
    filter: &'f mut Filter,
}

impl<'f> FilterBelow<'f> {
    /// A scan whose root is `top` for the filter.
    pub const fn new(top: &'f RelPath, filter: &'f mut Filter) -> Self {
        Self { top, filter }
    }

    fn path(&self, below: &RelPath) -> Option<RelPath> {
        let mut path = self.top.clone();
        below.names().try_for_each(|name| path.push(name)).ok().map(|()| path)
    }
}

impl Prune for FilterBelow<'_> {
    fn enter(&mut self, dir: BorrowedFd<'_>, path: &RelPath) -> Result<(), FileError> {
        match self.path(path) {
            Some(path) => self.filter.enter(dir, &path),
            None => Ok(()),
        }
    }

    fn leave(&mut self) {
        self.filter.leave();
    }

    fn shows(&mut self, dir: &RelPath, name: &[u8], is_dir: bool) -> bool {
        if self.filter.is_empty() {
            return true;
        }
        // The scan itself tells of an entry that is nested too deeply for a path.
        let Some(shown) = dir.join(name).ok().and_then(|path| self.path(&path)) else { return true };
        self.filter.shows(&shown, is_dir)
    }
}
