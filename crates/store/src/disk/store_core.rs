//! The ground that all parts of a store on a disk share: the index, the folders, who waits for what, and notes of use.

use std::io;
use std::path::Path;
use std::sync::Arc;

use towpath_content::Oid;

use super::folders::{Folders, create_private};
use super::index::{Durability, ObjectIndex};
use super::kept_bytes::{ByteKeeping, KeptBytes};
use super::rows::{self, ObjectRow};
use super::uses::{self, UseNotes, Used, Uses};
use crate::error::StoreError;
use crate::notices::Notices;

/// Shared by the parts of one store.
pub(super) struct StoreCore {
    pub(super) index: ObjectIndex,
    pub(super) folders: Folders,
    pub(super) notices: Notices,
    /// The byte store for what it owns, if that is not in `folders`.
    pub(super) kept: Option<Arc<KeptBytes>>,
    uses: Uses,
}

impl StoreCore {
    /// Opens the index in `state_dir` and the folders in `data_dir`, or begins them.
    pub(super) fn open(
        state_dir: &Path,
        data_dir: &Path,
        keeping: Option<ByteKeeping>,
    ) -> Result<Self, StoreError> {
        create_private(state_dir)?;
        let folders = Folders::open(data_dir)?;
        let index = ObjectIndex::open(state_dir)?;
        let kept = match keeping {
            Some(keeping) => {
                let has_kept = index.read("looking for objects in the byte store", rows::has_kept)?;
                Some(KeptBytes::open(keeping, state_dir, has_kept)?)
            }
            None => None,
        };
        Ok(Self { index, folders, notices: Notices::new(), kept, uses: Uses::new() })
    }

    /// The byte store. An object that is in one can be had only while it is configured.
    pub(super) fn kept(&self) -> Result<&Arc<KeptBytes>, StoreError> {
        self.kept.as_ref().ok_or_else(|| {
            let why = "it is in the byte store, which only a daemon configured with it reaches";
            StoreError::Io { what: "reading an object".into(), source: io::Error::other(why) }
        })
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
