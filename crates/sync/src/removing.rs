//! Entries that only the destination has, removals of them, and what is protected from those.

use std::os::fd::AsFd;
use std::path::Path;

use towpath_files::{FileError, Filter, RelPath, Removed, Removing};

use crate::notes::{ExtraRecord, Position};
use crate::receiving::Receiving;
use towpath_sync_messages::records::Records;

/// Entries that may go from the destination.
pub struct Removals {
    /// The rules that protect; they follow the walk.
    pub filter: Filter,
    /// Entries that only the destination has, to be deleted at the end.
    pub extras: Records<ExtraRecord>,
}

impl Removals {
    /// Nothing was found yet.
    pub fn new(filter: Filter) -> Self {
        Self { filter, extras: Records::default() }
    }

    /// The rules of a directory of the destination that was gone into hold from here on.
    pub fn enter(&mut self, receiving: &Receiving, path: &RelPath, shown: &RelPath) -> Result<(), FileError> {
        let Some(placing) = receiving.opened() else { return Ok(()) };
        let dir = placing.destination.dir(path)?;
        self.filter.enter(dir.as_fd(), shown)
    }

    /// The rules of the innermost directory hold no more.
    pub fn leave(&mut self, receiving: &Receiving) {
        if receiving.opened().is_some() {
            self.filter.leave();
        }
    }

    /// True if something stays that only the destination has.
    pub fn protects(&mut self, receiving: &Receiving, path: &RelPath, shown: &RelPath, is_dir: bool) -> bool {
        self.filter.protects(shown, is_dir) || is_backup_dir(receiving, path)
    }

    /// Notes what only the destination has.
    pub fn note(&mut self, position: Position, is_dir: bool) -> Result<(), FileError> {
        let noted = self.extras.push(&ExtraRecord { position, is_dir });
        noted.map(drop).map_err(|error| FileError::new("note", Path::new("a deletion"), error))
    }

    /// Finds out if backups of what is in a directory would stay in it.
    pub fn leaves_backups(
        &mut self,
        receiving: &Receiving,
        path: &RelPath,
        shown: &RelPath,
    ) -> Result<bool, FileError> {
        if !receiving.options.backup || receiving.options.backup_dir.is_some() {
            return Ok(false);
        }
        let mut files = 0;
        rehearse(receiving, path, shown, &mut self.filter, |_, _, is_dir| files += u64::from(!is_dir))?;
        Ok(files > 0)
    }
}

/// Backups of this run are not to be removed by it.
fn is_backup_dir(receiving: &Receiving, path: &RelPath) -> bool {
    let options = &receiving.options;
    let Some(dir) = options.backup_dir.as_ref().filter(|_| options.backup) else { return false };
    let mut names = dir.split(|&byte| byte == b'/').filter(|name| !name.is_empty() && *name != b".");
    path.names().all(|name| names.next() == Some(name))
}

/// Calls `each` with what removing would remove, and removes nothing.
pub fn rehearse(
    receiving: &Receiving,
    path: &RelPath,
    shown: &RelPath,
    filter: &mut Filter,
    each: impl FnMut(&RelPath, &RelPath, bool),
) -> Result<Removed, FileError> {
    let mut may = |below: &RelPath, is_dir: bool| !is_protected(filter, below, shown, is_dir);
    let mut removal = ShownRemoval { path, shown, may: &mut may, gone: each };
    receiving.placing()?.destination.removal().rehearse(path, &mut removal)
}

/// True if the filter rules keep something below a directory that goes.
pub fn is_protected(filter: &mut Filter, path: &RelPath, top: &RelPath, is_dir: bool) -> bool {
    // The top was checked when it was found.
    path != top && filter.protects_in_deleted(path, is_dir)
}

/// Translates between the destination's paths and those that people know.
pub struct ShownRemoval<'a, G> {
    /// The top, as the destination calls it.
    pub path: &'a RelPath,
    /// The same as people know it.
    pub shown: &'a RelPath,
    /// True if something may go.
    pub may: &'a mut dyn FnMut(&RelPath, bool) -> bool,
    /// Called for what is gone.
    pub gone: G,
}

impl<G: FnMut(&RelPath, &RelPath, bool)> Removing for ShownRemoval<'_, G> {
    fn may(&mut self, path: &RelPath, is_dir: bool) -> bool {
        below(path, self.path, self.shown).is_some_and(|below| (self.may)(&below, is_dir))
    }

    fn gone(&mut self, path: &RelPath, is_dir: bool) {
        if let Some(below) = below(path, self.path, self.shown) {
            (self.gone)(path, &below, is_dir);
        }
    }
}

/// The name for people of something below `path`, which they know as `shown`.
fn below(removed: &RelPath, path: &RelPath, shown: &RelPath) -> Option<RelPath> {
    let mut below = shown.clone();
    removed.names().skip(path.depth()).try_for_each(|name| below.push(name)).ok()?;
    Some(below)
}
