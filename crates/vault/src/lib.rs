//! The vault's client: versions of files and trees on a server that nobody has to trust.
//!
//! All secrets are on this side. Layouts: `docs/formats/vault-blocks.md`; what a server keeps: `docs/formats/vault.md`; what
//! was decided and why: `docs/design/vault.md`.
//!
//! | module | story |
//! |---|---|
//! | [`keys`] | keys of a vault, under a passphrase or a key file |
//! | [`summary`] | a file as keyed hashes of its chunks |
//! | `towpath_vault_difference` | where plaintext is cut, chunks in order, and what two versions have in common |
//! | `towpath_crew` | work on other threads |
//! | [`block`] | plaintext as blocks that a server may have |
//! | [`patches`] | chunks that changed a little |
//! | [`catalogue`] | what entries are called |
//! | [`content`] | plaintext that is put, cut into chunks |
//! | [`unchanged`] | files that need not be read again |
//! | [`mod@plan`] | what makes the new version of a file of the old one |
//! | [`reader`] | plaintext of a version's files |
//! | [`head`] | the newest version, and what proves it |
//! | [`server`] | the seam to a vault's server |
//! | [`network`] | a server on a connection |
//! | [`drawing`] | nodes and blocks of several holders |
//! | [`local`] | what this machine keeps |
//! | [`descriptor`] | names and metadata of what is put |
//! | [`client`] | a vault as its member sees it |
//! | [`mod@put`], [`get`] | entries, there and back |
//! | [`diff`] | what changed between two versions |
//! | [`history`] | which versions are there |
//! | [`garbage`] | versions that are dropped, and what nobody needs |
//! | [`revert`] | a new version that is as an older one |
//! | [`acceptance`] | going on with what does not follow from what was seen |
//! | [`share`] | members, and the keys they get |
//! | [`check`] | everything of a version read and proved |
//! | [`uncommitted`] | versions that are not committed yet |
//! | [`error`] | what can go wrong |

pub mod acceptance;
mod anew;
pub mod block;
pub mod catalogue;
mod catching_up;
pub mod check;
pub mod client;
pub mod content;
pub mod descriptor;
pub mod diff;
pub mod drawing;
mod early;
pub mod error;
mod fresh;
pub mod garbage;
pub mod get;
pub mod head;
pub mod history;
mod holders;
pub mod keys;
pub mod local;
mod looking;
pub mod network;
mod offer;
pub mod patches;
pub mod plan;
pub mod put;
pub mod reader;
pub mod revert;
pub mod server;
pub mod share;
pub mod summary;
pub mod unchanged;
pub mod uncommitted;

/// The formats that a server knows, too.
pub mod format {
    pub use towpath_content::NodeId;
    pub use towpath_vault_format::*;
}

pub use towpath_files::FileError;
pub use towpath_link::Identity;
pub use towpath_vault_protocol::kept_line as line;
pub use zeroize::Zeroizing;
