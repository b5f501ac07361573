//! What is here of a tree while it comes, for others who fetch it by the same ticket: one set of ranges of the root's space, which
//! the store announces under a name of its own.
//!
//! | what | is told of |
//! |---|---|
//! | the descriptor | piece by piece, behind the root's space; small files' bytes are in it |
//! | a file of one piece | when it has its name, and so is in the index |
//! | a file of more pieces, one of the first `MOST_GROWING` under way | piece by piece; what came is read from its temporary until it has its name |
//! | a file of more pieces, any other | when it has its name |
//! | a file with its bytes in the descriptor, a further name, one that was left out | at once: nobody asks for it, and so the ranges join |
//!
//! Files that others may have are known here by their names, as a tree may name what this machine has from elsewhere. Memory
//! is bounded: 16 bytes each of `MOST_FILES` files, and `MOST_RUNS` ranges.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use towpath_content::Oid;
use towpath_content::lock::lock;
use towpath_content::pieces::{Layout, PieceTree};
use towpath_store::{About, DiskStore, ObjectKind, Partial, State, Store, StoreError};
use towpath_transfer::intervals::Intervals;
use towpath_transfer::root_space::{DESCRIPTOR, space_of};
use towpath_transfer::{Announcing, BoundSink};

use crate::spool::Spool;

/// Files that are told of piece by piece, at a time: each is held open until it has its name.
const MOST_GROWING: usize = 64;
/// Files that are told of.
const MOST_FILES: usize = 1 << 18;
/// Ranges that are told of.
const MOST_RUNS: usize = 1 << 16;
/// End of the last one: no tree is as large.
const MOST_BYTES: u64 = 1 << 49;
/// Ranges that are told of are as long at least.
const LEAST_RUN: u64 = 4 << 10;

/// See the head of this module.
pub struct TreeHolding {
    store: Arc<DiskStore>,
    root: Oid,
    /// Name in the store of what is told.
    space: Oid,
    state: Mutex<HoldingState>,
    told: Arc<ToldRanges>,
    is_open: Arc<AtomicBool>,
}

/// Ends what a tree announces: its files that have no name yet would keep it.
pub struct CloseOnDrop(pub Arc<TreeHolding>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[derive(Default)]
struct HoldingState {
    /// Files that have come, by the front of their names.
    files: HashSet<[u8; 16]>,
    /// Files that are told of piece by piece, and where they lie.
    growing: HashMap<Oid, u64>,
    /// The descriptor's own name, once it is whole.
    descriptor: Option<Oid>,
    /// More came since others were told.
    has_more: bool,
}

impl TreeHolding {
    /// Nothing is here yet of the tree that `root` names. Others hear of what comes from now on.
    pub fn new(store: &Arc<DiskStore>, root: &Oid) -> Arc<Self> {
        let (state, told, is_open) = (Mutex::default(), Arc::default(), Arc::new(AtomicBool::new(true)));
        let new = Self { store: Arc::clone(store), root: *root, space: space_of(root), state, told, is_open };
        new.announce();
        Arc::new(new)
    }

    /// How the descriptor is announced while it comes; `bound` is told what a live one became.
    pub fn descriptor(&self, bound: BoundSink) -> Announcing {
        Announcing { bound: Some(bound), ..self.announcing() }
    }

    fn announcing(&self) -> Announcing {
        let store = Arc::clone(&self.store) as Arc<dyn Store>;
        Announcing { store, stays: Arc::clone(&self.is_open), bound: None }
    }

    /// A file of more than one piece begins to come, which lies at `position`. Returns how it is announced, if it is. One that is
    /// here from elsewhere is not: who asks for it would be served from there.
    pub fn begin(&self, oid: &Oid, position: u64) -> Option<Announcing> {
        let is_here = self.store.is_here(oid);
        let mut state = lock(&self.state);
        let has_room = state.growing.len() < MOST_GROWING && !state.growing.contains_key(oid);
        if is_here || !has_room || !self.is_open.load(Ordering::Acquire) {
            return None;
        }
        state.growing.insert(*oid, position);
        Some(self.announcing())
    }

    /// A file of `size` bytes is in its place, and in the index, or never will be.
    pub fn ended(&self, oid: &Oid, position: u64, size: u64, is_here: bool) {
        let mut state = lock(&self.state);
        if state.growing.get(oid) == Some(&position) {
            state.growing.remove(oid);
            self.store.announce(oid, None);
        }
        if is_here && state.add(oid) {
            state.has_more |= self.told.add(position..position.saturating_add(size));
        }
    }

    /// Nobody asks for this file's bytes.
    pub fn pass_over(&self, position: u64, size: u64) {
        self.told.add(position..position.saturating_add(size));
    }

    /// The descriptor, whose name is `oid`, is here whole.
    pub fn whole(&self, oid: &Oid, about: &About, descriptor: &Arc<Spool>) -> Option<()> {
        let size = descriptor.size()?;
        let tree = PieceTree::new(Layout::of(size).ok()?, descriptor.take_values())?;
        let whole = WholeDescriptor { spool: Arc::clone(descriptor), tree, about: about.clone() };
        self.store.announce(oid, Some(Arc::new(whole)));
        let mut state = lock(&self.state);
        state.descriptor = Some(*oid);
        state.has_more |= self.told.add_of_descriptor(0..size);
        Some(())
    }

    /// Tells others what has come since this was called last.
    pub fn tell(&self) {
        let growing: Vec<_> = lock(&self.state).growing.iter().map(|(oid, at)| (*oid, *at)).collect();
        let mut has_more = false;
        for run in self.runs_of(&self.root) {
            has_more |= self.told.add_of_descriptor(run);
        }
        for (oid, at) in growing {
            for run in self.runs_of(&oid) {
                has_more |= self.told.add(at.saturating_add(run.start)..at.saturating_add(run.end));
            }
        }
        has_more |= std::mem::take(&mut lock(&self.state).has_more);
        if has_more && self.is_open.load(Ordering::Acquire) {
            self.announce();
        }
    }

    fn announce(&self) {
        self.store.announce(&self.space, Some(Arc::clone(&self.told) as Arc<dyn Partial>));
    }

    /// Bytes that are here of an object that comes. One that is here from elsewhere is not announced.
    fn runs_of(&self, oid: &Oid) -> Vec<Range<u64>> {
        let have = self.store.have(oid).ok().filter(|have| have.state == State::Partial);
        let runs = have.iter().flat_map(|have| {
            let runs = have.pieces.iter().filter(|run| !run.is_empty());
            runs.map(|run| have.layout.range(run.start).start..have.layout.range(run.end - 1).end)
        });
        runs.collect()
    }

    /// Ends all that is announced.
    fn close(&self) {
        self.is_open.store(false, Ordering::Release);
        let mut state = lock(&self.state);
        let announced = state.growing.keys().chain(&state.descriptor).chain([&self.root, &self.space]);
        announced.for_each(|oid| self.store.announce(oid, None));
        (state.growing, state.descriptor) = Default::default();
    }

    /// True if others may have this file, as far as it is here.
    pub fn has(&self, oid: &Oid) -> bool {
        let state = lock(&self.state);
        state.growing.contains_key(oid) || state.files.contains(&front(oid))
    }
}

impl HoldingState {
    /// Notes a file; false if there are too many.
    fn add(&mut self, oid: &Oid) -> bool {
        let front = front(oid);
        self.files.contains(&front) || self.files.len() < MOST_FILES && self.files.insert(front)
    }
}

fn front(oid: &Oid) -> [u8; 16] {
    let mut front = [0; 16];
    front.copy_from_slice(&oid.digest()[..16]);
    front
}

/// Ranges of the root's space, as whoever watches it sees them.
#[derive(Default)]
struct ToldRanges(Mutex<RunsThere>);

#[derive(Default)]
struct RunsThere {
    runs: Intervals,
    /// Of the descriptor, which lies behind them.
    descriptor: Intervals,
    /// How many of them there may be: some have joined since.
    count: usize,
}

impl ToldRanges {
    /// Adds a range; false if it was there, or there are too many.
    fn add(&self, range: Range<u64>) -> bool {
        let mut there = lock(&self.0);
        if range.end > MOST_BYTES || there.runs.covers(&range) {
            return false;
        }
        let touches = |at: u64| there.runs.covers(&(at..at.saturating_add(1)));
        if !touches(range.start.saturating_sub(1)) && !touches(range.end) {
            if there.count >= MOST_RUNS {
                there.count = there.runs.iter().count();
            }
            if there.count >= MOST_RUNS {
                return false;
            }
            there.count += 1;
        }
        there.runs.insert(range);
        true
    }

    /// Adds a range of the descriptor's own bytes; false if it was there.
    fn add_of_descriptor(&self, range: Range<u64>) -> bool {
        let mut there = lock(&self.0);
        let is_new = !there.descriptor.covers(&range);
        there.descriptor.insert(range);
        is_new
    }
}

impl Partial for ToldRanges {
    fn available(&self) -> (Layout, Vec<Range<u64>>) {
        (Layout::EMPTY, Vec::new())
    }

    fn spans(&self) -> Vec<Range<u64>> {
        let there = lock(&self.0);
        let runs = there.runs.iter().filter(|run| run.end - run.start >= LEAST_RUN);
        runs.chain(there.descriptor.iter().map(|run| DESCRIPTOR + run.start..DESCRIPTOR + run.end)).collect()
    }

    fn about(&self) -> About {
        About { kind: ObjectKind::Tree, ..About::default() }
    }

    fn proof(&self, _run: Range<u64>) -> Result<Vec<u8>, StoreError> {
        Err(StoreError::NotHere)
    }

    fn read_piece(&self, _index: u64, _buf: &mut Vec<u8>) -> Result<(), StoreError> {
        Err(StoreError::NotHere)
    }
}

/// A descriptor that is whole, and read where it was spooled.
struct WholeDescriptor {
    spool: Arc<Spool>,
    tree: PieceTree,
    about: About,
}

impl Partial for WholeDescriptor {
    fn available(&self) -> (Layout, Vec<Range<u64>>) {
        let layout = self.tree.layout();
        (layout, std::iter::once(0..layout.count()).collect())
    }

    fn about(&self) -> About {
        self.about.clone()
    }

    fn proof(&self, run: Range<u64>) -> Result<Vec<u8>, StoreError> {
        self.tree.proof(run).map_err(|_| StoreError::NotHere)
    }

    fn read_piece(&self, index: u64, buf: &mut Vec<u8>) -> Result<(), StoreError> {
        let layout = self.tree.layout();
        let range = (index < layout.count()).then(|| layout.range(index)).ok_or(StoreError::NotHere)?;
        let read = self.spool.read_run(&range);
        let bytes =
            read.map_err(|source| StoreError::Io { what: "read the tree's descriptor".into(), source })?;
        buf.extend_from_slice(&bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use towpath_transfer::Target;

    use super::*;

    const ROOT: Oid = Oid::Live([7; 32]);

    fn spans(store: &DiskStore) -> Vec<Range<u64>> {
        store.have(&space_of(&ROOT)).map(|have| have.spans).unwrap_or_default()
    }

    fn one_range(end: u64) -> Vec<Range<u64>> {
        std::iter::once(0..end).collect()
    }

    #[test]
    fn others_hear_of_files_that_have_come_and_of_nothing_once_it_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(DiskStore::open(&dir.path().join("state"), &dir.path().join("data")).unwrap());
        let holding = TreeHolding::new(&store, &ROOT);
        let close = CloseOnDrop(Arc::clone(&holding));
        assert_eq!(spans(&store), [], "nothing came");
        let [one, other, failed] = [b"one", &b"other"[..], b"failed"].map(Oid::of);
        holding.ended(&one, 0, 10_000, true);
        holding.tell();
        assert_eq!(spans(&store), one_range(10_000));
        let (spool, content) = (Spool::open(&dir.path().join("spool")).unwrap(), b"a descriptor");
        let oid = Oid::of(content);
        assert_eq!(holding.whole(&oid, &About::default(), &spool), None, "the descriptor is not whole");
        spool.write(0, content).unwrap();
        spool.complete(&oid, content.len() as u64, vec![*oid.digest()]).unwrap();
        holding.whole(&oid, &About { kind: ObjectKind::Tree, ..About::default() }, &spool).unwrap();
        holding.tell();
        let descriptor = DESCRIPTOR..DESCRIPTOR + content.len() as u64;
        assert_eq!(spans(&store), [0..10_000, descriptor.clone()]);
        let mut read = Vec::new();
        store.read_piece(&oid, 0, &mut read).unwrap();
        assert_eq!((&read[..], store.have(&oid).unwrap().about.kind), (&content[..], ObjectKind::Tree));
        holding.pass_over(10_000, 100);
        holding.ended(&other, 10_100, 900, true);
        holding.ended(&failed, 20_000, 9000, false);
        holding.ended(&other, 40_000, 100, true);
        holding.tell();
        let expected = [0..11_000, descriptor];
        assert_eq!(spans(&store), expected, "one range, and none that is too short or did not come");
        assert!(holding.has(&one) && holding.has(&other) && !holding.has(&failed));
        drop(close);
        assert!(store.have(&oid).is_err() && store.have(&space_of(&ROOT)).is_err());
        assert!(holding.begin(&failed, 0).is_none());
    }

    #[test]
    fn files_that_are_told_of_while_they_grow_are_so_many_and_each_once() {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(DiskStore::open(&dir.path().join("state"), &dir.path().join("data")).unwrap());
        let holding = TreeHolding::new(&store, &ROOT);
        let begun = |number: usize| holding.begin(&Oid::of(&number.to_le_bytes()), number as u64).is_some();
        assert!((0..MOST_GROWING).all(begun) && !begun(0) && !begun(MOST_GROWING));
        holding.ended(&Oid::of(&0_usize.to_le_bytes()), 0, 1, true);
        assert!(begun(MOST_GROWING));
    }

    #[test]
    fn a_file_that_failed_or_is_here_from_elsewhere_is_nobody_elses() {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(DiskStore::open(&dir.path().join("state"), &dir.path().join("data")).unwrap());
        let holding = TreeHolding::new(&store, &ROOT);
        let live = Oid::Live([9; 32]);
        store.put_init(&live, &About::default()).unwrap();
        store.put_data(&live, b"private").unwrap();
        let private = store.put_commit(&live).unwrap();
        assert!(holding.begin(&private, 0).is_none() && !holding.has(&private));
        let failed = Oid::of(b"failed");
        assert!(holding.begin(&failed, 0).is_some() && holding.has(&failed), "what comes of it is served");
        holding.ended(&failed, 0, 300_000, false);
        assert!(!holding.has(&failed), "it may be here from elsewhere by now");
    }

    #[test]
    fn no_more_ranges_are_told_than_may_be_and_none_behind_the_end() {
        let told = ToldRanges::default();
        let add = |number: u64| told.add(number * 10..number * 10 + 5);
        assert!((0..MOST_RUNS as u64).all(add) && !add(MOST_RUNS as u64));
        assert!(told.add(5..10), "what joins others makes room");
        assert!(add(MOST_RUNS as u64));
        assert!(!told.add(MOST_BYTES - 1..MOST_BYTES + 1));
    }
}
