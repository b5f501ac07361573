//! The counted tree: a file's runs in order, found by offset, changed in the middle by new nodes along a path.
//!
//! Client and server compute a new root with this code, each from the nodes it has. Nodes come by hash from a [`NodeSource`]
//! and are believed only as far as they agree with what names them: hash, height, counts, number of entries.
//!
//! ```text
//!   TreeEditor ── splice ──► draft nodes ── finish ──► FileRoot and new nodes
//!        └─ load ──► NodeSource  (a store, a cache, or the nodes of a proof)
//! ```
//!
//! | module | story |
//! |---|---|
//! | [`source`] | where nodes come from, and a record of those that were read: a proof |
//! | `draft` | nodes that have no hash yet |
//! | [`edit`] | insert, delete, replace |
//! | [`walk`] | reading in order, and which nodes are lacking for that |

mod draft;
pub mod edit;
pub mod source;
pub mod walk;

use thiserror::Error;
use towpath_content::DecodeError;

use crate::canonical::Canonical;
use crate::names::Digest;
use crate::node::{ChildRef, MAX_HEIGHT, TreeNode};
use crate::root::{FileRoot, MIN_DEGREE};

pub use edit::{NewNode, TreeEditor};
pub use source::{NodeMap, NodeRecorder, NodeSource, SourceFault};
pub use walk::{TupleWalk, missing_nodes};

/// Reason why a tree can't be read or changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NodeError {
    /// A node is not to be had. For a proof: the server left it out.
    #[error("node {0} is not here")]
    Missing(Digest),
    /// The place where nodes are kept failed.
    #[error("nodes can't be read: {0}")]
    Source(String),
    /// Bytes that came for a node are another's.
    #[error("node {0} came with other bytes")]
    OtherBytes(Digest),
    /// A node is not one.
    #[error("node {node}: {why}")]
    Malformed {
        /// The node.
        node: Digest,
        /// Reason.
        why: DecodeError,
    },
    /// A node is not as what names it says.
    #[error("node {node} lies: {what} is {found}, and should be {expected}")]
    Lies {
        /// The node.
        node: Digest,
        /// What it lies about.
        what: &'static str,
        /// As the node has it.
        found: u64,
        /// As it should be.
        expected: u64,
    },
    /// An offset or a length that the file does not have.
    #[error("bytes {from} to {to} of a file with {length}")]
    Outside {
        /// First byte.
        from: u64,
        /// Byte behind the last.
        to: u64,
        /// Bytes of the file.
        length: u64,
    },
    /// No run begins there that may have one patch more.
    #[error("at byte {at} no run begins that may have one patch more")]
    Unpatchable {
        /// The offset.
        at: u64,
    },
    /// More bytes than 64 bits count.
    #[error("more bytes than can be counted")]
    Uncountable,
    /// More runs than are read.
    #[error("more than {0} runs")]
    TooManyTuples(u64),
}

/// A root's top node, as an inner node would name it.
fn top_of(root: &FileRoot) -> Option<ChildRef> {
    let top = ChildRef { count: root.length, dead: root.dead, node: root.top };
    (!root.top.is_none()).then_some(top)
}

/// The most entries of a node.
const fn most_entries(degree: u8) -> usize {
    2 * degree as usize + 1
}

/// The fewest entries of a node, which is the top one or not.
const fn fewest_entries(degree: u8, is_top: bool, height: u8) -> usize {
    match (is_top, height) {
        (false, _) => degree as usize,
        (true, 0) => 1,
        // A top node with one child would be one too many.
        (true, _) => 2,
    }
}

/// Reads the node that `named` names, and compares it with what is said of it.
fn load<S: NodeSource + ?Sized>(
    source: &S,
    degree: u8,
    named: &ChildRef,
    height: u8,
    is_top: bool,
) -> Result<TreeNode, NodeError> {
    let name = named.node;
    let bytes = source.node(&name).map_err(|fault| match fault {
        SourceFault::Missing => NodeError::Missing(name),
        SourceFault::Failed(why) => NodeError::Source(why),
    })?;
    if Digest::of(&bytes) != name {
        return Err(NodeError::OtherBytes(name));
    }
    let node = TreeNode::from_bytes(&bytes).map_err(|why| NodeError::Malformed { node: name, why })?;
    let (fewest, most) = (fewest_entries(degree, is_top, height), most_entries(degree));
    let entries = node.entries();
    let fitting = entries.clamp(fewest, most);
    agree(name, "its height", Some(node.height().into()), height.into())?;
    agree(name, "its number of entries", Some(entries as u64), fitting as u64)?;
    agree(name, "its count", node.count(), named.count)?;
    agree(name, "its dead bytes", node.dead(), named.dead)?;
    Ok(node)
}

/// Compares what a node has with what it should have.
fn agree(node: Digest, what: &'static str, found: Option<u64>, expected: u64) -> Result<(), NodeError> {
    match found {
        Some(found) if found == expected => Ok(()),
        found => Err(NodeError::Lies { node, what, found: found.unwrap_or(u64::MAX), expected }),
    }
}

/// The degree of a vault, never one that trees can't have.
fn degree_of(degree: u8) -> u8 {
    degree.max(MIN_DEGREE)
}

/// True if a tree may still grow.
const fn may_grow(height: u8) -> bool {
    height < MAX_HEIGHT
}

#[cfg(test)]
mod tests;
