//! Where nodes come from: by hash, as bytes that nobody has believed yet.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::names::Digest;

/// Reason why there are no bytes for a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceFault {
    /// The node is not here.
    Missing,
    /// The place failed.
    Failed(String),
}

/// Nodes by hash. What it gives is compared with the hash by who reads it.
pub trait NodeSource {
    /// Bytes of a node.
    fn node(&self, name: &Digest) -> Result<Vec<u8>, SourceFault>;
}

/// Nodes in memory: a proof, or what an update made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeMap {
    nodes: BTreeMap<Digest, Vec<u8>>,
}

impl NodeMap {
    /// Adds a node under the hash that its bytes have, so a wrong one is never found.
    pub fn insert(&mut self, bytes: Vec<u8>) {
        self.nodes.insert(Digest::of(&bytes), bytes);
    }

    /// Takes a node away.
    pub fn remove(&mut self, name: &Digest) {
        self.nodes.remove(name);
    }

    /// All nodes, by their names.
    pub fn iter(&self) -> impl Iterator<Item = (&Digest, &Vec<u8>)> {
        self.nodes.iter()
    }

    /// Nodes that there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

impl FromIterator<Vec<u8>> for NodeMap {
    fn from_iter<I: IntoIterator<Item = Vec<u8>>>(nodes: I) -> Self {
        let mut map = Self::default();
        nodes.into_iter().for_each(|bytes| map.insert(bytes));
        map
    }
}

impl NodeSource for NodeMap {
    fn node(&self, name: &Digest) -> Result<Vec<u8>, SourceFault> {
        self.nodes.get(name).cloned().ok_or(SourceFault::Missing)
    }
}

/// Two sources: what the first lacks comes from the second.
impl<A: NodeSource, B: NodeSource> NodeSource for (&A, &B) {
    fn node(&self, name: &Digest) -> Result<Vec<u8>, SourceFault> {
        match self.0.node(name) {
            Err(SourceFault::Missing) => self.1.node(name),
            found => found,
        }
    }
}

/// Another source, and a record of the nodes that were read: with them alone the same can be computed again.
#[derive(Debug)]
pub struct NodeRecorder<'a, S> {
    inner: &'a S,
    read: RefCell<NodeMap>,
}

impl<'a, S: NodeSource> NodeRecorder<'a, S> {
    /// Records what is read of `inner`.
    pub fn new(inner: &'a S) -> Self {
        Self { inner, read: RefCell::default() }
    }

    /// The nodes that were read.
    pub fn into_nodes(self) -> NodeMap {
        self.read.into_inner()
    }
}

impl<S: NodeSource> NodeSource for NodeRecorder<'_, S> {
    fn node(&self, name: &Digest) -> Result<Vec<u8>, SourceFault> {
        let bytes = self.inner.node(name)?;
        self.read.borrow_mut().insert(bytes.clone());
        Ok(bytes)
    }
}
