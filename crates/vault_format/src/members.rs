//! Who may do what with a vault. The owner signs it; a server and clients go by it.

use towpath_content::codec::{Reader, Writer, invalid};
use towpath_content::{DecodeError, NodeId};

use crate::canonical::{Canonical, list, node, option, statement, version, write_list, write_option};
use crate::names::VaultId;

/// The most writers, and the most readers.
pub const MAX_MEMBERS: usize = 256;

/// The members of a vault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Members {
    /// The vault.
    pub vault: VaultId,
    /// 0 for the first; each change of members has the next number, so an old record can't come back.
    pub number: u64,
    /// May write, read and change members.
    pub owner: NodeId,
    /// May drop versions and do nothing else; none: nobody may.
    pub deleter: Option<NodeId>,
    /// May add versions and read, in order.
    pub writers: Vec<NodeId>,
    /// May read, in order.
    pub readers: Vec<NodeId>,
}

impl Members {
    /// True if `node` may add versions.
    pub fn may_write(&self, node: &NodeId) -> bool {
        *node == self.owner || self.writers.binary_search(node).is_ok()
    }

    /// True if `node` may read.
    pub fn may_read(&self, node: &NodeId) -> bool {
        self.may_write(node) || self.readers.binary_search(node).is_ok()
    }

    /// True if `node` may say that versions are dropped.
    pub fn may_drop(&self, node: &NodeId) -> bool {
        self.deleter.as_ref() == Some(node)
    }
}

/// The members with their owner's word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedMembers {
    /// The members.
    pub members: Members,
    /// Of the owner.
    pub signature: [u8; 64],
}

impl SignedMembers {
    /// Signs with the owner's key.
    pub fn sign(members: Members, sign: impl FnOnce(&[u8]) -> [u8; 64]) -> Self {
        let signature = sign(&Self::message(&members));
        Self { members, signature }
    }

    fn message(members: &Members) -> Vec<u8> {
        statement("members", &[&members.to_bytes()])
    }

    /// True if the signature is the owner's.
    pub fn is_signed(&self) -> bool {
        self.members.owner.verify(&Self::message(&self.members), &self.signature)
    }

    /// True if this may follow `before`: the same owner's next word.
    pub fn may_follow(&self, before: &Members) -> bool {
        let Members { vault, number, owner, .. } = &self.members;
        let is_next = before.number.checked_add(1) == Some(*number);
        is_next && *vault == before.vault && *owner == before.owner && self.is_signed()
    }
}

impl Canonical for Members {
    const NAME: &'static str = "members";
    const LIMIT: usize = 1 + 16 + 10 + 32 + 33 + 2 * (2 + 32 * MAX_MEMBERS);

    fn write(&self, out: &mut Writer) {
        let write = |node: &NodeId, out: &mut Writer| {
            out.raw(&node.0);
        };
        out.u8(1).raw(&self.vault.0).varint(self.number).raw(&self.owner.0);
        write_option(out, self.deleter.as_ref(), write);
        write_list(out, &self.writers, write);
        write_list(out, &self.readers, write);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        version(reader, Self::NAME)?;
        let vault = VaultId(reader.array("vault id")?);
        let (number, owner) = (reader.varint("number of members")?, node(reader, "owner")?);
        let deleter = option(reader, "deleter", |reader| node(reader, "deleter"))?;
        let writers = list(reader, "writers", MAX_MEMBERS, |reader| node(reader, "writer"))?;
        let readers = list(reader, "readers", MAX_MEMBERS, |reader| node(reader, "reader"))?;
        let in_order = |nodes: &[NodeId]| nodes.is_sorted_by(|one, next| one < next);
        match in_order(&writers) && in_order(&readers) {
            true => Ok(Self { vault, number, owner, deleter, writers, readers }),
            false => Err(invalid("members", "are not in order")),
        }
    }
}

impl Canonical for SignedMembers {
    const NAME: &'static str = "signed members";
    const LIMIT: usize = Members::LIMIT + 64;

    fn write(&self, out: &mut Writer) {
        self.members.write(out);
        out.raw(&self.signature);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { members: Members::read(reader)?, signature: reader.array("signature")? })
    }
}
