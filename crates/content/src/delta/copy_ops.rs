//! A delta in two steps: what is copied first, then the literals, as a delta of what is not.
//!
//! Blocks as long as suit all of a region waste most of each literal where changes are small. Once the
//! receiver knows what is copied, it can sign the little that is left, in blocks as short as suit that.

use super::ops::{ApplyError, Delta, Op, read_head, span, write_head};
use super::shape::{DeltaShape, MIN_BLOCK_LEN};
use super::signature::read_version;
use crate::codec::{DecodeError, Reader, Writer, invalid};

/// Bytes of what a block's sum takes in a signature, about.
const SUM_LEN: usize = 8;

/// A delta without its literals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyOps {
    block: u32,
    ops: Vec<Op>,
}

impl Delta {
    /// Its outline, and the literals.
    pub fn split(self) -> (CopyOps, Vec<u8>) {
        let (block, ops, literals) = self.into_parts();
        (CopyOps { block, ops }, literals)
    }
}

impl CopyOps {
    /// Number of bytes that are copied from nowhere.
    pub fn literals(&self) -> usize {
        self.ops.iter().map(|op| op.literal as usize).sum()
    }

    /// In how many runs these lie.
    pub fn runs(&self) -> usize {
        self.ops.iter().filter(|op| op.literal > 0).count()
    }

    /// Bytes of the blocks that it copies, and that were signed.
    pub const fn block_len(&self) -> u32 {
        self.block
    }

    /// Literals of `target`, which it makes of a base region of `region` bytes.
    pub fn literals_of(&self, target: &[u8], region: usize) -> Result<Vec<u8>, ApplyError> {
        let shape = DeltaShape::new(region, self.block).map_err(ApplyError::Base)?;
        let copied = self.ops.iter().map(|op| Ok(span(shape, op)?.len()));
        let expected = self.literals() + copied.sum::<Result<usize, ApplyError>>()?;
        if expected != target.len() {
            return Err(ApplyError::Length { expected, found: target.len() as u64 });
        }
        let mut literals = Vec::with_capacity(self.literals());
        let mut at = 0;
        for op in &self.ops {
            let end = at + op.literal as usize;
            literals.extend_from_slice(&target[at..end]);
            at = end + span(shape, op)?.len();
        }
        Ok(literals)
    }

    pub(super) fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// The delta that it is with these literals.
    pub fn with(self, literals: Vec<u8>) -> Result<Delta, DecodeError> {
        match literals.len() == self.literals() {
            true => Ok(Delta::of_parts(self.block, self.ops, literals)),
            false => Err(invalid("literals", "are more or fewer than the ops take")),
        }
    }

    /// The binary form: that of the delta up to its literals.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        write_head(&mut writer, self.block, &self.ops);
        writer.into_bytes()
    }

    /// Reads the binary form.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        read_version("delta outline", &mut reader)?;
        let (block, ops) = read_head(&mut reader)?;
        reader.finish()?;
        Ok(Self { block, ops })
    }
}

/// The length of blocks in which to sign what an outline leaves, `rest` bytes, if its literals lie in so many
/// runs: signature and waste are about as much. No longer than `longest`, unless there would be more than
/// `most` blocks.
pub fn refined_block_len(rest: usize, runs: usize, longest: u32, most: usize) -> u32 {
    // Twice as much below the root rounds to the nearest power.
    let best = (2 * rest.saturating_mul(SUM_LEN) / runs.max(1)).isqrt().max(1);
    let block = (1 << best.ilog2()).clamp(MIN_BLOCK_LEN as usize, longest.max(MIN_BLOCK_LEN) as usize);
    let least = rest.div_ceil(most.max(1)).next_power_of_two();
    u32::try_from(block.max(least)).unwrap_or(u32::MAX)
}
