//! Sums of the blocks of an object that its sender is not there to compare: whoever has an older version finds in it what is the
//! same, at any place (zsync's use of rsync's rolling sum). A guess, as a signature is: what is made of it is checked by its values.

use std::collections::HashMap;
use std::io;
use std::ops::Range;

use super::weak::{Roller, WeakState};
use crate::codec::{DecodeError, invalid};

/// Bytes in front of the sums: logarithm of the block's length, bytes of a strong sum.
pub const BLOCKS_FRONT: usize = 2;
const WEAK_LEN: usize = 4;
const MAX_STRONG: u8 = 8;
const SMALLEST_LOG2: u8 = 8;
const LARGEST_LOG2: u8 = 24;
/// Bytes of an older version that are read at a time.
const READ: usize = 1 << 20;
/// Bytes that may be hashed for each byte of the older version at places where the sums disagree.
const HASHED_IN_VAIN: u64 = 4;

/// Length of blocks, and of their sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockShape {
    log2: u8,
    strong_len: u8,
}

/// The sum of one full block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NumberedSum {
    /// Number of the block in the object.
    pub block: u32,
    weak: u32,
    strong: u64,
}

/// A stretch of the object, and where the older version has the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockMatch {
    /// Bytes of the object.
    pub target: Range<u64>,
    /// Where they begin in the older version.
    pub base: u64,
}

impl BlockShape {
    /// Blocks of 2^`log2` bytes of an object of `size` bytes. Sums are so long that in an older version as long something is taken for what
    /// it is not with fewer than one object of 64.
    pub fn new(log2: u8, size: u64) -> Self {
        let bits = |number: u64| 64 - number.leading_zeros();
        let needed = bits(size) + bits(size >> log2) + 6;
        let strong_len = needed.saturating_sub(32).div_ceil(8).clamp(2, MAX_STRONG.into()) as u8;
        Self { log2, strong_len }
    }

    /// The two shapes for an object of so many bytes: large blocks, and small ones for what lies around a change.
    pub fn for_size(size: u64) -> (Self, Self) {
        let mut log2 = 13;
        while size >> log2 > 1 << 16 && log2 < LARGEST_LOG2 {
            log2 += 1;
        }
        (Self::new(log2, size), Self::new(log2 - 3, size))
    }

    /// Bytes of a block.
    pub const fn block_len(self) -> u64 {
        1 << self.log2
    }

    /// Bytes of the sum of one block.
    pub const fn sum_len(self) -> usize {
        WEAK_LEN + self.strong_len as usize
    }

    /// Where the sums of these blocks lie among the bytes of all.
    pub const fn place_of(self, blocks: &Range<u64>) -> Range<u64> {
        let sum = self.sum_len() as u64;
        BLOCKS_FRONT as u64 + blocks.start * sum..BLOCKS_FRONT as u64 + blocks.end * sum
    }

    /// The bytes in front of the sums.
    pub const fn to_bytes(self) -> [u8; BLOCKS_FRONT] {
        [self.log2, self.strong_len]
    }

    /// Reads the bytes in front of the sums.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        match bytes {
            [log2 @ SMALLEST_LOG2..=LARGEST_LOG2, strong_len @ 1..=MAX_STRONG, ..] => {
                Ok(Self { log2: *log2, strong_len: *strong_len })
            }
            _ => Err(invalid("blocks", "have no length, or none that is allowed")),
        }
    }

    /// Reads sums of full blocks from number `first` on.
    pub fn sums(self, first: u64, bytes: &[u8]) -> Result<Vec<NumberedSum>, DecodeError> {
        if !bytes.len().is_multiple_of(self.sum_len()) {
            return Err(invalid("blocks", "end within a sum"));
        }
        let read = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let sum = |(number, bytes): (u64, &[u8])| {
            let (weak, strong) = bytes.split_at(WEAK_LEN);
            let block = u32::try_from(number).map_err(|_| invalid("blocks", "are too many"))?;
            Ok(NumberedSum { block, weak: read(weak) as u32, strong: read(strong) })
        };
        (first..).zip(bytes.chunks_exact(self.sum_len())).map(sum).collect()
    }

    fn strong(self, block: &[u8]) -> u64 {
        let hash = blake3::hash(block);
        let used = &hash.as_bytes()[..self.strong_len.into()];
        used.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}

/// Makes the sums of an object whose bytes come one after the other.
#[derive(Debug)]
pub struct BlockSummer {
    shape: BlockShape,
    open: Vec<u8>,
    bytes: Vec<u8>,
}

impl BlockSummer {
    /// Nothing has come.
    pub fn new(shape: BlockShape) -> Self {
        Self { shape, open: Vec::new(), bytes: shape.to_bytes().to_vec() }
    }

    /// The next bytes.
    pub fn add(&mut self, mut bytes: &[u8]) {
        let len = self.shape.block_len() as usize;
        if !self.open.is_empty() {
            let (head, rest) = bytes.split_at(bytes.len().min(len - self.open.len()));
            self.open.extend_from_slice(head);
            bytes = rest;
            if self.open.len() < len {
                return;
            }
            let block = std::mem::take(&mut self.open);
            self.sum(&block);
        }
        let blocks = bytes.chunks_exact(len);
        self.open.extend_from_slice(blocks.remainder());
        blocks.for_each(|block| self.sum(block));
    }

    fn sum(&mut self, block: &[u8]) {
        let strong = self.shape.strong(block).to_be_bytes();
        self.bytes.extend_from_slice(&WeakState::of(block).weak().to_be_bytes());
        self.bytes.extend_from_slice(&strong[8 - usize::from(self.shape.strong_len)..]);
    }

    /// All sums, with their shape in front. A shorter rest at the end has none.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// Finds blocks in an older version.
pub struct BlockFinder {
    shape: BlockShape,
    by_weak: HashMap<u32, Vec<NumberedSum>>,
    /// Bits of the weak sums that there are: most places are turned away by it.
    filter: Vec<u64>,
}

const FILTER_BITS: u32 = 20;

impl BlockFinder {
    /// Looks for these.
    pub fn new(shape: BlockShape, sums: impl IntoIterator<Item = NumberedSum>) -> Self {
        let (mut by_weak, mut filter) = (HashMap::<u32, Vec<_>>::new(), vec![0; 1 << (FILTER_BITS - 6)]);
        for sum in sums {
            let bit = sum.weak >> (32 - FILTER_BITS);
            filter[(bit >> 6) as usize] |= 1 << (bit & 63);
            by_weak.entry(sum.weak).or_default().push(sum);
        }
        Self { shape, by_weak, filter }
    }

    /// Goes through an older version of `size` bytes, that `read` reads at an offset. Of equal blocks each is found. What is
    /// found is in the object's order, without overlaps; neighbours are joined.
    pub fn find(
        &self,
        size: u64,
        mut read: impl FnMut(u64, &mut [u8]) -> io::Result<()>,
    ) -> io::Result<Vec<BlockMatch>> {
        let len = self.shape.block_len();
        let (mut found, mut at, mut budget) = (HashMap::new(), 0, size.saturating_mul(HASHED_IN_VAIN));
        let mut window = vec![0; (READ as u64 + len).min(size) as usize];
        while at + len <= size && !self.by_weak.is_empty() {
            let here = &mut window[..(READ as u64 + len).min(size - at) as usize];
            read(at, here)?;
            at += self.scan(here, at, &mut budget, &mut found);
        }
        let mut all: Vec<(u64, u64)> =
            found.into_iter().map(|(block, base)| (u64::from(block) << self.shape.log2, base)).collect();
        all.sort_unstable();
        let mut matches: Vec<BlockMatch> = Vec::new();
        for (start, base) in all {
            match matches.last_mut() {
                Some(last) if last.target.end == start && last.base + (start - last.target.start) == base => {
                    last.target.end = start + len;
                }
                _ => matches.push(BlockMatch { target: start..start + len, base }),
            }
        }
        Ok(matches)
    }

    /// Looks at all places of `here`, which begins at `begin`; returns how far it came.
    fn scan(&self, here: &[u8], begin: u64, budget: &mut u64, found: &mut HashMap<u32, u64>) -> u64 {
        let len = self.shape.block_len() as usize;
        let (roller, mut at) = (Roller::new(len as u32), 0);
        let Some(first) = here.get(..len) else { return here.len() as u64 };
        let mut state = WeakState::of(first);
        loop {
            let block = &here[at..at + len];
            let is_block =
                self.may_have(state.weak()) && self.take(state, block, begin + at as u64, budget, found);
            if is_block && at + 2 * len <= here.len() {
                at += len;
                state = WeakState::of(&here[at..at + len]);
            } else if is_block {
                return (at + len) as u64;
            } else if at + len < here.len() {
                state = roller.roll(state, here[at], here[at + len]);
                at += 1;
            } else {
                return (at + 1) as u64;
            }
        }
    }

    fn may_have(&self, weak: u32) -> bool {
        let bit = weak >> (32 - FILTER_BITS);
        self.filter[(bit >> 6) as usize] >> (bit & 63) & 1 == 1
    }

    /// True if `block` is one; all equal ones are noted.
    fn take(
        &self,
        state: WeakState,
        block: &[u8],
        base: u64,
        budget: &mut u64,
        found: &mut HashMap<u32, u64>,
    ) -> bool {
        let Some(near) = self.by_weak.get(&state.weak()).filter(|_| *budget > 0) else { return false };
        let strong = self.shape.strong(block);
        let mut is_one = false;
        for sum in near.iter().filter(|sum| sum.strong == strong) {
            // The place that goes on where the block in front of it was found makes for longer stretches.
            let before = sum.block.checked_sub(1).and_then(|before| found.get(&before));
            let goes_on = before.is_some_and(|before| before + block.len() as u64 == base);
            if goes_on || !found.contains_key(&sum.block) {
                found.insert(sum.block, base);
            }
            is_one = true;
        }
        if !is_one {
            *budget = budget.saturating_sub(block.len() as u64);
        }
        is_one
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn noise(len: usize, seed: u64) -> Vec<u8> {
        let mut hash = blake3::Hasher::new();
        hash.update(&seed.to_le_bytes());
        let mut bytes = vec![0; len];
        hash.finalize_xof().fill(&mut bytes);
        bytes
    }

    fn sums_of(target: &[u8], shape: BlockShape) -> Vec<NumberedSum> {
        let mut summer = BlockSummer::new(shape);
        // In parts that end anywhere.
        target.chunks(1000).for_each(|part| summer.add(part));
        let bytes = summer.finish();
        assert_eq!(BlockShape::from_bytes(&bytes), Ok(shape));
        shape.sums(0, &bytes[BLOCKS_FRONT..]).unwrap()
    }

    fn found(target: &[u8], base: &[u8], log2: u8) -> Vec<BlockMatch> {
        let shape = BlockShape::new(log2, target.len() as u64);
        let finder = BlockFinder::new(shape, sums_of(target, shape));
        let read = |at: u64, buffer: &mut [u8]| {
            buffer.copy_from_slice(&base[at as usize..at as usize + buffer.len()]);
            Ok(())
        };
        let found = finder.find(base.len() as u64, read).unwrap();
        for one in &found {
            let len = (one.target.end - one.target.start) as usize;
            let (from, to) = (one.base as usize, one.target.start as usize);
            assert!(base[from..from + len] == target[to..to + len], "{one:?}");
        }
        assert!(found.windows(2).all(|pair| pair[0].target.end <= pair[1].target.start));
        found
    }

    #[test]
    fn what_was_moved_is_found_at_its_new_place() {
        let base = noise(3_000_000, 1);
        let mut target = base.clone();
        target.splice(1_000_000..1_000_100, noise(777, 2));
        let found = found(&target, &base, 10);
        let bytes: u64 = found.iter().map(|one| one.target.end - one.target.start).sum();
        assert!(bytes > 3_000_000 - 4 * 1024, "{bytes}");
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn nothing_is_found_where_nothing_is_alike() {
        assert_eq!(found(&noise(100_000, 1), &noise(100_000, 2), 8), []);
        assert_eq!(found(&noise(100, 1), &noise(100, 1), 8), [], "shorter than a block");
        assert_eq!(found(b"", b"", 8), []);
    }

    #[test]
    fn data_that_repeats_takes_no_time() {
        let zeros = vec![0; 2_000_000];
        let found = found(&zeros, &zeros, 10);
        assert_eq!(found.last().unwrap().target.end, 2_000_000 / 1024 * 1024);
    }

    #[test]
    fn shapes_grow_with_the_object_and_hostile_ones_are_refused() {
        for (size, large, small, sum) in
            [(50_000_000, 8192, 1024, 6), (1 << 30, 16384, 2048, 7), (1 << 40, 1 << 24, 1 << 21, 8)]
        {
            let shapes = BlockShape::for_size(size);
            assert_eq!((shapes.0.block_len(), shapes.1.block_len()), (large, small), "{size}");
            assert_eq!(shapes.0.sum_len(), sum, "{size}");
        }
        for bad in [&[][..], &[13], &[7, 2], &[25, 2], &[13, 0], &[13, 9]] {
            assert!(BlockShape::from_bytes(bad).is_err(), "{bad:?}");
        }
        let shape = BlockShape::new(13, 50_000_000);
        assert!(shape.sums(0, &[0; 7]).is_err());
        assert!(shape.sums(u64::MAX - 1, &[0; 6]).is_err(), "no such block");
    }

    proptest! {
        #[test]
        fn whatever_is_found_is_there(edits in prop::collection::vec((0usize..40_000, 0usize..3000, 0usize..3000), 0..6)) {
            let base = noise(40_000, 3);
            let mut target = base.clone();
            for (at, removed, added) in edits {
                let at = at.min(target.len());
                let end = (at + removed).min(target.len());
                target.splice(at..end, noise(added, at as u64));
            }
            found(&target, &base, 8);
        }
    }
}
