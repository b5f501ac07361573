//! Recipes in the making, and the boundaries that an application gave.

use std::collections::HashMap;
use std::io;

use towpath_content::Oid;
use towpath_content::chunking::{MAX_CHUNK_LEN, MAX_CHUNKS, Parameters};
use towpath_content::recipe::{BuildError, Descriptor, NodeHash, RecipeBuilder, RecipeRoot};

use crate::cutting::Take;
use crate::error::StoreError;
use crate::seam::RecipeNodes;

/// A recipe in memory.
#[derive(Debug)]
pub(crate) struct InMemory {
    root: RecipeRoot,
    nodes: HashMap<NodeHash, Vec<u8>>,
}

impl InMemory {
    /// The recipe of the chunks that `cut` hands over.
    pub(crate) fn make(
        oid: &Oid,
        parameters: Parameters,
        cut: impl FnOnce(&mut Take<'_>) -> Result<(), StoreError>,
    ) -> Result<Self, StoreError> {
        let mut nodes = HashMap::new();
        let keep = |hash, bytes| {
            nodes.insert(hash, bytes);
            Ok(())
        };
        let root = make(oid, parameters, keep, cut)?;
        Ok(Self { root, nodes })
    }
}

impl RecipeNodes for InMemory {
    fn root(&self) -> &RecipeRoot {
        &self.root
    }

    fn node(&self, hash: &NodeHash) -> io::Result<Option<Vec<u8>>> {
        Ok(self.nodes.get(hash).cloned())
    }
}

/// Builds the recipe of the chunks that `cut` hands over; `keep` gets its nodes.
pub(crate) fn make(
    oid: &Oid,
    parameters: Parameters,
    keep: impl FnMut(NodeHash, Vec<u8>) -> Result<(), StoreError>,
    cut: impl FnOnce(&mut Take<'_>) -> Result<(), StoreError>,
) -> Result<RecipeRoot, StoreError> {
    let mut builder = RecipeBuilder::new(parameters, keep).map_err(|_| NO_RECIPE)?;
    cut(&mut |chunks: &[Descriptor]| {
        let push = |chunk: &Descriptor| builder.push(chunk.hash, chunk.len);
        // Goes through who reads the object as an error of its own: see `failure_of`.
        chunks.iter().try_for_each(push).map_err(|error| io::Error::other(explain(error)))
    })?;
    builder.finish(*oid).map_err(explain)
}

const NO_RECIPE: StoreError = StoreError::Refused { why: "such chunks make no recipe" };

fn explain(error: BuildError<StoreError>) -> StoreError {
    match error {
        BuildError::Emit(error) => error,
        BuildError::Refused(_) => NO_RECIPE,
    }
}

/// Failure in a pass over an object: that of what took the chunks, or else of the reading.
pub(crate) fn failure_of(error: io::Error, reading: impl FnOnce(io::Error) -> StoreError) -> StoreError {
    error.downcast::<StoreError>().unwrap_or_else(reading)
}

/// Chunk ends that an application gave.
#[derive(Debug, Default)]
pub(crate) struct Cuts {
    /// Ascending, without 0.
    ends: Vec<u64>,
    /// There were more than a recipe may have: they are of no use.
    are_too_many: bool,
}

impl Cuts {
    /// Notes that a chunk ends behind the first `size` bytes, which are no fewer than before.
    pub(crate) fn add(&mut self, size: u64) {
        if self.are_too_many || size <= self.ends.last().copied().unwrap_or(0) {
            return;
        }
        self.ends.push(size);
        if self.ends.len() as u64 > MAX_CHUNKS {
            *self = Self { ends: Vec::new(), are_too_many: true };
        }
    }

    /// The lengths of the chunks of an object of `size` bytes; `None` if nobody said where they end.
    pub(crate) fn lengths(&self, size: u64) -> Option<Vec<u32>> {
        let is_cut = self.ends.first().is_some_and(|first| *first < size);
        if !is_cut {
            return None;
        }
        let (mut lengths, mut start) = (Vec::new(), 0);
        for end in self.ends.iter().copied().chain([size]) {
            while start < end {
                let len = (end - start).min(MAX_CHUNK_LEN.into());
                lengths.push(len as u32);
                start += len;
            }
        }
        Some(lengths)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u64 = MAX_CHUNK_LEN as u64;

    fn lengths(ends: impl IntoIterator<Item = u64>, size: u64) -> Option<Vec<u64>> {
        let mut cuts = Cuts::default();
        ends.into_iter().for_each(|end| cuts.add(end));
        cuts.lengths(size).map(|lengths| lengths.into_iter().map(u64::from).collect())
    }

    #[test]
    fn chunks_end_where_it_was_said_and_after_16_mib_at_the_latest() {
        assert_eq!(lengths([], 10), None);
        assert_eq!(lengths([0, 0], 10), None, "before any data");
        assert_eq!(lengths([10], 10), None, "at the end");
        assert_eq!(lengths([0, 3, 3, 7], 10), Some(vec![3, 4, 3]));
        assert_eq!(lengths([3, 10, 10], 10), Some(vec![3, 7]));
        assert_eq!(lengths([1], 2 * MAX + 2), Some(vec![1, MAX, MAX, 1]));
        assert_eq!(lengths([MAX, 3 * MAX], 3 * MAX + 1), Some(vec![MAX, MAX, MAX, 1]));
    }

    #[test]
    fn too_many_boundaries_are_none() {
        assert_eq!(lengths(1..=MAX_CHUNKS, 1 << 20).map(|lengths| lengths.len()), Some((1 << 17) + 1));
        assert_eq!(lengths(1..=MAX_CHUNKS + 1, 1 << 20), None);
        assert_eq!(lengths(1..=MAX_CHUNKS + 9, 1 << 20), None);
    }
}
