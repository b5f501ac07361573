//! The connections of a service by the node at their other end, whoever dialled them; and when a transfer may use one of them.
//! It may be the only way to a node that nobody can dial.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use tokio::sync::Notify;
use towpath_content::lock::lock;
use towpath_content::{NodeId, Oid};
use towpath_link::Connection;
use towpath_protocol::{Peer, PeerConfig, PeerFacts, PeerUse};

/// Bytes that wait for a peer and may be questions: more is data.
const QUESTIONS: u64 = 4 << 10;

/// The service that transfers belong to, as far as their connections are its own.
pub trait PeerHost: Send + Sync {
    /// Starts a connection that a transfer dialled, to be configured so. The peer may ask the service there.
    fn start(&self, connection: Connection, config: PeerConfig) -> Arc<Peer>;

    /// The same of one that a relay carries.
    fn start_relayed(&self, connection: Connection, config: PeerConfig) -> Arc<Peer> {
        Peer::start(connection, config, None)
    }

    /// The connections that stand.
    fn pool(&self) -> &PeerPool;

    /// True if its person chose this relay. Others are dialled at public addresses only.
    fn chose(&self, _relay: &NodeId) -> bool {
        false
    }
}

/// Connections that stand. Those that are gone go out of it.
#[derive(Debug, Default)]
pub struct PeerPool {
    known: Mutex<BTreeMap<NodeId, Vec<PooledPeer>>>,
    /// Told when there is another one that has said what it is.
    added: Arc<Notify>,
}

/// A connection of the pool.
#[derive(Debug)]
struct PooledPeer {
    peer: Weak<Peer>,
    /// A relay carries it.
    is_relayed: bool,
}

impl PooledPeer {
    /// The connection, if it stands.
    fn standing(&self) -> Option<Arc<Peer>> {
        self.peer.upgrade().filter(|peer| peer.ended().is_none())
    }
}

/// What a transfer needs of a connection that it did not dial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerNeeds {
    /// It takes no more than so much a second: a limit belongs to a connection, and would hold for all who use it.
    pub has_rate: bool,
    /// Urgency of what it asks.
    pub priority: i8,
    /// It asks by a relay; else never, for another source does.
    pub is_relayed: bool,
    /// It asks beside other transfers, as it has no other way.
    pub may_share: bool,
}

impl PeerNeeds {
    /// Those of a transfer whose own connections are configured so, and are carried by a relay or not.
    pub fn of(config: &PeerConfig, is_relayed: bool) -> Self {
        let (has_rate, priority) = (config.receive_pace.is_limited(), config.priority);
        Self { has_rate, priority, is_relayed, may_share: false }
    }

    /// True if a connection serves it: as well as one of its own, unless it may share.
    pub const fn are_met_by(self, peer: PeerFacts) -> bool {
        let is_free = peer.uses == 0 || self.may_share;
        peer.answers && is_free && !self.has_rate && self.priority == peer.priority
    }
}

impl PeerPool {
    /// From now on `peer` may be used, as long as it stands.
    pub fn add(&self, peer: &Arc<Peer>) {
        self.add_as(peer, false);
    }

    /// The same of one that a relay carries.
    pub fn add_relayed(&self, peer: &Arc<Peer>) {
        self.add_as(peer, true);
    }

    fn add_as(&self, peer: &Arc<Peer>, is_relayed: bool) {
        let pooled = PooledPeer { peer: Arc::downgrade(peer), is_relayed };
        lock(&self.known).entry(peer.node()).or_default().push(pooled);
        let (peer, added) = (Arc::clone(peer), Arc::clone(&self.added));
        tokio::spawn(async move {
            peer.greeted().await;
            added.notify_waiters();
        });
    }

    /// What `find` finds here, now or once another connection is there.
    pub async fn until<T>(&self, find: impl Fn() -> Option<T>) -> T {
        loop {
            let added = self.added.notified();
            if let Some(found) = find() {
                return found;
            }
            added.await;
        }
    }

    /// Forgets those that are gone.
    pub fn tidy(&self) {
        lock(&self.known).retain(|_, peers| {
            peers.retain(|peer| peer.standing().is_some());
            !peers.is_empty()
        });
    }

    /// True if a connection with `node` stands, which no relay carries.
    pub fn reaches(&self, node: &NodeId) -> bool {
        self.has(node, false)
    }

    /// True if one stands that a relay carries.
    pub fn is_relayed(&self, node: &NodeId) -> bool {
        self.has(node, true)
    }

    fn has(&self, node: &NodeId, is_relayed: bool) -> bool {
        let known = lock(&self.known);
        let mut peers = known.get(node).into_iter().flatten();
        peers.any(|peer| peer.is_relayed == is_relayed && peer.standing().is_some())
    }

    /// True if the kernel still has something for a peer that fetches: more than what is asked of it.
    pub fn has_unsent(&self) -> bool {
        let known = lock(&self.known);
        let peers: Vec<Arc<Peer>> = known.values().flatten().filter_map(PooledPeer::standing).collect();
        drop(known);
        let waits = |peer: &Arc<Peer>| peer.path().is_some_and(|path| path.send_queue_bytes > QUESTIONS);
        peers.iter().any(|peer| *peer.served().use_changes().borrow() && waits(peer))
    }

    /// Connections that it knows of.
    pub fn len(&self) -> usize {
        lock(&self.known).values().map(Vec::len).sum()
    }

    /// True if it knows of none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A connection with `node` that meets these needs, for the use of `root`, alone or beside as few as possible. `prove` shows the
    /// right to it there; false if that can't be.
    pub fn take(
        &self,
        node: &NodeId,
        needs: PeerNeeds,
        root: Oid,
        prove: impl Fn(&Peer) -> bool,
    ) -> Option<PeerUse> {
        let known = lock(&self.known);
        let pooled = known.get(node).into_iter().flatten();
        let ours = pooled.filter(|pooled| pooled.is_relayed == needs.is_relayed);
        let peers: Vec<Arc<Peer>> = ours.filter_map(|pooled| pooled.peer.upgrade()).collect();
        drop(known);
        let facts = peers.iter().filter_map(|peer| PeerFacts::of(peer).map(|facts| (facts, peer)));
        let mut fit: Vec<_> = facts.filter(|(facts, _)| needs.are_met_by(*facts)).collect();
        fit.sort_by_key(|(facts, _)| facts.uses);
        let begin = if needs.may_share { PeerUse::beside_others } else { PeerUse::alone };
        fit.into_iter().filter_map(|(_, peer)| begin(peer, root)).find(|used| prove(used))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_with_limits_of_its_own_uses_its_own_connections() {
        let peer = PeerFacts { answers: true, uses: 0, priority: 0 };
        let needs = PeerNeeds { has_rate: false, priority: 0, is_relayed: false, may_share: false };
        let sharing = PeerNeeds { may_share: true, ..needs };
        let rows = [
            (needs, peer, true, "nothing is in the way"),
            (PeerNeeds { has_rate: true, ..needs }, peer, false, "its limit would hold for others"),
            (PeerNeeds { priority: -3, ..needs }, peer, false, "it would go before what is more urgent"),
            (
                PeerNeeds { priority: 5, ..needs },
                PeerFacts { priority: 5, ..peer },
                true,
                "as urgent as it needs",
            ),
            (needs, PeerFacts { answers: false, ..peer }, false, "nobody answers there"),
            (needs, PeerFacts { uses: 1, ..peer }, false, "another transfer asks there"),
            (sharing, peer, true, "nobody is there to share it with"),
            (sharing, PeerFacts { uses: 7, ..peer }, true, "there is no other way"),
            (PeerNeeds { has_rate: true, ..sharing }, peer, false, "its limit would hold for others"),
            (sharing, PeerFacts { answers: false, uses: 1, ..peer }, false, "nobody answers there"),
        ];
        for (needs, peer, may, why) in rows {
            assert_eq!(needs.are_met_by(peer), may, "{why}");
        }
    }

    #[test]
    fn a_limit_of_its_own_is_seen() {
        let limited =
            PeerConfig { receive_pace: Arc::new(towpath_protocol::Pace::new(1)), ..PeerConfig::default() };
        assert!(
            PeerNeeds::of(&limited, false).has_rate && !PeerNeeds::of(&PeerConfig::default(), false).has_rate
        );
    }
}
