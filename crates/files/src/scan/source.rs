//! A tree that is scanned and whose files are opened one by one, long after.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::found::{check_same, open_regular};
use super::{ScanError, ScanOptions, Scanned, scan_held};
use crate::dirs::Dirs;
use crate::error::FileError;
use crate::path::RelPath;
use crate::stamp::Stamp;

/// The held root of a tree that is read. Any thread may call any method; few directories stay open.
#[derive(Debug)]
pub struct SourceTree {
    path: PathBuf,
    dirs: Dirs,
}

impl SourceTree {
    /// Holds `root`, the user's own word as for [`scan`](super::scan).
    pub fn open(root: &Path) -> Result<Self, FileError> {
        let dirs = Dirs::open(root).map_err(|e| FileError::new("open", root, e))?;
        Ok(Self { path: root.to_path_buf(), dirs })
    }

    /// [`scan`](super::scan) of the held root.
    pub fn scan<E>(
        &self,
        options: &ScanOptions,
        visit: &mut dyn FnMut(Scanned) -> Result<(), E>,
    ) -> Result<(), ScanError<E>> {
        scan_held(&self.path, Arc::clone(self.dirs.root()), options, visit)
    }

    /// Opens the regular file at `path`, if it is still the one that was `seen`.
    pub fn open_file(&self, path: &RelPath, seen: &Stamp) -> Result<File, FileError> {
        let shown = path.below(&self.path);
        let failed = |e| FileError::new("open", &shown, e);
        let Some((parent, name)) = path.split() else {
            return Err(FileError::refused("open", &shown, "the root of the tree"));
        };
        let dir = self.dirs.get(&parent).map_err(failed)?;
        let file = open_regular(dir.as_fd(), name).map_err(failed)?;
        check_same(file, seen).map_err(|how| FileError::changed("open", &shown, how))
    }

    /// The path it was opened by, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
