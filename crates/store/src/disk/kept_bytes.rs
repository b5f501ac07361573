//! The byte store that a disk store keeps its own bytes in, if it has one, and how they are read.
//!
//! Index, leases, stamps and everything else stay on this disk. An object in the byte store has an empty
//! file where else its bytes would be, a *stand-in*. Readers and puts lock that together, evictors alone, as
//! they do files with bytes. So nobody deletes what somebody reads or puts.
//!
//! Who reads on from where somebody ended gets whole windows, and the next ones are fetched meanwhile. They
//! are kept in memory up to a limit. Who reads here and there gets just that.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rustix::fs::FlockOperation;
use towpath_byte_store::{
    ByteName, ByteStore, ByteStoreError, Listed, MAX_PAGE, MAX_RANGE, PlaceOwner, PutResult,
};
use towpath_content::Oid;
use towpath_content::lock::lock;

use super::folders::Temporary;
use super::index::private_file;
use crate::error::StoreError;
use crate::lru::Lru;
use crate::productions::random;

/// Bytes that are fetched at once for who reads on.
const WINDOW: u64 = 4 << 20;
/// Windows that are fetched ahead of a reader.
const AHEAD: u64 = 2;
/// Windows that are fetched ahead at once.
const MOST_FETCHING: usize = 8;
/// File with the number that a byte store's place knows this store by.
const OWNER: &str = "byte-store";

/// A byte store, and what this machine spends on it.
#[derive(Debug, Clone)]
pub struct ByteKeeping {
    /// The byte store.
    pub store: Arc<dyn ByteStore>,
    /// Bytes of memory for what is read ahead. At least 8 MiB are used.
    pub read_ahead: u64,
    /// Bytes of an object that is fetched whole onto this disk for a moment, at most, to make its recipe. Larger
    /// ones have recipes only if they were made before or given.
    pub spool: u64,
}

type WindowSlot = Arc<Mutex<Option<Vec<u8>>>>;

/// The byte store of a disk store.
#[derive(Debug)]
pub(super) struct KeptBytes {
    store: Arc<dyn ByteStore>,
    owner: PlaceOwner,
    windows: Mutex<Lru<(Oid, u64), WindowSlot>>,
    fetching: AtomicUsize,
    pub(super) spool: u64,
}

impl KeptBytes {
    /// Claims the place. If the index `has_kept` objects in one, a place that this store does not know is refused.
    pub(super) fn open(
        keeping: ByteKeeping,
        state_dir: &Path,
        has_kept: bool,
    ) -> Result<Arc<Self>, StoreError> {
        let ByteKeeping { store, read_ahead, spool } = keeping;
        let owner = owner(&state_dir.join(OWNER))?;
        store.claim(&owner, !has_kept).map_err(StoreError::Bytes)?;
        let windows = (read_ahead / WINDOW).max(AHEAD) as usize;
        let windows = Mutex::new(Lru::new(windows));
        Ok(Arc::new(Self { store, owner, windows, fetching: AtomicUsize::new(0), spool }))
    }

    /// The bytes of an object, in words.
    pub(super) fn place_of(&self, oid: &Oid) -> String {
        format!("{}/{}", self.store.place(), name(oid))
    }

    /// Keeps the first `size` bytes of a file.
    pub(super) fn put(&self, oid: &Oid, file: &File, size: u64) -> Result<PutResult, StoreError> {
        let mut bytes = FromBegin { file, at: 0, size };
        self.store.put(&name(oid), &mut bytes, size).map_err(StoreError::Bytes)
    }

    /// Appends a range of an object to `buf`: all of it or nothing.
    pub(super) fn append(
        self: &Arc<Self>,
        oid: &Oid,
        size: u64,
        range: Range<u64>,
        is_reading_on: bool,
        buf: &mut Vec<u8>,
    ) -> Result<(), ByteStoreError> {
        let mut at = range.start;
        while at < range.end {
            let number = at / WINDOW;
            let Some(slot) = self.slot(oid, number, is_reading_on) else {
                let end = range.end.min(at + MAX_RANGE);
                self.store.get_range(&name(oid), at..end, buf)?;
                at = end;
                continue;
            };
            let (begin, end) = (number * WINDOW, range.end.min((number + 1) * WINDOW));
            let mut window = lock(&slot);
            let bytes = self.fill(oid, size, number, &mut window)?;
            buf.extend_from_slice(&bytes[(at - begin) as usize..(end - begin) as usize]);
            at = end;
        }
        if is_reading_on {
            self.read_ahead(oid, size, range.end / WINDOW);
        }
        Ok(())
    }

    /// The place of a window in memory; one is made for who reads on.
    fn slot(&self, oid: &Oid, number: u64, is_reading_on: bool) -> Option<WindowSlot> {
        let mut windows = lock(&self.windows);
        let found = windows.get(&(*oid, number)).cloned();
        if found.is_none() && is_reading_on {
            let slot = WindowSlot::default();
            windows.insert((*oid, number), Arc::clone(&slot), 1);
            return Some(slot);
        }
        found
    }

    /// The bytes of a window, fetched if they are not there.
    fn fill<'a>(
        &self,
        oid: &Oid,
        size: u64,
        number: u64,
        window: &'a mut Option<Vec<u8>>,
    ) -> Result<&'a [u8], ByteStoreError> {
        let bytes = match window.take() {
            Some(bytes) => bytes,
            None => {
                let mut bytes = Vec::new();
                let range = number * WINDOW..size.min((number + 1) * WINDOW);
                self.store.get_range(&name(oid), range, &mut bytes)?;
                bytes
            }
        };
        Ok(window.insert(bytes))
    }

    /// Fetches the windows that follow, each in a thread, as long as there are not many of those.
    fn read_ahead(self: &Arc<Self>, oid: &Oid, size: u64, current: u64) {
        for number in current + 1..=current + AHEAD {
            if number * WINDOW >= size || self.fetching.load(Ordering::Relaxed) >= MOST_FETCHING {
                return;
            }
            let mut windows = lock(&self.windows);
            if windows.get(&(*oid, number)).is_some() {
                continue;
            }
            let slot = WindowSlot::default();
            windows.insert((*oid, number), Arc::clone(&slot), 1);
            drop(windows);
            self.fetching.fetch_add(1, Ordering::Relaxed);
            let (bytes, oid) = (Arc::clone(self), *oid);
            let fetch = move || {
                // If that fails, the reader who comes there meets the error.
                let _ = bytes.fill(&oid, size, number, &mut lock(&slot));
                bytes.fetching.fetch_sub(1, Ordering::Relaxed);
            };
            if std::thread::Builder::new().name("tow-read-ahead".into()).spawn(fetch).is_err() {
                self.fetching.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Fetches an object whole.
    pub(super) fn fetch(&self, oid: &Oid, size: u64, into: &Temporary) -> Result<(), StoreError> {
        let mut buf = Vec::new();
        for at in (0..size).step_by(MAX_RANGE as usize) {
            buf.clear();
            let range = at..size.min(at + MAX_RANGE);
            self.store.get_range(&name(oid), range, &mut buf).map_err(StoreError::Bytes)?;
            into.write(at, &buf)?;
        }
        Ok(())
    }

    /// True if the place is there and does not have the object.
    pub(super) fn is_gone(&self, oid: &Oid, size: u64) -> Result<bool, StoreError> {
        match self.store.size(&name(oid)) {
            Ok(found) if found == size => return Ok(false),
            Ok(_) | Err(ByteStoreError::NotHere) => {}
            Err(error) => return Err(StoreError::Bytes(error)),
        }
        self.store.claim(&self.owner, false).map(|()| true).map_err(StoreError::Bytes)
    }

    /// Deletes an object.
    pub(super) fn delete(&self, oid: &Oid) -> Result<(), StoreError> {
        self.store.delete(&name(oid)).map_err(StoreError::Bytes)
    }

    /// The objects that follow `after`.
    pub(super) fn page(&self, after: Option<&ByteName>) -> Result<Vec<Listed>, StoreError> {
        self.store.list(after, MAX_PAGE).map_err(StoreError::Bytes)
    }
}

const fn name(oid: &Oid) -> ByteName {
    ByteName(*oid.digest())
}

/// The number in the file at `path`; a new one if there is none.
fn owner(path: &Path) -> Result<PlaceOwner, StoreError> {
    let failed = |error| StoreError::io("opening", path, error);
    let file = private_file(path).map_err(failed)?;
    // Two processes that start at once agree on one.
    rustix::fs::flock(&file, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
    let mut text = String::new();
    (&file).take(100).read_to_string(&mut text).map_err(failed)?;
    if text.is_empty() {
        let [high, low] = [random(), random()].map(u64::to_be_bytes);
        let owner = PlaceOwner([high, low].concat().try_into().unwrap_or_default());
        file.write_all_at(format!("{owner}\n").as_bytes(), 0).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        return Ok(owner);
    }
    let damaged = || failed(io::Error::new(io::ErrorKind::InvalidData, "it is damaged"));
    PlaceOwner::parse(text.trim_end()).ok_or_else(damaged)
}

/// A file read from its begin, whatever others do with its position.
struct FromBegin<'a> {
    file: &'a File,
    at: u64,
    size: u64,
}

impl Read for FromBegin<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let most = buf.len().min(usize::try_from(self.size - self.at).unwrap_or(usize::MAX));
        let read = self.file.read_at(&mut buf[..most], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
