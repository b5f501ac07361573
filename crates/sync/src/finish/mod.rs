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
use std::time::Duration;

use towpath_content::tree::{Kind, Metadata};
use towpath_files::metadata::differences;
use towpath_files::{RelPath, ScanOptions};

use super::merge::Merge;
use crate::error::CopyError;
use crate::noted::{DirRecord, ExtraRecord, RecordStop};
use crate::removing::rehearse;

/// Time that the last files' moves are waited for together.
const MOVES: Duration = Duration::from_millis(1);

impl Merge {
    /// Brings the copy to its end; every entry was listed. Blocks until all files are in place.
    pub fn finish(mut self) -> Result<(), CopyError> {
        self.bring_held()?;
        self.settle_files()?;
        let allowance = Arc::new(self.allowance()?);
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
        let Some(supplier) = self.supplier.clone() else { return Ok(()) };
        let (filter, spots, look) = (&mut self.filter, &mut self.spots, ScanOptions::default());
        let noted = self.deletions.for_each(|record: ExtraRecord| {
            let Some(placing) = receiving.opened().filter(|_| record.is_dir) else { return Ok(()) };
            let (path, shown) = spots.paths(&record.spot).map_err(RecordStop::of)?;
            // Errors of reading come when it is to be deleted.
            let _ = rehearse(&receiving, &path, &shown, filter, |path, _, is_dir| {
                if !is_dir && let Ok(Some(found)) = placing.destination.look(path, &look) {
                    receiving.is_spare(path.clone(), found.stamp);
                }
            });
            Ok(())
        });
        noted.map_err(|RecordStop(error)| error)?;
        supplier.walk_is_over()
    }

    /// Waits until no file is under way.
    fn settle_files(&self) -> Result<(), CopyError> {
        let receiving = &self.receiving;
        if let Some(supplier) = &self.supplier {
            supplier.considered(self.seen())?;
            supplier.push()?;
        }
        while receiving.places.taken() > 0 {
            receiving.check()?;
            receiving.name_if_stuck();
            // Thousands move at once: being woken for each costs more than waiting for some.
            self.runtime.block_on(async {
                receiving.places.moved().await;
                tokio::time::sleep(MOVES).await;
            });
        }
        receiving.check()
    }

    fn finish_dirs(&mut self) -> Result<(), CopyError> {
        let receiving = Arc::clone(&self.receiving);
        let (spots, look) = (&mut self.spots, &self.look);
        let finished = self.dirs.for_each(|record: DirRecord| {
            let (path, shown) = spots.paths(&record.spot).map_err(RecordStop::of)?;
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
