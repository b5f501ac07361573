//! The finder of the nodes that a ticket's hints name: beside its issuer those that are dialled, and, its issuer included, those
//! that wait at a relay, or are connected by one. Hints that change in mid-transfer bring further ones and take others away.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::mpsc;
use towpath_content::hint::PeerAddress;
use towpath_content::{Hint, NodeId};
use towpath_transfer::finder::{Finder, SourceChange};
use towpath_transfer::{BoxFuture, Context, Source};

use crate::direct::relayed::RelayedPlace;
use crate::direct::{self, PeerHost};

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
pub struct HintedNodes {
    peer: PeerSource,
    /// Has connections that stand: those by a relay are asked, too.
    host: Option<Arc<dyn PeerHost>>,
}

impl HintedNodes {
    /// Makes its sources by `peer`. Of the connections of `host` those by a relay are asked, too.
    pub fn new(peer: PeerSource, host: Option<Arc<dyn PeerHost>>) -> Arc<Self> {
        Arc::new(Self { peer, host })
    }

    /// The nodes that hints name, and those of them with whom a relay connects this service already.
    fn named(&self, context: &Context) -> BTreeMap<(NodeId, HintedWay), (u16, u16)> {
        let mut named = named(&context.hints.borrow(), context.node);
        if let Some(host) = &self.host {
            let nodes: Vec<_> = named.keys().map(|(node, _)| *node).chain(context.node).collect();
            for node in nodes.into_iter().filter(|node| host.pool().is_relayed(node)) {
                named.entry((node, HintedWay::Relayed)).or_insert((0, 1));
            }
        }
        named
    }

    /// Completes when there is another connection by a relay.
    async fn another_connection(&self, context: &Context, known: &BTreeMap<(NodeId, HintedWay), Vec<u64>>) {
        let Some(host) = self.host.as_ref().filter(|_| known.len() < MOST_NODES) else {
            return std::future::pending().await;
        };
        let is_new = |place: &(NodeId, HintedWay)| !known.contains_key(place);
        host.pool().until(|| self.named(context).keys().any(is_new).then_some(())).await;
    }
}

impl Finder for HintedNodes {
    fn find<'a>(&'a self, context: &'a Context, changes: mpsc::Sender<SourceChange>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let (mut hints, mut known, mut next) = (context.hints.clone(), BTreeMap::new(), 0);
            let mut are_final = false;
            loop {
                hints.mark_unchanged();
                let named = self.named(context);
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
                        for source in (self.peer)(place.0, place.1) {
                            next += 1;
                            keys.push(next);
                            let added = SourceChange::Added { key: next, source, priority, weight };
                            let _ = changes.send(added).await;
                        }
                        known.insert(place, keys);
                    }
                }
                let _ = changes.send(SourceChange::Looked).await;
                tokio::select! {
                    changed = hints.changed(), if !are_final => are_final = changed.is_err(),
                    () = self.another_connection(context, &known) => {}
                }
                if are_final && self.host.is_none() {
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
