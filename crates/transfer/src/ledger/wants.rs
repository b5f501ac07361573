//! The wants that have not ended, by their tags: which are queued, delayed or asked.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use super::queue::WantQueue;
use crate::gathering::DoubtedPart;
use crate::source_id::SourceId;
use crate::want::{Group, Tag, Want, WantId};

/// Cost of each want besides its bytes, so that empty files are not free.
pub(super) const WANT_COST: u64 = 512;

/// Stage of a want.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WantStage {
    Queued,
    Delayed,
    Requested,
}

/// A want that has not ended.
#[derive(Debug)]
pub(super) struct WantEntry {
    pub(super) want: Want,
    stage: WantStage,
    /// Number of wrong deliveries, by who brought them; mostly none.
    bad: Vec<(SourceId, u32)>,
    /// Parts of several sources that were wrong together, the last time.
    pub(super) doubted: Vec<DoubtedPart>,
    /// Number of times that happened.
    doubtful: u32,
    /// Its bytes are being checked.
    pub(super) delivered: bool,
    /// The batch it was last asked in.
    batch: u64,
    /// Cost against the window while it is requested.
    charged: u64,
}

impl WantEntry {
    /// From now on it is asked.
    fn ask(&mut self, batch: u64, charged: u64) -> Want {
        (self.stage, self.batch, self.charged) = (WantStage::Requested, batch, charged);
        self.want.clone()
    }

    /// What `source` delivered was wrong; returns how often that has happened.
    pub(super) fn was_wrong(&mut self, source: &SourceId) -> u32 {
        let known = self.bad.iter().position(|(who, _)| who == source);
        let index = known.unwrap_or_else(|| {
            self.bad.push((source.clone(), 0));
            self.bad.len() - 1
        });
        self.bad[index].1 += 1;
        self.bad[index].1
    }

    /// What several sources brought was wrong as a whole; returns how often that has happened.
    pub(super) fn was_doubtful(&mut self, parts: Vec<DoubtedPart>) -> u32 {
        self.want.undivided = true;
        (self.doubted, self.doubtful) = (parts, self.doubtful + 1);
        self.doubtful
    }

    /// True if it is to be requested.
    fn is_queued(&self) -> bool {
        self.stage == WantStage::Queued && !self.delivered
    }

    /// It was asked, and has not ended.
    pub(super) fn is_requested(&self) -> bool {
        self.stage == WantStage::Requested
    }

    /// Nobody is asked for it, and nothing came for it.
    pub(super) fn is_idle(&self) -> bool {
        !self.is_requested() && !self.delivered
    }

    /// It was last asked in `batch`, and nothing came for it.
    fn is_waiting(&self, batch: u64) -> bool {
        self.is_requested() && self.batch == batch && !self.delivered
    }

    /// It was not asked after `batch`, and nothing came for it.
    pub(super) const fn is_old(&self, batch: u64) -> bool {
        self.batch <= batch && !self.delivered
    }

    /// It is for a piece.
    pub(super) const fn is_piece(&self) -> bool {
        matches!(self.want.id, WantId::Piece { .. })
    }
}

/// Bytes (and per-want costs) that are asked and have not ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestedCost {
    /// Of all wants.
    pub all: u64,
    /// Of wants of which all is missing: by them it shows how fast a network is, which the few bytes of
    /// others do not fill.
    pub whole: u64,
}

impl RequestedCost {
    const fn add(&mut self, cost: u64, is_whole: bool) {
        self.all += cost;
        self.whole += if is_whole { cost } else { 0 };
    }

    const fn take(&mut self, cost: u64, is_whole: bool) {
        self.all -= cost;
        self.whole -= if is_whole { cost } else { 0 };
    }
}

/// Cost of a want against a source's window.
fn cost(want: &Want) -> u64 {
    want.missing_len() + WANT_COST
}

/// All wants of a ledger, whichever objects they belong to.
#[derive(Debug)]
pub(super) struct OpenWants {
    entries: HashMap<Tag, WantEntry>,
    by_id: HashMap<WantId, Tag>,
    queue: WantQueue,
    requested: RequestedCost,
    next_tag: Tag,
    batches: u64,
}

impl OpenWants {
    /// None yet.
    pub(super) fn new() -> Self {
        Self {
            entries: HashMap::new(),
            by_id: HashMap::new(),
            queue: WantQueue::default(),
            requested: RequestedCost::default(),
            next_tag: 1,
            batches: 0,
        }
    }

    /// The want for `id`, which is opened and queued if there is none.
    pub(super) fn open(&mut self, id: WantId, group: &Arc<Group>) -> Tag {
        if let Some(&tag) = self.by_id.get(&id) {
            return tag;
        }
        let tag = self.next_tag;
        self.next_tag += 1;
        let (positions, group) = (Vec::with_capacity(1), Arc::clone(group));
        let want = Want { positions, group, ..Want::new(tag, id) };
        let entry = WantEntry {
            want,
            stage: WantStage::Queued,
            bad: Vec::new(),
            doubted: Vec::new(),
            doubtful: 0,
            delivered: false,
            batch: 0,
            charged: 0,
        };
        self.entries.insert(tag, entry);
        self.by_id.insert(id, tag);
        self.queue.push(&id, tag);
        tag
    }

    /// True if all have ended.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// One of them.
    pub(super) fn get(&self, tag: Tag) -> Option<&WantEntry> {
        self.entries.get(&tag)
    }

    /// One of them, to change its places or what came for it.
    pub(super) fn get_mut(&mut self, tag: Tag) -> Option<&mut WantEntry> {
        self.entries.get_mut(&tag)
    }

    /// Of a piece that was not asked yet only `part` is missing.
    pub(super) fn narrow(&mut self, tag: Tag, part: Option<Range<u64>>) {
        if let Some(entry) = self.entries.get_mut(&tag).filter(|entry| entry.stage == WantStage::Queued) {
            entry.want.part = part;
        }
    }

    /// Cost of what is requested and has not ended.
    pub(super) const fn requested(&self) -> RequestedCost {
        self.requested
    }

    /// See [`super::Ledger::next_batch`].
    pub(super) fn next_batch(&mut self, room: u64, max: usize, now: Instant) -> Vec<Want> {
        self.wake(now);
        self.batches += 1;
        let number = self.batches;
        let mut batch = Vec::new();
        let mut used = 0;
        while batch.len() < max
            && let Some(first) =
                self.queue.first(|tag| self.entries.get(tag).is_some_and(WantEntry::is_queued))
            && let Some(entry) = self.entries.get_mut(&first)
        {
            let cost = cost(&entry.want);
            used += cost;
            if used > room && !batch.is_empty() {
                break;
            }
            let id = entry.want.id;
            let want = entry.ask(number, cost);
            self.requested.add(cost, want.part.is_none());
            batch.push(want);
            self.queue.pop(&id);
        }
        batch
    }

    /// See [`super::Ledger::next_chunks`].
    pub(super) fn next_chunks(&mut self, now: Instant) -> Vec<Want> {
        self.wake(now);
        self.batches += 1;
        let (entries, batch) = (&mut self.entries, self.batches);
        let due = self.queue.drain_chunks().filter_map(|tag| {
            let entry = entries.get_mut(&tag).filter(|entry| entry.is_queued())?;
            Some(entry.ask(batch, 0))
        });
        due.collect()
    }

    /// The number of the last batch.
    pub(super) const fn last_batch(&self) -> u64 {
        self.batches
    }

    /// True if `tag` was last requested in `batch` and nothing has come for it.
    pub(super) fn is_waiting(&self, tag: Tag, batch: u64) -> bool {
        self.get(tag).is_some_and(|entry| entry.is_waiting(batch))
    }

    /// Puts delayed wants that are due back in the queue, which is returned.
    pub(super) fn wake(&mut self, now: Instant) -> &WantQueue {
        while let Some(tag) = self.queue.due(now) {
            if let Some(entry) = self.entries.get_mut(&tag).filter(|entry| entry.stage == WantStage::Delayed)
            {
                entry.stage = WantStage::Queued;
                self.queue.push(&entry.want.id, tag);
            }
        }
        &self.queue
    }

    /// Time at which the next delayed want is due.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.queue.next_wake()
    }

    /// A want is to be asked again, now.
    pub(super) fn requeue(&mut self, tag: Tag) {
        self.leave_asked(tag, WantStage::Queued);
        if let Some(id) = self.entries.get(&tag).map(|entry| entry.want.id) {
            self.queue.push(&id, tag);
        }
    }

    /// A want is to be asked again at a moment.
    pub(super) fn delay(&mut self, tag: Tag, until: Instant) {
        self.leave_asked(tag, WantStage::Delayed);
        self.queue.delay(tag, until);
    }

    fn leave_asked(&mut self, tag: Tag, stage: WantStage) {
        if let Some(entry) = self.entries.get_mut(&tag) {
            let (charged, is_whole) = (std::mem::take(&mut entry.charged), entry.want.part.is_none());
            entry.stage = stage;
            entry.delivered = false;
            self.requested.take(charged, is_whole);
        }
    }

    /// A want has ended.
    pub(super) fn close(&mut self, tag: Tag) -> Option<Want> {
        let entry = self.entries.remove(&tag)?;
        self.requested.take(entry.charged, entry.want.part.is_none());
        self.by_id.remove(&entry.want.id);
        Some(entry.want)
    }
}
