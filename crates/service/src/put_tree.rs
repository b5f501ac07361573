//! A file tree into the store: scanned, hashed on all cores, and described as it goes.
//!
//! The descriptor is a live object while the scan runs, so a receiver creates the first files
//! before the last ones are read. Steps are taken in batches: files that the index knows under
//! their stamp are not opened; the others are hashed in parallel; then the descriptor grows in
//! the scan's order. Small files are read in any case, as the descriptor holds their bytes. Memory
//! is bounded by a batch.
//!
//! Entries left out are named to whoever puts the tree, and are in the descriptor without
//! content, so that receivers name it too.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;
use towpath_api::{ApiError, ErrorKind};
use towpath_content::Oid;
use towpath_content::tree::{Encoder, Entry, Event, Kind, LEFT_OUT, MAX_EXTENTS, MAX_INLINE, Metadata};
use towpath_files::{Found, Scanned, ScannedFile, data_extents, display_name};
use towpath_protocol::processors::Processors;
use towpath_store::FileRecord;
use towpath_store::hash_and_keep;
use towpath_store::{About, DiskStore, Stamp, Store};
use towpath_targets::index_record::store_stamp;
use towpath_transfer::FetchError;

use crate::put_source::{PutSource, PutStep};
use towpath_words as words;

/// Steps of a scan handled at once.
const BATCH: usize = 1024;
/// Directories whose handles a batch may hold.
const BATCH_DIRS: usize = 64;

/// Totals of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeTotals {
    /// The descriptor's content OID.
    pub descriptor: Oid,
    /// Bytes of all files.
    pub bytes: u64,
}

/// Reports while a tree is being read.
pub struct PutReport<'a> {
    /// Told the paths that were left out, and why. May block.
    pub left_out: &'a dyn Fn(String, String),
    /// Bytes of files that were read, or known already.
    pub read: &'a AtomicU64,
}

/// Puts the tree of `source` under `live`. What cannot be read is left out and reported: its path, and why.
pub fn put(
    store: &DiskStore,
    processors: &Processors,
    source: &PutSource,
    live: &Oid,
    about: &About,
    report: &PutReport<'_>,
) -> Result<TreeTotals, ApiError> {
    store.put_init(live, about).map_err(|error| words::store(&error))?;
    let result = describe(store, processors, (source, about), live, report);
    if result.is_err() {
        store.put_abort(live);
    }
    result
}

fn describe(
    store: &DiskStore,
    processors: &Processors,
    (source, about): (&PutSource, &About),
    live: &Oid,
    report: &PutReport<'_>,
) -> Result<TreeTotals, ApiError> {
    let mut builder = DescriptorBuilder {
        store,
        processors,
        root: PathBuf::new(),
        live,
        report,
        encoder: Encoder::with_content(false),
        batch: Vec::new(),
        dirs: 0,
        bytes: 0,
        open: Vec::new(),
        last: None,
        is_closed: false,
    };
    source.scan(about, &mut |root, step| builder.next(root, step))?;
    builder.finish()
}

struct DescriptorBuilder<'a> {
    store: &'a DiskStore,
    /// Processors for small files, whose bytes leave with the descriptor.
    processors: &'a Processors,
    /// The directory that the tree's paths are below at the moment.
    root: PathBuf,
    live: &'a Oid,
    report: &'a PutReport<'a>,
    encoder: Encoder,
    batch: Vec<TreeStep>,
    dirs: usize,
    bytes: u64,
    /// The names of the directories that the scan is in, from the root on.
    open: Vec<Vec<u8>>,
    /// The last entry of the innermost of them.
    last: Option<Vec<u8>>,
    /// True if that directory is an entry without content.
    is_closed: bool,
}

/// A step of the scan, and for a file what became of it.
struct TreeStep {
    event: Event,
    file: Option<ScannedFile>,
    hashed: Hash,
    /// The bytes of a small file.
    content: Vec<u8>,
}

enum Hash {
    /// Not a file, or not looked at yet.
    Open,
    /// In the index.
    Cached(Oid),
    /// Hashed now.
    New(FileRecord),
    /// Could not be read.
    Failed(String),
}

impl DescriptorBuilder<'_> {
    fn next(&mut self, root: &Path, step: PutStep) -> Result<(), ApiError> {
        if self.root != root {
            // Entries that wait are named below the last one.
            self.flush()?;
            self.root = root.to_path_buf();
        }
        match step {
            PutStep::Scanned(step) => self.step(step)?,
            PutStep::Top(entry) => {
                self.open.push(Vec::new());
                self.push(Event::Enter(entry), None);
            }
            PutStep::End => self.push(Event::Leave, None),
        }
        Ok(())
    }

    fn step(&mut self, step: Scanned) -> Result<(), ApiError> {
        // A directory that could not be read is one step, and that it could not is the next.
        let is_full = self.batch.len() >= BATCH || self.dirs >= BATCH_DIRS;
        if is_full && !matches!(step, Scanned::Failed(_)) {
            self.flush()?;
        }
        match step {
            Scanned::Enter(found) => {
                self.dirs += 1;
                self.open.push(found.entry.name.clone());
                self.last = None;
                self.push(Event::Enter(found.entry), None);
            }
            Scanned::Leaf(found) => self.leaf(found),
            Scanned::Leave => {
                self.last = self.open.pop();
                if !std::mem::take(&mut self.is_closed) {
                    self.push(Event::Leave, None);
                }
            }
            Scanned::Failed(error) => {
                self.report(error.path(), error.to_string());
                if !error.is_of_attributes() {
                    self.failed(error.path());
                }
            }
        }
        Ok(())
    }

    fn leaf(&mut self, found: Found) {
        self.last = Some(found.entry.name.clone());
        self.push(Event::Leaf(found.entry), found.file.map(|file| *file));
    }

    /// Adds an entry for what the scan could not look at.
    fn failed(&mut self, path: &Path) {
        let Ok(path) = path.strip_prefix(&self.root) else { return };
        let here = self.open.iter().skip(1).map(Vec::as_slice).collect::<Vec<_>>().join(&b'/');
        if path.as_os_str().as_bytes() == here {
            return self.closed();
        }
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return };
        let name = name.as_bytes().to_vec();
        if above.as_os_str().as_bytes() != here || self.last.as_ref().is_some_and(|last| *last >= name) {
            return;
        }
        self.last = Some(name.clone());
        let (kind, metadata) = (Kind::Directory, Metadata::default());
        self.push(Event::Leaf(left_out(Entry { name, kind, metadata, hard_link: None })), None);
    }

    /// The innermost directory could not be read: it is one entry.
    fn closed(&mut self) {
        if self.open.len() < 2 {
            return;
        }
        match self.batch.pop() {
            Some(TreeStep { event: Event::Enter(entry), .. }) => {
                self.is_closed = true;
                self.push(Event::Leaf(left_out(entry)), None);
            }
            other => self.batch.extend(other),
        }
    }

    fn push(&mut self, event: Event, file: Option<ScannedFile>) {
        self.batch.push(TreeStep { event, file, hashed: Hash::Open, content: Vec::new() });
    }

    fn report(&self, path: &Path, why: String) {
        let path = path.strip_prefix(&self.root).unwrap_or(path);
        (self.report.left_out)(display_name(path.as_os_str().as_bytes()), why);
    }

    fn flush(&mut self) -> Result<(), ApiError> {
        let mut batch = std::mem::take(&mut self.batch);
        self.dirs = 0;
        self.look_up(&mut batch)?;
        batch.par_iter_mut().with_max_len(4).for_each(TreeStep::hash);
        let mut records = Vec::new();
        for step in batch {
            self.describe(step, &mut records)?;
        }
        self.store.remember(&records).map_err(|error| words::store(&error))?;
        let blocks = self.encoder.take();
        self.store.put_data(self.live, &blocks).map_err(|error| words::store(&error))
    }

    /// Asks the index for all files of the batch, directory by directory.
    fn look_up(&self, batch: &mut [TreeStep]) -> Result<(), ApiError> {
        let dir =
            |step: &TreeStep| step.file.as_ref().and_then(|file| file.path().parent().map(Path::to_path_buf));
        for run in batch.chunk_by_mut(|one, next| dir(one) == dir(next)) {
            let Some(folder) = run.first().and_then(dir) else { continue };
            let files: Vec<_> =
                run.iter().filter_map(|step| step.file.as_ref()).map(name_and_stamp).collect();
            let known = self.store.known(&folder, &files).map_err(|error| words::store(&error))?;
            for (step, known) in run.iter_mut().zip(known) {
                if let Some(oid) = known {
                    step.hashed = Hash::Cached(oid);
                }
            }
        }
        Ok(())
    }

    fn describe(&mut self, step: TreeStep, records: &mut Vec<FileRecord>) -> Result<(), ApiError> {
        let TreeStep { mut event, file, hashed, mut content } = step;
        let name = match hashed {
            Hash::Failed(why) => {
                if let Some(file) = &file {
                    self.report(file.path(), why);
                }
                return self.without_content(event);
            }
            Hash::Cached(oid) => Some(oid),
            Hash::New(record) => {
                let oid = record.oid;
                if let Event::Leaf(entry) = &mut event
                    && let Kind::File { size, .. } = &mut entry.kind
                {
                    *size = record.stamp.size;
                }
                records.push(record);
                Some(oid)
            }
            Hash::Open => None,
        };
        if let Event::Leaf(entry) = &mut event
            && let Kind::File { size, oid, extents } = &mut entry.kind
        {
            *oid = name.or(*oid);
            self.bytes += *size;
            self.report.read.store(self.bytes, Ordering::Relaxed);
            *extents = file
                .as_ref()
                .filter(|file| file.looks_sparse())
                .and_then(|file| data_extents(&file.open().ok()?, *size, MAX_EXTENTS));
        }
        if event.entry().is_none_or(|entry| entry.inline_len() == 0) {
            content.clear();
        }
        if let (false, Some(oid), Some(file)) = (content.is_empty(), name, &file) {
            let path = file.path().strip_prefix(&self.root).unwrap_or_else(|_| file.path());
            if let Err(outcome) = self.processors.pass_whole(&oid, path.as_os_str().as_bytes(), &content) {
                self.report(file.path(), FetchError::Ended(outcome).to_string());
                return self.without_content(event);
            }
        }
        self.encode(&event, &content)
    }

    fn without_content(&mut self, event: Event) -> Result<(), ApiError> {
        match event {
            Event::Leaf(entry) => self.encode(&Event::Leaf(left_out(entry)), &[]),
            _ => Ok(()),
        }
    }

    fn encode(&mut self, event: &Event, content: &[u8]) -> Result<(), ApiError> {
        self.encoder.push_with(event, content).map_err(|error| {
            ApiError::new(ErrorKind::Failed, format!("{} can't be described: {error}", self.root.display()))
        })
    }

    fn finish(mut self) -> Result<TreeTotals, ApiError> {
        self.flush()?;
        let encoder = std::mem::replace(&mut self.encoder, Encoder::with_content(false));
        let last = encoder.finish().map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))?;
        self.store.put_data(self.live, &last).map_err(|error| words::store(&error))?;
        let descriptor = self.store.put_commit(self.live).map_err(|error| words::store(&error))?;
        Ok(TreeTotals { descriptor, bytes: self.bytes })
    }
}

impl TreeStep {
    fn hash(&mut self) {
        let Some(file) = &self.file else { return };
        if matches!(self.hashed, Hash::Cached(_)) && file.stamp().size > MAX_INLINE {
            return;
        }
        match (hash_file(file), &self.hashed) {
            (Ok((record, content)), Hash::Cached(oid)) if record.oid == *oid => self.content = content,
            (Ok((record, content)), _) => (self.hashed, self.content) = (Hash::New(record), content),
            (Err(why), _) => self.hashed = Hash::Failed(why),
        }
    }
}

/// The same entry as a file whose content nobody has.
fn left_out(entry: Entry) -> Entry {
    Entry { kind: Kind::File { size: 0, oid: Some(LEFT_OUT), extents: None }, ..entry }
}

fn hash_file(file: &ScannedFile) -> Result<(FileRecord, Vec<u8>), String> {
    let open = file.open().map_err(|error| error.to_string())?;
    let hashed = hash_and_keep(&open, file.path(), MAX_INLINE);
    let (hashed, content) = hashed.map_err(|error| error.to_string())?;
    let (dir, name) = (file.path().parent(), file.path().file_name());
    let (dir, name) = dir.zip(name).ok_or("has no name")?;
    Ok((FileRecord::new(dir, name, hashed), content))
}

fn name_and_stamp(file: &ScannedFile) -> (PathBuf, Stamp) {
    (file.path().file_name().map(PathBuf::from).unwrap_or_default(), store_stamp(file.stamp()))
}
