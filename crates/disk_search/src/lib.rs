//! Chunks from files on this machine's own disk (dsync's disk operations, `papers/dsync.txt` §5 and §6).
//!
//! Four operations, each a function that blocks on the disk, looks now and then whether it was
//! cancelled, and tells what it cost. Which of them is worth its cost is decided elsewhere: here is only
//! what they do.
//!
//! | part | story |
//! |---|---|
//! | [`scope`] | where a search begins, what it may enter, and in which order it goes outward |
//! | [`stat()`] | STAT: the files and directories in a directory |
//! | [`hash()`] | HASH: a file cut into chunks; those that are wanted handed out, all of them indexed |
//! | [`cache_check`], [`cache_read`] | CACHE-CHECK, CACHE-READ: chunks that the index knows a place of |
//! | [`Executor`] | threads that work such operations off a bounded queue |
//! | `gentle` | the thread for what is probably in vain: it reads when nobody else does |
//! | `open` | files and directories opened by paths without symbolic links |
//!
//! Always: no symbolic link is followed and nothing but regular files is opened for reading; a
//! directory on another file system than its parent is not entered; all chunks handed out were compared
//! with their hash; the index may be stale, which costs a `stat` and forgets the file.

mod cached;
mod executor;
mod gentle;
mod hash;
mod kernel;
mod open;
pub mod scope;
mod stat;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use thiserror::Error;
use towpath_content::chunking::ChunkHash;
use towpath_store::StoreError;

pub use cached::{IndexedChunks, ReadBack, cache_check, cache_read};
pub use executor::{
    DiskEvent, Executor, FinishedOperation, InFlight, Manner, Operation, OperationId, QueueLimits,
    SearchRules,
};
pub use hash::{HashOutcome, Occasion, hash, whole_as_chunk};
pub use open::{read, size};
pub use scope::Scope;
pub use stat::{Candidate, DirectoryId, Listing, OpenedDirectory, stat};

/// Interval at which someone who waits looks whether it was cancelled.
const WAIT_LIMIT: Duration = Duration::from_millis(50);

/// Says that an operation is of no more use, or that it has to rest; it sees that at its next look,
/// between two blocks.
#[derive(Debug, Clone, Default)]
pub struct Cancel {
    is_cancelled: Arc<AtomicBool>,
    rest: Arc<ChunkRest>,
}

impl Cancel {
    /// Ends the operations that look at this.
    pub fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
    }

    /// True if that was said.
    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    /// Waits while operations rest.
    fn check(&self) -> Result<(), SearchError> {
        self.rest.wait(self);
        if self.is_cancelled() { Err(SearchError::Cancelled) } else { Ok(()) }
    }
}

/// A time in which the disk or the processor is needed otherwise, for all operations of an executor.
#[derive(Debug, Default)]
struct ChunkRest {
    is_on: Mutex<bool>,
    changed: Condvar,
}

impl ChunkRest {
    fn set(&self, is_on: bool) {
        *self.is_on.lock().unwrap_or_else(PoisonError::into_inner) = is_on;
        self.changed.notify_all();
    }

    fn wait(&self, cancel: &Cancel) {
        let mut is_on = self.is_on.lock().unwrap_or_else(PoisonError::into_inner);
        while *is_on && !cancel.is_cancelled() {
            let waited = self.changed.wait_timeout(is_on, WAIT_LIMIT);
            is_on = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Cost of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// From its start to its end, without waiting for whoever takes what it finds.
    pub time: Duration,
    /// Bytes of files read and hashed.
    pub bytes: u64,
    /// Chunks hashed: dsync's unit, the CHUNK_HASH.
    pub chunks: u64,
    /// Files and directories looked at.
    pub stats: u64,
}

/// A chunk that was wanted, with bytes that hash to its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundChunk {
    /// Its name: a chunk's hash, or that of a whole object of one piece.
    pub hash: ChunkHash,
    /// Its bytes.
    pub bytes: Bytes,
    /// Its position.
    pub position: FilePosition,
}

/// A place in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePosition {
    /// The file.
    pub path: Arc<Path>,
    /// Its first byte.
    pub offset: u64,
    /// Bytes of the file.
    pub size: u64,
}

/// Tells the length of a chunk that is wanted still. Asked for every chunk of every file that is hashed,
/// by one thread at a time: it must be quick.
pub type SearchedChunk = dyn Fn(&ChunkHash) -> Option<u32> + Send + Sync;

/// Takes what is found, some chunks at a time, and may make the operation wait; false ends it.
pub type Give<'a> = dyn FnMut(Vec<FoundChunk>) -> bool + 'a;

/// Reason why an operation found nothing, or not all.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SearchError {
    /// It was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// There is nothing at the path any more.
    #[error("{} is gone", .0.display())]
    Gone(PathBuf),
    /// It, or a directory on the way, is a symbolic link, special, or of another kind than it was.
    #[error("{} is not what it was, or a special file", .0.display())]
    Unfit(PathBuf),
    /// It lies on another file system than the search.
    #[error("{} is on another file system", .0.display())]
    OtherFileSystem(PathBuf),
    /// It was changed while it was read. What was found before is good all the same.
    #[error("{} was changed while it was read", .0.display())]
    Changed(PathBuf),
    /// It cannot be read.
    #[error("{}: {source}", .path.display())]
    Unreadable {
        /// The path.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The index failed.
    #[error(transparent)]
    Index(StoreError),
}

impl SearchError {
    /// Meaning of an error of the system for a path that was seen before.
    fn of(path: &Path, error: impl Into<io::Error>) -> Self {
        use rustix::io::Errno;
        let source = error.into();
        match source.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOENT) => Self::Gone(path.into()),
            Some(Errno::LOOP | Errno::NOTDIR | Errno::NXIO) => Self::Unfit(path.into()),
            _ => Self::Unreadable { path: path.into(), source },
        }
    }
}

/// Measures an operation; time spent in handing things on does not count.
struct DiskMeter {
    started: Instant,
    waited: Duration,
    cost: Cost,
}

impl DiskMeter {
    fn start() -> Self {
        Self { started: Instant::now(), waited: Duration::ZERO, cost: Cost::default() }
    }

    /// Runs what is not part of the operation.
    fn aside<T>(&mut self, other: impl FnOnce() -> T) -> T {
        let since = Instant::now();
        let result = other();
        self.waited += since.elapsed();
        result
    }

    fn stop(self) -> Cost {
        Cost { time: self.started.elapsed().saturating_sub(self.waited), ..self.cost }
    }
}
