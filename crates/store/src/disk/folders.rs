//! The store's own folders: finished objects, chunks, and temporaries on their way there.
//!
//! A temporary is locked by the process that writes it, so that a later start can tell what was
//! left behind by a crash from what somebody is still writing, and removes only the former. A
//! finished file is locked, shared, by those who read it: what nobody has locked can be removed.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use towpath_content::Oid;

use super::points;
use crate::error::StoreError;
use crate::hashing::append_range;
use crate::productions::random;

/// Folders of the store's own bytes.
#[derive(Debug)]
pub(crate) struct Folders {
    objects: PathBuf,
    chunks: PathBuf,
    made_recipes: PathBuf,
    given_recipes: PathBuf,
    incoming: PathBuf,
}

impl Folders {
    /// Makes the folders in `data_dir` where they are missing, and removes what a crash left.
    pub(crate) fn open(data_dir: &Path) -> Result<Self, StoreError> {
        let names = ["objects", "chunks", "recipes/made", "recipes/given", "incoming"];
        let dirs = names.map(|name| data_dir.join(name));
        dirs.iter().try_for_each(|dir| create_private(dir))?;
        let [objects, chunks, made_recipes, given_recipes, incoming] = dirs;
        sweep(&incoming)?;
        Ok(Self { objects, chunks, made_recipes, given_recipes, incoming })
    }

    /// Path of the owned bytes of `oid`, if there are any.
    pub(crate) fn object(&self, oid: &Oid) -> PathBuf {
        self.objects.join(hex(oid.digest()))
    }

    /// Path of a chunk: in one of 256 folders.
    pub(crate) fn chunk(&self, hash: &[u8; 32]) -> PathBuf {
        let name = hex(hash);
        self.chunks.join(&name[..2]).join(&name)
    }

    /// Path of the recipe of `oid`, if one was made.
    pub(crate) fn made_recipe(&self, oid: &Oid) -> PathBuf {
        self.made_recipes.join(hex(oid.digest()))
    }

    /// Path of the recipe of `oid`, if its boundaries were given.
    pub(crate) fn given_recipe(&self, oid: &Oid) -> PathBuf {
        self.given_recipes.join(hex(oid.digest()))
    }

    /// The stand-in of an object that is in the byte store, locked together with others who read or put it. An
    /// evictor who has it locked is waited for.
    pub(crate) fn stand_in(&self, oid: &Oid) -> Result<File, StoreError> {
        let path = self.object(oid);
        loop {
            let file = open_stand_in(&path).map_err(|error| StoreError::io("opening", &path, error))?;
            rustix::fs::flock(&file, FlockOperation::LockShared)
                .map_err(|error| StoreError::io("locking", &path, error.into()))?;
            let found = file.metadata().map_err(|error| StoreError::io("looking at", &path, error))?;
            if found.nlink() > 0 {
                return Ok(file);
            }
        }
    }

    /// The stand-in of an object, locked against all others; `None` if somebody has it locked.
    pub(crate) fn claim_stand_in(&self, oid: &Oid) -> Result<Option<File>, StoreError> {
        let path = self.object(oid);
        let file = open_stand_in(&path).map_err(|error| StoreError::io("opening", &path, error))?;
        drop(file);
        match claim(&path)? {
            Claim::Free(file) => Ok(Some(file)),
            Claim::Held | Claim::Missing => Ok(None),
        }
    }

    /// A new temporary.
    pub(crate) fn temporary(&self) -> Result<Temporary, StoreError> {
        Temporary::create_in(&self.incoming)
    }

    /// Removes the temporaries that a crash left; returns how many.
    pub(crate) fn sweep(&self) -> Result<u64, StoreError> {
        sweep(&self.incoming)
    }

    /// A private file on the same disk as a temporary; it leaves its place.
    pub(crate) fn take_in(&self, path: &Path) -> Result<Temporary, StoreError> {
        Temporary::take_in(&self.incoming, path).map_err(|error| StoreError::io("taking in", path, error))
    }

    /// The folder of finished objects.
    pub(crate) fn objects(&self) -> &Path {
        &self.objects
    }

    /// The folder of recipes that were made.
    pub(crate) fn made_recipes(&self) -> &Path {
        &self.made_recipes
    }

    /// The folder of recipes whose boundaries were given.
    pub(crate) fn given_recipes(&self) -> &Path {
        &self.given_recipes
    }

    /// The folder of the folders of chunks.
    pub(crate) fn chunks(&self) -> &Path {
        &self.chunks
    }
}

/// The hash that a file is named by, if it is.
pub(crate) fn hash_of_name(name: &OsStr) -> Option<[u8; 32]> {
    let digits = name.as_bytes().as_array::<64>()?;
    let mut hash = [0; 32];
    for (byte, pair) in hash.iter_mut().zip(digits.as_chunks::<2>().0) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    // Only the form that is written here, without capitals and signs.
    (hex(&hash).as_bytes() == digits).then_some(hash)
}

/// Makes a folder, and those above it, that only its owner can enter.
pub(crate) fn create_private(dir: &Path) -> Result<(), StoreError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|error| StoreError::io("creating", dir, error))
}

fn hex(bytes: &[u8; 32]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A private file of the store that is being written; it is removed when dropped, unless it was
/// made an object. No other process removes it meanwhile.
#[derive(Debug)]
pub struct Temporary {
    file: File,
    path: PathBuf,
}

impl Temporary {
    /// Its path for now.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open file, for reading and writing.
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// Its name in its folder.
    pub(crate) fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// A new one in `dir`.
    pub(crate) fn create_in(dir: &Path) -> Result<Self, StoreError> {
        Self::create(dir).map_err(|error| StoreError::io("creating a file in", dir, error))
    }

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

    /// A file that lies elsewhere on the disk, under a name in `dir`.
    fn take_in(dir: &Path, from: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(from)?;
        // Before it has its name there a sweep must know that it is somebody's.
        rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
        let path = dir.join(format!("{}-{:016x}", std::process::id(), random()));
        std::fs::rename(from, &path)?;
        Ok(Self { file, path })
    }

    /// Appends bytes to `buf` that were written.
    pub(crate) fn append(&self, range: Range<u64>, buf: &mut Vec<u8>) -> Result<(), StoreError> {
        append_range(&self.file, range, buf).map_err(|error| StoreError::io("reading", &self.path, error))
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

    /// Gives the file its final name, in place of any other; both are on the disk afterwards. While this handle lives nobody takes the file for a left-over; others may
    /// read it.
    pub(crate) fn publish(&self, target: &Path) -> Result<(), StoreError> {
        self.place(target)?;
        sync_parent(target)
    }

    /// Gives the file its final name, in place of any other, which a crash may undo. May be repeated.
    pub(crate) fn place(&self, target: &Path) -> Result<(), StoreError> {
        let is_there = |target: &Path| -> io::Result<bool> {
            let (ours, there) = (self.file.metadata()?, std::fs::metadata(target)?);
            Ok((ours.dev(), ours.ino()) == (there.dev(), there.ino()))
        };
        if !is_there(target).unwrap_or(false) {
            points::pass("before a rename");
            let renamed = std::fs::rename(&self.path, target);
            renamed.map_err(|error| StoreError::io("renaming a file to", target, error))?;
            points::pass("after a rename");
        }
        rustix::fs::flock(&self.file, FlockOperation::LockShared)
            .map_err(|error| StoreError::io("unlocking", target, error.into()))
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
    points::pass("before a removal");
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::io("removing", path, error)),
        _ => Ok(()),
    }
}

/// Opens a file that stands for an object in the byte store; it is made if there is none.
pub(crate) fn open_stand_in(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Result of [`claim`].
#[derive(Debug)]
pub(crate) enum Claim {
    /// Nobody has it locked; now the caller has, until this is dropped.
    Free(File),
    /// Somebody reads or writes it.
    Held,
    /// There is no such file.
    Missing,
}

/// Locks a file against all others if none of them has it locked.
pub(crate) fn claim(path: &Path) -> Result<Claim, StoreError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Claim::Missing),
        Err(error) => return Err(StoreError::io("opening", path, error)),
    };
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Claim::Free(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(Claim::Held),
        Err(error) => Err(StoreError::io("locking", path, error.into())),
    }
}

/// Removes a file unless somebody reads it still or is about to give it a row; returns its bytes.
pub(crate) fn remove_unheld(path: &Path) -> Result<Option<u64>, StoreError> {
    let Claim::Free(file) = claim(path)? else {
        return Ok(None);
    };
    remove(path)?;
    Ok(Some(file.metadata().map_or(0, |found| found.len())))
}

/// Locks an open file together with other readers; false if somebody is about to remove it.
pub(crate) fn share(file: &File) -> io::Result<bool> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(file.metadata()?.nlink() > 0),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// True if no process holds the temporary at `path`: it ended, or crashed.
pub(crate) fn is_left(path: &Path) -> bool {
    matches!(claim(path), Ok(Claim::Free(_) | Claim::Missing))
}

/// Removes the temporaries in `folder` that no process holds; returns how many.
pub(crate) fn sweep(folder: &Path) -> Result<u64, StoreError> {
    let failed = |error| StoreError::io("clearing", folder, error);
    let mut removed = 0;
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if let Ok(Claim::Free(_held)) = claim(&path) {
            tracing::debug!(path = %path.display(), "removing what an interrupted process left");
            removed += u64::from(std::fs::remove_file(&path).is_ok());
        }
    }
    Ok(removed)
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
    fn a_file_that_was_filled_elsewhere_becomes_a_temporary() {
        let dir = tempfile::tempdir().unwrap();
        let folders = Folders::open(dir.path()).unwrap();
        let filled = dir.path().join("filled");
        std::fs::write(&filled, b"bytes").unwrap();
        let taken = folders.take_in(&filled).unwrap();
        folders.sweep().unwrap();
        let mut bytes = Vec::new();
        taken.append(0..5, &mut bytes).unwrap();
        assert_eq!((bytes.as_slice(), filled.exists()), (&b"bytes"[..], false));
        assert!(folders.take_in(&filled).is_err());
    }

    #[test]
    fn names_are_hashes_in_one_form_only() {
        let hash: [u8; 32] = std::array::from_fn(|i| (i as u8).wrapping_mul(9));
        let name = hex(&hash);
        assert_eq!(hash_of_name(OsStr::new(&name)), Some(hash));
        let wrong = [name.to_uppercase(), name[1..].to_owned(), format!("+0{}", &name[2..]), "x".repeat(64)];
        assert!(wrong.iter().all(|name| hash_of_name(OsStr::new(name)).is_none()));
    }

    #[test]
    fn a_file_under_read_cannot_be_claimed_and_a_claimed_one_not_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let _quiet = super::super::crash::quiet();
        assert!(matches!(claim(&path), Ok(Claim::Missing)));
        std::fs::write(&path, b"bytes").unwrap();
        let reader = File::open(&path).unwrap();
        assert!(share(&reader).unwrap() && share(&File::open(&path).unwrap()).unwrap());
        assert!(matches!(claim(&path), Ok(Claim::Held)));
        drop(reader);
        let Ok(Claim::Free(_held)) = claim(&path) else { panic!("nobody reads it") };
        let late = File::open(&path).unwrap();
        assert!(!share(&late).unwrap());
        std::fs::remove_file(&path).unwrap();
        drop(_held);
        assert!(!share(&late).unwrap(), "it was removed");
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
