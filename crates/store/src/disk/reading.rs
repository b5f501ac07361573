//! Finding an object's bytes: the open files first, then every file on record, forgetting those
//! that are no longer as they were.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::Connection;
use towpath_content::Oid;
use towpath_content::pieces::{Layout, PieceTree, Value};

use super::files::{self, FileFound};
use super::index::{Durability, IndexOutcome};
use super::parts::DiskStore;
use super::rows;
use super::source::{BytesOrigin, Source};
use super::uses::{self, UseNotes, Used};
use crate::error::StoreError;
use crate::hashing::{LIVE_PIECE, hash_pieces};
use crate::seam::Descriptors;
use crate::spans::OUTSIDE;
use crate::stamp::Stamp;
use towpath_content::lock::lock;

/// How many files that hold one object are tried before those that failed are forgotten.
const HOLDERS: usize = 64;
/// How often an object is looked for anew after what was found turned out to be gone. Each time
/// either files are forgotten or another process has evicted or put the object meanwhile.
const ROUNDS: usize = 256;

impl DiskStore {
    /// A file that holds `oid` and is as it was when that was found out: for copies on this disk.
    pub fn locate(&self, oid: &Oid) -> Result<Option<(PathBuf, Stamp)>, StoreError> {
        match self.with_source(oid, |source| Ok(source.origin.clone())) {
            Ok(BytesOrigin::Referred(FileFound { path, stamp, .. })) => Ok(Some((path, stamp))),
            Ok(BytesOrigin::Owned { path, .. }) => match Stamp::of_path(&path) {
                Ok(stamp) => Ok(Some((path, stamp))),
                Err(error) => Err(StoreError::io("looking at", &path, error)),
            },
            Err(error) if error.is_loss() || matches!(error, StoreError::NotHere) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn read_stored_span(
        &self,
        oid: &Oid,
        range: &Range<u64>,
        buf: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        self.with_source(oid, |source| {
            if range.end > source.size() {
                return Err(OUTSIDE);
            }
            source.read(range.clone(), buf)
        })
    }

    pub(super) fn append_stored(&self, oid: &Oid, index: u64, buf: &mut Vec<u8>) -> Result<(), StoreError> {
        self.with_source(oid, |source| source.append(piece_range(source, index)?, buf))
    }

    pub(super) fn is_hole(&self, oid: &Oid, index: u64) -> bool {
        let look = |source: &Arc<Source>| Ok(source.is_hole(&piece_range(source, index)?));
        self.with_source(oid, look).unwrap_or(false)
    }

    pub(super) fn prove(&self, oid: &Oid, size: u64, run: Range<u64>) -> Result<Descriptors, StoreError> {
        let layout = Layout::of(size).map_err(|_| OUTSIDE)?;
        if run.start >= run.end || run.end > layout.count() {
            return Err(OUTSIDE);
        }
        if layout.count() == 1 {
            return Ok(Descriptors::Proof(oid.digest().to_vec()));
        }
        self.tree(oid, layout)?.proof(run).map(Descriptors::Proof).map_err(|_| OUTSIDE)
    }

    /// The object's tree of values: cached, from the index, or from reading the file.
    fn tree(&self, oid: &Oid, layout: Layout) -> Result<Arc<PieceTree>, StoreError> {
        if let Some(tree) = lock(&self.trees).get(oid) {
            return Ok(Arc::clone(tree));
        }
        let kept = self.index.read("finding piece values", |conn| rows::values(conn, oid))?;
        let is_right = |tree: &PieceTree| tree.oid() == *oid;
        let kept = kept.and_then(|values| PieceTree::new(layout, values)).filter(is_right);
        let tree = Arc::new(match kept {
            Some(tree) => tree,
            None => self.find_tree(oid)?,
        });
        let weight = (2 * 32 * layout.count()) as usize;
        lock(&self.trees).insert(*oid, Arc::clone(&tree), weight.max(1024));
        Ok(tree)
    }

    fn find_tree(&self, oid: &Oid) -> Result<PieceTree, StoreError> {
        let tree = self.with_source(oid, |source| {
            let layout = Layout::of(source.size()).map_err(|_| OUTSIDE)?;
            let values = all_values(source, &layout)?;
            let tree = PieceTree::new(layout, values).filter(|tree| tree.oid() == *oid);
            // The bytes are others than the stamp or the name say.
            tree.ok_or_else(|| source.origin.loss())
        })?;
        self.index
            .write(Durability::Cached, "keeping piece values", |t| rows::put_values(t, oid, tree.values()))?;
        Ok(tree)
    }

    /// Lets `attempt` work on a file that holds `oid`; when that file turns out to have
    /// changed, on the next.
    pub(super) fn with_source<T>(
        &self,
        oid: &Oid,
        mut attempt: impl FnMut(&Arc<Source>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut failure: Option<StoreError> = None;
        let cached = lock(&self.sources).get(oid).cloned();
        if let Some(source) = cached {
            match self.attempt_on(oid, &source, &mut attempt) {
                Err(lost) => failure = self.forget(oid, &[lost])?,
                Ok(result) => return result,
            }
        }
        for _ in 0..ROUNDS {
            let mut lost = Vec::new();
            for origin in self.index.read("finding an object", |conn| self.origins(conn, oid))? {
                match self.try_origin(oid, origin, &mut attempt) {
                    Err(one) => lost.push(one),
                    Ok(Err(error @ StoreError::Io { .. })) => drop(failure.get_or_insert(error)),
                    Ok(result) => {
                        self.forget(oid, &lost)?;
                        return result;
                    }
                }
            }
            if lost.is_empty() {
                return Err(failure.unwrap_or(StoreError::NotHere));
            }
            failure = failure.or(self.forget(oid, &lost)?);
        }
        let locked = io::Error::new(io::ErrorKind::WouldBlock, "another process has it locked");
        Err(failure.unwrap_or_else(|| StoreError::io("reading", &self.folders.object(oid), locked)))
    }

    fn try_origin<T>(
        &self,
        oid: &Oid,
        origin: BytesOrigin,
        attempt: &mut impl FnMut(&Arc<Source>) -> Result<T, StoreError>,
    ) -> Result<Result<T, StoreError>, Lost> {
        let source = match Source::open(origin.clone()) {
            Ok(source) => Arc::new(source),
            Err(error) if error.is_loss() => return Err(Lost { origin, is_in_place: false }),
            Err(error) => return Ok(Err(error)),
        };
        let result = self.attempt_on(oid, &source, attempt)?;
        if result.is_ok() && source.size() > LIVE_PIECE {
            lock(&self.sources).insert(*oid, source, 1);
        }
        Ok(result)
    }

    fn attempt_on<T>(
        &self,
        oid: &Oid,
        source: &Arc<Source>,
        attempt: &mut impl FnMut(&Arc<Source>) -> Result<T, StoreError>,
    ) -> Result<Result<T, StoreError>, Lost> {
        self.note_use(match &source.origin {
            BytesOrigin::Owned { .. } => Used::Object(*oid),
            BytesOrigin::Referred(found) => Used::Dir(found.dir),
        });
        match attempt(source) {
            Err(error) if error.is_loss() => {
                Err(Lost { origin: source.origin.clone(), is_in_place: source.is_in_place() })
            }
            result => Ok(result),
        }
    }

    fn origins(&self, conn: &Connection, oid: &Oid) -> IndexOutcome<Vec<BytesOrigin>> {
        let owned = rows::owned_size(conn, oid)?;
        let owned = owned.map(|size| BytesOrigin::Owned { path: self.folders.object(oid), size });
        let holders = files::holders(conn, oid, HOLDERS)?;
        Ok(owned.into_iter().chain(holders.into_iter().map(BytesOrigin::Referred)).collect())
    }

    /// Forgets files that are no longer as they were; returns what happened to the first of them.
    fn forget(&self, oid: &Oid, lost: &[Lost]) -> Result<Option<StoreError>, StoreError> {
        if lost.is_empty() {
            return Ok(None);
        }
        lock(&self.sources).remove(oid);
        let first = self.index.write(Durability::Cached, "forgetting changed files", |t| {
            let mut first = None;
            for one in lost {
                let is_lost = match &one.origin {
                    BytesOrigin::Owned { path, size } => {
                        (one.is_in_place || !is_whole(path, *size)) && rows::disown(t, oid)?
                    }
                    BytesOrigin::Referred(found) => files::forget(t, oid, found).map(|()| true)?,
                };
                if is_lost {
                    first.get_or_insert_with(|| one.origin.loss());
                }
            }
            Ok(first)
        })?;
        self.notices.changed(oid);
        Ok(first)
    }

    pub(super) fn note_use(&self, used: Used) {
        if let Some(notes) = self.uses.note(used) {
            self.write_or_lose(&notes);
        }
    }

    /// Writes notes down; a reader is not to fail for want of them.
    pub(super) fn write_or_lose(&self, notes: &UseNotes) {
        if let Err(error) = self.write_uses(notes) {
            tracing::debug!(%error, "when things were last used was not noted");
        }
    }

    pub(super) fn write_uses(&self, notes: &UseNotes) -> Result<(), StoreError> {
        if notes.is_empty() {
            return Ok(());
        }
        self.index.write(Durability::Cached, "noting what was used", |t| uses::write(t, notes))
    }
}

/// A file that was not as it is on record.
struct Lost {
    origin: BytesOrigin,
    /// The very file that was found wrong lies there still. If not, an owned one may have been
    /// evicted or put again since it was looked for.
    is_in_place: bool,
}

fn is_whole(path: &Path, size: u64) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.len() == size)
}

fn piece_range(source: &Source, index: u64) -> Result<Range<u64>, StoreError> {
    let layout = Layout::of(source.size()).ok().filter(|layout| index < layout.count());
    layout.map(|layout| layout.range(index)).ok_or(OUTSIDE)
}

fn all_values(source: &Source, layout: &Layout) -> Result<Vec<Value>, StoreError> {
    let mut values = Vec::new();
    let hashed = hash_pieces(&source.file, layout, &mut |run| {
        values.extend(run);
        Ok(())
    });
    hashed.map_err(|error| source.origin.explain(error))?;
    source.check().map(|()| values)
}
