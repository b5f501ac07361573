//! Time for an event of the dealer with ever more sources, each of which has twenty runs to bring.
//!
//! `cargo bench -p towpath-dealer --bench events`. Of ten sources one has everything and the others half. All events count from the moment
//! when all sources are there and all is wanted. The last column is the time beside that with ten sources: flat is some 1.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use towpath_dealer::runs::RUN;
use towpath_dealer::{
    Dealer, DealerAction, DealerEvent, DealtPart, SourceFacts, SourceHolding, SourceNumber, WantedRange,
};

const SOURCES: [u32; 4] = [10, 100, 1000, 4000];
const RUNS_EACH: u64 = 20;
/// With few sources a transfer is over soon: it is repeated until so many events were measured.
const EVENTS: u32 = 100_000;

/// Events that were measured.
#[derive(Default)]
struct Measured {
    events: u32,
    spent: Duration,
    longest: Duration,
    steps: u64,
}

fn facts() -> SourceFacts {
    let round_trip = Duration::from_millis(10);
    SourceFacts { window: 2 * RUN, round_trip, priority: 0, price: 0, proves: true }
}

/// All of it, or every other hundredth.
fn holding(source: SourceNumber, runs: u64) -> SourceHolding {
    let stretch = |at: u64| at * runs / 100 * RUN..(at + 1) * runs / 100 * RUN;
    let has = |at: &u64| (at + u64::from(source)).is_multiple_of(2);
    match source.is_multiple_of(10) {
        true => SourceHolding::Everything,
        false => SourceHolding::Parts((0..100).filter(has).map(stretch).collect()),
    }
}

/// Takes out what the dealer asks for.
fn take(actions: Vec<DealerAction>, asked: &mut VecDeque<(SourceNumber, DealtPart)>) {
    for action in actions {
        match action {
            DealerAction::Ask { source, wants } => asked.extend(wants.into_iter().map(|want| (source, want))),
            DealerAction::Cancel { source, wants } => {
                asked.retain(|(other, part)| *other != source || !wants.contains(part));
            }
            DealerAction::Drop(_) | DealerAction::Open(_) => {}
        }
    }
}

/// One transfer from so many sources, which bring one after the other.
fn transfer(sources: u32, measured: &mut Measured) {
    let (mut dealer, mut asked, mut now) = (Dealer::new(3), VecDeque::new(), Duration::ZERO);
    let runs = u64::from(sources) * RUNS_EACH;
    for source in 0..sources {
        let added = DealerEvent::SourceAdded { source, facts: facts(), holding: holding(source, runs) };
        take(dealer.handle(now, added), &mut asked);
    }
    let wants = (0..runs).map(|tag| WantedRange { tag, range: tag * RUN..(tag + 1) * RUN }).collect();
    take(dealer.handle(now, DealerEvent::Wanted { wants, to_come: 0 }), &mut asked);
    let before = dealer.steps();
    while !dealer.is_complete() {
        now += Duration::from_millis(1);
        let arrives = asked.pop_front().map(|(source, part)| DealerEvent::Arrived { source, part });
        let begin = Instant::now();
        let actions = dealer.handle(now, arrives.unwrap_or(DealerEvent::Tick));
        let took = begin.elapsed();
        measured.events += 1;
        measured.spent += took;
        measured.longest = measured.longest.max(took);
        take(actions, &mut asked);
    }
    measured.steps += dealer.steps() - before;
}

fn main() -> io::Result<()> {
    let (mut out, mut first) = (io::stdout(), None);
    writeln!(
        out,
        "{:>8} {:>9} {:>12} {:>11} {:>7} {:>7}",
        "sources", "events", "ns an event", "longest µs", "steps", "ratio"
    )?;
    for sources in SOURCES {
        let mut measured = Measured::default();
        while measured.events < EVENTS {
            transfer(sources, &mut measured);
        }
        let Measured { events, spent, longest, steps } = measured;
        let each = spent.as_nanos() as f64 / f64::from(events);
        let (ratio, steps) = (each / *first.get_or_insert(each), steps as f64 / f64::from(events));
        let longest = longest.as_micros();
        writeln!(out, "{sources:>8} {events:>9} {each:>12.0} {longest:>11} {steps:>7.1} {ratio:>7.2}")?;
    }
    Ok(())
}
