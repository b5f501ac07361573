//! How fast a content is cut into keyed chunks, and what their summary takes: `cargo run --release -p towpath-vault --example cutting`.

#![allow(clippy::print_stdout)] // It prints a measurement.

use std::time::Instant;

use towpath_vault_difference::boundaries::KeyedBoundaries;
use towpath_vault::summary::{ChunkList, ChunkSummary};

/// Bytes that are cut.
const BYTES: usize = 256 << 20;

fn main() {
    let mut bytes = vec![0; BYTES];
    blake3::Hasher::new().finalize_xof().fill(&mut bytes);
    let (boundaries, begun) = (KeyedBoundaries::new(&[1; 32]), Instant::now());
    let (mut chunks, mut rest) = (0, &bytes[..]);
    while !rest.is_empty() {
        rest = &rest[boundaries.first_chunk(rest)..];
        chunks += 1;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let (gigabits, gib) = (BYTES as f64 * 8e-9, BYTES as f64 / f64::from(1 << 30));
    println!("{chunks} chunks, {:.2} Gbit/s, {:.2} s a GiB", gigabits / seconds, seconds / gib);
    let (mut summary, mut rest, begun) = (ChunkList::default(), &bytes[..], Instant::now());
    while !rest.is_empty() {
        let (chunk, behind) = rest.split_at(boundaries.first_chunk(rest));
        summary.push(ChunkSummary::of(&[2; 32], chunk));
        rest = behind;
    }
    println!("with their summary: {:.2} s a GiB", begun.elapsed().as_secs_f64() / gib);
}
