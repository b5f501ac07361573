//! The guard of an open session: when it goes, what the session held is given up.

use std::sync::Arc;
use towpath_store::Leases;

use towpath_api::ApiError;
use towpath_content::node_id::hex;

use crate::parts;
use crate::sessions::Id;
use crate::state::Service;
use towpath_peer_server::fresh::random;

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

    /// Name by which puts refer to it.
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
            parts::end_session(&service, &id);
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
