//! Looks a node up and checks it: against its hash, by itself, and against its position in the tree.

use super::{Child, NodeHash, RecipeError, RecipeNode, RecipeRoot};

/// A subtree and where it stands.
#[derive(Debug, Clone)]
pub(super) struct NodePosition {
    /// The parent's entry for it.
    pub(super) child: Child,
    pub(super) level: u8,
    /// The object's bytes in front of it.
    pub(super) offset: u64,
    /// True if it is the last of its level, which alone may end before the rule closes it.
    pub(super) is_last: bool,
}

/// The node called `hash`, valid by itself.
fn node<E>(
    hash: &NodeHash,
    lookup: &mut impl FnMut(&NodeHash) -> Result<Option<Vec<u8>>, E>,
) -> Result<RecipeNode, RecipeError<E>> {
    let found = lookup(hash).map_err(RecipeError::Lookup)?;
    let bytes = found.ok_or(RecipeError::Missing(*hash))?;
    if NodeHash::of(&bytes) != *hash {
        return Err(RecipeError::WrongBytes(*hash));
    }
    RecipeNode::from_bytes(&bytes).map_err(|source| RecipeError::Malformed { node: *hash, source })
}

/// The top node of `root` and its position.
pub(super) fn top<E>(
    root: &RecipeRoot,
    lookup: &mut impl FnMut(&NodeHash) -> Result<Option<Vec<u8>>, E>,
) -> Result<(NodePosition, RecipeNode), RecipeError<E>> {
    let node = node(&root.top, lookup)?;
    if node.bytes() != root.size {
        return Err(misplaced(&root.top, "its bytes are not the object's size"));
    }
    if node.level() > 0 && node.entries().len() == 1 {
        return Err(misplaced(&root.top, "its only child should be the top"));
    }
    let child = Child { hash: root.top, bytes: node.bytes(), chunks: node.chunks() };
    Ok((NodePosition { child, level: node.level(), offset: 0, is_last: true }, node))
}

/// The node at `position`.
pub(super) fn subtree<E>(
    position: &NodePosition,
    lookup: &mut impl FnMut(&NodeHash) -> Result<Option<Vec<u8>>, E>,
) -> Result<RecipeNode, RecipeError<E>> {
    let NodePosition { child, level, is_last, .. } = position;
    let node = node(&child.hash, lookup)?;
    if node.level() != *level {
        return Err(misplaced(&child.hash, "its level is not the one below its parent's"));
    }
    if (node.bytes(), node.chunks()) != (child.bytes, child.chunks) {
        return Err(misplaced(&child.hash, "its sums are not those that its parent states"));
    }
    if !is_last && !node.entries().are_complete() {
        return Err(misplaced(&child.hash, "it ends before an entry that closes it"));
    }
    Ok(node)
}

/// Positions of the `children` of the node at `position`.
pub(super) fn positions(position: &NodePosition, children: &[Child]) -> Vec<NodePosition> {
    let mut offset = position.offset;
    let position_of = |(i, child): (usize, &Child)| {
        let is_last = position.is_last && i + 1 == children.len();
        let below = NodePosition { child: *child, level: position.level.saturating_sub(1), offset, is_last };
        offset += child.bytes;
        below
    };
    children.iter().enumerate().map(position_of).collect()
}

pub(super) const fn misplaced<E>(node: &NodeHash, why: &'static str) -> RecipeError<E> {
    RecipeError::Misplaced { node: *node, why }
}
