//! The first piece of an object, asked for together with the question what the object is. It saves a
//! round trip: only the answer tells how the object is cut, and so what the rest is called. Pure;
//! [`Session`] feeds it.
//!
//! Bytes that come are kept as they are, no more than a piece of 256 KiB, until somebody wants that piece. Then
//! it is an ordinary `Get` under way.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use towpath_content::Oid;
use towpath_content::pieces::MIN_LOG2;
use towpath_transfer::{Delivery, Outcome, Want, WantId};

use super::{Effect, LOST, Session};
use crate::requests::{GetUnderWay, Violation, runs};
use crate::wire::{self, Body, DataHeader, ProofOf, WireWant, oid_field};

/// Most bytes that are kept: larger pieces have only objects that take hours.
const MOST: usize = 1 << MIN_LOG2;
/// Most frames that are kept. Nobody cuts a piece into smaller ones than 16 KiB.
const MOST_FRAMES: usize = 32;

impl Session {
    /// Asks for the first piece of an object of which nothing is known yet, for [`Self::claim`].
    pub fn get_ahead(&mut self, now: Instant, root: &Oid, oid: &Oid) {
        self.give_up_ahead();
        if self.end.is_some() {
            return;
        }
        let request = self.number();
        self.ahead = Some(Ahead::new(*oid, request, now));
        let (root, wants) = (oid_field(root), vec![Ahead::wire_want(oid)]);
        let urgency = self.config.priority.into();
        self.put(request, Body::Get(wire::Get { request, root, wants, urgency }));
    }

    /// If a piece that is wanted was asked for ahead, takes its want out of `wants`, and returns the number
    /// of the request that it is under way by, which ends as if it had been asked for now. If only
    /// others of that object are wanted, that piece is given up.
    pub fn claim(&mut self, now: Instant, wants: &mut Vec<Want>) -> Option<u32> {
        let ahead = self.ahead.as_ref().filter(|ahead| ahead.is_of(wants))?;
        let Some(want) = ahead.take_want(wants) else {
            self.give_up_ahead();
            return None;
        };
        let ahead = self.ahead.take()?;
        let (request, is_done, tag) = (ahead.request, ahead.is_done, want.tag);
        match ahead.claim(now, want, Arc::clone(&self.config.source)) {
            Ok((get, deliveries)) => {
                self.gets.insert(request, get);
                self.hand_on(request, deliveries);
                if is_done {
                    self.finish(request, &Outcome::Cancelled, Ok(()));
                }
            }
            Err(violation) => {
                self.effects.push_back(Effect::Outcome { request, tag, outcome: LOST });
                self.effects.push_back(Effect::Ended { request, result: Ok(()) });
                self.close(Some(violation.to_string()));
            }
        }
        Some(request)
    }

    pub(super) fn give_up_ahead(&mut self) {
        if let Some(ahead) = self.ahead.take_if(|ahead| !ahead.is_done)
            && !self.withdraw(ahead.request)
        {
            self.send_cancel(ahead.request);
        }
        self.ahead = None;
    }

    /// The object that was requested ahead, if this is its request.
    pub(super) fn ahead(&mut self, request: u32) -> Option<&mut Ahead> {
        self.ahead.as_mut().filter(|ahead| ahead.request == request)
    }
}

/// A first piece that was asked for and that nobody wants yet.
pub struct Ahead {
    /// The object.
    pub oid: Oid,
    /// The number of its `Get`.
    pub request: u32,
    requested_at: Instant,
    proof: Option<ProofOf>,
    frames: Vec<(DataHeader, Bytes)>,
    /// The peer has nothing more to say.
    pub is_done: bool,
}

impl Ahead {
    /// The first piece of `oid`, asked for by the request of this number.
    pub const fn new(oid: Oid, request: u32, requested_at: Instant) -> Self {
        Self { oid, request, requested_at, proof: None, frames: Vec::new(), is_done: false }
    }

    /// The want to request.
    pub fn wire_want(oid: &Oid) -> WireWant {
        WireWant { oid: oid_field(oid), first: 0, count: 1, ..WireWant::default() }
    }

    /// Keeps the proof that precedes the data.
    pub fn proof(&mut self, proof: ProofOf) {
        self.proof = Some(proof);
    }

    /// Keeps a frame; false if that is more than a first piece is worth.
    pub fn data(&mut self, header: DataHeader, payload: Bytes) -> bool {
        let kept: usize = self.frames.iter().map(|(_, payload)| payload.len()).sum();
        let has_room = kept + payload.len() <= MOST && self.frames.len() < MOST_FRAMES;
        if has_room {
            self.frames.push((header, payload));
        }
        has_room
    }

    /// Takes the want for this piece, all of it, out of `wants`, if it is there.
    pub fn take_want(&self, wants: &mut Vec<Want>) -> Option<Want> {
        let is_it = |want: &Want| {
            matches!(want.id, WantId::Piece { oid, index: 0, .. } if oid == self.oid) && want.part.is_none()
        };
        wants.iter().position(is_it).map(|at| wants.remove(at))
    }

    /// True if any of `wants` is for a piece of the object.
    pub fn is_of(&self, wants: &[Want]) -> bool {
        wants.iter().any(|want| matches!(want.id, WantId::Piece { oid, .. } if oid == self.oid))
    }

    /// Somebody wants it: what has come goes where it would have gone.
    pub fn claim(
        self,
        now: Instant,
        want: Want,
        source: Arc<str>,
    ) -> Result<(GetUnderWay, Vec<Delivery>), Violation> {
        let mut get = GetUnderWay::new(runs(vec![want], false), source, self.requested_at);
        self.proof.map_or(Ok(()), |proof| get.proof(proof))?;
        let mut deliveries = Vec::new();
        for (header, payload) in self.frames {
            deliveries.extend(get.data(now, header, payload)?);
        }
        Ok((get, deliveries))
    }
}
