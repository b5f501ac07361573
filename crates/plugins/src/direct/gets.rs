//! Answers `Get`s: index look-up, read, frame out, a batch of frames at a time.

use std::ops::Range;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use towpath_content::Oid;
use towpath_content::pieces::MIN_LOG2;
use towpath_store::{Descriptors, Store, StoreError};
use towpath_transfer::Outcome;

use super::access::Decision;
use super::compress::Packer;
use super::outgoing::{Outgoing, suggestion};
use super::requests::oid_of;
use super::service::{Blocks, Talk, outcome_of, outcome_of_put};
use super::wire::{self, Body, DataHeader, Get, ProofOf, WireOutcome, WireWant};

/// Bytes of frames handed to the writer task at once.
const BATCH: usize = 256 << 10;

/// Answers one `Get`, want by want.
pub(super) fn serve_get(talk: &Talk, blocks: &mut Blocks, get: &Get) {
    let packer = talk.compress.load(Ordering::Relaxed).then(Packer::default);
    let mut out = Batch { talk, frames: Vec::new(), bytes: 0, suggested: suggestion(&talk.probe), packer };
    for index in 0..get.wants.len() {
        if talk.is_over(get.request) {
            break;
        }
        if let Err((want, outcome)) = serve_want(&mut out, blocks, get, index) {
            let outcome = WireOutcome::new(get.request, Some(want), &outcome);
            out.push(Outgoing::control(Body::Outcome(outcome)));
        }
    }
    out.flush();
}

/// Frames on their way to the writer task, a few hundred kilobytes at a time.
struct Batch<'a> {
    talk: &'a Talk,
    frames: Vec<Outgoing>,
    bytes: usize,
    suggested: u32,
    /// Compresses data, if they are to be.
    packer: Option<Packer>,
}

impl Batch<'_> {
    fn push(&mut self, frame: Outgoing) {
        self.bytes += frame.len();
        self.frames.push(frame);
        if self.bytes >= BATCH {
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.bytes = 0;
        if !self.frames.is_empty() {
            // A connection that ended takes no more; the thread finds out by its token.
            let _ = self.talk.outbox.blocking_send(std::mem::take(&mut self.frames));
        }
    }
}

type Served = Result<(), (u32, Outcome)>;

fn serve_want(out: &mut Batch<'_>, blocks: &mut Blocks, get: &Get, index: usize) -> Served {
    let want = &get.wants[index];
    let number = index as u32;
    let refused = |why: &str| (number, Outcome::Refused(why.into()));
    let root = Oid::from_bytes(&get.root).map_err(|_| refused("the root is not an OID"))?;
    let Some(oid) = oid_of(want).map_err(|_| refused("not an OID"))? else {
        return serve_chunk(out, get.request, number, want);
    };
    if let Decision::Refuse(why) = out.talk.judge(&root, &oid, want.block, blocks) {
        return Err(refused(why));
    }
    let served = serve_run(out, &oid, get.request, number, want);
    served.map_err(|error| (number, outcome_of_put(out.talk, &oid, &error)))
}

fn serve_run(
    out: &mut Batch<'_>,
    oid: &Oid,
    request: u32,
    number: u32,
    want: &WireWant,
) -> Result<(), StoreError> {
    let store = out.talk.shared_store();
    let end = want.first.checked_add(u64::from(want.count));
    let run = want.first..end.ok_or(StoreError::Refused { why: "no object has such pieces" })?;
    let mut buffer = Vec::new();
    for index in run.clone() {
        if out.talk.is_over(request) {
            return Ok(());
        }
        // Whole small objects are read at once; asking for holes would cost more than reading.
        let mut zeros = run != (0..1) && store.is_zero(oid, index);
        if !zeros {
            store.read_piece(oid, index, &mut buffer)?;
            zeros = are_zeros(&buffer);
        }
        // A short first piece asked for alone is the whole object, which needs no proof.
        let is_whole = run == (0..1) && !zeros && buffer.len() < 1 << MIN_LOG2;
        if index == run.start && !oid.is_live() && !is_whole {
            send_proof(out, &*store, oid, request, number, &run)?;
        }
        let header = DataHeader {
            request,
            want: number,
            piece: (index - run.start) as u32,
            offset: 0,
            suggested: out.suggested,
            zeros,
            zstd: false,
        };
        match zeros {
            true => out.push(Outgoing::data(&header, Bytes::new())),
            false => send_piece(out, header, std::mem::take(&mut buffer)),
        }
    }
    Ok(())
}

/// Whether there is nothing but zeros; other data mostly show it in their first block.
fn are_zeros(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.chunks(4096).all(|block| block.iter().fold(0, |sum, byte| sum | byte) == 0)
}

fn send_proof(
    out: &mut Batch<'_>,
    store: &dyn Store,
    oid: &Oid,
    request: u32,
    number: u32,
    run: &Range<u64>,
) -> Result<(), StoreError> {
    if let Descriptors::Proof(nodes) = store.get_descriptors(oid, run.clone())? {
        let (first, count) = (run.start, run.end - run.start);
        let proof = ProofOf { request, want: Some(number), first, count, nodes: nodes.into() };
        out.push(Outgoing::control(Body::Proof(proof)));
    }
    Ok(())
}

/// A piece in frames of at most [`wire::MAX_PAYLOAD`]; the buffer is handed on, not copied.
fn send_piece(out: &mut Batch<'_>, mut header: DataHeader, bytes: Vec<u8>) {
    let mut rest = Bytes::from(bytes);
    loop {
        let part = rest.split_to(rest.len().min(wire::MAX_PAYLOAD));
        let len = part.len() as u32;
        let packed = out.packer.as_mut().and_then(|packer| packer.pack(&part));
        header.zstd = packed.is_some();
        out.push(Outgoing::data(&header, packed.unwrap_or(part)));
        header.offset += len;
        if rest.is_empty() {
            return;
        }
    }
}

/// Chunks are named by hash alone, so only nodes may ask for them that are allowed an object of
/// these very bytes.
fn serve_chunk(out: &mut Batch<'_>, request: u32, number: u32, want: &WireWant) -> Served {
    let refused = |why: &str| (number, Outcome::Refused(why.into()));
    let hash: [u8; 32] = want.chunk[..].try_into().map_err(|_| refused("not a chunk's hash"))?;
    if !out.talk.is_allowed(&Oid::Blake3(hash)) {
        return Err(refused("chunks are for allowed nodes"));
    }
    let bytes = out.talk.store().get_chunk(&hash).map_err(|error| (number, outcome_of(&error)))?;
    let header = DataHeader {
        request,
        want: number,
        piece: 0,
        offset: 0,
        suggested: out.suggested,
        zeros: false,
        zstd: false,
    };
    send_piece(out, header, bytes);
    Ok(())
}
