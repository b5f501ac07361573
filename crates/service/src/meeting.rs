//! A get meets others at the rendezvous: it hears where the ticket's issuer and other holders are now, and says what it has
//! itself. What it hears becomes hints, so that those are dialled whose address the ticket does not know.
//!
//! Where the ticket says where to go, that comes first: a get that has what it wants in a moment asks no server.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use towpath_content::hint::{MAX_HINTS, PeerAddress, RELAY, RENDEZVOUS};
use towpath_content::{Hint, NodeId, Ticket};
use towpath_peer_server::calling::{Calls, NodeCaller};
use towpath_peer_server::grants::{PassOn, PassingOn};
use towpath_peer_server::meetings::told;
use towpath_plugins::direct::{self, PeerHost};
use towpath_rendezvous::HolderEntry;
use towpath_rendezvous::client::{FoundNodes, Meeting};

use crate::state::Service;
use towpath_peer_server::get_peers::GetPeers;

/// A get that is over sooner asks no server, unless its ticket says nothing else.
const AFTER: Duration = Duration::from_millis(250);
/// Whoever has reached nobody for so long asks to be called.
const PATIENCE: Duration = Duration::from_millis(500);
/// Addresses of one node that become hints, at most.
const MOST_ADDRESSES: usize = 8;
/// Nodes whose addresses become hints, at most.
const MOST_NODES: usize = 32;

/// What a get says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct GetFacts {
    /// Thousandths of the bytes that are here.
    has: u16,
    /// It serves them.
    serves: bool,
    /// Where it listens, if it does.
    addresses: Vec<SocketAddr>,
}

/// See the head of this module. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct GetMeeting {
    facts: watch::Sender<GetFacts>,
    task: AbortHandle,
}

impl GetMeeting {
    /// Of a get by `ticket`, whose hints these are; `None` if there is no server to ask.
    pub(crate) fn begin(
        service: &Arc<Service>,
        ticket: &Ticket,
        hints: watch::Sender<Vec<Hint>>,
        peers: &Arc<GetPeers>,
    ) -> Option<Self> {
        let meetings = Arc::clone(&service.door.meetings);
        let names_one = ticket.hints.iter().any(|hint| hint.scheme() == RENDEZVOUS);
        let is_needed = ticket.enclosed.is_none() && ticket.node != service.node_id();
        if !is_needed || !names_one && !meetings.is_used() {
            return None;
        }
        if !names_one {
            // Those of the configuration are as good: a ticket that names nothing at all is waited for, too.
            replace(&hints, &[], &meetings.hints(ticket.hints.len()));
        }
        let (facts, ticket) = (watch::Sender::new(GetFacts::default()), ticket.clone());
        let told = facts.subscribe();
        let issuer = ticket.node;
        let waiting = CallsWaiting { service: Arc::clone(service), peers: Arc::clone(peers), issuer };
        let task = tokio::spawn(async move {
            if ticket.hints.iter().any(|hint| hint.scheme() == direct::SCHEME) {
                tokio::time::sleep(AFTER).await;
            }
            let secret = ticket.bound_secret();
            let grants = &waiting.service.grants;
            let _known = PassingOn::begin(grants, ticket.oid, secret, PassOn::Called);
            if let Some(meeting) = meetings.meet(&ticket.oid, &secret, &ticket.hints) {
                let calling = waiting.caller().attend(&meeting, Calls::WhoServes, ticket.oid, secret);
                tokio::join!(waiting.attend(&meeting, told, &hints), calling);
            }
        });
        Some(Self { facts, task: task.abort_handle() })
    }

    /// From now on others hear that so many thousandths are here, and are served at these addresses.
    pub(crate) fn serves(&self, has: u16, listening: &[SocketAddr]) {
        let facts = GetFacts { has, serves: true, addresses: listening.to_vec() };
        self.facts.send_if_modified(|told| std::mem::replace(told, facts.clone()) != facts);
    }
}

impl Drop for GetMeeting {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A get that asks to be called while it reaches nobody.
struct CallsWaiting {
    service: Arc<Service>,
    peers: Arc<GetPeers>,
    /// The ticket's.
    issuer: NodeId,
}

impl CallsWaiting {
    /// Calls those who serve.
    fn caller(&self) -> Arc<NodeCaller> {
        let (host, door) = (Arc::clone(&self.peers) as Arc<dyn PeerHost>, &self.service.door);
        let connections = door.connections.clone();
        door.meetings.caller(&self.service.identity, host, move || connections.dialled())
    }

    async fn attend(
        &self,
        meeting: &Meeting,
        mut facts: watch::Receiver<GetFacts>,
        hints: &watch::Sender<Vec<Hint>>,
    ) {
        let (mut found, mut own) = (meeting.found(), Vec::new());
        let mut ticks = tokio::time::interval_at(Instant::now() + PATIENCE, PATIENCE);
        loop {
            meeting.say(Some(self.entry(&facts.borrow_and_update(), meeting.seen())));
            let new = hints_of(&found.borrow_and_update());
            replace(hints, &own, &new);
            own = new;
            tokio::select! {
                changed = facts.changed() => if changed.is_err() { return },
                changed = found.changed() => if changed.is_err() { return },
                () = meeting.changed() => {}
                _ = ticks.tick() => self.be_reachable().await,
            }
        }
    }

    /// Listens, if nobody was reached.
    async fn be_reachable(&self) {
        if !self.peers.reaches_somebody(&self.issuer) && self.service.door.addresses().is_empty() {
            let listened = self.service.door.listen_for_a_while(self.service.grants.honours_leases()).await;
            drop(listened.inspect_err(|error| tracing::debug!(%error, "nobody can call")));
        }
    }

    fn entry(&self, facts: &GetFacts, outside: Vec<SocketAddr>) -> HolderEntry {
        let GetFacts { has, serves, mut addresses } = facts.clone();
        let awaits_calls =
            !self.peers.reaches_somebody(&self.issuer) && !self.service.door.addresses().is_empty();
        if awaits_calls && addresses.is_empty() {
            addresses = self.service.door.addresses();
        }
        let addresses = told(&addresses, &outside);
        HolderEntry {
            has_all: has >= 1000,
            serves,
            awaits_calls,
            has,
            addresses,
            outside,
            ..HolderEntry::default()
        }
    }
}

/// Those that were told before go, and these come, in place of none that the ticket or somebody else told.
fn replace(hints: &watch::Sender<Vec<Hint>>, old: &[Hint], new: &[Hint]) {
    hints.send_if_modified(|hints| {
        let before = hints.clone();
        hints.retain(|hint| !old.contains(hint) || new.contains(hint));
        for hint in new {
            if hints.len() < MAX_HINTS && !hints.contains(hint) {
                hints.push(hint.clone());
            }
        }
        *hints != before
    });
}

/// Hints of those who serve.
fn hints_of(found: &FoundNodes) -> Vec<Hint> {
    let serving = found.iter().filter(|(_, entry)| entry.serves).take(MOST_NODES);
    let hints = serving.flat_map(|(node, entry)| {
        let addresses: BTreeSet<_> = entry.addresses.iter().filter(|address| is_one(address)).collect();
        let dialled = addresses.into_iter().take(MOST_ADDRESSES).filter_map(|address| hint(node, address));
        let relayed = move |relay: &String| Hint::new(format!("{RELAY}://{relay}/{node}"), 0, 1).ok();
        dialled.chain(entry.relays.iter().filter_map(relayed))
    });
    hints.take(MAX_HINTS).collect()
}

fn hint(node: &NodeId, address: &SocketAddr) -> Option<Hint> {
    let place = PeerAddress { node: Some(*node), address: address.to_string() };
    Hint::new(format!("{}://{place}", direct::SCHEME), 0, 1).ok()
}

/// True if an address is that of one machine.
fn is_one(address: &SocketAddr) -> bool {
    let ip = address.ip();
    address.port() != 0 && !ip.is_unspecified() && !ip.is_multicast()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hints(ports: &[u16]) -> Vec<Hint> {
        let hint = |port: &u16| hint(&NodeId([1; 32]), &SocketAddr::from(([192, 0, 2, 1], *port)));
        ports.iter().filter_map(hint).collect()
    }

    #[test]
    fn what_is_heard_replaces_what_was_heard_and_nothing_else() {
        let sender = watch::Sender::new(hints(&[1, 2]));
        replace(&sender, &[], &hints(&[2, 3]));
        assert_eq!(*sender.borrow(), hints(&[1, 2, 3]));
        replace(&sender, &hints(&[3]), &hints(&[4]));
        assert_eq!(*sender.borrow(), hints(&[1, 2, 4]));
        let mut receiver = sender.subscribe();
        replace(&sender, &hints(&[4]), &hints(&[4]));
        assert!(!receiver.has_changed().unwrap(), "nothing is new");
        replace(&sender, &hints(&[4]), &hints(&(10..200).collect::<Vec<_>>()));
        assert_eq!(receiver.borrow_and_update().len(), MAX_HINTS);
    }

    #[test]
    fn only_addresses_of_one_machine_are_dialled() {
        for (address, is_it) in
            [("192.0.2.1:1", true), ("192.0.2.1:0", false), ("0.0.0.0:1", false), ("[ff02::1]:1", false)]
        {
            assert_eq!(is_one(&address.parse().unwrap()), is_it, "{address}");
        }
    }
}
