//! Deletions at the destination at the end: of what the source does not have.
//!
//! Deletions come last, so that a file that was renamed at the source can still be drawn from its
//! old place, and not at all where the sender could not read everything. Removing more than half
//! of a destination is a mistake more often than not, and needs to be asked for (`allowance`).

use std::io;
use std::path::Path;
use std::sync::Arc;

use prost::Message;
use towpath_api::copy::CopyEvent;
use towpath_files::{FileError, RelPath};

use super::Finish;
use super::allowance::Allowance;
use crate::error::{CopyError, LeftOut};
use crate::notes::{ExtraRecord, RecordStop};
use crate::receiving::Receiving;
use crate::removing::ShownRemoval;
use towpath_sync_messages::records::Records;

impl Finish {
    /// Deletes what only the destination has, as far as that is allowed.
    pub(super) fn delete(&mut self, allowance: &Allowance) -> Result<(), CopyError> {
        let receiving = Arc::clone(&self.receiving);
        if self.removals.extras.is_empty() || allowance.none().is_some() {
            return Ok(());
        }
        let positions = &mut self.notes.positions;
        let deleted = self.removals.extras.for_each(|record: ExtraRecord| {
            receiving.check().map_err(RecordStop)?;
            let (path, shown) = positions.paths(&record.position).map_err(RecordStop::of)?;
            if let Err(error) = delete(&receiving, &path, &shown, allowance) {
                receiving.problem(shown.as_bytes(), &error);
            }
            Ok(())
        });
        deleted.map_err(|RecordStop(error)| error)?;
        if receiving.options.max_delete.is_some() && receiving.account.summary().max_delete_reached {
            receiving.leave_out(b"", LeftOut::Limited);
        }
        Ok(())
    }
}

fn delete(
    receiving: &Receiving,
    path: &RelPath,
    shown: &RelPath,
    allowance: &Allowance,
) -> Result<(), FileError> {
    let mut may = |below: &RelPath, is_dir: bool| {
        if allowance.protects(below, shown, is_dir) {
            return false;
        }
        let is_allowed = allowance.take_one();
        if !is_allowed {
            receiving.account.count(|counts| counts.max_delete_reached = true);
        }
        is_allowed
    };
    back_up_and_remove(receiving, path, shown, RemovalReports::All, &mut may)
}

/// [`remove`], with everything that is no directory moved to its backup first if that was requested.
pub(super) fn back_up_and_remove(
    receiving: &Receiving,
    path: &RelPath,
    shown: &RelPath,
    reports: RemovalReports,
    may: &mut dyn FnMut(&RelPath, bool) -> bool,
) -> Result<(), FileError> {
    if !receiving.options.backup || receiving.options.dry_run {
        return remove(receiving, path, shown, reports, may);
    }
    let mut moved = Records::<Moved>::default();
    let failed = |error| FileError::new("note", Path::new("a backup"), error);
    let mut noting = Ok(());
    let note = |path: &RelPath, below: &RelPath, is_dir: bool| {
        let record = Moved { path: path.as_bytes().to_vec(), shown: below.as_bytes().to_vec(), is_dir };
        if noting.is_ok() {
            noting = moved.push(&record).map(drop);
        }
    };
    let removal = receiving.placing()?.destination.removal();
    let rehearsed = removal.rehearse(path, &mut ShownRemoval { path, shown, may, gone: note })?;
    noting.map_err(failed)?;
    rehearsed.failures.iter().for_each(|error| receiving.problem(shown.as_bytes(), error));
    let done = moved.for_each(|record| {
        let path = RelPath::new(record.path.split(|&byte| byte == b'/')).map_err(Failed)?;
        // Entries left in a directory, such as backups, keep it.
        let is_gone = match record.is_dir {
            true => removal.remove_dir(&path).map_err(Failed)?,
            false => receiving.backups().back_up(&path).map_err(Failed)?,
        };
        if is_gone && reports.includes(&record.shown, shown) {
            report_removal(receiving, &record.shown, record.is_dir);
        }
        Ok(())
    });
    done.map_err(|Failed(error)| error)
}

/// Removes `path` (in a dry run: does as if) with all that `may` lets go, and reports each. What is
/// kept stays with the directories around it.
fn remove(
    receiving: &Receiving,
    path: &RelPath,
    shown: &RelPath,
    reports: RemovalReports,
    may: &mut dyn FnMut(&RelPath, bool) -> bool,
) -> Result<(), FileError> {
    let destination = &receiving.placing()?.destination;
    let gone = |_: &RelPath, below: &RelPath, is_dir: bool| {
        if reports.includes(below.as_bytes(), shown) {
            report_removal(receiving, below.as_bytes(), is_dir);
        }
    };
    let mut removal = ShownRemoval { path, shown, may, gone };
    let removed = match receiving.options.dry_run {
        true => destination.removal().rehearse(path, &mut removal),
        false => destination.removal().remove(path, &mut removal),
    }?;
    removed.failures.iter().for_each(|error| receiving.problem(shown.as_bytes(), error));
    Ok(())
}

/// Something below one removed thing that is to be moved to its backup.
#[derive(Clone, PartialEq, Message)]
struct Moved {
    #[prost(bytes = "vec", tag = "1")]
    path: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    shown: Vec<u8>,
    #[prost(bool, tag = "3")]
    is_dir: bool,
}

/// Removals that are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RemovalReports {
    /// All.
    All,
    /// Those below the top.
    Below,
}

impl RemovalReports {
    fn includes(self, shown: &[u8], top: &RelPath) -> bool {
        self == Self::All || shown != top.as_bytes()
    }
}

fn report_removal(receiving: &Receiving, shown: &[u8], is_dir: bool) {
    receiving.account.count(|counts| match is_dir {
        true => counts.deleted.directories += 1,
        false => counts.deleted.files += 1,
    });
    receiving.report(CopyEvent::Deleted { path: shown.to_vec(), is_dir });
}

/// Error that ends the reading of records about files.
struct Failed(FileError);

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self(FileError::new("read back", Path::new("what was noted"), error))
    }
}
