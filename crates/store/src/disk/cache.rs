//! The cache: what nobody leases, how much of it may stay, and what goes first.
//!
//! Entries unused longest go first, until the rest fits. A row goes before its file, so a crash
//! between leaves a file that no row owns, which [`DiskStore::gc`](super::DiskStore::gc) removes.
//!
//! Owned files are locked (`flock`) by those who read them, in whichever process. Only a file that
//! nobody has locked is evicted, and it stays locked by the evictor until it is removed: a reader
//! that comes in between looks at the index again and finds the object gone.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, params};
use towpath_content::Oid;

use super::folders::{self, Claim, claim};
use super::index::{Durability, IndexOutcome};
use super::leases;
use super::rows::{self, ObjectRow, OwnBytes, oid_at};
use super::source::OpenedBytes;
use super::sources::{SourceFiles, piece_range};
use super::store_core::StoreCore;
use crate::error::StoreError;

/// An owned file that was read from within this time is taken to be under read still.
const UNDER_READ: Duration = Duration::from_secs(30);
/// Objects that one transaction evicts: others wait for it, and each is an open file.
const BATCH: usize = 64;
/// Rows of files that one transaction forgets.
const FILES_BATCH: usize = 1024;

/// Amount of what nobody leases that may stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CachePolicy {
    /// Bytes of owned objects. Default: 10 GiB.
    pub owned_bytes: u64,
    /// Files of others that are on record, some 150 bytes of index each. The files themselves are
    /// never touched. Default: 4 million.
    pub referred_files: u64,
}

impl Default for CachePolicy {
    fn default() -> Self {
        Self { owned_bytes: 10 << 30, referred_files: 4_000_000 }
    }
}

/// Evicted objects and files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Evicted {
    /// Owned objects.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files of others that were forgotten.
    pub files: u64,
}

/// An object that the store keeps though nobody leases it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CachedObject {
    /// Its name.
    pub oid: Oid,
    /// Its bytes.
    pub size: u64,
    /// Last use, in seconds since 1970.
    pub used: u64,
}

/// Keeps an object from being evicted, by any process, until it is dropped.
#[derive(Debug)]
pub struct Hold {
    _source: Arc<OpenedBytes>,
}

/// Something that may be evicted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cached<K> {
    pub(super) key: K,
    /// Last use, since 1970.
    pub(super) used: u64,
    pub(super) weight: u64,
    /// It may not go now, though it counts.
    pub(super) is_busy: bool,
}

/// Entries that have to go so that the rest weighs no more than `limit`: those unused longest.
pub(super) fn choose<K: Copy + Ord>(mut cached: Vec<Cached<K>>, limit: u64) -> Vec<K> {
    let total = cached.iter().fold(0u64, |sum, one| sum.saturating_add(one.weight));
    let mut excess = total.saturating_sub(limit);
    cached.retain(|one| !one.is_busy);
    cached.sort_by_key(|one| (one.used, one.key));
    let goes = |one: &Cached<K>| {
        let is_needed = excess > 0;
        excess = excess.saturating_sub(one.weight);
        is_needed.then_some(one.key)
    };
    cached.iter().map_while(goes).collect()
}

/// An object that has no row any more, and its file, locked, if there is one.
struct Disowned {
    oid: Oid,
    size: u64,
    is_kept: bool,
    _file: Option<File>,
}

/// Content that a store keeps though nobody leases it.
pub struct ObjectCache {
    core: Arc<StoreCore>,
    sources: Arc<SourceFiles>,
}

impl ObjectCache {
    /// The cache of the store with this core.
    pub(super) const fn new(core: Arc<StoreCore>, sources: Arc<SourceFiles>) -> Self {
        Self { core, sources }
    }

    /// Keeps a content from being evicted, by any process, for as long as the hold lives.
    pub(super) fn hold(&self, content: &Oid) -> Result<Hold, StoreError> {
        self.sources.with(content, |source| Ok(Hold { _source: Arc::clone(source) }))
    }

    /// The same, and appends a piece of it to `buf`.
    pub(super) fn hold_piece(
        &self,
        content: &Oid,
        index: u64,
        buf: &mut Vec<u8>,
    ) -> Result<Hold, StoreError> {
        self.sources.with(content, |source| {
            source.append(piece_range(source, index)?, buf)?;
            Ok(Hold { _source: Arc::clone(source) })
        })
    }

    /// Evicts what nobody leases, unused longest first, until the rest is within `policy`. What is
    /// read, held or announced stays.
    pub fn evict(&self, policy: &CachePolicy) -> Result<Evicted, StoreError> {
        self.core.write_uses()?;
        let (objects, bytes) = self.evict_owned(policy.owned_bytes)?;
        let files = self.evict_files(policy.referred_files)?;
        Ok(Evicted { objects, bytes, files })
    }

    /// The owned objects that nobody leases, unused longest first.
    pub fn objects(&self) -> Result<Vec<CachedObject>, StoreError> {
        self.core.write_uses()?;
        let mut cached = self.unleased()?;
        cached.sort_by_key(|one| (one.used, one.key));
        let object = |one: &Cached<Oid>| CachedObject { oid: one.key, size: one.weight, used: one.used };
        Ok(cached.iter().map(object).collect())
    }

    fn unleased(&self) -> Result<Vec<Cached<Oid>>, StoreError> {
        let has_byte_store = self.core.kept.is_some();
        self.core.index.read("reading the cache", |conn| unleased(conn, has_byte_store))
    }

    fn evict_owned(&self, limit: u64) -> Result<(u64, u64), StoreError> {
        let (mut objects, mut bytes, mut busy) = (0, 0, HashSet::new());
        loop {
            let mut cached = self.unleased()?;
            cached.iter_mut().for_each(|one| one.is_busy = busy.contains(&one.key));
            let victims = choose(cached, limit);
            if victims.is_empty() {
                return Ok((objects, bytes));
            }
            for batch in victims.chunks(BATCH) {
                for gone in self.evict_batch(batch, &mut busy)? {
                    (objects, bytes) = (objects + 1, bytes + gone.size);
                }
            }
        }
    }

    /// Evicts those objects of a batch that can be; all others are added to `busy`.
    fn evict_batch(&self, batch: &[Oid], busy: &mut HashSet<Oid>) -> Result<Vec<Disowned>, StoreError> {
        let mut gone = Vec::new();
        self.core.index.write(Durability::Synced, "evicting", |t| {
            for oid in batch {
                match self.disown_unleased(t, oid)? {
                    Some(disowned) => gone.push(disowned),
                    None => drop(busy.insert(*oid)),
                }
            }
            Ok(())
        })?;
        gone.iter().filter(|disowned| disowned.is_kept).for_each(|disowned| self.delete_kept(&disowned.oid));
        self.remove_unowned(gone.iter().map(|disowned| &disowned.oid))?;
        gone.iter().for_each(|disowned| self.core.notices.changed(&disowned.oid));
        Ok(gone)
    }

    fn disown_unleased(&self, conn: &Connection, oid: &Oid) -> IndexOutcome<Option<Disowned>> {
        let known = rows::known(conn, oid)?.filter(ObjectRow::is_owned);
        let (Some(known), false) = (known, leases::is_held(conn, oid)? || self.is_in_use(oid)) else {
            return Ok(None);
        };
        let is_kept = known.own == OwnBytes::Kept;
        let file = match is_kept {
            true if self.core.kept.is_none() => return Ok(None),
            true => match self.core.folders.claim_stand_in(oid)? {
                Some(file) => Some(file),
                None => return Ok(None),
            },
            false => match claim(&self.core.folders.object(oid))? {
                Claim::Free(file) => Some(file),
                Claim::Missing => None,
                Claim::Held => return Ok(None),
            },
        };
        rows::disown(conn, oid)?;
        leases::unbind(conn, oid)?;
        Ok(Some(Disowned { oid: *oid, size: known.size, is_kept, _file: file }))
    }

    /// Deletes what was evicted from the byte store. Its stand-in is locked.
    fn delete_kept(&self, oid: &Oid) {
        let deleted = self.core.kept().and_then(|kept| kept.delete(oid));
        if let Err(error) = deleted {
            tracing::warn!(%error, "an evicted object stays in the byte store; 'tow gc' tries again");
        }
    }

    /// True if the object is announced or was read from in this process a moment ago.
    fn is_in_use(&self, oid: &Oid) -> bool {
        self.sources.is_used(oid, UNDER_READ) || self.core.notices.partial(oid).is_some()
    }

    /// Removes the owned bytes of objects, unless they were put again meanwhile.
    fn remove_unowned<'a>(&self, oids: impl Iterator<Item = &'a Oid>) -> Result<(), StoreError> {
        self.core.index.write(Durability::Cached, "removing objects", |t| {
            for oid in oids {
                let known = rows::known(t, oid)?;
                if known.as_ref().is_none_or(|known| !known.is_owned()) {
                    folders::remove(&self.core.folders.object(oid))?;
                }
                if known.is_none() {
                    folders::remove(&self.core.folders.made_recipe(oid))?;
                    folders::remove_unheld(&self.core.folders.given_recipe(oid))?;
                }
            }
            Ok(())
        })
    }

    /// Forgets folders of referred files, each with all its files.
    fn evict_files(&self, limit: u64) -> Result<u64, StoreError> {
        let count = self.core.index.read("counting files", |conn| {
            Ok(conn.query_row("SELECT count(*) FROM files", [], |row| row.get::<_, u64>(0))?)
        })?;
        if count <= limit {
            return Ok(0);
        }
        let victims = choose(self.core.index.read("reading folders", unleased_dirs)?, limit);
        victims.into_iter().map(|dir| self.forget_dir(dir)).sum()
    }

    fn forget_dir(&self, dir: i64) -> Result<u64, StoreError> {
        let (mut after, mut forgotten) = (None, 0);
        loop {
            let (last, oids) = self.core.index.write(Durability::Cached, "forgetting files", |t| {
                forget_some(t, dir, after.as_deref(), |oid| self.is_in_use(oid))
            })?;
            oids.iter().for_each(|oid| self.core.notices.changed(oid));
            forgotten += oids.len() as u64;
            match last {
                None => return Ok(forgotten),
                last => after = last,
            }
        }
    }
}

/// The owned objects that no lease names; those in the byte store only if there is one.
fn unleased(conn: &Connection, has_byte_store: bool) -> IndexOutcome<Vec<Cached<Oid>>> {
    let mut select = conn.prepare_cached(
        "SELECT oid, max(size, 1), used FROM objects WHERE (owned = 1 OR (owned = 2 AND ?))
         AND NOT EXISTS (SELECT 1 FROM leases WHERE leases.oid = objects.oid)
         AND NOT EXISTS (SELECT 1 FROM leases WHERE leases.content = objects.oid)",
    )?;
    let found = select.query_map([has_byte_store], |row| {
        Ok(Cached { key: oid_at(row, 0)?, weight: row.get(1)?, used: row.get(2)?, is_busy: false })
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// The folders on record that are not within a path that is leased.
fn unleased_dirs(conn: &Connection) -> IndexOutcome<Vec<Cached<i64>>> {
    let path_at = |row: &rusqlite::Row<'_>, at| Ok(PathBuf::from(OsString::from_vec(row.get(at)?)));
    let mut select = conn.prepare("SELECT path FROM leases WHERE path IS NOT NULL")?;
    let leased: HashSet<PathBuf> = select.query_map([], |row| path_at(row, 0))?.collect::<Result<_, _>>()?;
    let mut select = conn.prepare(
        "SELECT id, path, used, count(*) FROM files JOIN dirs ON dirs.id = files.dir GROUP BY files.dir",
    )?;
    let found = select.query_map([], |row| {
        let cached = Cached { key: row.get(0)?, used: row.get(2)?, weight: row.get(3)?, is_busy: false };
        Ok((path_at(row, 1)?, cached))
    })?;
    let found: Vec<_> = found.collect::<Result<_, _>>()?;
    let is_unleased = |dir: &Path| !dir.ancestors().any(|dir| leased.contains(dir));
    Ok(found.into_iter().filter(|(dir, _)| is_unleased(dir)).map(|(_, cached)| cached).collect())
}

/// Forgets some files of a folder, from the name that follows `after` on. Returns the last name
/// that was looked at, `None` at the end, and the contents that were forgotten.
fn forget_some(
    conn: &Connection,
    dir: i64,
    after: Option<&std::ffi::OsStr>,
    is_in_use: impl Fn(&Oid) -> bool,
) -> IndexOutcome<(Option<OsString>, Vec<Oid>)> {
    let mut select = conn.prepare_cached(
        "SELECT name, oid FROM files WHERE dir = ? AND (?2 IS NULL OR name > ?2) ORDER BY name LIMIT ?3",
    )?;
    let row = |row: &rusqlite::Row<'_>| Ok((row.get::<_, Vec<u8>>(0)?, oid_at(row, 1)?));
    let found = select.query_map(params![dir, after.map(OsStrExt::as_bytes), FILES_BATCH], row)?;
    let found: Vec<(Vec<u8>, Oid)> = found.collect::<Result<_, _>>()?;
    let mut delete = conn.prepare_cached("DELETE FROM files WHERE dir = ? AND name = ?")?;
    let mut forgotten = Vec::new();
    for (name, oid) in &found {
        if !is_in_use(oid) && !leases::is_held(conn, oid)? {
            delete.execute(params![dir, name])?;
            rows::prune(conn, oid)?;
            leases::unbind(conn, oid)?;
            forgotten.push(*oid);
        }
    }
    Ok((found.into_iter().next_back().map(|(name, _)| OsString::from_vec(name)), forgotten))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cached(key: u32, used: u64, weight: u64, is_busy: bool) -> Cached<u32> {
        Cached { key, used, weight, is_busy }
    }

    #[test]
    fn what_was_unused_longest_goes_first_until_the_rest_fits() {
        let all = || vec![cached(1, 30, 10, false), cached(2, 10, 10, false), cached(3, 20, 10, false)];
        let cases: [(u64, &[u32]); 5] = [(30, &[]), (29, &[2]), (20, &[2]), (19, &[2, 3]), (0, &[2, 3, 1])];
        for (limit, expected) in cases {
            assert_eq!(choose(all(), limit), expected, "limit {limit}");
        }
    }

    #[test]
    fn what_is_busy_counts_and_stays() {
        let all = vec![cached(1, 1, 50, true), cached(2, 2, 10, false), cached(3, 3, 10, false)];
        assert_eq!(choose(all.clone(), 65), [2]);
        assert_eq!(choose(all, 0), [2, 3]);
    }

    proptest! {
        #[test]
        fn the_rest_fits_and_nothing_goes_without_need(
            all in proptest::collection::vec((0u64..50, 0u64..1000, any::<bool>()), 0..40),
            limit in 0u64..10_000,
        ) {
            let number = |(key, (used, weight, is_busy))| cached(key, used, weight, is_busy);
            let all: Vec<_> = (0..).zip(all).map(number).collect();
            let gone = choose(all.clone(), limit);
            let weigh = |keys: &[u32]| -> u64 {
                all.iter().filter(|one| !keys.contains(&one.key)).map(|one| one.weight).sum()
            };
            let free = all.iter().filter(|one| !one.is_busy).count();
            prop_assert!(weigh(&gone) <= limit || gone.len() == free);
            if let Some((_, but_last)) = gone.split_last() {
                prop_assert!(weigh(but_last) > limit);
            }
            let used = |key: &u32| all[*key as usize].used;
            prop_assert!(gone.is_sorted_by_key(used));
        }
    }
}
