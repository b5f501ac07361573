//! What goes from the destination: at the end what the source does not have, and on the way what
//! stands where something of another kind is to be.
//!
//! Deletions come last, so that a file that was renamed at the source can still be drawn from its
//! old place, and not at all where the sender could not read everything. Removing more than half
//! of a destination is a mistake more often than not, and needs to be asked for.

use std::io;
use std::path::Path;
use std::sync::Arc;

use towpath_api::ApiError;
use towpath_files::{FileError, Filter, RelPath, Removing, ScanOptions};

use super::noted::{ExtraRecord, Spot, Stop};
use crate::copy::events::CopyEvent;
use crate::copy::merge::Merge;
use crate::copy::receiving::Receiving;
use crate::copy::records::Records;

impl Merge {
    /// Deletes what only the destination has.
    pub(super) fn delete(&mut self) -> Result<(), ApiError> {
        let receiving = Arc::clone(&self.receiving);
        if self.deletions.len() == 0 {
            return Ok(());
        }
        if self.is_incomplete {
            let why = "nothing was deleted, as the source could not be read completely";
            receiving.leave_out(b"", why, "see the errors above, and run the same command again");
            return Ok(());
        }
        let mut deletions = std::mem::take(&mut self.deletions);
        let options = &receiving.options;
        let total = self.count(&mut deletions)?;
        if options.max_delete.is_none() && !options.force && total > self.matched {
            receiving.count(|counts| counts.max_delete_reached = true);
            let all = total + self.matched;
            let why = format!("{total} of {all} entries would be deleted; none was");
            receiving.leave_out(b"", &why, "if that is right, say --force or --max-delete=NUM");
            if !options.dry_run {
                return Ok(());
            }
        }
        let mut left = options.max_delete.unwrap_or(u64::MAX);
        let filter = &mut self.filter;
        let deleted = deletions.for_each(|record: ExtraRecord| {
            receiving.check().map_err(Stop)?;
            if let Err(error) = delete(&receiving, &record, filter, &mut left) {
                receiving.problem(&record.spot.shown, &error);
            }
            Ok(())
        });
        deleted.map_err(|Stop(error)| error)?;
        if left == 0 && options.max_delete.is_some() && receiving.summary().max_delete_reached {
            let why = "not everything was deleted that the source does not have";
            receiving.leave_out(b"", why, "say --force or a higher --max-delete=NUM");
        }
        Ok(())
    }

    /// How many entries would go.
    fn count(&mut self, deletions: &mut Records<ExtraRecord>) -> Result<u64, ApiError> {
        let receiving = Arc::clone(&self.receiving);
        let mut total = 0;
        let filter = &mut self.filter;
        let counted = deletions.for_each(|record: ExtraRecord| {
            let each = |_: &RelPath, _: &RelPath, _: bool| total += 1;
            // What can't be read now is told when it is to be deleted.
            let _ = rehearse(&receiving, &record, filter, each);
            Ok(())
        });
        counted.map_err(|Stop(error)| error)?;
        Ok(total)
    }
}

/// Calls `each` with what deleting would remove, and removes nothing.
pub(super) fn rehearse(
    receiving: &Receiving,
    record: &ExtraRecord,
    filter: &mut Filter,
    each: impl FnMut(&RelPath, &RelPath, bool),
) -> Result<(), FileError> {
    let (path, shown) = record.spot.paths()?;
    let mut may = |below: &RelPath, is_dir: bool| !is_protected(filter, below, &shown, is_dir);
    let mut removal = Removal { path: &path, shown: &shown, may: &mut may, gone: each };
    receiving.placing()?.destination.rehearse_removal(&path, &mut removal).map(drop)
}

fn is_protected(filter: &mut Filter, path: &RelPath, top: &RelPath, is_dir: bool) -> bool {
    // The top was asked about when it was found.
    path != top && filter.protects_in_deleted(path, is_dir)
}

fn delete(
    receiving: &Receiving,
    record: &ExtraRecord,
    filter: &mut Filter,
    left: &mut u64,
) -> Result<(), FileError> {
    let (path, shown) = record.spot.paths()?;
    let mut may = |below: &RelPath, is_dir: bool| {
        if is_protected(filter, below, &shown, is_dir) {
            return false;
        }
        if *left == 0 {
            receiving.count(|counts| counts.max_delete_reached = true);
            return false;
        }
        *left -= 1;
        true
    };
    back_up_and_remove(receiving, &path, &shown, Telling::All, &mut may)
}

/// Removes what stands where something of another kind is to be. It is not told itself, as its name
/// stays; what was in it is. What the filters protect stays, and then there is no room.
pub fn make_room(
    receiving: &Receiving,
    filter: &mut Filter,
    path: &RelPath,
    shown: &RelPath,
) -> Result<(), FileError> {
    let mut may = |below: &RelPath, is_dir: bool| !is_protected(filter, below, shown, is_dir);
    back_up_and_remove(receiving, path, shown, Telling::Below, &mut may)?;
    let placing = receiving.placing()?;
    let is_left =
        !receiving.options.dry_run && placing.destination.look(path, &ScanOptions::default())?.is_some();
    if is_left {
        let why =
            io::Error::new(io::ErrorKind::DirectoryNotEmpty, "what is in its place holds what is to be kept");
        return Err(FileError::new("replace", &placing.whole_path(path), why));
    }
    Ok(())
}

/// [`remove`], with everything that is no directory moved to its backup first if that is asked for.
fn back_up_and_remove(
    receiving: &Receiving,
    path: &RelPath,
    shown: &RelPath,
    telling: Telling,
    may: &mut dyn FnMut(&RelPath, bool) -> bool,
) -> Result<(), FileError> {
    if !receiving.options.backup || receiving.options.dry_run {
        return remove(receiving, path, shown, telling, may);
    }
    let mut moved = Records::<ExtraRecord>::default();
    let failed = |error| FileError::new("note", Path::new("a backup"), error);
    let mut noting = Ok(());
    let note = |path: &RelPath, below: &RelPath, is_dir: bool| {
        let record = ExtraRecord { spot: Spot::new(path, below), is_dir };
        if noting.is_ok() {
            noting = moved.push(&record).map(drop);
        }
    };
    let mut removal = Removal { path, shown, may, gone: note };
    let rehearsed = receiving.placing()?.destination.rehearse_removal(path, &mut removal)?;
    noting.map_err(failed)?;
    rehearsed.failures.iter().for_each(|error| receiving.problem(shown.as_bytes(), error));
    let done = moved.for_each(|record| {
        let path = record.spot.path().map_err(Failed)?;
        // What is left in a directory, such as backups, keeps it.
        let is_gone = match record.is_dir {
            true => receiving.placing().map_err(Failed)?.destination.remove_dir(&path).map_err(Failed)?,
            false => receiving.back_up(&path).map_err(Failed)?,
        };
        if is_gone && telling.tells(&record.spot.shown, shown) {
            told(receiving, &record.spot.shown, record.is_dir);
        }
        Ok(())
    });
    done.map_err(|Failed(error)| error)
}

/// Removes `path` (in a dry run: does as if) with all that `may` lets go, and tells each. What is
/// kept stays with the directories around it.
fn remove(
    receiving: &Receiving,
    path: &RelPath,
    shown: &RelPath,
    telling: Telling,
    may: &mut dyn FnMut(&RelPath, bool) -> bool,
) -> Result<(), FileError> {
    let destination = &receiving.placing()?.destination;
    let gone = |_: &RelPath, below: &RelPath, is_dir: bool| {
        if telling.tells(below.as_bytes(), shown) {
            told(receiving, below.as_bytes(), is_dir);
        }
    };
    let mut removal = Removal { path, shown, may, gone };
    let removed = match receiving.options.dry_run {
        true => destination.rehearse_removal(path, &mut removal),
        false => destination.remove(path, &mut removal),
    }?;
    removed.failures.iter().for_each(|error| receiving.problem(shown.as_bytes(), error));
    Ok(())
}

/// Which removals are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Telling {
    /// All.
    All,
    /// Those below the top.
    Below,
}

impl Telling {
    fn tells(self, shown: &[u8], top: &RelPath) -> bool {
        self == Self::All || shown != top.as_bytes()
    }
}

/// Translates between the destination's paths and those that people know.
struct Removal<'a, G> {
    path: &'a RelPath,
    shown: &'a RelPath,
    may: &'a mut dyn FnMut(&RelPath, bool) -> bool,
    gone: G,
}

impl<G: FnMut(&RelPath, &RelPath, bool)> Removing for Removal<'_, G> {
    fn may(&mut self, path: &RelPath, is_dir: bool) -> bool {
        below(path, self.path, self.shown).is_some_and(|below| (self.may)(&below, is_dir))
    }

    fn gone(&mut self, path: &RelPath, is_dir: bool) {
        if let Some(below) = below(path, self.path, self.shown) {
            (self.gone)(path, &below, is_dir);
        }
    }
}

fn told(receiving: &Receiving, shown: &[u8], is_dir: bool) {
    receiving.count(|counts| match is_dir {
        true => counts.deleted.directories += 1,
        false => counts.deleted.files += 1,
    });
    receiving.tell(CopyEvent::Deleted { path: shown.to_vec(), is_dir });
}

/// The name for people of something below `path`, which they know as `shown`.
fn below(removed: &RelPath, path: &RelPath, shown: &RelPath) -> Option<RelPath> {
    let mut below = shown.clone();
    removed.names().skip(path.depth()).try_for_each(|name| below.push(name)).ok()?;
    Some(below)
}

/// What ends the reading of records about files.
struct Failed(FileError);

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self(FileError::new("read back", Path::new("what was noted"), error))
    }
}
