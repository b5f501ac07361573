//! What can go wrong with a vault, one variant for each different next step.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use towpath_content::DecodeError;
use towpath_files::{FileError, display_name};
use towpath_vault_format::FileId;
use towpath_vault_format::apply::UpdateError;
use towpath_vault_format::tree::NodeError;

use crate::block::BlockError;
use crate::head::{HeadError, NamedVersion};
use crate::keys::{ShareError, UnlockError, VaultKeyError};
use crate::server::ServerError;

/// Error of a vault's client.
#[derive(Debug, Error)]
pub enum VaultClientError {
    /// This machine's folder of the vault can't be read or written.
    #[error("{}: {source}", .path.display())]
    Local {
        /// The file or folder.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// A file in that folder is damaged.
    #[error("{}: damaged", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// A file that is put or got.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file changed while it was put.
    #[error("{}: changed while it was read", .path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// The server's newest version does not count.
    #[error(transparent)]
    Head(#[from] HeadError),
    /// The server.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// Keys can't be opened.
    #[error(transparent)]
    Unlock(#[from] UnlockError),
    /// A key is not there.
    #[error(transparent)]
    Key(#[from] VaultKeyError),
    /// A block of a file.
    #[error("file {file}, byte {at}: {source}")]
    Block {
        /// The file.
        file: FileId,
        /// Where its bytes would begin.
        at: u64,
        /// What is wrong with it.
        source: BlockError,
    },
    /// A file's tree.
    #[error("file {file}: {source}")]
    Tree {
        /// The file.
        file: FileId,
        /// What is wrong with it.
        source: NodeError,
    },
    /// An update of this client can't be done.
    #[error("the update: {0}")]
    Update(#[from] UpdateError),
    /// What an update makes can't be proved by what the server tells of the tree it starts from.
    #[error(
        "the new version is unconfirmed, and was not offered: the server does not prove what it starts from: {0}"
    )]
    Unconfirmed(#[source] UpdateError),
    /// A record that was decrypted can't be read.
    #[error("{what}: {why}")]
    Record {
        /// The record.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// A file that was put together is not the one that was put.
    #[error("{}: its bytes are not those that were put", display_name(.path))]
    OtherContent {
        /// The path in the entry.
        path: Vec<u8>,
    },
    /// There is no entry of this name.
    #[error("no entry '{}' in version {number}", display_name(.name))]
    NoEntry {
        /// The name.
        name: Vec<u8>,
        /// The version that was looked at.
        number: u64,
    },
    /// A name that no entry may have.
    #[error("'{}' is no name of an entry: it {why}", display_name(.name))]
    BadName {
        /// The name.
        name: Vec<u8>,
        /// Reason.
        why: &'static str,
    },
    /// The vault has no such version, or it was dropped.
    #[error("the vault has no version {number}")]
    NoVersion {
        /// The number.
        number: u64,
    },
    /// What a version has can't be told: its writer put what nobody can read, or a block of it is damaged.
    #[error("version {number}: its list of entries can't be read: {source}")]
    Catalogue {
        /// The version.
        number: u64,
        /// What is wrong with the list.
        source: Box<VaultClientError>,
    },
    /// None of the versions that were looked at can be read.
    #[error("of the versions {first} to {newest} none has a list of entries that can be read")]
    NoneReadable {
        /// The oldest.
        first: u64,
        /// The newest.
        newest: u64,
    },
    /// There is no head to accept.
    #[error("what the server shows follows from what this machine saw: there is nothing to accept")]
    NothingToAccept,
    /// A person accepts another version than the one that is there.
    #[error("the server shows {shown}, and not one whose hash begins with '{digits}'")]
    OtherVersion {
        /// What the person said.
        digits: String,
        /// What the server shows.
        shown: NamedVersion,
    },
    /// The server does not show a version that nobody dropped.
    #[error("the server shows no version {number}, and nobody who may has dropped it")]
    Hidden {
        /// The number.
        number: u64,
    },
    /// This member may not drop versions.
    #[error("this member may not drop versions: only who made the vault has the key for it")]
    NotADeleter,
    /// Somebody changed an entry after it was seen here.
    #[error("'{}' is in version {found} already, and {}", display_name(.name), seen_in_words(*.seen, *.found))]
    Conflict {
        /// The entry.
        name: Vec<u8>,
        /// Version that was looked at.
        found: u64,
        /// Version whose content was put or got here last, if one was.
        seen: Option<u64>,
    },
    /// Others wrote versions faster than this client could.
    #[error("others changed the vault {tries} times while this was written")]
    Crowded {
        /// Attempts.
        tries: u32,
    },
    /// Something waits to be committed that this machine's person was told is kept here.
    #[error("this machine keeps what is not committed yet")]
    Uncommitted,
    /// What waits can't be committed: others changed the same name, or the vault's keys.
    #[error("'{}' is kept on this machine and NOT on the server: it can't be committed, as {why}", display_name(.name))]
    Overtaken {
        /// The entry.
        name: Vec<u8>,
        /// Reason.
        why: &'static str,
    },
    /// The record of keys.
    #[error(transparent)]
    Share(#[from] ShareError),
    /// Only the owner may do this.
    #[error("only the vault's owner may say who its members are")]
    NotTheOwner,
    /// Somebody who is no member.
    #[error("{0} is no member that the vault is shared with")]
    NoMember(String),
    /// This member may not write.
    #[error("this member may only read the vault")]
    ReadOnly,
    /// Something that is put is larger or more than a vault holds.
    #[error("{what}: {found}, at most {limit}")]
    TooLarge {
        /// The thing.
        what: &'static str,
        /// How many or how large.
        found: u64,
        /// The limit.
        limit: u64,
    },
}

/// What a machine knows of an entry that somebody else changed.
fn seen_in_words(seen: Option<u64>, found: u64) -> String {
    match seen {
        None => "was neither put nor got on this machine".into(),
        Some(number) if number > found => {
            format!("is not what this machine put or got in version {number}, which the server has no more")
        }
        Some(number) => {
            format!("was changed by somebody else since this machine put or got it (version {number})")
        }
    }
}

impl VaultClientError {
    /// True if it is about what was put, or what is left of it, and not about the way there.
    pub(crate) const fn is_unreadable(&self) -> bool {
        matches!(
            self,
            Self::Block { .. }
                | Self::Tree { .. }
                | Self::Record { .. }
                | Self::Key(_)
                | Self::TooLarge { .. }
                | Self::Catalogue { .. }
                | Self::Server(ServerError::Lacks { .. } | ServerError::OtherBytes { .. })
        )
    }

    /// Of the list of entries of a version.
    pub(crate) fn in_catalogue(self, number: u64) -> Self {
        match self {
            Self::Server(_) => self,
            error if error.is_unreadable() => Self::Catalogue { number, source: Box::new(error) },
            error => error,
        }
    }

    /// Of this machine's folder.
    pub(crate) fn local(path: &Path, source: io::Error) -> Self {
        Self::Local { path: path.to_path_buf(), source }
    }

    /// Of a damaged file in it.
    pub(crate) fn damaged(path: &Path) -> Self {
        Self::Damaged { path: path.to_path_buf() }
    }

    /// Of a record that was decrypted.
    pub(crate) fn record(what: &'static str) -> impl Fn(DecodeError) -> Self {
        move |why| Self::Record { what, why: why.to_string() }
    }

    /// Of a record that makes no sense.
    pub(crate) fn record_of(what: &'static str, why: &str) -> Self {
        Self::Record { what, why: why.to_owned() }
    }

    /// Of a file's tree.
    pub(crate) fn tree(file: FileId) -> impl Fn(NodeError) -> Self {
        move |source| Self::Tree { file, source }
    }
}
