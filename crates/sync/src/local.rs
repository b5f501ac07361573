//! Files from this machine's own disk: the whole copy within one process, nothing hashed, the
//! bytes moved by the kernel where it can.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, RwLock};

use tokio::sync::mpsc;
use towpath_files::{FileError, Stamp};
use towpath_protocol::processors::Processors;
use towpath_store::hash_open_file;
use towpath_transfer::{FetchError, Outcome};

use super::events::{Events, failed_at};
use super::file::CopyFile;
use super::file_result::{FileResult, Settling};
use super::removal::Removal;
use super::source::Located;
use super::supply::Supplier;
use super::threads;
use crate::error::CopyError;
use towpath_content::lock::lock;
use towpath_reuse::candidates::renames::MAX_WAITING;

/// Threads that copy.
const WORKERS: usize = 4;
/// Times that a file is read which is written to meanwhile.
const TRIES: usize = 3;
/// Bytes that inspectors are shown at once.
const INSPECTED: usize = 256 << 10;
/// Files that wait for one of them.
const WAITING: usize = 256;

/// A file to be copied, and whether it may take the name of one that is about to be removed.
type CopyJob = (Arc<CopyFile>, bool);

/// Copies files on threads of its own.
pub struct LocalSupplier {
    queue: mpsc::Sender<CopyJob>,
    /// New files whose bytes may be at the destination, in a file that is about to be removed.
    waiting: Mutex<Vec<Arc<CopyFile>>>,
    /// Files to remove at the source once they are in place: those requested, by entry.
    remove: Option<Mutex<HashMap<u64, Located>>>,
    removal: Removal,
    inspects: bool,
}

impl LocalSupplier {
    /// Starts its threads; must be called within a runtime. `remove_sources`: a file is removed
    /// once it is in place. What is copied passes `processors`.
    pub fn start(events: Events, remove_sources: bool, processors: &Processors) -> Arc<Self> {
        let (queue, inbox) = mpsc::channel(WAITING);
        let (inbox, turns) = (Arc::new(Mutex::new(inbox)), Arc::new(RwLock::new(())));
        for _ in 0..WORKERS {
            let inbox: Arc<Mutex<mpsc::Receiver<CopyJob>>> = Arc::clone(&inbox);
            let (events, processors, turns) = (events.clone(), processors.clone(), Arc::clone(&turns));
            threads::spawn(move || {
                loop {
                    let next = lock(&inbox).blocking_recv();
                    let Some((file, may_rename)) = next else { return };
                    match file.receiving().check().is_err() {
                        true => file.drop_it(),
                        false if may_rename && rename(&file) => {}
                        false => copy(&file, &processors, &events, &turns),
                    }
                }
            });
        }
        Arc::new(Self {
            queue,
            waiting: Mutex::default(),
            remove: remove_sources.then(Mutex::default),
            removal: Removal::new(events),
            inspects: processors.inspect_any(),
        })
    }

    /// Notes where an entry is, in case it is to be removed.
    pub fn note(&self, entry: u64, located: &Located) {
        if let Some(remove) = &self.remove {
            lock(remove).insert(entry, located.clone());
        }
    }

    fn queue(&self, job: CopyJob) {
        if let Err(mpsc::error::SendError((file, _))) = self.queue.blocking_send(job) {
            file.drop_it();
        }
    }

    /// The source has been read: names that other entries depended on may go.
    pub fn source_is_read(&self) {
        self.removal.source_is_read();
    }
}

impl Settling for LocalSupplier {
    fn settled(&self, entry: u64, result: FileResult) {
        let Some(remove) = &self.remove else { return };
        let located = lock(remove).remove(&entry);
        if let Some(located) = located.filter(|located| located.may_go(&result)) {
            self.removal.remove(located);
        }
    }
}

impl Supplier for LocalSupplier {
    fn bring(&self, file: Arc<CopyFile>) -> Result<(), CopyError> {
        let mut waiting = lock(&self.waiting);
        if !self.inspects && file.old_names().may_be() && waiting.len() < MAX_WAITING {
            waiting.push(file);
            return Ok(());
        }
        drop(waiting);
        self.queue((file, false));
        Ok(())
    }

    fn inspects(&self) -> bool {
        self.inspects
    }

    fn considered(&self, _entry: u64) -> Result<(), CopyError> {
        Ok(())
    }

    fn walk_is_over(&self) -> Result<(), CopyError> {
        let all = std::mem::take(&mut *lock(&self.waiting));
        let (waiting, new) = all.into_iter().partition(|file| file.old_names().are_known());
        *lock(&self.waiting) = waiting;
        new.into_iter().for_each(|file| self.queue((file, false)));
        Ok(())
    }

    fn waiting(&self) -> usize {
        lock(&self.waiting).len()
    }

    fn bring_waiting(&self, may_rename: bool) -> Result<(), CopyError> {
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        waiting.into_iter().for_each(|file| self.queue((file, may_rename)));
        Ok(())
    }

    fn push(&self) -> Result<(), CopyError> {
        Ok(())
    }
}

/// Gives a file of the destination its new name instead of copying it. False: there is none with its bytes, or it
/// can't be had so, and what is in the way is met again when it is copied.
fn rename(file: &CopyFile) -> bool {
    let renamed = || {
        let source = file.wanted().located.as_ref()?.open().ok()?;
        let seen = Stamp::of(&source).ok()?;
        file.learn(seen.size, seen.modified, false);
        file.old_names().take(&source, &seen).ok()
    };
    renamed() == Some(true)
}

/// Copies a file beside others; alone, where there is not room for all of them at once: as many as fit are copied.
fn copy(file: &CopyFile, processors: &Processors, events: &Events, turns: &RwLock<()>) {
    let Some(located) = &file.wanted().located else { return file.drop_it() };
    match beside(file, located, processors, turns) {
        Ok(()) => {}
        Err(FileError::NoSpace { .. }) => alone(file, located, processors, events, turns),
        Err(error) => failed(file, located, events, &error),
    }
}

fn beside(
    file: &CopyFile,
    located: &Located,
    processors: &Processors,
    turns: &RwLock<()>,
) -> Result<(), FileError> {
    let _turn = turns.read();
    let mut result = begin(file, located, processors);
    // A writer of it may be done by now.
    for _ in 1..TRIES {
        if !matches!(result, Err(FileError::Changed { .. })) {
            break;
        }
        result = once(file, located, processors);
    }
    result
}

fn alone(file: &CopyFile, located: &Located, processors: &Processors, events: &Events, turns: &RwLock<()>) {
    let _turn = turns.write();
    if file.receiving().check().is_err() {
        return file.drop_it();
    }
    let Err(error) = once(file, located, processors) else { return };
    failed(file, located, events, &error);
}

fn failed(file: &CopyFile, located: &Located, events: &Events, error: &FileError) {
    match located.open() {
        // The source itself, not something at the destination.
        Err(gone @ FileError::Vanished { .. }) => {
            events.failure(failed_at(&located.whole_path(), &gone));
            file.drop_it();
        }
        _ => file.fail(error),
    }
}

/// The first try, which also finds out whether there is anything to do.
fn begin(file: &CopyFile, located: &Located, processors: &Processors) -> Result<(), FileError> {
    let path = located.whole_path();
    let source = located.open()?;
    if file.wanted().compare.is_some() {
        let hashed = hash_open_file(&source, &path)
            .map_err(|error| FileError::new("read", &path, io::Error::other(error.to_string())))?;
        if !file.is_to_come(&hashed.oid) {
            return Ok(());
        }
    }
    once(file, located, processors)
}

fn once(file: &CopyFile, located: &Located, processors: &Processors) -> Result<(), FileError> {
    let source = located.open()?;
    let seen = Stamp::of(&source).map_err(|error| FileError::new("open", &located.whole_path(), error))?;
    file.learn(seen.size, seen.modified, false);
    if let Err(outcome) = inspect(file, &source, located, processors)? {
        file.ended(&FetchError::Ended(outcome));
        return Ok(());
    }
    file.copy_from(&source, &seen)
}

/// Lets the inspectors look at the whole file, if there are any: then it is read once more. What
/// changes between that and the copy is noticed by the copy.
fn inspect(
    file: &CopyFile,
    source: &File,
    located: &Located,
    processors: &Processors,
) -> Result<Result<(), Outcome>, FileError> {
    if !processors.inspect_any() {
        return Ok(Ok(()));
    }
    let path = located.whole_path();
    let failed = |error| FileError::new("read", &path, error);
    let hashed =
        hash_open_file(source, &path).map_err(|error| failed(io::Error::other(error.to_string())))?;
    let (mut part, mut at) = (vec![0; INSPECTED], 0);
    loop {
        let len = source.read_at(&mut part, at).map_err(failed)?;
        let passes = file.passes(processors, &hashed.oid, at, &part[..len]);
        if len == 0 || passes.is_err() {
            return Ok(passes);
        }
        at += len as u64;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use towpath_content::tree::{Event, Metadata};
    use towpath_files::RelPath;
    use towpath_store::DiskStore;

    use super::*;
    use crate::decide::Changes;
    use crate::events;
    use crate::receiving::Receiving;
    use crate::source::{SourceStep, Sources};
    use crate::wanted::Wanted;
    use towpath_api::copy::CopyOptions;
    use towpath_api::copy::{CopyEvent, FailureKind};

    /// Position of the one file in `dir`.
    fn locate(dir: &std::path::Path) -> Located {
        let mut sources = Sources::open(&[dir.into()], true, &CopyOptions::default()).unwrap();
        let mut found = None;
        let each = &mut |step| {
            if let SourceStep::Walk(Event::Leaf(_), located) = step {
                found = located;
            }
            Ok(())
        };
        sources.read(each).unwrap();
        found.unwrap()
    }

    /// It counted as a failure, and the exit code was 23 where rsync's is 24.
    #[tokio::test]
    async fn a_file_that_vanished_since_the_scan_is_reported_as_vanished() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("source")).unwrap();
        fs::write(at("source/file"), "x").unwrap();
        let located = locate(&at("source"));
        fs::remove_file(at("source/file")).unwrap();

        let store = Arc::new(DiskStore::open(&at("state"), &at("data")).unwrap());
        let (events, reports) = events::events(crate::host::plain);
        let receiving =
            Receiving::new(CopyOptions::default(), store, at("resume"), events.clone(), false, None);
        let wanted = Wanted {
            room: None,
            entry: 2,
            path: RelPath::new([b"file"]).unwrap(),
            shown: b"file".to_vec(),
            metadata: Metadata::default(),
            size: 1,
            old: None,
            replaces: false,
            compare: None,
            changes: Changes::default(),
            located: Some(located),
        };
        copy(
            &CopyFile::new(&receiving, wanted, receiving.permits.try_take(0).unwrap()),
            &Processors::default(),
            &events,
            &RwLock::new(()),
        );
        drop((receiving, events));

        let (person, mut shown) = mpsc::channel(4);
        assert_eq!(reports.show_to(person).await, events::Tally { vanished: 1, ..events::Tally::default() });
        let event = shown.recv().await.unwrap();
        assert!(matches!(event, CopyEvent::Failed { kind: FailureKind::Vanished, .. }), "{event:?}");
    }
}
