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
//! | `putting` | puts: streamed, or of a file where it lies |
//! | `reading`, `source` | finding an object's bytes and noticing that a file changed |
//! | [`chunk_index`] | where chunks lie in files that were cut before |
//! | `chunks` | chunks and how often they were put |
//! | `recipes` | how to build objects from chunks: made, kept, evicted |
//! | `sessions` | leases that end with the process that held their session |
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
mod index;
mod leases;
mod points;
mod putting;
mod reading;
mod recipes;
mod rows;
mod sessions;
mod source;
mod uses;

use std::ffi::OsStr;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use towpath_content::Oid;
use towpath_content::pieces::{Layout, PieceTree};

pub use self::cache::{CachePolicy, CachedObject, Evicted, Hold};
use self::chunk_index::{ChunkIndex, ChunkLimits};
use self::files::DirNumbers;
pub use self::files::FileRecord;
pub use self::folders::Temporary;
use self::folders::{Folders, create_private};
pub use self::gc::{Collected, GcOptions};
use self::index::{Durability, IndexOutcome, ObjectIndex};
use self::putting::IncomingBody;
use self::recipes::Recipes;
use self::sessions::SessionLocks;
use self::source::Source;
use self::uses::{Used, Uses};
use crate::error::StoreError;
use crate::leases::{Chunks, Lease, Leases};
use crate::lru::Lru;
use crate::notices::Notices;
use crate::productions::{NOT_OPEN, Productions, some_run};
use crate::seam::{
    About, Availability, Descriptors, Listener, Partial, RecipeNodes, State, Store, read_pieces,
};
use crate::spans::{self, OUTSIDE};
use crate::stamp::Stamp;

/// Bytes of piece values kept in memory for proofs. A tree that is larger, up to 64 MiB for
/// objects over 128 GiB, is kept alone.
const TREE_CACHE: usize = 32 << 20;
/// Files of more than one piece that are kept open.
const OPEN_FILES: usize = 32;

/// A store on a disk.
pub struct DiskStore {
    index: ObjectIndex,
    folders: Folders,
    productions: Productions<IncomingBody>,
    notices: Notices,
    trees: Mutex<Lru<Oid, Arc<PieceTree>>>,
    sources: Mutex<Lru<Oid, Arc<Source>>>,
    sessions: SessionLocks,
    uses: Uses,
    chunk_index: ChunkIndex,
    recipes: Recipes,
}

impl DiskStore {
    /// Opens a store, or begins one: the index in `state_dir`, bytes in `data_dir`. Folders that
    /// are missing are made, for their owner alone.
    ///
    /// An index that is damaged is renamed aside and begun anew; one of a newer program is an error.
    pub fn open(state_dir: &Path, data_dir: &Path) -> Result<Self, StoreError> {
        create_private(state_dir)?;
        let folders = Folders::open(data_dir)?;
        Ok(Self {
            index: ObjectIndex::open(state_dir)?,
            folders,
            productions: Productions::new(),
            notices: Notices::new(),
            trees: Mutex::new(Lru::new(TREE_CACHE)),
            sources: Mutex::new(Lru::new(OPEN_FILES)),
            sessions: SessionLocks::open(state_dir)?,
            uses: Uses::new(),
            chunk_index: ChunkIndex::new(state_dir, ChunkLimits::default()),
            recipes: Recipes::default(),
        })
    }

    /// The contents of files of one folder, where their stamps prove it; one answer for each.
    pub fn known<N: AsRef<OsStr>>(
        &self,
        dir: &Path,
        files: &[(N, Stamp)],
    ) -> Result<Vec<Option<Oid>>, StoreError> {
        let found = self.index.read("finding files", |conn| {
            let Some(dir) = files::dir_number(conn, dir)? else {
                return Ok(None);
            };
            let known = |(name, stamp): &(N, Stamp)| files::known(conn, dir, name.as_ref(), stamp);
            Ok(Some((dir, files.iter().map(known).collect::<IndexOutcome<Vec<_>>>()?)))
        })?;
        let Some((dir, known)) = found else {
            return Ok(vec![None; files.len()]);
        };
        if known.iter().any(Option::is_some) {
            self.note_use(Used::Dir(dir));
        }
        Ok(known)
    }

    /// Records files whose contents are known, in one transaction. They can be read, and
    /// answer [`Self::known`], from then on.
    pub fn remember(&self, records: &[FileRecord]) -> Result<(), StoreError> {
        let has_listeners = self.notices.has_listeners();
        let new = self.index.write(Durability::Cached, "recording files", |t| {
            let (mut dirs, mut new) = (DirNumbers::default(), Vec::new());
            for record in records {
                if has_listeners && rows::known(t, &record.oid)?.is_none() {
                    new.push(record.oid);
                }
                files::record(t, &mut dirs, record)?;
            }
            Ok(new)
        })?;
        records.iter().for_each(|record| self.notices.complete(&record.oid));
        new.iter().for_each(|oid| self.notices.tell(oid));
        Ok(())
    }

    /// Where chunks lie in files that were cut before.
    pub const fn chunk_index(&self) -> &ChunkIndex {
        &self.chunk_index
    }

    fn binding(&self, oid: &Oid) -> Result<Option<(Oid, u64)>, StoreError> {
        if !oid.is_live() {
            return Ok(None);
        }
        self.index.read("finding a binding", |conn| rows::binding(conn, oid))
    }

    /// The content that `oid` names now.
    fn resolve(&self, oid: &Oid) -> Result<Oid, StoreError> {
        Ok(self.binding(oid)?.map_or(*oid, |(content, _)| content))
    }

    fn have_bound(&self, content: Oid, size: u64) -> Result<Availability, StoreError> {
        let layout = Layout::of(size).map_err(|_| OUTSIDE)?;
        let found = self.index.read("finding an object", |conn| rows::known(conn, &content))?;
        let pieces = some_run(if found.is_some() { layout.count() } else { 0 });
        let about = found.map(|known| known.about).unwrap_or_default();
        Ok(Availability { state: State::Bound(content), layout, pieces, about })
    }

    fn abandon(&self, live: &Oid) {
        if self.productions.abandon(live).is_some() {
            self.notices.changed(live);
        }
    }

    /// A private file on the store's disk, to be filled and given to [`Self::adopt`].
    pub fn incoming(&self) -> Result<Temporary, StoreError> {
        self.folders.temporary()
    }
}

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
