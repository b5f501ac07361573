//! Content-defined chunks: FastCDC in the form of 2020, normalization level 1, no seed.
//!
//! A boundary is placed where a rolling hash of the last 64 bytes has zeros under a mask, so it
//! moves along with the content. A stricter mask before the average length and a looser one behind
//! it keep lengths near the average.
//!
//! Each value of the hash is twice the one before and what the byte adds. Byte by byte, a processor
//! waits for each sum. So bytes are taken in groups: what those of a group add does not depend on the bytes
//! before it, and the hash itself is moved on once a group. Boundaries are the same.

use std::sync::LazyLock;

use fastcdc::v2020::{Normalization, get_gear_with_seed, select_masks};

/// Bytes of a group.
const GROUP: usize = 4;

/// Sum that each byte adds to the hash at a group's end, by its position in the group.
static ADDED: LazyLock<[[u64; 256]; GROUP]> = LazyLock::new(|| {
    let (gear, _) = get_gear_with_seed(0);
    std::array::from_fn(|slot| std::array::from_fn(|byte| gear[byte] << behind(slot)))
});

/// Bytes of a group behind one of them: so often the hash is doubled until the group's end.
const fn behind(slot: usize) -> usize {
    GROUP - 1 - slot
}

/// Rule for the ends of chunks, by lengths that were checked by [`super::Parameters::check`].
#[derive(Debug, Clone)]
pub(super) struct GearRule {
    min: usize,
    avg: usize,
    max: usize,
    strict: u64,
    loose: u64,
}

impl GearRule {
    pub(super) fn new(min: u32, avg: u32, max: u32) -> Self {
        let (strict, loose) = select_masks(avg as usize, Normalization::Level1);
        Self { min: min as usize, avg: avg as usize, max: max as usize, strict, loose }
    }

    /// Length of the first chunk. A length below that of `bytes` holds whatever follows them.
    pub(super) fn find(&self, bytes: &[u8]) -> usize {
        let end = bytes.len().min(self.max);
        if end <= self.min {
            return end;
        }
        // FastCDC looks at bytes in pairs, so not at the last one of an odd number.
        let paired = end & !1;
        let middle = self.avg.min(paired);
        let mut hash = 0;
        if let Some(at) = scan(&bytes[self.min..middle], self.strict, &mut hash) {
            return self.min + at;
        }
        scan(&bytes[middle..paired], self.loose, &mut hash).map_or(end, |at| middle + at)
    }
}

/// Moves `hash` over `bytes` up to the first one at which it has zeros under `mask`.
fn scan(bytes: &[u8], mask: u64, hash: &mut u64) -> Option<usize> {
    let added = &*ADDED;
    let (groups, rest) = bytes.as_chunks::<GROUP>();
    for (number, group) in groups.iter().enumerate() {
        let before = *hash << GROUP;
        let mut sum = 0_u64;
        for slot in 0..GROUP {
            sum = sum.wrapping_add(added[slot][usize::from(group[slot])]);
            // The hash at this byte, already doubled for the bytes behind it.
            *hash = before.wrapping_add(sum);
            if *hash & (mask << behind(slot)) == 0 {
                return Some(number * GROUP + slot);
            }
        }
    }
    let one = |byte: &u8| {
        *hash = (*hash << 1).wrapping_add(added[GROUP - 1][usize::from(*byte)]);
        *hash & mask == 0
    };
    rest.iter().position(one).map(|at| bytes.len() - rest.len() + at)
}

#[cfg(test)]
mod tests {
    use fastcdc::v2020::cut;
    use proptest::prelude::*;

    use super::*;
    use crate::chunking::Parameters;
    use crate::chunking::tests::noise;

    /// The length that the library finds, byte by byte.
    fn expected(rule: &GearRule, bytes: &[u8]) -> usize {
        let GearRule { min, avg, max, strict, loose } = *rule;
        cut(bytes, min, avg, max, strict, loose, strict << 1, loose << 1).1
    }

    #[test]
    fn no_mask_loses_a_bit_when_it_is_moved_along_a_group() {
        for log2 in 8..=22 {
            let rule = GearRule::new(64, 1 << log2, 1 << 24);
            assert!((rule.strict | rule.loose).leading_zeros() as usize >= behind(0), "2^{log2}");
        }
    }

    proptest! {
        #[test]
        fn groups_end_chunks_where_single_bytes_do(
            seed: u64, len in 0usize..40_000, half_min in 32u32..600, log2 in 8u32..13, half_more in 1u32..9000,
        ) {
            let (min, avg) = (half_min * 2, 1 << log2);
            prop_assume!(min < avg);
            let max = (avg + half_more * 2).max(1 << 10);
            prop_assume!(Parameters::Gear { min, avg, max }.check().is_ok());
            let (rule, bytes) = (GearRule::new(min, avg, max), noise(&seed.to_le_bytes(), len));
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let len = rule.find(rest);
                prop_assert_eq!(len, expected(&rule, rest));
                rest = &rest[len..];
            }
        }
    }

    #[test]
    fn large_averages_and_monotonous_bytes_are_cut_alike_too() {
        let noise = noise(b"seven", 1 << 20);
        let same = vec![0; 300_001];
        for log2 in [14, 15, 16, 17] {
            let rule = GearRule::new(1 << (log2 - 2), 1 << log2, 1 << (log2 + 2));
            for bytes in [&noise[..], &noise[1..70_002], &same[..]] {
                assert_eq!(rule.find(bytes), expected(&rule, bytes), "2^{log2} of {}", bytes.len());
            }
        }
    }
}
