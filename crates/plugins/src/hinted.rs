//! The finder of the nodes that a ticket's hints name beside its issuer. Hints that change in mid-transfer bring further
//! nodes and take others away.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::mpsc;
use towpath_content::hint::PeerAddress;
use towpath_content::{Hint, NodeId};
use towpath_transfer::finder::{Finder, SourceChange};
use towpath_transfer::{BoxFuture, Context, Source};

use crate::direct;

/// Nodes that are told of at once, at most.
const MOST_NODES: usize = 256;

/// Makes the sources that another node is, one for each way to it.
pub type PeerSource = Box<dyn Fn(NodeId) -> Vec<Arc<dyn Source>> + Send + Sync>;

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
                for (node, (priority, weight)) in named {
                    if known.len() < MOST_NODES && !known.contains_key(&node) {
                        let mut keys = Vec::new();
                        for source in (self.0)(node) {
                            next += 1;
                            keys.push(next);
                            let added = SourceChange::Added { key: next, source, priority, weight };
                            let _ = changes.send(added).await;
                        }
                        known.insert(node, keys);
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

/// The nodes that hints name beside the issuer, with priority and weight of the first hint of each.
fn named(hints: &[Hint], issuer: Option<NodeId>) -> BTreeMap<NodeId, (u16, u16)> {
    let mut named = BTreeMap::new();
    for hint in hints {
        if let Some(node) = node_of(hint).filter(|node| Some(*node) != issuer) {
            named.entry(node).or_insert((hint.priority, hint.weight));
        }
    }
    named
}

/// The node that a hint of ours names.
fn node_of(hint: &Hint) -> Option<NodeId> {
    let ours = Some(hint).filter(|hint| hint.scheme() == direct::SCHEME)?;
    ours.rest().parse::<PeerAddress>().ok()?.node
}
