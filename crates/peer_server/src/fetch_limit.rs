//! A ticket by which only so many nodes fetch: the first ones that prove it.
//!
//! Who they are is recorded beside the share, so that the same command, run again after an interruption, gives the same ticket and
//! lets in nobody else. When all of them have all of it the ticket is spent.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use towpath_config::shares::{Share, Shares, TicketKind, unhex};
use towpath_content::lock::lock;
use towpath_content::node_id::hex;
use towpath_content::ticket::BoundSecret;
use towpath_content::{NodeId, Oid};
use towpath_limits::fetch_budget::{FetchBudget, FetchTurn};
use towpath_protocol::access::TicketEnd;

/// See the head of this module.
pub struct FetchLimit {
    shares: Arc<Shares>,
    path: PathBuf,
    share: Share,
    /// This node: what it fetches from itself counts for nobody.
    own: NodeId,
    budget: Mutex<FetchBudget>,
    spent: CancellationToken,
}

impl FetchLimit {
    /// Lets `most` nodes besides `own` fetch by the ticket of `share`, which `path` is shared as; those that it let in before are
    /// among them.
    pub fn open(
        (shares, own): (&Arc<Shares>, NodeId),
        path: PathBuf,
        share: Share,
        most: NonZeroU32,
    ) -> Arc<Self> {
        let before = recorded(shares, &path, &share).unwrap_or_default();
        let (budget, spent) = (Mutex::new(FetchBudget::new(most, before)), CancellationToken::new());
        let limit = Self { shares: Arc::clone(shares), path, share, own, budget, spent };
        limit.keep(&lock(&limit.budget));
        Arc::new(limit)
    }

    /// True if `share` was given out with a limit.
    pub fn is_recorded(shares: &Shares, path: &Path, share: &Share) -> bool {
        recorded(shares, path, share).is_some()
    }

    /// The root that the ticket is for.
    pub const fn root(&self) -> Oid {
        self.share.oid
    }

    /// True if that is the ticket's secret.
    pub fn is_of(&self, secret: &BoundSecret) -> bool {
        self.share.secret == *secret
    }

    /// A node proved the ticket, or asks by it: why it gets nothing, unless it is among the first.
    pub fn refusal(&self, node: &NodeId) -> Option<TicketEnd> {
        if *node == self.own {
            return None;
        }
        let mut budget = lock(&self.budget);
        match budget.proves(*node) {
            FetchTurn::Known => None,
            FetchTurn::New => {
                self.keep(&budget);
                None
            }
            FetchTurn::Refused => Some(TicketEnd::Taken { by_one: budget.most() == NonZeroU32::MIN }),
        }
    }

    /// A node says that it has all.
    pub fn has_all(&self, node: &NodeId) {
        if *node == self.own {
            return;
        }
        let mut budget = lock(&self.budget);
        if budget.has_all(node) {
            self.keep(&budget);
        }
        if budget.is_spent() {
            self.spent.cancel();
        }
    }

    /// Completes when as many nodes as may have fetched all.
    pub fn spent(&self) -> impl Future<Output = ()> + Send + use<> {
        self.spent.clone().cancelled_owned()
    }

    fn keep(&self, budget: &FetchBudget) {
        let nodes = budget.nodes().map(|(node, has_all)| json!({ "node": hex(&node.0), "has_all": has_all }));
        let record = json!({
            "oid": self.share.oid.to_string(),
            "secret": hex(&self.share.secret.to_bytes()),
            "nodes": nodes.collect::<Vec<_>>(),
        });
        if let Err(error) = self.shares.keep_ticket(TicketKind::Limited, &name(&self.path), &record) {
            tracing::warn!(%error, "who fetches by this ticket can't be kept for the next start");
        }
    }
}

/// One record for each shared path, as there is one of its share.
fn name(path: &Path) -> Vec<u8> {
    path.as_os_str().as_encoded_bytes().to_vec()
}

/// The nodes that were let in by the ticket of `share`, if it is limited.
fn recorded(shares: &Shares, path: &Path, share: &Share) -> Option<Vec<(NodeId, bool)>> {
    let record = shares.ticket_as(TicketKind::Limited, &name(path))?;
    Share::of(&record).filter(|of_record| of_record == share)?;
    Some(record.get("nodes")?.as_array()?.iter().filter_map(node).collect())
}

fn node(record: &Value) -> Option<(NodeId, bool)> {
    let id = unhex(record.get("node")?.as_str()?)?.try_into().ok()?;
    Some((NodeId(id), record.get("has_all")?.as_bool()?))
}

#[cfg(test)]
mod tests {
    use towpath_content::ticket::{Secret, Terms};

    use super::*;

    const OWN: NodeId = NodeId([9; 32]);

    #[test]
    fn what_the_sender_fetches_itself_counts_for_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let limit = open(&Arc::new(Shares::new(dir.path().to_path_buf())), 1, 1);
        assert_eq!(limit.refusal(&OWN), None);
        limit.has_all(&OWN);
        assert!(!limit.spent.is_cancelled());
        assert_eq!(limit.refusal(&NodeId([1; 32])), None);
        limit.has_all(&NodeId([1; 32]));
        assert!(limit.spent.is_cancelled());
        assert_eq!(limit.refusal(&OWN), None);
        assert!(limit.refusal(&NodeId([2; 32])).is_some());
    }

    fn share(number: u8) -> Share {
        let terms = Terms { expires: None, no_swarm: true };
        Share { oid: Oid::of(b"x"), secret: BoundSecret { secret: Secret([number; 16]), terms } }
    }

    fn open(shares: &Arc<Shares>, number: u8, most: u32) -> Arc<FetchLimit> {
        FetchLimit::open((shares, OWN), "/file".into(), share(number), NonZeroU32::new(most).unwrap())
    }

    #[test]
    fn after_a_restart_the_same_nodes_go_on_and_nobody_else() {
        let dir = tempfile::tempdir().unwrap();
        let shares = Arc::new(Shares::new(dir.path().to_path_buf()));
        let [one, other, third] = [1, 2, 3].map(|number| NodeId([number; 32]));
        assert!(!FetchLimit::is_recorded(&shares, Path::new("/file"), &share(1)));
        let first = open(&shares, 1, 2);
        assert_eq!(first.refusal(&one), None);
        first.has_all(&one);
        assert_eq!(first.refusal(&other), None);
        drop(first);
        assert!(FetchLimit::is_recorded(&shares, Path::new("/file"), &share(1)));
        assert!(!FetchLimit::is_recorded(&shares, Path::new("/file"), &share(2)), "another ticket");
        let again = open(&shares, 1, 2);
        assert_eq!(again.refusal(&third), Some(TicketEnd::Taken { by_one: false }));
        assert_eq!([one, other].map(|node| again.refusal(&node)), [None, None]);
        assert!(!again.spent.is_cancelled());
        again.has_all(&third);
        assert!(!again.spent.is_cancelled(), "it was not let in");
        again.has_all(&other);
        assert!(again.spent.is_cancelled());
        // Another ticket of the same path begins anew.
        let anew = open(&shares, 2, 1);
        assert_eq!(anew.refusal(&third), None);
        assert_eq!(anew.refusal(&one), Some(TicketEnd::Taken { by_one: true }));
        assert!(anew.is_of(&share(2).secret) && !anew.is_of(&share(1).secret));
    }
}
