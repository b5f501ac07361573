//! Servers and clients in the simulated network: a thousand pairs, of which one says what it has and the other finds it, with
//! messages lost, overtaken, doubled and stalled, servers that die, and one that lies.

mod hosts;

use std::time::Duration;

use fastrand::Rng;
use towpath_simnet::{NetFault, Passing, Scenario, World, for_seeds};

use self::hosts::{ClientHost, HOLDER_AT, LIAR, People, SEEKER_AT, SERVERS, ServerHost, SimHost};
use crate::entry_table::TableLimits;

const STEP: Duration = Duration::from_secs(1);
/// Time for all to be back when nothing disturbs any more: what it takes to notice that a server does not hear, and to come back.
const CALM: Duration = Duration::from_secs(150 + 20);

struct Trial {
    people: People,
    limits: TableLimits,
    world: World<SimHost>,
    now: Duration,
}

impl Trial {
    fn new(pairs: usize, limits: TableLimits, seed: u64) -> Self {
        let text = format!(
            "about = ''\nhosts = ['server0', 'server1', 'liar', 'hub']\n\
             [[link]]\nbetween = ['server0', 'hub']\n[[link]]\nbetween = ['server1', 'hub']\n\
             [[link]]\nbetween = ['liar', 'hub']\n\
             [[star]]\ncentre = 'hub'\nleaf = 'client'\ncount = {}\ndelay = '15ms'\nloss = '1%'\n",
            2 * pairs
        );
        let (people, scenario) = (People::new(pairs), Scenario::parse(&text).unwrap());
        let world = World::new(&scenario, seed, |host| match host {
            0..SERVERS => SimHost::Server(Box::new(ServerHost::new(host, &people, limits, seed))),
            SERVERS => SimHost::Hub,
            _ => SimHost::Client(Box::new(ClientHost::new(host, &people))),
        });
        Self { people, limits, world, now: Duration::ZERO }
    }

    /// Goes on for so long; servers die as `deaths` in a thousand say, each second, for up to five.
    fn run(&mut self, time: Duration, seed: u64, deaths: u32) {
        let (mut random, mut down) = (Rng::with_seed(seed ^ 77), [None; SERVERS]);
        let end = self.now + time;
        while self.now < end {
            self.now += STEP;
            let now = self.now;
            self.world.run(now, |_| false);
            for (server, back) in down.iter_mut().enumerate() {
                if back.is_some_and(|back| back <= now) {
                    *back = None;
                    let fresh = ServerHost::new(server, &self.people, self.limits, seed);
                    self.world.restart(server, SimHost::Server(Box::new(fresh)));
                } else if back.is_none() && random.u32(0..1000) < deaths {
                    self.world.stop(server);
                    *back = Some(now + STEP * random.u32(1..5));
                }
            }
            self.assert_bounds();
        }
        for (server, _) in down.iter().enumerate().filter(|(_, back)| back.is_some()) {
            let fresh = ServerHost::new(server, &self.people, self.limits, seed);
            self.world.restart(server, SimHost::Server(Box::new(fresh)));
        }
    }

    fn clients(&self) -> impl Iterator<Item = &ClientHost> {
        self.world.nodes().iter().filter_map(|node| match node {
            SimHost::Client(client) => Some(&**client),
            _ => None,
        })
    }

    fn assert_bounds(&self) {
        for node in self.world.nodes() {
            match node {
                SimHost::Server(server) => {
                    let (entries, mailboxes) = server.board.kept();
                    assert!(entries <= self.limits.entries && mailboxes == 0, "{entries} entries");
                }
                SimHost::Client(client) => {
                    assert!(client.found.iter().count() <= 1, "its mate alone has the ticket")
                }
                SimHost::Hub => {}
            }
        }
    }

    /// Clients that have found what their mate says now.
    fn up_to_date(&self) -> usize {
        let clients: Vec<&ClientHost> = self.clients().collect();
        let mates = clients.chunks(2).flat_map(|pair| [(pair[0], pair[1]), (pair[1], pair[0])]);
        mates.filter(|(client, mate)| client.found_part() == Some(mate.part)).count()
    }
}

/// What befalls the messages of a rough network.
fn rough(seed: u64) -> towpath_simnet::fault::Faults {
    let mut random = Rng::with_seed(seed ^ 1234);
    Box::new(move |_| match random.u32(0..100_000) {
        0..300 => NetFault::Break,
        300..330 => NetFault::Stall,
        330..3000 => NetFault::Hold(Duration::from_millis(random.u64(1..500))),
        3000..5000 => NetFault::Twice,
        _ => NetFault::None,
    })
}

/// Holders speak to one server and the liar, seekers to another one and the liar; the two servers share their entries.
#[test]
fn a_thousand_pairs_find_each_other_whatever_dies_and_whoever_lies() {
    for_seeds(1, |seed| {
        let mut trial = Trial::new(1000, TableLimits::default(), seed);
        trial.world.set_faults(rough(seed));
        trial.run(Duration::from_secs(60), seed, 30);
        trial.world.set_faults(Box::new(|_| NetFault::None));
        trial.run(CALM, seed, 0);
        assert_eq!(trial.up_to_date(), 2000);
        let lost: u32 = trial.clients().map(|client| client.lost).sum();
        let lied: u32 = trial.clients().map(|client| client.passed_over).sum();
        assert!(lost > 1000 && lied > 5000, "{lost} connections lost, {lied} lies passed over");
    });
}

/// Each message of one pair is once the one that is lost with its connection, stalled, doubled or overtaken.
#[test]
fn a_fault_at_any_message_is_made_good() {
    let late = NetFault::Hold(Duration::from_secs(3));
    let (mut at, mut messages) = (0, u64::MAX);
    while at < messages {
        for fault in [NetFault::Break, NetFault::Stall, NetFault::Twice, late.clone()] {
            let mut trial = Trial::new(1, TableLimits::default(), at);
            let chosen = fault.clone();
            trial.world.set_faults(Box::new(move |passing: &Passing<'_>| match passing.number == at {
                true => chosen.clone(),
                false => NetFault::None,
            }));
            trial.run(Duration::from_secs(6), at, 0);
            messages = messages.min(trial.world.messages());
            trial.run(CALM, at, 0);
            assert_eq!(trial.up_to_date(), 2, "message {at}, {fault:?}");
        }
        at += 1;
    }
    assert!(at > 20, "{at}");
}

/// The liar writes far more to the other servers than they take. Those who speak to one server still meet there.
#[test]
fn a_flood_from_elsewhere_fills_no_more_than_there_is_and_displaces_nobody() {
    let limits = TableLimits { entries: 60, ..TableLimits::default() };
    let mut trial = Trial::new(20, limits, 7);
    for host in [HOLDER_AT, SEEKER_AT] {
        assert_ne!(host, LIAR);
    }
    trial.run(Duration::from_secs(120), 7, 0);
    let flooded = trial.world.nodes().iter().filter_map(|node| match node {
        SimHost::Server(server) => {
            Some((server.board.kept().0, server.taken, server.board.said_here(None, usize::MAX).len()))
        }
        _ => None,
    });
    let flooded: Vec<_> = flooded.take(LIAR).collect();
    for (kept, taken, said_here) in flooded {
        assert!(
            kept == 60 && taken > 100 && said_here == 20,
            "{kept} kept, {taken} taken, {said_here} of its own"
        );
    }
}
