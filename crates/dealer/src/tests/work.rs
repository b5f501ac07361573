//! Work for each event: bounded, and the same with a thousand sources as with ten.

use std::collections::VecDeque;
use std::time::Duration;

use crate::Dealer;
use crate::event::{DealerAction, DealerEvent, SourceFacts, SourceHolding, SourceNumber, WantedRange};
use crate::runs::RUN;

const RUNS: u64 = 2000;

/// Deals 2,000 runs among so many equal sources, which bring one after the other. Steps of the event that took most, and of each on
/// average.
fn work(sources: u32, holding: impl Fn(u32) -> SourceHolding) -> (u64, u64) {
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
        events.push_back(DealerEvent::SourceAdded { source, facts, holding: holding(source) });
    }
    for first in (0..RUNS).step_by(100) {
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
        assert!(count < 100 * RUNS, "it ends");
    }
    (most, dealer.steps() / count)
}

#[test]
fn work_for_an_event_is_the_same_with_a_thousand_sources_as_with_ten() {
    let half = |source: u32| {
        let stretch = |at: u64| at * 20 * RUN..(at + 1) * 20 * RUN;
        // Any hundredth that the source's number does not leave out.
        SourceHolding::Parts(
            (0..100).filter(|at| (at + u64::from(source) * 37) % 101 < 50).map(stretch).collect(),
        )
    };
    let everything: fn(u32) -> SourceHolding = |_| SourceHolding::Everything;
    let mixed = |source| if source % 10 == 0 { SourceHolding::Everything } else { half(source) };
    for (what, with) in [
        ("all have everything", [10, 100, 1000, 4000].map(|sources| work(sources, everything))),
        ("some have half", [10, 100, 1000, 4000].map(|sources| work(sources, mixed))),
    ] {
        println!("{what}: most and average steps of an event with 10, 100, 1000, 4000 sources: {with:?}");
        for (most, average) in with {
            assert!(most <= 1000, "{what}: {with:?}");
            assert!(average <= 2 * with[0].1 + 100, "{what}: {with:?}");
        }
    }
}
