//! The vault's client: versions of files and trees on a server that nobody has to trust.
//!
//! All secrets are on this side. Layouts: `docs/formats/vault-blocks.md`; what a server keeps: `docs/formats/vault.md`; what
//! was decided and why: `docs/design/vault.md`.
//!
//! | module | story |
//! |---|---|
//! | [`keys`] | keys of a vault, under a passphrase or a key file |
//! | [`boundaries`] | where plaintext is cut |
//! | [`summary`] | a file as keyed hashes of its chunks |
//! | [`mod@difference`] | what two summaries have not in common |
//! | [`block`], [`padding`] | plaintext as blocks that a server may have |
//! | [`patches`] | chunks that changed a little |
//! | [`catalogue`] | what entries are called |

pub mod block;
pub mod boundaries;
pub mod catalogue;
pub mod difference;
pub mod keys;
pub mod padding;
pub mod patches;
pub mod summary;
