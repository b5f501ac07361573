//! `tow doctor`: what works from here, and advice about what does not.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::environment::{LOOPBACK, Machine, Running, TestEnvironment, first_line};
use crate::network::{Network, Router, SERVER};
use crate::runner::situations;

situations![
    what_works_is_told_and_nothing_is_changed,
    what_does_not_work_is_told_with_advice,
    a_daemon_is_told_as_it_is,
    the_kind_of_router_is_told,
    nobody_is_asked_who_is_not_configured,
    multicast_that_a_firewall_drops_is_noticed,
];

/// A server that runs; and its place.
fn server(machine: &Machine, program: Option<&[String]>, words: &[&str]) -> (Running, String) {
    let call = match program {
        Some(program) => machine.tow_as(program, words),
        None => machine.tow(words),
    };
    let mut server = call.start();
    let place = server.wait_until("its place", |server| first_line(&server.output()));
    (server, place)
}

/// The rows about `what`.
fn rows(events: &[Value], what: &str) -> Vec<Value> {
    events.iter().filter(|event| event["what"] == what).cloned().collect()
}

/// The only row about `what`: its state, and all that it says.
fn row(events: &[Value], what: &str) -> (String, String) {
    let rows = rows(events, what);
    let [row] = &rows[..] else { panic!("{what}: {events:?}") };
    (row["state"].as_str().unwrap().into(), row.to_string())
}

fn what_works_is_told_and_nothing_is_changed() {
    let env = TestEnvironment::new();
    let machine = env.machine("server");
    fs::write(machine.path("pass"), "open sesame").unwrap();
    fs::set_permissions(machine.path("pass"), fs::Permissions::from_mode(0o600)).unwrap();
    let pass = machine.path("pass").display().to_string();
    let (_server, place) =
        server(&machine, None, &["rendezvous", "--listen", LOOPBACK, "--relay", "--pass", &pass]);
    let configuration = format!(
        "[rendezvous]\nservers = [\"{place}\"]\nrelays = [\"{place}\"]\nrelay_pass = \"{pass}\"\nlan = \"off\"\n"
    );
    env.sender.configure(&configuration);
    let told = env.sender.tow(["doctor", "--json"]).end().with(0).events();
    let address = place.split_once('@').unwrap().1;
    for (what, words) in
        [("rendezvous", address), ("relay", "may wait there"), ("router", "none"), ("clock", "")]
    {
        let (state, text) = row(&told, what);
        assert!(state == "ok" && text.contains(words), "{text}");
    }
    let last = told.last().unwrap();
    assert_eq!((&last["event"], &last["wrong"]), (&"summary".into(), &0.into()));
    // Nothing but the configuration is in its home.
    let left: Vec<_> =
        fs::read_dir(env.sender.home("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["config.toml"]);
    // The same for people, and without the pass.
    env.sender.configure(&configuration.replace("relay_pass", "# relay_pass"));
    let told = env.sender.tow(["doctor"]).end().with(0).text();
    assert!(
        told.contains("note   relay ") && told.contains("-> fine if the relay names this machine's node"),
        "{told}"
    );
}

fn what_does_not_work_is_told_with_advice() {
    let env = TestEnvironment::new();
    let taken = std::net::TcpListener::bind(LOOPBACK).unwrap();
    let taken = taken.local_addr().unwrap();
    let gone = std::net::TcpListener::bind(LOOPBACK).unwrap().local_addr().unwrap();
    let node = "ab".repeat(32);
    env.sender.configure(&format!(
        "listen = [\"{taken}\"]\n[rendezvous]\nservers = [\"{node}@{gone}\"]\nrelay_pass = \"/nonexistent\"\n"
    ));
    let told =
        env.sender.tow(["doctor", "--json", "--relay", &format!("{node}@{gone}")]).end().with(1).events();
    for what in ["listening", "rendezvous", "relay", "relay pass"] {
        let (state, text) = row(&told, what);
        assert!(state == "wrong" && text.contains("advice"), "{text}");
    }
    assert_eq!(row(&told, "router").0, "note");
    // Another key than the server has.
    let machine = env.machine("server");
    let (_server, place) = server(&machine, None, &["rendezvous", "--listen", LOOPBACK]);
    let other = format!("{node}@{}", place.split_once('@').unwrap().1);
    env.sender.configure("");
    let told = env.sender.tow(["doctor", "--json", "--rendezvous", &other]).end().with(1).events();
    assert_eq!(row(&told, "rendezvous").0, "wrong");
    env.sender.tow(["doctor", "--rendezvous", "x"]).end().with(2);
    env.sender.configure("listen = 7");
    let refused = env.sender.tow(["doctor"]).end().with(2);
    assert!(refused.err.contains("the configuration can't be used"), "{}", refused.err);
}

fn a_daemon_is_told_as_it_is() {
    let env = TestEnvironment::new();
    let daemon = env.sender.daemon();
    let told = env.sender.tow(["doctor", "--json"]).end().with(0).events();
    let (state, text) = row(&told, "daemon");
    assert!(state == "ok" && text.contains("listening at 127.0.0.1:"), "{text}");
    daemon.kill();
    let told = env.sender.tow(["doctor", "--json"]).end().with(0).events();
    let (state, text) = row(&told, "daemon");
    assert!(state == "note" && text.contains("remove the socket"), "{text}");
}

fn the_kind_of_router_is_told() {
    for (router, words, of_one) in [
        (Router::Missing, "none", "none"),
        (Router::Restricted, "198.51.100.2, keeps the port", "198.51.100.2, keeps ports"),
        (Router::Symmetric, "(symmetric)", "one server can't tell"),
    ] {
        let (network, env) = (Network::behind(router, Router::Missing), TestEnvironment::new());
        let running: Vec<_> = ["4433", "4434"]
            .iter()
            .map(|port| {
                let machine = env.machine(port);
                let listen = format!("{SERVER}:{port}");
                server(&machine, Some(&network.server()), &["rendezvous", "--listen", &listen])
            })
            .collect();
        let mut named = Vec::new();
        for (at, (_, place)) in running.iter().enumerate() {
            named.extend(["--rendezvous", place]);
            let words_of = ["doctor", "--json"].iter().chain(&named);
            let told = env.sender.tow_as(&network.left(), words_of).end().with(0).events();
            let (_, text) = row(&told, "router");
            assert!(text.contains(if at == 0 { of_one } else { words }), "{router:?}: {text}");
            assert_eq!(rows(&told, "rendezvous").len(), at + 1);
        }
    }
}

fn nobody_is_asked_who_is_not_configured() {
    let (network, env) = (Network::plain(), TestEnvironment::new());
    network.left_rules(
        "table inet watch {\nchain out {\ntype filter hook output priority 0;\noifname \"lo\" accept\n\
         udp dport 5353 counter accept comment \"multicast\"\nmeta l4proto { tcp, udp } counter comment \"others\"\n}\n}\n",
    );
    env.sender.tow_as(&network.left(), ["doctor"]).end().with(0);
    assert_eq!(network.left_packets("others"), 0);
    assert!(network.left_packets("multicast") > 0, "it was looked at all");
    let before = network.left_packets("multicast");
    env.sender.configure("[rendezvous]\nlan = \"off\"\n");
    env.sender.tow_as(&network.left(), ["doctor"]).end().with(0);
    assert_eq!(network.left_packets("multicast"), before);
}

fn multicast_that_a_firewall_drops_is_noticed() {
    let (network, env) = (Network::plain(), TestEnvironment::new());
    let found = || {
        let told = env.sender.tow_as(&network.left(), ["doctor", "--json"]).end().with(0).events();
        row(&told, "multicast").0
    };
    assert_eq!(found(), "ok");
    network.left_rules(
        "table inet quiet {\nchain in {\ntype filter hook input priority 0;\nudp dport 5353 drop\n}\n}\n",
    );
    assert_eq!(found(), "note");
}
