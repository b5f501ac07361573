//! The finder of the nodes that a ticket's hints name: beside its issuer those that are dialled, and, its issuer included, those
//! that wait at a relay. Hints that change in mid-transfer bring further ones and take others away.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::mpsc;
use towpath_content::hint::PeerAddress;
use towpath_content::{Hint, NodeId};
use towpath_transfer::finder::{Finder, SourceChange};
use towpath_transfer::{BoxFuture, Context, Source};

use crate::direct;
use crate::direct::relayed::RelayedPlace;

/// Nodes that are told of at once, at most.
const MOST_NODES: usize = 256;

/// How a node is reached that hints name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HintedWay {
    /// It is dialled.
    Dialled,
    /// It is called through a relay.
    Relayed,
}

/// Makes the sources that a node is, one for each way to it.
pub type PeerSource = Box<dyn Fn(NodeId, HintedWay) -> Vec<Arc<dyn Source>> + Send + Sync>;

/// See the head of this module.
pub struct HintedNodes(PeerSource);

impl HintedNodes {
    /// Makes its sources by `peer`.
    pub fn new(peer: PeerSource) -> Arc<Self> {
        Arc::new(Self(peer))
    }
}

impl Finder for HintedNodes {
    fn find<'a>(&'a self, context: &'a Context, changes: mpsc::Sender<SourceChange>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let (mut hints, mut known, mut next) = (context.hints.clone(), BTreeMap::new(), 0);
            loop {
                let named = named(&hints.borrow_and_update(), context.node);
                let mut gone = Vec::new();
                known.retain(|node, keys: &mut Vec<u64>| {
                    let stays = named.contains_key(node);
                    if !stays {
                        gone.append(keys);
                    }
                    stays
                });
                for key in gone {
                    let _ = changes.send(SourceChange::Removed(key)).await;
                }
                for (place, (priority, weight)) in named {
                    if known.len() < MOST_NODES && !known.contains_key(&place) {
                        let mut keys = Vec::new();
                        for source in (self.0)(place.0, place.1) {
                            next += 1;
                            keys.push(next);
                            let added = SourceChange::Added { key: next, source, priority, weight };
                            let _ = changes.send(added).await;
                        }
                        known.insert(place, keys);
                    }
                }
                let _ = changes.send(SourceChange::Looked).await;
                if hints.changed().await.is_err() {
                    return;
                }
            }
        })
    }
}

/// The nodes that hints name, and how, with priority and weight of the first hint of each. That the issuer is dialled goes
/// without saying.
fn named(hints: &[Hint], issuer: Option<NodeId>) -> BTreeMap<(NodeId, HintedWay), (u16, u16)> {
    let mut named = BTreeMap::new();
    for hint in hints {
        let place = place_of(hint, issuer);
        if let Some(place) = place.filter(|(node, way)| *way == HintedWay::Relayed || Some(*node) != issuer) {
            // A relay is tried at once, too: what comes by it is dearer, that is all.
            let priority = if place.1 == HintedWay::Relayed { 0 } else { hint.priority };
            named.entry(place).or_insert((priority, hint.weight));
        }
    }
    named
}

/// The node that a hint of ours names, and how it is reached.
fn place_of(hint: &Hint, issuer: Option<NodeId>) -> Option<(NodeId, HintedWay)> {
    if hint.scheme() == direct::SCHEME {
        return Some((hint.rest().parse::<PeerAddress>().ok()?.node?, HintedWay::Dialled));
    }
    let relayed = RelayedPlace::of(hint)?;
    Some((relayed.node.or(issuer)?, HintedWay::Relayed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_is_named_once_for_each_way_and_the_issuer_by_relays_alone() {
        let [issuer, other, relay] = [1, 2, 3].map(|byte| NodeId([byte; 32]));
        let hint = |text: String| Hint::new(text, 7, 1).unwrap();
        let hints = [
            hint("tow://192.0.2.1:7".into()),
            hint(format!("tow://{issuer}@192.0.2.1:7")),
            hint(format!("tow://{other}@192.0.2.2:7")),
            hint(format!("tow://{other}@192.0.2.2:8")),
            hint(format!("relay://{relay}@192.0.2.3:7")),
            hint(format!("relay://{relay}@192.0.2.3:7/{other}")),
            hint("https://192.0.2.4/".into()),
        ];
        let named: Vec<_> = named(&hints, Some(issuer)).into_iter().collect();
        let expected = [
            ((issuer, HintedWay::Relayed), (0, 1)),
            ((other, HintedWay::Dialled), (7, 1)),
            ((other, HintedWay::Relayed), (0, 1)),
        ];
        assert_eq!(named, expected);
    }
}
