//! Content-defined chunks: FastCDC in the form of 2020, normalization level 1, no seed.
//!
//! A boundary is placed where a rolling hash of the last 64 bytes has zeros under a mask, so it
//! moves along with the content. A stricter mask before the average length and a looser one behind
//! it keep lengths near the average.

use fastcdc::v2020::{Normalization, cut, select_masks};

use super::Chunker;
use super::window::Window;

/// Cuts where the content says so.
#[derive(Debug, Clone)]
pub struct Gear {
    rule: Rule,
    window: Window,
}

impl Gear {
    /// A chunker whose lengths were checked by [`super::Parameters::check`].
    pub(super) fn new(min: u32, avg: u32, max: u32) -> Self {
        Self { rule: Rule::new(min, avg, max), window: Window::new(max as usize) }
    }
}

impl Chunker for Gear {
    fn cut<'c, 'i: 'c>(&'c mut self, input: &mut &'i [u8]) -> Option<&'c [u8]> {
        self.window.cut(input, |bytes| self.rule.find(bytes))
    }

    fn finish(&mut self) -> Option<&[u8]> {
        self.window.finish(|bytes| self.rule.find(bytes))
    }
}

#[derive(Debug, Clone)]
struct Rule {
    min: usize,
    avg: usize,
    max: usize,
    strict: u64,
    loose: u64,
}

impl Rule {
    fn new(min: u32, avg: u32, max: u32) -> Self {
        let (strict, loose) = select_masks(avg as usize, Normalization::Level1);
        Self { min: min as usize, avg: avg as usize, max: max as usize, strict, loose }
    }

    /// Length of the first chunk. A length below that of `bytes` holds whatever follows them.
    fn find(&self, bytes: &[u8]) -> usize {
        let Self { min, avg, max, strict, loose } = *self;
        cut(bytes, min, avg, max, strict, loose, strict << 1, loose << 1).1
    }
}
