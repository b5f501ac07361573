//! The seam between the receiving side of a copy and what brings it the bytes of files: this
//! machine's own disk, or a sender at the other end of a connection.

use std::sync::Arc;

use towpath_api::ApiError;
use towpath_files::Stamp;

use super::file::CopyFile;

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

/// Brings files. Called from the merging thread, but for `settled`.
pub trait Supplier: Send + Sync {
    /// Begins to bring a file, which ends by one of [`CopyFile`]'s methods. May block.
    fn bring(&self, file: Arc<CopyFile>) -> Result<(), ApiError>;

    /// Whether it is to be asked for empty files too: something looks at every file that comes.
    fn inspects(&self) -> bool;

    /// All entries below this one have been looked at.
    fn considered(&self, entry: u64) -> Result<(), ApiError>;

    /// A file is done with; must not block.
    fn settled(&self, entry: u64, fate: Fate);

    /// The walk is over: it is known what only the destination has.
    fn walk_is_over(&self) -> Result<(), ApiError>;

    /// No more is asked for at the moment: what was only noted is to be sent.
    fn push(&self) -> Result<(), ApiError>;
}
