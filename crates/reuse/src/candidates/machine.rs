//! Files anywhere on this machine.

use std::cmp::Reverse;
use std::path::{Component, Path};

use towpath_content::tree::Kind;
use towpath_files::{Found, RelPath, ScanOptions, SourceTree, Stamp};

use super::index::Present;
use super::is_file;

/// All files of this machine, by their whole paths, no part of which is a symbolic link.
pub struct Machine(SourceTree);

impl Machine {
    /// None if its root can't be read.
    pub fn open() -> Option<Self> {
        SourceTree::open(Path::new("/")).ok().map(Self)
    }

    /// The regular file at a path.
    pub fn look(&self, path: RelPath) -> Option<Present> {
        let found = self.found(&path).filter(|found| is_file(&found.entry.kind))?;
        Some(Present { path, stamp: found.stamp })
    }

    /// The file system that a directory lies in.
    pub fn device(&self, dir: &Path) -> Option<u64> {
        let found = self.found(&from_root(dir)?).filter(|found| found.entry.kind == Kind::Directory)?;
        Some(found.stamp.device)
    }

    /// Opens a file, if it is still what was seen.
    pub fn open_file(&self, path: &RelPath, seen: &Stamp) -> Option<std::fs::File> {
        self.0.open_file(path, seen).ok()
    }

    fn found(&self, path: &RelPath) -> Option<Found> {
        self.0.look(path, &ScanOptions { files: false, ..ScanOptions::default() }).ok()
    }
}

/// An absolute path from the machine's root.
pub fn from_root(path: &Path) -> Option<RelPath> {
    let mut components = path.components();
    if components.next() != Some(Component::RootDir) {
        return None;
    }
    RelPath::new(components.map(|name| name.as_os_str().as_encoded_bytes())).ok()
}

/// Of some files the one nearest in size, and of several the latest.
pub fn nearest(files: impl Iterator<Item = Present>, size: u64) -> Option<Present> {
    files.min_by_key(|found| (found.stamp.size.abs_diff(size), Reverse(found.stamp.modified)))
}
