//! Threads that work disk operations off a bounded queue and send what they find over a channel.
//!
//! Work in flight is bounded in three ways: operations outstanding, events in the channel, and bytes
//! of chunks that were handed out and not yet taken in ([`InFlight`]); an operation waits where there is
//! no room. Dropping the executor cancels all operations, and its threads end.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use tokio::sync::mpsc;
use towpath_content::chunking::{ChunkHash, Parameters};
use towpath_content::lock::lock;
use towpath_store::DiskStore;
use towpath_store::disk::chunk_index::Location;

use super::cached::IndexedChunks;
use super::gentle::GentleThread;
use super::{
    Cancel, Candidate, ChunkRest, Cost, DirectoryId, FoundChunk, HashOutcome, Listing, Occasion, ReadBack,
    SearchError, SearchedChunk, WAIT_LIMIT, cache_check, cache_read, hash, stat,
};

/// Events in the channel at most; each but a chunk's is some hundred KiB at the most.
const EVENTS: usize = 32;

/// Limits on what goes on at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// Threads: operations under way. Hashing takes all cores besides. Default: 1, as one disk serves one
    /// reader best.
    pub threads: usize,
    /// Operations that wait or are under way. Default: 64.
    pub operations: usize,
    /// Bytes handed out and not yet taken in. One chunk is handed out in any case. Default: 4 MiB.
    pub bytes: u64,
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self { threads: 1, operations: 64, bytes: 4 << 20 }
    }
}

/// Manner in which an operation works beside others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// As soon and as fast as it can.
    AtOnce,
    /// Reading only what nobody else wants to read now, on one core: it is probably in vain.
    Gently,
}

/// Callbacks of operations.
#[derive(Clone)]
pub struct SearchRules {
    /// Chunks that are wanted now.
    pub wanted: Arc<SearchedChunk>,
    /// True if chunks may be drawn from a file that the index names: [`super::Scope::covers`].
    pub may_use: Arc<dyn Fn(&Path) -> bool + Send + Sync>,
    /// Names that no search looks at: temporaries.
    pub leave_out: Arc<dyn Fn(&OsStr) -> bool + Send + Sync>,
}

/// Something to do on the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// STAT: [`stat()`].
    Stat(DirectoryId),
    /// HASH: [`hash()`].
    Hash {
        /// The file.
        candidate: Candidate,
        /// Its chunking parameters: those of the recipe whose chunks are looked for.
        parameters: Parameters,
        /// Known facts about it.
        occasion: Occasion,
    },
    /// CACHE-CHECK: [`cache_check`].
    CacheCheck(Vec<ChunkHash>),
    /// CACHE-READ: [`cache_read`].
    CacheRead(Vec<(ChunkHash, Location)>),
}

/// Names an operation of one executor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperationId(u64);

/// Results of operations, in the order in which each finds it.
#[derive(Debug)]
pub enum DiskEvent {
    /// A STAT found these.
    Listed {
        /// The operation.
        id: OperationId,
        /// Its finds.
        listing: Listing,
    },
    /// A HASH or CACHE-READ found chunks.
    Found {
        /// The operation.
        id: OperationId,
        /// The chunks.
        chunks: Vec<FoundChunk>,
        /// Counts their bytes until it is dropped.
        held: InFlight,
    },
    /// The last of each operation.
    Ended {
        /// The operation.
        id: OperationId,
        /// Its result.
        result: Result<FinishedOperation, SearchError>,
        /// Its cost.
        cost: Cost,
    },
}

/// Result of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FinishedOperation {
    /// The directory was listed wholly.
    Stat,
    /// The file was read, or needs not be.
    Hash(HashOutcome),
    /// Location of each chunk, in the order requested.
    CacheCheck(Vec<Option<Location>>),
    /// All was read; what was not there is named.
    CacheRead(ReadBack),
}

/// Threads for disk operations.
pub struct Executor {
    shared: Arc<SharedQueue>,
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").field("outstanding", &self.outstanding()).finish_non_exhaustive()
    }
}

struct SharedQueue {
    store: Arc<DiskStore>,
    rules: SearchRules,
    limits: QueueLimits,
    queue: Mutex<OperationQueue>,
    /// Something was queued, or the end has come.
    changed: Condvar,
    budget: Arc<HandedOutBytes>,
    rest: Arc<ChunkRest>,
    gentle: GentleThread,
}

#[derive(Default)]
struct OperationQueue {
    waiting: VecDeque<(OperationId, Operation, Manner)>,
    /// All that did not end, waiting or under way.
    outstanding: Vec<(OperationId, Cancel)>,
    last: u64,
    is_closed: bool,
}

impl Executor {
    /// Starts the threads. What they find comes over the channel; if that is dropped, all operations end.
    pub fn start(
        store: Arc<DiskStore>,
        rules: SearchRules,
        limits: QueueLimits,
    ) -> io::Result<(Self, mpsc::Receiver<DiskEvent>)> {
        let (events, inbox) = mpsc::channel(EVENTS);
        let (queue, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(SharedQueue {
            store,
            rules,
            limits,
            queue,
            changed,
            budget: Arc::default(),
            rest: Arc::default(),
            gentle: GentleThread::default(),
        });
        // Made first, so that threads already started end if another can't be.
        let executor = Self { shared: Arc::clone(&shared) };
        for _ in 0..limits.threads.max(1) {
            let (shared, events) = (Arc::clone(&shared), events.clone());
            std::thread::Builder::new().name("disk-search".into()).spawn(move || shared.work(&events))?;
        }
        Ok((executor, inbox))
    }

    /// Queues an operation; if there are too many it comes back.
    pub fn submit(&self, operation: Operation) -> Result<OperationId, Operation> {
        self.submit_as(Manner::AtOnce, operation)
    }

    /// The same, to be worked off in this manner.
    pub fn submit_as(&self, manner: Manner, operation: Operation) -> Result<OperationId, Operation> {
        let mut queue = lock(&self.shared.queue);
        if queue.outstanding.len() >= self.shared.limits.operations {
            return Err(operation);
        }
        queue.last += 1;
        let id = OperationId(queue.last);
        let cancel = Cancel { rest: Arc::clone(&self.shared.rest), ..Cancel::default() };
        queue.outstanding.push((id, cancel));
        queue.waiting.push_back((id, operation, manner));
        self.shared.changed.notify_one();
        Ok(id)
    }

    /// Ends an operation at its next look; its end is reported as that of any other. Nothing happens if it has
    /// ended.
    pub fn cancel(&self, id: OperationId) {
        let queue = lock(&self.shared.queue);
        queue.outstanding.iter().filter(|(found, _)| *found == id).for_each(|(_, cancel)| cancel.cancel());
    }

    /// Lets all operations rest, or go on.
    pub fn rest(&self, is_on: bool) {
        self.shared.rest.set(is_on);
    }

    /// Operations that wait or are under way.
    pub fn outstanding(&self) -> usize {
        lock(&self.shared.queue).outstanding.len()
    }

    /// Bytes handed out and not yet taken in.
    pub fn bytes_in_flight(&self) -> u64 {
        *lock(&self.shared.budget.bytes)
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        let mut queue = lock(&self.shared.queue);
        queue.is_closed = true;
        queue.waiting.clear();
        queue.outstanding.iter().for_each(|(_, cancel)| cancel.cancel());
        self.shared.changed.notify_all();
    }
}

impl SharedQueue {
    fn work(&self, events: &mpsc::Sender<DiskEvent>) {
        while let Some((id, (operation, manner), cancel)) = self.next() {
            let run = || self.run(id, operation, &cancel, events);
            let (result, cost) = if manner == Manner::Gently { self.gentle.run(run) } else { run() };
            lock(&self.queue).outstanding.retain(|(found, _)| *found != id);
            if events.blocking_send(DiskEvent::Ended { id, result, cost }).is_err() {
                return;
            }
        }
    }

    fn next(&self) -> Option<(OperationId, (Operation, Manner), Cancel)> {
        let mut queue = lock(&self.queue);
        loop {
            if queue.is_closed {
                return None;
            }
            if let Some((id, operation, manner)) = queue.waiting.pop_front() {
                let cancel = queue.outstanding.iter().find(|(found, _)| *found == id);
                return cancel.map(|(_, cancel)| (id, (operation, manner), cancel.clone()));
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn run(
        &self,
        id: OperationId,
        operation: Operation,
        cancel: &Cancel,
        events: &mpsc::Sender<DiskEvent>,
    ) -> (Result<FinishedOperation, SearchError>, Cost) {
        let SearchRules { wanted, may_use, leave_out } = &self.rules;
        let mut give = |mut found: Vec<FoundChunk>| {
            while !found.is_empty() {
                let rest = found.split_off(fitting(&found, self.limits.bytes));
                let chunks = std::mem::replace(&mut found, rest);
                let bytes = chunks.iter().map(|chunk| chunk.bytes.len() as u64).sum();
                let Some(held) = self.budget.take(bytes, self.limits.bytes, cancel, events) else {
                    return false;
                };
                if events.blocking_send(DiskEvent::Found { id, chunks, held }).is_err() {
                    return false;
                }
            }
            true
        };
        match operation {
            Operation::Stat(directory) => {
                let mut send = |listing| events.blocking_send(DiskEvent::Listed { id, listing }).is_ok();
                let (result, cost) = stat(&directory, &**leave_out, cancel, &mut send);
                (result.map(|()| FinishedOperation::Stat), cost)
            }
            Operation::Hash { candidate, parameters, occasion } => {
                let (store, wanted) = (&self.store, &**wanted);
                let (result, cost) =
                    hash(store, &candidate, &parameters, occasion, wanted, cancel, &mut give);
                (result.map(FinishedOperation::Hash), cost)
            }
            Operation::CacheCheck(hashes) => {
                let (result, cost) = cache_check(&self.store, &hashes, &**may_use, cancel);
                (result.map(FinishedOperation::CacheCheck), cost)
            }
            Operation::CacheRead(chunks) => {
                let chunks: Vec<IndexedChunks> = chunks;
                let (result, cost) = cache_read(&self.store, &chunks, &**wanted, cancel, &mut give);
                (result.map(FinishedOperation::CacheRead), cost)
            }
        }
    }
}

/// Number of the first chunks that have no more than `limit` bytes together, at least one.
fn fitting(chunks: &[FoundChunk], limit: u64) -> usize {
    let ends = chunks.iter().scan(0, |end, chunk| {
        *end += chunk.bytes.len() as u64;
        Some(*end)
    });
    ends.take_while(|end| *end <= limit).count().max(1)
}

/// Bytes handed out and not yet taken in.
#[derive(Debug, Default)]
struct HandedOutBytes {
    bytes: Mutex<u64>,
    released: Condvar,
}

impl HandedOutBytes {
    /// Waits for room; none if the operation is to end instead.
    fn take(
        self: &Arc<Self>,
        bytes: u64,
        limit: u64,
        cancel: &Cancel,
        events: &mpsc::Sender<DiskEvent>,
    ) -> Option<InFlight> {
        let mut taken = lock(&self.bytes);
        while *taken > 0 && *taken + bytes > limit {
            if cancel.is_cancelled() || events.is_closed() {
                return None;
            }
            let waited = self.released.wait_timeout(taken, WAIT_LIMIT);
            taken = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *taken += bytes;
        Some(InFlight { budget: Arc::clone(self), bytes })
    }
}

/// Counts a chunk's bytes as on their way until it is dropped.
#[derive(Debug)]
pub struct InFlight {
    budget: Arc<HandedOutBytes>,
    bytes: u64,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        *lock(&self.budget.bytes) -= self.bytes;
        self.budget.released.notify_all();
    }
}
