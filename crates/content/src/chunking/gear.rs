//! Content-defined chunks: FastCDC in the form of 2020, normalization level 1, no seed.
//!
//! A boundary is placed where a rolling hash of the last 64 bytes has zeros under a mask, so it
//! moves along with the content. A stricter mask before the average length and a looser one behind
//! it keep lengths near the average.

use fastcdc::v2020::{Normalization, cut, select_masks};

/// Where chunks end, by lengths that were checked by [`super::Parameters::check`].
#[derive(Debug, Clone)]
pub(super) struct Rule {
    min: usize,
    avg: usize,
    max: usize,
    strict: u64,
    loose: u64,
}

impl Rule {
    pub(super) fn new(min: u32, avg: u32, max: u32) -> Self {
        let (strict, loose) = select_masks(avg as usize, Normalization::Level1);
        Self { min: min as usize, avg: avg as usize, max: max as usize, strict, loose }
    }

    /// Length of the first chunk. A length below that of `bytes` holds whatever follows them.
    pub(super) fn find(&self, bytes: &[u8]) -> usize {
        let Self { min, avg, max, strict, loose } = *self;
        cut(bytes, min, avg, max, strict, loose, strict << 1, loose << 1).1
    }
}
