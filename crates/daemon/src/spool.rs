//! A temporary that is read while it grows: a tree descriptor on its way in, or bytes bound for
//! standard output.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use towpath_content::Oid;
use towpath_content::pieces::Value;
use towpath_store::About;
use towpath_transfer::Target;

use crate::lock::lock;

/// A transfer target whose checked front can be read at once.
pub struct Spool {
    file: File,
    existing: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Checked bytes from the front on.
    prefix: u64,
    end: Option<End>,
}

enum End {
    Complete(u64),
    Failed,
}

impl Spool {
    /// Spools into the file at `path`, which only this process uses; what an earlier run left
    /// there is checked before it counts.
    pub fn open(path: &Path) -> io::Result<Arc<Self>> {
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let existing = file.metadata()?.len();
        Ok(Arc::new(Self { file, existing, state: Mutex::default(), changed: Condvar::new() }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Nothing more comes.
    pub fn fail(&self) {
        self.change(|state| {
            state.end.get_or_insert(End::Failed);
        });
    }

    /// Blocks until there are more than `from` checked bytes or nothing more comes; returns how
    /// many there are.
    fn wait(&self, from: u64) -> io::Result<u64> {
        let mut state = self.lock();
        loop {
            match (state.prefix, &state.end) {
                (prefix, _) if prefix > from => return Ok(prefix),
                (_, Some(End::Complete(size))) => return Ok(*size),
                (_, Some(End::Failed)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                _ => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Reads from the front, waiting for bytes that are not there yet.
    pub fn reader(self: &Arc<Self>) -> SpoolReader {
        SpoolReader { spool: Arc::clone(self), at: 0 }
    }
}

/// Ends the wait of a spool's readers, should whoever fills it be dropped before the end.
pub struct FailOnDrop(pub Arc<Spool>);

impl Drop for FailOnDrop {
    fn drop(&mut self) {
        self.0.fail();
    }
}

/// Reads a [`Spool`] in order.
pub struct SpoolReader {
    spool: Arc<Spool>,
    at: u64,
}

impl Read for SpoolReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let there = self.spool.wait(self.at)?;
        let len = usize::try_from(there - self.at).unwrap_or(usize::MAX).min(buf.len());
        let read = self.spool.file.read_at(&mut buf[..len], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Target for Spool {
    fn begin(&self, _size: Option<u64>, _about: &About) -> io::Result<()> {
        Ok(())
    }

    fn existing(&self) -> Vec<Range<u64>> {
        std::iter::once(0..self.existing).filter(|left| !left.is_empty()).collect()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn write_zeros(&self, range: Range<u64>) -> io::Result<()> {
        // The file may hold other bytes of an earlier run here.
        let zeros = vec![0; 64 << 10];
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(zeros.len() as u64);
            self.file.write_all_at(&zeros[..len as usize], at)?;
            at += len;
        }
        Ok(())
    }

    fn prefix(&self, end: u64) {
        self.change(|state| state.prefix = end);
    }

    fn complete(&self, _oid: &Oid, size: u64, _values: Vec<Value>) -> io::Result<()> {
        self.file.set_len(size)?;
        self.change(|state| {
            state.prefix = size;
            state.end = Some(End::Complete(size));
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_waits_for_checked_bytes_and_sees_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(&dir.path().join("s")).unwrap();
        let mut reader = spool.reader();
        let reading = std::thread::spawn(move || {
            let mut all = Vec::new();
            reader.read_to_end(&mut all).map(|_| all)
        });
        spool.write(0, b"hello ").unwrap();
        spool.prefix(6);
        spool.write(6, b"world").unwrap();
        spool.complete(&Oid::of(b""), 11, Vec::new()).unwrap();
        assert_eq!(reading.join().unwrap().unwrap(), b"hello world");
    }

    #[test]
    fn a_reader_of_a_failed_spool_gets_an_error_and_not_an_end() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(&dir.path().join("s")).unwrap();
        spool.write(0, b"hello").unwrap();
        spool.prefix(5);
        spool.fail();
        let mut all = Vec::new();
        assert!(spool.reader().read_to_end(&mut all).is_err());
        assert_eq!(all, b"hello");
    }
}
