//! Where a run of a file's bytes lies: in which block, patched by which others, from where, how many.

use towpath_content::DecodeError;
use towpath_content::codec::{Reader, Writer, invalid};

use crate::canonical::{Canonical, hash, list, number, write_list};
use crate::names::{BlockId, Digest};

/// The most bytes of a block's ciphertext, and of the plaintext it gives: it goes into one frame.
pub const MAX_BLOCK: u32 = 1 << 20;
/// The most blocks of a chain: one whole block and patches on it.
pub const MAX_CHAIN: usize = 8;
/// The most bytes of a block reference's encoding.
pub const MAX_BLOCK_REF: usize = 16 + 32 + 3 + 5;
/// The most bytes of a tuple's encoding.
pub const MAX_TUPLE: usize = 3 * 3 + 1 + MAX_CHAIN * MAX_BLOCK_REF;

/// An encrypted block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockRef {
    /// Drawn by the client.
    pub id: BlockId,
    /// Of the ciphertext.
    pub hash: Digest,
    /// Bytes of the ciphertext: 1 to [`MAX_BLOCK`].
    pub stored: u32,
    /// Epoch of the file key that it is encrypted with.
    pub epoch: u32,
}

/// A run of a file's bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tuple {
    /// Bytes that it gives: 1 to `plain` less `offset`.
    pub length: u64,
    /// Where they begin in the plaintext.
    pub offset: u32,
    /// Bytes of the whole plaintext, after all patches: at most [`MAX_BLOCK`].
    pub plain: u32,
    /// A whole block, then patches, each on the result before it: 1 to [`MAX_CHAIN`].
    pub chain: Vec<BlockRef>,
}

impl Tuple {
    /// All the bytes of the block that has `plain` of them.
    pub fn whole(block: BlockRef, plain: u32) -> Self {
        Self { length: plain.into(), offset: 0, plain, chain: vec![block] }
    }

    /// Bytes of the plaintext that it does not give.
    pub fn excess(&self) -> u64 {
        u64::from(self.plain).saturating_sub(self.length)
    }

    /// The run from `from`, `length` bytes long, of this one. `None` if it has no such bytes.
    pub fn part(&self, from: u64, length: u64) -> Option<Self> {
        let end = from.checked_add(length)?;
        if length == 0 || end > self.length {
            return None;
        }
        let offset = u32::try_from(u64::from(self.offset) + from).ok()?;
        Some(Self { length, offset, ..self.clone() })
    }

    pub(crate) fn checked(self) -> Result<Self, DecodeError> {
        let end = self.length.checked_add(self.offset.into());
        match self {
            _ if self.length == 0 => Err(invalid("tuple", "gives no bytes")),
            _ if end.is_none_or(|end| end > self.plain.into()) => {
                Err(invalid("tuple", "reaches beyond its block"))
            }
            _ if self.chain.is_empty() => Err(invalid("tuple", "has no block")),
            tuple => Ok(tuple),
        }
    }
}

impl Canonical for BlockRef {
    const NAME: &'static str = "block reference";
    const LIMIT: usize = MAX_BLOCK_REF;

    fn write(&self, out: &mut Writer) {
        out.raw(&self.id.0).raw(&self.hash.0);
        out.varint(self.stored.into()).varint(self.epoch.into());
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let id = BlockId(reader.array("block id")?);
        let hash = hash(reader, "block hash")?;
        let stored = reader.bounded("block length", MAX_BLOCK.into())? as u32;
        if stored == 0 {
            return Err(invalid("block length", "is 0"));
        }
        Ok(Self { id, hash, stored, epoch: number(reader, "epoch")? })
    }
}

impl Canonical for Tuple {
    const NAME: &'static str = "tuple";
    const LIMIT: usize = MAX_TUPLE;

    fn write(&self, out: &mut Writer) {
        out.varint(self.length).varint(self.offset.into()).varint(self.plain.into());
        write_list(out, &self.chain, BlockRef::write);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let limit = MAX_BLOCK.into();
        let length = reader.bounded("tuple length", limit)?;
        let offset = reader.bounded("tuple offset", limit)? as u32;
        let plain = reader.bounded("plaintext length", limit)? as u32;
        let chain = list(reader, "chain", MAX_CHAIN, BlockRef::read)?;
        Self { length, offset, plain, chain }.checked()
    }
}
