//! Changes of a tree: a run of bytes gives way to others, at any offsets.
//!
//! One step, [`TreeEditor::splice`], is all there is. It goes down the paths to both ends of the run, drops what lies between
//! without reading it, and mends nodes with too few or too many entries on the way up, with one neighbour each.

use super::draft::{Branch, BranchLink, DraftNode, inners, leaves};
use super::source::NodeSource;
use super::{NodeError, degree_of, load, may_grow, top_of};
use crate::names::{Digest, FileId};
use crate::node::ChildRef;
use crate::root::FileRoot;
use crate::tuple::{BlockRef, MAX_CHAIN, Tuple};

/// A node that a change made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewNode {
    /// Hash of its encoding.
    pub name: Digest,
    /// Its encoding.
    pub bytes: Vec<u8>,
}

impl NewNode {
    pub(super) fn of(bytes: Vec<u8>) -> Self {
        Self { name: Digest::of(&bytes), bytes }
    }
}

/// A tree while it is changed. A change that fails ends it, so nothing half done is ever used.
#[derive(Debug)]
pub struct TreeEditor<'a, S: ?Sized> {
    source: &'a S,
    degree: u8,
    file: FileId,
    epoch: u32,
    height: u8,
    top: Option<Branch>,
}

impl<'a, S: NodeSource + ?Sized> TreeEditor<'a, S> {
    /// Begins with the file as `root` has it.
    pub fn new(source: &'a S, degree: u8, root: &FileRoot) -> Self {
        let FileRoot { file, epoch, height, .. } = *root;
        let top = top_of(root).map(Branch::from);
        Self { source, degree: degree_of(degree), file, epoch, height, top }
    }

    /// Bytes that the file has now.
    pub fn length(&self) -> u64 {
        self.top.as_ref().map_or(0, |top| top.count)
    }

    /// Puts runs before the byte at `at`; the file's length is its end.
    pub fn insert(self, at: u64, tuples: Vec<Tuple>) -> Result<Self, NodeError> {
        self.splice(at, at, tuples)
    }

    /// Takes `length` bytes away.
    pub fn delete(self, at: u64, length: u64) -> Result<Self, NodeError> {
        let to = at.checked_add(length).ok_or(NodeError::Uncountable)?;
        self.splice(at, to, Vec::new())
    }

    /// Puts runs in the place of all there is.
    pub fn replace(self, tuples: Vec<Tuple>) -> Result<Self, NodeError> {
        Self { top: None, height: 0, ..self }.insert(0, tuples)
    }

    /// Puts a patch on the run that begins at `at`, after which it gives `plain` bytes.
    pub fn patch(self, at: u64, plain: u32, block: BlockRef) -> Result<Self, NodeError> {
        let found = self.run_at(at)?.filter(|run| run.offset == 0 && run.excess() == 0);
        let Some(run) = found.filter(|run| run.chain.len() < MAX_CHAIN) else {
            return Err(NodeError::Unpatchable { at });
        };
        let end = at + run.length;
        let chain = run.chain.into_iter().chain([block]).collect();
        self.splice(at, end, vec![Tuple { length: plain.into(), offset: 0, plain, chain }])
    }

    /// The run that begins at `at`.
    fn run_at(&self, at: u64) -> Result<Option<Tuple>, NodeError> {
        match &self.top {
            Some(top) if at < top.count => self.run_below(top, self.height, at, true),
            _ => Ok(None),
        }
    }

    /// The run that begins `at` bytes behind where a branch does.
    fn run_below(
        &self,
        branch: &Branch,
        height: u8,
        at: u64,
        is_top: bool,
    ) -> Result<Option<Tuple>, NodeError> {
        let stored;
        let node = match &branch.link {
            BranchLink::Draft(node) => &**node,
            BranchLink::Stored(node) => {
                let named = ChildRef { count: branch.count, dead: branch.dead, node: *node };
                stored = load(self.source, self.degree, &named, height, is_top).map(DraftNode::from)?;
                &stored
            }
        };
        match node {
            DraftNode::Leaf(tuples) => Ok(tuple_at(tuples, at)),
            DraftNode::Inner(height, children) => {
                let (index, start) = child_at(children, at, true);
                self.run_below(&children[index], height - 1, at - start, false)
            }
        }
    }

    /// Puts runs in the place of the bytes `from` to `to`.
    pub fn splice(mut self, from: u64, to: u64, tuples: Vec<Tuple>) -> Result<Self, NodeError> {
        let length = self.length();
        if from > to || to > length {
            return Err(NodeError::Outside { from, to, length });
        }
        let roots = match self.top.take() {
            None => leaves(tuples, self.degree)?,
            Some(top) => {
                let node = self.open(top, self.height, true)?;
                self.splice_node(node, from, to, tuples)?
            }
        };
        self.grow(roots)
    }

    /// Gives new nodes their hashes: the file's new root, and the nodes that its base does not have.
    pub fn finish(self) -> (FileRoot, Vec<NewNode>) {
        let mut made = Vec::new();
        let Some(top) = self.top else { return (FileRoot::empty(self.file, self.epoch), made) };
        let ChildRef { count, dead, node } = top.seal(&mut made);
        let (file, epoch, height) = (self.file, self.epoch, self.height);
        (FileRoot { file, length: count, height, top: node, epoch, dead }, made)
    }

    /// The node behind a branch.
    fn open(&self, branch: Branch, height: u8, is_top: bool) -> Result<DraftNode, NodeError> {
        let Branch { count, dead, link } = branch;
        match link {
            BranchLink::Draft(node) => Ok(*node),
            BranchLink::Stored(node) => {
                let named = ChildRef { count, dead, node };
                load(self.source, self.degree, &named, height, is_top).map(DraftNode::from)
            }
        }
    }

    /// The nodes, of the same height, that take a node's place.
    fn splice_node(
        &self,
        node: DraftNode,
        from: u64,
        to: u64,
        new: Vec<Tuple>,
    ) -> Result<Vec<Branch>, NodeError> {
        match node {
            DraftNode::Leaf(tuples) => leaves(splice_tuples(tuples, from, to, new), self.degree),
            DraftNode::Inner(height, children) => {
                let children = self.splice_children(height - 1, children, from, to, new)?;
                inners(height, self.mend(height - 1, children)?, self.degree)
            }
        }
    }

    /// Children of this height after a change.
    fn splice_children(
        &self,
        height: u8,
        mut children: Vec<Branch>,
        from: u64,
        to: u64,
        new: Vec<Tuple>,
    ) -> Result<Vec<Branch>, NodeError> {
        let (first, first_start) = child_at(&children, from, from < to);
        let (last, last_start) = child_at(&children, to, false);
        let after = children.split_off(last + 1);
        let mut touched = children.split_off(first);
        let end = touched[0].count;
        if first == last {
            let child = touched.remove(0);
            children.extend(self.splice_child(height, child, from - first_start, to - first_start, new)?);
        } else {
            let (other, child) = (touched.pop(), touched.swap_remove(0));
            children.extend(self.splice_child(height, child, from - first_start, end, new)?);
            if let Some(other) = other {
                children.extend(self.splice_child(height, other, 0, to - last_start, Vec::new())?);
            }
        }
        children.extend(after);
        Ok(children)
    }

    /// What takes the place of a child. One that goes as a whole is not read.
    fn splice_child(
        &self,
        height: u8,
        child: Branch,
        from: u64,
        to: u64,
        new: Vec<Tuple>,
    ) -> Result<Vec<Branch>, NodeError> {
        if from == 0 && to == child.count && new.is_empty() {
            return Ok(Vec::new());
        }
        let node = self.open(child, height, false)?;
        self.splice_node(node, from, to, new)
    }

    /// Joins each of these nodes that has too few entries with a neighbour. One that has none stays as it is: then the node
    /// above has too few entries, too, and is joined.
    fn mend(&self, height: u8, mut nodes: Vec<Branch>) -> Result<Vec<Branch>, NodeError> {
        while nodes.len() > 1 {
            let Some(small) = nodes.iter().position(|node| node.is_too_small(self.degree)) else { break };
            let left = small.saturating_sub(1);
            let pair: Vec<Branch> = nodes.drain(left..left + 2).collect();
            let joined = self.join(height, pair)?;
            nodes.splice(left..left, joined);
        }
        Ok(nodes)
    }

    fn join(&self, height: u8, nodes: Vec<Branch>) -> Result<Vec<Branch>, NodeError> {
        let (mut tuples, mut children) = (Vec::new(), Vec::new());
        for node in nodes {
            match self.open(node, height, false)? {
                DraftNode::Leaf(more) => tuples.extend(more),
                DraftNode::Inner(_, more) => children.extend(more),
            }
        }
        match height {
            0 => leaves(tuples, self.degree),
            _ => inners(height, self.mend(height - 1, children)?, self.degree),
        }
    }

    /// Puts nodes under one top node, and leaves none above that has only one child.
    fn grow(mut self, mut nodes: Vec<Branch>) -> Result<Self, NodeError> {
        while nodes.len() > 1 {
            if !may_grow(self.height) {
                return Err(NodeError::Uncountable);
            }
            self.height += 1;
            nodes = inners(self.height, nodes, self.degree)?;
        }
        self.top = nodes.pop();
        while let Some(only) = self.top.as_mut().and_then(only_child) {
            self.top = Some(only);
            self.height -= 1;
        }
        if self.top.is_none() {
            self.height = 0;
        }
        Ok(self)
    }
}

/// The child of a draft that has no other.
fn only_child(branch: &mut Branch) -> Option<Branch> {
    match &mut branch.link {
        BranchLink::Draft(node) => match &mut **node {
            DraftNode::Inner(_, children) if children.len() == 1 => children.pop(),
            _ => None,
        },
        BranchLink::Stored(_) => None,
    }
}

/// The child that has the byte at `offset`, or, unless it has to, the one that ends there; and where it begins.
fn child_at(children: &[Branch], offset: u64, has_to: bool) -> (usize, u64) {
    let mut start = 0;
    for (index, child) in children.iter().enumerate() {
        let end = start + child.count;
        if offset < end || (offset == end && !has_to) || index + 1 == children.len() {
            return (index, start);
        }
        start = end;
    }
    (0, 0)
}

/// The run that begins at `at`.
fn tuple_at(tuples: &[Tuple], at: u64) -> Option<Tuple> {
    let mut start = 0;
    let begins = |tuple: &&Tuple| {
        let is_it = start == at;
        start += tuple.length;
        is_it
    };
    tuples.iter().find(begins).cloned()
}

fn splice_tuples(tuples: Vec<Tuple>, from: u64, to: u64, new: Vec<Tuple>) -> Vec<Tuple> {
    let (mut before, mut after, mut start) = (Vec::new(), Vec::new(), 0);
    for tuple in tuples {
        let (length, end) = (tuple.length, start + tuple.length);
        if start < from {
            before.extend(tuple.part(0, length.min(from - start)));
        }
        if end > to {
            let skipped = to.saturating_sub(start);
            after.extend(tuple.part(skipped, length - skipped));
        }
        start = end;
    }
    before.extend(new);
    before.extend(after);
    before
}
