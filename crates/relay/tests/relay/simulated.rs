//! Many circuits at once in the simulated network, with relays that die, connections that break or stall, and relays that
//! lie.

use std::time::Duration;

use fastrand::Rng;
use towpath_relay::circuit::{CircuitEnd, CircuitViolation, FIRST_WINDOW, MAX_HELD, MAX_WINDOW, PAUSE_LIMIT};
use towpath_relay::table::TableCounts;
use towpath_simnet::{NetFault, Passing, Scenario, World, for_seeds};

use crate::ends::{EndHost, RELAYS, RelayHost, SimHost, Talk};

const STEP: Duration = Duration::from_millis(250);

/// Relays and ends around one hub, each end so far from it.
fn network(pairs: usize, wire: &str) -> Scenario {
    let text = format!(
        "about = ''\nhosts = ['relay0', 'relay1', 'relay2', 'hub']\n\
         [[link]]\nbetween = ['relay0', 'hub']\n[[link]]\nbetween = ['relay1', 'hub']\n\
         [[link]]\nbetween = ['relay2', 'hub']\n\
         [[star]]\ncentre = 'hub'\nleaf = 'end'\ncount = {}\n{wire}\n",
        2 * pairs
    );
    Scenario::parse(&text).unwrap()
}

fn world(pairs: usize, wire: &str, seed: u64, talk: impl Fn(usize, &mut Rng) -> Talk) -> World<SimHost> {
    let mut random = Rng::with_seed(seed);
    let mut talks: Vec<Talk> = (0..2 * pairs).map(|end| talk(end, &mut random)).collect();
    for pair in talks.chunks_mut(2) {
        (pair[0].to_read, pair[1].to_read) = (pair[1].to_send, pair[0].to_send);
    }
    World::new(&network(pairs, wire), seed, |host| match host {
        0..RELAYS => SimHost::Relay(Box::new(RelayHost::new())),
        RELAYS => SimHost::Hub,
        _ => SimHost::End(Box::new(EndHost::new(host, talks[host - RELAYS - 1]))),
    })
}

fn a_little(_: usize, random: &mut Rng) -> Talk {
    let chunk = random.usize(1500..9000);
    let step = Duration::from_millis(random.u64(20..300));
    Talk { to_send: random.u64(0..120_000), to_read: 0, chunk, step }
}

fn ends(world: &World<SimHost>) -> impl Iterator<Item = &EndHost> {
    world.nodes().iter().filter_map(|node| match node {
        SimHost::End(end) => Some(&**end),
        _ => None,
    })
}

fn all_over(world: &World<SimHost>) -> bool {
    ends(world).all(|end| end.end().is_some())
}

/// Runs to the end of all circuits; relays die as `deaths` in a thousand say, each quarter of a second, for up to 2 s.
fn run(world: &mut World<SimHost>, seed: u64, deaths: u32) -> bool {
    let (mut random, mut down) = (Rng::with_seed(seed ^ 77), [0u64; RELAYS]);
    for turn in 1u64..2400 {
        // Looking at all ends is dear: once in each turn is enough.
        world.run(STEP * turn as u32, |_| false);
        if all_over(world) {
            return true;
        }
        for (relay, back) in down.iter_mut().enumerate() {
            if *back == turn {
                world.restart(relay, SimHost::Relay(Box::new(RelayHost::new())));
            } else if *back < turn && random.u32(0..1000) < deaths {
                world.stop(relay);
                *back = turn + random.u64(1..8);
            }
        }
    }
    ends(world).filter(|end| end.end().is_none()).take(4).for_each(|end| eprintln!("{}", end.state()));
    false
}

fn assert_all_well(world: &World<SimHost>) {
    for (index, end) in ends(world).enumerate() {
        assert!(end.is_well(), "end {index}: {}", end.state());
        assert!(end.most_held <= MAX_WINDOW + FIRST_WINDOW, "{}", end.most_held);
    }
}

fn faults(
    mut decide: impl FnMut(&Passing<'_>, u32) -> NetFault + 'static,
    seed: u64,
) -> towpath_simnet::fault::Faults {
    let mut random = Rng::with_seed(seed ^ 1234);
    Box::new(move |passing| decide(passing, random.u32(0..100_000)))
}

#[test]
fn a_thousand_circuits_survive_relays_that_die_and_connections_that_break() {
    for_seeds(2, |seed| {
        let mut world = world(1000, "delay = '5ms'", seed, a_little);
        world.set_faults(faults(
            |_, dice| match dice {
                0..200 => NetFault::Break,
                200..210 => NetFault::Stall,
                _ => NetFault::None,
            },
            seed,
        ));
        assert!(run(&mut world, seed, 40), "all end in time");
        assert_all_well(&world);
        let losses: u32 = ends(&world).map(|end| end.circuit.as_ref().unwrap().losses()).sum();
        assert!(losses > 300, "{losses}");
        world.set_faults(Box::new(|_| NetFault::None));
        for relay in 0..RELAYS {
            world.stop(relay);
            world.restart(relay, SimHost::Relay(Box::new(RelayHost::new())));
        }
        world.run(world.now() + Duration::from_secs(100), |_| false);
        for node in world.nodes() {
            let SimHost::Relay(relay) = node else { continue };
            let counts = relay.table.counts();
            assert_eq!(counts, TableCounts { guests: 1000, waiting: 1000, ..TableCounts::default() });
        }
    });
}

/// Every message of a small exchange is once the one with which a relay dies, or a connection.
#[test]
fn a_loss_at_any_message_loses_nothing() {
    let talk = |end, _: &mut Rng| {
        let chunk = if end % 2 == 0 { 40_000 } else { 7_000 };
        Talk { to_send: 90_000, to_read: 0, chunk, step: Duration::from_millis(30) }
    };
    let mut messages = u64::MAX;
    let mut at = 0;
    while at < messages {
        for fault in [NetFault::Break, NetFault::Stall] {
            let mut world = world(1, "delay = '5ms'", at, talk);
            let chosen = fault.clone();
            world.set_faults(Box::new(move |passing| match passing.number == at {
                true => chosen.clone(),
                false => NetFault::None,
            }));
            let is_over = run(&mut world, at, 0);
            let how: Vec<_> = ends(&world).map(|end| end.end()).collect();
            assert!(is_over, "message {at}, {fault:?}: {how:?}");
            assert_all_well(&world);
            messages = world.messages();
        }
        at += 1;
    }
    assert!(at > 50, "{at}");
}

/// Whatever a relay changes, doubles or holds back: nothing wrong is ever handed on, and both ends end.
#[test]
fn lies_end_a_circuit_or_change_nothing() {
    for_seeds(20, |seed| {
        let mut world = world(20, "delay = '5ms'", seed, a_little);
        world.set_faults(faults(
            |passing, dice| match dice {
                // Numbers alone: what a block holds is for TLS above to judge.
                0..700 if passing.bytes[0] >= 8 && passing.bytes.len() > 8 => {
                    let mut bytes = passing.bytes.to_vec();
                    bytes[1 + dice as usize % 8] ^= 1 << (dice % 7);
                    NetFault::Replace(bytes)
                }
                700..1200 if passing.bytes[0] >= 8 => NetFault::Twice,
                1200..1500 if passing.bytes[0] >= 8 => NetFault::Hold(Duration::from_millis(40)),
                _ => NetFault::None,
            },
            seed,
        ));
        assert!(run(&mut world, seed, 0), "all end in time");
        assert!(ends(&world).all(EndHost::is_true));
        let well = ends(&world).filter(|end| end.is_well()).count();
        assert!(well < 40, "some were lied to");
    });
}

/// 20 MB over 100 Mbit/s and 40 ms, with a relay that dies every second.
#[test]
fn little_is_sent_twice() {
    for_seeds(5, |seed| {
        let total = 20_000_000;
        let fast = |end, _: &mut Rng| {
            let to_send = if end == 0 { total } else { 1 };
            Talk { to_send, to_read: 0, chunk: 1 << 16, step: Duration::from_millis(2) }
        };
        let mut world = world(1, "delay = '10ms'\nrate = '100mbit'\nqueue = '100ms'", seed, fast);
        let mut turn = 0;
        let has_all = |world: &World<SimHost>| ends(world).nth(1).is_some_and(|end| end.end().is_some());
        while !has_all(&world) {
            turn += 1;
            assert!(turn < 200, "it ends");
            world.run(STEP * turn, |_| false);
            let relay = (turn / 4 % 2) as usize;
            match turn % 4 {
                0 => (0..RELAYS).for_each(|relay| world.stop(relay)),
                1 => world.restart(relay, SimHost::Relay(Box::new(RelayHost::new()))),
                _ => {}
            }
        }
        let took = world.now();
        // The last acknowledgement may be lost with a relay: then the source looks for the other end for as long as it may.
        world.run(took + PAUSE_LIMIT + STEP, |_| false);
        assert_all_well(&world);
        let source = ends(&world).next().unwrap().circuit.as_ref().unwrap();
        let (product, buffers) = (12_500_000 / 1000 * 40, 4 * 65_536 + MAX_HELD as u64);
        // In its first second a path may have more under way than this one holds.
        let each = (2 * product + buffers).max(FIRST_WINDOW as u64);
        let most = total + u64::from(source.losses()) * each;
        assert!(source.losses() >= 2, "{}", source.losses());
        assert!(
            source.sent_bytes() <= most,
            "{} of {most} with {} losses",
            source.sent_bytes(),
            source.losses()
        );
        // Four seconds are the least there is, with the relay gone for a quarter of the time.
        assert!(took < Duration::from_secs(14), "{took:?}");
    });
}

/// Seconds that a circuit takes for so many bytes over this wire, from its first to its last.
fn seconds(wire: &str, total: u64) -> f64 {
    let fast = |end, _: &mut Rng| {
        let to_send = if end == 0 { total } else { 1 };
        Talk { to_send, to_read: 0, chunk: 1 << 17, step: Duration::from_millis(1) }
    };
    let mut world = world(1, wire, 1, fast);
    assert!(world.run(Duration::from_secs(60), |world| ends(world).all(|end| end.circuit.is_some())));
    let begun = world.now();
    assert!(world.run(Duration::from_secs(60), all_over));
    assert_all_well(&world);
    (world.now() - begun).as_secs_f64()
}

#[test]
fn the_window_fills_a_long_way() {
    let wire = |rate| format!("delay = '10ms'\nrate = '{rate}'\nqueue = '100ms'");
    for (rate, total, alone) in [("100mbit", 10_000_000, 0.8), ("1gbit", 40_000_000, 0.32)] {
        let took = seconds(&wire(rate), total);
        // Some round trips until the window is open, and one for the end.
        assert!(took < alone * 1.1 + 0.25, "{rate}: {took} s");
    }
}

/// No relay comes back: both ends say so within the limit.
#[test]
fn without_any_relay_both_ends_give_up() {
    let slow =
        |_, _: &mut Rng| Talk { to_send: 1 << 20, to_read: 0, chunk: 1000, step: Duration::from_millis(20) };
    let mut world = world(10, "delay = '5ms'", 3, slow);
    world.run(Duration::from_secs(8), |_| false);
    (0..RELAYS).for_each(|relay| world.stop(relay));
    assert!(run(&mut world, 3, 0));
    assert!(ends(&world).all(|end| end.end() == Some(CircuitEnd::GivenUp)));
    assert!(world.now() < Duration::from_secs(8 + 65), "{:?}", world.now());
}

/// An acknowledgement of what never arrived shows at the next loss, at the latest.
#[test]
fn a_forged_acknowledgement_is_found() {
    let slow =
        |_, _: &mut Rng| Talk { to_send: 1 << 18, to_read: 0, chunk: 4000, step: Duration::from_millis(20) };
    let mut world = world(1, "delay = '5ms'", 3, slow);
    world.set_faults(Box::new(|passing| match (passing.from, passing.bytes[0]) {
        (0, 9) => NetFault::Replace([&[9][..], &u64::MAX.to_le_bytes()].concat()),
        _ => NetFault::None,
    }));
    assert!(run(&mut world, 3, 0));
    let violated = |end: &EndHost| {
        matches!(end.end(), Some(CircuitEnd::Violated { violation: CircuitViolation::Ack { .. } }))
    };
    assert!(ends(&world).any(violated));
    assert!(ends(&world).all(|end| !matches!(end.end(), None | Some(CircuitEnd::Finished))));
}
