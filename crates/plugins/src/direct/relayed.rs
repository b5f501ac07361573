//! Calls through relays: which ones hints name for a node, and how they are tried.

use std::slice;
use std::str::FromStr;
use std::sync::Arc;

use towpath_content::hint::{self, RELAY};
use towpath_content::{Hint, NodeId};
use towpath_link::public::is_public;
use towpath_link::{Connection, Identity, Protocol};
use towpath_relay::{RelayDial, RelayPlace, call};

use super::pool::PeerHost;

/// How what comes by a relay is named.
pub const BY_RELAY: &str = "by relay";
/// Relays that are tried for one node.
const MOST_RELAYS: usize = 4;

/// A relay that a hint names, and for whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayedPlace {
    /// The relay.
    pub relay: RelayPlace,
    /// Who waits there; `None`: the ticket's issuer.
    pub node: Option<NodeId>,
}

impl FromStr for RelayedPlace {
    type Err = ();

    /// What follows `relay://`.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (relay, node) = match text.split_once('/') {
            Some((relay, node)) => (relay, Some(node.parse().map_err(drop)?)),
            None => (text, None),
        };
        Ok(Self { relay: relay.parse().map_err(drop)?, node })
    }
}

impl RelayedPlace {
    /// The relay and its node that a hint names, if it names one.
    pub fn of(hint: &Hint) -> Option<Self> {
        Some(hint).filter(|hint| hint.scheme() == RELAY)?.rest().parse().ok()
    }
}

/// True if hints name a relay for a node which `is_it`.
pub(super) fn is_relayed(hints: &[Hint], is_it: impl Fn(Option<NodeId>) -> bool) -> bool {
    hints.iter().any(|hint| RelayedPlace::of(hint).is_some_and(|place| is_it(place.node)))
}

/// Relays that hints name for a node which `is_it`, in the order of RFC 2782.
pub(super) fn relays(
    hints: Vec<Hint>,
    is_it: impl Fn(Option<NodeId>) -> bool,
    draw: impl FnMut(u64) -> u64,
) -> Vec<RelayPlace> {
    let ours = hints.into_iter().filter(|hint| is_relayed(slice::from_ref(hint), &is_it)).collect();
    let ordered = hint::order(ours, draw);
    ordered.iter().filter_map(RelayedPlace::of).map(|place| place.relay).take(MOST_RELAYS).collect()
}

/// Calls `node` through one of `relays`: first through those that the person chose.
pub(super) async fn call_by(
    relays: Vec<RelayPlace>,
    identity: &Identity,
    node: NodeId,
    host: Option<&Arc<dyn PeerHost>>,
) -> Result<Connection, String> {
    let chosen = |relay: &RelayPlace| host.is_some_and(|host| host.chose(&relay.node));
    let (own, named): (Vec<_>, Vec<_>) = relays.into_iter().partition(chosen);
    let mut why = "no hint names a relay".to_owned();
    for (relays, how) in
        [(own, RelayDial::default()), (named, RelayDial { allows: is_public, ..RelayDial::default() })]
    {
        if relays.is_empty() {
            continue;
        }
        match call(&relays, identity, node, Protocol::PEER, &how).await {
            Ok(connection) => return Ok(connection),
            Err(error) => why = error.to_string(),
        }
    }
    Err(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_names_a_relay_and_who_waits_there() {
        let (relay, node) = (NodeId([1; 32]), NodeId([2; 32]));
        let hint = |text: &str| Hint::new(text.to_owned(), 0, 1).unwrap();
        let issuer = hint(&format!("relay://{relay}@192.0.2.1:7"));
        let other = hint(&format!("relay://{relay}@192.0.2.1:7/{node}"));
        assert_eq!(RelayedPlace::of(&issuer).unwrap().node, None);
        assert_eq!(RelayedPlace::of(&other).unwrap().node, Some(node));
        for text in ["tow://192.0.2.1:7", "relay://192.0.2.1:7", &format!("relay://{relay}@h:7/x")] {
            assert_eq!(RelayedPlace::of(&hint(text)), None, "{text}");
        }
        let found = relays(vec![issuer, other], |named| named == Some(node), |_| 0);
        assert_eq!(found.len(), 1);
    }

    /// A ticket must not make this machine knock at others of its own network.
    #[tokio::test]
    async fn a_relay_that_only_a_hint_names_is_dialled_at_public_addresses_alone() {
        let door = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = door.local_addr().unwrap();
        let (relay, node) = (NodeId([1; 32]), NodeId([2; 32]));
        let hint = Hint::new(format!("relay://{relay}@{address}/{node}"), 0, 1).unwrap();
        let found = relays(vec![hint], |named| named == Some(node), |_| 0);
        assert_eq!(found.len(), 1);
        let identity = Identity::generate().unwrap();
        let refused = call_by(found.clone(), &identity, node, None).await.map(drop).unwrap_err();
        assert!(refused.contains("no address of the relay is known that may be dialled"), "{refused}");
        // The door is one at which somebody would be heard.
        let how = RelayDial::default();
        let chosen = call(&found, &identity, node, Protocol::PEER, &how);
        tokio::select! {
            came = door.accept() => drop(came.unwrap()),
            _ = chosen => panic!("nobody answers there"),
        }
        let again = tokio::time::timeout(std::time::Duration::from_millis(50), door.accept());
        assert!(again.await.is_err(), "it was dialled twice");
    }
}
