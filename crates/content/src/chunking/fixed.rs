//! Chunks of one length.

use super::Chunker;
use super::window::Window;

/// Cuts every so many bytes. Cheap, but one inserted byte changes every chunk behind it.
#[derive(Debug, Clone)]
pub struct Fixed {
    len: usize,
    window: Window,
}

impl Fixed {
    /// A chunker whose length was checked by [`super::Parameters::check`].
    pub(super) const fn new(len: u32) -> Self {
        Self { len: len as usize, window: Window::new(len as usize) }
    }
}

impl Chunker for Fixed {
    fn cut<'c, 'i: 'c>(&'c mut self, input: &mut &'i [u8]) -> Option<&'c [u8]> {
        self.window.cut(input, |bytes| bytes.len().min(self.len))
    }

    fn finish(&mut self) -> Option<&[u8]> {
        self.window.finish(|bytes| bytes.len().min(self.len))
    }
}
