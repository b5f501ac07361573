//! All that the dealer knows: sources, runs and lots, and how what happens changes the three together.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use super::event::{DealtPart, SourceFacts, SourceHolding, SourceNumber, WantedRange};
use super::rarity::Lots;
use super::runs::{ASKERS, DealtRun, DealtRuns, RunAsker, RunId};
use super::sources::{DealtSource, DealtSources};
use towpath_transfer::Tag;
use towpath_transfer::intervals::Intervals;

/// A source that says it has so many stretches is believed further ones only if they are so long: each edge cuts
/// wants.
const MANY: usize = 4096;
const LONG: u64 = 64 << 10;
/// Sources behind whose work is taken over with each event.
const OUTDONE: usize = 4;

/// Sources that went away and are remembered by what they had: they may come back.
const AWAY: usize = 4;

/// Wants that a source need not bring any more.
pub type Cancelled = Vec<(SourceNumber, DealtPart)>;

/// A source has these bytes now, or has them no more: to be told to the lots.
#[derive(Debug)]
struct HoldingChange {
    source: SourceNumber,
    /// The rest of the bytes.
    range: Range<u64>,
    has: bool,
}

/// Sources, runs and lots.
#[derive(Debug)]
pub struct DealerState {
    /// All sources.
    pub sources: DealtSources,
    /// All runs that have not come.
    pub runs: DealtRuns,
    /// Who has what, and what of it waits.
    pub lots: Lots,
    /// Bytes that will be wanted later.
    pub to_come: u64,
    /// Work done so far: lots, runs and sources looked at.
    pub steps: u64,
    /// Runs that two sources are asked for.
    pub twice: BTreeSet<RunId>,
    /// The source that is relied on until something is known.
    leader: Option<SourceNumber>,
    changes: VecDeque<HoldingChange>,
    /// Parts that sources had which went away, the last ones.
    away: VecDeque<Intervals>,
}

impl DealerState {
    /// Nothing is there, nothing is wanted.
    pub fn new(seed: u64) -> Self {
        Self {
            sources: DealtSources::default(),
            runs: DealtRuns::default(),
            lots: Lots::new(seed),
            to_come: 0,
            steps: 0,
            twice: BTreeSet::new(),
            leader: None,
            changes: VecDeque::new(),
            away: VecDeque::new(),
        }
    }

    /// Bytes that have to come, now and later.
    pub fn remaining(&self) -> u64 {
        self.lots.waiting() + self.sources.outstanding() + self.to_come
    }

    /// Seconds until all is there, if all sources in front are busy until then.
    pub fn end(&self) -> f64 {
        self.sources.front().map_or(f64::INFINITY, |(_, sums)| {
            (self.remaining() + sums.delayed) as f64 / sums.rate.max(1) as f64
        })
    }

    /// A source is there.
    pub fn add_source(&mut self, now: f64, id: SourceNumber, facts: SourceFacts, holding: SourceHolding) {
        let (has, ranges) = match holding {
            SourceHolding::Everything => (None, Vec::new()),
            SourceHolding::Parts(ranges) => (Some(Intervals::default()), ranges),
        };
        let cursor = self.lots.chance(u64::from(id));
        let source = DealtSource::new(facts, has, cursor);
        self.sources.insert(id, source, now);
        self.have(id, ranges);
    }

    /// Relies on one of those in front as long as nothing is known of any: on the fastest that has everything, else on this one,
    /// and on another one where the one before is in front no more.
    pub fn rely_on_one(&mut self, changed: SourceNumber) {
        let complete = self.sources.best_complete();
        let has_everything = |id| self.sources.get(id).is_some_and(|source| source.has.is_none());
        let leads = |id| self.sources.is_in_front(id) && (complete.is_none() || has_everything(id));
        if self.leader.is_some_and(leads) || self.sources.is_any_known() {
            return;
        }
        let in_front = Some(changed).filter(|&id| self.sources.is_in_front(id));
        let Some(id) = complete.or(in_front).or_else(|| self.sources.any_in_front()) else { return };
        if let Some(source) = self.sources.get_mut(id) {
            source.leads = true;
            self.leader = Some(id);
            self.sources.look_at(id);
        }
    }

    /// A source has more.
    pub fn have(&mut self, id: SourceNumber, added: Vec<Range<u64>>) {
        let Some(has) = self.sources.get_mut(id).and_then(|source| source.has.as_mut()) else { return };
        let mut count = has.iter().count();
        for range in added.into_iter().filter(|range| range.start < range.end) {
            if count > MANY && range.end - range.start < LONG {
                continue;
            }
            count += 1;
            for new in has.gaps(&range) {
                self.changes.push_back(HoldingChange { source: id, range: new, has: true });
            }
            has.insert(range);
        }
    }

    /// A source is gone.
    pub fn remove_source(&mut self, now: f64, id: SourceNumber) {
        self.take_back(now, id);
        self.lots.close(id);
        self.changes.retain(|change| change.source != id || !change.has);
        let Some(source) = self.sources.remove(id) else { return };
        for range in source.has.iter().flat_map(Intervals::iter) {
            self.changes.push_back(HoldingChange { source: id, range, has: false });
        }
        self.away.extend(source.has.filter(|has| !has.is_empty()));
        self.away.drain(..self.away.len().saturating_sub(AWAY));
    }

    /// True if a source that went away had this byte, and not all of them.
    pub fn had_by_one_away(&self, at: u64) -> bool {
        self.away.iter().any(|had| had.covers(&(at..at + 1)))
    }

    /// True if lots have not been told all that sources have.
    pub fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Tells lots what sources have, so many lots at a time. Whose lots changed.
    pub fn tell_lots(&mut self, count: usize) -> Vec<SourceNumber> {
        let mut changed = Vec::new();
        for _ in 0..count {
            let Some(HoldingChange { source, range, has }) = self.changes.pop_front() else { break };
            self.edge(range.start);
            self.edge(range.end);
            // With too many lots there may be no edge: then only what lies wholly in the range counts.
            let begin = self.lots.begin(range.start);
            let whole = begin == range.start && self.lots.end(begin) <= range.end;
            let next = if whole { self.lots.hold(begin, source, has) } else { self.lots.end(range.start) };
            if next < range.end {
                self.changes.push_front(HoldingChange { source, range: next..range.end, has });
            } else {
                self.lots.join(range.end);
                changed.push(source);
            }
        }
        changed
    }

    /// Makes an edge between lots.
    fn edge(&mut self, at: u64) {
        if let Some(crossing) = self.lots.before(at)
            && let Some(range) = self.runs.get(crossing).map(DealtRun::range).filter(|range| at < range.end)
        {
            self.lots.take(range.start, crossing);
            let rest = self.runs.split(crossing, at);
            [Some(crossing), rest].into_iter().flatten().for_each(|run| self.wait(run));
        }
        self.steps += self.lots.split(at) as u64;
    }

    /// These are wanted.
    pub fn want(&mut self, wants: &[WantedRange]) {
        for run in self.runs.add(wants) {
            self.lay_out(run);
        }
    }

    /// These are wanted, and a source was asked for them; it is busy with them since a moment before now.
    pub fn is_under_way(&mut self, now: f64, id: SourceNumber, wants: &[WantedRange], since: f64) {
        for run in self.runs.add(wants) {
            if self.sources.get(id).is_none() {
                self.lay_out(run);
                continue;
            }
            self.ask(now, id, run);
        }
        if let Some(source) = self.sources.get_mut(id) {
            source.pace.begins(since);
        }
    }

    /// A run waits, cut where lots end.
    fn lay_out(&mut self, run: RunId) {
        let mut next = Some(run);
        while let Some(run) = next.take() {
            self.steps += 1;
            let Some(range) = self.runs.get(run).map(DealtRun::range) else { return };
            let end = self.lots.end(range.start);
            next = if end < range.end { self.runs.split(run, end) } else { None };
            self.wait(run);
        }
    }

    fn wait(&mut self, run: RunId) {
        if let Some(it) = self.runs.get(run) {
            self.lots.wait(it.range().start, run, it.bytes());
        }
    }

    /// Takes so many of its first bytes out of a waiting run. False if it can't be cut there.
    pub fn shorten(&mut self, run: RunId, bytes: u64) -> bool {
        let Some(start) = self.runs.get(run).map(|run| run.range().start) else { return false };
        self.lots.take(start, run);
        let rest = self.runs.split(run, start + bytes);
        [Some(run), rest].into_iter().flatten().for_each(|run| self.wait(run));
        rest.is_some()
    }

    /// Asks a source for a run.
    pub fn ask(&mut self, now: f64, id: SourceNumber, run_id: RunId) -> Vec<DealtPart> {
        let place = self.sources.next_place();
        let Some(run) = self.runs.get_mut(run_id) else { return Vec::new() };
        run.askers.push(RunAsker { source: id, place });
        let (bytes, start, wants, askers) = (run.bytes(), run.range().start, run.dealt(), run.askers.clone());
        self.lots.take(start, run_id);
        if askers.len() == ASKERS {
            self.twice.insert(run_id);
        }
        if let Some(source) = self.sources.get_mut(id) {
            source.owes(now, place, run_id, bytes);
        }
        self.is_asked_of(&askers, now);
        wants
    }

    /// Sources that are asked for a run know whether they are alone with it.
    fn is_asked_of(&mut self, askers: &[RunAsker], now: f64) {
        for asker in askers {
            let Some(source) = self.sources.get_mut(asker.source) else { continue };
            if let [_] = askers {
                source.alone.insert(asker.place);
            } else {
                source.alone.remove(&asker.place);
            }
            self.sources.update(asker.source, now);
        }
    }

    /// Bytes of a part came, or will not come: the source owes them no more. True if they were not cancelled.
    pub fn settle(&mut self, id: SourceNumber, part: &DealtPart) -> bool {
        let asked = self.runs.within(part).into_iter().find_map(|(run, missing)| {
            let is_asked = missing == *part && self.runs.get(run)?.is_asked_of(id);
            is_asked.then_some(part.part.end - part.part.start)
        });
        let Some(source) = self.sources.get_mut(id) else { return false };
        let bytes = asked.or_else(|| source.cancelled(part));
        source.outstanding = source.outstanding.saturating_sub(bytes.unwrap_or(0));
        asked.is_some()
    }

    /// Bytes came and were right: whoever else is asked for them need not bring them.
    pub fn arrived(&mut self, id: SourceNumber, part: &DealtPart) -> Cancelled {
        let mut cancelled = Vec::new();
        for (run, missing) in self.runs.within(part) {
            cancelled.extend(self.take_out(run, &missing).into_iter().filter(|(asker, _)| *asker != id));
        }
        for (source, part) in &cancelled {
            self.cancels(*source, part);
        }
        self.runs.forget(part.tag);
        cancelled
    }

    /// Wants are no longer wanted.
    pub fn withdraw(&mut self, tag: Tag) -> Cancelled {
        let mut cancelled = Vec::new();
        for run in self.runs.of_want(tag) {
            let parts = self.runs.get(run).map(DealtRun::dealt).unwrap_or_default();
            for part in parts.into_iter().filter(|part| part.tag == tag) {
                cancelled.extend(self.take_out(run, &part));
            }
        }
        for (source, part) in &cancelled {
            self.cancels(*source, part);
        }
        self.runs.forget(tag);
        cancelled
    }

    /// The source's answer to a part is no longer waited for.
    pub fn cancels(&mut self, id: SourceNumber, part: &DealtPart) {
        if let Some(source) = self.sources.get_mut(id) {
            source.cancels(part);
        }
    }

    /// Takes a part out of its run. Who was asked for it.
    fn take_out(&mut self, run: RunId, part: &DealtPart) -> Cancelled {
        let Some(it) = self.runs.get(run) else { return Vec::new() };
        let (start, askers) = (it.range().start, it.askers.clone());
        if askers.is_empty() {
            self.lots.take(start, run);
        }
        if let Some((_, Some(ended))) = self.runs.take(run, part) {
            self.twice.remove(&run);
            self.leave_queues(&ended.askers);
        } else if askers.is_empty() {
            self.wait(run);
        }
        askers.into_iter().map(|asker| (asker.source, part.clone())).collect()
    }

    fn leave_queues(&mut self, askers: &[RunAsker]) {
        for asker in askers {
            if let Some(source) = self.sources.get_mut(asker.source) {
                source.queue.remove(&asker.place);
                source.alone.remove(&asker.place);
            }
        }
    }

    /// A source does not bring a part that it was asked for. With `misses` it is not asked for it again. Waits again, unless
    /// another source is asked for it.
    pub fn lost(&mut self, id: SourceNumber, part: &DealtPart, misses: bool) {
        for (run, missing) in self.runs.within(part) {
            let Some(it) = self.runs.get(run).filter(|it| it.is_asked_of(id)) else { continue };
            let others: Vec<_> = it.askers.iter().copied().filter(|asker| asker.source != id).collect();
            let not_at = it.not_at.clone();
            let Some((taken, ended)) = self.runs.take(run, &missing) else { continue };
            if let Some(ended) = ended {
                self.twice.remove(&run);
                self.leave_queues(&ended.askers);
            }
            let again = self.runs.put_back(taken, not_at);
            for other in &others {
                let place = self.sources.next_place();
                if let Some(source) = self.sources.get_mut(other.source) {
                    source.queue.insert(place, again);
                    source.alone.insert(place);
                }
                if let Some(it) = self.runs.get_mut(again) {
                    it.askers.push(RunAsker { source: other.source, place });
                }
            }
            if let Some(it) = self.runs.get_mut(again).filter(|_| misses) {
                it.misses(id);
            }
            if others.is_empty() {
                self.lay_out(again);
            }
        }
    }

    /// A source is not asked for a run any more, which another one is asked for, too.
    pub fn unask(&mut self, now: f64, id: SourceNumber, run: RunId) -> Cancelled {
        let Some(it) = self.runs.get_mut(run) else { return Vec::new() };
        let Some(index) = it.askers.iter().position(|asker| asker.source == id) else { return Vec::new() };
        let asker = it.askers.remove(index);
        let (wants, left) = (it.dealt(), it.askers.clone());
        self.leave_queues(&[asker]);
        self.twice.remove(&run);
        self.is_asked_of(&left, now);
        wants.iter().for_each(|part| self.cancels(id, part));
        if left.is_empty() {
            self.lay_out(run);
        }
        wants.into_iter().map(|part| (id, part)).collect()
    }

    /// A source is not asked for anything any more. What it was asked for waits again.
    pub fn take_back(&mut self, now: f64, id: SourceNumber) -> Cancelled {
        self.owed_by(id).into_iter().flat_map(|run| self.unask(now, id, run)).collect()
    }

    /// A source in front takes over what it has of what those behind it owe: it brings something, so that they need not.
    pub fn take_over(&mut self, now: f64, id: SourceNumber) -> Cancelled {
        if !self.sources.is_in_front(id) {
            return Vec::new();
        }
        let behind: Vec<_> = self.sources.slowest(OUTDONE).filter(|&it| self.sources.is_behind(it)).collect();
        let owed = behind.iter().flat_map(|&it| self.owed_by(it).into_iter().map(move |run| (it, run)));
        let owed: Vec<_> = owed.collect();
        self.steps += owed.len() as u64;
        let taken: Vec<_> = owed.into_iter().filter(|(_, run)| self.may_bring(id, *run)).collect();
        taken.into_iter().flat_map(|(it, run)| self.unask(now, it, run)).collect()
    }

    fn owed_by(&self, id: SourceNumber) -> Vec<RunId> {
        self.sources.get(id).map(|it| it.queue.values().copied().collect()).unwrap_or_default()
    }

    fn may_bring(&self, id: SourceNumber, run: RunId) -> bool {
        let source = self.sources.get(id).zip(self.runs.get(run));
        source.is_some_and(|(source, run)| source.has(&run.range()) && !run.not_at.contains(&id))
    }
}
