//! Looks up blocks of a signature by their sums.
//!
//! What a window costs is bounded, whatever signature and target are made of: a window whose weak
//! sum is no block's is turned away by a filter; for others two binary searches find all
//! blocks with its sums at once, so many equal blocks are no longer to search than one; and the
//! strong sum is taken at most once a window. Windows where it disagrees with the weak one, which honest data
//! hardly have, draw on a budget of bytes to hash.

use super::Signature;
use super::weak::State;

/// Bits of the filter for each block: one window in 32 to 64 passes it by chance.
const FILTER_BITS_PER_BLOCK: usize = 32;
/// The filter's size has this logarithm at most: 2^16 blocks.
const MAX_FILTER_LOG: u32 = 21;

/// A block with its sums, in the order of the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    weak: u32,
    strong: u64,
    block: u32,
}

/// The blocks of full length, ready to be looked up.
pub(super) struct Index<'s> {
    signature: &'s Signature,
    entries: Vec<Entry>,
    filter: Vec<u64>,
    /// What is cut off a weak sum to get its place in the filter.
    shift: u32,
}

impl<'s> Index<'s> {
    pub fn new(signature: &'s Signature) -> Self {
        let full = signature.shape().full_blocks() as usize;
        let sums = signature.sums().iter().take(full).zip(0..);
        let mut entries: Vec<Entry> =
            sums.map(|(sum, block)| Entry { weak: sum.weak, strong: sum.strong, block }).collect();
        entries.sort_unstable();
        let log = (full * FILTER_BITS_PER_BLOCK).next_power_of_two().ilog2().clamp(6, MAX_FILTER_LOG);
        let mut index = Self { signature, entries, filter: vec![0; 1 << (log - 6)], shift: 32 - log };
        for entry in &index.entries {
            let bit = entry.weak >> index.shift;
            index.filter[(bit >> 6) as usize] |= 1 << (bit & 63);
        }
        index
    }

    /// True if there is no block to find.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// False if surely no block has this weak sum.
    #[inline(always)]
    pub fn may_have(&self, weak: u32) -> bool {
        let bit = weak >> self.shift;
        self.filter[(bit >> 6) as usize] >> (bit & 63) & 1 != 0
    }

    /// The block that is equal to `window`: of several, the first from `wanted` on, or else the first
    /// of all, so that copies come in long runs. `budget` is drawn on where the sums disagree;
    /// once it is spent nothing is found any more.
    pub fn find(&self, state: State, window: &[u8], wanted: u32, budget: &mut usize) -> Option<u32> {
        let weak = state.weak();
        let candidates = equal_range(&self.entries, |entry| entry.weak.cmp(&weak));
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

/// The entries that `order` calls equal.
fn equal_range(entries: &[Entry], order: impl Fn(&Entry) -> std::cmp::Ordering) -> &[Entry] {
    let start = entries.partition_point(|entry| order(entry).is_lt());
    let rest = &entries[start..];
    &rest[..rest.partition_point(|entry| order(entry).is_eq())]
}
