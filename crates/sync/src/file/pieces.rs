//! A file that the session brings piece by piece, into what an interrupted copy left of it, or beside what is right of the
//! file that it replaces.

use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;

use towpath_content::Oid;
use towpath_content::pieces::{MIN_LOG2, Value};
use towpath_files::FileError;
use towpath_store::About;
use towpath_transfer::Target;
use towpath_transfer::intervals::Intervals;

use super::CopyFile;
use towpath_content::lock::lock;
use towpath_targets::placing::Begun;

/// A file that it replaces is worth reading if it has as many bytes.
const WORTH_READING: u64 = 1 << (MIN_LOG2 + 1);

/// The file that it replaces, from which pieces are taken over that are the same.
pub(super) struct OlderPieces {
    file: std::fs::File,
    /// All of its bytes.
    size: u64,
    /// Of them, those that have a place in the new one.
    in_place: u64,
    /// Whether it is all that there is: not so if an interrupted copy left something.
    is_alone: bool,
}

impl towpath_transfer::following::Older for OlderPieces {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }
}

impl CopyFile {
    /// A temporary for it: what an interrupted copy left, else a new one, which shares the bytes of the file
    /// that it replaces where the file system can do so; and where bytes are in it. They are all hashed before
    /// they count.
    fn open(&self, size: u64) -> Result<Begun, FileError> {
        let placing = self.receiving.placing()?;
        let key = self.key();
        let reopen = |name: &str| placing.destination.staging().reopen_for(&self.wanted.path, name);
        let older = self.open_older();
        if let Some(left) = placing.left_of(&key, size, reopen)? {
            let beside = older.map(|older| OlderPieces { is_alone: false, ..older });
            beside.into_iter().for_each(|older| drop(self.older.set(older)));
            return Ok(left);
        }
        let staged = self.fresh(size)?;
        placing.note_part(&key, &staged, self.wanted.size > 1 << MIN_LOG2);
        let Some(older) = older else { return Ok((staged, Vec::new())) };
        let shared = staged.body().share(&older.file)?.then_some(0..older.in_place);
        let _ = self.older.set(older);
        Ok((staged, shared.into_iter().collect()))
    }

    /// The file that it replaces, if that is worth reading; only a help.
    fn open_older(&self) -> Option<OlderPieces> {
        let old = self.wanted.old.filter(|old| old.size >= WORTH_READING)?;
        if self.receiving.options.whole_file || self.size() < WORTH_READING {
            return None;
        }
        let placing = self.receiving.placing().ok()?;
        let file = placing.destination.open_file(&self.wanted.path, &old).ok()?;
        Some(OlderPieces { file, size: old.size, in_place: old.size.min(self.size()), is_alone: true })
    }

    /// The older version, for bytes that are not in the temporary.
    fn older_with(&self, range: &Range<u64>) -> Option<&OlderPieces> {
        let is_in_temporary = |left: &Range<u64>| left.start <= range.start && range.end <= left.end;
        let older = self.older.get().filter(|older| range.end <= older.in_place)?;
        (!self.partial.existing().iter().any(is_in_temporary)).then_some(older)
    }

    /// Makes room up to `end`.
    fn grow(&self, end: u64) -> io::Result<()> {
        if end > self.size() {
            let path = Path::new(OsStr::from_bytes(&self.wanted.shown));
            let error = FileError::changed("write", path, "longer than its sender said");
            return self.partial.note(Err(error));
        }
        self.partial.grow(end)
    }
}

impl Target for CopyFile {
    fn begin(&self, size: Option<u64>, _about: &About) -> io::Result<()> {
        if self.partial.is_begun() {
            return Ok(());
        }
        let opened = self.open(size.unwrap_or_else(|| self.size()));
        let (staged, existing) = self.partial.note(opened)?;
        self.partial.begin(staged.body(), existing);
        *lock(&self.staged) = Some(staged);
        Ok(())
    }

    fn existing(&self) -> Vec<Range<u64>> {
        let mut existing = Intervals::default();
        self.partial.existing().iter().for_each(|left| existing.insert(left.clone()));
        self.older.get().into_iter().for_each(|older| existing.insert(0..older.in_place));
        existing.iter().collect()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.partial.read(offset, buf)
    }

    fn read_existing(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        match self.older_with(&(offset..offset + buf.len() as u64)) {
            Some(older) => older.file.read_exact_at(buf, offset),
            None => self.read(offset, buf),
        }
    }

    fn older(&self) -> Option<&dyn towpath_transfer::following::Older> {
        self.older.get().filter(|older| older.is_alone).map(|older| older as _)
    }

    fn older_is_cold(&self) -> bool {
        self.older.get().is_some_and(|older| !is_in_memory(&older.file, older.size))
    }

    fn keep(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        match self.older_with(&(offset..offset + bytes.len() as u64)) {
            Some(_) => self.write(offset, bytes),
            None => Ok(()),
        }
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.grow(offset + bytes.len() as u64)?;
        // What lies there already has to be written over, also with zeros.
        let sparse = self.sparse.load(Ordering::Relaxed) && self.partial.existing().is_empty();
        self.partial.write(offset, bytes, sparse)
    }

    fn write_zeros(&self, range: Range<u64>) -> io::Result<()> {
        self.grow(range.end)?;
        self.partial.write_zeros(&range)
    }

    fn complete(&self, oid: &Oid, size: u64, values: Vec<Value>) -> io::Result<()> {
        self.partial.set_size(size)?;
        self.partial.note(self.finish(Some((*oid, values))))
    }
}

/// Whether a few places of a file can be read without waiting for a disk; true where the system can't tell.
#[cfg(target_os = "linux")]
fn is_in_memory(file: &std::fs::File, size: u64) -> bool {
    use rustix::io::{Errno, ReadWriteFlags, preadv2};
    let is_there = |offset| {
        let mut byte = [0];
        let read = preadv2(file, &mut [io::IoSliceMut::new(&mut byte)], offset, ReadWriteFlags::NOWAIT);
        read != Err(Errno::AGAIN)
    };
    [0, size / 2, size.saturating_sub(1)].into_iter().all(is_there)
}

/// Whether a few places of a file can be read without waiting for a disk; true where the system can't tell.
#[cfg(not(target_os = "linux"))]
const fn is_in_memory(_: &std::fs::File, _: u64) -> bool {
    true
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs::File;

    use rustix::fs::{Advice, fadvise, fstatfs};

    use super::is_in_memory;

    /// File systems that are known to tell, and to forget (`linux/magic.h`): ext4, XFS, btrfs.
    const ON_DISKS: [u64; 3] = [0xef53, 0x5846_5342, 0x9123_683e];

    #[test]
    fn what_was_just_written_is_in_memory_until_the_kernel_forgets_it() {
        // Temporary files may lie in memory for good.
        let beside = std::env::current_exe().unwrap();
        let folder = tempfile::tempdir_in(beside.parent().unwrap()).unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![7; 3 << 20]).unwrap();
        let file = File::open(&path).unwrap();
        assert!(is_in_memory(&file, 3 << 20) && is_in_memory(&file, 0));
        if ON_DISKS.contains(&(fstatfs(&file).unwrap().f_type as u64)) {
            file.sync_all().unwrap();
            fadvise(&file, 0, None, Advice::DontNeed).unwrap();
            assert!(!is_in_memory(&file, 3 << 20));
        }
    }
}
