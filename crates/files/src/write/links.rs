//! Symbolic links of a tree being written: stored as they are given, never followed.

use rustix::fs::{readlinkat, symlinkat};
use towpath_content::tree::{MAX_TARGET, Metadata};

use super::destination::Destination;
use super::place::Overwrite;
use super::staging::Staging;
use crate::error::FileError;
use crate::metadata::{Target, apply};
use crate::path::RelPath;
use crate::stamp::Stamp;

impl Destination {
    /// Makes the symbolic link `path` with the raw bytes `target`, and says what it looks like.
    /// A link with this very target that is already there is left as it is.
    pub fn make_symlink(
        &self,
        path: &RelPath,
        target: &[u8],
        metadata: &Metadata,
        overwrite: Overwrite,
    ) -> Result<Stamp, FileError> {
        if target.is_empty() || target.len() > MAX_TARGET || target.contains(&0) {
            let shown = path.below(self.path());
            return Err(FileError::refused("link", &shown, "not a target a symbolic link can have"));
        }
        let staging = self.staging()?;
        let temp = self.stage_link(&staging, path, target, metadata)?;
        let placed = self.move_in(&staging, &temp, path, overwrite);
        if placed.is_err() {
            // What stays goes with the staging directory.
            let _ = staging.unlink(&temp);
        }
        match placed {
            Err(FileError::Exists { .. }) if self.is_link_to(path, target) => self.stamp_at(path),
            done => done,
        }
    }

    fn stage_link(
        &self,
        staging: &Staging,
        path: &RelPath,
        target: &[u8],
        metadata: &Metadata,
    ) -> Result<String, FileError> {
        let failed = |e| FileError::new("link", &path.below(self.path()), e);
        let temp = staging.fresh_name()?;
        let at = staging.at(&temp);
        symlinkat(target, at.dir, at.name).map_err(failed)?;
        apply(Target::Link(at.dir, at.name), metadata, &self.options().policy).map_err(failed)?;
        Ok(temp)
    }

    fn is_link_to(&self, path: &RelPath, target: &[u8]) -> bool {
        let Ok((dir, name)) = self.spot(path) else { return false };
        readlinkat(&dir, name, Vec::new()).is_ok_and(|found| found.to_bytes() == target)
    }
}
