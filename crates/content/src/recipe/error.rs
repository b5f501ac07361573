//! Reasons why a recipe could not be read on, and who is to blame.

use thiserror::Error;

use super::NodeHash;
use crate::DecodeError;

/// Error at a node. `E` is the error of the caller's look-up.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RecipeError<E> {
    /// The look-up failed.
    #[error("a recipe's node could not be looked up")]
    Lookup(#[source] E),
    /// The look-up does not have the node.
    #[error("the recipe's node {0} is missing")]
    Missing(NodeHash),
    /// The look-up returned other bytes: whoever sent them is to blame.
    #[error("the bytes sent for the recipe's node {0} have another hash")]
    WrongBytes(NodeHash),
    /// The node is not a valid encoding: the recipe's maker is to blame.
    #[error("the recipe's node {node} is malformed")]
    Malformed {
        /// The node.
        node: NodeHash,
        /// The decoder's error.
        source: DecodeError,
    },
    /// The node is valid but not the one that belongs in its place: the recipe's maker is to blame.
    #[error("the recipe's node {node} does not belong where it stands: {why}")]
    Misplaced {
        /// The node.
        node: NodeHash,
        /// The reason.
        why: &'static str,
    },
}

impl<E> RecipeError<E> {
    /// True if the recipe itself is bad, so that its maker is to blame and no other copy of its
    /// nodes can help.
    pub const fn blames_maker(&self) -> bool {
        matches!(self, Self::Malformed { .. } | Self::Misplaced { .. })
    }
}
