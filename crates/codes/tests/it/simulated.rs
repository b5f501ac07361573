//! Host, mailbox and guest on a simulated network, with a fault at each message: lost, held back, repeated, cut, made
//! up. The guest has the right ticket in the end or knows that it has none; nobody else ever has one.

use std::time::Duration;

use towpath_codes::code::USUAL_WORDS;
use towpath_codes::exchange::{CodeWay, GuestFailure, GuestStep, HostStep};
use towpath_codes::{Code, CodeGuest, CodeHost};
use towpath_simnet::{ConnectionId, Net, NetFault, Passing, Scenario, SimNode, World, for_seeds};

use crate::support::{TICKET, code, entropy, guest, host, sent};

const HOST: usize = 0;
const MAILBOX: usize = 1;
const GUEST: usize = 2;
/// A guest that hears nothing for so long sends its answer again.
const PATIENCE: Duration = Duration::from_secs(5);

/// What each of the three is.
enum Place {
    Host(CodeHost),
    /// Carries what comes from one connection to the other. What has nowhere to go yet waits.
    Mailbox(Vec<(ConnectionId, usize)>, Vec<Vec<u8>>),
    Guest {
        guest: CodeGuest,
        connection: Option<ConnectionId>,
        answer: Option<Vec<u8>>,
        result: Option<GuestStep>,
    },
}

struct Node {
    place: Place,
    voids: u32,
    sales: u32,
}

impl Node {
    fn new(index: usize, shown: &Code, typed: &Code, seed: u64) -> Self {
        let place = match index {
            HOST => Place::Host(host(shown, false, seed)),
            MAILBOX => Place::Mailbox(Vec::new(), Vec::new()),
            _ => Place::Guest { guest: guest(typed, seed), connection: None, answer: None, result: None },
        };
        Self { place, voids: 0, sales: 0 }
    }

    fn result(&self) -> Option<&GuestStep> {
        match &self.place {
            Place::Guest { result, .. } => result.as_ref(),
            _ => None,
        }
    }
}

impl SimNode for Node {
    fn start(&mut self, net: &mut Net) {
        match self.place {
            Place::Mailbox(..) => {}
            _ => drop(net.connect(MAILBOX)),
        }
        net.wake_at(PATIENCE);
    }

    fn opened(&mut self, net: &mut Net, connection: ConnectionId, peer: usize) {
        match &mut self.place {
            Place::Host(host) => net.send(connection, host.offer().to_vec()),
            Place::Mailbox(ends, waiting) => {
                ends.push((connection, peer));
                if peer == GUEST {
                    waiting.drain(..).for_each(|message| net.send(connection, message));
                }
            }
            Place::Guest { connection: mailbox, .. } => *mailbox = Some(connection),
        }
    }

    fn receive(&mut self, net: &mut Net, connection: ConnectionId, message: Vec<u8>) {
        match &mut self.place {
            Place::Host(host) => {
                let step = host.receive(&message, &CodeWay::Carried);
                self.voids += u32::from(matches!(step, HostStep::Void { .. }));
                self.sales += u32::from(matches!(step, HostStep::Sold { .. }));
                sent(&step).into_iter().for_each(|message| net.send(connection, message));
            }
            Place::Mailbox(ends, waiting) => match ends.iter().find(|(end, _)| *end != connection) {
                Some((other, _)) => net.send(*other, message),
                None => waiting.push(message),
            },
            Place::Guest { guest, answer, result, .. } => match guest.receive(&message, &CodeWay::Carried) {
                GuestStep::Answer(message) => {
                    net.send(connection, message.clone());
                    *answer = Some(message);
                }
                step @ (GuestStep::Ticket { .. } | GuestStep::Failed(_)) => *result = Some(step),
                _ => {}
            },
        }
    }

    fn wake(&mut self, net: &mut Net) {
        if let Place::Guest { connection: Some(connection), answer: Some(answer), result: None, .. } =
            &self.place
        {
            net.send(*connection, answer.clone());
        }
    }
}

fn star() -> Scenario {
    Scenario::parse(
        "about = ''\nhosts = ['host', 'mailbox', 'guest']\n\
         [[link]]\nbetween = ['host', 'mailbox']\nrate = '100mbit'\ndelay = '20ms'\nloss = '2%'\n\
         [[link]]\nbetween = ['mailbox', 'guest']\nrate = '100mbit'\ndelay = '20ms'\nloss = '2%'",
    )
    .unwrap()
}

fn meet(seed: u64, star: &Scenario, shown: &Code, typed: &Code) -> World<Node> {
    World::new(star, seed, |index| Node::new(index, shown, typed, seed))
}

/// Runs one exchange, a fault at the message of one number.
fn run(seed: u64, typed: &str, number: u64, fault: impl Fn(&[u8]) -> NetFault + 'static) -> World<Node> {
    let mut world = meet(seed, &star(), &code("7-otter-lagoon"), &code(typed));
    world.set_faults(Box::new(move |passing: &Passing<'_>| match passing.number == number {
        true => fault(passing.bytes),
        false => NetFault::None,
    }));
    world.run(Duration::from_secs(60), |_| false);
    world
}

fn has_ticket(world: &World<Node>) -> bool {
    match world.nodes()[GUEST].result() {
        Some(GuestStep::Ticket { text, .. }) => {
            assert_eq!(text, TICKET);
            true
        }
        _ => false,
    }
}

/// Messages of one exchange: each passes two links.
const MESSAGES: u64 = 8;

#[test]
fn no_fault_makes_a_right_code_void_and_repetition_harms_nothing() {
    for_seeds(4, |seed| {
        assert!(has_ticket(&run(seed, "7-otter-lagoon", u64::MAX, |_| NetFault::None)));
        for number in 0..MESSAGES {
            let twice = run(seed, "7-otter-lagoon", number, |_| NetFault::Twice);
            assert!(has_ticket(&twice), "message {number} came twice");
            assert_eq!((twice.nodes()[HOST].sales, twice.nodes()[HOST].voids), (1, 0));
            for fault in [NetFault::Break, NetFault::Stall, NetFault::Hold(Duration::from_secs(1))] {
                let world = run(seed, "7-otter-lagoon", number, move |_| fault.clone());
                assert_eq!(world.nodes()[HOST].voids, 0, "message {number}");
                has_ticket(&world);
            }
        }
    });
}

#[test]
fn a_message_cut_or_made_up_brings_no_wrong_ticket_to_anybody() {
    for_seeds(4, |seed| {
        for number in 0..MESSAGES {
            let cut = |bytes: &[u8]| NetFault::Replace(bytes[..bytes.len() / 2].to_vec());
            has_ticket(&run(seed, "7-otter-lagoon", number, cut));
            let noise = move |bytes: &[u8]| {
                let noise = bytes.iter().enumerate().map(|(at, byte)| match at {
                    0 => *byte,
                    _ => byte.wrapping_mul(31).wrapping_add(at as u8),
                });
                NetFault::Replace(noise.collect())
            };
            has_ticket(&run(seed, "7-otter-lagoon", number, noise));
            for end in 1..=5 {
                has_ticket(&run(seed, "7-otter-lagoon", number, move |_| NetFault::Replace(vec![5, end])));
            }
        }
    });
}

#[test]
fn with_wrong_words_the_host_is_void_once_whatever_befalls_a_message() {
    let (hold, harmless) = (NetFault::Hold(Duration::from_secs(1)), [NetFault::None, NetFault::Twice]);
    for_seeds(4, |seed| {
        for number in 0..MESSAGES {
            for fault in [NetFault::Stall, NetFault::Break, hold.clone()].iter().chain(&harmless).cloned() {
                let is_harmless = harmless.contains(&fault) || fault == hold;
                let world = run(seed, "7-otter-owl", number, move |_| fault.clone());
                let (host, told) = (&world.nodes()[HOST], world.nodes()[GUEST].result());
                assert!(!has_ticket(&world) && host.sales == 0 && host.voids <= 1, "message {number}");
                if is_harmless {
                    assert_eq!(host.voids, 1, "message {number}");
                    assert_eq!(told, Some(&GuestStep::Failed(GuestFailure::WrongCode)), "message {number}");
                }
            }
        }
    });
}

/// What somebody did who knows the mailbox and comes in the place of the guest, at one code after the other.
#[derive(Default)]
struct Guesses {
    right: u64,
    voids: u64,
    told: u64,
}

impl Guesses {
    /// One more, of `seed`.
    fn guess(mut self, seed: u64) -> Self {
        let mut entropy = entropy(503 + seed);
        let [shown, typed] = [(); 2].map(|()| Code::random(7, USUAL_WORDS, &mut entropy));
        let mut world = meet(seed, &star(), &shown, &typed);
        world.run(Duration::from_secs(60), |_| false);
        assert_eq!(has_ticket(&world), shown == typed);
        let (host, guesser) = (&world.nodes()[HOST], world.nodes()[GUEST].result());
        self.right += u64::from(host.sales);
        self.voids += u64::from(host.voids);
        self.told += u64::from(guesser == Some(&GuestStep::Failed(GuestFailure::WrongCode)));
        self
    }

    fn and(self, other: Self) -> Self {
        let (right, voids, told) =
            (self.right + other.right, self.voids + other.voids, self.told + other.told);
        Self { right, voids, told }
    }
}

/// Prints what it counted; with `TOWPATH_GUESSES=1000000` of a million guesses, a thread for each processor.
#[test]
fn a_guesser_is_right_once_in_two_to_the_sixteen_at_most_and_each_void_is_told() {
    let tries: u64 =
        std::env::var("TOWPATH_GUESSES").ok().and_then(|tries| tries.parse().ok()).unwrap_or(500);
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let Guesses { right, voids, told } = std::thread::scope(|scope| {
        let share =
            |first: u64| (first..tries).step_by(threads as usize).fold(Guesses::default(), Guesses::guess);
        let shares: Vec<_> = (0..threads).map(|first| scope.spawn(move || share(first))).collect();
        shares
            .into_iter()
            .map(|share| share.join().expect("no guess panics"))
            .fold(Guesses::default(), Guesses::and)
    });
    println!("{tries} guesses: {right} right, {voids} codes void, {told} guessers told");
    assert!(right << 16 <= tries, "{right} of {tries}");
    assert_eq!([voids, told], [tries - right; 2], "each wrong guess is told, and is the only one");
}
