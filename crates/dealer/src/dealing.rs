//! The dealer itself: events and time in, actions out.

use std::time::Duration;

use towpath_transfer::{Outcome, Tag};

use super::borrowing;
use super::choosing;
use super::doubt::{DoubtStep, SourceDoubt, Suspect};
use super::ending::{self, EndShare};
use super::event::{DealerAction, DealerEvent, DealtPart, SourceNumber};
use super::opening::ClosedPlaces;
use super::runs::{DealtRun, RUN, RunId};
use super::standing::Verdict;
use super::state::{Cancelled, DealerState};

/// Sources that are looked at with each event, because they have room, and of those that were looked at in vain.
const OPEN_LOOKED_AT: usize = 8;
const IDLE_LOOKED_AT: usize = 4;
/// Once so much work was done for idle ones the others wait for the next event: most are looked at in vain, the more there are the
/// oftener.
const IDLE_STEPS: u64 = 16;
/// Sources that were looked at in vain and are looked at again when more is wanted.
const WOKEN: usize = 32;
/// Runs that are asked for with each event.
const ASKED: usize = 64;
/// Lots that are told with each event what sources have.
const TOLD: usize = 128;
/// Sources whose rates are looked at with each event.
const REFRESHED: usize = 4;
/// Longest time without an event while anything is missing.
const TICK: Duration = Duration::from_millis(50);

/// What one transfer's sources bring together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DealerSum {
    /// Sources that can be counted on.
    pub sources: usize,
    /// Bytes that they like to have under way.
    pub window: u64,
    /// Bytes a second.
    pub bytes_per_second: u64,
}

/// Decides who brings what.
#[derive(Debug)]
pub struct Dealer {
    state: DealerState,
    doubt: SourceDoubt,
    closed: ClosedPlaces,
    /// Bytes that came.
    came: u64,
    /// Sources that were looked at last of those in turn.
    idle: SourceNumber,
    tested: SourceNumber,
    /// Nothing is asked of two sources at once.
    asks_once: bool,
}

impl Dealer {
    /// Nothing is there, nothing is wanted. Who comes first among equals follows from `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            state: DealerState::new(seed),
            doubt: SourceDoubt::default(),
            closed: ClosedPlaces::default(),
            came: 0,
            idle: 0,
            tested: 0,
            asks_once: false,
        }
    }

    /// From now on nothing is asked of two sources at once, so nothing comes twice. What a source owes waits for it then, also near the
    /// end.
    pub const fn ask_once(&mut self) {
        self.asks_once = true;
    }

    /// Takes in an event at `now`, the time since the transfer began, and says what to do.
    pub fn handle(&mut self, now: Duration, event: DealerEvent) -> Vec<DealerAction> {
        let mut actions = Vec::new();
        let seconds = now.as_secs_f64();
        self.take_in(now, event, &mut actions);
        self.state.sources.try_again(REFRESHED, now);
        self.state.sources.refresh(REFRESHED, seconds);
        for source in self.state.tell_lots(TOLD) {
            self.state.sources.look_at(source);
        }
        self.look_into_doubt(now);
        self.deal(seconds, &mut actions);
        let is_served = self.state.sources.front().is_some();
        actions.extend(self.closed.open(seconds, is_served).into_iter().map(DealerAction::Open));
        actions
    }

    /// Time at which it is to be told [`DealerEvent::Tick`], unless something else happens before.
    pub fn wake(&self, now: Duration) -> Option<Duration> {
        if self.state.has_changes() || self.state.sources.next_open().is_some() {
            return Some(now);
        }
        let due = self.state.sources.next_due();
        let tick = (!self.state.runs.is_empty()).then_some(now + TICK);
        due.into_iter().chain(tick).min()
    }

    /// True if nothing is missing.
    pub fn is_complete(&self) -> bool {
        self.state.runs.is_empty()
    }

    /// The sum of all sources in front: what a planner above sees as one network.
    pub fn sum(&self) -> DealerSum {
        self.state.sources.front().map_or_else(DealerSum::default, |(_, sums)| DealerSum {
            sources: sums.count(),
            window: sums.window,
            bytes_per_second: sums.rate,
        })
    }

    /// Seconds until this byte of the root's space can be expected, if it waits. None if no source has it that can be
    /// counted on.
    pub fn expected(&self, now: Duration, at: u64) -> Option<Duration> {
        let seconds = choosing::expected_at(&self.state, at, now.as_secs_f64())?;
        Duration::try_from_secs_f64(seconds).ok()
    }

    /// True if a source says that it has everything.
    pub fn has_everything(&self, source: SourceNumber) -> bool {
        self.state.sources.get(source).is_some_and(|it| it.has.is_none())
    }

    /// True if a source says that it has any of what is missing of a want.
    pub fn may_bring(&self, source: SourceNumber, tag: Tag) -> bool {
        let runs = self.state.runs.of_want(tag);
        let mut runs = runs.into_iter().filter_map(|run| self.state.runs.get(run));
        self.state.sources.get(source).is_some_and(|it| runs.any(|run| it.has(&run.range())))
    }

    /// Work done so far: lots, runs and sources looked at. Bounded for each event, whatever the number of sources.
    pub const fn steps(&self) -> u64 {
        self.state.steps
    }

    fn take_in(&mut self, now: Duration, event: DealerEvent, actions: &mut Vec<DealerAction>) {
        let seconds = now.as_secs_f64();
        match event {
            DealerEvent::SourceAdded { source, facts, holding } => {
                if self.state.sources.get(source).is_none() {
                    self.disturbed(seconds);
                    self.state.add_source(seconds, source, facts, holding);
                    self.state.rely_on_one(source);
                }
            }
            DealerEvent::Changed { source, facts } => {
                if let Some(it) = self.state.sources.get_mut(source) {
                    it.facts = facts;
                }
                self.changed(source, seconds);
                self.state.rely_on_one(source);
            }
            DealerEvent::Gone { source } => self.gone(seconds, source),
            DealerEvent::Promises { source, end } => {
                self.state.sources.promise(source, end);
                self.state.sources.look_at_idle(WOKEN);
            }
            DealerEvent::Have { source, added } => self.state.have(source, added),
            DealerEvent::Wanted { wants, to_come } => {
                self.state.to_come = to_come;
                self.state.want(&wants);
                self.state.sources.look_at_idle(WOKEN);
            }
            DealerEvent::UnderWay { source, wants, since } => {
                self.state.is_under_way(seconds, source, &wants, since.as_secs_f64());
                self.changed(source, seconds);
            }
            DealerEvent::Withdrawn(tags) => self.withdraw(&tags, seconds, actions),
            DealerEvent::Arrived { source, part } => self.arrived(seconds, source, &part, actions),
            DealerEvent::NotBrought { source, part, outcome } => {
                self.not_brought(now, source, &part, outcome, actions);
            }
            DealerEvent::Corrupt { source, part } => self.corrupt(now, source, &part, actions),
            DealerEvent::Room { source, window } => {
                if let Some(it) = self.state.sources.get_mut(source) {
                    it.facts.window = window;
                }
                self.changed(source, seconds);
            }
            DealerEvent::Hinted { hint, priority, weight } => {
                let chance = self.state.lots.chance(u64::from(hint));
                self.closed.add(hint, priority, weight, chance);
            }
            DealerEvent::Tick => {}
        }
    }

    /// A source may have room now.
    fn changed(&mut self, source: SourceNumber, now: f64) {
        self.state.sources.update(source, now);
        self.state.sources.look_at(source);
    }

    fn disturbed(&mut self, now: f64) {
        let step = self.doubt.void(now);
        self.do_step(Duration::from_secs_f64(now), step);
    }

    fn gone(&mut self, now: f64, source: SourceNumber) {
        self.disturbed(now);
        self.state.remove_source(now, source);
        self.state.sources.reconsider(IDLE_LOOKED_AT, now);
    }

    fn arrived(&mut self, now: f64, source: SourceNumber, part: &DealtPart, actions: &mut Vec<DealerAction>) {
        let bytes = part.part.end - part.part.start;
        self.came += bytes;
        self.state.settle(source, part);
        if let Some(it) = self.state.sources.get_mut(source) {
            it.pace.brought(now, bytes);
            it.record.right();
        }
        let mut cancelled = self.state.arrived(source, part);
        self.changed(source, now);
        cancelled.extend(self.state.take_over(now, source));
        self.cancel(cancelled, now, actions);
    }

    fn withdraw(&mut self, tags: &[Tag], now: f64, actions: &mut Vec<DealerAction>) {
        for tag in tags {
            let cancelled = self.state.withdraw(*tag);
            self.cancel(cancelled, now, actions);
        }
    }

    fn not_brought(
        &mut self,
        now: Duration,
        source: SourceNumber,
        part: &DealtPart,
        outcome: Outcome,
        actions: &mut Vec<DealerAction>,
    ) {
        let was_asked = self.state.settle(source, part);
        let misses = !matches!(outcome, Outcome::RetryLater(_) | Outcome::Cancelled);
        self.state.lost(source, part, misses);
        let Some(it) = self.state.sources.get_mut(source) else { return };
        let verdict = match outcome {
            _ if !was_asked => None,
            Outcome::RetryLater(rest) => {
                it.record.rest(now, rest);
                None
            }
            Outcome::SourceChanged => Some(Verdict::Dropped),
            Outcome::NotHere | Outcome::Gone | Outcome::Refused(_) => Some(it.record.missed(now)),
            Outcome::Cancelled => None,
        };
        self.judged(now.as_secs_f64(), source, verdict, actions);
    }

    /// Bytes were wrong. Of those that came before, and counted as right, nothing is left here.
    fn corrupt(
        &mut self,
        now: Duration,
        source: SourceNumber,
        part: &DealtPart,
        actions: &mut Vec<DealerAction>,
    ) {
        let came_before = part.part.is_empty();
        self.state.settle(source, part);
        self.state.lost(source, part, true);
        let verdict = self.state.sources.get_mut(source).map(|it| {
            it.pace.brought(now.as_secs_f64(), part.part.end - part.part.start);
            if came_before { it.record.wrong_after_all(now) } else { it.record.wrong(now) }
        });
        self.judged(now.as_secs_f64(), source, verdict, actions);
    }

    /// What follows for a source that failed.
    fn judged(
        &mut self,
        now: f64,
        source: SourceNumber,
        verdict: Option<Verdict>,
        actions: &mut Vec<DealerAction>,
    ) {
        match verdict {
            Some(Verdict::Banned) => {
                self.disturbed(now);
                let cancelled = self.state.take_back(now, source);
                self.cancel(cancelled, now, actions);
                self.state.sources.reconsider(IDLE_LOOKED_AT, now);
            }
            Some(Verdict::Dropped) => {
                actions.push(DealerAction::Drop(source));
                return self.gone(now, source);
            }
            Some(Verdict::Keeps) | None => {}
        }
        self.changed(source, now);
    }

    /// Tells sources what they need not bring any more, each at once.
    fn cancel(&mut self, cancelled: Cancelled, now: f64, actions: &mut Vec<DealerAction>) {
        for (source, part) in cancelled {
            match actions.last_mut() {
                Some(DealerAction::Cancel { source: last, wants }) if *last == source => wants.push(part),
                _ => actions.push(DealerAction::Cancel { source, wants: vec![part] }),
            }
            self.changed(source, now);
        }
    }

    fn look_into_doubt(&mut self, now: Duration) {
        let seconds = now.as_secs_f64();
        let suspect = self.doubt.suspect().and_then(|id| self.state.sources.get(id));
        let owes = suspect.is_some_and(|source| source.outstanding > 0);
        let mut step = self.doubt.step(seconds, self.came, owes);
        if step.is_none() && self.doubt.is_due(seconds) {
            step = self.next_suspect(seconds).and_then(|suspect| self.doubt.begin(seconds, suspect));
        }
        self.do_step(now, step);
    }

    fn do_step(&mut self, now: Duration, step: Option<DoubtStep>) {
        let Some((DoubtStep::Pause(id) | DoubtStep::GoOn(id) | DoubtStep::Doubt(id), step)) = step.zip(step)
        else {
            return;
        };
        let Some(source) = self.state.sources.get_mut(id) else { return };
        source.is_paused = matches!(step, DoubtStep::Pause(_));
        if matches!(step, DoubtStep::Doubt(_)) {
            source.record.doubt(now);
        }
        self.changed(id, now.as_secs_f64());
    }

    /// The next source in turn, if it can be missed for a moment.
    fn next_suspect(&mut self, now: f64) -> Option<Suspect> {
        let sources = &self.state.sources;
        self.tested = sources.after(self.tested)?;
        let source = sources.get(self.tested)?;
        let is_best = sources.best_complete() == Some(self.tested);
        if is_best || !source.pace.is_known() || !sources.is_in_front(self.tested) {
            return None;
        }
        let (_, sums) = sources.front().filter(|(_, sums)| sums.count() > 1)?;
        let remaining = self.state.remaining() as f64;
        let (rate, sum) = (source.rate(now), sums.rate as f64);
        Some(Suspect { source: self.tested, rate, sum, run: RUN as f64, remaining })
    }

    /// Asks sources that have room, fastest first, and some of those that were idle.
    fn deal(&mut self, now: f64, actions: &mut Vec<DealerAction>) {
        let mut left = ASKED;
        for _ in 0..OPEN_LOOKED_AT {
            let Some(source) = self.state.sources.next_open().filter(|_| left > 0) else { break };
            self.deal_to(source, now, &mut left, actions);
        }
        let before = self.state.steps;
        for _ in 0..IDLE_LOOKED_AT {
            if self.state.steps - before >= IDLE_STEPS {
                return;
            }
            let Some(source) = self.state.sources.next_idle(self.idle).filter(|_| left > 0) else { return };
            self.idle = source;
            self.deal_to(source, now, &mut left, actions);
        }
    }

    fn deal_to(&mut self, id: SourceNumber, now: f64, left: &mut usize, actions: &mut Vec<DealerAction>) {
        let mut wants = Vec::new();
        while *left > 0 {
            self.state.steps += 1;
            if self.state.sources.get(id).is_none_or(|source| !source.has_room(1)) {
                self.state.sources.is_full(id);
                break;
            }
            let Some(run) = self.next_run(id, now, actions) else {
                self.state.sources.looked_in_vain(id);
                break;
            };
            let bytes = self.state.runs.get(run).map_or(0, DealtRun::bytes);
            if self.state.sources.get(id).is_none_or(|source| !source.has_room(bytes)) {
                self.state.sources.is_full(id);
                break;
            }
            wants.extend(self.state.ask(now, id, run));
            *left -= 1;
        }
        if !wants.is_empty() {
            actions.push(DealerAction::Ask { source: id, wants });
        }
    }

    /// What a source is asked for next: what waits, or what another one is asked for.
    fn next_run(&mut self, id: SourceNumber, now: f64, actions: &mut Vec<DealerAction>) -> Option<RunId> {
        if let Some(chosen) = choosing::choose(&mut self.state, id, now) {
            let bytes = self.state.runs.get(chosen.run).map_or(0, DealtRun::bytes);
            let source = self.state.sources.get(id)?;
            match ending::share(source, now, bytes, chosen.elsewhere) {
                EndShare::First(bytes) if self.state.shorten(chosen.run, bytes) => return Some(chosen.run),
                EndShare::First(_) | EndShare::Nothing if self.state.sources.outstanding() > 0 => {}
                _ => return Some(chosen.run),
            }
        }
        if self.asks_once {
            return None;
        }
        let borrowed = borrowing::borrow(&mut self.state, id, now)?;
        if let Some(given_up) = borrowed.instead_of {
            let cancelled = self.state.unask(now, given_up, borrowed.run);
            self.cancel(cancelled, now, actions);
        }
        Some(borrowed.run)
    }
}
