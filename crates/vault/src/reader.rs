//! Reading files of a vault: nodes and blocks come from this machine's caches, else from the server or other holders, and each is proved by
//! what names it, from the signed root on.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;

use bytes::Bytes;
use towpath_crew::{OrderedCrew, threads_beside};
use towpath_vault_format::tree::{NodeSource, SourceFault, TupleWalk, missing_nodes};
use towpath_vault_format::{BlockRef, Digest, FileRoot, Tuple};

use crate::block::BlockError;
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
/// Bytes of a file whose blocks are fetched together, about.
const AHEAD: u64 = 16 << 20;
/// Bytes of blocks and plaintext that are fetched together, and that are decrypted at one time, at most: whatever a file's tree says. One run
/// may be more. It has room for what [`AHEAD`] brings, so that this is decrypted while more is fetched.
const FETCHED: u64 = 32 << 20;
/// Bytes of blocks and plaintext of the runs that one thread gives another at once.
const TOGETHER: u64 = 256 << 10;
/// So many times that wait to be decrypted, of which [`FETCHED`] is reached first.
const MOST_OPENED: usize = 256;
/// And of plaintext that waits to be taken.
const WAITING: usize = 32;
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
            for (name, bytes) in self.fetch("node", &wanted)? {
                self.nodes.add_named(name, &bytes).map_err(cannot_keep)?;
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

    /// Gives the bytes of a range to `sink`, run by run. Runs are decrypted on other threads, and `sink` works on one of its own, while others
    /// are fetched.
    pub fn read(
        &mut self,
        root: &FileRoot,
        range: Range<u64>,
        sink: &mut RunSink<'_>,
    ) -> Result<(), VaultClientError> {
        let beside =
            is_long(root, &range).then(|| beside(sink, |sink| self.read_here(root, range.clone(), sink)));
        let mut each = |runs: Vec<Vec<u8>>| runs.iter().try_for_each(|run| sink(run));
        beside.flatten().unwrap_or_else(|| self.read_here(root, range, &mut each))
    }

    fn read_here(
        &mut self,
        root: &FileRoot,
        range: Range<u64>,
        sink: &mut dyn FnMut(Vec<Vec<u8>>) -> Result<(), VaultClientError>,
    ) -> Result<(), VaultClientError> {
        let (mut at, end) = (range.start, range.end.min(root.length));
        // What the cache has no room for would push out all that is there, and then its own beginning.
        let keeps = root.length <= self.blocks.limit();
        // Whoever fetches waits for the server, and leaves its core to one more.
        let mut crew = OpeningCrew::new(if is_long(root, &range) { threads_beside() + 1 } else { 1 });
        let mut keys = HashMap::new();
        while at < end {
            // Some runs ahead, so that nodes and blocks come many at a time.
            let mut runs = self.tuples(root, at..end.min(at.saturating_add(AHEAD)), RUNS)?;
            keep_first(&mut runs);
            let blocks = self.blocks_of(keeps, runs.iter().map(|(_, tuple)| tuple))?;
            if runs.is_empty() {
                break;
            }
            let mut runs = runs.into_iter().peekable();
            while runs.peek().is_some() {
                let (mut some, mut cost) = (Vec::new(), 0);
                while cost < TOGETHER
                    && let Some((start, tuple)) = runs.next()
                {
                    let part = (at - start) as usize..tuple.length.min(end - start) as usize;
                    at = start + part.end as u64;
                    cost += cost_of(&tuple);
                    let blocks = self.chain(root, (start, &tuple), &blocks, &mut keys)?;
                    some.push(LocatedRun { start, tuple, blocks, part });
                }
                while !crew.has_room(cost) {
                    sink(opened(root, crew.next())?)?;
                }
                crew.begin(some, cost);
            }
        }
        while !crew.is_idle() {
            sink(opened(root, crew.next())?)?;
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

    /// The blocks of some runs. With `keeps` those that were fetched are here from now on.
    pub fn blocks_of<'t>(
        &mut self,
        keeps: bool,
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
                if self.use_cache && keeps {
                    // A full disk costs the cache and nothing else.
                    let _ = self.blocks.add_named(name, &bytes);
                }
                found.insert(name, Bytes::from(bytes));
            }
        }
        Ok(found)
    }
}

/// What takes the bytes of runs.
pub type RunSink<'a> = dyn FnMut(&[u8]) -> Result<(), VaultClientError> + Send + 'a;

/// Calls `read` with a sink that gives what it gets to `sink`, on another thread; `None`: the system gives no thread, and nothing was read.
fn beside(
    sink: &mut RunSink<'_>,
    read: impl FnOnce(
        &mut dyn FnMut(Vec<Vec<u8>>) -> Result<(), VaultClientError>,
    ) -> Result<(), VaultClientError>,
) -> Option<Result<(), VaultClientError>> {
    let (give, given) = sync_channel::<Vec<Vec<u8>>>(WAITING);
    let died = || VaultClientError::record_of("a file", "the thread that takes its bytes died");
    thread::scope(|scope| {
        let main = move || given.into_iter().flatten().try_for_each(|run| sink(&run));
        let taking = thread::Builder::new().spawn_scoped(scope, main).ok()?;
        let read = read(&mut |runs| give.send(runs).map_err(|_| died()));
        drop(give);
        // Where it ended early, this says why.
        let taken = taking.join().unwrap_or_else(|_| Err(died()));
        Some(taken.and(read))
    })
}

/// True if this is more than one thread reads at once.
fn is_long(root: &FileRoot, range: &Range<u64>) -> bool {
    range.end.min(root.length).saturating_sub(range.start) > AHEAD / 16
}

/// What a run gives, or some, or where one can't be decrypted.
type OpenedRuns<Plain> = Result<Plain, (u64, BlockError)>;

/// Threads that decrypt runs.
struct OpeningCrew {
    crew: OrderedCrew<Vec<LocatedRun>, OpenedRuns<Vec<Vec<u8>>>>,
    /// Of what is under way, in order.
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
    fn open(self) -> OpenedRuns<Vec<u8>> {
        let mut plain = resolve(&self.tuple, &self.blocks).map_err(|error| (self.start, error))?;
        let offset = self.tuple.offset as usize;
        plain.truncate(offset + self.part.end);
        plain.drain(..offset + self.part.start);
        Ok(plain)
    }
}

impl OpeningCrew {
    fn new(threads: usize) -> Self {
        let open = |runs: Vec<LocatedRun>| runs.into_iter().map(LocatedRun::open).collect();
        let crew = OrderedCrew::new(MOST_OPENED, (0..threads).map(|_| open));
        Self { crew, costs: VecDeque::new(), cost: 0 }
    }

    /// False: a result has to be taken before runs of this cost go in.
    fn has_room(&self, cost: u64) -> bool {
        !self.crew.is_full() && (self.crew.is_idle() || self.cost + cost <= FETCHED)
    }

    const fn is_idle(&self) -> bool {
        self.crew.is_idle()
    }

    fn begin(&mut self, runs: Vec<LocatedRun>, cost: u64) {
        self.cost += cost;
        self.costs.push_back(cost);
        self.crew.begin(runs);
    }

    fn next(&mut self) -> Option<OpenedRuns<Vec<Vec<u8>>>> {
        self.cost -= self.costs.pop_front().unwrap_or(0);
        self.crew.next_done()
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

fn opened<Plain>(root: &FileRoot, run: Option<OpenedRuns<Plain>>) -> Result<Plain, VaultClientError> {
    let died = || VaultClientError::record_of("a block", "the thread that decrypts it died");
    let failed = |(at, source)| VaultClientError::Block { file: root.file, at, source };
    run.ok_or_else(died)?.map_err(failed)
}

#[cfg(test)]
mod tests {
    use towpath_vault_format::tree::{NodeMap, TreeEditor};
    use towpath_vault_format::{BlockId, FileId, Padding};

    use super::*;
    use crate::block::{BlockKind, BlockSealer};
    use crate::local::PackReader;
    use crate::looking::LookingServer;

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
        let mut crew = OpeningCrew::new(6);
        let (mut came, mut most) = (0, 0);
        for start in 0..300 {
            let cost = cost_of(&tuple);
            while !crew.has_room(cost) {
                assert_eq!(crew.next().unwrap().unwrap()[0].len(), LARGE);
                came += 1;
            }
            let (tuple, blocks) = (tuple.clone(), blocks.clone());
            crew.begin(vec![LocatedRun { start, tuple, blocks, part: 0..LARGE }], cost);
            most = most.max(start + 1 - came);
        }
        assert!((60..=70).contains(&most), "{most}");
        while !crew.is_idle() {
            crew.next().unwrap().unwrap();
            came += 1;
        }
        assert_eq!((came, crew.cost), (300, 0));
    }

    /// A file of runs of 100,000 bytes, on a server that is a folder.
    struct StoredFile {
        folder: tempfile::TempDir,
        keys: VaultKeys,
        root: FileRoot,
        content: Vec<u8>,
        first: Digest,
    }

    const DEGREE: u8 = 16;

    fn stored(runs: u32) -> StoredFile {
        let (folder, keys) = (tempfile::tempdir().unwrap(), VaultKeys::generate().unwrap());
        let file = FileId([1; 16]);
        let mut sealer = BlockSealer::new(keys.file(file, 0).unwrap(), Padding::Padme);
        let mut store = BlobCache::open(&folder.path().join("server"), u64::MAX).unwrap();
        let (mut content, mut tuples) = (Vec::new(), Vec::new());
        for run in 0..runs {
            let plain: Vec<u8> = (0..25_000).flat_map(|at: u32| (at ^ run << 16).to_le_bytes()).collect();
            let sealed = sealer.seal(BlockId([run as u8; 16]), BlockKind::Whole, &plain).unwrap();
            store.add(&sealed.bytes).unwrap();
            tuples.push(Tuple::whole(sealed.reference, plain.len() as u32));
            content.extend(plain);
        }
        let first = tuples[0].chain[0].hash;
        let none = NodeMap::default();
        let editor = TreeEditor::new(&none, DEGREE, &FileRoot::empty(file, 0));
        let (root, nodes) = editor.insert(0, tuples).unwrap().finish();
        for node in &nodes {
            store.add(&node.bytes).unwrap();
        }
        StoredFile { folder, keys, root, content, first }
    }

    impl StoredFile {
        /// Reads all of it with a cache of so many bytes; whether its first block is kept there.
        fn read(&self, room: u64, sink: &mut RunSink<'_>) -> (Result<(), VaultClientError>, bool) {
            let cache = |name: &str| BlobCache::open(&self.folder.path().join(name), room).unwrap();
            let (mut nodes, mut blocks) = (cache("nodes"), cache(&format!("blocks-{room}")));
            let gone = Err(crate::server::ServerError::Unreachable("it is a folder".into()));
            let packs = PackReader::open(&[&self.folder.path().join("server")]);
            let mut server = LookingServer::new(packs, gone);
            let (nodes, blocks_here, keys) = (&mut nodes, &mut blocks, &self.keys);
            let mut reader = FileReader {
                server: &mut server,
                holders: None,
                nodes,
                blocks: blocks_here,
                keys,
                degree: DEGREE,
                use_cache: true,
            };
            let read = reader.read(&self.root, 0..self.root.length, sink);
            (read, blocks.has(&self.first))
        }
    }

    #[test]
    fn what_the_cache_has_no_room_for_is_read_and_not_kept() {
        for runs in [3, 200] {
            let file = stored(runs);
            for (room, expected) in [(file.root.length - 1, false), (file.root.length, true)] {
                let mut came = Vec::new();
                let (read, is_kept) = file.read(room, &mut |run| {
                    came.extend_from_slice(run);
                    Ok(())
                });
                read.unwrap();
                assert!(came == file.content, "{runs} runs");
                assert_eq!(is_kept, expected, "{runs} runs, room for {room}");
            }
        }
    }

    #[test]
    fn whoever_takes_the_bytes_may_end_it() {
        let file = stored(200);
        for most in [0, 100, 199] {
            let mut left = most;
            let (read, _) = file.read(u64::MAX, &mut |_| {
                left = usize::checked_sub(left, 1).ok_or(VaultClientError::ReadOnly)?;
                Ok(())
            });
            assert!(matches!(read, Err(VaultClientError::ReadOnly)), "{most}: {read:?}");
        }
        let (read, _) = file.read(u64::MAX, &mut |_| panic!("it dies"));
        assert!(matches!(read, Err(VaultClientError::Record { .. })), "{read:?}");
    }
}
