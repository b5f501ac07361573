//! Bytes that may be here already, as the actor goes about it: who looks at which piece is
//! [`Comparison`](super::comparing::Comparison)'s to say.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::active::{Active, ObjectPhase};
use super::comparing::NetworkRate;
use super::events::{RecipeFound, SessionEvent};
use super::jobs::Jobs;
use super::plan::AHEAD;
use super::table::ObjectTable;
use super::work::Job;
use super::workers;
use crate::want::ObjectKey;

/// Time that a network of which nothing is requested waits for objects that left it something while others had it.
const IDLE: Duration = Duration::from_millis(20);

/// Has what may be here already read.
pub(super) struct DiskComparer {
    /// Workers of its own: a slow disk must not keep what the network brings waiting.
    reading: Option<Jobs>,
    workers: usize,
    events: mpsc::UnboundedSender<SessionEvent>,
    /// Since when objects wait for others to leave them the network, if some do.
    waiting_since: Option<Instant>,
}

impl DiskComparer {
    /// Nothing is read yet; `workers` do when something is.
    pub(super) const fn new(workers: usize, events: mpsc::UnboundedSender<SessionEvent>) -> Self {
        Self { reading: None, workers, events, waiting_since: None }
    }

    /// Lets the disk read on, and asks the network for pieces that are better not waited for.
    pub(super) fn compare(&mut self, table: &mut ObjectTable, key: ObjectKey) {
        let is_due = |active: &&Active| active.phase == ObjectPhase::Fetching && !active.comparison.is_over();
        let Some(has_recipe) = table.objects.get(&key).filter(is_due).map(|active| active.recipe.is_some())
        else {
            return;
        };
        let (now, network, open) =
            (table.meter.now(), table.network(), table.ledger.coverage().open_wants(key));
        begin(table, key, now);
        while open < AHEAD
            && let Some(active) = table.objects.get_mut(&key)
            && let Some(index) = active.comparison.next(network, has_recipe, now)
        {
            active.rechecking.insert(index, false);
            let object = Arc::clone(&active.object);
            self.read(Job::Compare { object, index });
        }
        if !has_recipe {
            ask_for_uncompared(table, key, network, now);
        }
        let waits = |active: &Active| !active.comparison.is_over() && active.rechecking.is_empty();
        if table.objects.get(&key).is_some_and(waits) {
            self.waiting_since.get_or_insert_with(Instant::now);
        }
    }

    /// Has a piece that may be here read and compared.
    fn read(&mut self, job: Job) {
        let (count, events) = (self.workers, &self.events);
        self.reading.get_or_insert_with(|| workers::start(count, events)).send(job);
    }

    /// Time at which the network was tried long enough that an object tries first.
    pub(super) fn trial_end(table: &ObjectTable) -> Option<Instant> {
        let alone = table.objects.values().next().filter(|_| table.objects.len() == 1)?;
        alone.comparison.trial_end().map(|end| table.meter.moment(end))
    }

    /// Time at which a network of which nothing is requested has waited long enough for objects that left it something
    /// while others had it: nothing else wakes them.
    pub(super) fn idle_end(&self, table: &ObjectTable) -> Option<Instant> {
        self.waiting_since.filter(|_| table.ledger.requested().all == 0).map(|since| since + IDLE)
    }

    /// The objects of which pieces wait for the network: they may go on without an event of their own.
    pub(super) fn go_on(&mut self, table: &ObjectTable) -> Vec<ObjectKey> {
        self.waiting_since = None;
        let waiting = table.objects.iter().filter(|(_, active)| !active.comparison.is_over());
        waiting.map(|(&key, _)| key).collect()
    }
}

impl ObjectTable {
    /// A piece that may have been here was read.
    pub(super) fn compared(&mut self, key: ObjectKey, index: u64, found: RecipeFound) {
        let now = self.meter.now();
        let Some(active) = self.objects.get_mut(&key) else { return };
        let was_written = active.rechecking.remove(&index) == Some(true);
        let range = active.object.piece_range(index);
        let (len, good) = (range.end - range.start, matches!(found, RecipeFound::All));
        let missing = match &found {
            RecipeFound::All => 0,
            RecipeFound::AllBut(part) => part.end - part.start,
            RecipeFound::Nothing => len,
        };
        active.comparison.compared(len, len - missing, now);
        if good {
            active.has_piece(index);
            let fresh: u64 =
                self.ledger.coverage().gaps(key, &range).iter().map(|gap| gap.end - gap.start).sum();
            self.progress.kept(fresh);
            let cancelled = self.ledger.cover(key, range.clone());
            self.root.cancel(&cancelled);
        }
        self.give_up_comparing(key);
        let part = match found {
            RecipeFound::AllBut(part) => Some(part),
            RecipeFound::All | RecipeFound::Nothing => None,
        };
        let is_filled = self.ledger.coverage().have(key).is_some_and(|have| have.covers(&range));
        match (was_written, is_filled) {
            // A chunk may have spoilt it since.
            (true, true) => self.recheck(key, index),
            (_, false) => self.is_not_here(key, index, &range, part),
            (false, true) => {}
        }
    }

    /// Once there is a recipe its chunks take the place of what is not worth waiting for.
    pub(super) fn give_up_comparing(&mut self, key: ObjectKey) {
        let (now, rate) = (self.meter.now(), self.network().rate);
        let Some(active) = self.objects.get_mut(&key).filter(|active| active.recipe.is_some()) else {
            return;
        };
        let Some(layout) = active.object.layout() else { return };
        if active.comparison.is_over() || active.comparison.is_worth_waiting_for(rate, now) {
            return;
        }
        for pieces in active.comparison.give_up() {
            let bytes = layout.range(pieces.start).start..layout.range(pieces.end - 1).end;
            self.plan_chunks_in(key, &bytes);
        }
    }

    /// Takes note that a piece's place holds something else: it is wanted, or a part of it if the rest is likely here.
    fn is_not_here(&mut self, key: ObjectKey, index: u64, range: &Range<u64>, part: Option<Range<u64>>) {
        let Some(active) = self.objects.get_mut(&key) else { return };
        active.existing.remove(range.clone());
        match active.recipe {
            Some(_) => self.plan_chunks_in(key, range),
            None => {
                let tag = self.add_piece(key, index, range.start);
                tag.into_iter().for_each(|tag| self.ledger.narrow(tag, part.clone()));
            }
        }
    }
}

/// The network may be tried before an older version that only a disk has, by an object that has it alone; what came in an
/// interrupted transfer is not to come again.
fn begin(table: &mut ObjectTable, key: ObjectKey, now: Duration) {
    let (root, is_alone) = (Arc::clone(&table.root), table.objects.len() == 1);
    if let Some(active) = table.objects.get_mut(&key)
        && let Some(layout) = active.object.layout()
    {
        let target = &active.object.target;
        let may_try = || is_alone && target.base().is_some() && target.base_is_cold();
        let round_trip = || may_try().then(|| root.state().path.shortest);
        active.comparison.begin(layout.piece_len(), round_trip, now);
        if target.base().is_none() {
            active.comparison.has_come_before();
        }
        if !is_alone {
            active.comparison.give_way();
        }
    }
}

/// Asks the network for pieces that are better not waited for.
fn ask_for_uncompared(table: &mut ObjectTable, key: ObjectKey, mut network: NetworkRate, now: Duration) {
    let window = table.root.state().window;
    let mut requested = table.ledger.requested().all;
    while let Some(active) = table.objects.get_mut(&key)
        && let Some(layout) = active.want_layout()
        && let Some(index) = active.comparison.for_network(network, layout.piece_len(), now)
    {
        table.add_piece(key, index, layout.range(index).start);
        requested += layout.piece_len();
        network = NetworkRate { has_room: requested < window, is_idle: false, ..network };
    }
}
