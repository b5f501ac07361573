//! Nodes made by one call: symbolic links, pipes, sockets, devices, further names of a file.
//!
//! Each is made in the staging directory, where nobody else looks, gets its metadata there, and
//! takes its name by the rename that files take theirs by.

use std::os::fd::AsFd;

use rustix::fs::{AtFlags, FileType, Mode, linkat, makedev, mknodat, readlinkat, statat, symlinkat};
use rustix::io::Errno;
use towpath_content::tree::{Kind, MAX_TARGET, Metadata};

use super::place::{Overwrite, PlaceAt};
use super::queue::{BeforeNaming, Naming};
use super::staging::Staging;
use super::tree::WrittenTree;
use crate::error::FileError;
use crate::metadata::{HeldMetadata, Lacking, apply, hold};
use crate::path::RelPath;
use crate::stamp::Stamp;

/// Call that makes something under a name.
type Make<'a> = dyn Fn(PlaceAt<'_>) -> Result<(), Errno> + 'a;

/// Something that is in place.
#[derive(Debug)]
pub struct Settled {
    /// Stamp of what it looks like.
    pub stamp: Stamp,
    /// Error of metadata that could not be set.
    pub lacking: Option<FileError>,
}

/// Makes nodes in a [`Destination`](super::Destination).
#[derive(Debug, Clone, Copy)]
pub struct NodeMaker<'a> {
    pub(super) tree: &'a WrittenTree,
}

impl NodeMaker<'_> {
    /// Makes the symbolic link `path` with the raw bytes `target`. A link with this very target
    /// that is already there is left as it is, unless it may be replaced.
    pub fn symlink(
        self,
        path: &RelPath,
        target: &[u8],
        metadata: &Metadata,
        naming: impl Into<Naming>,
    ) -> Result<Settled, FileError> {
        if target.is_empty() || target.len() > MAX_TARGET || target.contains(&0) {
            let shown = path.below(self.tree.path());
            return Err(FileError::refused("link", &shown, "not a target a symbolic link can have"));
        }
        let make = |at: PlaceAt<'_>| symlinkat(target, at.dir, at.name);
        match self.node(("link", &make), path, metadata, naming.into()) {
            Err(FileError::Exists { .. }) if self.is_link_to(path, target) => {
                Ok(Settled { stamp: self.tree.stamp_at(path)?, lacking: None })
            }
            done => done,
        }
    }

    /// Makes a pipe, socket or device. Devices need privileges; without them it is
    /// [`FileError::Permission`].
    pub fn special(
        self,
        path: &RelPath,
        kind: &Kind,
        metadata: &Metadata,
        naming: impl Into<Naming>,
    ) -> Result<Settled, FileError> {
        let (of, device) = match *kind {
            Kind::Fifo => (FileType::Fifo, 0),
            Kind::Socket => (FileType::Socket, 0),
            Kind::CharDevice { major, minor } => (FileType::CharacterDevice, makedev(major, minor)),
            Kind::BlockDevice { major, minor } => (FileType::BlockDevice, makedev(major, minor)),
            Kind::Directory | Kind::File { .. } | Kind::Symlink { .. } => {
                return Err(FileError::refused("make", &path.below(self.tree.path()), "not a special file"));
            }
        };
        let make = |at: PlaceAt<'_>| mknodat(at.dir, at.name, of, Mode::RUSR | Mode::WUSR, device);
        self.node(("make", &make), path, metadata, naming.into())
    }

    /// Gives the thing at `existing` the further name `path`, if it is still the one that was
    /// `seen`; if that is what is at `path` already, nothing is done. No link is followed.
    pub fn hard_link(
        self,
        existing: &RelPath,
        seen: &Stamp,
        path: &RelPath,
        naming: impl Into<Naming>,
    ) -> Result<Stamp, FileError> {
        let shown = path.below(self.tree.path());
        let failed = |e| FileError::new("link", &shown, e);
        let (dir, name) = self.tree.spot(existing)?;
        if let Some(there) = self.tree.stamp_at(path).ok().filter(|there| there.same_bytes(seen)) {
            return Ok(there);
        }
        let staging = self.tree.staging_for(path)?;
        let temp = staging.fresh_name();
        let at = staging.at(&temp);
        linkat(&dir, name, at.dir, at.name, AtFlags::empty()).map_err(failed)?;
        let linked = statat(at.dir, at.name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| Stamp::from_stat(&stat));
        let placed = match linked {
            Ok(linked) if linked.same_bytes(seen) => {
                let Naming { overwrite, before } = naming.into();
                BeforeNaming::run(before).and_then(|()| self.tree.move_in(&staging, &temp, path, overwrite))
            }
            Ok(_) => Err(FileError::changed("link", &shown, "the other name is of another file now")),
            Err(error) => Err(failed(error)),
        };
        // A rename onto another name of the same file leaves both.
        let _ = staging.unlink(&temp);
        placed
    }

    fn node(
        self,
        (op, make): (&'static str, &Make<'_>),
        path: &RelPath,
        metadata: &Metadata,
        Naming { overwrite, before }: Naming,
    ) -> Result<Settled, FileError> {
        let staging = self.tree.staging_for(path)?;
        let temp = staging.fresh_name();
        let shown = path.below(self.tree.path());
        make(staging.at(&temp)).map_err(|e| FileError::new(op, &shown, e))?;
        let lacking = self.dress(&staging, &temp, path, metadata, overwrite);
        let settled = lacking.map_err(|e| FileError::new("set metadata of", &shown, e)).and_then(|lacking| {
            BeforeNaming::run(before)?;
            let stamp = self.tree.move_in(&staging, &temp, path, overwrite)?;
            Ok(Settled { stamp, lacking: lacking.map(|lacking| lacking.of(&shown)) })
        });
        settled.inspect_err(|_| {
            // A temporary that stays goes with the staging directory.
            let _ = staging.unlink(&temp);
        })
    }

    fn dress(
        self,
        staging: &Staging,
        temp: &str,
        path: &RelPath,
        metadata: &Metadata,
        overwrite: Overwrite,
    ) -> Result<Option<Lacking>, Errno> {
        let held = hold(staging.at(temp).dir, temp.as_bytes())?;
        let before = self.tree.mode_to_keep(path, overwrite);
        apply(HeldMetadata::Named(held.as_fd()), metadata, &self.tree.policy, before)
    }

    fn is_link_to(self, path: &RelPath, target: &[u8]) -> bool {
        let Ok((dir, name)) = self.tree.spot(path) else { return false };
        readlinkat(&dir, name, Vec::new()).is_ok_and(|found| found.to_bytes() == target)
    }
}
