//! The state of a walk, apart from the look-up: the subtrees still to be read, level by level.
//!
//! A subtree is taken off its list only once its node was read, so a walk that failed at a node
//! can go on there.

use std::vec::IntoIter;

use super::fetch::{self, NodePosition, misplaced};
use super::walk::Extent;
use super::{Entries, NodeHash, RecipeError, RecipeNode, RecipeRoot, Run};
use crate::chunking::{ChunkHash, Parameters};

/// Reads runs in order.
#[derive(Debug, Clone)]
pub(super) struct Cursor {
    parameters: Parameters,
    /// The top node, until it was read.
    root: Option<RecipeRoot>,
    /// Subtrees to be read, one list for each inner node on the way down.
    positions: Vec<IntoIter<NodePosition>>,
    /// The leaf that is being read.
    leaf: Option<Leaf>,
    /// Chunks that end at or before this offset are left out.
    from: u64,
    /// The last chunk read and where it ended.
    previous: Option<(ChunkHash, u64)>,
}

#[derive(Debug, Clone)]
struct Leaf {
    hash: NodeHash,
    runs: IntoIter<Run>,
    offset: u64,
    is_last: bool,
}

impl Cursor {
    /// Over all of a recipe, from the chunk that holds byte `from` on.
    pub(super) const fn over(root: &RecipeRoot, from: u64) -> Self {
        let parameters = root.parameters;
        Self { parameters, root: Some(*root), positions: Vec::new(), leaf: None, from, previous: None }
    }

    /// Over some subtrees of a recipe with these parameters.
    pub(super) fn below(parameters: Parameters, positions: Vec<NodePosition>) -> Self {
        let positions = vec![positions.into_iter()];
        Self { parameters, root: None, positions, leaf: None, from: 0, previous: None }
    }

    /// The next run, `None` after the last.
    pub(super) fn next<E>(
        &mut self,
        lookup: &mut impl FnMut(&NodeHash) -> Result<Option<Vec<u8>>, E>,
    ) -> Result<Option<Extent>, RecipeError<E>> {
        loop {
            if let Some(extent) = self.next_in_leaf()? {
                return Ok(Some(extent));
            }
            if !self.read_node(lookup)? {
                return Ok(None);
            }
        }
    }

    /// Reads the next node, if there is one.
    fn read_node<E>(
        &mut self,
        lookup: &mut impl FnMut(&NodeHash) -> Result<Option<Vec<u8>>, E>,
    ) -> Result<bool, RecipeError<E>> {
        if let Some(root) = &self.root {
            let (position, node) = fetch::top(root, lookup)?;
            self.root = None;
            self.open(&position, node);
            return Ok(true);
        }
        let Some(position) = self.next_position() else {
            return Ok(false);
        };
        let node = fetch::subtree(&position, lookup)?;
        self.positions.last_mut().and_then(Iterator::next);
        self.open(&position, node);
        Ok(true)
    }

    /// The subtree to be read next, left on its list.
    fn next_position(&mut self) -> Option<NodePosition> {
        loop {
            let list = self.positions.last_mut()?;
            match list.as_slice().first() {
                None => {
                    self.positions.pop();
                }
                Some(position) if position.offset + position.child.bytes <= self.from => {
                    list.next();
                }
                Some(position) => return Some(position.clone()),
            }
        }
    }

    fn open(&mut self, position: &NodePosition, node: RecipeNode) {
        let NodePosition { child, offset, is_last, .. } = *position;
        match node.into_entries() {
            Entries::Runs(runs) => {
                self.leaf = Some(Leaf { hash: child.hash, runs: runs.into_iter(), offset, is_last });
            }
            Entries::Children(children) => {
                self.positions.push(fetch::positions(position, &children).into_iter())
            }
        }
    }

    fn next_in_leaf<E>(&mut self) -> Result<Option<Extent>, RecipeError<E>> {
        let Some(leaf) = &mut self.leaf else {
            return Ok(None);
        };
        while let Some(run) = leaf.runs.as_slice().first().copied() {
            leaf.check(&run, self.parameters, self.previous)?;
            leaf.runs.next();
            let extent = Extent { offset: leaf.offset, run };
            leaf.offset += run.bytes();
            self.previous = Some((run.hash, leaf.offset));
            if leaf.offset > self.from {
                return Ok(Some(extent.starting_at(self.from)));
            }
        }
        self.leaf = None;
        Ok(None)
    }
}

impl Leaf {
    /// Checks of the next run that the leaf's bytes alone do not allow.
    fn check<E>(
        &self,
        run: &Run,
        parameters: Parameters,
        previous: Option<(ChunkHash, u64)>,
    ) -> Result<(), RecipeError<E>> {
        if previous == Some((run.hash, self.offset)) {
            return Err(misplaced(&self.hash, "it goes on with the chunk that the leaf before ends with"));
        }
        let is_objects_last = self.is_last && self.runs.len() == 1 && run.repeat == 1;
        if !parameters.allows(run.len, is_objects_last) {
            return Err(misplaced(&self.hash, "a chunk has a length that the parameters do not allow"));
        }
        Ok(())
    }
}
