//! Memory that a transport fills and frames are taken from: the seam between the two.
//!
//! ```text
//!   ┌─────────────────────┬──────┬────────────────────┬────────┐
//!   │ plain: for frames   │ void │ raw: the transport │ free   │
//!   └─────────────────────┴──────┴────────────────────┴────────┘
//! ```
//!
//! Bytes are received once, behind `raw`, and a transport that encrypts opens its records where
//! they lie, so that what they hold ends up behind `plain`. All of the memory has a value from the
//! start, and it is used again and again ([`Memory`]).

use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, ReadBuf};

/// Buffers kept for use again, at most: the frames that are being checked and written.
const KEPT: usize = 16;

/// The receiving half of a transport: anything that is [`tokio::io::AsyncRead`] will do.
pub type ReadHalf = Box<dyn Receive>;

/// Something that bytes come from. Everything that is [`AsyncRead`] is one.
pub trait Receive: Send {
    /// Completes when there may be something to receive, so that no memory need be held meanwhile; at once where nobody
    /// can tell.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let _ = cx;
        Poll::Ready(Ok(()))
    }

    /// Puts what has come behind what is plain in `buffer`, up to `wanted` bytes or a little more, and
    /// returns how many these are; 0 at the end. Fewer than `least` are of no use yet, so that nobody need wake for them.
    ///
    /// The buffer is always the same, with room for that and one record. Nothing is lost if the caller
    /// goes away while this is pending.
    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut RecvBuffer,
        wanted: usize,
        least: usize,
    ) -> Poll<io::Result<usize>>;

    /// So many bytes may be waited for at once from now on, where they come as soon as this and the transport can do so.
    fn wait_for(&mut self, most: usize, soon: Duration) {
        let _ = (most, soon);
    }
}

impl<Stream: AsyncRead + Send + Unpin> Receive for Stream {
    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut RecvBuffer,
        wanted: usize,
        _least: usize,
    ) -> Poll<io::Result<usize>> {
        let free = buffer.free();
        let most = wanted.min(free.len());
        let mut free = ReadBuf::new(&mut free[..most]);
        ready!(Pin::new(self).poll_read(cx, &mut free))?;
        let count = free.filled().len();
        buffer.received(count);
        buffer.take_in(count);
        Poll::Ready(Ok(count))
    }
}

/// See the head of this module.
#[derive(Default)]
pub struct RecvBuffer {
    memory: Box<[u8]>,
    plain: usize,
    raw: Range<usize>,
}

impl RecvBuffer {
    /// Bytes that can be taken.
    pub(crate) fn plain(&self) -> &[u8] {
        &self.memory[..self.plain]
    }

    /// Bytes that the transport has still to decode.
    pub(crate) fn raw(&self) -> &[u8] {
        &self.memory[self.raw.clone()]
    }

    /// All of the memory, where `raw` lies in it, and where its content is to go.
    pub(crate) fn open(&mut self) -> (&mut [u8], Range<usize>, usize) {
        (&mut self.memory, self.raw.clone(), self.plain)
    }

    /// Room for the next bytes.
    pub(crate) fn free(&mut self) -> &mut [u8] {
        if self.raw.is_empty() {
            self.raw = self.plain..self.plain;
        }
        &mut self.memory[self.raw.end..]
    }

    /// So many bytes were received there.
    pub(crate) const fn received(&mut self, count: usize) {
        self.raw.end += count;
    }

    /// The first `count` bytes of what is raw have been opened; their content is plain by now.
    pub(crate) const fn take_in(&mut self, count: usize) {
        self.raw.start += count;
        self.plain += count;
    }

    /// The first `record` bytes of what is raw were opened, and had so much content, which lies behind
    /// what is plain.
    pub(crate) const fn opened(&mut self, record: usize, content: usize) {
        self.raw.start += record;
        self.plain += content;
    }

    /// Gives its memory back, if nothing is in it.
    pub(crate) fn rest(&mut self) {
        if self.plain == 0 && self.raw.is_empty() {
            *self = Self::default();
        }
    }

    /// True if it has no memory.
    pub(crate) const fn is_resting(&self) -> bool {
        self.memory.is_empty()
    }

    /// Bytes that may still be received.
    pub(crate) fn room(&self) -> usize {
        let end = if self.raw.is_empty() { self.plain } else { self.raw.end };
        self.memory.len() - end
    }

    /// All but the first `count` bytes of what is plain moves to `fresh`; returns the memory that was
    /// used so far.
    pub(crate) fn move_to(&mut self, mut fresh: Box<[u8]>, count: usize) -> Box<[u8]> {
        let (plain, raw) = (&self.memory[count..self.plain], &self.memory[self.raw.clone()]);
        let end = plain.len() + raw.len();
        fresh[..plain.len()].copy_from_slice(plain);
        fresh[plain.len()..end].copy_from_slice(raw);
        (self.plain, self.raw) = (plain.len(), plain.len()..end);
        std::mem::replace(&mut self.memory, fresh)
    }

    /// Forgets the first `count` bytes of what is plain; the rest moves to the front.
    pub(crate) fn drop_front(&mut self, count: usize) {
        let (plain, raw) = (self.plain - count, self.raw.len());
        self.memory.copy_within(count..self.plain, 0);
        self.memory.copy_within(self.raw.clone(), plain);
        (self.plain, self.raw) = (plain, plain..plain + raw);
    }
}

/// The memory of one reader's frames, used again once nobody holds a frame in it.
///
/// Memory fresh from the system costs a page fault for every 4 KiB, which on a fast network is as
/// dear as hashing; what was used a moment ago also lies in the processor's cache still.
#[derive(Clone, Default)]
pub(crate) struct Memory(Arc<Mutex<Vec<Box<[u8]>>>>);

impl Memory {
    /// A buffer of at least `size` bytes, if possible the one that came back last.
    pub(crate) fn take(&self, size: usize) -> Box<[u8]> {
        let kept = self.with(|kept| {
            let free = kept.iter().rposition(|buffer| buffer.len() >= size);
            free.map(|at| kept.remove(at))
        });
        kept.unwrap_or_else(|| vec![0; size].into())
    }

    /// The first `len` bytes of `buffer`, which comes back when nobody holds a part of them any more.
    pub(crate) fn lend(&self, buffer: Box<[u8]>, len: usize) -> Bytes {
        Bytes::from_owner(LentMemory { buffer, owner: self.clone() }).slice(..len)
    }

    /// Buffers that someone holds frames in.
    #[cfg(test)]
    pub(crate) fn lent(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }

    /// Gives back what nobody uses.
    pub(crate) fn rest(&self) {
        self.with(|kept| *kept = Vec::new());
    }

    /// Takes back a buffer.
    pub(crate) fn give_back(&self, buffer: Box<[u8]>) {
        self.with(|kept| {
            if kept.len() == KEPT {
                kept.remove(0);
            }
            kept.push(buffer);
        });
    }

    fn with<T>(&self, f: impl FnOnce(&mut Vec<Box<[u8]>>) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A buffer with frames in it.
struct LentMemory {
    buffer: Box<[u8]>,
    owner: Memory,
}

impl AsRef<[u8]> for LentMemory {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for LentMemory {
    fn drop(&mut self) {
        self.owner.give_back(std::mem::take(&mut self.buffer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_once_nobody_holds_part_of_it() {
        let memory = Memory::default();
        let mut buffer = memory.take(1000);
        buffer.fill(7);
        let place = buffer.as_ptr().addr();
        let next = |size| memory.take(size).as_ref().as_ptr().addr();
        let mut frames = memory.lend(buffer, 600);
        let part = frames.split_to(100);
        drop(frames);
        assert_ne!(next(1000), place, "a part is in use");
        assert_eq!(part, vec![7; 100]);
        drop(part);
        assert_ne!(next(1001), place, "too small");
        assert_eq!(next(1000), place);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let memory = Memory::default();
        for _ in 0..3 * KEPT {
            memory.give_back(vec![0; 10].into());
        }
        assert_eq!(memory.with(|kept| kept.len()), KEPT);
    }

    /// `plain`, a gap of 3, `raw`.
    fn buffer(plain: &[u8], raw: &[u8]) -> RecvBuffer {
        let memory = [plain, b"???", raw, &[0; 20]].concat().into();
        let start = plain.len() + 3;
        RecvBuffer { memory, plain: plain.len(), raw: start..start + raw.len() }
    }

    #[test]
    fn what_is_left_moves_without_a_gap() {
        let mut moved = buffer(b"frames and", b"record");
        let old = moved.move_to(vec![0; 30].into(), 7);
        assert_eq!((moved.plain(), moved.raw(), moved.room()), (&b"and"[..], &b"record"[..], 21));
        assert_eq!(old[..10], *b"frames and");
        let mut dropped = buffer(b"frames and", b"record");
        dropped.drop_front(7);
        assert_eq!((dropped.plain(), dropped.raw()), (&b"and"[..], &b"record"[..]));
        dropped.opened(6, 2);
        assert_eq!((dropped.plain(), dropped.raw()), (&b"andre"[..], &b""[..]));
        dropped.free()[..2].copy_from_slice(b"xy");
        dropped.received(2);
        assert_eq!(dropped.raw(), b"xy", "what comes next lies behind what is plain");
    }
}
