//! Result of a file that was requested, and who gets it.

use towpath_files::Stamp;

/// Result of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileResult {
    /// It is in place and on disk.
    Placed,
    /// It is given up.
    Dropped,
    /// Its source could not be read to the end: only its sender can tell why.
    Lost,
    /// The file in its place is the same. It may be the very same file, reached by another way, so
    /// this is its stamp.
    Unchanged(Stamp),
}

/// Receiver of files' results, on any thread.
pub trait Settling: Send + Sync {
    /// A file is done with; must not block.
    fn settled(&self, entry: u64, result: FileResult);
}
