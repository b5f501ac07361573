//! Reading files of a vault: nodes and blocks come from this machine's caches, else from the server, and each is proved by
//! what names it, from the signed root on.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use towpath_vault_format::tree::{NodeSource, SourceFault, TupleWalk, missing_nodes};
use towpath_vault_format::{Digest, FileRoot, Tuple};

use crate::block::BlockError;
use crate::error::VaultClientError;
use crate::keys::VaultKeys;
use crate::local::BlobCache;
use crate::patches::resolve;
use crate::server::{RemoteVault, checked_objects};

/// Nodes that are asked for at once.
const NODES: usize = 512;
/// Runs whose blocks are fetched together.
const RUNS: usize = 256;
/// Blocks that are asked for at once.
const BLOCKS: usize = 128;
/// Runs of a file, at most: of 4 KiB and more each.
const MAX_RUNS: u64 = 1 << 36;

/// A cache as a source of nodes.
#[derive(Debug)]
pub struct CachedNodes<'a>(pub &'a BlobCache);

impl NodeSource for CachedNodes<'_> {
    fn node(&self, name: &Digest) -> Result<Vec<u8>, SourceFault> {
        self.0.get(name).ok_or(SourceFault::Missing)
    }
}

/// Reads files.
pub struct FileReader<'a> {
    /// Where what is not here comes from.
    pub server: &'a mut dyn RemoteVault,
    /// Nodes that are here.
    pub nodes: &'a mut BlobCache,
    /// Blocks that are here.
    pub blocks: &'a mut BlobCache,
    /// Keys.
    pub keys: &'a VaultKeys,
    /// Of the vault's trees.
    pub degree: u8,
    /// False: blocks come from the server alone and are not kept. That is how a vault is checked.
    pub use_cache: bool,
}

impl FileReader<'_> {
    /// Fetches the nodes that a range of a file needs.
    pub fn fetch_nodes(&mut self, root: &FileRoot, range: &Range<u64>) -> Result<(), VaultClientError> {
        loop {
            let missing = missing_nodes(&CachedNodes(self.nodes), self.degree, root, range, NODES)
                .map_err(VaultClientError::tree(root.file))?;
            if missing.is_empty() {
                return Ok(());
            }
            // Each round brings all that it asks for or fails, and a tree has no more nodes than it says bytes.
            for (name, bytes) in checked_objects(self.server, "node", &missing)? {
                let added = self.nodes.add(&bytes);
                added.map_err(|error| VaultClientError::Record {
                    what: "the cache of nodes",
                    why: error.to_string(),
                })?;
                debug_assert!(self.nodes.has(&name));
            }
        }
    }

    /// Runs from `at` on, at most `most` of them.
    pub fn tuples(
        &mut self,
        root: &FileRoot,
        range: Range<u64>,
        most: usize,
    ) -> Result<Vec<(u64, Tuple)>, VaultClientError> {
        self.fetch_nodes(root, &range)?;
        let source = CachedNodes(self.nodes);
        let walk = TupleWalk::new(&source, self.degree, root, range, MAX_RUNS);
        walk.take(most).collect::<Result<_, _>>().map_err(VaultClientError::tree(root.file))
    }

    /// Gives the bytes of a range to `sink`, run by run.
    pub fn read(
        &mut self,
        root: &FileRoot,
        range: Range<u64>,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), VaultClientError>,
    ) -> Result<(), VaultClientError> {
        let mut at = range.start;
        let end = range.end.min(root.length);
        while at < end {
            // Some runs ahead, so that nodes and blocks come many at a time.
            let ahead = at..end.min(at.saturating_add(4 << 20));
            let runs = self.tuples(root, ahead.clone(), RUNS)?;
            let blocks = self.blocks_of(runs.iter().map(|(_, tuple)| tuple))?;
            for (start, tuple) in &runs {
                let plain = self.plain(root, *start, tuple, &blocks)?;
                let from = at - start;
                let to = tuple.length.min(ahead.end - start);
                sink(&plain[from as usize..to as usize])?;
                at = start + to;
            }
            if runs.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// All bytes of a file that is not larger than `limit`.
    pub fn read_all(
        &mut self,
        root: &FileRoot,
        limit: u64,
        what: &'static str,
    ) -> Result<Vec<u8>, VaultClientError> {
        if root.length > limit {
            return Err(VaultClientError::TooLarge { what, found: root.length, limit });
        }
        let mut bytes = Vec::new();
        self.read(root, 0..root.length, &mut |part| {
            bytes.extend_from_slice(part);
            Ok(())
        })?;
        Ok(bytes)
    }

    /// The bytes that a run gives.
    pub fn plain(
        &self,
        root: &FileRoot,
        at: u64,
        tuple: &Tuple,
        blocks: &HashMap<Digest, Vec<u8>>,
    ) -> Result<Vec<u8>, VaultClientError> {
        let failed = |source| VaultClientError::Block { file: root.file, at, source };
        let chain: Result<Vec<_>, BlockError> = tuple
            .chain
            .iter()
            .map(|block| {
                let lacking = BlockError::OtherBytes { hash: block.hash, found: 0 };
                blocks.get(&block.hash).ok_or(lacking)
            })
            .collect();
        let key = |epoch| self.keys.file(root.file, epoch).map(Arc::new);
        let mut plain = resolve(tuple, &chain.map_err(failed)?, &key).map_err(failed)?;
        plain.truncate(tuple.offset as usize + tuple.length as usize);
        plain.drain(..tuple.offset as usize);
        Ok(plain)
    }

    /// The blocks of some runs.
    pub fn blocks_of<'t>(
        &mut self,
        runs: impl Iterator<Item = &'t Tuple>,
    ) -> Result<HashMap<Digest, Vec<u8>>, VaultClientError> {
        let mut found = HashMap::new();
        let mut missing = Vec::new();
        for block in runs.flat_map(|tuple| &tuple.chain) {
            if found.contains_key(&block.hash) || missing.contains(&block.hash) {
                continue;
            }
            match self.blocks.get(&block.hash).filter(|_| self.use_cache) {
                Some(bytes) => drop(found.insert(block.hash, bytes)),
                None => missing.push(block.hash),
            }
        }
        for some in missing.chunks(BLOCKS) {
            for (name, bytes) in checked_objects(self.server, "block", some)? {
                if self.use_cache {
                    // A full disk costs the cache and nothing else.
                    let _ = self.blocks.add(&bytes);
                }
                found.insert(name, bytes);
            }
        }
        Ok(found)
    }
}
