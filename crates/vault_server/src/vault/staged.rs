//! Blocks in memory whose version is not committed yet, in the order in which they came: so they lie one behind the other in a pack,
//! and who reads a file reads long runs.

use std::collections::HashMap;

use bytes::Bytes;
use towpath_vault_format::Digest;

/// Blocks without a version.
#[derive(Debug, Default)]
pub(super) struct StagedBlocks {
    /// Each with how many came before it.
    blocks: HashMap<Digest, (u64, Bytes)>,
    came: u64,
    len: usize,
}

impl StagedBlocks {
    /// Bytes of all.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) fn has(&self, name: &Digest) -> bool {
        self.blocks.contains_key(name)
    }

    pub(super) fn get(&self, name: &Digest) -> Option<Bytes> {
        self.blocks.get(name).map(|(_, block)| block.clone())
    }

    pub(super) fn add(&mut self, name: Digest, block: Bytes) {
        self.remove(&name);
        self.len += block.len();
        self.came += 1;
        self.blocks.insert(name, (self.came, block));
    }

    pub(super) fn remove(&mut self, name: &Digest) {
        self.len -= self.blocks.remove(name).map_or(0, |(_, block)| block.len());
    }

    /// All of them, in order.
    pub(super) fn in_order(&self) -> Vec<(Digest, Bytes)> {
        let mut blocks: Vec<_> = self.blocks.iter().collect();
        blocks.sort_unstable_by_key(|(_, (came, _))| *came);
        blocks.into_iter().map(|(name, (_, block))| (*name, block.clone())).collect()
    }
}
