//! The way between two hosts: over the fewest links, the first of them in the scenario's order if
//! there are several.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use crate::scenario::LinkSpec;

/// A link in one direction: its index, and whether it is passed from its first host to its second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hop {
    pub(crate) link: usize,
    pub(crate) forth: bool,
}

impl Hop {
    /// Its place in a table of directions.
    pub(crate) const fn index(self) -> usize {
        self.link * 2 + !self.forth as usize
    }
}

/// The ways that were asked for so far.
#[derive(Debug)]
pub(crate) struct Routes {
    /// For each host its links and where they lead.
    neighbours: Vec<Vec<(Hop, usize)>>,
    /// For a source the last hop to each host.
    trees: HashMap<usize, Vec<Option<(Hop, usize)>>>,
}

impl Routes {
    pub(crate) fn new(hosts: usize, links: &[LinkSpec]) -> Self {
        let mut neighbours = vec![Vec::new(); hosts];
        for (index, link) in links.iter().enumerate() {
            let [first, second] = link.between;
            neighbours[first].push((Hop { link: index, forth: true }, second));
            neighbours[second].push((Hop { link: index, forth: false }, first));
        }
        Self { neighbours, trees: HashMap::new() }
    }

    /// The hops from one host to another; `None` if there is no way.
    pub(crate) fn way(&mut self, from: usize, to: usize) -> Option<Rc<[Hop]>> {
        let neighbours = &self.neighbours;
        let tree = self.trees.entry(from).or_insert_with(|| search(neighbours, from));
        let (mut hops, mut at) = (Vec::new(), to);
        while at != from {
            let (hop, before) = tree[at]?;
            hops.push(hop);
            at = before;
        }
        hops.reverse();
        Some(hops.into())
    }
}

/// Breadth first.
fn search(neighbours: &[Vec<(Hop, usize)>], from: usize) -> Vec<Option<(Hop, usize)>> {
    let mut tree = vec![None; neighbours.len()];
    let mut queue = VecDeque::from([from]);
    while let Some(at) = queue.pop_front() {
        for &(hop, next) in &neighbours[at] {
            if next != from && tree[next].is_none() {
                tree[next] = Some((hop, at));
                queue.push_back(next);
            }
        }
    }
    tree
}
