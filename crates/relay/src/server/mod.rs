//! A relay: guests and their tasks around [`RelayTable`](crate::table::RelayTable), which decides.
//!
//! Each connection has one task. Once two are joined, each has the other's sending half, and passes on what its own guest
//! sends. So a slow guest holds up the other one by TCP's own means, and no third.

mod attending;
mod desk;
mod forwarding;
mod listening;

use std::net::IpAddr;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use towpath_content::lock::lock;
use towpath_link::Connection;

use crate::table::{RelayRules, TableCounts};
use attending::Stay;
use desk::RelayShared;
pub use listening::RelayListening;

/// A relay. Clones are the same relay.
#[derive(Clone)]
pub struct RelayServer {
    shared: Arc<RelayShared>,
}

impl RelayServer {
    /// A relay with these rules, without connections.
    pub fn new(rules: RelayRules) -> Self {
        Self { shared: Arc::new(RelayShared::new(rules)) }
    }

    /// Serves a connection that speaks [`crate::RELAY_PROTOCOL`] and came from `remote`, until it or `token` ends.
    pub async fn serve(&self, connection: Connection, remote: IpAddr, token: CancellationToken) {
        let peer = connection.peer;
        match attending::attend(&self.shared, connection, remote, token).await {
            Stay::Dismissed(why) => {
                tracing::debug!(%remote, peer = %peer.short(), %why, "a guest was sent away")
            }
            stay => tracing::debug!(%remote, peer = %peer.short(), ?stay, "a guest left"),
        }
    }

    /// Counts of its guests.
    pub fn counts(&self) -> TableCounts {
        lock(&self.shared.desk).counts()
    }
}
