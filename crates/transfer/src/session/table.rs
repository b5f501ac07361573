//! The objects in flight, and what is wanted of them: what comes goes to the workers, what is written is accounted
//! for, what is complete leaves.
//!
//! `plan.rs`, `recipes.rs`, `existing.rs` and `samples.rs` go on with what is wanted next.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::OwnedSemaphorePermit;

use super::active::{Active, ObjectPhase};
use super::announced::may_be_read;
use super::comparing::NetworkRate;
use super::events::Brought;
use super::jobs::Jobs;
use super::meter::NetworkMeter;
use super::partial_pieces::PartialPieces;
use super::unproved::UnprovedPieces;
use super::work::{Job, WriteTarget};
use super::{FetchError, Fetched};
use crate::ledger::Ledger;
use crate::progress::Progress;
use crate::root::{ObjectFacts, OpenWays, Root};
use crate::want::{Delivery, ObjectKey, ObjectOffset, Want, WantId};

/// All that a session fetches.
pub(super) struct ObjectTable {
    pub(super) root: Arc<dyn Root>,
    /// As the root advised last.
    pub(super) chunks_at_once: bool,
    pub(super) objects: HashMap<ObjectKey, Active>,
    pub(super) ledger: Ledger,
    pub(super) meter: NetworkMeter,
    pub(super) partial_pieces: PartialPieces,
    pub(super) unproved: UnprovedPieces,
    pub(super) jobs: Jobs,
    pub(super) progress: Progress,
}

impl ObjectTable {
    /// State of the network now.
    pub(super) fn network(&mut self) -> NetworkRate {
        let (window, requested, whole) =
            (self.root.state().window, self.ledger.requested().all, self.ledger.requested().whole);
        let has_room = requested < window && !self.ledger.has_due(Instant::now());
        NetworkRate { rate: self.meter.rate(whole), has_room, is_idle: whole == 0, requested }
    }

    /// Facts of an object for the root.
    pub(super) fn facts(&self, key: ObjectKey, open: OpenWays) -> Option<ObjectFacts<'_>> {
        let active = self.objects.get(&key)?;
        let (oid, layout) = (active.object.content()?, active.object.layout()?);
        let size = layout.size();
        let piece = layout.piece_len();
        let mut here = active.existing.clone();
        here.remove(0..active.cursor * piece);
        self.ledger
            .coverage()
            .have(key)
            .into_iter()
            .flat_map(|have| have.iter())
            .for_each(|range| here.insert(range));
        let likely = (active.comparison.expected_good() * piece as f64) as u64;
        let accounted = here.len() + likely + self.ledger.requested_bytes(key);
        let missing = size.saturating_sub(accounted);
        Some(ObjectFacts {
            oid,
            asked_as: active.object.oid,
            size,
            missing,
            read_rate: active.comparison.rate(self.meter.now()),
            kept: active.comparison.kept(),
            group: &active.object.group,
            open,
        })
    }

    /// Hands what came to a worker, which checks and writes it.
    pub(super) fn delivery(&mut self, delivery: Delivery, room: Option<OwnedSemaphorePermit>) {
        // A want that is gone came another way.
        if self.ledger.delivered(delivery.tag).is_some() {
            self.check(delivery, room);
        }
    }

    /// Has a worker check and write what came for a want that has not ended.
    pub(super) fn check(&mut self, delivery: Delivery, room: Option<OwnedSemaphorePermit>) {
        let Some(want) = self.ledger.get(delivery.tag) else { return };
        let want = Box::new(want.clone());
        let mut destinations = Vec::with_capacity(want.positions.len());
        for position in &want.positions {
            let Some(active) = self.objects.get_mut(&position.object) else { return };
            active.writing += 1;
            let range = position.offset..position.offset + want.id.len();
            let parts = match want.id {
                // Bytes that are here already are no claim: they stay.
                WantId::Chunk { .. } => self.ledger.coverage().gaps(position.object, &range),
                WantId::Piece { index, .. } => {
                    active.writing_pieces.entry(index).or_insert(false);
                    vec![range]
                }
                WantId::Block { .. } => vec![range],
            };
            destinations.push(WriteTarget { object: Arc::clone(&active.object), parts });
        }
        let doubted = self.ledger.doubted(want.tag);
        self.jobs.send(Job::Check { want, delivery, destinations, doubted, room });
    }

    /// Bytes of a want were written to all its positions.
    pub(super) fn written(&mut self, want: &Want, brought: &Brought, whole: bool, zeros: bool) {
        let only = [(brought.source.clone(), u64::MAX)];
        let shares = if brought.shares.is_empty() { &only } else { &brought.shares[..] };
        // What chunks save is in the search's account.
        let is_all =
            |object: &Active| object.object.content().is_some_and(|oid| want.id.is_chunk_of_all(&oid));
        let is_here_alone = matches!(want.id, WantId::Piece { .. })
            || want.positions.iter().filter_map(|it| self.objects.get(&it.object)).any(is_all);
        let saved = if is_here_alone { brought.saved } else { 0 };
        let done = self.ledger.done(want.tag, &want.positions, Instant::now());
        self.root.cancel(&done.cancelled);
        if !done.filled.is_empty() {
            let once = done.fresh.min(want.id.len());
            let came = once.min(want.missing_len().saturating_sub(saved));
            self.progress.came(shares, came, done.fresh - (once - came), zeros);
            self.progress.kept(once - came);
        }
        if let WantId::Piece { index, .. } = want.id {
            if want.part.is_none() && saved == 0 {
                self.meter.came(want.id.len());
            }
            let filled = done.filled.iter().filter_map(|position| self.objects.get(&position.object));
            filled.for_each(|active| active.has_piece(index));
        }
        if matches!(want.id, WantId::Chunk { .. }) && may_be_read(&brought.source, brought.saved) {
            for ObjectOffset { object, offset } in &done.filled {
                if let Some(active) = self.objects.get(object) {
                    active.has_chunk(*offset..offset + want.id.len());
                }
            }
        }
        if whole {
            done.filled.iter().for_each(|position| self.whole(position.object, want.id.len()));
        }
        if matches!(want.id, WantId::Chunk { .. }) {
            // Also where a piece came first: the chunk may just have spoilt it.
            want.positions.iter().for_each(|&position| self.check_filled_pieces(position, want.id.len()));
        }
    }

    /// An object of one piece is written and closed.
    fn whole(&mut self, key: ObjectKey, size: u64) {
        let Some(active) = self.objects.get(&key) else { return };
        active.object.target.prefix(size);
        let Some(oid) = active.object.content() else { return };
        let about = active.object.about();
        self.finish(key, Ok(Fetched { oid, size, about }));
    }

    /// Reports how much is there from an object's front on, and closes it when that is all.
    pub(super) fn close_if_complete(&mut self, key: ObjectKey) {
        let prefix = self.ledger.coverage().prefix(key);
        let Some(active) = self.objects.get_mut(&key) else { return };
        // Bytes of chunks are a claim until all of it is checked.
        if active.recipe.is_none() && active.part.is_none() {
            active.report_prefix(prefix);
        }
        let Some(layout) = active.object.layout() else { return };
        let planned = active.planned_all(&layout);
        let is_quiet = active.rechecking.is_empty() && active.writing == 0;
        let is_there =
            planned && is_quiet && self.ledger.coverage().is_complete(key, &active.wanted(&layout));
        let Some(oid) = active.object.content().filter(|_| is_there && active.phase == ObjectPhase::Fetching)
        else {
            return;
        };
        if active.part.is_some() {
            let (size, about) = (layout.size(), active.object.about());
            return self.finish(key, Ok(Fetched { oid, size, about }));
        }
        active.phase = ObjectPhase::Completing;
        active.report_prefix(layout.size());
        self.jobs.send(Job::Complete { object: Arc::clone(&active.object) });
    }

    /// An object leaves: it is here, or will not be.
    pub(super) fn finish(&mut self, key: ObjectKey, result: Result<Fetched, FetchError>) {
        let Some(active) = self.objects.remove(&key) else { return };
        active.question.cancel();
        self.partial_pieces.forget(key);
        let cancelled = self.ledger.forget(key);
        // Others may want the same pieces.
        self.unproved.forget(key).into_iter().for_each(|tag| self.ledger.widen(tag));
        self.root.cancel(&cancelled);
        if result.is_ok() {
            self.progress.completed();
        }
        (active.on_done)(result);
    }

    /// Nothing may have come for too long.
    pub(super) fn look_for_stall(&mut self) {
        let last_error = self.root.state().trouble;
        self.progress.with(|snapshot| snapshot.last_error.clone_from(&last_error));
        if let Some(waited) = self.ledger.stalled(Instant::now()) {
            let keys: Vec<_> = self.objects.keys().copied().collect();
            for key in keys {
                self.finish(key, Err(FetchError::Stalled { waited, last_error: last_error.clone() }));
            }
        }
    }
}
