//! A cutter with a buffer: the chunker of a stream.

use super::window::Window;
use super::{Chunker, Cutter};

/// Cuts a stream by the rule of its cutter.
#[derive(Debug, Clone)]
pub(super) struct Stream {
    cutter: Cutter,
    window: Window,
}

impl Stream {
    /// A chunker that has seen nothing yet.
    pub(super) const fn new(cutter: Cutter) -> Self {
        let window = Window::new(cutter.max_len());
        Self { cutter, window }
    }
}

impl Chunker for Stream {
    fn cut<'c, 'i: 'c>(&'c mut self, input: &mut &'i [u8]) -> Option<&'c [u8]> {
        self.window.cut(input, |bytes| self.cutter.first_len(bytes))
    }

    fn finish(&mut self) -> Option<&[u8]> {
        self.window.finish(|bytes| self.cutter.first_len(bytes))
    }
}
