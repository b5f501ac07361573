//! The simulated network itself: order, time, loss, faults, and the same events from the same seed.

use std::time::Duration;

use super::*;

const MILLI: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(3600);

fn wire(params: &str) -> Scenario {
    Scenario::parse(&format!(
        "about = ''\nhosts = ['a', 'b', 'c']\n[[link]]\nname = 'wire'\nbetween = ['a', 'b']\n{params}"
    ))
    .unwrap()
}

/// Host 0 sends numbered messages to host 1, which keeps what it is told.
#[derive(Default)]
struct Talker {
    to_send: u32,
    size: usize,
    datagrams: bool,
    got: Vec<(Duration, u32)>,
    opened: Option<Duration>,
    closed: Option<Duration>,
}

impl SimNode for Talker {
    fn start(&mut self, net: &mut Net) {
        if net.host() != 0 {
            return;
        }
        let connection = net.connect(1);
        for number in 0..self.to_send {
            let mut message = number.to_le_bytes().to_vec();
            message.resize(self.size.max(4), 0);
            match self.datagrams {
                true => net.send_datagram(1, message),
                false => net.send(connection, message),
            }
        }
    }

    fn opened(&mut self, net: &mut Net, _: ConnectionId, _: usize) {
        self.opened = Some(net.now());
    }

    fn receive(&mut self, net: &mut Net, _: ConnectionId, message: Vec<u8>) {
        self.datagram(net, 0, message);
    }

    fn closed(&mut self, net: &mut Net, _: ConnectionId) {
        self.closed = Some(net.now());
    }

    fn datagram(&mut self, net: &mut Net, _: usize, message: Vec<u8>) {
        self.got.push((net.now(), u32::from_le_bytes(message[..4].try_into().unwrap())));
    }
}

fn talk(scenario: &Scenario, seed: u64, to_send: u32, size: usize) -> World<Talker> {
    World::new(scenario, seed, |_| Talker { to_send, size, ..Talker::default() })
}

fn numbers(world: &World<Talker>) -> Vec<u32> {
    world.nodes()[1].got.iter().map(|&(_, number)| number).collect()
}

#[test]
fn messages_take_the_time_that_the_link_takes() {
    // 1000 bytes with their head take 1 ms at 8.32 Mbit/s.
    let mut world = talk(&wire("rate = '8.32mbit'\ndelay = '20ms'"), 0, 100, 1000);
    assert!(world.run(LONG, |world| world.nodes()[1].got.len() == 100));
    let opening = 38 * Duration::from_micros(1);
    let late = world.now() - 120 * MILLI;
    assert!(late >= opening && late < MILLI, "{:?}", world.now());
    assert_eq!(numbers(&world), Vec::from_iter(0..100));
    assert_eq!(world.nodes()[0].opened.map(|at| at.as_millis()), Some(40), "one round trip");
}

#[test]
fn streams_lose_nothing_and_keep_their_order_on_a_lossy_link() {
    crate::for_seeds(20, |seed| {
        let mut world = talk(&wire("rate = '10mbit'\ndelay = '5ms'\nloss = '20%'"), seed, 300, 1400);
        assert!(world.run(LONG, |world| world.nodes()[1].got.len() == 300));
        assert_eq!(numbers(&world), Vec::from_iter(0..300));
        assert!(world.counters(0)[0].lost > 0);
    });
}

#[test]
fn datagrams_are_lost_and_overflow_the_queue() {
    let scenario = wire("rate = '10mbit'\ndelay = '5ms'\nloss = '20%'\nqueue = '50k'");
    let mut world = World::new(&scenario, 3, |_| Talker {
        to_send: 100,
        size: 1000,
        datagrams: true,
        ..Talker::default()
    });
    world.run(LONG, |_| false);
    let [forth, _] = world.counters(0);
    assert!(forth.overflows > 40 && forth.lost > 0, "{forth:?}");
    let arrived = 100 - forth.overflows - (forth.lost.min(forth.packets));
    assert!(world.nodes()[1].got.len() as u64 >= arrived);
}

#[test]
fn a_cut_link_stops_a_stream_until_it_is_mended() {
    let cut = "rate = '8mbit'\n[[change]]\nat = '1s'\nlink = 'wire'\ncut = true\n\
               [[change]]\nat = '5s'\nlink = 'wire'\ncut = false";
    let mut world = talk(&wire(cut), 0, 2000, 1000);
    assert!(world.run(LONG, |world| world.nodes()[1].got.len() == 2000));
    let in_the_gap = world.nodes()[1].got.iter().filter(|(at, _)| (1100..5000).contains(&at.as_millis()));
    assert_eq!(in_the_gap.count(), 0);
    assert_eq!(numbers(&world), Vec::from_iter(0..2000));
}

#[test]
fn who_cannot_be_reached_is_told() {
    for scenario in [wire("cut = true"), wire("delay = '1ms'")] {
        let is_cut = scenario.links[0].forth.cut;
        let mut world = talk(&scenario, 0, 1, 1);
        if !is_cut {
            world.stop(1);
        }
        assert!(world.run(LONG, |world| world.nodes()[0].closed.is_some()));
        let expected = if is_cut { CONNECT_TIME } else { 2 * MILLI };
        assert!(world.now() >= expected && world.now() < expected * 3, "{:?}", world.now());
    }
}

#[test]
fn faults_befall_single_messages() {
    let run = |fault: NetFault| {
        let mut world = talk(&wire("delay = '1ms'"), 0, 4, 4);
        world.set_faults(Box::new(move |passing| match passing.number {
            1 => fault.clone(),
            _ => NetFault::None,
        }));
        world.run(LONG, |_| false);
        (numbers(&world), world.nodes()[1].closed.is_some())
    };
    assert_eq!(run(NetFault::None), (vec![0, 1, 2, 3], false));
    assert_eq!(run(NetFault::Break), (vec![], true));
    assert_eq!(run(NetFault::Stall), (vec![0], false));
    assert_eq!(run(NetFault::Hold(MILLI)), (vec![0, 2, 3, 1], false));
    assert_eq!(run(NetFault::Twice), (vec![0, 1, 1, 2, 3], false));
    assert_eq!(run(NetFault::Replace(vec![9, 0, 0, 0])), (vec![0, 9, 2, 3], false));
}

#[test]
fn a_restarted_host_answers_again() {
    let mut world = talk(&wire("delay = '1ms'"), 0, 2, 4);
    world.stop(0);
    world.run(LONG, |_| false);
    assert!(world.nodes()[1].got.is_empty());
    world.restart(0, Talker { to_send: 1, ..Talker::default() });
    assert!(world.run(LONG, |world| world.nodes()[1].got.len() == 1));
}

/// Every node tells its neighbours what it heard first.
struct Gossip {
    neighbours: Vec<usize>,
    heard: bool,
}

impl SimNode for Gossip {
    fn start(&mut self, net: &mut Net) {
        if net.host() == 0 {
            self.spread(net);
        }
    }

    fn receive(&mut self, net: &mut Net, _: ConnectionId, _: Vec<u8>) {
        if !self.heard {
            self.spread(net);
        }
    }
}

impl Gossip {
    fn spread(&mut self, net: &mut Net) {
        self.heard = true;
        for &to in &self.neighbours {
            let connection = net.connect(to);
            net.send(connection, vec![1; 100]);
        }
    }
}

#[test]
fn thousands_of_nodes_live_through_the_same_events_from_the_same_seed() {
    let star = "about = ''\nhosts = ['hub']\n[[star]]\ncentre = 'hub'\nleaf = 'n'\ncount = 3000\n\
                rate = '10mbit'\ndelay = '10ms'\nloss = '1%'";
    let scenario = Scenario::parse(star).unwrap();
    let run = |seed| {
        let mut world = World::new(&scenario, seed, |host| {
            let neighbours = (1..=3).map(|n| (host * 3 + n) % 3001).filter(|&n| n != host).collect();
            Gossip { neighbours, heard: false }
        });
        assert!(world.run(LONG, |world| world.nodes().iter().all(|node| node.heard)), "seed {seed}");
        world.digest()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
