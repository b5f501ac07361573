//! A file that the vault has not yet: its content is cut, sealed and sent in one pass. What is too long for one update is committed
//! in stages; the last runs are left for the version that gives it a name.

use std::collections::VecDeque;

use towpath_crew::{OrderedCrew, threads_beside};
use towpath_vault_format::steps::{cost_of_run, insertions};
use towpath_vault_format::{BlockId, Digest, FileId, FileUpdate, NewBlock, Tuple};

use crate::block::{BlockError, BlockKind, BlockSealer, SealedBlock};
use crate::client::VaultClient;
use crate::content::{ChunkKeys, PlainSource};
use crate::early::EarlyBlocks;
use crate::error::VaultClientError;
use crate::keys::random;
use crate::offer::offer_on_newest;
use crate::plan::{FilePlan, PlannedFile, PutStats};
use crate::summary::ChunkSummary;
use towpath_vault_difference::chunk_list::{ChunkList, ChunkTable};

/// Bytes of steps of one stage, about: client and server have them in memory several times over.
const STAGE: usize = 1 << 20;
/// Chunks that wait for one thread, at most.
const SEALED_AT_ONCE: usize = 64;
/// Chunks that wait for those before them, at most.
const WAITING: usize = 4096;

/// Threads that pack and encrypt.
type SealingCrew = OrderedCrew<(BlockId, Vec<u8>), Result<SealedBlock, BlockError>>;

/// A file that is being put.
struct FreshFile<'v> {
    vault: &'v mut VaultClient,
    file: FileId,
    epoch: u32,
    crew: SealingCrew,
    early: EarlyBlocks,
    waiting: VecDeque<WaitingChunk>,
    chunks: ChunkList,
    /// The first chunk with each content.
    seen: ChunkTable,
    stage: FreshStage,
    stats: PutStats,
    /// The vault's keys changed meanwhile, and what was sealed with the old ones is not to be named; or its stages were collected.
    is_outdated: bool,
}

/// Runs that are not committed yet.
#[derive(Default)]
struct FreshStage {
    /// Where they begin in the file.
    start: u64,
    end: u64,
    /// Where each begins.
    starts: Vec<u64>,
    tuples: Vec<Tuple>,
    blocks: Vec<NewBlock>,
    cost: usize,
}

/// A chunk whose run is not known yet.
enum WaitingChunk {
    /// It is being sealed.
    Sealed(u32),
    /// It has the content of the chunk that begins there.
    Again(u64, u32),
}

/// Puts a content as a new file. `None`: it has to be begun again, as the vault's keys changed or its stages are gone.
pub fn put_fresh(
    vault: &mut VaultClient,
    source: &dyn PlainSource,
    progress: &mut dyn FnMut(u64),
) -> Result<Option<PlannedFile>, VaultClientError> {
    let file = FileId(random()?);
    let keys = ChunkKeys::of(&vault.keys, file);
    let mut fresh = FreshFile::new(vault, file)?;
    let taken = source.chunks(&keys, progress, &mut |chunk, bytes| fresh.take(chunk, bytes));
    let settled = taken.and_then(|()| fresh.settle_all());
    if fresh.is_outdated {
        return Ok(None);
    }
    settled.and_then(|()| fresh.finish())
}

impl<'v> FreshFile<'v> {
    fn new(vault: &'v mut VaultClient, file: FileId) -> Result<Self, VaultClientError> {
        let (epoch, padding) = (vault.keys.epoch(), vault.head.signed.root.parameters.padding);
        let sealers = (0..threads_beside()).map(|_| vault.keys.file(file, epoch));
        let sealers = sealers.map(|key| key.map(|key| BlockSealer::new(key, padding)));
        let sealers = sealers.collect::<Result<Vec<_>, _>>()?.into_iter();
        let work = |mut sealer: BlockSealer| {
            move |(id, content): (BlockId, Vec<u8>)| sealer.seal(id, BlockKind::Whole, &content)
        };
        let crew = SealingCrew::new(SEALED_AT_ONCE, sealers.map(work));
        Ok(Self {
            vault,
            file,
            epoch,
            crew,
            early: EarlyBlocks::default(),
            waiting: VecDeque::new(),
            chunks: ChunkList::default(),
            seen: ChunkTable::default(),
            stage: FreshStage::default(),
            stats: PutStats::default(),
            is_outdated: false,
        })
    }

    /// Takes the next chunk.
    fn take(&mut self, chunk: ChunkSummary, bytes: Option<&[u8]>) -> Result<(), VaultClientError> {
        let length = chunk.length;
        self.chunks.push(chunk);
        match self.seen.find(&self.chunks, &chunk) {
            Some(first) => {
                self.waiting.push_back(WaitingChunk::Again(self.chunks.start(first), length));
            }
            None => {
                self.seen.add(&self.chunks, self.chunks.chunks().len() as u32 - 1);
                while self.crew.is_full() {
                    self.settle()?;
                }
                self.crew.begin((self.vault.ids.next(), bytes.unwrap_or_default().to_vec()));
                self.waiting.push_back(WaitingChunk::Sealed(length));
            }
        }
        if self.waiting.len() > WAITING { self.settle() } else { Ok(()) }
    }

    /// Ends the chunk that waits longest.
    fn settle(&mut self) -> Result<(), VaultClientError> {
        let tuple = match self.waiting.pop_front() {
            None => return Ok(()),
            Some(WaitingChunk::Sealed(length)) => self.sealed(length)?,
            Some(WaitingChunk::Again(start, length)) => {
                self.stats.reused += u64::from(length);
                self.run_at(start, length)?
            }
        };
        self.stage.push(tuple);
        if self.stage.cost >= STAGE { self.commit() } else { Ok(()) }
    }

    /// The run of a chunk whose block is made.
    fn sealed(&mut self, length: u32) -> Result<Tuple, VaultClientError> {
        let failed = |why: String| VaultClientError::Record { what: "a new block", why };
        let block = self.crew.next_done().ok_or_else(|| failed("its thread died".into()))?;
        let block = block.map_err(|error| failed(error.to_string()))?;
        self.stats.whole += u64::from(length);
        self.stats.whole_stored += block.bytes.len() as u64;
        self.stats.padding += block.padding as u64;
        let added = self.vault.blocks.add_named(block.reference.hash, &block.bytes);
        added.map_err(|error| VaultClientError::Record { what: "new blocks", why: error.to_string() })?;
        self.early.add(self.vault.server.as_mut(), block.bytes)?;
        self.stage.blocks.push(NewBlock { hash: block.reference.hash, stored: block.reference.stored });
        Ok(Tuple::whole(block.reference, length))
    }

    /// The run of a chunk that was there before.
    fn run_at(&mut self, start: u64, length: u32) -> Result<Tuple, VaultClientError> {
        if let Ok(place) = self.stage.starts.binary_search(&start) {
            return Ok(self.stage.tuples[place].clone());
        }
        let root = self.vault.file_root(self.file);
        let found = self.vault.reader().tuples(&root, start..start + u64::from(length), 1)?;
        let is_it = |(from, tuple): &(u64, Tuple)| *from == start && tuple.length == u64::from(length);
        let lost = || VaultClientError::record_of("the new file", "a run of it is gone");
        found.into_iter().find(is_it).map(|(_, tuple)| tuple).ok_or_else(lost)
    }

    /// Commits the runs that are there. It fails where all has to be begun again.
    fn commit(&mut self) -> Result<(), VaultClientError> {
        let FreshStage { start, end, tuples, blocks, .. } = std::mem::take(&mut self.stage);
        (self.stage.start, self.stage.end) = (end, end);
        // What waits here would be asked for now, and go again later.
        self.early.finish(self.vault.server.as_mut())?;
        let actions = insertions(start, &tuples);
        let change = FileUpdate { file: self.file, epoch: self.epoch, actions };
        let base = self.base();
        match offer_on_newest(self.vault, vec![(change, base)], &blocks)? {
            Some(bytes) => {
                self.stats.actions += bytes;
                Ok(())
            }
            None => {
                self.is_outdated = true;
                Err(VaultClientError::record_of("the new file", "the vault moved on"))
            }
        }
    }

    fn base(&self) -> Digest {
        self.vault.head.signed.root.base_of(&self.file)
    }

    /// All chunks came.
    fn settle_all(&mut self) -> Result<(), VaultClientError> {
        while !self.waiting.is_empty() {
            self.settle()?;
        }
        Ok(())
    }

    /// The plan of what is left.
    fn finish(mut self) -> Result<Option<PlannedFile>, VaultClientError> {
        self.early.finish(self.vault.server.as_mut())?;
        let base = self.base();
        let Self { file, epoch, chunks, stage, mut stats, .. } = self;
        stats.length = chunks.length();
        let plan =
            FilePlan { actions: insertions(stage.start, &stage.tuples), blocks: stage.blocks, chunks, stats };
        Ok(Some(PlannedFile { file, base, epoch, plan }))
    }
}

impl FreshStage {
    fn push(&mut self, tuple: Tuple) {
        self.cost += cost_of_run(&tuple);
        self.starts.push(self.end);
        self.end += tuple.length;
        self.tuples.push(tuple);
    }
}
