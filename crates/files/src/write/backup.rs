//! Moving something out of the way, to another name in the same destination.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode, fstat, linkat, mkdirat, statat, unlinkat};
use rustix::io::Errno;

use super::access::open_accessible;
use super::destination::Destination;
use super::place::{Overwrite, PlaceAt, place};
use super::tree::WrittenTree;
use crate::error::FileError;
use crate::metadata::HeldMetadata;
use crate::path::RelPath;
use crate::stamp::Stamp;

/// Moves what is in a [`Destination`] out of the way.
#[derive(Debug, Clone, Copy)]
pub struct BackupMover<'a> {
    pub(super) to: &'a Destination,
}

impl BackupMover<'_> {
    /// Renames what is at `path` to `to`, replacing what has that name unless it is a directory,
    /// and makes the directories that `to` lies in. One that has the name of the directory it
    /// stands for (`old/a/b/f` for `a/b/f`) gets its mode. Onto another file system nothing can
    /// be renamed: that is an error.
    pub fn rename(self, path: &RelPath, to: &RelPath) -> Result<(), FileError> {
        if to.starts_with(path) {
            return Err(FileError::refused("back up", &path.below(self.to.path()), "to a name below itself"));
        }
        self.move_to(path, self.to, to)
    }

    /// The same to a name in another destination.
    pub fn rename_into(self, path: &RelPath, other: &Destination, to: &RelPath) -> Result<(), FileError> {
        self.move_to(path, other, to)
    }

    /// Gives the file at `path` the further name `to`, replacing what has that unless it is a directory: what takes its
    /// place by a rename leaves no moment without either. Where there are no links it is moved, as by
    /// [`rename`](Self::rename).
    pub fn keep_as(self, path: &RelPath, other: &Destination, to: &RelPath) -> Result<(), FileError> {
        if std::ptr::eq(self.to, other) && to.starts_with(path) {
            return Err(FileError::refused("back up", &path.below(self.to.path()), "to a name below itself"));
        }
        make_dirs(&other.tree, &self.to.tree, path, to)?;
        let failed = |e| FileError::new("back up", &path.below(self.to.path()), e);
        let ((dir, name), (to_dir, to_name)) = (self.to.tree.spot(path)?, other.tree.spot(to)?);
        let staging = self.to.tree.staging_for(path)?;
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

    fn move_to(self, path: &RelPath, other: &Destination, to: &RelPath) -> Result<(), FileError> {
        let failed = |e| FileError::new("back up", &path.below(self.to.path()), e);
        make_dirs(&other.tree, &self.to.tree, path, to)?;
        let (from_dir, from) = self.to.tree.spot(path)?;
        let (to_dir, name) = other.tree.spot(to)?;
        let at = |dir: &Arc<OwnedFd>, name| statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
        let moved = Stamp::from_stat(&at(&from_dir, from).map_err(failed)?);
        if at(&to_dir, name).is_ok_and(|there| Stamp::from_stat(&there).same_file(&moved)) {
            // A rename onto another name of the same file would leave both.
            return unlinkat(&from_dir, from, AtFlags::empty()).map_err(failed);
        }
        let (from, name) =
            (PlaceAt { dir: from_dir.as_fd(), name: from }, PlaceAt { dir: to_dir.as_fd(), name });
        place(from, name, Overwrite::ReplaceAny).map_err(failed)?;
        self.to.directories.forget(path);
        Ok(())
    }
}

/// Makes the directories of `of` that `to` lies in, each with the mode of that of `from` it stands for.
fn make_dirs(of: &WrittenTree, from: &WrittenTree, path: &RelPath, to: &RelPath) -> Result<(), FileError> {
    let (Some((mut like, _)), Some((parent, _))) = (path.split(), to.split()) else { return Ok(()) };
    if of.dirs().get(&parent).is_ok() {
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
    wanted.iter().rev().try_for_each(|(at, like)| make_dir(of, at, from, like.as_ref()))
}

fn make_dir(
    of: &WrittenTree,
    at: &RelPath,
    from: &WrittenTree,
    like: Option<&RelPath>,
) -> Result<(), FileError> {
    let failed = |e| FileError::new("create", &at.below(of.path()), e);
    let (parent, name) = of.spot(at)?;
    match mkdirat(&parent, name, Mode::RWXU) {
        Err(Errno::EXIST) => return Ok(()),
        made => made.map_err(failed)?,
    }
    let (dir, _) = open_accessible(parent.as_fd(), name).map_err(failed)?;
    let mode = match like {
        Some(like) => fstat(from.dirs().get(like).map_err(failed)?).map_err(failed)?.st_mode & 0o7777,
        None => 0o777 & !of.policy.umask(),
    };
    HeldMetadata::Open(dir.as_fd()).set_mode(mode | 0o700).map_err(failed)
}
