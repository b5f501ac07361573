//! The pair of dsync's Figure 4 (`papers/dsync.txt` §7.2.3), as the second receiver sees it: a slow sender, and near by a first
//! receiver whose older version has nearly all of the object. What that lacks is scattered, and it gets that of the sender meanwhile.

use towpath_simnet::for_seeds;

use super::simulation::Simulation;
use super::world::{Honesty, STRETCHES, World, WorldSource};

/// Bytes of a stretch: less than a piece, so that what is missing of one spoils others.
const STRETCH: u64 = 160 << 10;
/// Bytes a second of the sender's line, which the two share.
const LINE: f64 = 200_000.0;

fn source(rate: f64, gains: Option<Vec<f64>>) -> WorldSource {
    WorldSource {
        rate,
        round_trip: 1e-3,
        link: None,
        gains,
        present: std::iter::once(0.0..f64::INFINITY).collect(),
        stalls: f64::INFINITY..f64::INFINITY,
        honesty: Honesty::Honest,
        proves: true,
    }
}

/// The first receiver lacks every stretch whose number this divides.
fn pair(every: usize) -> World {
    let each = STRETCH as f64 / (LINE / 2.0);
    let gained = |at: usize| if at.is_multiple_of(every) { (at / every + 1) as f64 * each } else { 0.0 };
    let holder = source(LINE * 100.0, Some((0..STRETCHES).map(gained).collect()));
    let size = STRETCH * STRETCHES as u64;
    World { size, links: Vec::new(), sources: vec![source(LINE / 2.0, None), holder], want: 256 << 10 }
}

#[test]
fn nearly_all_comes_from_who_has_nearly_all() {
    for (every, least) in [(48, 0.95), (12, 0.85), (8, 0.8)] {
        for_seeds(20, |seed| {
            let world = pair(every);
            let came = Simulation::run(&world, seed);
            let share = came.by[1] as f64 / world.size as f64;
            assert!(share >= least, "one in {every} is missing: {share:.3} of seed {seed}");
        });
    }
}
