//! Putting a file or a tree: a new version of the vault in which an entry has this content.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use towpath_files::FileError;
use towpath_vault_format::defragmentation::LinkCosts;
use towpath_vault_format::steps::{CONTENT_STEPS, DESCRIBING_STEPS};
use towpath_vault_format::{Digest, FileId, FileRoot, FileUpdate, Update, UpdateAction};
use towpath_vault_protocol::MeasuredLine;

use crate::block::BlockSealer;
use crate::catalogue::{
    Catalogue, CatalogueEntry, EntryDescription, MAX_CATALOGUE, MAX_INLINE, check_name, entry_digest,
};
use crate::client::{Offered, VaultClient, check_writer, keep_line, line_of, offer_entry};
use crate::content::{ChunkKeys, MemoryContent, PlainSource, PutContent};
use crate::descriptor::{LocalTree, MAX_DESCRIPTOR};
use crate::error::VaultClientError;
use crate::fresh::put_fresh;
use crate::local::{KeptQueue, SeenEntries};
use crate::offer::TRIES;
use crate::plan::{PlannedFile, Planner, PutStats, digest_of, summary_of};
use crate::summary::FileSummary;
use crate::unchanged::UnchangedFiles;

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
    /// What the line to the server carries, as far as it is known.
    pub line: MeasuredLine,
    /// False: it is kept on this machine alone, and not on the server.
    pub is_committed: bool,
}

/// Plans of the files that an entry consists of.
struct EntryPlan {
    /// What the name was before.
    old: Option<CatalogueEntry>,
    content: PlannedFile,
    /// A tree's.
    descriptor: Option<PlannedFile>,
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
            let old = self.catalogue(&root)?.entries.get(name).cloned();
            self.check_seen(name, old.as_ref(), options.overwrite)?;
            let Some(plan) = self.plan_entry(&tree, old, options, progress)? else { continue };
            if plan.is_nothing() {
                let unchanged = self.unchanged(name, &tree, &plan)?;
                return Ok(PutOutcome { read, ..unchanged });
            }
            if let Some(stats) = self.commit_entry(name, &plan)? {
                self.keep(name, &tree, &plan)?;
                let (number, line, files) = (self.head.named().number, keep_line(self)?, tree.files);
                let (failed, is_committed) = (tree.failed, self.view.is_none());
                return Ok(PutOutcome {
                    number,
                    is_new: true,
                    stats,
                    files,
                    read,
                    failed,
                    line,
                    is_committed,
                });
            }
        }
        Err(VaultClientError::Crowded { tries: TRIES })
    }

    fn unchanged(
        &mut self,
        name: &[u8],
        tree: &LocalTree,
        plan: &EntryPlan,
    ) -> Result<PutOutcome, VaultClientError> {
        // What is kept is soft: without it the next put is slower.
        let _ = self.keep(name, tree, plan);
        let waits =
            self.view.is_some() && KeptQueue(&self.folder).settle_all(&|name| self.blocks.get(name))?;
        let (number, is_new, failed) = (self.head.named().number, false, Vec::new());
        let (stats, line) = (plan.content.plan.stats, line_of(self)?);
        Ok(PutOutcome {
            number,
            is_new,
            stats,
            files: tree.files,
            read: 0,
            failed,
            line,
            is_committed: !waits,
        })
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
            if self.view.is_some() {
                return Ok(());
            }
            seen.note(mark, self.head.named().number, content);
            return self.folder.set_seen(&seen);
        }
        if overwrite {
            return Ok(());
        }
        let seen = seen.get(mark).map(|seen| seen.number);
        Err(VaultClientError::Conflict { name: name.to_vec(), found: self.head.named().number, seen })
    }

    /// Plans what an entry consists of. What is too long for one version is committed, but for its last runs, under no name yet.
    /// `None`: it has to be planned again.
    fn plan_entry(
        &mut self,
        tree: &LocalTree,
        old: Option<CatalogueEntry>,
        options: &PutOptions,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Option<EntryPlan>, VaultClientError> {
        let Some(content) = plan_content(self, tree, old.as_ref(), options, progress)? else {
            return Ok(None);
        };
        let (file, length) = (content.file, content.plan.stats.length);
        let bytes = tree.descriptor()?;
        if bytes.len() as u64 > MAX_DESCRIPTOR {
            let (found, limit) = (bytes.len() as u64, MAX_DESCRIPTOR);
            return Err(VaultClientError::TooLarge { what: "bytes of names and metadata", found, limit });
        }
        if !tree.is_tree && bytes.len() <= MAX_INLINE {
            let description = EntryDescription::Inline(bytes);
            let entry = CatalogueEntry { content: file, length, description };
            return Ok(Some(EntryPlan { old, content, descriptor: None, entry }));
        }
        let before = match old.as_ref().map(|old| &old.description) {
            Some(EntryDescription::File(file)) => Some(*file),
            _ => None,
        };
        let planned = plan_on(self, before, &MemoryContent(bytes), options, &mut |_| ())?;
        let Some(descriptor) = planned else { return Ok(None) };
        let description = EntryDescription::File(descriptor.file);
        let entry = CatalogueEntry { content: file, length, description };
        Ok(Some(EntryPlan { old, content, descriptor: Some(descriptor), entry }))
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
            let listed = plan_catalogue(self, &catalogue)?;
            let epoch = self.keys.epoch();
            let gone = gone.files().filter(|file| root.file(file).is_some());
            let removed = gone.map(|file| removed(file, epoch)).collect();
            let update = entry_update(self, &[&listed], removed)?;
            if let Offered::Committed { .. } = self.offer(&update)? {
                self.set_summary(&listed)?;
                return Ok(self.head.named().number);
            }
        }
        Err(VaultClientError::Crowded { tries: TRIES })
    }

    /// Plans one file on its newest version, of which `summary` is known. `None`: too much is new for one update.
    fn plan_file(
        &mut self,
        (file, summary): (FileId, Option<FileSummary>),
        source: &dyn PlainSource,
        (patches, room): (bool, usize),
        progress: &mut dyn FnMut(u64),
    ) -> Result<Option<PlannedFile>, VaultClientError> {
        let keys = ChunkKeys::of(&self.keys, file);
        let (root, base) = match self.head.signed.root.file(&file) {
            Some(root) => (*root, digest_of(root)),
            None => (FileRoot::empty(file, self.keys.epoch()), Digest::NONE),
        };
        let kept = summary.map_or_else(|| self.folder.summary(&file), |known| Ok(Some(known)))?;
        let kept = kept.filter(|summary| is_of(summary, &root));
        let padding = self.head.signed.root.parameters.padding;
        let sealer = BlockSealer::new(self.keys.file(file, self.keys.epoch())?, padding);
        let (epoch, line) = (self.keys.epoch(), line_of(self)?);
        let costs = LinkCosts::of(line.up, line.down);
        let ids = self.ids.clone();
        let mut reader = self.reader();
        let old = kept.map_or_else(|| summary_of(&mut reader, &root, &keys), Ok)?;
        let mut planner = Planner::new(&mut reader, (sealer, ids), keys, (patches, costs, room));
        let plan = planner.plan(&root, &old, source, progress)?;
        Ok(plan.map(|plan| PlannedFile { file, base, epoch, plan }))
    }

    /// Commits the files of an entry and the catalogue that names them. `None`: others changed them meanwhile, and it is to be planned
    /// again. Where others changed other names alone, the catalogue is.
    fn commit_entry(&mut self, name: &[u8], plan: &EntryPlan) -> Result<Option<PutStats>, VaultClientError> {
        for _ in 0..TRIES {
            let root = self.head.signed.root.clone();
            let mut catalogue = self.catalogue(&root)?;
            if catalogue.entries.get(name) != plan.old.as_ref() || !plan.is_on(self) {
                return Ok(None);
            }
            let before: HashSet<FileId> = catalogue.files().collect();
            catalogue.entries.insert(name.to_vec(), plan.entry.clone());
            let after: HashSet<FileId> = catalogue.files().collect();
            let listed = plan_catalogue(self, &catalogue)?;
            let gone = before.difference(&after).filter(|file| root.file(file).is_some());
            let removed = gone.map(|file| removed(*file, self.keys.epoch())).collect();
            let files: Vec<&PlannedFile> = plan.files().chain([&listed]).collect();
            let update = entry_update(self, &files, removed)?;
            let offered = offer_entry(self, &update, Some((name, &plan.entry)))?;
            if let Offered::Committed { bytes } | Offered::Kept { bytes } = offered {
                self.set_summary(&listed)?;
                return Ok(Some(plan.stats(&listed, bytes)));
            }
        }
        Err(VaultClientError::Crowded { tries: TRIES })
    }

    fn set_summary(&self, planned: &PlannedFile) -> Result<(), VaultClientError> {
        let root = digest_of(&self.file_root(planned.file));
        self.folder.set_summary(&planned.file, &root, &planned.plan.chunks)
    }

    /// Keeps what makes the next put cheap, and what this machine's person has seen.
    fn keep(&mut self, name: &[u8], tree: &LocalTree, plan: &EntryPlan) -> Result<(), VaultClientError> {
        for planned in plan.files() {
            self.set_summary(planned)?;
        }
        let content = plan.content.file;
        let marks = tree
            .content
            .marks(entry_digest(&self.head.signed.root, &plan.entry), &self.keys.file_marks(content));
        self.folder.set_marks(&content, &marks)?;
        self.note_seen(name, &plan.entry)
    }

    /// Notes that this machine's person has the content of an entry as it is in the newest version.
    pub(crate) fn note_seen(&mut self, name: &[u8], entry: &CatalogueEntry) -> Result<(), VaultClientError> {
        // What is not committed is no version that others could have changed.
        if self.view.is_some() {
            return Ok(());
        }
        let mut seen = self.folder.seen()?;
        let content = entry_digest(&self.head.signed.root, entry);
        seen.note(self.keys.name_mark(name), self.head.named().number, content);
        self.folder.set_seen(&seen)
    }
}

fn plan_content(
    vault: &mut VaultClient,
    tree: &LocalTree,
    old: Option<&CatalogueEntry>,
    options: &PutOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<Option<PlannedFile>, VaultClientError> {
    let content = &tree.content;
    if let Some(old) = old {
        let unchanged = if options.checksum { Ok(None) } else { unchanged_files(vault, tree, old) };
        let planned = unchanged.and_then(|known| {
            let (unchanged, summary) = known.unzip();
            let source = PutContent { content, unchanged: unchanged.unwrap_or_default() };
            vault.plan_file((old.content, summary), &source, (options.patches, CONTENT_STEPS), progress)
        });
        if let Some(planned) = readable(planned, options)? {
            return Ok(Some(planned));
        }
    }
    put_fresh(vault, &PutContent { content, unchanged: UnchangedFiles::default() }, progress)
}

/// Plans the new version of a file; a new file, if there is none or too much is new.
fn plan_on(
    vault: &mut VaultClient,
    file: Option<FileId>,
    source: &dyn PlainSource,
    options: &PutOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<Option<PlannedFile>, VaultClientError> {
    if let Some(file) = file {
        let planned = vault.plan_file((file, None), source, (options.patches, DESCRIBING_STEPS), progress);
        if let Some(planned) = readable(planned, options)? {
            return Ok(Some(planned));
        }
    }
    put_fresh(vault, source, progress)
}

pub(crate) fn plan_catalogue(
    vault: &mut VaultClient,
    catalogue: &Catalogue,
) -> Result<PlannedFile, VaultClientError> {
    let bytes = catalogue.to_bytes();
    let found = bytes.len() as u64;
    let how = (true, DESCRIBING_STEPS);
    let planned = vault.plan_file((FileId::CATALOGUE, None), &MemoryContent(bytes), how, &mut |_| ())?;
    let what = "bytes of the catalogue that change";
    planned.ok_or(VaultClientError::TooLarge { what, found, limit: MAX_CATALOGUE })
}

impl EntryPlan {
    fn files(&self) -> impl Iterator<Item = &PlannedFile> {
        std::iter::once(&self.content).chain(&self.descriptor)
    }

    /// True if the vault has it all.
    fn is_nothing(&self) -> bool {
        let is_same = |planned: &PlannedFile| planned.plan.actions.is_empty() && !planned.base.is_none();
        self.old.as_ref() == Some(&self.entry) && self.files().all(is_same)
    }

    /// True if the newest version has the files that it is based on, and the keys that it was sealed with.
    fn is_on(&self, vault: &VaultClient) -> bool {
        let root = &vault.head.signed.root;
        self.files().all(|it| root.base_of(&it.file) == it.base && it.epoch == vault.keys.epoch())
    }

    /// What it cost, with a last update of so many bytes.
    fn stats(&self, listed: &PlannedFile, bytes: u64) -> PutStats {
        let mut stats = self.content.plan.stats;
        for other in self.descriptor.iter().chain([listed]) {
            stats.add(&PutStats { length: 0, reused: 0, whole: 0, patched: 0, ..other.plan.stats });
        }
        stats.actions += bytes;
        stats
    }
}

/// What was planned on an old version of a file. Where that can't be read, a person who writes over it gets a new file: `None`.
fn readable(
    planned: Result<Option<PlannedFile>, VaultClientError>,
    options: &PutOptions,
) -> Result<Option<PlannedFile>, VaultClientError> {
    match planned {
        Err(error) if options.overwrite && error.is_unreadable() => Ok(None),
        planned => planned,
    }
}

/// The update that makes the next version of these files, and takes others out.
pub(crate) fn entry_update(
    vault: &VaultClient,
    files: &[&PlannedFile],
    removed: Vec<FileUpdate>,
) -> Result<Update, VaultClientError> {
    let changed = files.iter().filter(|it| it.base.is_none() || !it.plan.actions.is_empty());
    let changes = changed.map(|PlannedFile { file, epoch, plan, .. }| FileUpdate {
        file: *file,
        epoch: *epoch,
        actions: plan.actions.clone(),
    });
    let blocks = files.iter().flat_map(|planned| planned.plan.blocks.iter().copied()).collect();
    Ok(Update { blocks, ..vault.update_of(changes.chain(removed).collect())? })
}

/// What is known of a tree's files without reading them, and the summary of the old ones; `None`: what is needed for it was lost.
fn unchanged_files(
    vault: &mut VaultClient,
    tree: &LocalTree,
    old: &CatalogueEntry,
) -> Result<Option<(UnchangedFiles, FileSummary)>, VaultClientError> {
    let (root, content) = (vault.head.signed.root.clone(), vault.file_root(old.content));
    let marks = vault
        .folder
        .marks(&old.content)?
        .filter(|marks| marks.entry == entry_digest(&vault.head.signed.root, old));
    let summary = vault.folder.summary(&old.content)?.filter(|summary| is_of(summary, &content));
    let (Some(marks), Some(summary)) = (marks, summary) else { return Ok(None) };
    let described = vault.described(&root, old)?;
    let old_files = described.entries().filter_map(|it| Some((it.start?, it.entry.oid()?, it.path)));
    let old_files = old_files.map(|(start, oid, path)| (path, start, oid));
    let key = vault.keys.file_marks(old.content);
    let chunks = Arc::clone(&summary.chunks);
    let unchanged = UnchangedFiles::new(tree.content.files(), &marks, &key, old_files, chunks);
    Ok(Some((unchanged, summary)))
}

fn is_of(summary: &FileSummary, root: &FileRoot) -> bool {
    summary.root == digest_of(root) && summary.chunks.length() == root.length
}

/// Takes a file out.
pub(crate) fn removed(file: FileId, epoch: u32) -> FileUpdate {
    FileUpdate { file, epoch, actions: vec![UpdateAction::Remove] }
}
