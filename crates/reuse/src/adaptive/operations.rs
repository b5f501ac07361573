//! Operations of the disk, their costs, and the bounded set of the ones that could be next
//! (§5.1, §6.2).
//!
//! | operation | total cost | useful chunks |
//! |---|---|---|
//! | CACHE-CHECK | nothing | makes CACHE-READs |
//! | CACHE-READ | a chunk each | what the index says |
//! | HASH | a chunk each of the file | Σ p over missing chunks |
//! | STAT | a STAT, then the best HASH that could follow | Σ p by path alone |
//!
//! Candidates are ordered by cost per useful chunk (CPC) as they come; those that need a budget ([`super::budget`]) can be
//! left out of the order. Files and directories have a limit
//! each; beyond it the worst are forgotten, as the paper does to bound its computations.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use towpath_transfer::Tag;

use super::costs::Costs;
use super::groups::{GroupId, Groups};
use super::heuristics::File;
use super::paths::SplitDirectory;

/// Names an operation or candidate within its scheduler.
pub type OperationId = u64;

/// A wanted chunk in a local file, as the index says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The chunk.
    pub tag: Tag,
    /// Its offset in the file.
    pub offset: u64,
}

/// An operation of the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlannedOperation {
    /// CACHE-CHECK: look these up in the index, and `stat` the files that it names.
    Check(Vec<Tag>),
    /// CACHE-READ: read and check these chunks of a file, one by one.
    Read {
        /// The file.
        file: Arc<File>,
        /// In the order of the file.
        spans: Vec<Span>,
    },
    /// HASH: read the whole file in one pass, cut it and use what matches.
    Hash(Arc<File>),
    /// STAT: list the directory with what each entry is.
    Stat(SplitDirectory),
}

/// Way of reading chunks that the index finds in one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileReading {
    /// Each at its place.
    OneByOne,
    /// The file in one pass (Table 2: three times faster for a whole file of 1 GB).
    WholeFile,
}

/// Way of reading a file: whether `chunks` of a file of `size` bytes are read one by one or by reading all of it.
pub fn reading(chunks: u64, size: u64, costs: &Costs) -> FileReading {
    match costs.hash(size) < chunks as f64 * costs.chunk_alone() {
        true => FileReading::WholeFile,
        false => FileReading::OneByOne,
    }
}

/// An operation with what can be expected of it.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The operation.
    pub operation: PlannedOperation,
    /// E\[N\]: useful chunks to expect.
    pub expected: f64,
    /// Of a directory: the best likelihood that a file in it can have.
    best: f64,
    /// Chunks that the index says the file has.
    promised: u64,
    /// It takes from the budget of the wide search ([`super::budget`]).
    pub is_wide: bool,
}

/// From this likelihood on a file is near, wherever it lies: the paper's example has 0.444 for one that has all but half
/// of its path in common.
const LIKELY: f64 = 0.5;

impl Candidate {
    /// A directory or file, or reads of a file, seen with the groups as they are.
    pub fn new(operation: PlannedOperation, promised: u64, groups: &Groups) -> Self {
        let mut candidate = Self { operation, expected: 0.0, best: 0.0, promised, is_wide: false };
        candidate.rank(groups);
        candidate
    }

    fn rank(&mut self, groups: &Groups) {
        (self.expected, self.best, self.is_wide) = match &self.operation {
            PlannedOperation::Check(tags) => (tags.len() as f64, 1.0, false),
            PlannedOperation::Read { spans, .. } => {
                (spans.iter().filter(|span| groups.find(span.tag).is_some()).count() as f64, 1.0, false)
            }
            PlannedOperation::Hash(file) => {
                let promised = self.promised.min(groups.open()) as f64;
                let (expected, best) = groups.expected_in_file(file);
                let is_near = promised > 0.0 || best >= LIKELY || groups.is_near(&file.directory);
                (expected.max(promised), 1.0, !is_near)
            }
            PlannedOperation::Stat(directory) => {
                let (expected, best) = groups.expected_in_directory(directory);
                (expected, best, !groups.is_near(directory))
            }
        };
    }

    /// Seconds that it takes itself, whatever may follow, and bytes that it reads.
    pub fn own_cost(&self, costs: &Costs) -> (f64, u64) {
        match &self.operation {
            PlannedOperation::Hash(file) => (costs.hash(file.size), file.size),
            PlannedOperation::Stat(_) => (costs.stat(), 0),
            PlannedOperation::Check(_) | PlannedOperation::Read { .. } => (self.total(costs), 0),
        }
    }

    /// T_OP: seconds, up to the chunks that can be expected.
    pub fn total(&self, costs: &Costs) -> f64 {
        match &self.operation {
            PlannedOperation::Check(_) => 0.0,
            PlannedOperation::Read { .. } => self.expected * costs.chunk_alone(),
            PlannedOperation::Hash(file) => costs.hash(file.size),
            PlannedOperation::Stat(_) if self.best > 0.0 => {
                costs.stat() + self.expected * costs.chunk_in_passing() / self.best
            }
            PlannedOperation::Stat(_) => f64::INFINITY,
        }
    }

    /// Cost per useful chunk delivered, seconds: T_OP / E\[N\], weighted for a STAT.
    pub fn cpc(&self, costs: &Costs) -> f64 {
        let weight = if self.is_directory() { costs.stat_weight() } else { 1.0 };
        if self.expected > 0.0 { weight * self.total(costs) / self.expected } else { f64::INFINITY }
    }

    /// Probability that it finds a chunk of the group.
    pub fn probability(&self, group: GroupId, groups: &Groups) -> f64 {
        match &self.operation {
            PlannedOperation::Check(_) => 0.0,
            PlannedOperation::Read { spans, .. } => {
                let found = spans.iter().filter(|span| groups.find(span.tag).is_some_and(|it| it.0 == group));
                found.count() as f64 / groups.missing(group).max(1) as f64
            }
            PlannedOperation::Hash(file) => {
                let promised = self.promised as f64 / groups.open().max(1) as f64;
                groups.probability(group, file).max(promised.min(1.0))
            }
            PlannedOperation::Stat(directory) => groups.probability_in(group, directory),
        }
    }

    fn is_directory(&self) -> bool {
        matches!(self.operation, PlannedOperation::Stat(_))
    }
}

/// Numbers of candidates that are kept.
#[derive(Debug, Clone, Copy)]
pub struct DiskLimits {
    /// Files to hash or to read from.
    pub files: usize,
    /// Directories to list.
    pub directories: usize,
}

impl Default for DiskLimits {
    /// 4096 each: some megabytes.
    fn default() -> Self {
        Self { files: 4096, directories: 4096 }
    }
}

/// The candidates in the order of their cost per useful chunk.
pub struct Candidates {
    limits: DiskLimits,
    known: BTreeMap<OperationId, (Candidate, Key)>,
    files: Ordered,
    directories: Ordered,
    /// Number forgotten because of the limits.
    forgotten: u64,
}

/// Costs are positive, so their bits are in the same order as they.
type Key = (u64, OperationId);

/// Candidates of one kind.
#[derive(Default)]
struct Ordered {
    near: BTreeSet<Key>,
    wide: BTreeSet<Key>,
}

impl Ordered {
    fn of(&mut self, is_wide: bool) -> &mut BTreeSet<Key> {
        if is_wide { &mut self.wide } else { &mut self.near }
    }

    /// Takes out the worst if there are more than so many.
    fn pop_beyond(&mut self, limit: usize) -> Option<Key> {
        if self.near.len() + self.wide.len() <= limit {
            return None;
        }
        let is_wide = self.wide.last() > self.near.last();
        self.of(is_wide).pop_last()
    }

    fn iter(&self, with_wide: bool) -> impl Iterator<Item = Key> + '_ {
        let wide = self.wide.iter().take(if with_wide { usize::MAX } else { 0 });
        merged(self.near.iter().copied(), wide.copied())
    }
}

/// Two orders as one.
fn merged(one: impl Iterator<Item = Key>, other: impl Iterator<Item = Key>) -> impl Iterator<Item = Key> {
    let (mut one, mut other) = (one.peekable(), other.peekable());
    std::iter::from_fn(move || match (one.peek(), other.peek()) {
        (Some(first), Some(second)) if first <= second => one.next(),
        (_, Some(_)) => other.next(),
        (_, None) => one.next(),
    })
}

impl Candidates {
    /// None yet.
    pub fn new(limits: DiskLimits) -> Self {
        let (files, directories) = (Ordered::default(), Ordered::default());
        Self { limits, known: BTreeMap::new(), files, directories, forgotten: 0 }
    }

    /// Number of candidates.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// True if nothing is left to try.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Number forgotten because of the limits.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// True if some of them need a budget.
    pub fn has_wide(&self) -> bool {
        !self.files.wide.is_empty() || !self.directories.wide.is_empty()
    }

    /// One more. The worst goes if there are too many.
    pub fn add(&mut self, id: OperationId, candidate: Candidate, costs: &Costs) {
        let key = (candidate.cpc(costs).to_bits(), id);
        let (kind, limit) = match candidate.is_directory() {
            true => (&mut self.directories, self.limits.directories),
            false => (&mut self.files, self.limits.files),
        };
        kind.of(candidate.is_wide).insert(key);
        self.known.insert(id, (candidate, key));
        if let Some((_, worst)) = kind.pop_beyond(limit) {
            self.known.remove(&worst);
            self.forgotten += 1;
        }
    }

    /// Takes one out, to run it.
    pub fn take(&mut self, id: OperationId) -> Option<Candidate> {
        let (candidate, key) = self.known.remove(&id)?;
        let kind = if candidate.is_directory() { &mut self.directories } else { &mut self.files };
        kind.of(candidate.is_wide).remove(&key);
        Some(candidate)
    }

    /// The best ones first, without those of which nothing can be expected at the moment, and without those that need a
    /// budget if there is none.
    pub fn ordered(&self, with_wide: bool) -> impl Iterator<Item = (OperationId, &Candidate)> + '_ {
        let keys = merged(self.files.iter(with_wide), self.directories.iter(with_wide));
        let keys = keys.take_while(|(cpc, _)| f64::from_bits(*cpc).is_finite());
        keys.filter_map(|(_, id)| self.known.get(&id).map(|(candidate, _)| (id, candidate)))
    }

    /// Ranks all anew: chunks came, costs changed.
    pub fn recompute(&mut self, groups: &Groups, costs: &Costs) {
        let known = std::mem::take(&mut self.known);
        (self.files, self.directories) = (Ordered::default(), Ordered::default());
        for (id, (mut candidate, _)) in known {
            candidate.rank(groups);
            self.add(id, candidate, costs);
        }
    }
}
