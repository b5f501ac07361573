//! A way down a tree: the directories from the root to the current one, each with the names in it
//! that are still to be looked at.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
use towpath_content::tree::MAX_DEPTH;

use super::ScanOptions;
use super::names::{SortedNames, Sorter};
use super::spill::Spill;
use crate::confine::{Links, open_at};
use crate::error::FileError;
use crate::listing::for_each_name;
use crate::names::check_name;
use crate::path::RelPath;
use crate::stamp::Stamp;

/// Directories of the path to the current one that stay open, the root not counted.
const HELD: usize = 64;

/// Step that fails when the scratch file does.
const SORT: &str = "sort names of";

/// Directories that were entered and not left. Memory and descriptors are bounded.
#[derive(Debug)]
pub(crate) struct Stack<'a> {
    /// For messages.
    root: &'a Path,
    handle: Arc<OwnedFd>,
    links: Links,
    budget: usize,
    spill: Spill,
    /// The path of the innermost directory, from `handle`.
    at: RelPath,
    frames: Vec<StackFrame>,
}

#[derive(Debug)]
struct StackFrame {
    /// Closed while deeper ones are being read.
    dir: Option<Arc<OwnedFd>>,
    stamp: Stamp,
    names: SortedNames,
}

impl<'a> Stack<'a> {
    /// No directory yet; the first one entered is the one at `at` below the held `handle`.
    pub(crate) fn new(root: &'a Path, handle: Arc<OwnedFd>, at: RelPath, options: &ScanOptions) -> Self {
        let (budget, spill) = (options.names_budget, Spill::new(&options.scratch));
        Self { root, handle, links: options.links(), budget, spill, at, frames: Vec::new() }
    }

    /// Goes down to the directory of this name in the innermost one, which was opened as `dir`.
    pub(crate) fn descend(&mut self, name: &[u8]) -> Result<(), FileError> {
        self.at.push(name)
    }

    /// Reads the names of the directory at the current path; returns those that could not be read.
    pub(crate) fn enter(&mut self, dir: Arc<OwnedFd>, stamp: Stamp) -> Vec<FileError> {
        let mut failures = Vec::new();
        let names = self.read_names(dir.as_fd(), &mut failures);
        self.push(dir, stamp, names);
        failures
    }

    /// Takes the directory at the current path for one without names.
    pub(crate) fn enter_closed(&mut self, dir: Arc<OwnedFd>, stamp: Stamp) {
        let names = SortedNames::none(&self.spill);
        self.push(dir, stamp, names);
    }

    fn push(&mut self, dir: Arc<OwnedFd>, stamp: Stamp, names: SortedNames) {
        if let Some(outer) = self.frames.len().checked_sub(HELD) {
            self.frames[outer].dir = None;
        }
        self.frames.push(StackFrame { dir: Some(dir), stamp, names });
    }

    /// The next name in the innermost directory.
    pub(crate) fn next_name(&mut self) -> Result<Option<Vec<u8>>, FileError> {
        let Some(frame) = self.frames.last_mut() else { return Ok(None) };
        frame.names.next(&self.spill).map_err(|e| FileError::new("read", self.spill.dir(), e))
    }

    /// Goes up.
    pub(crate) fn leave(&mut self) {
        if let Some(frame) = self.frames.pop() {
            self.spill.cut(frame.names.mark());
            self.at.pop();
        }
    }

    /// The innermost directory, opened again if it was closed meanwhile.
    pub(crate) fn dir(&mut self) -> Result<Arc<OwnedFd>, FileError> {
        let failed = |e| FileError::new("open", &self.at.below(self.root), e);
        let Some(frame) = self.frames.last_mut() else { return Ok(Arc::clone(&self.handle)) };
        if let Some(dir) = &frame.dir {
            return Ok(Arc::clone(dir));
        }
        let dir = Arc::new(open_at(&self.handle, &self.at, self.links).map_err(failed)?);
        if !Stamp::held(&dir).map_err(failed)?.same_file(&frame.stamp) {
            let shown = self.at.below(self.root);
            return Err(FileError::changed("open", &shown, "another directory now"));
        }
        frame.dir = Some(Arc::clone(&dir));
        Ok(dir)
    }

    /// True if a directory of this stamp was entered and not left.
    pub(crate) fn holds(&self, stamp: &Stamp) -> bool {
        self.frames.iter().any(|frame| frame.stamp.same_file(stamp))
    }

    /// Number of directories that were entered and not left.
    pub(crate) fn depth(&self) -> usize {
        self.frames.len()
    }

    /// The path of the innermost directory, from the held root.
    pub(crate) const fn at(&self) -> &RelPath {
        &self.at
    }

    /// The innermost directory for messages.
    pub(crate) fn shown(&self) -> PathBuf {
        self.at.below(self.root)
    }

    /// All names of a directory that could be read; why others could not is added to `failures`.
    fn read_names(&mut self, dir: BorrowedFd<'_>, failures: &mut Vec<FileError>) -> SortedNames {
        let shown = self.shown();
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
        let held: usize = self.frames.iter().map(|frame| frame.names.cost()).sum();
        self.budget.saturating_sub(held).max(self.budget / MAX_DEPTH)
    }
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
