//! Pieces: aligned runs of an object, checked against its OID by the object's own BLAKE3 tree.
//!
//! BLAKE3 hashes its input as a binary tree whose left subtrees are always complete. The values of
//! aligned runs of 2^n KiB are inner nodes of that tree, so they merge to the hash of the whole
//! and any piece, from anyone and in any order, can be checked against the OID with no second
//! hash (BLAKE3 paper §2.1; why this cut: `docs/design/pieces.md`). Pieces are DOT's fixed-length chunks (`papers/dot.txt` §5.3).
//!
//! A piece value depends on the piece's position, so it never names data found elsewhere. An
//! object of one piece has the OID itself as that piece's value.
//!
//! A run of pieces is proved by the values of the pieces in it and of the largest subtrees outside
//! of it, in pre-order; layout in `docs/formats/pieces.md`.

use std::ops::Range;

use blake3::hazmat::{HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root};
use thiserror::Error;

use crate::Oid;

/// Pieces are 256 KiB unless the object is so large that there would be over [`MAX_COUNT`].
pub const MIN_LOG2: u8 = 18;
/// The most pieces an object of known size has; its tree of values then takes 64 MiB.
pub const MAX_COUNT: u64 = 1 << 20;
/// The largest object: 16 TiB, cut into pieces of 16 MiB; larger sizes are refused as hostile.
pub const MAX_SIZE: u64 = 1 << 44;
/// The largest live object, 256 GiB: the last size whose pieces have 256 KiB, which a live object's
/// must have before its size is known.
pub const MAX_LIVE_SIZE: u64 = 1 << 38;
/// Bytes of one value in a proof.
pub const VALUE_LEN: usize = 32;

/// The value of one piece or of a larger aligned subtree: a node of the object's BLAKE3 tree.
pub type Value = [u8; VALUE_LEN];

/// Reason why a proof or a piece was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PieceError {
    /// The run does not lie inside the object or is empty.
    #[error("pieces {start}..{end} do not lie inside the object's {count}")]
    OutOfRange {
        /// First piece asked for.
        start: u64,
        /// One past the last piece asked for.
        end: u64,
        /// Number of pieces of the object.
        count: u64,
    },
    /// The proof has another length than this run's proof must have.
    #[error("the proof has {found} bytes instead of {expected}")]
    ProofLength {
        /// Bytes it must have.
        expected: usize,
        /// Bytes it has.
        found: usize,
    },
    /// The proof does not lead to the OID.
    #[error("the proof does not lead to the object's id")]
    ProofWrong,
    /// The size is over [`MAX_SIZE`].
    #[error("an object of {0} bytes is over the limit of 2^44")]
    TooLarge(u64),
}

/// Cutting of an object of known size into pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    size: u64,
    log2: u8,
}

impl Layout {
    /// That of the object of no bytes.
    pub const EMPTY: Self = Self { size: 0, log2: MIN_LOG2 };

    /// The one layout for objects of `size` bytes: 256 KiB pieces, doubled until there are at
    /// most [`MAX_COUNT`] of them (so 256 KiB up to 256 GiB).
    pub fn of(size: u64) -> Result<Self, PieceError> {
        if size > MAX_SIZE {
            return Err(PieceError::TooLarge(size));
        }
        let mut log2 = MIN_LOG2;
        while size.div_ceil(1 << log2) > MAX_COUNT {
            log2 += 1;
        }
        Ok(Self { size, log2 })
    }

    /// A layout with 256 KiB pieces whatever the size: that of objects put live, whose pieces go
    /// out before the size is known. Values double as one goes up the same tree.
    pub fn live(size: u64) -> Result<Self, PieceError> {
        if size > MAX_LIVE_SIZE {
            return Err(PieceError::TooLarge(size));
        }
        Ok(Self { size, log2: MIN_LOG2 })
    }

    /// Bytes of the object.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Bytes of every piece but the last.
    pub const fn piece_len(&self) -> u64 {
        1 << self.log2
    }

    /// Number of pieces; the empty object has one, of no bytes.
    pub const fn count(&self) -> u64 {
        let count = self.size.div_ceil(1 << self.log2);
        if count == 0 { 1 } else { count }
    }

    /// Range of piece `index`; empty past the end.
    pub fn range(&self, index: u64) -> Range<u64> {
        let start = index.saturating_mul(self.piece_len()).min(self.size);
        start..start.saturating_add(self.piece_len()).min(self.size)
    }

    /// Bytes of piece `index`.
    pub fn len(&self, index: u64) -> u64 {
        let range = self.range(index);
        range.end - range.start
    }

    /// True for the object of no bytes.
    pub const fn is_empty(&self) -> bool {
        self.size == 0
    }

    /// The value of piece `index`, whose bytes are `bytes`.
    pub fn value(&self, index: u64, bytes: &[u8]) -> Value {
        if self.count() == 1 { *blake3::hash(bytes).as_bytes() } else { inner_value(index, self.log2, bytes) }
    }

    fn check(&self, run: &Range<u64>) -> Result<(), PieceError> {
        if run.start < run.end && run.end <= self.count() {
            return Ok(());
        }
        Err(PieceError::OutOfRange { start: run.start, end: run.end, count: self.count() })
    }
}

/// The value of a 2^`log2`-byte piece (the last may be shorter) of an object that has others.
///
/// Until a further byte or the end is seen, the first piece of a live object has no value: it may
/// yet be the whole object, whose value is the OID.
pub fn inner_value(index: u64, log2: u8, bytes: &[u8]) -> Value {
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset(index << log2);
    hasher.update(bytes).finalize_non_root()
}

/// Pieces in the left subtree of a tree over `count` pieces: the largest power of two below it.
const fn left_count(count: u64) -> u64 {
    1 << (u64::BITS - 1 - (count - 1).leading_zeros())
}

fn merge(left: &Value, right: &Value, is_root: bool) -> Value {
    if is_root {
        return *merge_subtrees_root(left, right, Mode::Hash).as_bytes();
    }
    merge_subtrees_non_root(left, right, Mode::Hash)
}

/// Merges the values of neighbouring pieces, the first of them at `0` of this subtree.
fn subtree(values: &[Value], is_root: bool) -> Value {
    if let [value] = values {
        return *value;
    }
    let (left, right) = values.split_at(left_count(values.len() as u64) as usize);
    merge(&subtree(left, false), &subtree(right, false), is_root)
}

/// The content OID of an object whose piece values are `values`, one or more.
pub fn oid_of(values: &[Value]) -> Oid {
    Oid::Blake3(if values.is_empty() { *blake3::hash(b"").as_bytes() } else { subtree(values, true) })
}

/// Merges `factor` (a power of two) values at a time: the values of pieces that much larger.
pub fn coarsen(values: &[Value], factor: usize) -> Vec<Value> {
    let is_whole = values.len() <= factor;
    values.chunks(factor).map(|run| subtree(run, is_whole && values.len() > 1)).collect()
}

/// All values of one object, with every inner node, from which proofs are cut.
#[derive(Debug, Clone)]
pub struct PieceTree {
    layout: Layout,
    /// Level 0 holds the pieces' values; each further level merges pairs, an odd one moves up.
    levels: Vec<Vec<Value>>,
}

impl PieceTree {
    /// Builds the tree; `None` unless there is one value per piece.
    pub fn new(layout: Layout, values: Vec<Value>) -> Option<Self> {
        if values.len() as u64 != layout.count() {
            return None;
        }
        let mut levels = vec![values];
        while let Some(below) = levels.last().filter(|level| level.len() > 1) {
            let is_root = below.len() == 2;
            let merge_pair = |pair: &[Value]| match pair {
                [left, right] => merge(left, right, is_root),
                rest => rest[0],
            };
            let level = below.chunks(2).map(merge_pair).collect();
            levels.push(level);
        }
        Some(Self { layout, levels })
    }

    /// Layout of the object.
    pub const fn layout(&self) -> Layout {
        self.layout
    }

    /// The values of all pieces.
    pub fn values(&self) -> &[Value] {
        &self.levels[0]
    }

    /// The object's id.
    pub fn oid(&self) -> Oid {
        Oid::Blake3(self.levels.last().map_or([0; 32], |root| root[0]))
    }

    /// The proof of the pieces in `run`.
    pub fn proof(&self, run: Range<u64>) -> Result<Vec<u8>, PieceError> {
        self.layout.check(&run)?;
        let mut proof = Vec::with_capacity(proof_len(&self.layout, &run));
        walk(0..self.layout.count(), &run, &mut |node| proof.extend_from_slice(&self.node(node)));
        Ok(proof)
    }

    /// The value of an aligned subtree.
    fn node(&self, pieces: Range<u64>) -> Value {
        let level = (pieces.end - pieces.start).next_power_of_two().trailing_zeros() as usize;
        self.levels[level][(pieces.start >> level) as usize]
    }
}

/// Visits, in pre-order, the nodes whose values make up the proof of `run`: each piece in it, and
/// the largest subtrees outside of it.
fn walk(node: Range<u64>, run: &Range<u64>, visit: &mut impl FnMut(Range<u64>)) {
    let count = node.end - node.start;
    let is_outside = node.end <= run.start || run.end <= node.start;
    if is_outside || count == 1 {
        return visit(node);
    }
    let middle = node.start + left_count(count);
    walk(node.start..middle, run, visit);
    walk(middle..node.end, run, visit);
}

/// Bytes that the proof of `run` has.
pub fn proof_len(layout: &Layout, run: &Range<u64>) -> usize {
    let mut nodes = 0;
    walk(0..layout.count(), run, &mut |_| nodes += 1);
    nodes * VALUE_LEN
}

/// Checks the proof of `run` against the OID's digest and returns the values of the run's pieces.
pub fn verify(
    root: &Value,
    layout: &Layout,
    run: Range<u64>,
    proof: &[u8],
) -> Result<Vec<Value>, PieceError> {
    layout.check(&run)?;
    let expected = proof_len(layout, &run);
    if proof.len() != expected {
        return Err(PieceError::ProofLength { expected, found: proof.len() });
    }
    let (nodes, _) = proof.as_chunks::<VALUE_LEN>();
    let mut nodes = nodes.iter();
    let mut values = Vec::with_capacity((run.end - run.start) as usize);
    let found = rebuild(0..layout.count(), &run, true, &mut nodes, &mut values);
    if found != Some(*root) {
        return Err(PieceError::ProofWrong);
    }
    Ok(values)
}

fn rebuild<'a>(
    node: Range<u64>,
    run: &Range<u64>,
    is_root: bool,
    nodes: &mut impl Iterator<Item = &'a Value>,
    values: &mut Vec<Value>,
) -> Option<Value> {
    let count = node.end - node.start;
    let is_outside = node.end <= run.start || run.end <= node.start;
    if is_outside || count == 1 {
        let value = *nodes.next()?;
        if !is_outside {
            values.push(value);
        }
        return Some(value);
    }
    let middle = node.start + left_count(count);
    let left = rebuild(node.start..middle, run, false, nodes, values)?;
    let right = rebuild(middle..node.end, run, false, nodes, values)?;
    Some(merge(&left, &right, is_root))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes that differ from position to position.
    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i / 251 + i) as u8).collect()
    }

    fn tree(data: &[u8]) -> PieceTree {
        let layout = Layout::of(data.len() as u64).unwrap();
        let value = |i| layout.value(i, &data[layout.range(i).start as usize..layout.range(i).end as usize]);
        PieceTree::new(layout, (0..layout.count()).map(value).collect()).unwrap()
    }

    const PIECE: usize = 1 << MIN_LOG2;

    #[test]
    fn values_merge_to_the_hash_of_the_whole() {
        for len in [0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 2 * PIECE + 1, 3 * PIECE, 5 * PIECE + 77] {
            let data = bytes(len);
            assert_eq!(tree(&data).oid(), Oid::of(&data), "{len} bytes");
            assert_eq!(oid_of(tree(&data).values()), Oid::of(&data), "{len} bytes");
        }
    }

    #[test]
    fn coarser_values_are_those_of_larger_pieces() {
        for pieces in [1, 2, 3, 4, 5, 7, 9] {
            let data = bytes(pieces * PIECE - 5);
            let fine = tree(&data);
            for factor in [1, 2, 4, 8, 16] {
                assert_eq!(oid_of(&coarsen(fine.values(), factor)), Oid::of(&data), "{pieces} by {factor}");
            }
        }
    }

    #[test]
    fn sizes_choose_layouts_with_a_bounded_count() {
        for (size, log2, count) in
            [(0, 18, 1), (1, 18, 1), (1 << 38, 18, 1 << 20), ((1 << 38) + 1, 19, (1 << 19) + 1)]
        {
            let layout = Layout::of(size).unwrap();
            assert_eq!((layout.log2, layout.count()), (log2, count), "{size}");
        }
        assert_eq!(Layout::of(MAX_SIZE + 1), Err(PieceError::TooLarge(MAX_SIZE + 1)));
        assert_eq!(Layout::of(MAX_SIZE).unwrap().count(), MAX_COUNT);
    }

    /// A tree with invented values: proofs do not depend on where the values came from.
    fn invented(count: u64) -> PieceTree {
        let layout = Layout::of(count * PIECE as u64).unwrap();
        PieceTree::new(layout, (0..count).map(|i| *blake3::hash(&i.to_le_bytes()).as_bytes()).collect())
            .unwrap()
    }

    proptest! {
        #[test]
        fn every_run_is_proved_and_no_changed_proof_is(count in 1u64..70, a in 0u64..70, b in 0u64..70, flip: usize) {
            let tree = invented(count);
            let run = a.min(b).min(count - 1)..(a.max(b) + 1).min(count);
            let root = *tree.oid().digest();
            let mut proof = tree.proof(run.clone()).unwrap();
            prop_assert_eq!(proof.len(), proof_len(&tree.layout(), &run));
            let values = verify(&root, &tree.layout(), run.clone(), &proof).unwrap();
            prop_assert_eq!(&values[..], &tree.values()[run.start as usize..run.end as usize]);

            let at = flip % proof.len();
            proof[at] ^= 1;
            prop_assert_eq!(verify(&root, &tree.layout(), run.clone(), &proof), Err(PieceError::ProofWrong));
            proof.pop();
            let refused = verify(&root, &tree.layout(), run, &proof);
            prop_assert!(matches!(refused, Err(PieceError::ProofLength { .. })), "{:?}", refused);
        }
    }

    #[test]
    fn runs_outside_the_object_are_refused() {
        let tree = invented(3);
        for run in [0..0, 3..4, 2..4, 3..3, 0..u64::MAX] {
            assert!(matches!(tree.proof(run.clone()), Err(PieceError::OutOfRange { .. })), "{run:?}");
            assert!(verify(&[0; 32], &tree.layout(), run, &[]).is_err());
        }
    }

    #[test]
    fn another_size_does_not_pass_for_the_object() {
        let data = bytes(3 * PIECE);
        let honest = tree(&data);
        let longer = Layout::of(data.len() as u64 + 1).unwrap();
        let proof = honest.proof(0..3).unwrap();
        assert!(verify(honest.oid().digest(), &longer, 0..3, &proof).is_err());
    }
}
