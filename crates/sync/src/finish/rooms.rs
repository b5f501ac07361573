//! Directories that are in the way of something else. Each goes at the end, right before what replaces it takes its
//! name, which is on disk by then: it and what is in it count against the same limits as all that is deleted.

use std::sync::Arc;

use towpath_content::tree::Metadata;
use towpath_files::{BeforeNaming, FileError, Naming, Overwrite, RelPath};

use super::Finish;
use super::allowance::Allowance;
use crate::error::{CopyError, Obstacle, Stays};
use crate::notes::{InTheWay, RecordStop, Replacement, RoomRecord, StagedFile};
use crate::receiving::Receiving;
use crate::wanted::Note;
use towpath_targets::resume::wait_while_busy;

impl Finish {
    /// Puts what waits in the place of directories, as far as that is allowed.
    pub(super) fn make_rooms(&mut self, allowance: &Arc<Allowance>) -> Result<(), CopyError> {
        let receiving = Arc::clone(&self.receiving);
        let positions = &mut self.notes.positions;
        let made = receiving.kept.take_rooms().for_each(|record: RoomRecord| {
            receiving.check().map_err(RecordStop)?;
            let entry = record.entry;
            let (path, shown) = positions.paths(&record.position).map_err(RecordStop::of)?;
            let room = RoomToMake { in_the_way: record.in_the_way.into(), path, shown };
            if let Err(error) = replace(&receiving, allowance, &room, record) {
                receiving.problem(room.shown.as_bytes(), &error);
                receiving.settled(entry, false);
            }
            Ok(())
        });
        made.map_err(|RecordStop(error)| error)?;
        if let Some(placing) = receiving.opened() {
            receiving.named(placing.flush());
        }
        Ok(())
    }
}

/// A directory that is in the way, and how people know it.
#[derive(Clone)]
pub(super) struct RoomToMake {
    pub(super) in_the_way: InTheWay,
    pub(super) path: RelPath,
    pub(super) shown: RelPath,
}

impl RoomToMake {
    /// Removes the directory right before something else takes its name.
    pub(super) fn before_naming(
        &self,
        receiving: &Arc<Receiving>,
        allowance: &Arc<Allowance>,
    ) -> BeforeNaming {
        let (room, receiving, allowance) = (self.clone(), Arc::clone(receiving), Arc::clone(allowance));
        BeforeNaming::new(move || allowance.clear(&receiving, &room))
    }
}

fn replace(
    receiving: &Arc<Receiving>,
    allowance: &Arc<Allowance>,
    room: &RoomToMake,
    record: RoomRecord,
) -> Result<(), FileError> {
    let metadata = Metadata::from(record.metadata);
    let placing = receiving.placing()?;
    let destination = &placing.destination;
    let before = || room.before_naming(receiving, allowance);
    let made = match record.replacement {
        None if receiving.options.dry_run => return allowance.clear(receiving, room),
        None => {
            // It was reported that it stays; what is in it becomes backups all the same, as with rsync.
            let _ = allowance.clear(receiving, room);
            return Ok(());
        }
        Some(Replacement::File(StagedFile { temp, size })) => {
            // The one who wrote it may still be about to let go of it.
            let staged = wait_while_busy(|| destination.staging().reopen_for(&room.path, &temp))?;
            let shown = room.shown.as_bytes().to_vec();
            let note = Note { entry: record.entry, shown, size, modified: metadata.modified, permit: None };
            let named = placing.commit(
                staged,
                &room.path,
                &metadata,
                Overwrite::Never,
                None,
                Some(before()),
                note,
            )?;
            receiving.named(named);
            return Ok(());
        }
        Some(Replacement::Symlink(target)) => {
            destination.nodes().symlink(&room.path, &target, &metadata, Naming::after(before()))?
        }
        Some(Replacement::Special(special)) => {
            destination.nodes().special(&room.path, &special.kind_of(), &metadata, Naming::after(before()))?
        }
    };
    receiving.settled(record.entry, true);
    made.lacking.map_or(Ok(()), Err)
}

/// Reason why a directory stays in the way.
pub(super) fn refused(room: &RoomToMake, receiving: &Receiving, why: Stays) -> FileError {
    let path = receiving.placing().map(|placing| placing.whole_path(&room.path)).unwrap_or_default();
    Obstacle::Stays(why).to("replace", &path)
}
