//! The daemon as a supervisor and a person see it: its configuration, limits, reload, metrics, and
//! how it begins and ends.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::environment::{LOOPBACK, Machine, Running, TOW, TestEnvironment, first_line};
use crate::machinery::tool;
use crate::runner::situations;
use crate::trees::{assert_same, file};

situations![
    a_configuration_is_checked_and_printed,
    a_wrong_configuration_starts_nothing,
    a_connection_too_many_is_told_so_and_costs_nobody_else,
    those_who_say_nothing_do_not_keep_others_out,
    a_get_too_many_is_refused_and_costs_nobody_else,
    a_disk_that_would_be_too_full_is_not_written_to,
    new_limits_hold_without_dropping_a_transfer,
    a_wrong_file_on_reload_changes_nothing,
    nodes_are_allowed_and_forbidden_on_reload,
    what_is_under_way_ends_before_the_daemon,
    the_grace_is_bounded_and_the_rest_resumes,
    a_supervisor_is_told_of_readiness_and_end,
    a_daemon_is_activated_by_its_first_peer,
    a_daemon_is_activated_by_its_first_application,
    a_new_rate_holds_for_a_transfer_under_way,
    a_local_connection_too_many_is_told_so,
    metrics_are_had_at_the_local_socket,
    metrics_are_well_formed_and_count,
    a_stalled_reader_of_metrics_keeps_nobody_out,
    the_log_is_lines_of_json,
    plugins_are_those_of_the_configuration,
];

fn put(machine: &Machine, path: &str) -> String {
    first_line(&machine.tow(["put", path]).end().with(0).out).unwrap()
}

/// Waits for a line of the program's talk.
fn wait_for(running: &mut Running, words: &str) {
    running.wait_until(words, |running| running.error_text().contains(words).then_some(()));
}

fn reload(daemon: &mut Running, says: &str) {
    daemon.signal(Signal::HUP);
    wait_for(daemon, says);
}

fn a_configuration_is_checked_and_printed() {
    let env = TestEnvironment::new();
    let check = |words: &[&str]| {
        env.sender.tow(["daemon", "--check-config"].iter().chain(words)).end().with(0).text()
    };
    let default = check(&[]);
    assert!(default.contains("\nconnections = 4096\n") && default.contains("[plugins]"), "{default}");
    env.sender.configure("[limits]\nconnections = 7\n");
    let changed = check(&["--limit-rate", "3M", "--listen", "127.0.0.1:7", "--listen", "[::1]:8"]);
    assert!(
        changed.contains("\nconnections = 7\n") && changed.contains("limit_rate = \"3M\"\n"),
        "{changed}"
    );
    assert!(changed.contains("listen = [\"127.0.0.1:7\", \"[::1]:8\"]\n"), "{changed}");
    // The text that it prints says the same.
    fs::write(env.sender.path("other.toml"), &changed).unwrap();
    assert_eq!(check(&["--config", "other.toml"]), changed);
    assert!(!env.sender.home("state").exists(), "nothing was started");
}

fn a_wrong_configuration_starts_nothing() {
    let env = TestEnvironment::new();
    env.sender.configure("\n[plugins]\nplugin = \"swarm\"\n");
    for words in [&["daemon"][..], &["daemon", "--check-config"]] {
        let ended = env.sender.tow(words).end().with(2);
        let says = "config.toml:3: plugins.plugin: this build has no plugin 'swarm'; it has: adaptive, cascade, dealer, direct";
        assert!(ended.err.contains(says), "{}", ended.err);
    }
    let ended = env.sender.tow(["daemon", "--config", "nowhere.toml"]).end().with(1);
    assert!(ended.err.contains("nowhere.toml"), "{}", ended.err);
}

fn a_connection_too_many_is_told_so_and_costs_nobody_else() {
    let env = TestEnvironment::new();
    let _daemon = env.sender.daemon_with("[limits]\nconnections_per_address = 1\n");
    file(&env.sender.path("x"), 1, 5 << 20);
    let ticket = put(&env.sender, "x");
    let mut slow = env.receiver.get_slowly(&ticket, "slow", "500K").start();
    slow.wait_for_bytes(1);
    let failure =
        env.stranger.tow(["get", "--json", "--timeout", "2", &ticket, "-o", "late"]).end().failure();
    let message = failure["message"].as_str().unwrap();
    assert!(message.contains("as many connections from your address as it takes"), "{failure}");
    slow.end().summary();
    assert_same(&env.sender.path("x"), &env.receiver.path("slow"));
    env.stranger.get(&ticket, "late").end().summary();
}

fn those_who_say_nothing_do_not_keep_others_out() {
    let env = TestEnvironment::new();
    let _daemon = env.sender.daemon_with("[limits]\nhandshakes = 3\n");
    file(&env.sender.path("x"), 1, 1000);
    let ticket = put(&env.sender, "x");
    let status = env.sender.tow(["status", "--json"]).end().with(0).events();
    let address = status[0]["listening"][0].as_str().unwrap().to_owned();
    let mut silent: Vec<_> = (0..4).map(|_| TcpStream::connect(&address).unwrap()).collect();
    // The first one is hung up on for the last; the others when the time for their handshake is over.
    let first = &mut silent[0];
    first.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    assert_eq!(first.read(&mut [0]).unwrap_or(0), 0, "it was hung up on");
    env.receiver.get(&ticket, "got").end().summary();
}

fn a_get_too_many_is_refused_and_costs_nobody_else() {
    let env = TestEnvironment::new();
    let _sending = env.sender.daemon();
    let _receiving = env.receiver.daemon_with("[limits]\nmemory = \"32M\"\n");
    file(&env.sender.path("x"), 1, 2 << 20);
    file(&env.sender.path("y"), 2, 1000);
    let (x, y) = (put(&env.sender, "x"), put(&env.sender, "y"));
    let mut slow = env.receiver.get_slowly(&x, "x", "1M").start();
    slow.wait_for_bytes(1);
    let failure = env.receiver.get(&y, "y").end().failure();
    assert!(failure["message"].as_str().unwrap().contains("limits.memory"), "{failure}");
    slow.end().summary();
    assert_same(&env.sender.path("x"), &env.receiver.path("x"));
    env.receiver.get(&y, "y").end().summary();
}

fn a_disk_that_would_be_too_full_is_not_written_to() {
    let env = TestEnvironment::new();
    let _sending = env.sender.daemon();
    let mut daemon = env.receiver.daemon_with("[limits]\ndisk_free = \"1000000T\"\n");
    file(&env.sender.path("x"), 1, 1000);
    let ticket = put(&env.sender, "x");
    let failure = env.receiver.get(&ticket, "x").end().failure();
    assert_eq!(failure["kind"], "no_space", "{failure}");
    assert!(!env.receiver.path("x").exists());
    env.receiver.configure("");
    reload(&mut daemon, "was read again");
    env.receiver.get(&ticket, "x").end().summary();
}

fn new_limits_hold_without_dropping_a_transfer() {
    let env = TestEnvironment::new();
    let mut daemon = env.sender.daemon();
    file(&env.sender.path("x"), 1, 3 << 20);
    let ticket = put(&env.sender, "x");
    let mut slow = env.receiver.get_slowly(&ticket, "x", "1M").start();
    slow.wait_for_bytes(1);
    env.sender.configure(
        "listen = [\"127.0.0.1:1\"]\n[limits]\nconnections = 1\n[metrics]\nlisten = \"127.0.0.1:0\"\n",
    );
    reload(&mut daemon, "was read again; after a restart: metrics.listen");
    let failure = env.stranger.tow(["get", "--json", "--timeout", "1", &ticket, "-o", "x"]).end().failure();
    assert!(failure["message"].as_str().unwrap().contains("as many connections as it takes"), "{failure}");
    slow.end().summary();
    assert_same(&env.sender.path("x"), &env.receiver.path("x"));
}

fn a_wrong_file_on_reload_changes_nothing() {
    let env = TestEnvironment::new();
    let mut daemon = env.sender.daemon_with("[limits]\nconnections_per_address = 2\n");
    file(&env.sender.path("x"), 1, 2 << 20);
    let ticket = put(&env.sender, "x");
    let mut slow = env.receiver.get_slowly(&ticket, "x", "1M").start();
    slow.wait_for_bytes(1);
    env.sender.configure("[limits]\nconnections = 1\nconnections_per_address = \"one\"\n");
    reload(&mut daemon, "stays as it was");
    assert!(daemon.error_text().contains("config.toml:3: limits.connections_per_address: \"one\" is not"));
    assert_eq!(daemon.error_text().matches("stays as it was").count(), 1, "said once");
    assert!(!daemon.error_text().contains('\u{1b}'), "no colour in a file: {}", daemon.error_text());
    env.stranger.get(&ticket, "x").end().summary();
    slow.end().summary();
}

fn nodes_are_allowed_and_forbidden_on_reload() {
    let env = TestEnvironment::new();
    let mut daemon = env.sender.daemon();
    file(&env.sender.path("x"), 1, 70_000);
    let ticket = put(&env.sender, "x");
    env.stranger.get(&ticket, "x").end().summary();
    env.sender.tow(["done", &ticket]).end().with(0);
    let get = |name: &str| env.receiver.tow(["get", "--json", "--timeout", "3", &ticket, "-o", name]).end();
    // Not before it is allowed: who was told that a ticket was taken back does not try it again.
    let status = env.receiver.tow(["status", "--json"]).end().with(0).events();
    let node = status[0]["node"].as_str().unwrap();
    env.sender.configure(&format!("allowed_nodes = [\"{node}\"]\n"));
    reload(&mut daemon, "was read again");
    get("x").summary();
    fs::remove_file(env.receiver.path("x")).unwrap();
    let other = env.stranger.tow(["get", "--json", "--timeout", "3", &ticket, "-o", "y"]).end();
    // It has that already, and may find it before it is told that the ticket was taken back.
    match other.code() {
        0 => assert_eq!(other.summary().fetched(), 0, "nobody let it in"),
        _ => assert_eq!(other.failure()["kind"], "refused"),
    }
    env.sender.configure("");
    let before = daemon.error_text().matches("was read again").count();
    daemon.signal(Signal::HUP);
    daemon.wait_until("reads it once more", |daemon| {
        (daemon.error_text().matches("was read again").count() > before).then_some(())
    });
    assert_eq!(get("z").failure()["kind"], "refused");
}

fn what_is_under_way_ends_before_the_daemon() {
    let env = TestEnvironment::new();
    let sending = env.sender.daemon_with("grace = 60\n");
    let mut receiving = env.receiver.daemon_with("grace = 60\n");
    file(&env.sender.path("x"), 1, 2 << 20);
    let ticket = put(&env.sender, "x");
    let mut slow = env.receiver.get_slowly(&ticket, "x", "1M").start();
    slow.wait_for_bytes(1);
    receiving.signal(Signal::TERM);
    sending.signal(Signal::TERM);
    receiving.wait_until("refuses what is new", |_| {
        let ended = env.receiver.get(&ticket, "y").end();
        ended.text().contains("ending").then_some(())
    });
    slow.end().summary();
    assert_same(&env.sender.path("x"), &env.receiver.path("x"));
    receiving.end().with(0);
    sending.end().with(0);
}

fn the_grace_is_bounded_and_the_rest_resumes() {
    let env = TestEnvironment::new();
    let _sending = env.sender.daemon();
    let receiving = env.receiver.daemon_with("grace = 1\n");
    file(&env.sender.path("x"), 1, 30 << 20);
    let ticket = put(&env.sender, "x");
    let mut slow = env.receiver.get_slowly(&ticket, "x", "1M").start();
    slow.wait_for_bytes(1 << 20);
    receiving.signal(Signal::TERM);
    let start = Instant::now();
    receiving.end().with(0);
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    slow.end().failure();
    let _receiving = env.receiver.daemon();
    let summary = env.receiver.get(&ticket, "x").end().summary();
    assert!(summary.number("kept") > 0, "{}", summary.0);
    assert_same(&env.sender.path("x"), &env.receiver.path("x"));
}

fn a_supervisor_is_told_of_readiness_and_end() {
    let env = TestEnvironment::new();
    let path = env.dir().join("notify");
    let supervisor = UnixDatagram::bind(&path).unwrap();
    supervisor.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let hear = || {
        let mut message = [0; 1000];
        let len = supervisor.recv(&mut message).unwrap();
        String::from_utf8_lossy(&message[..len]).into_owned()
    };
    let call = env.sender.tow(["daemon", "--listen", LOOPBACK]);
    let daemon = call.variable("NOTIFY_SOCKET", path.to_str().unwrap()).start();
    let ready = hear();
    assert!(ready.starts_with("READY=1\nSTATUS="), "{ready}");
    env.sender.tow(["status"]).end().with(0);
    daemon.signal(Signal::TERM);
    assert!(hear().starts_with("STOPPING=1\n"));
    daemon.end().with(0);
}

fn a_daemon_is_activated_by_its_first_peer() {
    let env = TestEnvironment::new();
    let activate = tool("systemd-socket-activate").display().to_string();
    let address = TcpListener::bind(LOOPBACK).unwrap().local_addr().unwrap().to_string();
    file(&env.sender.path("x"), 1, 70_000);
    let daemon = env.sender.daemon_of(env.sender.tow(["daemon", "--listen", &address]));
    let ticket = put(&env.sender, "x");
    daemon.interrupt();
    daemon.end().with(0);
    let home = env.sender.home("").display().to_string();
    let words = [activate, "-l".into(), address, "-E".into(), format!("TOW_HOME={home}"), TOW.into()];
    let mut supervisor = env.sender.tow_as(&words, ["daemon"]).start();
    wait_for(&mut supervisor, "Listening on");
    assert!(!supervisor.error_text().contains("local API at"), "nobody asked yet");
    env.receiver.get(&ticket, "x").end().summary();
    assert_same(&env.sender.path("x"), &env.receiver.path("x"));
    wait_for(&mut supervisor, "local API at");
    supervisor.signal(Signal::TERM);
    supervisor.end().with(0);
}

fn a_daemon_is_activated_by_its_first_application() {
    let env = TestEnvironment::new();
    let activate = tool("systemd-socket-activate").display().to_string();
    let socket = env.sender.home("run/tow.sock");
    fs::create_dir(env.sender.home("run")).unwrap();
    let home = format!("TOW_HOME={}", env.sender.home("").display());
    let path = socket.display().to_string();
    let words = [activate, "-l".into(), path, "-E".into(), home, TOW.into()];
    let mut supervisor = env.sender.tow_as(&words, ["daemon", "--listen", LOOPBACK]).start();
    wait_for(&mut supervisor, "Listening on");
    file(&env.sender.path("x"), 1, 70_000);
    env.receiver.get(&put(&env.sender, "x"), "x").end().summary();
    assert!(supervisor.error_text().contains("local API at"));
    supervisor.signal(Signal::TERM);
    supervisor.end().with(0);
    assert!(socket.exists(), "it is the supervisor's");
}

fn a_new_rate_holds_for_a_transfer_under_way() {
    let env = TestEnvironment::new();
    let mut daemon = env.sender.daemon_with("limit_rate = \"256K\"\n");
    file(&env.sender.path("x"), 1, 64 << 20);
    let ticket = put(&env.sender, "x");
    // It would take four minutes.
    let mut get = env.receiver.get(&ticket, "x").start();
    get.wait_for_bytes(1);
    env.sender.configure("");
    reload(&mut daemon, "was read again");
    get.end().summary();
    assert_same(&env.sender.path("x"), &env.receiver.path("x"));
}

fn a_local_connection_too_many_is_told_so() {
    let env = TestEnvironment::new();
    let mut daemon = env.sender.daemon_with("[limits]\nlocal_connections = 2\n");
    let connect = || UnixStream::connect(env.sender.home("run/tow.sock")).unwrap();
    let _idle = [connect(), connect()];
    let status = || {
        let mut stream = connect();
        stream.write_all(b"GET /v1/status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let answer = status();
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("limits.local_connections"), "{answer}");
    env.sender.configure("[limits]\nlocal_connections = 3\n");
    reload(&mut daemon, "was read again");
    assert!(status().starts_with("HTTP/1.1 200 "));
}

fn metrics_are_had_at_the_local_socket() {
    let env = TestEnvironment::new();
    let _daemon = env.sender.daemon();
    env.sender.tow(["ls"]).end().with(0);
    let samples = metrics(&env.sender);
    assert!(samples["towpath_local_requests_total{call=\"/v1/objects\",status=\"200\"}"] > 0, "{samples:?}");
}

/// Counts of a machine's daemon, as its local socket tells them.
pub fn metrics(machine: &Machine) -> BTreeMap<String, u64> {
    let mut stream = UnixStream::connect(machine.home("run/tow.sock")).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    samples(answer.split_once("\r\n\r\n").unwrap().1)
}

/// Address at which the daemon says that its metrics are.
fn metrics_address(daemon: &mut Running) -> String {
    daemon.wait_until("says where its metrics are", |daemon| {
        let text = daemon.error_text();
        let after = text.split_once("metrics at http://")?.1;
        Some(after.split_once("/metrics\n")?.0.to_owned())
    })
}

fn ask(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Reads a page as the format demands: families one after the other, each with help and type, and
/// no sample twice. Stricter than Prometheus, which takes what it can.
fn samples(page: &str) -> BTreeMap<String, u64> {
    let (mut samples, mut families, mut family) = (BTreeMap::new(), BTreeSet::new(), String::new());
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    };
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, words) = help.split_once(' ').unwrap();
            assert!(is_name(name) && words.ends_with('.'), "{line}");
            assert!(families.insert(name.to_owned()), "a family twice: {line}");
            family = name.into();
            let kind = lines.next().unwrap().strip_prefix(&format!("# TYPE {name} ")).unwrap().to_owned();
            assert!(kind == "gauge" || kind == "counter", "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            continue;
        }
        let (sample, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = sample
            .split_once('{')
            .map_or((sample, ""), |(name, labels)| (name, labels.strip_suffix('}').unwrap()));
        assert_eq!(name, family, "a sample of another family: {line}");
        for label in labels.split(',').filter(|label| !label.is_empty()) {
            let (label, text) = label.split_once('=').unwrap();
            assert!(
                is_name(label) && text.len() >= 2 && text.starts_with('"') && text.ends_with('"'),
                "{line}"
            );
        }
        assert!(samples.insert(sample.to_owned(), value.parse().unwrap()).is_none(), "twice: {line}");
    }
    assert!(page.ends_with('\n'));
    samples
}

fn scrape(address: &str) -> BTreeMap<String, u64> {
    let answer = ask(address, "GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n");
    let (head, page) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("Content-Type: text/plain; version=0.0.4"), "{head}");
    samples(page)
}

fn metrics_are_well_formed_and_count() {
    let env = TestEnvironment::new();
    let configuration = "[metrics]\nlisten = \"127.0.0.1:0\"\n[limits]\nhandshakes = 1\n";
    let (mut sending, mut receiving) =
        (env.sender.daemon_with(configuration), env.receiver.daemon_with(configuration));
    let addresses = [metrics_address(&mut sending), metrics_address(&mut receiving)];
    let before = scrape(&addresses[0]);
    assert_eq!(before["towpath_transfers_begun_total{direction=\"get\"}"], 0);
    file(&env.sender.path("x"), 1, 1 << 20);
    env.receiver.get(&put(&env.sender, "x"), "x").end().summary();
    env.receiver.tow(["get", "--json", "tow:nonsense"]).end().failure_with(2);
    receiving.signal(Signal::HUP);
    wait_for(&mut receiving, "was read again");
    let [sender, receiver] = addresses.each_ref().map(|address| scrape(address));
    assert_eq!(sender["towpath_peer_connections_accepted_total"], 1);
    assert_eq!(sender["towpath_store_leased_objects"], 1);
    assert_eq!(sender["towpath_store_leased_bytes"], 1 << 20);
    assert!(sender["towpath_network_bytes_total{direction=\"sent\",dialled_by=\"peer\"}"] > 1 << 20);
    assert!(
        receiver["towpath_network_bytes_total{direction=\"received\",dialled_by=\"this_node\"}"] > 1 << 20
    );
    assert_eq!(receiver["towpath_object_bytes_total{source=\"peers\"}"], 1 << 20);
    assert_eq!(receiver["towpath_transfers_done_total{direction=\"get\"}"], 1);
    assert_eq!(receiver["towpath_transfers_failed_total{direction=\"get\"}"], 1);
    assert_eq!(receiver["towpath_transfers"], 0);
    assert_eq!(receiver["towpath_config_reloads_total{result=\"done\"}"], 1);
    assert!(ask(&addresses[0], "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    assert!(ask(&addresses[0], "POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
}

fn a_stalled_reader_of_metrics_keeps_nobody_out() {
    let env = TestEnvironment::new();
    let mut daemon = env.sender.daemon_with("[metrics]\nlisten = \"127.0.0.1:0\"\n");
    let address = metrics_address(&mut daemon);
    // As many as are answered at once: they are given up after a while.
    let stalled: Vec<_> = (0..8).map(|_| TcpStream::connect(&address).unwrap()).collect();
    assert!(!scrape(&address).is_empty());
    drop(stalled);
    let long = "x".repeat(20_000);
    let mut garbage = TcpStream::connect(&address).unwrap();
    let _ = garbage.write_all(long.as_bytes());
    assert!(!scrape(&address).is_empty());
}

fn the_log_is_lines_of_json() {
    let env = TestEnvironment::new();
    env.sender.configure("log_level = \"error\"\n");
    let words = ["-q", "daemon", "--listen", LOOPBACK, "--log-format", "json"];
    let mut daemon = env.sender.tow(words).start();
    daemon.wait_until("answers", |_| env.sender.home("run/tow.sock").exists().then_some(()));
    env.sender.tow(["status"]).end().with(0);
    env.sender.configure("log_level = \"loud\"\n");
    reload(&mut daemon, "stays as it was");
    env.sender.configure("log_level = \"debug\"\n");
    daemon.signal(Signal::HUP);
    file(&env.sender.path("x"), 1, 1000);
    let ticket = put(&env.sender, "x");
    daemon.wait_until("tells of each connection", |daemon| {
        env.receiver.get(&ticket, "x").end().summary();
        fs::remove_file(env.receiver.path("x")).unwrap();
        daemon.error_text().contains("\"DEBUG\"").then_some(())
    });
    let text = daemon.error_text();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["level"], "ERROR", "{text}");
}

fn plugins_are_those_of_the_configuration() {
    let env = TestEnvironment::new();
    let _sending = env.sender.daemon();
    let mut receiving = env.receiver.daemon_with("[plugins]\nplugin = \"local\"\n");
    fs::create_dir(env.sender.path("tree")).unwrap();
    [("x", 1), ("tree/y", 2)].into_iter().for_each(|(name, seed)| file(&env.sender.path(name), seed, 70_000));
    let [ticket, of_tree] = ["x", "tree"].map(|name| put(&env.sender, name));
    for ticket in [&ticket, &of_tree] {
        let failure =
            env.receiver.tow(["get", "--json", "--timeout", "3", ticket, "-o", "x"]).end().failure();
        assert_eq!(failure["kind"], "not_found", "{failure}");
    }
    env.receiver.configure(
        "[plugins]\nplugin = \"takeover\"\nfirst = { plugin = \"local\" }\n\
         better = { plugin = \"cascade\", of = [{ plugin = \"direct\", connections = 3 }] }\n",
    );
    reload(&mut receiving, "was read again");
    for (ticket, name) in [(&ticket, "x"), (&of_tree, "tree")] {
        env.receiver.get(ticket, name).end().summary();
        assert_same(&env.sender.path(name), &env.receiver.path(name));
    }
}
