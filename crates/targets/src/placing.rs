//! Complete files of a tree get their names in batches, one sync each, and are indexed then.
//!
//! A batch is named when the destination's own limits say so, and every few seconds besides: on a
//! slow link few files come, and what has no name yet is what a kill costs.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use towpath_content::Oid;
use towpath_content::pieces::Value;
use towpath_content::tree::Metadata;
use towpath_files::{BeforeNaming, Destination, FileError, Overwrite, Placed, RelPath, Staged, Stamp};
use towpath_store::{DiskStore, FileRecord, State, Store, hash_open_file};

use crate::index_record::{file_record, known_at};
use crate::resume::{Record, wait_while_busy};
use towpath_content::lock::lock;

/// Time that complete files may wait for the sync that gives them their names.
const NAME_EVERY: Duration = Duration::from_secs(2);
/// Such syncs take one part in so many of the time.
const SYNC_SHARE: u32 = 10;

/// A tree's destination, with its resume record and the index.
pub struct Placing<T> {
    /// Destination that the tree is written to.
    pub destination: Destination,
    /// The destination's path without symlinks, under which its files are indexed.
    pub base: PathBuf,
    /// Record that an interruption leaves.
    pub record: Record,
    store: Arc<DiskStore>,
    /// Files committed and not named yet.
    committed: Mutex<HashMap<RelPath, Committed<T>>>,
    next_flush: Mutex<Instant>,
}

struct Committed<T> {
    content: Option<(Oid, Vec<Value>)>,
    note: T,
}

/// A file that has its name, or will not get it.
pub struct Named<T> {
    /// Its path in the tree.
    pub path: RelPath,
    /// Note that the caller gave with it.
    pub note: T,
    /// Stamp of what it looks like under its name.
    pub outcome: Result<Stamp, FileError>,
    /// Error of metadata that could not be set.
    pub lacking: Option<FileError>,
}

/// A temporary, and where bytes are in it already.
pub type Begun = (Staged, Vec<Range<u64>>);

/// Goes on with the temporaries that an interruption left in `destination`; false if there are none.
pub fn adopt(destination: &Destination, record: &Record) -> Result<bool, FileError> {
    let Some(name) = record.temp() else { return Ok(false) };
    let left = record.parts();
    match wait_while_busy(|| destination.staging().adopt(name, &|part| left.contains(part))) {
        Ok(()) => Ok(true),
        Err(error @ FileError::Busy { .. }) => Err(error),
        Err(error) => {
            tracing::debug!(%error, "what was left is gone");
            Ok(false)
        }
    }
}

impl<T> Placing<T> {
    /// Writes into `destination`, whose path without symlinks is `base`.
    pub fn new(destination: Destination, base: PathBuf, record: Record, store: Arc<DiskStore>) -> Self {
        let next_flush = Mutex::new(Instant::now() + NAME_EVERY);
        Self { destination, base, record, store, committed: Mutex::default(), next_flush }
    }

    /// A complete file takes its metadata now and its name soon, right after `before_naming`. `content`, if known, is what the
    /// index is told of it. Returns the files that were named meanwhile.
    #[allow(clippy::too_many_arguments)] // What is said of one file, at its one place.
    pub fn commit(
        &self,
        staged: Staged,
        path: &RelPath,
        metadata: &Metadata,
        overwrite: Overwrite,
        content: Option<(Oid, Vec<Value>)>,
        before_naming: Option<BeforeNaming>,
        note: T,
    ) -> Result<Vec<Named<T>>, FileError> {
        lock(&self.committed).insert(path.clone(), Committed { content, note });
        let placed = self.destination.commit_after(before_naming, staged, path.clone(), metadata, overwrite);
        let placed = placed.inspect_err(|_| drop(lock(&self.committed).remove(path)))?;
        let mut named = self.settle(placed);
        named.extend(self.flush_if_due());
        Ok(named)
    }

    /// Rest that an interruption left of the file that `key` names, made `size` long, and where bytes are
    /// in it; `reopen` opens it by its name.
    pub fn left_of(
        &self,
        key: &Oid,
        size: u64,
        reopen: impl FnOnce(&str) -> Result<Staged, FileError>,
    ) -> Result<Option<Begun>, FileError> {
        let staged = self.record.take_part(key).and_then(|name| reopen(&name).ok());
        let Some(staged) = staged else { return Ok(None) };
        let left = staged.data_ranges().collect::<Result<Vec<_>, _>>().unwrap_or_default();
        staged.body().set_size(size)?;
        Ok(Some((staged, left)))
    }

    /// Notes where the file that `key` names grows, so that it goes on there after an interruption.
    pub fn note_part(&self, key: &Oid, staged: &Staged, is_large: bool) {
        let noted = match is_large {
            true => self.record.set_part(key, staged.name()),
            false => self.record.set_small_part(key, staged.name()),
        };
        if let Err(error) = noted {
            tracing::warn!(%error, "an interruption now would begin this file from the front");
        }
    }

    /// Names all files that wait.
    pub fn flush(&self) -> Vec<Named<T>> {
        self.settle(self.destination.flush())
    }

    fn flush_if_due(&self) -> Vec<Named<T>> {
        let Ok(mut next) = self.next_flush.try_lock() else { return Vec::new() };
        let start = Instant::now();
        if start < *next {
            return Vec::new();
        }
        let named = self.flush();
        *next = Instant::now() + NAME_EVERY.max(start.elapsed() * SYNC_SHARE);
        named
    }

    fn settle(&self, placed: Vec<Placed>) -> Vec<Named<T>> {
        if placed.is_empty() {
            return Vec::new();
        }
        let (mut named, mut records, mut temps) = (Vec::with_capacity(placed.len()), Vec::new(), Vec::new());
        for Placed { path, temp, outcome, lacking } in placed {
            let Some(Committed { content, note }) = lock(&self.committed).remove(&path) else { continue };
            if let (Ok(stamp), Some((oid, values))) = (&outcome, content) {
                records.extend(file_record(&path.below(&self.base), stamp, &oid, values));
            }
            temps.extend(outcome.is_ok().then_some(temp));
            named.push(Named { path, note, outcome, lacking });
        }
        if let Err(error) = self.store.remember(&records) {
            tracing::warn!(%error, "files could not be indexed");
        }
        if let Err(error) = self.record.small_are_placed(temps.iter().map(String::as_str)) {
            tracing::warn!(%error, "an interruption now would begin small files anew");
        }
        named
    }

    /// True if the index knows where this content is.
    pub fn is_indexed(&self, oid: &Oid) -> bool {
        self.store.have(oid).is_ok_and(|have| have.state == State::Complete)
    }

    /// Number of files that wait for their names.
    pub fn waiting(&self) -> usize {
        lock(&self.committed).len()
    }

    /// The content of the file at `path`, which was `seen`, as far as the index knows it.
    pub fn known(&self, path: &RelPath, seen: &Stamp) -> Option<Oid> {
        self.known_at(&self.whole_path(path), seen)
    }

    /// The same of a file anywhere.
    pub fn known_at(&self, whole: &Path, seen: &Stamp) -> Option<Oid> {
        known_at(&self.store, whole, seen)
    }

    /// Reads the file at `path`, which was `seen`, to know its content.
    pub fn hash(&self, path: &RelPath, seen: &Stamp) -> Option<FileRecord> {
        let whole = self.whole_path(path);
        let (dir, name) = whole.parent().zip(whole.file_name())?;
        let file = self.destination.open_file(path, seen).ok()?;
        Some(FileRecord::new(dir, name, hash_open_file(&file, &whole).ok()?))
    }

    /// True if the file at `path`, which was `seen`, has this very content. Reads it unless the
    /// index knows it.
    pub fn holds(&self, path: &RelPath, seen: &Stamp, oid: &Oid) -> bool {
        let found = self.known(path, seen).or_else(|| Some(self.hash(path, seen)?.oid));
        found == Some(*oid)
    }

    /// A path in the tree as the index and other programs know it.
    pub fn whole_path(&self, path: &RelPath) -> PathBuf {
        path.below(&self.base)
    }

    /// The destination's path for messages.
    pub fn path(&self) -> &Path {
        self.destination.path()
    }
}
