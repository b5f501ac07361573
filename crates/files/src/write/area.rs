//! Staging as a caller sees it: what an interrupted run left is found again, gone on with, and removed at the end.

use super::destination::Destination;
use super::staging::{Staged, find_stale};
use crate::error::FileError;
use crate::path::RelPath;
use crate::stamp::Stamp;
use std::os::fd::AsFd;

/// The staging directories of a [`Destination`].
#[derive(Debug, Clone, Copy)]
pub struct StagingArea<'a> {
    pub(super) to: &'a Destination,
}

impl StagingArea<'_> {
    /// The name of the staging directory in the root, made if there is none yet, for a resume record.
    pub fn name(self) -> Result<String, FileError> {
        self.to.tree.staging.of_root().map(|staging| staging.name().to_owned())
    }

    /// Goes on with the staging directory `name` of an earlier run, removing all files in it but
    /// those whose names are to be kept. [`FileError::Busy`] if another process uses it.
    pub fn adopt(self, name: &str, keep: &dyn Fn(&str) -> bool) -> Result<(), FileError> {
        self.to.tree.staging.adopt_in_root(name, keep)
    }

    /// [`adopt`](Self::adopt) in the file system that `path` lies in, with the name
    /// that [`Staged::staging`] told.
    pub fn adopt_for(self, path: &RelPath, name: &str, keep: &dyn Fn(&str) -> bool) -> Result<(), FileError> {
        let (dir, _) = self.to.tree.spot(path)?;
        self.to.tree.staging.adopt(path, &dir, name, keep)
    }

    /// Opens a temporary file that an earlier run left in the adopted staging directory.
    pub fn reopen(self, name: &str) -> Result<Staged, FileError> {
        self.to.tree.staging.of_root()?.reopen(name)
    }

    /// [`reopen`](Self::reopen) of a file that was staged for `path`.
    pub fn reopen_for(self, path: &RelPath, name: &str) -> Result<Staged, FileError> {
        self.to.tree.staging_for(path)?.reopen(name)
    }

    /// A further name, in staging, for the file at `old` that was `seen`, so that it can be committed to `path` without
    /// a copy of its bytes. `None` where that cannot be: it changed, has other names, or the file system has no links.
    pub fn link_for(self, old: &RelPath, seen: &Stamp, path: &RelPath) -> Result<Option<Staged>, FileError> {
        let (dir, name) = self.to.tree.spot(old)?;
        self.to.tree.staging_for(path)?.link(&dir, name, seen)
    }

    /// The staging directories of this user in the root that no process uses.
    pub fn find_stale(self) -> Result<Vec<String>, FileError> {
        find_stale(self.to.tree.dirs().root().as_fd(), self.to.path())
    }

    /// Removes the staging directories and what is in them; [`FileError::Busy`] before the last flush.
    pub fn remove(self) -> Result<(), FileError> {
        if !self.to.commits.is_empty() {
            return Err(FileError::busy("remove staging of", self.to.path(), "files wait to be flushed"));
        }
        self.to.tree.staging.remove()
    }
}
