//! What makes the new version of a file of the old one: runs that go, runs that come, and the blocks that are new.
//!
//! | a new chunk is | then it costs |
//! |---|---|
//! | where it was | nothing |
//! | anywhere else in the old version, or in the new one before | a reference |
//! | a little different from an old chunk at its place, or from one that goes and has bytes in common with it ([`towpath_vault_difference`]), whose blocks are on this machine | a patch |
//! | none of these | a whole block |
//! | where it was, and had better be written anew by what the line carries (`anew`) | a whole block |

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use towpath_vault_difference::difference::{ChangedRun, difference};
use towpath_vault_difference::likeness::LikeChunks;
use towpath_vault_format::defragmentation::{DefragmentationPlan, LinkCosts};
use towpath_vault_format::steps::{are_few, insertions};
use towpath_vault_format::{BlockId, BlockIds, Digest, FileId, FileRoot, NewBlock, Tuple, UpdateAction};

use crate::anew::{PlannedRun, defragmentation, with_rewrites};
use crate::block::{BlockKind, BlockSealer, SealedBlock};
use crate::content::{ChunkKeys, PlainSource, chunks_of};
use crate::early::EarlyBlocks;
use crate::error::VaultClientError;
use crate::patches::{MAX_BASES, PatchBase, choose, is_worth_it, may_grow, patched};
use crate::reader::FileReader;
use crate::summary::{ChunkSummary, FileSummary, PlainHash};
use towpath_vault_difference::chunk_list::{ChunkList, ChunkTable};

/// Patches that were tried in vain in a row, after which only some chunks of a run are tried.
const MOST_IN_VAIN: u32 = 8;
/// Old chunks that are looked at for one new chunk, at most.
const GONE: usize = 8;
/// Old chunks whose runs are looked up at once.
const SAMPLED_AT_ONCE: usize = 64;
/// Bytes of a chunk, about.
const MEAN_CHUNK: u64 = 8 << 10;
/// Bytes that a new chunk costs in an update at least.
const LEAST_RUN: usize = 104;

/// What a put did, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PutStats {
    /// Plaintext.
    pub length: u64,
    /// Plaintext that stays or is referenced again.
    pub reused: u64,
    /// Plaintext that went as whole blocks.
    pub whole: u64,
    /// Plaintext that went as patches.
    pub patched: u64,
    /// Ciphertext of whole blocks.
    pub whole_stored: u64,
    /// Ciphertext of patches.
    pub patches_stored: u64,
    /// Of the ciphertext: padding.
    pub padding: u64,
    /// Updates, roots and signatures.
    pub actions: u64,
    /// Ciphertext of blocks that were written anew, about: part of `whole_stored`.
    pub rewritten: u64,
    /// Ciphertext that nobody has to read any more thanks to that.
    pub saved: u64,
    /// The same of what stays as it is.
    pub left: u64,
}

/// The new version of a file.
#[derive(Debug)]
pub struct FilePlan {
    /// Steps from the old one.
    pub actions: Vec<UpdateAction>,
    /// Blocks that it has and the old one has not.
    pub blocks: Vec<NewBlock>,
    /// Its chunks.
    pub chunks: ChunkList,
    /// What it costs.
    pub stats: PutStats,
}

/// The version that a plan starts from: its root, and its chunks.
struct OldContent<'a> {
    root: &'a FileRoot,
    chunks: &'a ChunkList,
    table: ChunkTable,
    /// Of the chunks that go.
    like: LikeChunks,
}

/// A file's new version, and what it is based on.
#[derive(Debug)]
pub struct PlannedFile {
    /// The file.
    pub file: FileId,
    /// Hash of the root that the steps start from; [`Digest::NONE`]: there is none.
    pub base: Digest,
    /// Epoch of the keys that its blocks are sealed with.
    pub epoch: u32,
    /// The steps.
    pub plan: FilePlan,
}

/// Plans one file.
pub struct Planner<'a, 'r> {
    reader: &'a mut FileReader<'r>,
    sealer: BlockSealer,
    ids: BlockIds,
    keys: ChunkKeys,
    patches: bool,
    costs: LinkCosts,
    /// Bytes that steps may have, about.
    room: usize,
    early: EarlyBlocks,
}

/// A run that comes, and the old chunk that its last block is a patch on, if that is so.
type NewRun = (Tuple, Option<usize>);

impl PutStats {
    /// Adds those of another file.
    pub fn add(&mut self, other: &Self) {
        self.length += other.length;
        self.reused += other.reused;
        self.whole += other.whole;
        self.patched += other.patched;
        self.whole_stored += other.whole_stored;
        self.patches_stored += other.patches_stored;
        self.padding += other.padding;
        self.actions += other.actions;
        self.rewritten += other.rewritten;
        self.saved += other.saved;
        self.left += other.left;
    }

    fn note(&mut self, planned: &DefragmentationPlan) {
        (self.rewritten, self.saved, self.left) = (planned.sent, planned.saved, planned.left);
    }

    /// Bytes that were sent for it, as far as they are no frames.
    pub const fn uploaded(&self) -> u64 {
        self.whole_stored + self.patches_stored + self.actions
    }
}

impl<'a, 'r> Planner<'a, 'r> {
    /// Reads the old version by `reader`, cuts and hashes by `keys`, encrypts by `sealer` under these ids. With `patches`, where a chunk changed a little, a
    /// patch goes; what `costs` are worth is written anew. Steps have `room` bytes.
    pub fn new(
        reader: &'a mut FileReader<'r>,
        (sealer, ids): (BlockSealer, BlockIds),
        keys: ChunkKeys,
        (patches, costs, room): (bool, LinkCosts, usize),
    ) -> Self {
        Self { reader, sealer, ids, keys, patches, costs, room, early: EarlyBlocks::default() }
    }

    /// Plans the new version `source` of the file whose old version has this root and summary. `None`: it has too much that is new for one
    /// update.
    pub fn plan(
        &mut self,
        root: &FileRoot,
        old: &FileSummary,
        source: &dyn PlainSource,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Option<FilePlan>, VaultClientError> {
        let chunks = chunks_of(source, &self.keys, progress)?;
        let stats = PutStats { length: source.length(), reused: source.length(), ..PutStats::default() };
        let changes = difference(old.chunks.chunks(), chunks.chunks());
        let least = changes.iter().map(|run| run.new.len() * LEAST_RUN).sum::<usize>();
        if least > self.room {
            return Ok(None);
        }
        let mut repeated = repeated(changes.iter().flat_map(|run| &chunks.chunks()[run.new.clone()]));
        let table = if changes.is_empty() { ChunkTable::default() } else { ChunkTable::of(&old.chunks) };
        let mut old = OldContent { root, chunks: &old.chunks, table, like: LikeChunks::default() };
        old.like = self.likeness(&old, &changes)?;
        let mut plan = FilePlan { actions: Vec::new(), blocks: Vec::new(), chunks, stats };
        let has_room = !changes.is_empty() && least < self.room / 2;
        let planned = if has_room { defragmentation(self.reader, root, &self.costs) } else { None };
        let planned = planned.unwrap_or_default();
        plan.stats.note(&planned);
        for PlannedRun { run, is_anew } in with_rewrites(changes, old.chunks, &planned) {
            let at = plan.chunks.start(run.new.start);
            let runs = match is_anew {
                false => self.run(&mut plan, &old, &run, source, &mut repeated)?,
                true => self.anew(&mut plan, &run, source, &mut repeated)?,
            };
            plan.actions.extend(steps(at, old.chunks, run.old, runs));
        }
        self.early.finish(self.reader.server)?;
        Ok(are_few(&plan.actions, self.room).then_some(plan))
    }

    /// The runs of chunks that come.
    fn run(
        &mut self,
        plan: &mut FilePlan,
        old: &OldContent<'_>,
        run: &ChangedRun,
        source: &dyn PlainSource,
        repeated: &mut HashMap<PlainHash, Option<Tuple>>,
    ) -> Result<Vec<NewRun>, VaultClientError> {
        let mut runs = Vec::with_capacity(run.new.len());
        let mut in_vain = 0u32;
        for at in run.new.clone() {
            let chunk = plan.chunks.chunks()[at];
            if let Some(tuple) = self.found_again(old, &chunk, repeated)? {
                runs.push((tuple, None));
                continue;
            }
            let bytes = self.chunk(source, plan.chunks.start(at), &chunk)?;
            let is_tried = self.patches && in_vain.saturating_sub(MOST_IN_VAIN).is_multiple_of(8);
            let like = old.like.find(&bytes);
            let is_tried = is_tried || !like.is_empty();
            let bases = if is_tried { self.bases(old, (run, at), &like)? } else { Vec::new() };
            let (tuple, base) = self.new_tuple(plan, &bases, &bytes)?;
            in_vain = if base.is_some() { 0 } else { in_vain + 1 };
            if let Some(known) = repeated.get_mut(&chunk.hash) {
                *known = Some(tuple.clone());
            }
            runs.push((tuple, base));
        }
        Ok(runs)
    }

    /// The bytes of a chunk of what is put.
    fn chunk(
        &self,
        source: &dyn PlainSource,
        at: u64,
        chunk: &ChunkSummary,
    ) -> Result<Vec<u8>, VaultClientError> {
        let bytes = source.read(at, chunk.length as usize)?;
        match self.keys.summary(&bytes) == *chunk {
            true => Ok(bytes),
            false => Err(VaultClientError::record_of("the content", "it changed while it was read")),
        }
    }

    /// The runs of chunks that stay, of new blocks.
    fn anew(
        &mut self,
        plan: &mut FilePlan,
        run: &ChangedRun,
        source: &dyn PlainSource,
        repeated: &mut HashMap<PlainHash, Option<Tuple>>,
    ) -> Result<Vec<NewRun>, VaultClientError> {
        let mut runs = Vec::with_capacity(run.new.len());
        for at in run.new.clone() {
            let chunk = plan.chunks.chunks()[at];
            if let Some(Some(tuple)) = repeated.get(&chunk.hash) {
                runs.push((tuple.clone(), None));
                continue;
            }
            let bytes = self.chunk(source, plan.chunks.start(at), &chunk)?;
            let (tuple, _) = self.new_tuple(plan, &[], &bytes)?;
            if let Some(known) = repeated.get_mut(&chunk.hash) {
                *known = Some(tuple.clone());
            }
            runs.push((tuple, None));
        }
        Ok(runs)
    }

    /// The run of a chunk that the old version has, or the new one had before.
    fn found_again(
        &mut self,
        old: &OldContent<'_>,
        chunk: &ChunkSummary,
        repeated: &HashMap<PlainHash, Option<Tuple>>,
    ) -> Result<Option<Tuple>, VaultClientError> {
        if let Some(Some(tuple)) = repeated.get(&chunk.hash) {
            return Ok(Some(tuple.clone()));
        }
        match old.table.find(old.chunks, chunk) {
            Some(at) => self.old_tuple(old, at),
            None => Ok(None),
        }
    }

    /// The run that is exactly an old chunk.
    fn old_tuple(&mut self, old: &OldContent<'_>, at: usize) -> Result<Option<Tuple>, VaultClientError> {
        let (start, end) = (old.chunks.start(at), old.chunks.start(at + 1));
        let found = self.reader.tuples(old.root, start..end, 1)?;
        let is_it = |(from, tuple): &(u64, Tuple)| *from == start && tuple.length == end - start;
        Ok(found.into_iter().find(is_it).map(|(_, tuple)| tuple))
    }

    /// Windows of the old chunks that go, of those whose blocks are on this machine.
    fn likeness(
        &mut self,
        old: &OldContent<'_>,
        changes: &[ChangedRun],
    ) -> Result<LikeChunks, VaultClientError> {
        let new: usize = changes.iter().map(|run| run.new.len()).sum();
        let gone: usize = changes.iter().map(|run| run.old.len()).sum();
        if !self.patches || new == 0 || gone <= MAX_BASES {
            return Ok(LikeChunks::default());
        }
        let mut room = GONE * new + SAMPLED_AT_ONCE;
        let mut like = LikeChunks::of(gone.min(room) as u64 * MEAN_CHUNK);
        for run in changes {
            for first in run.old.clone().step_by(SAMPLED_AT_ONCE) {
                let numbers = first..run.old.end.min(first + SAMPLED_AT_ONCE);
                room = room.saturating_sub(numbers.len());
                if room == 0 || !self.sample(old, numbers, &mut like)? {
                    return Ok(like.sorted());
                }
            }
        }
        Ok(like.sorted())
    }

    /// Adds windows of some old chunks. False: none of them is on this machine.
    fn sample(
        &mut self,
        old: &OldContent<'_>,
        numbers: Range<usize>,
        like: &mut LikeChunks,
    ) -> Result<bool, VaultClientError> {
        let range = old.chunks.start(numbers.start)..old.chunks.start(numbers.end);
        let runs = self.reader.tuples(old.root, range.clone(), 2 * SAMPLED_AT_ONCE)?;
        let mut start = range.start;
        for number in numbers {
            let length = u64::from(old.chunks.chunks()[number].length);
            let run = runs.iter().find(|(from, tuple)| *from == start && tuple.length == length);
            let base = run.map(|(_, tuple)| self.base(old, number, tuple.clone())).transpose()?.flatten();
            if let Some(base) = base {
                like.add(number as u32, &base.plain);
            }
            start += length;
        }
        Ok(runs.iter().any(|(_, tuple)| self.is_here(tuple)))
    }

    /// Old chunks that a new one may be made of: those that are like it; if there are none, those near its place.
    fn bases(
        &mut self,
        old: &OldContent<'_>,
        (run, at): (&ChangedRun, usize),
        like: &[u32],
    ) -> Result<Vec<PatchBase>, VaultClientError> {
        let place = (at - run.new.start) * run.old.len() / run.new.len().max(1);
        let first = (run.old.start + place).saturating_sub(1).max(run.old.start);
        let near = first..run.old.end.min(first + MAX_BASES);
        let near = near.filter(|_| like.is_empty());
        let numbers = like.iter().map(|number| *number as usize).chain(near);
        let mut bases = Vec::new();
        for number in numbers {
            let Some(tuple) = self.old_tuple(old, number)? else { continue };
            bases.extend(self.base(old, number, tuple)?);
        }
        Ok(bases)
    }

    /// True if all blocks of a run are on this machine.
    fn is_here(&self, tuple: &Tuple) -> bool {
        tuple.chain.iter().all(|block| self.reader.blocks.has(&block.hash))
    }

    /// The old chunk of this number, if its blocks are on this machine and it may have one patch more.
    fn base(
        &mut self,
        old: &OldContent<'_>,
        chunk: usize,
        tuple: Tuple,
    ) -> Result<Option<PatchBase>, VaultClientError> {
        if !self.is_here(&tuple) || !may_grow(&tuple) {
            return Ok(None);
        }
        let blocks = self.reader.blocks_of(true, [&tuple].into_iter())?;
        // A damaged base is none.
        let plain = self.reader.plain(old.root, old.chunks.start(chunk), &tuple, &blocks).ok();
        Ok(plain.map(|plain| PatchBase { chunk, tuple, plain }))
    }

    /// A new block for a chunk: the run that gives it, and the old chunk that it is a patch on.
    fn new_tuple(
        &mut self,
        plan: &mut FilePlan,
        bases: &[PatchBase],
        bytes: &[u8],
    ) -> Result<NewRun, VaultClientError> {
        let length = bytes.len() as u32;
        // One of both goes out, so both have one id.
        let id = self.ids.next();
        let whole = seal(&mut self.sealer, id, BlockKind::Whole, bytes)?;
        let stats = &mut plan.stats;
        stats.reused -= u64::from(length);
        let (block, run) = match patch_of(&mut self.sealer, bases, bytes, &whole)? {
            Some((block, base)) => {
                stats.patched += u64::from(length);
                stats.patches_stored += block.bytes.len() as u64;
                let tuple = patched(&base.tuple, block.reference, length);
                (block, (tuple, Some(base.chunk)))
            }
            None => {
                stats.whole += u64::from(length);
                stats.whole_stored += whole.bytes.len() as u64;
                let tuple = Tuple::whole(whole.reference, length);
                (whole, (tuple, None))
            }
        };
        stats.padding += block.padding as u64;
        let added = self.reader.blocks.add_named(block.reference.hash, &block.bytes);
        added.map_err(|error| VaultClientError::Record { what: "new blocks", why: error.to_string() })?;
        plan.blocks.push(NewBlock { hash: block.reference.hash, stored: block.reference.stored });
        self.early.add(self.reader.server, block.bytes)?;
        Ok(run)
    }
}

/// Steps that put runs in the place of old chunks, the first of which begins at `at` by then. A patch on one of them, in their order, is a
/// step of its own: it need not say again what the chunk consists of.
fn steps(mut at: u64, chunks: &ChunkList, old: Range<usize>, runs: Vec<NewRun>) -> Vec<UpdateAction> {
    let (mut steps, mut coming, mut left) = (Vec::new(), Vec::new(), old.start);
    let put = |at: &mut u64, coming: &mut Vec<Tuple>, steps: &mut Vec<UpdateAction>| {
        steps.extend(insertions(*at, coming));
        *at += coming.drain(..).map(|tuple: Tuple| tuple.length).sum::<u64>();
    };
    let gone = |at: u64, from: usize, to: usize| {
        let length = chunks.start(to) - chunks.start(from);
        (length > 0).then_some(UpdateAction::Delete { at, length })
    };
    for (tuple, base) in runs {
        let base = base.filter(|base| (left..old.end).contains(base));
        let (Some(base), Some(block)) = (base, tuple.chain.last()) else {
            coming.push(tuple);
            continue;
        };
        put(&mut at, &mut coming, &mut steps);
        steps.extend(gone(at, left, base));
        steps.push(UpdateAction::Patch { at, plain: tuple.plain, block: *block });
        (at, left) = (at + tuple.length, base + 1);
    }
    steps.extend(gone(at, left, old.end));
    put(&mut at, &mut coming, &mut steps);
    steps
}

/// A patch that makes `bytes` of one of `bases`, and that one, if it saves enough of the `whole` block.
fn patch_of<'a>(
    sealer: &mut BlockSealer,
    bases: &'a [PatchBase],
    bytes: &[u8],
    whole: &SealedBlock,
) -> Result<Option<(SealedBlock, &'a PatchBase)>, VaultClientError> {
    let Some(chosen) = choose(bases, bytes) else { return Ok(None) };
    let block = seal(sealer, whole.reference.id, BlockKind::Patch, &chosen.content)?;
    let saves = is_worth_it(block.bytes.len(), whole.bytes.len());
    Ok(saves.then(|| (block, &bases[chosen.base])))
}

fn seal(
    sealer: &mut BlockSealer,
    id: BlockId,
    kind: BlockKind,
    content: &[u8],
) -> Result<SealedBlock, VaultClientError> {
    let sealed = sealer.seal(id, kind, content);
    sealed.map_err(|error| VaultClientError::Record { what: "a new block", why: error.to_string() })
}

/// Chunks that come more than once: their runs are kept while they are planned.
fn repeated<'a>(new: impl Iterator<Item = &'a ChunkSummary>) -> HashMap<PlainHash, Option<Tuple>> {
    let mut hashes: Vec<PlainHash> = new.map(|chunk| chunk.hash).collect();
    hashes.sort_unstable();
    let pairs = hashes.windows(2).filter(|pair| pair[0] == pair[1]);
    pairs.map(|pair| (pair[0], None)).collect()
}

/// The summary of a file that nobody kept: made again from its blocks, one entry a run.
pub fn summary_of(
    reader: &mut FileReader<'_>,
    root: &FileRoot,
    keys: &ChunkKeys,
) -> Result<FileSummary, VaultClientError> {
    let mut chunks = ChunkList::default();
    reader.read(root, 0..root.length, &mut |run| {
        chunks.push(keys.summary(run));
        Ok(())
    })?;
    Ok(FileSummary { root: digest_of(root), chunks: Arc::new(chunks) })
}

/// The hash of a file's root.
pub fn digest_of(root: &FileRoot) -> Digest {
    towpath_vault_format::Canonical::digest(root)
}
