//! Two lines of 300 and 100 Mbit/s, near and far (`lab/scenarios/dot-uneven.toml`): what the dealer makes of them. Connecting and a
//! connection's growth are not in it.

use towpath_simnet::for_seeds;

use super::simulation::Simulation;
use super::world::{Honesty, World, WorldSource};

/// Bytes of the transfer, and of its chunks.
const SIZE: u64 = 200_000_000;
const WANT: u64 = 256 << 10;
/// Bytes a second of 1 Mbit/s, less what heads take.
const MBIT: f64 = 118_000.0;

fn line(mbit: f64, round_trip: f64) -> WorldSource {
    WorldSource {
        rate: mbit * MBIT,
        round_trip,
        link: None,
        gains: None,
        present: std::iter::once(0.0..f64::INFINITY).collect(),
        stalls: f64::INFINITY..f64::INFINITY,
        honesty: Honesty::Honest,
        proves: true,
    }
}

#[test]
fn two_uneven_lines_bring_their_sum_and_hardly_anything_twice() {
    for (near, far) in [((300.0, 0.02), (100.0, 0.06)), ((300.0, 0.06), (100.0, 0.02))] {
        let sources = vec![line(near.0, near.1), line(far.0, far.1)];
        let world = World { size: SIZE, links: Vec::new(), sources, want: WANT };
        let best = SIZE as f64 / (400.0 * MBIT);
        for_seeds(3, |seed| {
            let came = Simulation::run(&world, seed);
            assert!(best / came.seconds >= 0.97, "seed {seed}: {:.3} s of {best:.3} s", came.seconds);
            assert!(came.twice <= SIZE / 100, "seed {seed}: {} bytes twice", came.twice);
        });
    }
}
