//! Getting an entry: its files and metadata as they were put, each file's bytes compared with its hash before it has a name.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use towpath_content::Oid;
use towpath_content::tree::{Entry, Kind};
use towpath_crew::OrderedCrew;
use towpath_files::{
    Destination, FileError, FlushLimits, Overwrite, Placed, Policy, RelPath, SingleFile, Staged, WriteOptions,
};
use towpath_vault_format::VaultRoot;

use crate::catalogue::{CatalogueEntry, EntryDescription};
use crate::client::{VaultClient, keep_line};
use crate::descriptor::{DescribedEntries, DescribedEntry, EntryDescriptor, MAX_DESCRIPTOR};
use crate::error::VaultClientError;
use crate::reader::RunSink;

/// Blocks of files that may be holes.
const HOLE_BLOCK: u64 = 4096;
/// Bytes that are written at once: runs are short and end anywhere, and each block of the disk is to be written once.
const WRITTEN: usize = 256 << 10;
/// Files, and bytes of them, that are synced and take their names together, while others are written.
const NAMED: (u64, u64) = (4096, 128 << 20);

/// What a get brought.
#[derive(Debug, Default)]
pub struct GetOutcome {
    /// Number of the version.
    pub number: u64,
    /// Files, the names of one counted once.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What could not be made or set.
    pub failed: Vec<FileError>,
}

impl VaultClient {
    /// An entry of a version, and that version.
    pub fn entry(
        &mut self,
        name: &[u8],
        number: Option<u64>,
    ) -> Result<(VaultRoot, CatalogueEntry), VaultClientError> {
        let root = self.root(number)?;
        let catalogue = self.catalogue(&root)?;
        let found = catalogue.entries.get(name).cloned();
        let none = || VaultClientError::NoEntry { name: name.to_vec(), number: root.number };
        let entry = found.ok_or_else(none)?;
        Ok((root, entry))
    }

    /// What an entry's descriptor names.
    pub fn described(
        &mut self,
        root: &VaultRoot,
        entry: &CatalogueEntry,
    ) -> Result<EntryDescriptor, VaultClientError> {
        let bytes = match &entry.description {
            EntryDescription::Inline(bytes) => bytes.clone(),
            EntryDescription::File(file) => {
                let lacking =
                    || VaultClientError::record_of("the catalogue", "it names a file that is not there");
                let file = root.file(file).ok_or_else(lacking)?;
                self.reader().read_all(file, MAX_DESCRIPTOR, "bytes of names and metadata")?
            }
        };
        EntryDescriptor::new(bytes, entry.length)
    }

    /// Writes an entry of a version to `path`, which must not be there unless `overwrite`.
    pub fn get(
        &mut self,
        name: &[u8],
        number: Option<u64>,
        path: &Path,
        overwrite: bool,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<GetOutcome, VaultClientError> {
        let (root, entry) = self.entry(name, number)?;
        let described = self.described(&root, &entry)?;
        let is_tree = described.entries().next().is_some_and(|first| first.entry.kind == Kind::Directory);
        let mut writer = match is_tree {
            true => EntryWriter::tree(path, overwrite, &described)?,
            false => EntryWriter::file(path, overwrite, &described),
        };
        writer.begin()?;
        self.content(&root, &entry, &mut |bytes| {
            progress(bytes.len() as u64);
            writer.write(bytes)
        })?;
        let mut outcome = writer.finish()?;
        outcome.number = root.number;
        if root.number == self.head.named().number {
            self.note_seen(name, &entry)?;
        }
        keep_line(self)?;
        Ok(outcome)
    }

    /// Gives an entry's content to `sink`.
    pub(crate) fn content(
        &mut self,
        root: &VaultRoot,
        entry: &CatalogueEntry,
        sink: &mut RunSink<'_>,
    ) -> Result<(), VaultClientError> {
        let file = root.file(&entry.content).copied();
        let file = file.filter(|file| file.length == entry.length);
        let lacking = || VaultClientError::record_of("the catalogue", "it names a content that is not there");
        let file = file.ok_or_else(lacking)?;
        self.reader().read(&file, 0..file.length, sink)
    }
}

/// A file whose bytes come.
struct OpenFile {
    described: DescribedEntry,
    body: OpenBody,
    size: u64,
    done: u64,
    hasher: blake3::Hasher,
    /// Bytes that are not written yet.
    held: Vec<u8>,
}

enum OpenBody {
    Staged(Staged),
    Single(SingleFile),
}

/// A tree whose files take their names on another thread.
struct RestoredTree {
    to: Arc<Destination>,
    naming: OrderedCrew<(), Vec<Placed>>,
    /// Files that wait for that, and their bytes.
    unnamed: (u64, u64),
}

/// Cuts a content into its files and compares each with its hash.
struct EntryWriter<'p> {
    path: &'p Path,
    tree: Option<RestoredTree>,
    overwrite: Overwrite,
    described: &'p EntryDescriptor,
    /// Those whose bytes did not come yet.
    waiting: DescribedEntries<'p>,
    open: Option<OpenFile>,
    outcome: GetOutcome,
}

impl<'p> EntryWriter<'p> {
    fn tree(
        path: &'p Path,
        overwrite: bool,
        described: &'p EntryDescriptor,
    ) -> Result<Self, VaultClientError> {
        let flush = FlushLimits { files: usize::MAX, bytes: u64::MAX, dirs: usize::MAX };
        let options = WriteOptions { resume: overwrite, policy: Policy::archive(), flush };
        let to = Arc::new(Destination::create(path, options)?);
        let named = Arc::clone(&to);
        let naming = OrderedCrew::new(1, [move |()| named.flush()]);
        let tree = Some(RestoredTree { to, naming, unnamed: (0, 0) });
        Ok(Self { tree, ..Self::file(path, overwrite, described) })
    }

    fn file(path: &'p Path, overwrite: bool, described: &'p EntryDescriptor) -> Self {
        let overwrite = if overwrite { Overwrite::Replace } else { Overwrite::Never };
        let (waiting, outcome) = (described.entries(), GetOutcome::default());
        Self { path, tree: None, overwrite, described, waiting, open: None, outcome }
    }

    /// Makes directories, links and special files, and opens the first file.
    fn begin(&mut self) -> Result<(), VaultClientError> {
        if let Some(tree) = &self.tree {
            let further = further_names(self.described);
            for DescribedEntry { path, entry, .. } in self.described.entries() {
                if !further.contains(&path) {
                    self.outcome.failed.extend(make_node(&tree.to, &path, &entry, self.overwrite)?);
                }
            }
        }
        self.next_file()
    }

    /// Opens the next file that has bytes; those that have none are done.
    fn next_file(&mut self) -> Result<(), VaultClientError> {
        while self.open.is_none() {
            let Some(described) = self.waiting.next() else { return Ok(()) };
            let (Kind::File { size, .. }, Some(_)) = (&described.entry.kind, described.start) else {
                continue;
            };
            let size = *size;
            let body = match &self.tree {
                Some(tree) => OpenBody::Staged(tree.to.stage_file_for(&described.path, size)?),
                None => OpenBody::Single(SingleFile::create(self.path, size)?),
            };
            self.open = Some(OpenFile::new(described, body, size));
            self.close_if_done()?;
        }
        Ok(())
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), VaultClientError> {
        while !bytes.is_empty() {
            // A descriptor has as many bytes as its content, so there is a file for each.
            let Some(open) = &mut self.open else { break };
            let most = usize::try_from(open.size - open.done).unwrap_or(usize::MAX);
            let (part, rest) = bytes.split_at(bytes.len().min(most));
            open.write(part)?;
            bytes = rest;
            self.close_if_done()?;
            self.next_file()?;
        }
        Ok(())
    }

    fn close_if_done(&mut self) -> Result<(), VaultClientError> {
        let Some(open) = self.open.take_if(|open| open.done == open.size) else { return Ok(()) };
        let OpenFile { described: DescribedEntry { path, entry, .. }, body, size, hasher, .. } = open;
        if entry.oid() != Some(Oid::Blake3(*hasher.finalize().as_bytes())) {
            return Err(VaultClientError::OtherContent { path: path.as_bytes().to_vec() });
        }
        self.outcome.files += 1;
        self.outcome.bytes += size;
        match (body, &mut self.tree) {
            (OpenBody::Staged(staged), Some(tree)) => {
                tree.to.commit(staged, path, &entry.metadata, self.overwrite)?;
                let placed = tree.name_some(size)?;
                self.note_placed(placed);
            }
            (OpenBody::Single(single), _) => {
                single.finish(&entry.metadata, &Policy::archive(), self.overwrite)?;
            }
            (OpenBody::Staged(_), None) => {}
        }
        Ok(())
    }

    fn note_placed(&mut self, placed: Vec<Placed>) {
        for placed in placed {
            self.outcome.failed.extend(placed.outcome.err());
            self.outcome.failed.extend(placed.lacking);
        }
    }

    /// Names what waits, makes hard links, and gives directories their metadata.
    fn finish(mut self) -> Result<GetOutcome, VaultClientError> {
        let Some(RestoredTree { to: tree, mut naming, .. }) = self.tree.take() else {
            return Ok(self.outcome);
        };
        while !naming.is_idle() {
            self.note_placed(placed(&mut naming)?);
        }
        self.note_placed(tree.flush());
        self.outcome.failed.extend(make_links(&tree, self.described, self.overwrite));
        tree.staging().remove()?;
        let directories = self.described.entries().filter(|it| it.entry.kind == Kind::Directory);
        let directories: Vec<_> = directories.map(|it| (it.path, it.entry.metadata)).collect();
        for (path, metadata) in directories.iter().rev() {
            self.outcome.failed.extend(tree.finish_dir(path, metadata).err());
        }
        tree.sync()?;
        Ok(self.outcome)
    }
}

impl RestoredTree {
    /// Begins to name what waits, if that is enough with a file of this size; what was named before.
    fn name_some(&mut self, size: u64) -> Result<Vec<Placed>, VaultClientError> {
        self.unnamed = (self.unnamed.0 + 1, self.unnamed.1 + size);
        if self.unnamed.0 < NAMED.0 && self.unnamed.1 < NAMED.1 {
            return Ok(Vec::new());
        }
        let before = if self.naming.is_full() { placed(&mut self.naming)? } else { Vec::new() };
        self.naming.begin(());
        self.unnamed = (0, 0);
        Ok(before)
    }
}

fn placed(naming: &mut OrderedCrew<(), Vec<Placed>>) -> Result<Vec<Placed>, VaultClientError> {
    naming
        .next_done()
        .ok_or_else(|| VaultClientError::record_of("a tree", "the thread that names its files died"))
}

impl OpenFile {
    fn new(described: DescribedEntry, body: OpenBody, size: u64) -> Self {
        Self { described, body, size, done: 0, hasher: blake3::Hasher::new(), held: Vec::new() }
    }

    fn write(&mut self, part: &[u8]) -> Result<(), VaultClientError> {
        self.held.extend_from_slice(part);
        self.done += part.len() as u64;
        let is_whole = self.done == self.size;
        if !is_whole && self.held.len() < WRITTEN {
            return Ok(());
        }
        let start = self.done - self.held.len() as u64;
        // Half a block is no hole.
        let end = if is_whole { self.done } else { self.done - self.done % HOLE_BLOCK };
        let rest = self.held.split_off(end.saturating_sub(start) as usize);
        let whole = std::mem::replace(&mut self.held, rest);
        self.hasher.update(&whole);
        let is_sparse = matches!(self.described.entry.kind, Kind::File { extents: Some(_), .. });
        self.write_piece(start, &whole, is_sparse)
    }

    fn write_piece(&self, offset: u64, piece: &[u8], is_sparse: bool) -> Result<(), VaultClientError> {
        match &self.body {
            OpenBody::Staged(staged) => staged.write_piece(offset, piece, is_sparse)?,
            OpenBody::Single(single) => single.write_piece(offset, piece, is_sparse)?,
        }
        Ok(())
    }
}

/// Makes whatever is no file. What can't be made for want of rights is told and left out.
fn make_node(
    tree: &Destination,
    path: &RelPath,
    entry: &Entry,
    overwrite: Overwrite,
) -> Result<Option<FileError>, VaultClientError> {
    let nodes = tree.nodes();
    let settled = match &entry.kind {
        Kind::File { .. } => return Ok(None),
        Kind::Directory if path.is_root() => return Ok(None),
        Kind::Directory => return Ok(tree.make_dir(path).map(|_| None)?),
        Kind::Symlink { target } => nodes.symlink(path, target, &entry.metadata, overwrite),
        kind => nodes.special(path, kind, &entry.metadata, overwrite),
    };
    match settled {
        Ok(settled) => Ok(settled.lacking),
        Err(error @ FileError::Permission { .. }) => Ok(Some(error)),
        Err(error) => Err(error.into()),
    }
}

/// Names of links and special files that have another one before.
fn further_names(described: &EntryDescriptor) -> HashSet<RelPath> {
    let mut groups = HashSet::new();
    let others =
        described.entries().filter(|it| !matches!(it.entry.kind, Kind::File { .. } | Kind::Directory));
    others
        .filter(|it| it.entry.hard_link.is_some_and(|group| !groups.insert(group)))
        .map(|it| it.path)
        .collect()
}

/// Gives whatever has several names its further ones.
fn make_links(tree: &Destination, described: &EntryDescriptor, overwrite: Overwrite) -> Vec<FileError> {
    let (mut first, mut failed) = (HashMap::new(), Vec::new());
    let further = further_names(described);
    for DescribedEntry { path, entry, start } in described.entries() {
        let Some(group) = entry.hard_link else { continue };
        let is_file = matches!(entry.kind, Kind::File { .. });
        if start.is_some() || !is_file && !further.contains(&path) {
            first.insert(group, path);
        } else if let Some(existing) = first.get(&group) {
            let linked = tree.stamp_at(existing);
            let linked = linked.and_then(|seen| tree.nodes().hard_link(existing, &seen, &path, overwrite));
            failed.extend(linked.err());
        }
    }
    failed
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use towpath_content::tree::{Encoder, Event, Metadata};

    #[test]
    fn a_hole_stays_one_wherever_its_runs_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sparse");
        let content = [vec![7; 5000], vec![0; 1 << 20], vec![8; 3000]].concat();
        let (size, oid) = (content.len() as u64, Oid::Blake3(*blake3::hash(&content).as_bytes()));
        let kind = Kind::File { size, oid: Some(oid), extents: Some(Vec::new()) };
        let metadata = Metadata { mode: 0o644, ..Metadata::default() };
        let entry = Entry { name: Vec::new(), metadata, kind, hard_link: None };
        let mut encoder = Encoder::new(false);
        encoder.push(&Event::Leaf(entry)).unwrap();
        let described = EntryDescriptor::new(encoder.finish().unwrap(), size).unwrap();
        let mut writer = EntryWriter::file(&path, false, &described);
        writer.begin().unwrap();
        content.chunks(1001).for_each(|run| writer.write(run).unwrap());
        let outcome = writer.finish().unwrap();
        assert_eq!((outcome.files, outcome.bytes), (1, size));
        assert!(std::fs::read(&path).unwrap() == content);
        let taken = std::fs::metadata(&path).unwrap().blocks() * 512;
        assert!(taken <= 64 << 10, "{taken} bytes of {size} are no hole");
    }

    fn entry(name: &str, kind: Kind) -> Entry {
        let metadata = Metadata { mode: 0o755, ..Metadata::default() };
        Entry { name: name.into(), metadata, kind, hard_link: None }
    }

    #[test]
    fn files_of_a_large_tree_take_their_names_while_more_come_and_each_failure_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let count = 2 * NAMED.0 as usize + 7;
        let mut encoder = Encoder::new(false);
        encoder.push(&Event::Enter(entry("", Kind::Directory))).unwrap();
        let oid = Some(Oid::Blake3(*blake3::hash(b"x").as_bytes()));
        for number in 0..count {
            let kind = Kind::File { size: 1, oid, extents: None };
            encoder.push(&Event::Leaf(entry(&format!("{number:05}"), kind))).unwrap();
        }
        encoder.push(&Event::Leave).unwrap();
        let described = EntryDescriptor::new(encoder.finish().unwrap(), count as u64).unwrap();
        let path = folder.path().join("tree");
        let place = |number: usize| path.join(format!("{number:05}"));
        // No file takes the place of a directory that has something in it.
        std::fs::create_dir_all(place(3).join("in the way")).unwrap();
        let mut writer = EntryWriter::tree(&path, true, &described).unwrap();
        writer.begin().unwrap();
        writer.write(&vec![b'x'; count - 1]).unwrap();
        assert!(place(0).exists(), "the first lot was named before the second began to be");
        assert!(!place(count - 2).exists(), "nobody synced the last one");
        writer.write(b"x").unwrap();
        let outcome = writer.finish().unwrap();
        assert_eq!((outcome.files, outcome.failed.len()), (count as u64, 1), "{:?}", outcome.failed);
        assert!(outcome.failed[0].path().ends_with("00003"), "{:?}", outcome.failed);
        let whole = (0..count).filter(|number| std::fs::read(place(*number)).is_ok_and(|file| file == b"x"));
        assert_eq!(whole.count(), count - 1);
    }
}
