//! The summary of a file: keyed hashes and lengths of its chunks, in order. Soft state: it may be lost and is made again
//! from the file's bytes.
//!
//! It costs about 19 bytes a chunk, 2.4 MB a GB. Layout: `docs/formats/vault-blocks.md`.

use std::io;
use std::sync::Arc;

use towpath_content::DecodeError;
use towpath_content::codec::{Reader, Writer, invalid};
use towpath_vault_format::Digest;
use towpath_vault_format::tuple::MAX_BLOCK;

pub use towpath_vault_difference::chunk_list::{ChunkList, ChunkSummary, PlainHash};

/// The most chunks of a summary: those of 2 TiB.
pub const MAX_CHUNKS: usize = 1 << 28;
/// Bytes of an encoded chunk, at most; an encoding begins with fewer than twice as many.
const MAX_PART: usize = 16 + 10;

/// The chunks of a file as it is in one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSummary {
    /// Hash of the file's root. A summary of another root is of another content.
    pub root: Digest,
    /// In order.
    pub chunks: Arc<ChunkList>,
}

/// Takes an encoding in parts of any size, so that it need not be in memory as a whole.
#[derive(Debug, Default)]
pub struct SummaryDecoder {
    /// What is not read yet.
    rest: Vec<u8>,
    /// The root, and how many chunks are to come.
    begun: Option<(Digest, u64)>,
    chunks: ChunkList,
}

impl FileSummary {
    /// The encoding.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(40 + 19 * self.chunks.chunks().len());
        // Memory takes all.
        let _ = write_summary(&self.root, &self.chunks, &mut out);
        out
    }

    /// Reads an encoding.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut decoder = SummaryDecoder::default();
        decoder.feed(bytes)?;
        decoder.finish()
    }
}

/// Writes the encoding of a summary of these chunks.
pub fn write_summary(root: &Digest, chunks: &ChunkList, to: &mut dyn io::Write) -> io::Result<()> {
    let mut out = Writer::new();
    out.u8(1).raw(&root.0).varint(chunks.chunks().len() as u64);
    to.write_all(&out.into_bytes())?;
    for ChunkSummary { hash, length } in chunks.chunks() {
        let mut out = Writer::with_capacity(MAX_PART);
        out.raw(&hash.0).varint((*length).into());
        to.write_all(&out.into_bytes())?;
    }
    Ok(())
}

impl SummaryDecoder {
    /// Takes the next bytes.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        self.rest.extend_from_slice(bytes);
        self.read(2 * MAX_PART)
    }

    /// The summary, if it is whole.
    pub fn finish(mut self) -> Result<FileSummary, DecodeError> {
        self.read(0)?;
        let Some((root, 0)) = self.begun else {
            return Err(DecodeError::Truncated { field: "summary", needed: 1 });
        };
        Reader::new(&self.rest).finish()?;
        Ok(FileSummary { root, chunks: Arc::new(self.chunks) })
    }

    /// Reads while more than `least` bytes are there.
    fn read(&mut self, least: usize) -> Result<(), DecodeError> {
        let mut reader = Reader::new(&self.rest);
        if self.begun.is_none() && reader.remaining() > least {
            self.begun = Some(read_head(&mut reader)?);
        }
        while let Some((_, left @ 1..)) = &mut self.begun
            && reader.remaining() > least
        {
            self.chunks.push(read_chunk(&mut reader)?);
            *left -= 1;
        }
        let done = self.rest.len() - reader.remaining();
        self.rest.drain(..done);
        Ok(())
    }
}

fn read_head(reader: &mut Reader<'_>) -> Result<(Digest, u64), DecodeError> {
    if reader.u8("summary")? != 1 {
        return Err(invalid("summary", "is of another version"));
    }
    let root = Digest(reader.array("root")?);
    Ok((root, reader.bounded("chunks", MAX_CHUNKS as u64)?))
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
        let chunks = std::iter::repeat_n(chunk, 1_000_000_000 / (8 << 10));
        let summary = FileSummary { root: Digest::NONE, chunks: Arc::new(chunks.collect()) };
        assert!(summary.to_bytes().len() < 5_000_000);
    }

    proptest! {
        #[test]
        fn it_comes_back_in_any_parts_and_never_cut_short(
            chunks in prop::collection::vec((any::<[u8; 16]>(), 1..=16_384u32), 0..20),
            part in 1..99usize,
        ) {
            let chunks: ChunkList =
                chunks.into_iter().map(|(hash, length)| ChunkSummary { hash: PlainHash(hash), length }).collect();
            let summary = FileSummary { root: Digest([3; 32]), chunks: Arc::new(chunks) };
            let bytes = summary.to_bytes();
            let mut decoder = SummaryDecoder::default();
            prop_assert!(bytes.chunks(part).all(|part| decoder.feed(part).is_ok()));
            prop_assert_eq!(decoder.finish(), Ok(summary.clone()));
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
