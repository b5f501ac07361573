//! Files on record: whose contents are known as long as their stamps are as they were.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;
use towpath_content::Oid;

use super::files::{self, DirNumbers, FileFound, FileRecord, OnRecord};
use super::index::{Durability, IndexOutcome};
use super::rows;
use super::store_core::StoreCore;
use super::uses::Used;
use crate::error::StoreError;
use crate::stamp::Stamp;

/// Rows that are looked at between two transactions.
const BATCH: usize = 1024;

/// The files that a store has on record.
pub(super) struct FileRecords {
    core: Arc<StoreCore>,
}

impl FileRecords {
    /// Those of the store with this core.
    pub(super) const fn new(core: Arc<StoreCore>) -> Self {
        Self { core }
    }

    /// The contents of files of one folder, where their stamps prove it; one answer for each.
    pub(super) fn known<N: AsRef<OsStr>>(
        &self,
        dir: &Path,
        files: &[(N, Stamp)],
    ) -> Result<Vec<Option<Oid>>, StoreError> {
        let found = self.core.index.read("finding files", |conn| {
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
            self.core.note_use(Used::Dir(dir));
        }
        Ok(known)
    }

    /// Records files whose contents are known, in one transaction.
    pub(super) fn remember(&self, records: &[FileRecord]) -> Result<(), StoreError> {
        let has_listeners = self.core.notices.has_listeners();
        let new = self.core.index.write(Durability::Cached, "recording files", |t| {
            let (mut dirs, mut new) = (DirNumbers::default(), Vec::new());
            for record in records {
                if has_listeners && rows::known(t, &record.oid)?.is_none() {
                    new.push(record.oid);
                }
                files::record(t, &mut dirs, record)?;
            }
            Ok(new)
        })?;
        records.iter().for_each(|record| self.core.notices.complete(&record.oid));
        new.iter().for_each(|oid| self.core.notices.tell(oid));
        Ok(())
    }

    /// The content of one file, where its stamp proves it.
    pub(super) fn known_file(&self, path: &Path, stamp: &Stamp) -> Result<Option<Oid>, StoreError> {
        let name = path.file_name().unwrap_or_default();
        let known = self.known(path.parent().unwrap_or(path), &[(name, *stamp)])?;
        Ok(known.into_iter().next().flatten())
    }

    /// Looks at every file on record and forgets those that are no longer as they were.
    pub(super) fn forget_lost(&self) -> Result<u64, StoreError> {
        let (mut after, mut forgotten) = ((i64::MIN, OsString::new()), 0);
        loop {
            let page = |conn: &Connection| files::page(conn, after.0, &after.1, BATCH);
            let page = self.core.index.read("reading files", page)?;
            let Some(last) = page.last() else {
                return Ok(forgotten);
            };
            after = (last.found.dir, last.found.path.file_name().unwrap_or_default().to_owned());
            let lost: Vec<_> = page.into_iter().filter(|file| is_lost(&file.found)).collect();
            if !lost.is_empty() {
                forgotten += lost.len() as u64;
                self.forget(&lost)?;
            }
        }
    }

    fn forget(&self, lost: &[OnRecord]) -> Result<(), StoreError> {
        self.core.index.write(Durability::Cached, "forgetting files", |t| {
            lost.iter().try_for_each(|file| files::forget(t, &file.oid, &file.found))
        })?;
        lost.iter().for_each(|file| self.core.notices.changed(&file.oid));
        Ok(())
    }
}

/// True if the file is not what is on record. One that cannot be looked at is not taken for lost.
fn is_lost(found: &FileFound) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    match Stamp::of_path(&found.path) {
        Ok(stamp) => stamp != found.stamp,
        Err(error) => matches!(error.kind(), NotFound | NotADirectory),
    }
}
