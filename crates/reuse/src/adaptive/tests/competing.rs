//! Network and disk where processors are short.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use towpath_transfer::Tag;
use towpath_transfer::rate::Rate;

use crate::adaptive::backpressure::Queues;
use crate::adaptive::costs::Costs;
use crate::adaptive::groups::WantedChunk;
use crate::adaptive::heuristics::File;
use crate::adaptive::operations::{DiskLimits, PlannedOperation};
use crate::adaptive::paths::SplitDirectory;
use crate::adaptive::{Action, Effort, Event, Scheduler, Settings};

const CHUNK: u32 = 16 << 10;
const CHUNKS: u64 = 50_000;

fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn file() -> File {
    let size = CHUNKS * u64::from(CHUNK);
    File { directory: SplitDirectory::new(Path::new("/d")), name: b"file"[..].into(), size, modified: None }
}

/// A network of 100 MB/s.
fn rate() -> Rate {
    let mut rate = Rate::default();
    rate.requested(at(0));
    (1..=100).for_each(|ms| rate.arrived(at(ms), 100_000, false));
    rate
}

/// Chunks requested from the network.
fn requested_in(actions: &[Action]) -> Vec<Tag> {
    let requested = actions.iter().filter_map(|action| match action {
        Action::AskNetwork(tags) => Some(tags),
        _ => None,
    });
    requested.flatten().copied().collect()
}

/// Chunks requested from the network in half a second, in which the file in the place of another one is read at 300 MB/s
/// and brings what it `has`.
fn requested(processors: u64, has: impl Fn(Tag) -> bool) -> Vec<Tag> {
    let limits = DiskLimits::default();
    let mut scheduler = Scheduler::new(Settings {
        limits,
        parallel: 1,
        costs: Costs::default(),
        rate: rate(),
        effort: Effort::Some,
    });
    let chunks: Vec<_> =
        (0..CHUNKS).map(|tag| WantedChunk { tag, offset: tag * u64::from(CHUNK), len: CHUNK }).collect();
    scheduler.handle(at(101), Event::Wanted { files: vec![Arc::new(file())], chunks });
    let started = scheduler.handle(at(101), Event::Seen(vec![file()]));
    let hashing = started.iter().find_map(|action| match action {
        Action::Start { id, operation: PlannedOperation::Hash(_), .. } => Some(*id),
        _ => None,
    });
    let operation = hashing.expect("what lies in its place is read at once");
    let mut requested = Vec::new();
    let pressure = Queues { window: 4 << 20, round_trip: at(1), processors, ..Queues::default() };
    for (step, ms) in (101..600).step_by(10).enumerate() {
        let first = 180 * step as u64;
        let tags = (first..first + 180).filter(|tag| has(*tag)).collect();
        let mut actions = scheduler.handle(at(ms), Event::Found { operation, tags });
        actions.extend(scheduler.handle(at(ms), Event::Backpressure(pressure)));
        let under_way = requested_in(&actions);
        // In ten milliseconds it brings no more.
        for tag in &under_way {
            let next = scheduler.handle(at(ms), Event::Arrived { tag: *tag, len: CHUNK, saved: 0 });
            requested.extend(requested_in(&next));
        }
        requested.extend(under_way);
    }
    requested
}

#[test]
fn the_network_leaves_processors_that_are_short_to_a_file_that_brings_what_is_missing() {
    let (free, short) = (requested(0, |_| true).len(), requested(100, |_| true).len());
    assert!(free > 500, "{free}");
    assert!(short < free / 20, "{short} of {free}");
}

#[test]
fn the_network_brings_at_once_what_a_file_was_passed_over_for() {
    let mut requested = requested(100, |tag| tag % 20 > 0);
    requested.sort_unstable();
    let passed: Vec<Tag> = (0..8000).filter(|tag| tag % 20 == 0).collect();
    assert!(requested.len() < 500 && passed.iter().all(|tag| requested.contains(tag)), "{requested:?}");
}
