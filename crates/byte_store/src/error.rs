//! Errors of byte stores, one variant for each different next step.

use std::error::Error;

use thiserror::Error;

/// Error of a byte store that could not do what was asked. Places are told, credentials never.
#[derive(Debug, Error)]
pub enum ByteStoreError {
    /// There are no bytes of that name. Look elsewhere.
    #[error("not here")]
    NotHere,
    /// The place refuses who asks. Mend its credentials or rights.
    #[error("{place} refuses access: {why}")]
    Denied {
        /// The place.
        place: String,
        /// Its own words.
        why: String,
    },
    /// The place has no room. Make some, or keep less.
    #[error("{place} is full: {why}")]
    Full {
        /// The place.
        place: String,
        /// Its own words.
        why: String,
    },
    /// The place did not answer, or failed each time it was tried. Try again later.
    #[error("{place} can't be reached or fails: {why}")]
    Unreachable {
        /// The place.
        place: String,
        /// Its own words.
        why: String,
    },
    /// The place belongs to another store. Choose another one.
    #[error("{place} belongs to another store")]
    Taken {
        /// The place.
        place: String,
    },
    /// The place does not exist, or nothing shows that it is the right one.
    #[error("{place} is not there: {why}")]
    Missing {
        /// The place.
        place: String,
        /// What was looked for.
        why: String,
    },
    /// The request makes no sense.
    #[error("refused: {why}")]
    Refused {
        /// Fault of it.
        why: &'static str,
    },
    /// The bytes that were to be put could not be read. Nothing is wrong with the place.
    #[error("the bytes to be kept can't be read")]
    Input(#[source] std::io::Error),
    /// Anything else.
    #[error("{what}")]
    Failed {
        /// Attempted step, with its place.
        what: String,
        /// Reason.
        source: Box<dyn Error + Send + Sync>,
    },
}

impl ByteStoreError {
    /// True if another attempt, later, may end well with nothing changed by anybody.
    pub const fn may_pass(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }
}

/// Refusal of a range that is longer than what is read at once, or ends before it begins.
pub const TOO_LONG: ByteStoreError = ByteStoreError::Refused { why: "at most 16 MiB are read at once" };
/// Refusal of a range that the bytes do not have.
pub const OUTSIDE: ByteStoreError = ByteStoreError::Refused { why: "a range outside the bytes" };
