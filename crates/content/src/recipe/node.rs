//! The nodes of a recipe: runs of chunks in leaves, children in inner nodes.

use super::shape::{MAX_ENTRIES, closes, closes_early};
use super::{MAX_SIZE, NodeHash, VERSION, root};
use crate::chunking::{ChunkHash, MAX_CHUNK_LEN};
use crate::codec::{DecodeError, Reader, Writer, invalid};

/// The greatest level of a node. An object of 2^44 bytes in chunks of 64 bytes has 2^38 entries;
/// each level has a sixteenth of the one below, so level 9 has one node.
pub const MAX_LEVEL: u8 = 9;
/// Bytes of the longest encoding of a node.
pub const MAX_NODE_LEN: usize = 4 + MAX_ENTRIES * (32 + 7 + 7);

/// Bytes of the shortest entry.
const MIN_ENTRY_LEN: usize = 32 + 1 + 1;

/// A chunk, repeated one or more times in a row: an entry of a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Run {
    /// The chunk's name.
    pub hash: ChunkHash,
    /// Bytes of the chunk.
    pub len: u32,
    /// Number of times that it stands here.
    pub repeat: u64,
}

impl Run {
    /// Bytes of all repeats together.
    pub const fn bytes(&self) -> u64 {
        self.repeat.saturating_mul(self.len as u64)
    }
}

/// A subtree: an entry of an inner node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Child {
    /// The child's name.
    pub hash: NodeHash,
    /// The object's bytes below it.
    pub bytes: u64,
    /// Chunks below it, each repeat counted.
    pub chunks: u64,
}

/// Entries of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entries {
    /// A leaf's chunks.
    Runs(Vec<Run>),
    /// An inner node's children.
    Children(Vec<Child>),
}

impl Entries {
    /// Number of entries.
    pub const fn len(&self) -> usize {
        match self {
            Self::Runs(runs) => runs.len(),
            Self::Children(children) => children.len(),
        }
    }

    /// True for the one leaf of the empty object.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes by which a node is closed.
    fn last_hash(&self) -> Option<&[u8; 32]> {
        match self {
            Self::Runs(runs) => runs.last().map(|run| &run.hash.0),
            Self::Children(children) => children.last().map(|child| &child.hash.0),
        }
    }

    /// True if a node with these entries takes no more.
    pub(super) fn are_complete(&self) -> bool {
        self.last_hash().is_some_and(|hash| closes(self.len(), hash))
    }

    fn close_early(&self) -> bool {
        match self {
            Self::Runs(runs) => closes_early(runs.iter().map(|run| &run.hash.0)),
            Self::Children(children) => closes_early(children.iter().map(|child| &child.hash.0)),
        }
    }
}

/// A node that is valid by itself: limits, sums and the shape rule hold inside of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecipeNode {
    level: u8,
    entries: Entries,
    bytes: u64,
    chunks: u64,
}

impl RecipeNode {
    /// A node of checked entries.
    pub fn new(level: u8, entries: Entries) -> Result<Self, DecodeError> {
        if (level == 0) != matches!(entries, Entries::Runs(_)) {
            return Err(invalid("node level", "does not go with the entries"));
        }
        check_limit("node level", level.into(), MAX_LEVEL.into())?;
        check_limit("node entries", entries.len() as u64, MAX_ENTRIES as u64)?;
        let (bytes, chunks) = match &entries {
            Entries::Runs(runs) => sum_runs(runs)?,
            Entries::Children(children) => sum_children(children)?,
        };
        if entries.close_early() {
            return Err(invalid("node entries", "go on after one that closes the node"));
        }
        Ok(Self { level, entries, bytes, chunks })
    }

    /// 0 for a leaf, else one more than its children's.
    pub const fn level(&self) -> u8 {
        self.level
    }

    /// The node's entries.
    pub const fn entries(&self) -> &Entries {
        &self.entries
    }

    /// The node's entries, for keeps.
    pub(super) fn into_entries(self) -> Entries {
        self.entries
    }

    /// The object's bytes below this node.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Chunks below this node, each repeat counted.
    pub const fn chunks(&self) -> u64 {
        self.chunks
    }

    /// The entry that stands for this node in its parent; `encoding` is [`Self::to_bytes`].
    pub(super) fn as_child(&self, encoding: &[u8]) -> Child {
        Child { hash: NodeHash::of(encoding), bytes: self.bytes, chunks: self.chunks }
    }

    /// The binary form.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.u8(VERSION).u8(self.level).varint(self.entries.len() as u64);
        match &self.entries {
            Entries::Runs(runs) => {
                for run in runs {
                    writer.raw(&run.hash.0).varint(run.len.into()).varint(run.repeat);
                }
            }
            Entries::Children(children) => {
                for child in children {
                    writer.raw(&child.hash.0).varint(child.bytes).varint(child.chunks);
                }
            }
        }
        writer.into_bytes()
    }

    /// Reads the binary form.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        check_limit("node bytes", bytes.len() as u64, MAX_NODE_LEN as u64)?;
        let mut reader = Reader::new(bytes);
        root::read_version("recipe node", &mut reader)?;
        let level = reader.u8("node level")?;
        let count = reader.bounded("node entries", MAX_ENTRIES as u64)? as usize;
        let entries = match level {
            0 => Entries::Runs(read_entries(&mut reader, count, read_run)?),
            _ => Entries::Children(read_entries(&mut reader, count, read_child)?),
        };
        reader.finish()?;
        Self::new(level, entries)
    }
}

/// Reads `count` entries once the bytes for them are known to be there.
fn read_entries<T>(
    reader: &mut Reader<'_>,
    count: usize,
    read: impl Fn(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let least = count * MIN_ENTRY_LEN;
    if let Some(needed) = least.checked_sub(reader.remaining()).filter(|needed| *needed > 0) {
        return Err(DecodeError::Truncated { field: "node entries", needed: needed as u64 });
    }
    (0..count).map(|_| read(reader)).collect()
}

fn read_run(reader: &mut Reader<'_>) -> Result<Run, DecodeError> {
    let hash = ChunkHash(reader.array("chunk hash")?);
    let len = reader.bounded("chunk length", MAX_CHUNK_LEN.into())? as u32;
    Ok(Run { hash, len, repeat: reader.bounded("chunk repeat", MAX_SIZE)? })
}

fn read_child(reader: &mut Reader<'_>) -> Result<Child, DecodeError> {
    let hash = NodeHash(reader.array("node hash")?);
    let bytes = reader.bounded("subtree bytes", MAX_SIZE)?;
    Ok(Child { hash, bytes, chunks: reader.bounded("subtree chunks", MAX_SIZE)? })
}

/// Bytes and chunks of a leaf.
fn sum_runs(runs: &[Run]) -> Result<(u64, u64), DecodeError> {
    if runs.windows(2).any(|pair| pair[0].hash == pair[1].hash) {
        return Err(invalid("chunk repeat", "is split over two entries"));
    }
    let mut sums = (0, 0);
    for run in runs {
        if run.len == 0 || run.len > MAX_CHUNK_LEN || run.repeat == 0 {
            return Err(invalid("chunk", "length and repeat must not be 0, nor the length over 16 MiB"));
        }
        add(&mut sums, run.repeat.checked_mul(run.len.into()), run.repeat)?;
    }
    Ok(sums)
}

/// Bytes and chunks of an inner node.
fn sum_children(children: &[Child]) -> Result<(u64, u64), DecodeError> {
    if children.is_empty() {
        return Err(invalid("node entries", "are missing"));
    }
    let mut sums = (0, 0);
    for child in children {
        if child.chunks == 0 || child.chunks > child.bytes {
            return Err(invalid("subtree chunks", "must be at least 1 and at most its bytes"));
        }
        add(&mut sums, Some(child.bytes), child.chunks)?;
    }
    Ok(sums)
}

/// Adds to bytes and chunks; there are never more chunks than bytes, so bytes alone are limited.
fn add(sums: &mut (u64, u64), bytes: Option<u64>, chunks: u64) -> Result<(), DecodeError> {
    let sum = bytes.and_then(|bytes| sums.0.checked_add(bytes));
    let found = sum.unwrap_or(u64::MAX);
    check_limit("node bytes below", found, MAX_SIZE)?;
    *sums = (found, sums.1 + chunks);
    Ok(())
}

const fn check_limit(field: &'static str, found: u64, limit: u64) -> Result<(), DecodeError> {
    if found > limit {
        return Err(DecodeError::TooLarge { field, found, limit });
    }
    Ok(())
}
