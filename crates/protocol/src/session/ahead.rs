//! The first piece of an object, asked for together with the question what the object is. It saves a
//! round trip: only the answer tells how the object is cut, and so what the rest is called. Pure;
//! [`super::gets::OpenGets`] feeds it.
//!
//! Bytes that come are kept as they are, no more than a piece of 256 KiB, until somebody wants that piece. Then
//! it is an ordinary `Get` under way.

use std::time::Instant;

use bytes::Bytes;
use towpath_content::Oid;
use towpath_content::pieces::MIN_LOG2;
use towpath_transfer::{Delivery, SourceId, Want, WantId};

use crate::requests::{GetUnderWay, Violation, runs};
use crate::wire::{DataHeader, ProofOf, WireWant, oid_field};

/// Most bytes that are kept: larger pieces have only objects that take hours.
const MOST: usize = 1 << MIN_LOG2;
/// Most frames that are kept. Nobody cuts a piece into smaller ones than 16 KiB.
const MOST_FRAMES: usize = 32;

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

    /// Takes the want for this piece, all of it, out of `wants`, if it is there. One that has a base comes sooner as a delta of it,
    /// unless all that the peer has to say has come.
    pub fn take_want(&self, wants: &mut Vec<Want>) -> Option<Want> {
        let is_it = |want: &Want| {
            let is_first = matches!(want.id, WantId::Piece { oid, index: 0, .. } if oid == self.oid);
            is_first && want.part.is_none() && (want.base.is_none() || self.is_done)
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
        source: SourceId,
    ) -> Result<(GetUnderWay, Vec<Delivery>), Violation> {
        let mut get = GetUnderWay::new(runs(vec![want], false), false, source, self.requested_at);
        self.proof.map_or(Ok(()), |proof| get.proof(proof))?;
        let mut deliveries = Vec::new();
        for (header, payload) in self.frames {
            deliveries.extend(get.data(now, header, payload)?);
        }
        Ok((get, deliveries))
    }
}
