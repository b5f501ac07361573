//! The server: connections of those who have vaults in a folder.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use towpath_link::Connection;

use crate::folder::VaultFolder;
use crate::serving::VaultTalk;

/// Connections at once.
const CONNECTIONS: usize = 256;

/// A server of vaults, for connections that somebody accepts.
#[derive(Debug)]
pub struct VaultServer {
    folder: Arc<VaultFolder>,
    places: Arc<Semaphore>,
}

impl VaultServer {
    /// Serves the vaults of a folder.
    pub fn new(folder: Arc<VaultFolder>) -> Arc<Self> {
        Arc::new(Self { folder, places: Arc::new(Semaphore::new(CONNECTIONS)) })
    }

    /// Serves a client until it goes, or `token` ends everything.
    pub async fn serve(self: Arc<Self>, connection: Connection, token: CancellationToken) {
        let Ok(_place) = Arc::clone(&self.places).try_acquire_owned() else {
            tracing::debug!("a client is sent away: there are too many");
            return;
        };
        let peer = connection.peer;
        let why = tokio::select! {
            why = VaultTalk::run(Arc::clone(&self.folder), connection) => why,
            () = token.cancelled() => "the server is ending",
        };
        tracing::debug!(node = %peer.short(), why, "a client is gone");
    }
}
