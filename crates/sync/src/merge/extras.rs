//! Entries that only the destination has: noted, to be deleted at the end.

use std::path::Path;

use towpath_content::tree::Kind;
use towpath_files::{DirNames, FileError, ScanOptions};

use super::Merge;
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
        if let Some(names) = self.stack.last_mut().and_then(|frame| frame.names.as_mut()) {
            // An error here comes again with the next name, and is told there.
            let _ = names.pass(name);
        }
    }

    /// Notes what only the destination has, up to `limit`.
    pub(super) fn extras(&mut self, limit: Option<&[u8]>) {
        loop {
            let Some(frame) = self.stack.last_mut() else { return };
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
                self.receiving.problem(self.stack.shown.as_bytes(), &error);
            }
        }
    }

    fn extra(&mut self, name: &[u8]) -> Result<(), FileError> {
        if towpath_files::is_staging_name(name) {
            return Ok(());
        }
        let (path, shown) = (self.stack.path.join(name)?, self.stack.shown.join(name)?);
        let placing = self.receiving.placing()?;
        let Some(found) = placing.destination.look(&path, &ScanOptions::default())? else { return Ok(()) };
        let is_dir = found.entry.kind == Kind::Directory;
        if self.removals.protects(&self.receiving, &path, &shown, is_dir) {
            return Ok(());
        }
        if is_file(&found.entry.kind) {
            self.receiving.kept.add_spare(path.clone(), found.stamp);
        }
        let position = self.stack.position(name, &mut self.notes.positions.directories)?;
        self.removals.note(position, is_dir)?;
        if let Some(frame) = self.stack.last_mut() {
            frame.is_changed = true;
        }
        Ok(())
    }
}
