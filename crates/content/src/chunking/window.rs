//! The bounded buffer of a chunker: it holds the start of a chunk whose end is not known yet.
//!
//! Chunks that lie whole in one slice are handed out from there; only a chunk that spans slices is
//! put together here. While something is held, the window is filled to the greatest chunk length
//! before a boundary is looked for, so that slices of one byte do not cause a search for each.

/// Bytes of the current chunk, at most `max` of them.
#[derive(Debug, Clone)]
pub(super) struct HashWindow {
    max: usize,
    held: Vec<u8>,
    /// Bytes at the front of `held` that were handed out and go with the next call.
    spent: usize,
}

impl HashWindow {
    /// An empty window for chunks of at most `max` bytes, which must not be 0.
    pub(super) const fn new(max: usize) -> Self {
        Self { max, held: Vec::new(), spent: 0 }
    }

    /// The next chunk of what is held followed by `input`; see [`super::Chunker::cut`].
    ///
    /// `find` returns the length of the first chunk of the bytes it is given, `max` at most, and
    /// the length of all of them if they are fewer and hold no boundary.
    pub(super) fn cut<'c, 'i: 'c>(
        &'c mut self,
        input: &mut &'i [u8],
        find: impl Fn(&[u8]) -> usize,
    ) -> Option<&'c [u8]> {
        self.discard_spent();
        if self.held.is_empty() { self.cut_input(input, find) } else { self.cut_held(input, find) }
    }

    /// The next chunk when no more input will come; see [`super::Chunker::finish`].
    pub(super) fn finish(&mut self, find: impl Fn(&[u8]) -> usize) -> Option<&[u8]> {
        self.discard_spent();
        self.spent = find(&self.held);
        Some(&self.held[..self.spent]).filter(|chunk| !chunk.is_empty())
    }

    fn cut_input<'i>(&mut self, input: &mut &'i [u8], find: impl Fn(&[u8]) -> usize) -> Option<&'i [u8]> {
        let len = find(input);
        if len == input.len() && len < self.max {
            self.take(input, len);
            return None;
        }
        let (chunk, rest) = input.split_at(len);
        *input = rest;
        Some(chunk)
    }

    fn cut_held(&mut self, input: &mut &[u8], find: impl Fn(&[u8]) -> usize) -> Option<&[u8]> {
        let before = self.held.len();
        let all = *input;
        self.take(input, (self.max - before).min(all.len()));
        if self.held.len() < self.max {
            return None;
        }
        self.spent = find(&self.held);
        // Bytes taken behind the chunk go back, so that the next one needs no copy.
        if let Some(used) = self.spent.checked_sub(before) {
            self.held.truncate(self.spent);
            *input = &all[used..];
        }
        Some(&self.held[..self.spent])
    }

    fn take(&mut self, input: &mut &[u8], len: usize) {
        let (head, rest) = input.split_at(len);
        if self.held.capacity() == 0 && len > 0 {
            self.held.reserve_exact(self.max);
        }
        self.held.extend_from_slice(head);
        *input = rest;
    }

    fn discard_spent(&mut self) {
        self.held.drain(..self.spent);
        self.spent = 0;
    }
}
