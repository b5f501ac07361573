//! Errors of a server's vault, and what a client is told of them.

use std::io;

use thiserror::Error;
use towpath_byte_store::ByteStoreError;
use towpath_content::DecodeError;
use towpath_vault_format::{Digest, UpdateError};
use towpath_vault_protocol::VaultRefusal;

/// Reason why a vault does not do what was asked.
#[derive(Debug, Error)]
pub enum VaultError {
    /// The client has no right to it.
    #[error("{0}")]
    NotAllowed(&'static str),
    /// The update can't be done.
    #[error("{0}")]
    Update(#[from] UpdateError),
    /// The signature is of something else, or somebody else's.
    #[error("the signature is not the writer's over the root that follows from the update")]
    Signature,
    /// A block is neither here nor in the update.
    #[error("block {0} is neither here nor in the update, or has another length")]
    Block(Digest),
    /// An update names a block twice.
    #[error("the update lists a block twice")]
    BlockTwice,
    /// The proof does not go into one message.
    #[error("the update changes more paths than are sent at once; read the tree first")]
    Paths,
    /// There is no such version, or it was dropped.
    #[error("there is no version {0}")]
    NoVersion(u64),
    /// A drop statement that nobody may make, or an old one.
    #[error("the statement is not by who may drop versions, or is not the next one")]
    Statement,
    /// The vault has as many bytes as it may have.
    #[error("the vault may have {limit} bytes on this server")]
    Quota {
        /// The limit.
        limit: u64,
    },
    /// The log can't be read or written.
    #[error("the log of the vault: {0}")]
    Log(#[source] io::Error),
    /// The log failed before. What is in it is safe; nothing is added before the server starts again.
    #[error("the log failed before; start the server again")]
    LogFailed,
    /// The log is damaged where nothing can have been under way.
    #[error("the log is damaged at byte {at}: {why}")]
    Damaged {
        /// Where.
        at: u64,
        /// Reason.
        why: String,
    },
    /// Packs can't be read or written.
    #[error(transparent)]
    Packs(#[from] ByteStoreError),
    /// An object that should be here is not, or has other bytes.
    #[error("object {0} is lost or damaged")]
    Lost(Digest),
    /// The system has no random bytes, or no folder.
    #[error("{what}: {source}")]
    System {
        /// Attempted step.
        what: &'static str,
        /// Reason.
        source: io::Error,
    },
}

impl VaultError {
    /// What the client is told; of the server's own troubles no details.
    pub fn told(&self) -> (VaultRefusal, String) {
        let full = |error: &io::Error| {
            matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
        };
        let refusal = match self {
            Self::NotAllowed(_) | Self::Statement => VaultRefusal::NotAllowed,
            Self::Update(UpdateError::NotAWriter) => VaultRefusal::NotAllowed,
            Self::Update(_) | Self::Paths => VaultRefusal::Update,
            Self::Signature => VaultRefusal::Signature,
            Self::Block(_) | Self::BlockTwice => VaultRefusal::Blocks,
            Self::NoVersion(_) => VaultRefusal::NoVersion,
            Self::Quota { .. } => VaultRefusal::Full,
            Self::Log(error) if full(error) => return no_room(),
            Self::Packs(ByteStoreError::Full { .. }) => return no_room(),
            _ => return (VaultRefusal::Failed, "the server failed; its log says why".into()),
        };
        (refusal, self.to_string())
    }
}

fn no_room() -> (VaultRefusal, String) {
    (VaultRefusal::Full, "the server has no room".into())
}

/// A record that can't be read, at a place of the log.
pub(crate) fn damaged(at: u64, why: &DecodeError) -> VaultError {
    VaultError::Damaged { at, why: why.to_string() }
}
