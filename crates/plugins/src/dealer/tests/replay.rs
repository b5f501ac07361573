//! The rule over all, in random worlds: nearly as fast as full knowledge would be, and never slower than the best source alone.

use std::cell::RefCell;

use towpath_simnet::for_seeds;

use super::bound::bound;
use super::simulation::{Simulation, alone};
use super::world::World;

/// Names how many worlds are tried, if not as many as take a debug build some seconds; `make bench` tries thousands.
const VARIABLE: &str = "TOWPATH_WORLDS";

fn worlds() -> u64 {
    let asked = std::env::var(VARIABLE).ok();
    asked.map_or(40, |text| text.parse().unwrap_or_else(|_| panic!("{VARIABLE}={text} is no number")))
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

fn share(of: &[f64], is: impl Fn(f64) -> bool) -> usize {
    of.iter().filter(|&&value| is(value)).count()
}

#[test]
fn nearly_as_fast_as_full_knowledge_and_never_slower_than_the_best_alone() {
    let tally = RefCell::new(Tally::default());
    for_seeds(worlds(), |seed| {
        let world = World::of(seed);
        let came = Simulation::run(&world, seed);
        let best = (0..world.sources.len())
            .filter(|&source| world.sources[source].could_do_it_alone())
            .map(|source| alone(&world, source))
            .fold(f64::INFINITY, f64::min);
        let bound = bound(&world, came.seconds * 1.01);
        let (reached, slower) = (bound / came.seconds, came.seconds / best);
        if reached < 0.9 || slower > 1.02 || std::env::var("DEBUGW").is_ok() {
            println!(
                "seed {seed}: {reached:.3} of the bound, {slower:.3} of the best alone; {:.2} s, bound {bound:.2} s, best {best:.2} s; \
                 {} sources, {} links, {} MiB",
                came.seconds,
                world.sources.len(),
                world.links.len(),
                world.size >> 20
            );
        }
        if std::env::var("DEBUGW").is_ok() {
            for (i, it) in world.sources.iter().enumerate() {
                let had = it.gains.as_ref().map(|g| {
                    (
                        g.iter().filter(|t| **t == 0.0).count(),
                        g.iter().filter(|t| t.is_finite()).count(),
                        g.iter().copied().filter(|t| t.is_finite()).fold(0.0, f64::max),
                    )
                });
                println!(
                    "{i}: rate {:.3} share {:.3} rtt {:.3} link {:?} had {:?} present {:?} stalls {:?} {:?} brought {:.1} MB",
                    it.rate / 1e6,
                    it.rate / world.sources.iter().map(|s| s.rate).sum::<f64>(),
                    it.round_trip,
                    it.link,
                    had,
                    it.present,
                    it.stalls,
                    it.honesty,
                    came.by[i] as f64 / 1e6
                );
            }
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
    let Tally { reached, slower, twice, most_steps } = tally;
    let (median, worst) = (reached[reached.len() / 2], reached[0]);
    println!(
        "{} worlds: median {median:.3} of the bound, worst {worst:.3}, below 0.9 in {}; against the best alone worst {:.3}, over 1.02 in {}; \
         {:.2} % came twice; {most_steps} steps at most",
        reached.len(),
        share(&reached, |it| it < 0.9),
        slower[slower.len() - 1],
        share(&slower, |it| it > 1.02),
        100.0 * twice.iter().sum::<f64>() / twice.len() as f64,
    );
    assert!(median >= 0.95 && worst >= 0.85, "too far from the bound: median {median}, worst {worst}");
    assert!(share(&slower, |it| it > 1.1) == 0, "slower than the best source alone");
}
