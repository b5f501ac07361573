//! The destination as the walk sees and changes it. A dry run looks, and changes nothing.

use std::sync::Arc;

use towpath_content::tree::{Entry, Kind};
use towpath_files::{FileError, Found, Overwrite, RelPath, ScanOptions};

use super::extras::ExtraNames;
use crate::receiving::Receiving;

/// The destination. Nothing is in it, in a dry run to one that is not there.
pub(super) struct DestinationTree {
    pub(super) receiving: Arc<Receiving>,
    /// Options of looks at it.
    pub(super) look: ScanOptions,
}

impl DestinationTree {
    /// The destination of a copy, which may not be open yet.
    pub(super) fn new(receiving: &Arc<Receiving>) -> Self {
        let preserve = &receiving.options.preserve;
        let (xattrs, acls) = (preserve.xattrs, preserve.acls);
        let look = ScanOptions { xattrs, acls, files: false, ..ScanOptions::default() };
        Self { receiving: Arc::clone(receiving), look }
    }

    /// Entry at `path`.
    pub(super) fn look(&self, path: &RelPath) -> Result<Option<Found>, FileError> {
        self.receiving.opened().map_or(Ok(None), |placing| placing.destination.look(path, &self.look))
    }

    /// Names in a directory, if it is to be compared with the source's.
    pub(super) fn names_to_compare(&self, path: &RelPath) -> Result<Option<ExtraNames>, FileError> {
        let Some(placing) = self.receiving.opened().filter(|_| self.receiving.options.delete) else {
            return Ok(None);
        };
        let names = placing.destination.names(path, &self.look)?;
        ExtraNames::new(names).map(Some).map_err(|error| FileError::new("read", placing.path(), error))
    }

    /// True if nothing is in a directory.
    pub(super) fn is_empty(&self, path: &RelPath) -> Result<bool, FileError> {
        let placing = self.receiving.placing()?;
        let mut names = placing.destination.names(path, &self.look)?;
        let first = names.next().map_err(|error| FileError::new("read", placing.path(), error))?;
        Ok(first.is_none())
    }

    /// True if what stands at `path` is not called `name`: a file system that does not tell case or Unicode forms apart
    /// finds another entry there.
    pub(super) fn collides(&self, path: &RelPath, name: &[u8]) -> Result<bool, FileError> {
        let Some(placing) = self.receiving.opened() else { return Ok(false) };
        if path.is_root() || self.receiving.options.dry_run {
            return Ok(false);
        }
        // It is tried in the folder of the temporaries.
        self.receiving.note_staging()?;
        let folding = placing.destination.folding();
        Ok(folding.folds(path)? && folding.actual_name(path)?.is_some_and(|actual| actual != name))
    }

    /// Makes a directory; one that is there can be written to afterwards.
    pub(super) fn make_dir(&self, path: &RelPath) -> Result<(), FileError> {
        match self.receiving.opened() {
            Some(placing) if !self.receiving.options.dry_run => placing.destination.make_dir(path).map(drop),
            _ => Ok(()),
        }
    }

    /// Makes a directory where something else is.
    pub(super) fn replace_by_dir(&self, path: &RelPath) -> Result<(), FileError> {
        let receiving = &self.receiving;
        let placing = receiving.placing()?;
        if receiving.options.dry_run {
            return Ok(());
        }
        if receiving.backups().back_up(path)? {
            return self.make_dir(path);
        }
        receiving.note_staging()?;
        placing.destination.put_dir_in_place_of(path)
    }

    /// Makes a symbolic link, FIFO, socket or device, which has this number in the sender's tree.
    pub(super) fn make_node(
        &self,
        number: u64,
        entry: &Entry,
        path: &RelPath,
        replaces: bool,
    ) -> Result<(), FileError> {
        if self.receiving.options.dry_run {
            return Ok(());
        }
        if replaces {
            self.receiving.backups().back_up(path)?;
        }
        let destination = &self.receiving.placing()?.destination;
        let overwrite = if replaces { Overwrite::ReplaceAny } else { Overwrite::Never };
        let made = match &entry.kind {
            Kind::Symlink { target } => {
                destination.nodes().symlink(path, target, &entry.metadata, overwrite)?
            }
            kind => destination.nodes().special(path, kind, &entry.metadata, overwrite)?,
        };
        self.receiving.settled(number, true);
        made.lacking.map_or(Ok(()), Err)
    }
}
