//! The control loop (§3.2) as a state machine: fed events and the time, it answers with what to do.
//!
//! Each event costs little: a chunk changes its state, a candidate finds its place in the order. What
//! needs all pairs of operations and groups is left to [`Scheduler::recompute`], which the driver
//! runs and measures when asked.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::Duration;

use towpath_transfer::Tag;
use towpath_transfer::rate::Rate;

use super::account::{Account, Bottleneck};
use super::arrival::{self, ArrivalStep};
use super::arrivals::GroupArrivals;
use super::backpressure::{Backpressure, Recomputing};
use super::benefit::{SearchPolicy, can_pay};
use super::budget::{Budget, BudgetLeft, BudgetUse, Effort, Standing};
use super::costs::Costs;
use super::event::{Action, End, Event};
use super::groups::{ChunkState, GroupId, Groups, WantedChunk};
use super::heuristics::File;
use super::network::{NetworkSide, RUN};
use super::operations::{
    Candidate, Candidates, DiskLimits, FileReading, OperationId, PlannedOperation, Span, reading,
};
use super::paths::SplitDirectory;

/// Chunks that one CACHE-CHECK looks up.
const CHECKED_AT_ONCE: usize = 4096;
/// Operations that an expected arrival looks ahead, and that are tried for one that can still pay.
const AHEAD: usize = 64;
const TRIED: usize = 16;
/// Places and files that are remembered so as not to come twice. What is forgotten costs time only.
const REMEMBERED: usize = 1 << 16;
/// From this likelihood on the network leaves the front of a group to the disk and takes its end.
const LIKELY: f64 = 0.5;
/// Probability that a file that had chunks of a group has the next one.
const ONCE_FOUND: f64 = 0.9;
/// A file that brings so many times as much as the network would is left the processors.
const MORE: f64 = 1.5;

/// Time in which the index, the nearest directories and what is small in them can be looked at, if the network
/// takes longer for what it is asked at once: what it brings meanwhile would likely be found here as well.
const GLANCE: f64 = 0.1;
/// No more of the network's time than this.
const GLANCE_SHARE: f64 = 0.04;
/// The network is slow if a run takes it longer than this, seconds.
const LONG_RUN: f64 = 0.4;

/// Settings of a scheduler.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Candidates kept.
    pub limits: DiskLimits,
    /// Disk operations at a time.
    pub parallel: usize,
    /// Costs as known.
    pub costs: Costs,
    /// The network's rate as measured while pieces came.
    pub rate: Rate,
    /// Effort of the wide search, which decides on its budget.
    pub effort: Effort,
}

/// An operation under way.
struct ScheduledOperation {
    candidate: Candidate,
    started: Duration,
    total: f64,
    is_paused: bool,
    /// Groups of which it has found chunks.
    found: BTreeSet<GroupId>,
    /// Bytes of these.
    brought: u64,
}

impl ScheduledOperation {
    /// Probability that it brings a chunk of the group: one that brought some goes on so.
    fn probability(&self, id: GroupId, groups: &Groups) -> f64 {
        let likely = self.candidate.probability(id, groups);
        if self.found.contains(&id) { likely.max(ONCE_FOUND) } else { likely }
    }

    /// True if a file is being read from its front that has, or could have, much of the group. It goes on there
    /// after a pause.
    fn is_at(&self, id: GroupId, groups: &Groups) -> bool {
        let PlannedOperation::Hash(file) = &self.candidate.operation else { return false };
        self.found.contains(&id)
            || 2 * file.size >= groups.missing_bytes(id)
            || self.candidate.probability(id, groups) >= LIKELY
    }

    /// Seconds to go: what was expected, and once that is over as long again.
    fn remaining(&self, now: Duration) -> f64 {
        let elapsed = now.saturating_sub(self.started).as_secs_f64();
        if elapsed < self.total { self.total - elapsed } else { elapsed }
    }

    fn is_check(&self) -> bool {
        matches!(self.candidate.operation, PlannedOperation::Check(_))
    }
}

/// Decides, chunk by chunk, between index, files and network.
pub struct Scheduler {
    groups: Groups,
    candidates: Candidates,
    running: BTreeMap<OperationId, ScheduledOperation>,
    next: OperationId,
    costs: Costs,
    network: NetworkSide,
    backpressure: Backpressure,
    recomputing: Recomputing,
    search: SearchPolicy,
    searches: bool,
    budget: Budget,
    /// Of the budget, now.
    left: BudgetLeft,
    /// A file was too large for the budget.
    has_passed_over: bool,
    parallel: usize,
    to_check: Vec<Tag>,
    seen_directories: BTreeSet<SplitDirectory>,
    seen_files: HashSet<u64>,
    arrivals: GroupArrivals,
    is_withholding: bool,
    /// Time at which the first chunks were wanted.
    begun: Option<Duration>,
    account: Account,
}

impl Scheduler {
    /// Nothing wanted yet.
    pub fn new(settings: Settings) -> Self {
        let budget = Budget::new(settings.effort);
        let unknown = Standing { now: Duration::ZERO, network_time: f64::INFINITY, rate: 0.0, wanted: 0 };
        Self {
            groups: Groups::default(),
            candidates: Candidates::new(settings.limits),
            running: BTreeMap::new(),
            next: 0,
            costs: settings.costs,
            network: NetworkSide::new(settings.rate),
            backpressure: Backpressure::default(),
            recomputing: Recomputing::default(),
            search: SearchPolicy::default(),
            searches: true,
            left: budget.left(&unknown),
            has_passed_over: false,
            budget,
            parallel: settings.parallel.max(1),
            to_check: Vec::new(),
            seen_directories: BTreeSet::new(),
            seen_files: HashSet::new(),
            arrivals: GroupArrivals::default(),
            is_withholding: false,
            begun: None,
            account: Account::default(),
        }
    }

    /// Takes in an event at `now`, the time since the transfer began, and says what to do.
    pub fn handle(&mut self, now: Duration, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        self.take_in(now, event, &mut actions);
        self.decide(now);
        self.look_into_budget(now);
        self.pause_or_resume(&mut actions);
        self.start_checks(now, &mut actions);
        self.start_operations(now, &mut actions);
        self.give_up(now, &mut actions);
        self.ask_network(now, &mut actions);
        let (open, total) = (self.groups.open(), self.groups.total());
        let operations = self.candidates.len() as u64;
        if self.recomputing.is_due(now, open, total, operations, &self.backpressure) {
            actions.push(Action::Recompute);
        }
        self.note_bottleneck(now);
        actions
    }

    /// Computes the order of all candidates anew.
    pub fn recompute(&mut self) {
        self.candidates.recompute(&self.groups, &self.costs);
        self.arrivals.changed();
    }

    /// True if no chunk is missing.
    pub fn is_complete(&self) -> bool {
        self.groups.is_empty()
    }

    /// Bytes missing.
    pub fn missing(&self) -> u64 {
        self.groups.open_bytes()
    }

    /// Bytes a second of the network as measured; 0 before anything was.
    pub fn network_rate(&self, now: Duration) -> f64 {
        self.network.rate(now)
    }

    /// As much of it as crosses the network: what deltas save makes it faster than it is.
    pub fn wire_rate(&self, now: Duration) -> f64 {
        let Account { from_network, in_vain, by_delta, .. } = self.account;
        let come = (from_network + in_vain).max(1) as f64;
        self.network.rate(now) * (1.0 - (by_delta as f64 / come).min(1.0))
    }

    /// Account of what was done so far.
    pub fn account(&self) -> Account {
        let (recomputations, recomputing) = self.recomputing.spent();
        Account {
            recomputations,
            recomputing,
            forgotten: self.candidates.forgotten(),
            ..self.account.clone()
        }
    }

    /// Seconds until the disk can be expected to bring what a group misses.
    pub fn expected_arrival(&self, id: GroupId, now: Duration) -> f64 {
        let running = self.running.values().filter(|it| !it.is_paused && !it.is_check()).map(|it| {
            let remaining = it.remaining(now);
            let probability = it.probability(id, &self.groups);
            ArrivalStep { total: remaining, cpc: remaining, probability }
        });
        let planned = self.candidates.ordered(self.left.is_some());
        let planned = planned.take(if self.searches { AHEAD } else { 0 });
        let planned = planned.map(|(_, candidate)| ArrivalStep {
            total: candidate.total(&self.costs),
            cpc: candidate.cpc(&self.costs),
            probability: candidate.probability(id, &self.groups),
        });
        arrival::expected(running.chain(planned), self.otherwise(now))
    }

    /// Cost of a chunk that the disk does not have: as good as never, seen from the disk.
    fn otherwise(&self, now: Duration) -> f64 {
        2.0 * self.network_time(now).min(1e9) + 1.0
    }

    fn network_time(&self, now: Duration) -> f64 {
        self.network.time_for(now, self.groups.open_bytes())
    }

    fn take_in(&mut self, now: Duration, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::Wanted { files, chunks } => {
                self.begun.get_or_insert(now);
                let tags = chunks.iter().map(|chunk| chunk.tag).collect::<Vec<_>>();
                if let Some(id) = self.groups.add(files, chunks) {
                    self.arrivals.waits(id);
                    self.to_check.extend(tags);
                    self.recomputing.changed();
                }
            }
            Event::ExtraDirectories(directories) => self.groups.ask(directories),
            Event::Look(directories) => {
                for directory in directories {
                    self.see_directory(directory, true);
                }
            }
            Event::Seen(files) => files.into_iter().for_each(|file| self.see_file(Arc::new(file), 0, true)),
            Event::Withdrawn(tags) => self.withdraw(now, &tags),
            Event::Found { operation, tags } => self.found(now, operation, &tags, actions),
            Event::Arrived { tag, len, saved } => {
                self.account.by_delta += u64::from(saved);
                self.arrived(now, tag, len);
            }
            Event::NotBrought(tags) => {
                for tag in tags {
                    let Some((group, len)) = self.groups.wait_again(tag) else { continue };
                    self.arrivals.waits(group);
                    self.network.given_up(now, u64::from(len));
                }
            }
            Event::Listed { operation, files, directories } => self.listed(operation, files, directories),
            Event::Completed { operation, took, end } => self.completed(now, operation, took, end),
            Event::Backpressure(queues) => self.backpressure.look(queues),
            Event::Recomputed(took) => self.recomputing.took(took),
            Event::Tick => {}
        }
    }

    fn withdraw(&mut self, now: Duration, tags: &[Tag]) {
        for tag in tags {
            if let Some((ChunkState::Requested, len)) = self.groups.end(*tag) {
                self.network.given_up(now, u64::from(len));
            }
        }
    }

    fn found(&mut self, now: Duration, operation: OperationId, tags: &[Tag], actions: &mut Vec<Action>) {
        let (directory, is_index) = match self.running.get(&operation).map(|it| &it.candidate.operation) {
            Some(PlannedOperation::Hash(file)) => (Some(file.directory.clone()), false),
            Some(PlannedOperation::Read { file, .. }) => (Some(file.directory.clone()), true),
            _ => (None, false),
        };
        let mut unneeded = Vec::new();
        for &tag in tags {
            let Some((group, chunk, _)) = self.groups.find(tag) else { continue };
            if !is_index {
                self.groups.reached(tag);
            }
            if let Some(running) = self.running.get_mut(&operation) {
                running.brought += u64::from(chunk.len);
                if running.candidate.is_wide {
                    self.budget.found(u64::from(chunk.len));
                }
                if running.found.insert(group) {
                    self.arrivals.changed_for(group);
                }
            }
            if directory.as_ref().is_some_and(|directory| self.groups.found_in(group, directory)) {
                self.recomputing.changed();
            }
            let Some((state, len)) = self.groups.end(tag) else { continue };
            let source = if is_index { &mut self.account.from_index } else { &mut self.account.from_files };
            *source += u64::from(len);
            if state == ChunkState::Requested {
                self.network.given_up(now, u64::from(len));
                unneeded.push(tag);
            }
        }
        if !unneeded.is_empty() {
            actions.push(Action::CancelNetwork(unneeded));
        }
    }

    fn arrived(&mut self, now: Duration, tag: Tag, len: u32) {
        match self.groups.end(tag) {
            Some((ChunkState::Requested, _)) => {
                self.network.arrived(now, u64::from(len));
                self.account.from_network += u64::from(len);
            }
            Some(_) => self.account.from_network += u64::from(len),
            None => self.account.in_vain += u64::from(len),
        }
    }

    fn completed(&mut self, now: Duration, id: OperationId, took: Duration, end: End) {
        let Some(running) = self.running.remove(&id) else { return };
        self.account.disk_time += took;
        self.arrivals.changed();
        if running.candidate.is_wide {
            let bytes = if let End::Hashed { bytes } = end { bytes } else { 0 };
            let looked = BudgetUse { took, bytes, brought: running.brought };
            self.budget.spent(now, looked, self.backpressure.others_wait());
        }
        match (running.candidate.operation, end) {
            (PlannedOperation::Stat(_), End::Listed) => self.costs.listed(took),
            (PlannedOperation::Hash(_), End::Hashed { bytes }) => {
                self.costs.hashed(bytes, took);
                self.account.hashed_bytes += bytes;
            }
            (PlannedOperation::Check(_), End::Checked(hits)) => {
                hits.into_iter().for_each(|(file, spans)| self.see_hits(file, spans));
            }
            (PlannedOperation::Read { .. }, End::Read { chunks }) => self.costs.read(chunks, took),
            _ => {}
        }
    }

    fn listed(&mut self, id: OperationId, files: Vec<File>, directories: Vec<Box<[u8]>>) {
        let Some(PlannedOperation::Stat(directory)) = self.running.get(&id).map(|it| &it.candidate.operation)
        else {
            return;
        };
        let directory = directory.clone();
        directories.into_iter().for_each(|name| self.see_directory(directory.child(&name), false));
        files.into_iter().for_each(|file| self.see_file(Arc::new(file), 0, false));
    }

    /// A directory becomes a candidate. What was named from outside is remembered, since its parent
    /// may name it again; all others have one parent that names them once.
    fn see_directory(&mut self, directory: SplitDirectory, is_named: bool) {
        if self.seen_directories.contains(&directory) {
            return;
        }
        if is_named && self.seen_directories.len() < REMEMBERED {
            self.seen_directories.insert(directory.clone());
        }
        self.add(PlannedOperation::Stat(directory), 0);
    }

    /// A file becomes a candidate. One that may be listed later, too, is remembered.
    fn see_file(&mut self, file: Arc<File>, promised: u64, may_come_again: bool) {
        let known = BuildHasherDefault::<DefaultHasher>::default().hash_one((&file.directory, &file.name));
        if file.size == 0 || self.seen_files.contains(&known) {
            return;
        }
        if may_come_again && self.seen_files.len() < REMEMBERED {
            self.seen_files.insert(known);
        }
        self.add(PlannedOperation::Hash(file), promised);
    }

    /// The index has chunks in a file: they are read one by one, or with the whole file.
    fn see_hits(&mut self, file: Arc<File>, mut spans: Vec<Span>) {
        let chunks = spans.len() as u64;
        if reading(chunks, file.size, &self.costs) == FileReading::WholeFile {
            return self.see_file(file, chunks, true);
        }
        spans.sort_unstable_by_key(|span| span.offset);
        self.add(PlannedOperation::Read { file, spans }, chunks);
    }

    fn add(&mut self, operation: PlannedOperation, promised: u64) {
        let candidate = Candidate::new(operation, promised, &self.groups);
        self.candidates.add(self.next, candidate, &self.costs);
        self.next += 1;
    }

    /// Decides whether the search goes on: not on a network that is about as fast as the disk.
    fn decide(&mut self, now: Duration) {
        let goes_on = self.search.goes_on(self.network.rate(now), self.costs.hash_rate());
        let searches = goes_on && self.backpressure.disk_is_free() && !self.groups.is_empty();
        if searches != self.searches {
            self.arrivals.changed();
        }
        self.searches = searches;
    }

    /// The transfer, as the budget has to know it.
    fn standing(&self, now: Duration) -> Standing {
        let wanted = self.groups.open_bytes() + self.account.from_network + self.account.from_disk();
        Standing { now, network_time: self.network_time(now), rate: self.network.rate(now), wanted }
    }

    /// Looks up what may be spent on the wide search now.
    fn look_into_budget(&mut self, now: Duration) {
        let left = self.budget.left(&self.standing(now));
        if left.is_some() != self.left.is_some() && self.candidates.has_wide() {
            self.arrivals.changed();
        }
        self.left = left;
        if !self.groups.is_empty() {
            self.account.is_limited |= self.has_passed_over || !left.is_some() && self.candidates.has_wide();
        }
    }

    /// If nothing was found with the whole budget, and nothing near is left to look at, the rest comes as pieces: a network
    /// brings them with less work for both sides.
    fn give_up(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let is_vain = self.account.from_disk() == 0 && self.account.by_delta == 0;
        let is_over = self.running.is_empty() && self.to_check.is_empty() && self.searches;
        if !is_vain
            || !is_over
            || self.groups.waiting_bytes() == 0
            || !self.budget.is_spent(&self.standing(now))
        {
            return;
        }
        // Something near may be left that could not pay yet.
        if self.best(now, false).is_some() {
            return;
        }
        let tags = self.groups.all_waiting();
        for tag in &tags {
            self.groups.end(*tag);
        }
        actions.push(Action::GiveUp(tags));
    }

    fn pause_or_resume(&mut self, actions: &mut Vec<Action>) {
        let rests = !self.searches;
        for (id, running) in self.running.iter_mut().filter(|(_, it)| it.is_paused != rests) {
            running.is_paused = rests;
            actions.push(if rests { Action::Pause(*id) } else { Action::Resume(*id) });
        }
    }

    /// The index is in memory and answers at once, so it is asked first and besides all else.
    fn start_checks(&mut self, now: Duration, actions: &mut Vec<Action>) {
        if !self.searches
            || self.to_check.is_empty()
            || self.running.values().any(ScheduledOperation::is_check)
        {
            return;
        }
        let rest = self.to_check.split_off(self.to_check.len().min(CHECKED_AT_ONCE));
        let tags = std::mem::replace(&mut self.to_check, rest);
        self.account.checks += tags.len() as u64;
        self.start(now, Candidate::new(PlannedOperation::Check(tags), 0, &self.groups), actions);
    }

    fn start_operations(&mut self, now: Duration, actions: &mut Vec<Action>) {
        while self.searches && self.running.values().filter(|it| !it.is_check()).count() < self.parallel {
            let Some(best) = self.best(now, self.left.is_some()).or_else(|| self.best(now, false)) else {
                return;
            };
            let Some(mut candidate) = self.candidates.take(best) else { return };
            if let PlannedOperation::Read { spans, .. } = &mut candidate.operation {
                spans.retain(|span| self.groups.find(span.tag).is_some());
                if spans.is_empty() {
                    continue;
                }
            }
            self.start(now, candidate, actions);
        }
    }

    /// The first that can pay and that the budget allows, of the best. Those that are too large for it go.
    fn best(&mut self, now: Duration, with_wide: bool) -> Option<OperationId> {
        let time = self.network_time(now);
        let (left, costs) = (self.left, self.costs);
        let too_large = |it: &Candidate| it.is_wide && !left.has_bytes(it.own_cost(&costs).1);
        let is_allowed = |it: &Candidate| {
            let (seconds, bytes) = it.own_cost(&costs);
            can_pay(it.total(&costs), time) && (!it.is_wide || left.allows(seconds, bytes))
        };
        let best = || self.candidates.ordered(with_wide).take(TRIED);
        let found = best().find(|(_, it)| is_allowed(it)).map(|(id, _)| id);
        if found.is_none() {
            self.account.is_limited |= best().any(|(_, it)| it.is_wide && can_pay(it.total(&costs), time));
            let passed_over: Vec<_> = best().filter(|(_, it)| too_large(it)).map(|(id, _)| id).collect();
            self.has_passed_over |= !passed_over.is_empty();
            passed_over.into_iter().for_each(|id| drop(self.candidates.take(id)));
        }
        found
    }

    fn start(&mut self, now: Duration, candidate: Candidate, actions: &mut Vec<Action>) {
        let id = self.next;
        self.next += 1;
        match candidate.operation {
            PlannedOperation::Stat(_) => self.account.stats += 1,
            PlannedOperation::Hash(_) => self.account.hashes += 1,
            PlannedOperation::Check(_) | PlannedOperation::Read { .. } => {}
        }
        let total = match candidate.operation {
            PlannedOperation::Stat(_) => self.costs.stat(),
            _ => candidate.total(&self.costs),
        };
        let is_wide = candidate.is_wide;
        actions.push(Action::Start { id, operation: candidate.operation.clone(), is_wide });
        self.running.insert(
            id,
            ScheduledOperation {
                candidate,
                started: now,
                total,
                is_paused: false,
                found: BTreeSet::new(),
                brought: 0,
            },
        );
        self.arrivals.changed();
    }

    /// Asks for what the disk will bring last, as long as there is room and the network is sooner.
    fn ask_network(&mut self, now: Duration, actions: &mut Vec<Action>) {
        self.is_withholding = false;
        while self.groups.waiting_bytes() > 0 {
            let room = self.backpressure.room(self.network.outstanding());
            if room == 0 {
                return;
            }
            let Some((id, eta)) = self.latest(now) else { return };
            if self.is_glancing(now) {
                self.is_withholding = true;
                return;
            }
            let bytes = RUN.min(room);
            let passed = self.groups.take_passed(id, bytes);
            if !passed.is_empty() {
                self.ask(now, passed, actions);
                continue;
            }
            let (rate, round_trip) = (self.network.rate(now), self.backpressure.round_trip());
            let outstanding = self.network.outstanding();
            let saved = if rate > 0.0 { self.account.from_disk() as f64 / rate } else { 0.0 };
            let is_sooner =
                arrival::is_sooner_from_network(eta, round_trip, outstanding, bytes.min(64 << 10), rate);
            if (!is_sooner || self.competes(id, rate, now))
                && self.network.may_wait(now, self.network_time(now), saved)
            {
                self.is_withholding = true;
                return;
            }
            let run = self.groups.take_run(id, bytes, self.disk_is_at(id));
            if run.is_empty() {
                return;
            }
            self.ask(now, run, actions);
        }
    }

    fn ask(&mut self, now: Duration, run: Vec<WantedChunk>, actions: &mut Vec<Action>) {
        self.network.requested(now, run.iter().map(|chunk| u64::from(chunk.len)).sum());
        actions.push(Action::AskNetwork(run.into_iter().map(|chunk| chunk.tag).collect()));
    }

    /// True if what the network brings of a group takes processors from the file that is being read for it, and that
    /// brings more.
    fn competes(&self, id: GroupId, rate: f64, now: Duration) -> bool {
        let brings_more = |it: &ScheduledOperation| {
            let elapsed = now.saturating_sub(it.started).as_secs_f64();
            it.found.contains(&id) && it.brought as f64 > MORE * rate * elapsed
        };
        self.backpressure.processors_are_short() && self.running.values().any(brings_more)
    }

    /// True in the first moments of a search on a slow network, while something is looked at that is over soon.
    fn is_glancing(&self, now: Duration) -> bool {
        let glance = self.glance(now);
        let elapsed = self.begun.map_or(glance, |begun| now.saturating_sub(begun).as_secs_f64());
        let is_slow = self.network.time_for(now, RUN) > LONG_RUN;
        let looks = |it: &ScheduledOperation| {
            let is_hash = matches!(it.candidate.operation, PlannedOperation::Hash(_));
            !it.is_paused && (!is_hash || elapsed + it.remaining(now) < glance)
        };
        elapsed < glance && is_slow && self.searches && self.running.values().any(looks)
    }

    /// Seconds that the network waits for the first look around. While nothing came it takes longer than it was
    /// asked, and that is all that is known of it.
    fn glance(&self, now: Duration) -> f64 {
        let asked = self.begun.unwrap_or_default().as_secs_f64();
        match self.network_time(now) {
            time if time.is_infinite() => GLANCE.min(asked),
            time => GLANCE.min(GLANCE_SHARE * time),
        }
    }

    /// The group with something to ask for that the disk brings last, and when that is.
    fn latest(&mut self, now: Duration) -> Option<(GroupId, f64)> {
        let mut arrivals = std::mem::take(&mut self.arrivals);
        let waits = |id| self.groups.waiting(id) > 0;
        let latest = arrivals.latest(now.as_secs_f64(), waits, |id| self.expected_arrival(id, now));
        self.arrivals = arrivals;
        latest
    }

    /// True if a file is being read that likely has the group's chunks: it begins at their front.
    fn disk_is_at(&self, id: GroupId) -> bool {
        self.running.values().any(|it| it.is_at(id, &self.groups))
    }

    fn note_bottleneck(&mut self, now: Duration) {
        if self.groups.is_empty() {
            return;
        }
        let bottleneck = match () {
            () if self.backpressure.writer_is_behind() => Bottleneck::Disk,
            () if self.backpressure.receiver_is_behind() => Bottleneck::Processor,
            () if self.is_withholding => Bottleneck::Search,
            () => Bottleneck::Network,
        };
        self.account.bottleneck(now, bottleneck);
    }
}
