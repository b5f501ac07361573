//! The rule that closes nodes: by the hashes of their entries, within bounds.
//!
//! A node that has [`MIN_ENTRIES`] is closed by the first entry whose hash is one of a rare kind,
//! one in 48, and at [`MAX_ENTRIES`] in any case: about 64 entries on average. As nothing but the
//! entries since the last boundary decides, two sequences fall into step soon after they differ.

/// Fewest entries of a node, other than the last of its level: bounds the depth.
pub const MIN_ENTRIES: usize = 16;
/// Most entries of a node: bounds its bytes.
pub const MAX_ENTRIES: usize = 256;

/// Hashes whose first two bytes are below this close a node: 2^16 / 48.
const CLOSING: u16 = 1365;

/// True if a node is closed after the entry with `hash`, which is its `count`th.
pub(super) const fn closes(count: usize, hash: &[u8; 32]) -> bool {
    let is_rare = u16::from_be_bytes([hash[0], hash[1]]) < CLOSING;
    count >= MAX_ENTRIES || (count >= MIN_ENTRIES && is_rare)
}

/// True if an entry before the last would have closed the node with these entries.
pub(super) fn closes_early<'a>(hashes: impl ExactSizeIterator<Item = &'a [u8; 32]>) -> bool {
    let last = hashes.len();
    (1..last).zip(hashes).any(|(count, hash)| closes(count, hash))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RARE: [u8; 32] = [0; 32];
    const PLAIN: [u8; 32] = [0xff; 32];

    #[test]
    fn a_node_is_closed_by_a_rare_hash_within_its_bounds() {
        for (count, hash, expected) in [
            (MIN_ENTRIES - 1, &RARE, false),
            (MIN_ENTRIES, &RARE, true),
            (MIN_ENTRIES, &PLAIN, false),
            (MAX_ENTRIES - 1, &PLAIN, false),
            (MAX_ENTRIES, &PLAIN, true),
        ] {
            assert_eq!(closes(count, hash), expected, "{count}");
        }
    }

    #[test]
    fn the_last_entry_closes_nothing_early() {
        let mut hashes = vec![PLAIN; MIN_ENTRIES];
        hashes.push(RARE);
        assert!(!closes_early(hashes.iter()));
        hashes.push(PLAIN);
        assert!(closes_early(hashes.iter()));
        assert!(!closes_early([PLAIN; 0].iter()));
    }

    #[test]
    fn one_hash_in_48_is_rare() {
        let rare = (0..=u16::MAX).filter(|n| {
            let mut hash = PLAIN;
            hash[..2].copy_from_slice(&n.to_be_bytes());
            closes(MIN_ENTRIES, &hash)
        });
        assert_eq!(rare.count(), 65536 / 48);
    }
}
