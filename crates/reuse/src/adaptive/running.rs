//! Operations under way on the disk: how long they still take, and what they bring.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::arrival::ArrivalStep;
use super::event::Action;
use super::groups::{GroupId, Groups};
use super::operations::{Candidate, OperationId, PlannedOperation};
use crate::policy::table::LEFT_PROCESSORS;

/// From this likelihood on the network leaves the front of a group to the disk and takes its end.
const LIKELY: f64 = 0.5;
/// Probability that a file that had chunks of a group has the next one.
const ONCE_FOUND: f64 = 0.9;

/// An operation under way.
pub struct ScheduledOperation {
    /// The operation, as it was chosen.
    pub candidate: Candidate,
    started: Duration,
    total: f64,
    is_paused: bool,
    /// Groups of which it has found chunks.
    pub found: BTreeSet<GroupId>,
    /// Bytes of these.
    pub brought: u64,
}

impl ScheduledOperation {
    /// An operation that begins at `now` and is expected to take so many seconds in all.
    pub fn new(candidate: Candidate, now: Duration, total: f64) -> Self {
        Self { candidate, started: now, total, is_paused: false, found: BTreeSet::new(), brought: 0 }
    }

    /// Probability that it brings a chunk of the group: one that brought some goes on so.
    pub fn probability(&self, id: GroupId, groups: &Groups) -> f64 {
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
    pub fn remaining(&self, now: Duration) -> f64 {
        let elapsed = now.saturating_sub(self.started).as_secs_f64();
        if elapsed < self.total { self.total - elapsed } else { elapsed }
    }

    /// It only asks the index.
    pub fn is_check(&self) -> bool {
        matches!(self.candidate.operation, PlannedOperation::Check(_))
    }

    /// It brings more than a network of so many bytes a second would have meanwhile.
    fn brings_more(&self, rate: f64, now: Duration) -> bool {
        let elapsed = now.saturating_sub(self.started).as_secs_f64();
        self.brought as f64 > LEFT_PROCESSORS * rate * elapsed
    }
}

/// All operations under way, by their numbers.
#[derive(Default)]
pub struct RunningOperations {
    all: BTreeMap<OperationId, ScheduledOperation>,
}

impl RunningOperations {
    /// One begins.
    pub fn begin(&mut self, id: OperationId, operation: ScheduledOperation) {
        self.all.insert(id, operation);
    }

    /// One is over.
    pub fn end(&mut self, id: OperationId) -> Option<ScheduledOperation> {
        self.all.remove(&id)
    }

    /// One of them.
    pub fn get(&self, id: OperationId) -> Option<&ScheduledOperation> {
        self.all.get(&id)
    }

    /// One of them, to note what it found.
    pub fn get_mut(&mut self, id: OperationId) -> Option<&mut ScheduledOperation> {
        self.all.get_mut(&id)
    }

    /// True if nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// True if the index is being asked.
    pub fn has_check(&self) -> bool {
        self.all.values().any(ScheduledOperation::is_check)
    }

    /// Operations that keep the disk busy.
    pub fn on_disk(&self) -> usize {
        self.all.values().filter(|it| !it.is_check()).count()
    }

    /// Pauses all, or lets all go on.
    pub fn rest(&mut self, rests: bool, actions: &mut Vec<Action>) {
        for (id, running) in self.all.iter_mut().filter(|(_, it)| it.is_paused != rests) {
            running.is_paused = rests;
            actions.push(if rests { Action::Pause(*id) } else { Action::Resume(*id) });
        }
    }

    /// Ends of those that work, and their probabilities of bringing a chunk of a group.
    pub fn arrivals<'a>(
        &'a self,
        id: GroupId,
        groups: &'a Groups,
        now: Duration,
    ) -> impl Iterator<Item = ArrivalStep> + 'a {
        self.all.values().filter(|it| !it.is_paused && !it.is_check()).map(move |it| {
            let remaining = it.remaining(now);
            let probability = it.probability(id, groups);
            ArrivalStep { total: remaining, cpc: remaining, probability }
        })
    }

    /// True if a file is being read that likely has the group's chunks: it begins at their front.
    pub fn are_at(&self, id: GroupId, groups: &Groups) -> bool {
        self.all.values().any(|it| it.is_at(id, groups))
    }

    /// True if a file is being read that brings more of the group than a network of so many bytes a second.
    pub fn bring_more(&self, id: GroupId, rate: f64, now: Duration) -> bool {
        self.all.values().any(|it| it.found.contains(&id) && it.brings_more(rate, now))
    }

    /// True if something is looked at that is over before so many seconds in all, of which `elapsed` are gone: a file may
    /// take longer, all else is short.
    pub fn are_over_before(&self, seconds: f64, elapsed: f64, now: Duration) -> bool {
        let is_short = |it: &ScheduledOperation| {
            let is_hash = matches!(it.candidate.operation, PlannedOperation::Hash(_));
            !it.is_paused && (!is_hash || elapsed + it.remaining(now) < seconds)
        };
        self.all.values().any(is_short)
    }
}
