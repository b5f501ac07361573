//! The files by which a process is known to live: each holds its own locked.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use towpath_content::lock::lock;

use super::folders::{Temporary, create_private, is_left};
use crate::error::StoreError;

/// The files that processes with sessions hold locked, and this process's own once it has one.
pub(crate) struct SessionLocks {
    pub(super) folder: PathBuf,
    pub(super) own: Mutex<Option<Temporary>>,
}

impl SessionLocks {
    /// Keeps the files in `<state_dir>/sessions`.
    pub(crate) fn open(state_dir: &Path) -> Result<Self, StoreError> {
        let folder = state_dir.join("sessions");
        create_private(&folder)?;
        Ok(Self { folder, own: Mutex::default() })
    }

    /// The name of the file that this process holds.
    pub(super) fn owner(&self) -> Result<String, StoreError> {
        let mut own = lock(&self.own);
        let file = match own.take() {
            Some(file) => file,
            None => Temporary::create_in(&self.folder)?,
        };
        Ok(own.insert(file).name())
    }

    pub(super) fn is_gone(&self, owner: &str) -> bool {
        is_left(&self.folder.join(owner))
    }
}
