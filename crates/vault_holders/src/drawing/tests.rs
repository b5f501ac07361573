//! Holders in simulated time: what they bring together, and what one costs that lies, dies, or lacks things.

use std::collections::VecDeque;

use towpath_vault_format::Digest;

use super::*;

const LENGTH: u32 = 8192;
const STEP: Duration = Duration::from_millis(1);

/// What a simulated holder does.
#[derive(Clone, Copy)]
enum Way {
    /// It gives all.
    Honest,
    /// After so many objects it gives other bytes.
    LiesAfter(u64),
    /// It never connects, and says so after so many milliseconds.
    Unreachable(u32),
    /// After so many objects nothing comes of it any more.
    SilentAfter(u64),
    /// It has the objects of even numbers alone.
    Half,
    /// It has none.
    Empty,
    /// It lacks the first so many.
    LacksFirst(u64),
}

struct SimHolder {
    way: Way,
    /// Bytes a millisecond.
    rate: u64,
    owed: VecDeque<(Tag, Digest)>,
    gave: u64,
    credit: u64,
}

struct Sim {
    drawing: Drawing,
    holders: Vec<SimHolder>,
    now: Duration,
}

fn name(number: u64) -> Digest {
    Digest::of(&number.to_le_bytes())
}

fn body(name: &Digest) -> Bytes {
    Bytes::copy_from_slice(&[&name.0[..], &[7; LENGTH as usize - 32]].concat())
}

impl Sim {
    fn new(holders: &[(Way, u64)]) -> Self {
        let places = (0..holders.len()).map(|number| format!("holder {number}")).collect();
        let holder =
            |&(way, rate): &(Way, u64)| SimHolder { way, rate, owed: VecDeque::new(), gave: 0, credit: 0 };
        Self {
            drawing: Drawing::new(places),
            holders: holders.iter().map(holder).collect(),
            now: Duration::ZERO,
        }
    }

    /// What a holder does in this millisecond.
    fn events(&mut self, source: usize) -> Vec<HolderEvent> {
        let since = self.now.as_millis() as u32;
        let holder = &mut self.holders[source];
        match holder.way {
            Way::Unreachable(after) if since == after => {
                return vec![HolderEvent::Ended(HolderFault::Unreachable("no route".into()))];
            }
            Way::Unreachable(_) => return Vec::new(),
            _ if since == 1 => return vec![HolderEvent::Connected { round_trip: STEP }],
            _ => {}
        }
        holder.credit = (holder.credit + holder.rate).min(holder.rate.max(LENGTH.into()));
        let mut events = Vec::new();
        while holder.credit >= u64::from(LENGTH) {
            if matches!(holder.way, Way::SilentAfter(count) if holder.gave >= count) {
                break;
            }
            let Some((tag, hash)) = holder.owed.pop_front() else { break };
            holder.credit -= u64::from(LENGTH);
            holder.gave += 1;
            let has = match holder.way {
                Way::LiesAfter(count) if holder.gave > count => {
                    events.push(HolderEvent::Ended(HolderFault::OtherBytes(hash)));
                    break;
                }
                Way::Half => tag % 2 == 0,
                Way::Empty => false,
                Way::LacksFirst(count) => tag >= count,
                _ => true,
            };
            events.push(HolderEvent::Gave { tag, object: has.then(|| body(&hash)) });
        }
        events
    }

    fn ask(&mut self, steps: Vec<DrawStep>) {
        for DrawStep { source, objects } in steps {
            self.holders[source as usize].owed.extend(objects);
        }
    }

    /// Draws these; what came, and after how many milliseconds.
    fn draw(&mut self, numbers: std::ops::Range<u64>) -> (Result<Vec<Option<Bytes>>, DrawError>, u128) {
        let wanted: Vec<_> =
            numbers.map(|number| WantedObject { name: name(number), length: LENGTH }).collect();
        let (began, steps) = (self.now, self.drawing.want(self.now, &wanted));
        self.ask(steps);
        for _ in 0..1_000_000 {
            match self.drawing.drawn() {
                Ok(None) => {}
                drawn => return (drawn.map(Option::unwrap_or_default), (self.now - began).as_millis()),
            }
            self.now += STEP;
            for source in 0..self.holders.len() {
                for event in self.events(source) {
                    let steps = self.drawing.take(self.now, source as SourceNumber, event);
                    self.ask(steps);
                }
            }
            let steps = self.drawing.tick(self.now);
            self.ask(steps);
        }
        panic!("it takes too long");
    }

    fn assert_whole(&mut self, numbers: std::ops::Range<u64>) -> u128 {
        let (drawn, took) = self.draw(numbers.clone());
        let drawn = drawn.unwrap();
        assert_eq!(drawn.len() as u64, numbers.end - numbers.start);
        assert!(numbers.zip(&drawn).all(|(number, object)| object.as_ref() == Some(&body(&name(number)))));
        took
    }

    fn standings(&self) -> Vec<HolderStanding> {
        self.drawing.reports().into_iter().map(|report| report.standing).collect()
    }
}

/// Eight megabytes a second.
const RATE: u64 = 8192;

#[test]
fn what_two_holders_bring_adds_up_call_by_call() {
    let calls = |holders: &[(Way, u64)]| {
        let mut sim = Sim::new(holders);
        let took: u128 = (0..6).map(|call| sim.assert_whole(call * 2000..(call + 1) * 2000)).sum();
        (took, sim.drawing.reports())
    };
    let (alone, _) = calls(&[(Way::Honest, RATE)]);
    let (both, reports) = calls(&[(Way::Honest, RATE), (Way::Honest, RATE)]);
    assert!(both * 100 <= alone * 60, "{both} ms, {alone} alone");
    assert!(reports.iter().all(|report| report.objects >= 4000), "{reports:?}");
    let (unequal, _) = calls(&[(Way::Honest, RATE), (Way::Honest, RATE / 4)]);
    assert!(unequal * 100 <= alone * 90, "{unequal} ms, {alone} alone");
}

#[test]
fn a_liar_is_named_and_costs_what_it_was_asked_for() {
    let mut sim = Sim::new(&[(Way::Honest, RATE), (Way::LiesAfter(100), RATE)]);
    sim.assert_whole(0..3000);
    sim.assert_whole(3000..4000);
    let standings = sim.standings();
    assert_eq!(standings[0], HolderStanding::Open);
    assert!(matches!(standings[1], HolderStanding::Gone(HolderFault::OtherBytes(_))), "{standings:?}");
    assert_eq!(sim.drawing.reports()[1].objects, 100);
}

#[test]
fn one_that_is_dead_or_falls_silent_is_not_waited_for() {
    let (_, alone) = Sim::new(&[(Way::Honest, RATE)]).draw(0..4000);
    for way in [Way::Unreachable(5), Way::Unreachable(900_000), Way::SilentAfter(10), Way::SilentAfter(0)] {
        let mut sim = Sim::new(&[(way, RATE), (Way::Honest, RATE)]);
        let took = sim.assert_whole(0..4000);
        assert!(took <= alone + 3000, "{took} ms, {alone} alone");
    }
}

#[test]
fn what_one_lacks_another_brings_and_what_all_lack_is_missing() {
    let mut sim = Sim::new(&[(Way::Half, RATE), (Way::Honest, RATE)]);
    sim.assert_whole(0..3000);
    let mut sim = Sim::new(&[(Way::Empty, RATE), (Way::Honest, RATE)]);
    sim.assert_whole(0..3000);
    let mut sim = Sim::new(&[(Way::Half, RATE), (Way::Half, RATE)]);
    let (drawn, _) = sim.draw(0..100);
    let is_there: Vec<bool> = drawn.unwrap().iter().map(Option::is_some).collect();
    assert_eq!(is_there, (0..100).map(|number| number % 2 == 0).collect::<Vec<_>>());
    // Nobody is banned for good by that.
    assert_eq!(sim.draw(100..102).0.unwrap().iter().flatten().count(), 1);
}

#[test]
fn the_last_holder_is_asked_however_much_it_lacks() {
    for lacking in [1, 8, 12, 31, 32, 33, 100, 500] {
        for others in [&[][..], &[(Way::Unreachable(2), RATE)], &[(Way::LiesAfter(0), RATE)]] {
            let mut sim = Sim::new(&[&[(Way::LacksFirst(lacking), RATE)][..], others].concat());
            let (drawn, _) = sim.draw(0..600);
            let missing = drawn.unwrap().iter().filter(|object| object.is_none()).count();
            assert_eq!(missing as u64, lacking);
            sim.assert_whole(600..700);
        }
    }
}

#[test]
fn without_a_holder_that_is_left_the_reason_is_told() {
    let mut sim = Sim::new(&[(Way::Unreachable(3), 1), (Way::LiesAfter(5), RATE)]);
    let (drawn, _) = sim.draw(0..100);
    assert!(matches!(drawn, Err(DrawError::NoHolder { count: 2, .. })), "{drawn:?}");
    assert!(sim.draw(0..1).0.is_err(), "and it stays so");
    for holders in [[Way::Unreachable(3), Way::LiesAfter(5)], [Way::LiesAfter(5), Way::Unreachable(3)]] {
        let (drawn, _) = Sim::new(&holders.map(|way| (way, RATE))).draw(0..100);
        let is_named = matches!(drawn, Err(DrawError::NoHolder { fault: HolderFault::OtherBytes(_), .. }));
        assert!(is_named, "{drawn:?}");
    }
    assert_eq!(Sim::new(&[]).draw(0..1).0, Err(DrawError::None));
    assert_eq!(Sim::new(&[]).draw(0..0).0, Ok(Vec::new()));
}
