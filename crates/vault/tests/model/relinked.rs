//! A program that was linked again: something was inserted near its front, and all behind it is a little different, as addresses
//! are. What goes are patches, though no chunk lies near the place of its older version.

use std::fs;

use towpath_vault::put::{PutOptions, PutOutcome};

use crate::stale::Pair;

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..length).map(|_| random.u8(..)).collect()
}

/// With every 150th byte another.
fn linked_again(bytes: &[u8]) -> impl Iterator<Item = u8> {
    bytes.iter().enumerate().map(|(at, byte)| if at % 150 == 0 { byte ^ 0x55 } else { *byte })
}

fn put(pair: &Pair, bytes: &[u8]) -> PutOutcome {
    let file = pair.one.path().join("program");
    fs::write(&file, bytes).unwrap();
    pair.open(pair.one.path()).put(&file, b"program", &PutOptions::default(), &mut |_| ()).unwrap()
}

#[test]
fn of_a_program_that_was_linked_again_patches_go() {
    let pair = Pair::new();
    let old = noise(1, 3 << 20);
    put(&pair, &old);
    let new: Vec<u8> = noise(2, 400_000).into_iter().chain(linked_again(&old)).collect();
    let stats = put(&pair, &new).stats;
    assert!(stats.patched > 2 << 20, "{stats:?}");
    assert!(stats.uploaded() < 3 << 19, "{stats:?}");
    let copy = pair.other.path().join("copy");
    pair.open(pair.other.path()).get(b"program", None, &copy, true, &mut |_| ()).unwrap();
    assert!(fs::read(&copy).unwrap() == new);
}
