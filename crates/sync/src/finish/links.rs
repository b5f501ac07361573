//! Further names of files: made when the first ones are in place.

use std::sync::Arc;

use towpath_api::copy::{CopyEvent, FileTime};
use towpath_content::tree::Kind;
use towpath_files::{FileError, Naming, Overwrite, RelPath, ScanOptions};

use super::Finish;
use super::allowance::Allowance;
use super::rooms::RoomToMake;
use crate::decide::Changes;
use crate::error::CopyError;
use crate::notes::{EndNotes, InTheWay, LinkRecord, RecordStop};
use crate::receiving::{Receiving, add};

impl Finish {
    pub(super) fn make_links(&mut self, allowance: &Arc<Allowance>) -> Result<(), CopyError> {
        let receiving = Arc::clone(&self.receiving);
        let (EndNotes { positions, links, .. }, look) = (&mut self.notes, &self.look);
        let made = links.for_each(|record: LinkRecord| {
            receiving.check().map_err(RecordStop)?;
            let first = positions.paths(&record.first).map_err(RecordStop::of)?;
            let (path, shown) = positions.paths(&record.position).map_err(RecordStop::of)?;
            let room = RoomToMake { in_the_way: record.in_the_way.into(), path, shown };
            if let Err(error) = make_link(&receiving, allowance, &record, &first, &room, look) {
                receiving.problem(room.shown.as_bytes(), &error);
                receiving.settled(record.entry, false);
            }
            Ok(())
        });
        made.map_err(|RecordStop(error)| error)
    }
}

fn make_link(
    receiving: &Arc<Receiving>,
    allowance: &Arc<Allowance>,
    record: &LinkRecord,
    (first, shown_first): &(RelPath, RelPath),
    room: &RoomToMake,
    look: &ScanOptions,
) -> Result<(), FileError> {
    let placing = receiving.opened();
    let found = |path| match placing.map_or(Ok(None), |placing| placing.destination.look(path, look)) {
        // A real run would have made way for the directories on the way there.
        Err(_) if receiving.options.dry_run => Ok(None),
        found => found,
    };
    let (one, other) = (found(first)?, found(&room.path)?);
    if let (Some(one), Some(other)) = (&one, &other)
        && one.stamp.same_file(&other.stamp)
    {
        receiving.unchanged(record.entry, &other.stamp);
        return Ok(());
    }
    let file = Kind::File { size: record.size, oid: None, extents: None };
    let changes = match record.is_new {
        true => Changes { new: true, ..Changes::default() },
        false => Changes::default(),
    };
    receiving.report(CopyEvent::Item {
        changes: changes.letters(b'h', &file, receiving.options.preserve.times),
        path: room.shown.as_bytes().to_vec(),
        target: Some(shown_first.as_bytes().to_vec()),
        size: record.size,
        modified: FileTime { seconds: record.seconds, nanos: record.nanos },
    });
    if record.is_new {
        receiving.account.count(|counts| add(&mut counts.created, &file));
    }
    if receiving.options.dry_run {
        return if room.in_the_way == InTheWay::Nothing { Ok(()) } else { allowance.clear(receiving, room) };
    }
    let placing = receiving.placing()?;
    let Some(one) = one else {
        let whole = placing.whole_path(first);
        return Err(FileError::new("link to", &whole, rustix::io::Errno::NOENT));
    };
    let naming = match (&other, room.in_the_way) {
        (_, InTheWay::Empty | InTheWay::Directory) => Naming::after(room.before_naming(receiving, allowance)),
        (Some(_), InTheWay::Nothing) => {
            receiving.backups().back_up(&room.path)?;
            Overwrite::ReplaceAny.into()
        }
        (None, InTheWay::Nothing) => Overwrite::Never.into(),
    };
    placing.destination.nodes().hard_link(first, &one.stamp, &room.path, naming)?;
    receiving.settled(record.entry, true);
    Ok(())
}
