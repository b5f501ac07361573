//! The chunks of a recipe in order, with their offsets, from the start or from any place.

use std::ops::Range;

use super::cursor::Cursor;
use super::{NodeHash, RecipeError, RecipeRoot, Run};
use crate::chunking::ChunkHash;

/// A chunk and where it lies in the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Descriptor {
    /// The chunk's name.
    pub hash: ChunkHash,
    /// Bytes of the chunk.
    pub len: u32,
    /// The object's bytes in front of it.
    pub offset: u64,
}

/// A run of one chunk and where it lies in the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Extent {
    /// The object's bytes in front of it.
    pub offset: u64,
    /// The chunk and its repeats.
    pub run: Run,
}

impl Extent {
    /// The object's bytes that the run covers.
    pub const fn range(&self) -> Range<u64> {
        self.offset..self.offset.saturating_add(self.run.bytes())
    }

    /// Without the chunks that end at or before `from`, which must lie before the extent's end.
    pub(super) fn starting_at(self, from: u64) -> Self {
        let len = u64::from(self.run.len);
        let skipped = from.saturating_sub(self.offset).checked_div(len).unwrap_or(0);
        let run = Run { repeat: self.run.repeat.saturating_sub(skipped), ..self.run };
        Self { offset: self.offset + skipped * len, run }
    }

    /// The run's chunks one by one; a file of zeros has a great many.
    pub fn descriptors(&self) -> impl Iterator<Item = Descriptor> + use<> {
        let Self { offset, run: Run { hash, len, repeat } } = *self;
        (0..repeat).map(move |i| Descriptor { hash, len, offset: offset + i * u64::from(len) })
    }
}

/// All runs of `root`'s object in order.
///
/// `lookup` returns the bytes of a node, or `None` if it does not have them; they are checked
/// against the node's hash and place here.
pub fn walk<E, F>(root: &RecipeRoot, lookup: F) -> RecipeWalk<F>
where
    F: FnMut(&NodeHash) -> Result<Option<Vec<u8>>, E>,
{
    seek(root, 0, lookup)
}

/// As [`walk`], from the chunk that holds byte `offset` on: only nodes on the way there are looked
/// up. The first run begins at that chunk; past the object's end there is none.
pub fn seek<E, F>(root: &RecipeRoot, offset: u64, lookup: F) -> RecipeWalk<F>
where
    F: FnMut(&NodeHash) -> Result<Option<Vec<u8>>, E>,
{
    RecipeWalk { cursor: Cursor::over(root, offset), lookup }
}

/// Reads the whole recipe and returns how many chunks it has.
///
/// Checks that the tree is the one that [`super::RecipeBuilder`] makes of these chunks.
pub fn verify<E, F>(root: &RecipeRoot, lookup: F) -> Result<u64, RecipeError<E>>
where
    F: FnMut(&NodeHash) -> Result<Option<Vec<u8>>, E>,
{
    let mut chunks = 0;
    for extent in walk(root, lookup) {
        chunks += extent?.run.repeat;
    }
    Ok(chunks)
}

/// Runs in order; see [`walk`].
///
/// After an error the next call tries the same node again, so that a missing one can be fetched
/// meanwhile. Errors that blame the maker stay.
#[derive(Debug, Clone)]
pub struct RecipeWalk<F> {
    cursor: Cursor,
    lookup: F,
}

impl<E, F: FnMut(&NodeHash) -> Result<Option<Vec<u8>>, E>> Iterator for RecipeWalk<F> {
    type Item = Result<Extent, RecipeError<E>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.cursor.next(&mut self.lookup).transpose()
    }
}
