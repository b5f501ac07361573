//! Hard links: which name of a group comes first, and the others, which wait for it.

use std::io;
use std::path::Path;

use towpath_content::tree::Entry;
use towpath_files::{FileError, Found, RelPath};
use towpath_targets::links::NumberedPlaces;

use super::Merge;
use super::report::size;
use crate::error::Obstacle;
use crate::notes::{FirstRecord, InTheWay, LinkRecord};
use towpath_sync_messages::records::Records;

/// Groups of hard links, each by the first of its names that came.
#[derive(Default)]
pub(super) struct LinkGroups {
    firsts: Records<FirstRecord>,
    places: NumberedPlaces,
}

impl LinkGroups {
    /// The first name of a group, if it was met before; so many entries were.
    pub(super) fn first_of(&mut self, group: u64, walked: u64) -> Result<Option<FirstRecord>, FileError> {
        // Groups are numbered in the order of the walk, so no number is beyond that of its entry.
        if group > walked {
            return Err(Obstacle::NoFirstName.to("read", Path::new("the sender's tree")));
        }
        match self.places.get(group).map_err(note)? {
            Some(at) => self.firsts.get(at).map(Some).map_err(note),
            None => Ok(None),
        }
    }

    /// Notes the first name of a group.
    fn note_first(&mut self, group: u64, first: &FirstRecord) -> Result<(), FileError> {
        let at = self.firsts.push(first).map_err(note)?;
        self.places.set(group, at).map_err(note)
    }
}

impl Merge {
    /// Notes the first name of a group that is at the destination, or comes there.
    pub(super) fn note_first(&mut self, entry: &Entry, is_kept: bool) -> Result<(), FileError> {
        let Some(group) = entry.hard_link else { return Ok(()) };
        let position = self.stack.position(&entry.name, &mut self.notes.positions.directories)?;
        self.groups.note_first(group, &FirstRecord { position, is_kept })
    }

    /// A further name of a file that was told before.
    pub(super) fn later_link(
        &mut self,
        entry: &Entry,
        first: FirstRecord,
        path: &RelPath,
        shown: &RelPath,
        old: Option<&Found>,
    ) -> Result<(), FileError> {
        if let Some(old) = old {
            let (first_path, _) = self.notes.positions.paths(&first.position)?;
            let first_found = match self.look(&first_path) {
                // A real run would have made way for the directories on the way there.
                Err(_) if self.options().dry_run => None,
                found => found?,
            };
            self.matched += 1;
            if first.is_kept && first_found.is_some_and(|found| found.stamp.same_file(&old.stamp)) {
                self.report.unchanged(entry, shown);
                self.receiving.unchanged(self.entry, &old.stamp);
                return Ok(());
            }
            if self.options().ignore_existing {
                return Ok(());
            }
        } else if self.options().existing {
            return Ok(());
        }
        let in_the_way = match old {
            Some(old) => self.in_the_way(old, path, shown)?,
            None => InTheWay::Nothing,
        };
        self.touch_parent()?;
        let record = LinkRecord {
            first: first.position,
            position: self.stack.position(&entry.name, &mut self.notes.positions.directories)?,
            in_the_way: in_the_way.into(),
            entry: self.entry,
            size: size(&entry.kind),
            seconds: entry.metadata.modified.seconds,
            nanos: entry.metadata.modified.nanos,
            is_new: old.is_none(),
        };
        self.notes.links.push(&record).map(drop).map_err(note)
    }
}

fn note(error: io::Error) -> FileError {
    FileError::new("note", Path::new("a link"), error)
}
