//! Values first, where a source proves nothing: before pieces are wanted of one, those that know the object are asked for the
//! values of its pieces, once. A piece of such a source that comes before its value, as the source joined later say, is kept until that is there. Only what differs
//! from its value is wrong, and only then is anybody blamed.

use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;

use super::FetchError;
use super::active::ObjectPhase;
use super::actor::Actor;
use super::requests::ValuesRequest;
use super::table::ObjectTable;
use crate::ledger::WantResult;
use crate::want::{Delivery, ObjectKey, Outcome, Payload, Proof, WantId};

/// Delay before a piece is wanted again that there was no room to keep.
const NO_ROOM: Duration = Duration::from_millis(500);

impl Actor {
    /// Asks for the values of the pieces that are wanted of an object.
    pub(super) fn ask_for_values(&mut self, key: ObjectKey) {
        let Some(active) = self.table.objects.get_mut(&key) else { return };
        let Some(layout) = active.object.layout() else { return };
        active.values = ValuesRequest::Now;
        let wanted = active.part.clone().unwrap_or(0..layout.count());
        self.questions.about(active, Some(wanted));
    }

    /// Some values came.
    pub(super) fn told_values(&mut self, key: ObjectKey, proof: &Proof) {
        let Some(active) = self.table.objects.get_mut(&key) else { return };
        if active.values == ValuesRequest::Now {
            active.values = ValuesRequest::Coming;
        }
        match active.object.learn_proof(proof) {
            Ok(()) => self.check_unproved(key),
            Err(why) => tracing::warn!(%why, "a source sent a wrong proof"),
        }
    }

    /// No more values come. Goes on without them where pieces may come with proofs: then what an earlier transfer left cannot
    /// be checked, and is fetched again.
    pub(super) fn values_ended(&mut self, key: ObjectKey, result: Result<(), Outcome>) {
        let Some(active) = self.table.objects.get_mut(&key) else { return };
        let nobody_told = active.values == ValuesRequest::Now;
        active.values = ValuesRequest::Over;
        if active.phase == ObjectPhase::Proving {
            if nobody_told && !self.table.root.state().proves {
                let error = match result {
                    Err(Outcome::RetryLater(waited)) => {
                        FetchError::Stalled { waited, last_error: self.table.root.state().trouble }
                    }
                    _ => FetchError::NoValues,
                };
                return self.table.finish(key, Err(error));
            }
            active.phase = ObjectPhase::Fetching;
            self.table.want_whole(key);
            self.advance(key);
        }
        for delivery in self.table.unproved.take(key, |_| true) {
            self.is_uncheckable(&delivery);
        }
    }

    /// Something came for a want.
    pub(super) fn delivered(&mut self, delivery: Delivery, room: Option<OwnedSemaphorePermit>) {
        match unproved_piece(&self.table, &delivery) {
            None => self.table.delivery(delivery, room),
            Some((key, index)) => self.keep_unproved(key, index, delivery),
        }
    }

    /// Keeps a piece whose value is not known, and asks for the values unless that was done.
    fn keep_unproved(&mut self, key: ObjectKey, index: u64, delivery: Delivery) {
        let Some(active) = self.table.objects.get(&key) else { return };
        let request = active.values;
        if request == ValuesRequest::Over {
            return self.is_uncheckable(&delivery);
        }
        if !self.table.unproved.fits(&delivery) {
            let later = Outcome::RetryLater(NO_ROOM);
            self.table.ledger.ended(delivery.tag, &later, Instant::now());
        } else if self.table.ledger.delivered(delivery.tag).is_some() {
            self.table.unproved.keep(key, index, delivery);
        }
        if request == ValuesRequest::No {
            self.ask_for_values(key);
        }
    }

    /// Has pieces checked whose values are known by now.
    pub(super) fn check_unproved(&mut self, key: ObjectKey) {
        let Some(active) = self.table.objects.get(&key) else { return };
        let is_known = |index| active.object.expected(index).is_some();
        for delivery in self.table.unproved.take(key, is_known) {
            self.table.check(delivery, None);
        }
    }

    /// A piece came without a proof, and nobody tells its value. Nobody is to blame; another source may bring it with its proof.
    fn is_uncheckable(&mut self, delivery: &Delivery) {
        tracing::debug!(source = %delivery.source, "a piece came without a proof, and nobody tells its value");
        if let WantResult::Failed(want) = self.table.ledger.bad(delivery.tag, &delivery.source) {
            self.failed(&want, || FetchError::NoValues);
        }
    }
}

/// The object and number of a whole piece that came, if neither its value nor a proof is here, and no source broke its word by
/// that: one that says that it proves what it brings does so.
fn unproved_piece(table: &ObjectTable, delivery: &Delivery) -> Option<(ObjectKey, u64)> {
    let want = table.ledger.get(delivery.tag).filter(|_| delivery.proof.is_none())?;
    let WantId::Piece { index, .. } = want.id else { return None };
    let (key, len) = (want.positions.first()?.object, delivery.payload.memory() as u64);
    let object = &table.objects.get(&key)?.object;
    let is_whole = matches!(delivery.payload, Payload::Zeros) || len == want.id.len();
    // Of a live object only pieces are wanted whose values its node has signed.
    let is_unknown = object.content().is_some() && object.expected(index).is_none();
    // What was put together has no proof, whoever brought the parts.
    let may_be_bare = || matches!(delivery.payload, Payload::Gathered(_)) || !table.root.state().proves;
    (is_whole && is_unknown && may_be_bare()).then_some((key, index))
}
