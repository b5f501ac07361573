//! What nobody can know beforehand: a fast source comes late, and of some stretches it has nothing. Whatever was fetched before of what
//! it has need not have been.
//!
//! A slow source has everything. It brings `before` of the object until the fast one comes. Which stretches that one lacks is drawn
//! evenly, so whatever rule chose those bytes, on average only as large a share of them is among the lacking ones as these are of all.
//! The slow one brings the rest of these alone. So on average, and in the worst draw all the more, no rule is sooner than [`Late::soonest`].

use super::bound::bound;
use super::simulation::Simulation;
use super::world::{Honesty, STRETCHES, World, WorldSource};

const SIZE: f64 = (256 << 20) as f64;
/// Seconds that both together need.
const TIME: f64 = 100.0;
const DRAWS: u64 = 24;

/// A world of two sources as `World::of` may draw it.
struct Late {
    /// Share of the sum that the fast one has.
    fast: f64,
    /// Stretches that it lacks.
    lacks: usize,
    /// It comes after so much of the time that both together need.
    comes: f64,
}

impl Late {
    fn world(&self, draw: u64) -> World {
        let mut order: Vec<usize> = (0..STRETCHES).collect();
        fastrand::Rng::with_seed(draw).shuffle(&mut order);
        let mut gains = vec![0.0; STRETCHES];
        order[..self.lacks].iter().for_each(|&stretch| gains[stretch] = f64::INFINITY);
        let source = |share: f64, gains, from| WorldSource {
            rate: share * SIZE / TIME,
            round_trip: 0.01,
            link: None,
            gains,
            present: vec![from..f64::INFINITY],
            stalls: f64::INFINITY..f64::INFINITY,
            honesty: Honesty::Honest,
            proves: true,
        };
        let sources =
            vec![source(1.0 - self.fast, None, 0.0), source(self.fast, Some(gains), self.comes * TIME)];
        World { size: SIZE as u64, links: Vec::new(), sources, want: 256 << 10 }
    }

    /// Seconds that any rule without foresight needs at least, on average over the draws.
    fn soonest(&self) -> f64 {
        let (slow, lacks) = (1.0 - self.fast, self.lacks as f64 / STRETCHES as f64);
        let before = slow * self.comes;
        TIME * (self.comes + lacks * (1.0 - before) / slow)
    }
}

#[test]
fn where_foresight_is_needed_no_rule_comes_nearer() {
    for (late, share) in [
        (Late { fast: 0.7, lacks: 20, comes: 0.6 }, 0.82),
        (Late { fast: 0.8, lacks: 14, comes: 0.6 }, 0.79),
        (Late { fast: 0.9, lacks: 7, comes: 0.6 }, 0.79),
    ] {
        let draws = (0..DRAWS).map(|draw| late.world(draw));
        let played = draws.map(|world| {
            let seconds = Simulation::run(&world, 1).seconds;
            (seconds, bound(&world, seconds * 1.01))
        });
        let played: Vec<(f64, f64)> = played.collect();
        let mean = |of: fn(&(f64, f64)) -> f64| played.iter().map(of).sum::<f64>() / DRAWS as f64;
        let (seconds, bound, soonest) = (mean(|it| it.0), mean(|it| it.1), late.soonest());
        let worst = played.iter().map(|(seconds, bound)| bound / seconds).fold(1.0, f64::min);
        println!(
            "fast {}, lacks {} of {STRETCHES}: bound {bound:.1} s; no rule before {soonest:.1} s: {:.3}; the dealer {seconds:.1} s, in \
             its worst draw {worst:.3}",
            late.fast,
            late.lacks,
            bound / soonest
        );
        assert!(bound / soonest < share, "full knowledge is that much better");
        assert!(seconds < 1.03 * soonest, "and the dealer is as good as can be without");
    }
}
