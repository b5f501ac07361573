//! What makes a new version of an old one: actions on files, under a predicate on the version they start from.
//!
//! An update is done whole or not at all. What follows from it is computed by client and server with the same code, and the
//! writer signs the result ([`crate::SignedRoot`]).

use towpath_content::codec::{Reader, Writer, invalid};
use towpath_content::{DecodeError, NodeId};

use crate::canonical::{Canonical, hash, list, node, number, option, version, write_list, write_option};
use crate::members::SignedMembers;
use crate::names::{Digest, FileId, VaultId};
use crate::root::{MAX_FILES, VaultParameters};
use crate::tuple::{BlockRef, MAX_BLOCK, Tuple};

/// The most bytes of an update's encoding. What is larger is written in several versions, the catalogue last.
pub const MAX_UPDATE: usize = 8 << 20;
/// The most bytes of the record of wrapped keys.
pub const MAX_KEYS: usize = 64 << 10;

/// The most actions of an update, on all files.
pub const MAX_ACTIONS: usize = 1 << 16;

/// The version that an update starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Predicate {
    /// Its number.
    pub number: u64,
    /// Hash of its root.
    pub root: Digest,
}

/// One step. Offsets are those of the file as the steps before it left it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpdateAction {
    /// Puts runs before the byte at `at`, or at the end. `at` may be in the middle of a run.
    Insert {
        /// The offset.
        at: u64,
        /// What is put there.
        tuples: Vec<Tuple>,
    },
    /// Takes bytes away.
    Delete {
        /// Where they begin.
        at: u64,
        /// How many; at least 1.
        length: u64,
    },
    /// Puts runs in the place of all there is.
    Replace {
        /// The new content; none: the file is empty.
        tuples: Vec<Tuple>,
    },
    /// Takes the file away. No step follows.
    Remove,
    /// The run that begins at `at` and gives all of its blocks gets one block more: a patch, after which it gives `plain` bytes.
    Patch {
        /// Where the run begins.
        at: u64,
        /// Bytes that it gives then.
        plain: u32,
        /// The patch.
        block: BlockRef,
    },
}

/// What is done with one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileUpdate {
    /// The file. The steps start from what the update's base has of it.
    pub file: FileId,
    /// Epoch that the file has then.
    pub epoch: u32,
    /// The steps, in order.
    pub actions: Vec<UpdateAction>,
}

/// A block that the client has and the server may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewBlock {
    /// Of the ciphertext.
    pub hash: Digest,
    /// Its bytes: 1 to [`MAX_BLOCK`].
    pub stored: u32,
}

/// A new version of a vault, as steps from an old one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// The vault.
    pub vault: VaultId,
    /// Whose key signs the result.
    pub writer: NodeId,
    /// The version it starts from: a committed one or one that an update before it makes. `None`: the vault is made.
    pub base: Option<Predicate>,
    /// What is fixed when the vault is made; else `None`.
    pub parameters: Option<VaultParameters>,
    /// New members, if they change. The first version has them.
    pub members: Option<SignedMembers>,
    /// A new record of wrapped keys, if it changes; at most [`MAX_KEYS`] bytes.
    pub keys: Option<Vec<u8>>,
    /// Files that change, by their ids in order.
    pub files: Vec<FileUpdate>,
    /// Blocks that the tuples name and the base does not. Each once, in the order in which they are sent.
    pub blocks: Vec<NewBlock>,
}

const INSERT: u8 = 1;
const DELETE: u8 = 2;
const REPLACE: u8 = 3;
const REMOVE: u8 = 4;
const PATCH: u8 = 5;

impl UpdateAction {
    /// Blocks that it names.
    pub fn blocks(&self) -> impl Iterator<Item = &BlockRef> {
        let (tuples, patch) = match self {
            Self::Insert { tuples, .. } | Self::Replace { tuples } => (tuples.as_slice(), None),
            Self::Delete { .. } | Self::Remove => (&[][..], None),
            Self::Patch { block, .. } => (&[][..], Some(block)),
        };
        tuples.iter().flat_map(|tuple| &tuple.chain).chain(patch)
    }
}

impl Canonical for Predicate {
    const NAME: &'static str = "predicate";
    const LIMIT: usize = 10 + 32;

    fn write(&self, out: &mut Writer) {
        out.varint(self.number).raw(&self.root.0);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { number: reader.varint("version")?, root: hash(reader, "root")? })
    }
}

impl Canonical for UpdateAction {
    const NAME: &'static str = "action";
    const LIMIT: usize = MAX_UPDATE;

    fn write(&self, out: &mut Writer) {
        match self {
            Self::Insert { at, tuples } => {
                out.u8(INSERT).varint(*at);
                write_list(out, tuples, Tuple::write);
            }
            Self::Delete { at, length } => {
                out.u8(DELETE).varint(*at).varint(*length);
            }
            Self::Replace { tuples } => {
                out.u8(REPLACE);
                write_list(out, tuples, Tuple::write);
            }
            Self::Remove => {
                out.u8(REMOVE);
            }
            Self::Patch { at, plain, block } => {
                out.u8(PATCH).varint(*at).varint((*plain).into());
                block.write(out);
            }
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let tuples = |reader: &mut Reader<'_>| list(reader, "tuples", MAX_UPDATE, Tuple::read);
        match reader.u8("action")? {
            INSERT => Ok(Self::Insert { at: reader.varint("offset")?, tuples: tuples(reader)? }),
            DELETE => Ok(Self::Delete { at: reader.varint("offset")?, length: reader.varint("length")? }),
            REPLACE => Ok(Self::Replace { tuples: tuples(reader)? }),
            REMOVE => Ok(Self::Remove),
            PATCH => Ok(Self::Patch {
                at: reader.varint("offset")?,
                plain: read_plain(reader)?,
                block: BlockRef::read(reader)?,
            }),
            _ => Err(invalid("action", "is none that this program knows")),
        }
    }
}

impl Canonical for FileUpdate {
    const NAME: &'static str = "file update";
    const LIMIT: usize = MAX_UPDATE;

    fn write(&self, out: &mut Writer) {
        out.raw(&self.file.0).varint(self.epoch.into());
        write_list(out, &self.actions, UpdateAction::write);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let file = FileId(reader.array("file id")?);
        let epoch = number(reader, "epoch")?;
        let actions = list(reader, "actions", MAX_ACTIONS, UpdateAction::read)?;
        Ok(Self { file, epoch, actions })
    }
}

impl Canonical for NewBlock {
    const NAME: &'static str = "new block";
    const LIMIT: usize = 32 + 3;

    fn write(&self, out: &mut Writer) {
        out.raw(&self.hash.0).varint(self.stored.into());
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let hash = hash(reader, "block hash")?;
        match reader.bounded("block length", MAX_BLOCK.into())? as u32 {
            0 => Err(invalid("block length", "is 0")),
            stored => Ok(Self { hash, stored }),
        }
    }
}

impl Canonical for Update {
    const NAME: &'static str = "update";
    const LIMIT: usize = MAX_UPDATE;

    fn write(&self, out: &mut Writer) {
        out.u8(1).raw(&self.vault.0).raw(&self.writer.0);
        write_option(out, self.base.as_ref(), Predicate::write);
        write_option(out, self.parameters.as_ref(), VaultParameters::write);
        write_option(out, self.members.as_ref(), SignedMembers::write);
        write_option(out, self.keys.as_ref(), |keys, out| {
            out.bytes(keys);
        });
        write_list(out, &self.files, FileUpdate::write);
        write_list(out, &self.blocks, NewBlock::write);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        version(reader, Self::NAME)?;
        let update = Self {
            vault: VaultId(reader.array("vault id")?),
            writer: node(reader, "writer")?,
            base: option(reader, "base", Predicate::read)?,
            parameters: option(reader, "parameters", VaultParameters::read)?,
            members: option(reader, "members", SignedMembers::read)?,
            keys: option(reader, "keys", |reader| reader.bytes("keys", MAX_KEYS).map(<[u8]>::to_vec))?,
            files: read_files(reader)?,
            blocks: list(reader, "blocks", MAX_UPDATE, NewBlock::read)?,
        };
        match update.files.is_sorted_by(|one, next| one.file < next.file) {
            true => Ok(update),
            false => Err(invalid("files", "are not in order")),
        }
    }
}

/// Reads how many bytes a patched run gives.
pub(crate) fn read_plain(reader: &mut Reader<'_>) -> Result<u32, DecodeError> {
    match reader.bounded("plaintext length", MAX_BLOCK.into())? as u32 {
        0 => Err(invalid("plaintext length", "is 0")),
        plain => Ok(plain),
    }
}

/// Reads what is done with files. Actions are counted in all, as one takes more memory than it has bytes.
fn read_files(reader: &mut Reader<'_>) -> Result<Vec<FileUpdate>, DecodeError> {
    let count = reader.bounded("files", MAX_FILES as u64)?;
    let (mut files, mut actions) = (Vec::new(), 0);
    for _ in 0..count {
        let file = FileUpdate::read(reader)?;
        actions += file.actions.len();
        if actions > MAX_ACTIONS {
            let (found, limit) = (actions as u64, MAX_ACTIONS as u64);
            return Err(DecodeError::TooLarge { field: "actions", found, limit });
        }
        files.push(file);
    }
    Ok(files)
}
