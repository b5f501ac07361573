//! The seam between the receiving side of a copy and what brings it the bytes of files: this
//! machine's own disk, or a sender at the other end of a connection.

use std::sync::Arc;

use crate::error::CopyError;

use super::file::CopyFile;
use super::file_result::Settling;

/// Brings files. Called from the merging thread.
pub trait Supplier: Settling {
    /// Begins to bring a file, which ends by one of [`CopyFile`]'s methods. May block.
    fn bring(&self, file: Arc<CopyFile>) -> Result<(), CopyError>;

    /// Whether it is to be asked for empty files too: something looks at every file that comes.
    fn inspects(&self) -> bool;

    /// All entries below this one have been looked at.
    fn considered(&self, entry: u64) -> Result<(), CopyError>;

    /// The walk is over: it is known what only the destination has.
    fn walk_is_over(&self) -> Result<(), CopyError>;

    /// Files that wait until it is known whether anything is removed from the destination.
    fn waiting(&self) -> usize {
        0
    }

    /// Begins to bring those, which may take the names of files that are about to be removed if `may_rename`.
    fn bring_waiting(&self, _may_rename: bool) -> Result<(), CopyError> {
        Ok(())
    }

    /// False once a file that was brought is not in place: then nothing is removed for want of it.
    fn is_complete(&self) -> bool {
        true
    }

    /// No more is asked for at the moment: what was only noted is to be sent.
    fn push(&self) -> Result<(), CopyError>;
}
