//! Runs of bytes as deltas of what the asking side has, by the machines of the exchange of deltas. Each step is requested by itself:
//! the answering side keeps nothing of it, and of what came the asking side keeps the outlines, which go with the next request.
//!
//! What a requester's own machine does for it is done here also for copies.
//!
//! A base may lie, and so may a delta. Making one costs memory and time in proportion to what was asked
//! for; what is made of one is compared with the chunks' hashes by whoever asked.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use towpath_content::delta::exchange::{
    Base, DeltaRun, NextSignature, Reply, Request, Requester, RequesterAction, RequesterEnd, Responder,
    ResponderAction,
};

use crate::MAX_DELTA_SPAN;
use crate::packing::{pack, unpack};

/// Deltas are for slow networks: worth some time.
const LEVEL: i32 = 3;
/// A delta that is much longer than its target is no use to anybody.
const MOST_UNPACKED: u64 = 2 * MAX_DELTA_SPAN as u64;

/// The next step towards `target`, as runs. None if that was not requested, or if the step is not smaller by a tenth.
pub fn make(request: Request, target: &[u8]) -> Option<VecDeque<Bytes>> {
    let runs = runs(Responder::of_step(request, target.len() as u64)?, target)?;
    let len: usize = runs.iter().map(Bytes::len).sum();
    (!runs.is_empty() && len < target.len() - target.len() / 10).then_some(runs)
}

/// Runs of a responder's step. The requesting side knows the network, and says how many outlines it likes.
fn runs(mut responder: Responder, target: &[u8]) -> Option<VecDeque<Bytes>> {
    let mut runs = VecDeque::new();
    loop {
        match responder.poll() {
            ResponderAction::Read(range) => {
                let bytes = target.get(range.start as usize..range.end as usize);
                responder.read(bytes.map(<[u8]>::to_vec));
            }
            ResponderAction::Pack(delta) => {
                let packed = pack(delta, LEVEL);
                responder.packed(packed, true);
            }
            ResponderAction::Send(run) if run != DeltaRun::GivenUp => runs.push_back(run.to_bytes().into()),
            ResponderAction::AwaitSignature | ResponderAction::End => return Some(runs),
            _ => return None,
        }
    }
}

/// A step of a delta that comes.
pub struct ComingStep {
    requester: Requester,
    base: Bytes,
    /// Bytes that it may have, and those that came.
    most: u64,
    came: u64,
}

/// Reason why a run is none that may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepError {
    /// The step is longer than the run of bytes.
    TooLong,
    /// It is no run of a delta, or not one that is due.
    NoDelta,
}

/// What a run of a step comes to.
pub enum StepTaken {
    /// More is to come.
    More,
    /// The bytes that were asked for, if it was right.
    Made(Bytes),
    /// It was an outline: the next step is asked for with this base.
    Outlined(Bytes),
    /// Nothing.
    Useless,
}

impl ComingStep {
    /// Of `most` bytes that were requested so, with this base; none if no step was.
    pub fn new(request: &[u8], base: &Bytes, most: u64) -> Option<Self> {
        let request = Request::from_bytes(request).ok()?;
        if !matches!(request.base, Base::Signature(_) | Base::Outlined { .. }) {
            return None;
        }
        let mut requester = Requester::new(&request, base.len() as u64);
        requester.recv_reply(Reply::InParts, most).ok()?;
        Some(Self { requester, base: base.clone(), most, came: 0 })
    }

    /// Bytes that came.
    pub const fn came(&self) -> u64 {
        self.came
    }

    /// Takes the next run.
    pub fn recv(&mut self, run: &[u8]) -> Result<StepTaken, StepError> {
        self.came += run.len() as u64;
        if self.came > self.most {
            return Err(StepError::TooLong);
        }
        let run = DeltaRun::from_bytes(run).map_err(|_| StepError::NoDelta)?;
        self.requester.recv_run(run, true).map_err(|_| StepError::NoDelta)?;
        Ok(self.work())
    }

    fn work(&mut self) -> StepTaken {
        let read =
            |range: Range<u64>| self.base.get(range.start as usize..range.end as usize).map(<[u8]>::to_vec);
        match next_step(&mut self.requester, MOST_UNPACKED, read, |_, _, _| None) {
            RequesterStep::Wait => StepTaken::More,
            RequesterStep::Send(NextSignature::Signed(signature)) => {
                let request = self.requester.ask_anew(signature);
                request.map_or(StepTaken::Useless, |it| StepTaken::Outlined(it.to_bytes().into()))
            }
            RequesterStep::Write { bytes, .. } => StepTaken::Made(bytes.into()),
            RequesterStep::Send(NextSignature::GivenUp) | RequesterStep::End(_) => StepTaken::Useless,
        }
    }
}

/// What others have to do for a requester, once all that its own machine can do is done.
pub enum RequesterStep {
    /// More is to come.
    Wait,
    /// A message is to be sent.
    Send(NextSignature),
    /// A part is to be written.
    Write {
        /// Its first byte.
        offset: u64,
        /// Its bytes.
        bytes: Vec<u8>,
        /// Bytes that came for it.
        came: u64,
    },
    /// It is over.
    End(RequesterEnd),
}

/// Does what a requester's own machine can do: `read` reads its base, `patch` makes so many bytes of a patch and a base, and at most
/// `most_unpacked` are unpacked.
pub fn next_step(
    requester: &mut Requester,
    most_unpacked: u64,
    read: impl Fn(Range<u64>) -> Option<Vec<u8>>,
    patch: impl Fn(&[u8], &[u8], u64) -> Option<Vec<u8>>,
) -> RequesterStep {
    loop {
        match requester.poll() {
            RequesterAction::Wait => return RequesterStep::Wait,
            RequesterAction::Send(signature) => return RequesterStep::Send(signature),
            RequesterAction::Write { offset, bytes, came } => {
                return RequesterStep::Write { offset, bytes, came };
            }
            RequesterAction::End(end) => return RequesterStep::End(end),
            RequesterAction::Read(range) => requester.read(read(range)),
            RequesterAction::Unpack { packed, limit } => {
                let unpacked = unpack(packed, limit.min(most_unpacked));
                requester.unpacked(unpacked);
            }
            RequesterAction::ApplyPatch { patch: bytes, base, len } => {
                let part = patch(bytes, base, len);
                requester.patched(part);
            }
        }
    }
}

#[cfg(test)]
mod tests;
