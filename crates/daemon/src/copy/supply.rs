//! The seam between the receiving side of a copy and what brings it the bytes of files: this
//! machine's own disk, or a sender at the other end of a connection.

use std::sync::Arc;

use towpath_api::ApiError;

use super::file::CopyFile;

/// Brings files. Called from the merging thread, but for `settled`.
pub trait Supplier: Send + Sync {
    /// Begins to bring a file, which ends by one of [`CopyFile`]'s methods. May block.
    fn bring(&self, file: Arc<CopyFile>) -> Result<(), ApiError>;

    /// All entries below this one have been looked at.
    fn considered(&self, entry: u64) -> Result<(), ApiError>;

    /// A file is done with; must not block.
    fn settled(&self, entry: u64, is_placed: bool);

    /// No more is asked for at the moment: what was only noted is to be sent.
    fn push(&self) -> Result<(), ApiError>;
}
