//! Looks up blocks of a signature by their sums.
//!
//! The cost of a window is bounded, whatever signature and target are made of: a window whose weak
//! sum is no block's is turned away by a filter; for others binary searches find all
//! blocks with its sums at once, so many equal blocks are no longer to search than one; and the
//! strong sum is taken at most once a window. Windows where it disagrees with the weak one, which honest data
//! hardly have, draw on a budget of bytes to hash.

use super::Signature;
use super::weak::WeakState;

/// Words of the filter have 64 bits and serve two blocks, which set two bits each: of random
/// windows, one in some 250 passes.
const BLOCKS_PER_WORD: usize = 2;

/// A block with its sums, in the order of the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct WeakEntry {
    weak: u32,
    strong: u64,
    block: u32,
}

/// The blocks of full length, ready to be looked up.
pub(super) struct WeakIndex<'s> {
    signature: &'s Signature,
    entries: Vec<WeakEntry>,
    /// For each value of a weak sum's upper bits, where its entries begin; then where the last end.
    starts: Vec<u32>,
    /// For each value of a weak sum's upper bits, bits that its lower bits choose.
    filter: Vec<u64>,
    /// Bits cut off a weak sum to leave the upper ones. The filter has as many words as `starts`
    /// has values, so that one number serves both.
    shift: u32,
}

impl<'s> WeakIndex<'s> {
    pub fn new(signature: &'s Signature) -> Self {
        let full = signature.shape().full_blocks() as usize;
        let sums = signature.sums().iter().take(full).zip(0..);
        let mut entries: Vec<WeakEntry> =
            sums.map(|(sum, block)| WeakEntry { weak: sum.weak, strong: sum.strong, block }).collect();
        entries.sort_unstable();
        let words = full.div_ceil(BLOCKS_PER_WORD).next_power_of_two().max(2);
        let shift = u32::BITS - words.ilog2();
        let (mut starts, mut filter) = (vec![0; words + 1], vec![0; words]);
        for entry in &entries {
            let upper = (entry.weak >> shift) as usize;
            filter[upper] |= filter_bits(entry.weak);
            starts[upper + 1] += 1;
        }
        for upper in 0..words {
            starts[upper + 1] += starts[upper];
        }
        Self { signature, entries, starts, filter, shift }
    }

    /// True if there is no block to find.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// False if surely no block has this weak sum.
    #[inline(always)]
    pub fn may_have(&self, weak: u32) -> bool {
        let bits = filter_bits(weak);
        self.filter[(weak >> self.shift) as usize] & bits == bits
    }

    /// The entries with a weak sum.
    fn candidates(&self, weak: u32) -> &[WeakEntry] {
        let upper = (weak >> self.shift) as usize;
        let near = &self.entries[self.starts[upper] as usize..self.starts[upper + 1] as usize];
        equal_range(near, |entry| entry.weak.cmp(&weak))
    }

    /// The block that is equal to `window`: of several, the first from `wanted` on, or else the first
    /// of all, so that copies come in long runs. `budget` is drawn on where the sums disagree;
    /// once it is spent nothing is found any more.
    pub fn find(&self, state: WeakState, window: &[u8], wanted: u32, budget: &mut usize) -> Option<u32> {
        let weak = state.weak();
        let candidates = self.candidates(weak);
        if candidates.is_empty() || *budget == 0 {
            return None;
        }
        let strong = self.signature.strong(window);
        let equal = equal_range(candidates, |entry| entry.strong.cmp(&strong));
        if equal.is_empty() {
            *budget = budget.saturating_sub(window.len());
        }
        let next = equal.partition_point(|entry| entry.block < wanted);
        equal.get(next).or(equal.first()).map(|entry| entry.block)
    }
}

/// The bits that a weak sum sets in its word of the filter.
#[inline(always)]
const fn filter_bits(weak: u32) -> u64 {
    1 << (weak & 63) | 1 << (weak >> 6 & 63)
}

/// The entries that `order` calls equal.
fn equal_range(entries: &[WeakEntry], order: impl Fn(&WeakEntry) -> std::cmp::Ordering) -> &[WeakEntry] {
    let start = entries.partition_point(|entry| order(entry).is_lt());
    let rest = &entries[start..];
    &rest[..rest.partition_point(|entry| order(entry).is_eq())]
}
