//! A cutter with a buffer: the chunker of a stream.

use super::window::HashWindow;
use super::{Chunker, Cutter};

/// Cuts a stream by the rule of its cutter.
#[derive(Debug, Clone)]
pub(super) struct ChunkStream {
    cutter: Cutter,
    window: HashWindow,
}

impl ChunkStream {
    /// A chunker that has seen nothing yet.
    pub(super) const fn new(cutter: Cutter) -> Self {
        let window = HashWindow::new(cutter.max_len());
        Self { cutter, window }
    }
}

impl Chunker for ChunkStream {
    fn cut<'c, 'i: 'c>(&'c mut self, input: &mut &'i [u8]) -> Option<&'c [u8]> {
        self.window.cut(input, |bytes| self.cutter.first_len(bytes))
    }

    fn finish(&mut self) -> Option<&[u8]> {
        self.window.finish(|bytes| self.cutter.first_len(bytes))
    }
}
