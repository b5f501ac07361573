//! A vault against a model: machines edit, put, get and forget at random; they die before an answer comes, lose what they
//! keep, and overtake each other; versions are dropped, members come and go; the server starts again, and lies. What is restored is what was committed, or the fault
//! is named; and nothing is named that is not.
//!
//! Each seed is a story of its own, and a failure names it. `TOW_VAULT_MODEL_SEEDS=FIRST..LAST` runs others than the
//! few that every run of the tests has, and `TOW_VAULT_MODEL_STEPS` longer ones.
//!
//! | module | story |
//! |---|---|
//! | `poison` | what a member puts that nobody can read |
//! | `relinked` | patches where nothing lies in its place |
//! | `served` | a real server's vault in a folder, and the ways in which it lies |
//! | `stale` | what a machine with an old copy reads |
//! | `uncommitted` | what waits on a machine until it is committed |
//! | `upkeep` | old versions go, members come and go |
//! | `world` | machines, what they do, and what must come of it |

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod overtaken;
mod poison;
mod relinked;
mod served;
mod stale;
mod uncommitted;
mod upkeep;
mod world;

use std::ops::Range;

use world::{Tally, World};

/// Steps of a story.
const STEPS: usize = 60;
/// Stories after which a long run tells how far it is.
const TOLD_EVERY: u64 = 100;
/// The stories of every run.
const SEEDS: Range<u64> = 1..81;

fn chosen() -> (Range<u64>, usize) {
    let steps = std::env::var("TOW_VAULT_MODEL_STEPS").ok().map_or(STEPS, |steps| steps.parse().unwrap());
    let Ok(text) = std::env::var("TOW_VAULT_MODEL_SEEDS") else { return (SEEDS, steps) };
    let (first, last) = text.split_once("..").unwrap();
    (first.parse().unwrap()..last.parse().unwrap(), steps)
}

#[test]
fn what_is_restored_is_what_was_committed_or_the_fault_is_named() {
    let (seeds, steps) = chosen();
    let mut all = Tally::default();
    for seed in seeds.clone() {
        let mut world = World::new(seed);
        for _ in 0..steps {
            world.step();
        }
        all.add(&world.end());
        if seed % TOLD_EVERY == 0 {
            println!("up to seed {seed}: {all:?}");
        }
    }
    println!("seeds {seeds:?} of {steps} steps: {all:?}");
    assert!(
        all.committed > 0 && all.named > 0 && all.restored > 0 && all.dropped > 0 && all.refused > 0,
        "a story in which nothing happens: {all:?}"
    );
}
