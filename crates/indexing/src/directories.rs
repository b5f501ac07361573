//! `tow index`: files are cut and hashed before anyone asks, so that later transfers find them.
//!
//! Indexed are the content of each file, and of files of 4 KiB and more their chunks, cut as a recipe of
//! an object of that size would. A file whose stamp is on record is not read again. Other file systems are
//! not entered, links not followed, the service's own folders left out. Files come in batches, small ones
//! hashed side by side; memory is bounded by a batch.
//!
//! `index_parts` indexes anew what changed in trees that are watched ([`crate::watch`]).

use std::ffi::OsStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rayon::prelude::*;
use towpath_api::{ApiError, ErrorKind, Event, Indexed, Progress, Seconds};
use towpath_content::Oid;
use towpath_content::chunking::Parameters;
pub use towpath_disk_search::Cancel;
use towpath_disk_search::whole_as_chunk;
use towpath_files::{
    FileError, HardLinks, Prune, RelPath, ScanError, ScanOptions, Scanned, ScannedFile, SourceTree,
    is_temporary_name, reason,
};
use towpath_store::disk::chunk_index::{CutChunk, CutFile};
use towpath_store::{DiskStore, FileRecord, Stamp, StoreError, cut_and_hash_open_file, hash_open_file};

use crate::IndexHost;
use towpath_config::Home;
use towpath_targets::index_record::store_stamp;
use towpath_words as words;

/// Interval at which progress is reported.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);
/// Files handled at once.
const BATCH: usize = 512;
/// Directories whose handles a batch may hold.
const BATCH_DIRS: usize = 64;
/// Smaller files are not cut: as a rule they are one chunk.
const MIN_CUT: u64 = 4 << 10;
/// Larger files are read one at a time, each on all cores.
const MAX_SIDE_BY_SIDE: u64 = 1 << 20;

/// Indexes the trees at `roots`; what happens goes to `tell`. What was indexed when it is cancelled stays.
pub fn index(
    host: &IndexHost,
    roots: &[PathBuf],
    cancel: &Cancel,
    report: &mut dyn FnMut(Event),
) -> Result<Indexed, ApiError> {
    let own = own_folders(&host.home);
    let (unread, indexed) = run(&host.store, cancel, report, |indexer| indexer.trees(roots, &own))?;
    if unread == roots.len() {
        return Err(ApiError::new(ErrorKind::NotFound, "nothing could be indexed")
            .hint("name directories that you may read"));
    }
    Ok(indexed)
}

/// A directory of a tree.
pub(crate) struct IndexPart<'a> {
    /// The tree, by its path without symbolic links.
    pub(crate) tree: &'a SourceTree,
    /// Its number to whoever asks.
    pub(crate) number: usize,
    /// The directory.
    pub(crate) at: RelPath,
    /// With all that is below it.
    pub(crate) is_deep: bool,
}

/// Told of a directory before its names are read: the directory, and its path in the tree of that part.
pub(crate) type Entered<'a> = &'a mut dyn FnMut(&IndexPart<'_>, BorrowedFd<'_>, &RelPath);

/// Indexes `parts`; those that can't be read are passed over.
pub(crate) fn index_parts(
    host: &IndexHost,
    parts: &[IndexPart<'_>],
    cancel: &Cancel,
    entered: Entered<'_>,
    report: &mut dyn FnMut(Event),
) -> Result<Indexed, ApiError> {
    let own = own_folders(&host.home);
    let index = |indexer: &mut Indexer<'_>| {
        parts.iter().try_for_each(|part| match indexer.part(part, &own, entered) {
            Ok(()) | Err(IndexStop::Root(_)) => Ok(()),
            Err(IndexStop::Error(error)) => Err(error),
        })
    };
    run(&host.store, cancel, report, index).map(|((), indexed)| indexed)
}

fn run<T>(
    store: &DiskStore,
    cancel: &Cancel,
    report: &mut dyn FnMut(Event),
    index: impl FnOnce(&mut Indexer<'_>) -> Result<T, ApiError>,
) -> Result<(T, Indexed), ApiError> {
    let started = Instant::now();
    let indexed = Indexed::default();
    let mut indexer =
        Indexer { store, cancel, report, indexed, batch: Vec::new(), dirs: 0, reported_at: Instant::now() };
    let done = index(&mut indexer);
    // Indexed files stay, also if that ended early.
    store.chunk_index().flush().map_err(|error| words::store(&error))?;
    Ok((done?, Indexed { seconds: Seconds::from_duration(started.elapsed()), ..indexer.indexed }))
}

/// Keys, index, objects and socket are no files of the user's.
fn own_folders(home: &Home) -> Vec<PathBuf> {
    let key = home.key();
    let folders = [home.data(), home.state(), home.runtime()].into_iter().chain(key.parent());
    folders.map(|folder| folder.canonicalize().unwrap_or_else(|_| folder.into())).collect()
}

enum IndexStop {
    /// This tree can't be read.
    Root(String),
    /// No tree can be indexed any more.
    Error(ApiError),
}

struct Indexer<'a> {
    store: &'a DiskStore,
    cancel: &'a Cancel,
    report: &'a mut dyn FnMut(Event),
    indexed: Indexed,
    batch: Vec<ScannedFile>,
    dirs: usize,
    reported_at: Instant,
}

/// Plan for a file.
enum IndexPlan {
    /// All is on record.
    Nothing,
    /// Its content is to be named.
    Hash,
    /// It is to be cut as well.
    Cut(Parameters),
}

/// Result of reading a file.
struct ReadFile {
    record: FileRecord,
    cut: Option<(Parameters, Vec<CutChunk>)>,
}

impl Indexer<'_> {
    /// Returns how many of the trees could not be read.
    fn trees(&mut self, roots: &[PathBuf], own: &[PathBuf]) -> Result<usize, ApiError> {
        let mut unread = 0;
        for root in roots {
            match self.tree(root, own) {
                Ok(()) => {}
                Err(IndexStop::Root(why)) => {
                    unread += 1;
                    self.fail(root, &why);
                }
                Err(IndexStop::Error(error)) => return Err(error),
            }
        }
        Ok(unread)
    }

    fn tree(&mut self, root: &Path, own: &[PathBuf]) -> Result<(), IndexStop> {
        let root = root.canonicalize().map_err(|error| IndexStop::Root(reason(&error)))?;
        let tree = SourceTree::open(&root).map_err(|error| IndexStop::Root(error.to_string()))?;
        self.part(
            &IndexPart { tree: &tree, number: 0, at: RelPath::root(), is_deep: true },
            own,
            &mut |_, _, _| {},
        )
    }

    fn part(&mut self, part: &IndexPart<'_>, own: &[PathBuf], entered: Entered<'_>) -> Result<(), IndexStop> {
        let options = ScanOptions { one_file_system: true, ..ScanOptions::default() };
        let mut prune = NotOurs { part, own, entered };
        let visit = &mut |step| self.step(step);
        let scanned = part.tree.scan_below(&part.at, &options, &mut HardLinks::default(), &mut prune, visit);
        scanned.map_err(|error| match error {
            ScanError::Root(error) => IndexStop::Root(error.to_string()),
            ScanError::Stopped(error) => IndexStop::Error(error),
        })?;
        self.flush().map_err(IndexStop::Error)
    }

    fn step(&mut self, step: Scanned) -> Result<(), ApiError> {
        match step {
            Scanned::Enter(_) => self.dirs += 1,
            Scanned::Leaf(found) => {
                let file = found.file.filter(|file| file.stamp().size > 0);
                self.batch.extend(file.map(|file| *file));
            }
            Scanned::Leave => {}
            Scanned::Failed(error) => self.fail_file(&error),
        }
        if self.batch.len() >= BATCH || self.dirs >= BATCH_DIRS { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), ApiError> {
        self.dirs = 0;
        let batch = std::mem::take(&mut self.batch);
        let mut plans = Vec::with_capacity(batch.len());
        for run in batch.chunk_by(|one, next| one.path().parent() == next.path().parent()) {
            plans.extend(self.plan(run).map_err(|error| words::store(&error))?);
        }
        let mut jobs: Vec<(&ScannedFile, IndexPlan)> = batch.iter().zip(plans).collect();
        jobs.retain(|(file, plan)| {
            let is_known = matches!(plan, IndexPlan::Nothing);
            if is_known {
                self.count(file.stamp().size);
                self.indexed.unchanged += 1;
            }
            !is_known
        });
        let is_small = |job: &(&ScannedFile, IndexPlan)| job.0.stamp().size <= MAX_SIDE_BY_SIDE;
        let (small, large): (Vec<_>, Vec<_>) = jobs.into_iter().partition(is_small);
        for few in small.chunks(BATCH / 8) {
            let read = few.par_iter().with_max_len(1).map(|(file, plan)| read(file, plan, self.cancel));
            let read: Vec<_> = read.collect();
            self.record(few.iter().map(|(file, _)| *file).zip(read))?;
        }
        for (file, plan) in &large {
            let read = read(file, plan, self.cancel);
            self.record([(*file, read)])?;
        }
        self.progress();
        self.check()
    }

    /// Plans for files of one directory.
    fn plan(&self, run: &[ScannedFile]) -> Result<Vec<IndexPlan>, StoreError> {
        let name_and_stamp = |file: &ScannedFile| {
            (file.path().file_name().unwrap_or_default().to_owned(), store_stamp(file.stamp()))
        };
        let files: Vec<_> = run.iter().map(name_and_stamp).collect();
        let dir = run.first().and_then(|file| file.path().parent()).unwrap_or(Path::new("/"));
        let known = self.store.known(dir, &files)?;
        let plan = |(file, oid): (&ScannedFile, Option<Oid>)| {
            let stamp: Stamp = store_stamp(file.stamp());
            let parameters = Parameters::for_size(stamp.size).filter(|_| stamp.size >= MIN_CUT);
            let is_cut = |by: &Parameters| self.store.chunk_index().is_cut(file.path(), &stamp, by);
            Ok(match (oid, parameters) {
                (Some(_), None) => IndexPlan::Nothing,
                (Some(_), Some(parameters)) if is_cut(&parameters)? => IndexPlan::Nothing,
                (_, Some(parameters)) => IndexPlan::Cut(parameters),
                (None, None) => IndexPlan::Hash,
            })
        };
        run.iter().zip(known).map(plan).collect()
    }

    fn record<'f>(
        &mut self,
        files: impl IntoIterator<Item = (&'f ScannedFile, Result<ReadFile, String>)>,
    ) -> Result<(), ApiError> {
        let mut records = Vec::new();
        for (file, read) in files {
            self.check()?;
            match read {
                Err(why) => self.fail(file.path(), &why),
                Ok(ReadFile { record, cut }) => {
                    let size = record.stamp.size;
                    self.count(size);
                    self.indexed.read += size;
                    if let Some((parameters, chunks)) = cut {
                        let FileRecord { stamp, settled, .. } = record;
                        let path = file.path();
                        let cut = CutFile { path, stamp, settled, parameters, chunks: &chunks };
                        let recorded = self.store.chunk_index().record_chunks(&cut);
                        recorded.map_err(|error| words::store(&error))?;
                    }
                    records.push(record);
                }
            }
        }
        self.progress();
        self.store.remember(&records).map_err(|error| words::store(&error))
    }

    fn count(&mut self, size: u64) {
        self.indexed.files += 1;
        self.indexed.bytes += size;
    }

    fn progress(&mut self) {
        if self.reported_at.elapsed() >= PROGRESS_EVERY {
            self.reported_at = Instant::now();
            let Indexed { files, bytes, .. } = self.indexed;
            // Nobody knows yet how much there is.
            let progress = Progress { done: bytes, expected: bytes, objects: files, ..Progress::default() };
            (self.report)(Event::Transfer(progress));
        }
    }

    fn check(&self) -> Result<(), ApiError> {
        if self.cancel.is_cancelled() {
            return Err(ApiError::new(ErrorKind::Interrupted, "interrupted"));
        }
        Ok(())
    }

    fn fail_file(&mut self, error: &FileError) {
        let why = error.to_string();
        self.fail(error.path(), &why);
    }

    fn fail(&mut self, path: &Path, why: &str) {
        self.indexed.failed += 1;
        let path = towpath_files::display_name(path.as_os_str().as_encoded_bytes());
        (self.report)(Event::FileFailed { path, error: why.to_owned() });
    }
}

fn read(file: &ScannedFile, plan: &IndexPlan, cancel: &Cancel) -> Result<ReadFile, String> {
    if cancel.is_cancelled() {
        return Err("interrupted".into());
    }
    let open = file.open().map_err(|error| error.to_string())?;
    let path = file.path();
    let (dir, name) = path.parent().zip(path.file_name()).ok_or("has no name")?;
    let IndexPlan::Cut(parameters) = plan else {
        let hashed = hash_open_file(&open, path).map_err(|error| error.to_string())?;
        return Ok(ReadFile { record: FileRecord::new(dir, name, hashed), cut: None });
    };
    let mut chunks = Vec::new();
    let hashed = cut_and_hash_open_file(&open, path, parameters, &mut |run, _| {
        if cancel.is_cancelled() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        chunks.extend(run.iter().map(|found| CutChunk {
            hash: found.hash,
            offset: found.offset,
            len: found.len,
        }));
        Ok(())
    });
    let hashed = hashed.map_err(|error| error.to_string())?;
    chunks.extend(whole_as_chunk(&hashed, chunks.len()));
    Ok(ReadFile { record: FileRecord::new(dir, name, hashed), cut: Some((*parameters, chunks)) })
}

/// Leaves out the service's own folders and temporaries.
struct NotOurs<'a> {
    part: &'a IndexPart<'a>,
    own: &'a [PathBuf],
    entered: Entered<'a>,
}

impl Prune for NotOurs<'_> {
    fn enter(&mut self, dir: BorrowedFd<'_>, path: &RelPath) -> Result<(), FileError> {
        (self.entered)(self.part, dir, path);
        Ok(())
    }

    fn leave(&mut self) {}

    fn shows(&mut self, dir: &RelPath, name: &[u8], is_dir: bool) -> bool {
        let is_own = || self.own.contains(&dir.below(self.part.tree.path()).join(OsStr::from_bytes(name)));
        !(is_temporary_name(name) || is_dir && (!self.part.is_deep || is_own()))
    }
}
