//! Whoever fetches cancels some wants while others of the same requests come, on networks that lose, delay and repeat. It asks
//! again for what did not come, so that in the end all is there; no other want ends as cancelled ([`Mind`](crate::host::Mind)).

use std::time::Duration;

use towpath_simnet::{NetFault, Passing, Scenario, World, for_seeds};

use crate::host::{Host, service};

const RECEIVER: usize = 1;
const SECOND: Duration = Duration::from_secs(1);
/// A piece takes about as long on the link.
const STEP_TIME: Duration = Duration::from_millis(20);

struct Run {
    world: World<Host>,
    is_over: bool,
}

/// Bytes that do not repeat.
fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()[0]).collect()
}

impl Run {
    fn new(
        content: &[u8],
        loss: &str,
        seed: u64,
        faults: impl FnMut(&Passing<'_>) -> NetFault + 'static,
    ) -> Self {
        let scenario = Scenario::parse(&format!(
            "about = ''\nhosts = ['sender', 'receiver']\n[[link]]\nbetween = ['sender', 'receiver']\n\
             rate = '100mbit'\ndelay = '10ms'\nloss = '{loss}'"
        ));
        let (service, oid) = service(content);
        let mut world = World::new(&scenario.unwrap(), seed, |host| match host {
            RECEIVER => Host::changing_its_mind(0, oid),
            _ => Host::serving_slowly(&service, STEP_TIME),
        });
        world.set_faults(Box::new(faults));
        let is_over = world.run(300 * SECOND, |world| world.nodes()[RECEIVER].is_over());
        Self { world, is_over }
    }

    fn receiver(&self) -> &Host {
        &self.world.nodes()[RECEIVER]
    }

    /// Wants that ended as cancelled.
    fn cancelled(&self) -> usize {
        self.receiver().mind.as_ref().unwrap().ended
    }

    fn assert_complete(&self, content: &[u8], what: &str) {
        let fetch = self.receiver().fetch.as_ref().unwrap();
        assert!(
            self.is_over && fetch.is_complete(),
            "{what}: {:?}, {:?}",
            fetch.failed(),
            self.receiver().log
        );
        assert!(fetch.bytes() == content, "{what}: wrong bytes");
    }
}

#[test]
fn what_is_cancelled_does_not_cross_and_what_is_asked_again_comes_once() {
    let content = content(5 << 20);
    let run = Run::new(&content, "0%", 0, |_| NetFault::None);
    run.assert_complete(&content, "no fault");
    assert!(run.cancelled() > 8 && run.receiver().log.is_empty(), "{}", run.cancelled());
    let crossed: u64 = run.world.counters(0).iter().map(|counters| counters.bytes).sum();
    assert!(crossed < content.len() as u64 * 21 / 20, "{crossed}");
}

#[test]
fn cancellations_on_a_link_that_loses_packets_spoil_nothing() {
    let content = content(5 << 20);
    for_seeds(8, |seed| {
        let run = Run::new(&content, "2%", seed, |_| NetFault::None);
        run.assert_complete(&content, "loss");
        assert!(run.cancelled() > 4 && run.receiver().log.is_empty(), "{}", run.cancelled());
    });
}

/// Each message of a transfer in turn has this fault.
fn at_every_message(content: &[u8], fault: &NetFault, check: impl Fn(&Run, &str)) {
    let messages = Run::new(content, "0%", 0, |_| NetFault::None).world.messages();
    for number in 0..messages {
        let faulty = fault.clone();
        let run = Run::new(content, "0%", 0, move |passing| match passing.number == number {
            true => faulty.clone(),
            false => NetFault::None,
        });
        check(&run, &format!("{fault:?} at message {number} of {messages}"));
    }
}

#[test]
fn a_connection_lost_at_any_message_beside_cancellations_is_made_again() {
    let content = content(2 << 20);
    for fault in [NetFault::Break, NetFault::Stall] {
        at_every_message(&content, &fault, |run, what| run.assert_complete(&content, what));
    }
}

#[test]
fn messages_that_are_late_or_come_twice_beside_cancellations_spoil_nothing() {
    let content = content(2 << 20);
    let [soon, late] = [Duration::from_millis(35), SECOND].map(NetFault::Hold);
    for fault in [soon, late, NetFault::Twice] {
        at_every_message(&content, &fault, |run, what| {
            let fetch = run.receiver().fetch.as_ref().unwrap();
            assert!(run.is_over, "{what}: {:?}", run.receiver().log);
            // A proof behind its request comes too late for that.
            assert!(fetch.failed().is_some() || fetch.bytes() == content, "{what}: wrong bytes");
        });
    }
}
