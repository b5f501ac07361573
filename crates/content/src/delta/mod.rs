//! Deltas of regions: finer than a chunk, where a similar region lies on the receiver's disk.
//!
//! The receiver misses a stretch of an object (the *target*) and has a *base region* that is likely
//! to resemble it. It sends the region's [`Signature`]; the sender, who has the target, finds the
//! signed blocks in it wherever they now lie ([`diff`]) and answers with a [`Delta`]: copies of the
//! region's blocks, and the bytes that are in none of them. [`Delta::apply`] puts the target
//! together again. Layout and rules: `docs/formats/delta.md`.
//!
//! | part | story |
//! |---|---|
//! | [`refine`] | which regions of local files correspond to an object's missing chunks |
//! | [`block_len`], [`signature_len`] | how finely to sign a region, and what that costs |
//! | [`Signature`] | the sums of a region's blocks, and their encoding |
//! | [`diff`] | signature and target in, delta out |
//! | [`Delta`] | the encoding of copies and literals, and how they are applied |
//! | [`CopyOps`] | copies without literals, which may come as a delta of their own |
//! | [`patch`] | corrections of a base that both sides have |
//! | [`Unmatched`] | what outlines leave of a base region |
//! | [`exchange`] | how a file comes as a delta: two state machines, their messages, parts and steps |
//! | `shape` | blocks of a region, limits, how long strong sums must be |
//! | `weak` | the rolling sum |
//! | `index` | looks blocks up by their sums, with bounded work |
//!
//! A signature and a base are claims: one that lies, or two different blocks with the same sums
//! (less than one in 2^40 deltas, unless made on purpose), give other bytes than the target. The
//! caller checks the result against the chunk's hash and falls back to the bytes themselves, so a
//! lie costs time only.
//!
//! Memory: a signature takes 16 bytes a block, at most 1 MiB; making a delta adds as much again, a
//! filter and a table of at most 384 KiB together, and the delta. Time is proportional to signature
//! and target, whatever their bytes: see `index`.
//!
//! ```
//! use towpath_content::delta::{self, Delta, Signature};
//!
//! let base: Vec<u8> = (0..20_000u32).flat_map(u32::to_le_bytes).collect();
//! let target = [&base[..50_000], b"something new", &base[50_000..]].concat();
//!
//! let block = delta::block_len(base.len(), target.len(), &delta::Hints::default());
//! let signature = Signature::of(&base, block, target.len())?;
//! let delta = delta::diff(&signature, &target)?.to_bytes();
//! assert!(signature.to_bytes().len() + delta.len() < 3000);
//!
//! let found = Delta::from_bytes(&delta)?.apply(&base, target.len())?;
//! assert_eq!(found, target);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod blocks;
mod copy_ops;
mod diff;
pub mod exchange;
mod index;
mod ops;
pub mod patch;
mod refine;
mod shape;
mod signature;
#[cfg(test)]
mod tests;
mod unmatched;
#[cfg(test)]
mod vectors;
mod weak;

pub use copy_ops::{CopyOps, refined_block_len};
pub use diff::diff;
pub use ops::{ApplyError, Delta, Op};
pub use refine::{FoundAt, Gap, RefineRegion, RefinedChunk, refine};
pub use shape::{
    Hints, MAX_BLOCK_LEN, MAX_BLOCKS, MAX_REGION_LEN, MAX_TARGET_LEN, MIN_BLOCK_LEN, ShapeError, block_len,
    signature_len,
};
pub use signature::{BlockSum, Signature};
pub use unmatched::Unmatched;

/// The version of signatures and deltas that is written here, and the only one read.
pub const VERSION: u8 = 1;
