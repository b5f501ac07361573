//! Removing what is of no more use, while other processes use the store.
//!
//! | what goes | how it came about |
//! |---|---|
//! | leases of sessions | their process is gone |
//! | rows of files | the file is gone or was changed |
//! | cache | there is more than the policy allows |
//! | rows of objects, values, names | nothing has the bytes any more |
//! | recipes | their object is gone, or there are too many that can be made again |
//! | owned files and chunks without a row, also in the byte store | a crash between two steps |
//! | temporaries | their process is gone |
//!
//! Before it is removed, everything is looked at once more under the index's write lock, under which all others
//! put and remove too.

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use towpath_content::Oid;

use super::cache::{CachePolicy, Evicted};
use super::chunks::is_counted;
use super::folders::{self, hash_of_name};
use super::index::{Durability, IndexOutcome};
use super::parts::DiskStore;
use super::rows::{self, OwnBytes};
use super::store_core::StoreCore;
use crate::error::StoreError;

/// Files that are looked at between two transactions.
const BATCH: usize = 1024;

/// Limits of what [`DiskStore::gc`] leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GcOptions {
    /// Size of the cache that may stay. Default: that of [`CachePolicy`].
    pub policy: CachePolicy,
}

/// Numbers of what [`DiskStore::gc`] removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Collected {
    /// Leases of sessions whose process is gone.
    pub leases: u64,
    /// Cached objects and files beyond the policy.
    pub evicted: Evicted,
    /// Owned files that no object has.
    pub objects: u64,
    /// Chunks that nobody counts.
    pub chunks: u64,
    /// Recipes whose object is gone.
    pub recipes: u64,
    /// Bytes of those owned files, chunks and recipes.
    pub bytes: u64,
    /// Rows of files that are gone or were changed.
    pub files: u64,
    /// Piece values of objects that are gone.
    pub values: u64,
    /// Temporaries of processes that are gone.
    pub temporaries: u64,
    /// True if owned files, chunks and recipes without a row were left alone, since a damaged index that was
    /// set aside may have rows of them. They go once that is removed.
    pub is_cautious: bool,
}

impl DiskStore {
    /// Evicts what is more than the policy allows and removes what is of no more use.
    pub fn gc(&self, options: &GcOptions) -> Result<Collected, StoreError> {
        let (core, orphans) = (&*self.core, Orphans { core: &self.core });
        let leases = self.leases.end_sessions()?.len() as u64;
        let files = self.records.forget_lost()?;
        let evicted = self.cache.evict(&options.policy)?;
        let values = core.index.write(Durability::Cached, "removing rows", remove_rows)?;
        let temporaries = core.folders.sweep()?;
        let (made, made_bytes) = orphans.remove(core.folders.made_recipes(), &is_complete)?;
        self.recipes.evict_made()?;
        let collected = Collected {
            leases,
            evicted,
            recipes: made,
            bytes: made_bytes,
            files,
            values,
            temporaries,
            ..Collected::default()
        };
        if core.index.has_damaged()? {
            tracing::warn!("a damaged index is kept: orphaned files stay, as they may be in it");
            return Ok(Collected { is_cautious: true, ..collected });
        }
        let (objects, object_bytes) = orphans.remove(core.folders.objects(), &is_owned)?;
        let (chunks, chunk_bytes) = orphans.remove_chunks()?;
        let (given, given_bytes) = orphans.remove(core.folders.given_recipes(), &is_complete)?;
        let (kept, kept_bytes) = orphans.remove_kept()?;
        let (objects, object_bytes) = (objects + kept, object_bytes + kept_bytes);
        let bytes = object_bytes + chunk_bytes + made_bytes + given_bytes;
        Ok(Collected { objects, chunks, recipes: made + given, bytes, ..collected })
    }
}

/// Files of the store's own that no row speaks of.
struct Orphans<'a> {
    core: &'a StoreCore,
}

impl Orphans<'_> {
    /// Removes chunks that nobody counts; returns how many, and their bytes.
    fn remove_chunks(&self) -> Result<(u64, u64), StoreError> {
        let (mut count, mut bytes) = (0, 0);
        for folder in list(self.core.folders.chunks())? {
            let (more, more_bytes) = self.remove(&folder, &is_counted)?;
            (count, bytes) = (count + more, bytes + more_bytes);
        }
        Ok((count, bytes))
    }

    /// Deletes what is in the byte store and has no row; returns how much.
    fn remove_kept(&self) -> Result<(u64, u64), StoreError> {
        let Some(kept) = &self.core.kept else { return Ok((0, 0)) };
        let (mut count, mut bytes, mut after) = (0, 0, None);
        loop {
            let page = kept.page(after.as_ref())?;
            let Some(last) = page.last() else { return Ok((count, bytes)) };
            after = Some(last.name);
            let is_orphan = |conn: &Connection, oid: &Oid| {
                Ok(rows::owned(conn, oid)?.is_none_or(|(_, own)| own != OwnBytes::Kept))
            };
            for listed in page {
                let oid = Oid::Blake3(listed.name.0);
                let look = || self.core.index.read("finding orphans", |conn| is_orphan(conn, &oid));
                // Looked at again once nobody can put it.
                if !look()? {
                    continue;
                }
                let Some(_claimed) = self.core.folders.claim_stand_in(&oid)? else { continue };
                if look()? {
                    kept.delete(&oid)?;
                    (count, bytes) = (count + 1, bytes + listed.size);
                    self.remove_stand_in(&oid)?;
                }
            }
        }
    }

    /// Removes a stand-in that the caller has locked, unless it is a file with bytes.
    fn remove_stand_in(&self, oid: &Oid) -> Result<(), StoreError> {
        let is_owned = |conn: &Connection| Ok(rows::owned(conn, oid)?.is_some());
        if self.core.index.read("finding orphans", is_owned)? {
            return Ok(());
        }
        folders::remove(&self.core.folders.object(oid))
    }

    /// Removes the files in `folder` that are named by a hash which no row has; returns how many,
    /// and their bytes.
    fn remove(&self, folder: &Path, has_row: &HasRow) -> Result<(u64, u64), StoreError> {
        let (mut count, mut bytes) = (0, 0);
        for paths in list(folder)?.chunks(BATCH) {
            let named = paths.iter().filter_map(|path| Some((path, hash_of_name(path.file_name()?)?)));
            let named: Vec<_> = named.collect();
            let orphans =
                self.core.index.read("finding orphans", |conn| without_row(conn, named, has_row))?;
            if orphans.is_empty() {
                continue;
            }
            let removed = self.core.index.write(Durability::Cached, "removing orphans", |t| {
                let orphans = without_row(t, orphans, has_row)?;
                let removed = orphans.iter().map(|(path, _)| folders::remove_unheld(path));
                Ok(removed.collect::<Result<Vec<_>, _>>()?)
            })?;
            count += removed.iter().flatten().count() as u64;
            bytes += removed.iter().flatten().sum::<u64>();
        }
        Ok((count, bytes))
    }
}

type HasRow = dyn Fn(&Connection, &[u8; 32]) -> IndexOutcome<bool>;

fn without_row<'a>(
    conn: &Connection,
    named: Vec<(&'a PathBuf, [u8; 32])>,
    has_row: &HasRow,
) -> IndexOutcome<Vec<(&'a PathBuf, [u8; 32])>> {
    let mut found = Vec::new();
    for (path, hash) in named {
        if !has_row(conn, &hash)? {
            found.push((path, hash));
        }
    }
    Ok(found)
}

fn is_owned(conn: &Connection, hash: &[u8; 32]) -> IndexOutcome<bool> {
    Ok(rows::known(conn, &Oid::Blake3(*hash))?.is_some_and(|known| known.is_owned()))
}

fn is_complete(conn: &Connection, hash: &[u8; 32]) -> IndexOutcome<bool> {
    Ok(rows::known(conn, &Oid::Blake3(*hash))?.is_some())
}

/// Removes rows that speak of nothing that is here; returns how many objects' values those were.
fn remove_rows(conn: &rusqlite::Transaction<'_>) -> IndexOutcome<u64> {
    let is_file = |oid| format!("EXISTS (SELECT 1 FROM files WHERE files.oid = {oid})");
    let gone = format!("owned = 0 AND NOT {}", is_file("objects.oid"));
    conn.execute(&format!("DELETE FROM objects WHERE {gone}"), [])?;
    let is_here = |oid| {
        let owned = format!("EXISTS (SELECT 1 FROM objects WHERE objects.oid = {oid} AND owned > 0)");
        format!("({} OR {owned})", is_file(oid))
    };
    let values =
        conn.execute(&format!("DELETE FROM piece_values WHERE NOT {}", is_here("piece_values.oid")), [])?;
    let unleased = "NOT EXISTS (SELECT 1 FROM leases WHERE leases.oid = bindings.live)";
    let names = format!("DELETE FROM bindings WHERE {unleased} AND NOT {}", is_here("bindings.oid"));
    conn.execute(&names, [])?;
    conn.execute("DELETE FROM dirs WHERE NOT EXISTS (SELECT 1 FROM files WHERE files.dir = dirs.id)", [])?;
    Ok(values as u64)
}

/// The paths in a folder.
fn list(folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let entries = std::fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect());
    entries.map_err(|error| StoreError::io("listing", folder, error))
}
