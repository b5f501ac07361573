//! Hard links: which name of a group comes first, and the others, which wait for it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use towpath_content::tree::Entry;
use towpath_files::{FileError, Found, RelPath};

use super::{Merge, size};
use crate::error::Obstacle;
use crate::noted::{FirstRecord, InTheWay, LinkRecord};

/// Groups that are kept in memory.
const FEW: u64 = 64 << 10;

/// Where the first names of groups of hard links are noted. Numbers are the sender's: beyond the first ones this is
/// a file, in which those that do not come are holes.
#[derive(Default)]
pub(super) struct LinkGroups {
    /// One more than the place of the note; 0: no name was met.
    few: Vec<u64>,
    others: Option<File>,
}

impl LinkGroups {
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
    /// Where the first name of a group of hard links is on record, if it was met.
    pub(super) fn first_of(&self, group: u64) -> Result<Option<u64>, FileError> {
        // Groups are numbered in the order of the walk, so no number is beyond that of its entry.
        if group > self.entry {
            return Err(Obstacle::NoFirstName.to("read", Path::new("the sender's tree")));
        }
        self.groups.get(group).map_err(note)
    }

    /// Notes the first name of a group that is at the destination, or comes there.
    pub(super) fn note_first(&mut self, entry: &Entry, is_kept: bool) -> Result<(), FileError> {
        let Some(group) = entry.hard_link else { return Ok(()) };
        let record = FirstRecord { spot: self.spot(&entry.name)?, is_kept };
        let at = self.firsts.push(&record).map_err(note)?;
        self.groups.set(group, at).map_err(note)
    }

    /// A further name of a file that was told before.
    pub(super) fn later_link(
        &mut self,
        entry: &Entry,
        at: u64,
        path: &RelPath,
        shown: &RelPath,
        old: Option<&Found>,
    ) -> Result<(), FileError> {
        let first = self.firsts.get(at).map_err(note)?;
        if let Some(old) = old {
            let (first_path, _) = self.spots.paths(&first.spot)?;
            let there = match self.look(&first_path) {
                // A real run would have made way for the directories on the way there.
                Err(_) if self.options().dry_run => None,
                there => there?,
            };
            self.matched += 1;
            if first.is_kept && there.is_some_and(|there| there.stamp.same_file(&old.stamp)) {
                self.unchanged(entry, shown);
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
        if !self.options().dry_run {
            self.touch_parent()?;
        }
        let record = LinkRecord {
            first: first.spot,
            spot: self.spot(&entry.name)?,
            in_the_way: in_the_way.into(),
            entry: self.entry,
            size: size(&entry.kind),
            seconds: entry.metadata.modified.seconds,
            nanos: entry.metadata.modified.nanos,
            is_new: old.is_none(),
        };
        self.links.push(&record).map(drop).map_err(note)
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
        let mut groups = LinkGroups::default();
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
