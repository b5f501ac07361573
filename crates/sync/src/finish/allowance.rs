//! Allowance of what may be removed from the destination at the end of a copy: by the person's word, by the guard of
//! half, and only if the sender listed all that it has. Directories that are in the way and what the source does not
//! have count together.

use std::sync::{Arc, Mutex};

use towpath_content::tree::Kind;
use towpath_files::filter::{Filter, FilterSide, RuleList};
use towpath_files::{FileError, RelPath, ScanOptions};

use super::Finish;
use super::deletions::{RemovalReports, back_up_and_remove};
use super::rooms::{RoomToMake, refused};
use crate::error::{CopyError, LeftOut, Stays};
use crate::notes::{EndNotes, ExtraRecord, InTheWay, LinkRecord, RecordStop, RoomRecord};
use crate::receiving::Receiving;
use crate::removing::{Removals, is_protected, rehearse};
use towpath_content::lock::lock;

/// Allowance of what may be removed.
pub(super) struct Allowance {
    /// Reason why nothing may, if so.
    none: Option<Stays>,
    state: Mutex<AllowanceState>,
}

struct AllowanceState {
    /// Entries that still may (`--max-delete`).
    left: u64,
    filter: Filter,
}

/// Decides whether so many entries may go, where `matched` ones stay. Pure.
fn none_because(is_incomplete: bool, is_guarded: bool, total: u64, matched: u64) -> Option<Stays> {
    match () {
        () if is_incomplete => Some(Stays::Incomplete),
        () if is_guarded && total > matched => Some(Stays::Guarded),
        () => None,
    }
}

impl Allowance {
    /// True if everything may go that the source does not have.
    pub(super) fn is_of_all(&self) -> bool {
        self.none.is_none() && lock(&self.state).left == u64::MAX
    }
}

impl Finish {
    /// Allowance for the end, once all entries were listed; the person gets a word if nothing may be removed.
    pub(super) fn allowance(&mut self) -> Result<Allowance, CopyError> {
        let total = self.count_removals()?;
        self.is_incomplete |= !self.requests.is_complete();
        let options = &self.receiving.options;
        let is_guarded = options.max_delete.is_none() && !options.force;
        let none = none_because(self.is_incomplete, is_guarded, total, self.matched);
        if total > 0 && self.is_incomplete {
            self.receiving.leave_out(b"", LeftOut::Deletions);
        } else if total > 0 && none.is_some() {
            self.receiving.account.count(|counts| counts.max_delete_reached = true);
            self.receiving.leave_out(b"", LeftOut::TooMany(total, total + self.matched));
        }
        // A dry run shows what would go if the person insisted.
        let none = none.filter(|_| self.is_incomplete || !options.dry_run);
        let left = options.max_delete.unwrap_or(u64::MAX);
        // The walk is over: nobody else asks it.
        let over = Filter::new(RuleList::default(), FilterSide::Receiver, false);
        let filter = std::mem::replace(&mut self.removals.filter, over);
        Ok(Allowance { none, state: Mutex::new(AllowanceState { left, filter }) })
    }

    /// Number of entries that would go: what the source does not have, and what is in directories in the way.
    fn count_removals(&mut self) -> Result<u64, CopyError> {
        let receiving = Arc::clone(&self.receiving);
        let Removals { filter, extras } = &mut self.removals;
        let EndNotes { positions, links, .. } = &mut self.notes;
        let mut total = 0;
        let mut count = |path: &RelPath, shown: &RelPath, is_reported: bool| {
            let mut here = 0;
            // Errors of reading come when it is to be removed.
            let _ = rehearse(&receiving, path, shown, filter, |_, _, _| here += 1);
            total += if is_reported { here } else { below(here) };
        };
        let counted = extras.for_each(|record: ExtraRecord| {
            let (path, shown) = positions.paths(&record.position).map_err(RecordStop::of)?;
            count(&path, &shown, true);
            Ok(())
        });
        counted.map_err(|RecordStop(error)| error)?;
        let mut rooms = receiving.kept.take_rooms();
        let counted = rooms.for_each(|record: RoomRecord| {
            let (path, shown) = positions.paths(&record.position).map_err(RecordStop::of)?;
            count(&path, &shown, false);
            Ok(())
        });
        receiving.kept.give_back_rooms(rooms);
        counted.map_err(|RecordStop(error)| error)?;
        let counted = links.for_each(|record: LinkRecord| {
            if InTheWay::from(record.in_the_way) != InTheWay::Nothing {
                let (path, shown) = positions.paths(&record.position).map_err(RecordStop::of)?;
                count(&path, &shown, false);
            }
            Ok(())
        });
        counted.map_err(|RecordStop(error)| error)?;
        Ok(total)
    }
}

/// A replaced entry keeps its name, so only what is below it goes.
const fn below(counted: u64) -> u64 {
    counted.saturating_sub(1)
}

impl Allowance {
    /// Reason why nothing may be removed, if so.
    pub(super) const fn none(&self) -> Option<Stays> {
        self.none
    }

    /// True if one more entry may go.
    pub(super) fn take_one(&self) -> bool {
        self.take(1)
    }

    fn take(&self, count: u64) -> bool {
        let left = &mut lock(&self.state).left;
        let rest = left.checked_sub(count);
        *left = rest.unwrap_or(*left);
        rest.is_some()
    }

    /// Whether the rules protect an entry.
    pub(super) fn protects(&self, path: &RelPath, shown: &RelPath, is_dir: bool) -> bool {
        is_protected(&mut lock(&self.state).filter, path, shown, is_dir)
    }

    /// Removes a directory that is in the way; all of it or nothing.
    pub(super) fn clear(&self, receiving: &Receiving, room: &RoomToMake) -> Result<(), FileError> {
        let destination = &receiving.placing()?.destination;
        let there = destination.look(&room.path, &ScanOptions::default())?;
        if !there.is_some_and(|there| there.entry.kind == Kind::Directory) {
            return Ok(());
        }
        if !receiving.options.dry_run && destination.removal().remove_dir(&room.path)? {
            return Ok(());
        }
        let mut counted = 0;
        let each = |_: &RelPath, _: &RelPath, _| counted += 1;
        let removal = rehearse(receiving, &room.path, &room.shown, &mut lock(&self.state).filter, each)?;
        let why = match self.none {
            _ if removal.kept => Some(Stays::Protected),
            _ if below(counted) == 0 => None,
            _ if room.in_the_way != InTheWay::Directory => Some(Stays::NotEmpty),
            None if !self.take(below(counted)) => {
                receiving.account.count(|counts| counts.max_delete_reached = true);
                Some(Stays::Limited)
            }
            none => none,
        };
        if let Some(why) = why {
            return Err(refused(room, receiving, why));
        }
        let mut may = |below: &RelPath, is_dir: bool| !self.protects(below, &room.shown, is_dir);
        back_up_and_remove(receiving, &room.path, &room.shown, RemovalReports::Below, &mut may)?;
        let is_left = !receiving.options.dry_run && destination.stamp_at(&room.path).is_ok();
        if is_left { Err(refused(room, receiving, Stays::Protected)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_goes_where_the_source_was_not_read_or_half_of_the_destination_would() {
        for (is_incomplete, is_guarded, total, matched, may) in [
            (false, true, 0, 0, true),
            (false, true, 5, 5, true),
            (false, true, 6, 5, false),
            (false, false, 6, 5, true),
            (true, true, 1, 5, false),
            (true, false, 0, 5, false),
        ] {
            let none = none_because(is_incomplete, is_guarded, total, matched);
            assert_eq!(none.is_none(), may, "{is_incomplete} {is_guarded} {total} {matched}");
        }
    }

    #[test]
    fn what_is_allowed_is_taken_once() {
        let filter = Filter::new(RuleList::default(), FilterSide::Receiver, false);
        let allowance = Allowance { none: None, state: Mutex::new(AllowanceState { left: 3, filter }) };
        assert!(allowance.take(2) && !allowance.take(2));
        assert!(allowance.take_one() && !allowance.take_one() && allowance.take(0));
    }
}
