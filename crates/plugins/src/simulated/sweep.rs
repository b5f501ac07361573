//! Something befalls the second link after some twenty messages in turn, all over a transfer. Nothing is lost then, and what is left takes hardly
//! longer than by the first link alone.

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
/// Part of the time by the other link alone that may be lost.
const LOST: f64 = 0.02;

/// Who fetches.
pub(crate) trait Receiver: SimNode {
    /// Bytes that are here.
    fn arrived(&self) -> u64;

    /// Bytes of all.
    fn size(&self) -> u64;

    /// Checks that what is here is right.
    fn assert_right(&self, what: &str);
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
struct Trial<R> {
    world: World<Machine<R>>,
    moments: Vec<Moment>,
}

impl<R: Receiver> Trial<R> {
    fn new(nodes: impl FnMut(usize) -> Machine<R>, changes: Vec<LinkChange>, what: &str) -> Self {
        let scenario = Scenario { changes, ..Scenario::parse(LINKS).unwrap() };
        let (mut world, mut moments) = (World::new(&scenario, 1, nodes), Vec::new());
        let is_over = world.run(LIMIT, |world| {
            let receiver = receiver(world);
            let moment = || Moment { at: world.now(), arrived: receiver.arrived() };
            moments.resize_with(world.messages() as usize, moment);
            receiver.arrived() == receiver.size()
        });
        receiver(&world).assert_right(what);
        assert!(is_over, "{what}: {} bytes of {}", receiver(&world).arrived(), receiver(&world).size());
        Self { world, moments }
    }
}

fn receiver<R: Receiver>(world: &World<Machine<R>>) -> &R {
    match &world.nodes()[0] {
        Machine::Receiver(receiver) => receiver,
        Machine::Sender(_) => unreachable!("it is the first host"),
    }
}

/// Tries it; `nodes` has those of a transfer by so many links. Returns how much longer a transfer took at most, from the blow on, than the
/// rest by the first link alone and the part that may be lost.
pub(crate) fn sweep<R: Receiver, N: FnMut(usize) -> Machine<R>>(
    nodes: impl Fn(usize) -> N,
    blow: Blow,
) -> Duration {
    let alone = Trial::new(nodes(1), Vec::new(), "by one link").world.now();
    let both = Trial::new(nodes(2), Vec::new(), "by both links");
    let (size, took) = (receiver(&both.world).size(), both.world.now());
    assert!(took < alone.mul_f64(0.6), "both links took {took:?}, one {alone:?}");
    assert!(both.moments.len() > TRIED, "{} messages are too few to tell anything", both.moments.len());
    let step = both.moments.len().div_ceil(TRIED);
    let mut longest = Duration::ZERO;
    for (number, Moment { at, arrived }) in both.moments.iter().enumerate().step_by(step) {
        let what = format!("{blow:?} behind message {number} of {}, at {at:?}", both.moments.len());
        // Behind the message, which is on its way.
        let trial = Trial::new(nodes(2), blow.changes(*at + Duration::from_nanos(1)), &what);
        let left = alone.mul_f64((size - arrived) as f64 / size as f64 * (1.0 + LOST));
        longest = longest.max(trial.world.now().saturating_sub(*at + left));
    }
    longest
}
