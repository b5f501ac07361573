//! A store on a disk: an index, the store's own files, and files of others that it refers to.
//!
//! A file that was put by name stays where it is; the index knows its stamp, and every read
//! checks it. Only bytes that have no file of their own (streamed puts, chunks) are kept in the
//! store's folders. Formats, write order and what survives a crash: `docs/formats/index.md`.
//!
//! | part | story |
//! |---|---|
//! | `parts`, `mod` | [`DiskStore`]: the parts put together, and the seams it implements |
//! | `puts`, `incoming` | `Puts`: streamed, or of a file where it lies |
//! | `records` | `FileRecords`: whose contents are known under which stamp |
//! | `cache` | [`ObjectCache`]: what nobody leases, and what is evicted first |
//! | `recipes`, `made_recipes` | [`Recipes`]: how to build objects from chunks: made, kept, evicted |
//! | `proofs` | `Proofs`: that pieces belong to an object |
//! | `sources`, `source` | `SourceFiles`: finding an object's bytes and noticing that a file changed |
//! | `kept_bytes` | `KeptBytes`: the byte store for what is owned, if that is not this disk |
//! | `lease_table`, `session_locks` | [`LeaseTable`]: leases, and which end with the process that held their session |
//! | `chunks` | `ChunkFiles`: chunks and how often they were put |
//! | [`chunk_index`] | where chunks lie in files that were cut before |
//! | `gc` | removing what is of no more use |
//! | `store_core` | `StoreCore`, shared by all of them: index, folders, notices, notes of use |
//! | `index` | the SQLite file: opening, transactions, damage |
//! | `rows`, `files`, `leases` | what its tables say of objects, files and leases |
//! | `folders` | owned files and temporaries |
//! | `uses` | when things were last used |
//! | `points` | where tests kill a process |
//! | `fuzzing` | doors for the fuzz targets in `fuzz/`, in no other build |
//!
//! Several processes may share one store. Each sees what the others completed; productions,
//! announcements and waiting are a matter of one process.

mod cache;
pub mod chunk_index;
mod chunks;
mod files;
mod folders;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod gc;
mod incoming;
mod index;
mod kept_bytes;
mod lease_table;
mod leases;
mod made_recipes;
mod parts;
mod points;
mod proofs;
mod puts;
mod recipes;
mod records;
mod rows;
mod session_locks;
mod source;
mod sources;
mod store_core;
mod uses;

use std::ops::Range;
use std::sync::Arc;

use towpath_content::Oid;
use towpath_content::pieces::Layout;

pub use self::cache::{CachePolicy, CachedObject, Evicted, Hold, ObjectCache};
pub use self::files::FileRecord;
pub use self::folders::Temporary;
pub use self::gc::{Collected, GcOptions};
pub use self::kept_bytes::ByteKeeping;
pub use self::lease_table::LeaseTable;
pub use self::parts::DiskStore;
pub use self::recipes::Recipes;
use crate::error::StoreError;
use crate::leases::{Chunks, Lease, Leases};
use crate::productions::some_run;
use crate::seam::{
    About, Availability, Descriptors, Listener, Partial, RecipeNodes, State, Store, StoreChange, read_pieces,
};
use crate::spans::{self, OUTSIDE};

impl Store for DiskStore {
    fn put_init(&self, live: &Oid, about: &About) -> Result<(), StoreError> {
        self.puts.begin(live, about)
    }

    fn put_data(&self, live: &Oid, data: &[u8]) -> Result<(), StoreError> {
        self.puts.push(live, data)
    }

    fn put_boundary(&self, live: &Oid) -> Result<(), StoreError> {
        self.puts.cut(live)
    }

    fn put_commit(&self, live: &Oid) -> Result<Oid, StoreError> {
        self.puts.commit(live)
    }

    fn put_abort(&self, live: &Oid) {
        self.puts.abandon(live);
    }

    fn have(&self, oid: &Oid) -> Result<Availability, StoreError> {
        if let Some(found) = self.puts.open.have(oid)? {
            return Ok(found);
        }
        if let Some((content, size)) = self.core.binding(oid)? {
            let layout = Layout::of(size).map_err(|_| OUTSIDE)?;
            let found = self.core.known(&content)?;
            let pieces = some_run(if found.is_some() { layout.count() } else { 0 });
            let about = found.map(|known| known.about).unwrap_or_default();
            return Ok(Availability {
                state: State::Bound(content),
                layout,
                pieces,
                spans: Vec::new(),
                about,
            });
        }
        if let Some(known) = self.core.known(oid)? {
            let layout = Layout::of(known.size).map_err(|_| OUTSIDE)?;
            let pieces = some_run(layout.count());
            return Ok(Availability {
                state: State::Complete,
                layout,
                pieces,
                spans: Vec::new(),
                about: known.about,
            });
        }
        let partial = self.core.notices.partial(oid).ok_or(StoreError::NotHere)?;
        let (layout, pieces) = partial.available();
        let (spans, about) = (partial.spans(), partial.about());
        Ok(Availability { state: State::Partial, layout, pieces, spans, about })
    }

    fn version(&self, oid: &Oid) -> u64 {
        self.core.notices.version(oid)
    }

    fn change(&self, oid: &Oid, seen: u64) -> StoreChange {
        self.core.notices.change(oid, seen)
    }

    fn get_descriptors(&self, oid: &Oid, run: Range<u64>) -> Result<Descriptors, StoreError> {
        if let Some(put) = self.puts.open.get(oid) {
            return put.descriptors(run);
        }
        let content = self.core.resolve(oid)?;
        if let Some(known) = self.core.known(&content)? {
            return self.proofs.prove(&content, known.size, run);
        }
        let partial = self.core.notices.partial(&content).ok_or(StoreError::NotHere)?;
        partial.proof(run).map(Descriptors::Proof)
    }

    fn read_piece(&self, oid: &Oid, index: u64, buf: &mut Vec<u8>) -> Result<(), StoreError> {
        if let Some(put) = self.puts.open.get(oid) {
            return put.append_piece(index, buf);
        }
        match (
            self.sources.append_piece(&self.core.resolve(oid)?, index, buf),
            self.core.notices.partial(oid),
        ) {
            (Err(StoreError::NotHere), Some(partial)) => partial.read_piece(index, buf),
            (result, _) => result,
        }
    }

    fn read_span(&self, oid: &Oid, range: Range<u64>, buf: &mut Vec<u8>) -> Result<(), StoreError> {
        spans::check(&range)?;
        if self.puts.open.get(oid).is_none() {
            match self.sources.read_span(&self.core.resolve(oid)?, &range, buf) {
                Err(StoreError::NotHere) => {}
                result => return result,
            }
        }
        if let Some(partial) = self.core.notices.partial(oid)
            && partial.read_span(&range, buf).is_ok()
        {
            return Ok(());
        }
        read_pieces(self, oid, range, buf)
    }

    fn recipe(&self, oid: &Oid) -> Result<Arc<dyn RecipeNodes>, StoreError> {
        if self.puts.open.get(oid).is_some() {
            return Err(StoreError::NotHere);
        }
        self.recipes.find(&self.core.resolve(oid)?)
    }

    fn is_zero(&self, oid: &Oid, index: u64) -> bool {
        let is_hole = |content| self.sources.is_hole(&content, index);
        self.puts.open.get(oid).is_none() && self.core.resolve(oid).is_ok_and(is_hole)
    }

    fn announce(&self, oid: &Oid, partial: Option<Arc<dyn Partial>>) {
        match partial {
            Some(partial) => self.core.notices.announce(oid, partial),
            None => self.core.notices.withdraw(oid),
        }
    }

    fn get_chunk(&self, hash: &[u8; 32]) -> Result<Vec<u8>, StoreError> {
        self.chunks.get(hash)
    }

    fn register_push(&self, listener: Listener) {
        self.core.notices.listen(listener);
    }
}

impl Leases for DiskStore {
    fn lease(&self, lease: &Lease) -> Result<(), StoreError> {
        self.leases.put(lease)
    }

    fn leases(&self) -> Result<Vec<Lease>, StoreError> {
        self.leases.all()
    }

    fn done(&self, oid: &Oid) -> Result<bool, StoreError> {
        self.leases.done(oid)
    }

    fn end_session(&self, session: &[u8; 16]) -> Result<Vec<Oid>, StoreError> {
        self.leases.end_session(session)
    }
}

impl Chunks for DiskStore {
    fn put_chunk(&self, hash: &[u8; 32], bytes: &[u8]) -> Result<(), StoreError> {
        self.chunks.put(hash, bytes)
    }

    fn release_chunk(&self, hash: &[u8; 32]) -> Result<(), StoreError> {
        self.chunks.release(hash)
    }
}

#[cfg(test)]
mod crash;
#[cfg(test)]
mod tests;
