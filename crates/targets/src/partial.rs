//! State that all targets of a session have that write a file: the temporary it grows in, and the error of the
//! disk when it failed. The session gets the kind of that alone; the whole error, with its
//! path, waits here for whoever ends the file.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use towpath_files::{FileBody, FileError};
use towpath_transfer::following::BaseReader;
use towpath_transfer::intervals::Intervals;

use crate::base_file::BaseFile;
use towpath_content::lock::lock;

/// A file on its way.
#[derive(Default)]
pub struct PartialFile {
    body: OnceLock<FileBody>,
    left: OnceLock<Vec<Range<u64>>>,
    older: OnceLock<BaseFile>,
    /// Bytes of the older version that were right in their places.
    drawn: AtomicU64,
    growing: Mutex<()>,
    failure: Mutex<Option<FileError>>,
}

impl PartialFile {
    /// It has a temporary, in which there may be bytes already: where, and nobody knows which.
    pub fn begin(&self, body: FileBody, left: Vec<Range<u64>>) {
        let _ = self.left.set(left);
        let _ = self.body.set(body);
    }

    /// True if it has a temporary.
    pub fn is_begun(&self) -> bool {
        self.body.get().is_some()
    }

    /// There is an older version of it; only the first one counts.
    pub fn set_base(&self, older: BaseFile) {
        let _ = self.older.set(older);
    }

    /// Ranges of bytes that were in the temporary when it was begun.
    pub fn left(&self) -> &[Range<u64>] {
        self.left.get().map_or(&[], Vec::as_slice)
    }

    /// See [`Target::existing`](towpath_transfer::Target::existing): what was left, and what the older version has in place.
    pub fn existing(&self) -> Vec<Range<u64>> {
        let mut existing = Intervals::default();
        self.left().iter().for_each(|left| existing.insert(left.clone()));
        self.older.get().into_iter().for_each(|older| existing.insert(0..older.in_place()));
        existing.iter().collect()
    }

    /// See [`Target::read_existing`](towpath_transfer::Target::read_existing).
    pub fn read_existing(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        match self.base_with(&(offset..offset + buf.len() as u64)) {
            Some(older) => older.read(offset, buf),
            None => self.read(offset, buf),
        }
    }

    /// See [`Target::keep`](towpath_transfer::Target::keep): `write` puts them in the temporary if they are not there.
    pub fn keep(&self, offset: u64, bytes: &[u8], write: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let len = bytes.len() as u64;
        if self.base_with(&(offset..offset + len)).is_none() {
            return Ok(());
        }
        self.drawn.fetch_add(len, Ordering::Relaxed);
        write()
    }

    /// Bytes of the older version that were taken over in their places.
    pub fn drawn(&self) -> u64 {
        self.drawn.load(Ordering::Relaxed)
    }

    /// See [`Target::base`](towpath_transfer::Target::base): not beside what an interrupted transfer left.
    pub fn base(&self) -> Option<&dyn BaseReader> {
        let is_alone = |older: &&BaseFile| older.is_shared() || self.left().is_empty();
        self.older.get().filter(is_alone).map(|older| older as _)
    }

    /// See [`Target::base_is_cold`](towpath_transfer::Target::base_is_cold).
    pub fn base_is_cold(&self) -> bool {
        self.older.get().is_some_and(BaseFile::is_cold)
    }

    /// The older version, for bytes that are not in the temporary.
    fn base_with(&self, range: &Range<u64>) -> Option<&BaseFile> {
        let is_in_temporary = |left: &Range<u64>| left.start <= range.start && range.end <= left.end;
        let older = self.older.get().filter(|older| range.end <= older.in_place())?;
        (!self.left().iter().any(is_in_temporary)).then_some(older)
    }

    /// Keeps what went wrong, and tells the session of what kind it is.
    pub fn note<T>(&self, result: Result<T, FileError>) -> io::Result<T> {
        result.map_err(|error| {
            let kind = io_error(&error);
            *lock(&self.failure) = Some(error);
            kind
        })
    }

    /// Error that was the last.
    pub fn take_failure(&self) -> Option<FileError> {
        lock(&self.failure).take()
    }

    fn body(&self) -> io::Result<&FileBody> {
        self.body.get().ok_or_else(|| io::Error::other("the file was not begun"))
    }

    /// Makes room up to `end`: a live object's size is not known before its end.
    pub fn grow(&self, end: u64) -> io::Result<()> {
        let body = self.body()?;
        let _alone = lock(&self.growing);
        if end > body.size() { self.note(body.set_size(end)) } else { Ok(()) }
    }

    /// Makes it as long as it is in the end.
    pub fn set_size(&self, size: u64) -> io::Result<()> {
        let body = self.body()?;
        if body.size() == size { Ok(()) } else { self.note(body.set_size(size)) }
    }

    /// See [`Target::read`](towpath_transfer::Target::read).
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.note(self.body()?.read_at(offset, buf))
    }

    /// See [`Target::write`](towpath_transfer::Target::write); with `sparse` runs of zeros become
    /// holes.
    pub fn write(&self, offset: u64, bytes: &[u8], sparse: bool) -> io::Result<()> {
        self.note(self.body()?.write_piece(offset, bytes, sparse))
    }

    /// See [`Target::write_zeros`](towpath_transfer::Target::write_zeros). A new file has a hole
    /// there already; what an earlier run left is written over.
    pub fn write_zeros(&self, range: &Range<u64>) -> io::Result<()> {
        let is_fresh = self.left().iter().all(|left| left.end <= range.start || range.end <= left.start);
        if is_fresh {
            return Ok(());
        }
        let zeros = vec![0; 64 << 10];
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(zeros.len() as u64);
            self.write(at, &zeros[..len as usize], false)?;
            at += len;
        }
        Ok(())
    }
}

/// The system's error inside a file error.
fn io_error(error: &FileError) -> io::Error {
    let kind = match error {
        FileError::NoSpace { .. } => io::ErrorKind::StorageFull,
        FileError::Exists { .. } => io::ErrorKind::AlreadyExists,
        FileError::Vanished { .. } => io::ErrorKind::NotFound,
        FileError::Permission { .. } => io::ErrorKind::PermissionDenied,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error.to_string())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use towpath_files::SingleFile;

    use super::*;

    #[test]
    fn an_older_version_is_drawn_from_where_nothing_was_left_and_followed_if_it_is_alone() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("old"), [1; 60]).unwrap();
        for left in [None, Some(0..20)] {
            let left: Vec<_> = left.into_iter().collect();
            let file = SingleFile::create(&at("new"), 100).unwrap();
            let partial = PartialFile::default();
            partial.set_base(BaseFile::new(File::open(at("old")).unwrap(), 60, 100));
            partial.begin(file.body().clone(), left.clone());
            assert!(partial.existing().iter().eq([&(0..60)]));
            assert_eq!(partial.base().is_some(), left.is_empty());
            let read = |range: Range<u64>| {
                let mut bytes = vec![9; (range.end - range.start) as usize];
                partial.read_existing(range.start, &mut bytes).unwrap();
                partial.keep(range.start, &bytes, || partial.write(range.start, &bytes, false)).unwrap();
                bytes
            };
            assert_eq!(read(20..40), [1; 20]);
            assert_eq!(read(0..20), [u8::from(left.is_empty()); 20]);
            assert_eq!(partial.drawn(), if left.is_empty() { 40 } else { 20 });
            let mut written = vec![9; 100];
            partial.read(0, &mut written).unwrap();
            assert_eq!(written[20..60], [[1; 20], [0; 20]].concat());
            file.discard().unwrap();
        }
    }
}
