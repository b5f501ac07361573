//! The memory that frames are read into, used again once nobody holds a frame in it.
//!
//! Memory fresh from the system costs a page fault for every 4 KiB, which on a fast network is as
//! dear as hashing; what was used a moment ago also lies in the processor's cache still.

use bytes::BytesMut;

/// Buffers kept for use again, at most: the frames that are being checked and written.
const KEPT: usize = 16;

/// Buffers of one size or more, for one reader.
#[derive(Default)]
pub(super) struct Memory {
    /// The last used is the last.
    kept: Vec<BytesMut>,
}

impl Memory {
    /// An empty buffer with room for `size` bytes.
    pub(super) fn take(&mut self, size: usize) -> BytesMut {
        let free = self.kept.iter_mut().rposition(|buffer| buffer.try_reclaim(size));
        free.map_or_else(|| BytesMut::with_capacity(size), |at| self.kept.remove(at))
    }

    /// Takes back a buffer, parts of which may still be in use.
    pub(super) fn give_back(&mut self, mut buffer: BytesMut) {
        buffer.clear();
        if self.kept.len() == KEPT {
            self.kept.remove(0);
        }
        self.kept.push(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_once_nobody_holds_part_of_it() {
        let mut memory = Memory::default();
        let mut buffer = memory.take(1000);
        buffer.extend_from_slice(&[7; 1000]);
        let place = buffer.as_ptr();
        let part = buffer.split_to(600).freeze();
        memory.give_back(buffer);
        let other = memory.take(1000);
        assert_ne!(other.as_ptr(), place, "a part is in use");
        assert_eq!(part, vec![7; 600]);
        drop(part);
        let again = memory.take(1000);
        assert_eq!((again.as_ptr(), again.len(), again.capacity()), (place, 0, 1000));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut memory = Memory::default();
        for _ in 0..3 * KEPT {
            memory.give_back(BytesMut::with_capacity(10));
        }
        assert_eq!(memory.kept.len(), KEPT);
        assert!(memory.take(1000).capacity() >= 1000, "those are too small");
    }
}
