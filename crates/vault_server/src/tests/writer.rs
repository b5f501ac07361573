//! A writer of one file, which knows what the file has in each version.

use bytes::Bytes;
use towpath_link::Identity;
use towpath_vault_format::doubles::{TestKey, block, creation, members, update_of};
use towpath_vault_format::tree::NodeMap;
use towpath_vault_format::{
    Canonical, Certificate, Digest, FileId, Members, NodeSource, SignedMembers, SignedRoot, TupleWalk,
    Update, UpdateAction, VaultId, VaultRoot, apply,
};
use towpath_vault_protocol::{Proposal, ProposalVerdict};

use crate::error::VaultError;
use crate::vault::Vault;

pub const VAULT: VaultId = VaultId([3; 16]);
pub const FILE: FileId = FileId([5; 16]);

/// A client with all it knows.
pub struct TestWriter {
    pub key: TestKey,
    pub members: Members,
    pub root: Option<VaultRoot>,
    pub nodes: NodeMap,
    pub content: Vec<u8>,
    blocks: u64,
}

/// A version that is signed, with what it makes of the file.
pub struct SignedUpdate {
    pub update: Update,
    pub root: VaultRoot,
    pub signature: [u8; 64],
    pub content: Vec<u8>,
    pub blocks: Vec<Bytes>,
    nodes: Vec<Vec<u8>>,
}

impl SignedUpdate {
    pub fn proposal(&self) -> Proposal {
        Proposal { update: self.update.clone(), signature: Some(self.signature) }
    }

    pub fn signed(&self) -> (Digest, [u8; 64]) {
        (self.root.digest(), self.signature)
    }

    /// Bytes of the nodes that it makes.
    pub fn node_bytes(&self) -> usize {
        self.nodes.iter().map(Vec::len).sum()
    }

    /// A block, as a connection asks for it.
    pub fn give(&self, hash: &Digest) -> std::io::Result<Bytes> {
        let found = self.blocks.iter().find(|block| Digest::of(block) == *hash);
        found.cloned().ok_or_else(|| std::io::ErrorKind::NotFound.into())
    }
}

impl TestWriter {
    /// The owner of a vault, whose key has this seed.
    pub fn new(seed: u8) -> Self {
        let key = TestKey::new(seed);
        let members = members(VAULT, &key, &[TestKey::new(40).node(), TestKey::new(41).node()], &[]).members;
        Self { key, members, root: None, nodes: NodeMap::default(), content: Vec::new(), blocks: 0 }
    }

    /// Another writer of the same vault, who knows what this one does.
    pub fn beside(&self, seed: u8) -> Self {
        Self {
            key: TestKey::new(seed),
            members: self.members.clone(),
            root: self.root.clone(),
            nodes: self.nodes.clone(),
            content: self.content.clone(),
            blocks: u64::from(seed) << 32,
        }
    }

    /// Signs an update on the version that this writer knows.
    pub fn sign(&self, update: Update, content: Vec<u8>, blocks: Vec<Bytes>) -> SignedUpdate {
        let base = self.root.as_ref().map(|root| (root, &self.members));
        let applied = apply(&update, base, &self.nodes).unwrap();
        let message = SignedRoot::message(&applied.root.digest(), &update.digest());
        let signature = self.key.sign(&message);
        let nodes = applied.nodes.into_iter().map(|node| node.bytes).collect();
        SignedUpdate { update, root: applied.root, signature, content, blocks, nodes }
    }

    /// The vault's first version, with the members as they stand here.
    pub fn creation(&self) -> SignedUpdate {
        let signed = SignedMembers::sign(self.members.clone(), |message| self.key.sign(message));
        self.sign(creation(VAULT, 4, signed), Vec::new(), Vec::new())
    }

    /// Puts blocks of these lengths at `at`.
    pub fn insertion(&mut self, at: usize, lens: &[usize]) -> SignedUpdate {
        let root = self.root.clone().unwrap();
        let (mut tuples, mut news, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        let mut content = self.content.clone();
        for len in lens {
            self.blocks += 1;
            let mut random = fastrand::Rng::with_seed(self.blocks);
            let body: Vec<u8> = (0..*len).map(|_| random.u8(..)).collect();
            let (tuple, new) = block(&body, self.blocks);
            tuples.push(tuple);
            news.push(new);
            bytes.push(Bytes::from(body));
        }
        content.splice(at..at, bytes.concat());
        let insert = vec![UpdateAction::Insert { at: at as u64, tuples }];
        let update = update_of(&root, self.key.node(), FILE, insert, news);
        self.sign(update, content, bytes)
    }

    /// The version is committed.
    pub fn committed(&mut self, version: SignedUpdate) {
        version.nodes.into_iter().for_each(|node| self.nodes.insert(node));
        self.root = Some(version.root);
        self.content = version.content;
    }
}

/// Commits as a connection would.
pub fn commit(
    vault: &mut Vault,
    version: &SignedUpdate,
    server: &Identity,
) -> Result<Certificate, VaultError> {
    let proposal = version.proposal();
    let lacking = match vault.judge(&proposal) {
        ProposalVerdict::Possible { lacking, .. } => lacking,
        ProposalVerdict::Conflict(conflict, _) => return Err(conflict.into()),
        ProposalVerdict::Refused(..) => return vault.commit(&proposal, server, 1),
    };
    for place in lacking {
        let hash = version.update.blocks[place as usize].hash;
        vault.keep(hash, version.give(&hash).unwrap())?;
    }
    vault.commit(&proposal, server, 1)
}

/// Reads the file as a version has it, from what the server gives alone.
pub fn content_of(vault: &Vault, root: &VaultRoot) -> Vec<u8> {
    struct Served<'a>(&'a Vault);
    impl NodeSource for Served<'_> {
        fn node(&self, name: &Digest) -> Result<Vec<u8>, towpath_vault_format::SourceFault> {
            Ok(self.0.object(name).unwrap().unwrap())
        }
    }
    let Some(file) = root.file(&FILE) else { return Vec::new() };
    let (served, mut content) = (Served(vault), Vec::new());
    for item in TupleWalk::new(&served, root.parameters.degree, file, 0..file.length, 1 << 20) {
        let (_, tuple) = item.unwrap();
        let block = vault.object(&tuple.chain[0].hash).unwrap().unwrap();
        let from = tuple.offset as usize;
        content.extend_from_slice(&block[from..from + tuple.length as usize]);
    }
    content
}
