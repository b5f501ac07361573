//! Hard links: which name of a group comes first, and the others, which wait for it.

use std::path::Path;

use towpath_content::tree::{Entry, Kind};
use towpath_files::{FileError, Found, RelPath};

use super::{Merge, because, size};
use crate::copy::finish::{FirstRecord, LinkRecord, Spot};

/// A group of hard links of which no name was met.
pub(super) const NOT_MET: u64 = u64::MAX;

impl Merge {
    /// Where the first name of a group of hard links is on record, if it was met.
    pub(super) fn first_of(&self, group: u64) -> Result<Option<u64>, FileError> {
        // Groups are numbered in the order of the walk, so no number is beyond that of its entry.
        if group > self.entry {
            return Err(because("read", Path::new("the sender's tree"), "a hard link without a first name"));
        }
        let at = usize::try_from(group).ok().and_then(|group| self.groups.get(group));
        Ok(at.copied().filter(|at| *at != NOT_MET))
    }

    /// Notes the first name of a group that is at the destination, or comes there.
    pub(super) fn note_first(
        &mut self,
        entry: &Entry,
        path: &RelPath,
        shown: &RelPath,
        is_kept: bool,
    ) -> Result<(), FileError> {
        let Some(group) = entry.hard_link else { return Ok(()) };
        let record = FirstRecord { spot: Spot::new(path, shown), is_kept };
        let at =
            self.firsts.push(&record).map_err(|error| FileError::new("note", Path::new("a link"), error))?;
        let group = group as usize;
        if self.groups.len() <= group {
            self.groups.resize(group + 1, NOT_MET);
        }
        self.groups[group] = at;
        Ok(())
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
        let note = |error| FileError::new("note", Path::new("a link"), error);
        let first = self.firsts.get(at).map_err(note)?;
        if let Some(old) = old {
            let there = match self.look(&first.spot.path()?) {
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
        if old.is_some_and(|old| old.entry.kind == Kind::Directory) {
            self.clear(path, shown, entry)?;
        }
        if !self.options().dry_run {
            self.touch_parent()?;
        }
        let record = LinkRecord {
            first: first.spot,
            spot: Spot::new(path, shown),
            entry: self.entry,
            size: size(&entry.kind),
            seconds: entry.metadata.modified.seconds,
            nanos: entry.metadata.modified.nanos,
            is_new: old.is_none(),
        };
        self.links.push(&record).map(drop).map_err(note)
    }
}
