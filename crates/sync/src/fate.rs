//! What became of a file that was asked for, and who is told.

use towpath_files::Stamp;

/// What became of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is in place and on disk.
    Placed,
    /// It is given up.
    Dropped,
    /// Its source could not be read to the end: only its sender can tell why.
    Lost,
    /// What is in its place is the same. It may be the very same file, reached by another way, so
    /// this is what it looks like.
    Unchanged(Stamp),
}

/// Is told what became of files, on any thread.
pub trait Settling: Send + Sync {
    /// A file is done with; must not block.
    fn settled(&self, entry: u64, fate: Fate);
}
