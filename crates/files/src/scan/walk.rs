//! The walk: a stack of directories, each with the names still to be looked at.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
use towpath_content::tree::{Kind, MAX_DEPTH};

use super::found::Found;
use super::names::{SortedNames, Sorter};
use super::spill::Spill;
use super::{ScanError, ScanOptions, Scanned};
use crate::confine::{open_below, open_dir};
use crate::error::FileError;
use crate::listing::for_each_name;
use crate::names::check_name;
use crate::path::RelPath;
use crate::stamp::Stamp;

/// Directories of the path to the current one that stay open, the root not counted.
const HELD: usize = 64;

/// What fails when the scratch file does.
const SORT: &str = "sort names of";

/// A scan under way.
pub(super) struct Walk<'a, E> {
    root: &'a Path,
    handle: Arc<OwnedFd>,
    budget: usize,
    visit: &'a mut dyn FnMut(Scanned) -> Result<(), E>,
    spill: Spill,
    /// The path of the innermost directory.
    at: RelPath,
    stack: Vec<Frame>,
}

/// A directory that was entered and not left.
struct Frame {
    /// Closed while deeper ones are being read.
    dir: Option<Arc<OwnedFd>>,
    stamp: Stamp,
    names: SortedNames,
}

type Done<E> = Result<(), ScanError<E>>;

impl<'a, E> Walk<'a, E> {
    /// Enters the root, held by `handle`; its path is for messages.
    pub(super) fn start(
        root: &'a Path,
        handle: Arc<OwnedFd>,
        options: &ScanOptions,
        visit: &'a mut dyn FnMut(Scanned) -> Result<(), E>,
    ) -> Result<Self, ScanError<E>> {
        let failed = |e| ScanError::Root(FileError::new("open", root, e));
        let found = Found::directory(handle.as_fd(), b"").map_err(failed)?;
        let spill = Spill::new(&options.scratch);
        let (at, stack) = (RelPath::root(), Vec::new());
        let budget = options.names_budget;
        let mut walk = Self { root, handle: Arc::clone(&handle), budget, visit, spill, at, stack };
        walk.enter(handle, found)?;
        Ok(walk)
    }

    /// Looks at one name; false when everything was told.
    pub(super) fn step(&mut self) -> Result<bool, ScanError<E>> {
        let Some(frame) = self.stack.last_mut() else { return Ok(false) };
        match frame.names.next(&self.spill) {
            Ok(Some(name)) => self.look(&name)?,
            Ok(None) => self.leave()?,
            Err(error) => {
                self.fail(FileError::new("read", self.spill.dir(), error))?;
                self.leave()?;
            }
        }
        Ok(true)
    }

    fn look(&mut self, name: &[u8]) -> Done<E> {
        let dir = match self.current_dir() {
            Ok(dir) => dir,
            Err(error) => return self.abandon(error),
        };
        let path = || self.path_of(name);
        match Found::look(&dir, name, &path) {
            Err(error) => self.fail(FileError::new("stat", &self.path_of(name), error)),
            Ok(found) if found.entry.kind == Kind::Directory => self.descend(&dir, found),
            Ok(found) => self.tell(Scanned::Leaf(found)),
        }
    }

    fn descend(&mut self, parent: &OwnedFd, seen: Found) -> Done<E> {
        let path = self.path_of(&seen.entry.name);
        if self.stack.len() >= MAX_DEPTH {
            let source = io::Error::other(format!("nested over {MAX_DEPTH} directories deep"));
            return self.fail(FileError::TooDeep { op: "enter", path, source });
        }
        match open_found(parent, &seen.entry.name) {
            Ok((dir, found)) => match self.at.push(&found.entry.name) {
                Ok(()) => self.enter(Arc::new(dir), found),
                Err(error) => self.fail(error),
            },
            Err(error @ (Errno::NOENT | Errno::LOOP | Errno::NOTDIR)) => {
                self.fail(FileError::new("open", &path, error))
            }
            Err(error) => self.tell_closed(seen, FileError::new("open", &path, error)),
        }
    }

    /// A directory that is there but cannot be read.
    fn tell_closed(&mut self, seen: Found, error: FileError) -> Done<E> {
        self.tell(Scanned::Enter(seen))?;
        self.fail(error)?;
        self.tell(Scanned::Leave)
    }

    fn enter(&mut self, dir: Arc<OwnedFd>, found: Found) -> Done<E> {
        let stamp = found.stamp;
        self.tell(Scanned::Enter(found))?;
        let mut failures = Vec::new();
        let names = self.read_names(&dir, &mut failures);
        failures.into_iter().try_for_each(|error| self.fail(error))?;
        if let Some(outer) = self.stack.len().checked_sub(HELD) {
            self.stack[outer].dir = None;
        }
        self.stack.push(Frame { dir: Some(dir), stamp, names });
        Ok(())
    }

    /// All names of a directory that could be read; why others could not is added to `failures`.
    fn read_names(&mut self, dir: &OwnedFd, failures: &mut Vec<FileError>) -> SortedNames {
        let shown = self.at.below(self.root);
        let allowance = self.allowance();
        let mark = self.spill.mark();
        let mut sorter = Sorter::new(&mut self.spill, allowance);
        let read = for_each_name(dir, &mut |name| collect(&mut sorter, name, &shown, failures));
        if let Err(Unread { op, error }) = read {
            failures.push(FileError::new(op, &shown, error));
        }
        sorter.finish().unwrap_or_else(|error| {
            failures.push(FileError::new(SORT, &shown, error));
            self.spill.cut(mark);
            SortedNames::none(&self.spill)
        })
    }

    /// Bytes of names that the next directory may hold: what the outer ones leave of the budget,
    /// and a little in any case.
    fn allowance(&self) -> usize {
        let held: usize = self.stack.iter().map(|frame| frame.names.cost()).sum();
        self.budget.saturating_sub(held).max(self.budget / MAX_DEPTH)
    }

    fn leave(&mut self) -> Done<E> {
        if let Some(frame) = self.stack.pop() {
            self.spill.cut(frame.names.mark());
            self.at.pop();
        }
        self.tell(Scanned::Leave)
    }

    /// Gives up the rest of the innermost directory.
    fn abandon(&mut self, error: FileError) -> Done<E> {
        self.fail(error)?;
        self.leave()
    }

    /// The innermost directory, opened again if it was closed meanwhile.
    fn current_dir(&mut self) -> Result<Arc<OwnedFd>, FileError> {
        let shown = || self.at.below(self.root);
        let Some(frame) = self.stack.last_mut() else { return Ok(Arc::clone(&self.handle)) };
        if let Some(dir) = &frame.dir {
            return Ok(Arc::clone(dir));
        }
        let failed = |e| FileError::new("open", &shown(), e);
        let dir = Arc::new(open_below(&self.handle, &self.at).map_err(failed)?);
        if !Found::directory(dir.as_fd(), b"").map_err(failed)?.stamp.same_file(&frame.stamp) {
            return Err(FileError::changed("open", &shown(), "another directory now"));
        }
        frame.dir = Some(Arc::clone(&dir));
        Ok(dir)
    }

    fn path_of(&self, name: &[u8]) -> PathBuf {
        self.at.below(self.root).join(OsStr::from_bytes(name))
    }

    fn fail(&mut self, error: FileError) -> Done<E> {
        self.tell(Scanned::Failed(error))
    }

    fn tell(&mut self, step: Scanned) -> Done<E> {
        (self.visit)(step).map_err(ScanError::Stopped)
    }
}

/// Opens a directory and describes what was opened.
fn open_found(parent: &OwnedFd, name: &[u8]) -> Result<(OwnedFd, Found), Errno> {
    let dir = open_dir(parent, name)?;
    let found = Found::directory(dir.as_fd(), name)?;
    Ok((dir, found))
}

/// A failure to read names, or to keep them.
struct Unread {
    op: &'static str,
    error: io::Error,
}

impl From<Errno> for Unread {
    fn from(error: Errno) -> Self {
        Self { op: "read", error: error.into() }
    }
}

fn collect(
    sorter: &mut Sorter<'_>,
    name: &[u8],
    dir: &Path,
    failures: &mut Vec<FileError>,
) -> Result<(), Unread> {
    match check_name(name) {
        Ok(()) => sorter.push(name).map_err(|error| Unread { op: SORT, error }),
        // A few examples are enough; each would take memory.
        Err(why) if failures.len() < 16 => {
            failures.push(FileError::outside("read", dir, why));
            Ok(())
        }
        Err(_) => Ok(()),
    }
}
