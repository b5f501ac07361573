//! Nodes that are being changed: they have no hash before all changes are made, as the paper says (§4.2).

use super::edit::NewNode;
use super::{NodeError, most_entries};
use crate::canonical::Canonical;
use crate::names::Digest;
use crate::node::{ChildRef, TreeNode};
use crate::tuple::Tuple;

/// A child: one that lies somewhere under its hash, or a draft.
#[derive(Debug, Clone)]
pub(super) struct Branch {
    pub(super) count: u64,
    pub(super) dead: u64,
    pub(super) link: BranchLink,
}

#[derive(Debug, Clone)]
pub(super) enum BranchLink {
    Stored(Digest),
    Draft(Box<DraftNode>),
}

/// A node without a hash.
#[derive(Debug, Clone)]
pub(super) enum DraftNode {
    Leaf(Vec<Tuple>),
    Inner(u8, Vec<Branch>),
}

impl From<ChildRef> for Branch {
    fn from(ChildRef { count, dead, node }: ChildRef) -> Self {
        Self { count, dead, link: BranchLink::Stored(node) }
    }
}

impl From<TreeNode> for DraftNode {
    fn from(node: TreeNode) -> Self {
        match node {
            TreeNode::Leaf(tuples) => Self::Leaf(tuples),
            TreeNode::Inner(height, children) => {
                Self::Inner(height, children.into_iter().map(Branch::from).collect())
            }
        }
    }
}

impl DraftNode {
    fn entries(&self) -> usize {
        match self {
            Self::Leaf(tuples) => tuples.len(),
            Self::Inner(_, children) => children.len(),
        }
    }

    /// The node as a child.
    fn branch(self) -> Result<Branch, NodeError> {
        let sums = match &self {
            Self::Leaf(tuples) => sums(tuples.iter().map(|tuple| (tuple.length, tuple.excess()))),
            Self::Inner(_, children) => sums(children.iter().map(|child| (child.count, child.dead))),
        };
        let (count, dead) = sums.ok_or(NodeError::Uncountable)?;
        Ok(Branch { count, dead, link: BranchLink::Draft(Box::new(self)) })
    }
}

fn sums(mut entries: impl Iterator<Item = (u64, u64)>) -> Option<(u64, u64)> {
    entries.try_fold((0u64, 0u64), |(count, dead), (more, excess)| {
        Some((count.checked_add(more)?, dead.checked_add(excess)?))
    })
}

impl Branch {
    /// True for a draft with fewer than `degree` entries. Stored nodes have enough, or loading them fails.
    pub(super) fn is_too_small(&self, degree: u8) -> bool {
        matches!(&self.link, BranchLink::Draft(node) if node.entries() < degree.into())
    }

    /// Gives all drafts their hashes, from below; new nodes are added to `made`.
    pub(super) fn seal(self, made: &mut Vec<NewNode>) -> ChildRef {
        let Self { count, dead, link } = self;
        let node = match link {
            BranchLink::Stored(name) => return ChildRef { count, dead, node: name },
            BranchLink::Draft(draft) => match *draft {
                DraftNode::Leaf(tuples) => TreeNode::Leaf(tuples),
                DraftNode::Inner(height, children) => {
                    let children = children.into_iter().map(|child| child.seal(made)).collect();
                    TreeNode::Inner(height, children)
                }
            },
        };
        let new = NewNode::of(node.to_bytes());
        let name = new.name;
        made.push(new);
        ChildRef { count, dead, node: name }
    }
}

/// Leaves with these tuples, evenly filled. One alone may have too few.
pub(super) fn leaves(tuples: Vec<Tuple>, degree: u8) -> Result<Vec<Branch>, NodeError> {
    parts(tuples, degree).into_iter().map(|part| DraftNode::Leaf(part).branch()).collect()
}

/// Inner nodes with these children, in the same way.
pub(super) fn inners(height: u8, children: Vec<Branch>, degree: u8) -> Result<Vec<Branch>, NodeError> {
    parts(children, degree).into_iter().map(|part| DraftNode::Inner(height, part).branch()).collect()
}

/// Cuts a list into parts of nearly the same length: one if a node has room for it all, else about three quarters full. So
/// what is inserted later finds room. If there are several, each has at least `degree` entries.
fn parts<T>(list: Vec<T>, degree: u8) -> Vec<Vec<T>> {
    let count = match list.len() <= most_entries(degree) {
        true => list.len().min(1),
        false => list.len().div_ceil(3 * usize::from(degree) / 2 + 1),
    };
    let mut entries = list.into_iter();
    // Each part has memory for its own entries alone: a list of 16,384 has some hundred parts.
    let part = |left| {
        let len = entries.len().div_ceil(left);
        entries.by_ref().take(len).collect()
    };
    (1..=count).rev().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::MAX_DEGREE;

    #[test]
    fn parts_have_enough_and_leave_room() {
        for degree in 2..=MAX_DEGREE {
            let most = most_entries(degree);
            for len in 0..6 * most {
                let parts = parts((0..len).collect(), degree);
                assert_eq!(parts.concat(), (0..len).collect::<Vec<_>>());
                let lens: Vec<usize> = parts.iter().map(Vec::len).collect();
                assert!(parts.iter().all(|part| part.capacity() <= 2 * most), "memory for others' entries");
                assert!(lens.iter().all(|len| (1..=most).contains(len)));
                assert!(lens.len() < 2 || lens.iter().all(|len| *len >= degree.into()), "{degree} {lens:?}");
                assert_eq!(lens.len() < 2, len <= most);
                assert!(lens.len() < 2 || lens.iter().all(|len| *len < most), "{degree} {lens:?}");
            }
        }
    }
}
