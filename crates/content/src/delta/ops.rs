//! Copies and literals: what a delta is made of, its encoding, and how it is applied.

use thiserror::Error;

use super::VERSION;
use super::shape::{DeltaShape, MAX_BLOCKS, MAX_TARGET_LEN, MIN_BLOCK_LEN, ShapeError};
use super::signature::{read_block, read_version};
use crate::codec::{DecodeError, Reader, Writer, invalid};

/// Every copy but one of a shorter last block makes at least one block of the target.
const MAX_OPS: usize = MAX_TARGET_LEN / MIN_BLOCK_LEN as usize;
/// Bytes of the longest op: three numbers, none over 2^24.
const MAX_OP_LEN: usize = 4 + 3 + 3;

/// Literals, then blocks of the base region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Op {
    /// Number of bytes of the literals that come first.
    pub literal: u32,
    /// The first block to copy behind them; 0 if there is none.
    pub first: u32,
    /// Number of blocks in a row; 0 in a last op that only has literals.
    pub count: u32,
}

/// Instructions for making a target of a base region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delta {
    block: u32,
    ops: Vec<Op>,
    literals: Vec<u8>,
}

/// Reason why a delta does not make the target that was asked for: whoever made it is to blame, or the base
/// is another than the signed one. Ask for the bytes themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ApplyError {
    /// The base region cannot have been signed in blocks of this length.
    #[error("the base region does not go with the delta's blocks")]
    Base(#[source] ShapeError),
    /// Blocks are copied that the base region does not have.
    #[error("{count} blocks from number {first} on are copied, but the base region has {blocks}")]
    OutsideBase {
        /// The first block copied.
        first: u32,
        /// Number of blocks that are copied.
        count: u32,
        /// Number of blocks in the region.
        blocks: u32,
    },
    /// The delta makes more or fewer bytes than were asked for.
    #[error("the delta makes {found} bytes where {expected} were asked for")]
    Length {
        /// Number of bytes that were asked for.
        expected: usize,
        /// Number of bytes that it makes.
        found: u64,
    },
}

impl Delta {
    /// Operations that make the target, in order.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// The target's bytes that are copied from nowhere, in order.
    pub fn literals(&self) -> &[u8] {
        &self.literals
    }

    /// Makes the target of `base`: exactly `expected` bytes or an error, and no memory is taken before
    /// it is known that there are as many. Whether they are the right ones, their hash must say.
    pub fn apply(&self, base: &[u8], expected: usize) -> Result<Vec<u8>, ApplyError> {
        let shape = DeltaShape::new(base.len(), self.block).map_err(ApplyError::Base)?;
        let found = self.target_len(shape)?;
        if found != expected as u64 || expected > MAX_TARGET_LEN {
            return Err(ApplyError::Length { expected, found });
        }
        let mut target = Vec::with_capacity(expected);
        let mut literals = &self.literals[..];
        for op in &self.ops {
            // The literals are as many as the ops take, and the span was looked up before.
            let (literal, rest) = literals.split_at(op.literal as usize);
            literals = rest;
            target.extend_from_slice(literal);
            target.extend_from_slice(&base[span(shape, op)?]);
        }
        Ok(target)
    }

    fn target_len(&self, shape: DeltaShape) -> Result<u64, ApplyError> {
        let copied = self.ops.iter().map(|op| Ok(span(shape, op)?.len() as u64));
        Ok(self.literals.len() as u64 + copied.sum::<Result<u64, ApplyError>>()?)
    }

    pub(super) fn into_parts(self) -> (u32, Vec<Op>, Vec<u8>) {
        (self.block, self.ops, self.literals)
    }

    /// Of literals that are as many as the ops take.
    pub(super) const fn of_parts(block: u32, ops: Vec<Op>, literals: Vec<u8>) -> Self {
        Self { block, ops, literals }
    }

    /// The binary form.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        write_head(&mut writer, self.block, &self.ops);
        writer.raw(&self.literals);
        writer.into_bytes()
    }

    /// Reads the binary form.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        read_version("delta", &mut reader)?;
        let (block, ops) = read_head(&mut reader)?;
        let literals = ops.iter().map(|op| op.literal as usize).sum();
        let literals = reader.take("literals", literals)?.to_vec();
        reader.finish()?;
        Ok(Self { block, ops, literals })
    }
}

/// Writes what precedes the literals.
pub(super) fn write_head(writer: &mut Writer, block: u32, all: &[Op]) {
    let mut ops = Writer::new();
    let mut expected = 0;
    for op in all {
        ops.varint(op.literal.into()).varint(op.count.into());
        if op.count > 0 {
            ops.signed(i64::from(op.first) - i64::from(expected));
        }
        expected = op.first + op.count;
    }
    writer.u8(VERSION).u8(block.trailing_zeros() as u8).bytes(&ops.into_bytes());
}

/// Reads what precedes the literals, behind the version: the blocks' length, and ops that take no more
/// literals than there may be.
pub(super) fn read_head(reader: &mut Reader<'_>) -> Result<(u32, Vec<Op>), DecodeError> {
    let block = read_block(reader)?;
    let ops = read_ops(reader.bytes("delta ops", MAX_OPS * MAX_OP_LEN)?)?;
    let found = ops.iter().map(|op| u64::from(op.literal)).sum::<u64>();
    let limit = MAX_TARGET_LEN as u64;
    match found > limit {
        true => Err(DecodeError::TooLarge { field: "literals", found, limit }),
        false => Ok((block, ops)),
    }
}

/// The blocks that an op copies.
pub(super) fn blocks_of(shape: DeltaShape, op: &Op) -> Result<std::ops::Range<usize>, ApplyError> {
    span(shape, op)?;
    Ok(op.first as usize..(op.first + op.count) as usize)
}

pub(super) fn span(shape: DeltaShape, op: &Op) -> Result<std::ops::Range<usize>, ApplyError> {
    let outside = ApplyError::OutsideBase { first: op.first, count: op.count, blocks: shape.blocks() };
    shape.span(op.first, op.count).ok_or(outside)
}

fn read_ops(bytes: &[u8]) -> Result<Vec<Op>, DecodeError> {
    let mut reader = Reader::new(bytes);
    let mut ops: Vec<Op> = Vec::new();
    while reader.remaining() > 0 {
        if ops.len() == MAX_OPS {
            let (found, limit) = (MAX_OPS as u64 + 1, MAX_OPS as u64);
            return Err(DecodeError::TooLarge { field: "delta ops", found, limit });
        }
        let op = read_op(&mut reader, ops.last())?;
        if op.count == 0 && reader.remaining() > 0 {
            return Err(invalid("copied blocks", "are none, and another op follows"));
        }
        ops.push(op);
    }
    Ok(ops)
}

/// Reads the op behind `previous`, in its one form.
fn read_op(reader: &mut Reader<'_>, previous: Option<&Op>) -> Result<Op, DecodeError> {
    let literal = reader.bounded("literal bytes", MAX_TARGET_LEN as u64)? as u32;
    let count = reader.bounded("copied blocks", MAX_BLOCKS.into())? as u32;
    if count == 0 {
        let op = Op { literal, first: 0, count };
        return if literal > 0 { Ok(op) } else { Err(invalid("delta op", "does nothing")) };
    }
    let expected = previous.map_or(0, |op| op.first + op.count);
    let jump = reader.signed("first block")?;
    let first = i64::from(expected).checked_add(jump);
    let last = i64::from(MAX_BLOCKS - count);
    let Some(first) = first.filter(|first| (0..=last).contains(first)) else {
        return Err(invalid("first block", "is outside any region"));
    };
    if literal == 0 && jump == 0 && previous.is_some() {
        return Err(invalid("delta op", "goes on with the copy before it"));
    }
    Ok(Op { literal, first: first as u32, count })
}

/// Puts a delta together, with as few ops as can be.
pub(super) struct Maker {
    delta: Delta,
    /// Literals that no op has yet.
    literal: u32,
}

impl Maker {
    pub const fn new(block: u32) -> Self {
        Self { delta: Delta { block, ops: Vec::new(), literals: Vec::new() }, literal: 0 }
    }

    /// The block behind the last one copied.
    pub fn expected(&self) -> u32 {
        self.delta.ops.last().map_or(0, |op| op.first + op.count)
    }

    pub fn literal(&mut self, bytes: &[u8]) {
        self.literal += bytes.len() as u32;
        self.delta.literals.extend_from_slice(bytes);
    }

    pub fn copy(&mut self, block: u32) {
        let literal = std::mem::take(&mut self.literal);
        match self.delta.ops.last_mut() {
            Some(op) if literal == 0 && op.first + op.count == block => op.count += 1,
            _ => self.delta.ops.push(Op { literal, first: block, count: 1 }),
        }
    }

    pub fn finish(mut self) -> Delta {
        if self.literal > 0 {
            self.delta.ops.push(Op { literal: self.literal, first: 0, count: 0 });
        }
        self.delta
    }
}
