//! Removing what a tree no longer has, by held directories, asking before each entry.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, statat, unlinkat};
use rustix::io::Errno;

use super::access::open_accessible;
use super::directories::TreeDirs;
use super::tree::WrittenTree;
use crate::confine::open_dir;
use crate::error::FileError;
use crate::metadata::HeldMetadata;
use crate::mount::Mount;
use crate::path::RelPath;
use crate::scan::{ScanOptions, Stack};
use crate::stamp::Stamp;

/// Failures that are told; more are only seen in that the removal is not complete.
const TOLD: usize = 64;

/// Result of a removal.
#[derive(Debug, Default)]
pub struct Removed {
    /// Number of entries that are gone.
    pub entries: u64,
    /// True if something stays, because it was to be kept or could not be removed.
    pub kept: bool,
    /// Errors of entries that could not be removed: the first few.
    pub failures: Vec<FileError>,
}

/// Decisions on what is removed, and reports of it.
pub trait Removing {
    /// Asked before anything is done to an entry: a directory before what is in it, and if that is
    /// to be kept nothing in it is asked about.
    fn may(&mut self, path: &RelPath, is_dir: bool) -> bool;

    /// An entry is gone: a directory after what was in it.
    fn gone(&mut self, path: &RelPath, is_dir: bool);
}

/// Removes what is in a [`Destination`](super::Destination).
#[derive(Debug, Clone, Copy)]
pub struct TreeRemover<'a> {
    pub(super) tree: &'a WrittenTree,
    pub(super) directories: &'a TreeDirs,
}

impl TreeRemover<'_> {
    /// Removes what is at `path`, a directory with everything in it, as far as `each` lets go.
    /// An entry that is kept keeps the directories it lies in. Other file systems mounted there are kept,
    /// as [`FileError::Busy`]. Memory is bounded, whatever a directory holds.
    pub fn remove(self, path: &RelPath, each: &mut dyn Removing) -> Result<Removed, FileError> {
        self.remove_or_not(path, each, true)
    }

    /// Does everything that [`Self::remove`] does but the removing.
    pub fn rehearse(self, path: &RelPath, each: &mut dyn Removing) -> Result<Removed, FileError> {
        self.remove_or_not(path, each, false)
    }

    /// Removes the empty directory at `path`; false if it is not empty.
    pub fn remove_dir(self, path: &RelPath) -> Result<bool, FileError> {
        let (dir, name) = self.tree.spot(path)?;
        match unlinkat(&dir, name, AtFlags::REMOVEDIR) {
            Ok(()) => {
                self.tree.dirs().forget(path);
                Ok(true)
            }
            Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
            Err(error) => Err(FileError::new("remove", &path.below(self.tree.path()), error)),
        }
    }

    fn remove_or_not(
        self,
        path: &RelPath,
        each: &mut dyn Removing,
        for_good: bool,
    ) -> Result<Removed, FileError> {
        let (top, name) = self.tree.spot(path)?;
        let vanished = statat(&top, name, AtFlags::SYMLINK_NOFOLLOW).err();
        if let Some(error) = vanished {
            return Err(FileError::new("remove", &path.below(self.tree.path()), error));
        }
        let options = ScanOptions::default();
        let stack = Stack::new(self.tree.path(), Arc::clone(self.tree.dirs().root()), path.clone(), &options);
        let (levels, removed) = Default::default();
        let mut removal =
            TreeRemoval { tree: self.tree, top: Arc::clone(&top), each, for_good, stack, levels, removed };
        removal.entry(top.as_fd(), name, path);
        while removal.step() {}
        self.directories.forget(path);
        Ok(removal.removed)
    }
}

/// A removal under way.
struct TreeRemoval<'a> {
    tree: &'a WrittenTree,
    /// The directory that the first entry lies in.
    top: Arc<OwnedFd>,
    each: &'a mut dyn Removing,
    for_good: bool,
    stack: Stack<'a>,
    levels: Vec<RemovalLevel>,
    removed: Removed,
}

/// A directory being emptied.
struct RemovalLevel {
    kept: bool,
    /// The mode it had before it was made accessible.
    had: Option<u32>,
}

impl TreeRemoval<'_> {
    /// Goes on with the innermost directory; false when there is none.
    fn step(&mut self) -> bool {
        if self.levels.is_empty() {
            return false;
        }
        match self.stack.next_name() {
            Ok(Some(name)) => match (self.stack.dir(), self.stack.at().join(&name)) {
                (Ok(dir), Ok(path)) => self.entry(dir.as_fd(), &name, &path),
                (Err(error), _) => {
                    self.fail(error);
                    self.leave();
                }
                (_, Err(error)) => self.fail(error),
            },
            Ok(None) => self.leave(),
            Err(error) => {
                self.fail(error);
                self.leave();
            }
        }
        true
    }

    fn entry(&mut self, dir: BorrowedFd<'_>, name: &[u8], path: &RelPath) {
        let stat = match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(error) => return self.failed(path, error),
        };
        let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if self.tree.staging.is_own(name) || !self.each.may(path, is_dir) {
            return self.keep();
        }
        let done = match is_dir {
            true => self.enter(dir, name, path),
            false => self.unlink(dir, name, path, AtFlags::empty()),
        };
        if let Err(error) = done {
            self.fail(error);
        }
    }

    fn enter(&mut self, dir: BorrowedFd<'_>, name: &[u8], path: &RelPath) -> Result<(), FileError> {
        let failed = |e| FileError::new("remove", &path.below(self.tree.path()), e);
        let (opened, had) = match self.for_good {
            true => open_accessible(dir, name).map_err(failed)?,
            false => (open_dir(dir, name).map_err(failed)?, None),
        };
        if Mount::of(&opened).map_err(failed)? != Mount::of(dir).map_err(failed)? {
            let shown = path.below(self.tree.path());
            return Err(FileError::busy("remove", &shown, "another file system is mounted there"));
        }
        let stamp = Stamp::held(&opened).map_err(failed)?;
        if !self.levels.is_empty() {
            self.stack.descend(name)?;
        }
        self.levels.push(RemovalLevel { kept: false, had });
        let unread = self.stack.enter(Arc::new(opened), stamp);
        unread.into_iter().for_each(|error| self.fail(error));
        Ok(())
    }

    /// Everything in the innermost directory was tried.
    fn leave(&mut self) {
        let (path, dir) = (self.stack.at().clone(), self.stack.dir());
        let Some(level) = self.levels.pop() else { return };
        self.stack.leave();
        if level.kept {
            restore(dir, level.had);
            return self.keep();
        }
        let parent = if self.levels.is_empty() { Ok(Arc::clone(&self.top)) } else { self.stack.dir() };
        let name = path.names().last().unwrap_or_default();
        let gone = parent.and_then(|parent| self.unlink(parent.as_fd(), name, &path, AtFlags::REMOVEDIR));
        if let Err(error) = gone {
            restore(dir, level.had);
            self.fail(error);
        }
    }

    fn unlink(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &[u8],
        path: &RelPath,
        how: AtFlags,
    ) -> Result<(), FileError> {
        let gone = if self.for_good { unlinkat(dir, name, how) } else { Ok(()) };
        match gone {
            Ok(()) => {
                self.removed.entries += 1;
                self.each.gone(path, how == AtFlags::REMOVEDIR);
            }
            Err(Errno::NOENT) => {}
            Err(error) => return Err(FileError::new("remove", &path.below(self.tree.path()), error)),
        }
        Ok(())
    }

    fn failed(&mut self, path: &RelPath, error: Errno) {
        self.fail(FileError::new("remove", &path.below(self.tree.path()), error));
    }

    fn fail(&mut self, error: FileError) {
        if self.removed.failures.len() < TOLD {
            self.removed.failures.push(error);
        }
        self.keep();
    }

    /// Something in the innermost directory stays.
    fn keep(&mut self) {
        self.removed.kept = true;
        if let Some(level) = self.levels.last_mut() {
            level.kept = true;
        }
    }
}

/// Gives a directory that stays the mode it had; if that fails its owner has too much leave.
fn restore(dir: Result<Arc<OwnedFd>, FileError>, had: Option<u32>) {
    if let (Ok(dir), Some(mode)) = (dir, had) {
        let _ = HeldMetadata::Open(dir.as_fd()).set_mode(mode);
    }
}
