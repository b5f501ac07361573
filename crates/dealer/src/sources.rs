//! All sources of a transfer: what each has and owes, and sums of them that cost the same work whatever their number.
//!
//! Sources of the best rank (price, then priority) in which one is in use are in front. Those behind it, and those that are
//! doubted, are in reserve: they are asked only for what nobody in front has, nor promises to have soon.

use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use towpath_transfer::Tag;
use towpath_transfer::intervals::Intervals;

use super::event::{DealtPart, SourceFacts, SourceNumber};
use super::pace::{GUESS, SourcePace};
use super::runs::RunId;
use super::standing::{SourceRecord, SourceStanding};

/// Price and priority: smaller comes first.
pub type SourceRank = (u32, u16);

/// A source.
#[derive(Debug)]
pub struct DealtSource {
    /// Facts of it.
    pub facts: SourceFacts,
    /// Bytes that it has; none if it has everything.
    pub has: Option<Intervals>,
    /// How it stands.
    pub record: SourceRecord,
    /// How fast it is.
    pub pace: SourcePace,
    /// Runs that it is asked for, in order.
    pub queue: BTreeMap<u64, RunId>,
    /// Bytes that it is asked for, with those that were cancelled and have not ended.
    pub outstanding: u64,
    /// Parts that were cancelled and have not ended, by want and begin, with their bytes. One that is asked for again may be
    /// cancelled again before the first time has ended.
    cancelling: BTreeMap<(Tag, u64), Vec<u64>>,
    /// Of those that have everything it is the one that is relied on until something is known.
    pub leads: bool,
    /// It gets nothing for now, because it is measured what it adds.
    pub is_paused: bool,
    /// Place from which it looks for what many have.
    pub cursor: u64,
    /// Lot that it was asked for last. With it and some others in turn the right one is found soon.
    pub last_lot: u64,
    /// Places of its queue with runs that no other source is asked for.
    pub alone: BTreeSet<u64>,
    /// Its rate as long as nobody knows better.
    guess: f64,
    entered: Option<SourceEntry>,
}

/// What the sums and orders know of a source.
#[derive(Debug, Clone, Copy)]
struct SourceEntry {
    rank: SourceRank,
    rate: u64,
    window: u64,
    /// Rate times round trip: bytes that do not come before the first one.
    delayed: u64,
    outstanding: u64,
    /// Microseconds until its queue is brought.
    left: u64,
    /// It has runs that no other source is asked for.
    lends: bool,
    is_known: bool,
    is_in_use: bool,
    has_everything: bool,
}

impl DealtSource {
    /// One of which nothing is known but what it says.
    pub fn new(facts: SourceFacts, has: Option<Intervals>, cursor: u64) -> Self {
        Self {
            facts,
            has,
            record: SourceRecord::default(),
            pace: SourcePace::default(),
            queue: BTreeMap::new(),
            outstanding: 0,
            cancelling: BTreeMap::new(),
            leads: false,
            is_paused: false,
            cursor,
            last_lot: 0,
            alone: BTreeSet::new(),
            guess: GUESS,
            entered: None,
        }
    }

    /// True if it says that it has all of this.
    pub fn has(&self, range: &Range<u64>) -> bool {
        self.has.as_ref().is_none_or(|has| has.covers(range))
    }

    /// Its rank.
    pub const fn rank(&self) -> SourceRank {
        (self.facts.price, self.facts.priority)
    }

    /// Bytes a second.
    pub fn rate(&self, now: f64) -> f64 {
        self.pace.rate(now, self.outstanding > 0, self.guess)
    }

    /// Seconds until it has brought what it owes and so many bytes more.
    pub fn time_for(&self, now: f64, bytes: u64) -> f64 {
        (self.outstanding + bytes) as f64 / self.rate(now) + self.facts.round_trip.as_secs_f64()
    }

    /// Seconds until it has brought what it owes.
    pub fn left(&self, now: f64) -> f64 {
        self.outstanding as f64 / self.rate(now)
    }

    /// True if others may count on it.
    pub fn is_in_use(&self, now: f64) -> bool {
        let stands = matches!(self.record.standing(), SourceStanding::Trying | SourceStanding::Good);
        stands && !(self.outstanding > 0 && self.pace.is_silent(now))
    }

    /// True if it can be asked for so many bytes more: up to its window, or, before anything came, as much as the first one may
    /// and any other may not; and always for one run.
    pub const fn has_room(&self, bytes: u64) -> bool {
        let window = match self.record.standing() {
            _ if self.is_paused => return false,
            SourceStanding::Banned(_) => return false,
            SourceStanding::Trying if !self.leads => 0,
            SourceStanding::Trying => self.facts.window,
            SourceStanding::Good | SourceStanding::Doubted(_) => self.facts.window,
        };
        self.outstanding == 0 || self.outstanding + bytes <= window
    }

    /// A part that it is asked for need not come.
    pub fn cancels(&mut self, part: &DealtPart) {
        let bytes = part.part.end - part.part.start;
        self.cancelling.entry((part.tag, part.part.start)).or_default().push(bytes);
    }

    /// A part that need not come has ended. Returns its bytes.
    pub fn cancelled(&mut self, part: &DealtPart) -> Option<u64> {
        let Entry::Occupied(mut ended) = self.cancelling.entry((part.tag, part.part.start)) else {
            return None;
        };
        let bytes = ended.get_mut().pop();
        if ended.get().is_empty() {
            ended.remove();
        }
        bytes
    }

    /// Is asked for a run.
    pub fn owes(&mut self, now: f64, place: u64, run: RunId, bytes: u64) {
        if self.outstanding == 0 {
            self.pace.begins(now + self.facts.round_trip.as_secs_f64());
        }
        self.queue.insert(place, run);
        self.outstanding += bytes;
    }
}

/// Sums of the sources of one rank that are in use.
#[derive(Debug, Default)]
pub struct RankSums {
    /// Which these are.
    members: BTreeSet<SourceNumber>,
    /// Number and bytes a second of those whose rate is known.
    known: (u64, u64),
    /// Bytes that they like to have under way.
    pub window: u64,
    /// Bytes a second.
    pub rate: u64,
    /// Sum of rate times round trip.
    pub delayed: u64,
    /// Those that have everything, by rate.
    pub complete: BTreeSet<(u64, SourceNumber)>,
    /// Their bytes a second.
    pub complete_rate: u64,
    /// Bytes that they owe.
    pub complete_outstanding: u64,
}

/// All sources.
#[derive(Debug, Default)]
pub struct DealtSources {
    sources: BTreeMap<SourceNumber, DealtSource>,
    ranks: BTreeMap<SourceRank, RankSums>,
    /// Those that runs can be borrowed from, by the time that all they owe takes them, microseconds.
    slowest: BTreeSet<(u64, SourceNumber)>,
    /// Those to be looked at for what they could be asked, fastest first.
    open: BTreeSet<(SourceRank, Reverse<u64>, SourceNumber)>,
    /// Those that were looked at in vain.
    idle: BTreeSet<SourceNumber>,
    due: BTreeSet<(Duration, SourceNumber)>,
    outstanding: u64,
    /// Ends of what sources promise to have soon.
    promises: BTreeMap<SourceNumber, u64>,
    next_place: u64,
    /// Source that was looked at last for its rate.
    refreshed: SourceNumber,
}

impl RankSums {
    /// Number of them.
    pub fn count(&self) -> usize {
        self.members.len()
    }
}

impl DealtSources {
    /// A source.
    pub fn get(&self, id: SourceNumber) -> Option<&DealtSource> {
        self.sources.get(&id)
    }

    /// A source. Whoever changes it calls [`Self::update`] then.
    pub fn get_mut(&mut self, id: SourceNumber) -> Option<&mut DealtSource> {
        self.sources.get_mut(&id)
    }

    /// Adds one.
    pub fn insert(&mut self, id: SourceNumber, source: DealtSource, now: f64) {
        self.sources.insert(id, source);
        self.update(id, now);
        self.look_at(id);
    }

    /// Takes one away.
    pub fn remove(&mut self, id: SourceNumber) -> Option<DealtSource> {
        let source = self.sources.remove(&id)?;
        self.promises.remove(&id);
        self.leave(id, source.entered);
        self.forget_to_look(id, &source);
        if let Some(due) = source.record.due() {
            self.due.remove(&(due, id));
        }
        Some(source)
    }

    /// Bytes that all owe.
    pub const fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// Place at the end of a queue.
    pub const fn next_place(&mut self) -> u64 {
        self.next_place += 1;
        self.next_place
    }

    /// The rank in front, with its sums.
    pub fn front(&self) -> Option<(SourceRank, &RankSums)> {
        let (rank, sums) = self.ranks.iter().next()?;
        Some((*rank, sums))
    }

    /// True if this one is in front and others may count on it.
    pub fn is_in_front(&self, id: SourceNumber) -> bool {
        let entry = self.sources.get(&id).and_then(|source| source.entered);
        entry.is_some_and(|entry| entry.is_in_use && self.front().is_some_and(|(rank, _)| rank == entry.rank))
    }

    /// A source will soon have the first bytes of the root's space, up to `end`; none if that is 0.
    pub fn promise(&mut self, id: SourceNumber, end: u64) {
        match end {
            0 => drop(self.promises.remove(&id)),
            _ => drop(self.promises.insert(id, end)),
        }
    }

    /// True if one in front promises this byte.
    pub fn is_promised(&self, at: u64) -> bool {
        self.promises.iter().any(|(&id, &end)| at < end && self.is_in_front(id))
    }

    /// True if there is a better rank than that of this one, in which one can be counted on.
    pub fn is_behind(&self, id: SourceNumber) -> bool {
        let rank = self.sources.get(&id).map(DealtSource::rank);
        self.front().zip(rank).is_some_and(|((front, _), rank)| front < rank)
    }

    /// The fastest in front of those that have everything.
    pub fn best_complete(&self) -> Option<SourceNumber> {
        self.front().and_then(|(_, sums)| sums.complete.last()).map(|&(_, id)| id)
    }

    /// The first one in front.
    pub fn any_in_front(&self) -> Option<SourceNumber> {
        self.front().and_then(|(_, sums)| sums.members.first()).copied()
    }

    /// True if one in front has brought something.
    pub fn is_any_known(&self) -> bool {
        self.front().is_some_and(|(_, sums)| sums.known.0 > 0)
    }

    /// Those that will need longest for what they owe, so many of those that runs can be borrowed from.
    pub fn slowest(&self, count: usize) -> impl Iterator<Item = SourceNumber> + '_ {
        self.slowest.iter().rev().take(count).map(|&(_, id)| id)
    }

    /// A source as all sums and orders see it from now on.
    pub fn update(&mut self, id: SourceNumber, now: f64) {
        let known = self.front().map(|(_, sums)| sums.known).filter(|known| known.0 > 0);
        let Some(source) = self.sources.get_mut(&id) else { return };
        source.guess = known.map_or(GUESS, |(count, rate)| rate as f64 / count as f64);
        let rate = source.rate(now);
        let entry = SourceEntry {
            rank: source.rank(),
            rate: rate as u64,
            window: source.facts.window,
            delayed: (rate * source.facts.round_trip.as_secs_f64()) as u64,
            outstanding: source.outstanding,
            left: (source.left(now) * 1e6) as u64,
            lends: !source.alone.is_empty(),
            is_known: source.pace.is_known(),
            is_in_use: source.is_in_use(now),
            has_everything: source.has.is_none(),
        };
        let before = source.entered.replace(entry);
        let due = source.record.due();
        self.leave(id, before);
        self.enter(id, entry);
        if let Some(before) = before
            && self.open.remove(&(before.rank, Reverse(before.rate), id))
        {
            self.open.insert((entry.rank, Reverse(entry.rate), id));
        }
        if let Some(due) = due {
            self.due.insert((due, id));
        }
    }

    fn enter(&mut self, id: SourceNumber, entry: SourceEntry) {
        self.outstanding += entry.outstanding;
        if entry.lends {
            self.slowest.insert((entry.left, id));
        }
        if !entry.is_in_use {
            return;
        }
        let sums = self.ranks.entry(entry.rank).or_default();
        sums.members.insert(id);
        if entry.is_known {
            sums.known = (sums.known.0 + 1, sums.known.1 + entry.rate);
        }
        sums.rate += entry.rate;
        sums.window += entry.window;
        sums.delayed += entry.delayed;
        if entry.has_everything {
            sums.complete.insert((entry.rate, id));
            sums.complete_rate += entry.rate;
            sums.complete_outstanding += entry.outstanding;
        }
    }

    fn leave(&mut self, id: SourceNumber, entry: Option<SourceEntry>) {
        let Some(entry) = entry else { return };
        self.outstanding -= entry.outstanding;
        self.slowest.remove(&(entry.left, id));
        let Some(sums) = self.ranks.get_mut(&entry.rank).filter(|_| entry.is_in_use) else { return };
        sums.members.remove(&id);
        if entry.is_known {
            sums.known = (sums.known.0 - 1, sums.known.1 - entry.rate);
        }
        sums.rate -= entry.rate;
        sums.window -= entry.window;
        sums.delayed -= entry.delayed;
        if entry.has_everything {
            sums.complete.remove(&(entry.rate, id));
            sums.complete_rate -= entry.rate;
            sums.complete_outstanding -= entry.outstanding;
        }
        if sums.members.is_empty() {
            self.ranks.remove(&entry.rank);
        }
    }

    /// It is to be looked at.
    pub fn look_at(&mut self, id: SourceNumber) {
        let Some(entry) = self.sources.get(&id).and_then(|source| source.entered) else { return };
        self.idle.remove(&id);
        self.open.insert((entry.rank, Reverse(entry.rate), id));
    }

    /// Some of those that were looked at in vain are to be looked at again, fastest first.
    pub fn look_at_idle(&mut self, count: usize) {
        let idle: Vec<_> = self.idle.iter().copied().take(count).collect();
        idle.into_iter().for_each(|id| self.look_at(id));
    }

    /// There was nothing that it could be asked for.
    pub fn looked_in_vain(&mut self, id: SourceNumber) {
        let Some(source) = self.sources.get(&id) else { return };
        if let Some(entry) = source.entered {
            self.open.remove(&(entry.rank, Reverse(entry.rate), id));
        }
        self.idle.insert(id);
    }

    /// It has no room any more, and is looked at when it has.
    pub fn is_full(&mut self, id: SourceNumber) {
        let entry = self.sources.get(&id).and_then(|source| source.entered);
        if let Some(entry) = entry {
            self.open.remove(&(entry.rank, Reverse(entry.rate), id));
        }
        self.idle.remove(&id);
    }

    fn forget_to_look(&mut self, id: SourceNumber, source: &DealtSource) {
        if let Some(entry) = source.entered {
            self.open.remove(&(entry.rank, Reverse(entry.rate), id));
        }
        self.idle.remove(&id);
    }

    /// The next to be looked at.
    pub fn next_open(&self) -> Option<SourceNumber> {
        self.open.first().map(|&(.., id)| id)
    }

    /// The next of those that were looked at in vain, in turn.
    pub fn next_idle(&self, behind: SourceNumber) -> Option<SourceNumber> {
        self.idle.range(behind.saturating_add(1)..).next().or_else(|| self.idle.first()).copied()
    }

    /// Looks anew at the rates of some in turn: they fall when nothing comes.
    pub fn refresh(&mut self, count: usize, now: f64) {
        let later = self.sources.range(self.refreshed.saturating_add(1)..).map(|(&id, _)| id);
        let ids: Vec<_> = later.chain(self.sources.keys().copied()).take(count).collect();
        for id in ids {
            self.refreshed = id;
            self.update(id, now);
        }
    }

    /// Tries those again whose time is over, some at a time; and a banned one sooner, if others may count on nobody.
    pub fn try_again(&mut self, count: usize, now: Duration) {
        for _ in 0..count {
            let Some(&(due, id)) = self.due.first() else { return };
            let is_asked_anyway = self.front().is_some();
            let Some(source) = self.sources.get_mut(&id).filter(|source| source.record.due() == Some(due))
            else {
                self.due.remove(&(due, id));
                continue;
            };
            if due > now && (is_asked_anyway || !source.record.is_banned()) {
                return;
            }
            source.record.try_again();
            self.due.remove(&(due, id));
            self.update(id, now.as_secs_f64());
            self.look_at(id);
        }
    }

    /// Time at which the next is tried again.
    pub fn next_due(&self) -> Option<Duration> {
        self.due.first().map(|&(due, _)| due)
    }

    /// Tries some of those again that are doubted: another one is gone, and they may add something now.
    pub fn reconsider(&mut self, count: usize, now: f64) {
        let due = self.due.iter().map(|&(_, id)| id).take(count);
        let is_doubted = |id: &SourceNumber| {
            self.get(*id).is_some_and(|it| matches!(it.record.standing(), SourceStanding::Doubted(_)))
        };
        for id in due.filter(is_doubted).collect::<Vec<_>>() {
            if let Some(source) = self.sources.get_mut(&id) {
                source.record.try_again();
            }
            self.update(id, now);
            self.look_at(id);
        }
    }

    /// Some source that was not looked at as long as all others: the one behind `last` in turn.
    pub fn after(&self, last: SourceNumber) -> Option<SourceNumber> {
        let behind = self.sources.range(last.saturating_add(1)..).next();
        behind.or_else(|| self.sources.first_key_value()).map(|(&id, _)| id)
    }
}
