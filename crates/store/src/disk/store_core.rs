//! The ground that all parts of a store on a disk share: the index, the folders, who waits for what, and notes of use.

use std::path::Path;

use towpath_content::Oid;

use super::folders::{Folders, create_private};
use super::index::{Durability, ObjectIndex};
use super::rows::{self, ObjectRow};
use super::uses::{self, UseNotes, Used, Uses};
use crate::error::StoreError;
use crate::notices::Notices;

/// Shared by the parts of one store.
pub(super) struct StoreCore {
    pub(super) index: ObjectIndex,
    pub(super) folders: Folders,
    pub(super) notices: Notices,
    uses: Uses,
}

impl StoreCore {
    /// Opens the index in `state_dir` and the folders in `data_dir`, or begins them.
    pub(super) fn open(state_dir: &Path, data_dir: &Path) -> Result<Self, StoreError> {
        create_private(state_dir)?;
        let folders = Folders::open(data_dir)?;
        Ok(Self { index: ObjectIndex::open(state_dir)?, folders, notices: Notices::new(), uses: Uses::new() })
    }

    /// Content that a live name is bound to, and its size.
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

    /// The index's row of a content, if it is complete.
    pub(super) fn known(&self, content: &Oid) -> Result<Option<ObjectRow>, StoreError> {
        self.index.read("finding an object", |conn| rows::known(conn, content))
    }

    /// Notes a use, and writes notes down when it is time.
    pub(super) fn note_use(&self, used: Used) {
        if let Some(notes) = self.uses.note(used) {
            self.write_or_lose(&notes);
        }
    }

    /// Writes all notes of use down.
    pub(super) fn write_uses(&self) -> Result<(), StoreError> {
        self.write(&self.uses.take())
    }

    /// Writes notes down; a reader is not to fail for want of them.
    fn write_or_lose(&self, notes: &UseNotes) {
        if let Err(error) = self.write(notes) {
            tracing::debug!(%error, "when things were last used was not noted");
        }
    }

    fn write(&self, notes: &UseNotes) -> Result<(), StoreError> {
        if notes.is_empty() {
            return Ok(());
        }
        self.index.write(Durability::Cached, "noting what was used", |t| uses::write(t, notes))
    }
}

impl Drop for StoreCore {
    fn drop(&mut self) {
        self.write_or_lose(&self.uses.take());
    }
}
