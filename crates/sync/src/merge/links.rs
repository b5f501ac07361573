//! Hard links: which name of a group comes first, and the others, which wait for it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use towpath_content::tree::Entry;
use towpath_files::{FileError, Found, RelPath};

use super::Merge;
use super::report::size;
use crate::error::Obstacle;
use crate::noted::{FirstRecord, InTheWay, LinkRecord};
use crate::records::Records;

/// Groups that are kept in memory.
const FEW: u64 = 64 << 10;

/// Groups of hard links, each by the first of its names that came.
#[derive(Default)]
pub(super) struct LinkGroups {
    firsts: Records<FirstRecord>,
    places: FirstPlaces,
}

impl LinkGroups {
    /// The first name of a group, if it was met before the entry of this number.
    pub(super) fn first_of(&mut self, group: u64, number: u64) -> Result<Option<FirstRecord>, FileError> {
        // Groups are numbered in the order of the walk, so no number is beyond that of its entry.
        if group > number {
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

/// Notes of the first names of groups. Numbers are the sender's: beyond the first ones this is a file, in which
/// those that do not come are holes.
#[derive(Default)]
struct FirstPlaces {
    /// One more than the place of the note; 0: no name was met.
    few: Vec<u64>,
    others: Option<File>,
}

impl FirstPlaces {
    fn get(&self, group: u64) -> io::Result<Option<u64>> {
        let met = match (group.checked_sub(FEW), &self.others) {
            (None, _) => self.few.get(group as usize).copied().unwrap_or(0),
            (Some(_), None) => 0,
            (Some(at), Some(file)) => {
                let mut met = [0; 8];
                match file.read_exact_at(&mut met, at * 8) {
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => 0,
                    read => read.map(|()| u64::from_le_bytes(met))?,
                }
            }
        };
        Ok(met.checked_sub(1))
    }

    fn set(&mut self, group: u64, note: u64) -> io::Result<()> {
        let Some(at) = group.checked_sub(FEW) else {
            let group = group as usize;
            self.few.resize(self.few.len().max(group + 1), 0);
            self.few[group] = note + 1;
            return Ok(());
        };
        let file = match &mut self.others {
            Some(file) => file,
            none => none.insert(tempfile::tempfile()?),
        };
        file.write_all_at(&(note + 1).to_le_bytes(), at * 8)
    }
}

impl Merge {
    /// Notes the first name of a group that is at the destination, or comes there.
    pub(super) fn note_first(&mut self, entry: &Entry, is_kept: bool) -> Result<(), FileError> {
        let Some(group) = entry.hard_link else { return Ok(()) };
        let spot = self.stack.spot(&entry.name, &mut self.notes.spots.directories)?;
        self.groups.note_first(group, &FirstRecord { spot, is_kept })
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
            let (first_path, _) = self.notes.spots.paths(&first.spot)?;
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
            first: first.spot,
            spot: self.stack.spot(&entry.name, &mut self.notes.spots.directories)?,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_of_any_number_takes_little_memory() {
        let mut groups = FirstPlaces::default();
        let numbers = [0, 7, FEW - 1, FEW, FEW + 9, 1 << 33];
        numbers.iter().for_each(|&group| assert_eq!(groups.get(group).unwrap(), None));
        numbers.iter().zip(0..).for_each(|(&group, note)| groups.set(group, note).unwrap());
        for (&group, note) in numbers.iter().zip(0..) {
            assert_eq!(groups.get(group).unwrap(), Some(note), "{group}");
        }
        assert_eq!(groups.get(8).unwrap(), None);
        assert_eq!(groups.get(FEW + 1).unwrap(), None);
        assert!(groups.few.len() as u64 <= FEW);
    }
}
