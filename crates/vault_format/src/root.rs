//! Roots: that of a file, and that of a version of the vault, which its writer signs.

use towpath_content::codec::{Reader, Writer, invalid};
use towpath_content::{DecodeError, NodeId};

use crate::canonical::{
    Canonical, hash, list, node, number, option, statement, version, write_list, write_option,
};
use crate::names::{Digest, FileId, VaultId};
use crate::node::{MAX_DEGREE, MAX_HEIGHT};

/// The most files of a vault: a root has a line for each.
pub const MAX_FILES: usize = 4096;
/// The most servers of a ring.
pub const MAX_RING: usize = 16;
/// The smallest degree: below it a node that is too small can't be joined with another.
pub const MIN_DEGREE: u8 = 2;
const MAX_FILE_ROOT: usize = 16 + 10 + 1 + 32 + 5 + 10;
const MAX_PARAMETERS: usize = 4 + 1 + 32 * MAX_RING;

/// How block ids are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockMode {
    /// At random: equal plaintext is never seen to be equal.
    Random,
    /// From the keyed hash of the plaintext: it is stored once. Kept for later; no client writes it yet.
    Convergent,
}

/// How plaintext is padded before it is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Padding {
    /// Not at all: a block's size is its content's.
    None,
    /// Padmé: at most 12 % more, so that few sizes exist.
    Padme,
}

/// What is fixed when a vault is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VaultParameters {
    /// Degree n of the trees: nodes have n to 2n + 1 entries. Default: 16.
    pub degree: u8,
    /// Of block ids. Default: random.
    pub mode: BlockMode,
    /// Of blocks. Default: Padmé.
    pub padding: Padding,
    /// Servers that keep each block. Default: 1; more are for later.
    pub replicas: u8,
    /// Servers that agree on the order of versions, sorted. Default: none; for later.
    pub ring: Vec<NodeId>,
}

impl Default for VaultParameters {
    fn default() -> Self {
        Self { degree: 16, mode: BlockMode::Random, padding: Padding::Padme, replicas: 1, ring: Vec::new() }
    }
}

/// A file as it is in one version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileRoot {
    /// Its name.
    pub file: FileId,
    /// Its bytes.
    pub length: u64,
    /// Of the top node; 0 if the file is empty.
    pub height: u8,
    /// Hash of the top node; [`Digest::NONE`] if the file is empty.
    pub top: Digest,
    /// Epoch of the key that new blocks get.
    pub epoch: u32,
    /// Bytes of plaintext that its tuples do not give, each tuple counted alone.
    pub dead: u64,
}

impl FileRoot {
    /// A file without bytes.
    pub const fn empty(file: FileId, epoch: u32) -> Self {
        Self { file, length: 0, height: 0, top: Digest::NONE, epoch, dead: 0 }
    }
}

/// A version of a vault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VaultRoot {
    /// The vault.
    pub vault: VaultId,
    /// 0 for the first version.
    pub number: u64,
    /// Hash of the root before; [`Digest::NONE`] for the first.
    pub previous: Digest,
    /// As the first version has them.
    pub parameters: VaultParameters,
    /// Hash of the record of who may what ([`crate::SignedMembers`]).
    pub members: Digest,
    /// Hash of the record of wrapped keys, which only clients understand.
    pub keys: Digest,
    /// Its files, by their ids in order; at most [`MAX_FILES`].
    pub files: Vec<FileRoot>,
}

impl VaultRoot {
    /// The file of this name.
    pub fn file(&self, file: &FileId) -> Option<&FileRoot> {
        self.files.binary_search_by(|root| root.file.cmp(file)).ok().map(|at| &self.files[at])
    }

    /// What a change of this file is based on: the hash of its root, or [`Digest::NONE`] if there is none.
    pub fn base_of(&self, file: &FileId) -> Digest {
        self.file(file).map_or(Digest::NONE, Canonical::digest)
    }
}

/// A version with the word of who wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedRoot {
    /// The version.
    pub root: VaultRoot,
    /// Who wrote it.
    pub writer: NodeId,
    /// Hash of the update that made it.
    pub update: Digest,
    /// Of the writer, over root and update.
    pub signature: [u8; 64],
}

impl SignedRoot {
    /// Signs a version with the key of `writer`.
    pub fn sign(
        root: VaultRoot,
        writer: NodeId,
        update: Digest,
        sign: impl FnOnce(&[u8]) -> [u8; 64],
    ) -> Self {
        let signature = sign(&Self::message(&root.digest(), &update));
        Self { root, writer, update, signature }
    }

    /// The bytes that are signed.
    pub fn message(root: &Digest, update: &Digest) -> Vec<u8> {
        statement("root", &[&root.0, &update.0])
    }

    /// True if the signature is the writer's. Whether this one may write is another question ([`crate::Members`]).
    pub fn is_signed(&self) -> bool {
        self.writer.verify(&Self::message(&self.root.digest(), &self.update), &self.signature)
    }
}

impl Canonical for VaultParameters {
    const NAME: &'static str = "vault parameters";
    const LIMIT: usize = MAX_PARAMETERS;

    fn write(&self, out: &mut Writer) {
        out.u8(self.degree);
        out.u8(u8::from(self.mode == BlockMode::Convergent));
        out.u8(u8::from(self.padding == Padding::Padme)).u8(self.replicas);
        write_list(out, &self.ring, |node, out| {
            out.raw(&node.0);
        });
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let degree = reader.u8("degree")?;
        if !(MIN_DEGREE..=MAX_DEGREE).contains(&degree) {
            return Err(invalid("degree", "is not 2 to 64"));
        }
        let mode = match reader.bounded("block mode", 1)? {
            0 => BlockMode::Random,
            _ => BlockMode::Convergent,
        };
        let padding = match reader.bounded("padding", 1)? {
            0 => Padding::None,
            _ => Padding::Padme,
        };
        let replicas = reader.u8("replicas")?;
        let ring = list(reader, "ring", MAX_RING, |reader| node(reader, "server"))?;
        match replicas {
            0 => Err(invalid("replicas", "is 0")),
            _ if !ring.is_sorted_by(|one, next| one < next) => Err(invalid("ring", "is not in order")),
            _ => Ok(Self { degree, mode, padding, replicas, ring }),
        }
    }
}

impl Canonical for FileRoot {
    const NAME: &'static str = "file root";
    const LIMIT: usize = MAX_FILE_ROOT;

    fn write(&self, out: &mut Writer) {
        out.raw(&self.file.0).varint(self.length).varint(self.epoch.into());
        let top = (!self.top.is_none()).then_some(());
        write_option(out, top.as_ref(), |(), out| {
            out.u8(self.height).raw(&self.top.0).varint(self.dead);
        });
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let file = FileId(reader.array("file id")?);
        let (length, epoch) = (reader.varint("file length")?, number(reader, "epoch")?);
        let top = option(reader, "top", |reader| {
            let height = reader.bounded("height", MAX_HEIGHT.into())? as u8;
            Ok((height, hash(reader, "top node")?, reader.varint("dead bytes")?))
        })?;
        match top {
            None if length == 0 => Ok(Self::empty(file, epoch)),
            Some((height, top, dead)) if length > 0 && !top.is_none() => {
                Ok(Self { file, length, height, top, epoch, dead })
            }
            _ => Err(invalid("file root", "bytes without a top node, or one without bytes")),
        }
    }
}

impl Canonical for VaultRoot {
    const NAME: &'static str = "vault root";
    const LIMIT: usize = 1 + 16 + 10 + 3 * 32 + MAX_PARAMETERS + 2 + MAX_FILES * MAX_FILE_ROOT;

    fn write(&self, out: &mut Writer) {
        out.u8(1).raw(&self.vault.0).varint(self.number).raw(&self.previous.0);
        self.parameters.write(out);
        out.raw(&self.members.0).raw(&self.keys.0);
        write_list(out, &self.files, FileRoot::write);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        version(reader, Self::NAME)?;
        let vault = VaultId(reader.array("vault id")?);
        let (number, previous) = (reader.varint("version")?, hash(reader, "previous root")?);
        let parameters = VaultParameters::read(reader)?;
        let (members, keys) = (hash(reader, "members")?, hash(reader, "keys")?);
        let files = list(reader, "files", MAX_FILES, FileRoot::read)?;
        if (number == 0) != previous.is_none() {
            return Err(invalid("previous root", "only the first version has none"));
        }
        if !files.is_sorted_by(|one, next| one.file < next.file) {
            return Err(invalid("files", "are not in order"));
        }
        Ok(Self { vault, number, previous, parameters, members, keys, files })
    }
}

impl Canonical for SignedRoot {
    const NAME: &'static str = "signed root";
    const LIMIT: usize = VaultRoot::LIMIT + 32 + 32 + 64;

    fn write(&self, out: &mut Writer) {
        self.root.write(out);
        out.raw(&self.writer.0).raw(&self.update.0).raw(&self.signature);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let root = VaultRoot::read(reader)?;
        let (writer, update) = (node(reader, "writer")?, hash(reader, "update")?);
        Ok(Self { root, writer, update, signature: reader.array("signature")? })
    }
}
