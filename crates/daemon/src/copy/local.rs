//! Files from this machine's own disk: the whole copy within one process, nothing hashed, the
//! bytes moved by the kernel where it can.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;
use towpath_api::ApiError;
use towpath_files::{FileError, Stamp};
use towpath_store::hash_open_file;

use super::file::CopyFile;
use super::source::Located;
use super::supply::Supplier;
use super::talk::{Events, failed_at};

/// Threads that copy.
const WORKERS: usize = 4;
/// Files that wait for one of them.
const WAITING: usize = 256;

/// Copies files on threads of its own.
pub struct LocalSupplier {
    queue: mpsc::Sender<Arc<CopyFile>>,
    /// What is removed at the source once it is in place: files asked for, by entry.
    remove: Option<Mutex<std::collections::HashMap<u64, Located>>>,
    events: Events,
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
        Arc::new(Self { queue, remove: remove_sources.then(Mutex::default), events })
    }

    /// Notes where an entry is, in case it is to be removed.
    pub fn note(&self, entry: u64, located: &Located) {
        if let Some(remove) = &self.remove {
            remove.lock().unwrap_or_else(PoisonError::into_inner).insert(entry, located.clone());
        }
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

    fn settled(&self, entry: u64, is_placed: bool) {
        let Some(remove) = &self.remove else { return };
        let located = remove.lock().unwrap_or_else(PoisonError::into_inner).remove(&entry);
        if let Some(located) = located.filter(|_| is_placed)
            && let Err(error) = located.remove()
        {
            self.events.failure(failed_at(&located.whole_path(), &error));
        }
    }

    fn push(&self) -> Result<(), ApiError> {
        Ok(())
    }
}

fn copy(file: &CopyFile) {
    let Some(located) = &file.wanted().located else { return file.drop_it() };
    if let Err(error) = try_copy(file, located) {
        file.fail(&error);
    }
}

fn try_copy(file: &CopyFile, located: &Located) -> Result<(), FileError> {
    let path = located.whole_path();
    let source = located.open()?;
    let seen = Stamp::of(&source).map_err(|error| FileError::new("open", &path, error))?;
    file.learn(seen.size, seen.modified);
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
    file.copy_from(&source, &seen)
}
