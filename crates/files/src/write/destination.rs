//! A tree being written: one held root, everything else by names below it.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, FileType, Mode, mkdirat, statat};
use rustix::io::Errno;
use towpath_content::tree::Metadata;

use super::access::open_accessible;
use super::directories::Made;
use super::mounts::{MountLook, Mounted};
use super::place::{Overwrite, PlaceAt, place};
use super::queue::{BeforeNaming, CommitQueue, FlushLimits, Placed, Queued};
use super::staging::{Staged, Staging, find_stale, is_staging_name};
use crate::confine::open_root;
use crate::dirs::Dirs;
use crate::error::FileError;
use crate::metadata::{HeldMetadata, Now, Policy, PreviousMetadata, apply_to};
use crate::names::check_name;
use crate::path::RelPath;
use crate::scan::{ScanError, ScanOptions, Scanned, scan_held};
use crate::stamp::Stamp;

/// How a tree is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteOptions {
    /// Directories that are already there are taken for those of an interrupted run. Default: they
    /// are errors. Always so for [`Destination::open`].
    pub resume: bool,
    /// What of the metadata is applied.
    pub policy: Policy,
    /// When commits flush by themselves.
    pub flush: FlushLimits,
}

/// A tree being written. Any thread may call any method.
///
/// The end of a transfer: [`flush`](Self::flush), [`remove_staging`](Self::remove_staging),
/// [`finish_dir`](Self::finish_dir) for every directory, innermost first and the root last, then
/// [`sync`](Self::sync). Dropping it keeps the staging directory and what is in it.
#[derive(Debug)]
pub struct Destination {
    path: PathBuf,
    dirs: Dirs,
    options: WriteOptions,
    pub(super) root: Made,
    staging: Mutex<Option<Arc<Staging>>>,
    /// File systems inside the tree that something was staged in.
    pub(super) mounted: Mutex<Vec<Mounted>>,
    pub(super) looked: Mutex<Option<MountLook>>,
    queue: Mutex<CommitQueue>,
    /// What directories were before they were made accessible, until they are finished.
    pub(super) unfinished: Mutex<HashMap<RelPath, PreviousMetadata>>,
}

impl Destination {
    /// Makes the directory `path`, whose parent must be there. With `resume` it may be there too,
    /// but not as a symbolic link.
    pub fn create(path: &Path, options: WriteOptions) -> Result<Self, FileError> {
        let failed = |e| FileError::new("create", path, e);
        let (parent, name) = split_user_path(path)?;
        let parent = open_root(parent).map_err(|e| FileError::new("open", parent, e))?;
        let made = match mkdirat(&parent, name, Mode::RWXU) {
            Ok(()) => Made::New,
            Err(Errno::EXIST) if options.resume => Made::Existing,
            Err(error) => return Err(failed(error)),
        };
        let (root, had) = open_accessible(parent.as_fd(), name).map_err(failed)?;
        let to = Self::new(path, root, made, options);
        to.note_unfinished(&RelPath::root(), made, had);
        Ok(to)
    }

    /// Makes the directory `path`, which must not be there, and writes into it as [`Self::open`] does. What is made
    /// for an entry of the tree (`is_entry`) is its owner's alone until [`finish_dir`](Self::finish_dir); else the
    /// umask decides.
    pub fn make(path: &Path, is_entry: bool, options: WriteOptions) -> Result<Self, FileError> {
        let failed = |e| FileError::new("create", path, e);
        let (parent, name) = split_user_path(path)?;
        let parent = open_root(parent).map_err(|e| FileError::new("open", parent, e))?;
        let (mode, made) =
            if is_entry { (Mode::RWXU, Made::New) } else { (Mode::from_raw_mode(0o777), Made::Existing) };
        mkdirat(&parent, name, mode).map_err(failed)?;
        // Not by its path again, which may be another's by now.
        let (root, had) = open_accessible(parent.as_fd(), name).map_err(failed)?;
        let to = Self::new(path, root, made, WriteOptions { resume: true, ..options });
        to.note_unfinished(&RelPath::root(), made, had);
        Ok(to)
    }

    /// Writes into the directory `path`, a symbolic link to one included; directories in it that
    /// have the tree's names are written into as well.
    pub fn open(path: &Path, options: WriteOptions) -> Result<Self, FileError> {
        let root = open_root(path).map_err(|e| FileError::new("open", path, e))?;
        Ok(Self::new(path, root, Made::Existing, WriteOptions { resume: true, ..options }))
    }

    fn new(path: &Path, root: OwnedFd, made: Made, options: WriteOptions) -> Self {
        let (path, dirs) = (path.to_path_buf(), Dirs::new(root));
        let (staging, mounted, looked, queue, unfinished) = Default::default();
        Self { path, dirs, options, root: made, staging, mounted, looked, queue, unfinished }
    }

    /// A new temporary file of `size` bytes, all of them a hole.
    pub fn stage_file(&self, size: u64) -> Result<Staged, FileError> {
        self.staging()?.stage(size)
    }

    /// A complete file takes its metadata now, and the name `path` at the next flush. If
    /// [`FlushLimits`] are reached that is now, and the outcomes of all that waited are returned.
    ///
    /// The file is closed, unless a clone of its body lives on. On an error its temporary stays.
    pub fn commit(
        &self,
        staged: Staged,
        path: RelPath,
        metadata: &Metadata,
        overwrite: Overwrite,
    ) -> Result<Vec<Placed>, FileError> {
        self.commit_after(None, staged, path, metadata, overwrite)
    }

    /// [`Self::commit`] with something to do right before the file takes its name.
    pub fn commit_after(
        &self,
        before_naming: Option<BeforeNaming>,
        staged: Staged,
        path: RelPath,
        metadata: &Metadata,
        overwrite: Overwrite,
    ) -> Result<Vec<Placed>, FileError> {
        self.spot(&path)?;
        let Staged { body, name: temp, staging, is_plain } = staged;
        let before = self.mode_to_keep(&path, overwrite);
        let failed = |e| FileError::new("set metadata of", &path.below(&self.path), e);
        let (held, policy) = (HeldMetadata::Open(body.file().as_fd()), &self.options.policy);
        let now = Now { stat: held.stat().map_err(failed)?, is_plain };
        let lacking = apply_to(held, &now, metadata, policy, before).map_err(failed)?;
        // Its inode and its size; the rest is looked at when it has its name.
        let seen = Stamp::from_stat(&now.stat);
        let file = Queued { temp, staging, path, seen, overwrite, lacking, before: before_naming };
        let due = self.queue().push(file, body, &self.options.flush);
        Ok(if due { self.flush() } else { Vec::new() })
    }

    /// What does not take its mode from the source keeps that of what it replaces.
    pub(super) fn mode_to_keep(&self, path: &RelPath, overwrite: Overwrite) -> PreviousMetadata {
        if self.options.policy.modes || overwrite == Overwrite::Never {
            return PreviousMetadata::Nothing;
        }
        let there = self.spot(path).ok();
        let stat = there.and_then(|(dir, name)| statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).ok());
        let is_link = |mode| FileType::from_raw_mode(mode) == FileType::Symlink;
        stat.filter(|stat| !is_link(stat.st_mode))
            .map_or(PreviousMetadata::Nothing, |stat| PreviousMetadata::Mode(stat.st_mode & 0o7777))
    }

    /// What has the name `path` now, or [`FileError::Vanished`].
    pub fn stamp_at(&self, path: &RelPath) -> Result<Stamp, FileError> {
        let (dir, name) = self.spot(path)?;
        let stat = statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW);
        let stat = stat.map_err(|e| FileError::new("stat", &path.below(&self.path), e))?;
        Ok(Stamp::from_stat(&stat))
    }

    /// [`scan`](crate::scan()) of the held root, which shows the staging directory too.
    pub fn scan<E>(
        &self,
        options: &ScanOptions,
        visit: &mut dyn FnMut(Scanned) -> Result<(), E>,
    ) -> Result<(), ScanError<E>> {
        scan_held(&self.path, Arc::clone(self.dirs.root()), options, visit)
    }

    /// Waits until all that was written, names and metadata included, is on disk.
    pub fn sync(&self) -> Result<(), FileError> {
        self.sync_all().map_err(|e| FileError::new("sync", &self.path, e))
    }

    /// The path it was opened by, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) const fn options(&self) -> &WriteOptions {
        &self.options
    }

    pub(super) const fn dirs(&self) -> &Dirs {
        &self.dirs
    }

    pub(super) fn queue(&self) -> MutexGuard<'_, CommitQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The directory `path` lies in, held open, and its name there.
    pub(super) fn spot<'p>(&self, path: &'p RelPath) -> Result<(Arc<OwnedFd>, &'p [u8]), FileError> {
        let shown = || path.below(&self.path);
        if path.is_root() {
            return Err(FileError::refused("write", &shown(), "the root of the tree"));
        }
        if path.names().any(|name| self.is_own_staging(name)) {
            return Err(FileError::outside("write", &shown(), "the staging directory"));
        }
        self.dirs.parent(path).map_err(|e| FileError::new("open", &shown(), e))
    }

    /// Gives a staged thing its final name and looks at it there, as a rename changes its ctime.
    pub(super) fn move_in(
        &self,
        staging: &Staging,
        temp: &str,
        path: &RelPath,
        overwrite: Overwrite,
    ) -> Result<Stamp, FileError> {
        let (dir, name) = self.spot(path)?;
        place(staging.at(temp), PlaceAt { dir: dir.as_fd(), name }, overwrite)
            .map_err(|e| FileError::new("rename", &path.below(&self.path), e))?;
        self.stamp_at(path)
    }
}

/// Staging.
impl Destination {
    /// The name of the staging directory, made if there is none yet, for a resume record.
    pub fn staging_name(&self) -> Result<String, FileError> {
        self.staging().map(|staging| staging.name().to_owned())
    }

    /// Goes on with the staging directory `name` of an earlier run, removing all files in it but
    /// those whose names are to be kept. [`FileError::Busy`] if another process uses it.
    pub fn adopt_staging(&self, name: &str, keep: &dyn Fn(&str) -> bool) -> Result<(), FileError> {
        let mut current = self.staging_slot();
        if current.is_some() {
            return Err(FileError::busy("resume", &self.path, "a staging directory is in use already"));
        }
        let adopted = Staging::adopt(self.dirs.root().as_fd(), &self.path, name, keep)?;
        *current = Some(Arc::new(adopted));
        Ok(())
    }

    /// Opens a temporary file that an earlier run left in the adopted staging directory.
    pub fn reopen_staged(&self, name: &str) -> Result<Staged, FileError> {
        self.staging()?.reopen(name)
    }

    /// The staging directories of this user in the root that no process uses.
    pub fn find_stale_staging(&self) -> Result<Vec<String>, FileError> {
        find_stale(self.dirs.root().as_fd(), &self.path)
    }

    /// Removes the staging directory and what is in it; [`FileError::Busy`] before the last flush.
    pub fn remove_staging(&self) -> Result<(), FileError> {
        if !self.queue().is_empty() {
            return Err(FileError::busy("remove staging of", &self.path, "files wait to be flushed"));
        }
        let staging = self.staging_slot().take();
        staging.map_or(Ok(()), |staging| staging.remove(self.dirs.root().as_fd()))?;
        self.remove_mounted_staging()
    }

    pub(super) fn staging(&self) -> Result<Arc<Staging>, FileError> {
        let mut current = self.staging_slot();
        if let Some(staging) = current.as_ref() {
            return Ok(Arc::clone(staging));
        }
        let made = Arc::new(Staging::create(self.dirs.root().as_fd(), &self.path)?);
        *current = Some(Arc::clone(&made));
        Ok(made)
    }

    /// True for the name of a staging directory of this run.
    pub(super) fn is_own_staging(&self, name: &[u8]) -> bool {
        let in_root =
            || self.staging_slot().as_ref().is_some_and(|staging| staging.name().as_bytes() == name);
        is_staging_name(name) && (in_root() || self.is_mounted_staging(name))
    }

    fn staging_slot(&self) -> MutexGuard<'_, Option<Arc<Staging>>> {
        self.staging.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The parent and the last name of a path the user gave.
pub(super) fn split_user_path(path: &Path) -> Result<(&Path, &[u8]), FileError> {
    let refuse = |why| FileError::outside("create", path, why);
    let name = path.file_name().ok_or_else(|| refuse("no name at its end"))?.as_bytes();
    check_name(name).map_err(refuse)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    Ok((parent.unwrap_or(Path::new(".")), name))
}
