//! Descriptors: names, metadata and hashes of what is put, as a tree descriptor (`docs/formats/tree.md`).

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use towpath_content::Oid;
use towpath_content::tree::{Decoder, Encoder, Entry, Event, Kind, MAX_EXTENTS};
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
    events: Vec<Event>,
    /// For each event that is a file: the number of its content.
    contents: Vec<Option<usize>>,
}

/// Collects what a scan finds.
#[derive(Default)]
struct LocalScan {
    events: Vec<Event>,
    contents: Vec<Option<usize>>,
    files: Vec<ContentFile>,
    length: u64,
    path: RelPath,
    failed: Vec<FileError>,
    /// Content of each group of hard links.
    links: std::collections::HashMap<u64, usize>,
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
        let mut scan = LocalScan::default();
        let scanned = tree.scan(options, &mut |step| {
            scan.step(step);
            Ok::<(), std::convert::Infallible>(())
        });
        match scanned {
            Ok(()) => Ok(scan.into_tree(tree, true, seen)),
            Err(ScanError::Root(error)) => Err(error.into()),
            Err(ScanError::Stopped(never)) => match never {},
        }
    }

    fn of_file(path: &Path, mut found: Found, seen: SystemTime) -> Result<Self, VaultClientError> {
        let tree = SourceTree::open(path.parent().unwrap_or(Path::new("/")))?;
        let name = std::mem::take(&mut found.entry.name);
        let mut scan = LocalScan { path: RelPath::new([name])?, ..LocalScan::default() };
        scan.leaf_here(found);
        Ok(scan.into_tree(tree, false, seen))
    }

    /// The descriptor, once all content was read.
    pub fn descriptor(&self) -> Result<Vec<u8>, VaultClientError> {
        let oids = self.content.oids();
        let mut encoder = Encoder::new(false);
        let mut bytes = Vec::new();
        for (event, content) in self.events.iter().zip(&self.contents) {
            let known = content.and_then(|content| oids.get(content)).copied();
            encoder.push(&with_oid(event, known)).map_err(refused)?;
            bytes.append(&mut encoder.take());
        }
        bytes.append(&mut encoder.finish().map_err(refused)?);
        Ok(bytes)
    }
}

fn refused(why: towpath_content::tree::TreeError) -> VaultClientError {
    VaultClientError::Record { what: "the tree", why: why.to_string() }
}

fn with_oid(event: &Event, known: Option<Oid>) -> Event {
    let mut event = event.clone();
    if let Event::Leaf(Entry { kind: Kind::File { oid, .. }, .. }) = &mut event {
        *oid = known;
    }
    event
}

/// All metadata that copies keep.
fn scan_options() -> ScanOptions {
    ScanOptions { xattrs: true, acls: true, owner_names: true, hard_links: true, ..ScanOptions::default() }
}

impl LocalScan {
    fn step(&mut self, step: Scanned) {
        match step {
            Scanned::Enter(found) => self.enter(found),
            Scanned::Leaf(found) => self.leaf(found),
            Scanned::Failed(error) => self.failed.push(error),
            Scanned::Leave => {
                self.path.pop();
                self.push(Event::Leave, None);
            }
        }
    }

    fn enter(&mut self, found: Found) {
        // The root has no name, and its path is the root's.
        if !found.entry.name.is_empty() {
            // The scan gives checked names.
            let _ = self.path.push(&found.entry.name);
        }
        self.push(Event::Enter(found.entry), None);
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
            _ => return self.push(Event::Leaf(found.entry), None),
        };
        let known = found.entry.hard_link.and_then(|group| self.links.get(&group).copied());
        let content = known.unwrap_or_else(|| {
            self.files.push(ContentFile { path: self.path.clone(), stamp: found.stamp, start: self.length });
            self.length += size;
            self.files.len() - 1
        });
        if let Some(group) = found.entry.hard_link {
            self.links.insert(group, content);
        }
        self.push(Event::Leaf(found.entry), Some(content));
    }

    fn push(&mut self, event: Event, content: Option<usize>) {
        self.events.push(event);
        self.contents.push(content);
    }

    fn into_tree(self, tree: SourceTree, is_tree: bool, seen: SystemTime) -> LocalTree {
        let Self { events, contents, files, failed, .. } = self;
        let count = files.len() as u64;
        let content = LocalContent::new(tree, files, seen);
        LocalTree { content, is_tree, failed, files: count, events, contents }
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

/// Reads a descriptor. What it says of lengths is compared with the content's.
pub fn read_descriptor(bytes: &[u8], length: u64) -> Result<Vec<DescribedEntry>, VaultClientError> {
    let failed = VaultClientError::record("the entry's description");
    let (mut decoder, mut rest) = (Decoder::new(), bytes);
    let mut listed = EntryList::default();
    while !rest.is_empty() {
        let taken = decoder.feed(rest);
        rest = &rest[taken..];
        while let Some(located) = decoder.next_event().map_err(&failed)? {
            listed.add(located.event)?;
        }
    }
    decoder.finish().map_err(&failed)?;
    match listed.length == length {
        true => Ok(listed.entries),
        false => {
            let why = format!("its files have {} bytes and its content {length}", listed.length);
            Err(VaultClientError::Record { what: "the entry's description", why })
        }
    }
}

#[derive(Default)]
struct EntryList {
    entries: Vec<DescribedEntry>,
    path: RelPath,
    length: u64,
    links: std::collections::HashSet<u64>,
}

impl EntryList {
    fn add(&mut self, event: Event) -> Result<(), VaultClientError> {
        let (entry, is_directory) = match event {
            Event::Leave => {
                self.path.pop();
                return Ok(());
            }
            Event::Enter(entry) => (entry, true),
            Event::Leaf(entry) => (entry, false),
        };
        let is_root = entry.name.is_empty();
        if !is_root {
            self.path.push(&entry.name)?;
        }
        let start = self.start(&entry)?;
        self.entries.push(DescribedEntry { path: self.path.clone(), entry, start });
        if !is_directory && !is_root {
            self.path.pop();
        }
        Ok(())
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

/// What a path is called if no name is given: its last component.
pub fn default_name(path: &Path) -> Option<Vec<u8>> {
    use std::os::unix::ffi::OsStrExt;
    let absolute: PathBuf = std::path::absolute(path).ok()?;
    Some(absolute.file_name()?.as_bytes().to_vec())
}
