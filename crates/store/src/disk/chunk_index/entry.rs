//! An entry: the first bytes of a chunk's hash, and where it lies. 22 bytes in the index.
//!
//! Eight bytes of hash are enough to find a chunk, since every chunk is hashed when it is read.

use towpath_content::chunking::{ChunkHash, MAX_CHUNK_LEN};

/// Bytes of an entry.
pub(super) const LEN: usize = 8 + 5 + 6 + 3;
/// Hashes fall into 2^12 buckets by their first bits, in each run.
pub(super) const BUCKET_BITS: u32 = 12;
/// Positions that are kept of one chunk: the same zeros may lie in a million files.
pub(super) const COPIES: usize = 8;

const MAX_CUT: u64 = 1 << 40;
const MAX_OFFSET: u64 = 1 << 48;

/// Position of a chunk. Ordered by hash, then cut, then offset, as its bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChunkEntry {
    pub(super) prefix: u64,
    /// The row of `cuts`.
    pub(super) cut: u64,
    pub(super) offset: u64,
    pub(super) len: u32,
}

/// Prefix that stands for a hash.
pub(super) fn prefix_of(hash: &ChunkHash) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = hash.0;
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// The bucket that a hash falls into.
pub(super) const fn bucket_of(prefix: u64) -> u64 {
    prefix >> (64 - BUCKET_BITS)
}

/// True if a chunk's position can be written down.
pub(super) const fn fits(offset: u64, len: u32) -> bool {
    offset < MAX_OFFSET && len > 0 && len <= MAX_CHUNK_LEN
}

impl ChunkEntry {
    fn to_bytes(self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        let (prefix, rest) = bytes.split_at_mut(8);
        let (cut, rest) = rest.split_at_mut(5);
        let (offset, len) = rest.split_at_mut(6);
        prefix.copy_from_slice(&self.prefix.to_be_bytes());
        cut.copy_from_slice(&self.cut.min(MAX_CUT - 1).to_be_bytes()[3..]);
        offset.copy_from_slice(&self.offset.to_be_bytes()[2..]);
        // A chunk of the greatest length, 2^24, fits as well, as none is empty.
        len.copy_from_slice(&(self.len - 1).to_be_bytes()[1..]);
        bytes
    }

    fn from_bytes(bytes: &[u8; LEN]) -> Self {
        let number = |range: std::ops::Range<usize>| {
            bytes[range].iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte))
        };
        let len = number(19..22) as u32 + 1;
        Self { prefix: number(0..8), cut: number(8..13), offset: number(13..19), len }
    }
}

/// The bytes of sorted entries.
pub(super) fn encode(entries: &[ChunkEntry]) -> Vec<u8> {
    entries.iter().flat_map(|entry| entry.to_bytes()).collect()
}

/// All entries in `bytes`; what is cut off is left out.
pub(super) fn decode(bytes: &[u8]) -> impl Iterator<Item = ChunkEntry> {
    bytes.as_chunks::<LEN>().0.iter().map(ChunkEntry::from_bytes)
}

/// The entries for one hash in the bytes of sorted ones.
pub(super) fn find(bytes: &[u8], prefix: u64) -> impl Iterator<Item = ChunkEntry> {
    let entries = bytes.as_chunks::<LEN>().0;
    let from = entries.partition_point(|entry| entry[..8] < prefix.to_be_bytes()[..]);
    entries[from..].iter().map(ChunkEntry::from_bytes).take_while(move |entry| entry.prefix == prefix)
}

/// Sorts entries and leaves out what is too much: repeats, and more than [`COPIES`] of one chunk, of
/// which the newest stay.
pub(super) fn tidy(entries: &mut Vec<ChunkEntry>) {
    entries.sort_unstable();
    entries.dedup_by_key(|entry| (entry.prefix, entry.cut));
    let mut kept = 0;
    for at in 0..entries.len() {
        let later = entries.get(at + COPIES).is_some_and(|later| later.prefix == entries[at].prefix);
        if !later {
            entries[kept] = entries[at];
            kept += 1;
        }
    }
    entries.truncate(kept);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(prefix: u64, cut: u64) -> ChunkEntry {
        ChunkEntry { prefix, cut, offset: 0, len: 1 }
    }

    #[test]
    fn the_newest_few_places_of_a_chunk_stay() {
        let mut entries: Vec<_> =
            (0..30).map(|cut| entry(7, cut)).chain([entry(6, 1), entry(8, 1)]).collect();
        entries.push(ChunkEntry { offset: 9, ..entry(7, 29) });
        tidy(&mut entries);
        let newest = (30 - COPIES as u64..30).map(|cut| entry(7, cut));
        assert_eq!(entries, [entry(6, 1)].into_iter().chain(newest).chain([entry(8, 1)]).collect::<Vec<_>>());
    }

    proptest! {
        #[test]
        fn entries_come_back_and_are_found(
            all in proptest::collection::vec(
                (any::<u64>(), 0..MAX_CUT, 0..MAX_OFFSET, 1..=MAX_CHUNK_LEN), 0..50
            )
        ) {
            let entry = |(prefix, cut, offset, len)| ChunkEntry { prefix, cut, offset, len };
            let mut all: Vec<_> = all.into_iter().map(entry).collect();
            tidy(&mut all);
            let bytes = encode(&all);
            prop_assert!(decode(&bytes).eq(all.iter().copied()));
            for entry in &all {
                prop_assert!(find(&bytes, entry.prefix).any(|found| found == *entry));
            }
            prop_assert!(find(&bytes, 1).all(|found| found.prefix == 1));
        }
    }
}
