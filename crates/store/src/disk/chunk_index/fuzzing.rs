//! Doors for the fuzz targets in `fuzz/`: entries as they lie in the index. Nothing else asks for the feature `fuzzing`.

use towpath_content::chunking::ChunkHash;

use super::entry::{self, ChunkEntry};

/// The entries in a row of the index as hash, file, offset and length; and those of them that a search for `hash`
/// finds.
pub fn chunk_entries(bytes: &[u8], hash: &ChunkHash) -> (Vec<[u64; 4]>, Vec<[u64; 4]>) {
    let told = |entry: ChunkEntry| [entry.prefix, entry.cut, entry.offset, entry.len.into()];
    let found = entry::find(bytes, entry::prefix_of(hash));
    (entry::decode(bytes).map(told).collect(), found.map(told).collect())
}

/// The row that has these, sorted and without what is too much.
pub fn encode_entries(entries: &[[u64; 4]]) -> Vec<u8> {
    let entry = |&[prefix, cut, offset, len]: &[u64; 4]| ChunkEntry { prefix, cut, offset, len: len as u32 };
    let mut entries: Vec<ChunkEntry> = entries.iter().map(entry).collect();
    entry::tidy(&mut entries);
    entry::encode(&entries)
}
