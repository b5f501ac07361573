//! Sessions of applications: what is put under one stays as long as its application lives.
//!
//! A session is an open connection (or, in process, a guard). When it ends, by request or because
//! the application died, its leases end and its open puts are given up. What was put stays as
//! cache.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard};

use towpath_api::{ApiError, ErrorKind};
use towpath_store::Holder;

use towpath_content::lock::lock;

/// A session's name.
pub(crate) type Id = [u8; 16];

/// The sessions that are open.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<HashSet<Id>>);

impl Sessions {
    pub(crate) fn lock(&self) -> MutexGuard<'_, HashSet<Id>> {
        lock(&self.0)
    }

    /// Number of open sessions.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Holder of a put that names `session`; without one it is pinned.
    pub(crate) fn holder(&self, session: Option<&str>) -> Result<Holder, ApiError> {
        let Some(text) = session else { return Ok(Holder::Pinned) };
        let id = parse(text).filter(|id| self.lock().contains(id)).ok_or_else(|| {
            let message = "there is no such session, or it has ended";
            ApiError::new(ErrorKind::NotFound, message)
                .hint("open one with POST /v1/sessions and keep it open")
        })?;
        Ok(Holder::Session(id))
    }

    /// True if `holder` can still hold something.
    pub(crate) fn is_alive(&self, holder: &Holder) -> bool {
        match holder {
            Holder::Pinned => true,
            Holder::Session(id) => self.lock().contains(id),
        }
    }
}

fn parse(text: &str) -> Option<Id> {
    let bytes = towpath_content::node_id::unhex(&format!("{text}{}", "0".repeat(32)))?;
    bytes[..16].try_into().ok()
}
