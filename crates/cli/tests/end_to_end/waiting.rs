//! A command that waits for another machine says so within two seconds. It tells for what, and how long it will be
//! tried; it waits no longer than that.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use towpath_content::{Hint, Ticket};

use crate::copying_faults::shell;
use crate::environment::{Running, TestEnvironment};
use crate::local_client::LocalClient;
use crate::machinery::descendants;
use crate::runner::situations;
use crate::sshd::{HOST, Route, Way};
use crate::trees::file;

situations![
    who_waits_for_a_sender_that_is_gone_is_told_so,
    who_waits_for_a_sender_that_went_away_is_told_so,
    who_waits_for_a_sender_that_stops_is_told_so,
    who_waits_for_another_side_of_a_copy_that_stops_is_told_so,
    who_waits_for_a_login_is_told_so,
    a_sender_that_says_nothing_is_waited_for_no_longer_than_asked,
    an_event_has_each_of_its_fields_once,
];

/// Long before the minute for which a sender is waited for. On a quiet machine it is less than two seconds.
const SOON: Duration = Duration::from_secs(20);

/// The ticket of a sender that is gone.
fn orphan(env: &TestEnvironment) -> String {
    file(&env.sender.path("x"), 1, 700_000);
    let mut share = env.sender.share("x");
    let ticket = share.ticket();
    share.kill();
    ticket
}

fn assert_told_soon(waiting: Running, words: &str) {
    assert_told_within(SOON, waiting, words);
}

fn assert_told_within(most: Duration, mut waiting: Running, words: &str) {
    let start = Instant::now();
    waiting.wait_until(words, |running| {
        let told = [running.error_text(), String::from_utf8_lossy(&running.output()).into_owned()];
        told.iter().any(|told| told.contains(words)).then_some(())
    });
    assert!(start.elapsed() < most, "told after {:?}", start.elapsed());
}

/// It said nothing for a minute.
fn who_waits_for_a_sender_that_is_gone_is_told_so() {
    let env = TestEnvironment::new();
    let ticket = orphan(&env);
    let refused = "refused the connection; trying for 59 s more";
    for with_daemon in [false, true] {
        let _daemon = with_daemon.then(|| env.receiver.daemon());
        assert_told_soon(env.receiver.tow(["get", &ticket, "-o", "y"]).start(), refused);
        assert_told_soon(
            env.receiver.tow(["--json", "get", &ticket, "-o", "y"]).start(),
            "\"event\":\"waiting\"",
        );
        assert_told_soon(env.receiver.tow(["get", &ticket, "-o", "-"]).start(), "trying for 59 s more");
    }
    let ended = env.receiver.tow(["get", "-q", "--timeout", "2", &ticket, "-o", "y"]).end().with(1);
    assert!(!ended.err.contains("waiting"), "{}", ended.err);
}

fn who_waits_for_a_sender_that_went_away_is_told_so() {
    let env = TestEnvironment::new();
    file(&env.sender.path("x"), 1, 30 << 20);
    let mut share = env.sender.share("x");
    let ticket = share.ticket();
    let words = ["get", "--no-search", "--limit-rate", "6M", &ticket, "-o", "y"];
    let receiver = env.receiver.tow(words).start();
    assert!(!receiver.ends_within(Duration::from_secs(1)));
    assert!(!receiver.error_text().contains("waiting"), "{}", receiver.error_text());
    share.kill();
    // Data that was on its way comes first, at the rate that was asked for.
    assert_told_within(SOON * 2, receiver, "refused the connection; trying for");
}

/// In a pipe nothing was said for the whole time limit.
fn who_waits_for_a_sender_that_stops_is_told_so() {
    let env = TestEnvironment::new();
    file(&env.sender.path("x"), 1, 30 << 20);
    let mut share = env.sender.share("x");
    let ticket = share.ticket();
    let words = ["get", "--no-search", "--limit-rate", "6M", &ticket, "-o", "y"];
    let receiver = env.receiver.tow(words).start();
    assert!(!receiver.ends_within(Duration::from_secs(1)));
    assert!(!receiver.error_text().contains("waiting"), "{}", receiver.error_text());
    share.signal(Signal::STOP);
    let told = "tow: waiting for the sender: nothing came for 2 s; trying for 5";
    assert_told_within(SOON * 2, receiver, told);
    share.signal(Signal::CONT);
}

fn who_waits_for_another_side_of_a_copy_that_stops_is_told_so() {
    for way in [Way::Push, Way::Pull] {
        let env = TestEnvironment::new();
        file(&env.sender.path("x"), 1, 30 << 20);
        let route = Route::new(&env, way);
        let mut running = route.copy("cp --json --no-search --limit-rate 6M", "x", "y").start();
        running.wait_for_bytes(1 << 20);
        assert!(!String::from_utf8_lossy(&running.output()).contains("waiting"));
        let sessions = descendants(route.sshd.as_ref().unwrap().id());
        let other = sessions.iter().find(|process| process.name == "tow").unwrap();
        other.signal(Signal::STOP);
        let told = format!(r#"{{"event":"waiting","what":"{HOST}: nothing came for 2 s","seconds":5"#);
        assert_told_soon(running, &told);
        other.signal(Signal::KILL);
    }
}

fn who_waits_for_a_login_is_told_so() {
    let env = TestEnvironment::new();
    file(&env.sender.path("x"), 1, 700);
    let slow = shell(&env, "exec sleep 60");
    let copy = |words: &[&str]| {
        let others = ["-e", &slow, "x", "elsewhere:y"];
        env.sender.tow(words.iter().chain(&others)).start()
    };
    assert_told_soon(copy(&["sync"]), "tow: waiting for ssh to elsewhere\n");
    let quiet = copy(&["cp", "-q"]);
    assert!(!quiet.ends_within(Duration::from_secs(3)));
    assert_eq!(quiet.error_text(), "");
}

/// `--timeout 5` took ten seconds, as the handshake had a time of its own.
fn a_sender_that_says_nothing_is_waited_for_no_longer_than_asked() {
    let env = TestEnvironment::new();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let mut ticket: Ticket = orphan(&env).parse().unwrap();
    ticket.hints = vec![Hint::new(format!("tow://{address}"), 0, 1).unwrap()];
    let ticket = ticket.to_string();
    let told = format!("waiting for the sender: no answer from {address}; trying for 59 s more");
    assert_told_soon(env.receiver.tow(["get", &ticket, "-o", "y"]).start(), &told);
    let start = Instant::now();
    let ended = env.receiver.tow(["get", "--timeout", "3", &ticket, "-o", "y"]).end().with(1);
    assert!(start.elapsed() < Duration::from_secs(5), "--timeout 3 took {:?}", start.elapsed());
    assert!(ended.err.contains(&address.to_string()), "{}", ended.err);
}

/// The summary of a transfer event had `oid` twice.
fn an_event_has_each_of_its_fields_once() {
    let env = TestEnvironment::new();
    let _daemon = env.sender.daemon();
    let events = LocalClient::of(&env.sender).call("GET /v1/events", "", b"").unwrap();
    let mut events = BufReader::new(events).lines().map_while(Result::ok);
    file(&env.sender.path("x"), 1, 700_000);
    let ticket = env.sender.tow(["put", "x"]).end().with(0).text();
    env.sender.tow(["get", ticket.trim(), "-o", "-"]).end().with(0);
    for _ in 0..2 {
        let summary = events.find(|event| event.contains("\"event\":\"summary\"")).unwrap();
        assert_eq!(summary.matches("\"oid\":").count(), 1, "{summary}");
        assert!(summary.contains("\"content\":\"blake3:"), "{summary}");
        assert!(summary.contains("\"encrypted\":true"), "{summary}");
    }
}
