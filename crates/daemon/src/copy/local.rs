//! Files from this machine's own disk: the whole copy within one process, nothing hashed, the
//! bytes moved by the kernel where it can.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;
use towpath_api::ApiError;
use towpath_files::{FileError, Stamp};
use towpath_store::hash_open_file;

use super::file::CopyFile;
use super::removal::Removal;
use super::source::Located;
use super::supply::{Fate, Supplier};
use super::talk::Events;

/// Threads that copy.
const WORKERS: usize = 4;
/// How often a file is read that is written to meanwhile.
const TRIES: usize = 3;
/// Files that wait for one of them.
const WAITING: usize = 256;

/// Copies files on threads of its own.
pub struct LocalSupplier {
    queue: mpsc::Sender<Arc<CopyFile>>,
    /// What is removed at the source once it is in place: files asked for, by entry.
    remove: Option<Mutex<HashMap<u64, Located>>>,
    removal: Removal,
}

impl LocalSupplier {
    /// Starts its threads; must be called within a runtime. `remove_sources`: a file is removed
    /// once it is in place.
    pub fn start(events: Events, remove_sources: bool) -> Arc<Self> {
        let (queue, inbox) = mpsc::channel(WAITING);
        let inbox = Arc::new(Mutex::new(inbox));
        for _ in 0..WORKERS {
            let inbox: Arc<Mutex<mpsc::Receiver<Arc<CopyFile>>>> = Arc::clone(&inbox);
            tokio::task::spawn_blocking(move || {
                loop {
                    let next = inbox.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
                    let Some(file) = next else { return };
                    copy(&file);
                }
            });
        }
        Arc::new(Self { queue, remove: remove_sources.then(Mutex::default), removal: Removal::new(events) })
    }

    /// Notes where an entry is, in case it is to be removed.
    pub fn note(&self, entry: u64, located: &Located) {
        if let Some(remove) = &self.remove {
            remove.lock().unwrap_or_else(PoisonError::into_inner).insert(entry, located.clone());
        }
    }

    /// The source has been read: names that other entries depended on may go.
    pub fn source_is_read(&self) {
        self.removal.source_is_read();
    }
}

impl Supplier for LocalSupplier {
    fn bring(&self, file: Arc<CopyFile>) -> Result<(), ApiError> {
        if let Err(mpsc::error::SendError(file)) = self.queue.blocking_send(file) {
            file.drop_it();
        }
        Ok(())
    }

    fn considered(&self, _entry: u64) -> Result<(), ApiError> {
        Ok(())
    }

    fn settled(&self, entry: u64, fate: Fate) {
        let Some(remove) = &self.remove else { return };
        let located = remove.lock().unwrap_or_else(PoisonError::into_inner).remove(&entry);
        if let Some(located) = located.filter(|located| located.may_go(&fate)) {
            self.removal.remove(located);
        }
    }

    fn walk_is_over(&self) -> Result<(), ApiError> {
        Ok(())
    }

    fn push(&self) -> Result<(), ApiError> {
        Ok(())
    }
}

fn copy(file: &CopyFile) {
    let Some(located) = &file.wanted().located else { return file.drop_it() };
    let mut result = begin(file, located);
    // Whoever writes to it may be done by now.
    for _ in 1..TRIES {
        if !matches!(result, Err(FileError::Changed { .. })) {
            break;
        }
        result = once(file, located);
    }
    if let Err(error) = result {
        file.fail(&error);
    }
}

/// The first try, which also finds out whether there is anything to do.
fn begin(file: &CopyFile, located: &Located) -> Result<(), FileError> {
    let path = located.whole_path();
    let source = located.open()?;
    if file.wanted().compare.is_some() {
        let hashed = hash_open_file(&source, &path)
            .map_err(|error| FileError::new("read", &path, std::io::Error::other(error.to_string())))?;
        if file.is_there(&hashed.oid) {
            file.is_same();
            return Ok(());
        }
        if !file.is_different() {
            return Ok(());
        }
    }
    once(file, located)
}

fn once(file: &CopyFile, located: &Located) -> Result<(), FileError> {
    let source = located.open()?;
    let seen = Stamp::of(&source).map_err(|error| FileError::new("open", &located.whole_path(), error))?;
    file.learn(seen.size, seen.modified);
    file.copy_from(&source, &seen)
}
