//! A file of a copy on its way to the destination.
//!
//! It is asked for, may prove to be the same after all (where contents are compared), else grows
//! under a temporary name, with what an interrupted copy left and what is still right of the file that it
//! replaces, and takes its name in a batch with others.

mod delta_base;
mod drawn;
mod pieces;
mod renamed;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use towpath_content::Oid;
use towpath_content::pieces::Value;
use towpath_content::tree::{Metadata, Time};
use towpath_files::{BeforeNaming, FileError, Overwrite, Staged, Stamp, of_file};
use towpath_protocol::processor::Object;
use towpath_protocol::processors::Processors;
use towpath_transfer::intervals::Intervals;
use towpath_transfer::object::CheckError;
use towpath_transfer::{FetchError, Metadata as Labels, Outcome, SourceId};

pub use self::delta_base::DeltaBase;
use self::drawn::HashedParts;
use super::notes::{InTheWay, Position, Replacement, RoomRecord, StagedFile};
use super::receiving::Receiving;
use super::wanted::{Note, Wanted};
use towpath_content::lock::lock;
use towpath_reuse::candidates::rules::FileCandidate;
use towpath_targets::file_permits::FilePermit;
use towpath_targets::partial::PartialFile;

/// The index is not told of files that are smaller: they are read as fast as they are looked up there, and each would
/// cost it several pages.
const LEAST_INDEXED: u64 = 4 << 10;

/// The file on its way.
pub struct CopyFile {
    receiving: Arc<Receiving>,
    wanted: Wanted,
    state: Mutex<FileState>,
    partial: PartialFile,
    found: OnceLock<FileCandidate>,
}

/// What is known of a file, and where it stands.
struct FileState {
    /// As they are when it is read: the file may have changed since the scan.
    size: u64,
    modified: Time,
    /// Runs of zeros become holes.
    is_sparse: bool,
    permit: Option<FilePermit>,
    staged: Option<Staged>,
    /// What an interrupted copy left of it was looked for.
    is_sought: bool,
    /// Where bytes of it are in the temporary, before a session fetches the others.
    came: Intervals,
    /// Hash of the parts that come, as long as they come from the front on.
    parts: Option<HashedParts>,
}

impl CopyFile {
    /// A file that takes one place among those under way.
    pub fn new(receiving: &Arc<Receiving>, wanted: Wanted, permit: FilePermit) -> Arc<Self> {
        let state = FileState {
            size: wanted.size,
            modified: wanted.metadata.modified,
            is_sparse: receiving.options.sparse,
            permit: Some(permit),
            staged: None,
            is_sought: false,
            came: Intervals::default(),
            parts: None,
        };
        Arc::new(Self {
            receiving: Arc::clone(receiving),
            wanted,
            state: Mutex::new(state),
            partial: PartialFile::default(),
            found: OnceLock::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, FileState> {
        lock(&self.state)
    }

    /// What was known when it was asked for.
    pub const fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.state().size
    }

    /// It is a little different from what the scan saw. Holes of its source are to be holes here too.
    pub fn learn(&self, size: u64, modified: Time, is_sparse: bool) {
        let mut state = self.state();
        (state.size, state.modified) = (size, modified);
        state.is_sparse |= is_sparse;
    }

    /// Whether it may pass, and so much of its content as is at hand.
    pub fn passes(
        &self,
        processors: &Processors,
        oid: &Oid,
        offset: u64,
        content: &[u8],
    ) -> Result<(), Outcome> {
        let metadata = Labels::default();
        let size = (!oid.is_live()).then(|| self.size());
        let object = Object { oid, name: &self.wanted.shown, size, metadata: &metadata };
        processors.admit(&object)?;
        if content.is_empty() { Ok(()) } else { processors.inspect(&object, offset, content) }
    }

    /// Whether its bytes are to be brought, which are called so. Not where contents are compared, and these are there
    /// already or it is a dry run: then that was reported, and is the end of it.
    pub fn is_to_come(&self, oid: &Oid) -> bool {
        let Some(changes) = self.wanted.compare else { return true };
        // Reads the file that it replaces unless the index knows it.
        let holds = |old: &Stamp| Some(self.receiving.opened()?.holds(&self.wanted.path, old, oid));
        if self.wanted.old.as_ref().and_then(holds) == Some(true) {
            self.receiving.is_same(&self.wanted, changes);
            drop(self.state().permit.take());
            return false;
        }
        self.receiving.report_file(&self.wanted, self.size());
        if self.receiving.options.dry_run {
            self.drop_it();
        }
        !self.receiving.options.dry_run
    }

    /// The side of the copy that it belongs to.
    pub fn receiving(&self) -> &Receiving {
        &self.receiving
    }

    /// It can't be had; the reason was told already.
    pub fn drop_it(&self) {
        self.receiving.settled(self.wanted.entry, false);
        drop(self.state().permit.take());
    }

    /// It can't be had.
    pub fn fail(&self, error: &FileError) {
        self.problem(error);
        self.drop_it();
    }

    /// Tells why it can't be written: by its own name at the destination, if that of its temporary is not allowed.
    fn problem(&self, error: &FileError) {
        let shown = &self.wanted.shown;
        // It ends the copy: what is complete gets its name before.
        if matches!(error, FileError::NoSpace { .. }) {
            if let Some(placing) = self.receiving.opened() {
                self.receiving.named(placing.flush());
            }
            return self.receiving.problem(shown, error);
        }
        let path = self.receiving.opened().map(|placing| self.wanted.path.below(&placing.base));
        match path.as_ref().and_then(|path| of_file(error, path)) {
            None => self.receiving.problem(shown, error),
            Some(error) if error.path().ends_with(OsStr::from_bytes(shown)) => {
                self.receiving.problem(shown, &error);
            }
            // The destination's name is another one.
            Some(error) => self.receiving.problem(error.path().as_os_str().as_bytes(), &error),
        }
    }

    /// The session could not bring it, or this side could not write it.
    pub fn ended(&self, error: &FetchError) {
        match (self.partial.take_failure(), error) {
            (Some(failure), _) => self.problem(&failure),
            (None, FetchError::Ended(Outcome::SourceChanged | Outcome::NotHere | Outcome::Gone)) => {
                self.receiving.lost(self.wanted.entry);
                return drop(self.state().permit.take());
            }
            // Its sender told why.
            (None, FetchError::Abandoned) => {}
            (None, error) => self.receiving.fetch_problem(&self.wanted.shown, error),
        }
        self.drop_it();
    }

    /// An empty file needs nobody to bring it.
    pub fn make_empty(&self) {
        self.write_whole(&[], None);
    }

    /// Its content came with its name, from `source`. False: it is not what it is called, or could not
    /// be written.
    pub fn take_content(&self, oid: &Oid, content: &[u8], source: &SourceId) -> bool {
        if content.len() as u64 != self.size() || Oid::of(content) != *oid {
            let (source_name, what) = (source.clone(), CheckError::WrongBytes);
            self.ended(&FetchError::Bad { source_name, what });
            return false;
        }
        // It is of one piece, whose value is the object's own.
        self.write_whole(content, (self.size() >= LEAST_INDEXED).then(|| (*oid, vec![*oid.digest()])))
    }

    fn write_whole(&self, content: &[u8], known: Option<(Oid, Vec<Value>)>) -> bool {
        let write = || {
            self.receiving.note_staging()?;
            let (destination, sparse) = (&self.receiving.placing()?.destination, self.state().is_sparse);
            let staged = destination.stage_content_for(&self.wanted.path, content, sparse)?;
            self.finish(staged, known)
        };
        write().map_err(|error| self.fail(&error)).is_ok()
    }

    /// Copies it from where it is on this machine.
    pub fn copy_from(&self, file: &std::fs::File, seen: &Stamp) -> Result<(), FileError> {
        let staged = self.fresh(seen.size)?;
        if let Err(error) = staged.body().copy_from(file, seen.size, self.receiving.options.sparse) {
            // Nobody goes on with it, and the room may be what others lack.
            staged.discard()?;
            return Err(error);
        }
        let path = Path::new(OsStr::from_bytes(&self.wanted.shown));
        let after = Stamp::of(file).map_err(|error| FileError::new("read", path, error))?;
        if after != *seen {
            staged.discard()?;
            return Err(FileError::changed("read", path, "written to while it was copied"));
        }
        self.receiving.account.count(|counts| counts.literal += seen.size);
        self.finish(staged, None)
    }

    /// A new temporary, of which nothing is kept if the copy is interrupted.
    fn fresh(&self, size: u64) -> Result<Staged, FileError> {
        self.receiving.note_staging()?;
        self.receiving.placing()?.destination.stage_file_for(&self.wanted.path, size)
    }

    /// Names what an interruption leaves of it: the same file at the same place goes on.
    fn key(&self) -> Oid {
        let FileState { size, modified: Time { seconds, nanos }, .. } = *self.state();
        let state = [&seconds.to_le_bytes()[..], &nanos.to_le_bytes(), &size.to_le_bytes()].concat();
        Oid::of(&[self.wanted.path.as_bytes(), b"\0", &state].concat())
    }

    /// It takes its name, which may have to wait. `content` is what the index is told.
    fn finish(&self, staged: Staged, content: Option<(Oid, Vec<Value>)>) -> Result<(), FileError> {
        let FileState { size, modified, .. } = *self.state();
        let metadata = Metadata { modified, ..self.wanted.metadata.clone() };
        if let Some((position, in_the_way)) = &self.wanted.room {
            return self.put_off(staged, &metadata, position.clone(), *in_the_way);
        }
        let note = Note {
            entry: self.wanted.entry,
            shown: self.wanted.shown.clone(),
            size,
            modified,
            permit: self.state().permit.take(),
        };
        // What was not there when it was looked at is somebody else's, or another entry's.
        let overwrite = if self.wanted.replaces { Overwrite::ReplaceAny } else { Overwrite::Never };
        let placing = self.receiving.placing()?;
        let backup = (self.wanted.replaces && self.receiving.options.backup).then(|| {
            let (receiving, path) = (Arc::clone(&self.receiving), self.wanted.path.clone());
            BeforeNaming::new(move || receiving.backups().keep(&path).map(drop))
        });
        let named = placing.commit(staged, &self.wanted.path, &metadata, overwrite, content, backup, note)?;
        self.receiving.named(named);
        // It may be the last one that waits for its name.
        self.receiving.permits.move_on();
        Ok(())
    }

    /// It is complete, but a directory has its name.
    fn put_off(
        &self,
        staged: Staged,
        metadata: &Metadata,
        position: Position,
        in_the_way: InTheWay,
    ) -> Result<(), FileError> {
        let file = StagedFile { temp: staged.name().to_owned(), size: self.size() };
        self.receiving.kept.put_off(&RoomRecord {
            position,
            in_the_way: in_the_way.into(),
            entry: self.wanted.entry,
            metadata: metadata.into(),
            replacement: Some(Replacement::File(file)),
        })?;
        drop(self.state().permit.take());
        Ok(())
    }
}

#[cfg(test)]
pub mod tests {
    use towpath_files::{Destination, RelPath};
    use towpath_store::DiskStore;

    use super::*;
    use crate::decide::Changes;
    use crate::events::events;
    use towpath_api::copy::CopyOptions;

    /// A file of so many bytes that is to be written below `home`, as an entry of the sender's.
    pub fn file_of(home: &Path, entry: u64, size: u64) -> Arc<CopyFile> {
        changed_file(home, entry, size, None)
    }

    /// The same, where a file lies in its place.
    pub fn changed_file(home: &Path, entry: u64, size: u64, old: Option<Stamp>) -> Arc<CopyFile> {
        let to = home.join("to");
        std::fs::create_dir_all(&to).unwrap();
        let store = DiskStore::open(&home.join("state"), &home.join("data")).unwrap();
        let (told, _keep) = events(crate::host::plain);
        let resume = home.join("resume");
        let receiving = Receiving::new(CopyOptions::default(), Arc::new(store), resume, told, false, None);
        let destination = Destination::open(&to, receiving.write_options()).unwrap();
        receiving.open(destination, None, &Oid::of(b"key")).unwrap();
        let modified = Time { seconds: 1, nanos: 0 };
        let wanted = Wanted {
            entry,
            path: RelPath::root().join(b"file").unwrap(),
            shown: b"file".to_vec(),
            metadata: Metadata { modified, ..Metadata::default() },
            size,
            old,
            replaces: old.is_some(),
            room: None,
            compare: None,
            changes: Changes::default(),
            located: None,
        };
        let permit = receiving.permits.try_take(0).unwrap();
        CopyFile::new(&receiving, wanted, permit)
    }

    /// What a sender says, how long it says it is, and whether it ends up in the file.
    fn take(content: &[u8], named: &[u8], size: u64) -> Option<Vec<u8>> {
        let home = tempfile::tempdir().unwrap();
        let file = file_of(home.path(), 1, size);
        let receiving = Arc::clone(&file.receiving);
        let is_taken = file.take_content(&Oid::of(named), content, &SourceId::other("sender", None));
        receiving.named(receiving.placing().unwrap().flush());
        assert_eq!(receiving.permits.taken(), 0, "it keeps no place, however it ended");
        let written = std::fs::read(home.path().join("to/file")).ok();
        assert_eq!(written.is_some(), is_taken);
        written
    }

    #[test]
    fn content_that_comes_with_its_name_is_written_only_if_it_is_what_it_is_called() {
        assert_eq!(take(b"little", b"little", 6).as_deref(), Some(&b"little"[..]));
        assert_eq!(take(b"other!", b"little", 6), None, "other bytes");
        assert_eq!(take(b"little", b"little", 7), None, "another length than was said");
    }
}
