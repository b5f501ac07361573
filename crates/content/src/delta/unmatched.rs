//! Ranges of a base region that outlines leave: the bytes that nobody copied yet, which literals resemble if they
//! resemble anything.
//!
//! An outline may be followed by another one, of its literals, in shorter blocks. Each tells what is copied of
//! what those before it left.

use std::iter;
use std::ops::Range;

use super::CopyOps;
use super::ops::{ApplyError, blocks_of};
use super::shape::DeltaShape;

/// Ranges of a base region, in order, none empty and no two touching.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmatched(Vec<Range<usize>>);

impl Unmatched {
    /// All of a region of `len` bytes.
    pub fn whole(len: usize) -> Self {
        Self(iter::once(0..len).filter(|range| !range.is_empty()).collect())
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.0.iter().map(Range::len).sum()
    }

    /// True if nothing is left.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// These bytes of `base`, the region, one range behind the other.
    pub fn bytes(&self, base: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len());
        self.0.iter().for_each(|range| bytes.extend_from_slice(&base[range.clone()]));
        bytes
    }

    /// These without what an outline copies of them.
    pub fn without(&self, outline: &CopyOps) -> Result<Self, ApplyError> {
        let shape = DeltaShape::new(self.len(), outline.block_len()).map_err(ApplyError::Base)?;
        let mut is_copied = vec![false; shape.blocks() as usize];
        for op in outline.ops() {
            is_copied[blocks_of(shape, op)?].fill(true);
        }
        let block = shape.block() as usize;
        let mut left: Vec<Range<usize>> = Vec::new();
        let mut before = 0;
        for range in &self.0 {
            let mut at = range.start;
            while at < range.end {
                let number = (before + at - range.start) / block;
                let end = range.end.min(range.start + (number + 1) * block - before);
                match left.last_mut() {
                    _ if is_copied[number] => {}
                    Some(last) if last.end == at => last.end = end,
                    _ => left.push(at..end),
                }
                at = end;
            }
            before += range.len();
        }
        Ok(Self(left))
    }

    /// Parts of these within `reach` bytes of what was copied: where a copy of whole blocks could have gone on,
    /// in shorter ones.
    pub fn edges(&self, reach: usize) -> Self {
        let edges = self.0.iter().flat_map(|range| match range.len() <= 2 * reach {
            true => [range.clone(), range.end..range.end],
            false => [range.start..range.start + reach, range.end - reach..range.end],
        });
        Self(edges.filter(|edge| !edge.is_empty()).collect())
    }
}
