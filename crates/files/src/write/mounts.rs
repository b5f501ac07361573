//! Which staging directory a thing grows in: that of the root, or for what goes to a file system
//! mounted inside the tree, one in the topmost directory of that file system, since a rename
//! cannot cross from one to the other.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, MutexGuard, PoisonError};

use rustix::fs::syncfs;
use rustix::io::Errno;

use super::destination::Destination;
use super::staging::{Staged, Staging};
use crate::error::FileError;
use crate::mount::Mount;
use crate::path::RelPath;

/// A file system mounted inside the tree, in which something was staged.
#[derive(Debug)]
pub(super) struct Mounted {
    mount: Mount,
    /// Its topmost directory.
    top: Arc<OwnedFd>,
    /// None once it was removed.
    staging: Option<Arc<Staging>>,
}

/// Where the directory lies that was asked about last.
#[derive(Debug)]
pub(super) struct MountLook {
    dir: Arc<OwnedFd>,
    mount: Mount,
    root: Mount,
}

impl Destination {
    /// A complete temporary file, in the file system that `path` lies in: one whose bytes are all at hand
    /// takes fewer steps than one that grows.
    pub fn stage_content_for(&self, path: &RelPath, bytes: &[u8], sparse: bool) -> Result<Staged, FileError> {
        self.staging_for(path)?.stage_content(bytes, sparse)
    }

    /// A new temporary file of `size` bytes, all of them a hole, in the file system that `path`
    /// lies in.
    pub fn stage_file_for(&self, path: &RelPath, size: u64) -> Result<Staged, FileError> {
        self.staging_for(path)?.stage(size)
    }

    /// [`adopt_staging`](Self::adopt_staging) in the file system that `path` lies in, with the name
    /// that [`Staged::staging`] told.
    pub fn adopt_staging_for(
        &self,
        path: &RelPath,
        name: &str,
        keep: &dyn Fn(&str) -> bool,
    ) -> Result<(), FileError> {
        let Some((mount, top)) = self.other_mount(path)? else { return self.adopt_staging(name, keep) };
        let shown = top.below(self.path());
        let mut mounts = self.mounts();
        if mounts.iter().any(|held| held.mount == mount && held.staging.is_some()) {
            return Err(FileError::busy("resume", &shown, "a staging directory is in use already"));
        }
        let top = self.dirs().get(&top).map_err(|e| FileError::new("open", &shown, e))?;
        let staging = Some(Arc::new(Staging::adopt(top.as_fd(), &shown, name, keep)?));
        mounts.retain(|held| held.mount != mount);
        mounts.push(Mounted { mount, top, staging });
        Ok(())
    }

    /// [`reopen_staged`](Self::reopen_staged) of a file that was staged for `path`.
    pub fn reopen_staged_for(&self, path: &RelPath, name: &str) -> Result<Staged, FileError> {
        self.staging_for(path)?.reopen(name)
    }

    /// The staging directory for what goes to `path`, made if there is none yet.
    pub(super) fn staging_for(&self, path: &RelPath) -> Result<Arc<Staging>, FileError> {
        let Some((mount, top)) = self.other_mount(path)? else { return self.staging() };
        let mut mounts = self.mounts();
        if let Some(staging) = mounts.iter().find(|held| held.mount == mount).and_then(|h| h.staging.clone())
        {
            return Ok(staging);
        }
        let shown = top.below(self.path());
        let top = self.dirs().get(&top).map_err(|e| FileError::new("open", &shown, e))?;
        let staging = Arc::new(Staging::create(top.as_fd(), &shown)?);
        mounts.retain(|held| held.mount != mount);
        mounts.push(Mounted { mount, top, staging: Some(Arc::clone(&staging)) });
        Ok(staging)
    }

    /// The file system that `path` lies in and the topmost directory of it, unless it is the root's.
    fn other_mount(&self, path: &RelPath) -> Result<Option<(Mount, RelPath)>, FileError> {
        let (dir, _) = self.spot(path)?;
        let failed = |e| FileError::new("stage in", &path.below(self.path()), e);
        let (mount, root) = self.mount_of(&dir).map_err(failed)?;
        if mount == root {
            return Ok(None);
        }
        let mut top = path.clone();
        top.pop();
        while let Some((above, _)) = top.split() {
            if Mount::of(&self.dirs().get(&above).map_err(failed)?).map_err(failed)? != mount {
                break;
            }
            top = above;
        }
        Ok(Some((mount, top)))
    }

    /// The file systems of a held directory and of the root. Files come directory by directory, so the
    /// last answer mostly holds: where an open directory lies never changes.
    fn mount_of(&self, dir: &Arc<OwnedFd>) -> Result<(Mount, Mount), Errno> {
        let mut last = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(looked) = last.as_ref().filter(|looked| Arc::ptr_eq(&looked.dir, dir)) {
            return Ok((looked.mount, looked.root));
        }
        let root = match &*last {
            Some(looked) => looked.root,
            None => Mount::of(self.dirs().root())?,
        };
        let mount = Mount::of(dir)?;
        *last = Some(MountLook { dir: Arc::clone(dir), mount, root });
        Ok((mount, root))
    }

    /// Syncs every file system that something was staged in.
    pub(super) fn sync_all(&self) -> Result<(), Errno> {
        let mounts: Vec<_> = self.mounts().iter().map(|held| Arc::clone(&held.top)).collect();
        mounts.iter().chain([self.dirs().root()]).try_for_each(syncfs)
    }

    pub(super) fn remove_mounted_staging(&self) -> Result<(), FileError> {
        self.mounts().iter_mut().try_for_each(|held| match held.staging.take() {
            Some(staging) => staging.remove(held.top.as_fd()),
            None => Ok(()),
        })
    }

    /// True for the name of a staging directory of this run that is not in the root.
    pub(super) fn is_mounted_staging(&self, name: &[u8]) -> bool {
        let mounts = self.mounts();
        mounts.iter().filter_map(|held| held.staging.as_ref()).any(|one| one.name().as_bytes() == name)
    }

    fn mounts(&self) -> MutexGuard<'_, Vec<Mounted>> {
        self.mounted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
