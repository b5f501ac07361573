//! Who may do what with a vault: its owner names members, and gives them the keys. Who leaves gets none of the next epoch.

use towpath_content::NodeId;
use towpath_vault_format::{Members, SignedMembers, update::MAX_KEYS};

use crate::client::{Offered, VaultClient};
use crate::error::VaultClientError;
use crate::keys::{KeySecret, MAX_EPOCHS, ShareError, SigningKey};
use crate::put::TRIES;

/// What a member may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberRole {
    /// Everything but to drop versions, for which another key is.
    Owner,
    /// Add versions, and read.
    Writer,
    /// Read.
    Reader,
    /// Fetch the wrapped keys: whoever has the owner's passphrase.
    Passphrase,
}

/// A member of a vault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VaultMember {
    /// The public key by which it is known.
    pub node: NodeId,
    /// What it may do.
    pub role: MemberRole,
    /// True for this machine's.
    pub is_own: bool,
}

impl MemberRole {
    /// For people and programs.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Writer => "writer",
            Self::Reader => "reader",
            Self::Passphrase => "passphrase",
        }
    }
}

impl VaultClient {
    /// The members, the owner first.
    pub fn members(&mut self) -> Result<Vec<VaultMember>, VaultClientError> {
        let sharers = self.keys_record()?.sharers();
        let Members { owner, writers, readers, .. } = &self.head.members.members;
        let own = self.keys.node();
        let member = |role, node: &NodeId| VaultMember { node: *node, role, is_own: own == Some(*node) };
        let reader = |node: &NodeId| match sharers.contains(node) {
            true => member(MemberRole::Reader, node),
            false => member(MemberRole::Passphrase, node),
        };
        let others =
            writers.iter().map(|node| member(MemberRole::Writer, node)).chain(readers.iter().map(reader));
        Ok([member(MemberRole::Owner, owner)].into_iter().chain(others).collect())
    }

    /// Shares the vault with a member, to read it, or to write it, too. False: it may do so already.
    pub fn share(&mut self, node: NodeId, may_write: bool) -> Result<bool, VaultClientError> {
        let wanted = if may_write { MemberRole::Writer } else { MemberRole::Reader };
        for _ in 0..TRIES {
            let owner = self.owner_key()?;
            let found =
                self.members()?.into_iter().find(|member| member.node == node).map(|member| member.role);
            if found == Some(wanted) || found == Some(MemberRole::Owner) {
                return Ok(false);
            }
            let mut members = self.head.members.members.clone();
            without(&mut members, &node);
            let list = if may_write { &mut members.writers } else { &mut members.readers };
            list.push(node);
            list.sort_unstable();
            let mut sharers = self.keys_record()?.sharers();
            sharers.push(node);
            if self.change_members(&owner, members, sharers, self.keys.epochs.clone())? {
                return Ok(true);
            }
        }
        Err(VaultClientError::Crowded { tries: TRIES })
    }

    /// Takes a member's rights away. What is written from now on is in a new epoch, of which it gets no key.
    pub fn revoke(&mut self, node: NodeId) -> Result<(), VaultClientError> {
        for _ in 0..TRIES {
            let owner = self.owner_key()?;
            let is_shared = |member: &VaultMember| {
                member.node == node && matches!(member.role, MemberRole::Writer | MemberRole::Reader)
            };
            if !self.members()?.iter().any(is_shared) {
                return Err(VaultClientError::NoMember(node.to_string()));
            }
            let mut members = self.head.members.members.clone();
            without(&mut members, &node);
            let mut epochs = self.keys.epochs.clone();
            if epochs.len() >= MAX_EPOCHS {
                return Err(ShareError::LastEpoch.into());
            }
            epochs.push(KeySecret::random()?);
            let sharers = self.keys_record()?.sharers();
            if self.change_members(&owner, members, sharers, epochs)? {
                return Ok(());
            }
        }
        Err(VaultClientError::Crowded { tries: TRIES })
    }

    /// The key whose word on members counts.
    fn owner_key(&self) -> Result<SigningKey, VaultClientError> {
        let own = self.keys.writer.clone().filter(|own| own.identity().node_id() == self.keys.owner);
        own.ok_or(VaultClientError::NotTheOwner)
    }

    /// Makes a version with other members, and a record of these epochs for those of `sharers` that are members. False: somebody else
    /// made a version meanwhile.
    fn change_members(
        &mut self,
        owner: &SigningKey,
        mut members: Members,
        mut sharers: Vec<NodeId>,
        epochs: Vec<KeySecret>,
    ) -> Result<bool, VaultClientError> {
        members.number += 1;
        sharers.push(self.keys.owner);
        sharers.retain(|node| members.may_read(node));
        sharers.sort_unstable();
        sharers.dedup();
        let keys = crate::keys::VaultKeys { epochs, ..self.keys.clone() };
        let record = self.keys_record()?.share(&keys, &members, &sharers, owner)?.to_bytes();
        if record.len() > MAX_KEYS {
            let (found, limit) = (record.len() as u64, MAX_KEYS as u64);
            return Err(VaultClientError::TooLarge { what: "bytes of keys for members", found, limit });
        }
        let mut update = self.update_of(Vec::new())?;
        update.members = Some(SignedMembers::sign(members, |message| owner.identity().sign(message)));
        update.keys = Some(record.clone());
        let Offered::Committed { .. } = self.offer(&update)? else { return Ok(false) };
        self.folder.set_shares(&record)?;
        self.keys = keys;
        Ok(true)
    }
}

fn without(members: &mut Members, node: &NodeId) {
    members.writers.retain(|other| other != node);
    members.readers.retain(|other| other != node);
}
