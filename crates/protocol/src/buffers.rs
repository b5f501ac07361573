//! The memory that pieces are read into, used again once they are sent.
//!
//! Memory fresh from the system costs a page fault for every 4 KiB, which on a fast network is as
//! dear as encryption. Where it begins matters as much: copying from the page cache to a little
//! beyond a page's begin, which is where allocators like to put large blocks, takes some processors
//! three times as long (`docs/design/performance.md`).

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// Buffers kept for use again, at most: the pieces that wait for the writer tasks of a few peers.
const KEPT: usize = 32;
/// Shorter pieces are copied, so that each does not hold a buffer for a large one.
const SHORT: usize = 32 << 10;

/// Alignment of a piece in its buffer, bytes.
const ALIGN: usize = 64;
/// Room for a piece of most objects.
const ROOM: usize = (256 << 10) + ALIGN;

/// The buffers of all answers of a service.
#[derive(Debug, Clone, Default)]
pub(super) struct Buffers(Arc<Mutex<Vec<Vec<u8>>>>);

impl Buffers {
    /// A buffer with a few bytes in it, behind which a piece is to lie.
    pub(super) fn take(&self) -> Vec<u8> {
        let mut buffer = self.with(Vec::pop).unwrap_or_else(|| Vec::with_capacity(ROOM));
        buffer.clear();
        let front = buffer.as_ptr().align_offset(ALIGN).min(ALIGN);
        buffer.resize(front, 0);
        buffer
    }

    /// Bytes of `buffer` from `front` on; the buffer comes back when all parts of that are dropped.
    pub(super) fn lend(&self, buffer: Vec<u8>, front: usize) -> Bytes {
        if buffer.len() - front < SHORT {
            let copy = Bytes::copy_from_slice(&buffer[front..]);
            self.give_back(buffer);
            return copy;
        }
        Bytes::from_owner(Lent { buffer, owner: self.clone() }).slice(front..)
    }

    /// A buffer that is not needed any more.
    pub(super) fn give_back(&self, buffer: Vec<u8>) {
        self.with(|kept| {
            if kept.len() < KEPT {
                kept.push(buffer)
            }
        });
    }

    fn with<T>(&self, f: impl FnOnce(&mut Vec<Vec<u8>>) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A buffer on its way through the queue of frames.
struct Lent {
    buffer: Vec<u8>,
    owner: Buffers,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.owner.give_back(std::mem::take(&mut self.buffer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(buffers: &Buffers, len: usize) -> (Vec<u8>, usize) {
        let mut buffer = buffers.take();
        let front = buffer.len();
        assert!(buffer[front..].as_ptr().cast::<u64>().is_aligned() && front <= ALIGN);
        buffer.resize(front + len, 7);
        (buffer, front)
    }

    /// The buffer that is taken next.
    fn next(buffers: &Buffers) -> usize {
        let buffer = buffers.take();
        buffer.as_ptr().addr()
    }

    #[test]
    fn a_large_buffer_comes_back_with_the_last_part_of_it() {
        let buffers = Buffers::default();
        let (buffer, front) = piece(&buffers, SHORT);
        let place = buffer.as_ptr().addr();
        let mut sent = buffers.lend(buffer, front);
        assert_eq!(sent.as_ptr().align_offset(ALIGN), 0);
        let part = sent.split_to(10);
        drop(sent);
        assert_ne!(next(&buffers), place, "a part is in use");
        assert_eq!(part, vec![7; 10]);
        drop(part);
        assert_eq!(next(&buffers), place);
    }

    #[test]
    fn a_short_piece_does_not_hold_its_buffer() {
        let buffers = Buffers::default();
        let (buffer, front) = piece(&buffers, SHORT - 1);
        let place = buffer.as_ptr().addr();
        let sent = buffers.lend(buffer, front);
        assert_eq!(next(&buffers), place);
        assert_eq!(sent, vec![7; SHORT - 1]);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let buffers = Buffers::default();
        let pieces: Vec<_> = (0..3 * KEPT).map(|_| piece(&buffers, SHORT)).collect();
        let sent: Vec<Bytes> =
            pieces.into_iter().map(|(buffer, front)| buffers.lend(buffer, front)).collect();
        drop(sent);
        assert_eq!(buffers.with(|kept| kept.len()), KEPT);
    }
}
