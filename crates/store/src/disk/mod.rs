//! A store on a disk: an index, the store's own files, and files of others that it refers to.
//!
//! A file that was put by name stays where it is; the index knows its stamp, and every read
//! checks it. Only bytes that have no file of their own (streamed puts, chunks) are kept in the
//! store's folders. Formats, write order and what survives a crash: `docs/formats/index.md`.
//!
//! | part | story |
//! |---|---|
//! | `index` | the SQLite file: opening, transactions, damage |
//! | `rows`, `files`, `leases` | what its tables say of objects, files and leases |
//! | `folders` | owned files and temporaries |
//! | `parts` | [`DiskStore`]: the parts put together |
//! | `putting`, `incoming` | puts: streamed, or of a file where it lies |
//! | `reading`, `source` | finding an object's bytes and noticing that a file changed |
//! | [`chunk_index`] | where chunks lie in files that were cut before |
//! | `chunks` | chunks and how often they were put |
//! | `recipes`, `made_recipes` | how to build objects from chunks: made, kept, evicted |
//! | `sessions`, `session_locks` | leases that end with the process that held their session |
//! | `cache`, `uses` | what nobody leases: when it was last used, and what is evicted first |
//! | `gc` | removing what is of no more use |
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
mod leases;
mod made_recipes;
mod parts;
mod points;
mod putting;
mod reading;
mod recipes;
mod rows;
mod session_locks;
mod sessions;
mod source;
mod uses;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use towpath_content::Oid;
use towpath_content::pieces::Layout;

pub use self::cache::{CachePolicy, CachedObject, Evicted, Hold};
pub use self::files::FileRecord;
pub use self::folders::Temporary;
pub use self::gc::{Collected, GcOptions};
use self::incoming::IncomingBody;
use self::index::Durability;
pub use self::parts::DiskStore;
use crate::error::StoreError;
use crate::leases::{Chunks, Lease, Leases};
use crate::productions::{NOT_OPEN, some_run};
use crate::seam::{
    About, Availability, Descriptors, Listener, Partial, RecipeNodes, State, Store, read_pieces,
};
use crate::spans::{self, OUTSIDE};

impl Drop for DiskStore {
    fn drop(&mut self) {
        self.write_or_lose(&self.uses.take());
    }
}

impl Store for DiskStore {
    fn put_init(&self, live: &Oid, about: &About) -> Result<(), StoreError> {
        self.begin(live, about)
    }

    fn put_data(&self, live: &Oid, data: &[u8]) -> Result<(), StoreError> {
        if self.productions.get(live).ok_or(NOT_OPEN)?.push(data)? {
            self.notices.changed(live);
        }
        Ok(())
    }

    fn put_boundary(&self, live: &Oid) -> Result<(), StoreError> {
        let put = self.productions.get(live).ok_or(NOT_OPEN)?;
        if !matches!(put.body, IncomingBody::Streamed(_)) {
            return Err(NOT_OPEN);
        }
        put.cut();
        Ok(())
    }

    fn put_commit(&self, live: &Oid) -> Result<Oid, StoreError> {
        self.commit(live)
    }

    fn put_abort(&self, live: &Oid) {
        self.abandon(live);
    }

    fn have(&self, oid: &Oid) -> Result<Availability, StoreError> {
        if let Some(found) = self.productions.have(oid)? {
            return Ok(found);
        }
        if let Some((content, size)) = self.binding(oid)? {
            return self.have_bound(content, size);
        }
        if let Some(known) = self.index.read("finding an object", |conn| rows::known(conn, oid))? {
            let layout = Layout::of(known.size).map_err(|_| OUTSIDE)?;
            let pieces = some_run(layout.count());
            return Ok(Availability { state: State::Complete, layout, pieces, about: known.about });
        }
        let (layout, pieces) = self.notices.partial(oid).ok_or(StoreError::NotHere)?.available();
        Ok(Availability { state: State::Partial, layout, pieces, about: About::default() })
    }

    fn version(&self, oid: &Oid) -> u64 {
        self.notices.version(oid)
    }

    fn wait_change(&self, oid: &Oid, seen: u64, timeout: Duration) -> u64 {
        self.notices.wait(oid, seen, timeout)
    }

    fn get_descriptors(&self, oid: &Oid, run: Range<u64>) -> Result<Descriptors, StoreError> {
        if let Some(put) = self.productions.get(oid) {
            return put.descriptors(run);
        }
        let content = self.resolve(oid)?;
        if let Some(known) = self.index.read("finding an object", |conn| rows::known(conn, &content))? {
            return self.prove(&content, known.size, run);
        }
        let partial = self.notices.partial(&content).ok_or(StoreError::NotHere)?;
        partial.proof(run).map(Descriptors::Proof)
    }

    fn read_piece(&self, oid: &Oid, index: u64, buf: &mut Vec<u8>) -> Result<(), StoreError> {
        if let Some(put) = self.productions.get(oid) {
            return put.append_piece(index, buf);
        }
        match (self.append_stored(&self.resolve(oid)?, index, buf), self.notices.partial(oid)) {
            (Err(StoreError::NotHere), Some(partial)) => partial.read_piece(index, buf),
            (result, _) => result,
        }
    }

    fn read_span(&self, oid: &Oid, range: Range<u64>, buf: &mut Vec<u8>) -> Result<(), StoreError> {
        spans::check(&range)?;
        if self.productions.get(oid).is_none() {
            match self.read_stored_span(&self.resolve(oid)?, &range, buf) {
                Err(StoreError::NotHere) => {}
                result => return result,
            }
        }
        read_pieces(self, oid, range, buf)
    }

    fn recipe(&self, oid: &Oid) -> Result<Arc<dyn RecipeNodes>, StoreError> {
        self.find_recipe(oid)
    }

    fn is_zero(&self, oid: &Oid, index: u64) -> bool {
        let is_hole = |content| self.is_hole(&content, index);
        self.productions.get(oid).is_none() && self.resolve(oid).is_ok_and(is_hole)
    }

    fn announce(&self, oid: &Oid, partial: Option<Arc<dyn Partial>>) {
        match partial {
            Some(partial) => self.notices.announce(oid, partial),
            None => self.notices.withdraw(oid),
        }
    }

    fn get_chunk(&self, hash: &[u8; 32]) -> Result<Vec<u8>, StoreError> {
        self.load_chunk(hash)
    }

    fn register_push(&self, listener: Listener) {
        self.notices.listen(listener);
    }
}

impl Leases for DiskStore {
    fn lease(&self, lease: &Lease) -> Result<(), StoreError> {
        self.keep_lease(lease)
    }

    fn leases(&self) -> Result<Vec<Lease>, StoreError> {
        self.index.read("reading leases", leases::all)
    }

    fn done(&self, oid: &Oid) -> Result<bool, StoreError> {
        let name = self.index.write(Durability::Synced, "giving a lease back", |t| leases::take(t, oid))?;
        name.iter().for_each(|name| self.notices.changed(name));
        Ok(name.is_some())
    }

    fn end_session(&self, session: &[u8; 16]) -> Result<Vec<Oid>, StoreError> {
        self.end_one_session(session)
    }
}

impl Chunks for DiskStore {
    fn put_chunk(&self, hash: &[u8; 32], bytes: &[u8]) -> Result<(), StoreError> {
        self.keep_chunk(hash, bytes)
    }

    fn release_chunk(&self, hash: &[u8; 32]) -> Result<(), StoreError> {
        self.drop_chunk(hash)
    }
}

#[cfg(test)]
mod crash;
#[cfg(test)]
mod tests;
