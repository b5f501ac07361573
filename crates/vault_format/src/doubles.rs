//! Keys, members and updates for tests, of this crate and of those above it.

use ring::signature::{Ed25519KeyPair, KeyPair};
use towpath_content::NodeId;

use crate::members::{Members, SignedMembers};
use crate::names::{BlockId, Digest, FileId, VaultId};
use crate::root::{VaultParameters, VaultRoot};
use crate::tuple::{BlockRef, Tuple};
use crate::update::{FileUpdate, NewBlock, Predicate, Update, UpdateAction};

/// A key pair of a known seed.
#[derive(Debug)]
pub struct TestKey(Ed25519KeyPair);

impl TestKey {
    /// The key whose seed is this byte, 32 times.
    ///
    /// # Panics
    ///
    /// Never: each seed is one.
    pub fn new(seed: u8) -> Self {
        Self(Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).expect("a seed of 32 bytes"))
    }

    /// Its public half.
    pub fn node(&self) -> NodeId {
        let mut node = NodeId([0; 32]);
        node.0.copy_from_slice(self.0.public_key().as_ref());
        node
    }

    /// Its signature.
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        let mut signature = [0; 64];
        signature.copy_from_slice(self.0.sign(message).as_ref());
        signature
    }
}

/// The first members of the vault: this owner, these writers and readers.
pub fn members(vault: VaultId, owner: &TestKey, writers: &[NodeId], readers: &[NodeId]) -> SignedMembers {
    let sorted = |nodes: &[NodeId]| {
        let mut nodes = nodes.to_vec();
        nodes.sort();
        nodes
    };
    let members = Members {
        vault,
        number: 0,
        owner: owner.node(),
        deleter: None,
        writers: sorted(writers),
        readers: sorted(readers),
    };
    SignedMembers::sign(members, |message| owner.sign(message))
}

/// The update that makes a vault, without files.
pub fn creation(vault: VaultId, degree: u8, members: SignedMembers) -> Update {
    Update {
        vault,
        writer: members.members.owner,
        base: None,
        parameters: Some(VaultParameters { degree, ..VaultParameters::default() }),
        members: Some(members),
        keys: Some(b"wrapped keys".to_vec()),
        files: Vec::new(),
        blocks: Vec::new(),
    }
}

/// Ciphertext of these bytes: they themselves.
pub fn block(bytes: &[u8], id: u64) -> (Tuple, NewBlock) {
    let (hash, stored) = (Digest::of(bytes), bytes.len() as u32);
    let mut block_id = [0; 16];
    block_id[..8].copy_from_slice(&id.to_le_bytes());
    let block = BlockRef { id: BlockId(block_id), hash, stored, epoch: 0 };
    (Tuple::whole(block, stored), NewBlock { hash, stored })
}

/// An update of one file on `base`.
pub fn update_of(
    base: &VaultRoot,
    writer: NodeId,
    file: FileId,
    actions: Vec<UpdateAction>,
    blocks: Vec<NewBlock>,
) -> Update {
    let files = vec![FileUpdate { file, epoch: 0, actions }];
    let (vault, base) = (base.vault, Some(Predicate::on(base)));
    Update { vault, writer, base, parameters: None, members: None, keys: None, files, blocks }
}
