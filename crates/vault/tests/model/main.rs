//! A vault against a model: machines edit, put, get and forget at random; they die before an answer comes, lose what they
//! keep, and overtake each other; versions are dropped, members come and go; the server starts again, and lies. What is restored is what was committed, or the fault
//! is named; and nothing is named that is not.
//!
//! Each seed is a story of its own, and a failure names it. `TOW_VAULT_MODEL_SEEDS=FIRST..LAST` runs others than the
//! few that every run of the tests has, and `TOW_VAULT_MODEL_STEPS` longer ones. `TOW_VAULT_MODEL_SECONDS` ends it early: no
//! story begins after so many.
//!
//! | module | story |
//! |---|---|
//! | `edited` | what the server stores is edited |
//! | `overtaken` | a put that others overtake |
//! | `poison` | what a member puts that nobody can read |
//! | `relinked` | patches where nothing lies in its place |
//! | `served` | a real server's vault in a folder, and the ways in which it lies |
//! | `stale` | what a machine with an old copy reads |
//! | `uncommitted` | what waits on a machine until it is committed |
//! | `upkeep` | old versions go, members come and go |
//! | `world` | machines, what they do, and what must come of it |

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod edited;
mod overtaken;
mod poison;
mod relinked;
mod served;
mod stale;
mod uncommitted;
mod upkeep;
mod world;

use std::ops::Range;
use std::time::Instant;

use world::{Tally, World};

/// Steps of a story.
const STEPS: usize = 60;
/// Stories after which a long run tells how far it is.
const TOLD_EVERY: u64 = 100;
/// The stories of every run.
const SEEDS: Range<u64> = 1..81;

/// Seeds, steps of each story, and seconds.
fn chosen() -> (Range<u64>, usize, u64) {
    let number = |name, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let steps = number("TOW_VAULT_MODEL_STEPS", STEPS as u64) as usize;
    let seconds = number("TOW_VAULT_MODEL_SECONDS", u64::MAX);
    let Ok(text) = std::env::var("TOW_VAULT_MODEL_SEEDS") else { return (SEEDS, steps, seconds) };
    let (first, last) = text.split_once("..").unwrap();
    (first.parse().unwrap()..last.parse().unwrap(), steps, seconds)
}

#[test]
fn what_is_restored_is_what_was_committed_or_the_fault_is_named() {
    let ((seeds, steps, seconds), begun) = (chosen(), Instant::now());
    let (mut all, mut done) = (Tally::default(), 0);
    for seed in seeds.clone() {
        if begun.elapsed().as_secs() >= seconds {
            break;
        }
        let mut world = World::new(seed);
        for _ in 0..steps {
            world.step();
        }
        all.add(&world.end());
        done += 1;
        if seed % TOLD_EVERY == 0 {
            println!("up to seed {seed}: {all:?}");
        }
    }
    println!("{done} of the seeds {seeds:?}, {steps} steps each, in {:?}: {all:?}", begun.elapsed());
    assert!(
        all.committed > 0
            && all.named > 0
            && all.restored > 0
            && all.dropped > 0
            && all.refused > 0
            && all.overtaken > 0
            && all.dropped_meanwhile > 0
            && all.collected > 0,
        "a story in which nothing happens: {all:?}"
    );
}
