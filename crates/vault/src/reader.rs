//! Reading files of a vault: nodes and blocks come from this machine's caches, else from the server or other holders, and each is proved by
//! what names it, from the signed root on.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use towpath_vault_format::tree::{NodeSource, SourceFault, TupleWalk, missing_nodes};
use towpath_vault_format::{BlockRef, Digest, FileRoot, Tuple};

use crate::block::BlockError;
use crate::crew::{OrderedCrew, threads_beside};
use crate::error::VaultClientError;
use crate::holders::{ObjectHolders, WantedObject, held_objects, wanted_node};
use crate::keys::{FileKey, VaultKeys};
use crate::local::BlobCache;
use crate::patches::resolve;
use crate::server::RemoteVault;

/// Nodes that are asked for at once.
const NODES: usize = 512;
/// Runs whose blocks are fetched together.
const RUNS: usize = 2048;
/// Runs that wait to be decrypted, of a file that has few.
const FEW_RUNS: usize = 64;
/// Bytes of a file whose blocks are fetched together, about.
const AHEAD: u64 = 16 << 20;
/// Bytes of blocks and plaintext that are fetched together, and that are decrypted at one time, at most: whatever a file's tree says. One run
/// may be more. It has room for what [`AHEAD`] brings, so that this is decrypted while more is fetched.
const FETCHED: u64 = 32 << 20;
/// Blocks that are asked for at once.
const BLOCKS: usize = 2048;
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

/// Nodes that the cache can't keep.
pub(crate) fn cannot_keep(why: impl ToString) -> VaultClientError {
    VaultClientError::record_of("the cache of nodes", &why.to_string())
}

/// Reads files.
pub struct FileReader<'a> {
    /// Where what is not here comes from.
    pub server: &'a mut dyn RemoteVault,
    /// Where that comes from instead, if there are any.
    pub holders: Option<&'a mut ObjectHolders>,
    /// Nodes that are here.
    pub nodes: &'a mut BlobCache,
    /// Blocks that are here.
    pub blocks: &'a mut BlobCache,
    /// Keys.
    pub keys: &'a VaultKeys,
    /// Of the vault's trees.
    pub degree: u8,
    /// False: blocks come from the server or other holders alone and are not kept. That is how a vault is checked.
    pub use_cache: bool,
}

impl FileReader<'_> {
    /// Fetches the nodes that a range of a file needs.
    pub fn fetch_nodes(&mut self, root: &FileRoot, range: &Range<u64>) -> Result<(), VaultClientError> {
        // A cache may forget what is needed: of a tree made for that, or of one that is too large.
        let mut asked = HashSet::new();
        loop {
            let missing = missing_nodes(&CachedNodes(self.nodes), self.degree, root, range, NODES)
                .map_err(VaultClientError::tree(root.file))?;
            if missing.is_empty() {
                return Ok(());
            }
            if !missing.iter().all(|name| asked.insert(*name)) {
                return Err(cannot_keep("it does not keep all that is needed at once"));
            }
            // Each round brings all that it asks for or fails, and a tree has no more nodes than it says bytes.
            let wanted: Vec<_> = missing.into_iter().map(wanted_node).collect();
            for (_, bytes) in self.fetch("node", &wanted)? {
                self.nodes.add(&bytes).map_err(cannot_keep)?;
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

    /// Gives the bytes of a range to `sink`, run by run. Runs are decrypted on other threads, while others are fetched.
    pub fn read(
        &mut self,
        root: &FileRoot,
        range: Range<u64>,
        sink: &mut dyn FnMut(&[u8]) -> Result<(), VaultClientError>,
    ) -> Result<(), VaultClientError> {
        let (mut at, end) = (range.start, range.end.min(root.length));
        let mut crew = match end.saturating_sub(at) > AHEAD / 16 {
            true => OpeningCrew::new(threads_beside(), RUNS),
            false => OpeningCrew::new(1, FEW_RUNS),
        };
        let mut keys = HashMap::new();
        while at < end {
            // Some runs ahead, so that nodes and blocks come many at a time.
            let mut runs = self.tuples(root, at..end.min(at.saturating_add(AHEAD)), RUNS)?;
            keep_first(&mut runs);
            let blocks = self.blocks_of(runs.iter().map(|(_, tuple)| tuple))?;
            if runs.is_empty() {
                break;
            }
            for (start, tuple) in runs {
                let part = (at - start) as usize..tuple.length.min(end - start) as usize;
                at = start + part.end as u64;
                while !crew.has_room(&tuple) {
                    sink(&opened(root, crew.next())?)?;
                }
                let blocks = self.chain(root, (start, &tuple), &blocks, &mut keys)?;
                crew.begin(LocatedRun { start, tuple, blocks, part });
            }
        }
        while !crew.is_idle() {
            sink(&opened(root, crew.next())?)?;
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
        start: u64,
        tuple: &Tuple,
        blocks: &HashMap<Digest, Bytes>,
    ) -> Result<Vec<u8>, VaultClientError> {
        let blocks = self.chain(root, (start, tuple), blocks, &mut HashMap::new())?;
        let part = 0..tuple.length as usize;
        opened(root, Some(LocatedRun { start, tuple: tuple.clone(), blocks, part }.open()))
    }

    /// The blocks of a run's chain, with their keys.
    fn chain(
        &self,
        root: &FileRoot,
        (start, tuple): (u64, &Tuple),
        blocks: &HashMap<Digest, Bytes>,
        keys: &mut HashMap<u32, Arc<FileKey>>,
    ) -> Result<Vec<(Arc<FileKey>, Bytes)>, VaultClientError> {
        let mut block = |reference: &BlockRef| -> Result<_, BlockError> {
            let lacking = BlockError::OtherBytes { hash: reference.hash, found: 0 };
            let bytes = blocks.get(&reference.hash).ok_or(lacking)?.clone();
            let key = match keys.entry(reference.epoch) {
                Entry::Occupied(found) => Arc::clone(found.get()),
                Entry::Vacant(none) => {
                    Arc::clone(none.insert(Arc::new(self.keys.file(root.file, reference.epoch)?)))
                }
            };
            Ok((key, bytes))
        };
        let chain = tuple.chain.iter().map(&mut block).collect::<Result<_, _>>();
        chain.map_err(|source| VaultClientError::Block { file: root.file, at: start, source })
    }

    fn fetch(
        &mut self,
        what: &'static str,
        wanted: &[WantedObject],
    ) -> Result<Vec<(Digest, Vec<u8>)>, VaultClientError> {
        Ok(held_objects(self.holders.as_deref_mut(), self.server, what, wanted)?)
    }

    /// The blocks of some runs.
    pub fn blocks_of<'t>(
        &mut self,
        runs: impl Iterator<Item = &'t Tuple>,
    ) -> Result<HashMap<Digest, Bytes>, VaultClientError> {
        let (mut found, mut missing, mut seen) = (HashMap::new(), Vec::new(), HashSet::new());
        for block in runs.flat_map(|tuple| &tuple.chain).filter(|block| seen.insert(block.hash)) {
            let kept = if self.use_cache { self.blocks.get(&block.hash) } else { None };
            match kept {
                Some(bytes) => drop(found.insert(block.hash, Bytes::from(bytes))),
                None => missing.push(WantedObject { name: block.hash, length: block.stored }),
            }
        }
        for some in missing.chunks(BLOCKS) {
            for (name, bytes) in self.fetch("block", some)? {
                if self.use_cache {
                    // A full disk costs the cache and nothing else.
                    let _ = self.blocks.add(&bytes);
                }
                found.insert(name, Bytes::from(bytes));
            }
        }
        Ok(found)
    }
}

/// What a run gives, or where it can't be decrypted.
type OpenedRun = Result<Vec<u8>, (u64, BlockError)>;

/// Threads that decrypt runs.
struct OpeningCrew {
    crew: OrderedCrew<LocatedRun, OpenedRun>,
    /// Of the runs that are under way, in order.
    costs: VecDeque<u64>,
    cost: u64,
}

/// A run, where it begins in its file, its blocks and keys, and which of its bytes are wanted.
struct LocatedRun {
    start: u64,
    tuple: Tuple,
    blocks: Vec<(Arc<FileKey>, Bytes)>,
    part: Range<usize>,
}

impl LocatedRun {
    fn open(self) -> OpenedRun {
        let mut plain = resolve(&self.tuple, &self.blocks).map_err(|error| (self.start, error))?;
        let offset = self.tuple.offset as usize;
        plain.truncate(offset + self.part.end);
        plain.drain(..offset + self.part.start);
        Ok(plain)
    }
}

impl OpeningCrew {
    fn new(threads: usize, waiting: usize) -> Self {
        let crew = OrderedCrew::new(waiting, (0..threads).map(|_| LocatedRun::open));
        Self { crew, costs: VecDeque::new(), cost: 0 }
    }

    /// False: a result has to be taken before this run goes in.
    fn has_room(&self, tuple: &Tuple) -> bool {
        !self.crew.is_full() && (self.crew.is_idle() || self.cost + cost_of(tuple) <= FETCHED)
    }

    const fn is_idle(&self) -> bool {
        self.crew.is_idle()
    }

    fn begin(&mut self, run: LocatedRun) {
        let cost = cost_of(&run.tuple);
        self.cost += cost;
        self.costs.push_back(cost);
        self.crew.begin(run);
    }

    fn next(&mut self) -> Option<OpenedRun> {
        self.cost -= self.costs.pop_front().unwrap_or(0);
        self.crew.next()
    }
}

/// Bytes that a run takes while it is read.
fn cost_of(tuple: &Tuple) -> u64 {
    u64::from(tuple.plain) + tuple.chain.iter().map(|block| u64::from(block.stored)).sum::<u64>()
}

/// Keeps so many runs as [`FETCHED`] has room for, and one at least.
fn keep_first(runs: &mut Vec<(u64, Tuple)>) {
    let costs = runs.iter().map(|(_, tuple)| cost_of(tuple));
    let sums = costs.scan(0, |sum, cost| Some(std::mem::replace(sum, *sum + cost)));
    let kept = sums.take_while(|before| *before < FETCHED).count();
    runs.truncate(kept);
}

fn opened(root: &FileRoot, run: Option<OpenedRun>) -> Result<Vec<u8>, VaultClientError> {
    let died = || VaultClientError::record_of("a block", "the thread that decrypts it died");
    let failed = |(at, source)| VaultClientError::Block { file: root.file, at, source };
    run.ok_or_else(died)?.map_err(failed)
}

#[cfg(test)]
mod tests {
    use towpath_vault_format::{BlockId, FileId, Padding};

    use super::*;
    use crate::block::{BlockKind, BlockSealer};

    const LARGE: usize = 500_000;

    /// A member may make long runs, whose blocks are small.
    #[test]
    fn large_runs_wait_for_room_whatever_the_crew_could_take() {
        let keys = VaultKeys::generate().unwrap();
        let key = || keys.file(FileId([1; 16]), 0).unwrap();
        let mut sealer = BlockSealer::new(key(), Padding::Padme);
        let sealed = sealer.seal(BlockId([2; 16]), BlockKind::Whole, &vec![7; LARGE]).unwrap();
        let tuple = Tuple::whole(sealed.reference, LARGE as u32);
        let blocks = vec![(Arc::new(key()), Bytes::from(sealed.bytes))];
        let mut crew = OpeningCrew::new(6, RUNS);
        let (mut came, mut most) = (0, 0);
        for start in 0..300 {
            while !crew.has_room(&tuple) {
                assert_eq!(crew.next().unwrap().unwrap().len(), LARGE);
                came += 1;
            }
            let (tuple, blocks) = (tuple.clone(), blocks.clone());
            crew.begin(LocatedRun { start, tuple, blocks, part: 0..LARGE });
            most = most.max(start + 1 - came);
        }
        assert!((60..=70).contains(&most), "{most}");
        while !crew.is_idle() {
            crew.next().unwrap().unwrap();
            came += 1;
        }
        assert_eq!((came, crew.cost), (300, 0));
    }
}
