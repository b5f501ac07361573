//! The store's own folders: finished objects, chunks, and temporaries on their way there.
//!
//! A temporary is locked by the process that writes it, so that a later start can tell what was
//! left behind by a crash from what somebody is still writing, and removes only the former.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use towpath_content::Oid;

use crate::hashing::read_range;
use crate::productions::random;
use crate::seam::StoreError;

/// Where the store's own bytes lie.
#[derive(Debug)]
pub(crate) struct Folders {
    objects: PathBuf,
    chunks: PathBuf,
    incoming: PathBuf,
}

impl Folders {
    /// Makes the folders in `data_dir` where they are missing, and removes what a crash left.
    pub(crate) fn open(data_dir: &Path) -> Result<Self, StoreError> {
        let [objects, chunks, incoming] = ["objects", "chunks", "incoming"].map(|name| data_dir.join(name));
        for dir in [&objects, &chunks, &incoming] {
            create_private(dir)?;
        }
        sweep(&incoming).map_err(|error| StoreError::io("clearing", &incoming, error))?;
        Ok(Self { objects, chunks, incoming })
    }

    /// Where the owned bytes of `oid` lie, if there are any.
    pub(crate) fn object(&self, oid: &Oid) -> PathBuf {
        self.objects.join(hex(oid.digest()))
    }

    /// Where a chunk lies: in one of 256 folders.
    pub(crate) fn chunk(&self, hash: &[u8; 32]) -> PathBuf {
        let name = hex(hash);
        self.chunks.join(&name[..2]).join(&name)
    }

    /// A new temporary.
    pub(crate) fn temporary(&self) -> Result<Temporary, StoreError> {
        Temporary::create(&self.incoming)
            .map_err(|error| StoreError::io("creating a file in", &self.incoming, error))
    }
}

/// Makes a folder, and those above it, that only its owner can enter.
pub(crate) fn create_private(dir: &Path) -> Result<(), StoreError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|error| StoreError::io("creating", dir, error))
}

fn hex(bytes: &[u8; 32]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A file that is being written; it is removed when dropped unless it was published.
#[derive(Debug)]
pub(crate) struct Temporary {
    file: File,
    path: PathBuf,
}

impl Temporary {
    fn create(dir: &Path) -> io::Result<Self> {
        loop {
            let path = dir.join(format!("{}-{:016x}", std::process::id(), random()));
            let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
            rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
            // A sweep that came between creating and locking took it for a left-over.
            if file.metadata()?.nlink() > 0 {
                return Ok(Self { file, path });
            }
        }
    }

    /// Replaces the contents of `buf` with bytes that were written.
    pub(crate) fn read(&self, range: Range<u64>, buf: &mut Vec<u8>) -> Result<(), StoreError> {
        read_range(&self.file, range, buf).map_err(|error| StoreError::io("reading", &self.path, error))
    }

    /// Writes all of `data` at `offset`.
    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        self.file.write_all_at(data, offset).map_err(|error| StoreError::io("writing", &self.path, error))
    }

    /// Puts the bytes on the disk; cuts off what a failed write left beyond `size`.
    pub(crate) fn sync(&self, size: u64) -> Result<(), StoreError> {
        let cut = || if self.file.metadata()?.len() == size { Ok(()) } else { self.file.set_len(size) };
        cut()
            .and_then(|()| self.file.sync_data())
            .map_err(|error| StoreError::io("syncing", &self.path, error))
    }

    /// Gives the file its final name, in place of any other; both are on the disk afterwards.
    /// May be repeated.
    pub(crate) fn publish(&self, target: &Path) -> Result<(), StoreError> {
        let is_there = |target: &Path| -> io::Result<bool> {
            let (ours, there) = (self.file.metadata()?, std::fs::metadata(target)?);
            Ok((ours.dev(), ours.ino()) == (there.dev(), there.ino()))
        };
        if !is_there(target).unwrap_or(false) {
            let renamed = std::fs::rename(&self.path, target);
            renamed.map_err(|error| StoreError::io("renaming a file to", target, error))?;
        }
        sync_parent(target)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // Published files have left this name; what cannot be removed now goes at the next start.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Makes a rename in the folder of `path` durable.
pub(crate) fn sync_parent(path: &Path) -> Result<(), StoreError> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    let synced = File::open(parent).and_then(|dir| dir.sync_all());
    synced.map_err(|error| StoreError::io("syncing", parent, error))
}

/// Removes a file that may be gone already.
pub(crate) fn remove(path: &Path) -> Result<(), StoreError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::io("removing", path, error)),
        _ => Ok(()),
    }
}

/// Removes the temporaries that no process holds locked.
fn sweep(incoming: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(incoming)? {
        let path = entry?.path();
        let Ok(file) = File::open(&path) else {
            continue;
        };
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            tracing::debug!(path = %path.display(), "removing what an interrupted put left");
            let _ = std::fs::remove_file(&path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_takes_only_what_nobody_is_writing() {
        let dir = tempfile::tempdir().unwrap();
        let folders = Folders::open(dir.path()).unwrap();
        let open = folders.temporary().unwrap();
        let left = dir.path().join("incoming/1-left");
        std::fs::write(&left, b"half").unwrap();
        Folders::open(dir.path()).unwrap();
        assert!(open.path.exists() && !left.exists());
    }

    #[test]
    fn a_published_file_outlives_its_handle_and_others_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let folders = Folders::open(dir.path()).unwrap();
        let (kept, dropped) = (folders.temporary().unwrap(), folders.temporary().unwrap());
        kept.write(0, b"bytes and what a failed write left").unwrap();
        kept.sync(5).unwrap();
        let target = folders.object(&Oid::of(b"bytes"));
        kept.publish(&target).unwrap();
        kept.publish(&target).unwrap();
        drop((kept, dropped));
        assert_eq!(std::fs::read(target).unwrap(), b"bytes");
        assert_eq!(std::fs::read_dir(dir.path().join("incoming")).unwrap().count(), 0);
    }
}
