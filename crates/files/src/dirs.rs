//! A few directories of one tree, held open; the others are opened again when they are needed.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use crate::confine::{self, Links};
use crate::path::RelPath;

/// Directories that stay open besides the root.
const HELD: usize = 64;

type HeldDir = (RelPath, Arc<OwnedFd>);

/// The root of a tree and its most recently used directories.
#[derive(Debug)]
pub(crate) struct Dirs {
    root: Arc<OwnedFd>,
    links: Links,
    /// Least recently used first.
    recent: Mutex<Vec<HeldDir>>,
}

impl Dirs {
    pub(crate) fn new(root: OwnedFd) -> Self {
        Self { root: Arc::new(root), links: Links::Refuse, recent: Mutex::default() }
    }

    /// The same, symbolic links on the way treated as told.
    pub(crate) fn with_links(self, links: Links) -> Self {
        Self { links, ..self }
    }

    pub(crate) const fn links(&self) -> Links {
        self.links
    }

    /// Holds the directory at `path`, which the user named.
    pub(crate) fn open(path: &Path) -> Result<Self, Errno> {
        confine::open_root(path).map(Self::new)
    }

    pub(crate) fn root(&self) -> &Arc<OwnedFd> {
        &self.root
    }

    /// The directory at `path`: a held one, or opened anew from the root.
    pub(crate) fn get(&self, path: &RelPath) -> Result<Arc<OwnedFd>, Errno> {
        if path.is_root() {
            return Ok(Arc::clone(&self.root));
        }
        if let Some(held) = self.recall(path) {
            return Ok(held);
        }
        let opened = Arc::new(confine::open_at(&self.root, path, self.links)?);
        self.keep(path, &opened);
        Ok(opened)
    }

    /// The directory that `path` lies in, and its name there; [`Errno::INVAL`] for the root.
    pub(crate) fn parent<'p>(&self, path: &'p RelPath) -> Result<(Arc<OwnedFd>, &'p [u8]), Errno> {
        let (parent, name) = path.split_bytes().ok_or(Errno::INVAL)?;
        if let Some(last) = self.last(parent) {
            return Ok((last, name));
        }
        let (parent, name) = path.split().ok_or(Errno::INVAL)?;
        Ok((self.get(&parent)?, name))
    }

    /// The directory at `path`, if it is the one that was used last: the usual case, at no cost.
    fn last(&self, path: &[u8]) -> Option<Arc<OwnedFd>> {
        let recent = self.lock();
        let (held, dir) = recent.last()?;
        (held.as_bytes() == path).then(|| Arc::clone(dir))
    }

    /// Holds a directory that was just opened.
    pub(crate) fn keep(&self, path: &RelPath, dir: &Arc<OwnedFd>) {
        let mut recent = self.lock();
        if recent.len() >= HELD {
            recent.remove(0);
        }
        recent.push((path.clone(), Arc::clone(dir)));
    }

    /// Lets go of the directory at `path` and of all below it: they are others now, or gone.
    pub(crate) fn forget(&self, path: &RelPath) {
        self.lock().retain(|(held, _)| !held.starts_with(path));
    }

    fn recall(&self, path: &RelPath) -> Option<Arc<OwnedFd>> {
        let mut recent = self.lock();
        let at = recent.iter().rposition(|(held, _)| held == path)?;
        let found = recent.remove(at);
        let dir = Arc::clone(&found.1);
        recent.push(found);
        Some(dir)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<HeldDir>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_recent_directories_stay_and_all_are_found() {
        let tmp = tempfile::tempdir().unwrap();
        let names: Vec<String> = (0..HELD + 20).map(|i| format!("d{i}")).collect();
        names.iter().for_each(|name| std::fs::create_dir(tmp.path().join(name)).unwrap());
        let dirs = Dirs::open(tmp.path()).unwrap();
        for _ in 0..2 {
            for name in &names {
                let dir = dirs.get(&RelPath::new([name]).unwrap()).unwrap();
                let wanted = rustix::fs::stat(tmp.path().join(name)).unwrap().st_ino;
                assert_eq!(rustix::fs::fstat(&dir).unwrap().st_ino, wanted);
                assert!(dirs.lock().len() <= HELD);
            }
        }
        let last = RelPath::new([&names[HELD]]).unwrap();
        let again = dirs.get(&last).unwrap();
        assert!(Arc::ptr_eq(&again, &dirs.get(&last).unwrap()));
        for dir in [&names[HELD], &names[0]] {
            let file = RelPath::new([dir.as_str(), "f"]).unwrap();
            let (held, name) = dirs.parent(&file).unwrap();
            assert!(Arc::ptr_eq(&held, &dirs.get(&file.split().unwrap().0).unwrap()) && name == b"f");
        }
        assert_eq!(dirs.parent(&RelPath::root()).unwrap_err(), Errno::INVAL);
    }
}
