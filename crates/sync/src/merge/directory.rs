//! A directory of the source: made, entered, or cleared of what is in its way.

use std::os::fd::AsFd;
use std::sync::Arc;

use towpath_api::copy::Mode;
use towpath_content::tree::{Entry, Kind};
use towpath_files::metadata::{Differences, differences};
use towpath_files::{FileError, Found, RelPath};

use super::extras::ExtraNames;
use super::{DirFrame, DirState, Merge};
use crate::error::Obstacle;
use crate::judge::{Changes, Verdict, judge};
use crate::noted::{InTheWay, RoomRecord};
use crate::receiving::add;
use crate::removing::rehearse;

impl Merge {
    pub(super) fn directory(
        &mut self,
        mut entry: Entry,
        path: &RelPath,
        shown: &RelPath,
    ) -> Result<(), FileError> {
        self.rewrite(&mut entry);
        let mut old = self.look(path)?;
        // The destination itself was made for this directory just now.
        let is_made = path.is_root() && self.is_made;
        if old.is_some() && self.receiving.has_staging() {
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
        let verdict = judge(&entry, old.as_ref(), difference, self.options());
        if matches!(verdict, Verdict::LeftAlone) && !is_made {
            self.skip();
            return Ok(());
        }
        let state = self.make_or_keep(&verdict, &entry, &mut old, (path, shown))?;
        // What the person named is there in any case: it says nothing of what is in it.
        if old.is_some() && self.frames.len() > 1 {
            self.matched += 1;
        }
        let is_closed = self.closed.remove(&self.entry);
        let names = if state == DirState::Existing && !is_closed { self.names_below(path)? } else { None };
        let frame = DirFrame {
            name: if shown.is_root() { Vec::new() } else { entry.name },
            is_below: !path.is_root(),
            number: None,
            state,
            metadata: entry.metadata,
            names,
            is_changed: state == DirState::New || matches!(verdict, Verdict::Touch(_)),
            is_writable: state == DirState::New,
        };
        self.go_into(frame, (path, shown))?;
        self.enter_filter()
    }

    /// Does what was decided about a directory that is gone into.
    fn make_or_keep(
        &mut self,
        verdict: &Verdict,
        entry: &Entry,
        old: &mut Option<Found>,
        (path, shown): (&RelPath, &RelPath),
    ) -> Result<DirState, FileError> {
        match *verdict {
            Verdict::Make(changes) => {
                match old.take() {
                    Some(_) => self.replace_by_dir(path)?,
                    None => self.make_dir(path)?,
                }
                self.told(entry, shown, changes, b'c');
                self.receiving.count(|counts| add(&mut counts.created, &entry.kind));
                Ok(DirState::New)
            }
            Verdict::Touch(changes) => {
                self.told(entry, shown, changes, b'.');
                Ok(DirState::Existing)
            }
            Verdict::LeftAlone => {
                self.told(entry, shown, Changes { new: true, ..Changes::default() }, b'c');
                Ok(DirState::New)
            }
            Verdict::Same | Verdict::Compare(_) => {
                self.unchanged(entry, shown);
                Ok(DirState::Existing)
            }
        }
    }

    /// What is in a directory of the destination, if it is to be compared with the source's.
    fn names_below(&self, path: &RelPath) -> Result<Option<ExtraNames>, FileError> {
        let Some(placing) = self.receiving.opened().filter(|_| self.options().delete) else {
            return Ok(None);
        };
        let names = placing.destination.names(path, &self.look)?;
        ExtraNames::new(names).map(Some).map_err(|error| FileError::new("read", placing.path(), error))
    }

    /// The rules of the directory that was gone into hold from here on.
    fn enter_filter(&mut self) -> Result<(), FileError> {
        let is_existing = self.frames.last().is_some_and(|frame| frame.state == DirState::Existing);
        let receiving = Arc::clone(&self.receiving);
        let Some(placing) = receiving.opened().filter(|_| is_existing) else { return Ok(()) };
        let dir = placing.destination.dir(&self.path);
        let entered = dir.and_then(|dir| self.filter.enter(dir.as_fd(), &self.shown));
        if entered.is_err() {
            self.go_out();
        }
        entered
    }

    /// Something that is no directory is in the way of one.
    fn replace_by_dir(&mut self, path: &RelPath) -> Result<(), FileError> {
        let receiving = Arc::clone(&self.receiving);
        let placing = receiving.placing()?;
        self.touch_parent()?;
        if self.options().dry_run {
            return Ok(());
        }
        if receiving.back_up(path)? {
            return self.make_dir(path);
        }
        receiving.note_staging()?;
        placing.destination.put_dir_in_place_of(path)
    }

    /// On a file system that does not tell case or Unicode forms apart, what is found under one name
    /// may be another entry.
    pub(super) fn check_name(&mut self, path: &RelPath, name: &[u8]) -> Result<(), FileError> {
        let receiving = Arc::clone(&self.receiving);
        let Some(placing) = receiving.opened() else { return Ok(()) };
        if path.is_root() || self.options().dry_run {
            return Ok(());
        }
        // It is tried in the folder of the temporaries.
        receiving.note_staging()?;
        if !placing.destination.folding().folds(path)? {
            return Ok(());
        }
        match placing.destination.folding().actual_name(path)? {
            Some(actual) if actual != name => {
                let shown = placing.whole_path(path);
                // What has the name is not superfluous.
                self.is_incomplete = true;
                Err(Obstacle::Collision.to("write", &shown))
            }
            _ => Ok(()),
        }
    }

    fn make_dir(&mut self, path: &RelPath) -> Result<(), FileError> {
        if self.options().dry_run {
            return Ok(());
        }
        self.touch_parent()?;
        match self.receiving.opened() {
            Some(placing) => placing.destination.make_dir(path).map(drop),
            None => Ok(()),
        }
    }

    /// The innermost directory is going to be written to.
    pub(super) fn touch_parent(&mut self) -> Result<(), FileError> {
        let Some(frame) = self.frames.last_mut() else { return Ok(()) };
        frame.is_changed = true;
        if frame.is_writable || frame.state == DirState::Top {
            return Ok(());
        }
        frame.is_writable = true;
        match self.receiving.opened() {
            // It may be read-only until it is finished.
            Some(placing) if !self.receiving.options.dry_run => {
                placing.destination.make_dir(&self.path).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// What is in the way of something that is no directory: a directory, if it may go at the end.
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
            return match self.keeps_backups(path, shown)? {
                false => Ok(InTheWay::Directory),
                true => self.keep_with_backups(path, shown),
            };
        }
        if self.destined.mode == Mode::Sync && self.is_empty(path)? {
            return Ok(InTheWay::Empty);
        }
        let obstacle = match self.destined.mode {
            Mode::Cp => Obstacle::Directory,
            Mode::Sync => Obstacle::FullDirectory,
        };
        Err(obstacle.to("replace", &self.receiving.placing()?.whole_path(path)))
    }

    /// Whether backups of what is in a directory would stay in it.
    fn keeps_backups(&mut self, path: &RelPath, shown: &RelPath) -> Result<bool, FileError> {
        if !self.options().backup || self.options().backup_dir.is_some() {
            return Ok(false);
        }
        let mut files = 0;
        let receiving = Arc::clone(&self.receiving);
        rehearse(&receiving, path, shown, &mut self.filter, |_, _, is_dir| files += u64::from(!is_dir))?;
        Ok(files > 0)
    }

    /// A directory stays in the way for the backups of what is in it, which are made at the end.
    fn keep_with_backups(&mut self, path: &RelPath, shown: &RelPath) -> Result<InTheWay, FileError> {
        let name = shown.split().map(|(_, name)| name.to_vec()).unwrap_or_default();
        let record = RoomRecord {
            spot: self.spot(&name)?,
            in_the_way: InTheWay::Directory.into(),
            entry: self.entry,
            ..RoomRecord::default()
        };
        self.receiving.put_off(&record)?;
        Err(Obstacle::Backups.to("replace", &self.receiving.placing()?.whole_path(path)))
    }

    fn is_empty(&self, path: &RelPath) -> Result<bool, FileError> {
        let placing = self.receiving.placing()?;
        let mut names = placing.destination.names(path, &self.look)?;
        let first = names.next().map_err(|error| FileError::new("read", placing.path(), error))?;
        Ok(first.is_none())
    }
}
