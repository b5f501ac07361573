//! The parts that a store on a disk is made of, and what most of its work needs of them.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use towpath_content::Oid;
use towpath_content::pieces::{Layout, PieceTree};

use super::chunk_index::{ChunkIndex, ChunkLimits};
use super::files::{self, DirNumbers, FileRecord};
use super::folders::{Folders, Temporary, create_private};
use super::incoming::IncomingBody;
use super::index::{Durability, IndexOutcome, ObjectIndex};
use super::made_recipes::Recipes;
use super::rows;
use super::session_locks::SessionLocks;
use super::source::Source;
use super::uses::{Used, Uses};
use crate::error::StoreError;
use crate::lru::Lru;
use crate::notices::Notices;
use crate::productions::{Productions, some_run};
use crate::seam::{Availability, State};
use crate::spans::OUTSIDE;
use crate::stamp::Stamp;

/// Bytes of piece values kept in memory for proofs. A tree that is larger, up to 64 MiB for
/// objects over 128 GiB, is kept alone.
const TREE_CACHE: usize = 32 << 20;
/// Files of more than one piece that are kept open.
const OPEN_FILES: usize = 32;

/// A store on a disk.
pub struct DiskStore {
    pub(super) index: ObjectIndex,
    pub(super) folders: Folders,
    pub(super) productions: Productions<IncomingBody>,
    pub(super) notices: Notices,
    pub(super) trees: Mutex<Lru<Oid, Arc<PieceTree>>>,
    pub(super) sources: Mutex<Lru<Oid, Arc<Source>>>,
    pub(super) sessions: SessionLocks,
    pub(super) uses: Uses,
    pub(super) chunk_index: ChunkIndex,
    pub(super) recipes: Recipes,
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

    pub(super) fn binding(&self, oid: &Oid) -> Result<Option<(Oid, u64)>, StoreError> {
        if !oid.is_live() {
            return Ok(None);
        }
        self.index.read("finding a binding", |conn| rows::binding(conn, oid))
    }

    /// The content that `oid` names now.
    pub(super) fn resolve(&self, oid: &Oid) -> Result<Oid, StoreError> {
        Ok(self.binding(oid)?.map_or(*oid, |(content, _)| content))
    }

    pub(super) fn have_bound(&self, content: Oid, size: u64) -> Result<Availability, StoreError> {
        let layout = Layout::of(size).map_err(|_| OUTSIDE)?;
        let found = self.index.read("finding an object", |conn| rows::known(conn, &content))?;
        let pieces = some_run(if found.is_some() { layout.count() } else { 0 });
        let about = found.map(|known| known.about).unwrap_or_default();
        Ok(Availability { state: State::Bound(content), layout, pieces, about })
    }

    pub(super) fn abandon(&self, live: &Oid) {
        if self.productions.abandon(live).is_some() {
            self.notices.changed(live);
        }
    }

    /// A private file on the store's disk, to be filled and given to [`Self::adopt`].
    pub fn incoming(&self) -> Result<Temporary, StoreError> {
        self.folders.temporary()
    }
}
