//! Directories of a tree being written: made, or made accessible while something is done in them,
//! and finished when all their entries are in place.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{Mode, fstat, mkdirat};
use rustix::io::Errno;
use towpath_content::tree::Metadata;

use super::access::{make_accessible, open_accessible};
use super::place::{PlaceAt, swap};
use super::queue::Commits;
use super::tree::WrittenTree;
use crate::error::FileError;
use crate::metadata::{HeldMetadata, PreviousMetadata, apply};
use crate::path::RelPath;

/// Result of making a directory: whether one had to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Made {
    /// It is new, with mode 0700 until it is finished.
    New,
    /// It was there.
    Existing,
}

/// The directories of a tree.
#[derive(Debug)]
pub(super) struct TreeDirs {
    tree: Arc<WrittenTree>,
    commits: Arc<Commits>,
    /// Result for the root.
    root: Made,
    /// Directories that are already there are taken for those of an interrupted run.
    resume: bool,
    /// Metadata of directories before they were made accessible, until they are finished.
    unfinished: Mutex<HashMap<RelPath, PreviousMetadata>>,
}

impl TreeDirs {
    /// Those of `tree`, of which only the root was made.
    pub(super) fn new(tree: Arc<WrittenTree>, commits: Arc<Commits>, root: Made, resume: bool) -> Self {
        Self { tree, commits, root, resume, unfinished: Mutex::default() }
    }

    /// Makes a directory, or makes one that is there accessible.
    pub(super) fn make(&self, path: &RelPath) -> Result<Made, FileError> {
        let failed = |e| FileError::new("create", &path.below(self.tree.path()), e);
        if path.is_root() {
            let had = make_accessible(HeldMetadata::Open(self.tree.dirs().root().as_fd())).map_err(failed)?;
            self.note(path, self.root, had);
            return Ok(self.root);
        }
        let (parent, name) = self.tree.spot(path)?;
        let made = match mkdirat(&parent, name, Mode::RWXU) {
            Ok(()) => Made::New,
            Err(Errno::EXIST) if self.resume => Made::Existing,
            Err(error) => return Err(failed(error)),
        };
        let (dir, had) = open_accessible(parent.as_fd(), name).map_err(failed)?;
        self.note(path, made, had);
        self.tree.dirs().keep(path, &Arc::new(dir));
        Ok(made)
    }

    /// Makes a directory in the place of something else, which stays in the staging directory.
    pub(super) fn put_in_place_of(&self, path: &RelPath) -> Result<(), FileError> {
        let failed = |e| FileError::new("replace", &path.below(self.tree.path()), e);
        let (parent, name) = self.tree.spot(path)?;
        let staging = self.tree.staging_for(path)?;
        let temp = staging.fresh_name();
        let (from, to) = (staging.at(&temp), PlaceAt { dir: parent.as_fd(), name });
        mkdirat(from.dir, from.name, Mode::RWXU).map_err(failed)?;
        swap(from, to, &staging.fresh_name()).map_err(failed)?;
        self.forget(path);
        let (dir, had) = open_accessible(parent.as_fd(), name).map_err(failed)?;
        self.note(path, Made::New, had);
        self.tree.dirs().keep(path, &Arc::new(dir));
        Ok(())
    }

    /// Only what cannot be seen later is kept in mind.
    pub(super) fn note(&self, path: &RelPath, made: Made, had: Option<u32>) {
        let before = match made {
            Made::New if !self.tree.policy.modes => PreviousMetadata::Nothing,
            _ => match had {
                Some(mode) => PreviousMetadata::Mode(mode),
                None => return,
            },
        };
        self.unfinished().entry(path.clone()).or_insert(before);
    }

    /// Sets the metadata of a directory whose entries are all in place.
    pub(super) fn finish(&self, path: &RelPath, metadata: &Metadata) -> Result<(), FileError> {
        let shown = path.below(self.tree.path());
        let failed = |e| FileError::new("finish", &shown, e);
        let dir = self.filled(path)?;
        let before = self.unfinished().get(path).copied();
        let before = match before {
            Some(before) => before,
            None => PreviousMetadata::Mode(fstat(&dir).map_err(failed)?.st_mode & 0o7777),
        };
        let applied = apply(HeldMetadata::Open(dir.as_fd()), metadata, &self.tree.policy, before);
        let lacking = applied.map_err(failed)?;
        self.unfinished().remove(path);
        lacking.map_or(Ok(()), |lacking| Err(lacking.of(&shown)))
    }

    /// Gives a directory the mode back that it had.
    pub(super) fn keep(&self, path: &RelPath) -> Result<(), FileError> {
        let before = self.unfinished().get(path).copied();
        let mode = match before {
            None => return Ok(()),
            Some(PreviousMetadata::Mode(mode)) => mode,
            Some(PreviousMetadata::Nothing) => 0o777 & !self.tree.policy.umask(),
        };
        let dir = self.filled(path)?;
        let kept = HeldMetadata::Open(dir.as_fd()).set_mode(mode);
        kept.map_err(|e| FileError::new("finish", &path.below(self.tree.path()), e))?;
        self.unfinished().remove(path);
        Ok(())
    }

    /// Forgets `path` and everything below it, which is another thing now, or gone.
    pub(super) fn forget(&self, path: &RelPath) {
        self.tree.dirs().forget(path);
        self.unfinished().retain(|held, _| !held.starts_with(path));
    }

    /// A directory that no committed file waits for.
    fn filled(&self, path: &RelPath) -> Result<Arc<OwnedFd>, FileError> {
        let shown = path.below(self.tree.path());
        if self.commits.concerns(path) {
            return Err(FileError::busy("finish", &shown, "files wait to be flushed into it"));
        }
        self.tree.dirs().get(path).map_err(|e| FileError::new("finish", &shown, e))
    }

    fn unfinished(&self) -> MutexGuard<'_, HashMap<RelPath, PreviousMetadata>> {
        self.unfinished.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
