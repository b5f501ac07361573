//! Gets as streams: whole, in ranges, out of order; and each object crosses the network once.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::json;
use towpath_config::ConfigSeconds;

use crate::client::{Connection, WAIT_LIMIT};
use crate::relay::Relay;
use crate::world::{Daemon, eventually, pattern};

/// Asks with a field `Range`.
fn ranged(daemon: &Daemon, ticket: &str, range: &str) -> crate::client::Reply {
    let mut connection = daemon.connect();
    connection.request("GET", &format!("/v1/content?ticket={ticket}"), &[("Range", range)], b"");
    connection.reply()
}

#[test]
fn ranges_and_heads_of_what_is_here_and_of_what_has_to_come() {
    let (sender, receiver) = (Daemon::start(), Daemon::start());
    let all = pattern(1, 1_000_000);
    let file = sender.file("a file", &all);
    let ticket = sender.call("POST", "/v1/put", Some(json!({ "path": file }))).with(200).json();
    let (oid, ticket) = (ticket["oid"].as_str().unwrap(), ticket["ticket"].as_str().unwrap());
    for daemon in [&receiver, &receiver, &sender] {
        let head = daemon.call("HEAD", &format!("/v1/content?ticket={ticket}"), None).head;
        assert_eq!((head.status, head.field("content-length")), (200, Some("1000000")));
        assert_eq!(head.field("etag"), Some(format!("\"{oid}\"").as_str()));
        assert_eq!(head.field("accept-ranges"), Some("bytes"));
        let part = ranged(daemon, ticket, "bytes=262000-600000").with(206);
        assert_eq!(part.head.field("content-range"), Some("bytes 262000-600000/1000000"));
        assert!(part.body == all[262_000..=600_000]);
        assert!(ranged(daemon, ticket, "bytes=-5").with(206).body == all[999_995..]);
        let outside = ranged(daemon, ticket, "bytes=1000000-").with(416);
        assert_eq!(outside.head.field("content-range"), Some("bytes */1000000"));
        assert_eq!(outside.head.field("content-type"), Some("application/problem+json"));
        assert!(ranged(daemon, ticket, "bytes=9-8").with(200).body == all);
    }
}

#[test]
fn a_range_of_what_is_not_here_brings_only_its_pieces() {
    let (sender, receiver) = (Daemon::start(), Daemon::start());
    let all = pattern(21, 40_000_000);
    let file = sender.file("a file", &all);
    let put = sender.call("POST", "/v1/put", Some(json!({ "path": file }))).with(200).json();
    let relay = Relay::to(&sender);
    let ticket = relay.through(put["ticket"].as_str().unwrap());
    for (range, expected) in [
        ("bytes=30000000-30000099", 30_000_000..30_000_100),
        ("bytes=-7", 39_999_993..40_000_000),
        ("bytes=0-1999999", 0..2_000_000),
        ("bytes=524287-524288", 524_287..524_289),
    ] {
        relay.take_sent();
        assert!(ranged(&receiver, &ticket, range).with(206).body == all[expected.clone()], "{range}");
        let (sent, wanted) = (relay.take_sent(), (expected.end - expected.start) as u64);
        assert!(sent < wanted + 1_000_000, "{sent} bytes came for {wanted}");
    }
    let cached = receiver.call("GET", "/v1/objects?cached=true", None).with(200).json();
    assert_eq!(cached.as_array().unwrap().len(), 0, "a part is no object");
    assert!(receiver.content(&ticket).with(200).body == all);
    relay.take_sent();
    assert!(
        ranged(&receiver, &ticket, "bytes=30000000-30000099").with(206).body == all[30_000_000..30_000_100]
    );
    assert!(relay.take_sent() < 100_000, "it is here");
}

#[test]
fn a_range_of_what_is_on_its_way_does_not_wait_for_what_is_before_it() {
    let (sender, receiver) = (Daemon::start(), Daemon::start());
    let all = pattern(22, 20_000_000);
    let file = sender.file("a file", &all);
    let put = sender.call("POST", "/v1/put", Some(json!({ "path": file }))).with(200).json();
    let ticket = put["ticket"].as_str().unwrap().to_owned();
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let (ticket, receiver, all, ended) = (&ticket, &receiver, &all, &ended);
        scope.spawn(move || {
            let path = format!("/v1/content?ticket={ticket}&limit_rate=4000000");
            assert!(receiver.call("GET", &path, None).with(200).body == *all);
            ended.store(true, Ordering::Relaxed);
        });
        eventually("it is under way", || receiver.status()["gets"] == 1);
        assert!(ranged(receiver, ticket, "bytes=1000000-1000009").body == all[1_000_000..1_000_010]);
        assert!(!ended.load(Ordering::Relaxed), "the rest was waited for");
    });
}

/// Takes the frames of an answer apart; the bytes and whether there was an end frame.
fn frames(connection: &mut Connection) -> (Vec<(u64, usize)>, Vec<u8>) {
    let head = connection.head().unwrap();
    assert_eq!((head.status, head.field("content-type")), (200, Some("application/vnd.towpath.chunks")));
    let body = connection.body(&head).unwrap();
    let (mut rest, mut parts, mut runs) = (&body[..], BTreeMap::new(), Vec::new());
    loop {
        let offset = u64::from_be_bytes(rest[..8].try_into().unwrap());
        let len = u32::from_be_bytes(rest[8..12].try_into().unwrap()) as usize;
        runs.push((offset, len));
        if len == 0 {
            assert_eq!(rest.len(), 12, "nothing comes after the end");
            break;
        }
        parts.insert(offset, &rest[12..12 + len]);
        rest = &rest[12 + len..];
    }
    let whole: Vec<u8> = parts.into_values().flatten().copied().collect();
    assert_eq!(runs.last(), Some(&(whole.len() as u64, 0)));
    (runs, whole)
}

#[test]
fn chunks_come_each_once_with_their_places() {
    let (sender, receiver) = (Daemon::start(), Daemon::start());
    let all = pattern(2, 5_000_000);
    let (ticket, _) = sender.put(&all);
    for daemon in [&receiver, &receiver, &sender] {
        let mut connection = daemon.connect();
        connection.request("GET", &format!("/v1/chunks?ticket={ticket}"), &[], b"");
        assert!(frames(&mut connection).1 == all);
    }
}

/// Listens to what happens at a daemon.
pub fn listen(daemon: &Daemon) -> Connection {
    let mut connection = daemon.connect();
    connection.request("GET", "/v1/events", &[], b"");
    assert_eq!(connection.head().unwrap().status, 200);
    connection
}

#[test]
fn the_same_bytes_cross_the_network_once_one_after_the_other() {
    let (sender, receiver) = (Daemon::start(), Daemon::start());
    let all = pattern(3, 3_000_000);
    let (live, _) = sender.put(&all);
    let file = sender.file("a file", &all);
    let named = sender.call("POST", "/v1/put", Some(json!({ "path": file }))).json();
    let relay = Relay::to(&sender);
    let [live, named] =
        [live.as_str(), named["ticket"].as_str().unwrap()].map(|ticket| relay.through(ticket));
    for ticket in [&live, &named, &live] {
        assert!(receiver.content(ticket).with(200).body == all);
    }
    let request = json!({ "ticket": live, "output": receiver.dir.path().join("out"), "directory": "/" });
    let events = receiver.call("POST", "/v1/get", Some(request)).with(200).events();
    let sources = &events.last().unwrap()["sources"];
    assert_eq!(*sources, json!([{ "kind": "this machine", "bytes": 3_000_000 }]), "{events:?}");
    let sent = relay.take_sent();
    assert!((3_000_000..4_000_000).contains(&sent), "{sent}");
    assert!(std::fs::read(receiver.dir.path().join("out")).unwrap() == all);
    let stranger = Daemon::start();
    let (other, _) = stranger.put(&all);
    let relay = Relay::to(&stranger);
    assert!(receiver.content(&relay.through(&other)).with(200).body == all);
    assert!(relay.take_sent() >= 3_000_000, "another sender learns nothing of what is here");
}

#[test]
fn the_same_bytes_cross_the_network_once_at_the_same_time() {
    let (sender, receiver) = (Daemon::start(), Daemon::start());
    let all = pattern(4, 20_000_000);
    let (ticket, _) = sender.put(&all);
    let relay = Relay::to(&sender);
    let ticket = relay.through(&ticket);
    let sent = Cell::new(0);
    thread::scope(|scope| {
        let (all, ticket, receiver) = (&all, &ticket, &receiver);
        for _ in 0..4 {
            scope.spawn(|| assert!(receiver.content(ticket).with(200).body == *all));
        }
        // A stream leads: what comes into a file first is fetched once more for streams, as long as nobody knows that
        // it was produced to its end.
        eventually("bytes come", || {
            sent.set(sent.get() + relay.take_sent());
            sent.get() > 1_000_000
        });
        for number in 0..2 {
            scope.spawn(move || {
                let output = receiver.dir.path().join(number.to_string());
                let request = json!({ "ticket": ticket, "output": output, "directory": "/" });
                let events = receiver.call("POST", "/v1/get", Some(request)).with(200).events();
                assert_eq!(events.last().unwrap()["event"], "summary", "{events:?}");
                assert!(std::fs::read(output).unwrap() == *all);
            });
        }
    });
    let sent = sent.get() + relay.take_sent();
    assert!((20_000_000..25_000_000).contains(&sent), "{sent}");
}

#[test]
fn an_application_that_goes_away_ends_its_get_unless_another_reads_along() {
    let (sender, receiver) = (Daemon::start(), Daemon::start());
    let (id, ticket) = {
        let reply = sender.call("POST", "/v1/puts", Some(json!({}))).json();
        (reply["oid"].as_str().unwrap().to_owned(), reply["ticket"].as_str().unwrap().to_owned())
    };
    let mut part = sender.connect();
    part.request("POST", &format!("/v1/puts/{id}/data?offset=0"), &[], &pattern(5, 600_000));
    part.reply().with(200);
    let follow = || {
        let mut connection = receiver.connect();
        connection.request("GET", &format!("/v1/content?ticket={ticket}"), &[], b"");
        let head = connection.head().unwrap();
        connection.part().unwrap().unwrap();
        (connection, head)
    };
    let (first, (mut second, head)) = (follow(), follow());
    assert_eq!(receiver.status()["gets"], 2);
    drop(first);
    eventually("one is left", || receiver.status()["gets"] == 1);
    sender.call("POST", &format!("/v1/puts/{id}/commit"), None).with(200);
    second.body(&head).unwrap();
    eventually("none is left", || receiver.status()["gets"] == 0);
}

#[test]
fn events_tell_of_all_transfers_and_keep_tickets_to_themselves() {
    let (sender, receiver) = (Daemon::start(), Daemon::start());
    let mut events = listen(&receiver);
    let (ticket, oid) = sender.put(&pattern(6, 600_000));
    receiver.content(&ticket).with(200);
    let mut last = json!(null);
    while last["event"] != "summary" {
        last = events.event().unwrap();
        assert!(last["transfer"].as_u64().unwrap() > 0 && last["direction"] == "get", "{last}");
        assert!(!last.to_string().contains("tow:"), "{last}");
    }
    assert_eq!((&last["content"], &last["bytes"]), (&oid.as_str().into(), &600_000.into()), "{last}");
}

#[test]
fn a_reader_that_stalls_holds_up_nobody() {
    let (sender, receiver) = (Daemon::start(), Daemon::start());
    let all = pattern(7, 20_000_000);
    let (ticket, _) = sender.put(&all);
    let mut stalled = receiver.connect();
    stalled.request("GET", &format!("/v1/content?ticket={ticket}"), &[], b"");
    assert_eq!(stalled.head().unwrap().status, 200);
    assert!(receiver.content(&ticket).with(200).body == all);
    let again = receiver.content(&ticket).with(200);
    assert_eq!(again.head.field("content-length"), Some("20000000"), "it is here, whoever still reads it");
}

#[test]
fn a_reader_that_stalls_for_too_long_is_cut_off_and_one_that_is_slow_is_not() {
    let daemon = Daemon::start();
    let all = pattern(7, 2_000_000);
    let (ticket, _) = daemon.put(&all);
    daemon.limit(|limits| limits.reader_stall = ConfigSeconds(1));
    let ask = || {
        let mut reader = daemon.connect();
        reader.request("GET", &format!("/v1/chunks?ticket={ticket}"), &[], b"");
        let head = reader.head().unwrap();
        assert_eq!(head.status, 200);
        (reader, head)
    };
    let (mut slow, head) = ask();
    for _ in 0..4 {
        assert!(!slow.is_cut_off_within(Duration::from_millis(400)), "slow");
        slow.part().unwrap();
    }
    slow.body(&head).unwrap();
    let (mut stalled, head) = ask();
    assert!(stalled.is_cut_off_within(WAIT_LIMIT), "stalled");
    assert!(stalled.body(&head).is_err());
    daemon.limit(|limits| limits.reader_stall = ConfigSeconds(0));
    let (mut unlimited, head) = ask();
    assert!(!unlimited.is_cut_off_within(Duration::from_millis(2500)), "without a limit");
    unlimited.body(&head).unwrap();
}

#[test]
fn a_tree_cannot_be_streamed() {
    let (sender, receiver) = (Daemon::start(), Daemon::start());
    std::fs::create_dir(sender.dir.path().join("tree")).unwrap();
    let put = sender.call("POST", "/v1/put", Some(json!({ "path": sender.dir.path().join("tree") }))).json();
    let problem = receiver.content(put["ticket"].as_str().unwrap()).with(400).json();
    assert!(problem["detail"].as_str().unwrap().contains("tree"), "{problem}");
}
