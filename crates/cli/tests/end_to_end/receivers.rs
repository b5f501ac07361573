//! A sender's terminal, or its log, shows who fetches what, and how that ended.

use std::fs;

use crate::environment::{LOOPBACK, Running, TestEnvironment};
use crate::runner::situations;
use crate::trees::{bytes, file};

situations![
    a_sender_is_told_that_all_was_fetched,
    a_sender_is_told_that_a_fetch_was_broken_off,
    a_sender_is_told_that_its_source_changed,
    a_sender_is_told_of_a_tree_and_of_what_a_stream_gave,
    programs_are_told_of_fetches_as_events,
];

fn wait_for(running: &mut Running, words: &str) {
    running.wait_until(words, |running| running.error_text().contains(words).then_some(()));
}

fn a_sender_is_told_that_all_was_fetched() {
    let env = TestEnvironment::new();
    file(&env.sender.path("x"), 1, 3 << 20);
    let mut share = env.sender.share("x");
    let ticket = share.ticket();
    env.receiver.get(&ticket, "x").end().summary();
    wait_for(&mut share, "has all of x: 3.00 MiB sent in ");
    assert!(share.error_text().contains("tow: 127.0.0.1 (peer "), "{}", share.error_text());
    // As a stream, and by a daemon.
    let _daemon = env.stranger.daemon();
    env.stranger.tow(["get", &ticket, "-o", "-"]).end().with(0);
    share.wait_until("a second one", |share| {
        (share.error_text().matches("has all of x").count() == 2).then_some(())
    });
    assert!(!share.error_text().contains('\u{1b}'), "no bar in a file");
    let mut quiet = env.sender.tow(["share", "-q", "--listen", LOOPBACK, "x"]).start();
    let ticket = quiet.ticket();
    env.receiver.get(&ticket, "y").end().summary();
    quiet.interrupt();
    assert_eq!(quiet.end().err, "");
}

fn a_sender_is_told_that_a_fetch_was_broken_off() {
    let env = TestEnvironment::new();
    file(&env.sender.path("x"), 1, 8 << 20);
    let mut share = env.sender.share("x");
    let mut get = env.receiver.get_slowly(&share.ticket(), "x", "1M").start();
    get.wait_for_bytes(1);
    get.kill();
    wait_for(&mut share, "broke off x after ");
    assert!(!share.error_text().contains("has all"), "{}", share.error_text());
}

fn a_sender_is_told_that_its_source_changed() {
    let env = TestEnvironment::new();
    file(&env.sender.path("x"), 1, 700_000);
    let mut share = env.sender.share("x");
    let ticket = share.ticket();
    fs::write(env.sender.path("x"), bytes(6, 700_000)).unwrap();
    env.receiver.get(&ticket, "x").end().failure();
    wait_for(&mut share, "could not fetch x: ");
    assert!(share.error_text().contains("changed"), "{}", share.error_text());
}

fn a_sender_is_told_of_a_tree_and_of_what_a_stream_gave() {
    let env = TestEnvironment::new();
    let tree = env.sender.path("tree");
    fs::create_dir(&tree).unwrap();
    for (seed, name) in (1..).zip(["one", "two"]) {
        file(&tree.join(name), seed, 500_000);
    }
    let mut share = env.sender.share("tree");
    let ticket = share.ticket();
    env.receiver.get(&ticket, "copy").end().summary();
    wait_for(&mut share, "has all of tree: ");
    fs::write(tree.join("two"), bytes(77, 500_000)).unwrap();
    env.stranger.get(&ticket, "copy").end().partial_summary();
    wait_for(&mut share, "has tree but for some files: ");
    let mut put =
        env.sender.tow(["put", "-", "--listen", LOOPBACK]).input_text(&"words ".repeat(9999)).start();
    env.receiver.get(&put.ticket(), "words").end().summary();
    wait_for(&mut put, "has all of what is read: ");
}

fn programs_are_told_of_fetches_as_events() {
    let env = TestEnvironment::new();
    file(&env.sender.path("x"), 1, 3 << 20);
    let mut share = env.sender.tow(["--json", "share", "--listen", LOOPBACK, "x"]).start();
    env.receiver.get(&share.ticket(), "x").end().summary();
    share.wait_until("tells of the end", |share| {
        String::from_utf8_lossy(&share.output()).contains("\"complete\"").then_some(())
    });
    share.interrupt();
    let ended = share.end().with(130);
    let fetches: Vec<_> = ended.events().into_iter().filter(|event| event["event"] == "fetch").collect();
    let (first, last) = (&fetches[0], &fetches[fetches.len() - 1]);
    assert_eq!((&first["state"], &first["name"]), (&"begun".into(), &"x".into()));
    assert_eq!(
        (&last["state"], &last["bytes"], &last["address"]),
        (&"complete".into(), &(3 << 20).into(), &"127.0.0.1".into())
    );
}
