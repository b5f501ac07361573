//! The tree that is written into, by held directories: where an entry lies, and where it grows meanwhile.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, statat};

use super::mounts::StagingDirs;
use super::place::{Overwrite, PlaceAt, place};
use super::staging::Staging;
use crate::dirs::Dirs;
use crate::error::FileError;
use crate::metadata::{Policy, PreviousMetadata};
use crate::path::RelPath;
use crate::stamp::Stamp;

/// A held root and everything below it by names.
#[derive(Debug)]
pub(super) struct WrittenTree {
    path: Arc<Path>,
    dirs: Arc<Dirs>,
    /// Metadata that are applied.
    pub(super) policy: Policy,
    /// Directories that temporaries grow in.
    pub(super) staging: StagingDirs,
}

impl WrittenTree {
    /// The tree below `root`, which was opened by `path`.
    pub(super) fn new(path: &Path, root: OwnedFd, policy: Policy) -> Self {
        let (path, dirs) = (Arc::from(path), Arc::new(Dirs::new(root)));
        let staging = StagingDirs::new(Arc::clone(&path), Arc::clone(&dirs));
        Self { path, dirs, policy, staging }
    }

    /// The path of the root, for messages.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn dirs(&self) -> &Dirs {
        &self.dirs
    }

    /// The directory at `path`, held open.
    pub(super) fn dir(&self, path: &RelPath) -> Result<Arc<OwnedFd>, FileError> {
        self.dirs.get(path).map_err(|e| FileError::new("open", &path.below(&self.path), e))
    }

    /// The directory `path` lies in, held open, and its name there.
    pub(super) fn spot<'p>(&self, path: &'p RelPath) -> Result<(Arc<OwnedFd>, &'p [u8]), FileError> {
        let shown = || path.below(&self.path);
        if path.is_root() {
            return Err(FileError::refused("write", &shown(), "the root of the tree"));
        }
        if path.names().any(|name| self.staging.is_own(name)) {
            return Err(FileError::outside("write", &shown(), "the staging directory"));
        }
        self.dirs.parent(path).map_err(|e| FileError::new("open", &shown(), e))
    }

    /// The staging directory for what goes to `path`, made if there is none yet.
    pub(super) fn staging_for(&self, path: &RelPath) -> Result<Arc<Staging>, FileError> {
        let (dir, _) = self.spot(path)?;
        self.staging.of(path, &dir)
    }

    /// Stamp of what has the name `path` now, or [`FileError::Vanished`].
    pub(super) fn stamp_at(&self, path: &RelPath) -> Result<Stamp, FileError> {
        let (dir, name) = self.spot(path)?;
        let stat = statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW);
        let stat = stat.map_err(|e| FileError::new("stat", &path.below(&self.path), e))?;
        Ok(Stamp::from_stat(&stat))
    }

    /// Mode to keep from what is replaced, where the mode is not the source's.
    pub(super) fn mode_to_keep(&self, path: &RelPath, overwrite: Overwrite) -> PreviousMetadata {
        if self.policy.modes || overwrite == Overwrite::Never {
            return PreviousMetadata::Nothing;
        }
        let there = self.spot(path).ok();
        let stat = there.and_then(|(dir, name)| statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).ok());
        let is_link = |mode| FileType::from_raw_mode(mode) == FileType::Symlink;
        stat.filter(|stat| !is_link(stat.st_mode))
            .map_or(PreviousMetadata::Nothing, |stat| PreviousMetadata::Mode(stat.st_mode & 0o7777))
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
