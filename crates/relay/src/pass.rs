//! The pass: a secret that lets nodes wait at a relay. It is never sent; its holder shows a hash that is of use on one
//! connection only.

use std::fmt;

use towpath_content::NodeId;

/// Context of the key that the secret becomes.
const CONTEXT: &str = "towpath 2026-11 relay pass v1";

/// A relay's secret, as its nodes have it. Any bytes; 16 random ones are enough.
#[derive(Clone, PartialEq, Eq)]
pub struct RelayPass(Vec<u8>);

impl RelayPass {
    /// The pass with this secret.
    pub fn new(secret: impl Into<Vec<u8>>) -> Self {
        Self(secret.into())
    }

    /// Proof for a connection with this channel binding, by this node.
    pub fn proof(&self, binding: &[u8; 32], node: &NodeId) -> PassProof {
        PassProof(*self.hash(binding, node).as_bytes())
    }

    /// True if `proof` is that. Takes the same time for every wrong one.
    pub fn is_shown(&self, binding: &[u8; 32], node: &NodeId, proof: &PassProof) -> bool {
        self.hash(binding, node) == blake3::Hash::from_bytes(proof.0)
    }

    fn hash(&self, binding: &[u8; 32], node: &NodeId) -> blake3::Hash {
        let key = blake3::derive_key(CONTEXT, &self.0);
        blake3::keyed_hash(&key, &[&binding[..], &node.0].concat())
    }
}

impl fmt::Debug for RelayPass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pass(secret)")
    }
}

/// Proof of a pass, for one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassProof(pub [u8; 32]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_for_one_connection_one_node_and_one_pass() {
        let (pass, node) = (RelayPass::new(*b"secret"), NodeId([2; 32]));
        let proof = pass.proof(&[1; 32], &node);
        assert!(pass.is_shown(&[1; 32], &node, &proof));
        assert!(!pass.is_shown(&[9; 32], &node, &proof), "another connection");
        assert!(!pass.is_shown(&[1; 32], &NodeId([3; 32]), &proof), "another node");
        assert!(!RelayPass::new(*b"other").is_shown(&[1; 32], &node, &proof));
        assert_eq!(format!("{pass:?}"), "Pass(secret)");
    }
}
