//! A target that remembers.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};

use towpath_content::pieces::Value;

use super::super::*;
use super::doubles::{LIMIT, tree};
use crate::following::BaseReader;
use crate::target::Announcing;

/// A target in memory, which a test can make full or hold back.
#[derive(Default)]
pub struct Memory {
    pub bytes: Mutex<Vec<u8>>,
    left: Vec<Range<u64>>,
    /// Older version that may be of use: it lies here, and not in the target.
    older: Option<Vec<u8>>,
    /// Time that it takes to read a piece there, and how many were read.
    reading: Duration,
    pub reads: AtomicUsize,
    pub begun: AtomicUsize,
    pub completed: Mutex<Vec<(Oid, u64, Vec<Value>)>>,
    pub prefixes: Mutex<Vec<u64>>,
    full: bool,
    part: Option<Range<u64>>,
    is_read_early: bool,
    announcing: Option<Announcing>,
    /// Range that must stay as it is, and its bytes.
    guarded: Mutex<Option<(Range<usize>, Vec<u8>)>>,
    held: Mutex<bool>,
    released: Condvar,
    /// Writes that began.
    pub writes: AtomicUsize,
}

impl Memory {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Something lies there already.
    pub fn with_left_overs(bytes: Vec<u8>, left: Vec<Range<u64>>) -> Arc<Self> {
        Arc::new(Self { bytes: Mutex::new(bytes), left, ..Self::default() })
    }

    /// An older version lies elsewhere.
    pub fn with_older(older: Vec<u8>) -> Arc<Self> {
        let left = std::iter::once(0..older.len() as u64).collect();
        Arc::new(Self { older: Some(older), left, ..Self::default() })
    }

    /// An older version lies on a slow disk.
    pub fn with_older_on_slow_disk(older: Vec<u8>, reading: Duration) -> Arc<Self> {
        let left = std::iter::once(0..older.len() as u64).collect();
        Arc::new(Self { older: Some(older), left, reading, ..Self::default() })
    }

    /// No write succeeds.
    pub fn full() -> Arc<Self> {
        Arc::new(Self { full: true, ..Self::default() })
    }

    /// The same with an older version elsewhere.
    pub fn full_with_older(older: Vec<u8>) -> Arc<Self> {
        let left = std::iter::once(0..older.len() as u64).collect();
        Arc::new(Self { full: true, older: Some(older), left, ..Self::default() })
    }

    /// Only these bytes are wanted.
    pub fn part(part: Range<u64>) -> Arc<Self> {
        Arc::new(Self { part: Some(part), ..Self::default() })
    }

    /// Its bytes are used as they come.
    pub fn read_early() -> Arc<Self> {
        Arc::new(Self { is_read_early: true, ..Self::default() })
    }

    /// Others may read it while it comes.
    pub fn announced(how: Announcing) -> Arc<Self> {
        Arc::new(Self { announcing: Some(how), ..Self::default() })
    }

    /// Writes wait until [`Self::release`].
    pub fn held() -> Arc<Self> {
        Arc::new(Self { held: Mutex::new(true), ..Self::default() })
    }

    pub fn release(&self) {
        *self.held.lock().unwrap() = false;
        self.released.notify_all();
    }

    /// From now on no write may change these bytes.
    pub fn guard(&self, range: Range<usize>) {
        let bytes = self.bytes.lock().unwrap()[range.clone()].to_vec();
        *self.guarded.lock().unwrap() = Some((range, bytes));
    }

    /// The object is here, was begun once and completed once.
    pub fn expect(&self, data: &[u8]) {
        assert_eq!(self.begun.load(Ordering::SeqCst), 1, "begun");
        let completed = self.completed.lock().unwrap();
        let values = tree(data).values().to_vec();
        assert_eq!(*completed, [(Oid::of(data), data.len() as u64, values)]);
        assert!(self.bytes.lock().unwrap()[..] == *data, "other bytes");
        let prefixes = self.prefixes.lock().unwrap();
        assert!(prefixes.is_sorted() && prefixes.last() == Some(&(data.len() as u64)), "{prefixes:?}");
    }

    pub fn expect_incomplete(&self) {
        assert!(self.completed.lock().unwrap().is_empty());
    }
}

impl BaseReader for Vec<u8> {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let there = self.get(offset as usize..offset as usize + buf.len());
        buf.copy_from_slice(there.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl Target for Memory {
    fn announces(&self) -> Option<Announcing> {
        self.announcing.clone()
    }

    fn begin(&self, _size: Option<u64>, _about: &About) -> io::Result<()> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn existing(&self) -> Vec<Range<u64>> {
        self.left.clone()
    }

    fn part(&self) -> Option<Range<u64>> {
        self.part.clone()
    }

    fn is_read_early(&self) -> bool {
        self.is_read_early
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let bytes = self.bytes.lock().unwrap();
        let here =
            bytes.get(offset as usize..offset as usize + buf.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(here);
        Ok(())
    }

    fn read_existing(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let Some(older) = &self.older else { return self.read(offset, buf) };
        self.reads.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(self.reading);
        buf.copy_from_slice(&older[offset as usize..offset as usize + buf.len()]);
        Ok(())
    }

    fn base(&self) -> Option<&dyn BaseReader> {
        self.older.as_ref().map(|older| older as _)
    }

    fn base_is_cold(&self) -> bool {
        self.older.is_none() || !self.reading.is_zero()
    }

    fn keep(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if self.older.is_some() { self.write(offset, bytes) } else { Ok(()) }
    }

    fn write(&self, offset: u64, new: &[u8]) -> io::Result<()> {
        assert!(self.begun.load(Ordering::SeqCst) > 0, "written before it was begun");
        if self.full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.writes.fetch_add(1, Ordering::SeqCst);
        // Not for ever: a test that failed meanwhile has to end.
        let held = self.held.lock().unwrap();
        drop(self.released.wait_timeout_while(held, LIMIT, |held| *held).unwrap());
        let (mut bytes, end) = (self.bytes.lock().unwrap(), offset as usize + new.len());
        if bytes.len() < end {
            bytes.resize(end, 0xaa);
        }
        bytes[offset as usize..end].copy_from_slice(new);
        if let Some((range, kept)) = &*self.guarded.lock().unwrap() {
            assert!(bytes[range.clone()] == kept[..], "overwrote what was checked");
        }
        Ok(())
    }

    fn write_zeros(&self, range: Range<u64>) -> io::Result<()> {
        self.write(range.start, &vec![0; (range.end - range.start) as usize])
    }

    fn prefix(&self, end: u64) {
        self.prefixes.lock().unwrap().push(end);
    }

    fn complete(&self, oid: &Oid, size: u64, values: Vec<Value>) -> io::Result<()> {
        self.completed.lock().unwrap().push((*oid, size, values));
        Ok(())
    }
}
