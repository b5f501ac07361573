//! BLAKE3, keyed, of several chunks at a time: the same hashes, in less time.
//!
//! BLAKE3 is fast where it hashes sixteen pieces of 1 KiB side by side. A chunk has four to sixteen of them, and what is left over is
//! hashed alone. So here the first pieces of many chunks are hashed side by side, then the second ones, and so on, and then the pairs
//! of nodes above them.

use blake3::IncrementCounter;
use blake3::hazmat::HasherExt;
use blake3::platform::{Platform, words_from_le_bytes_32};

/// Bytes below a leaf of BLAKE3's tree.
const PIECE: usize = 1024;
/// Marks of BLAKE3's blocks.
const PIECE_START: u8 = 1;
const PIECE_END: u8 = 1 << 1;
const PARENT: u8 = 1 << 2;
const ROOT: u8 = 1 << 3;
const KEYED: u8 = 1 << 4;

/// Hash of a piece, or of two nodes: what BLAKE3 calls a chaining value; at last the hash of a chunk.
type ChainValue = [u8; 32];

/// The hash of each chunk.
pub fn keyed_hashes(key: &[u8; 32], chunks: &[&[u8]]) -> Vec<ChainValue> {
    let side_by_side = SideBySide { platform: Platform::detect(), key: words_from_le_bytes_32(key) };
    let large = chunks.iter().copied().filter(|chunk| chunk.len() > PIECE).collect::<Vec<_>>();
    let mut nodes = side_by_side.leaves(key, &large);
    while nodes.iter().any(|nodes| nodes.len() > 1) {
        side_by_side.parents(&mut nodes, |count| count == 2, ROOT);
        side_by_side.parents(&mut nodes, |count| count > 2, 0);
    }
    let mut roots = nodes.into_iter().flatten();
    let small = |chunk: &&[u8]| (chunk.len() <= PIECE).then(|| *blake3::keyed_hash(key, chunk).as_bytes());
    chunks.iter().filter_map(|chunk| small(chunk).or_else(|| roots.next())).collect()
}

struct SideBySide {
    platform: Platform,
    key: [u32; 8],
}

impl SideBySide {
    /// Hashes of the pieces of each chunk.
    fn leaves(&self, key: &[u8; 32], chunks: &[&[u8]]) -> Vec<Vec<ChainValue>> {
        let mut nodes: Vec<_> =
            chunks.iter().map(|chunk| Vec::with_capacity(chunk.len().div_ceil(PIECE))).collect();
        for number in 0..chunks.iter().map(|chunk| chunk.len().div_ceil(PIECE)).max().unwrap_or(0) {
            let rests = || chunks.iter().map(|chunk| chunk.get(number * PIECE..).unwrap_or_default());
            let whole: Vec<&[u8; PIECE]> = rests().filter_map(<[u8]>::first_chunk).collect();
            let mut hashes = self.hash(&whole, number as u64, (PIECE_START, PIECE_END)).into_iter();
            for (rest, nodes) in rests().zip(&mut nodes).filter(|(rest, _)| !rest.is_empty()) {
                nodes.extend(match rest.len() < PIECE {
                    true => Some(last_leaf(key, number, rest)),
                    false => hashes.next(),
                });
            }
        }
        nodes
    }

    /// Puts parents in the place of nodes where there are so many of them. One without a neighbour stays.
    fn parents(&self, nodes: &mut [Vec<ChainValue>], is_it: impl Fn(usize) -> bool, mark: u8) {
        let pairs =
            nodes.iter().filter(|nodes| is_it(nodes.len())).flat_map(|nodes| nodes.as_chunks::<2>().0);
        let pairs: Vec<&[u8; 64]> = pairs.filter_map(|pair| pair.as_flattened().first_chunk()).collect();
        let mut hashes = self.hash(&pairs, 0, (PARENT | mark, 0)).into_iter();
        for nodes in nodes.iter_mut().filter(|nodes| is_it(nodes.len())) {
            let alone = nodes.as_chunks::<2>().1.first().copied();
            let above = hashes.by_ref().take(nodes.len() / 2).chain(alone).collect();
            *nodes = above;
        }
    }

    fn hash<const N: usize>(
        &self,
        inputs: &[&[u8; N]],
        number: u64,
        (start, end): (u8, u8),
    ) -> Vec<ChainValue> {
        let mut out = vec![[0; 32]; inputs.len()];
        let bytes = out.as_flattened_mut();
        self.platform.hash_many(inputs, &self.key, number, IncrementCounter::No, KEYED, start, end, bytes);
        out
    }
}

/// Hash of the last piece of a chunk, which is shorter.
fn last_leaf(key: &[u8; 32], number: usize, bytes: &[u8]) -> ChainValue {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.set_input_offset((number * PIECE) as u64);
    hasher.update(bytes).finalize_non_root()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn they_are_blake3s(key: [u8; 32], lengths in prop::collection::vec(prop_oneof![0..20_000usize, (0..20usize).prop_map(|pieces| pieces * PIECE)], 0..40)) {
            let bytes: Vec<u8> = (0..20_000u32).map(|at| ((at * at) >> 7) as u8).collect();
            let chunks: Vec<&[u8]> = lengths.iter().map(|length| &bytes[..*length]).collect();
            let plain: Vec<ChainValue> = chunks.iter().map(|chunk| *blake3::keyed_hash(&key, chunk).as_bytes()).collect();
            prop_assert_eq!(keyed_hashes(&key, &chunks), plain);
        }
    }
}
