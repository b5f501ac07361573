//! State that all parts of the receiving side of a copy share: where it writes, what it has done so far,
//! and what went wrong.

mod account;
mod backups;
mod kept;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;
use towpath_api::copy::{Check, CopyEvent, CopyOptions, Counts, FailureKind, Preserve};
use towpath_content::Oid;
use towpath_content::tree::{Kind, Metadata, Time};
use towpath_files::{Destination, FileError, FlushLimits, Policy, RelPath, ScanOptions, Stamp, WriteOptions};
use towpath_store::DiskStore;
use towpath_transfer::FetchError;

use self::account::CopyAccount;
use self::backups::{BackupPlace, Backups};
use self::kept::Kept;
use super::decide::Changes;
use super::events::{Events, FailedEntry, failed, left_out, shown_time};
use super::file_result::{FileResult, Settling};
use super::wanted::{Note, Wanted};
use crate::error::{CopyError, EntryFault, LeftOut};
use towpath_targets::file_permits::FilePermits;
use towpath_targets::placing::{Named, Placing, adopt};
use towpath_targets::resume::Record;

/// Files requested and not in place. More than the destination names in one batch
/// ([`FlushLimits`]): those that wait for their names hold places, and must not hold all.
const UNDER_WAY: usize = 2 * NAMED_TOGETHER;
/// Files named in one batch.
const NAMED_TOGETHER: usize = 4096;

/// The receiving side of one copy.
pub struct Receiving {
    /// Options of the copy.
    pub options: CopyOptions,
    /// Metadata that are applied.
    pub policy: Policy,
    /// Places for files under way.
    pub permits: Arc<FilePermits>,
    /// What was done so far.
    pub account: CopyAccount,
    /// What is kept until the end.
    pub kept: Kept,
    /// First of rsync's letters for a file whose content comes: `<` where it is sent to another
    /// machine, else `>`.
    update: u8,
    events: Events,
    store: Arc<DiskStore>,
    resume: PathBuf,
    placing: OnceLock<Placing<Note>>,
    settling: OnceLock<Arc<dyn Settling>>,
    backup_place: OnceLock<BackupPlace>,
    fatal: OnceLock<CopyError>,
    stopped: CancellationToken,
}

/// Metadata that are put on entries.
pub fn policy(preserve: &Preserve) -> Policy {
    Policy {
        modes: preserve.perms,
        umask: None,
        // Rights that a sender gives unasked are taken off each entry (`merge::privileges`); those by --chmod are not.
        special_bits: true,
        times: preserve.times,
        dir_times: preserve.times,
        link_times: preserve.times,
        owner: preserve.owner,
        group: preserve.group,
        numeric_ids: preserve.numeric_ids,
        acls: preserve.acls,
        xattrs: preserve.xattrs,
        privileged_xattrs: preserve.privileged_xattrs,
    }
}

impl Receiving {
    /// A copy that has not begun. `resume` is the folder of resume records; `is_pushed` says that
    /// the person is at the other side. `umask` as in [`Host`](crate::Host).
    pub fn new(
        options: CopyOptions,
        store: Arc<DiskStore>,
        resume: PathBuf,
        events: Events,
        is_pushed: bool,
        umask: Option<u32>,
    ) -> Arc<Self> {
        let plain = policy(&options.preserve);
        let policy = Policy {
            umask,
            // Renaming files within their directories changes these; so it is with rsync.
            dir_times: plain.dir_times && !(options.backup && options.backup_dir.is_none()),
            owner: plain.owner || options.chown.is_some(),
            group: plain.group || options.chown.is_some(),
            ..plain
        };
        Arc::new(Self {
            options,
            policy,
            permits: FilePermits::new(UNDER_WAY),
            account: CopyAccount::default(),
            kept: Kept::default(),
            update: if is_pushed { b'<' } else { b'>' },
            events,
            store,
            resume,
            placing: OnceLock::new(),
            settling: OnceLock::new(),
            backup_place: OnceLock::new(),
            fatal: OnceLock::new(),
            stopped: CancellationToken::new(),
        })
    }

    /// Sets the receiver of files' results: once, before the first is requested.
    pub fn set_settling(&self, settling: Arc<dyn Settling>) {
        let _ = self.settling.set(settling);
    }

    /// Opens the destination for good, and goes on with what an interrupted copy to it left.
    /// `file` is the name of the one file that is written, if the destination is one; `key` tells
    /// copies to the same destination apart that put things in different places.
    pub fn open(&self, destination: Destination, file: Option<&OsStr>, key: &Oid) -> Result<(), CopyError> {
        let path = destination.path().to_path_buf();
        let base = path.canonicalize().map_err(|error| CopyError::system("open", &path, error))?;
        let whole = file.map_or_else(|| base.clone(), |file| base.join(file));
        let record = Record::open_beside_others(&self.resume, &whole, key)
            .map_err(|error| CopyError::system("note", &self.resume, error))?;
        let adopted = match adopt(&destination, &record) {
            // Somebody holds it who has another home.
            Err(FileError::Busy { .. }) => false,
            adopted => adopted.map_err(CopyError::destination)?,
        };
        if adopted {
            self.kept.adopted();
        }
        let placing = Placing::new(destination, base, record, Arc::clone(&self.store));
        let _ = self.placing.set(placing);
        Ok(())
    }

    /// True if a copy with this key to the directory `path` was interrupted.
    pub fn is_open(&self, path: &Path, key: &Oid) -> bool {
        path.canonicalize().is_ok_and(|path| Record::is_one_open(&self.resume, &path, key))
    }

    /// Destination that it writes to. None, in a dry run to a destination that is not there.
    pub fn placing(&self) -> Result<&Placing<Note>, FileError> {
        self.placing.get().ok_or_else(|| FileError::new("write", Path::new("."), rustix::io::Errno::NOENT))
    }

    /// Destination that it writes to, if that is open.
    pub fn opened(&self) -> Option<&Placing<Note>> {
        self.placing.get()
    }

    /// Makes sure that the resume record names the folder of the temporaries, before the first.
    pub fn note_staging(&self) -> Result<(), FileError> {
        let placing = self.placing()?;
        self.kept.note_staging(|| {
            // It may be read-only until the end.
            placing.destination.make_dir(&RelPath::root())?;
            let name = placing.destination.staging().name()?;
            if let Err(error) = placing.record.set_temp(&name) {
                tracing::warn!(%error, "an interruption now would begin from the front");
            }
            Ok(())
        })
    }

    /// Backups of what is replaced or removed.
    pub const fn backups(&self) -> Backups<'_> {
        Backups { receiving: self }
    }

    /// Looks for the bytes of a new file under an old name, and informs the index if they are there.
    pub fn find_renamed(&self, oid: &Oid, size: u64, modified: Time) {
        let guesses = self.kept.spares(size, modified);
        let Some(placing) = self.opened() else { return };
        for (path, stamp) in guesses {
            let found = placing.known(&path, &stamp).or_else(|| {
                let record = placing.hash(&path, &stamp)?;
                self.store.remember(std::slice::from_ref(&record)).ok()?;
                Some(record.oid)
            });
            if found == Some(*oid) {
                return;
            }
        }
    }

    /// Error that makes going on useless, if any.
    pub fn check(&self) -> Result<(), CopyError> {
        self.fatal.get().cloned().map_or(Ok(()), Err)
    }

    /// Ends the copy with an error.
    pub fn stop(&self, error: CopyError) {
        // The first one counts.
        let _ = self.fatal.set(error);
        self.permits.close();
        self.stopped.cancel();
    }

    /// Completes when the copy was ended with an error.
    pub async fn stopped(&self) {
        self.stopped.cancelled().await;
    }

    /// A single entry failed; the others go on, unless the disk is full.
    pub fn problem(&self, shown: &[u8], error: &FileError) {
        match error {
            FileError::NoSpace { .. } => self.stop(self.is_full(shown, error)),
            _ => self.events.failure(failed(shown, error, FailureKind::Other)),
        }
    }

    /// The disk is full: by the file's own name, and not that of its temporary.
    fn is_full(&self, shown: &[u8], error: &FileError) -> CopyError {
        let place = self.opened().map_or(error.path(), |placing| &placing.base).to_path_buf();
        CopyError::Full { name: shown.to_vec(), place }
    }

    /// The session could not bring a file.
    pub fn fetch_problem(&self, shown: &[u8], error: &FetchError) {
        match error {
            FetchError::Stalled { waited, last_error } => {
                self.stop(CopyError::Stalled { waited: *waited, trouble: last_error.clone() });
            }
            FetchError::Cancelled => self.stop(CopyError::Cancelled),
            error => {
                let (path, fault, kind) = (shown.to_vec(), EntryFault::Fetch(error), FailureKind::Other);
                self.events.failure(FailedEntry { path, fault, kind });
            }
        }
    }

    /// An entry is left out for what it is; with no path: something is not done. Blocks while the
    /// person does not read.
    pub fn leave_out(&self, shown: &[u8], why: LeftOut) {
        self.events.failure_in_order(left_out(shown, why));
    }

    /// Tells of a change, if that is looked at.
    pub fn report(&self, event: CopyEvent) {
        if !self.options.without_items {
            self.events.item(event);
        }
    }

    /// Tells that the content of a file comes.
    pub fn report_file(&self, wanted: &Wanted, size: u64) {
        let file = Kind::File { size, oid: None, extents: None };
        self.report(CopyEvent::Item {
            changes: wanted.changes.letters(self.update, &file, self.options.preserve.times),
            path: wanted.shown.clone(),
            target: None,
            size,
            modified: shown_time(wanted.metadata.modified),
        });
        self.account.requested(size);
        if self.options.dry_run {
            self.account.transferred(size);
        }
    }

    /// A file proved the same: its metadata may have to be set.
    pub fn is_same(&self, wanted: &Wanted, changes: Changes) {
        let file = Kind::File { size: wanted.size, oid: None, extents: None };
        if changes.is_metadata() {
            self.report(CopyEvent::Item {
                changes: changes.letters(b'.', &file, self.options.preserve.times),
                path: wanted.shown.clone(),
                target: None,
                size: wanted.size,
                modified: shown_time(wanted.metadata.modified),
            });
            if !self.options.dry_run
                && let Some(old) = &wanted.old
                && !self.touch(&wanted.path, &wanted.shown, old, &wanted.metadata)
            {
                return self.settled(wanted.entry, false);
            }
        }
        match &wanted.old {
            Some(old) => self.settle_as(wanted.entry, FileResult::Unchanged(*old)),
            None => self.settled(wanted.entry, false),
        }
    }

    /// Options of writing the destination.
    pub fn write_options(&self) -> WriteOptions {
        let flush = FlushLimits { files: NAMED_TOGETHER, ..FlushLimits::default() };
        WriteOptions { resume: true, policy: self.policy, flush }
    }

    /// Names what waits for its name, if that is all that holds places.
    pub fn name_if_stuck(&self) {
        if let Some(placing) = self.opened()
            && self.permits.taken() <= placing.waiting()
        {
            self.named(placing.flush());
        }
    }

    /// Sets metadata in place; false if that failed.
    pub fn touch(&self, path: &RelPath, shown: &[u8], old: &Stamp, metadata: &Metadata) -> bool {
        let touched =
            self.placing().and_then(|placing| placing.destination.set_metadata(path, old, metadata));
        touched.map_err(|error| self.problem(shown, &error)).is_ok()
    }

    /// Files have their names, or will not get them.
    pub fn named(&self, named: Vec<Named<Note>>) {
        for Named { path, note, outcome, lacking } in named {
            if let Some(error) = lacking {
                self.problem(&note.shown, &error);
            }
            let outcome = match outcome {
                Err(FileError::Exists { .. }) if self.is_there_meanwhile(&path, &note) => Ok(()),
                outcome => outcome.map(drop),
            };
            let is_placed = outcome.is_ok();
            self.account.named(note.size);
            match outcome {
                Ok(()) => self.account.transferred(note.size),
                Err(error) => self.problem(&note.shown, &error),
            }
            self.settled(note.entry, is_placed);
            // Another file may take its place.
            drop(note.permit);
        }
    }

    /// True if another copy made the very file meanwhile, as far as the quick check goes. A copy that compares contents
    /// takes its name for somebody else's, as `cp` does.
    fn is_there_meanwhile(&self, path: &RelPath, note: &Note) -> bool {
        let Some(placing) = self.opened().filter(|_| self.options.check == Check::Quick) else {
            return false;
        };
        let found = placing.destination.look(path, &ScanOptions::default());
        let is_same = found.is_ok_and(|found| {
            found.is_some_and(|found| {
                matches!(found.entry.kind, Kind::File { size, .. } if size == note.size)
                    && found.entry.metadata.modified == note.modified
            })
        });
        // Another entry may have the name where case makes no difference.
        is_same && placing.destination.folding().folds(path).is_ok_and(|folds| !folds)
    }

    /// Nothing more is needed of a file.
    pub fn settled(&self, entry: u64, is_placed: bool) {
        self.settle_as(entry, if is_placed { FileResult::Placed } else { FileResult::Dropped });
    }

    /// Nothing is needed of an entry that was not asked for: what is here is the same. Its sender
    /// cares only if it is to remove it.
    pub fn unchanged(&self, entry: u64, here: &Stamp) {
        if self.options.remove_source_files {
            self.settle_as(entry, FileResult::Unchanged(*here));
        }
    }

    /// Its source could not be read to the end.
    pub fn lost(&self, entry: u64) {
        self.settle_as(entry, FileResult::Lost);
    }

    fn settle_as(&self, entry: u64, result: FileResult) {
        // A dry run lets nothing go at the source either.
        let lets_go = matches!(result, FileResult::Placed | FileResult::Unchanged(_));
        let result = if self.options.dry_run && lets_go { FileResult::Dropped } else { result };
        if let Some(settling) = self.settling.get() {
            settling.settled(entry, result);
        }
    }
}

/// Counts an entry by its kind.
pub fn add(counts: &mut Counts, kind: &Kind) {
    match kind {
        Kind::File { .. } => counts.files += 1,
        Kind::Directory => counts.directories += 1,
        Kind::Symlink { .. } => counts.links += 1,
        Kind::CharDevice { .. } | Kind::BlockDevice { .. } => counts.devices += 1,
        Kind::Fifo | Kind::Socket => counts.specials += 1,
    }
}
