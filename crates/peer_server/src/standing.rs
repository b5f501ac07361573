//! The connections of this service with peers, whoever dialled them: transfers may use them, and the other side of those that a
//! transfer dialled may ask there, within the limits that hold for callers.

use std::sync::{Arc, Weak};
use std::time::Duration;

use towpath_config::Live;
use towpath_content::NodeId;
use towpath_link::Connection;
use towpath_plugins::direct::{PeerHost, PeerPool};
use towpath_protocol::{Pace, Peer, PeerConfig, Served, Service as PeerService};

use crate::fetches::Fetches;
use towpath_limits::connection_limits::ConnectionLimits;

/// A peer that says nothing of its end is taken for gone after so long without a byte, and the connection is kept no more for it.
const IDLE: Duration = Duration::from_secs(30);

/// See the head of this module.
pub struct StandingPeers {
    /// The connections.
    pub pool: Arc<PeerPool>,
    /// Answers what peers ask on them.
    pub service: Arc<PeerService>,
    /// Limits what callers are sent.
    pub send_pace: Arc<Pace>,
    /// Limits on who may stay.
    pub limits: Arc<ConnectionLimits>,
    /// Who fetches what.
    pub fetches: Arc<Fetches>,
    /// The configuration, which names relays.
    pub config: Live,
}

impl PeerHost for StandingPeers {
    /// One that takes no more than so much a second belongs to its transfer alone: others would wait behind what it takes.
    fn start(&self, connection: Connection, config: PeerConfig) -> Arc<Peer> {
        self.start_as(connection, config, PeerPool::add)
    }

    fn start_relayed(&self, connection: Connection, config: PeerConfig) -> Arc<Peer> {
        self.start_as(connection, config, PeerPool::add_relayed)
    }

    fn pool(&self) -> &PeerPool {
        &self.pool
    }

    fn chose(&self, relay: &NodeId) -> bool {
        let named = &self.config.get().rendezvous;
        named.relays.iter().chain(&named.servers).any(|place| place.node == Some(*relay))
    }
}

impl StandingPeers {
    fn start_as(
        &self,
        connection: Connection,
        config: PeerConfig,
        add: fn(&PeerPool, &Arc<Peer>),
    ) -> Arc<Peer> {
        let (node, is_shared) = (connection.peer, !config.receive_pace.is_limited());
        let Some(place) = is_shared.then(|| self.limits.dialled(node)).flatten() else {
            return Peer::start(connection, config, None);
        };
        let config = PeerConfig { send_pace: Arc::clone(&self.send_pace), ..config };
        let address = connection.address;
        let peer = Peer::start(connection, config, Some(Arc::clone(&self.service)));
        add(&self.pool, &peer);
        let attending = self.fetches.attend(&peer, address);
        let keeping = keep_in_use(Arc::downgrade(&peer), Arc::clone(peer.served()));
        let pool = Arc::clone(&self.pool);
        tokio::spawn(async move {
            // Both end with the connection.
            tokio::join!(attending, keeping);
            drop(place);
            pool.tidy();
        });
        peer
    }
}

/// Keeps a connection while its peer fetches over it, though the transfer that dialled it is over. Ends with the connection.
async fn keep_in_use(peer: Weak<Peer>, served: Arc<Served>) {
    let mut in_use = served.use_changes();
    let closed = peer.upgrade().map(|peer| peer.closed());
    let keeping = async {
        while in_use.wait_for(|in_use| *in_use).await.is_ok()
            && let Some(_kept) = peer.upgrade()
        {
            let mut bytes = served.bytes();
            while tokio::time::timeout(IDLE, in_use.wait_for(|in_use| !*in_use)).await.is_err() {
                if bytes == served.bytes() {
                    served.forget_use();
                }
                bytes = served.bytes();
            }
        }
    };
    if let Some(closed) = closed {
        tokio::select! {
            () = keeping => {}
            () = closed => {}
        }
    }
}
