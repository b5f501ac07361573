//! Sessions against a scripted source and targets in memory: what becomes of wrong bytes, of a
//! source that vanishes, of what an earlier transfer left, of live objects and of recipes, also of
//! those that come in mid-transfer.

mod doubles;
mod ends;
mod entries;
mod entry_doubles;
mod following;
mod gathered;
mod jobs;
mod left_overs;
mod live;
mod memory;
mod parts;
mod recipes;
mod switches;
mod unproved;
mod whole;
mod wrong;

use super::*;
use doubles::*;
use memory::Memory;

/// Bytes of a piece.
const PIECE: usize = 1 << 18;

/// Bytes that differ from place to place and from seed to seed.
fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i / 249 + i) as u8 ^ seed).collect()
}
