//! The signature of a base region: a weak and a strong sum of each of its blocks.

use super::VERSION;
use super::shape::{DeltaShape, MAX_REGION_LEN, MAX_STRONG_LEN, ShapeError, WEAK_LEN, strong_len};
use super::weak::WeakState;
use crate::codec::{DecodeError, Reader, Writer, invalid};

/// The sums of one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockSum {
    /// The rolling sum.
    pub weak: u32,
    /// The first bytes of the block's BLAKE3 hash, as many as the signature has of each,
    /// little-endian.
    pub strong: u64,
}

/// Signature of a base region: what a sender needs to find its blocks in a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    shape: DeltaShape,
    strong_len: u8,
    sums: Vec<BlockSum>,
}

impl Signature {
    /// Signs `base` in blocks of `block` bytes, for a target of `target` bytes: the longer both are,
    /// the longer the strong sums.
    pub fn of(base: &[u8], block: u32, target: usize) -> Result<Self, ShapeError> {
        let shape = DeltaShape::new(base.len(), block)?;
        let strong_len = strong_len(shape.blocks(), target);
        let sum =
            |bytes: &[u8]| BlockSum { weak: WeakState::of(bytes).weak(), strong: strong(bytes, strong_len) };
        let sums = base.chunks(block as usize).map(sum).collect();
        Ok(Self { shape, strong_len, sums })
    }

    /// Bytes of the base region.
    pub const fn region_len(&self) -> usize {
        self.shape.region() as usize
    }

    /// Bytes of a block; the last one may be shorter.
    pub const fn block_len(&self) -> u32 {
        self.shape.block()
    }

    /// The sums, in the order of the blocks.
    pub fn sums(&self) -> &[BlockSum] {
        &self.sums
    }

    pub(super) const fn shape(&self) -> DeltaShape {
        self.shape
    }

    /// The strong sum of `bytes` as this signature has them.
    pub(super) fn strong(&self, bytes: &[u8]) -> u64 {
        strong(bytes, self.strong_len)
    }

    /// The binary form.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.u8(VERSION).u8(self.shape.block().trailing_zeros() as u8).u8(self.strong_len);
        writer.varint(self.shape.region().into());
        for sum in &self.sums {
            writer.raw(&sum.weak.to_le_bytes());
            writer.raw(&sum.strong.to_le_bytes()[..self.strong_len.into()]);
        }
        writer.into_bytes()
    }

    /// Reads the binary form.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        read_version("delta signature", &mut reader)?;
        let block = read_block(&mut reader)?;
        let strong_len = reader.u8("strong sum length")?;
        if strong_len == 0 || strong_len > MAX_STRONG_LEN {
            return Err(invalid("strong sum length", "must be 1 to 8"));
        }
        let region = reader.bounded("region bytes", MAX_REGION_LEN as u64)? as usize;
        let shape = DeltaShape::new(region, block).map_err(|_| invalid("region blocks", "are over 65536"))?;
        let each = WEAK_LEN + usize::from(strong_len);
        let packed = reader.take("block sums", shape.blocks() as usize * each)?;
        reader.finish()?;
        Ok(Self { shape, strong_len, sums: packed.chunks_exact(each).map(read_sum).collect() })
    }
}

/// The first `len` bytes of the hash of `bytes` as a number.
fn strong(bytes: &[u8], len: u8) -> u64 {
    let hash = blake3::hash(bytes);
    read_number(&hash.as_bytes()[..len.into()])
}

fn read_number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn read_sum(bytes: &[u8]) -> BlockSum {
    let (weak, strong) = bytes.split_at(WEAK_LEN);
    BlockSum { weak: read_number(weak) as u32, strong: read_number(strong) }
}

/// Reads a version and refuses all but ours.
pub(super) fn read_version(field: &'static str, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
    match reader.u8(field)? {
        VERSION => Ok(()),
        found => Err(DecodeError::Version { field, found: found.into(), known: VERSION.into() }),
    }
}

/// Reads the logarithm of a block's length.
pub(super) fn read_block(reader: &mut Reader<'_>) -> Result<u32, DecodeError> {
    match reader.u8("block length")? {
        log @ 6..=16 => Ok(1 << log),
        _ => Err(invalid("block length", "must be 2^6 to 2^16")),
    }
}
