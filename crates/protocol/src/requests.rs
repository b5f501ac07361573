//! One `Get` under way: which data frame belongs to which want, and what is still to come. Pure;
//! [`super::session::Session`] feeds it. `giving_up` is about wants that nobody needs any more.

mod giving_up;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use thiserror::Error;
use towpath_content::Oid;
use towpath_content::chunking::ChunkHash;
use towpath_transfer::want::{Delivery, Payload, Proof};
use towpath_transfer::{Origin, Outcome, SignedBase, SourceId, Tag, Want, WantId};

pub use self::giving_up::ToCancel;
use super::steps::{ComingStep, StepError, StepTaken};
use super::wire::{
    self, DataHeader, Get, MAX_BASES, MAX_BASES_LEN, MAX_DELTA_SPAN, MAX_PAYLOAD, MAX_WANTS, ProofOf,
    WireOutcome, WireWant, oid_field,
};

/// Wants to be asked for, put together before a session gives the request its number.
#[derive(Debug)]
pub struct GetRequest {
    pub(super) runs: Vec<WantRun>,
    pub(super) by_bytes: bool,
    /// Number of who asks among the uses of the connection: tags are unique for each of these.
    pub(super) user: u64,
    pub(super) message: Get,
    /// Number of the request whose next steps these are, if they are.
    pub(super) first: Option<u32>,
}

impl GetRequest {
    /// Asks for `wants` by the right to `root`. `by_bytes` tells whether the peer takes wants that are
    /// runs of bytes: then chunks are asked for where they lie.
    pub fn new(root: &Oid, wants: Vec<Want>, by_bytes: bool) -> Self {
        Self::of_runs(oid_field(root), runs(wants, by_bytes), by_bytes)
    }

    fn of_runs(root: Bytes, runs: Vec<WantRun>, by_bytes: bool) -> Self {
        let wants = runs.iter().map(|run| run.wire.clone()).collect();
        let message = Get { root, wants, ..Get::default() };
        Self { message, runs, by_bytes, user: 0, first: None }
    }

    /// The same as so many requests as take all wants with their bases.
    pub fn all(root: &Oid, wants: Vec<Want>, by_bytes: bool) -> Vec<Self> {
        let (mut parts, mut room) = (Vec::<Vec<Want>>::new(), BaseRoom::default());
        for want in wants {
            let fits = room.take_of(&want);
            match parts.last_mut().filter(|last| fits && last.len() < MAX_WANTS) {
                Some(last) => last.push(want),
                None => {
                    room = BaseRoom::default();
                    room.take_of(&want);
                    parts.push(vec![want]);
                }
            }
        }
        parts.into_iter().map(|wants| Self::new(root, wants, by_bytes)).collect()
    }
}

/// Room for bases in a request.
#[derive(Default)]
struct BaseRoom {
    bases: usize,
    bytes: usize,
    before: Option<Arc<SignedBase>>,
}

impl BaseRoom {
    /// Takes room for the base of a want. Those that follow each other with one base are one run.
    fn take_of(&mut self, want: &Want) -> bool {
        let is_same = |base: &&Arc<SignedBase>| self.before.as_ref().is_some_and(|it| Arc::ptr_eq(it, base));
        let base = want.base.as_ref().filter(|base| !is_same(base));
        let bytes = base.map_or(0, |base| base.request.to_bytes().len());
        self.before.clone_from(&want.base);
        self.take(bytes)
    }

    /// Takes room for a base of so many bytes; false if there is none.
    const fn take(&mut self, bytes: usize) -> bool {
        let fits = bytes == 0 || self.bases < MAX_BASES && self.bytes + bytes <= MAX_BASES_LEN;
        self.bases += (fits && bytes > 0) as usize;
        self.bytes += if fits { bytes } else { 0 };
        fits
    }
}

/// A peer's violation of the protocol. The connection is closed with these words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Violation {
    /// Data for a want or piece that was not asked for.
    #[error("sent data that was not asked for")]
    Unasked,
    /// The parts of a piece did not come in order, or make up too much.
    #[error("sent a piece in the wrong order")]
    OutOfOrder,
    /// A step of a delta that is longer than the run of bytes.
    #[error("sent a delta that is too long")]
    TooLong,
    /// What is no run of a delta, or not one that is due.
    #[error("sent what is no delta of what it was asked for")]
    NoDelta,
    /// More contents and runs of entries than the window allows.
    #[error("sent more contents than their window allows")]
    OverWindow,
}

/// A run of wants that goes over the wire as one.
#[derive(Debug)]
pub struct WantRun {
    /// As sent.
    pub wire: WireWant,
    /// One per piece of the run.
    pub wants: Vec<Want>,
    /// Bytes that came as steps before this one.
    pub came: u64,
}

impl WantRun {
    /// The wants whose bytes come as piece `piece` of the run, and how many bytes these are.
    fn part(&self, piece: u32) -> Option<(Range<usize>, u64)> {
        let piece = piece as usize;
        if self.wire.offset.is_some() {
            return (piece == 0).then_some((0..self.wants.len(), self.wire.len.into()));
        }
        self.wants.get(piece).map(|want| (piece..piece + 1, want.id.len()))
    }
}

/// Joins wants for consecutive pieces of one object, and for consecutive chunks with one base.
pub fn runs(wants: Vec<Want>, by_bytes: bool) -> Vec<WantRun> {
    let (mut runs, mut room) = (Vec::<WantRun>::new(), BaseRoom::default());
    for want in wants {
        let mut wire = wire_want(&want, by_bytes);
        match runs.last_mut() {
            Some(last) if follows(last, &wire) => {
                last.wire.count += 1;
                last.wants.push(want);
            }
            Some(last) if shares_base(last, &want, &wire) => {
                last.wire.len += wire.len;
                last.wants.push(want);
            }
            _ => {
                wire.base = wire.offset.and_then(|_| base_field(&want, &mut room)).unwrap_or_default();
                runs.push(WantRun { wire, wants: vec![want], came: 0 });
            }
        }
    }
    runs
}

/// The request's field for a want's base, if the request has room for it. A base resembles all that is wanted, not a part.
fn base_field(want: &Want, room: &mut BaseRoom) -> Option<Bytes> {
    let base =
        want.base.as_ref().filter(|_| want.part.is_none() && want.id.len() <= MAX_DELTA_SPAN.into())?;
    let request = base.request.to_bytes();
    room.take(request.len()).then(|| request.into())
}

fn wire_want(want: &Want, by_bytes: bool) -> WireWant {
    let block = want.group.coverage.map(|coverage| coverage.block);
    let (id, origin) = (want.id, want.origin.filter(|_| by_bytes));
    match (id, origin) {
        (WantId::Piece { oid, layout, index }, _) if by_bytes && want.part.is_some() => {
            let part = want.part.clone().unwrap_or_default();
            let (offset, len) = (Some(layout.range(index).start + part.start), part.end - part.start);
            WireWant { oid: oid_field(&oid), block, offset, len: len as u32, ..WireWant::default() }
        }
        (WantId::Piece { oid, layout, index }, _)
            if by_bytes && want.base.is_some() && want.needs_no_proof() =>
        {
            let (offset, len) = (Some(layout.range(index).start), id.len() as u32);
            WireWant { oid: oid_field(&oid), block, offset, len, ..WireWant::default() }
        }
        (WantId::Piece { oid, index, .. }, _) => {
            WireWant { oid: oid_field(&oid), block, first: index, count: 1, ..WireWant::default() }
        }
        (WantId::Chunk { len, .. }, Some(Origin { oid, offset })) => {
            let part = want.part.clone().unwrap_or(0..len.into());
            let (offset, len) = (Some(offset + part.start), (part.end - part.start) as u32);
            WireWant { oid: oid_field(&oid), block, offset, len, ..WireWant::default() }
        }
        (WantId::Chunk { hash, .. } | WantId::Block { hash, .. }, _) => {
            WireWant { block, count: 1, chunk: Bytes::copy_from_slice(&hash), ..WireWant::default() }
        }
    }
}

/// True if `wire` is the next piece of the run.
fn follows(last: &WantRun, wire: &WireWant) -> bool {
    let is_pieces = |want: &WireWant| want.chunk.is_empty() && want.offset.is_none();
    is_pieces(&last.wire)
        && is_pieces(wire)
        && last.wire.oid == wire.oid
        && last.wire.first + u64::from(last.wire.count) == wire.first
}

/// True if `want` is for the bytes behind the run's, and to be made of the same base.
fn shares_base(last: &WantRun, want: &Want, wire: &WireWant) -> bool {
    let ours = last.wants.first().and_then(|first| first.base.as_ref());
    let is_same = ours.zip(want.base.as_ref()).is_some_and(|(ours, theirs)| Arc::ptr_eq(ours, theirs));
    let end = last.wire.offset.and_then(|offset| offset.checked_add(last.wire.len.into()));
    is_same
        && !last.wire.base.is_empty()
        && last.wire.oid == wire.oid
        && wire.offset.is_some()
        && end == wire.offset
        && last.wire.len.checked_add(wire.len).is_some_and(|len| len <= MAX_DELTA_SPAN)
}

/// A piece of which some frames have come.
struct Half {
    want: u32,
    piece: u32,
    bytes: BytesMut,
}

/// Where a want is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WantState {
    Open,
    /// Nobody needs it any more. It ends by its bytes, if these are on their way, or as cancelled.
    GivenUp,
    /// A step came, and the next one is to be requested.
    NextStep,
    Ended,
}

impl WantState {
    /// A step came of it. What nobody needs any more is not asked for again.
    fn goes_on(&mut self) {
        if *self == Self::Open {
            *self = Self::NextStep;
        }
    }
}

impl From<StepError> for Violation {
    fn from(error: StepError) -> Self {
        if error == StepError::TooLong { Self::TooLong } else { Self::NoDelta }
    }
}

/// A `Get` under way.
pub struct GetUnderWay {
    runs: Vec<WantRun>,
    /// Its wants may be runs of bytes.
    by_bytes: bool,
    /// Those of the wants of each run.
    states: Vec<Vec<WantState>>,
    proofs: HashMap<u32, Arc<Proof>>,
    half: Option<Half>,
    /// The want of which a step comes.
    step: Option<(u32, ComingStep)>,
    root: Bytes,
    /// As of [`GetRequest`].
    pub(super) first: Option<u32>,
    /// All of it was given up.
    cancelled: bool,
    source: SourceId,
    requested_at: Instant,
    /// As of [`GetRequest`].
    pub(super) user: u64,
}

impl GetUnderWay {
    /// A request sent to `source` at `requested_at`; `by_bytes` as for [`GetRequest::new`].
    pub fn new(runs: Vec<WantRun>, by_bytes: bool, source: SourceId, requested_at: Instant) -> Self {
        let states = giving_up::all_open(&runs);
        Self {
            runs,
            by_bytes,
            states,
            proofs: HashMap::new(),
            half: None,
            step: None,
            root: Bytes::new(),
            first: None,
            cancelled: false,
            source,
            requested_at,
            user: 0,
        }
    }

    /// The same by `request`; and its message, but for its number.
    pub(super) fn of(request: GetRequest, source: SourceId, requested_at: Instant) -> (Self, Get) {
        let GetRequest { runs, by_bytes, user, message, first } = request;
        let root = message.root.clone();
        (Self { user, first, root, ..Self::new(runs, by_bytes, source, requested_at) }, message)
    }

    /// Takes the proof that precedes a run's data.
    pub fn proof(&mut self, proof: ProofOf) -> Result<(), Violation> {
        let want = proof.want.ok_or(Violation::Unasked)?;
        let run = self.runs.get(want as usize).filter(|run| run.wire.count > 0);
        let asked = run.ok_or(Violation::Unasked)?;
        let run = proof.first..proof.first.checked_add(proof.count).ok_or(Violation::Unasked)?;
        if run != (asked.wire.first..asked.wire.first + u64::from(asked.wire.count)) {
            return Err(Violation::Unasked);
        }
        self.proofs.insert(want, Arc::new(Proof { run, nodes: proof.nodes }));
        Ok(())
    }

    /// Takes a data frame; returns what has all its bytes now: a want, or the wants of a run of bytes.
    pub fn data(
        &mut self,
        now: Instant,
        header: DataHeader,
        payload: Bytes,
    ) -> Result<Vec<Delivery>, Violation> {
        let (wants, len) = self.awaited(header.want, header.piece)?;
        let bytes = match header.zeros {
            true => None,
            false => match self.gather(&header, payload, len)? {
                Some(bytes) => Some(bytes),
                None => return Ok(Vec::new()),
            },
        };
        Ok(self.deliver(now, header.want, wants, bytes, 0))
    }

    /// Takes the next run of a delta of a want's base; its steps come one after the other. If one does not make what was asked for, that
    /// is to be asked for again without a base: `end` is called with that.
    pub fn delta(
        &mut self,
        now: Instant,
        message: &wire::Delta,
        mut end: impl FnMut(Tag, Outcome),
    ) -> Result<Vec<Delivery>, Violation> {
        let (wants, len) = self.awaited(message.want, 0)?;
        let mut step = self.coming_step(message.want, len)?;
        let (number, taken) = (message.want as usize, step.recv(&message.bytes)?);
        let run = &mut self.runs[number];
        match taken {
            StepTaken::More => self.step = Some((message.want, step)),
            StepTaken::Made(bytes) if are_wanted(&run.wants, &bytes) => {
                let saved = len.saturating_sub(run.came + step.came());
                return Ok(self.deliver(now, message.want, wants, Some(bytes), saved));
            }
            StepTaken::Outlined(base) if base.len() <= MAX_BASES_LEN => {
                (run.wire.base, run.came) = (base, run.came + step.came());
                self.states[number][wants].iter_mut().for_each(WantState::goes_on);
            }
            StepTaken::Made(_) | StepTaken::Outlined(_) | StepTaken::Useless => {
                self.end_run(number, &Outcome::RetryLater(Duration::ZERO), &mut end);
            }
        }
        Ok(Vec::new())
    }

    /// The step of a want of `len` bytes that comes, or begins.
    fn coming_step(&mut self, number: u32, len: u64) -> Result<ComingStep, Violation> {
        match self.step.take() {
            Some((want, step)) if want == number => return Ok(step),
            Some(_) => return Err(Violation::OutOfOrder),
            None => {}
        }
        let run = &self.runs[number as usize];
        let base = run.wants.first().and_then(|want| want.base.as_ref()).ok_or(Violation::Unasked)?;
        ComingStep::new(&run.wire.base, &base.bytes, len).ok_or(Violation::Unasked)
    }

    /// The request for the next steps of what came in part, if the peer is done with the rest. `number` is that of this one.
    pub fn next_steps(&mut self, number: u32) -> Option<GetRequest> {
        if self.cancelled {
            return None;
        }
        let (mut runs, states) = (Vec::new(), &mut self.states);
        for (run, states) in self.runs.iter_mut().zip(states) {
            if states.contains(&WantState::NextStep) {
                states.fill(WantState::Ended);
                let (wire, came) = (run.wire.clone(), run.came);
                runs.push(WantRun { wire, wants: std::mem::take(&mut run.wants), came });
            }
        }
        let first = Some(self.first.unwrap_or(number));
        let request = GetRequest::of_runs(self.root.clone(), runs, self.by_bytes);
        let request = GetRequest { user: self.user, first, ..request };
        (!request.runs.is_empty()).then_some(request)
    }

    /// The wants whose bytes come as this piece, none of which has ended, and how many bytes these are.
    fn awaited(&self, want: u32, piece: u32) -> Result<(Range<usize>, u64), Violation> {
        let run = self.runs.get(want as usize).ok_or(Violation::Unasked)?;
        let (wants, len) = run.part(piece).ok_or(Violation::Unasked)?;
        let states = &self.states[want as usize][wants.clone()];
        let has_ended = |state: &WantState| matches!(state, WantState::Ended | WantState::NextStep);
        if states.iter().any(has_ended) { Err(Violation::Unasked) } else { Ok((wants, len)) }
    }

    /// Hands the bytes of some wants of a run on, each its own; `None` is zeros.
    fn deliver(
        &mut self,
        now: Instant,
        run: u32,
        wants: Range<usize>,
        mut bytes: Option<Bytes>,
        saved: u64,
    ) -> Vec<Delivery> {
        self.states[run as usize][wants.clone()].fill(WantState::Ended);
        let (proof, timing) = (self.proofs.get(&run), (self.requested_at, now));
        let is_by_bytes = self.runs[run as usize].wire.offset.is_some();
        let wants = &self.runs[run as usize].wants[wants];
        let all: u64 = wants.iter().map(|want| want.id.len()).sum();
        let deliver = |want: &Want| {
            let len = want.id.len();
            let is_part = want.part.is_some() && is_by_bytes;
            let payload = match &mut bytes {
                // Too long or too short: that is for whoever asked to find out.
                Some(bytes) if wants.len() == 1 => Payload::Bytes(std::mem::take(bytes)),
                Some(bytes) => Payload::Bytes(bytes.split_to(bytes.len().min(len as usize))),
                None if is_part => Payload::Bytes(vec![0; want.missing_len() as usize].into()),
                None => Payload::Zeros,
            };
            let saved = (u128::from(saved) * u128::from(len) / u128::from(all.max(1))) as u64;
            let (proof, source) = (proof.cloned(), self.source.clone());
            Delivery { tag: want.tag, payload, proof, source, timing, saved }
        };
        wants.iter().map(deliver).collect()
    }

    /// Length that a compressed payload must have: all that is left of its piece, or a full frame.
    pub fn expected(&self, header: &DataHeader) -> Result<usize, Violation> {
        let run = self.runs.get(header.want as usize).ok_or(Violation::Unasked)?;
        let (_, len) = run.part(header.piece).ok_or(Violation::Unasked)?;
        let left = len.checked_sub(header.offset.into()).ok_or(Violation::OutOfOrder)?;
        Ok(left.min(MAX_PAYLOAD as u64) as usize)
    }

    /// Puts the frames of a large piece together. A piece of one frame is handed on as it is.
    fn gather(&mut self, header: &DataHeader, payload: Bytes, len: u64) -> Result<Option<Bytes>, Violation> {
        if header.offset == 0 && payload.len() as u64 >= len {
            return Ok(Some(payload));
        }
        if header.offset == 0 {
            let bytes = BytesMut::with_capacity(payload.len());
            self.half = Some(Half { want: header.want, piece: header.piece, bytes });
        }
        let half = self.half.as_mut().ok_or(Violation::OutOfOrder)?;
        let expected = (half.want, half.piece, half.bytes.len() as u64);
        let is_next = expected == (header.want, header.piece, header.offset.into()) && !payload.is_empty();
        if !is_next || half.bytes.len() as u64 + payload.len() as u64 > len {
            return Err(Violation::OutOfOrder);
        }
        half.bytes.extend_from_slice(&payload);
        if (half.bytes.len() as u64) < len {
            return Ok(None);
        }
        Ok(self.half.take().map(|half| half.bytes.freeze()))
    }

    /// Takes an outcome, of one run, of pieces or of all; `end` is called for each want that it ends.
    pub fn outcome(
        &mut self,
        message: &WireOutcome,
        mut end: impl FnMut(Tag, Outcome),
    ) -> Result<(), Violation> {
        let outcome = message.outcome();
        if !message.pieces.is_empty() {
            return self.end_pieces(&message.pieces, &outcome, &mut end);
        }
        let all = 0..self.runs.len();
        let which = match message.want {
            Some(want) if all.contains(&(want as usize)) => want as usize..want as usize + 1,
            Some(_) => return Err(Violation::Unasked),
            None => all,
        };
        which.for_each(|run| self.end_run(run, &outcome, &mut end));
        Ok(())
    }

    fn end_run(&mut self, run: usize, outcome: &Outcome, end: &mut impl FnMut(Tag, Outcome)) {
        self.end_wants(run, 0..self.runs[run].wants.len(), outcome, end);
    }

    /// A peer that cancels by itself, or is done with wants that it did not answer, is asked again
    /// later, not at once.
    fn end_wants(
        &mut self,
        run: usize,
        wants: Range<usize>,
        outcome: &Outcome,
        end: &mut impl FnMut(Tag, Outcome),
    ) {
        let states = &mut self.states[run][wants.clone()];
        for (want, state) in self.runs[run].wants[wants].iter().zip(states) {
            let before = std::mem::replace(state, WantState::Ended);
            let is_given_up = self.cancelled || before == WantState::GivenUp;
            match outcome {
                _ if before == WantState::Ended => {}
                Outcome::Cancelled if !is_given_up => end(want.tag, Outcome::RetryLater(Duration::ZERO)),
                outcome => end(want.tag, outcome.clone()),
            }
        }
    }

    /// Gives out what has come of a piece that is not whole, unless it has ended otherwise.
    pub fn take_partial_piece(&mut self) -> Option<Delivery> {
        let Half { want, piece, bytes } = self.half.take()?;
        self.states.get(want as usize)?.get(piece as usize).filter(|state| **state != WantState::Ended)?;
        let run = self.runs.get(want as usize).filter(|run| run.wire.offset.is_none())?;
        Some(Delivery {
            tag: run.wants.get(piece as usize)?.tag,
            payload: Payload::Bytes(bytes.freeze()),
            proof: None,
            source: self.source.clone(),
            timing: (self.requested_at, self.requested_at),
            saved: 0,
        })
    }

    /// Gives every want that has not ended this outcome.
    pub fn end_all(mut self, outcome: &Outcome, mut end: impl FnMut(Tag, Outcome)) {
        (0..self.runs.len()).for_each(|run| self.end_run(run, outcome, &mut end));
    }
}

/// True if `bytes` are those of the chunks or pieces, one after the other.
fn are_wanted(wants: &[Want], mut bytes: &[u8]) -> bool {
    let mut is_next = |want: &Want| match want.id {
        WantId::Chunk { hash, len } => {
            let chunk = bytes.split_off(..len as usize);
            chunk.is_some_and(|chunk| ChunkHash::of(chunk) == ChunkHash(hash))
        }
        WantId::Piece { oid, layout, index } => {
            let piece = bytes.split_off(..want.id.len() as usize);
            let value = want.value.or_else(|| want.id.is_whole().then(|| *oid.digest()));
            piece.zip(value).is_some_and(|(piece, value)| layout.value(index, piece) == value)
        }
        WantId::Block { .. } => false,
    };
    wants.iter().all(&mut is_next) && bytes.is_empty()
}

/// The object of a wire want; `None` for a chunk.
pub fn oid_of(wire: &WireWant) -> Result<Option<Oid>, towpath_content::DecodeError> {
    if wire.oid.is_empty() {
        return Ok(None);
    }
    Oid::from_bytes(&wire.oid).map(Some)
}

#[cfg(test)]
mod tests;
