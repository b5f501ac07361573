//! Many nodes fetch from one, over links that lose packets, with connections that break and a server
//! that ends in the middle.

use std::time::Duration;

use towpath_simnet::{NetFault, Scenario, World, for_seeds};

use crate::host::{Host, service};

const SECOND: Duration = Duration::from_secs(1);

/// A crowd around a server; one in `breaks` messages loses its connection, and the server ends and
/// begins again after `restart`.
fn run(receivers: usize, size: usize, seed: u64, breaks: u64, restart: Duration) -> World<Host> {
    let scenario = Scenario::parse(&format!(
        "about = 'a server and its receivers'\nhosts = ['server']\n[[star]]\ncentre = 'server'\nleaf = 'r'\n\
         count = {receivers}\nrate = '20mbit'\ndelay = '15ms'\nloss = '1%'"
    ))
    .unwrap();
    let content: Vec<u8> = (0..size).map(|at| (at * at / 7) as u8).collect();
    let (service, oid) = service(&content);
    let mut world = World::new(&scenario, seed, |host| match host {
        0 => Host::serving(&service),
        _ => Host::fetching(0, oid),
    });
    let mut random = fastrand::Rng::with_seed(seed);
    world.set_faults(Box::new(move |_| match random.u64(..breaks) {
        0 => NetFault::Break,
        _ => NetFault::None,
    }));
    world.run(restart, |_| false);
    world.stop(0);
    world.run(restart + 2 * SECOND, |_| false);
    world.restart(0, Host::serving(&service));
    let is_over = world.run(600 * SECOND, |world| world.nodes().iter().all(Host::is_over));
    assert!(is_over, "after {:?} not all are done", world.now());
    for node in &world.nodes()[1..] {
        let fetch = node.fetch.as_ref().unwrap();
        assert!(fetch.is_complete(), "{:?} {:?}", fetch.failed(), node.log);
        assert!(fetch.bytes() == content, "wrong bytes");
    }
    world
}

#[test]
fn a_thousand_receivers_end_with_the_right_bytes() {
    for_seeds(1, |seed| {
        run(1000, 100_000, seed, 200, 400 * Duration::from_millis(1));
    });
}

#[test]
fn the_same_seed_gives_the_same_events() {
    let digest = |seed| run(50, 300_000, seed, 40, SECOND / 5).digest();
    assert_eq!(digest(1), digest(1));
    assert_ne!(digest(1), digest(2));
}
