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
//! With all effort the rule holds for what lies anywhere. With the usual one it holds for what the budget of the wide search
//! reaches; what it gives up is counted, and costs no more than the network alone would.
//!
//! All objects here are taken for likely to be on the disk, as those are in whose place a file lies.

use std::cell::RefCell;
use std::path::Path;

use towpath_simnet::for_seeds;

use super::environment::{CHUNK, Environment, Fetch, Speeds, Strategy};
use super::tree::Tree;
use crate::adaptive::Effort;
use crate::adaptive::paths::SplitDirectory;

/// Directory that the object goes to.
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
    let useful = (!place.is_empty()).then(|| (SplitDirectory::new(Path::new(place)), name.as_bytes().into()));
    let has =
        (0..Environment::chunks_of(size)).filter(|_| useful.is_some() && random.f64() < share).collect();
    if !place.is_empty() {
        tree.place(&format!("{place}/{name}"), if share == 1.0 { size } else { size + size / 50 });
    }
    let round_trip = log_uniform(&mut random, 0.2e-3, 0.2);
    let stat = log_uniform(&mut random, 20e-6, 5e-3);
    Environment { speeds, change, round_trip, stat, size, tree, useful, has }
}

/// Number of environments that are tried.
fn environments() -> u64 {
    let asked = std::env::var(VARIABLE).ok();
    asked.map_or(40, |text| text.parse().unwrap_or_else(|_| panic!("{VARIABLE}={text} is no number")))
}

/// Results of all environments.
#[derive(Default)]
struct Tally {
    count: u32,
    /// Sooner than the network alone.
    gained: u32,
    /// More than a tenth slower than the better way.
    slower: u32,
    /// Of those: the budget of the wide search was at its end.
    given_up: u32,
    worst: f64,
    /// Seconds of the search, and of all transfers with it.
    searched: f64,
    took: f64,
}

impl Tally {
    fn print(&self, what: &str) {
        let Self { count, gained, slower, given_up, worst, searched, took } = self;
        println!(
            "{what}: worst {worst:.3}; {gained} of {count} sooner than the network alone; {slower} more than a tenth slower \
             than the better way, {given_up} of these given up by the budget; {searched:.0} s searched in {took:.0} s"
        );
    }
}

#[test]
fn never_a_tenth_slower_than_the_better_of_network_and_disk() {
    let [all, some] = [(); 2].map(|()| RefCell::new(Tally::default()));
    for_seeds(environments(), |seed| {
        let world = environment(seed);
        let fall = world.change.as_ref().filter(|(_, after)| after.network < world.speeds.network);
        let granted = WARM_UP + 4.0 * world.round_trip + CHUNK as f64 / world.speeds.network;
        let (network, _) = Fetch::run(&world, Strategy::Network(granted));
        let disk = match world.useful {
            Some(_) => {
                let begin =
                    fall.map_or(granted, |fall| granted.max(fall.0 + WARM_UP.max(world.backlog(fall))));
                Fetch::run(&world, Strategy::Disk(begin)).0
            }
            None => f64::INFINITY,
        };
        let best = network.min(disk);
        for (effort, tally) in [(Effort::All, &all), (Effort::Some, &some)] {
            let (adaptive, account) = Fetch::run(&world, Strategy::Adaptive(effort));
            let ratio = (adaptive - granted).max(0.0) / (best - granted);
            let against_network = (adaptive - granted).max(0.0) / (network - granted);
            let is_given_up = account.is_limited && against_network <= 1.1;
            let mut tally = tally.borrow_mut();
            if ratio > 1.1 {
                println!(
                    "seed {seed}: {effort:?} {ratio:.3} adaptive {adaptive:.3} s, network {network:.3} s, disk {disk:.3} s, \
                     {:?} then {:?}, round trip {:.4} s, STAT {:.5} s, {} bytes, {:?} with {} chunks{}",
                    world.speeds,
                    world.change,
                    world.round_trip,
                    world.stat,
                    world.size,
                    world.useful,
                    world.has.len(),
                    if is_given_up { ", given up" } else { "" },
                );
            }
            tally.count += 1;
            tally.gained += u32::from(adaptive < 0.9 * network);
            tally.slower += u32::from(ratio > 1.1);
            tally.given_up += u32::from(ratio > 1.1 && is_given_up);
            tally.worst = tally.worst.max(ratio);
            tally.searched += account.disk_time.as_secs_f64();
            tally.took += adaptive;
        }
    });
    all.borrow().print("all effort");
    some.borrow().print("some effort");
    assert_eq!(all.borrow().slower, 0, "environments in which the rule is broken");
    let some = some.borrow();
    assert_eq!(
        some.slower, some.given_up,
        "environments in which it is broken by something else than the budget"
    );
}
