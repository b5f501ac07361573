//! `something | tow put -`: the ticket comes first, and a receiver follows while it grows.

use std::fs::{self, File};
use std::io::{PipeWriter, Write, pipe};
use std::time::{Duration, Instant};

use crate::environment::{LOOPBACK, Running, TestEnvironment};
use crate::runner::situations;
use crate::trees::{PIECE, bytes};

situations![
    a_receiver_follows_a_stream_without_a_daemon,
    a_receiver_follows_a_stream_through_the_daemon,
    a_stream_goes_into_a_file,
    an_empty_stream_arrives,
    a_stream_has_a_name_and_its_ticket_terms,
    a_producer_that_is_killed_fails_the_receiver,
    a_producer_that_is_killed_fails_the_receiver_through_the_daemon,
    a_sender_of_a_stream_that_is_gone_for_good_fails_the_receiver,
    all_receivers_hear_at_once_that_the_producer_gave_up,
    all_receivers_hear_at_once_that_the_daemon_ends_before_the_producer,
];

/// `tow put -` with an input that this test writes.
fn put_stream(env: &TestEnvironment) -> (Running, PipeWriter) {
    let (reader, writer) = pipe().unwrap();
    let put = env.sender.tow(["put", "-", "--listen", LOOPBACK]).input(reader).start();
    (put, writer)
}

fn follow(env: &TestEnvironment) {
    let (mut put, mut producer) = put_stream(env);
    let ticket = put.ticket();
    let all = bytes(1, 5 * PIECE + 1234);
    let mut get = env.receiver.tow(["get", &ticket, "-o", "-"]).start();
    let (first, rest) = all.split_at(2 * PIECE as usize);
    producer.write_all(first).unwrap();
    get.wait_until("has a first piece while more is to come", |get| {
        (get.output().len() as u64 >= PIECE).then_some(())
    });
    producer.write_all(rest).unwrap();
    drop(producer);
    let ended = get.end().with(0);
    assert!(ended.out == all, "{} of {} bytes, or others", ended.out.len(), all.len());
}

fn a_receiver_follows_a_stream_without_a_daemon() {
    follow(&TestEnvironment::new());
}

fn a_receiver_follows_a_stream_through_the_daemon() {
    let env = TestEnvironment::new();
    let _daemon = env.sender.daemon();
    follow(&env);
}

fn a_stream_has_a_name_and_its_ticket_terms() {
    for with_daemon in [false, true] {
        let env = TestEnvironment::new();
        let _daemon = with_daemon.then(|| env.sender.daemon());
        let (reader, mut producer) = pipe().unwrap();
        let words = "put - --name notes --no-swarm --expires 1h --listen";
        let mut put = env.sender.tow(words.split(' ').chain([LOOPBACK])).input(reader).start();
        let ticket = put.ticket();
        let refused = env.stranger.tow(["get", "--stay", &ticket]).end().with(1);
        assert!(refused.err.contains("does not let its holders pass on"), "{}", refused.err);
        let get = env.receiver.tow(["get", &ticket]).start();
        producer.write_all(b"all").unwrap();
        drop(producer);
        get.end().with(0);
        assert_eq!(fs::read(env.receiver.path("notes")).unwrap(), b"all");
        let listed = env.sender.tow(["ls"]).end().text();
        assert!(listed.contains("expires 2") && listed.contains("is not passed on"), "{listed}");
    }
}

fn a_stream_goes_into_a_file() {
    let env = TestEnvironment::new();
    let (mut put, mut producer) = put_stream(&env);
    let ticket = put.ticket();
    let mut get = env.receiver.get(&ticket, "copy").start();
    let all = bytes(2, 3 * PIECE + 5);
    producer.write_all(&all[..(PIECE + 1) as usize]).unwrap();
    get.wait_for_bytes(PIECE);
    assert!(!env.receiver.path("copy").exists(), "it has its name before it is complete");
    producer.write_all(&all[(PIECE + 1) as usize..]).unwrap();
    drop(producer);
    let summary = get.end().summary();
    assert_eq!(summary.number("bytes"), all.len() as u64);
    assert!(fs::read(env.receiver.path("copy")).unwrap() == all);
    // Without a daemon it is served until interrupted, and a latecomer gets it too.
    env.receiver.get(&ticket, "late").end().summary();
    put.interrupt();
    put.end().with(130);
}

fn an_empty_stream_arrives() {
    let env = TestEnvironment::new();
    let mut put =
        env.sender.tow(["put", "-", "--listen", LOOPBACK]).input(File::open("/dev/null").unwrap()).start();
    let ended = env.receiver.tow(["get", &put.ticket(), "-o", "-"]).end().with(0);
    assert!(ended.out.is_empty());
    env.receiver.get(&put.ticket(), "copy").end().summary();
    assert_eq!(fs::read(env.receiver.path("copy")).unwrap(), b"");
}

/// The program that reads the stream is killed: nobody can know what was to come.
fn kill_the_producer(env: &TestEnvironment) {
    let (mut put, mut producer) = put_stream(env);
    let ticket = put.ticket();
    let all = bytes(3, 3 * PIECE);
    producer.write_all(&all).unwrap();
    let words = ["get", "--timeout", "3", &ticket, "-o", "-"];
    let mut get = env.receiver.tow(words).start();
    get.wait_until("has a first piece", |get| (get.output().len() as u64 >= PIECE).then_some(()));
    let to_file = env.receiver.tow(["get", "--json", "--timeout", "3", &ticket, "-o", "copy"]).start();
    put.kill();
    let ended = get.end().with(1);
    assert!(all.starts_with(&ended.out), "what came is right");
    assert!(ended.err.contains("tow: "), "it says why: {}", ended.err);
    to_file.end().failure();
    assert!(!env.receiver.path("copy").exists(), "what is not complete has no name");
}

fn a_producer_that_is_killed_fails_the_receiver() {
    kill_the_producer(&TestEnvironment::new());
}

fn a_producer_that_is_killed_fails_the_receiver_through_the_daemon() {
    let env = TestEnvironment::new();
    let _daemon = env.sender.daemon();
    kill_the_producer(&env);
}

fn a_sender_of_a_stream_that_is_gone_for_good_fails_the_receiver() {
    let env = TestEnvironment::new();
    let (mut put, mut producer) = put_stream(&env);
    let ticket = put.ticket();
    producer.write_all(&bytes(4, 2 * PIECE)).unwrap();
    put.interrupt();
    put.end().with(130);
    let failure =
        env.receiver.tow(["get", "--json", "--timeout", "2", &ticket, "-o", "copy"]).end().failure();
    assert_eq!(failure["kind"], "unreachable", "{failure}");
}

/// Of twelve receivers four heard it; eight waited out their `--timeout`, and were advised to try again.
fn all_receivers_hear_at_once_that_the_producer_gave_up() {
    let env = TestEnvironment::new();
    let (put, producer) = put_stream(&env);
    assert_all_hear(&env, put, producer, 130);
}

fn all_receivers_hear_at_once_that_the_daemon_ends_before_the_producer() {
    let env = TestEnvironment::new();
    let daemon = env.sender.daemon_with("grace = 0\n");
    let (mut put, mut producer) = put_stream(&env);
    let (mut gets, begun) = followers(&env, &put.ticket(), &mut producer);
    daemon.interrupt();
    assert_heard(&mut gets, begun);
    daemon.end().with(0);
}

fn assert_all_hear(env: &TestEnvironment, mut put: Running, mut producer: PipeWriter, code: i32) {
    let (mut gets, _) = followers(env, &put.ticket(), &mut producer);
    let begun = Instant::now();
    put.interrupt();
    put.end().with(code);
    assert!(begun.elapsed() < Duration::from_secs(2), "the producer took {:?}", begun.elapsed());
    assert_heard(&mut gets, begun);
}

/// Receivers that have the beginning of what is produced, of files and of streams.
fn followers(env: &TestEnvironment, ticket: &str, producer: &mut PipeWriter) -> (Vec<Running>, Instant) {
    producer.write_all(&bytes(1, 3 * PIECE)).unwrap();
    let receivers = [&env.receiver, &env.stranger];
    let mut gets: Vec<_> =
        (0..12).map(|number| receivers[number % 2].get(ticket, format!("{number}")).start()).collect();
    gets.iter_mut().for_each(|get| get.wait_for_bytes(PIECE));
    (gets, Instant::now())
}

fn assert_heard(gets: &mut Vec<Running>, begun: Instant) {
    for get in gets.drain(..) {
        let failure = get.end().failure();
        assert!(failure["message"].as_str().unwrap().contains("the producer gave up"), "{failure}");
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "they heard it after {:?}", begun.elapsed());
}
