//! Pieces of wants, as messages name them.

/// The index of a want in its `Get`, and which piece of its run; 0 for a run of bytes and for a chunk.
pub type WantPiece = (u32, u32);

/// The pieces that a message names: want, piece, want, piece, … `None` if the last one is half a name.
pub fn want_pieces(numbers: &[u32]) -> Option<impl Iterator<Item = WantPiece>> {
    let (pairs, rest) = numbers.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|&[want, piece]| (want, piece)))
}
