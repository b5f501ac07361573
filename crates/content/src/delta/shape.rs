//! Cutting of a region into blocks, and the bytes of each block's hash that a signature carries.

use std::ops::Range;

use thiserror::Error;

/// Bytes of the largest base region: one is held in memory.
pub const MAX_REGION_LEN: usize = 1 << 24;
/// Bytes of the largest target of a delta: one is held in memory.
pub const MAX_TARGET_LEN: usize = 1 << 24;
/// Bytes of the shortest block.
pub const MIN_BLOCK_LEN: u32 = 1 << 6;
/// Bytes of the longest block.
pub const MAX_BLOCK_LEN: u32 = 1 << 16;
/// The greatest number of blocks of a region.
pub const MAX_BLOCKS: u32 = 1 << 16;

/// Bytes of a strong sum at most; more than any region and target ask for.
pub(super) const MAX_STRONG_LEN: u8 = 8;
/// Bytes of a weak sum.
pub(super) const WEAK_LEN: usize = 4;
/// Bytes before a signature's sums, at most: version, block, strong length, region length.
const HEAD_LEN: usize = 3 + 4;
/// A delta is wrong with a probability below two to the minus this.
const CERTAINTY_BITS: u32 = 40;

/// Shapes that the format has no room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ShapeError {
    /// A region or target is too long: take a shorter one.
    #[error("{what} has {len} bytes, over the limit of {limit}: take less at once")]
    TooLong {
        /// Region or target.
        what: &'static str,
        /// Its bytes.
        len: usize,
        /// The most there may be.
        limit: usize,
    },
    /// Blocks are not a power of two from 64 bytes to 64 KiB long: ask [`block_len`].
    #[error("blocks of {0} bytes: a power of two from 64 to 65536 is needed")]
    Block(u32),
    /// The region has too many blocks of this length: ask [`block_len`].
    #[error("{0} blocks, over the limit of 65536: take longer ones")]
    TooManyBlocks(u32),
}

/// A region's length and that of its blocks; the last block may be shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DeltaShape {
    region: u32,
    block: u32,
}

impl DeltaShape {
    /// A shape within the limits.
    pub fn new(region: usize, block: u32) -> Result<Self, ShapeError> {
        check_len("region", region, MAX_REGION_LEN)?;
        if !block.is_power_of_two() || !(MIN_BLOCK_LEN..=MAX_BLOCK_LEN).contains(&block) {
            return Err(ShapeError::Block(block));
        }
        let shape = Self { region: region as u32, block };
        if shape.blocks() > MAX_BLOCKS {
            return Err(ShapeError::TooManyBlocks(shape.blocks()));
        }
        Ok(shape)
    }

    /// Bytes of the region.
    pub const fn region(self) -> u32 {
        self.region
    }

    /// Bytes of all blocks but a shorter last one.
    pub const fn block(self) -> u32 {
        self.block
    }

    /// Number of blocks, a shorter last one included.
    pub const fn blocks(self) -> u32 {
        self.region.div_ceil(self.block)
    }

    /// Number of blocks that have their full length.
    pub const fn full_blocks(self) -> u32 {
        self.region / self.block
    }

    /// Bytes of a shorter last block, or 0.
    pub const fn tail(self) -> u32 {
        self.region % self.block
    }

    /// Range of `count` blocks from `first` on, if there are as many.
    pub fn span(self, first: u32, count: u32) -> Option<Range<usize>> {
        let end = first.checked_add(count).filter(|end| *end <= self.blocks())?;
        let byte = |block: u32| (u64::from(block) * u64::from(self.block)).min(self.region.into()) as usize;
        Some(byte(first)..byte(end))
    }
}

pub(super) const fn check_len(what: &'static str, len: usize, limit: usize) -> Result<(), ShapeError> {
    if len > limit {
        return Err(ShapeError::TooLong { what, len, limit });
    }
    Ok(())
}

/// Bytes of a strong sum, so that in all comparisons of a block with a place of the target together
/// two that differ are taken for equal with a probability below 2^-40. The weak sum counts with its
/// 32 bits, which holds for data not made to defeat it.
pub(super) fn strong_len(blocks: u32, target: usize) -> u8 {
    let comparisons = u64::from(blocks.max(1)) * (target.max(1) as u64);
    let bits = CERTAINTY_BITS + comparisons.next_power_of_two().trailing_zeros() - 8 * WEAK_LEN as u32;
    (bits.div_ceil(8) as u8).min(MAX_STRONG_LEN)
}

/// Bytes of the signature of a region in blocks of `block` bytes, made for a target of a length, to
/// weigh before anything is read. The same as [`super::Signature::to_bytes`] gives, or up to three
/// bytes more.
pub fn signature_len(region: usize, block: u32, target: usize) -> usize {
    let blocks = region.div_ceil(block.max(1) as usize);
    let strong = strong_len(u32::try_from(blocks).unwrap_or(u32::MAX), target);
    HEAD_LEN + blocks.saturating_mul(WEAK_LEN + usize::from(strong))
}

/// Known facts about the path and the data when a region is to be signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hints {
    /// Bytes a second towards the sender, which takes the signature. Only its ratio to `down` counts.
    pub up: u64,
    /// Bytes a second from the sender, which gives the delta.
    pub down: u64,
    /// Bytes of target to one change, on average: what the waste of a delta is reckoned by.
    pub edit_spacing: u32,
}

impl Default for Hints {
    /// A path as fast both ways, and a change in 32 KiB: in two chunks of the mean length, so that
    /// about all chunks of a longer target are missing for a change of their own.
    fn default() -> Self {
        Self { up: 1, down: 1, edit_spacing: 32 << 10 }
    }
}

/// The length of blocks that makes signature and delta take the least time on the way.
///
/// Short blocks make a long signature; long ones make each change drag the rest of the blocks it
/// touches along as literals, one block's length on average. Both are reckoned for every
/// length, and the longer block wins a tie. The result fits the format if the region does.
pub fn block_len(region: usize, target: usize, hints: &Hints) -> u32 {
    let edits = (target as u64).div_ceil(hints.edit_spacing.max(1).into()).max(1);
    let (up, down) = (u128::from(hints.up.max(1)), u128::from(hints.down.max(1)));
    let time = |block: u32| {
        let waste = edits.saturating_mul(block.into()).min(target as u64);
        signature_len(region, block, target) as u128 * down + u128::from(waste) * up
    };
    let lengths = (MIN_BLOCK_LEN.trailing_zeros()..=MAX_BLOCK_LEN.trailing_zeros()).rev().map(|n| 1 << n);
    let fitting = lengths.filter(|block| region.div_ceil(*block as usize) <= MAX_BLOCKS as usize);
    fitting.min_by_key(|block| time(*block)).unwrap_or(MAX_BLOCK_LEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_at_and_over_their_limits() {
        let ok = |region, block| DeltaShape::new(region, block).is_ok();
        assert!(ok(0, 64) && ok(1 << 24, 256) && ok(1 << 24, 1 << 16) && ok(1 << 22, 64));
        assert_eq!(DeltaShape::new((1 << 22) + 1, 64), Err(ShapeError::TooManyBlocks(65_537)));
        for block in [0, 32, 65, 1 << 17, u32::MAX] {
            assert_eq!(DeltaShape::new(10, block), Err(ShapeError::Block(block)));
        }
        let too_long = DeltaShape::new((1 << 24) + 1, 1 << 16);
        assert!(matches!(too_long, Err(ShapeError::TooLong { what: "region", .. })));
    }

    #[test]
    fn the_last_block_may_be_shorter() {
        let shape = DeltaShape::new(200, 64).unwrap();
        assert_eq!((shape.blocks(), shape.full_blocks(), shape.tail()), (4, 3, 8));
        assert_eq!(shape.span(1, 2), Some(64..192));
        assert_eq!(shape.span(3, 1), Some(192..200));
        assert_eq!(shape.span(4, 0), Some(200..200));
        assert_eq!((shape.span(3, 2), shape.span(5, 0), shape.span(1, u32::MAX)), (None, None, None));
    }

    #[test]
    fn weak_and_strong_sums_leave_one_mistake_in_2_to_the_40() {
        for (blocks, target) in [(1, 1), (48, 24 << 10), (100, 100_000), (1 << 16, 1 << 24)] {
            let bits = f64::from(32 + 8 * u32::from(strong_len(blocks, target)));
            let mistakes = f64::from(blocks) * target as f64 / bits.exp2();
            assert!(mistakes <= 2f64.powi(-40), "{blocks} blocks, {target} bytes");
            // And not a byte more than that takes.
            assert!(mistakes * 256.0 > 2f64.powi(-42), "{blocks} blocks, {target} bytes");
        }
        assert_eq!(strong_len(48, 24 << 10), 4);
        assert_eq!(strong_len(1 << 16, 1 << 24), 6);
    }

    #[test]
    fn blocks_suit_region_path_and_data() {
        let even = Hints::default();
        for (region, target, hints, expected) in [
            (24 << 10, 24 << 10, even, 512),
            (8 << 10, 8 << 10, even, 256),
            (4 << 20, 4 << 20, even, 512),
            // The signature goes the slow way: a short one.
            (24 << 10, 24 << 10, Hints { up: 1, down: 16, ..even }, 2048),
            // The delta goes the slow way: little waste.
            (24 << 10, 24 << 10, Hints { up: 16, down: 1, ..even }, 128),
            // Many changes: little waste in each.
            (24 << 10, 24 << 10, Hints { edit_spacing: 512, ..even }, 64),
            // As short as the number of blocks allows.
            (16 << 20, 16 << 20, Hints { edit_spacing: 64, ..even }, 65_536),
            (16 << 20, 16 << 20, Hints { edit_spacing: 1 << 10, ..even }, 256),
            (0, 0, even, 65_536),
            (0, 1 << 24, Hints { up: 0, down: 0, edit_spacing: 0 }, 65_536),
        ] {
            let found = block_len(region, target, &hints);
            assert!(DeltaShape::new(region, found).is_ok());
            assert_eq!(found, expected, "{region} {target} {hints:?}");
        }
    }
}
