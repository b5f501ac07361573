//! The exchange of a delta: how a file comes as what it has over a base that the other side has, or had.
//!
//! ```text
//!   Requester (has a base)                      Responder (has the file)
//!   ── Request: signed, named, or in parts ───►
//!   ── NextSignature, … (SignedParts) ────────►   SignatureInbox
//!   ◄─────────────────────────────── Reply ───
//!   ◄───────────────── DeltaRun, DeltaRun, … ──   deltas, outlines or patches of parts
//!   ── NextSignature ─────────────────────────►   of the next part, or of what an outline leaves
//! ```
//!
//! Both are pure: messages, bytes of files and what is known of the network go in; messages and work come out. Messages and
//! limits: `docs/formats/delta-exchange.md`. Why it is so: `docs/design/delta.md`.
//!
//! | part | story |
//! |---|---|
//! | [`Requester`] | has the base: takes what comes, signs what is wanted, makes the file |
//! | [`Responder`] | has the file: replies, makes deltas of parts, in steps where that pays |
//! | [`SignatureInbox`] | signatures that come while a responder works |
//! | [`Request`], [`NextSignature`], [`Reply`], [`DeltaRun`] | the messages |
//! | [`parts`], [`SignedParts`] | how a file and its base are cut, and signed |
//! | [`PatchParts`] | the same for patches |
//! | [`refine`] | which literals come in a step more |
//!
//! A step may be requested by itself, with the outlines that came before ([`Base::Outlined`]): then a responder keeps nothing.
//!
//! Whoever drives a machine calls `poll` and does what it says until it says `Wait`, `AwaitSignature` or an end. Each of
//! these calls is answered by one method, named at the action.
//!
//! What is made is a claim: the caller hashes it. Everything that is wrong ends with the file fetched whole.
//!
//! Requester:
//!
//! | state | takes | then |
//! |---|---|---|
//! | asked | `Reply` that is `Same`, `UnknownBase`, `GivenUp` | ended |
//! | | `Whole` | a part is made, ended |
//! | | `InParts` | receiving |
//! | receiving | `DeltaRun::More` | the step grows |
//! | | an outline's last | signs what it leaves, and the next part if that is wanted |
//! | | a delta's or patch's last | makes the part, and signs the next one if that is wanted; ended after the last part |
//! | | `DeltaRun::GivenUp` | ended |
//! | ended | anything | refuses signatures that are wanted |
//!
//! Responder:
//!
//! | state | waits for | then |
//! |---|---|---|
//! | finding | whether the base is here | `UnknownBase`, or patching |
//! | patching | patches in their order | `Whole` if there is one and it is short, else runs; ended after the last one |
//! | small | the file's bytes | `Whole`, or deltas |
//! | deltas | a signature | reading |
//! | reading | the part's bytes | packing |
//! | packing | the packed delta, and whether the network likes steps | a step's runs, then deltas or ended |

mod inbox;
mod messages;
pub mod parts;
mod patch_parts;
pub mod refine;
mod requester;
mod responder;
#[cfg(test)]
mod tests;

use thiserror::Error;

pub use inbox::SignatureInbox;
pub use messages::{Base, DeltaRun, DeltaStep, NextSignature, Reply, Request, StepOf};
pub use parts::SignedParts;
pub use patch_parts::PatchParts;
pub use requester::{Requester, RequesterAction, RequesterEnd};
pub use responder::{Responder, ResponderAction, SMALL};

use parts::MAX_PART_LEN;

/// Outlines of a part, at most.
pub const MAX_OUTLINES: usize = 2;
/// Bytes of an outline in a request, at most: that of a base of 16384 blocks has half as many ops of some four bytes.
pub const MAX_OUTLINE_LEN: usize = 64 << 10;
/// Bytes of a signature in a message, at most: a head and 16384 blocks.
pub const MAX_SIGNATURE_LEN: usize = 7 + MAX_SIGNED_BLOCKS * 12;
/// Blocks of such a signature.
const MAX_SIGNED_BLOCKS: usize = 16 << 10;
/// Bytes of a delta or patch that comes with the reply, at most.
pub const MAX_WHOLE_LEN: usize = 64 << 10;
/// Bytes of a run, at most.
pub const MAX_RUN_LEN: usize = 128 << 10;
/// Bytes of a step, at most: a delta may not shrink what it makes, and ops take a few.
pub const MAX_STEP_LEN: usize = MAX_PART_LEN as usize + (1 << 20);
/// Bytes of a packed delta, unpacked: ops are few.
pub const MAX_UNPACKED_LEN: u64 = 2 * MAX_PART_LEN;
/// Bytes of a file's outlines whose literals are to come, at most.
pub const MAX_OUTLINED_LEN: usize = 16 << 20;
/// Bytes that a requester holds between two calls, at most.
pub const REQUESTER_HOLDS: usize =
    MAX_STEP_LEN + MAX_UNPACKED_LEN as usize + MAX_PART_LEN as usize + MAX_OUTLINED_LEN;
/// Bytes that a responder holds between two calls, at most.
pub const RESPONDER_HOLDS: usize =
    MAX_SIGNATURE_LEN + MAX_PART_LEN as usize + 2 * MAX_STEP_LEN + MAX_OUTLINED_LEN;

/// The other side sent what was not due. The exchange is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct NotDue(pub &'static str);
