//! The end of a copy, when every file is in place: hard links, deletions, and the metadata of
//! directories, innermost first.
//!
//! | module | story |
//! |---|---|
//! | `allowance` | how much may be removed |
//! | `rooms` | directories that are in the way of something else |
//! | `links` | further names of files |
//! | `deletions` | what the source does not have, and how anything is removed |

mod allowance;
mod deletions;
mod links;
mod rooms;

use std::sync::Arc;

use towpath_content::tree::{Kind, Metadata, Time};
use towpath_files::metadata::differences;
use towpath_files::{RelPath, ScanOptions};

use crate::error::CopyError;
use crate::notes::{DirRecord, EndNotes, ExtraRecord, RecordStop};
use crate::receiving::Receiving;
use crate::removing::{Removals, rehearse};
use crate::requests::FileRequests;

/// Work that the walk leaves for its end.
pub struct Finish {
    /// State of the receiving side.
    pub receiving: Arc<Receiving>,
    /// Files under way.
    pub requests: FileRequests,
    /// Entries that may go from the destination.
    pub removals: Removals,
    /// Notes for this moment.
    pub notes: EndNotes,
    /// Options of looks at the destination.
    pub look: ScanOptions,
    /// Entries that the sender told.
    pub entries: u64,
    /// Entries of the destination that the source has too.
    pub matched: u64,
    /// The sender could not read everything, or something was in the way.
    pub is_incomplete: bool,
    /// The time that the destination's own directory shall have, if another would be left.
    pub root_time: Option<Time>,
}

impl Finish {
    /// Brings the copy to its end. Blocks until all files are in place.
    pub fn run(mut self) -> Result<(), CopyError> {
        self.bring_held()?;
        self.requests.wait_for_all(self.entries)?;
        let allowance = Arc::new(self.allowance()?);
        self.requests.bring_waiting(allowance.is_of_all(), self.entries)?;
        self.make_rooms(&allowance)?;
        self.make_links(&allowance)?;
        self.delete(&allowance)?;
        if self.receiving.options.dry_run {
            return Ok(());
        }
        let receiving = Arc::clone(&self.receiving);
        let Some(placing) = receiving.opened() else { return Ok(()) };
        receiving.check()?;
        placing.destination.staging().remove().map_err(CopyError::destination)?;
        self.finish_dirs()?;
        // One that was made for what goes into it is like any directory that is made here.
        placing.destination.keep_dir(&RelPath::root()).map_err(CopyError::destination)?;
        let root = placing.destination.look(&RelPath::root(), &self.look).map_err(CopyError::destination)?;
        let now = root.map(|root| root.stamp.modified);
        if let Some(modified) = self.root_time.filter(|modified| now != Some(*modified)) {
            // Only the owner of a directory can; it matters little.
            let _ = placing.destination.set_dir_time(&RelPath::root(), modified);
        }
        placing.destination.sync().map_err(CopyError::destination)?;
        placing.record.remove();
        Ok(())
    }

    /// Now it is known what only the destination has; a directory of that may have been renamed
    /// with all that is in it.
    fn bring_held(&mut self) -> Result<(), CopyError> {
        let receiving = Arc::clone(&self.receiving);
        if !self.requests.has_supplier() {
            return Ok(());
        }
        let Removals { filter, extras } = &mut self.removals;
        let (positions, look) = (&mut self.notes.positions, ScanOptions::default());
        let noted = extras.for_each(|record: ExtraRecord| {
            let Some(placing) = receiving.opened().filter(|_| record.is_dir) else { return Ok(()) };
            let (path, shown) = positions.paths(&record.position).map_err(RecordStop::of)?;
            // Errors of reading come when it is to be deleted.
            let _ = rehearse(&receiving, &path, &shown, filter, |path, _, is_dir| {
                if !is_dir && let Ok(Some(found)) = placing.destination.look(path, &look) {
                    receiving.kept.add_spare(path.clone(), found.stamp);
                }
            });
            Ok(())
        });
        noted.map_err(|RecordStop(error)| error)?;
        self.requests.end_walk()
    }

    fn finish_dirs(&mut self) -> Result<(), CopyError> {
        let receiving = Arc::clone(&self.receiving);
        let (EndNotes { positions, dirs, .. }, look) = (&mut self.notes, &self.look);
        let finished = dirs.for_each(|record: DirRecord| {
            let (path, shown) = positions.paths(&record.position).map_err(RecordStop::of)?;
            let finish = || {
                let placing = receiving.placing()?;
                let wanted = Metadata::from(record.metadata);
                let is_as_wanted = placing.destination.look(&path, look)?.is_some_and(|found| {
                    let metadata = &found.entry.metadata;
                    !differences(&Kind::Directory, &wanted, metadata, &receiving.policy).any()
                });
                match is_as_wanted {
                    true => placing.destination.keep_dir(&path),
                    false => placing.destination.finish_dir(&path, &wanted),
                }
            };
            if let Err(error) = finish() {
                receiving.problem(shown.as_bytes(), &error);
            }
            Ok(())
        });
        finished.map_err(|RecordStop(error)| error)
    }
}
