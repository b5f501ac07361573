//! Putting a file or a tree: a new version of the vault in which an entry has this content.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use towpath_files::FileError;
use towpath_vault_format::{Digest, FileId, FileRoot, FileUpdate, NewBlock, Tuple, Update, UpdateAction};

use crate::block::BlockSealer;
use crate::catalogue::{Catalogue, CatalogueEntry, EntryDescription, MAX_INLINE, check_name, entry_digest};
use crate::client::{Offered, VaultClient, check_writer, offer_entry};
use crate::content::{ChunkKeys, MemoryContent, PlainSource, PutContent};
use crate::descriptor::{LocalTree, MAX_DESCRIPTOR};
use crate::error::VaultClientError;
use crate::keys::random;
use crate::local::SeenEntries;
use crate::plan::{FilePlan, Planner, PutStats, digest_of, summary_of};
use crate::summary::FileSummary;
use crate::unchanged::UnchangedFiles;

/// Times that a put is offered while others write, before it gives up.
pub(crate) const TRIES: u32 = 16;
/// Bytes of steps in one update, about: below what a server takes.
const STEPS: usize = 3 << 20;
/// Runs of one step, so that steps are not too long either.
const RUNS: usize = 16_384;

/// Options of a put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PutOptions {
    /// An entry that somebody else changed is written over. Default: an error.
    pub overwrite: bool,
    /// Where a chunk changed a little, a patch goes (default).
    pub patches: bool,
    /// All files are read, also those that look as they did. Default: those are not read.
    pub checksum: bool,
}

impl Default for PutOptions {
    fn default() -> Self {
        Self { overwrite: false, patches: true, checksum: false }
    }
}

/// What a put did.
#[derive(Debug)]
pub struct PutOutcome {
    /// Number of the version that has it.
    pub number: u64,
    /// False: the newest version had it already.
    pub is_new: bool,
    /// What it cost.
    pub stats: PutStats,
    /// Files, the names of one counted once.
    pub files: u64,
    /// Bytes that were read of them to see what changed.
    pub read: u64,
    /// What could not be read and is left out.
    pub failed: Vec<FileError>,
}

/// Plans of the files that an entry consists of.
struct EntryPlan {
    content: (FileId, Digest, FilePlan),
    /// A tree's.
    descriptor: Option<(FileId, Digest, FilePlan)>,
    entry: CatalogueEntry,
}

impl VaultClient {
    /// Puts what is at `path` as `name`. `progress` is told bytes as they are read.
    pub fn put(
        &mut self,
        path: &Path,
        name: &[u8],
        options: &PutOptions,
        progress: &mut dyn FnMut(u64),
    ) -> Result<PutOutcome, VaultClientError> {
        check_name(name).map_err(|why| VaultClientError::BadName { name: name.to_vec(), why })?;
        check_writer(self)?;
        let tree = LocalTree::at(path)?;
        let mut read = 0;
        let progress: &mut dyn FnMut(u64) = &mut |bytes| {
            read += bytes;
            progress(bytes);
        };
        for _ in 0..TRIES {
            let root = self.head.signed.root.clone();
            let catalogue = self.catalogue(&root)?;
            let old = catalogue.entries.get(name).cloned();
            self.check_seen(name, old.as_ref(), options.overwrite)?;
            let mut plan = plan_over(self, &tree, old.as_ref(), options, progress)?;
            let mut stages = stages(&plan.files(), self.keys.epoch());
            if old.is_some() && stages.len() > 1 {
                // Its files change in several versions, and the name has to lead to what is whole in each: to the old files until the
                // last one, and then to new ones.
                plan = self.plan_entry(&tree, None, options, progress)?;
                stages = self::stages(&plan.files(), self.keys.epoch());
            }
            if plan.is_nothing() && old.as_ref() == Some(&plan.entry) {
                let unchanged = self.unchanged(name, &tree, &plan);
                return Ok(PutOutcome { read, ..unchanged });
            }
            if let Some(stats) = self.commit_entry(name, catalogue, &plan, stages)? {
                self.keep(name, &tree, &plan)?;
                let number = self.head.named().number;
                return Ok(PutOutcome {
                    number,
                    is_new: true,
                    stats,
                    files: tree.files,
                    read,
                    failed: tree.failed,
                });
            }
        }
        Err(VaultClientError::Crowded { tries: TRIES })
    }

    fn unchanged(&mut self, name: &[u8], tree: &LocalTree, plan: &EntryPlan) -> PutOutcome {
        // What is kept is soft: without it the next put is slower.
        let _ = self.keep(name, tree, plan);
        let number = self.head.named().number;
        let mut stats = plan.content.2.stats;
        stats.actions = 0;
        PutOutcome { number, is_new: false, stats, files: tree.files, read: 0, failed: Vec::new() }
    }

    /// Makes sure that nobody's changes are written over unseen.
    fn check_seen(
        &self,
        name: &[u8],
        old: Option<&CatalogueEntry>,
        overwrite: bool,
    ) -> Result<(), VaultClientError> {
        let Some(old) = old else { return Ok(()) };
        let (mark, content) = (self.keys.name_mark(name), entry_digest(&self.head.signed.root, old));
        let mut seen = self.folder.seen()?;
        let is_it = |noted: &SeenEntries| noted.get(mark).is_some_and(|it| it.content == content);
        if is_it(&seen) {
            return Ok(());
        }
        // What was offered here, and no answer came, may be it. The next offer takes its place, so it is noted as seen now.
        if is_it(&self.folder.offered()?) {
            seen.note(mark, self.head.named().number, content);
            return self.folder.set_seen(&seen);
        }
        if overwrite {
            return Ok(());
        }
        let seen = seen.get(mark).map(|seen| seen.number);
        Err(VaultClientError::Conflict { name: name.to_vec(), found: self.head.named().number, seen })
    }

    fn plan_entry(
        &mut self,
        tree: &LocalTree,
        old: Option<&CatalogueEntry>,
        options: &PutOptions,
        progress: &mut dyn FnMut(u64),
    ) -> Result<EntryPlan, VaultClientError> {
        let content = old.map_or_else(|| random().map(FileId), |old| Ok(old.content))?;
        let unchanged = match old {
            Some(old) if !options.checksum => unchanged_files(self, tree, old)?.unwrap_or_default(),
            _ => UnchangedFiles::default(),
        };
        let source = PutContent { content: &tree.content, unchanged };
        let planned = self.plan_file(content, &source, options.patches, progress)?;
        let bytes = tree.descriptor()?;
        let length = source.length();
        if bytes.len() as u64 > MAX_DESCRIPTOR {
            let (found, limit) = (bytes.len() as u64, MAX_DESCRIPTOR);
            return Err(VaultClientError::TooLarge { what: "bytes of names and metadata", found, limit });
        }
        if !tree.is_tree && bytes.len() <= MAX_INLINE {
            let entry = CatalogueEntry { content, length, description: EntryDescription::Inline(bytes) };
            return Ok(EntryPlan { content: planned, descriptor: None, entry });
        }
        let file = match old.map(|old| &old.description) {
            Some(EntryDescription::File(file)) => *file,
            _ => FileId(random()?),
        };
        let descriptor = self.plan_file(file, &MemoryContent(bytes), options.patches, &mut |_| ())?;
        let entry = CatalogueEntry { content, length, description: EntryDescription::File(file) };
        Ok(EntryPlan { content: planned, descriptor: Some(descriptor), entry })
    }

    /// Leaves an entry out of a new version, whose number it gives.
    pub fn forget(&mut self, name: &[u8]) -> Result<u64, VaultClientError> {
        check_writer(self)?;
        for _ in 0..TRIES {
            let root = self.head.signed.root.clone();
            let mut catalogue = self.catalogue(&root)?;
            let gone = catalogue.entries.remove(name);
            let none = || VaultClientError::NoEntry { name: name.to_vec(), number: root.number };
            let gone = Catalogue { entries: [(name.to_vec(), gone.ok_or_else(none)?)].into() };
            let listed =
                self.plan_file(FileId::CATALOGUE, &MemoryContent(catalogue.to_bytes()), true, &mut |_| ())?;
            let mut left = listed.2.blocks.iter().map(|block| (block.hash, block.stored)).collect();
            let epoch = self.keys.epoch();
            let gone = gone.files().filter(|file| root.file(file).is_some());
            let mut files: Vec<_> = gone.map(|file| removed(file, epoch)).collect();
            files.extend(stages(&[&listed], epoch).into_iter().flatten());
            if let Offered::Committed { .. } = self.commit_stage(files, &mut left)? {
                self.folder.set_summary(&FileId::CATALOGUE, &self.summary(FileId::CATALOGUE, &listed.2))?;
                return Ok(self.head.named().number);
            }
        }
        Err(VaultClientError::Crowded { tries: TRIES })
    }

    /// Plans one file on its newest version.
    fn plan_file(
        &mut self,
        file: FileId,
        source: &dyn PlainSource,
        patches: bool,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(FileId, Digest, FilePlan), VaultClientError> {
        let keys = ChunkKeys::of(&self.keys, file);
        let (root, base) = match self.head.signed.root.file(&file) {
            Some(root) => (*root, digest_of(root)),
            None => (FileRoot::empty(file, self.keys.epoch()), Digest::NONE),
        };
        let kept = self.folder.summary(&file)?.filter(|summary| is_of(summary, &root));
        let padding = self.head.signed.root.parameters.padding;
        let sealer = BlockSealer::new(self.keys.file(file, self.keys.epoch())?, padding);
        let mut reader = self.reader();
        let old = kept.map_or_else(|| summary_of(&mut reader, &root, &keys), Ok)?;
        let mut planner = Planner::new(&mut reader, sealer, keys, patches);
        Ok((file, base, planner.plan(&root, &old, source, progress)?))
    }

    /// Commits the files of an entry in stages, and with the last one the catalogue that names them. `None`: others changed the vault meanwhile, and it
    /// is to be planned again.
    fn commit_entry(
        &mut self,
        name: &[u8],
        mut catalogue: Catalogue,
        plan: &EntryPlan,
        mut stages: Vec<Vec<FileUpdate>>,
    ) -> Result<Option<PutStats>, VaultClientError> {
        let before: HashSet<FileId> = catalogue.files().collect();
        catalogue.entries.insert(name.to_vec(), plan.entry.clone());
        let after: HashSet<FileId> = catalogue.files().collect();
        let listed =
            self.plan_file(FileId::CATALOGUE, &MemoryContent(catalogue.to_bytes()), true, &mut |_| ())?;
        let mut files = plan.files();
        files.push(&listed);
        let mut stats = plan.content.2.stats;
        for (_, _, other) in &files[1..] {
            stats.add(&PutStats { length: 0, reused: 0, whole: 0, patched: 0, ..other.stats });
        }
        let known: HashMap<Digest, u32> = files
            .iter()
            .flat_map(|(_, _, plan)| &plan.blocks)
            .map(|block| (block.hash, block.stored))
            .collect();
        let (mut left, epoch) = (known, self.keys.epoch());
        if let Some(last) = stages.last_mut() {
            let root = &self.head.signed.root;
            let gone = before.difference(&after).filter(|file| root.file(file).is_some());
            last.extend(gone.map(|file| removed(*file, epoch)));
            // It has some thousand chunks at most, for which a server has room beside a stage.
            last.extend(self::stages(&[&listed], epoch).into_iter().flatten());
        }
        let last = stages.len();
        for (number, stage) in (1..).zip(stages) {
            let update = stage_update(self, stage, &mut left)?;
            match offer_entry(self, &update, (number == last).then_some((name, &plan.entry)))? {
                Offered::Conflict => return Ok(None),
                Offered::Committed { bytes } => stats.actions += bytes,
            }
        }
        self.folder.set_summary(&FileId::CATALOGUE, &self.summary(FileId::CATALOGUE, &listed.2))?;
        Ok(Some(stats))
    }

    /// Commits some steps.
    pub(crate) fn commit_stage(
        &mut self,
        files: Vec<FileUpdate>,
        left: &mut HashMap<Digest, u32>,
    ) -> Result<Offered, VaultClientError> {
        let update = stage_update(self, files, left)?;
        self.offer(&update)
    }

    fn summary(&self, file: FileId, plan: &FilePlan) -> FileSummary {
        FileSummary { root: digest_of(&self.file_root(file)), chunks: plan.chunks.clone() }
    }

    /// Keeps what makes the next put cheap, and what this machine's person has seen.
    fn keep(&mut self, name: &[u8], tree: &LocalTree, plan: &EntryPlan) -> Result<(), VaultClientError> {
        for (file, _, planned) in std::iter::once(&plan.content).chain(&plan.descriptor) {
            self.folder.set_summary(file, &self.summary(*file, planned))?;
        }
        let content = plan.content.0;
        let marks = tree
            .content
            .marks(entry_digest(&self.head.signed.root, &plan.entry), &self.keys.file_marks(content));
        self.folder.set_marks(&content, &marks)?;
        self.note_seen(name, &plan.entry)
    }

    /// Notes that this machine's person has the content of an entry as it is in the newest version.
    pub(crate) fn note_seen(&mut self, name: &[u8], entry: &CatalogueEntry) -> Result<(), VaultClientError> {
        let mut seen = self.folder.seen()?;
        let content = entry_digest(&self.head.signed.root, entry);
        seen.note(self.keys.name_mark(name), self.head.named().number, content);
        self.folder.set_seen(&seen)
    }
}

/// Plans an entry on what is there. Where that can't be read, a person who writes over it gets new files.
fn plan_over(
    vault: &mut VaultClient,
    tree: &LocalTree,
    old: Option<&CatalogueEntry>,
    options: &PutOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<EntryPlan, VaultClientError> {
    match vault.plan_entry(tree, old, options, progress) {
        Err(error) if options.overwrite && error.is_unreadable() => {
            vault.plan_entry(tree, None, options, progress)
        }
        planned => planned,
    }
}

/// The update of some steps. Bases are those of the newest version, which the stages before made.
fn stage_update(
    vault: &VaultClient,
    mut files: Vec<FileUpdate>,
    left: &mut HashMap<Digest, u32>,
) -> Result<Update, VaultClientError> {
    for change in &mut files {
        let newest = vault.head.signed.root.file(&change.file);
        change.base = newest.map_or(Digest::NONE, digest_of);
        // Whatever somebody wrote there, it never goes back.
        change.epoch = newest.map_or(change.epoch, |newest| newest.epoch.max(change.epoch));
    }
    let tuples = files.iter().flat_map(|change| &change.actions).flat_map(tuples_of);
    let blocks = tuples.flat_map(|tuple| &tuple.chain);
    let blocks = blocks
        .filter_map(|block| left.remove(&block.hash).map(|stored| NewBlock { hash: block.hash, stored }));
    let blocks = blocks.collect();
    let mut update = vault.update_of(files)?;
    update.blocks = blocks;
    Ok(update)
}

impl EntryPlan {
    fn files(&self) -> Vec<&(FileId, Digest, FilePlan)> {
        std::iter::once(&self.content).chain(&self.descriptor).collect()
    }

    fn is_nothing(&self) -> bool {
        let plans = std::iter::once(&self.content).chain(&self.descriptor);
        plans.into_iter().all(|(_, base, plan)| plan.actions.is_empty() && !base.is_none())
    }
}

/// What is known of a tree's files without reading them; `None`: what is needed for it was lost.
fn unchanged_files(
    vault: &mut VaultClient,
    tree: &LocalTree,
    old: &CatalogueEntry,
) -> Result<Option<UnchangedFiles>, VaultClientError> {
    let (root, content) = (vault.head.signed.root.clone(), vault.file_root(old.content));
    let marks = vault
        .folder
        .marks(&old.content)?
        .filter(|marks| marks.entry == entry_digest(&vault.head.signed.root, old));
    let summary = vault.folder.summary(&old.content)?.filter(|summary| is_of(summary, &content));
    let (Some(marks), Some(summary)) = (marks, summary) else { return Ok(None) };
    let described = vault.described(&root, old)?;
    let old_files = described.iter().filter_map(|it| Some((&it.path, (it.start?, it.entry.oid()?))));
    let key = vault.keys.file_marks(old.content);
    let files = tree.content.files();
    Ok(Some(UnchangedFiles::new(files, &marks, &key, &old_files.collect(), summary.chunks)))
}

fn is_of(summary: &FileSummary, root: &FileRoot) -> bool {
    let length: u64 = summary.chunks.iter().map(|chunk| u64::from(chunk.length)).sum();
    summary.root == digest_of(root) && length == root.length
}

fn tuples_of(action: &UpdateAction) -> &[Tuple] {
    match action {
        UpdateAction::Insert { tuples, .. } | UpdateAction::Replace { tuples } => tuples,
        UpdateAction::Delete { .. } | UpdateAction::Remove => &[],
    }
}

/// Takes a file out of the vault. Its base is said when it is committed.
pub(crate) fn removed(file: FileId, epoch: u32) -> FileUpdate {
    FileUpdate { file, base: Digest::NONE, epoch, actions: vec![UpdateAction::Remove] }
}

/// Updates, each short enough for a server.
fn stages(files: &[&(FileId, Digest, FilePlan)], epoch: u32) -> Vec<Vec<FileUpdate>> {
    let mut stages = vec![Vec::<FileUpdate>::new()];
    let mut room = STEPS;
    for (file, base, plan) in files {
        let empty = || FileUpdate { file: *file, base: *base, epoch, actions: Vec::new() };
        let mut begun = false;
        for action in plan.actions.iter().flat_map(short_steps) {
            let cost = action_cost(&action);
            if cost > room {
                stages.push(Vec::new());
                (room, begun) = (STEPS, false);
            }
            room = room.saturating_sub(cost);
            let Some(stage) = stages.last_mut() else { break };
            if !begun {
                stage.push(empty());
                begun = true;
            }
            if let Some(change) = stage.last_mut() {
                change.actions.push(action);
            }
        }
        // A file that is empty is there too.
        if let (true, false, Some(stage)) = (base.is_none(), begun, stages.last_mut()) {
            stage.push(empty());
        }
    }
    stages
}

/// A step as several that do the same.
fn short_steps(action: &UpdateAction) -> Vec<UpdateAction> {
    let UpdateAction::Insert { at, tuples } = action else { return vec![action.clone()] };
    let mut at = *at;
    let steps = tuples.chunks(RUNS).map(|some| {
        let step = UpdateAction::Insert { at, tuples: some.to_vec() };
        at += some.iter().map(|tuple| tuple.length).sum::<u64>();
        step
    });
    steps.collect()
}

/// Bytes of a step and of the list of its blocks, about.
fn action_cost(action: &UpdateAction) -> usize {
    32 + tuples_of(action).iter().map(|tuple| 16 + 96 * tuple.chain.len()).sum::<usize>()
}
