//! Stores that fail on purpose, files whose stamps count, and bytes to fill them, to test what stands above a store.
//!
//! ```
//! use towpath_store::doubles::{Call, FailingStore, Fault};
//! use towpath_store::{Leases, MemoryStore};
//!
//! let store = FailingStore::new(MemoryStore::new());
//! store.on(Call::Leases, 2, Fault::Fail);
//! assert!(store.leases().is_ok() && store.leases().is_err() && store.leases().is_ok());
//! ```

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use towpath_content::Oid;

use crate::error::StoreError;
use crate::leases::{Chunks, Lease, Leases};
use crate::seam::{About, Availability, Descriptors, Listener, Partial, RecipeNodes, Store, StoreChange};
use crate::stamp::{COARSE_TICK, Stamp};
use towpath_content::lock::lock;

/// Bytes that look random and do not repeat; the same for the same seed.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

/// Waits until the stamp of the file at `path` counts, and that of all written before it: one that is as recent as
/// the clock's tick proves nothing. Change times are the kernel's, so nothing but waiting makes them older.
pub fn settle(path: &Path) -> io::Result<()> {
    let (stamp, start) = (Stamp::of_path(path)?, Instant::now());
    while !stamp.is_settled(SystemTime::now()) {
        if start.elapsed() > 2 * COARSE_TICK {
            return Err(io::Error::other(format!("{} is from the future", path.display())));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// A method of [`Store`], [`Leases`] or [`Chunks`] that can be made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Call {
    /// [`Store::put_init`]
    PutInit,
    /// [`Store::put_data`]
    PutData,
    /// [`Store::put_boundary`]
    PutBoundary,
    /// [`Store::put_commit`]
    PutCommit,
    /// [`Store::have`]
    Have,
    /// [`Store::get_descriptors`]
    GetDescriptors,
    /// [`Store::read_piece`]
    ReadPiece,
    /// [`Store::read_span`]
    ReadSpan,
    /// [`Store::recipe`]
    Recipe,
    /// [`Chunks::put_chunk`]
    PutChunk,
    /// [`Store::get_chunk`]
    GetChunk,
    /// [`Chunks::release_chunk`]
    ReleaseChunk,
    /// [`Leases::lease`]
    Lease,
    /// [`Leases::leases`]
    Leases,
    /// [`Leases::done`]
    Done,
    /// [`Leases::end_session`]
    EndSession,
}

/// Fault of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// It does nothing and returns [`StoreError::Io`].
    Fail,
    /// It takes effect and returns [`StoreError::Io`] all the same: an answer that was lost.
    FailAfter,
    /// It does not begin until [`FailingStore::resume`].
    Stall,
}

#[derive(Debug)]
struct FaultRule {
    call: Call,
    /// Calls until it strikes; 1 is the next.
    countdown: usize,
    fault: Fault,
}

#[derive(Debug, Default)]
struct Script {
    rules: Vec<FaultRule>,
    /// Times that stalled calls were told to go on.
    resumed: usize,
    stalled: usize,
}

/// A store that does what the one inside does, but for the calls it was told to spoil.
#[derive(Debug)]
pub struct FailingStore<S> {
    inner: S,
    script: Mutex<Script>,
    moved: Condvar,
}

impl<S: Store> FailingStore<S> {
    /// Spoils nothing yet.
    pub fn new(inner: S) -> Self {
        Self { inner, script: Mutex::default(), moved: Condvar::new() }
    }

    /// The store inside.
    pub const fn inner(&self) -> &S {
        &self.inner
    }

    /// Spoils the `nth` of the coming calls of one method, counted from 1. Any number of rules may
    /// stand at once; each strikes once.
    pub fn on(&self, call: Call, nth: usize, fault: Fault) {
        lock(&self.script).rules.push(FaultRule { call, countdown: nth, fault });
    }

    /// Lets all stalled calls go on.
    pub fn resume(&self) {
        lock(&self.script).resumed += 1;
        self.moved.notify_all();
    }

    /// Waits until `count` calls are stalled at once; false if that takes longer than `timeout`.
    pub fn wait_stalled(&self, count: usize, timeout: Duration) -> bool {
        let wait =
            self.moved.wait_timeout_while(lock(&self.script), timeout, |script| script.stalled < count);
        wait.unwrap_or_else(PoisonError::into_inner).0.stalled >= count
    }

    fn through<T>(&self, call: Call, run: impl FnOnce(&S) -> Result<T, StoreError>) -> Result<T, StoreError> {
        match self.next_fault(call) {
            None => run(&self.inner),
            Some(Fault::Fail) => Err(failure(call)),
            Some(Fault::FailAfter) => run(&self.inner).and(Err(failure(call))),
            Some(Fault::Stall) => {
                self.stall();
                run(&self.inner)
            }
        }
    }

    fn next_fault(&self, call: Call) -> Option<Fault> {
        let mut script = lock(&self.script);
        let rules = &mut script.rules;
        rules.iter_mut().filter(|rule| rule.call == call).for_each(|rule| rule.countdown -= 1);
        let struck = rules.iter().position(|rule| rule.countdown == 0)?;
        Some(rules.remove(struck).fault)
    }

    fn stall(&self) {
        let mut script = lock(&self.script);
        let resumed = script.resumed;
        script.stalled += 1;
        self.moved.notify_all();
        let wait = self.moved.wait_while(script, |script| script.resumed == resumed);
        wait.unwrap_or_else(PoisonError::into_inner).stalled -= 1;
    }
}

fn failure(call: Call) -> StoreError {
    StoreError::Io { what: format!("{call:?}"), source: io::Error::other("made to fail") }
}

impl<S: Store> Store for FailingStore<S> {
    fn put_init(&self, live: &Oid, about: &About) -> Result<(), StoreError> {
        self.through(Call::PutInit, |inner| inner.put_init(live, about))
    }

    fn put_data(&self, live: &Oid, data: &[u8]) -> Result<(), StoreError> {
        self.through(Call::PutData, |inner| inner.put_data(live, data))
    }

    fn put_boundary(&self, live: &Oid) -> Result<(), StoreError> {
        self.through(Call::PutBoundary, |inner| inner.put_boundary(live))
    }

    fn put_commit(&self, live: &Oid) -> Result<Oid, StoreError> {
        self.through(Call::PutCommit, |inner| inner.put_commit(live))
    }

    fn put_abort(&self, live: &Oid) {
        self.inner.put_abort(live);
    }

    fn have(&self, oid: &Oid) -> Result<Availability, StoreError> {
        self.through(Call::Have, |inner| inner.have(oid))
    }

    fn version(&self, oid: &Oid) -> u64 {
        self.inner.version(oid)
    }

    fn change(&self, oid: &Oid, seen: u64) -> StoreChange {
        self.inner.change(oid, seen)
    }

    fn get_descriptors(&self, oid: &Oid, run: Range<u64>) -> Result<Descriptors, StoreError> {
        self.through(Call::GetDescriptors, |inner| inner.get_descriptors(oid, run))
    }

    fn read_piece(&self, oid: &Oid, index: u64, buf: &mut Vec<u8>) -> Result<(), StoreError> {
        self.through(Call::ReadPiece, |inner| inner.read_piece(oid, index, buf))
    }

    fn read_span(&self, oid: &Oid, range: Range<u64>, buf: &mut Vec<u8>) -> Result<(), StoreError> {
        self.through(Call::ReadSpan, |inner| inner.read_span(oid, range, buf))
    }

    fn recipe(&self, oid: &Oid) -> Result<Arc<dyn RecipeNodes>, StoreError> {
        self.through(Call::Recipe, |inner| inner.recipe(oid))
    }

    fn is_zero(&self, oid: &Oid, index: u64) -> bool {
        self.inner.is_zero(oid, index)
    }

    fn announce(&self, oid: &Oid, partial: Option<Arc<dyn Partial>>) {
        self.inner.announce(oid, partial);
    }

    fn get_chunk(&self, hash: &[u8; 32]) -> Result<Vec<u8>, StoreError> {
        self.through(Call::GetChunk, |inner| inner.get_chunk(hash))
    }

    fn register_push(&self, listener: Listener) {
        self.inner.register_push(listener);
    }
}

impl<S: Leases> Leases for FailingStore<S> {
    fn lease(&self, lease: &Lease) -> Result<(), StoreError> {
        self.through(Call::Lease, |inner| inner.lease(lease))
    }

    fn leases(&self) -> Result<Vec<Lease>, StoreError> {
        self.through(Call::Leases, S::leases)
    }

    fn done(&self, oid: &Oid) -> Result<bool, StoreError> {
        self.through(Call::Done, |inner| inner.done(oid))
    }

    fn end_session(&self, session: &[u8; 16]) -> Result<Vec<Oid>, StoreError> {
        self.through(Call::EndSession, |inner| inner.end_session(session))
    }
}

impl<S: Chunks> Chunks for FailingStore<S> {
    fn put_chunk(&self, hash: &[u8; 32], bytes: &[u8]) -> Result<(), StoreError> {
        self.through(Call::PutChunk, |inner| inner.put_chunk(hash, bytes))
    }

    fn release_chunk(&self, hash: &[u8; 32]) -> Result<(), StoreError> {
        self.through(Call::ReleaseChunk, |inner| inner.release_chunk(hash))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStore;

    #[test]
    fn a_file_is_settled_after_the_wait() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let stamp = Stamp::of_path(file.path()).unwrap();
        settle(file.path()).unwrap();
        assert!(stamp.is_settled(SystemTime::now()));
    }

    fn store() -> FailingStore<MemoryStore> {
        FailingStore::new(MemoryStore::new())
    }

    #[test]
    fn without_rules_it_conforms() {
        crate::conformance::run(store);
    }

    #[test]
    fn only_the_call_that_was_named_fails() {
        let (store, live) = (store(), Oid::Live([1; 32]));
        store.on(Call::PutData, 2, Fault::Fail);
        store.on(Call::PutCommit, 1, Fault::FailAfter);
        store.put_init(&live, &About::default()).unwrap();
        store.put_data(&live, b"a").unwrap();
        assert!(matches!(store.put_data(&live, b"b"), Err(StoreError::Io { .. })));
        store.put_data(&live, b"c").unwrap();
        assert!(store.put_commit(&live).is_err());
        assert_eq!(store.put_commit(&live).unwrap(), Oid::of(b"ac"), "the first took effect");
    }

    #[test]
    fn a_stalled_call_goes_on_when_told() {
        let store = store();
        store.on(Call::Leases, 1, Fault::Stall);
        std::thread::scope(|scope| {
            let stalled = scope.spawn(|| store.leases());
            assert!(store.wait_stalled(1, Duration::from_secs(60)));
            assert!(store.leases().is_ok(), "others are not held up");
            store.resume();
            assert!(stalled.join().unwrap().is_ok());
        });
    }
}
