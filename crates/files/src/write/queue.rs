//! Committed files wait here for one sync that serves many of them, and take their names after it.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use super::Overwrite;
use super::body::FileBody;
use super::staging::Staging;
use super::tree::WrittenTree;
use crate::error::FileError;
use crate::metadata::Lacking;
use crate::path::RelPath;
use crate::stamp::Stamp;

/// Limits at which a commit flushes by itself. Larger limits mean fewer syncs, more memory for names, and
/// more that an interruption leaves unnamed (though not lost).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlushLimits {
    /// Files that wait. Default 4096.
    pub files: usize,
    /// Bytes of the files that wait. Default 256 MiB.
    pub bytes: u64,
    /// Directories that the files that wait go to. Default 512.
    pub dirs: usize,
}

impl Default for FlushLimits {
    fn default() -> Self {
        Self { files: 4096, bytes: 256 << 20, dirs: 512 }
    }
}

/// Result of a committed file at a flush.
#[derive(Debug)]
pub struct Placed {
    /// Its path in the tree.
    pub path: RelPath,
    /// The name its temporary had. On an error the temporary is still there under this name, for
    /// [`StagingArea::reopen`](super::StagingArea::reopen) and another try.
    pub temp: String,
    /// The stamp it has under its final name.
    pub outcome: Result<Stamp, FileError>,
    /// Error of metadata that could not be set: owner, attributes or ACL.
    pub lacking: Option<FileError>,
}

/// Done right before a file takes its name, such as moving what has the name out of the way. If it
/// fails the file gets no name.
pub struct BeforeNaming(Box<dyn FnOnce() -> Result<(), FileError> + Send>);

impl BeforeNaming {
    /// Calls `work` then.
    pub fn new(work: impl FnOnce() -> Result<(), FileError> + Send + 'static) -> Self {
        Self(Box::new(work))
    }

    /// Does it, if there is something to do.
    pub(super) fn run(this: Option<Self>) -> Result<(), FileError> {
        this.map_or(Ok(()), |Self(work)| work())
    }
}

/// Way in which something that is made takes its name.
#[derive(Debug, Default)]
pub struct Naming {
    pub(super) overwrite: Overwrite,
    pub(super) before: Option<BeforeNaming>,
}

impl Naming {
    /// A name that is free once `before` is done.
    pub fn after(before: BeforeNaming) -> Self {
        Self { overwrite: Overwrite::Never, before: Some(before) }
    }
}

impl From<Overwrite> for Naming {
    fn from(overwrite: Overwrite) -> Self {
        Self { overwrite, before: None }
    }
}

impl fmt::Debug for BeforeNaming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BeforeNaming")
    }
}

/// A file whose bytes are complete.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) temp: String,
    pub(super) staging: Arc<Staging>,
    pub(super) path: RelPath,
    pub(super) seen: Stamp,
    pub(super) overwrite: Overwrite,
    pub(super) lacking: Option<Lacking>,
    pub(super) before: Option<BeforeNaming>,
}

/// Files that wait.
#[derive(Debug, Default)]
struct CommitQueue {
    files: Vec<Queued>,
    bytes: u64,
    dirs: HashSet<RelPath>,
    /// The one file that waits, still open, so that it can be synced alone.
    only: Option<FileBody>,
}

impl CommitQueue {
    /// Appends a file and says whether it is time to flush.
    fn push(&mut self, file: Queued, body: FileBody, limits: &FlushLimits) -> bool {
        self.only = self.files.is_empty().then_some(body);
        self.bytes = self.bytes.saturating_add(file.seen.size);
        self.dirs.extend(file.path.split().map(|(parent, _)| parent));
        self.files.push(file);
        self.files.len() >= limits.files || self.bytes >= limits.bytes || self.dirs.len() >= limits.dirs
    }
}

/// The commits of a tree.
#[derive(Debug)]
pub(super) struct Commits {
    queue: Mutex<CommitQueue>,
    limits: FlushLimits,
}

impl Commits {
    /// None yet; they are to be flushed within `limits`.
    pub(super) fn new(limits: FlushLimits) -> Self {
        Self { queue: Mutex::default(), limits }
    }

    /// Appends a file and says whether it is time to flush.
    pub(super) fn push(&self, file: Queued, body: FileBody) -> bool {
        self.queue().push(file, body, &self.limits)
    }

    /// True if no file waits.
    pub(super) fn is_empty(&self) -> bool {
        self.queue().files.is_empty()
    }

    /// True if a file that waits goes directly into `dir`.
    pub(super) fn concerns(&self, dir: &RelPath) -> bool {
        self.queue().dirs.contains(dir)
    }

    /// Syncs what waits and gives it its names in `tree`.
    pub(super) fn flush(&self, tree: &WrittenTree) -> Vec<Placed> {
        let queue = std::mem::take(&mut *self.queue());
        if queue.files.is_empty() {
            return Vec::new();
        }
        let synced = match &queue.only {
            Some(body) => body.sync_data(),
            None => tree.staging.sync(),
        };
        tracing::debug!(files = queue.files.len(), bytes = queue.bytes, ok = synced.is_ok(), "flush");
        queue.files.into_iter().map(|file| settle(tree, file, synced)).collect()
    }

    fn queue(&self) -> MutexGuard<'_, CommitQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn settle(tree: &WrittenTree, mut file: Queued, synced: Result<(), Errno>) -> Placed {
    let shown = file.path.below(tree.path());
    let synced = synced.map_err(|e| FileError::new("sync", &shown, e));
    let outcome = synced.and_then(|()| name_file(tree, &mut file));
    let lacking = file.lacking.map(|lacking| lacking.of(&shown));
    Placed { path: file.path, temp: file.temp, outcome, lacking }
}

fn name_file(tree: &WrittenTree, file: &mut Queued) -> Result<Stamp, FileError> {
    BeforeNaming::run(file.before.take())?;
    let stamp = tree.move_in(&file.staging, &file.temp, &file.path, file.overwrite)?;
    if stamp.same_file(&file.seen) {
        return Ok(stamp);
    }
    let path = file.path.below(tree.path());
    Err(FileError::changed("rename", &path, "replaced right after it got its name"))
}
