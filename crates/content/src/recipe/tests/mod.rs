//! Recipes of invented chunks, and a look-up that counts.

mod build;
mod difference;
mod encoding;
mod hostile;
mod walk;

use std::cell::Cell;
use std::collections::HashMap;
use std::convert::Infallible;

use proptest::prelude::*;

use super::walk as walk_recipe;
use super::*;
use crate::Oid;
use crate::chunking::{ChunkHash, Parameters};

/// Cases of the property tests that build whole recipes.
pub(super) const CASES: u32 = 64;

/// Small enough that invented lengths are easily within it.
pub(super) const PARAMETERS: Parameters = Parameters::Gear { min: 64, avg: 256, max: 65536 };

/// Finished nodes by name.
#[derive(Debug, Default, Clone)]
pub(super) struct Nodes {
    pub(super) bytes: HashMap<NodeHash, Vec<u8>>,
    pub(super) lookups: Cell<usize>,
}

impl Nodes {
    pub(super) fn lookup(&self) -> impl FnMut(&NodeHash) -> Result<Option<Vec<u8>>, Infallible> + '_ {
        |hash| {
            self.lookups.set(self.lookups.get() + 1);
            Ok(self.bytes.get(hash).cloned())
        }
    }

    pub(super) fn with(mut self, other: &Self) -> Self {
        self.bytes.extend(other.bytes.clone());
        self
    }

    /// Number of nodes that `other` lacks.
    pub(super) fn not_in(&self, other: &Self) -> usize {
        self.bytes.keys().filter(|hash| !other.bytes.contains_key(*hash)).count()
    }

    /// Keeps `node` and returns the entry for it.
    pub(super) fn keep(&mut self, node: &RecipeNode) -> Child {
        let bytes = node.to_bytes();
        let child = node.as_child(&bytes);
        self.bytes.insert(child.hash, bytes);
        child
    }

    pub(super) fn node(&self, hash: &NodeHash) -> RecipeNode {
        RecipeNode::from_bytes(&self.bytes[hash]).unwrap()
    }
}

/// The recipe of `runs`.
pub(super) fn build(runs: &[Run]) -> (RecipeRoot, Nodes) {
    let mut nodes = Nodes::default();
    let mut builder = RecipeBuilder::new(PARAMETERS, |hash, bytes: Vec<u8>| {
        assert!(bytes.len() <= MAX_NODE_LEN);
        assert_eq!(NodeHash::of(&bytes), hash);
        nodes.bytes.insert(hash, bytes);
        Ok::<_, Infallible>(())
    })
    .unwrap();
    for run in runs {
        builder.push_run(*run).unwrap();
    }
    let root = builder.finish(Oid::of(b"")).unwrap();
    (root, nodes)
}

/// A chunk distinguished by a number.
pub(super) fn chunk(number: u64) -> Run {
    let hash = ChunkHash::of(&number.to_le_bytes());
    Run { hash, len: 64 + (number % 1000) as u32, repeat: 1 }
}

/// Chunks `numbers`, each once.
pub(super) fn chunks(numbers: impl IntoIterator<Item = u64>) -> Vec<Run> {
    numbers.into_iter().map(chunk).collect()
}

/// `runs` with equal neighbours joined, and their offsets.
pub(super) fn joined(runs: &[Run]) -> Vec<Extent> {
    let mut extents: Vec<Extent> = Vec::new();
    let mut offset = 0;
    for run in runs {
        match extents.last_mut() {
            Some(last) if last.run.hash == run.hash => last.run.repeat += run.repeat,
            _ => extents.push(Extent { offset, run: *run }),
        }
        offset += run.bytes();
    }
    extents
}

/// All runs of a recipe.
pub(super) fn read(root: &RecipeRoot, nodes: &Nodes) -> Vec<Extent> {
    walk(root, nodes.lookup()).collect::<Result<_, _>>().unwrap()
}

/// Sequences of chunks: mostly new ones, some that come again, some repeated in a row.
pub(super) fn sequence() -> impl Strategy<Value = Vec<Run>> {
    let number = prop_oneof![4 => 0u64..1_000_000, 1 => 0u64..8];
    let repeat = prop_oneof![6 => Just(1u64), 1 => 1u64..1000];
    let run = (number, repeat).prop_map(|(number, repeat)| Run { repeat, ..chunk(number) });
    prop_oneof![
        1 => prop::collection::vec(run.clone(), 0..40),
        1 => prop::collection::vec(run, 0..1500),
    ]
}
