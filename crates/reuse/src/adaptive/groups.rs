//! Metadata groups (§5.2): the wanted chunks of one source file are scheduled together.
//!
//! Likelihoods come from metadata alone, so all chunks of a file share them: thousands of pairs of
//! chunks and operations become a few of groups and operations. Chunks that several files have form a
//! group of their own, as likely as the likeliest of its files. A group keeps its chunks in the order of
//! the file, so that what is asked of the network is long runs.
//!
//! A candidate is compared with at most 32 groups: those that share its name, size or
//! directory, and the oldest. So an operation costs the same to judge however large the transfer.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use towpath_transfer::Tag;

use super::heuristics::{self, File, Pair};
use super::paths::{SplitDirectory, commonality};

/// Groups that a candidate is compared with, and directories that a directory is compared with.
const COMPARED: usize = 32;
/// Of these, how many by each of name, size and directory.
const BY_KEY: usize = 8;
/// Moves that are remembered.
const MOVES: usize = 16;
/// Trust in a move that held for one file, for the next.
const TRUST_IN_MOVES: f64 = 0.95;

/// Directories of the disk of which it is remembered how near they are.
const CANDIDATES: usize = 256;

/// Names a group within its scheduler.
pub type GroupId = u64;

/// A wanted chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantedChunk {
    /// The want's tag.
    pub tag: Tag,
    /// Offset in the source file (in the first, if it is in several).
    pub offset: u64,
    /// Its bytes.
    pub len: u32,
}

/// State of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkState {
    /// Nobody was asked.
    Waiting,
    /// The network was asked.
    Requested,
    /// It is there, or not wanted any more.
    Done,
}

struct ChunkGroup {
    files: Vec<Arc<File>>,
    /// By offset.
    chunks: Vec<(WantedChunk, ChunkState)>,
    /// All that wait lie between these.
    head: usize,
    tail: usize,
    /// Chunks that a file read from its front has come to.
    reached: usize,
    waiting: u64,
    /// Waiting or asked.
    open: u64,
}

/// Nearness of directories, of those that were compared last: all files of a directory are as near.
#[derive(Default)]
struct Nearness(HashMap<SplitDirectory, HashMap<SplitDirectory, f64>>);

impl Nearness {
    /// Nearness of a candidate, by the directories of the transfer.
    fn of(&mut self, candidate: &SplitDirectory) -> &mut HashMap<SplitDirectory, f64> {
        if self.0.len() > CANDIDATES {
            self.0.clear();
        }
        self.0.entry(candidate.clone()).or_default()
    }
}

/// All groups of a scheduler that still miss chunks.
#[derive(Default)]
pub struct Groups {
    groups: BTreeMap<GroupId, ChunkGroup>,
    next: GroupId,
    places: HashMap<Tag, (GroupId, u32)>,
    names: HashMap<Box<[u8]>, BTreeSet<GroupId>>,
    sizes: HashMap<u64, BTreeSet<GroupId>>,
    /// Groups by destination.
    directories: BTreeMap<SplitDirectory, BTreeSet<GroupId>>,
    /// Moves: files that belong below the first were found below the second.
    moves: Vec<(SplitDirectory, SplitDirectory)>,
    /// Directories that the person named.
    extra: Vec<SplitDirectory>,
    nearness: RefCell<Nearness>,
    open_bytes: u64,
    waiting_bytes: u64,
    total: u64,
}

impl Groups {
    /// Adds the chunks that exactly `files` have. Tags that are known already are left out.
    pub fn add(&mut self, files: Vec<Arc<File>>, mut chunks: Vec<WantedChunk>) -> Option<GroupId> {
        chunks.retain(|chunk| !self.places.contains_key(&chunk.tag));
        chunks.sort_unstable_by_key(|chunk| chunk.offset);
        if chunks.is_empty() || files.is_empty() {
            return None;
        }
        let id = self.next;
        self.next += 1;
        for (at, chunk) in chunks.iter().enumerate() {
            self.places.insert(chunk.tag, (id, u32::try_from(at).unwrap_or(u32::MAX)));
            self.open_bytes += u64::from(chunk.len);
            self.waiting_bytes += u64::from(chunk.len);
        }
        for file in &files {
            self.names.entry(file.name.clone()).or_default().insert(id);
            self.sizes.entry(file.size).or_default().insert(id);
            self.directories.entry(file.directory.clone()).or_default().insert(id);
        }
        let count = chunks.len() as u64;
        self.total += count;
        let chunks: Vec<_> = chunks.into_iter().map(|chunk| (chunk, ChunkState::Waiting)).collect();
        let tail = chunks.len();
        self.groups
            .insert(id, ChunkGroup { files, chunks, head: 0, tail, reached: 0, waiting: count, open: count });
        Some(id)
    }

    /// True if every chunk is done.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Number of groups that miss chunks.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Chunks that were ever wanted.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Chunks that are missing.
    pub fn open(&self) -> u64 {
        self.places.len() as u64
    }

    /// Bytes that are missing.
    pub fn open_bytes(&self) -> u64 {
        self.open_bytes
    }

    /// Bytes that nobody was asked for.
    pub fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes
    }

    /// Chunks of a group that nobody was asked for.
    pub fn waiting(&self, id: GroupId) -> u64 {
        self.groups.get(&id).map_or(0, |group| group.waiting)
    }

    /// Chunks of a group that are missing.
    pub fn missing(&self, id: GroupId) -> u64 {
        self.groups.get(&id).map_or(0, |group| group.open)
    }

    /// Bytes of a group's chunks that are missing, about.
    pub fn missing_bytes(&self, id: GroupId) -> u64 {
        let Some(group) = self.groups.get(&id) else { return 0 };
        group.chunks.first().map_or(0, |(chunk, _)| u64::from(chunk.len)) * group.open
    }

    /// The group that misses this chunk, and the chunk.
    pub fn find(&self, tag: Tag) -> Option<(GroupId, WantedChunk, ChunkState)> {
        let (id, at) = self.places.get(&tag)?;
        let (chunk, state) = self.groups.get(id)?.chunks.get(*at as usize)?;
        Some((*id, *chunk, *state))
    }

    /// A chunk is there, or not wanted any more: how it stood, and its bytes.
    pub fn end(&mut self, tag: Tag) -> Option<(ChunkState, u32)> {
        let (id, at) = self.places.remove(&tag)?;
        let group = self.groups.get_mut(&id)?;
        let (chunk, state) = group.chunks.get_mut(at as usize)?;
        let (before, len) = (*state, chunk.len);
        *state = ChunkState::Done;
        group.open -= 1;
        self.open_bytes -= u64::from(len);
        if before == ChunkState::Waiting {
            group.waiting -= 1;
            self.waiting_bytes -= u64::from(len);
        }
        if group.open == 0 {
            self.remove(id);
        }
        Some((before, len))
    }

    fn remove(&mut self, id: GroupId) {
        let Some(group) = self.groups.remove(&id) else { return };
        for file in &group.files {
            forget(&mut self.names, &file.name, id);
            forget(&mut self.sizes, &file.size, id);
            if let Some(ids) = self.directories.get_mut(&file.directory) {
                ids.remove(&id);
                if ids.is_empty() {
                    self.directories.remove(&file.directory);
                }
            }
        }
    }

    /// All chunks that nobody was asked for.
    pub fn all_waiting(&self) -> Vec<Tag> {
        let chunks = self.groups.values().flat_map(|group| &group.chunks);
        chunks.filter(|(_, state)| *state == ChunkState::Waiting).map(|(chunk, _)| chunk.tag).collect()
    }

    /// The network did not bring it: it waits again. Its group and its bytes, if it was asked.
    pub fn wait_again(&mut self, tag: Tag) -> Option<(GroupId, u32)> {
        let (id, at) = *self.places.get(&tag)?;
        let group = self.groups.get_mut(&id)?;
        let (chunk, state) =
            group.chunks.get_mut(at as usize).filter(|(_, state)| *state == ChunkState::Requested)?;
        *state = ChunkState::Waiting;
        let len = chunk.len;
        group.waiting += 1;
        (group.head, group.tail) = (group.head.min(at as usize), group.tail.max(at as usize + 1));
        self.waiting_bytes += u64::from(len);
        Some((id, len))
    }

    /// A file that is read from its front has this chunk: of those before it, it has had what it has.
    pub fn reached(&mut self, tag: Tag) {
        let place = self.places.get(&tag).copied();
        if let Some((id, at)) = place
            && let Some(group) = self.groups.get_mut(&id)
        {
            group.reached = group.reached.max(at as usize);
        }
    }

    /// Marks a run of waiting chunks as asked, in the order of the file: the first of the group, or
    /// the last if the disk reads towards it. At most `bytes`, but one chunk at least.
    pub fn take_run(&mut self, id: GroupId, bytes: u64, from_end: bool) -> Vec<WantedChunk> {
        let taken = |group: &mut ChunkGroup| group.take_run(bytes, from_end, usize::MAX);
        let mut run = self.take(id, taken);
        if from_end {
            run.reverse();
        }
        run
    }

    /// The same, of those that a file had its chance to bring ([`Self::reached`]); none if it brought all.
    pub fn take_passed(&mut self, id: GroupId, bytes: u64) -> Vec<WantedChunk> {
        self.take(id, |group| group.take_run(bytes, false, group.reached))
    }

    fn take(
        &mut self,
        id: GroupId,
        taken: impl FnOnce(&mut ChunkGroup) -> Vec<WantedChunk>,
    ) -> Vec<WantedChunk> {
        let run = self.groups.get_mut(&id).map(taken).unwrap_or_default();
        self.waiting_bytes -= run.iter().map(|chunk| u64::from(chunk.len)).sum::<u64>();
        run
    }

    /// The person named these: what lies in them is as near as what lies at the destination.
    pub fn ask(&mut self, directories: Vec<SplitDirectory>) {
        self.extra = directories;
        self.nearness.take();
    }

    /// True if files of the transfer go there, or the person named it.
    pub fn is_near(&self, directory: &SplitDirectory) -> bool {
        self.directories.contains_key(directory) || self.is_extra(directory)
    }

    fn is_extra(&self, directory: &SplitDirectory) -> bool {
        self.extra.iter().any(|extra| directory.names().starts_with(extra.names()))
    }

    /// A chunk of the group was found in `directory`: where else something was moved alike, more is
    /// expected. True if that is news.
    pub fn found_in(&mut self, id: GroupId, directory: &SplitDirectory) -> bool {
        let Some(file) = self.groups.get(&id).and_then(|group| group.files.first()) else { return false };
        if file.directory == *directory {
            return false;
        }
        let moved = file.directory.before_common_end(directory);
        if self.moves.contains(&moved) {
            return false;
        }
        if self.moves.len() == MOVES {
            self.moves.remove(0);
        }
        self.moves.push(moved);
        self.nearness.take();
        true
    }

    /// Probability that a chunk of the group is found in a file.
    pub fn probability(&self, id: GroupId, candidate: &File) -> f64 {
        let Some(group) = self.groups.get(&id) else { return 0.0 };
        let each = group.files.iter().map(|source| {
            let nearness = self.nearness(&source.directory, &candidate.directory);
            heuristics::probability(&Pair { source, candidate, nearness })
        });
        each.fold(0.0, f64::max)
    }

    /// Probability, by path alone, that a chunk of the group is found in a directory.
    pub fn probability_in(&self, id: GroupId, candidate: &SplitDirectory) -> f64 {
        let Some(group) = self.groups.get(&id) else { return 0.0 };
        group.files.iter().map(|file| self.nearness(&file.directory, candidate)).fold(0.0, f64::max)
    }

    /// E\[N\]: useful chunks that a file can be expected to have; and the best likelihood of one.
    pub fn expected_in_file(&self, candidate: &File) -> (f64, f64) {
        let groups = self.comparable(candidate).into_iter();
        let likely = groups.map(|id| (self.probability(id, candidate), self.missing(id) as f64));
        likely.fold((0.0, 0.0), |(expected, best), (it, missing)| (expected + it * missing, best.max(it)))
    }

    /// The same for a directory, and the best likelihood that one of its files can have.
    pub fn expected_in_directory(&self, candidate: &SplitDirectory) -> (f64, f64) {
        let (mut expected, mut best) = (0.0, 0.0_f64);
        let same = self.directories.get_key_value(candidate);
        let others = self.directories.iter().filter(|(directory, _)| *directory != candidate);
        for (directory, ids) in same.into_iter().chain(others).take(COMPARED) {
            let nearness = self.nearness(directory, candidate);
            let chunks: u64 = ids.iter().take(COMPARED).map(|id| self.missing(*id)).sum();
            expected += nearness * chunks as f64;
            best = best.max(nearness);
        }
        (expected, best)
    }

    /// Groups worth comparing with a file.
    fn comparable(&self, candidate: &File) -> BTreeSet<GroupId> {
        let keyed = [
            self.names.get(&candidate.name),
            self.sizes.get(&candidate.size),
            self.directories.get(&candidate.directory),
        ];
        let mut ids: BTreeSet<_> =
            keyed.into_iter().flatten().flat_map(|ids| ids.iter().copied().take(BY_KEY)).collect();
        for id in self.groups.keys() {
            if ids.len() >= COMPARED {
                break;
            }
            ids.insert(*id);
        }
        ids
    }

    /// Nearness of two directories, by their paths and by what was moved or requested.
    fn nearness(&self, source: &SplitDirectory, candidate: &SplitDirectory) -> f64 {
        let mut cache = self.nearness.borrow_mut();
        let known = cache.of(candidate);
        if known.len() > CANDIDATES {
            known.clear();
        }
        if let Some(nearness) = known.get(source) {
            return *nearness;
        }
        let nearness = match self.is_extra(candidate) {
            true => 1.0,
            false => self.moved(source).fold(commonality(source, candidate), |best, moved| {
                best.max(TRUST_IN_MOVES * commonality(&moved, candidate))
            }),
        };
        known.insert(source.clone(), nearness);
        nearness
    }

    fn moved<'a>(&'a self, directory: &'a SplitDirectory) -> impl Iterator<Item = SplitDirectory> + 'a {
        self.moves.iter().filter_map(|(from, to)| directory.moved(from, to))
    }
}

impl ChunkGroup {
    fn take_run(&mut self, bytes: u64, from_end: bool, before: usize) -> Vec<WantedChunk> {
        let waits = |(_, state): &(WantedChunk, ChunkState)| *state == ChunkState::Waiting;
        while self.head < self.tail && !waits(&self.chunks[self.head]) {
            self.head += 1;
        }
        while self.head < self.tail && !waits(&self.chunks[self.tail - 1]) {
            self.tail -= 1;
        }
        let (mut run, mut left) = (Vec::new(), bytes);
        while self.head < self.tail && (from_end || self.head < before) {
            let at = if from_end { self.tail - 1 } else { self.head };
            let (chunk, state) = &mut self.chunks[at];
            let len = u64::from(chunk.len);
            if *state != ChunkState::Waiting || (!run.is_empty() && len > left) {
                break;
            }
            *state = ChunkState::Requested;
            run.push(*chunk);
            left = left.saturating_sub(len);
            self.waiting -= 1;
            if from_end { self.tail -= 1 } else { self.head += 1 }
        }
        run
    }
}

fn forget<K: std::hash::Hash + Eq>(ids_of: &mut HashMap<K, BTreeSet<GroupId>>, key: &K, id: GroupId) {
    if let Some(ids) = ids_of.get_mut(key) {
        ids.remove(&id);
        if ids.is_empty() {
            ids_of.remove(key);
        }
    }
}
