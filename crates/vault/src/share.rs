//! Who may do what with a vault: its owner names members, and gives them the keys. Who leaves gets none of the next epoch.

use std::fmt;

use towpath_content::NodeId;
use towpath_vault_format::members::MAX_MEMBERS;
use towpath_vault_format::update::MAX_KEYS;
use towpath_vault_format::{Members, SignedMembers, VaultId};

use crate::client::{Offered, VaultClient, keys_record};
use crate::error::VaultClientError;
use crate::keys::{KeySecret, MAX_EPOCHS, ShareError, SigningKey, VaultKeys};
use crate::local::vault_id;
use crate::offer::TRIES;

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

/// What another person needs to know of a vault: where it is, and whose word counts. Nothing of it is secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VaultInvitation {
    /// As `NODE@HOST:PORT`.
    pub server: String,
    /// The vault.
    pub vault: VaultId,
    /// Its owner.
    pub owner: NodeId,
}

/// Members to come, with the number of those before.
struct NewMembers {
    members: Members,
    /// Gets the keys, too.
    joins: Option<NodeId>,
    epochs: Vec<KeySecret>,
}

/// Looks at the newest version, and says what its members should be; `None`: what they are.
type MemberChange<'a> = dyn FnMut(&mut VaultClient) -> Result<Option<NewMembers>, VaultClientError> + 'a;

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

/// The members, the owner first.
pub fn members(vault: &mut VaultClient) -> Result<Vec<VaultMember>, VaultClientError> {
    let sharers = keys_record(vault)?.sharers();
    let Members { owner, writers, readers, .. } = &vault.head.members.members;
    let own = vault.keys.node();
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
pub fn share(vault: &mut VaultClient, node: NodeId, may_write: bool) -> Result<bool, VaultClientError> {
    let wanted = if may_write { MemberRole::Writer } else { MemberRole::Reader };
    change_members(vault, &mut |vault| {
        if matches!(role_of(vault, node)?, Some(found) if found == wanted || found == MemberRole::Owner) {
            return Ok(None);
        }
        let mut members = without(vault, node);
        let list = if may_write { &mut members.writers } else { &mut members.readers };
        list.push(node);
        list.sort_unstable();
        check_count("members", list.len(), MAX_MEMBERS)?;
        Ok(Some(NewMembers { members, joins: Some(node), epochs: vault.keys.epochs.clone() }))
    })
}

/// Takes a member's rights away. What is written from now on is in a new epoch, of which it gets no key.
pub fn revoke(vault: &mut VaultClient, node: NodeId) -> Result<(), VaultClientError> {
    let change = &mut |vault: &mut VaultClient| {
        let mut epochs = vault.keys.epochs.clone();
        match role_of(vault, node)? {
            Some(MemberRole::Writer | MemberRole::Reader) if epochs.len() < MAX_EPOCHS => {}
            Some(MemberRole::Writer | MemberRole::Reader) => return Err(ShareError::LastEpoch.into()),
            _ => return Err(VaultClientError::NoMember(node.to_string())),
        }
        epochs.push(KeySecret::random()?);
        Ok(Some(NewMembers { members: without(vault, node), joins: None, epochs }))
    };
    change_members(vault, change).map(drop)
}

/// Epoch of the keys that new blocks get.
pub const fn epoch(vault: &VaultClient) -> u32 {
    vault.keys.epoch()
}

/// What another person joins the vault with.
pub fn invitation(vault: &VaultClient) -> Result<VaultInvitation, VaultClientError> {
    let server = vault.folder.server()?.unwrap_or_default();
    Ok(VaultInvitation { server, vault: vault.keys.vault, owner: vault.keys.owner })
}

impl VaultInvitation {
    /// Reads `NODE@HOST:PORT/VAULT/OWNER`.
    pub fn read(text: &str) -> Option<Self> {
        let (rest, owner) = text.rsplit_once('/')?;
        let (server, vault) = rest.rsplit_once('/')?;
        Some(Self { server: server.to_owned(), vault: vault_id(vault)?, owner: owner.parse().ok()? })
    }
}

impl fmt::Display for VaultInvitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.server, self.vault, self.owner)
    }
}

fn role_of(vault: &mut VaultClient, node: NodeId) -> Result<Option<MemberRole>, VaultClientError> {
    Ok(members(vault)?.into_iter().find(|member| member.node == node).map(|member| member.role))
}

fn check_count(what: &'static str, found: usize, limit: usize) -> Result<(), VaultClientError> {
    let (found, limit) = (found as u64, limit as u64);
    if found > limit { Err(VaultClientError::TooLarge { what, found, limit }) } else { Ok(()) }
}

/// The key whose word on members counts.
fn owner_key(vault: &VaultClient) -> Result<SigningKey, VaultClientError> {
    let own = vault.keys.writer.clone().filter(|own| own.identity().node_id() == vault.keys.owner);
    own.ok_or(VaultClientError::NotTheOwner)
}

/// Makes a version with other members, on the newest version that there is. False: `change` has nothing to change.
fn change_members(vault: &mut VaultClient, change: &mut MemberChange<'_>) -> Result<bool, VaultClientError> {
    let owner = owner_key(vault)?;
    for _ in 0..TRIES {
        let Some(next) = change(vault)? else { return Ok(false) };
        if offer_members(vault, &owner, next)? {
            return Ok(true);
        }
    }
    Err(VaultClientError::Crowded { tries: TRIES })
}

/// False: somebody else made a version meanwhile.
fn offer_members(
    vault: &mut VaultClient,
    owner: &SigningKey,
    next: NewMembers,
) -> Result<bool, VaultClientError> {
    let NewMembers { mut members, joins, epochs } = next;
    members.number += 1;
    let before = keys_record(vault)?;
    let mut sharers = before.sharers();
    sharers.extend(joins.into_iter().chain([vault.keys.owner]));
    sharers.retain(|node| members.may_read(node));
    sharers.sort_unstable();
    sharers.dedup();
    let keys = VaultKeys { epochs, ..vault.keys.clone() };
    let record = before.share(&keys, &members, &sharers, owner)?.to_bytes();
    check_count("bytes of keys for members", record.len(), MAX_KEYS)?;
    let mut update = vault.update_of(Vec::new())?;
    update.members = Some(SignedMembers::sign(members, |message| owner.identity().sign(message)));
    update.keys = Some(record.clone());
    let Offered::Committed { .. } = vault.offer(&update)? else { return Ok(false) };
    vault.folder.set_shares(&record)?;
    vault.keys = keys;
    Ok(true)
}

/// The newest members but one.
fn without(vault: &VaultClient, node: NodeId) -> Members {
    let mut members = vault.head.members.members.clone();
    members.writers.retain(|other| *other != node);
    members.readers.retain(|other| *other != node);
    members
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invitation_comes_back_and_nothing_else_is_one() {
        let (vault, owner) = (VaultId([0xab; 16]), NodeId([0xcd; 32]));
        for server in ["node@host:1", "node@[::1]:7799"] {
            let invitation = VaultInvitation { server: server.into(), vault, owner };
            assert_eq!(VaultInvitation::read(&invitation.to_string()), Some(invitation));
        }
        for text in ["", "a/b", "a/b/c", &format!("a/{vault}/{vault}"), &format!("{vault}/{owner}")] {
            assert_eq!(VaultInvitation::read(text), None, "{text}");
        }
    }
}
