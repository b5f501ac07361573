//! Fetches of a peer from this side over one connection, for whoever watches: by which root, how many
//! bytes went, and what was wrong with it here.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use towpath_content::Oid;
use towpath_transfer::{FetchError, Outcome};

/// Fetches over one connection so far.
#[derive(Debug, Default)]
pub struct Served {
    root: Mutex<Option<Oid>>,
    bytes: AtomicU64,
    last_error: Mutex<Option<String>>,
}

impl Served {
    /// The root by which data were asked for last; none if none were.
    pub fn root(&self) -> Option<Oid> {
        *self.root.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of objects on their way, as they are sent.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Reason why something of it could not be sent.
    pub fn last_error(&self) -> Option<String> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn requested(&self, root: &Oid) {
        *self.root.lock().unwrap_or_else(PoisonError::into_inner) = Some(*root);
    }

    pub(super) fn sent(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Only what is wrong for good.
    pub(super) fn refused(&self, outcome: &Outcome) {
        if matches!(outcome, Outcome::SourceChanged | Outcome::Refused(_)) {
            let mut last_error = self.last_error.lock().unwrap_or_else(PoisonError::into_inner);
            last_error.get_or_insert_with(|| FetchError::Ended(outcome.clone()).to_string());
        }
    }
}
