//! Every want of a session and what is to be requested next: a state machine that is handed the time.
//!
//! A want is *queued*, *delayed* until a moment, or *requested*. It leaves the ledger when its bytes
//! are checked and written, when it fails, or when its bytes came another way: coverage is kept
//! by byte interval for each object, so a piece that arrives ends the chunks inside it, and the
//! other way round.
//!
//! | module | story |
//! |---|---|
//! | `wants` | the wants that have not ended, and how far each is |
//! | `queue` | those to be asked for, in their order |
//! | `coverage` | which bytes are there |

mod coverage;
mod queue;
mod wants;

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use self::coverage::ByteCoverage;
pub use self::wants::RequestedCost;
use self::wants::{OpenWants, WantEntry};
use crate::gathering::DoubtedPart;
use crate::intervals::Intervals;
use crate::source_id::SourceId;
use crate::want::{ObjectKey, ObjectOffset, Outcome, Tag, Want, WantId};

/// Limits of a ledger.
#[derive(Debug, Clone, Copy)]
pub struct LedgerConfig {
    /// A want that one source delivered wrong this often fails. Default 4.
    pub max_bad: u32,
    /// With wants under way and no checked bytes for this long, the transfer has stalled.
    /// Default 60 s.
    pub wait_limit: Duration,
}

impl Default for LedgerConfig {
    fn default() -> Self {
        Self { max_bad: 4, wait_limit: Duration::from_secs(60) }
    }
}

/// Next step for a want that ended without its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WantResult {
    /// It will be requested again.
    Again,
    /// It has failed. What that means to the objects it belongs to is not the ledger's to say.
    Failed(Box<Want>),
    /// It was no longer wanted.
    Unknown,
}

/// Result of a want whose bytes were written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Completed {
    /// The positions that they filled.
    pub filled: Vec<ObjectOffset>,
    /// Bytes that were not there before, over all positions.
    pub fresh: u64,
    /// Wants that need not be brought any more and were requested.
    pub cancelled: Vec<Tag>,
}

fn bytes_of(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

/// See the head of this module.
#[derive(Debug)]
pub struct Ledger {
    config: LedgerConfig,
    wants: OpenWants,
    coverage: ByteCoverage,
    last_progress: Instant,
}

impl Ledger {
    /// An empty ledger.
    pub fn new(config: LedgerConfig, now: Instant) -> Self {
        Self { config, wants: OpenWants::new(), coverage: ByteCoverage::default(), last_progress: now }
    }

    /// Adds a want for `id` at `position`; the same id wanted already gets a further position.
    pub fn add(
        &mut self,
        id: WantId,
        position: ObjectOffset,
        group: &Arc<crate::want::Group>,
        now: Instant,
    ) -> Tag {
        if self.wants.is_empty() {
            self.last_progress = now;
        }
        let tag = self.wants.open(id, group);
        if self.coverage.add(position, tag, id.len())
            && let Some(entry) = self.wants.get_mut(tag)
        {
            entry.want.positions.push(position);
        }
        tag
    }

    /// Of a piece that was not requested yet only `part` is missing.
    pub fn narrow(&mut self, tag: Tag, part: Option<Range<u64>>) {
        self.wants.narrow(tag, part);
    }

    /// Cost of what is requested and has not ended.
    pub const fn requested(&self) -> RequestedCost {
        self.wants.requested()
    }

    /// Bytes that are there.
    pub const fn coverage(&self) -> &ByteCoverage {
        &self.coverage
    }

    /// Takes the next wants to ask for: at least one if any is due, else at most `room` bytes'
    /// and `max` wants' worth.
    pub fn next_batch(&mut self, room: u64, max: usize, now: Instant) -> Vec<Want> {
        self.wants.next_batch(room, max, now)
    }

    /// Takes every chunk that is due. Whoever brings them thus takes what comes: they do not
    /// count as requested against a window.
    pub fn next_chunks(&mut self, now: Instant) -> Vec<Want> {
        self.wants.next_chunks(now)
    }

    /// The number of the last batch.
    pub const fn last_batch(&self) -> u64 {
        self.wants.last_batch()
    }

    /// Time at which the next delayed want is due.
    pub fn next_wake(&self) -> Option<Instant> {
        self.wants.next_wake()
    }

    /// True if anything could be requested now.
    pub fn has_due(&mut self, now: Instant) -> bool {
        self.wants.wake(now).has_any()
    }

    /// True if a chunk could be requested now.
    pub fn has_due_chunks(&mut self, now: Instant) -> bool {
        self.wants.wake(now).has_chunks()
    }

    /// Bytes came for `tag` and are to be checked. Returns the want, unless it has ended or other
    /// bytes for it are being checked: then these are a duplicate.
    pub fn delivered(&mut self, tag: Tag) -> Option<&Want> {
        let entry = self.wants.get_mut(tag).filter(|entry| !entry.delivered)?;
        entry.delivered = true;
        Some(&entry.want)
    }

    /// True if `tag` was last requested in `batch` and nothing has come for it.
    pub fn is_waiting(&self, tag: Tag, batch: u64) -> bool {
        self.wants.is_waiting(tag, batch)
    }

    /// A want that has not ended.
    pub fn get(&self, tag: Tag) -> Option<&Want> {
        self.wants.get(tag).map(|entry| &entry.want)
    }

    /// The bytes of `tag` are checked and written to `written`. Returns the positions that they
    /// filled, how many bytes are new there, and wants that are covered by now and need not be
    /// brought. A position that the want got while its bytes were on their way to the others is still to
    /// be filled.
    pub fn done(&mut self, tag: Tag, written: &[ObjectOffset], now: Instant) -> Completed {
        self.last_progress = now;
        let mut done = Completed::default();
        let Some((positions, len)) = self.take_positions(tag, written) else { return done };
        for position in &positions {
            let range = position.offset..position.offset + len;
            done.fresh += bytes_of(&self.coverage.gaps(position.object, &range));
            done.cancelled.extend(self.cover(position.object, range));
        }
        Completed { filled: positions, ..done }
    }

    /// Takes the positions out that were written; a want without others is closed.
    fn take_positions(&mut self, tag: Tag, written: &[ObjectOffset]) -> Option<(Vec<ObjectOffset>, u64)> {
        let written: HashSet<&ObjectOffset> = written.iter().collect();
        let entry = self.wants.get_mut(tag)?;
        let is_filled = |position: &ObjectOffset| written.contains(position);
        let (filled, rest) = entry.want.positions.iter().copied().partition::<Vec<_>, _>(is_filled);
        let len = entry.want.id.len();
        if rest.is_empty() {
            self.close(tag);
            return Some((filled, len));
        }
        entry.want.positions = rest;
        filled.iter().for_each(|position| self.coverage.remove(position, tag));
        self.wants.requeue(tag);
        Some((filled, len))
    }

    /// Bytes of `object` are there (found, checked and written without a want). Returns wants that
    /// need not be brought any more; those that were requested are to be cancelled.
    pub fn cover(&mut self, object: ObjectKey, range: Range<u64>) -> Vec<Tag> {
        self.coverage.cover(object, range.clone());
        let candidates: Vec<Tag> = self.coverage.near(object, &range).map(|(_, tag)| tag).collect();
        let mut cancelled = Vec::new();
        for tag in candidates {
            let Some(entry) = self.wants.get(tag) else { continue };
            if self.coverage.covers(&entry.want.positions, entry.want.id.len()) {
                let was_requested = entry.is_requested();
                self.close(tag);
                if was_requested {
                    cancelled.push(tag);
                }
            }
        }
        cancelled
    }

    /// Takes `tag` out of every index.
    fn close(&mut self, tag: Tag) -> Option<Want> {
        let want = self.wants.close(tag)?;
        want.positions.iter().for_each(|position| self.coverage.remove(position, tag));
        Some(want)
    }

    /// Bytes that were there turn out wrong (a recipe whose chunks do not make up their piece).
    pub fn uncover(&mut self, object: ObjectKey, range: Range<u64>) {
        self.coverage.uncover(object, range);
    }

    /// Takes note that what `source` delivered for `tag` is wrong. Others are not to blame: each source's own count decides.
    pub fn bad(&mut self, tag: Tag, source: &SourceId) -> WantResult {
        let Some(entry) = self.wants.get_mut(tag) else { return WantResult::Unknown };
        if entry.was_wrong(source) >= self.config.max_bad {
            return self.fail(tag);
        }
        self.wants.requeue(tag);
        WantResult::Again
    }

    /// What several sources brought for `tag` is wrong as a whole, and whose part that is nobody knows: all of it is requested of
    /// one. Whoever asks several all the same is not asked for ever.
    pub fn doubt(&mut self, tag: Tag, parts: Vec<DoubtedPart>) -> WantResult {
        let Some(entry) = self.wants.get_mut(tag) else { return WantResult::Unknown };
        if entry.was_doubtful(parts) >= self.config.max_bad {
            return self.fail(tag);
        }
        self.wants.requeue(tag);
        WantResult::Again
    }

    /// Parts that came for `tag` before and may have been wrong.
    pub fn doubted(&self, tag: Tag) -> Vec<DoubtedPart> {
        self.wants.get(tag).map_or_else(Vec::new, |entry| entry.doubted.clone())
    }

    /// What was delivered for `tag` is of no use, a part of a piece or what nobody can check, and nobody is to blame: all of it is
    /// requested, if anybody still wants it.
    pub fn widen(&mut self, tag: Tag) {
        self.wants.requeue(tag);
        self.narrow(tag, None);
    }

    /// A want ended without bytes. If bytes for it are being checked, that decides.
    pub fn ended(&mut self, tag: Tag, outcome: &Outcome, now: Instant) -> WantResult {
        if self.wants.get(tag).is_none_or(|entry| entry.delivered) {
            return WantResult::Unknown;
        }
        match outcome {
            Outcome::RetryLater(delay) => self.wants.delay(tag, now + *delay),
            Outcome::Cancelled => self.wants.requeue(tag),
            _ => return self.fail(tag),
        }
        WantResult::Again
    }

    fn fail(&mut self, tag: Tag) -> WantResult {
        self.close(tag).map_or(WantResult::Unknown, |want| WantResult::Failed(Box::new(want)))
    }

    /// Forgets an object; returns wants of nobody else that were requested, to be cancelled.
    pub fn forget(&mut self, object: ObjectKey) -> Vec<Tag> {
        let mut cancelled = Vec::new();
        for (_, tag) in self.coverage.forget(object) {
            if self.leave(tag, object) {
                cancelled.push(tag);
            }
        }
        cancelled
    }

    /// Takes back the pieces of `object` that are not requested of anybody: something else is wanted there. Returns which.
    pub fn take_back_pieces(&mut self, object: ObjectKey) -> Vec<u64> {
        let wants = &self.wants;
        let is_idle = |tag: Tag| {
            let entry = wants.get(tag);
            entry.is_some_and(|entry| entry.is_piece() && entry.is_idle())
        };
        let idle: Vec<_> = self.coverage.wants(object).filter(|&(_, tag)| is_idle(tag)).collect();
        let mut taken = Vec::new();
        for (offset, tag) in idle {
            if let Some(WantId::Piece { index, .. }) = self.get(tag).map(|want| want.id) {
                taken.push(index);
            }
            self.coverage.remove(&ObjectOffset { object, offset }, tag);
            self.leave(tag, object);
        }
        taken
    }

    /// Takes a piece back that was last requested in `batch` or before and for which nothing has come. Returns
    /// the positions that it was wanted for; none if it is none of these.
    pub fn take_back_piece(&mut self, tag: Tag, batch: u64) -> Vec<ObjectOffset> {
        let is_old = |entry: &&WantEntry| entry.is_piece() && entry.is_old(batch);
        if self.wants.get(tag).filter(is_old).is_none() {
            return Vec::new();
        }
        self.close(tag).map_or_else(Vec::new, |want| want.positions)
    }

    /// Takes every place in `object` from a want. One without others is closed: then returns whether it was asked.
    fn leave(&mut self, tag: Tag, object: ObjectKey) -> bool {
        let Some(entry) = self.wants.get_mut(tag) else { return false };
        entry.want.positions.retain(|position| position.object != object);
        let (was_requested, is_over) = (entry.is_requested(), entry.want.positions.is_empty());
        is_over && self.close(tag).is_some() && was_requested
    }

    /// The parts of `range` that are not there and that no piece which is wanted will fill.
    pub fn gaps_beside_pieces(&self, object: ObjectKey, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut expected = Intervals::default();
        for (offset, tag) in self.coverage.near(object, range) {
            let entry = self.wants.get(tag).filter(|entry| entry.is_piece());
            entry.into_iter().for_each(|entry| expected.insert(offset..offset + entry.want.id.len()));
        }
        let gaps = self.coverage.gaps(object, range);
        gaps.iter().flat_map(|gap| expected.gaps(gap)).collect()
    }

    /// Bytes of the wants of `object` that are requested.
    pub fn requested_bytes(&self, object: ObjectKey) -> u64 {
        let entries = self.coverage.wants(object).filter_map(|(_, tag)| self.wants.get(tag));
        entries.filter(|entry| entry.is_requested()).map(|entry| entry.want.id.len()).sum()
    }

    /// Time since bytes last came, if that is over the wait limit and any are due.
    pub fn stalled(&self, now: Instant) -> Option<Duration> {
        let waited = now.saturating_duration_since(self.last_progress);
        (!self.wants.is_empty() && waited >= self.config.wait_limit).then_some(waited)
    }
}

#[cfg(test)]
mod tests;
