//! The descriptor of a file tree, and the difference of two.
//!
//! A descriptor is the recipe of a tree: a depth-first walk of its entries, names sorted bytewise,
//! with metadata and, for each file, size and OID, and of small files also the bytes. It is an object
//! like any other. Layout:
//! `docs/formats/tree.md`. Same walk, same bytes: the decoder refuses what the encoder would not
//! have written, and whatever the encoder refuses.
//!
//! | file | story |
//! |---|---|
//! | `entry` | the types: entries, events of a walk, limits |
//! | `check` | what an entry may say |
//! | `walk` | in which order events may come |
//! | `item` | one event as bytes |
//! | `block` | the 64 KiB blocks, and which OIDs one block mentions |
//! | `encoder`, `decoder` | a stream of events as a stream of blocks, and back |
//! | `difference` | what changed between two trees |
//!
//! Not here, because it depends on where a tree is written: names that collide when case is
//! folded, targets that lead out of the tree, who may create devices.

mod block;
mod check;
mod decoder;
mod difference;
mod encoder;
mod entry;
mod item;
mod walk;

#[cfg(test)]
mod tests;

pub use block::{BLOCK, oids_in_block};
pub use check::TreeError;
pub use decoder::{Decoder, Located};
pub use difference::{Change, Difference, DifferenceError, TreeSide, What, difference};
pub use encoder::Encoder;
pub use entry::*;
