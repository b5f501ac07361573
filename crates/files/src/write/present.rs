//! Entries that are in the destination already: looked at, listed, their metadata changed in place.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::FileType;
use rustix::io::Errno;
use towpath_content::tree::{Metadata, Time};

use super::destination::Destination;
use crate::confine::Links;
use crate::error::FileError;
use crate::metadata::{HeldMetadata, PreviousMetadata, apply, hold, set_time};
use crate::path::RelPath;
use crate::scan::{DirNames, Found, ScanOptions, check_same, open_regular};
use crate::stamp::Stamp;

impl Destination {
    /// Sets a directory's time of last modification alone.
    pub fn set_dir_time(&self, path: &RelPath, modified: Time) -> Result<(), FileError> {
        let dir = self.dir(path)?;
        let set = set_time(HeldMetadata::Open(dir.as_fd()), modified);
        set.map_err(|e| FileError::new("set the time of", &path.below(self.path()), e))
    }

    /// The directory at `path`, held open.
    pub fn dir(&self, path: &RelPath) -> Result<Arc<OwnedFd>, FileError> {
        self.tree.dir(path)
    }

    /// Opens the regular file at `path` for reading, if it is still the one that was `seen`.
    pub fn open_file(&self, path: &RelPath, seen: &Stamp) -> Result<File, FileError> {
        let shown = path.below(self.path());
        let (dir, name) = self.tree.spot(path)?;
        let file = open_regular(dir.as_fd(), name, Links::Refuse);
        let file = file.map_err(|e| FileError::new("open", &shown, e))?;
        check_same(file, seen).map_err(|how| FileError::changed("open", &shown, how))
    }

    /// Entry at `path`; `None` if nothing is, or not even the directory it would lie in. No
    /// link is followed, whatever the options say.
    pub fn look(&self, path: &RelPath, options: &ScanOptions) -> Result<Option<Found>, FileError> {
        let shown = || path.below(self.path());
        if path.is_root() {
            let root = self.tree.dirs().root().as_fd();
            let found = Found::directory(root, b"", &shown, options);
            return found.map(Some).map_err(|e| FileError::new("look at", &shown(), e));
        }
        let refusing;
        let options = if options.follow_links {
            refusing = ScanOptions { follow_links: false, ..options.clone() };
            &refusing
        } else {
            options
        };
        let found = self.tree.spot(path).and_then(|(dir, name)| {
            let found = Found::look(&dir, name, &shown, options);
            found.map_err(|e| FileError::new("look at", &shown(), e))
        });
        match found {
            Err(FileError::Vanished { .. }) => Ok(None),
            found => found.map(Some),
        }
    }

    /// The names in the directory `path` in ascending order, but for this run's own staging.
    pub fn names(&self, path: &RelPath, options: &ScanOptions) -> Result<DirNames, FileError> {
        let shown = path.below(self.path());
        let dir = self.tree.dirs().get(path).map_err(|e| FileError::new("read", &shown, e))?;
        let names = DirNames::read(dir.as_fd(), options, &|name| self.tree.staging.is_own(name));
        names.map_err(|e| FileError::new("read", &shown, e))
    }

    /// Sets the metadata of what is at `path`, if it is still the file that was `seen`; for
    /// anything but a directory that is being written. If something could not be set, the rest is,
    /// and that is the error.
    pub fn set_metadata(
        &self,
        path: &RelPath,
        seen: &Stamp,
        metadata: &Metadata,
    ) -> Result<Stamp, FileError> {
        let shown = path.below(self.path());
        let failed = |e: Errno| FileError::new("set metadata of", &shown, e);
        let (dir, name) = self.tree.spot(path)?;
        let inode = hold(&dir, name).map_err(failed)?;
        let held = HeldMetadata::Named(inode.as_fd());
        let stat = held.stat().map_err(failed)?;
        let (now, is_dir) = (Stamp::from_stat(&stat), FileType::from_raw_mode(stat.st_mode).is_dir());
        if !(now.same_bytes(seen) || is_dir && now.same_file(seen)) {
            return Err(FileError::changed("set metadata of", &shown, "changed since it was looked at"));
        }
        let before = PreviousMetadata::Mode(stat.st_mode & 0o7777);
        let lacking = apply(held, metadata, &self.tree.policy, before).map_err(failed)?;
        match lacking {
            Some(lacking) => Err(lacking.of(&shown)),
            None => Stamp::held(&inode).map_err(failed),
        }
    }
}
