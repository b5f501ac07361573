//! Moving something out of the way, to another name in the same destination.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode, fstat, linkat, mkdirat, statat, unlinkat};
use rustix::io::Errno;

use super::access::open_accessible;
use super::destination::Destination;
use super::place::{Overwrite, PlaceAt, place};
use crate::error::FileError;
use crate::metadata::{HeldMetadata, umask};
use crate::path::RelPath;
use crate::stamp::Stamp;

impl Destination {
    /// Renames what is at `path` to `to`, replacing what has that name unless it is a directory,
    /// and makes the directories that `to` lies in. One that has the name of the directory it
    /// stands for (`old/a/b/f` for `a/b/f`) gets its mode. Onto another file system nothing can
    /// be renamed: that is an error.
    pub fn backup(&self, path: &RelPath, to: &RelPath) -> Result<(), FileError> {
        if to.starts_with(path) {
            return Err(FileError::refused("back up", &path.below(self.path()), "to a name below itself"));
        }
        self.move_to(path, self, to)
    }

    /// The same to a name in another destination.
    pub fn backup_into(&self, path: &RelPath, other: &Self, to: &RelPath) -> Result<(), FileError> {
        self.move_to(path, other, to)
    }

    /// Gives the file at `path` the further name `to`, replacing what has that unless it is a directory: what takes its
    /// place by a rename leaves no moment without either. Where there are no links it is moved, as by
    /// [`backup`](Self::backup).
    pub fn keep_as(&self, path: &RelPath, other: &Self, to: &RelPath) -> Result<(), FileError> {
        if std::ptr::eq(self, other) && to.starts_with(path) {
            return Err(FileError::refused("back up", &path.below(self.path()), "to a name below itself"));
        }
        other.make_backup_dirs(self, path, to)?;
        let failed = |e| FileError::new("back up", &path.below(self.path()), e);
        let ((dir, name), (to_dir, to_name)) = (self.spot(path)?, other.spot(to)?);
        let staging = self.staging_for(path)?;
        let temp = staging.fresh_name();
        let at = staging.at(&temp);
        match linkat(&dir, name, at.dir, at.name, AtFlags::empty()) {
            Err(Errno::NOENT) => return Err(failed(Errno::NOENT)),
            Err(_) => return self.move_to(path, other, to),
            Ok(()) => {}
        }
        let placed = place(at, PlaceAt { dir: to_dir.as_fd(), name: to_name }, Overwrite::ReplaceAny);
        // A rename onto another name of the same file leaves both.
        let _ = staging.unlink(&temp);
        placed.map_err(failed)
    }

    fn move_to(&self, path: &RelPath, other: &Self, to: &RelPath) -> Result<(), FileError> {
        let failed = |e| FileError::new("back up", &path.below(self.path()), e);
        other.make_backup_dirs(self, path, to)?;
        let (from_dir, from) = self.spot(path)?;
        let (to_dir, name) = other.spot(to)?;
        let at = |dir: &Arc<OwnedFd>, name| statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
        let moved = Stamp::from_stat(&at(&from_dir, from).map_err(failed)?);
        if at(&to_dir, name).is_ok_and(|there| Stamp::from_stat(&there).same_file(&moved)) {
            // A rename onto another name of the same file would leave both.
            return unlinkat(&from_dir, from, AtFlags::empty()).map_err(failed);
        }
        let (from, name) =
            (PlaceAt { dir: from_dir.as_fd(), name: from }, PlaceAt { dir: to_dir.as_fd(), name });
        place(from, name, Overwrite::ReplaceAny).map_err(failed)?;
        self.forget(path);
        Ok(())
    }

    fn make_backup_dirs(&self, from: &Self, path: &RelPath, to: &RelPath) -> Result<(), FileError> {
        let (Some((mut like, _)), Some((parent, _))) = (path.split(), to.split()) else { return Ok(()) };
        if self.dirs().get(&parent).is_ok() {
            return Ok(());
        }
        // From the innermost outward: which directory each one stands for.
        let mut wanted = Vec::new();
        let (mut at, mut alike) = (parent, true);
        while let Some((above, name)) = at.split() {
            alike = alike && like.split().is_some_and(|(_, like_name)| like_name == name);
            wanted.push((at.clone(), alike.then(|| like.clone())));
            like.pop();
            at = above;
        }
        wanted.iter().rev().try_for_each(|(at, like)| self.make_backup_dir(at, from, like.as_ref()))
    }

    fn make_backup_dir(&self, at: &RelPath, from: &Self, like: Option<&RelPath>) -> Result<(), FileError> {
        let failed = |e| FileError::new("create", &at.below(self.path()), e);
        let (parent, name) = self.spot(at)?;
        match mkdirat(&parent, name, Mode::RWXU) {
            Err(Errno::EXIST) => return Ok(()),
            made => made.map_err(failed)?,
        }
        let (dir, _) = open_accessible(parent.as_fd(), name).map_err(failed)?;
        let mode = match like {
            Some(like) => fstat(from.dirs().get(like).map_err(failed)?).map_err(failed)?.st_mode & 0o7777,
            None => 0o777 & !umask(),
        };
        HeldMetadata::Open(dir.as_fd()).set_mode(mode | 0o700).map_err(failed)
    }
}
