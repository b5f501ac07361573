//! Answers a `Get`: index look-up, read, frame out, a piece or run of bytes a step.

use std::ops::Range;

use bytes::Bytes;
use towpath_content::Oid;
use towpath_content::pieces::MIN_LOG2;
use towpath_store::{Descriptors, Store, StoreError};
use towpath_transfer::{Metadata, Outcome};

use super::access::Decision;
use super::answering::Step;
use super::outgoing::Outgoing;
use super::requests::oid_of;
use super::service::{Seen, Serving, outcome_of};
use super::wire::{self, Body, DataHeader, Get, ProofOf, WireOutcome, WireWant};
use crate::processor::{Encode, Object};

/// The answer to one `Get`, want by want.
pub struct GetAnswer {
    get: Get,
    /// The secret of its root was shown.
    is_proved: bool,
    /// The want at which it is.
    want: usize,
    /// What is left of that want, once it was judged.
    run: Option<Run>,
    /// The encoding agreed on, and its number.
    encoder: Option<(u8, Box<dyn Encode>)>,
}

/// Pieces of one object.
struct Run {
    oid: Oid,
    all: Range<u64>,
    left: Range<u64>,
    /// What the processors are told of the object, if any looks.
    seen: Option<Seen>,
}

impl GetAnswer {
    pub(super) fn new(get: Get, is_proved: bool, encoder: Option<(u8, Box<dyn Encode>)>) -> Self {
        Self { get, is_proved, want: 0, run: None, encoder }
    }

    pub(super) const fn request(&self) -> u32 {
        self.get.request
    }

    pub(super) fn step(&mut self, serving: &mut Serving, out: &mut dyn FnMut(Outgoing)) -> Step {
        if self.want >= self.get.wants.len() {
            return Step::Over;
        }
        let served = match self.run.take() {
            None => self.begin(serving, out),
            Some(run) => self.serve_piece(serving, run, out),
        };
        if let Err(outcome) = &served {
            let outcome = WireOutcome::new(self.get.request, Some(self.want as u32), outcome);
            out(Outgoing::control(Body::Outcome(outcome)));
        }
        self.run = served.unwrap_or(None).filter(|run| !run.left.is_empty());
        if self.run.is_none() {
            self.want += 1;
        }
        Step::More
    }

    /// Judges the next want. Returns what is to be served of it.
    fn begin(
        &mut self,
        serving: &mut Serving,
        out: &mut dyn FnMut(Outgoing),
    ) -> Result<Option<Run>, Outcome> {
        let want = &self.get.wants[self.want];
        let root = Oid::from_bytes(&self.get.root).map_err(|_| refused("the root is not an OID"))?;
        let Some(oid) = oid_of(want).map_err(|_| refused("not an OID"))? else {
            return self.serve_chunk(serving, out).map(|()| None);
        };
        if let Decision::Refuse(why) = serving.judge(self.is_proved, &root, &oid, want.block) {
            return Err(refused(why));
        }
        let all = pieces(want).map_err(|error| serving.outcome_of_put(&oid, &error))?;
        let seen = serving.see(&oid).map_err(|error| serving.outcome_of_put(&oid, &error))?;
        if let Some(seen) = &seen {
            serving.processors().admit(&seen.object(&oid))?;
        }
        if let Some(offset) = want.offset {
            let span = offset..offset.saturating_add(want.len.into());
            return self.serve_span(serving, &oid, span, seen.as_ref(), out).map(|()| None);
        }
        Ok(Some(Run { oid, left: all.clone(), all, seen }))
    }

    fn serve_piece(
        &mut self,
        serving: &Serving,
        mut run: Run,
        out: &mut dyn FnMut(Outgoing),
    ) -> Result<Option<Run>, Outcome> {
        if let Some(index) = run.left.next() {
            let bytes = read(serving, &run, index);
            let bytes = bytes.map_err(|error| serving.outcome_of_put(&run.oid, &error))?;
            run.inspect(serving, index, bytes.as_deref())?;
            let sent = self.send(serving, &run, index, bytes, out);
            sent.map_err(|error| serving.outcome_of_put(&run.oid, &error))?;
        }
        Ok(Some(run))
    }

    /// Sends a piece; `None` is zeros.
    fn send(
        &mut self,
        serving: &Serving,
        run: &Run,
        index: u64,
        bytes: Option<Bytes>,
        out: &mut dyn FnMut(Outgoing),
    ) -> Result<(), StoreError> {
        // A short first piece asked for alone is the whole object, which needs no proof.
        let is_whole = run.all == (0..1) && bytes.as_ref().is_some_and(|bytes| bytes.len() < 1 << MIN_LOG2);
        if index == run.all.start && !run.oid.is_live() && !is_whole {
            self.send_proof(serving.store(), run, out)?;
        }
        let header = self.header(serving, (index - run.all.start) as u32);
        match bytes {
            None => out(Outgoing::data(&DataHeader { zeros: true, ..header }, Bytes::new())),
            Some(bytes) => self.send_piece(header, bytes, out),
        }
        Ok(())
    }

    const fn header(&self, serving: &Serving, piece: u32) -> DataHeader {
        let (request, want) = (self.get.request, self.want as u32);
        let suggested = serving.suggested();
        DataHeader { request, want, piece, offset: 0, suggested, zeros: false, encoding: 0 }
    }

    fn send_proof(
        &self,
        store: &dyn Store,
        run: &Run,
        out: &mut dyn FnMut(Outgoing),
    ) -> Result<(), StoreError> {
        if let Descriptors::Proof(nodes) = store.get_descriptors(&run.oid, run.all.clone())? {
            let (first, count) = (run.all.start, run.all.end - run.all.start);
            let (request, want) = (self.get.request, Some(self.want as u32));
            out(Outgoing::control(Body::Proof(ProofOf { request, want, first, count, nodes: nodes.into() })));
        }
        Ok(())
    }

    /// A piece in frames of at most [`wire::MAX_PAYLOAD`]; the buffer is handed on, not copied.
    fn send_piece(&mut self, mut header: DataHeader, mut rest: Bytes, out: &mut dyn FnMut(Outgoing)) {
        loop {
            let part = rest.split_to(rest.len().min(wire::MAX_PAYLOAD));
            let len = part.len() as u32;
            let encoder = self.encoder.as_mut();
            let encoded = encoder.and_then(|(number, encoder)| Some((*number, encoder.encode(&part)?)));
            let (encoding, payload) = encoded.unwrap_or((0, part));
            header.encoding = encoding;
            out(Outgoing::data(&header, payload));
            header.offset += len;
            if rest.is_empty() {
                return;
            }
        }
    }

    /// A run of bytes goes as a piece does.
    fn serve_span(
        &mut self,
        serving: &Serving,
        oid: &Oid,
        span: Range<u64>,
        seen: Option<&Seen>,
        out: &mut dyn FnMut(Outgoing),
    ) -> Result<(), Outcome> {
        if oid.is_live() {
            return Err(refused("runs of bytes are of complete objects"));
        }
        let (mut buffer, start) = (serving.buffers().take(), span.start);
        let read = serving.store().read_span(oid, span, &mut buffer);
        read.map_err(|error| serving.outcome_of_put(oid, &error))?;
        if let Some(seen) = seen.filter(|seen| !seen.is_tree) {
            serving.processors().inspect(&seen.object(oid), start, &buffer)?;
        }
        let header = self.header(serving, 0);
        let is_zero = are_zeros(&buffer);
        let basis = self.get.wants[self.want].basis.as_ref().filter(|_| !is_zero);
        let delta = basis.and_then(|basis| serving.delta(basis, &buffer));
        let bytes = serving.buffers().lend(buffer, 0);
        if let Some((bytes, packed)) = delta {
            let (request, want) = (self.get.request, self.want as u32);
            out(Outgoing::control(Body::Delta(wire::Delta { request, want, bytes, packed })));
            return Ok(());
        }
        match is_zero {
            true => out(Outgoing::data(&DataHeader { zeros: true, ..header }, Bytes::new())),
            false => self.send_piece(header, bytes, out),
        }
        Ok(())
    }

    /// Chunks are named by hash alone, so only nodes may ask for them that are allowed an object of
    /// these very bytes.
    fn serve_chunk(&mut self, serving: &Serving, out: &mut dyn FnMut(Outgoing)) -> Result<(), Outcome> {
        let chunk = &self.get.wants[self.want].chunk;
        let hash: [u8; 32] = chunk[..].try_into().map_err(|_| refused("not a chunk's hash"))?;
        if !serving.is_allowed(&Oid::Blake3(hash)) {
            return Err(refused("chunks are for allowed nodes"));
        }
        let bytes = serving.store().get_chunk(&hash).map_err(|error| outcome_of(&error))?;
        let (oid, metadata) = (Oid::Blake3(hash), Metadata::default());
        let object = Object { oid: &oid, name: b"", size: Some(bytes.len() as u64), metadata: &metadata };
        serving.processors().admit(&object)?;
        serving.processors().inspect(&object, 0, &bytes)?;
        self.send_piece(self.header(serving, 0), bytes.into(), out);
        Ok(())
    }
}

impl Run {
    /// Lets the processors look at a piece; `None` is zeros.
    fn inspect(&self, serving: &Serving, index: u64, buffer: Option<&[u8]>) -> Result<(), Outcome> {
        let Some(seen) = self.seen.as_ref().filter(|seen| !seen.is_tree) else { return Ok(()) };
        let range = seen.layout.range(index);
        let zeros;
        let bytes = match buffer {
            Some(buffer) => buffer,
            None => {
                zeros = vec![0; (range.end - range.start) as usize];
                &zeros
            }
        };
        serving.processors().inspect(&seen.object(&self.oid), range.start, bytes)
    }
}

/// A piece of a run; `None` if it is all zeros.
fn read(serving: &Serving, run: &Run, index: u64) -> Result<Option<Bytes>, StoreError> {
    let store = serving.store();
    // Whole small objects are read at once; asking for holes would cost more than reading.
    if run.all != (0..1) && store.is_zero(&run.oid, index) {
        return Ok(None);
    }
    let mut buffer = serving.buffers().take();
    let front = buffer.len();
    store.append_piece(&run.oid, index, &mut buffer)?;
    let is_zero = are_zeros(&buffer[front..]);
    let bytes = serving.buffers().lend(buffer, front);
    Ok(Some(bytes).filter(|_| !is_zero))
}

fn refused(why: &str) -> Outcome {
    Outcome::Refused(why.into())
}

fn pieces(want: &WireWant) -> Result<Range<u64>, StoreError> {
    let end = want.first.checked_add(u64::from(want.count));
    Ok(want.first..end.ok_or(StoreError::Refused { why: "no object has such pieces" })?)
}

/// Whether there is nothing but zeros; other data mostly show it in their first block.
fn are_zeros(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.chunks(4096).all(|block| block.iter().fold(0, |sum, byte| sum | byte) == 0)
}
