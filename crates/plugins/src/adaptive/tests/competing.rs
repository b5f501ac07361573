//! Network and disk where processors are short.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use towpath_transfer::rate::Rate;

use crate::adaptive::costs::Costs;
use crate::adaptive::groups::Chunk;
use crate::adaptive::heuristics::File;
use crate::adaptive::operations::{Limits, Operation};
use crate::adaptive::paths::Directory;
use crate::adaptive::pressure::Queues;
use crate::adaptive::{Action, Event, Scheduler, Settings};

const CHUNK: u32 = 16 << 10;
const CHUNKS: u64 = 50_000;

fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn file() -> File {
    let size = CHUNKS * u64::from(CHUNK);
    File { directory: Directory::new(Path::new("/d")), name: b"file"[..].into(), size, modified: None }
}

/// A network of 100 MB/s.
fn rate() -> Rate {
    let mut rate = Rate::default();
    rate.asked(at(0));
    (1..=100).for_each(|ms| rate.arrived(at(ms), 100_000, false));
    rate
}

fn asked_for(action: &Action) -> usize {
    if let Action::AskNetwork(tags) = action { tags.len() } else { 0 }
}

/// How many chunks the network is asked for in half a second, in which the file in the place of another one brings
/// 300 MB/s of it.
fn asked(processors: u64) -> usize {
    let limits = Limits::default();
    let mut scheduler =
        Scheduler::new(Settings { limits, parallel: 1, costs: Costs::default(), rate: rate() });
    let chunks: Vec<_> =
        (0..CHUNKS).map(|tag| Chunk { tag, offset: tag * u64::from(CHUNK), len: CHUNK }).collect();
    scheduler.handle(at(101), Event::Wanted { files: vec![Arc::new(file())], chunks });
    let started = scheduler.handle(at(101), Event::Seen(vec![file()]));
    let hashing = started.iter().find_map(|action| match action {
        Action::Start { id, operation: Operation::Hash(_) } => Some(*id),
        _ => None,
    });
    let operation = hashing.expect("what lies in its place is read at once");
    let (mut asked, mut found) = (0, 0);
    let pressure = Queues { window: 4 << 20, round_trip: at(1), processors, ..Queues::default() };
    for ms in (101..600).step_by(10) {
        let tags = (found..found + 180).collect();
        found += 180;
        let mut actions = scheduler.handle(at(ms), Event::Found { operation, tags });
        actions.extend(scheduler.handle(at(ms), Event::Pressure(pressure)));
        // In ten milliseconds it brings no more.
        for action in actions {
            let Action::AskNetwork(tags) = action else { continue };
            asked += tags.len();
            for tag in tags {
                let arrived = Event::Arrived { tag, len: CHUNK, saved: 0 };
                let next = scheduler.handle(at(ms), arrived);
                asked += next.iter().map(asked_for).sum::<usize>();
            }
        }
    }
    asked
}

#[test]
fn the_network_leaves_processors_that_are_short_to_a_file_that_brings_what_is_missing() {
    let (free, short) = (asked(0), asked(100));
    assert!(free > 500, "{free}");
    assert!(short < free / 20, "{short} of {free}");
}
