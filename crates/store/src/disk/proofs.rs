//! Proofs that pieces belong to an object: its tree of piece values, which is kept in memory, in the index, or found by
//! reading the object.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use towpath_content::Oid;
use towpath_content::lock::lock;
use towpath_content::pieces::{Layout, PieceTree, Value};

use super::index::Durability;
use super::rows;
use super::source::OpenedBytes;
use super::sources::SourceFiles;
use super::store_core::StoreCore;
use crate::error::StoreError;
use crate::hashing::hash_pieces;
use crate::lru::Lru;
use crate::seam::Descriptors;
use crate::spans::OUTSIDE;

/// Bytes of piece values kept in memory for proofs. A tree that is larger, up to 64 MiB for
/// objects over 128 GiB, is kept alone.
const TREE_CACHE: usize = 32 << 20;

/// The proofs of the contents of a store.
pub(super) struct Proofs {
    core: Arc<StoreCore>,
    sources: Arc<SourceFiles>,
    trees: Mutex<Lru<Oid, Arc<PieceTree>>>,
}

impl Proofs {
    /// No tree is in memory yet.
    pub(super) fn new(core: Arc<StoreCore>, sources: Arc<SourceFiles>) -> Self {
        Self { core, sources, trees: Mutex::new(Lru::new(TREE_CACHE)) }
    }

    /// The proof of a run of pieces of a content that has `size` bytes.
    pub(super) fn prove(&self, oid: &Oid, size: u64, run: Range<u64>) -> Result<Descriptors, StoreError> {
        let layout = Layout::of(size).map_err(|_| OUTSIDE)?;
        if run.start >= run.end || run.end > layout.count() {
            return Err(OUTSIDE);
        }
        if layout.count() == 1 {
            return Ok(Descriptors::Proof(oid.digest().to_vec()));
        }
        self.tree(oid, layout)?.proof(run).map(Descriptors::Proof).map_err(|_| OUTSIDE)
    }

    /// The object's tree of values: cached, from the index, or from reading the file.
    fn tree(&self, oid: &Oid, layout: Layout) -> Result<Arc<PieceTree>, StoreError> {
        if let Some(tree) = lock(&self.trees).get(oid) {
            return Ok(Arc::clone(tree));
        }
        let kept = self.core.index.read("finding piece values", |conn| rows::values(conn, oid))?;
        let is_right = |tree: &PieceTree| tree.oid() == *oid;
        let kept = kept.and_then(|values| PieceTree::new(layout, values)).filter(is_right);
        let tree = Arc::new(match kept {
            Some(tree) => tree,
            None => self.find_tree(oid)?,
        });
        let weight = (2 * 32 * layout.count()) as usize;
        lock(&self.trees).insert(*oid, Arc::clone(&tree), weight.max(1024));
        Ok(tree)
    }

    fn find_tree(&self, oid: &Oid) -> Result<PieceTree, StoreError> {
        let tree = self.sources.with(oid, |source| {
            let layout = Layout::of(source.size()).map_err(|_| OUTSIDE)?;
            let values = all_values(source, &layout, &self.core)?;
            let tree = PieceTree::new(layout, values).filter(|tree| tree.oid() == *oid);
            // The bytes are others than the stamp or the name say.
            tree.ok_or_else(|| source.origin.loss())
        })?;
        self.core
            .index
            .write(Durability::Cached, "keeping piece values", |t| rows::put_values(t, oid, tree.values()))?;
        Ok(tree)
    }
}

fn all_values(source: &OpenedBytes, layout: &Layout, core: &StoreCore) -> Result<Vec<Value>, StoreError> {
    let mut values = Vec::new();
    let file = source.whole_file(core)?;
    let hashed = hash_pieces(file.file(), layout, &mut |run| {
        values.extend(run);
        Ok(())
    });
    hashed.map_err(|error| source.origin.explain(error))?;
    source.check().map(|()| values)
}
