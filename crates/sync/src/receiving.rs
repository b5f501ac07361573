//! State that all parts of the receiving side of a copy share: where it writes, what it has done so far,
//! and what went wrong.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use tokio_util::sync::CancellationToken;
use towpath_api::copy::{Check, CopyEvent, CopyOptions, CopySummary, Counts, FailureKind, Preserve};
use towpath_content::Oid;
use towpath_content::tree::{Kind, Metadata, Time};
use towpath_files::{Destination, FileError, FlushLimits, Policy, RelPath, ScanOptions, Stamp, WriteOptions};
use towpath_store::DiskStore;
use towpath_transfer::FetchError;

use super::decide::Changes;
use super::events::{Events, FailedEntry, failed, left_out, shown_time};
use super::file_permits::FilePermits;
use super::file_result::{FileResult, Settling};
use super::notes::RoomRecord;
use super::records::Records;
use super::wanted::{Note, Wanted};
use crate::error::{CopyError, EntryFault, LeftOut, Obstacle};
use towpath_content::lock::lock;
use towpath_reuse::candidates::renames::Spare;
use towpath_targets::placing::{Named, Placing, adopt};
use towpath_targets::resume::Record;

/// Files requested and not in place. More than the destination names in one batch
/// ([`FlushLimits`]): those that wait for their names hold places, and must not hold all.
const UNDER_WAY: usize = 2 * NAMED_TOGETHER;
/// Directories in the way of something else: what waits for their places waits for the end of the copy.
const MOST_ROOMS: u64 = 4096;
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
    /// First of rsync's letters for a file whose content comes: `<` where it is sent to another
    /// machine, else `>`.
    update: u8,
    events: Events,
    store: Arc<DiskStore>,
    resume: PathBuf,
    placing: OnceLock<Placing<Note>>,
    has_staging: Mutex<bool>,
    settling: OnceLock<Arc<dyn Settling>>,
    backups: OnceLock<Backups>,
    rooms: Mutex<Records<RoomRecord>>,
    spare: Mutex<Spare>,
    counts: Mutex<CopySummary>,
    bytes_requested: AtomicU64,
    bytes_done: AtomicU64,
    files_done: AtomicU64,
    fatal: Mutex<Option<CopyError>>,
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
            update: if is_pushed { b'<' } else { b'>' },
            events,
            store,
            resume,
            placing: OnceLock::new(),
            has_staging: Mutex::new(false),
            settling: OnceLock::new(),
            backups: OnceLock::new(),
            rooms: Mutex::default(),
            spare: Mutex::default(),
            counts: Mutex::default(),
            bytes_requested: AtomicU64::new(0),
            bytes_done: AtomicU64::new(0),
            files_done: AtomicU64::new(0),
            fatal: Mutex::default(),
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
        *lock(&self.has_staging) = adopted;
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
        let mut has_staging = lock(&self.has_staging);
        if !*has_staging {
            // It may be read-only until the end.
            placing.destination.make_dir(&RelPath::root())?;
            let name = placing.destination.staging().name()?;
            if let Err(error) = placing.record.set_temp(&name) {
                tracing::warn!(%error, "an interruption now would begin from the front");
            }
            *has_staging = true;
        }
        Ok(())
    }

    /// True if something was written, or is about to be.
    pub fn has_staging(&self) -> bool {
        *lock(&self.has_staging)
    }

    /// Moves what is at `path` out of the way, if backups were requested; false if nothing was there.
    pub fn back_up(&self, path: &RelPath) -> Result<bool, FileError> {
        self.back_up_by(path, |from, path, other, to| match other {
            None => from.backups().rename(path, to),
            Some(other) => from.backups().rename_into(path, other, to),
        })
    }

    /// Keeps what is at `path`, a file that a rename is about to replace, under its backup's name as well.
    pub fn keep(&self, path: &RelPath) -> Result<bool, FileError> {
        self.back_up_by(path, |from, path, other, to| from.backups().keep_as(path, other.unwrap_or(from), to))
    }

    fn back_up_by(
        &self,
        path: &RelPath,
        back_up: impl FnOnce(&Destination, &RelPath, Option<&Destination>, &RelPath) -> Result<(), FileError>,
    ) -> Result<bool, FileError> {
        if !self.options.backup {
            return Ok(false);
        }
        let Some((parent, name)) = path.split() else { return Ok(false) };
        let name = [name, &self.options.suffix].concat();
        let destination = &self.placing()?.destination;
        let moved = match self.backups()? {
            Backups::Beside => back_up(destination, path, None, &parent.join(&name)?),
            Backups::Inside(dir) => {
                let mut to = dir.clone();
                parent.names().try_for_each(|name| to.push(name))?;
                back_up(destination, path, None, &to.join(&name)?)
            }
            Backups::Outside(other) => back_up(destination, path, Some(other), &parent.join(&name)?),
        };
        match moved {
            Ok(()) => Ok(true),
            Err(FileError::Vanished { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Directory of backups; found out, and made, when the first one comes.
    fn backups(&self) -> Result<&Backups, FileError> {
        if let Some(backups) = self.backups.get() {
            return Ok(backups);
        }
        let backups = match &self.options.backup_dir {
            None => Backups::Beside,
            Some(dir) => Backups::find(dir, self.placing()?, self.write_options())?,
        };
        Ok(self.backups.get_or_init(|| backups))
    }

    /// Something is complete but for its name, which a directory has: at the end it may take that one's place.
    pub fn put_off(&self, room: &RoomRecord) -> Result<(), FileError> {
        let mut rooms = lock(&self.rooms);
        if rooms.len() >= MOST_ROOMS {
            return Err(Obstacle::TooMany.to("replace", Path::new("a directory")));
        }
        rooms
            .push(room)
            .map(drop)
            .map_err(|error| FileError::new("note", Path::new("a directory in the way"), error))
    }

    /// Takes what was put off.
    pub fn take_rooms(&self) -> Records<RoomRecord> {
        std::mem::take(&mut *lock(&self.rooms))
    }

    /// Gives it back.
    pub fn give_back_rooms(&self, rooms: Records<RoomRecord>) {
        *lock(&self.rooms) = rooms;
    }

    /// Only the destination has this file: it may be one that was renamed.
    pub fn is_spare(&self, path: RelPath, stamp: Stamp) {
        lock(&self.spare).add(path, stamp);
    }

    /// Files that only the destination has, and that may be one of this size and time.
    pub fn spares(&self, size: u64, modified: Time) -> Vec<(RelPath, Stamp)> {
        lock(&self.spare).guesses(size, modified)
    }

    /// Takes one of them for good. False: another file took it.
    pub fn take_spare(&self, path: &RelPath, stamp: &Stamp) -> bool {
        lock(&self.spare).take(path, stamp)
    }

    /// Looks for the bytes of a new file under an old name, and informs the index if they are there.
    pub fn find_renamed(&self, oid: &Oid, size: u64, modified: Time) {
        let guesses = lock(&self.spare).guesses(size, modified);
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
        lock(&self.fatal).clone().map_or(Ok(()), Err)
    }

    /// Ends the copy with an error.
    pub fn stop(&self, error: CopyError) {
        lock(&self.fatal).get_or_insert(error);
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
        self.bytes_requested.fetch_add(size, Ordering::Relaxed);
        if self.options.dry_run {
            self.count_transferred(size);
        }
    }

    fn count_transferred(&self, size: u64) {
        self.count(|counts| {
            counts.transferred += 1;
            counts.transferred_size += size;
        });
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
            self.bytes_done.fetch_add(note.size, Ordering::Relaxed);
            self.files_done.fetch_add(1, Ordering::Relaxed);
            match outcome {
                Ok(()) => self.count_transferred(note.size),
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

    /// Counts.
    pub fn count(&self, count: impl FnOnce(&mut CopySummary)) {
        count(&mut lock(&self.counts));
    }

    /// Bytes of files that were asked for.
    pub fn bytes_requested(&self) -> u64 {
        self.bytes_requested.load(Ordering::Relaxed)
    }

    /// Bytes of files that are in place.
    pub fn bytes_done(&self) -> u64 {
        self.bytes_done.load(Ordering::Relaxed)
    }

    /// Files in place.
    pub fn files_done(&self) -> u64 {
        self.files_done.load(Ordering::Relaxed)
    }

    /// Summary of what was done so far.
    pub fn summary(&self) -> CopySummary {
        lock(&self.counts).clone()
    }
}

/// Directory of backups.
enum Backups {
    /// Beside what they are of.
    Beside,
    /// Into this directory of the destination.
    Inside(RelPath),
    /// Into a directory elsewhere on the same file system, which the person named.
    Outside(Box<Destination>),
}

impl Backups {
    /// The directory that `--backup-dir` names, relative to the destination.
    fn find(dir: &[u8], placing: &Placing<Note>, options: WriteOptions) -> Result<Self, FileError> {
        let dir = Path::new(OsStr::from_bytes(dir));
        let is_inside = dir.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if is_inside {
            let names = dir.components().filter(|part| *part != Component::CurDir);
            return RelPath::new(names.map(|name| name.as_os_str().as_bytes())).map(Self::Inside);
        }
        let path = placing.base.join(dir);
        std::fs::create_dir_all(&path).map_err(|error| FileError::new("create", &path, error))?;
        Destination::open(&path, options).map(|other| Self::Outside(Box::new(other)))
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
