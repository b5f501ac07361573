//! Chunks: each in a file named by its hash, counted in the index.
//!
//! The file is on the disk before the row that counts it, and goes after it, so a crash leaves at
//! most a file that nobody counts; the next put of that chunk takes its place. File and row change
//! under the index's write lock, so that a put and a release in two processes cannot cross.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, params};

use super::folders::{create_private, remove, sync_parent};
use super::index::{Durability, IndexOutcome};
use super::store_core::StoreCore;
use crate::error::StoreError;
use crate::memory::check_chunk;

/// The chunks of a store.
pub(super) struct ChunkFiles {
    core: Arc<StoreCore>,
}

impl ChunkFiles {
    /// Those of the store with this core.
    pub(super) const fn new(core: Arc<StoreCore>) -> Self {
        Self { core }
    }

    /// Keeps a chunk, or counts it once more.
    pub(super) fn put(&self, hash: &[u8; 32], bytes: &[u8]) -> Result<(), StoreError> {
        check_chunk(hash, bytes)?;
        let path = self.core.folders.chunk(hash);
        let is_there = std::fs::metadata(&path).is_ok_and(|found| found.len() == bytes.len() as u64);
        if is_there
            && self.core.index.write(Durability::Synced, "counting a chunk", |t| count_again(t, hash))?
        {
            return Ok(());
        }
        if let Some(folder) = path.parent().filter(|folder| !folder.exists()) {
            create_private(folder)?;
            sync_parent(folder)?;
        }
        let temporary = self.core.folders.temporary()?;
        temporary.write(0, bytes)?;
        temporary.sync(bytes.len() as u64)?;
        self.core.index.write(Durability::Synced, "keeping a chunk", |t| {
            temporary.publish(&path)?;
            let insert = "INSERT INTO chunks (hash, len, puts) VALUES (?, ?, 1)
                          ON CONFLICT (hash) DO UPDATE SET puts = puts + 1";
            t.prepare_cached(insert)?.execute(params![hash, bytes.len()])?;
            Ok(())
        })
    }

    /// Reads a chunk and checks it.
    pub(super) fn get(&self, hash: &[u8; 32]) -> Result<Vec<u8>, StoreError> {
        if !self.core.index.read("finding a chunk", |conn| is_counted(conn, hash))? {
            return Err(StoreError::NotHere);
        }
        let path = self.core.folders.chunk(hash);
        match std::fs::read(&path) {
            Ok(bytes) if check_chunk(hash, &bytes).is_ok() => Ok(bytes),
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(StoreError::io("reading", &path, error))
            }
            _ => self.forget(hash),
        }
    }

    /// Forgets a chunk whose file is damaged or gone, unless somebody released it meanwhile.
    fn forget(&self, hash: &[u8; 32]) -> Result<Vec<u8>, StoreError> {
        let path = self.core.folders.chunk(hash);
        let forgotten = self.core.index.write(Durability::Synced, "forgetting a chunk", |t| {
            Ok(t.execute("DELETE FROM chunks WHERE hash = ?", [hash])?)
        })?;
        self.remove_uncounted(hash)?;
        if forgotten == 0 {
            return Err(StoreError::NotHere);
        }
        tracing::warn!(path = %path.display(), "a chunk does not match its hash; it is forgotten");
        Err(StoreError::Corrupt { what: path.display().to_string() })
    }

    /// Takes one put back; the last one removes the chunk.
    pub(super) fn release(&self, hash: &[u8; 32]) -> Result<(), StoreError> {
        let is_last = self.core.index.write(Durability::Synced, "releasing a chunk", |t| {
            let puts: Option<u64> =
                t.query_row("SELECT puts FROM chunks WHERE hash = ?", [hash], |row| row.get(0)).optional()?;
            match puts.ok_or(StoreError::NotHere)? {
                ..=1 => t.execute("DELETE FROM chunks WHERE hash = ?", [hash])?,
                _ => t.execute("UPDATE chunks SET puts = puts - 1 WHERE hash = ?", [hash])?,
            };
            Ok(puts <= Some(1))
        })?;
        if is_last { self.remove_uncounted(hash) } else { Ok(()) }
    }

    fn remove_uncounted(&self, hash: &[u8; 32]) -> Result<(), StoreError> {
        self.core.index.write(Durability::Cached, "removing a chunk", |t| {
            if !is_counted(t, hash)? {
                remove(&self.core.folders.chunk(hash))?;
            }
            Ok(())
        })
    }
}

/// True if somebody put the chunk and has not released it.
pub(crate) fn is_counted(conn: &Connection, hash: &[u8; 32]) -> IndexOutcome<bool> {
    let mut select = conn.prepare_cached("SELECT EXISTS (SELECT 1 FROM chunks WHERE hash = ?)")?;
    Ok(select.query_row([hash], |row| row.get(0))?)
}

/// Counts one more put of a chunk that is kept; false if it is not.
fn count_again(conn: &Connection, hash: &[u8; 32]) -> IndexOutcome<bool> {
    let mut update = conn.prepare_cached("UPDATE chunks SET puts = puts + 1 WHERE hash = ?")?;
    Ok(update.execute([hash])? > 0)
}
