//! Requests under way on a connection: which data frame belongs to which want, and what is still
//! to come. Knows no socket; the reader task feeds it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot};
use towpath_content::Oid;
use towpath_transfer::plugin::{Description, Sink};
use towpath_transfer::want::{Delivery, Payload, Proof};
use towpath_transfer::{Outcome, Want, WantId};

use super::wire::{DataHeader, MAX_PAYLOAD, ProofOf, WireOutcome, WireWant, oid_field};

/// What a peer did that the protocol does not allow. The connection is closed with these words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Violation {
    /// Data for a want or piece that was not asked for.
    #[error("sent data that was not asked for")]
    Unasked,
    /// The parts of a piece did not come in order, or make up too much.
    #[error("sent a piece in the wrong order")]
    OutOfOrder,
}

/// A run of wants that goes over the wire as one.
#[derive(Debug)]
pub struct Run {
    /// As sent.
    pub wire: WireWant,
    /// One per piece of the run.
    pub wants: Vec<Want>,
}

/// Joins wants for consecutive pieces of one object.
pub fn runs(wants: Vec<Want>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for want in wants {
        let (wire, next) = wire_want(&want);
        match runs.last_mut() {
            Some(last) if next && follows(last, &wire) => {
                last.wire.count += 1;
                last.wants.push(want);
            }
            _ => runs.push(Run { wire, wants: vec![want] }),
        }
    }
    runs
}

/// The wire form, and whether it may join a run.
fn wire_want(want: &Want) -> (WireWant, bool) {
    let block = want.group.coverage.map(|coverage| coverage.block);
    match want.id {
        WantId::Piece { oid, index, .. } => {
            (WireWant { oid: oid_field(&oid), block, first: index, count: 1, chunk: Bytes::new() }, true)
        }
        WantId::Chunk { hash, .. } | WantId::Block { hash, .. } => {
            let chunk = Bytes::copy_from_slice(&hash);
            (WireWant { oid: Bytes::new(), block, first: 0, count: 1, chunk }, false)
        }
    }
}

fn follows(last: &Run, wire: &WireWant) -> bool {
    last.wire.oid == wire.oid
        && last.wire.chunk.is_empty()
        && last.wire.first + u64::from(last.wire.count) == wire.first
}

/// A piece of which some frames have come.
struct Half {
    want: u32,
    piece: u32,
    bytes: BytesMut,
}

/// A `Get` under way.
pub struct GetUnderWay {
    runs: Vec<Run>,
    /// Which pieces of each run have ended.
    ended: Vec<Vec<bool>>,
    proofs: HashMap<u32, Arc<Proof>>,
    half: Option<Half>,
    cancelled: bool,
    sink: Arc<dyn Sink>,
    source: Arc<str>,
    asked: Instant,
    _end: oneshot::Sender<()>,
}

/// A `Describe` or `Watch` under way.
pub struct QuestionUnderWay {
    /// Where answers go.
    pub answers: Answers,
    /// How it ended.
    pub end: Option<oneshot::Sender<Result<(), Outcome>>>,
}

/// Where answers to a question go.
pub enum Answers {
    /// To a `Describe`.
    Descriptions(mpsc::Sender<Description>),
    /// To a `Watch`.
    Ranges(mpsc::Sender<Vec<Range<u64>>>),
}

impl GetUnderWay {
    /// A request as it is sent; the receiver learns when it has ended.
    pub fn new(runs: Vec<Run>, sink: Arc<dyn Sink>, source: Arc<str>) -> (Self, oneshot::Receiver<()>) {
        let (end, ended) = oneshot::channel();
        let flags = runs.iter().map(|run| vec![false; run.wants.len()]).collect();
        let asked = Instant::now();
        let proofs = HashMap::new();
        let get =
            Self { runs, ended: flags, proofs, half: None, cancelled: false, sink, source, asked, _end: end };
        (get, ended)
    }

    /// Takes the proof that precedes a run's data.
    pub fn proof(&mut self, proof: ProofOf) -> Result<(), Violation> {
        let want = proof.want.ok_or(Violation::Unasked)?;
        let asked = self.runs.get(want as usize).ok_or(Violation::Unasked)?;
        let run = proof.first..proof.first.checked_add(proof.count).ok_or(Violation::Unasked)?;
        if run != (asked.wire.first..asked.wire.first + u64::from(asked.wire.count)) {
            return Err(Violation::Unasked);
        }
        self.proofs.insert(want, Arc::new(Proof { run, nodes: proof.nodes }));
        Ok(())
    }

    /// Takes a data frame; returns a delivery when a want's bytes are all there.
    pub fn data(&mut self, header: DataHeader, payload: Bytes) -> Result<Option<Delivery>, Violation> {
        let run = self.runs.get(header.want as usize).ok_or(Violation::Unasked)?;
        let want = run.wants.get(header.piece as usize).ok_or(Violation::Unasked)?;
        let (tag, len) = (want.tag, want.id.len());
        let is_duplicate = self.ended[header.want as usize][header.piece as usize];
        if is_duplicate {
            return Err(Violation::Unasked);
        }
        let payload = match header.zeros {
            true => Payload::Zeros,
            false => match self.gather(&header, payload, len)? {
                Some(bytes) => Payload::Bytes(bytes),
                None => return Ok(None),
            },
        };
        self.ended[header.want as usize][header.piece as usize] = true;
        let (proof, source) = (self.proofs.get(&header.want).cloned(), Arc::clone(&self.source));
        Ok(Some(Delivery { tag, payload, proof, source, timing: (self.asked, Instant::now()) }))
    }

    /// How long a compressed payload must be: all that is left of its piece, or a full frame.
    pub fn expected(&self, header: &DataHeader) -> Result<usize, Violation> {
        let run = self.runs.get(header.want as usize).ok_or(Violation::Unasked)?;
        let want = run.wants.get(header.piece as usize).ok_or(Violation::Unasked)?;
        let left = want.id.len().checked_sub(header.offset.into()).ok_or(Violation::OutOfOrder)?;
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

    /// Takes an outcome: of one run, or of all.
    pub fn outcome(&mut self, message: &WireOutcome) -> Result<(), Violation> {
        let outcome = message.outcome();
        let all = 0..self.runs.len();
        let which = match message.want {
            Some(want) if all.contains(&(want as usize)) => want as usize..want as usize + 1,
            Some(_) => return Err(Violation::Unasked),
            None => all,
        };
        which.for_each(|run| self.end_run(run, &outcome));
        Ok(())
    }

    /// This side gives the request up; what has not come ends as cancelled.
    pub const fn cancel(&mut self) {
        self.cancelled = true;
    }

    /// A peer that cancels by itself, or is done with wants that it did not answer, is asked again
    /// later, not at once.
    fn end_run(&mut self, run: usize, outcome: &Outcome) {
        let outcome = match outcome {
            Outcome::Cancelled if !self.cancelled => &Outcome::RetryLater(Duration::ZERO),
            outcome => outcome,
        };
        for (want, ended) in self.runs[run].wants.iter().zip(&mut self.ended[run]) {
            if !std::mem::replace(ended, true) {
                self.sink.outcome(want.tag, outcome.clone());
            }
        }
    }

    /// Gives every want that has not ended this outcome.
    pub fn end_all(mut self, outcome: &Outcome) {
        (0..self.runs.len()).for_each(|run| self.end_run(run, outcome));
    }

    /// Where deliveries go.
    pub fn sink(&self) -> Arc<dyn Sink> {
        Arc::clone(&self.sink)
    }

    /// Whether `tag` is one of its wants.
    pub fn holds(&self, tag: u64) -> bool {
        self.runs.iter().any(|run| run.wants.iter().any(|want| want.tag == tag))
    }
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
