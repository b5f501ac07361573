//! The private directory in which a tree's files grow.
//!
//! It is locked while a process uses it, so that a staging directory without a lock is one that an
//! interrupted transfer left behind: its name, recorded by the caller, finds the files again.

use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::fs::{AtFlags, Mode, fstat, linkat, mkdirat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::body::{FileBody, lock};
use super::place::PlaceAt;
use super::{PREFIX, STAGING, are_random_digits, digits, random, random_digits};
use crate::confine::open_dir;
use crate::error::FileError;
use crate::listing::for_each_name;
use crate::metadata::HeldMetadata;
use crate::names::check_name;
use crate::stamp::Stamp;

/// A staging directory held open and locked.
#[derive(Debug)]
pub(super) struct Staging {
    name: String,
    dir: OwnedFd,
    /// For messages only.
    path: PathBuf,
    /// True if names are folded here, once that was tried.
    folds: OnceLock<bool>,
    /// The next temporary's name: only this user gets in here, so names need not be hard to guess, but
    /// should be others than those of an earlier run.
    next: AtomicU64,
    /// Files begin without attributes: this directory hands on no ACL.
    is_plain: bool,
}

/// A file that grows under a temporary name until it is committed. Dropping it keeps the
/// temporary, for [`StagingArea::reopen`](super::StagingArea::reopen).
#[derive(Debug)]
pub struct Staged {
    pub(super) body: FileBody,
    pub(super) name: String,
    pub(super) staging: Arc<Staging>,
    /// It was made by this run, and has no attributes but what the system itself gave it.
    pub(super) is_plain: bool,
}

impl Staged {
    /// The temporary's name in the staging directory, for a resume record.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of the staging directory it is in, for a resume record.
    pub fn staging(&self) -> &str {
        self.staging.name()
    }

    /// The bytes; clones stay valid until the commit.
    pub const fn body(&self) -> &FileBody {
        &self.body
    }

    /// [`FileBody::write_piece`].
    pub fn write_piece(&self, offset: u64, bytes: &[u8], sparse: bool) -> Result<(), FileError> {
        self.body.write_piece(offset, bytes, sparse)
    }

    /// [`FileBody::data_ranges`].
    pub fn data_ranges(&self) -> impl Iterator<Item = io::Result<Range<u64>>> {
        self.body.data_ranges()
    }

    /// Gives the file up and removes its temporary.
    pub fn discard(self) -> Result<(), FileError> {
        self.staging.unlink(&self.name)
    }
}

impl Staging {
    /// Makes a new one in `root`.
    pub(super) fn create(root: BorrowedFd<'_>, root_path: &Path) -> Result<Self, FileError> {
        let failed = |e| FileError::new(STAGING, root_path, e);
        let name = format!("{PREFIX}{}", random_digits().map_err(failed)?);
        mkdirat(root, name.as_str(), Mode::RWXU).map_err(failed)?;
        Self::open(root, root_path, name)
    }

    /// Opens the one that an earlier run left and removes all files in it but those to `keep`.
    pub(super) fn adopt(
        root: BorrowedFd<'_>,
        root_path: &Path,
        name: &str,
        keep: &dyn Fn(&str) -> bool,
    ) -> Result<Self, FileError> {
        if !is_staging_name(name.as_bytes()) {
            return Err(FileError::outside("resume", &root_path.join(name), "not a staging directory"));
        }
        let staging = Self::open(root, root_path, name.to_owned())?;
        staging.clear(keep)?;
        Ok(staging)
    }

    fn open(root: BorrowedFd<'_>, root_path: &Path, name: String) -> Result<Self, FileError> {
        let path = root_path.join(&name);
        let failed = |e| FileError::new("open", &path, e);
        let dir = open_dir(root, name.as_bytes()).map_err(failed)?;
        let stat = fstat(&dir).map_err(failed)?;
        if stat.st_uid != geteuid().as_raw() || stat.st_mode & 0o077 != 0 {
            return Err(FileError::changed("open", &path, "open to other users"));
        }
        lock(&dir).map_err(failed)?;
        let (next, is_plain) =
            (AtomicU64::new(random().map_err(failed)?), !HeldMetadata::Open(dir.as_fd()).hands_on());
        Ok(Self { name, dir, path, folds: OnceLock::new(), next, is_plain })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Position of a temporary.
    pub(super) fn at<'a>(&'a self, name: &'a str) -> PlaceAt<'a> {
        PlaceAt { dir: self.dir.as_fd(), name: name.as_bytes() }
    }

    /// A name for a new temporary.
    pub(super) fn fresh_name(&self) -> String {
        digits(self.next.fetch_add(1, Ordering::Relaxed))
    }

    pub(super) fn stage(self: Arc<Self>, size: u64) -> Result<Staged, FileError> {
        let name = self.fresh_name();
        let body = FileBody::create(&self.dir, &name, size, self.path.join(&name))?;
        Ok(Staged { body, name, is_plain: self.is_plain, staging: self })
    }

    pub(super) fn stage_content(self: Arc<Self>, bytes: &[u8], sparse: bool) -> Result<Staged, FileError> {
        let name = self.fresh_name();
        let body = FileBody::create_of(&self.dir, &name, bytes, sparse, self.path.join(&name))?;
        Ok(Staged { body, name, is_plain: self.is_plain, staging: self })
    }

    pub(super) fn reopen(self: Arc<Self>, name: &str) -> Result<Staged, FileError> {
        let path = self.path.join(name);
        check_name(name.as_bytes()).map_err(|why| FileError::outside("resume", &path, why))?;
        let body = FileBody::reopen(&self.dir, name, path)?;
        Ok(Staged { body, name: name.to_owned(), staging: self, is_plain: false })
    }

    /// A further name for the file `old` in `dir`, which was `seen` and has no other one.
    pub(super) fn link(
        self: Arc<Self>,
        dir: impl AsFd,
        old: &[u8],
        seen: &Stamp,
    ) -> Result<Option<Staged>, FileError> {
        let name = self.fresh_name();
        if linkat(dir, old, &self.dir, name.as_str(), AtFlags::empty()).is_err() {
            return Ok(None);
        }
        match FileBody::open_linked(&self.dir, &name, seen, self.path.join(&name)) {
            Some(body) => Ok(Some(Staged { body, name, staging: self, is_plain: false })),
            None => self.unlink(&name).map(|()| None),
        }
    }

    /// The answer of `probe` with this directory, asked once.
    pub(super) fn folds(
        &self,
        probe: impl FnOnce(BorrowedFd<'_>) -> Result<bool, Errno>,
    ) -> Result<bool, FileError> {
        if let Some(known) = self.folds.get() {
            return Ok(*known);
        }
        let folds = probe(self.dir.as_fd()).map_err(|e| FileError::new("look at names in", &self.path, e))?;
        Ok(*self.folds.get_or_init(|| folds))
    }

    pub(super) fn unlink(&self, name: &str) -> Result<(), FileError> {
        let gone = unlinkat(&self.dir, name, AtFlags::empty());
        gone.map_err(|e| FileError::new("remove", &self.path.join(name), e))
    }

    /// Removes the directory and everything in it.
    pub(super) fn remove(&self, root: BorrowedFd<'_>) -> Result<(), FileError> {
        self.clear(&|_| false)?;
        let gone = unlinkat(root, self.name.as_str(), AtFlags::REMOVEDIR);
        gone.map_err(|e| FileError::new("remove", &self.path, e))
    }

    fn clear(&self, keep: &dyn Fn(&str) -> bool) -> Result<(), FileError> {
        let kept = |name: &[u8]| std::str::from_utf8(name).is_ok_and(keep);
        for_each_name(&self.dir, &mut |name| match kept(name) {
            true => Ok(()),
            false => self.remove_leftover(name),
        })
        .map_err(|e: Leftover| FileError::new("remove", &e.1.unwrap_or_else(|| self.path.clone()), e.0))
    }

    fn remove_leftover(&self, name: &[u8]) -> Result<(), Leftover> {
        match unlinkat(&self.dir, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(Leftover(error, Some(self.path.join(OsStr::from_bytes(name))))),
        }
    }
}

/// Error about what could not be removed, if it is not the reading of the directory that failed.
struct Leftover(Errno, Option<PathBuf>);

impl From<Errno> for Leftover {
    fn from(error: Errno) -> Self {
        Self(error, None)
    }
}

/// True for names that staging directories have, of this run or another.
pub fn is_staging_name(name: &[u8]) -> bool {
    name.strip_prefix(PREFIX.as_bytes()).is_some_and(are_random_digits)
}

/// The staging directories in `root` that belong to this user and that no process holds.
pub(super) fn find_stale(root: BorrowedFd<'_>, root_path: &Path) -> Result<Vec<String>, FileError> {
    let mut names = Vec::new();
    for_each_name(root, &mut |name| {
        if is_staging_name(name) {
            names.extend(std::str::from_utf8(name).map(str::to_owned));
        }
        Ok(())
    })
    .map_err(|e: Errno| FileError::new("read", root_path, e))?;
    names.retain(|name| Staging::open(root, root_path, name.clone()).is_ok());
    Ok(names)
}
