//! Bytes that scattered edits cost, from recipe to delta, and the rate at which deltas are made.
//!
//! `cargo test -p towpath-content --release delta::tests::measure -- --ignored --nocapture` prints it.

use std::collections::HashMap;
use std::io::Write;
use std::time::Instant;

use super::*;
use crate::chunking::{ChunkHash, Parameters};

/// Offset and bytes of every chunk.
fn chunks(data: &[u8]) -> Vec<(u64, &[u8])> {
    let mut chunker = Parameters::DEFAULT.chunker().unwrap();
    let (mut rest, mut lengths) = (data, Vec::new());
    while let Some(chunk) = chunker.cut(&mut rest) {
        lengths.push(chunk.len());
    }
    while let Some(chunk) = chunker.finish() {
        lengths.push(chunk.len());
    }
    let mut offset = 0;
    let chunk = |len| {
        offset += len;
        ((offset - len) as u64, &data[offset - len..offset])
    };
    lengths.into_iter().map(chunk).collect()
}

/// `count` times 4.8 KB of other bytes, spread over the data.
fn edited(base: &[u8], count: usize) -> Vec<u8> {
    let mut target = base.to_vec();
    let stride = base.len() / count;
    for edit in 0..count {
        let seed = noise(&edit.to_le_bytes(), 8);
        let jitter = u64::from_le_bytes(seed.clone().try_into().unwrap()) as usize % (stride - 4800);
        target[edit * stride + jitter..][..4800].copy_from_slice(&noise(&seed, 4800));
    }
    target
}

#[derive(Debug, Default)]
struct Cost {
    gaps: usize,
    missing: u64,
    regions: u64,
    signatures: usize,
    deltas: usize,
}

fn cost(base: &[u8], target: &[u8]) -> Cost {
    let known: HashMap<_, _> =
        chunks(base).into_iter().map(|(offset, bytes)| (ChunkHash::of(bytes), offset)).collect();
    let chunk = |(_, bytes): (u64, &[u8])| {
        let found = known.get(&ChunkHash::of(bytes)).map(|offset| FoundAt { file: (), offset: *offset });
        RefinedChunk { len: bytes.len() as u32, found }
    };
    let list: Vec<_> = chunks(target).into_iter().map(chunk).collect();
    let mut cost = Cost::default();
    for gap in refine(&list, |()| base.len() as u64) {
        let wanted = &target[gap.offset as usize..][..gap.len as usize];
        let region = gap.region.map_or(0..0, |region| region.range);
        let region = &base[region.start as usize..region.end as usize];
        let block = block_len(region.len(), wanted.len(), &Hints::default());
        let signature = Signature::of(region, block, wanted.len()).unwrap();
        let delta = diff(&signature, wanted).unwrap();
        assert!(delta.apply(region, wanted.len()).unwrap() == wanted);
        cost.gaps += 1;
        cost.missing += gap.len;
        cost.regions += region.len() as u64;
        cost.signatures += signature.to_bytes().len();
        cost.deltas += delta.to_bytes().len();
    }
    cost
}

#[test]
fn a_few_edits_cost_little_more_than_their_bytes() {
    let base = noise(b"base", 2 << 20);
    let cost = cost(&base, &edited(&base, 3));
    assert!((1..=3).contains(&cost.gaps));
    assert!(cost.signatures + cost.deltas <= 3 * (4800 + 1400), "{cost:?}");
}

#[test]
#[ignore = "a measurement: some seconds without optimization"]
fn scattered_edits_of_50_mb() {
    let base = noise(b"base", 50_000_000);
    let cost = cost(&base, &edited(&base, 70));
    let sum = cost.signatures + cost.deltas;
    print(&format!("{cost:?}: {sum} bytes for {} changed", 70 * 4800));
    assert!(sum <= 420_000);
}

#[test]
#[ignore = "a measurement: says something only with optimization"]
fn speed_on_one_core() {
    for (len, block) in [(32 << 10, 512), (1 << 20, 512), (8 << 20, 512), (8 << 20, 128)] {
        let (base, target) = (noise(b"base", len), noise(b"target", 1 << 20));
        let signature = Signature::of(&base, block, target.len()).unwrap();
        let same = &base[..len.min(1 << 20)];
        let delta = diff(&signature, same).unwrap();
        let print = |what: &str, bytes: usize, work: &dyn Fn()| {
            print(&format!("{len:8} bytes by {block}: {what:20} {:6.0} MB/s", rate(bytes, work)));
        };
        print("sign", len, &|| drop(Signature::of(&base, block, target.len()).unwrap()));
        // The index's memory belongs to the signature; the difference is the target's.
        print("diff, no target", len, &|| drop(diff(&signature, &base[..block as usize]).unwrap()));
        print("diff, nothing equal", target.len(), &|| drop(diff(&signature, &target).unwrap()));
        print("diff, all equal", same.len(), &|| drop(diff(&signature, same).unwrap()));
        print("apply, all equal", same.len(), &|| drop(delta.apply(&base, same.len()).unwrap()));
    }
}

/// Megabytes a second in the best of several runs, as others may use the machine.
fn rate(bytes: usize, work: &dyn Fn()) -> f64 {
    let time = || {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    bytes as f64 / 1e6 / (0..15).map(|_| time()).fold(f64::MAX, f64::min)
}

fn print(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
