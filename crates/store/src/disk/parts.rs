//! A store on a disk: the parts put together.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use towpath_content::Oid;
use towpath_content::pieces::Value;

use super::cache::{Hold, ObjectCache};
use super::chunk_index::{ChunkIndex, ChunkLimits};
use super::chunks::ChunkFiles;
use super::files::FileRecord;
use super::folders::Temporary;
use super::kept_bytes::ByteKeeping;
use super::lease_table::LeaseTable;
use super::proofs::Proofs;
use super::puts::Puts;
use super::recipes::Recipes;
use super::records::FileRecords;
use super::sources::SourceFiles;
use super::store_core::StoreCore;
use crate::error::StoreError;
use crate::seam::{About, State, Store};
use crate::stamp::Stamp;

/// A store on a disk.
pub struct DiskStore {
    pub(super) core: Arc<StoreCore>,
    pub(super) leases: LeaseTable,
    pub(super) chunks: ChunkFiles,
    pub(super) records: Arc<FileRecords>,
    pub(super) sources: Arc<SourceFiles>,
    pub(super) proofs: Proofs,
    pub(super) recipes: Arc<Recipes>,
    pub(super) puts: Puts,
    pub(super) cache: ObjectCache,
    chunk_index: ChunkIndex,
}

impl DiskStore {
    /// Opens a store, or begins one: the index in `state_dir`, bytes in `data_dir`. Folders that
    /// are missing are made, for their owner alone.
    ///
    /// An index that is damaged is renamed aside and begun anew; one of a newer program is an error.
    pub fn open(state_dir: &Path, data_dir: &Path) -> Result<Self, StoreError> {
        Self::open_with(state_dir, data_dir, None)
    }

    /// [`Self::open`] of a store that keeps what it owns in a byte store: streams that were put, objects that
    /// came. Index, leases and records of files stay in `state_dir`. What was owned before stays where it is.
    ///
    /// The place is claimed: one that is another store's is refused, and so is a place that lacks what the index
    /// says is there.
    pub fn open_with(
        state_dir: &Path,
        data_dir: &Path,
        keeping: Option<ByteKeeping>,
    ) -> Result<Self, StoreError> {
        let core = Arc::new(StoreCore::open(state_dir, data_dir, keeping)?);
        let sources = Arc::new(SourceFiles::new(Arc::clone(&core)));
        let records = Arc::new(FileRecords::new(Arc::clone(&core)));
        let recipes = Arc::new(Recipes::new(Arc::clone(&core), Arc::clone(&sources)));
        Ok(Self {
            leases: LeaseTable::open(Arc::clone(&core), state_dir)?,
            chunks: ChunkFiles::new(Arc::clone(&core)),
            proofs: Proofs::new(Arc::clone(&core), Arc::clone(&sources)),
            puts: Puts::new(Arc::clone(&core), Arc::clone(&records), Arc::clone(&recipes)),
            cache: ObjectCache::new(Arc::clone(&core), Arc::clone(&sources)),
            chunk_index: ChunkIndex::new(state_dir, ChunkLimits::default()),
            core,
            records,
            sources,
            recipes,
        })
    }

    /// The leases, and what is noted of what they name.
    pub const fn lease_table(&self) -> &LeaseTable {
        &self.leases
    }

    /// Content that nobody leases.
    pub const fn cache(&self) -> &ObjectCache {
        &self.cache
    }

    /// Recipes, by which objects are built from chunks.
    pub fn recipes(&self) -> &Recipes {
        &self.recipes
    }

    /// Positions of chunks in files that were cut before.
    pub const fn chunk_index(&self) -> &ChunkIndex {
        &self.chunk_index
    }

    /// The contents of files of one folder, where their stamps prove it; one answer for each.
    pub fn known<N: AsRef<OsStr>>(
        &self,
        dir: &Path,
        files: &[(N, Stamp)],
    ) -> Result<Vec<Option<Oid>>, StoreError> {
        self.records.known(dir, files)
    }

    /// Records files whose contents are known, in one transaction. They can be read, and
    /// answer [`Self::known`], from then on.
    pub fn remember(&self, records: &[FileRecord]) -> Result<(), StoreError> {
        self.records.remember(records)
    }

    /// A file that holds `oid` and is as it was when that was found out: for copies on this disk.
    pub fn locate(&self, oid: &Oid) -> Result<Option<(PathBuf, Stamp)>, StoreError> {
        self.sources.locate(oid)
    }

    /// True if an object is complete and its file is there still, unchanged as far as its stamp tells: that the index has it says
    /// only that it was so once.
    pub fn is_here(&self, oid: &Oid) -> bool {
        self.have(oid).is_ok_and(|have| have.state == State::Complete) && self.hold(oid).is_ok()
    }

    /// Keeps a complete object from being evicted, by any process, for as long as the hold lives.
    /// Files that it refers to may be changed by others all the same.
    pub fn hold(&self, oid: &Oid) -> Result<Hold, StoreError> {
        self.cache.hold(&self.core.resolve(oid)?)
    }

    /// [`Self::hold`], and appends a piece of the object to `buf`, which it is looked up for only once.
    pub fn hold_piece(&self, oid: &Oid, index: u64, buf: &mut Vec<u8>) -> Result<Hold, StoreError> {
        self.cache.hold_piece(&self.core.resolve(oid)?, index, buf)
    }

    /// Puts a file by reference: it is not copied, and its stamp says whether it is still the same.
    ///
    /// A file that the index knows under a settled stamp is not read. Any other is hashed
    /// in one pass on all cores, and under `live`, if given, it can be read meanwhile piece by piece, as
    /// if it were being streamed; at the end `live` is bound to the content. Returns OID and size.
    pub fn put_file(&self, path: &Path, live: Option<&Oid>, about: &About) -> Result<(Oid, u64), StoreError> {
        self.puts.put_file(path, live, about)
    }

    /// [`Self::put_file`] of a file that was opened by someone who knows that it is the right one,
    /// under a `live` name that is not bound. `path` (absolute, without symbolic links) is where
    /// it is looked for later; its stamp tells whether what is found there is this very file.
    pub fn put_open_file(
        &self,
        file: File,
        path: &Path,
        live: &Oid,
        about: &About,
    ) -> Result<(Oid, u64), StoreError> {
        self.puts.put_open_file(file, path, live, about)
    }

    /// A private file on the store's disk, to be filled and given to [`Self::adopt`].
    pub fn incoming(&self) -> Result<Temporary, StoreError> {
        self.core.folders.temporary()
    }

    /// The same of a private file that was filled elsewhere on the store's disk; it leaves its place.
    pub fn take_in(&self, path: &Path) -> Result<Temporary, StoreError> {
        self.core.folders.take_in(path)
    }

    /// Takes a file from [`Self::incoming`] as an object that nobody leases, without copying it.
    /// Its bytes were checked by the caller; `values` are those of all its pieces, also if there
    /// is only one. It is on the disk when this returns.
    pub fn adopt(
        &self,
        incoming: Temporary,
        oid: &Oid,
        size: u64,
        values: &[Value],
        about: &About,
    ) -> Result<(), StoreError> {
        self.puts.adopt(&incoming, oid, size, values, about)
    }
}
