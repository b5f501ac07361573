//! The chunks of a content in order, where each begins, and which of them has some plaintext: some 30 bytes a chunk for all of that, as
//! a large content has millions.

use hashbrown::HashTable;

use crate::keyed_hashes::keyed_hashes;

/// Chunks between two whose beginnings are kept.
const STEP: usize = 64;

/// A chunk's plaintext, by a hash that only holders of the key can compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PlainHash(pub [u8; 16]);

/// A chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ChunkSummary {
    /// Of its bytes.
    pub hash: PlainHash,
    /// Its bytes: 1 to 1 MiB.
    pub length: u32,
}

/// Chunks in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChunkList {
    chunks: Vec<ChunkSummary>,
    /// Where each [`STEP`]th begins.
    starts: Vec<u64>,
    length: u64,
}

/// Numbers of some chunks of a list, by their content.
#[derive(Debug, Default)]
pub struct ChunkTable {
    numbers: HashTable<u32>,
}

impl ChunkSummary {
    /// That of a chunk under the key of the file's hashes.
    pub fn of(key: &[u8; 32], chunk: &[u8]) -> Self {
        Self::new(blake3::keyed_hash(key, chunk).as_bytes(), chunk)
    }

    /// Those of several chunks, in less time.
    pub fn of_all(key: &[u8; 32], chunks: &[&[u8]]) -> Vec<Self> {
        keyed_hashes(key, chunks).iter().zip(chunks).map(|(hash, chunk)| Self::new(hash, chunk)).collect()
    }

    fn new(hash: &[u8; 32], chunk: &[u8]) -> Self {
        let mut short = [0; 16];
        short.copy_from_slice(&hash[..16]);
        Self { hash: PlainHash(short), length: chunk.len() as u32 }
    }
}

impl ChunkList {
    /// Adds a chunk.
    pub fn push(&mut self, chunk: ChunkSummary) {
        if self.chunks.len().is_multiple_of(STEP) {
            self.starts.push(self.length);
        }
        self.chunks.push(chunk);
        self.length += u64::from(chunk.length);
    }

    /// The chunks.
    pub fn chunks(&self) -> &[ChunkSummary] {
        &self.chunks
    }

    /// Bytes of all.
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// Where a chunk begins; where the last one ends, if there is none of this number.
    pub fn start(&self, number: usize) -> u64 {
        match self.starts.get(number / STEP) {
            Some(start) if number < self.chunks.len() => {
                let before = &self.chunks[number / STEP * STEP..number];
                start + before.iter().map(|chunk| u64::from(chunk.length)).sum::<u64>()
            }
            _ => self.length,
        }
    }

    /// The chunk that begins at `at`.
    pub fn beginning_at(&self, at: u64) -> Option<&ChunkSummary> {
        let step = self.starts.partition_point(|start| *start <= at).checked_sub(1)?;
        let mut start = self.starts[step];
        self.chunks[step * STEP..].iter().take(STEP).find(|chunk| {
            let begins = start == at;
            start += u64::from(chunk.length);
            begins
        })
    }
}

impl FromIterator<ChunkSummary> for ChunkList {
    fn from_iter<I: IntoIterator<Item = ChunkSummary>>(chunks: I) -> Self {
        let mut list = Self::default();
        chunks.into_iter().for_each(|chunk| list.push(chunk));
        list
    }
}

impl ChunkTable {
    /// All chunks of a list.
    pub fn of(list: &ChunkList) -> Self {
        let mut table = Self { numbers: HashTable::with_capacity(list.chunks.len()) };
        (0..list.chunks.len() as u32).for_each(|number| table.add(list, number));
        table
    }

    /// A chunk with this content.
    pub fn find(&self, list: &ChunkList, chunk: &ChunkSummary) -> Option<usize> {
        let is_it = |number: &u32| list.chunks.get(*number as usize) == Some(chunk);
        self.numbers.find(key(&chunk.hash), is_it).map(|number| *number as usize)
    }

    /// Adds a chunk of the list, unless there is one with its content.
    pub fn add(&mut self, list: &ChunkList, number: u32) {
        let Some(chunk) = list.chunks.get(number as usize) else { return };
        if self.find(list, chunk).is_none() {
            let key_of = |number: &u32| list.chunks.get(*number as usize).map_or(0, |chunk| key(&chunk.hash));
            self.numbers.insert_unique(key(&chunk.hash), number, key_of);
        }
    }
}

/// A part of a hash that nobody can choose who has not its key.
fn key(hash: &PlainHash) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = hash.0;
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn chunk(hash: u8, length: u32) -> ChunkSummary {
        ChunkSummary { hash: PlainHash([hash; 16]), length }
    }

    proptest! {
        #[test]
        fn chunks_are_found_where_they_begin_and_by_their_content(chunks in prop::collection::vec((0..50u8, 1..9u32), 0..400)) {
            let list: ChunkList = chunks.iter().map(|(hash, length)| chunk(*hash, *length)).collect();
            let table = ChunkTable::of(&list);
            let mut at = 0;
            for (number, found) in list.chunks().iter().enumerate() {
                prop_assert_eq!((list.start(number), list.beginning_at(at)), (at, Some(found)));
                let inside = (1..found.length).all(|byte| list.beginning_at(at + u64::from(byte)).is_none());
                prop_assert!(inside);
                let first = list.chunks().iter().position(|other| other == found);
                prop_assert_eq!(table.find(&list, found), first);
                at += u64::from(found.length);
            }
            let ends = (list.start(chunks.len()), list.length(), list.beginning_at(at));
            prop_assert_eq!(ends, (at, at, None));
            prop_assert_eq!(table.find(&list, &chunk(0, 9)), None, "of another length");
        }
    }
}
