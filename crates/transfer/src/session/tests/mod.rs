//! Sessions against a scripted source and targets in memory: what becomes of wrong bytes, of a
//! source that vanishes, of what an earlier transfer left, of live objects and of recipes, also of
//! those that come in mid-transfer.

mod doubles;
mod ends;
mod entries;
mod following;
mod jobs;
mod left_overs;
mod live;
mod parts;
mod recipes;
mod switches;
mod wrong;

use std::io;
use std::time::Duration;

use towpath_content::Oid;
use towpath_store::About;

use super::*;
use crate::target::Target;
use crate::want::{Group, Outcome};
use doubles::*;

/// Bytes of a piece.
const PIECE: usize = 1 << 18;

/// Bytes that differ from place to place and from seed to seed.
fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i / 249 + i) as u8 ^ seed).collect()
}
