//! A tree that is scanned and whose files are opened, or removed, one by one, long after.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, fstat, statat, unlinkat};
use rustix::io::Errno;
use towpath_content::tree::Time;

use super::found::{Found, check_same, open_regular};
use super::hard_links::HardLinks;
use super::prune::Prune;
use super::{ScanError, ScanOptions, Scanned, WalkedTree, scan_held, walk};
use crate::confine::Links;
use crate::dirs::Dirs;
use crate::error::FileError;
use crate::metadata::hold;
use crate::path::RelPath;
use crate::stamp::Stamp;

/// The held root of a tree that is read. Any thread may call any method; few directories stay open.
#[derive(Debug)]
pub struct SourceTree {
    path: PathBuf,
    dirs: Dirs,
    /// Times at which inodes with further names were changed by the removal of one, by device and inode.
    unlinked: Mutex<HashMap<(u64, u64), Time>>,
}

impl SourceTree {
    /// Holds `root`, the user's own word as for [`scan`](super::scan()).
    pub fn open(root: &Path) -> Result<Self, FileError> {
        let dirs = Dirs::open(root).map_err(|e| FileError::new("open", root, e))?;
        Ok(Self { path: root.to_path_buf(), dirs, unlinked: Mutex::default() })
    }

    /// The same tree with symbolic links followed wherever they lead, for files that a scan with
    /// [`ScanOptions::follow_links`] found.
    pub fn following_links(self) -> Self {
        Self { dirs: self.dirs.with_links(Links::Follow), ..self }
    }

    /// [`scan`](super::scan()) of the held root.
    pub fn scan<E>(
        &self,
        options: &ScanOptions,
        visit: &mut dyn FnMut(Scanned) -> Result<(), E>,
    ) -> Result<(), ScanError<E>> {
        scan_held(&self.path, Arc::clone(self.dirs.root()), options, visit)
    }

    /// [`scan_pruned`](super::scan_pruned()) of the directory at `at`, which is told as the root of
    /// the scan. `prune` is asked with paths from the held root, so that one of it, and one
    /// numbering of hard links, serve several scans below the same root.
    pub fn scan_below<E>(
        &self,
        at: &RelPath,
        options: &ScanOptions,
        links: &mut HardLinks,
        prune: &mut dyn Prune,
        visit: &mut dyn FnMut(Scanned) -> Result<(), E>,
    ) -> Result<(), ScanError<E>> {
        let (root, handle) = (self.path.as_path(), Arc::clone(self.dirs.root()));
        walk(WalkedTree { root, handle, at: at.clone(), options }, links, Some(prune), visit)
    }

    /// Looks at what is at `path`.
    pub fn look(&self, path: &RelPath, options: &ScanOptions) -> Result<Found, FileError> {
        let shown = || path.below(&self.path);
        let failed = |e| FileError::new("look at", &shown(), e);
        let Some((parent, name)) = path.split() else {
            let root = self.dirs.root().as_fd();
            return Found::directory(root, b"", &shown, options).map_err(failed);
        };
        let dir = self.dirs.get(&parent).map_err(failed)?;
        Found::look(&dir, name, &shown, options).map_err(failed)
    }

    /// The directory at `path`, for a [`Prune`] that must know the directories above a
    /// [`scan_below`](Self::scan_below).
    pub fn dir(&self, path: &RelPath) -> Result<Arc<OwnedFd>, FileError> {
        self.dirs.get(path).map_err(|e| FileError::new("open", &path.below(&self.path), e))
    }

    /// Opens the regular file at `path`, if it is still the one that was `seen`.
    pub fn open_file(&self, path: &RelPath, seen: &Stamp) -> Result<File, FileError> {
        let (dir, name) = self.spot("open", path)?;
        let shown = path.below(&self.path);
        let file = open_regular(dir.as_fd(), name, self.dirs.links());
        let file = file.map_err(|e| FileError::new("open", &shown, e))?;
        check_same(file, seen).map_err(|how| FileError::changed("open", &shown, how))
    }

    /// Removes what is at `path`, no directory, if it is still the very thing that was `seen`: same
    /// inode, size and times. Between this check and the removal only a process that replaces the
    /// name at that very moment gets in.
    pub fn remove_file(&self, path: &RelPath, seen: &Stamp) -> Result<(), FileError> {
        let (dir, name) = self.spot("remove", path)?;
        let shown = path.below(&self.path);
        let failed = |e| FileError::new("remove", &shown, e);
        if !self.is_as_seen(&self.stamp_of(&dir, name).map_err(failed)?, seen) {
            return Err(FileError::changed("remove", &shown, "changed since it was read"));
        }
        let held = hold(&dir, name).map_err(failed)?;
        unlinkat(&dir, name, AtFlags::empty()).map_err(failed)?;
        self.note_unlinked(&held).map_err(failed)
    }

    /// The path it was opened by, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory `path` lies in and its name there.
    fn spot<'p>(&self, op: &'static str, path: &'p RelPath) -> Result<(Arc<OwnedFd>, &'p [u8]), FileError> {
        let shown = || path.below(&self.path);
        let Some((parent, name)) = path.split() else {
            return Err(FileError::refused(op, &shown(), "the root of the tree"));
        };
        let dir = self.dirs.get(&parent).map_err(|e| FileError::new(op, &shown(), e))?;
        Ok((dir, name))
    }

    /// Of what a scan told under this name.
    fn stamp_of(&self, dir: &OwnedFd, name: &[u8]) -> Result<Stamp, Errno> {
        let flags = match self.dirs.links() {
            Links::Refuse => AtFlags::SYMLINK_NOFOLLOW,
            Links::Follow => AtFlags::empty(),
        };
        statat(dir, name, flags).map(|stat| Stamp::from_stat(&stat))
    }

    /// The removal of another of its names changes an inode's ctime, which is no change of the file.
    fn is_as_seen(&self, now: &Stamp, seen: &Stamp) -> bool {
        let by_us = self.unlinked().get(&(now.device, now.inode)) == Some(&now.changed);
        *now == *seen || (by_us && Stamp { changed: seen.changed, ..*now } == *seen)
    }

    fn note_unlinked(&self, held: &OwnedFd) -> Result<(), Errno> {
        let stat = fstat(held)?;
        let now = Stamp::from_stat(&stat);
        match stat.st_nlink {
            0 => self.unlinked().remove(&(now.device, now.inode)),
            _ => self.unlinked().insert((now.device, now.inode), now.changed),
        };
        Ok(())
    }

    fn unlinked(&self) -> MutexGuard<'_, HashMap<(u64, u64), Time>> {
        self.unlinked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
