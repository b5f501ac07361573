//! The name of a recipe's node.

use std::fmt;

use crate::node_id::hex;

/// The BLAKE3 hash of a node's bytes. Nodes are named as chunks are, so that a store can keep and
/// send them in the same way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeHash(pub [u8; 32]);

impl NodeHash {
    /// The name of the node with this encoding.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }
}

impl fmt::Display for NodeHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for NodeHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node:{}", hex(&self.0[..4]))
    }
}
