//! Sessions of applications: what is put under one stays as long as its application lives.
//!
//! A session is an open connection (or, in process, a guard). When it ends, by request or because
//! the application died, its leases end and its open puts are given up. What was put stays as
//! cache.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard};

use towpath_api::{ApiError, ErrorKind};
use towpath_content::node_id::hex;
use towpath_store::{Holder, Store};

use crate::open_puts;
use crate::put::random;
use crate::service::Service;
use towpath_content::lock::lock;

/// A session's name.
pub(crate) type Id = [u8; 16];

/// The sessions that are open.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<HashSet<Id>>);

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, HashSet<Id>> {
        lock(&self.0)
    }

    /// How many are open.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Who holds a put that names `session`; without one it is pinned.
    pub(crate) fn holder(&self, session: Option<&str>) -> Result<Holder, ApiError> {
        let Some(text) = session else { return Ok(Holder::Pinned) };
        let id = parse(text).filter(|id| self.lock().contains(id)).ok_or_else(|| {
            let message = "there is no such session, or it has ended";
            ApiError::new(ErrorKind::NotFound, message)
                .hint("open one with POST /v1/sessions and keep it open")
        })?;
        Ok(Holder::Session(id))
    }

    /// Whether `holder` can still hold something.
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

/// An open session; it ends when this is dropped.
pub(crate) struct Open {
    service: Arc<Service>,
    id: Id,
}

impl Open {
    /// Begins a session.
    pub(crate) fn begin(service: &Arc<Service>) -> Result<Self, ApiError> {
        let id = random()?;
        service.sessions.lock().insert(id);
        Ok(Self { service: Arc::clone(service), id })
    }

    /// What puts name it by.
    pub(crate) fn name(&self) -> String {
        hex(&self.id)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // Before its leases, so that nothing is put under it any more.
        self.service.sessions.lock().remove(&self.id);
        let (service, id) = (Arc::clone(&self.service), self.id);
        let end = move || {
            open_puts::end_session(&service, &id);
            if let Err(error) = service.store.end_session(&id) {
                tracing::warn!(%error, "leases of a session that ended stay until the next start");
            }
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(end)),
            Err(_) => end(),
        }
    }
}
