//! The walk: down and up the tree, telling each step.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
use towpath_content::tree::MAX_DEPTH;

use super::found::{Found, Sighted};
use super::hard_links::HardLinks;
use super::prune::Prune;
use super::stack::Stack;
use super::{ScanError, ScanOptions, Scanned};
use crate::confine::{open_at, open_dir_at};
use crate::error::FileError;
use crate::path::RelPath;

/// Tree that is scanned.
pub(super) struct WalkedTree<'a> {
    /// The path of `handle`, for messages.
    pub(super) root: &'a Path,
    pub(super) handle: Arc<OwnedFd>,
    /// The scan's first directory, from `handle`.
    pub(super) at: RelPath,
    pub(super) options: &'a ScanOptions,
}

/// A scan under way.
pub(super) struct ScanWalk<'a, E> {
    options: &'a ScanOptions,
    links: &'a mut HardLinks,
    prune: Option<&'a mut dyn Prune>,
    visit: &'a mut dyn FnMut(Scanned) -> Result<(), E>,
    /// Of the first directory.
    device: u64,
    stack: Stack<'a>,
}

type WalkDone<E> = Result<(), ScanError<E>>;

impl<'a, E> ScanWalk<'a, E> {
    /// Enters the first directory.
    pub(super) fn start(
        tree: WalkedTree<'a>,
        links: &'a mut HardLinks,
        prune: Option<&'a mut dyn Prune>,
        visit: &'a mut dyn FnMut(Scanned) -> Result<(), E>,
    ) -> Result<Self, ScanError<E>> {
        let WalkedTree { root, handle, at, options } = tree;
        let shown = at.below(root);
        let failed = |e| ScanError::Root(FileError::new("open", &shown, e));
        let dir = match at.is_root() {
            true => Arc::clone(&handle),
            false => Arc::new(open_at(&handle, &at, options.links()).map_err(failed)?),
        };
        let found = Found::directory(dir.as_fd(), b"", &|| shown.clone(), options).map_err(failed)?;
        let stack = Stack::new(root, handle, at, options);
        let mut walk = Self { options, links, prune, visit, device: found.stamp.device, stack };
        walk.enter(dir, found)?;
        Ok(walk)
    }

    /// Looks at one name; false when everything was told.
    pub(super) fn step(&mut self) -> Result<bool, ScanError<E>> {
        if self.stack.depth() == 0 {
            return Ok(false);
        }
        match self.stack.next_name() {
            Ok(Some(name)) => self.look(&name)?,
            Ok(None) => self.leave()?,
            Err(error) => self.abandon(error)?,
        }
        Ok(true)
    }

    fn look(&mut self, name: &[u8]) -> WalkDone<E> {
        let dir = match self.stack.dir() {
            Ok(dir) => dir,
            Err(error) => return self.abandon(error),
        };
        let sighted = match Sighted::at(dir.as_fd(), name, self.options) {
            Ok(sighted) => sighted,
            // An entry hidden either way need not be reported, a link to nowhere for example.
            Err(_) if !(self.shows(name, false) && self.shows(name, true)) => return Ok(()),
            Err(error) => return self.fail(FileError::new("stat", &self.path_of(name), error)),
        };
        let is_dir = sighted.is_dir();
        if !self.shows(name, is_dir) {
            return Ok(());
        }
        let elsewhere = self.options.one_file_system && sighted.device() != self.device;
        match sighted.describe(&dir, name, &|| self.path_of(name), self.options) {
            Err(error) => self.fail(FileError::new("stat", &self.path_of(name), error)),
            Ok(found) if !is_dir => self.leaf(found),
            Ok(found) if elsewhere => self.tell_closed(found, None),
            Ok(found) => self.descend(&dir, found),
        }
    }

    fn shows(&mut self, name: &[u8], is_dir: bool) -> bool {
        let Some(prune) = &mut self.prune else { return true };
        prune.shows(self.stack.at(), name, is_dir)
    }

    fn leaf(&mut self, mut found: Found) -> WalkDone<E> {
        if self.options.hard_links {
            self.links.number(&mut found);
        }
        let incomplete = found.incomplete.take();
        self.tell(Scanned::Leaf(found))?;
        incomplete.map_or(Ok(()), |error| self.fail(*error))
    }

    fn descend(&mut self, parent: &OwnedFd, seen: Found) -> WalkDone<E> {
        let name = seen.entry.name.clone();
        let path = self.path_of(&name);
        if self.stack.at().depth() + 1 >= MAX_DEPTH {
            let source = io::Error::other(format!("nested over {MAX_DEPTH} directories deep"));
            return self.fail(FileError::TooDeep { op: "enter".into(), path, source });
        }
        if self.options.follow_links && self.stack.holds(&seen.stamp) {
            return self.fail(FileError::refused(
                "enter",
                &path,
                "a symbolic link to a directory it lies in",
            ));
        }
        match self.open_found(parent, &name, &path) {
            Ok((dir, found)) => match self.stack.descend(&name) {
                Ok(()) => self.enter(Arc::new(dir), found),
                Err(error) => self.fail(error),
            },
            Err(error @ (Errno::NOENT | Errno::LOOP | Errno::NOTDIR)) => {
                self.fail(FileError::new("open", &path, error))
            }
            Err(error) => self.tell_closed(seen, Some(FileError::new("open", &path, error))),
        }
    }

    /// Opens a directory and describes what was opened.
    fn open_found(&self, parent: &OwnedFd, name: &[u8], path: &Path) -> Result<(OwnedFd, Found), Errno> {
        let dir = open_dir_at(parent, name, self.options.links())?;
        let found = Found::directory(dir.as_fd(), name, &|| path.to_path_buf(), self.options)?;
        Ok((dir, found))
    }

    /// A directory that is there and not read, perhaps because it cannot be.
    fn tell_closed(&mut self, mut seen: Found, error: Option<FileError>) -> WalkDone<E> {
        let incomplete = seen.incomplete.take();
        self.tell(Scanned::Enter(seen))?;
        incomplete.map(|error| *error).into_iter().chain(error).try_for_each(|error| self.fail(error))?;
        self.tell(Scanned::Leave)
    }

    fn enter(&mut self, dir: Arc<OwnedFd>, mut found: Found) -> WalkDone<E> {
        let stamp = found.stamp;
        let incomplete = found.incomplete.take();
        self.tell(Scanned::Enter(found))?;
        incomplete.map_or(Ok(()), |error| self.fail(*error))?;
        let entered = match &mut self.prune {
            Some(prune) => prune.enter(dir.as_fd(), self.stack.at()),
            None => Ok(()),
        };
        match entered {
            Ok(()) => self.stack.enter(dir, stamp).into_iter().try_for_each(|error| self.fail(error)),
            Err(error) => {
                self.stack.enter_closed(dir, stamp);
                self.fail(error)?;
                self.stack.leave();
                self.tell(Scanned::Leave)
            }
        }
    }

    fn leave(&mut self) -> WalkDone<E> {
        self.stack.leave();
        if let Some(prune) = &mut self.prune {
            prune.leave();
        }
        self.tell(Scanned::Leave)
    }

    /// Gives up the rest of the innermost directory.
    fn abandon(&mut self, error: FileError) -> WalkDone<E> {
        self.fail(error)?;
        self.leave()
    }

    fn path_of(&self, name: &[u8]) -> PathBuf {
        self.stack.shown().join(OsStr::from_bytes(name))
    }

    fn fail(&mut self, error: FileError) -> WalkDone<E> {
        self.tell(Scanned::Failed(error))
    }

    fn tell(&mut self, step: Scanned) -> WalkDone<E> {
        (self.visit)(step).map_err(ScanError::Stopped)
    }
}
