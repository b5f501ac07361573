//! Nodes of the counted tree: a leaf has tuples, an inner node has children with the bytes below them.
//!
//! Counts are those of each child alone, so an insert changes one of them a node (§4.2 of the paper: relative counts).
//! A node says its height, so that a tree that lies about it is found out at the first wrong node.

use towpath_content::DecodeError;
use towpath_content::codec::{Reader, Writer, invalid};

use crate::canonical::{Canonical, hash, list, version, write_list};
use crate::names::Digest;
use crate::tuple::{MAX_TUPLE, Tuple};

/// The largest degree.
pub const MAX_DEGREE: u8 = 64;
/// The most entries of a node of any degree.
pub const MAX_ENTRIES: usize = 2 * MAX_DEGREE as usize + 1;
/// The largest height: with two children a node, more bytes than there are.
pub const MAX_HEIGHT: u8 = 48;
/// The most bytes of a node's encoding.
pub const MAX_NODE: usize = 8 + MAX_ENTRIES * MAX_TUPLE;

/// A child of an inner node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChildRef {
    /// Bytes of the file below it; at least 1.
    pub count: u64,
    /// Bytes of plaintext below it that its tuples do not give ([`Tuple::excess`]).
    pub dead: u64,
    /// Hash of its encoding.
    pub node: Digest,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TreeNode {
    /// Height 0.
    Leaf(Vec<Tuple>),
    /// Of this height, 1 or more, with children of the height below.
    Inner(u8, Vec<ChildRef>),
}

impl TreeNode {
    /// 0 for a leaf.
    pub const fn height(&self) -> u8 {
        match self {
            Self::Leaf(_) => 0,
            Self::Inner(height, _) => *height,
        }
    }

    /// Tuples or children.
    pub const fn entries(&self) -> usize {
        match self {
            Self::Leaf(tuples) => tuples.len(),
            Self::Inner(_, children) => children.len(),
        }
    }

    /// Bytes of the file below it. `None` if there are more than 64 bits can count.
    pub fn count(&self) -> Option<u64> {
        let add = |sum: u64, more: u64| sum.checked_add(more);
        match self {
            Self::Leaf(tuples) => tuples.iter().map(|tuple| tuple.length).try_fold(0, add),
            Self::Inner(_, children) => children.iter().map(|child| child.count).try_fold(0, add),
        }
    }

    /// Bytes of plaintext below it that its tuples do not give. `None` if 64 bits can't count them.
    pub fn dead(&self) -> Option<u64> {
        let add = |sum: u64, more: u64| sum.checked_add(more);
        match self {
            Self::Leaf(tuples) => tuples.iter().map(Tuple::excess).try_fold(0, add),
            Self::Inner(_, children) => children.iter().map(|child| child.dead).try_fold(0, add),
        }
    }
}

impl Canonical for ChildRef {
    const NAME: &'static str = "child";
    const LIMIT: usize = 10 + 10 + 32;

    fn write(&self, out: &mut Writer) {
        out.varint(self.count).varint(self.dead).raw(&self.node.0);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let count = reader.varint("count")?;
        if count == 0 {
            return Err(invalid("count", "is 0"));
        }
        Ok(Self { count, dead: reader.varint("dead bytes")?, node: hash(reader, "node hash")? })
    }
}

impl Canonical for TreeNode {
    const NAME: &'static str = "node";
    const LIMIT: usize = MAX_NODE;

    fn write(&self, out: &mut Writer) {
        out.u8(1).u8(self.height());
        match self {
            Self::Leaf(tuples) => write_list(out, tuples, Tuple::write),
            Self::Inner(_, children) => write_list(out, children, ChildRef::write),
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        version(reader, Self::NAME)?;
        let node = match reader.u8("height")? {
            0 => Self::Leaf(list(reader, "tuples", MAX_ENTRIES, Tuple::read)?),
            height @ 1..=MAX_HEIGHT => {
                Self::Inner(height, list(reader, "children", MAX_ENTRIES, ChildRef::read)?)
            }
            _ => return Err(invalid("height", "is over the limit")),
        };
        match node.count().zip(node.dead()) {
            Some(_) if node.entries() > 0 => Ok(node),
            Some(_) => Err(invalid("node", "has no entries")),
            None => Err(invalid("node", "counts more than 64 bits")),
        }
    }
}
