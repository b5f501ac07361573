//! `tow cp` and `tow sync`, which the crate `towpath-sync` does, with this service's key, store and
//! configuration.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use towpath_api::ApiError;
use towpath_api::copy::{CopyEvent, CopyRequest, CopySummary};
use towpath_sync::Host;
pub use towpath_sync::threads_ended;

use crate::config::Switch;
use crate::confinement::{Places, Writable};
use crate::state::Service;

/// As [`towpath_sync::run`].
pub async fn run(
    service: &Service,
    request: CopyRequest,
    person: mpsc::Sender<CopyEvent>,
) -> Result<CopySummary, ApiError> {
    towpath_sync::run(&host(service), request, person).await
}

/// As [`towpath_sync::serve_stdio`]; `begin` is told what the copy may write with what this service does.
pub async fn serve_stdio(
    service: &Service,
    begin: impl FnOnce(&Writable) -> Result<Handle, ApiError>,
) -> Result<(), ApiError> {
    let places = Places::of(&service.home);
    towpath_sync::serve_stdio(&host(service), |writes| begin(&Writable::of_copy(&places, writes))).await
}

fn host(service: &Service) -> Arc<Host> {
    let config = service.config();
    Arc::new(Host {
        identity: service.identity.clone(),
        store: Arc::clone(&service.store),
        processors: service.processors().clone(),
        wishes: config.processors.wishes(),
        resume: service.home.resume(),
        shares: service.home.shares(),
        bases_beyond: config.general.bases_beyond == Switch::On,
    })
}
