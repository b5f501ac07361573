//! Positions of chunks in files: hash -> (file, offset, length), for files that were cut before.
//!
//! A cache in an SQLite file of its own, `chunks.db` beside the index. Nothing in it is needed: what
//! is damaged is begun anew, what a power cut takes is found again by reading files, and no lease or
//! name is at risk. Format and figures: `docs/formats/index.md`.
//!
//! | part | story |
//! |---|---|
//! | `cuts` | which files were cut, under which stamp, with which parameters |
//! | `runs`, `entry` | the chunks' places, in sorted batches |
//! | `pending` | what was not written yet |
//!
//! Chunks are collected in memory and written some 65,000 at a time, when asked to, and at the end.
//! To forget a file is to delete its row: entries that speak of a row that is gone are passed over and
//! left out at the next merge. The index is opened when it is first used.

mod cuts;
mod entry;
#[cfg(feature = "fuzzing")]
pub(super) mod fuzzing;
mod pending;
mod runs;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rusqlite::{Connection, Transaction, TransactionBehavior};
use rustix::fs::FlockOperation;
use towpath_content::chunking::{ChunkHash, Parameters};

use self::entry::{COPIES, ChunkEntry, prefix_of};
use self::pending::PendingChunks;
use super::index::{self, IndexFault, IndexOutcome};
use super::uses::now;
use crate::error::StoreError;
use crate::stamp::Stamp;
use towpath_content::lock::lock;

/// The schema's version, kept in `user_version`.
const VERSION: u64 = 1;
const SCHEMA: &str = include_str!("chunk_index/schema.sql");
/// Page cache in KiB.
const CACHE: i64 = 8 * 1024;
/// Hashes looked up at once: what is found for them is held in memory.
const LOOK_UP: usize = 1 << 14;
/// Notes of use kept in memory.
const MAX_USED: usize = 1 << 14;

/// Limits of the chunk index. Entries unused longest go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkLimits {
    /// Chunks, some 22 bytes each. Default: 10 million.
    pub chunks: u64,
    /// Files, some 180 bytes each. Default: 2 million.
    pub files: u64,
}

impl Default for ChunkLimits {
    fn default() -> Self {
        Self { chunks: 10_000_000, files: 2_000_000 }
    }
}

/// A chunk in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CutChunk {
    /// Its hash.
    pub hash: ChunkHash,
    /// Its begin.
    pub offset: u64,
    /// Its bytes.
    pub len: u32,
}

/// A file that was cut into chunks.
#[derive(Debug, Clone, Copy)]
pub struct CutFile<'a> {
    /// Its path: absolute, without symlinks.
    pub path: &'a Path,
    /// Its stamp, the same before and after it was read.
    pub stamp: Stamp,
    /// True if the stamp was settled when the file was read.
    pub settled: bool,
    /// Parameters it was cut with.
    pub parameters: Parameters,
    /// Its chunks.
    pub chunks: &'a [CutChunk],
}

/// Position of a chunk when its file had this stamp. Whoever reads it compares stamp and hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The file.
    pub path: Arc<Path>,
    /// The stamp it had.
    pub stamp: Stamp,
    /// Begin of the chunk in the file.
    pub offset: u64,
    /// The chunk's bytes.
    pub len: u32,
}

/// Contents of the index, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChunkTotals {
    /// Files.
    pub files: u64,
    /// Their chunks.
    pub chunks: u64,
}

/// The index of chunks.
pub struct ChunkIndex {
    path: PathBuf,
    limits: ChunkLimits,
    state: Mutex<IndexState>,
}

#[derive(Default)]
struct IndexState {
    connection: Option<Connection>,
    pending: PendingChunks,
    /// Rows of `cuts` that were found since that was last written down.
    used: HashSet<u64>,
}

/// A file that a chunk may be read from: one on its way into the index, or a row of `cuts`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum ChunkHolder {
    Stored(u64),
    Pending(u64),
}

type KnownFile = (Arc<Path>, Stamp);

impl ChunkIndex {
    /// The index in `dir`; nothing is opened yet.
    pub fn new(dir: &Path, limits: ChunkLimits) -> Self {
        Self { path: dir.join("chunks.db"), limits, state: Mutex::default() }
    }

    /// Records the chunks of a file in place of what was known of it under another stamp. It is found
    /// from now on, and written down with others later.
    pub fn record_chunks(&self, cut: &CutFile<'_>) -> Result<(), StoreError> {
        let mut state = lock(&self.state);
        state.pending.add(cut);
        if state.pending.is_due() { self.write_down(&mut state) } else { Ok(()) }
    }

    /// Positions of chunks in files that `may_use` lets through, one answer for each. Of several,
    /// those in a file that holds more of the others are preferred, so that few files are read.
    pub fn find_chunks(
        &self,
        hashes: &[ChunkHash],
        may_use: &dyn Fn(&Path) -> bool,
    ) -> Result<Vec<Option<Location>>, StoreError> {
        let mut state = lock(&self.state);
        let mut found = Vec::with_capacity(hashes.len());
        for some in hashes.chunks(LOOK_UP) {
            found.extend(self.look_up(&mut state, some, may_use)?);
        }
        if state.used.len() > MAX_USED {
            self.write_down(&mut state)?;
        }
        Ok(found)
    }

    /// True if this very file, under this stamp, was cut with these parameters: then all its chunks
    /// are on record and it need not be read.
    pub fn is_cut(&self, path: &Path, stamp: &Stamp, parameters: &Parameters) -> Result<bool, StoreError> {
        let mut state = lock(&self.state);
        if state.pending.is_cut(path, stamp, parameters) {
            return Ok(true);
        }
        let cut =
            self.with(&mut state, "finding a file", |conn| Ok(cuts::find(conn, path, stamp, parameters)?))?;
        state.used.extend(cut);
        Ok(cut.is_some())
    }

    /// Forgets a file: it is gone, or another now.
    pub fn forget_file(&self, path: &Path) -> Result<(), StoreError> {
        let mut state = lock(&self.state);
        state.pending.forget(path);
        self.with(&mut state, "forgetting a file", |conn| {
            let t = immediate(conn)?;
            cuts::forget(&t, path)?;
            Ok(t.commit()?)
        })
    }

    /// Writes down what was collected.
    pub fn flush(&self) -> Result<(), StoreError> {
        let mut state = lock(&self.state);
        if state.pending.is_empty() && state.used.is_empty() { Ok(()) } else { self.write_down(&mut state) }
    }

    /// Totals of what is written down.
    pub fn totals(&self) -> Result<ChunkTotals, StoreError> {
        self.with(&mut lock(&self.state), "counting", |conn| Ok(cuts::totals(conn)?))
    }

    fn look_up(
        &self,
        state: &mut IndexState,
        hashes: &[ChunkHash],
        may_use: &dyn Fn(&Path) -> bool,
    ) -> Result<Vec<Option<Location>>, StoreError> {
        let mut sorted: Vec<_> = hashes.iter().map(prefix_of).zip(0..).collect();
        sorted.sort_unstable();
        let mut candidates = vec![Vec::new(); hashes.len()];
        for (prefix, position) in &sorted {
            let pending = state.pending.find(*prefix);
            candidates[*position].extend(pending.map(|entry| (ChunkHolder::Pending(entry.cut), entry)));
        }
        let mut files = HashMap::new();
        self.with(state, "finding chunks", |conn| {
            // One moment of the index, whatever a merge moves meanwhile.
            let t = conn.transaction()?;
            let mut keep = |position: usize, entry: ChunkEntry| {
                let few: &mut Vec<(ChunkHolder, ChunkEntry)> = &mut candidates[position];
                if few.len() < 2 * COPIES {
                    few.push((ChunkHolder::Stored(entry.cut), entry));
                }
            };
            runs::all(&t)?.iter().rev().try_for_each(|run| runs::find(&t, run, &sorted, &mut keep))?;
            Ok(load(&t, &candidates, &mut files)?)
        })?;
        let IndexState { pending, used, .. } = state;
        files.extend(pending.files().map(|(number, file)| (ChunkHolder::Pending(number), file)));
        files.retain(|_, (path, _)| may_use(path));
        let chosen = choose(&candidates, |holder| files.contains_key(holder));
        let locate = |choice: Option<(ChunkHolder, ChunkEntry)>| {
            let (holder, entry) = choice?;
            let (path, stamp) = files.get(&holder)?;
            if let ChunkHolder::Stored(id) = holder {
                used.insert(id);
            }
            Some(Location { path: Arc::clone(path), stamp: *stamp, offset: entry.offset, len: entry.len })
        };
        Ok(chosen.into_iter().map(locate).collect())
    }

    /// Writes down what is pending; if that fails it is lost, as memory is bounded.
    fn write_down(&self, state: &mut IndexState) -> Result<(), StoreError> {
        let pending = std::mem::take(&mut state.pending);
        let used = std::mem::take(&mut state.used);
        let limits = self.limits;
        self.with(state, "recording chunks", |conn| {
            let t = immediate(conn)?;
            cuts::note_used(&t, &used, now())?;
            let numbers = pending.cuts().map(|cut| cut.map_or(Ok(None), |cut| cuts::add(&t, cut).map(Some)));
            let numbers = numbers.collect::<rusqlite::Result<Vec<_>>>()?;
            let entries = pending.entries(&numbers);
            if !entries.is_empty() {
                runs::add(&t, entries)?;
            }
            cuts::evict(&t, &limits)?;
            Ok(t.commit()?)
        })?;
        self.with(state, "merging chunks", |conn| self.merge(conn))
    }

    /// Merges runs if that is due and no other process is at it.
    fn merge(&self, conn: &mut Connection) -> IndexOutcome<()> {
        let (runs, totals) = (runs::all(conn)?, cuts::totals(conn)?);
        let entries: u64 = runs.iter().map(|run| run.entries).sum();
        let has_garbage = entries > totals.chunks + totals.chunks / 4 + pending::MAX_CHUNKS as u64;
        if runs::choose(&runs, has_garbage).is_empty() {
            return Ok(());
        }
        let Some(_alone) = self.merge_alone()? else { return Ok(()) };
        // Another process may have merged since.
        let runs = runs::all(conn)?;
        let live = if has_garbage { Some(cuts::numbers(conn)?) } else { None };
        // Cuts recorded since the list was made are live.
        let is_live = |cut| {
            let is_listed = |live: &Vec<u64>| live.binary_search(&cut).is_ok() || live.last() < Some(&cut);
            live.as_ref().is_none_or(is_listed)
        };
        Ok(runs::merge(conn, runs::choose(&runs, has_garbage), &is_live)?)
    }

    /// Held while runs are merged: a second merge would take from the first one's result.
    fn merge_alone(&self) -> IndexOutcome<Option<File>> {
        let path = self.path.with_extension("merging");
        let file = index::private_file(&path).map_err(|error| StoreError::io("opening", &path, error))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(_) => Ok(None),
        }
    }

    /// Works on the open index. What is damaged is removed, and begun anew by the next call.
    fn with<T>(
        &self,
        state: &mut IndexState,
        what: &str,
        work: impl FnOnce(&mut Connection) -> IndexOutcome<T>,
    ) -> Result<T, StoreError> {
        let connection = match &mut state.connection {
            Some(connection) => connection,
            none => none.insert(self.open()?),
        };
        work(connection).map_err(|fault| {
            if matches!(&fault, IndexFault::Sql(error) if index::is_damage(error)) {
                state.connection = None;
                self.begin_anew();
            }
            index::explain(&self.path, what, fault)
        })
    }

    fn open(&self) -> Result<Connection, StoreError> {
        // Held until the schema stands, so that no two processes create or remove at once.
        let _guard = index::open_lock(&self.path.with_extension("lock"))?;
        let opened = match open(&self.path) {
            Err(IndexFault::Sql(error)) if index::is_damage(&error) => {
                remove(&self.path);
                open(&self.path)
            }
            opened => opened,
        };
        opened.map_err(|fault| index::explain(&self.path, "opening", fault))
    }

    fn begin_anew(&self) {
        if let Ok(_guard) = index::open_lock(&self.path.with_extension("lock")) {
            remove(&self.path);
        }
    }
}

impl Drop for ChunkIndex {
    fn drop(&mut self) {
        if let Err(error) = self.flush() {
            tracing::debug!(%error, "the last chunks were not recorded");
        }
    }
}

fn immediate(conn: &mut Connection) -> rusqlite::Result<Transaction<'_>> {
    conn.transaction_with_behavior(TransactionBehavior::Immediate)
}

fn open(path: &Path) -> IndexOutcome<Connection> {
    // SQLite gives its journal files the mode of this one.
    index::private_file(path).map_err(|error| StoreError::io("opening", path, error))?;
    let mut connection = index::connect(path)?;
    connection.pragma_update(None, "cache_size", -CACHE)?;
    connection.pragma_update(None, "journal_size_limit", 32 << 20)?;
    let found: u64 = connection.pragma_query_value(None, "user_version", |row| row.get::<_, u32>(0))?.into();
    match found {
        0 => {
            let t = immediate(&mut connection)?;
            t.execute_batch(SCHEMA)?;
            t.pragma_update(None, "user_version", VERSION as u32)?;
            t.commit()?;
        }
        VERSION => drop((runs::all(&connection)?, cuts::totals(&connection)?)),
        found => return Err(index::newer(path, found, VERSION).into()),
    }
    Ok(connection)
}

/// Removes an index that is damaged; others that have it open go on with what they have.
fn remove(path: &Path) {
    tracing::warn!(path = %path.display(), "the index of chunks is damaged and begun anew");
    for suffix in ["-wal", "-shm", ""] {
        if let Err(error) = super::folders::remove(&index::with_suffix(path, suffix)) {
            tracing::warn!(%error, "a damaged index of chunks could not be removed");
        }
    }
}

/// Looks up the files that stored candidates lie in; those forgotten since are left out.
fn load(
    conn: &Connection,
    candidates: &[Vec<(ChunkHolder, ChunkEntry)>],
    files: &mut HashMap<ChunkHolder, KnownFile>,
) -> rusqlite::Result<()> {
    let mut seen = HashSet::new();
    for (holder, _) in candidates.iter().flatten() {
        if let ChunkHolder::Stored(id) = holder
            && seen.insert(*id)
            && let Some(file) = cuts::file(conn, *id)?
        {
            files.insert(*holder, file);
        }
    }
    Ok(())
}

/// One place for each chunk: the one in the file that holds most of them all, of equals the newest.
fn choose(
    candidates: &[Vec<(ChunkHolder, ChunkEntry)>],
    is_known: impl Fn(&ChunkHolder) -> bool,
) -> Vec<Option<(ChunkHolder, ChunkEntry)>> {
    let mut hits = HashMap::<ChunkHolder, u64>::new();
    for (holder, _) in candidates.iter().flatten() {
        *hits.entry(*holder).or_default() += 1;
    }
    let best = |few: &Vec<(ChunkHolder, ChunkEntry)>| {
        let known = few.iter().filter(|(holder, _)| is_known(holder));
        known.max_by_key(|(holder, _)| (hits.get(holder), *holder)).copied()
    };
    candidates.iter().map(best).collect()
}
