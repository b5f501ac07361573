//! An update as it goes over a line and lies in a log: without what whoever reads it knows already.
//!
//! | what is left out | where it comes from |
//! |---|---|
//! | vault, writer, hash of the base | the connection, or the signed root beside it ([`KnownUpdate`]) |
//! | hash and length of a new block | its bytes, which are in the packed update or beside it |
//! | id, hash, length and epoch of a new block in a step | the list of blocks, of which it is the next; ids are counted on |
//!
//! It is a form, not a record: names and signatures are of [`Update::to_bytes`], which is the same again once it is read. So nobody has to
//! believe what was filled in: with anything else the signature is of another update. Layout: `docs/formats/vault.md`.

use bytes::Bytes;
use towpath_content::codec::{Reader, Writer, invalid};
use towpath_content::{DecodeError, NodeId};

use crate::canonical::{Canonical, number};
use crate::members::SignedMembers;
use crate::names::{BlockId, Digest, FileId, VaultId};
use crate::root::{MAX_FILES, VaultParameters};
use crate::tuple::{BlockRef, MAX_BLOCK, MAX_CHAIN, Tuple};
use crate::update::{
    FileUpdate, MAX_ACTIONS, MAX_KEYS, MAX_UPDATE, NewBlock, Predicate, Update, UpdateAction, read_plain,
};

/// Bytes of a base's hash that are there: they tell whether it is the one that is known.
const BASE: usize = 8;
/// The most new blocks of a packed update.
const MAX_BLOCKS: usize = MAX_UPDATE / 33;

/// What whoever reads a packed update knows already.
pub struct KnownUpdate<'a> {
    /// Its vault.
    pub vault: VaultId,
    /// Who wrote it, most likely.
    pub writer: NodeId,
    /// The hash of the root of a version.
    pub root: &'a dyn Fn(u64) -> Option<Digest>,
}

/// Where a new block's bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockPlace<'a> {
    /// Nowhere near: its hash and length are written.
    Elsewhere,
    /// They go along.
    Here(&'a [u8]),
    /// Beside the packed update, as this one of what is there.
    Beside(u32),
}

/// An update that was packed, and those of its blocks that went along.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnpackedUpdate {
    /// The update.
    pub update: Update,
    /// Bytes of the blocks that were in it, in the order of its list.
    pub blocks: Vec<Bytes>,
}

const HAS_BASE: u8 = 1;
const HAS_PARAMETERS: u8 = 2;
const HAS_MEMBERS: u8 = 4;
const HAS_KEYS: u8 = 8;
const HAS_WRITER: u8 = 16;
const HAS_OTHER_BASE: u8 = 32;
const ALL_PARTS: u8 = 63;

/// Packs an update for who knows this. `place` tells of each new block, by its number, where its bytes are.
pub fn pack<'a>(
    update: &Update,
    known: &KnownUpdate<'_>,
    place: impl Fn(usize) -> BlockPlace<'a>,
) -> Vec<u8> {
    let mut out = Writer::new();
    let is_known = |base: &Predicate| (known.root)(base.number) == Some(base.root);
    let is_other = update.base.as_ref().is_some_and(|base| !is_known(base));
    let parts = [
        (HAS_BASE, update.base.is_some()),
        (HAS_PARAMETERS, update.parameters.is_some()),
        (HAS_MEMBERS, update.members.is_some()),
        (HAS_KEYS, update.keys.is_some()),
        (HAS_WRITER, update.writer != known.writer),
        (HAS_OTHER_BASE, is_other),
    ];
    out.u8(parts.iter().filter(|(_, is_there)| *is_there).map(|(part, _)| part).sum());
    if update.writer != known.writer {
        out.raw(&update.writer.0);
    }
    if let Some(base) = &update.base {
        let len = if is_other { base.root.0.len() } else { BASE };
        out.varint(base.number).raw(&base.root.0[..len]);
    }
    update.parameters.iter().for_each(|parameters| parameters.write(&mut out));
    update.members.iter().for_each(|members| members.write(&mut out));
    update.keys.iter().for_each(|keys| {
        out.bytes(keys);
    });
    write_blocks(&mut out, &update.blocks, place);
    let mut packer = StepPacker::new(&update.blocks);
    write_list_mut(&mut out, &update.files, |file, out| packer.file(file, out));
    out.into_bytes()
}

fn write_blocks<'a>(out: &mut Writer, blocks: &[NewBlock], place: impl Fn(usize) -> BlockPlace<'a>) {
    out.varint(blocks.len() as u64);
    for (at, block) in blocks.iter().enumerate() {
        match place(at) {
            BlockPlace::Elsewhere => {
                out.u8(0);
                block.write(out);
            }
            BlockPlace::Beside(at) => {
                out.u8(1).varint(at.into());
            }
            BlockPlace::Here(bytes) => {
                out.varint(bytes.len() as u64 + 1).raw(bytes);
            }
        }
    }
}

/// Reads a packed update. `beside` gives hash and length of the blocks that are beside it.
pub fn unpack(
    packed: &Bytes,
    known: &KnownUpdate<'_>,
    beside: &dyn Fn(u32) -> Option<(Digest, u32)>,
) -> Result<UnpackedUpdate, DecodeError> {
    let (found, limit) = (packed.len() as u64, (MAX_UPDATE + MAX_UPDATE) as u64);
    if found > limit {
        return Err(DecodeError::TooLarge { field: "packed update", found, limit });
    }
    let mut reader = Reader::new(packed);
    let parts = reader.bounded("parts of an update", ALL_PARTS.into())? as u8;
    let has = |part| parts & part != 0;
    let writer = if has(HAS_WRITER) { NodeId(reader.array("writer")?) } else { known.writer };
    let base = match (has(HAS_BASE), has(HAS_OTHER_BASE)) {
        (true, true) => Some(Predicate::read(&mut reader)?),
        (true, false) => Some(read_base(&mut reader, known)?),
        (false, true) => return Err(invalid("base", "is another one, and is not there")),
        (false, false) => None,
    };
    let parameters = if has(HAS_PARAMETERS) { Some(VaultParameters::read(&mut reader)?) } else { None };
    let members = if has(HAS_MEMBERS) { Some(SignedMembers::read(&mut reader)?) } else { None };
    let keys = if has(HAS_KEYS) { Some(reader.bytes("keys", MAX_KEYS)?.to_vec()) } else { None };
    let (blocks, here) = read_blocks(&mut reader, beside)?;
    let files = read_files(&mut reader, &blocks)?;
    reader.finish()?;
    let update = Update { vault: known.vault, writer, base, parameters, members, keys, files, blocks };
    match update.files.is_sorted_by(|one, next| one.file < next.file) {
        true => Ok(UnpackedUpdate { update, blocks: here }),
        false => Err(invalid("files", "are not in order")),
    }
}

/// The base. One that is not known gets a hash that no version has.
fn read_base(reader: &mut Reader<'_>, known: &KnownUpdate<'_>) -> Result<Predicate, DecodeError> {
    let number = reader.varint("version")?;
    let begins: [u8; BASE] = reader.array("base")?;
    let found = (known.root)(number).filter(|root| root.0[..BASE] == begins);
    let mut unknown = Digest::NONE;
    unknown.0[..BASE].copy_from_slice(&begins);
    Ok(Predicate { number, root: found.unwrap_or(unknown) })
}

/// New blocks, and the bytes of those that are here.
fn read_blocks(
    reader: &mut Reader<'_>,
    beside: &dyn Fn(u32) -> Option<(Digest, u32)>,
) -> Result<(Vec<NewBlock>, Vec<Bytes>), DecodeError> {
    let count = reader.bounded("blocks", MAX_BLOCKS as u64)?;
    let (mut blocks, mut here) = (Vec::new(), Vec::new());
    for _ in 0..count {
        blocks.push(match reader.bounded("block", u64::from(MAX_BLOCK) + 1)? {
            0 => NewBlock::read(reader)?,
            1 => {
                let at = number(reader, "place of a block")?;
                let (hash, stored) = beside(at).ok_or(invalid("place of a block", "has none"))?;
                NewBlock { hash, stored }
            }
            len => {
                let bytes = Bytes::copy_from_slice(reader.take("block", len as usize - 1)?);
                here.push(bytes.clone());
                NewBlock { hash: Digest::of(&bytes), stored: bytes.len() as u32 }
            }
        });
    }
    Ok((blocks, here))
}

fn read_files(reader: &mut Reader<'_>, blocks: &[NewBlock]) -> Result<Vec<FileUpdate>, DecodeError> {
    let mut unpacker = StepUnpacker { blocks, next: 0, first_id: None, actions: 0, epoch: 0 };
    let count = reader.bounded("files", MAX_FILES as u64)?;
    (0..count).map(|_| unpacker.file(reader)).collect()
}

/// A list, by a writer that remembers.
fn write_list_mut<T>(out: &mut Writer, list: &[T], mut write: impl FnMut(&T, &mut Writer)) {
    out.varint(list.len() as u64);
    list.iter().for_each(|record| write(record, out));
}

const INSERT: u8 = 1;
const DELETE: u8 = 2;
const REPLACE: u8 = 3;
const REMOVE: u8 = 4;
const PATCH: u8 = 5;

/// A block that is not new, or as none of the other forms has it.
const OTHER: u8 = 0;
/// The new block behind the one that was named last.
const NEXT: u8 = 1;
/// A new block by its number.
const NUMBERED: u8 = 2;
/// A new block by its number, with its id: those of other numbers are counted from it.
const WITH_ID: u8 = 3;

/// The id of the new block number `place`, where `first` is that of number 0.
fn counted(first: BlockId, place: u32) -> BlockId {
    BlockId(u128::from_be_bytes(first.0).wrapping_add(place.into()).to_be_bytes())
}

/// The id of number 0, if that of number `place` is `id`.
fn first_of(id: BlockId, place: u32) -> BlockId {
    BlockId(u128::from_be_bytes(id.0).wrapping_sub(place.into()).to_be_bytes())
}

/// Writes steps.
struct StepPacker<'a> {
    blocks: &'a [NewBlock],
    /// Numbers of the new blocks, in order of their hashes.
    sorted: Vec<u32>,
    next: u32,
    first_id: Option<BlockId>,
    epoch: u32,
}

impl<'a> StepPacker<'a> {
    fn new(blocks: &'a [NewBlock]) -> Self {
        let mut sorted: Vec<u32> = (0..blocks.len() as u32).collect();
        sorted.sort_by_key(|at| blocks[*at as usize].hash);
        Self { blocks, sorted, next: 0, first_id: None, epoch: 0 }
    }

    fn file(&mut self, file: &FileUpdate, out: &mut Writer) {
        match file.file {
            FileId::CATALOGUE => out.u8(0),
            other => out.u8(1).raw(&other.0),
        };
        out.varint(file.epoch.into());
        self.epoch = file.epoch;
        write_list_mut(out, &file.actions, |action, out| self.action(action, out));
    }

    fn action(&mut self, action: &UpdateAction, out: &mut Writer) {
        match action {
            UpdateAction::Insert { at, tuples } => {
                out.u8(INSERT).varint(*at);
                write_list_mut(out, tuples, |tuple, out| self.tuple(tuple, out));
            }
            UpdateAction::Delete { at, length } => {
                out.u8(DELETE).varint(*at).varint(*length);
            }
            UpdateAction::Replace { tuples } => {
                out.u8(REPLACE);
                write_list_mut(out, tuples, |tuple, out| self.tuple(tuple, out));
            }
            UpdateAction::Remove => {
                out.u8(REMOVE);
            }
            UpdateAction::Patch { at, plain, block } => {
                out.u8(PATCH).varint(*at).varint((*plain).into());
                self.block(block, out);
            }
        }
    }

    /// A run: whether it is a part of its plaintext, and how many blocks it has, are one number.
    fn tuple(&mut self, tuple: &Tuple, out: &mut Writer) {
        let is_part = tuple.offset != 0 || tuple.excess() != 0;
        out.u8(2 * tuple.chain.len() as u8 + u8::from(is_part)).varint(tuple.length);
        if is_part {
            out.varint(tuple.offset.into()).varint(tuple.plain.into());
        }
        tuple.chain.iter().for_each(|block| self.block(block, out));
    }

    fn block(&mut self, block: &BlockRef, out: &mut Writer) {
        match self.place(block) {
            None => {
                out.u8(OTHER);
                block.write(out);
            }
            Some(place) => {
                let is_counted = self.first_id.is_some_and(|first| counted(first, place) == block.id);
                match is_counted {
                    true if place == self.next => out.u8(NEXT),
                    true => out.u8(NUMBERED).varint(place.into()),
                    false => {
                        self.first_id = Some(first_of(block.id, place));
                        out.u8(WITH_ID).varint(place.into()).raw(&block.id.0)
                    }
                };
                self.next = place + 1;
            }
        }
    }

    /// The number of a new block that has the file's epoch.
    fn place(&self, block: &BlockRef) -> Option<u32> {
        let found = self.sorted.binary_search_by_key(&block.hash, |at| self.blocks[*at as usize].hash);
        let place = self.sorted[found.ok()?];
        let is_it = self.blocks[place as usize].stored == block.stored && block.epoch == self.epoch;
        is_it.then_some(place)
    }
}

/// Reads steps.
struct StepUnpacker<'a> {
    blocks: &'a [NewBlock],
    next: u32,
    first_id: Option<BlockId>,
    /// So many were read.
    actions: usize,
    epoch: u32,
}

impl StepUnpacker<'_> {
    fn file(&mut self, reader: &mut Reader<'_>) -> Result<FileUpdate, DecodeError> {
        let file = match reader.bounded("file", 1)? {
            0 => FileId::CATALOGUE,
            _ => FileId(reader.array("file id")?),
        };
        self.epoch = number(reader, "epoch")?;
        let count = reader.bounded("actions", (MAX_ACTIONS - self.actions) as u64)?;
        self.actions += count as usize;
        let actions = (0..count).map(|_| self.action(reader)).collect::<Result<_, _>>()?;
        Ok(FileUpdate { file, epoch: self.epoch, actions })
    }

    fn action(&mut self, reader: &mut Reader<'_>) -> Result<UpdateAction, DecodeError> {
        match reader.u8("action")? {
            INSERT => Ok(UpdateAction::Insert { at: reader.varint("offset")?, tuples: self.tuples(reader)? }),
            DELETE => {
                Ok(UpdateAction::Delete { at: reader.varint("offset")?, length: reader.varint("length")? })
            }
            REPLACE => Ok(UpdateAction::Replace { tuples: self.tuples(reader)? }),
            REMOVE => Ok(UpdateAction::Remove),
            PATCH => Ok(UpdateAction::Patch {
                at: reader.varint("offset")?,
                plain: read_plain(reader)?,
                block: self.block(reader)?,
            }),
            _ => Err(invalid("action", "is none that this program knows")),
        }
    }

    fn tuples(&mut self, reader: &mut Reader<'_>) -> Result<Vec<Tuple>, DecodeError> {
        let count = reader.bounded("tuples", MAX_BLOCKS as u64)?;
        (0..count).map(|_| self.tuple(reader)).collect()
    }

    fn tuple(&mut self, reader: &mut Reader<'_>) -> Result<Tuple, DecodeError> {
        let head = reader.bounded("chain", 2 * MAX_CHAIN as u64 + 1)?;
        let length = reader.bounded("tuple length", MAX_BLOCK.into())?;
        let (offset, plain) = match head & 1 {
            0 => (0, length as u32),
            _ => {
                let offset = reader.bounded("tuple offset", MAX_BLOCK.into())? as u32;
                (offset, reader.bounded("plaintext length", MAX_BLOCK.into())? as u32)
            }
        };
        let chain = (0..head / 2).map(|_| self.block(reader)).collect::<Result<_, _>>()?;
        Tuple { length, offset, plain, chain }.checked()
    }

    fn block(&mut self, reader: &mut Reader<'_>) -> Result<BlockRef, DecodeError> {
        let form = reader.bounded("form of a block", WITH_ID.into())? as u8;
        let place = match form {
            OTHER => return BlockRef::read(reader),
            NEXT => self.next,
            _ => number(reader, "number of a block")?,
        };
        let new = self.blocks.get(place as usize).ok_or(invalid("number of a block", "has none"))?;
        if form == WITH_ID {
            self.first_id = Some(first_of(BlockId(reader.array("block id")?), place));
        }
        let first = self.first_id.ok_or(invalid("block id", "is not told"))?;
        self.next = place + 1;
        Ok(BlockRef { id: counted(first, place), hash: new.hash, stored: new.stored, epoch: self.epoch })
    }
}

#[cfg(test)]
mod tests;
