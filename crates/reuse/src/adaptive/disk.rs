//! The disk as the scheduler sees it: what it could be asked for, what is under way, and at which cost.

use std::collections::{BTreeSet, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::Duration;

use towpath_transfer::Tag;

use super::account::Account;
use super::arrival::{self, ArrivalStep};
use super::benefit::can_pay;
use super::costs::Costs;
use super::event::Action;
use super::groups::{GroupId, Groups};
use super::heuristics::File;
use super::operations::{
    Candidate, Candidates, DiskLimits, FileReading, OperationId, PlannedOperation, Span, reading,
};
use super::paths::SplitDirectory;
use super::running::{RunningOperations, ScheduledOperation};
use super::wide::WideSearch;

/// Chunks that one CACHE-CHECK looks up.
const CHECKED_AT_ONCE: usize = 4096;
/// Operations that an expected arrival looks ahead, and that are tried for one that can still pay.
const AHEAD: usize = 64;
const TRIED: usize = 16;
/// Places and files that are remembered so as not to come twice. What is forgotten costs time only.
const REMEMBERED: usize = 1 << 16;

/// Places that became candidates.
#[derive(Default)]
struct SeenPlaces {
    directories: BTreeSet<SplitDirectory>,
    files: HashSet<u64>,
}

impl SeenPlaces {
    /// True if a directory is new. One that was named from outside is remembered, since its parent may name it again.
    /// All others have one parent that names them once.
    fn is_new_directory(&mut self, directory: &SplitDirectory, is_named: bool) -> bool {
        let is_new = !self.directories.contains(directory);
        if is_new && is_named && self.directories.len() < REMEMBERED {
            self.directories.insert(directory.clone());
        }
        is_new
    }

    /// True if a file is new. One that may be listed later, too, is remembered.
    fn is_new_file(&mut self, file: &File, may_come_again: bool) -> bool {
        let known = BuildHasherDefault::<DefaultHasher>::default().hash_one((&file.directory, &file.name));
        let is_new = !self.files.contains(&known);
        if is_new && may_come_again && self.files.len() < REMEMBERED {
            self.files.insert(known);
        }
        is_new
    }
}

/// Candidates and operations under way.
pub struct DiskSide {
    /// Operations that could be begun.
    pub candidates: Candidates,
    /// Operations that were begun.
    pub running: RunningOperations,
    /// Costs of operations.
    pub costs: Costs,
    next: OperationId,
    parallel: usize,
    to_check: Vec<Tag>,
    seen: SeenPlaces,
}

impl DiskSide {
    /// Nothing to look at yet; so many operations may run at a time.
    pub fn new(limits: DiskLimits, parallel: usize, costs: Costs) -> Self {
        Self {
            candidates: Candidates::new(limits),
            running: RunningOperations::default(),
            costs,
            next: 0,
            parallel: parallel.max(1),
            to_check: Vec::new(),
            seen: SeenPlaces::default(),
        }
    }

    /// The index is to be asked for these chunks.
    pub fn check(&mut self, tags: Vec<Tag>) {
        self.to_check.extend(tags);
    }

    /// A directory becomes a candidate; `is_named` if it was named from outside.
    pub fn see_directory(&mut self, directory: SplitDirectory, is_named: bool, groups: &Groups) {
        if self.seen.is_new_directory(&directory, is_named) {
            self.add(PlannedOperation::Stat(directory), 0, groups);
        }
    }

    /// A file becomes a candidate.
    pub fn see_file(&mut self, file: Arc<File>, promised: u64, may_come_again: bool, groups: &Groups) {
        if file.size > 0 && self.seen.is_new_file(&file, may_come_again) {
            self.add(PlannedOperation::Hash(file), promised, groups);
        }
    }

    /// The index has chunks in a file: they are read one by one, or with the whole file.
    pub fn see_hits(&mut self, file: Arc<File>, mut spans: Vec<Span>, groups: &Groups) {
        let chunks = spans.len() as u64;
        if reading(chunks, file.size, &self.costs) == FileReading::WholeFile {
            return self.see_file(file, chunks, true, groups);
        }
        spans.sort_unstable_by_key(|span| span.offset);
        self.add(PlannedOperation::Read { file, spans }, chunks, groups);
    }

    /// A directory was listed by this operation.
    pub fn listed(
        &mut self,
        id: OperationId,
        files: Vec<File>,
        directories: Vec<Box<[u8]>>,
        groups: &Groups,
    ) {
        let Some(PlannedOperation::Stat(directory)) = self.running.get(id).map(|it| &it.candidate.operation)
        else {
            return;
        };
        let directory = directory.clone();
        directories.into_iter().for_each(|name| self.see_directory(directory.child(&name), false, groups));
        files.into_iter().for_each(|file| self.see_file(Arc::new(file), 0, false, groups));
    }

    fn add(&mut self, operation: PlannedOperation, promised: u64, groups: &Groups) {
        let candidate = Candidate::new(operation, promised, groups);
        self.candidates.add(self.next, candidate, &self.costs);
        self.next += 1;
    }

    /// True if nothing is under way, and the index was asked for all.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.to_check.is_empty()
    }

    /// True if one more operation may run.
    pub fn has_room(&self) -> bool {
        self.running.on_disk() < self.parallel
    }

    /// The next chunks to ask the index for, one question at a time. It is in memory and answers at once, so it is asked
    /// first and besides all else.
    pub fn next_check(&mut self, groups: &Groups) -> Option<Candidate> {
        if self.to_check.is_empty() || self.running.has_check() {
            return None;
        }
        let rest = self.to_check.split_off(self.to_check.len().min(CHECKED_AT_ONCE));
        let tags = std::mem::replace(&mut self.to_check, rest);
        Some(Candidate::new(PlannedOperation::Check(tags), 0, groups))
    }

    /// The first that can pay and that the budget allows, of the best, where the network needs so many seconds. Those
    /// that are too large for it go.
    pub fn best(
        &mut self,
        network_time: f64,
        with_wide: bool,
        (wide, account): (&mut WideSearch, &mut Account),
    ) -> Option<OperationId> {
        let costs = self.costs;
        let pays = |it: &Candidate| can_pay(it.total(&costs), network_time);
        let best = || self.candidates.ordered(with_wide).take(TRIED);
        let found = best().find(|(_, it)| pays(it) && wide.allows(it, &costs)).map(|(id, _)| id);
        if found.is_none() {
            account.is_limited |= best().any(|(_, it)| it.is_wide && pays(it));
            let is_passed_over = |it: &Candidate| wide.is_too_large(it, &costs);
            let passed_over: Vec<_> = best().filter(|(_, it)| is_passed_over(it)).map(|(id, _)| id).collect();
            if !passed_over.is_empty() {
                wide.pass_over();
            }
            passed_over.into_iter().for_each(|id| drop(self.candidates.take(id)));
        }
        found
    }

    /// Begins an operation.
    pub fn start(
        &mut self,
        now: Duration,
        candidate: Candidate,
        account: &mut Account,
        actions: &mut Vec<Action>,
    ) {
        let id = self.next;
        self.next += 1;
        match &candidate.operation {
            PlannedOperation::Stat(_) => account.stats += 1,
            PlannedOperation::Hash(_) => account.hashes += 1,
            PlannedOperation::Check(tags) => account.checks += tags.len() as u64,
            PlannedOperation::Read { .. } => {}
        }
        let total = match candidate.operation {
            PlannedOperation::Stat(_) => self.costs.stat(),
            _ => candidate.total(&self.costs),
        };
        let is_wide = candidate.is_wide;
        actions.push(Action::Start { id, operation: candidate.operation.clone(), is_wide });
        self.running.begin(id, ScheduledOperation::new(candidate, now, total));
    }

    /// Seconds until it can be expected to bring what a group misses, of the planned ones with those that need a budget
    /// if `with_wide`, and with none if nothing is planned (`None`). A chunk that it does not have costs `otherwise`.
    pub fn expected_arrival(
        &self,
        (id, groups): (GroupId, &Groups),
        now: Duration,
        with_wide: Option<bool>,
        otherwise: f64,
    ) -> f64 {
        let running = self.running.arrivals(id, groups, now);
        let planned = self.candidates.ordered(with_wide.unwrap_or(false));
        let planned = planned.take(with_wide.map_or(0, |_| AHEAD)).map(|(_, candidate)| ArrivalStep {
            total: candidate.total(&self.costs),
            cpc: candidate.cpc(&self.costs),
            probability: candidate.probability(id, groups),
        });
        arrival::expected(running.chain(planned), otherwise)
    }
}
