//! Nodes as what they differ in from those that they replace. An update changes a path of a tree; of each node on it nearly all stays, and what is
//! new in a leaf stands in the update itself. So the log keeps a patch on the old node and the update's bytes, some 30 bytes, where the node has
//! some thousand. After so many patches on each other a node is kept whole: reading one takes bounded time.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use towpath_content::DecodeError;
use towpath_content::codec::{Reader, Writer};
use towpath_content::delta::patch;
use towpath_vault_format::Digest;
use towpath_vault_format::canonical::{list, write_list};
use towpath_vault_format::tree::NewNode;
use towpath_vault_format::tuple::MAX_BLOCK;

/// Half of a hash: enough to find an object, whose whole hash is checked when it is read.
pub type ShortHash = [u8; 16];

/// Patches on each other, at most.
pub const MAX_DEPTH: u8 = 64;
/// An update that is longer has many nodes, most of them new.
const MAX_UPDATE: usize = 64 << 10;
/// New nodes and old ones that are compared, each with each.
const MAX_PAIRS: usize = 256;
/// The most changed nodes of a record.
const MAX_CHANGES: usize = MAX_PAIRS;
/// Made nodes that are remembered.
const REMEMBERED: usize = 1024;

/// A node as a patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeChange {
    /// The node.
    pub name: ShortHash,
    /// The node that the patch is on, followed by the update's bytes.
    pub base: ShortHash,
    /// Bytes of the node.
    pub len: u32,
    /// What it differs in.
    pub patch: Vec<u8>,
}

/// Where a patch lies: in a record of the log.
#[derive(Debug, Clone, Copy)]
pub struct ChangeAt {
    /// Where the record begins, and its bytes.
    pub record: (u64, usize),
    /// Its place among the record's changes.
    pub place: usize,
    /// The node that it is on.
    pub base: ShortHash,
    /// Bytes of the node.
    pub len: u32,
    /// Bytes of the patch.
    pub stored: u32,
    /// Patches on each other, this one counted.
    pub depth: u8,
}

/// Nodes that were made of patches just now. Neighbours in time have nearly the same ones.
#[derive(Debug, Default)]
pub struct MadeNodes(Mutex<HashMap<ShortHash, Vec<u8>>>);

/// The short name of a hash.
pub fn short(hash: &Digest) -> ShortHash {
    let mut short = [0; 16];
    short.copy_from_slice(&hash.0[..16]);
    short
}

/// New nodes as patches on the nodes that an update read, `old`, of which `depth` tells how many patches they are. Those of which too little
/// stays are left whole.
pub fn changes_of(
    new: Vec<NewNode>,
    old: &[impl AsRef<[u8]>],
    update: &[u8],
    depth: impl Fn(&ShortHash) -> u8,
) -> (Vec<NodeChange>, Vec<NewNode>) {
    if update.len() > MAX_UPDATE || new.len() * old.len() > MAX_PAIRS {
        return (Vec::new(), new);
    }
    let bases = old.iter().map(|node| (short(&Digest::of(node.as_ref())), [node.as_ref(), update].concat()));
    let bases: Vec<_> = bases.filter(|(name, _)| depth(name) < MAX_DEPTH).collect();
    let (mut changes, mut whole) = (Vec::new(), Vec::new());
    for node in new {
        match best_change(&node, &bases) {
            Some(change) => changes.push(change),
            None => whole.push(node),
        }
    }
    (changes, whole)
}

/// The shortest patch that makes a node, if it is worth its names.
fn best_change(node: &NewNode, bases: &[(ShortHash, Vec<u8>)]) -> Option<NodeChange> {
    let patches = bases.iter().filter_map(|(base, bytes)| Some((*base, patch::make(bytes, &node.bytes)?)));
    let (base, patch) = patches.min_by_key(|(_, patch)| patch.len())?;
    let change = NodeChange { name: short(&node.name), base, len: node.bytes.len() as u32, patch };
    let cost = change.patch.len() + 2 * size_of::<ShortHash>() + 3;
    (2 * cost < node.bytes.len()).then_some(change)
}

impl NodeChange {
    /// The node that this makes of its base; `None`: none. Whether it is the right one its hash tells.
    pub fn made_of(&self, base: &[u8], update: &[u8]) -> Option<Vec<u8>> {
        patch::apply(&self.patch, &[base, update].concat(), self.len as usize).ok()
    }
}

impl MadeNodes {
    /// A node that was made.
    pub fn get(&self, name: &ShortHash) -> Option<Vec<u8>> {
        self.lock().get(name).cloned()
    }

    /// Remembers one.
    pub fn add(&self, name: ShortHash, node: Vec<u8>) {
        let mut made = self.lock();
        if made.len() >= REMEMBERED {
            made.clear();
        }
        made.insert(name, node);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ShortHash, Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes the changed nodes of a record.
pub fn write_changes(out: &mut Writer, changes: &[NodeChange]) {
    write_list(out, changes, |change, out| {
        out.raw(&change.name).raw(&change.base).varint(change.len.into()).bytes(&change.patch);
    });
}

/// Reads them.
pub fn read_changes(reader: &mut Reader<'_>) -> Result<Vec<NodeChange>, DecodeError> {
    list(reader, "changed nodes", MAX_CHANGES, |reader| {
        Ok(NodeChange {
            name: reader.array("node")?,
            base: reader.array("base")?,
            len: reader.bounded("length", MAX_BLOCK.into())? as u32,
            patch: reader.bytes("patch", MAX_BLOCK as usize)?.to_vec(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(bytes: Vec<u8>) -> NewNode {
        NewNode { name: Digest::of(&bytes), bytes }
    }

    /// A leaf of 24 runs, and what an update puts in the place of one.
    fn leaf() -> (Vec<u8>, Vec<u8>, Vec<u8>) {
        let mut random = fastrand::Rng::with_seed(1);
        let mut bytes = |len: usize| -> Vec<u8> { (0..len).map(|_| random.u8(..)).collect() };
        let (old, run) = (bytes(24 * 60), bytes(110));
        let new = [&old[..600], &run, &old[660..]].concat();
        (old, new, [&bytes(300)[..], &run, &bytes(100)].concat())
    }

    #[test]
    fn a_changed_node_is_some_bytes_and_comes_back() {
        let (old, new, update) = leaf();
        let other = vec![9; 2000];
        let (changes, whole) = changes_of(vec![node(new.clone())], &[other, old.clone()], &update, |_| 0);
        assert!(whole.is_empty());
        let [change] = &changes[..] else { panic!("{changes:?}") };
        assert!(change.patch.len() < 60, "{} bytes", change.patch.len());
        assert_eq!(change.base, short(&Digest::of(&old)));
        assert_eq!(change.made_of(&old, &update), Some(new));
        assert_eq!(change.made_of(&old[..100], &[]), None, "of another base nothing is made");
    }

    #[test]
    fn what_is_new_or_deep_or_of_many_is_whole() {
        let (old, new, update) = leaf();
        let left = |old: &[Vec<u8>], update: &[u8], depth| {
            changes_of(vec![node(new.clone())], old, update, |_| depth).1.len()
        };
        assert_eq!(left(std::slice::from_ref(&old), &update, MAX_DEPTH - 1), 0);
        assert_eq!(left(std::slice::from_ref(&old), &update, MAX_DEPTH), 1);
        assert_eq!(left(&[vec![3; 500]], &[], 0), 1);
        assert_eq!(left(&[], &update, 0), 1);
        assert_eq!(left(&vec![old.clone(); MAX_PAIRS + 1], &update, 0), 1);
        assert_eq!(left(&[old], &vec![1; MAX_UPDATE + 1], 0), 1);
    }

    #[test]
    fn changes_are_read_as_they_were_written() {
        let (old, new, update) = leaf();
        let (changes, _) = changes_of(vec![node(new)], &[old], &update, |_| 0);
        let mut out = Writer::new();
        write_changes(&mut out, &changes);
        let bytes = out.into_bytes();
        assert_eq!(read_changes(&mut Reader::new(&bytes)), Ok(changes));
        assert!((0..bytes.len()).all(|end| read_changes(&mut Reader::new(&bytes[..end])).is_err()));
    }
}
