//! Entries that are no directories: left out, made at once, or requested.

use towpath_api::copy::Mode;
use towpath_content::tree::{Entry, Kind};
use towpath_files::metadata::{Differences, differences};
use towpath_files::{FileError, Found, RelPath};

use super::Merge;
use crate::decide::{Changes, EntryAction, decide};
use crate::error::{CopyError, Obstacle};
use crate::notes::{InTheWay, Position, Replacement, RoomRecord};
use crate::source::Located;
use crate::wanted::Wanted;
use towpath_reuse::candidates::is_file;

impl Merge {
    pub(super) fn leaf(&mut self, entry: Entry, located: Option<Located>) -> Result<(), CopyError> {
        let Some((path, shown)) = self.locate(&entry)? else { return Ok(()) };
        if self.rules.leaves_out(&entry, &shown) {
            self.receiving.settled(self.entry, false);
            return Ok(());
        }
        self.report.leaf(&entry);
        match self.single(entry, &path, &shown, located) {
            Ok(Some(wanted)) => self.requests.request(wanted),
            Ok(None) => Ok(()),
            Err(error) => {
                self.receiving.problem(shown.as_bytes(), &error);
                self.receiving.settled(self.entry, false);
                Ok(())
            }
        }
    }

    /// Anything but a directory; returns a file whose content has to come.
    fn single(
        &mut self,
        mut entry: Entry,
        path: &RelPath,
        shown: &RelPath,
        located: Option<Located>,
    ) -> Result<Option<Wanted>, FileError> {
        self.rules.rewrite(&mut entry, &self.report);
        let old = self.look(path)?;
        self.check_not_itself(located.as_ref(), old.as_ref())?;
        let walked = self.entry + self.passed;
        let first = entry.hard_link.map_or(Ok(None), |group| self.groups.first_of(group, walked));
        if let Some(first) = first? {
            return self.later_link(&entry, first, path, shown, old.as_ref()).map(|()| None);
        }
        let Some((changes, compare)) = self.change_of(&entry, old.as_ref(), path, shown)? else {
            return Ok(None);
        };
        if let (Some(_), Some((_, name))) = (&old, path.split()) {
            self.check_name(path, name)?;
        }
        let in_the_way =
            old.as_ref().map_or(Ok(InTheWay::Nothing), |old| self.in_the_way(old, path, shown))?;
        self.note_first(&entry, false)?;
        self.touch_parent()?;
        if changes.new {
            self.report.created(&entry);
        }
        let room = match in_the_way {
            InTheWay::Nothing => None,
            in_the_way => {
                Some((self.stack.position(&entry.name, &mut self.notes.positions.directories)?, in_the_way))
            }
        };
        let replaces = old.is_some() && room.is_none();
        if room.is_some() && self.options().dry_run && is_file(&entry.kind) {
            self.put_off(&entry, room.clone())?;
        }
        let Kind::File { size, .. } = entry.kind else {
            self.report.changed(&entry, shown, changes, b'c');
            return match room {
                None => self.tree.make_node(self.entry, &entry, path, replaces).map(|()| None),
                room => self.put_off(&entry, room).map(|()| None),
            };
        };
        Ok(Some(Wanted {
            room,
            entry: self.entry,
            path: path.clone(),
            shown: shown.as_bytes().to_vec(),
            metadata: entry.metadata,
            size,
            old: old.filter(|old| is_file(&old.entry.kind)).map(|old| old.stamp),
            replaces,
            compare,
            changes,
            located,
        }))
    }

    /// `cp` refuses to copy a file onto itself.
    fn check_not_itself(&self, located: Option<&Located>, old: Option<&Found>) -> Result<(), FileError> {
        match (self.root.destined.mode, located, old) {
            (Mode::Cp, Some(located), Some(old)) if located.stamp.same_file(&old.stamp) => {
                let shown = located.whole_path();
                Err(Obstacle::SameFile.to("copy", &shown))
            }
            _ => Ok(()),
        }
    }

    /// Reports of an entry that has to be made, and of its content if that turns out to be the same; nothing if it
    /// is as it should be, which is seen to here.
    fn change_of(
        &mut self,
        entry: &Entry,
        old: Option<&Found>,
        path: &RelPath,
        shown: &RelPath,
    ) -> Result<Option<(Changes, Option<Changes>)>, FileError> {
        let difference = old.map_or_else(Differences::default, |old| {
            differences(&entry.kind, &entry.metadata, &old.entry.metadata, &self.receiving.policy)
        });
        if old.is_some() {
            self.matched += 1;
        }
        match decide(entry, old, difference, self.options()) {
            EntryAction::LeftAlone => self.receiving.settled(self.entry, false),
            EntryAction::Same => {
                self.note_first(entry, true)?;
                self.report.unchanged(entry, shown);
                old.iter().for_each(|old| self.receiving.unchanged(self.entry, &old.stamp));
            }
            EntryAction::Touch(changes) => {
                self.report.changed(entry, shown, changes, b'.');
                self.note_first(entry, true)?;
                let touch = |old: &Found| {
                    self.options().dry_run
                        || self.receiving.touch(path, shown.as_bytes(), &old.stamp, &entry.metadata)
                };
                if let Some(old) = old.filter(|old| touch(old)) {
                    self.receiving.unchanged(self.entry, &old.stamp);
                }
            }
            EntryAction::Make(changes) => return Ok(Some((changes, None))),
            EntryAction::Compare(changes) => {
                return Ok(Some((Changes { content: true, ..changes }, Some(changes))));
            }
        }
        Ok(None)
    }

    /// Something other than a directory is to take a directory's place at the end of the copy. A dry run only looks
    /// what would go.
    fn put_off(&self, entry: &Entry, room: Option<(Position, InTheWay)>) -> Result<(), FileError> {
        let Some((position, in_the_way)) = room else { return Ok(()) };
        self.receiving.kept.put_off(&RoomRecord {
            position,
            in_the_way: in_the_way.into(),
            entry: self.entry,
            metadata: (&entry.metadata).into(),
            replacement: Replacement::node(&entry.kind).filter(|_| !self.options().dry_run),
        })
    }
}
