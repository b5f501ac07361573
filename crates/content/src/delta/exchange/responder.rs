//! The side that has the file: replies to a request, and makes patches of the base that it has too, or deltas of what the
//! requester signed.

use std::ops::Range;

use crate::Oid;

use super::{
    Base, DeltaRun, DeltaStep, MAX_RUN_LEN, MAX_WHOLE_LEN, NextSignature, PatchParts, Reply, Request, parts,
    refine,
};
use delta_parts::DeltaParts;

mod delta_parts;

/// A file of at most so many bytes is read for the reply, which its delta goes with if that is short.
pub const SMALL: u64 = 1 << 20;

/// See the head of the exchange.
#[derive(Debug)]
pub struct Responder {
    size: u64,
    is_guess: bool,
    outlines: usize,
    reply: Option<Reply>,
    sending: Option<StepInRuns>,
    state: ResponderState,
}

/// Work for whoever drives a responder.
#[derive(Debug, PartialEq, Eq)]
pub enum ResponderAction<'a> {
    /// The reply for the requester.
    Reply(Reply),
    /// A run for the requester. Signatures that it wants may come as soon as it was sent.
    Send(DeltaRun<'a>),
    /// These bytes of the file are needed: [`Responder::read`].
    Read(Range<u64>),
    /// The base may be here: [`Responder::found`].
    FindBase(Oid),
    /// Patches are to be made, in any order: [`Responder::patched`], in theirs.
    MakePatches(PatchParts),
    /// A delta may be packed: [`Responder::packed`].
    Pack(&'a [u8]),
    /// The next signature is needed: [`Responder::signature`].
    AwaitSignature,
    /// All is sent.
    End,
}

#[derive(Debug)]
enum ResponderState {
    Finding(Oid),
    Patching { parts: PatchParts, next: u64 },
    Small { signature: Vec<u8> },
    Deltas(DeltaParts),
    GivingUp,
    Ended,
}

/// A step on its way.
#[derive(Debug)]
struct StepInRuns {
    step: DeltaStep,
    bytes: Vec<u8>,
    at: usize,
    is_sent: bool,
}

impl Responder {
    /// For a file of this name and of so many bytes, which was requested so.
    pub fn new(request: Request, oid: &Oid, size: u64) -> Self {
        let mut responder = Self::idle(&request, size);
        match request.base {
            Base::Named(base) if base == *oid => responder.end(Reply::Same),
            Base::Named(base) => responder.state = ResponderState::Finding(base),
            Base::Signature(signature) if size <= SMALL => {
                responder.state = ResponderState::Small { signature }
            }
            Base::Parts { count, ahead } => responder.begin_deltas(count, None, ahead),
            step => responder.begin_step(step),
        }
        responder
    }

    /// For one step towards `size` bytes, requested by itself: there is no reply but its runs. None if it is no step.
    pub fn of_step(request: Request, size: u64) -> Option<Self> {
        let mut responder = Self::idle(&request, size);
        responder.begin_step(request.base);
        (responder.reply.take() == Some(Reply::InParts)).then_some(responder)
    }

    const fn idle(request: &Request, size: u64) -> Self {
        let (reply, sending, state) = (None, None, ResponderState::Ended);
        Self { size, is_guess: request.is_guess, outlines: request.outlines, reply, sending, state }
    }

    fn begin_step(&mut self, base: Base) {
        match base {
            Base::Signature(signature) => self.begin_deltas(1, Some(signature), 0),
            Base::Outlined { base_len, outlines, signature } => self.go_on(base_len, outlines, signature),
            Base::Named(_) | Base::Parts { .. } => {}
        }
    }

    /// Goes on behind outlines of the one part.
    fn go_on(&mut self, base_len: u64, outlines: Vec<Vec<u8>>, signature: Vec<u8>) {
        let Some(regions) = refine::regions(&outlines, base_len).filter(|_| parts::fit(self.size, 1)) else {
            return self.end(Reply::GivenUp);
        };
        let (outlines, policy) =
            (outlines.into_iter().zip(regions).collect(), (self.outlines, self.is_guess));
        self.reply = Some(Reply::InParts);
        self.state =
            ResponderState::Deltas(DeltaParts::behind_outlines(self.size, outlines, signature, policy));
    }

    fn end(&mut self, reply: Reply) {
        self.reply = Some(reply);
        self.state = ResponderState::Ended;
    }

    fn begin_deltas(&mut self, count: u64, first: Option<Vec<u8>>, ahead: u64) {
        if !parts::fit(self.size, count) {
            return self.end(Reply::GivenUp);
        }
        self.reply = Some(Reply::InParts);
        let deltas = DeltaParts::new(self.size, count, first, ahead, (self.outlines, self.is_guess));
        self.state = ResponderState::Deltas(deltas);
    }

    /// What is to be done next.
    pub fn poll(&mut self) -> ResponderAction<'_> {
        if let Some(reply) = self.reply.take() {
            return ResponderAction::Reply(reply);
        }
        if self.sending.as_ref().is_some_and(|sending| sending.is_sent) {
            self.sending = None;
        }
        if let Some(sending) = &mut self.sending {
            return ResponderAction::Send(sending.next());
        }
        if matches!(self.state, ResponderState::GivingUp) {
            self.state = ResponderState::Ended;
            return ResponderAction::Send(DeltaRun::GivenUp);
        }
        match &self.state {
            ResponderState::Finding(oid) => ResponderAction::FindBase(*oid),
            ResponderState::Patching { parts, .. } => ResponderAction::MakePatches(*parts),
            ResponderState::Small { .. } => ResponderAction::Read(0..self.size),
            ResponderState::Deltas(deltas) => deltas.work(),
            ResponderState::GivingUp | ResponderState::Ended => ResponderAction::End,
        }
    }

    /// Bytes of the base that was named; none if it is not here.
    pub fn found(&mut self, base_len: Option<u64>) {
        let Some(parts) = base_len.and_then(|len| PatchParts::new(len, self.size)) else {
            return self.end(Reply::UnknownBase);
        };
        if parts.count() > 1 {
            self.reply = Some(Reply::InParts);
        }
        self.state = ResponderState::Patching { parts, next: 0 };
    }

    /// The next patch, each once the runs of the one before are sent; none if it can't be made. False: no more are wanted.
    pub fn patched(&mut self, patch: Option<Vec<u8>>) -> bool {
        let ResponderState::Patching { parts, next } = &mut self.state else { return false };
        let (parts, index) = (*parts, *next);
        *next += 1;
        let target = parts.target(index).map_or(0, |target| target.end - target.start);
        let patch = patch.filter(|patch| !self.is_guess || parts::proves_right(index, patch.len(), target));
        let is_one = parts.count() == 1;
        match patch {
            None if is_one => self.end(Reply::GivenUp),
            None => self.state = ResponderState::GivingUp,
            Some(patch) if is_one && patch.len() <= MAX_WHOLE_LEN => self.end(Reply::Whole(patch)),
            Some(patch) => {
                if is_one {
                    self.reply = Some(Reply::InParts);
                }
                self.send(DeltaStep::Patch, patch);
                if index + 1 == parts.count() {
                    self.state = ResponderState::Ended;
                }
            }
        }
        matches!(self.state, ResponderState::Patching { .. })
    }

    /// The bytes of a [`ResponderAction::Read`]; none if they can't be read.
    pub fn read(&mut self, bytes: Option<Vec<u8>>) {
        match &mut self.state {
            ResponderState::Small { signature } => {
                let signature = std::mem::take(signature);
                self.begin_small(signature, bytes);
            }
            ResponderState::Deltas(deltas) => {
                let made = bytes.and_then(|bytes| deltas.read(bytes));
                self.give_up_unless(made.is_some());
            }
            _ => {}
        }
    }

    fn begin_small(&mut self, signature: Vec<u8>, bytes: Option<Vec<u8>>) {
        let delta = bytes.and_then(|bytes| parts::make(&signature, &bytes));
        let delta = delta.filter(|delta| !self.is_guess || parts::proves_right(0, delta.len(), self.size));
        match delta {
            None => self.end(Reply::GivenUp),
            Some(delta) if delta.len() <= MAX_WHOLE_LEN => self.end(Reply::Whole(delta)),
            Some(_) => self.begin_deltas(1, Some(signature), 0),
        }
    }

    /// The next signature.
    pub fn signature(&mut self, signature: NextSignature) {
        let ResponderState::Deltas(deltas) = &mut self.state else { return };
        let is_of_use = match signature {
            NextSignature::Signed(signature) => deltas.signature(signature).is_some(),
            NextSignature::GivenUp => false,
        };
        self.give_up_unless(is_of_use);
    }

    fn give_up_unless(&mut self, is_of_use: bool) {
        if !is_of_use {
            self.state = ResponderState::GivingUp;
        }
    }

    /// The packed delta of a [`ResponderAction::Pack`], if it is shorter so. `in_steps`: the network has time for round trips.
    pub fn packed(&mut self, packed: Option<Vec<u8>>, in_steps: bool) {
        let ResponderState::Deltas(deltas) = &mut self.state else { return };
        if let Some((step, bytes)) = deltas.packed(packed, in_steps) {
            self.send(step, bytes);
        }
    }

    fn send(&mut self, step: DeltaStep, bytes: Vec<u8>) {
        self.sending = Some(StepInRuns { step, bytes, at: 0, is_sent: false });
    }

    /// Bytes that are held.
    pub fn held(&self) -> usize {
        let state = match &self.state {
            ResponderState::Small { signature } => signature.len(),
            ResponderState::Deltas(deltas) => deltas.held(),
            _ => 0,
        };
        state + self.sending.as_ref().map_or(0, |sending| sending.bytes.len())
    }
}

impl StepInRuns {
    fn next(&mut self) -> DeltaRun<'_> {
        let start = self.at;
        self.at = self.bytes.len().min(start + MAX_RUN_LEN);
        let bytes = &self.bytes[start..self.at];
        self.is_sent = self.at == self.bytes.len();
        if self.is_sent { DeltaRun::Last(self.step, bytes) } else { DeltaRun::More(bytes) }
    }
}
