//! Descriptors: names, metadata and hashes of what is put, as a tree descriptor (`docs/formats/tree.md`).
//!
//! A tree stays in its encoding, a hundred bytes an entry, and is read again by each who goes through it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use towpath_content::Oid;
use towpath_content::tree::{Decoder, Encoder, Entry, Event, Kind, MAX_EXTENTS, TreeError};
use towpath_files::{
    FileError, Found, RelPath, ScanError, ScanOptions, Scanned, SourceTree, data_extents, look,
};

use crate::content::LocalContent;
use crate::error::VaultClientError;
use crate::unchanged::ContentFile;

/// The most bytes of a descriptor: some millions of files.
pub const MAX_DESCRIPTOR: u64 = 1 << 30;

/// What was found at a path: its content, and a descriptor that lacks the hashes.
#[derive(Debug)]
pub struct LocalTree {
    /// The bytes.
    pub content: LocalContent,
    /// True for a directory.
    pub is_tree: bool,
    /// What could not be read and is left out.
    pub failed: Vec<FileError>,
    /// Files, the names of one counted once.
    pub files: u64,
    /// A descriptor without hashes.
    walk: Vec<u8>,
}

/// Collects what a scan finds.
struct LocalScan {
    walk: Vec<u8>,
    encoder: Encoder,
    refused: Option<TreeError>,
    files: Vec<ContentFile>,
    length: u64,
    path: RelPath,
    failed: Vec<FileError>,
    numbers: FileNumbers,
}

/// Numbers of contents in the order of a walk: names of one inode have the same.
#[derive(Default)]
struct FileNumbers {
    links: HashMap<u64, usize>,
    count: usize,
}

impl LocalTree {
    /// Looks at a file or a directory with all below it. A link that a person names is followed.
    pub fn at(path: &Path) -> Result<Self, VaultClientError> {
        let seen = SystemTime::now();
        let options = scan_options();
        let named = std::fs::canonicalize(path).map_err(|error| FileError::new("open", path, error))?;
        let found = look(&named, &options)?;
        match found.entry.kind {
            Kind::Directory => Self::of_directory(&named, &options, seen),
            Kind::File { .. } => Self::of_file(&named, found, seen),
            _ => {
                let what =
                    std::io::Error::new(std::io::ErrorKind::InvalidInput, "neither a file nor a directory");
                Err(FileError::new("put", path, what).into())
            }
        }
    }

    fn of_directory(path: &Path, options: &ScanOptions, seen: SystemTime) -> Result<Self, VaultClientError> {
        let tree = SourceTree::open(path)?;
        let mut scan = LocalScan::below(RelPath::default());
        let scanned = tree.scan(options, &mut |step| {
            scan.step(step);
            Ok::<(), std::convert::Infallible>(())
        });
        match scanned {
            Ok(()) => scan.into_tree(tree, true, seen),
            Err(ScanError::Root(error)) => Err(error.into()),
            Err(ScanError::Stopped(never)) => match never {},
        }
    }

    fn of_file(path: &Path, mut found: Found, seen: SystemTime) -> Result<Self, VaultClientError> {
        let tree = SourceTree::open(path.parent().unwrap_or(Path::new("/")))?;
        let name = std::mem::take(&mut found.entry.name);
        let mut scan = LocalScan::below(RelPath::new([name])?);
        scan.leaf_here(found);
        scan.into_tree(tree, false, seen)
    }

    /// The descriptor, once all content was read.
    pub fn descriptor(&self) -> Result<Vec<u8>, VaultClientError> {
        let oids = self.content.oids();
        let (mut encoder, mut numbers) = (Encoder::new(false), FileNumbers::default());
        let mut bytes = Vec::with_capacity(self.walk.len() + oids.len() * size_of::<Oid>());
        for event in TreeEvents::of(&self.walk) {
            let mut event = event?;
            if let Event::Leaf(Entry { kind: Kind::File { oid, .. }, hard_link, .. }) = &mut event {
                *oid = oids.get(numbers.next(*hard_link).0).copied();
            }
            encoder.push(&event).map_err(refused)?;
            bytes.append(&mut encoder.take());
        }
        bytes.append(&mut encoder.finish().map_err(refused)?);
        Ok(bytes)
    }
}

fn refused(why: TreeError) -> VaultClientError {
    VaultClientError::Record { what: "the tree", why: why.to_string() }
}

impl FileNumbers {
    /// The number of the next file's content; true: it had none before.
    fn next(&mut self, hard_link: Option<u64>) -> (usize, bool) {
        let new = self.count;
        let number = hard_link.map_or(new, |group| *self.links.entry(group).or_insert(new));
        self.count += usize::from(number == new);
        (number, number == new)
    }
}

/// All metadata that copies keep.
fn scan_options() -> ScanOptions {
    ScanOptions { xattrs: true, acls: true, owner_names: true, hard_links: true, ..ScanOptions::default() }
}

impl LocalScan {
    fn below(path: RelPath) -> Self {
        let (walk, encoder, files) = (Vec::new(), Encoder::new(true), Vec::new());
        let (failed, numbers) = (Vec::new(), FileNumbers::default());
        Self { walk, encoder, refused: None, files, length: 0, path, failed, numbers }
    }

    fn step(&mut self, step: Scanned) {
        match step {
            Scanned::Enter(found) => self.enter(found),
            Scanned::Leaf(found) => self.leaf(found),
            Scanned::Failed(error) => self.failed.push(error),
            Scanned::Leave => {
                self.path.pop();
                self.push(&Event::Leave);
            }
        }
    }

    fn enter(&mut self, found: Found) {
        // The root has no name, and its path is the root's.
        if !found.entry.name.is_empty() {
            // The scan gives checked names.
            let _ = self.path.push(&found.entry.name);
        }
        self.push(&Event::Enter(found.entry));
    }

    fn leaf(&mut self, found: Found) {
        if self.path.push(&found.entry.name).is_ok() {
            self.leaf_here(found);
            self.path.pop();
        }
    }

    fn leaf_here(&mut self, mut found: Found) {
        let size = match &mut found.entry.kind {
            Kind::File { size, extents, .. } => {
                *extents = found.file.as_ref().filter(|file| file.looks_sparse()).and_then(|file| {
                    let open = file.open().ok()?;
                    data_extents(&open, *size, MAX_EXTENTS)
                });
                *size
            }
            _ => return self.push(&Event::Leaf(found.entry)),
        };
        if self.numbers.next(found.entry.hard_link).1 {
            self.files.push(ContentFile { path: self.path.clone(), stamp: found.stamp, start: self.length });
            self.length += size;
        }
        self.push(&Event::Leaf(found.entry));
    }

    fn push(&mut self, event: &Event) {
        if self.refused.is_none() {
            self.refused = self.encoder.push(event).err();
            self.walk.append(&mut self.encoder.take());
        }
    }

    fn into_tree(
        self,
        tree: SourceTree,
        is_tree: bool,
        seen: SystemTime,
    ) -> Result<LocalTree, VaultClientError> {
        let Self { mut walk, encoder, refused: why, mut files, failed, .. } = self;
        why.map_or(Ok(()), |why| Err(refused(why)))?;
        walk.append(&mut encoder.finish().map_err(refused)?);
        walk.shrink_to_fit();
        files.shrink_to_fit();
        let count = files.len() as u64;
        let content = LocalContent::new(tree, files, seen);
        Ok(LocalTree { content, is_tree, failed, files: count, walk })
    }
}

/// Events of an encoded tree. An error is the last one.
struct TreeEvents<'a> {
    /// None: all was read.
    decoder: Option<Decoder>,
    rest: &'a [u8],
}

impl<'a> TreeEvents<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        Self { decoder: Some(Decoder::new()), rest: bytes }
    }
}

impl Iterator for TreeEvents<'_> {
    type Item = Result<Event, VaultClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut decoder = self.decoder.take()?;
        let failed = VaultClientError::record("the entry's description");
        loop {
            match decoder.next_event() {
                Ok(None) if self.rest.is_empty() => {
                    return decoder.finish().err().map(|why| Err(failed(why)));
                }
                Ok(None) => {
                    let taken = decoder.feed(self.rest);
                    self.rest = &self.rest[taken..];
                }
                Ok(Some(located)) => {
                    self.decoder = Some(decoder);
                    return Some(Ok(located.event));
                }
                Err(why) => return Some(Err(failed(why))),
            }
        }
    }
}

/// Something that a descriptor names: where it is below the root, and what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribedEntry {
    /// Below the root of the entry; empty for the root.
    pub path: RelPath,
    /// Its metadata.
    pub entry: Entry,
    /// Where its bytes begin in the content, if it is a file and the first of its names.
    pub start: Option<u64>,
}

/// A descriptor that can be read.
#[derive(Debug)]
pub struct EntryDescriptor {
    bytes: Vec<u8>,
}

/// What a descriptor names, in order.
pub struct DescribedEntries<'a> {
    events: TreeEvents<'a>,
    path: RelPath,
    length: u64,
    links: std::collections::HashSet<u64>,
}

impl EntryDescriptor {
    /// Reads a descriptor. What it says of lengths is compared with the content's.
    pub fn new(bytes: Vec<u8>, length: u64) -> Result<Self, VaultClientError> {
        let mut entries = DescribedEntries::of(&bytes);
        while entries.next_entry()?.is_some() {}
        let found = entries.length;
        match found == length {
            true => Ok(Self { bytes }),
            false => {
                let why = format!("its files have {found} bytes and its content {length}");
                Err(VaultClientError::Record { what: "the entry's description", why })
            }
        }
    }

    /// What it names.
    pub fn entries(&self) -> DescribedEntries<'_> {
        DescribedEntries::of(&self.bytes)
    }
}

impl<'a> DescribedEntries<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        let (events, links) = (TreeEvents::of(bytes), std::collections::HashSet::new());
        Self { events, path: RelPath::default(), length: 0, links }
    }

    fn next_entry(&mut self) -> Result<Option<DescribedEntry>, VaultClientError> {
        while let Some(event) = self.events.next() {
            let (entry, is_directory) = match event? {
                Event::Leave => {
                    self.path.pop();
                    continue;
                }
                Event::Enter(entry) => (entry, true),
                Event::Leaf(entry) => (entry, false),
            };
            let is_root = entry.name.is_empty();
            if !is_root {
                self.path.push(&entry.name)?;
            }
            let described = DescribedEntry { path: self.path.clone(), start: self.start(&entry)?, entry };
            if !is_directory && !is_root {
                self.path.pop();
            }
            return Ok(Some(described));
        }
        Ok(None)
    }

    fn start(&mut self, entry: &Entry) -> Result<Option<u64>, VaultClientError> {
        let Kind::File { size, .. } = entry.kind else { return Ok(None) };
        if entry.hard_link.is_some_and(|group| !self.links.insert(group)) {
            return Ok(None);
        }
        let start = self.length;
        let counted = start.checked_add(size);
        let too_long = || VaultClientError::Record {
            what: "the entry's description",
            why: "its lengths overflow".into(),
        };
        self.length = counted.ok_or_else(too_long)?;
        Ok(Some(start))
    }
}

/// All was read before.
impl Iterator for DescribedEntries<'_> {
    type Item = DescribedEntry;

    fn next(&mut self) -> Option<DescribedEntry> {
        self.next_entry().ok().flatten()
    }
}

/// What a path is called if no name is given: its last component.
pub fn default_name(path: &Path) -> Option<Vec<u8>> {
    use std::os::unix::ffi::OsStrExt;
    let absolute: PathBuf = std::path::absolute(path).ok()?;
    Some(absolute.file_name()?.as_bytes().to_vec())
}
