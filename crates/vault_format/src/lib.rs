//! The vault's formats: what a server keeps and sees, and what proves it. No keys, no I/O, no clock.
//!
//! A vault has files, a file is a sequence of encrypted blocks, and a counted tree of hashes says which (`papers/p2p-storage.txt` §4).
//! All that a version consists of follows from its signed root. Layouts: `docs/formats/vault.md`.
//!
//! ```text
//!   SignedRoot ── VaultRoot ── FileRoot ── TreeNode ── ... ── TreeNode ── Tuple ── BlockRef
//!   Certificate ─┘     └────── Members, keys record
//! ```
//!
//! | module | story |
//! |---|---|
//! | [`names`] | names of vaults, files and blocks; hashes |
//! | [`canonical`] | one canonical encoding for each record |
//! | [`block_ids`] | ids of new blocks, one behind the other |
//! | [`tuple`](mod@tuple) | where a run of a file's bytes lies |
//! | [`node`] | nodes of the counted tree |
//! | [`padding`] | lengths, rounded up so that few of them exist |
//! | [`root`] | a file's root and a version's, signed |
//! | [`members`] | who may write, read and delete |
//! | [`tree`] | the counted tree: changed, read, proved |
//! | [`update`] | what makes a new version of an old one |
//! | [`packed`] | an update without what whoever reads it knows already |
//! | [`steps`] | how long steps are, and how they are kept short |
//! | [`apply`](mod@apply) | an update done: the new root, by the same code on both sides |
//! | [`defragmentation`] | which stretches of a file had better be written anew |
//! | [`certificate`] | a server's word that a version is committed |
//! | [`statement`] | the word by which versions are dropped |

pub mod apply;
pub mod block_ids;
pub mod canonical;
pub mod certificate;
pub mod defragmentation;
#[cfg(any(test, feature = "doubles"))]
pub mod doubles;
pub mod members;
pub mod names;
pub mod node;
pub mod packed;
pub mod padding;
pub mod root;
pub mod statement;
pub mod steps;
pub mod tree;
pub mod tuple;
pub mod update;

pub use apply::{Applied, Conflict, UpdateError, apply, conflict};
pub use block_ids::BlockIds;
pub use canonical::Canonical;
pub use certificate::Certificate;
pub use defragmentation::{DefragmentationPlan, LinkCosts, RewrittenStretch};
pub use members::{Members, SignedMembers};
pub use names::{BlockId, Digest, FileId, VaultId};
pub use node::{ChildRef, TreeNode};
pub use root::{BlockMode, FileRoot, Padding, SignedRoot, VaultParameters, VaultRoot};
pub use statement::{DropStatement, DroppedRange};
pub use tree::{NodeError, NodeMap, NodeRecorder, NodeSource, SourceFault, TreeEditor, TupleWalk};
pub use tuple::{BlockRef, Tuple};
pub use update::{FileUpdate, NewBlock, Predicate, Update, UpdateAction};

#[cfg(test)]
mod tests;
