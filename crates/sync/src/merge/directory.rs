//! A directory of the source: made, entered, or cleared of what is in its way.

use towpath_api::copy::Mode;
use towpath_content::tree::{Entry, Kind};
use towpath_files::metadata::{Differences, differences};
use towpath_files::{FileError, Found, RelPath};

use super::Merge;
use super::stack::{DirFrame, DirState};
use crate::decide::{Changes, EntryAction, decide};
use crate::error::Obstacle;
use crate::notes::{InTheWay, RoomRecord};

impl Merge {
    pub(super) fn directory(
        &mut self,
        mut entry: Entry,
        path: &RelPath,
        shown: &RelPath,
    ) -> Result<(), FileError> {
        self.rules.rewrite(&mut entry, &self.report);
        let mut old = self.look(path)?;
        // The destination itself was made for this directory just now.
        let is_made = path.is_root() && self.root.is_made;
        if old.is_some() && self.receiving.kept.has_staging() {
            self.check_name(path, &entry.name)?;
        }
        if is_made {
            old = None;
        }
        if let (Some(old), true) = (&old, path.is_root() && self.options().files_from.is_some()) {
            entry.metadata.clone_from(&old.entry.metadata);
        }
        let difference = old.as_ref().map_or_else(Differences::default, |old| {
            differences(&entry.kind, &entry.metadata, &old.entry.metadata, &self.receiving.policy)
        });
        let action = decide(&entry, old.as_ref(), difference, self.options());
        if matches!(action, EntryAction::LeftAlone) && !is_made {
            self.stack.enter_bare(DirState::Skipped);
            return Ok(());
        }
        let state = self.make_or_keep(&action, &entry, &mut old, (path, shown))?;
        // The person named it, so it is there in any case, which shows nothing of its content.
        if old.is_some() && self.stack.depth() > 1 {
            self.matched += 1;
        }
        let is_closed = self.closed.remove(&self.entry);
        let is_compared = state == DirState::Existing && !is_closed;
        let name = if shown.is_root() { Vec::new() } else { entry.name };
        let frame = DirFrame {
            is_below: !path.is_root(),
            names: if is_compared { self.tree.names_to_compare(path)? } else { None },
            is_changed: state == DirState::New || matches!(action, EntryAction::Touch(_)),
            is_writable: state == DirState::New,
            ..DirFrame::new(name, state, entry.metadata)
        };
        self.stack.enter(frame, (path, shown))?;
        self.enter_filter()
    }

    /// Does what was decided about a directory that is gone into.
    fn make_or_keep(
        &mut self,
        action: &EntryAction,
        entry: &Entry,
        old: &mut Option<Found>,
        (path, shown): (&RelPath, &RelPath),
    ) -> Result<DirState, FileError> {
        match *action {
            EntryAction::Make(changes) => {
                self.touch_parent()?;
                match old.take() {
                    Some(_) => self.tree.replace_by_dir(path)?,
                    None => self.tree.make_dir(path)?,
                }
                self.report.changed(entry, shown, changes, b'c');
                self.report.created(entry);
                Ok(DirState::New)
            }
            EntryAction::Touch(changes) => {
                self.report.changed(entry, shown, changes, b'.');
                Ok(DirState::Existing)
            }
            EntryAction::LeftAlone => {
                self.report.changed(entry, shown, Changes { new: true, ..Changes::default() }, b'c');
                Ok(DirState::New)
            }
            EntryAction::Same | EntryAction::Compare(_) => {
                self.report.unchanged(entry, shown);
                Ok(DirState::Existing)
            }
        }
    }

    /// The rules of the directory that was gone into hold from here on.
    fn enter_filter(&mut self) -> Result<(), FileError> {
        if self.stack.state() != Some(DirState::Existing) {
            return Ok(());
        }
        let entered = self.removals.enter(&self.receiving, &self.stack.path, &self.stack.shown);
        if entered.is_err() {
            self.stack.leave();
        }
        entered
    }

    /// On a file system that does not tell case or Unicode forms apart, what is found under one name
    /// may be another entry.
    pub(super) fn check_name(&mut self, path: &RelPath, name: &[u8]) -> Result<(), FileError> {
        if !self.tree.collides(path, name)? {
            return Ok(());
        }
        // The entry that has the name is not superfluous.
        self.is_incomplete = true;
        Err(Obstacle::Collision.to("write", &self.receiving.placing()?.whole_path(path)))
    }

    /// The innermost directory is going to be written to.
    pub(super) fn touch_parent(&mut self) -> Result<(), FileError> {
        // It may be read-only until it is finished.
        if self.stack.touch() { self.tree.make_dir(&self.stack.path) } else { Ok(()) }
    }

    /// Directory in the way of something that is no directory, if it may go at the end.
    pub(super) fn in_the_way(
        &mut self,
        old: &Found,
        path: &RelPath,
        shown: &RelPath,
    ) -> Result<InTheWay, FileError> {
        if old.entry.kind != Kind::Directory {
            return Ok(InTheWay::Nothing);
        }
        if self.options().delete || self.options().force {
            return match self.removals.leaves_backups(&self.receiving, path, shown)? {
                false => Ok(InTheWay::Directory),
                true => self.keep_with_backups(path, shown),
            };
        }
        if self.root.destined.mode == Mode::Sync && self.tree.is_empty(path)? {
            return Ok(InTheWay::Empty);
        }
        let obstacle = match self.root.destined.mode {
            Mode::Cp => Obstacle::Directory,
            Mode::Sync => Obstacle::FullDirectory,
        };
        Err(obstacle.to("replace", &self.receiving.placing()?.whole_path(path)))
    }

    /// A directory stays in the way for the backups of what is in it, which are made at the end.
    fn keep_with_backups(&mut self, path: &RelPath, shown: &RelPath) -> Result<InTheWay, FileError> {
        let name = shown.split().map(|(_, name)| name.to_vec()).unwrap_or_default();
        let record = RoomRecord {
            position: self.stack.position(&name, &mut self.notes.positions.directories)?,
            in_the_way: InTheWay::Directory.into(),
            entry: self.entry,
            ..RoomRecord::default()
        };
        self.receiving.kept.put_off(&record)?;
        Err(Obstacle::Backups.to("replace", &self.receiving.placing()?.whole_path(path)))
    }
}
