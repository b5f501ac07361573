//! Calls where dialling is not enough. A receiver that reaches nobody says so at the rendezvous; who serves dials it, and it
//! asks over that connection what it wants: of two machines it is enough that one can be reached. And both open a connection
//! to each other at once, which routers let through that let nobody in.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use towpath_content::ticket::BoundSecret;
use towpath_content::{NodeId, Oid};
use towpath_link::tcp::{DialConfig, DialError, SharedPort, cross, dial_any};
use towpath_link::{Connection, Identity};
use towpath_plugins::direct::PeerHost;
use towpath_protocol::PeerConfig;
use towpath_rendezvous::HolderEntry;
use towpath_rendezvous::client::Meeting;
use towpath_transfer::BoxFuture;

/// Time until the same one is called again.
const AGAIN: Duration = Duration::from_secs(10);
/// Time for which a connection is kept over which nothing is asked.
const UNUSED: Duration = Duration::from_secs(60);
/// Calls under way at once, of all tickets.
pub const AT_ONCE: usize = 16;
/// Time for opening from both ends.
const CROSSING: Duration = Duration::from_secs(8);
/// Nodes of one ticket that are remembered.
const REMEMBERED: usize = 512;

/// Whom one calls, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calls {
    /// Those who ask for it, at all of their addresses: this node serves.
    WhoAsks,
    /// Those who serve, from both ends at once: this node asks. Where they can be dialled it does that anyway.
    WhoServes,
}

/// Calls nodes, and keeps a connection with them for whoever uses it. See the head of this module.
pub struct NodeCaller {
    /// Calls as this node.
    pub identity: Identity,
    /// Connections go out from here where both ends open them.
    pub port: Option<SharedPort>,
    /// Has the connections.
    pub host: Arc<dyn PeerHost>,
    /// Their configuration.
    pub config: Box<dyn Fn() -> PeerConfig + Send + Sync>,
    /// Calls under way, at most.
    pub places: Semaphore,
}

impl NodeCaller {
    /// Calls nodes of this meeting, for as long as it is polled.
    pub async fn attend(self: Arc<Self>, meeting: &Meeting, calls: Calls, root: Oid, secret: BoundSecret) {
        let (mut found, mut called) = (meeting.found(), CalledNodes::default());
        loop {
            let now = Instant::now();
            let due: Vec<_> = found
                .borrow_and_update()
                .iter()
                .filter_map(|(node, entry)| Some((*node, called.due(node, entry, calls, now)?)))
                .collect();
            for (node, ways) in due.into_iter().filter(|(node, _)| !self.host.pool().reaches(node)) {
                let caller = Arc::clone(&self);
                tokio::spawn(async move { caller.call(node, &ways, &root, &secret).await });
            }
            if let Ok(Err(_)) = tokio::time::timeout(AGAIN, found.changed()).await {
                return;
            }
        }
    }

    async fn call(&self, node: NodeId, ways: &CallWays, root: &Oid, secret: &BoundSecret) {
        let Ok(_place) = self.places.acquire().await else { return };
        let connection = match self.reach(node, ways).await {
            Ok(connection) => connection,
            Err(error) => {
                tracing::debug!(node = %node.short(), %error, "who is called can't be reached");
                return;
            }
        };
        tracing::debug!(node = %node.short(), "a call got through");
        let peer = self.host.start(connection, (self.config)());
        // So it knows that this is somebody with the ticket, and asks here.
        let proof = secret.prove(peer.binding(), &self.identity.node_id(), root);
        peer.prove(root, &proof);
        tokio::spawn(async move { drop(tokio::time::timeout(UNUSED, peer.closed()).await) });
    }

    /// Whichever way is first.
    async fn reach(&self, node: NodeId, ways: &CallWays) -> Result<Connection, DialError> {
        let (identity, plain) = (&self.identity, DialConfig::default());
        let dialling: BoxFuture<'_, _> = Box::pin(dial_any(&ways.addresses, identity, node, &plain));
        let crossed = DialConfig { port: self.port.clone(), ..DialConfig::default() };
        let outside = ways.outside.iter().filter(|_| crossed.port.is_some());
        let crossing = outside.map(|address| -> BoxFuture<'_, _> {
            Box::pin(cross(*address, identity, node, &crossed, CROSSING))
        });
        let all: Vec<_> = [dialling].into_iter().chain(crossing).collect();
        Ok(futures_util::future::select_ok(all).await?.0)
    }
}

/// Ways to a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct CallWays {
    /// Where it listens.
    addresses: Vec<SocketAddr>,
    /// Where it opens connections from.
    outside: Vec<SocketAddr>,
}

/// Who was called, where, and when.
#[derive(Debug, Default)]
struct CalledNodes(HashMap<NodeId, (CallWays, Instant)>);

impl CalledNodes {
    /// Ways by which a node is to be called now, which counts as done; `None` if it is none of those, or was called so.
    fn due(&mut self, node: &NodeId, entry: &HolderEntry, calls: Calls, now: Instant) -> Option<CallWays> {
        let ways = match calls {
            Calls::WhoAsks if entry.awaits_calls => {
                CallWays { addresses: entry.addresses.clone(), outside: entry.outside.clone() }
            }
            Calls::WhoServes if entry.serves => {
                CallWays { addresses: Vec::new(), outside: entry.outside.clone() }
            }
            _ => CallWays::default(),
        };
        if ways == CallWays::default() {
            self.0.remove(node);
            return None;
        }
        let is_new = self
            .0
            .get(node)
            .is_none_or(|(before, at)| *before != ways || now.saturating_duration_since(*at) >= AGAIN);
        let has_room = self.0.len() < REMEMBERED || self.0.contains_key(node);
        (is_new && has_room).then(|| {
            self.0.insert(*node, (ways.clone(), now));
            ways
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_is_called_at_once_and_again_while_it_asks() {
        let (mut called, node, start) = (CalledNodes::default(), NodeId([1; 32]), Instant::now());
        let entry = |awaits_calls, port| {
            let addresses = vec![SocketAddr::from(([192, 0, 2, 1], port))];
            HolderEntry { awaits_calls, addresses, ..HolderEntry::default() }
        };
        let rows = [
            (0, entry(false, 1), false, "it does not ask"),
            (1, entry(true, 1), true, "it asks"),
            (2, entry(true, 1), false, "it was called"),
            (3, entry(true, 2), true, "it moved"),
            (12, entry(true, 2), false, "just called"),
            (13, entry(true, 2), true, "it asks still"),
            (14, entry(false, 2), false, "it is reached"),
            (15, entry(true, 2), true, "and asks anew"),
            (30, HolderEntry { awaits_calls: true, ..HolderEntry::default() }, false, "it says no address"),
        ];
        for (at, entry, is_due, why) in rows {
            let due = called.due(&node, &entry, Calls::WhoAsks, start + Duration::from_secs(at));
            assert_eq!(due.is_some(), is_due, "{why}");
        }
    }

    #[test]
    fn who_asks_opens_from_its_end_what_who_serves_opens_from_the_other() {
        let (listens, outside) =
            (SocketAddr::from(([192, 0, 2, 1], 7)), SocketAddr::from(([192, 0, 2, 1], 8)));
        let entry = HolderEntry {
            serves: true,
            addresses: vec![listens],
            outside: vec![outside],
            ..HolderEntry::default()
        };
        let due = |calls, entry: &HolderEntry| {
            CalledNodes::default().due(&NodeId([1; 32]), entry, calls, Instant::now())
        };
        let crossed = CallWays { addresses: Vec::new(), outside: vec![outside] };
        assert_eq!(due(Calls::WhoServes, &entry), Some(crossed.clone()), "it is dialled anyway");
        assert_eq!(due(Calls::WhoAsks, &entry), None);
        let asks = HolderEntry { serves: false, awaits_calls: true, ..entry };
        assert_eq!(due(Calls::WhoAsks, &asks), Some(CallWays { addresses: vec![listens], ..crossed }));
    }
}
