//! The rule over all: on no machine more than a tenth slower than the better of network alone and disk
//! alone.
//!
//! Three things are granted, and the strategies that it is compared with begin after them, for what was lost before a
//! network falls would count twenty times. The warm-up: in the first quarter of a second nobody knows how fast the
//! network is; with it a few round trips for the recipe. One chunk on the network: what is under way when the disk
//! finds it can't be taken back, and only who knows what the disk has asks for nothing. And who draws from the disk
//! because the network becomes slow can't know it sooner than at the begin, nor before what was asked of the fast network
//! has come, which the recipe comes behind.
//!
//! All objects here are taken for likely to be on the disk, as those are in whose place a file lies.

use std::cell::Cell;
use std::path::Path;

use towpath_simnet::for_seeds;

use super::environment::{CHUNK, Environment, Fetch, Speeds, Strategy};
use super::tree::Tree;
use crate::adaptive::paths::Directory;

/// Where the object goes.
pub const DESTINATION: &str = "/home/u/work/results";
/// Names how many environments are tried, if not as many as take a debug build some seconds; `make bench` tries
/// thousands.
const VARIABLE: &str = "TOWPATH_ENVIRONMENTS";
const WARM_UP: f64 = 0.3;

fn log_uniform(random: &mut fastrand::Rng, low: f64, high: f64) -> f64 {
    (low.ln() + random.f64() * (high / low).ln()).exp()
}

fn environment(seed: u64) -> Environment {
    let mut random = fastrand::Rng::with_seed(seed);
    let speeds = Speeds {
        network: log_uniform(&mut random, 10e3, 2e9),
        disk: log_uniform(&mut random, 20e6, 4e9),
        processor: log_uniform(&mut random, 200e6, 3e9),
    };
    let time = log_uniform(&mut random, 0.05, 600.0);
    let size = (speeds.network * time).clamp(100e3, 2e9) as u64;
    let time = size as f64 / speeds.network;
    let change = random.bool().then(|| {
        let network = speeds.network * [1.0, 0.05, 0.3, 5.0][random.usize(..4)];
        let disk = speeds.disk * [1.0, 0.1, 0.3, 4.0][random.usize(..4)];
        (time * random.f64(), Speeds { network, disk, processor: speeds.processor })
    });
    let mut tree = Tree::new(seed, random.usize(20..100), 300, &[DESTINATION, "/home/u/work/old/results"]);
    let place = ["/home/u/work/results", "/home/u/work/old/results", "/home/u", "/elsewhere/deep/down", ""];
    let place = place[random.usize(..place.len())];
    let name = ["data.bin", "data-2.bin", "other"][random.usize(..3)];
    let share = [0.3, 0.5, 0.99, 1.0][random.usize(..4)];
    let useful = (!place.is_empty()).then(|| (Directory::new(Path::new(place)), name.as_bytes().into()));
    let has =
        (0..Environment::chunks_of(size)).filter(|_| useful.is_some() && random.f64() < share).collect();
    if !place.is_empty() {
        tree.place(&format!("{place}/{name}"), if share == 1.0 { size } else { size + size / 50 });
    }
    let round_trip = log_uniform(&mut random, 0.2e-3, 0.2);
    let stat = log_uniform(&mut random, 20e-6, 5e-3);
    Environment { speeds, change, round_trip, stat, size, tree, useful, has }
}

/// How many are tried.
fn environments() -> u64 {
    let asked = std::env::var(VARIABLE).ok();
    asked.map_or(40, |text| text.parse().unwrap_or_else(|_| panic!("{VARIABLE}={text} is no number")))
}

#[test]
fn never_a_tenth_slower_than_the_better_of_network_and_disk() {
    let (worst, gained, count) = (Cell::new(0.0_f64), Cell::new(0), Cell::new(0));
    let broken = Cell::new(0);
    for_seeds(environments(), |seed| {
        let world = environment(seed);
        let fall = world.change.as_ref().filter(|(_, after)| after.network < world.speeds.network);
        let granted = WARM_UP + 4.0 * world.round_trip + CHUNK as f64 / world.speeds.network;
        let network = Fetch::run(&world, Strategy::Network(granted));
        let disk = match world.useful {
            Some(_) => Fetch::run(
                &world,
                Strategy::Disk(
                    fall.map_or(granted, |fall| granted.max(fall.0 + WARM_UP.max(world.backlog(fall)))),
                ),
            ),
            None => f64::INFINITY,
        };
        let adaptive = Fetch::run(&world, Strategy::Adaptive);
        let best = network.min(disk);
        let ratio = (adaptive - granted).max(0.0) / (best - granted);
        let what = format!(
            "adaptive {adaptive:.3} s, network {network:.3} s, disk {disk:.3} s, {:?} then {:?}, round trip {:.4} s, \
             STAT {:.5} s, {} bytes, {:?} with {} chunks",
            world.speeds,
            world.change,
            world.round_trip,
            world.stat,
            world.size,
            world.useful.is_some(),
            world.has.len()
        );
        if ratio > 1.1 {
            println!("seed {seed}: {ratio:.3} {what}");
            broken.set(broken.get() + 1);
        }
        worst.set(worst.get().max(ratio));
        gained.set(gained.get() + u32::from(adaptive < 0.9 * network));
        count.set(count.get() + 1);
    });
    println!(
        "worst {:.3}; in {} of {} sooner than the network alone",
        worst.get(),
        gained.get(),
        count.get()
    );
    assert_eq!(broken.get(), 0, "environments in which the rule is broken");
}
