//! A disk on which nothing is found: how long the scheduler looks at it, and where it needs no leave to look.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use towpath_transfer::Tag;
use towpath_transfer::rate::Rate;

use crate::adaptive::backpressure::Queues;
use crate::adaptive::budget::Effort;
use crate::adaptive::costs::Costs;
use crate::adaptive::event::{Action, End, Event};
use crate::adaptive::groups::WantedChunk;
use crate::adaptive::heuristics::File;
use crate::adaptive::operations::{DiskLimits, PlannedOperation};
use crate::adaptive::paths::SplitDirectory;
use crate::adaptive::scheduler::{Scheduler, Settings};

const CHUNK: u64 = 16 << 10;
const SIZE: u64 = 2400 * CHUNK;
/// Bytes a second of the network, which so takes four seconds, and of the disk.
const NETWORK: u64 = 10_000_000;
const DISK: f64 = 500e6;
const LISTING: Duration = Duration::from_millis(1);

fn directory(path: &str) -> SplitDirectory {
    SplitDirectory::new(Path::new(path))
}

fn file(directory: SplitDirectory, name: &str, size: u64) -> File {
    File { directory, name: name.as_bytes().into(), size, modified: None }
}

/// Operations done before the scheduler was content, or a second had passed.
#[derive(Default)]
struct Done {
    wide: Duration,
    near_bytes: u64,
    given_up: Vec<Tag>,
}

/// A disk without end: each directory has two others and a file of this size, the destination many files.
fn look(effort: Effort, size: u64) -> Done {
    let mut rate = Rate::default();
    rate.requested(Duration::ZERO);
    (1..=100).for_each(|ms| rate.arrived(Duration::from_millis(ms), NETWORK / 1000, false));
    let (limits, costs) = (DiskLimits::default(), Costs::new(CHUNK));
    let mut scheduler = Scheduler::new(Settings { limits, parallel: 1, costs, rate, effort });
    let chunks =
        (0..SIZE / CHUNK).map(|tag| WantedChunk { tag, offset: tag * CHUNK, len: CHUNK as u32 }).collect();
    let wanted = Arc::new(file(directory("/d/in"), "wanted", SIZE));
    let begin = [directory("/d/in"), directory("/d"), directory("/")];
    let mut events =
        VecDeque::from([Event::Wanted { files: vec![wanted], chunks }, Event::Look(begin.to_vec())]);
    events.push_back(Event::Backpressure(Queues {
        window: 2 << 20,
        round_trip: LISTING,
        ..Queues::default()
    }));
    let (mut now, mut done) = (Duration::from_millis(101), Done::default());
    let (mut requested, mut come) = (VecDeque::new(), NETWORK / 10);
    while now < Duration::from_secs(2) {
        while come + CHUNK <= (now.as_secs_f64() * NETWORK as f64) as u64
            && let Some(tag) = requested.pop_front()
        {
            come += CHUNK;
            events.push_back(Event::Arrived { tag, len: CHUNK as u32, saved: 0 });
        }
        let Some(event) = events.pop_front() else {
            if !done.given_up.is_empty() {
                return done;
            }
            now += Duration::from_millis(10);
            events.push_back(Event::Tick);
            continue;
        };
        for action in scheduler.handle(now, event) {
            match action {
                Action::Recompute => {
                    scheduler.recompute();
                    events.push_back(Event::Recomputed(Duration::ZERO));
                }
                Action::AskNetwork(tags) => requested.extend(tags),
                Action::GiveUp(tags) => done.given_up.extend(tags),
                Action::Start { id, operation, is_wide } => {
                    let (took, end) = match operation {
                        PlannedOperation::Check(_) => (Duration::ZERO, End::Checked(Vec::new())),
                        PlannedOperation::Read { .. } => panic!("the index is empty"),
                        PlannedOperation::Stat(listed) => {
                            let count = if listed == begin[0] { 20 } else { 1 };
                            let files = (0..count).map(|at| file(listed.clone(), &format!("{at}.x"), size));
                            let below: &[&str] = if listed == begin[0] { &[] } else { &["a", "b"] };
                            let directories = below.iter().map(|name| name.as_bytes().into()).collect();
                            events.push_back(Event::Listed {
                                operation: id,
                                files: files.collect(),
                                directories,
                            });
                            (LISTING, End::Listed)
                        }
                        PlannedOperation::Hash(file) => {
                            done.near_bytes += if is_wide { 0 } else { file.size };
                            (
                                Duration::from_secs_f64(file.size as f64 / DISK),
                                End::Hashed { bytes: file.size },
                            )
                        }
                    };
                    now += took;
                    done.wide += if is_wide { took } else { Duration::ZERO };
                    events.push_back(Event::Completed { operation: id, took, end });
                }
                _ => {}
            }
        }
    }
    done
}

#[test]
fn where_nothing_is_found_it_looks_for_a_tenth_of_the_time_and_then_gives_the_chunks_up() {
    let done = look(Effort::Some, 1 << 20);
    let (least, most) = (Duration::from_millis(70), Duration::from_millis(420));
    assert!((least..most).contains(&done.wide), "{:?}", done.wide);
    assert!(done.given_up.len() as u64 > SIZE / CHUNK / 2, "{}", done.given_up.len());
}

#[test]
fn what_lies_at_the_destination_needs_no_budget() {
    // Each of them is more than the budget would ever let be read.
    let done = look(Effort::Some, 9 * SIZE);
    assert_eq!(done.near_bytes % (9 * SIZE), 0);
    assert!(done.near_bytes > 0, "not even one was read");
    assert!(done.wide < Duration::from_millis(420), "{:?}", done.wide);
}

#[test]
fn all_effort_goes_on() {
    let done = look(Effort::All, 1 << 20);
    assert!(done.given_up.is_empty() && done.wide > Duration::from_millis(1500), "{:?}", done.wide);
}
