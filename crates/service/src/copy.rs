//! `tow cp` and `tow sync`, which the crate `towpath-sync` does, with this service's key, store and
//! configuration.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use towpath_api::ApiError;
use towpath_api::copy::{CopyEvent, CopyRequest, CopySummary};
use towpath_ssh::ciphers::AesHosts;
pub use towpath_sync::{CopyError, threads_ended};
use towpath_sync::{Host, Writes};

use crate::state::Service;
use towpath_config::Switch;
use towpath_confinement::{Places, Writable};
use towpath_words::copies;

/// As [`towpath_sync::run`].
pub async fn run(
    service: &Service,
    request: CopyRequest,
    person: mpsc::Sender<CopyEvent>,
) -> Result<CopySummary, ApiError> {
    towpath_sync::run(&host(service), request, person).await.map_err(|error| copies::copy(&error))
}

/// As [`towpath_sync::serve_stdio`]; `begin` gets what the copy may write with what this service does.
pub async fn serve_stdio(
    service: &Service,
    begin: impl FnOnce(&Writable) -> Result<Handle, CopyError>,
) -> Result<(), ApiError> {
    let (places, host) = (Places::of(&service.home), host(service));
    let serving = towpath_sync::serve_stdio(&host, |writes| begin(&writable(&places, writes)));
    serving.await.map_err(|error| copies::copy(&error))
}

/// Paths that one side of a copy may write.
fn writable(places: &Places, writes: &Writes) -> Writable {
    match writes {
        Writes::Sender { removed } => Writable::of_sender(places, removed),
        Writes::Receiver { destination, behind, backups } => {
            let writable = Writable::of_receiver(places, destination.as_deref(), backups.as_deref());
            behind.iter().cloned().fold(writable, Writable::with_folder)
        }
    }
}

fn host(service: &Service) -> Arc<Host> {
    let config = service.config();
    Arc::new(Host {
        identity: service.identity.clone(),
        store: Arc::clone(&service.store),
        processors: service.processors().clone(),
        plugins: config.plugins.clone(),
        wishes: config.processors.wishes(),
        resume: service.home.resume(),
        shares: service.home.shares(),
        aes_hosts: AesHosts::new(service.home.aes_hosts()),
        bases_beyond: config.general.bases_beyond == Switch::On,
        words: copies::entry,
    })
}
