//! Further connections of a copy, dialled where the first one led.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::task::JoinSet;
use towpath_link::Identity;
use towpath_protocol::Peer;

use crate::far_side::{Other, greeted};

/// Connections that may fail or be lost; then no more are wanted. The copy has one that works.
const MAX_FAILURES: usize = 4;

/// Those under way.
pub struct FurtherConnections {
    other: Other,
    identity: Identity,
    /// Where this side reached the other one, if it did.
    leads: Option<SocketAddr>,
    under_way: JoinSet<Option<Arc<Peer>>>,
    failures: usize,
}

impl FurtherConnections {
    /// To `other`, of which a connection stands that was `dialled`, if it was from here.
    pub fn new(other: Other, identity: Identity, dialled: Option<SocketAddr>) -> Self {
        Self { other, identity, leads: dialled, under_way: JoinSet::new(), failures: 0 }
    }

    /// One more stands; `dialled` is where it was, if it was from here.
    pub fn leads_to(&mut self, dialled: Option<SocketAddr>) {
        self.leads = self.leads.or(dialled);
    }

    /// True if this side knows where to dial.
    pub const fn can_dial(&self) -> bool {
        self.leads.is_some()
    }

    /// True as long as few failed.
    pub const fn is_worthwhile(&self) -> bool {
        self.failures < MAX_FAILURES
    }

    /// One that stood was lost.
    pub const fn lost(&mut self) {
        self.failures += 1;
    }

    /// Dials until so many are under way.
    pub fn dial(&mut self, count: usize) {
        let Some(address) = self.leads.filter(|_| self.is_worthwhile()) else { return };
        for _ in self.under_way.len()..count {
            let (other, identity) = (self.other.clone(), self.identity.clone());
            self.under_way.spawn(async move {
                let came = other.dial(&[address], &identity).await;
                let peer =
                    came.inspect_err(|error| tracing::debug!(%error, "no further connection")).ok()?.peer;
                greeted(&peer).await.then_some(peer)
            });
        }
    }

    /// One came of the other side, and counts once that has said hello.
    pub fn greet(&mut self, peer: Arc<Peer>) {
        self.under_way.spawn(async move { greeted(&peer).await.then_some(peer) });
    }

    /// The next one that stands, or `None` of one that failed. Completes with none if none is under way.
    pub async fn next(&mut self) -> Option<Option<Arc<Peer>>> {
        let peer = self.under_way.join_next().await?.ok().flatten();
        self.failures += usize::from(peer.is_none());
        Some(peer)
    }
}
