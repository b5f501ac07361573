//! Answers a `Get`: index look-up, read, frame out, a piece or run of bytes a step.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::{Buf, Bytes};
use prost::Message;
use towpath_content::Oid;
use towpath_content::pieces::MIN_LOG2;
use towpath_content::ticket::BoundSecret;
use towpath_store::{Descriptors, Store, StoreError};
use towpath_transfer::{Metadata, Outcome};

use super::access::Holding;
use super::outgoing::Outgoing;
use super::requests::oid_of;
use super::sending::Sending;
use super::service::{Seen, Serving, outcome_of};
use super::session::Encoded;
use super::step::Step;
use super::unwanted::UnwantedPieces;
use super::wire::{self, Body, DataHeader, Get, ProofOf, WireOutcome, WireWant};
use crate::processor::{Encode, Object};

/// Wants of a `Get`, in memory of its own and as short as on the wire.
pub(super) struct GetWants {
    request: u32,
    root: Oid,
    priority: i8,
    /// Those that are still to be answered, each behind its length.
    wants: Bytes,
    unwanted: UnwantedPieces,
}

/// The answer to one `Get`, want by want.
pub struct GetAnswer {
    wanted: GetWants,
    /// How this node came to the root, if a secret of that was shown.
    holding: Option<Holding>,
    /// The secret by which this node was given the root itself, if it passes it on.
    given_by: Option<BoundSecret>,
    /// The number of the want at which it is.
    want: u32,
    /// The rest of that want, once it was decided on.
    run: Option<GetRun>,
    /// The bytes of a piece, run or chunk that are still to be sent.
    rest: Option<GetRest>,
    /// The encoding agreed on.
    encoder: Option<Encoder>,
}

/// The rest of a piece or of a delta that is to be sent.
enum GetRest {
    /// A piece, from the header's offset on.
    Data(DataHeader, Bytes),
    /// Runs of a delta, of the want of this number.
    Delta(u32, VecDeque<Bytes>),
}

/// Encodes what is sent.
pub(super) struct Encoder {
    agreed: Encoded,
    encode: Box<dyn Encode>,
}

/// Pieces of one object.
struct GetRun {
    oid: Oid,
    all: Range<u64>,
    left: Range<u64>,
    /// What proves the pieces went out, before the first of them.
    is_proved: bool,
    /// The object as the processors see it, if any looks.
    seen: Option<Seen>,
}

impl GetWants {
    /// Keeps nothing of `get`, which shares its memory with all that was received with it.
    pub(super) fn new(root: Oid, get: &Get) -> Self {
        let mut wants = Vec::with_capacity(get.wants.iter().map(Message::encoded_len).sum::<usize>() + 256);
        for want in &get.wants {
            wants.extend_from_slice(&want.encode_length_delimited_to_vec());
        }
        wants.shrink_to_fit();
        let (wants, unwanted) = (wants.into(), UnwantedPieces::of(&get.wants));
        Self { request: get.request, root, priority: get.priority(), wants, unwanted }
    }

    /// Bytes that it keeps.
    pub(super) fn len(&self) -> usize {
        self.wants.len() + self.unwanted.len()
    }

    /// Its pieces that the peer cancels, for whoever takes its messages.
    pub(super) fn unwanted(&self) -> UnwantedPieces {
        self.unwanted.clone()
    }

    fn next(&mut self) -> Option<WireWant> {
        // It was encoded here, so it can be decoded.
        self.wants.has_remaining().then(|| WireWant::decode_length_delimited(&mut self.wants).ok()).flatten()
    }
}

impl GetAnswer {
    pub(super) const fn new(
        wanted: GetWants,
        (holding, given_by): (Option<Holding>, Option<BoundSecret>),
        encoder: Option<Encoder>,
    ) -> Self {
        Self { wanted, holding, given_by, want: 0, run: None, rest: None, encoder }
    }

    pub(super) const fn request(&self) -> u32 {
        self.wanted.request
    }

    pub(super) const fn root(&self) -> &Oid {
        &self.wanted.root
    }

    pub(super) const fn priority(&self) -> i8 {
        self.wanted.priority
    }

    pub(super) fn step(&mut self, serving: &mut Serving, out: &mut dyn FnMut(Outgoing)) -> Step {
        if let Some(rest) = self.rest.take() {
            self.go_on(serving.sending(), rest, out);
            return Step::More;
        }
        let served = match self.run.take() {
            Some(run) => self.serve_piece(serving, run, out),
            None => match self.wanted.next() {
                Some(want) => self.begin(serving, &want, out),
                None => return Step::Over,
            },
        };
        if let Err(outcome) = &served {
            serving.served().refused(&self.wanted.root, outcome);
            let outcome = WireOutcome::new(self.request(), Some(self.want), outcome);
            out(Outgoing::control(Body::Outcome(outcome)));
        }
        self.run = served.unwrap_or(None).filter(|run| !run.left.is_empty());
        if self.run.is_none() {
            self.want += 1;
        }
        Step::More
    }

    /// Decides about the next want. Returns what is to be served of it.
    fn begin(
        &mut self,
        serving: &mut Serving,
        want: &WireWant,
        out: &mut dyn FnMut(Outgoing),
    ) -> Result<Option<GetRun>, Outcome> {
        let is_run = want.offset.is_none() && !want.oid.is_empty();
        if !is_run && !self.wanted.unwanted.reads((self.want, 0)) {
            return Ok(None);
        }
        let Some(oid) = oid_of(want).map_err(|_| refused("not an OID"))? else {
            return self.serve_chunk(serving, &want.chunk, out).map(|()| None);
        };
        serving.allow(self.holding, &self.wanted.root, &oid, want.block)?;
        let all = pieces(want).map_err(|error| self.outcome(serving, &oid, &error))?;
        let seen = serving.see(&oid).map_err(|error| self.outcome(serving, &oid, &error))?;
        if let Some(seen) = &seen {
            serving.processors().admit(&seen.object(&oid))?;
        }
        if want.offset.is_some() {
            return self.serve_span(serving, &oid, want, seen.as_ref(), out).map(|()| None);
        }
        Ok(Some(GetRun { oid, left: all.clone(), all, is_proved: false, seen }))
    }

    fn outcome(&self, serving: &Serving, oid: &Oid, error: &StoreError) -> Outcome {
        serving.outcome_of_put(self.holding, oid, error)
    }

    fn serve_piece(
        &mut self,
        serving: &mut Serving,
        mut run: GetRun,
        out: &mut dyn FnMut(Outgoing),
    ) -> Result<Option<GetRun>, Outcome> {
        let unwanted = &self.wanted.unwanted;
        let is_wanted = |index: &u64| unwanted.reads((self.want, (index - run.all.start) as u32));
        if let Some(index) = run.left.by_ref().find(is_wanted) {
            self.pass_on(serving, 1 << MIN_LOG2)?;
            let bytes = read(serving, &run, index);
            let bytes = bytes.map_err(|error| self.outcome(serving, &run.oid, &error))?;
            run.inspect(serving, index, bytes.as_deref())?;
            let sent = self.send(serving, &mut run, index, bytes, out);
            sent.map_err(|error| self.outcome(serving, &run.oid, &error))?;
        }
        Ok(Some(run))
    }

    /// Lets at most so many bytes go of what this node was given itself: when it is their turn, so that nothing is under way once it is
    /// to send no more.
    fn pass_on(&self, serving: &Serving, bytes: u64) -> Result<(), Outcome> {
        let Some(secret) = &self.given_by else { return Ok(()) };
        serving.pass_on(&self.wanted.root, secret, bytes).map_err(Outcome::RetryLater)
    }

    /// Sends a piece; `None` is zeros.
    fn send(
        &mut self,
        serving: &mut Serving,
        run: &mut GetRun,
        index: u64,
        bytes: Option<Bytes>,
        out: &mut dyn FnMut(Outgoing),
    ) -> Result<(), StoreError> {
        // A short first piece asked for alone is the whole object, which needs no proof.
        let is_whole = run.all == (0..1) && bytes.as_ref().is_some_and(|bytes| bytes.len() < 1 << MIN_LOG2);
        if !std::mem::replace(&mut run.is_proved, true) && !run.oid.is_live() && !is_whole {
            self.send_proof(serving.store(), run, out)?;
        }
        let header = self.header(serving, (index - run.all.start) as u32);
        match bytes {
            None => out(Outgoing::data(&DataHeader { zeros: true, ..header }, Bytes::new())),
            Some(bytes) => self.send_part(serving.sending(), header, bytes, out),
        }
        Ok(())
    }

    fn header(&self, serving: &mut Serving, piece: u32) -> DataHeader {
        let (request, want) = (self.request(), self.want);
        let suggested = serving.sending().suggested();
        DataHeader { request, want, piece, offset: 0, suggested, zeros: false, encoding: 0 }
    }

    fn send_proof(
        &self,
        store: &dyn Store,
        run: &GetRun,
        out: &mut dyn FnMut(Outgoing),
    ) -> Result<(), StoreError> {
        if let Descriptors::Proof(nodes) = store.get_descriptors(&run.oid, run.all.clone())? {
            let (first, count) = (run.all.start, run.all.end - run.all.start);
            let (request, want) = (self.request(), Some(self.want));
            out(Outgoing::control(Body::Proof(ProofOf { request, want, first, count, nodes: nodes.into() })));
        }
        Ok(())
    }

    /// Sends more of a piece or of a delta, unless nobody wants it any more.
    fn go_on(&mut self, sending: &mut Sending, rest: GetRest, out: &mut dyn FnMut(Outgoing)) {
        let request = self.request();
        let (want, piece) = match &rest {
            GetRest::Data(header, _) => (header.want, header.piece),
            GetRest::Delta(want, _) => (*want, 0),
        };
        match rest {
            _ if self.wanted.unwanted.contains((want, piece)) => {
                let outcome = WireOutcome::cancelled(request, vec![want, piece]);
                out(Outgoing::control(Body::Outcome(outcome)));
            }
            GetRest::Data(header, bytes) => self.send_part(sending, header, bytes, out),
            GetRest::Delta(_, mut runs) => {
                let run = runs.pop_front();
                let message = |bytes| Body::Delta(wire::Delta { request, want, bytes });
                run.into_iter().for_each(|run| out(Outgoing::control(message(run))));
                self.rest = (!runs.is_empty()).then_some(GetRest::Delta(want, runs));
            }
        }
    }

    /// Sends one frame of a piece, as large as the path lets; what is left waits for the next step, so
    /// that a cancellation is noticed between them. The buffer is handed on, not copied.
    fn send_part(
        &mut self,
        sending: &mut Sending,
        mut header: DataHeader,
        mut bytes: Bytes,
        out: &mut dyn FnMut(Outgoing),
    ) {
        let encoded = self.encoder.as_mut().and_then(|encoder| encoder.encode(sending, &bytes));
        let (len, encoding, payload) = match encoded {
            Some((len, payload)) => {
                bytes.advance(len);
                (len, self.encoder.as_ref().map_or(0, |encoder| encoder.agreed.number), payload)
            }
            None => {
                let len = sending.next_len(bytes.len());
                (len, 0, bytes.split_to(len))
            }
        };
        out(Outgoing::data(&DataHeader { encoding, ..header }, payload));
        header.offset += len as u32;
        self.rest = (!bytes.is_empty()).then_some(GetRest::Data(header, bytes));
    }

    /// A run of bytes goes as a piece does.
    fn serve_span(
        &mut self,
        serving: &mut Serving,
        oid: &Oid,
        want: &WireWant,
        seen: Option<&Seen>,
        out: &mut dyn FnMut(Outgoing),
    ) -> Result<(), Outcome> {
        if oid.is_live() {
            return Err(refused("runs of bytes are of complete objects"));
        }
        self.pass_on(serving, want.len.into())?;
        let start = want.offset.unwrap_or(0);
        let (mut buffer, span) = (serving.buffers().take(), start..start.saturating_add(want.len.into()));
        let read = serving.store().read_span(oid, span, &mut buffer);
        read.map_err(|error| self.outcome(serving, oid, &error))?;
        if let Some(seen) = seen.filter(|seen| !seen.is_tree) {
            serving.processors().inspect(&seen.object(oid), start, &buffer)?;
        }
        let header = self.header(serving, 0);
        let is_zero = are_zeros(&buffer);
        let base = want.delta_request().filter(|_| !is_zero);
        let delta = base.map_or(Ok(None), |base| serving.delta(base, &buffer));
        let bytes = serving.buffers().lend(buffer, 0);
        match delta? {
            Some(runs) => self.go_on(serving.sending(), GetRest::Delta(self.want, runs), out),
            None if is_zero => out(Outgoing::data(&DataHeader { zeros: true, ..header }, Bytes::new())),
            None => self.send_part(serving.sending(), header, bytes, out),
        }
        Ok(())
    }

    /// Chunks are named by hash alone, so only nodes may ask for them that are allowed an object of
    /// these very bytes.
    fn serve_chunk(
        &mut self,
        serving: &mut Serving,
        chunk: &[u8],
        out: &mut dyn FnMut(Outgoing),
    ) -> Result<(), Outcome> {
        let hash: [u8; 32] = chunk.try_into().map_err(|_| refused("not a chunk's hash"))?;
        if !serving.is_allowed(&Oid::Blake3(hash)) {
            return Err(refused("chunks are for allowed nodes"));
        }
        let bytes = serving.store().get_chunk(&hash).map_err(|error| outcome_of(&error))?;
        let (oid, metadata) = (Oid::Blake3(hash), Metadata::default());
        let object = Object { oid: &oid, name: b"", size: Some(bytes.len() as u64), metadata: &metadata };
        serving.processors().admit(&object)?;
        serving.processors().inspect(&object, 0, &bytes)?;
        let header = self.header(serving, 0);
        self.send_part(serving.sending(), header, bytes.into(), out);
        Ok(())
    }
}

impl GetRun {
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

impl Encoder {
    pub(super) const fn new(agreed: Encoded, encode: Box<dyn Encode>) -> Self {
        Self { agreed, encode }
    }

    /// Encodes the first bytes of `rest`, if it is asked for or worth it: how many, and the payload.
    fn encode(&mut self, sending: &mut Sending, rest: &[u8]) -> Option<(usize, Bytes)> {
        if !self.agreed.is_asked && !sending.tries() {
            return None;
        }
        // Others expect a full frame.
        let most = if self.agreed.in_parts { sending.compressed_len() } else { wire::MAX_PAYLOAD };
        let len = rest.len().min(most);
        let encoded = self.encode.encode(&rest[..len]);
        let payload = match self.agreed.in_parts {
            true => {
                encoded.map(|encoded| wire::with_len(len, &encoded)).filter(|payload| payload.len() < len)
            }
            false => encoded,
        };
        let is_worth_it = sending.tried(len, payload.as_ref().map(Bytes::len));
        payload.filter(|_| is_worth_it || self.agreed.is_asked).map(|payload| (len, payload))
    }
}

/// A piece of a run; `None` if it is all zeros.
fn read(serving: &Serving, run: &GetRun, index: u64) -> Result<Option<Bytes>, StoreError> {
    let store = serving.store();
    // Whole small objects are read at once; asking for holes would cost more than reading.
    if run.all != (0..1) && store.is_zero(&run.oid, index) {
        return Ok(None);
    }
    let mut buffer = serving.buffers().take();
    let front = buffer.len();
    store.read_piece(&run.oid, index, &mut buffer)?;
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

/// True if there is nothing but zeros; other data mostly show it in their first block.
fn are_zeros(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.chunks(4096).all(|block| block.iter().fold(0, |sum, byte| sum | byte) == 0)
}
