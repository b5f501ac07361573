//! Errors of a store, one variant per different next step.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use towpath_byte_store::ByteStoreError;

/// Error of a store that could not do what was asked.
#[derive(Debug, Error)]
pub enum StoreError {
    /// No such object or chunk here. Ask another source.
    #[error("not here")]
    NotHere,
    /// The object is known but this piece is not here yet. Wait for a change and ask again.
    #[error("not here yet")]
    NotYet,
    /// The file that the object refers to was changed, replaced or removed since it was put; the
    /// entry is forgotten. Nobody is to blame.
    #[error("source changed: {path}")]
    SourceChanged {
        /// The file.
        path: PathBuf,
    },
    /// Bytes that the store itself owns no longer match their hash. The entry is forgotten.
    #[error("damaged in the store: {what}")]
    Corrupt {
        /// Damaged thing.
        what: String,
    },
    /// The request makes no sense: a run outside the object, data for a put that is not open.
    #[error("refused: {why}")]
    Refused {
        /// Fault of it.
        why: &'static str,
    },
    /// The place of the store's own bytes failed; its error tells what to do next.
    #[error(transparent)]
    Bytes(ByteStoreError),
    /// The disk or its index failed.
    #[error("{what}: {source}")]
    Io {
        /// Attempted step, with its path.
        what: String,
        /// Error of the system.
        source: io::Error,
    },
}

impl StoreError {
    /// Reports what the system said while `doing` something with `path`.
    pub(crate) fn io(doing: &str, path: &Path, source: io::Error) -> Self {
        Self::Io { what: format!("{doing} {}", path.display()), source }
    }

    /// True if the object cannot be had from where it was tried, but perhaps from elsewhere.
    pub(crate) const fn is_loss(&self) -> bool {
        matches!(self, Self::SourceChanged { .. } | Self::Corrupt { .. })
    }
}
