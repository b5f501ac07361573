//! Finding an object's bytes: the open files first, then every file on record, forgetting those
//! that are no longer as they were.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use rusqlite::Connection;
use towpath_content::Oid;
use towpath_content::pieces::{Layout, PieceTree, Value};

use super::DiskStore;
use super::files::{self, Found};
use super::index::{Durability, Outcome};
use super::rows;
use super::source::{Origin, Source};
use crate::hashing::{LIVE_PIECE, hash_pieces};
use crate::productions::OUTSIDE;
use crate::seam::{Descriptors, StoreError};
use crate::stamp::Stamp;
use crate::sync::lock;

/// How many files that hold one object are tried before those that failed are forgotten.
const HOLDERS: usize = 64;

impl DiskStore {
    /// A file that holds `oid` and is as it was when that was found out: for copies on this disk.
    pub fn locate(&self, oid: &Oid) -> Result<Option<(PathBuf, Stamp)>, StoreError> {
        match self.with_source(oid, |source| Ok(source.origin.clone())) {
            Ok(Origin::Referred(Found { path, stamp, .. })) => Ok(Some((path, stamp))),
            Ok(Origin::Owned { path, .. }) => match Stamp::of_path(&path) {
                Ok(stamp) => Ok(Some((path, stamp))),
                Err(error) => Err(StoreError::io("looking at", &path, error)),
            },
            Err(error) if error.is_loss() || matches!(error, StoreError::NotHere) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn read_stored(&self, oid: &Oid, index: u64, buf: &mut Vec<u8>) -> Result<(), StoreError> {
        self.with_source(oid, |source| source.read(piece_range(source, index)?, buf))
    }

    pub(super) fn is_hole(&self, oid: &Oid, index: u64) -> bool {
        let look = |source: &Source| Ok(source.is_hole(&piece_range(source, index)?));
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
    fn with_source<T>(
        &self,
        oid: &Oid,
        mut attempt: impl FnMut(&Source) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut failure = None;
        let cached = lock(&self.sources).get(oid).cloned();
        if let Some(source) = cached {
            match attempt(&source) {
                Err(error) if error.is_loss() => {
                    self.forget(oid, std::slice::from_ref(&source.origin))?;
                    failure = Some(error);
                }
                result => return result,
            }
        }
        loop {
            let mut lost = Vec::new();
            for origin in self.index.read("finding an object", |conn| self.origins(conn, oid))? {
                match self.try_origin(oid, &origin, &mut attempt) {
                    Err(error) if error.is_loss() => {
                        lost.push(origin);
                        failure.get_or_insert(error);
                    }
                    Err(error @ StoreError::Io { .. }) => drop(failure.get_or_insert(error)),
                    result => {
                        self.forget(oid, &lost)?;
                        return result;
                    }
                }
            }
            if lost.is_empty() {
                return Err(failure.unwrap_or(StoreError::NotHere));
            }
            self.forget(oid, &lost)?;
        }
    }

    fn try_origin<T>(
        &self,
        oid: &Oid,
        origin: &Origin,
        attempt: &mut impl FnMut(&Source) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let source = Source::open(origin.clone())?;
        let result = attempt(&source)?;
        if source.size() > LIVE_PIECE {
            lock(&self.sources).insert(*oid, Arc::new(source), 1);
        }
        Ok(result)
    }

    fn origins(&self, conn: &Connection, oid: &Oid) -> Outcome<Vec<Origin>> {
        let owned = rows::known(conn, oid)?.filter(|known| known.is_owned);
        let owned = owned.map(|known| Origin::Owned { path: self.folders.object(oid), size: known.size });
        let holders = files::holders(conn, oid, HOLDERS)?;
        Ok(owned.into_iter().chain(holders.into_iter().map(Origin::Referred)).collect())
    }

    /// Forgets files that are no longer as they were.
    fn forget(&self, oid: &Oid, lost: &[Origin]) -> Result<(), StoreError> {
        if lost.is_empty() {
            return Ok(());
        }
        lock(&self.sources).remove(oid);
        self.index.write(Durability::Cached, "forgetting changed files", |t| {
            for origin in lost {
                match origin {
                    Origin::Owned { .. } => drop(rows::disown(t, oid)?),
                    Origin::Referred(found) => files::forget(t, oid, found)?,
                }
            }
            Ok(())
        })?;
        self.notices.changed(oid);
        Ok(())
    }
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
