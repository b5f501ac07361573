//! Every fault at every message of a transfer between two hosts, also of one in steps: it ends with the right bytes, or,
//! if the peer lied, with an error; never with wrong ones.

use std::time::Duration;

use towpath_content::Oid;
use towpath_simnet::{NetFault, Passing, Scenario, World, for_seeds};

use crate::host::{Host, SILENCE, service};

const RECEIVER: usize = 1;

fn link() -> Scenario {
    Scenario::parse(
        "about = ''\nhosts = ['sender', 'receiver']\n[[link]]\nbetween = ['sender', 'receiver']\n\
         rate = '100mbit'\ndelay = '10ms'",
    )
    .unwrap()
}

/// Bytes that do not repeat, with a hole in the middle.
fn content(len: usize) -> Vec<u8> {
    let mut content: Vec<u8> =
        (0..len).map(|at| (at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()[0]).collect();
    content[len / 3..len / 2].fill(0);
    content
}

struct Run {
    world: World<Host>,
    is_over: bool,
}

impl Run {
    fn new(content: &[u8], limit: Duration, faults: impl FnMut(&Passing<'_>) -> NetFault + 'static) -> Self {
        Self::with_seed(content, limit, 0, faults)
    }

    fn with_seed(
        content: &[u8],
        limit: Duration,
        seed: u64,
        faults: impl FnMut(&Passing<'_>) -> NetFault + 'static,
    ) -> Self {
        Self::of(&link(), content, limit, seed, faults)
    }

    /// `RECEIVER` fetches from host 0.
    fn of(
        scenario: &Scenario,
        content: &[u8],
        limit: Duration,
        seed: u64,
        faults: impl FnMut(&Passing<'_>) -> NetFault + 'static,
    ) -> Self {
        Self::by(Host::fetching, scenario, content, limit, seed, faults)
    }

    /// The same by the object's recipe, in chunks.
    fn by_recipe(content: &[u8], seed: u64, faults: impl FnMut(&Passing<'_>) -> NetFault + 'static) -> Self {
        Self::by(Host::fetching_by_recipe, &link(), content, 1200 * SECOND, seed, faults)
    }

    /// The same as a delta of `older`, in steps.
    fn in_steps(
        (older, content): (&[u8], &[u8]),
        seed: u64,
        faults: impl FnMut(&Passing<'_>) -> NetFault + 'static,
    ) -> Self {
        let older = older.to_vec();
        let receiver = move |peer, oid| Host::fetching_over(peer, oid, older.clone());
        Self::by(receiver, &link(), content, 1200 * SECOND, seed, faults)
    }

    fn by(
        receiver: impl Fn(usize, Oid) -> Host,
        scenario: &Scenario,
        content: &[u8],
        limit: Duration,
        seed: u64,
        faults: impl FnMut(&Passing<'_>) -> NetFault + 'static,
    ) -> Self {
        let (service, oid) = service(content);
        let mut world = World::new(scenario, seed, |host| match host {
            RECEIVER => receiver(0, oid),
            _ => Host::serving(&service),
        });
        world.set_faults(Box::new(faults));
        let is_over = world.run(limit, |world| world.nodes()[RECEIVER].is_over());
        Self { world, is_over }
    }

    fn receiver(&self) -> &Host {
        &self.world.nodes()[RECEIVER]
    }

    /// All bytes are there and right.
    fn assert_complete(&self, content: &[u8], what: &str) {
        let fetch = self.receiver().fetch.as_ref().unwrap();
        let log = &self.receiver().log;
        assert!(self.is_over && fetch.is_complete(), "{what}: {:?}, {log:?}", fetch.failed());
        assert!(fetch.bytes() == content, "{what}: wrong bytes");
    }

    /// Checks that what is there is right, however it ended.
    fn assert_nothing_wrong(&self, content: &[u8], what: &str) {
        let fetch = self.receiver().fetch.as_ref().unwrap();
        let bytes = fetch.bytes();
        for range in fetch.have() {
            let range = range.start as usize..range.end as usize;
            assert!(bytes[range.clone()] == content[range], "{what}: wrong bytes");
        }
        if fetch.is_complete() {
            assert!(bytes == content, "{what}: wrong bytes");
        }
    }
}

/// Runs a fault at each message in turn.
fn at_every_message(
    content: &[u8],
    limit: Duration,
    fault: impl Fn(&[u8]) -> NetFault + Clone + 'static,
    check: impl Fn(&Run, &str),
) {
    let messages = Run::new(content, limit, |_| NetFault::None).world.messages();
    assert!(messages > 10, "{messages} messages are too few to tell anything");
    for number in 0..messages {
        let fault = fault.clone();
        let run = Run::new(content, limit, move |passing| match passing.number == number {
            true => fault(passing.bytes),
            false => NetFault::None,
        });
        check(&run, &format!("message {number} of {messages}"));
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn without_faults_it_takes_what_the_link_takes() {
    let content = content(5 << 20);
    let run = Run::new(&content, 60 * SECOND, |_| NetFault::None);
    run.assert_complete(&content, "no fault");
    // 5 MiB less the hole at 100 Mbit/s, and three round trips: dial, describe, get.
    let bytes = content.len() - content.len() / 6;
    let least = Duration::from_secs_f64(bytes as f64 * 8.0 / 1e8) + Duration::from_millis(60);
    assert!(run.world.now() >= least, "{:?} is faster than the link", run.world.now());
    assert!(run.world.now() < least * 3 / 2, "{:?} instead of {least:?}", run.world.now());
}

#[test]
fn a_connection_lost_at_any_message_is_made_again() {
    let content = content(1 << 20);
    at_every_message(
        &content,
        30 * SECOND,
        |_| NetFault::Break,
        |run, what| {
            run.assert_complete(&content, what);
            assert!(run.world.now() < 5 * SECOND, "{what}: it took {:?}", run.world.now());
        },
    );
}

#[test]
fn a_connection_that_stalls_at_any_message_is_given_up_and_made_again() {
    let content = content(1 << 20);
    at_every_message(
        &content,
        120 * SECOND,
        |_| NetFault::Stall,
        |run, what| {
            run.assert_complete(&content, what);
            assert!(run.world.now() < 3 * SILENCE, "{what}: it took {:?}", run.world.now());
        },
    );
}

#[test]
fn messages_that_are_late_or_come_twice_spoil_nothing() {
    let content = content(1 << 20);
    let faults = [NetFault::Hold(Duration::from_millis(35)), NetFault::Hold(SECOND), NetFault::Twice];
    for fault in faults {
        let what = format!("{fault:?}");
        at_every_message(
            &content,
            300 * SECOND,
            move |_| fault.clone(),
            |run, at| {
                let what = format!("{what} at {at}");
                assert!(run.is_over, "{what}: {:?}", run.receiver().log);
                run.assert_nothing_wrong(&content, &what);
            },
        );
    }
}

#[test]
fn a_message_with_one_wrong_bit_spoils_nothing() {
    let content = content(700_000);
    for_seeds(8, |seed| {
        let flip = move |bytes: &[u8]| {
            let mut wrong = bytes.to_vec();
            let bit = seed as usize * 7919 % (wrong.len() * 8);
            wrong[bit / 8] ^= 1 << (bit % 8);
            NetFault::Replace(wrong)
        };
        at_every_message(&content, 300 * SECOND, flip, |run, what| {
            assert!(run.is_over, "{what}: {:?}", run.receiver().log);
            run.assert_nothing_wrong(&content, what);
        });
    });
}

/// The lab runs the real program through the same file.
#[test]
fn the_labs_cut_link_is_outlived() {
    let scenario = Scenario::parse(include_str!("../../../../lab/scenarios/cut.toml")).unwrap();
    assert_eq!(scenario.host("receiver"), Some(RECEIVER));
    let content = content(10 << 20);
    let run = Run::of(&scenario, &content, 120 * SECOND, 0, |_| NetFault::None);
    run.assert_complete(&content, "cut");
    let mended = scenario.changes.last().unwrap().at;
    assert!(run.world.now() > mended, "the cut came too late: over at {:?}", run.world.now());
    assert!(run.world.now() < mended + 20 * SECOND, "over at {:?}", run.world.now());
}

/// A sender whose every message may be another one, a damaged one, or none of the protocol's.
#[test]
fn a_lying_peer_costs_time_and_no_byte() {
    let content = content(1 << 20);
    for_seeds(100, |seed| {
        let run = Run::with_seed(&content, 1200 * SECOND, seed, lies(seed));
        assert!(run.is_over, "{:?}", run.receiver().log);
        run.assert_nothing_wrong(&content, "lying peer");
    });
}

#[test]
fn a_peer_that_lies_about_recipes_and_chunks_costs_time_and_no_byte() {
    let content = content(600_000);
    for_seeds(100, |seed| {
        let run = Run::by_recipe(&content, seed, lies(seed));
        assert!(run.is_over, "{:?}", run.receiver().log);
        run.assert_nothing_wrong(&content, "lying peer");
    });
}

#[test]
fn a_connection_lost_at_any_message_of_a_recipe_or_chunk_is_made_again() {
    let content = content(400_000);
    let messages = Run::by_recipe(&content, 0, |_| NetFault::None).world.messages();
    assert!(messages > 20, "{messages} messages are too few to tell anything");
    for number in 0..messages {
        let fault = move |passing: &Passing<'_>| match passing.number == number {
            true => NetFault::Break,
            false => NetFault::None,
        };
        let run = Run::by_recipe(&content, 0, fault);
        run.assert_complete(&content, &format!("message {number} of {messages}"));
        assert!(run.world.now() < 5 * SECOND, "message {number}: it took {:?}", run.world.now());
    }
}

/// A file whose changes are scattered, and its older version.
fn versions() -> (Vec<u8>, Vec<u8>) {
    let older: Vec<u8> = (0..40_000u32).flat_map(|at| *Oid::of(&at.to_le_bytes()).digest()).collect();
    let mut newer = older.clone();
    (9000..newer.len() - 300).step_by(60_000).for_each(|at| newer[at..at + 300].fill(7));
    (older, newer)
}

#[test]
fn scattered_changes_come_in_steps_as_little() {
    let (older, newer) = versions();
    let run = Run::in_steps((&older, &newer), 0, |_| NetFault::None);
    run.assert_complete(&newer, "no fault");
    // Signatures go the other way; as it is the file would have taken a tenth of a second.
    assert!(run.world.now() < Duration::from_millis(180), "it took {:?}", run.world.now());
}

#[test]
fn a_connection_lost_at_any_message_of_the_steps_is_made_again() {
    let (older, newer) = versions();
    let messages = Run::in_steps((&older, &newer), 0, |_| NetFault::None).world.messages();
    assert!(messages > 10, "{messages} messages are too few to tell anything");
    for number in 0..messages {
        for fault in [NetFault::Break, NetFault::Stall, NetFault::Twice, NetFault::Hold(SECOND)] {
            let what = format!("{fault:?} at message {number} of {messages}");
            let may_fail = matches!(fault, NetFault::Twice | NetFault::Hold(_));
            let at = move |passing: &Passing<'_>| match passing.number == number {
                true => fault.clone(),
                false => NetFault::None,
            };
            let run = Run::in_steps((&older, &newer), 0, at);
            match may_fail {
                true => assert!(run.is_over, "{what}: {:?}", run.receiver().log),
                false => run.assert_complete(&newer, &what),
            }
            run.assert_nothing_wrong(&newer, &what);
        }
    }
}

#[test]
fn a_peer_that_lies_about_steps_costs_time_and_no_byte() {
    let (older, newer) = versions();
    for_seeds(100, |seed| {
        let run = Run::in_steps((&older, &newer), seed, lies(seed));
        assert!(run.is_over, "{:?}", run.receiver().log);
        run.assert_nothing_wrong(&newer, "lying peer");
    });
}

/// Lies that the sender sends instead.
fn lies(seed: u64) -> impl FnMut(&Passing<'_>) -> NetFault + 'static {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut earlier: Vec<Vec<u8>> = Vec::new();
    move |passing: &Passing<'_>| {
        if passing.from == RECEIVER || earlier.is_empty() || random.u8(..10) > 0 {
            earlier.push(passing.bytes.to_vec());
            return NetFault::None;
        }
        let mut bytes = passing.bytes.to_vec();
        match random.u8(..4) {
            0 => NetFault::Replace(earlier[random.usize(..earlier.len())].clone()),
            1 => {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
                NetFault::Replace(bytes)
            }
            2 => {
                bytes.truncate(random.usize(..bytes.len()));
                NetFault::Replace(bytes)
            }
            _ => NetFault::Replace((0..random.usize(..200)).map(|_| random.u8(..)).collect()),
        }
    }
}
