//! What only the destination has: noted, to be deleted at the end.

use std::path::Path;

use towpath_content::tree::Kind;
use towpath_files::{DirNames, FileError, RelPath, ScanOptions};

use super::Merge;
use crate::noted::ExtraRecord;
use towpath_reuse::candidates::is_file;

pub(super) struct ExtraNames {
    names: DirNames,
    next: Option<Vec<u8>>,
}

impl ExtraNames {
    pub(super) fn new(mut names: DirNames) -> std::io::Result<Self> {
        let next = names.next()?;
        Ok(Self { names, next })
    }

    /// The next name, if it comes before `limit`.
    pub(super) fn before(&mut self, limit: Option<&[u8]>) -> std::io::Result<Option<Vec<u8>>> {
        let is_before = self.next.as_deref().is_some_and(|next| limit.is_none_or(|limit| next < limit));
        if !is_before {
            return Ok(None);
        }
        let name = self.next.take();
        self.next = self.names.next()?;
        Ok(name)
    }

    /// Passes `name`, if it comes next.
    fn pass(&mut self, name: &[u8]) -> std::io::Result<()> {
        if self.next.as_deref() == Some(name) {
            self.next = self.names.next()?;
        }
        Ok(())
    }
}

impl Merge {
    /// The destination's names before `name` are not the source's.
    pub(super) fn pass(&mut self, name: &[u8]) {
        self.extras(Some(name));
        if let Some(names) = self.frames.last_mut().and_then(|frame| frame.names.as_mut()) {
            // An error here comes again with the next name, and is told there.
            let _ = names.pass(name);
        }
    }

    /// Notes what only the destination has, up to `limit`.
    pub(super) fn extras(&mut self, limit: Option<&[u8]>) {
        loop {
            let Some(frame) = self.frames.last_mut() else { return };
            let Some(names) = &mut frame.names else { return };
            let noted = match names.before(limit) {
                Ok(None) => return,
                Ok(Some(name)) => self.extra(&name),
                Err(error) => {
                    frame.names = None;
                    Err(FileError::new("read", Path::new("the destination"), error))
                }
            };
            if let Err(error) = noted {
                self.receiving.problem(self.shown.as_bytes(), &error);
            }
        }
    }

    fn extra(&mut self, name: &[u8]) -> Result<(), FileError> {
        if towpath_files::is_staging_name(name) {
            return Ok(());
        }
        let (path, shown) = (self.path.join(name)?, self.shown.join(name)?);
        let placing = self.receiving.placing()?;
        let Some(found) = placing.destination.look(&path, &ScanOptions::default())? else { return Ok(()) };
        let is_dir = found.entry.kind == Kind::Directory;
        if self.filter.protects(&shown, is_dir) || self.is_backup_dir(&path) {
            return Ok(());
        }
        if is_file(&found.entry.kind) {
            self.receiving.is_spare(path.clone(), found.stamp);
        }
        let record = ExtraRecord { spot: self.spot(name)?, is_dir };
        self.deletions
            .push(&record)
            .map_err(|error| FileError::new("note", Path::new("a deletion"), error))?;
        if let Some(frame) = self.frames.last_mut() {
            frame.is_changed = true;
        }
        Ok(())
    }

    /// Backups of this run are not to be removed by it.
    fn is_backup_dir(&self, path: &RelPath) -> bool {
        let Some(dir) = self.options().backup_dir.as_ref().filter(|_| self.options().backup) else {
            return false;
        };
        let mut names = dir.split(|&byte| byte == b'/').filter(|name| !name.is_empty() && *name != b".");
        path.names().all(|name| names.next() == Some(name))
    }
}
