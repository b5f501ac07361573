//! Records of the log: packs that were written, versions, statements. Objects that are small together lie in the record itself, so
//! a small version costs one write. Layout: `docs/formats/vault.md`.

use std::collections::HashMap;

use bytes::Bytes;
use towpath_content::DecodeError;
use towpath_content::codec::{Reader, Writer, invalid};
use towpath_vault_format::canonical::{list, option, write_list, write_option};
use towpath_vault_format::packed::{BlockPlace, KnownUpdate, pack, unpack};
use towpath_vault_format::tuple::MAX_BLOCK;
use towpath_vault_format::{Canonical, Digest, DropStatement, Update};
use towpath_vault_protocol::CommittedVersion;

use crate::changes::{NodeChange, read_changes, write_changes};

/// The most objects of a record.
const MAX_OBJECTS: usize = 1 << 20;
/// The most bytes of an object.
const MAX_OBJECT: usize = MAX_BLOCK as usize;

/// A pack: objects one behind the other, in one object of the byte store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackList {
    /// Hash of the pack's bytes, which is its name.
    pub pack: Digest,
    /// Hashes and lengths of its objects, in order.
    pub objects: Vec<(Digest, u32)>,
}

/// A record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogRecord {
    /// A pack is durable.
    Pack(PackList),
    /// A version is committed.
    Version {
        /// With the words of writer and server.
        version: Box<CommittedVersion>,
        /// What made it.
        update: Box<Update>,
        /// A pack with its objects, if they are not few.
        pack: Option<PackList>,
        /// Nodes that are kept as patches.
        changes: Vec<NodeChange>,
        /// Its objects, if they are.
        objects: Vec<Vec<u8>>,
    },
    /// Versions may go.
    Drop(Box<DropStatement>),
    /// A version that was dropped: what is left of it.
    Gone(Box<CommittedVersion>),
    /// Objects that stay where others are collected.
    Objects(Vec<Vec<u8>>),
}

impl Canonical for PackList {
    const NAME: &'static str = "pack";
    const LIMIT: usize = 32 + 3 + 35 * MAX_OBJECTS;

    fn write(&self, out: &mut Writer) {
        out.raw(&self.pack.0);
        write_list(out, &self.objects, |(hash, len), out| {
            out.raw(&hash.0).varint((*len).into());
        });
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let pack = Digest(reader.array("pack")?);
        let objects = list(reader, "objects", MAX_OBJECTS, |reader| {
            Ok((Digest(reader.array("hash")?), reader.bounded("length", MAX_OBJECT as u64)? as u32))
        })?;
        Ok(Self { pack, objects })
    }
}

impl Canonical for LogRecord {
    const NAME: &'static str = "record";
    const LIMIT: usize = crate::log::MAX_RECORD;

    fn write(&self, out: &mut Writer) {
        match self {
            Self::Pack(pack) => {
                out.u8(1);
                pack.write(out);
            }
            Self::Version { version, update, pack, changes, objects } => {
                out.u8(if changes.is_empty() { 2 } else { 6 });
                version.write(out);
                out.bytes(&packed(version, update, objects));
                write_option(out, pack.as_ref(), PackList::write);
                if !changes.is_empty() {
                    write_changes(out, changes);
                }
                write_objects(out, objects);
            }
            Self::Drop(statement) => {
                out.u8(3);
                statement.write(out);
            }
            Self::Gone(version) => {
                out.u8(4);
                version.write(out);
            }
            Self::Objects(objects) => {
                out.u8(5);
                write_objects(out, objects);
            }
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match reader.u8("record")? {
            1 => Self::Pack(PackList::read(reader)?),
            2 => read_version(reader, |_| Ok(Vec::new()))?,
            3 => Self::Drop(Box::new(DropStatement::read(reader)?)),
            4 => Self::Gone(Box::new(CommittedVersion::read(reader)?)),
            5 => Self::Objects(read_objects(reader)?),
            6 => read_version(reader, |reader| match read_changes(reader)? {
                none if none.is_empty() => Err(invalid("record", "has no changed nodes")),
                changes => Ok(changes),
            })?,
            _ => return Err(invalid("record", "is of a later version")),
        })
    }
}

fn read_version(
    reader: &mut Reader<'_>,
    changes: impl FnOnce(&mut Reader<'_>) -> Result<Vec<NodeChange>, DecodeError>,
) -> Result<LogRecord, DecodeError> {
    let version = Box::new(CommittedVersion::read(reader)?);
    let packed = Bytes::copy_from_slice(reader.bytes("update", Update::LIMIT)?);
    let pack = option(reader, "pack", PackList::read)?;
    let changes = changes(reader)?;
    let objects = read_objects(reader)?;
    let update = Box::new(unpacked(&version, &packed, &objects)?);
    Ok(LogRecord::Version { version, update, pack, changes, objects })
}

/// An update without what the version, and the objects in its record, say again.
fn packed(version: &CommittedVersion, update: &Update, objects: &[Vec<u8>]) -> Vec<u8> {
    let named = objects.iter().zip(0..).map(|(object, at)| (Digest::of(object), at));
    let places: HashMap<Digest, u32> = named.collect();
    let root = |number| root_before(version, number);
    pack(update, &known(version, &root), |at| {
        places.get(&update.blocks[at].hash).map_or(BlockPlace::Elsewhere, |place| BlockPlace::Beside(*place))
    })
}

fn unpacked(version: &CommittedVersion, packed: &Bytes, objects: &[Vec<u8>]) -> Result<Update, DecodeError> {
    let beside = |at: u32| objects.get(at as usize).map(|object| (Digest::of(object), object.len() as u32));
    let root = |number| root_before(version, number);
    unpack(packed, &known(version, &root), &beside).map(|unpacked| unpacked.update)
}

fn known<'a>(version: &CommittedVersion, root: &'a dyn Fn(u64) -> Option<Digest>) -> KnownUpdate<'a> {
    let signed = &version.signed;
    KnownUpdate { vault: signed.root.vault, writer: signed.writer, root }
}

/// The hash of the version before this one, if it is of that number.
fn root_before(version: &CommittedVersion, number: u64) -> Option<Digest> {
    let root = &version.signed.root;
    (root.number.checked_sub(1) == Some(number)).then_some(root.previous)
}

/// Objects stand last in a record, so where each begins is counted from the end.
fn write_objects(out: &mut Writer, objects: &[Vec<u8>]) {
    write_list(out, objects, |object, out| {
        out.bytes(object);
    });
}

fn read_objects(reader: &mut Reader<'_>) -> Result<Vec<Vec<u8>>, DecodeError> {
    list(reader, "objects", MAX_OBJECTS, |reader| reader.bytes("object", MAX_OBJECT).map(<[u8]>::to_vec))
}

/// Where each of the objects at the end of a record begins in it.
pub fn object_offsets(record_len: usize, objects: &[Vec<u8>]) -> Vec<usize> {
    let mut end = record_len;
    let mut offsets: Vec<usize> = Vec::with_capacity(objects.len());
    for object in objects.iter().rev() {
        let start = end - object.len();
        offsets.push(start);
        end = start - varint_len(object.len());
    }
    offsets.reverse();
    offsets
}

const fn varint_len(value: usize) -> usize {
    (usize::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
}
