//! Wants that are to be requested, in their order, and those that wait for a moment. A want that is neither any more
//! leaves when it is come by.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Instant;

use crate::want::{Tag, WantId};

/// The queue of a ledger.
#[derive(Debug, Default)]
pub(super) struct WantQueue {
    chunks: VecDeque<Tag>,
    /// All other queued wants.
    others: VecDeque<Tag>,
    delayed: BinaryHeap<Reverse<(Instant, Tag)>>,
}

impl WantQueue {
    /// Appends a want.
    pub(super) fn push(&mut self, id: &WantId, tag: Tag) {
        self.of(id).push_back(tag);
    }

    /// Takes the first of those out that are like `id`.
    pub(super) fn pop(&mut self, id: &WantId) {
        self.of(id).pop_front();
    }

    const fn of(&mut self, id: &WantId) -> &mut VecDeque<Tag> {
        match id {
            WantId::Chunk { .. } => &mut self.chunks,
            WantId::Piece { .. } | WantId::Block { .. } => &mut self.others,
        }
    }

    /// The want that was queued first, chunk or not, of those that are still queued.
    pub(super) fn first(&mut self, is_queued: impl Fn(&Tag) -> bool) -> Option<Tag> {
        for queue in [&mut self.chunks, &mut self.others] {
            while queue.pop_front_if(|tag| !is_queued(tag)).is_some() {}
        }
        let fronts = [self.chunks.front(), self.others.front()];
        fronts.into_iter().flatten().min().copied()
    }

    /// Takes all chunks out.
    pub(super) fn drain_chunks(&mut self) -> impl Iterator<Item = Tag> {
        self.chunks.drain(..)
    }

    /// Keeps a want until a moment.
    pub(super) fn delay(&mut self, tag: Tag, until: Instant) {
        self.delayed.push(Reverse((until, tag)));
    }

    /// Takes a want out whose moment has come.
    pub(super) fn due(&mut self, now: Instant) -> Option<Tag> {
        let due = self.delayed.peek_mut().filter(|first| first.0.0 <= now)?;
        Some(std::collections::binary_heap::PeekMut::pop(due).0.1)
    }

    /// Time of the next moment.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.delayed.peek().map(|Reverse((due, _))| *due)
    }

    /// True if a chunk may be queued.
    pub(super) fn has_chunks(&self) -> bool {
        !self.chunks.is_empty()
    }

    /// True if anything may be queued.
    pub(super) fn has_any(&self) -> bool {
        self.has_chunks() || !self.others.is_empty()
    }
}
