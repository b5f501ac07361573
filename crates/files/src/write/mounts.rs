//! Staging directories that things grow in: that of the root, or for what goes to a file system
//! mounted inside the tree, one in the topmost directory of that file system, since a rename
//! cannot cross from one to the other.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::syncfs;
use rustix::io::Errno;

use super::STAGING;
use super::staging::{Staging, is_staging_name};
use crate::dirs::Dirs;
use crate::error::FileError;
use crate::mount::Mount;
use crate::path::RelPath;

/// A file system mounted inside the tree, in which something was staged.
#[derive(Debug)]
struct Mounted {
    mount: Mount,
    /// Its topmost directory.
    top: Arc<OwnedFd>,
    /// None once it was removed.
    staging: Option<Arc<Staging>>,
}

/// Directory that was asked about last, and where it lies.
#[derive(Debug)]
struct MountLook {
    dir: Arc<OwnedFd>,
    mount: Mount,
    root: Mount,
}

/// The staging directories of one tree.
#[derive(Debug)]
pub(super) struct StagingDirs {
    /// The path of the root, for messages.
    path: Arc<Path>,
    dirs: Arc<Dirs>,
    in_root: Mutex<Option<Arc<Staging>>>,
    /// File systems inside the tree that something was staged in.
    mounted: Mutex<Vec<Mounted>>,
    looked: Mutex<Option<MountLook>>,
}

impl StagingDirs {
    /// None yet, in the tree whose directories these are.
    pub(super) fn new(path: Arc<Path>, dirs: Arc<Dirs>) -> Self {
        let (in_root, mounted, looked) = Default::default();
        Self { path, dirs, in_root, mounted, looked }
    }

    /// Staging directory of the root, made if there is none yet.
    pub(super) fn of_root(&self) -> Result<Arc<Staging>, FileError> {
        let mut current = self.in_root();
        if let Some(staging) = current.as_ref() {
            return Ok(Arc::clone(staging));
        }
        let made = Arc::new(Staging::create(self.dirs.root().as_fd(), &self.path)?);
        *current = Some(Arc::clone(&made));
        Ok(made)
    }

    /// Staging directory for what goes to `path`, in the directory `dir`; made if there is none yet.
    pub(super) fn of(&self, path: &RelPath, dir: &Arc<OwnedFd>) -> Result<Arc<Staging>, FileError> {
        let Some((mount, top)) = self.other_mount(path, dir)? else { return self.of_root() };
        let mut mounts = self.mounts();
        if let Some(staging) = mounts.iter().find(|held| held.mount == mount).and_then(|h| h.staging.clone())
        {
            return Ok(staging);
        }
        let shown = top.below(&self.path);
        let top = self.dirs.get(&top).map_err(|e| FileError::new("open", &shown, e))?;
        let staging = Arc::new(Staging::create(top.as_fd(), &shown)?);
        mounts.retain(|held| held.mount != mount);
        mounts.push(Mounted { mount, top, staging: Some(Arc::clone(&staging)) });
        Ok(staging)
    }

    /// Goes on with the one of the root that an earlier run left.
    pub(super) fn adopt_in_root(&self, name: &str, keep: &dyn Fn(&str) -> bool) -> Result<(), FileError> {
        let mut current = self.in_root();
        if current.is_some() {
            return Err(FileError::busy("resume", &self.path, "a staging directory is in use already"));
        }
        let adopted = Staging::adopt(self.dirs.root().as_fd(), &self.path, name, keep)?;
        *current = Some(Arc::new(adopted));
        Ok(())
    }

    /// Goes on with the one that an earlier run left for what goes to `path`, in the directory `dir`.
    pub(super) fn adopt(
        &self,
        path: &RelPath,
        dir: &Arc<OwnedFd>,
        name: &str,
        keep: &dyn Fn(&str) -> bool,
    ) -> Result<(), FileError> {
        let Some((mount, top)) = self.other_mount(path, dir)? else {
            return self.adopt_in_root(name, keep);
        };
        let shown = top.below(&self.path);
        let mut mounts = self.mounts();
        if mounts.iter().any(|held| held.mount == mount && held.staging.is_some()) {
            return Err(FileError::busy("resume", &shown, "a staging directory is in use already"));
        }
        let top = self.dirs.get(&top).map_err(|e| FileError::new("open", &shown, e))?;
        let staging = Some(Arc::new(Staging::adopt(top.as_fd(), &shown, name, keep)?));
        mounts.retain(|held| held.mount != mount);
        mounts.push(Mounted { mount, top, staging });
        Ok(())
    }

    /// True for the name of one of these.
    pub(super) fn is_own(&self, name: &[u8]) -> bool {
        let is_it = |staging: &Arc<Staging>| staging.name().as_bytes() == name;
        let in_root = || self.in_root().as_ref().is_some_and(is_it);
        let in_mounts = || self.mounts().iter().filter_map(|held| held.staging.as_ref()).any(is_it);
        is_staging_name(name) && (in_root() || in_mounts())
    }

    /// Removes them, with what is in them.
    pub(super) fn remove(&self) -> Result<(), FileError> {
        let staging = self.in_root().take();
        staging.map_or(Ok(()), |staging| staging.remove(self.dirs.root().as_fd()))?;
        self.mounts().iter_mut().try_for_each(|held| match held.staging.take() {
            Some(staging) => staging.remove(held.top.as_fd()),
            None => Ok(()),
        })
    }

    /// Syncs every file system that something was staged in.
    pub(super) fn sync(&self) -> Result<(), Errno> {
        let mounts: Vec<_> = self.mounts().iter().map(|held| Arc::clone(&held.top)).collect();
        mounts.iter().chain([self.dirs.root()]).try_for_each(syncfs)
    }

    /// The file system that `path` lies in and the topmost directory of it, unless it is the root's.
    fn other_mount(&self, path: &RelPath, dir: &Arc<OwnedFd>) -> Result<Option<(Mount, RelPath)>, FileError> {
        let failed = |e| FileError::new(STAGING, &path.below(&self.path), e);
        let (mount, root) = self.mount_of(dir).map_err(failed)?;
        if mount == root {
            return Ok(None);
        }
        let mut top = path.clone();
        top.pop();
        while let Some((above, _)) = top.split() {
            if Mount::of(&self.dirs.get(&above).map_err(failed)?).map_err(failed)? != mount {
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
            None => Mount::of(self.dirs.root())?,
        };
        let mount = Mount::of(dir)?;
        *last = Some(MountLook { dir: Arc::clone(dir), mount, root });
        Ok((mount, root))
    }

    fn in_root(&self) -> MutexGuard<'_, Option<Arc<Staging>>> {
        self.in_root.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mounts(&self) -> MutexGuard<'_, Vec<Mounted>> {
        self.mounted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
