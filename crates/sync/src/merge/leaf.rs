//! What is no directory: left out, made at once, or asked for.

use std::time::Duration;

use towpath_api::copy::Mode;
use towpath_content::tree::{Entry, Kind};
use towpath_files::filter::safe_links;
use towpath_files::metadata::{Differences, differences};
use towpath_files::{FileError, Found, Overwrite, RelPath};

use super::{Merge, size};
use crate::error::{CopyError, LeftOut, Obstacle};
use crate::file::CopyFile;
use crate::judge::{Changes, Verdict, judge};
use crate::noted::{InTheWay, Replacement, RoomRecord, Spot};
use crate::places::FilePermit;
use crate::receiving::add;
use crate::source::Located;
use crate::wanted::Wanted;
use towpath_reuse::candidates::is_file;

/// How often it is looked whether all files under way wait for their names.
const LOOK: Duration = Duration::from_millis(20);

impl Merge {
    pub(super) fn leaf(&mut self, entry: Entry, located: Option<Located>) -> Result<(), CopyError> {
        let Some((path, shown)) = self.locate(&entry)? else { return Ok(()) };
        if self.is_left_out(&entry, &shown) {
            self.receiving.settled(self.entry, false);
            return Ok(());
        }
        self.receiving.count(|counts| {
            add(&mut counts.seen, &entry.kind);
            counts.total_size += size(&entry.kind);
        });
        match self.single(entry, &path, &shown, located) {
            Ok(Some(wanted)) => self.bring(wanted),
            Ok(None) => Ok(()),
            Err(error) => {
                self.receiving.problem(shown.as_bytes(), &error);
                self.receiving.settled(self.entry, false);
                Ok(())
            }
        }
    }

    /// Kinds and sizes that were not asked for.
    fn is_left_out(&self, entry: &Entry, shown: &RelPath) -> bool {
        let (options, preserve) = (self.options(), &self.options().preserve);
        let why = match &entry.kind {
            Kind::File { size, .. } => {
                return options.min_size.is_some_and(|min| *size < min)
                    || options.max_size.is_some_and(|max| *size > max);
            }
            Kind::Symlink { target } if preserve.links => {
                if !options.safe_links || !safe_links::is_unsafe(target, shown) {
                    return false;
                }
                LeftOut::LinkOut
            }
            Kind::Symlink { .. } => LeftOut::Link,
            Kind::Fifo | Kind::Socket if preserve.specials => return false,
            Kind::Fifo => LeftOut::Fifo,
            Kind::Socket => LeftOut::Socket,
            _ if preserve.devices => return false,
            _ => LeftOut::Device,
        };
        self.receiving.leave_out(shown.as_bytes(), why);
        true
    }

    /// Anything but a directory; returns a file whose content has to come.
    fn single(
        &mut self,
        mut entry: Entry,
        path: &RelPath,
        shown: &RelPath,
        located: Option<Located>,
    ) -> Result<Option<Wanted>, FileError> {
        self.rewrite(&mut entry);
        let old = self.look(path)?;
        self.check_not_itself(located.as_ref(), old.as_ref())?;
        let first = entry.hard_link.map_or(Ok(None), |group| self.first_of(group));
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
        if !self.options().dry_run {
            self.touch_parent()?;
        }
        if changes.new {
            self.receiving.count(|counts| add(&mut counts.created, &entry.kind));
        }
        let room = match in_the_way {
            InTheWay::Nothing => None,
            in_the_way => Some((self.spot(&entry.name)?, in_the_way)),
        };
        let replaces = old.is_some() && room.is_none();
        if room.is_some() && self.options().dry_run && is_file(&entry.kind) {
            self.put_off(&entry, room.clone())?;
        }
        let Kind::File { size, .. } = entry.kind else {
            self.told(&entry, shown, changes, b'c');
            return match room {
                None => self.make(&entry, path, replaces).map(|()| None),
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
        match (self.destined.mode, located, old) {
            (Mode::Cp, Some(located), Some(old)) if located.stamp.same_file(&old.stamp) => {
                let shown = located.whole_path();
                Err(Obstacle::SameFile.to("copy", &shown))
            }
            _ => Ok(()),
        }
    }

    /// What is to be told of an entry that has to be made, and what if its content turns out to be the same; nothing if it
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
        match judge(entry, old, difference, self.options()) {
            Verdict::LeftAlone => self.receiving.settled(self.entry, false),
            Verdict::Same => {
                self.note_first(entry, true)?;
                self.unchanged(entry, shown);
                old.iter().for_each(|old| self.receiving.unchanged(self.entry, &old.stamp));
            }
            Verdict::Touch(changes) => {
                self.told(entry, shown, changes, b'.');
                self.note_first(entry, true)?;
                let touch = |old: &Found| {
                    self.options().dry_run
                        || self.receiving.touch(path, shown.as_bytes(), &old.stamp, &entry.metadata)
                };
                if let Some(old) = old.filter(|old| touch(old)) {
                    self.receiving.unchanged(self.entry, &old.stamp);
                }
            }
            Verdict::Make(changes) => return Ok(Some((changes, None))),
            Verdict::Compare(changes) => {
                return Ok(Some((Changes { content: true, ..changes }, Some(changes))));
            }
        }
        Ok(None)
    }

    /// Something other than a directory is to take a directory's place at the end of the copy. A dry run only looks
    /// what would go.
    fn put_off(&self, entry: &Entry, room: Option<(Spot, InTheWay)>) -> Result<(), FileError> {
        let Some((spot, in_the_way)) = room else { return Ok(()) };
        self.receiving.put_off(&RoomRecord {
            spot,
            in_the_way: in_the_way.into(),
            entry: self.entry,
            metadata: (&entry.metadata).into(),
            replacement: Replacement::node(&entry.kind).filter(|_| !self.options().dry_run),
        })
    }

    /// A symbolic link, FIFO, socket or device.
    fn make(&self, entry: &Entry, path: &RelPath, replaces: bool) -> Result<(), FileError> {
        if self.options().dry_run {
            return Ok(());
        }
        if replaces {
            self.receiving.back_up(path)?;
        }
        let destination = &self.receiving.placing()?.destination;
        let overwrite = if replaces { Overwrite::ReplaceAny } else { Overwrite::Never };
        let made = match &entry.kind {
            Kind::Symlink { target } => {
                destination.nodes().symlink(path, target, &entry.metadata, overwrite)?
            }
            kind => destination.nodes().special(path, kind, &entry.metadata, overwrite)?,
        };
        self.receiving.settled(self.entry, true);
        made.lacking.map_or(Ok(()), Err)
    }

    /// A place for a file, once one is free. A batch that is full names its files; one that is not, and waits for what
    /// can't be asked for, is named as well.
    async fn next_place(&self, bytes: usize) -> Option<FilePermit> {
        let receiving = &self.receiving;
        let mut taking = std::pin::pin!(receiving.places.take(bytes));
        loop {
            // Thousands move while this waits: being woken for each would cost more than looking now and then.
            match tokio::time::timeout(LOOK, &mut taking).await {
                Ok(place) => return place,
                Err(_) => receiving.name_if_stuck(),
            }
        }
    }

    /// Asks for a file; waits while too many are under way.
    fn bring(&self, wanted: Wanted) -> Result<(), CopyError> {
        let receiving = &self.receiving;
        let Some(supplier) = &self.supplier else { return Ok(()) };
        if receiving.options.dry_run && wanted.compare.is_none() {
            receiving.tell_file(&wanted, wanted.size);
            return Ok(());
        }
        let bytes = wanted.bytes_kept();
        let place = match receiving.places.try_take(bytes) {
            Some(place) => place,
            None => {
                supplier.push()?;
                match self.runtime.block_on(self.next_place(bytes)) {
                    Some(place) => place,
                    None => return receiving.check(),
                }
            }
        };
        let file = CopyFile::new(receiving, wanted, place);
        if file.wanted().compare.is_none() {
            receiving.tell_file(file.wanted(), file.size());
            if file.size() == 0 && !supplier.inspects() {
                file.make_empty();
                return Ok(());
            }
        }
        supplier.bring(file)
    }
}
