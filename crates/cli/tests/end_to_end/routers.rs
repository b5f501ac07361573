//! Machines behind routers that let in answers only: who is called, and what a relay carries.

use std::fs;
use std::io::{PipeWriter, Write, pipe};
use std::os::unix::fs::PermissionsExt;

use towpath_content::Ticket;

use crate::anywhere::configuration;
use crate::environment::{Call, LOOPBACK, Machine, Running, Summary, TestEnvironment, first_line};
use crate::network::{Network, Router, SERVER};
use crate::runner::situations;
use crate::trees::{PIECE, assert_same_bytes, bytes, file};

situations![
    a_receiver_behind_a_router_is_called,
    two_routers_let_through_what_both_ends_open,
    a_relay_carries_what_nobody_can_send_directly_and_may_die_meanwhile,
    a_direct_way_takes_over_from_a_relay,
    who_calls_by_a_relay_is_asked_there_by_whom_it_called,
    who_has_no_pass_is_not_called_through_a_relay,
    gets_at_once_share_the_one_connection_of_what_nobody_can_dial,
    gets_at_once_share_the_one_connection_that_a_relay_carries,
];

/// A sender and a receiver behind routers, who know nothing but a server, which may be a relay.
struct Behind {
    env: TestEnvironment,
    network: Network,
    server: Machine,
    running: Option<Running>,
}

impl Behind {
    fn new(left: Router, right: Router, words: &[&str]) -> Self {
        let (network, env) = (Network::behind(left, right), TestEnvironment::new());
        let server = env.machine("server");
        let pass = server.path("pass");
        fs::write(&pass, "open sesame").unwrap();
        fs::set_permissions(&pass, fs::Permissions::from_mode(0o600)).unwrap();
        let mut behind = Self { env, network, server, running: None };
        let place = behind.run(words);
        let relays = format!("{}relays = [\"{place}\"]\nrelay_pass = {pass:?}\n", configuration(&place));
        behind.env.sender.configure(&relays);
        behind.env.receiver.configure(&configuration(&place));
        behind
    }

    /// Runs the server; returns its place.
    fn run(&mut self, words: &[&str]) -> String {
        let listen = format!("{SERVER}:4433");
        let fixed = ["rendezvous", "--listen", &listen];
        let call = self.server.tow_as(&self.network.server(), fixed.iter().chain(words));
        let running = self.running.insert(call.start());
        running.wait_until("its place", |server| first_line(&server.output()))
    }

    fn share(&self, words: &[&str]) -> Running {
        self.env.sender.tow_as(&self.network.left(), ["share"].iter().chain(words).chain(&["file"])).start()
    }

    fn get(&self, ticket: &str, words: &[&str]) -> Call {
        let fixed = ["get", "--json", ticket, "-o", "file"];
        self.env.receiver.tow_as(&self.network.right(), fixed.iter().chain(words))
    }

    fn assert_same(&self) {
        assert_same_bytes(&self.env.sender.path("file"), &self.env.receiver.path("file"));
    }
}

/// Paths by which something came.
fn paths(summary: &Summary) -> Vec<Option<&str>> {
    summary.sources().map(|source| source["path"].as_str()).collect()
}

const RELAY: [&str; 3] = ["--relay", "--pass", "pass"];

fn a_receiver_behind_a_router_is_called() {
    let behind = Behind::new(Router::Symmetric, Router::Missing, &[]);
    file(&behind.env.sender.path("file"), 1, 4 << 20);
    let summary = behind.get(&behind.share(&[]).ticket(), &[]).end().summary();
    behind.assert_same();
    assert_eq!(paths(&summary), [None]);
}

fn two_routers_let_through_what_both_ends_open() {
    let behind = Behind::new(Router::Restricted, Router::Restricted, &[]);
    file(&behind.env.sender.path("file"), 1, 4 << 20);
    let summary = behind.get(&behind.share(&[]).ticket(), &[]).end().summary();
    behind.assert_same();
    assert_eq!(paths(&summary), [None]);
}

fn a_relay_carries_what_nobody_can_send_directly_and_may_die_meanwhile() {
    let mut behind = Behind::new(Router::Symmetric, Router::Symmetric, &RELAY);
    let size = 24 << 20;
    file(&behind.env.sender.path("file"), 1, size);
    let mut sharing = behind.share(&["--limit-rate", "5M"]);
    let mut getting = behind.get(&sharing.ticket(), &[]).start();
    getting.wait_for_bytes(size / 4);
    behind.running.take().unwrap().kill();
    behind.run(&RELAY);
    let summary = getting.end().summary();
    behind.assert_same();
    assert_eq!(paths(&summary), [Some("by relay")]);
}

fn a_direct_way_takes_over_from_a_relay() {
    let behind = Behind::new(Router::Restricted, Router::Restricted, &RELAY);
    let size = 24 << 20;
    file(&behind.env.sender.path("file"), 1, size);
    let mut sharing = behind.share(&["--limit-rate", "5M"]);
    let summary = behind.get(&sharing.ticket(), &[]).end().summary();
    behind.assert_same();
    let direct = summary.sources().find(|source| source["path"].is_null()).unwrap();
    assert!(direct["bytes"].as_u64().unwrap() > size / 2, "{}", summary.0);
}

fn who_calls_by_a_relay_is_asked_there_by_whom_it_called() {
    let behind = Behind::new(Router::Symmetric, Router::Symmetric, &RELAY);
    let (left, right, size) = (&behind.env.sender, &behind.env.receiver, 24 << 20);
    let kept = fs::read_to_string(left.home("config.toml")).unwrap();
    left.configure(&format!("limit_rate = \"4M\"\n{kept}"));
    file(&left.path("file"), 1, size);
    file(&right.path("other"), 2, 2 << 20);
    let sides = [(left, behind.network.left()), (right, behind.network.right())];
    let _daemons = sides.each_ref().map(|(side, network)| side.daemon_of(side.tow_as(network, ["daemon"])));
    let put = |machine: &Machine, name: &str| {
        let put = machine.tow(["put", "--json", name]).end().with(0);
        put.events()[0]["ticket"].as_str().unwrap().to_owned()
    };
    let (ticket, back) = (put(left, "file"), put(right, "other"));
    let named: Ticket = back.parse().unwrap();
    assert!(named.hints.iter().all(|hint| hint.scheme() != "relay"), "the right one waits at none: {back}");
    let mut getting = right.tow(["get", "--json", &ticket, "-o", "file"]).start();
    getting.wait_for_bytes(size / 8);
    // The left one can't dial the right one, nor is that called at a relay.
    let summary = left.tow(["get", "--json", &back, "-o", "other"]).end().summary();
    assert_eq!(paths(&summary), [Some("by relay")]);
    assert_same_bytes(&right.path("other"), &left.path("other"));
    getting.end().summary();
    behind.assert_same();
}

fn who_has_no_pass_is_not_called_through_a_relay() {
    let behind = Behind::new(Router::Symmetric, Router::Symmetric, &RELAY);
    fs::write(behind.server.path("pass"), "another one").unwrap();
    file(&behind.env.sender.path("file"), 1, 1 << 20);
    let mut sharing = behind.share(&[]);
    let failure = behind.get(&sharing.ticket(), &["--timeout", "4"]).end().failure();
    let message = failure["message"].as_str().unwrap();
    assert!(!message.is_empty() && !behind.env.receiver.path("file").exists(), "{message}");
    let told = sharing.error_text();
    assert!(
        told.contains("nobody comes by the relay") && told.contains("does not serve this node"),
        "{told}"
    );
    // Nobody is a guest by chance.
    let words = ["relay", "--listen", LOOPBACK, "--json"];
    let failure = behind.server.tow(words).end().failure_with(2);
    assert!(failure["hint"].as_str().unwrap().contains("--public"), "{failure}");
}

/// What comes into a daemon by `tow put -`, of which the end waits for the situation's word.
struct Stream {
    put: Running,
    producer: PipeWriter,
    ticket: String,
    data: Vec<u8>,
}

/// Bytes of a stream that come at once.
const BEGINNING: usize = 3 * PIECE as usize;

impl Stream {
    fn begin(machine: &Machine, seed: u64) -> Self {
        let (input, mut producer) = pipe().unwrap();
        let mut put = machine.tow(["put", "-"]).input(input).start();
        let (ticket, data) = (put.ticket(), bytes(seed, 5 * PIECE + seed));
        producer.write_all(&data[..BEGINNING]).unwrap();
        Self { put, producer, ticket, data }
    }

    /// The rest comes, and `getting` has all of it at `name` of the machine. Returns the paths by which it came.
    fn end(mut self, getting: Running, (machine, name): (&Machine, &str)) -> Vec<Option<String>> {
        self.producer.write_all(&self.data[BEGINNING..]).unwrap();
        drop(self.producer);
        let summary = getting.end().summary();
        self.put.end().with(0);
        assert!(fs::read(machine.path(name)).unwrap() == self.data, "{name}: other bytes");
        paths(&summary).into_iter().map(|path| path.map(str::to_owned)).collect()
    }
}

/// Connections of TCP that stand on the network of a program.
fn connections(running: &Running) -> usize {
    let table = |name| fs::read_to_string(format!("/proc/{}/net/{name}", running.id())).unwrap();
    // The fourth column is the state; 1 is a connection that stands.
    let stands = |line: &&str| line.split_whitespace().nth(3) == Some("01");
    ["tcp", "tcp6"].map(|name| table(name).lines().filter(stands).count()).iter().sum()
}

/// The right machine follows what the left one produces, and so has a connection with it. Of what the right one produces the left one
/// gets two streams at once, gives one of them up, and begins that anew beside the other. Returns the connections of the left one while
/// both ran, and the paths by which each came.
fn get_two_at_once(env: &TestEnvironment, network: &Network) -> (usize, Vec<Option<String>>) {
    let (left, right) = (&env.sender, &env.receiver);
    let sides = [(left, network.left()), (right, network.right())];
    let daemons = sides.each_ref().map(|(side, program)| side.daemon_of(side.tow_as(program, ["daemon"])));
    let followed = Stream::begin(left, 1);
    let get = |machine: &Machine, stream: &Stream, name| {
        let mut getting = machine.get(&stream.ticket, name).start();
        getting.wait_for_bytes(PIECE);
        getting
    };
    let following = get(right, &followed, "followed");
    let (one, other) = (Stream::begin(right, 2), Stream::begin(right, 3));
    let given_up = get(left, &one, "one");
    let getting_other = get(left, &other, "other");
    let stood = connections(&daemons[0]);
    given_up.interrupt();
    given_up.end().with(130);
    let getting_one = get(left, &one, "anew");
    let mut paths = other.end(getting_other, (left, "other"));
    paths.extend(one.end(getting_one, (left, "anew")));
    assert!(!left.path("one").exists());
    followed.end(following, (right, "followed"));
    (stood, paths)
}

fn gets_at_once_share_the_one_connection_of_what_nobody_can_dial() {
    let (network, env) = (Network::behind(Router::Missing, Router::Restricted), TestEnvironment::new());
    for machine in [&env.sender, &env.receiver] {
        machine.configure("[rendezvous]\nlan = \"off\"\n");
    }
    assert_eq!(get_two_at_once(&env, &network), (1, vec![None; 2]));
}

fn gets_at_once_share_the_one_connection_that_a_relay_carries() {
    let Behind { env, network, .. } = &Behind::new(Router::Symmetric, Router::Symmetric, &RELAY);
    let (_, paths) = get_two_at_once(env, network);
    assert_eq!(paths, vec![Some("by relay".to_owned()); 2]);
}
