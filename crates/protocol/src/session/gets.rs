//! The `Get`s under way on a connection, by their numbers, and the first piece that was asked for ahead ([`Ahead`]). Pure.

use std::collections::{BTreeMap, HashSet};
use std::time::Instant;

use bytes::Bytes;
use towpath_content::Oid;
use towpath_transfer::{Delivery, Outcome, SourceId, Tag, Want};

use super::ahead::Ahead;
use super::effect::{Effect, LOST};
use super::outbox::SessionOutbox;
use crate::requests::{GetRequest, GetUnderWay, ToCancel, Violation};
use crate::wire::{self, Body, DataHeader, ProofOf, WireCancel, WireOutcome};

/// Wants of this side that the peer answers.
pub(super) struct OpenGets {
    open: BTreeMap<u32, GetUnderWay>,
    pub(super) ahead: Option<Ahead>,
    /// Name of the peer in deliveries.
    source: SourceId,
    suggested: u64,
}

impl OpenGets {
    /// None yet; `source` is the peer's name in deliveries.
    pub(super) const fn new(source: SourceId) -> Self {
        Self { open: BTreeMap::new(), ahead: None, source, suggested: 0 }
    }

    /// What `asked` wants was asked for at `now`, by the request of this number; returns its message.
    pub(super) fn begin(&mut self, now: Instant, request: u32, asked: GetRequest) -> wire::Get {
        let (under_way, message) = GetUnderWay::of(asked, self.source.clone(), now);
        self.open.insert(request, under_way);
        wire::Get { request, ..message }
    }

    /// The peer's name is this from now on.
    pub(super) fn come_from(&mut self, source: SourceId) {
        self.source = source;
    }

    /// True if none is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// The numbers of all.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.open.keys().copied()
    }

    /// Bytes that the peer last suggested to keep outstanding; 0 if it has no opinion.
    pub(super) const fn suggested(&self) -> u64 {
        self.suggested
    }

    /// True if this side gave all of one up; `None` if it is not under way.
    pub(super) fn is_cancelled(&self, request: u32) -> Option<bool> {
        self.open.get(&request).map(GetUnderWay::is_cancelled)
    }

    /// The first piece that was asked for ahead, if this is its request.
    fn ahead(&mut self, request: u32) -> Option<&mut Ahead> {
        self.ahead.as_mut().filter(|ahead| ahead.request == request)
    }

    /// Gives up the wants with these tags that `user` asked for, and no others.
    pub(super) fn cancel(&mut self, user: u64, tags: &[Tag], outbox: &mut SessionOutbox) {
        let tags: HashSet<Tag> = tags.iter().copied().collect();
        let mut withdrawn = Vec::new();
        for (&request, get) in self.open.iter_mut().filter(|(_, get)| get.user == user) {
            if outbox.is_waiting(request) {
                let left_out = get.leave_out(&tags);
                if !left_out.is_empty() {
                    withdrawn.extend(outbox.ask_for(request, get.wire_wants()));
                }
                let cancelled = |tag| Effect::Outcome { request, tag, outcome: Outcome::Cancelled };
                left_out.into_iter().for_each(|tag| outbox.push(cancelled(tag)));
                continue;
            }
            let pieces = match get.give_up(&tags) {
                ToCancel::Nothing => continue,
                ToCancel::Pieces(pieces) => pieces,
                ToCancel::All => Vec::new(),
            };
            outbox.send(Body::Cancel(WireCancel { request, pieces }));
        }
        for request in withdrawn {
            self.finish(request, &Outcome::Cancelled, outbox);
        }
    }

    /// Ends one, with this outcome of wants that have not ended; false if it is not under way.
    pub(super) fn finish(&mut self, request: u32, outcome: &Outcome, outbox: &mut SessionOutbox) -> bool {
        let Some(mut get) = self.open.remove(&request) else { return false };
        if let Some(delivery) = get.take_partial_piece() {
            outbox.push(Effect::PartialPiece { request, delivery });
        }
        get.end_all(outcome, |tag, outcome| outbox.push(Effect::Outcome { request, tag, outcome }));
        outbox.push(Effect::Ended { request, result: Ok(()) });
        true
    }

    /// See [`super::Session::expected`]; `in_parts` tells whether the peer's payloads tell their lengths.
    pub(super) fn expected(&self, header: &DataHeader, in_parts: bool) -> Result<Option<usize>, Violation> {
        if self.ahead.as_ref().is_some_and(|ahead| ahead.request == header.request) {
            // The length that it is to have is not known, so it must tell.
            return Ok(in_parts.then_some(wire::MAX_PAYLOAD));
        }
        self.open.get(&header.request).map(|get| get.expected(header)).transpose()
    }

    /// A proof that precedes data.
    pub(super) fn proof(&mut self, proof: ProofOf, outbox: &SessionOutbox) -> Result<(), Violation> {
        let request = proof.request;
        if let Some(ahead) = self.ahead(request) {
            ahead.proof(proof);
            return Ok(());
        }
        outbox.was_put(request)?;
        self.open.get_mut(&request).map_or(Ok(()), |get| get.proof(proof))
    }

    /// A data frame.
    pub(super) fn data(
        &mut self,
        now: Instant,
        (header, payload): (DataHeader, Option<Bytes>),
        outbox: &mut SessionOutbox,
    ) -> Result<(), Violation> {
        let request = header.request;
        outbox.was_put(request)?;
        if header.suggested > 0 {
            self.suggested = header.suggested.into();
        }
        if let Some(ahead) = self.ahead(request) {
            if !payload.is_some_and(|payload| ahead.data(header, payload)) {
                self.give_up_ahead(outbox);
            }
            return Ok(());
        }
        let (Some(get), Some(payload)) = (self.open.get_mut(&request), payload) else { return Ok(()) };
        deliver(request, get.data(now, header, payload)?, outbox);
        Ok(())
    }

    /// A run of a delta.
    pub(super) fn delta(
        &mut self,
        now: Instant,
        message: &wire::Delta,
        outbox: &mut SessionOutbox,
    ) -> Result<(), Violation> {
        let request = message.request;
        outbox.was_put(request)?;
        let Some(get) = self.open.get_mut(&request) else { return Ok(()) };
        let end = |tag, outcome| outbox.push(Effect::Outcome { request, tag, outcome });
        let deliveries = get.delta(now, message, end)?;
        deliver(request, deliveries, outbox);
        Ok(())
    }

    /// An outcome of one run of wants, of pieces, or of all, of a request that was put.
    pub(super) fn outcome(
        &mut self,
        message: &WireOutcome,
        outbox: &mut SessionOutbox,
    ) -> Result<(), Violation> {
        let request = message.request;
        if self.ahead(request).is_some() {
            // The one who wants it asks again, and learns why it can't be had.
            self.ahead = None;
        }
        let Some(get) = self.open.get_mut(&request) else { return Ok(()) };
        if let Some(delivery) = get.take_front(message) {
            outbox.push(Effect::PartialPiece { request, delivery });
        }
        get.outcome(message, |tag, outcome| outbox.push(Effect::Outcome { request, tag, outcome }))
    }

    /// The request for the next steps of what came in part by this one, with which the peer is done.
    pub(super) fn next_steps(&mut self, request: u32) -> Option<GetRequest> {
        self.open.get_mut(&request).and_then(|get| get.next_steps(request))
    }

    /// Number by which a request goes on now, as its steps are requested one after the other.
    pub(super) fn current(&self, request: u32) -> u32 {
        let goes_on = |get: &GetUnderWay| get.first == Some(request);
        self.open.iter().find(|(_, get)| goes_on(get)).map_or(request, |(number, _)| *number)
    }

    /// The peer is done with a request: after a cancellation some wants end only here.
    pub(super) fn done(&mut self, request: u32, outbox: &mut SessionOutbox) {
        if let Some(ahead) = self.ahead(request) {
            ahead.is_done = true;
        }
        self.finish(request, &Outcome::Cancelled, outbox);
    }

    /// See [`super::Session::claim`]; an error ends the connection.
    pub(super) fn claim(
        &mut self,
        now: Instant,
        wants: &mut Vec<Want>,
        outbox: &mut SessionOutbox,
    ) -> Option<(u32, Result<(), Violation>)> {
        let ahead = self.ahead.as_ref().filter(|ahead| ahead.is_of(wants))?;
        let Some(want) = ahead.take_want(wants) else {
            self.give_up_ahead(outbox);
            return None;
        };
        let ahead = self.ahead.take()?;
        let (request, is_done, tag) = (ahead.request, ahead.is_done, want.tag);
        let claimed = ahead.claim(now, want, self.source.clone()).map(|(get, deliveries)| {
            self.open.insert(request, get);
            deliver(request, deliveries, outbox);
            if is_done {
                self.finish(request, &Outcome::Cancelled, outbox);
            }
        });
        if claimed.is_err() {
            outbox.push(Effect::Outcome { request, tag, outcome: LOST });
            outbox.push(Effect::Ended { request, result: Ok(()) });
        }
        Some((request, claimed))
    }

    /// The piece of this object may be here already: what has not come of it is better asked for again, if it is wanted.
    pub(super) fn stop_ahead(&mut self, oid: &Oid, outbox: &mut SessionOutbox) {
        if self.ahead.as_ref().is_some_and(|ahead| ahead.oid == *oid && !ahead.is_done) {
            self.give_up_ahead(outbox);
        }
    }

    /// Nobody will want the piece.
    pub(super) fn give_up_ahead(&mut self, outbox: &mut SessionOutbox) {
        if let Some(ahead) = self.ahead.take_if(|ahead| !ahead.is_done) {
            outbox.cancel(ahead.request);
        }
        self.ahead = None;
    }
}

/// Hands bytes to whoever asked for them.
fn deliver(request: u32, deliveries: Vec<Delivery>, outbox: &mut SessionOutbox) {
    deliveries.into_iter().for_each(|delivery| outbox.push(Effect::Delivery { request, delivery }));
}
