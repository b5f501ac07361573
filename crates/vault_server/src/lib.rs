//! A vault's server: it keeps ciphertext and signed versions in order. It has no key, and can make up no version.
//!
//! ```text
//!   client ── tow-vault/1 ──► server ──► vault ─┬─► log       versions, each one durable record
//!                                               └─► objects ─► packs in a byte store
//! ```
//!
//! A commit writes blocks first, then the record that names them, and is told after both are durable. So after a crash each
//! version that somebody was told of is there, whole; what was under way is not.
//!
//! | module | story |
//! |---|---|
//! | [`server`] | connections |
//! | [`folder`] | the vaults of a folder, and who may make more |
//! | [`vault`] | one vault: what a client asks is looked up, judged, committed |
//! | `serving` | one connection: orders of the protocol's machine are done |
//! | `changing` | the thread on which a vault is changed |
//! | [`log`] | durable records, and what a crash leaves of them |
//! | [`record`] | what stands in a record |
//! | [`objects`] | where objects lie |
//! | `packs` | packs are written and read while others read the vault |
//! | [`changes`] | nodes as what they differ in from older ones |
//! | `error` | what can go wrong, and what a client is told |

mod arriving;
pub mod changes;
mod changing;
mod error;
pub mod folder;
mod index;
pub mod log;
pub mod objects;
mod packs;
pub mod record;
pub mod server;
mod serving;
pub mod vault;

pub use error::VaultError;
pub use folder::{VaultFolder, VaultRules};
pub use log::{LogFile, LogMedium};
pub use server::VaultServer;
pub use vault::{Vault, VaultLimits};

#[cfg(test)]
mod tests;
