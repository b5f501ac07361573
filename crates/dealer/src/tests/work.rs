//! Work for each event: bounded, and the same with a thousand sources as with ten.

use std::collections::VecDeque;
use std::time::Duration;

use crate::Dealer;
use crate::event::{DealerAction, DealerEvent, SourceFacts, SourceHolding, SourceNumber, WantedRange};
use crate::runs::RUN;

/// Sources of which each takes part in one table.
const SOURCES: [u32; 4] = [10, 100, 1000, 4000];

/// Deals so many runs among so many equal sources, which bring one after the other. Steps of the event that took most, and of each on
/// average.
fn work(sources: u32, runs: u64, holding: &impl Fn(u32, u64) -> SourceHolding) -> (u64, u64) {
    let mut dealer = Dealer::new(3);
    let mut events = VecDeque::new();
    let facts = SourceFacts {
        window: 2 * RUN,
        round_trip: Duration::from_millis(10),
        priority: 0,
        price: 0,
        proves: true,
    };
    for source in 0..sources {
        events.push_back(DealerEvent::SourceAdded { source, facts, holding: holding(source, runs) });
    }
    for first in (0..runs).step_by(100) {
        let wants = (first..first + 100).map(|tag| WantedRange { tag, range: tag * RUN..(tag + 1) * RUN });
        events.push_back(DealerEvent::Wanted { wants: wants.collect(), to_come: 0 });
    }
    let (mut now, mut most, mut count) = (Duration::ZERO, 0, 0);
    let mut asked = VecDeque::<(SourceNumber, _)>::new();
    while !(dealer.is_complete() && events.is_empty()) {
        now += Duration::from_millis(1);
        let arrives = || asked.pop_front().map(|(source, part)| DealerEvent::Arrived { source, part });
        let event = events.pop_front().or_else(arrives).unwrap_or(DealerEvent::Tick);
        let before = dealer.steps();
        for action in dealer.handle(now, event) {
            match action {
                DealerAction::Ask { source, wants } => {
                    asked.extend(wants.into_iter().map(|want| (source, want)))
                }
                DealerAction::Cancel { source, wants } => {
                    asked.retain(|(other, part)| *other != source || !wants.contains(part));
                }
                DealerAction::Drop(_) | DealerAction::Open(_) => {}
            }
        }
        most = most.max(dealer.steps() - before);
        count += 1;
        assert!(count < 100 * runs, "it ends");
    }
    (most, dealer.steps() / count)
}

/// Any hundredth of the runs that the source's number does not leave out.
fn half(source: u32, runs: u64) -> SourceHolding {
    let stretch = |at: u64| at * runs / 100 * RUN..(at + 1) * runs / 100 * RUN;
    let has = |at: &u64| (at + u64::from(source) * 37) % 101 < 50;
    SourceHolding::Parts((0..100).filter(has).map(stretch).collect())
}

fn everything(_: u32, _: u64) -> SourceHolding {
    SourceHolding::Everything
}

/// One of ten has everything.
fn mixed(source: u32, runs: u64) -> SourceHolding {
    if source.is_multiple_of(10) { SourceHolding::Everything } else { half(source, runs) }
}

/// What each number of sources comes to, most and average.
fn table(
    what: &str,
    runs: impl Fn(u32) -> u64,
    holding: impl Fn(u32, u64) -> SourceHolding,
) -> Vec<(u64, u64)> {
    let with = SOURCES.map(|sources| work(sources, runs(sources), &holding)).to_vec();
    println!("{what}: most and average steps of an event with {SOURCES:?} sources: {with:?}");
    with
}

/// Each source has as much to do, however many there are.
#[test]
fn work_for_an_event_is_flat_with_as_much_for_each_source() {
    let runs = |sources| u64::from(sources) * 20;
    for with in [table("all have everything", runs, everything), table("some have half", runs, mixed)] {
        for (most, average) in &with {
            assert!(*most <= 1000, "{with:?}");
            assert!(*average <= 2 * with[0].1 + 8, "{with:?}");
        }
    }
}

/// Most sources are idle: they are looked at, some with each event, for what could be asked twice.
#[test]
fn work_for_an_event_is_bounded_where_most_sources_are_idle() {
    let runs = |_| 2000;
    for with in
        [table("all have everything, idle", runs, everything), table("some have half, idle", runs, mixed)]
    {
        assert!(with.iter().all(|(most, average)| *most <= 1000 && *average <= 128), "{with:?}");
    }
}
