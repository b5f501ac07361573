//! A thousand nodes lose their server at once: back-off keeps them from coming back together, and
//! brings all of them back soon after it does.

use std::collections::BTreeMap;
use std::time::Duration;

use towpath_link::Backoff;
use towpath_link::backoff::BackoffConfig;
use towpath_simnet::{ConnectionId, Net, Scenario, SimNode, World, for_seeds};

const HUB: usize = 0;
const NODES: usize = 1000;
const OUTAGE: Duration = Duration::from_secs(120);
const LONGEST: Duration = Duration::from_secs(20);

/// The hub counts who comes in which second; the others dial it again whenever they lose it.
struct Dialler {
    backoff: Backoff,
    is_connected: bool,
    arrivals: BTreeMap<u64, usize>,
    attempts: usize,
}

impl Dialler {
    fn new() -> Self {
        let backoff = Backoff::new(BackoffConfig { longest: LONGEST, ..BackoffConfig::default() });
        Self { backoff, is_connected: false, arrivals: BTreeMap::new(), attempts: 0 }
    }

    fn dial(&mut self, net: &mut Net) {
        self.attempts += 1;
        net.connect(HUB);
    }
}

impl SimNode for Dialler {
    fn start(&mut self, net: &mut Net) {
        if net.host() != HUB {
            self.dial(net);
        }
    }

    fn opened(&mut self, net: &mut Net, _: ConnectionId, _: usize) {
        self.is_connected = true;
        if net.host() == HUB {
            *self.arrivals.entry(net.now().as_secs()).or_default() += 1;
        } else {
            self.backoff.succeeded();
        }
    }

    fn receive(&mut self, _: &mut Net, _: ConnectionId, _: Vec<u8>) {}

    fn closed(&mut self, net: &mut Net, _: ConnectionId) {
        if net.host() != HUB {
            self.is_connected = false;
            let random = net.random().u64(..);
            let wait = self.backoff.next(net.instant(), random);
            net.wake_at(net.now() + wait);
        }
    }

    fn wake(&mut self, net: &mut Net) {
        self.dial(net);
    }
}

#[test]
fn a_crowd_that_lost_its_server_comes_back_spread_out() {
    let star = format!(
        "about = 'many nodes, one server'\nhosts = ['hub']\n[[star]]\ncentre = 'hub'\nleaf = 'node'\n\
         count = {NODES}\nrate = '100mbit'\ndelay = '10ms'"
    );
    let scenario = Scenario::parse(&star).unwrap();
    let all_connected = |world: &World<Dialler>| world.nodes().iter().all(|node| node.is_connected);
    for_seeds(3, |seed| {
        let mut world = World::new(&scenario, seed, |_| Dialler::new());
        assert!(world.run(Duration::from_secs(10), all_connected));
        world.stop(HUB);
        let end_of_outage = world.now() + OUTAGE;
        world.run(end_of_outage, |_| false);
        let attempts: usize = world.nodes().iter().map(|node| node.attempts).sum();
        let each = attempts as f64 / NODES as f64;
        assert!(each < 25.0, "{each} attempts by each node in two minutes");

        world.restart(HUB, Dialler::new());
        assert!(world.run(end_of_outage + LONGEST + Duration::from_secs(1), all_connected));
        let busiest = world.nodes()[HUB].arrivals.values().max().copied();
        assert!(busiest.is_some_and(|count| count < NODES / 5), "{busiest:?} of {NODES} in one second");
    });
}
