//! Recipes: each node by itself, and all of one as they are read off a disk or a connection.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use towpath_transfer::SourceId;

use bytes::Bytes;
use towpath_content::recipe::{self, Extent, NodeHash, RecipeRoot};
use towpath_transfer::RecipePart;
use towpath_transfer::claim::{MAX_CHUNKS, RecipeReader};

use crate::input::{Source, Written};
use crate::seeds;

/// Runs that are looked at: time goes with what a recipe claims, not with its bytes.
const MOST_RUNS: usize = 20_000;
/// Stands in a node for the hash of another one, whose number follows. So a change of a leaf does not only make
/// it a node that nobody asks for.
const LINK: [u8; 28] = [0xee; 28];

/// A node of a recipe.
pub fn recipe_node(data: &[u8]) {
    if let Ok(node) = recipe::RecipeNode::from_bytes(data) {
        assert_eq!(node.to_bytes(), data);
    }
}

/// The root of a recipe.
pub fn recipe_root(data: &[u8]) {
    if let Ok(root) = recipe::RecipeRoot::from_bytes(data) {
        assert_eq!(root.to_bytes(), data);
    }
}

/// RecipeRoot and nodes of a recipe, nodes below others first.
struct Nodes {
    root: Vec<u8>,
    nodes: Vec<Vec<u8>>,
}

impl Nodes {
    fn read(data: &[u8]) -> Self {
        let mut source = Source::new(data);
        let (root, mut nodes) = (source.run(), Vec::new());
        while !source.is_empty() {
            let node = linked(source.run(), &nodes);
            nodes.push(node);
        }
        Self { root: linked(root, &nodes), nodes }
    }

    fn by_hash(&self) -> HashMap<NodeHash, &Vec<u8>> {
        self.nodes.iter().map(|node| (NodeHash::of(node), node)).collect()
    }
}

/// The same with hashes where it refers to one of `nodes`.
fn linked(bytes: &[u8], nodes: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let mut at = 0;
    while let Some(found) = bytes[at..].windows(32).position(|window| window.starts_with(&LINK)) {
        let link = &mut bytes[at + found..][..32];
        let number = u32::from_le_bytes([link[28], link[29], link[30], link[31]]);
        if let Some(node) = nodes.get(number as usize) {
            link.copy_from_slice(&NodeHash::of(node).0);
        }
        at += found + 32;
    }
    bytes
}

/// A recipe of many nodes, walked from its front, from its middle and over what another one lacks.
pub fn recipe_walk(data: &[u8]) {
    let Nodes { root, nodes } = Nodes::read(data);
    let nodes = Nodes { root: Vec::new(), nodes };
    let Ok(root) = RecipeRoot::from_bytes(&root) else { return };
    let known = nodes.by_hash();
    let lookup = |hash: &NodeHash| Ok::<_, Infallible>(known.get(hash).map(|node| node.to_vec()));
    let (mut end, mut is_whole) = (0, false);
    let mut walk = recipe::walk(&root, lookup);
    for _ in 0..MOST_RUNS {
        let Some(extent) = walk.next() else {
            is_whole = true;
            break;
        };
        let Ok(extent) = extent else { break };
        end = follows(&extent, end, root.size);
    }
    assert!(!is_whole || end == root.size);
    for from in [root.size / 2, root.size.saturating_sub(1), root.size, u64::MAX] {
        match recipe::seek(&root, from, lookup).next() {
            Some(Ok(extent)) => assert!(extent.range().contains(&from)),
            Some(Err(_)) => {}
            None => assert!(from >= root.size),
        }
    }
    for old in others(&root, &nodes.nodes) {
        let Ok(difference) = recipe::difference(&old, &root, 100, lookup) else { continue };
        for extent in difference.take(MOST_RUNS) {
            let Ok(extent) = extent else { break };
            assert!(extent.range().end <= root.size);
        }
    }
}

/// The same recipe, and those of the objects that its first and its last node make up.
fn others(root: &RecipeRoot, nodes: &[Vec<u8>]) -> Vec<RecipeRoot> {
    let of = |bytes: &Vec<u8>| {
        let node = recipe::RecipeNode::from_bytes(bytes).ok()?;
        Some(RecipeRoot { top: NodeHash::of(bytes), size: node.bytes(), ..*root })
    };
    [nodes.first().and_then(of), nodes.last().and_then(of), Some(*root)].into_iter().flatten().collect()
}

fn follows(extent: &Extent, end: u64, size: u64) -> u64 {
    assert_eq!(extent.offset, end);
    assert!(extent.run.len > 0 && extent.run.repeat > 0 && extent.range().end <= size);
    extent.range().end
}

/// A recipe that comes in parts from a peer, its nodes in the order in which they are asked for, and in any other.
pub fn recipe_reader(data: &[u8]) {
    let nodes = Nodes::read(data);
    let Ok(root) = RecipeRoot::from_bytes(&nodes.root) else { return };
    let known = nodes.by_hash();
    let mut asked = Vec::new();
    let lookup = |hash: &NodeHash| {
        let node = known.get(hash).map(|node| Bytes::from(node.to_vec()));
        asked.extend(node.clone());
        Ok::<_, Infallible>(node.map(Vec::from))
    };
    recipe::walk(&root, lookup).take(MOST_RUNS).take_while(Result::is_ok).for_each(drop);
    reads(&root, asked, data.len() % 7 + 1);
    reads(&root, nodes.nodes.iter().rev().cloned().map(Bytes::from).collect(), data.len() % 5 + 1);
}

/// Hands the nodes to a reader, so many at once. What it takes for whole has all of the object's chunks.
fn reads(root: &RecipeRoot, nodes: Vec<Bytes>, at_once: usize) {
    let mut reader = RecipeReader::new(root.object, root.size);
    let (mut nodes, mut first) = (VecDeque::from(nodes), Some(Bytes::from(root.to_bytes())));
    while first.is_some() || !nodes.is_empty() {
        let some = nodes.drain(..at_once.min(nodes.len())).collect();
        let part = RecipePart { maker: SourceId::other("a peer", None), root: first.take(), nodes: some };
        if reader.take(part).is_err() {
            return;
        }
    }
    if let Ok(Some(claim)) = reader.finish() {
        assert!(claim.builds(root.size) && claim.chunks.len() <= MAX_CHUNKS);
    }
}

/// Recipes whose hashes are links.
pub fn seeds() -> Vec<Vec<u8>> {
    [1, 10, 300, 600].map(linked_recipe).into()
}

fn linked_recipe(chunks: u32) -> Vec<u8> {
    let (nodes, root) = seeds::content::recipe(chunks);
    let hashes: Vec<NodeHash> = nodes.iter().map(|node| NodeHash::of(node)).collect();
    let link = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        for (number, hash) in hashes.iter().enumerate() {
            if let Some(at) = bytes.windows(32).position(|window| window == hash.0) {
                let link = [&LINK[..], &(number as u32).to_le_bytes()].concat();
                bytes[at..at + 32].copy_from_slice(&link);
            }
        }
        bytes
    };
    let linked: Vec<Vec<u8>> = nodes.iter().map(|node| link(node)).collect();
    let all = Written::default().run(&link(&root.to_bytes()));
    all.runs(linked.iter().map(Vec::as_slice)).done()
}
