//! Something befalls the second link after some twenty messages in turn, all over a transfer. Nothing is lost then, and what is left takes hardly
//! longer than by the first link alone. The worst of each sweep is printed.

use std::time::Duration;

use towpath_simnet::scenario::{LinkChange, LinkWay, Params};
use towpath_simnet::{Scenario, SimNode, World};

use super::Machine;

/// The receiver, and the two addresses of the sender, each on a link of its own.
const LINKS: &str = "about = ''\nhosts = ['receiver', 'first', 'second']\n\
    [[link]]\nbetween = ['receiver', 'first']\nrate = '8mbit'\ndelay = '10ms'\n\
    [[link]]\nbetween = ['receiver', 'second']\nrate = '8mbit'\ndelay = '10ms'";
/// The link that something befalls.
const SECOND: usize = 1;
/// Longer than any transfer takes, in simulated time.
const LIMIT: Duration = Duration::from_secs(300);
/// Messages behind which it is tried, spread over all of a transfer.
const TRIED: usize = 20;
/// What is tried.
const BLOWS: [Blow; 5] = [
    Blow::Cut,
    Blow::CutFor(Duration::from_millis(700)),
    Blow::CutFor(Duration::from_secs(4)),
    Blow::Delays(Duration::from_secs(2)),
    Blow::Slows(800_000),
];
/// Part of the time by the other link alone that may be lost.
const LOST: f64 = 0.02;

/// Who fetches.
pub(crate) trait Receiver: SimNode {
    /// Bytes that are here.
    fn arrived(&self) -> u64;

    /// Bytes of all.
    fn size(&self) -> u64;

    /// Bytes that came by all links.
    fn heard(&self) -> u64;
}

/// What befalls a link.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Blow {
    /// It is cut for good.
    Cut,
    /// It is cut for so long.
    CutFor(Duration),
    /// Each packet comes so much later.
    Delays(Duration),
    /// It has so many bits a second.
    Slows(u64),
}

impl Blow {
    /// What changes, and when.
    fn changes(self, at: Duration) -> Vec<LinkChange> {
        let change = |at, params| LinkChange { at, link: SECOND, way: LinkWay::Both, params };
        let cut = |is_cut| Params { cut: Some(is_cut), ..Params::default() };
        match self {
            Self::Cut => vec![change(at, cut(true))],
            Self::CutFor(time) => vec![change(at, cut(true)), change(at + time, cut(false))],
            Self::Delays(delay) => {
                vec![change(at, Params { delay: Some(delay), ..Params::default() })]
            }
            Self::Slows(rate) => vec![change(at, Params { rate: Some(rate), ..Params::default() })],
        }
    }
}

/// A moment of a transfer: when a message was sent, and what had come by then.
struct Moment {
    at: Duration,
    arrived: u64,
}

/// A transfer, as it went.
struct Trial {
    took: Duration,
    size: u64,
    heard: u64,
    moments: Vec<Moment>,
}

impl Trial {
    fn new<R: Receiver>(
        nodes: impl FnMut(usize) -> Machine<R>,
        changes: Vec<LinkChange>,
        what: &str,
    ) -> Self {
        let scenario = Scenario { changes, ..Scenario::parse(LINKS).unwrap() };
        let (mut world, mut moments) = (World::new(&scenario, 1, nodes), Vec::new());
        let is_over = world.run(LIMIT, |world| {
            let receiver = receiver(world);
            let moment = || Moment { at: world.now(), arrived: receiver.arrived() };
            moments.resize_with(world.messages() as usize, moment);
            receiver.arrived() == receiver.size()
        });
        let (took, receiver) = (world.now(), receiver(&world));
        assert!(is_over, "{what}: {} bytes of {}", receiver.arrived(), receiver.size());
        Self { took, size: receiver.size(), heard: receiver.heard(), moments }
    }

    /// Bytes that came, of 100 of the contents.
    fn bytes(&self) -> f64 {
        self.heard as f64 * 100.0 / self.size as f64
    }
}

fn receiver<R: Receiver>(world: &World<Machine<R>>) -> &R {
    match &world.nodes()[0] {
        Machine::Receiver(receiver) => receiver,
        Machine::Sender(_) => unreachable!("it is the first host"),
    }
}

/// Tries all blows; `nodes` has those of a transfer by so many links. From the blow on it takes no more than `later` above the rest by the
/// first link alone and the part that may be lost; and by each blow so many bytes come at most of 100 of the contents.
pub(crate) fn sweep<R: Receiver, N: FnMut(usize) -> Machine<R>>(
    name: &str,
    nodes: impl Fn(usize) -> N,
    later: Duration,
    bytes: [u64; BLOWS.len()],
) {
    let alone = Trial::new(nodes(1), Vec::new(), "by one link");
    let both = Trial::new(nodes(2), Vec::new(), "by both links");
    let (took, bytes_by_both) = ([alone.took, both.took], both.bytes());
    println!("{name}: {took:.2?} by one link and by both, by which of 100 bytes {bytes_by_both:.0} come");
    assert!(both.took < alone.took.mul_f64(0.6), "both links took {:?}, one {:?}", both.took, alone.took);
    let all = both.moments.len();
    assert!(all > TRIED, "{all} messages are too few to tell anything");
    for (blow, bytes) in BLOWS.into_iter().zip(bytes) {
        let (mut longest, mut most) = (Duration::ZERO, 0.0_f64);
        for (number, Moment { at, arrived }) in both.moments.iter().enumerate().step_by(all.div_ceil(TRIED)) {
            let what = format!("{blow:?} behind message {number} of {all}, at {at:?}");
            // Behind the message, which is on its way.
            let trial = Trial::new(nodes(2), blow.changes(*at + Duration::from_nanos(1)), &what);
            let left = (both.size - arrived) as f64 / both.size as f64 * (1.0 + LOST);
            longest = longest.max(trial.took.saturating_sub(*at + alone.took.mul_f64(left)));
            most = most.max(trial.bytes());
        }
        println!("{name}, {blow:?}: {longest:.2?} later at worst, and of 100 bytes {most:.0} come at most");
        assert!(longest <= later, "{name}, {blow:?}: {longest:?} later");
        assert!(most <= bytes as f64, "{name}, {blow:?}: of 100 bytes {most} come");
    }
}
