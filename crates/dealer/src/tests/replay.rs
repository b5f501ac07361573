//! The rule over all, in random worlds: nearly as fast as full knowledge would be, and never slower than the best source alone.

use std::cell::RefCell;

use towpath_simnet::for_seeds;

use super::bound::bound;
use super::simulation::{Simulation, alone};
use super::world::{Foresight, World};

/// Names how many worlds are tried, if not as many as take a debug build some seconds; `make bench` tries thousands.
const VARIABLE: &str = "TOWPATH_WORLDS";
/// Worlds in which the dealer takes longer than so many times as the best source alone are told.
const OVER: f64 = 1.02;

fn worlds() -> u64 {
    let asked = std::env::var(VARIABLE).ok();
    asked.map_or(24, |text| text.parse().unwrap_or_else(|_| panic!("{VARIABLE}={text} is no number")))
}

#[derive(Default)]
struct Tally {
    /// Time of the bound by that of the dealer.
    reached: Vec<f64>,
    /// Time of the dealer by that of the best source.
    slower: Vec<f64>,
    twice: Vec<f64>,
    most_steps: u64,
}

/// Deals in all worlds.
fn play(foresight: Foresight, told_below: f64) -> Tally {
    let tally = RefCell::new(Tally::default());
    for_seeds(worlds(), |seed| {
        let world = World::of(seed, foresight);
        let came = Simulation::run(&world, seed);
        let can = |source: &usize| world.sources[*source].could_do_it_alone();
        let times = (0..world.sources.len()).filter(can).map(|source| alone(&world, source));
        let best = times.fold(f64::INFINITY, f64::min);
        let bound = bound(&world, came.seconds * 1.01);
        let (reached, slower) = (bound / came.seconds, came.seconds / best);
        if reached < told_below || slower > OVER {
            println!(
                "seed {seed}: {reached:.3} of the bound, {slower:.3} times the best alone; {:.2} s, bound {bound:.2} s, best \
                 {best:.2} s; {} sources, {} links, {} MiB",
                came.seconds,
                world.sources.len(),
                world.links.len(),
                world.size >> 20
            );
        }
        let mut tally = tally.borrow_mut();
        tally.reached.push(reached);
        tally.slower.push(slower);
        tally.twice.push(came.twice as f64 / world.size as f64);
        tally.most_steps = tally.most_steps.max(came.most_steps);
    });
    let mut tally = tally.into_inner();
    tally.reached.sort_by(f64::total_cmp);
    tally.slower.sort_by(f64::total_cmp);
    tally.print(foresight);
    tally
}

impl Tally {
    fn median(&self) -> f64 {
        self.reached[self.reached.len() / 2]
    }

    fn worst(&self) -> f64 {
        self.reached[0]
    }

    fn slowest(&self) -> f64 {
        self.slower[self.slower.len() - 1]
    }

    fn print(&self, foresight: Foresight) {
        let Self { reached, slower, twice, most_steps } = self;
        println!(
            "foresight {foresight:?}, {} worlds: median {:.3} of the bound, worst {:.3}, below 0.9 in {}; against the best alone \
             {:.3} times at worst, over {OVER} in {}; {:.2} % came twice; {most_steps} steps an event at most",
            reached.len(),
            self.median(),
            self.worst(),
            reached.iter().filter(|&&reached| reached < 0.9).count(),
            self.slowest(),
            slower.iter().filter(|&&slower| slower > OVER).count(),
            100.0 * twice.iter().sum::<f64>() / twice.len() as f64,
        );
    }
}

#[test]
fn nearly_as_fast_as_full_knowledge_and_never_slower_than_the_best_alone() {
    let tally = play(Foresight::NotNeeded, 0.87);
    assert!(tally.median() >= 0.95 && tally.worst() >= 0.85, "too far from the bound");
    assert!(tally.slowest() <= 1.1, "slower than the best source alone");
}

/// What the future brings decides here, so that no way of dealing comes near the bound.
#[test]
fn never_slower_than_the_best_alone_where_nobody_can_know_what_comes() {
    let tally = play(Foresight::Needed, 0.6);
    assert!(tally.median() >= 0.9, "too far from the bound");
    assert!(tally.slowest() <= 1.1, "slower than the best source alone");
}
