//! Threads that check and write: each byte is hashed on the buffer it arrived in.

use std::io;
use std::sync::Arc;

use tokio::sync::mpsc;
use towpath_content::Oid;
use towpath_content::pieces::{self};

use super::events::{Brought, Checked, SessionEvent};
use super::followed;
use super::jobs::{Jobs, Queue};
use super::work::{Job, Scratch, WriteTarget, check_piece, read_good};
use super::{FetchError, Fetched};
use crate::gathering::{self, DoubtedPart};
use crate::object::{CheckError, ObjectInFlight};
use crate::source_id::SourceId;
use crate::want::{Delivery, ObjectOffset, Payload, PiecePart, Want, WantId};

/// Starts `count` threads that serve one queue until its sender is dropped.
pub(super) fn start(count: usize, events: &mpsc::UnboundedSender<SessionEvent>) -> Jobs {
    let (jobs, queue) = Jobs::new();
    for _ in 0..count {
        let (queue, events) = (Arc::clone(&queue), events.clone());
        tokio::task::spawn_blocking(move || serve(&queue, count, &events));
    }
    jobs
}

fn serve(queue: &Queue, count: usize, events: &mpsc::UnboundedSender<SessionEvent>) {
    let (mut scratch, mut jobs) = (Scratch::default(), Vec::new());
    loop {
        queue.take(count, &mut jobs);
        if jobs.is_empty() {
            return;
        }
        let done = jobs.drain(..).map(|job| perform(job, &mut scratch)).collect();
        if events.send(SessionEvent::Performed(done)).is_err() {
            return;
        }
    }
}

fn perform(job: Job, scratch: &mut Scratch) -> SessionEvent {
    match job {
        Job::Begin { object, size } => {
            let result = object.begin(size).map(|()| object.target.existing());
            SessionEvent::Began { key: object.key, result }
        }
        Job::Check { want, delivery, destinations, doubted, room } => {
            let result = check(&want, &delivery, &destinations, &doubted, scratch);
            let (shares, saved) = (shares(&delivery.payload), delivery.saved);
            let brought = Brought { source: delivery.source.clone(), shares, saved };
            drop((delivery, room));
            SessionEvent::Checked { want, brought, result }
        }
        Job::Compare { object, index } => {
            let found = followed::compare(&object, index, scratch);
            // Work that waits for this processor may be what the network waits for, which otherwise stands still
            // until the thread's share of time is used up.
            std::thread::yield_now();
            SessionEvent::Compared { key: object.key, index, found }
        }
        Job::Recheck { object, index } => {
            let read = |offset, buf: &mut [u8]| object.target.read(offset, buf);
            let good = read_good(&object, index, scratch, read).is_some();
            SessionEvent::Rechecked { key: object.key, index, good }
        }
        Job::Complete { object } => {
            let result = complete(&object);
            SessionEvent::Completed { key: object.key, result }
        }
        Job::Entry(job) => job.perform(),
    }
}

fn check(
    want: &Want,
    delivery: &Delivery,
    to: &[WriteTarget],
    doubted: &[DoubtedPart],
    scratch: &mut Scratch,
) -> Checked {
    let (bytes, zeros) = match &delivery.payload {
        Payload::Bytes(bytes) | Payload::Hashed(bytes) => (&bytes[..], false),
        Payload::Zeros => (zeros(scratch, want.id.len()), true),
        Payload::Gathered(parts) => (joined(scratch, parts), false),
    };
    let result = match want.id {
        WantId::Piece { layout, index, .. } if is_part(want, bytes) => {
            return match followed::complete(to, &layout, index, bytes) {
                Some(piece) => write(want, to, &piece, false, Vec::new()),
                None => Checked::BadPart,
            };
        }
        WantId::Piece { layout, index, .. } => {
            check_piece(to, &layout, index, bytes, delivery.proof.as_deref())
        }
        WantId::Chunk { len, .. } if matches!(delivery.payload, Payload::Hashed(_)) => check_len(len, bytes),
        WantId::Chunk { hash, len } | WantId::Block { hash, len } => check_hash(&hash, len, bytes),
    };
    match (result, &delivery.payload) {
        (Err(CheckError::WrongBytes), Payload::Gathered(parts)) => Checked::Doubtful(gathering::doubt(parts)),
        (Err(why), _) => Checked::Bad(why),
        (Ok(()), _) => write(want, to, bytes, zeros, gathering::liars(doubted, bytes)),
    }
}

/// Parts one behind the other; together they are as long as the memory that they take.
fn joined<'s>(scratch: &'s mut Scratch, parts: &[PiecePart]) -> &'s [u8] {
    let bytes = scratch.bytes(parts.iter().map(|part| part.bytes.len()).sum());
    let mut rest = &mut *bytes;
    for part in parts {
        let (place, behind) = rest.split_at_mut(part.bytes.len());
        place.copy_from_slice(&part.bytes);
        rest = behind;
    }
    bytes
}

/// How much each of several sources brought.
fn shares(payload: &Payload) -> Vec<(SourceId, u64)> {
    let Payload::Gathered(parts) = payload else { return Vec::new() };
    parts.iter().map(|part| (part.source.clone(), part.bytes.len() as u64)).collect()
}

/// `len` zeros; `len` is at most a piece's length, which the layout bounds.
fn zeros(scratch: &mut Scratch, len: u64) -> &[u8] {
    let bytes = scratch.bytes(len as usize);
    bytes.fill(0);
    bytes
}

/// True if these are the bytes that were missing of a piece, rather than all of it.
fn is_part(want: &Want, bytes: &[u8]) -> bool {
    want.part.is_some() && bytes.len() as u64 == want.missing_len()
}

fn check_len(len: u32, bytes: &[u8]) -> Result<(), CheckError> {
    let (expected, found) = (u64::from(len), bytes.len() as u64);
    if expected == found { Ok(()) } else { Err(CheckError::WrongLength { expected, found }) }
}

fn check_hash(hash: &[u8; 32], len: u32, bytes: &[u8]) -> Result<(), CheckError> {
    check_len(len, bytes)?;
    if Oid::of(bytes).digest() != hash {
        return Err(CheckError::WrongBytes);
    }
    Ok(())
}

fn write(want: &Want, to: &[WriteTarget], bytes: &[u8], zeros: bool, liars: Vec<SourceId>) -> Checked {
    // Its file is opened, written and closed in one go.
    let whole = want.id.is_whole();
    let mut failed = Vec::new();
    for (position, destination) in want.positions.iter().zip(to) {
        let written = match whole {
            true => write_whole(position, destination, bytes, zeros),
            false => write_parts(position, destination, bytes, zeros),
        };
        failed.extend(written.err().map(|why| (destination.object.key, why)));
    }
    Checked::Written { whole, zeros, failed, liars }
}

fn write_parts(position: &ObjectOffset, to: &WriteTarget, bytes: &[u8], zeros: bool) -> io::Result<()> {
    let _turn = to.object.turn();
    for part in &to.parts {
        match zeros {
            true => to.object.target.write_zeros(part.clone())?,
            false => {
                let within = (part.start - position.offset) as usize..(part.end - position.offset) as usize;
                to.object.target.write(part.start, &bytes[within])?;
            }
        }
    }
    Ok(())
}

fn write_whole(position: &ObjectOffset, to: &WriteTarget, bytes: &[u8], zeros: bool) -> io::Result<()> {
    if !zeros && to.object.take(bytes)? {
        return Ok(());
    }
    to.object.begin(Some(bytes.len() as u64))?;
    write_parts(position, to, bytes, zeros)?;
    close_single(&to.object, bytes.len() as u64)
}

fn close_single(object: &ObjectInFlight, size: u64) -> Result<(), io::Error> {
    let Some(content) = object.content() else { return Ok(()) };
    object.target.complete(&content, size, vec![*content.digest()])
}

fn complete(object: &ObjectInFlight) -> Result<Fetched, FetchError> {
    let (Some(oid), Some(layout)) = (object.content(), object.layout()) else {
        return Err(FetchError::BindingWrong);
    };
    let values = object.all_values().ok_or(FetchError::BindingWrong)?;
    if pieces::oid_of(&values) != oid {
        return Err(FetchError::BindingWrong);
    }
    object.target.complete(&oid, layout.size(), values)?;
    Ok(Fetched { oid, size: layout.size(), about: object.about() })
}

#[cfg(test)]
mod tests {
    use super::super::work::ALIGN;
    use super::*;

    #[test]
    fn memory_of_any_length_is_aligned_and_zeros_are_zeros() {
        let mut scratch = Scratch::default();
        for len in [1, 300_000, 7, 0, 1 << 18] {
            let bytes = scratch.bytes(len);
            assert_eq!((bytes.len(), bytes.as_ptr().align_offset(ALIGN)), (len, 0));
            bytes.fill(7);
            assert!(zeros(&mut scratch, len as u64).iter().all(|byte| *byte == 0), "{len}");
        }
    }
}
