//! Reading a tree in order. What lies below a node is read when it is its turn, so memory follows the height alone.

use std::collections::BTreeSet;
use std::ops::Range;

use super::source::NodeSource;
use super::{NodeError, degree_of, load, top_of};
use crate::names::Digest;
use crate::node::{ChildRef, TreeNode};
use crate::root::FileRoot;
use crate::tuple::Tuple;

/// The runs of a range of a file, in order, each with the offset where it begins; the first and last may reach beyond the range.
///
/// Ends with the first error. A poisoned tree can name one node a billion times: so runs are counted.
#[derive(Debug)]
pub struct TupleWalk<'a, S: ?Sized> {
    source: &'a S,
    degree: u8,
    range: Range<u64>,
    /// What is to be read, the next last: nodes and runs, each with where it begins.
    stack: Vec<(u64, WalkEntry)>,
    left: u64,
    most: u64,
}

#[derive(Debug)]
enum WalkEntry {
    Node(ChildRef, u8, bool),
    Run(Tuple),
}

impl<'a, S: NodeSource + ?Sized> TupleWalk<'a, S> {
    /// The runs of `range`, `most` of them at most: more are an error.
    pub fn new(source: &'a S, degree: u8, root: &FileRoot, range: Range<u64>, most: u64) -> Self {
        let top = top_of(root).map(|top| (0, WalkEntry::Node(top, root.height, true)));
        let stack = top.into_iter().collect();
        Self { source, degree: degree_of(degree), range, stack, left: most, most }
    }

    fn is_wanted(&self, start: u64, count: u64) -> bool {
        start < self.range.end && start.saturating_add(count) > self.range.start
    }

    fn open(&mut self, start: u64, child: &ChildRef, height: u8, is_top: bool) -> Result<(), NodeError> {
        let found = below(load(self.source, self.degree, child, height, is_top)?, start);
        let wanted = found.into_iter().rev().filter(|(start, count, _)| self.is_wanted(*start, *count));
        let wanted: Vec<_> = wanted.map(|(start, _, entry)| (start, entry)).collect();
        self.stack.extend(wanted);
        Ok(())
    }
}

/// Entries of a node that begins at `start`: where each begins, and how many bytes it has.
fn below(node: TreeNode, start: u64) -> Vec<(u64, u64, WalkEntry)> {
    let entries: Vec<(u64, WalkEntry)> = match node {
        TreeNode::Leaf(tuples) => {
            tuples.into_iter().map(|tuple| (tuple.length, WalkEntry::Run(tuple))).collect()
        }
        TreeNode::Inner(height, children) => {
            let entry = |child: ChildRef| (child.count, WalkEntry::Node(child, height - 1, false));
            children.into_iter().map(entry).collect()
        }
    };
    let mut start = start;
    let place = |(count, entry)| {
        let at = start;
        start += count;
        (at, count, entry)
    };
    entries.into_iter().map(place).collect()
}

impl<S: NodeSource + ?Sized> Iterator for TupleWalk<'_, S> {
    type Item = Result<(u64, Tuple), NodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.stack.pop()? {
                (_, WalkEntry::Run(_)) if self.left == 0 => {
                    self.stack.clear();
                    return Some(Err(NodeError::TooManyTuples(self.most)));
                }
                (start, WalkEntry::Run(tuple)) => {
                    self.left -= 1;
                    return Some(Ok((start, tuple)));
                }
                (start, WalkEntry::Node(child, height, is_top)) => {
                    if !self.is_wanted(start, child.count) {
                        continue;
                    }
                    if let Err(error) = self.open(start, &child, height, is_top) {
                        self.stack.clear();
                        return Some(Err(error));
                    }
                }
            }
        }
    }
}

/// Nodes that `source` lacks for a range of a file, up to `most`: to be fetched, and asked for again until there are none.
/// A node that several name is looked at once for each height and place where it lies.
pub fn missing_nodes<S: NodeSource + ?Sized>(
    source: &S,
    degree: u8,
    root: &FileRoot,
    range: &Range<u64>,
    most: usize,
) -> Result<Vec<Digest>, NodeError> {
    let (degree, mut missing, mut seen) = (degree_of(degree), Vec::new(), BTreeSet::new());
    let top = top_of(root).map(|top| (0, WalkEntry::Node(top, root.height, true)));
    let mut stack: Vec<(u64, WalkEntry)> = top.into_iter().collect();
    while let Some((start, entry)) = stack.pop() {
        let WalkEntry::Node(child, height, is_top) = entry else { continue };
        let end = start.saturating_add(child.count);
        let is_inside = range.start <= start && end <= range.end;
        let is_wanted = start < range.end && end > range.start;
        // One that lies within the range as a whole has the same below it wherever it lies.
        if !is_wanted || (is_inside && !seen.insert((child.node, height))) || missing.len() >= most {
            continue;
        }
        match load(source, degree, &child, height, is_top) {
            Err(NodeError::Missing(node)) => missing.push(node),
            Err(error) => return Err(error),
            Ok(node) => {
                stack.extend(below(node, start).into_iter().rev().map(|(start, _, entry)| (start, entry)))
            }
        }
    }
    missing.dedup();
    Ok(missing)
}
