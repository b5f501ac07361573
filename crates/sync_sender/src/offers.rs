//! Content that the other side of a copy may fetch: the direct plugin asks this before it sends a piece.

use std::collections::HashMap;
use std::sync::Mutex;

use towpath_content::ticket::BoundSecret;
use towpath_content::{NodeId, Oid};
use towpath_link::Identity;
use towpath_protocol::Issuer;

use towpath_content::lock::lock;

/// Content that was named in an answer and is not settled.
pub struct Offers {
    identity: Identity,
    offered: Mutex<HashMap<Oid, usize>>,
}

impl Offers {
    /// Nothing yet.
    pub fn new(identity: Identity) -> Self {
        Self { identity, offered: Mutex::default() }
    }

    /// One more answer names this.
    pub fn add(&self, oid: Oid) {
        *lock(&self.offered).entry(oid).or_default() += 1;
    }

    /// True if an answer that is not settled names this.
    pub fn has(&self, oid: &Oid) -> bool {
        lock(&self.offered).contains_key(oid)
    }

    /// A file that was answered so is settled.
    pub fn remove(&self, oid: &Oid) {
        let mut offered = lock(&self.offered);
        if let Some(count) = offered.get_mut(oid) {
            *count -= 1;
            if *count == 0 {
                offered.remove(oid);
            }
        }
    }
}

impl Issuer for Offers {
    fn secret(&self, _root: &Oid) -> Option<BoundSecret> {
        None
    }

    fn is_allowed(&self, _node: &NodeId, oid: &Oid) -> bool {
        self.has(oid)
    }

    fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.identity.sign(message)
    }
}
