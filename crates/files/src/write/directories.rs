//! Directories of a tree being written: made, or made accessible while something is done in them,
//! and finished when all their entries are in place.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, MutexGuard, PoisonError};

use rustix::fs::{Mode, fstat, mkdirat};
use rustix::io::Errno;
use towpath_content::tree::Metadata;

use super::access::{make_accessible, open_accessible};
use super::destination::Destination;
use super::place::{PlaceAt, swap};
use crate::error::FileError;
use crate::metadata::{HeldMetadata, PreviousMetadata, apply, umask};
use crate::path::RelPath;

/// Whether a directory had to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Made {
    /// It is new, with mode 0700 until it is finished.
    New,
    /// It was there.
    Existing,
}

impl Destination {
    /// Makes the directory `path`, whose parent must have been made. The root is there already.
    ///
    /// One that is there and belongs to this user becomes readable and writable to its owner until
    /// [`finish_dir`](Self::finish_dir) or [`keep_dir`](Self::keep_dir).
    pub fn make_dir(&self, path: &RelPath) -> Result<Made, FileError> {
        let failed = |e| FileError::new("create", &path.below(self.path()), e);
        if path.is_root() {
            let had = make_accessible(HeldMetadata::Open(self.dirs().root().as_fd())).map_err(failed)?;
            self.note_unfinished(path, self.root, had);
            return Ok(self.root);
        }
        let (parent, name) = self.spot(path)?;
        let made = match mkdirat(&parent, name, Mode::RWXU) {
            Ok(()) => Made::New,
            Err(Errno::EXIST) if self.options().resume => Made::Existing,
            Err(error) => return Err(failed(error)),
        };
        let (dir, had) = open_accessible(parent.as_fd(), name).map_err(failed)?;
        self.note_unfinished(path, made, had);
        self.dirs().keep(path, &Arc::new(dir));
        Ok(made)
    }

    /// Makes the directory `path` in the place of something else that has the name, which stays in the staging
    /// directory until that is removed: nothing goes before what replaces it is there.
    pub fn put_dir_in_place_of(&self, path: &RelPath) -> Result<(), FileError> {
        let failed = |e| FileError::new("replace", &path.below(self.path()), e);
        let (parent, name) = self.spot(path)?;
        let staging = self.staging_for(path)?;
        let temp = staging.fresh_name();
        let (from, to) = (staging.at(&temp), PlaceAt { dir: parent.as_fd(), name });
        mkdirat(from.dir, from.name, Mode::RWXU).map_err(failed)?;
        swap(from, to, &staging.fresh_name()).map_err(failed)?;
        self.forget(path);
        let (dir, had) = open_accessible(parent.as_fd(), name).map_err(failed)?;
        self.note_unfinished(path, Made::New, had);
        self.dirs().keep(path, &Arc::new(dir));
        Ok(())
    }

    /// Only what cannot be seen later is kept in mind.
    pub(super) fn note_unfinished(&self, path: &RelPath, made: Made, had: Option<u32>) {
        let before = match made {
            Made::New if !self.options().policy.modes => PreviousMetadata::Nothing,
            _ => match had {
                Some(mode) => PreviousMetadata::Mode(mode),
                None => return,
            },
        };
        self.unfinished().entry(path.clone()).or_insert(before);
    }

    /// Sets the metadata of a directory whose entries are all in place: the flush that named them
    /// has returned. While files that were committed into it wait it is [`FileError::Busy`]. If
    /// something could not be set, the rest is, and that is the error.
    pub fn finish_dir(&self, path: &RelPath, metadata: &Metadata) -> Result<(), FileError> {
        let shown = path.below(self.path());
        let failed = |e| FileError::new("finish", &shown, e);
        let dir = self.filled_dir(path)?;
        let before = self.unfinished().get(path).copied();
        let before = match before {
            Some(before) => before,
            None => PreviousMetadata::Mode(fstat(&dir).map_err(failed)?.st_mode & 0o7777),
        };
        let applied = apply(HeldMetadata::Open(dir.as_fd()), metadata, &self.options().policy, before);
        let lacking = applied.map_err(failed)?;
        self.unfinished().remove(path);
        lacking.map_or(Ok(()), |lacking| Err(lacking.of(&shown)))
    }

    /// Gives a directory that gets no new metadata the mode back that it had before
    /// [`make_dir`](Self::make_dir) made it accessible; a new one gets that of the umask.
    pub fn keep_dir(&self, path: &RelPath) -> Result<(), FileError> {
        let before = self.unfinished().get(path).copied();
        let mode = match before {
            None => return Ok(()),
            Some(PreviousMetadata::Mode(mode)) => mode,
            Some(PreviousMetadata::Nothing) => 0o777 & !umask(),
        };
        let dir = self.filled_dir(path)?;
        let kept = HeldMetadata::Open(dir.as_fd()).set_mode(mode);
        kept.map_err(|e| FileError::new("finish", &path.below(self.path()), e))?;
        self.unfinished().remove(path);
        Ok(())
    }

    /// What is at `path`, and everything below it, is another thing now, or gone.
    pub(super) fn forget(&self, path: &RelPath) {
        self.dirs().forget(path);
        self.unfinished().retain(|held, _| !held.starts_with(path));
    }

    /// A directory that no committed file waits for.
    fn filled_dir(&self, path: &RelPath) -> Result<Arc<OwnedFd>, FileError> {
        let shown = path.below(self.path());
        if self.queue().concerns(path) {
            return Err(FileError::busy("finish", &shown, "files wait to be flushed into it"));
        }
        self.dirs().get(path).map_err(|e| FileError::new("finish", &shown, e))
    }

    fn unfinished(&self) -> MutexGuard<'_, HashMap<RelPath, PreviousMetadata>> {
        self.unfinished.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
