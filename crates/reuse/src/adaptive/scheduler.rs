//! The control loop (§3.2) as a state machine: fed events and the time, it answers with what to do.
//!
//! Each event costs little: a chunk changes its state, a candidate finds its place in the order. What
//! needs all pairs of operations and groups is left to [`Scheduler::recompute`], which the driver
//! runs and measures when asked.

use std::sync::Arc;
use std::time::Duration;

use towpath_transfer::Tag;
use towpath_transfer::rate::Rate;

use super::account::{Account, Bottleneck};
use super::arrival;
use super::arrivals::GroupArrivals;
use super::backpressure::{Backpressure, Recomputing};
use super::benefit::SearchPolicy;
use super::budget::{BudgetUse, Effort, Standing};
use super::costs::Costs;
use super::disk::DiskSide;
use super::event::{Action, End, Event};
use super::glance::FirstGlance;
use super::groups::{ChunkState, GroupId, Groups, WantedChunk};
use super::network::{NetworkSide, RUN};
use super::operations::{Candidate, DiskLimits, OperationId, PlannedOperation};
use super::wide::WideSearch;

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

/// Decides, chunk by chunk, between index, files and network.
pub struct Scheduler {
    groups: Groups,
    disk: DiskSide,
    network: NetworkSide,
    backpressure: Backpressure,
    recomputing: Recomputing,
    search: SearchPolicy,
    searches: bool,
    wide: WideSearch,
    arrivals: GroupArrivals,
    glance: FirstGlance,
    is_withholding: bool,
    account: Account,
}

impl Scheduler {
    /// Nothing wanted yet.
    pub fn new(settings: Settings) -> Self {
        let Settings { limits, parallel, costs, rate, effort } = settings;
        Self {
            groups: Groups::default(),
            disk: DiskSide::new(limits, parallel, costs),
            network: NetworkSide::new(rate),
            backpressure: Backpressure::default(),
            recomputing: Recomputing::default(),
            search: SearchPolicy::default(),
            searches: true,
            wide: WideSearch::new(effort),
            arrivals: GroupArrivals::default(),
            glance: FirstGlance::default(),
            is_withholding: false,
            account: Account::default(),
        }
    }

    /// Takes in an event at `now`, the time since the transfer began, and says what to do.
    pub fn handle(&mut self, now: Duration, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        self.take_in(now, event, &mut actions);
        self.decide(now);
        self.look_into_budget(now);
        self.disk.running.rest(!self.searches, &mut actions);
        self.start_checks(now, &mut actions);
        self.start_operations(now, &mut actions);
        self.give_up(now, &mut actions);
        self.ask_network(now, &mut actions);
        let (open, total) = (self.groups.open(), self.groups.total());
        let operations = self.disk.candidates.len() as u64;
        if self.recomputing.is_due(now, open, total, operations, &self.backpressure) {
            actions.push(Action::Recompute);
        }
        self.note_bottleneck(now);
        actions
    }

    /// Computes the order of all candidates anew.
    pub fn recompute(&mut self) {
        self.disk.candidates.recompute(&self.groups, &self.disk.costs);
        self.arrivals.changed();
    }

    /// True if no chunk is missing.
    pub fn is_complete(&self) -> bool {
        self.groups.is_empty()
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
            forgotten: self.disk.candidates.forgotten(),
            ..self.account.clone()
        }
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
                self.glance.begin(now);
                let tags = chunks.iter().map(|chunk| chunk.tag).collect::<Vec<_>>();
                if let Some(id) = self.groups.add(files, chunks) {
                    self.arrivals.waits(id);
                    self.disk.check(tags);
                    self.recomputing.changed();
                }
            }
            Event::ExtraDirectories(directories) => self.groups.ask(directories),
            Event::Look(directories) => {
                for directory in directories {
                    self.disk.see_directory(directory, true, &self.groups);
                }
            }
            Event::Seen(files) => {
                for file in files {
                    self.disk.see_file(Arc::new(file), 0, true, &self.groups);
                }
            }
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
            Event::Listed { operation, files, directories } => {
                self.disk.listed(operation, files, directories, &self.groups);
            }
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
        let (directory, is_index) = match self.disk.running.get(operation).map(|it| &it.candidate.operation) {
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
            if let Some(running) = self.disk.running.get_mut(operation) {
                running.brought += u64::from(chunk.len);
                if running.candidate.is_wide {
                    self.wide.found(u64::from(chunk.len));
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
        let Some(running) = self.disk.running.end(id) else { return };
        self.account.disk_time += took;
        self.arrivals.changed();
        if running.candidate.is_wide {
            let bytes = if let End::Hashed { bytes } = end { bytes } else { 0 };
            let looked = BudgetUse { took, bytes, brought: running.brought };
            self.wide.spent(now, looked, self.backpressure.others_wait());
        }
        match (running.candidate.operation, end) {
            (PlannedOperation::Stat(_), End::Listed) => self.disk.costs.listed(took),
            (PlannedOperation::Hash(_), End::Hashed { bytes }) => {
                self.disk.costs.hashed(bytes, took);
                self.account.hashed_bytes += bytes;
            }
            (PlannedOperation::Check(_), End::Checked(hits)) => {
                hits.into_iter().for_each(|(file, spans)| self.disk.see_hits(file, spans, &self.groups));
            }
            (PlannedOperation::Read { .. }, End::Read { chunks }) => self.disk.costs.read(chunks, took),
            _ => {}
        }
    }

    /// Decides whether the search goes on: not on a network that is about as fast as the disk.
    fn decide(&mut self, now: Duration) {
        let goes_on = self.search.goes_on(self.network.rate(now), self.disk.costs.hash_rate());
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
        let standing = self.standing(now);
        let has_wide = self.disk.candidates.has_wide();
        if self.wide.look(&standing) && has_wide {
            self.arrivals.changed();
        }
        if !self.groups.is_empty() {
            self.account.is_limited |= self.wide.limits(has_wide);
        }
    }

    /// If nothing was found with the whole budget, and nothing near is left to look at, the rest comes as pieces: a network
    /// brings them with less work for both sides.
    fn give_up(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let is_vain = self.account.from_disk() == 0 && self.account.by_delta == 0;
        let is_over = self.disk.is_idle() && self.searches;
        if !is_vain
            || !is_over
            || self.groups.waiting_bytes() == 0
            || !self.wide.is_spent(&self.standing(now))
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

    fn start_checks(&mut self, now: Duration, actions: &mut Vec<Action>) {
        if self.searches
            && let Some(check) = self.disk.next_check(&self.groups)
        {
            self.start(now, check, actions);
        }
    }

    fn start_operations(&mut self, now: Duration, actions: &mut Vec<Action>) {
        while self.searches && self.disk.has_room() {
            let best = self.best(now, self.wide.has_some()).or_else(|| self.best(now, false));
            let Some(mut candidate) = best.and_then(|best| self.disk.candidates.take(best)) else { return };
            if let PlannedOperation::Read { spans, .. } = &mut candidate.operation {
                spans.retain(|span| self.groups.find(span.tag).is_some());
                if spans.is_empty() {
                    continue;
                }
            }
            self.start(now, candidate, actions);
        }
    }

    /// The first that can pay and that the budget allows, of the best.
    fn best(&mut self, now: Duration, with_wide: bool) -> Option<OperationId> {
        let time = self.network_time(now);
        self.disk.best(time, with_wide, (&mut self.wide, &mut self.account))
    }

    fn start(&mut self, now: Duration, candidate: Candidate, actions: &mut Vec<Action>) {
        self.disk.start(now, candidate, &mut self.account, actions);
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
            let run = self.groups.take_run(id, bytes, self.disk.running.are_at(id, &self.groups));
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
        self.backpressure.processors_are_short() && self.disk.running.bring_more(id, rate, now)
    }

    /// True in the first moments of a search on a slow network, while something is looked at that is over soon.
    fn is_glancing(&self, now: Duration) -> bool {
        let run_time = self.network.time_for(now, RUN);
        self.searches && self.glance.lasts(now, self.network_time(now), run_time, &self.disk.running)
    }

    /// The group with something to ask for that the disk brings last, and when that is.
    fn latest(&mut self, now: Duration) -> Option<(GroupId, f64)> {
        let (otherwise, with_wide) = (self.otherwise(now), self.searches.then(|| self.wide.has_some()));
        let (groups, disk) = (&self.groups, &self.disk);
        let expected = |id| disk.expected_arrival((id, groups), now, with_wide, otherwise);
        self.arrivals.latest(now.as_secs_f64(), |id| groups.waiting(id) > 0, expected)
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
