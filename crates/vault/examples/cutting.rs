//! How fast a content is cut into keyed chunks, and what their summary takes: `cargo run --release -p towpath-vault --example cutting`.

#![allow(clippy::print_stdout)] // It prints a measurement.

use std::time::Instant;

use towpath_vault::summary::{ChunkList, ChunkSummary};
use towpath_vault_difference::boundaries::KeyedBoundaries;

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
    let (mut summary, begun) = (ChunkList::default(), Instant::now());
    for mut rest in bytes.chunks(1 << 20) {
        let mut chunks = Vec::new();
        while !rest.is_empty() {
            let (chunk, behind) = rest.split_at(boundaries.first_chunk(rest));
            chunks.push(chunk);
            rest = behind;
        }
        ChunkSummary::of_all(&[2; 32], &chunks).into_iter().for_each(|chunk| summary.push(chunk));
    }
    println!("with their summary: {:.2} s a GiB", begun.elapsed().as_secs_f64() / gib);
}
