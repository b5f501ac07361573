//! The connections of one get that it dialled itself: on those with the ticket's issuer it tells where it serves others.

use std::sync::{Arc, Mutex, Weak};

use towpath_content::lock::lock;
use towpath_content::{NodeId, Oid, Ticket};
use towpath_link::Connection;
use towpath_plugins::direct::{PeerHost, PeerPool};
use towpath_protocol::{Peer, PeerConfig};

use crate::standing::StandingPeers;

/// See the head of this module.
pub struct GetPeers {
    standing: Arc<StandingPeers>,
    dialled: Mutex<Vec<DialledPeer>>,
}

/// One of them.
struct DialledPeer {
    peer: Weak<Peer>,
    /// It was told where this get serves.
    is_told: bool,
}

impl GetPeers {
    /// None was dialled yet.
    pub const fn new(standing: Arc<StandingPeers>) -> Self {
        Self { standing, dialled: Mutex::new(Vec::new()) }
    }

    /// True if a connection that it dialled stands, or one with `issuer` that somebody else did.
    pub fn reaches_somebody(&self, issuer: &NodeId) -> bool {
        let dialled = lock(&self.dialled);
        let peers = dialled.iter().filter_map(|dialled| dialled.peer.upgrade());
        peers.into_iter().any(|peer| peer.ended().is_none()) || self.standing.pool.reaches(issuer)
    }

    /// Tells the ticket's issuer where this get serves what it fetches, on connections on which that was not said.
    pub fn tell(&self, ticket: &Ticket, port: u16) {
        let mut dialled = lock(&self.dialled);
        dialled.retain(|dialled| dialled.peer.strong_count() > 0);
        for dialled in dialled.iter_mut().filter(|dialled| !dialled.is_told) {
            let issuer = dialled.peer.upgrade().filter(|peer| peer.node() == ticket.node);
            dialled.is_told = issuer.is_some_and(|peer| peer.serve(&ticket.oid, port));
        }
    }

    /// Tells those that were told that it serves no more: a connection may outlive the get.
    pub fn take_back(&self, root: &Oid) {
        for dialled in lock(&self.dialled).iter_mut() {
            let told = std::mem::take(&mut dialled.is_told).then(|| dialled.peer.upgrade()).flatten();
            told.map(|peer| peer.serve(root, 0));
        }
    }
}

impl PeerHost for GetPeers {
    fn start(&self, connection: Connection, config: PeerConfig) -> Arc<Peer> {
        let peer = self.standing.start(connection, config);
        lock(&self.dialled).push(DialledPeer { peer: Arc::downgrade(&peer), is_told: false });
        peer
    }

    /// By a relay nobody is told where this get serves: there is no address that one could add the port to.
    fn start_relayed(&self, connection: Connection, config: PeerConfig) -> Arc<Peer> {
        self.standing.start_relayed(connection, config)
    }

    fn pool(&self) -> &PeerPool {
        self.standing.pool()
    }

    fn chose(&self, relay: &NodeId) -> bool {
        self.standing.chose(relay)
    }
}
