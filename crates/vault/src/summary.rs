//! The summary of a file: keyed hashes and lengths of its chunks, in order. Soft state: it may be lost and is made again
//! from the file's bytes.
//!
//! It costs about 19 bytes a chunk, 2.4 MB a GB. Layout: `docs/formats/vault-blocks.md`.

use towpath_content::DecodeError;
use towpath_content::codec::{Reader, Writer, invalid};
use towpath_vault_format::Digest;
use towpath_vault_format::tuple::MAX_BLOCK;

/// The most chunks of a summary: those of 2 TiB.
pub const MAX_CHUNKS: usize = 1 << 28;

/// A chunk's plaintext, by a hash that only holders of the key can compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PlainHash(pub [u8; 16]);

/// A chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ChunkSummary {
    /// Of its bytes.
    pub hash: PlainHash,
    /// Its bytes: 1 to [`MAX_BLOCK`].
    pub length: u32,
}

/// The chunks of a file as it is in one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSummary {
    /// Hash of the file's root. A summary of another root is of another content.
    pub root: Digest,
    /// In order.
    pub chunks: Vec<ChunkSummary>,
}

impl ChunkSummary {
    /// That of a chunk under the key of the file's hashes.
    pub fn of(key: &[u8; 32], chunk: &[u8]) -> Self {
        let mut hash = [0; 16];
        hash.copy_from_slice(&blake3::keyed_hash(key, chunk).as_bytes()[..16]);
        Self { hash: PlainHash(hash), length: chunk.len() as u32 }
    }
}

impl FileSummary {
    /// The encoding.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::with_capacity(40 + 19 * self.chunks.len());
        out.u8(1).raw(&self.root.0).varint(self.chunks.len() as u64);
        for ChunkSummary { hash, length } in &self.chunks {
            out.raw(&hash.0).varint((*length).into());
        }
        out.into_bytes()
    }

    /// Reads an encoding.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        if reader.u8("summary")? != 1 {
            return Err(invalid("summary", "is of another version"));
        }
        let root = Digest(reader.array("root")?);
        let count = reader.bounded("chunks", MAX_CHUNKS as u64)?;
        // Memory is taken as they come, which is no more than there are bytes.
        let chunks = (0..count).map(|_| read_chunk(&mut reader)).collect::<Result<_, _>>()?;
        reader.finish().map(|()| Self { root, chunks })
    }
}

fn read_chunk(reader: &mut Reader<'_>) -> Result<ChunkSummary, DecodeError> {
    let hash = PlainHash(reader.array("chunk hash")?);
    match reader.bounded("chunk length", MAX_BLOCK.into())? as u32 {
        0 => Err(invalid("chunk length", "is 0")),
        length => Ok(ChunkSummary { hash, length }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn it_costs_at_most_five_megabytes_a_gigabyte() {
        let chunk = ChunkSummary { hash: PlainHash([7; 16]), length: 8 << 10 };
        let summary = FileSummary { root: Digest::NONE, chunks: vec![chunk; 1_000_000_000 / (8 << 10)] };
        assert!(summary.to_bytes().len() < 5_000_000);
    }

    proptest! {
        #[test]
        fn it_comes_back_and_never_cut_short(chunks in prop::collection::vec((any::<[u8; 16]>(), 1..=16_384u32), 0..20)) {
            let chunks = chunks.into_iter().map(|(hash, length)| ChunkSummary { hash: PlainHash(hash), length }).collect();
            let summary = FileSummary { root: Digest([3; 32]), chunks };
            let bytes = summary.to_bytes();
            prop_assert_eq!(FileSummary::from_bytes(&bytes), Ok(summary));
            prop_assert!((0..bytes.len()).all(|end| FileSummary::from_bytes(&bytes[..end]).is_err()));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            if let Ok(summary) = FileSummary::from_bytes(&bytes) {
                prop_assert_eq!(summary.to_bytes(), bytes);
            }
        }
    }

    #[test]
    fn another_key_is_another_hash() {
        assert_ne!(ChunkSummary::of(&[1; 32], b"plain"), ChunkSummary::of(&[2; 32], b"plain"));
    }
}
