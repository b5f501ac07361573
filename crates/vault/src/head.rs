//! Heads: the newest version as a server shows it, what proves it, and whether it may follow the one that was seen last.
//!
//! A server can hold back new versions. It can't show older ones, or others, to a client that remembers.

use thiserror::Error;
use towpath_content::codec::{Reader, Writer};
use towpath_content::{DecodeError, NodeId};
use towpath_vault_format::{Canonical, Certificate, Digest, SignedMembers, SignedRoot, VaultId, VaultRoot};
use towpath_vault_protocol::CommittedVersion;

/// A version, and what proves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VaultHead {
    /// Its root, signed by its writer.
    pub signed: SignedRoot,
    /// The members at that version, signed by the owner.
    pub members: SignedMembers,
    /// The server's word.
    pub certificate: Certificate,
}

/// Those whose signatures count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrustedNodes {
    /// The vault.
    pub vault: VaultId,
    /// Its owner.
    pub owner: NodeId,
    /// Its server.
    pub server: NodeId,
}

/// A version in an error: its number and the hash of its root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedVersion {
    /// The number.
    pub number: u64,
    /// The hash.
    pub root: Digest,
}

/// What a version says of its place: all that is needed to see whether versions are a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionLink {
    /// The version.
    pub version: NamedVersion,
    /// Hash of the root before.
    pub previous: Digest,
}

impl VaultHead {
    /// What the server has of it.
    pub fn version(&self) -> CommittedVersion {
        CommittedVersion { signed: self.signed.clone(), certificate: self.certificate }
    }
}

impl VersionLink {
    /// That of a root.
    pub fn of(root: &VaultRoot) -> Self {
        let version = NamedVersion { number: root.number, root: root.digest() };
        Self { version, previous: root.previous }
    }
}

/// Reason why a head does not count.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HeadError {
    /// It is not proved.
    #[error("version {number}: {why}")]
    NotProved {
        /// Its number.
        number: u64,
        /// What is wrong.
        why: &'static str,
    },
    /// The server has no such vault any more.
    #[error("rollback: the server shows no version at all, and {seen} was seen before")]
    Gone {
        /// The newest that was seen.
        seen: NamedVersion,
    },
    /// It is older than one that was seen.
    #[error("rollback: the server shows {found}, and {seen} was seen before")]
    Rollback {
        /// The newest that was seen.
        seen: NamedVersion,
        /// The one that is shown.
        found: NamedVersion,
    },
    /// Whether it descends from the one that was seen can't be known.
    #[error("the server shows {found}, and not version {lacking}, which would prove that it follows {seen}")]
    Unlinked {
        /// The newest that was seen.
        seen: NamedVersion,
        /// The one that is shown.
        found: NamedVersion,
        /// Number of a version between them.
        lacking: u64,
    },
    /// It does not descend from one that was seen.
    #[error("fork: the server shows {found}, which does not descend from {seen} that was seen before")]
    Fork {
        /// The newest that was seen.
        seen: NamedVersion,
        /// The one that is shown.
        found: NamedVersion,
    },
}

impl std::fmt::Display for NamedVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "version {} ({})", self.number, self.root.short())
    }
}

impl VaultHead {
    /// Number and hash.
    pub fn named(&self) -> NamedVersion {
        NamedVersion { number: self.signed.root.number, root: self.signed.root.digest() }
    }

    /// Checks signatures, and that all records are of the same version.
    pub fn prove(&self, trusted: &TrustedNodes) -> Result<(), HeadError> {
        let Self { signed, members, certificate } = self;
        let named = self.named();
        let checks: [(bool, &'static str); 9] = [
            (signed.root.vault == trusted.vault, "it is another vault's"),
            (members.members.vault == trusted.vault, "its members are another vault's"),
            (members.members.owner == trusted.owner, "its members are not named by the vault's owner"),
            (members.is_signed(), "its members are not signed by the vault's owner"),
            (members.digest() == signed.root.members, "its members are not those that its root names"),
            (members.members.may_write(&signed.writer), "its writer is no member who may write"),
            (signed.is_signed(), "its root is not signed by its writer"),
            (
                certificate.server == trusted.server && certificate.is_signed(),
                "its certificate is not the server's",
            ),
            (certifies(certificate, trusted.vault, named), "its certificate is of another version"),
        ];
        match checks.iter().find(|(is_right, _)| !is_right) {
            Some((_, why)) => Err(HeadError::NotProved { number: named.number, why }),
            None => Ok(()),
        }
    }

    /// Checks that it may come after `seen`: `between` are the versions behind `seen`, up to this one.
    pub fn follows(&self, seen: &Self, between: &[VersionLink]) -> Result<(), HeadError> {
        let (was, found) = (seen.named(), self.named());
        if found.number < was.number {
            return Err(HeadError::Rollback { seen: was, found });
        }
        let mut last = was;
        for VersionLink { version, previous } in between {
            if last.number.checked_add(1) != Some(version.number) || *previous != last.root {
                return Err(HeadError::Fork { seen: was, found });
            }
            last = *version;
        }
        if last != found {
            return Err(HeadError::Fork { seen: was, found });
        }
        if self.members.members.number < seen.members.members.number {
            return Err(HeadError::NotProved { number: found.number, why: "its members are older ones" });
        }
        Ok(())
    }

    /// The encoding.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.u8(1).bytes(&self.signed.to_bytes()).bytes(&self.members.to_bytes());
        out.bytes(&self.certificate.to_bytes());
        out.into_bytes()
    }

    /// Reads an encoding.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        if reader.u8("head")? != 1 {
            return Err(towpath_content::codec::invalid("head", "is of another version"));
        }
        let signed = SignedRoot::from_bytes(reader.bytes("signed root", SignedRoot::LIMIT)?)?;
        let members = SignedMembers::from_bytes(reader.bytes("members", SignedMembers::LIMIT)?)?;
        let certificate = Certificate::from_bytes(reader.bytes("certificate", Certificate::LIMIT)?)?;
        reader.finish().map(|()| Self { signed, members, certificate })
    }
}

fn certifies(certificate: &Certificate, vault: VaultId, named: NamedVersion) -> bool {
    certificate.vault == vault && certificate.number == named.number && certificate.root == named.root
}

#[cfg(test)]
mod tests;
