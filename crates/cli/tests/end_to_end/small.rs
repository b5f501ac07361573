//! Small objects ride along: in their ticket, or in the descriptor of their tree.

use std::fs;

use crate::environment::TestEnvironment;
use crate::runner::situations;
use crate::trees::{assert_same, dress, file};

situations![
    a_small_file_is_in_its_ticket,
    a_small_stream_is_in_the_ticket_that_is_listed,
    a_listed_ticket_takes_back_its_own_put_among_equal_ones,
    what_is_in_its_ticket_is_done_by_it,
    encryption_that_is_required_is_confirmed,
    tiny_files_come_with_the_descriptor,
];

/// The most bytes that a ticket holds.
const LIMIT: u64 = 512;

fn a_small_file_is_in_its_ticket() {
    let env = TestEnvironment::new();
    for (name, len) in [("empty", 0), ("one", 1), ("most", LIMIT)] {
        let source = env.sender.path(name);
        file(&source, 1, len);
        dress(&source, 0o640, 5);
        let mut share = env.sender.share(&source);
        let ticket = share.ticket();
        share.kill();
        assert!(ticket.len() < 1500, "{} characters", ticket.len());
        let summary = env.receiver.get(&ticket, name).end().summary();
        assert_eq!((summary.from("ticket"), summary.fetched()), (len, len));
        assert_same(&source, &env.receiver.path(name));
    }
    let source = env.sender.path("larger");
    file(&source, 1, LIMIT + 1);
    let mut share = env.sender.share(&source);
    let ticket = share.ticket();
    let summary = env.receiver.get(&ticket, "larger").end().summary();
    assert_eq!((summary.from("ticket"), summary.fetched()), (0, LIMIT + 1));
}

fn a_small_stream_is_in_the_ticket_that_is_listed() {
    let env = TestEnvironment::new();
    let _daemon = env.sender.daemon();
    env.sender.tow(["put", "-"]).input_text("some words").end().with(0);
    let listed = env.sender.tow(["ls", "--json"]).end().with(0).events();
    let ticket = listed[0]["ticket"].as_str().unwrap();
    let summary = env.receiver.get(ticket, "copy").end().summary();
    assert_eq!(summary.from("ticket"), 10);
    assert_eq!(fs::read(env.receiver.path("copy")).unwrap(), b"some words");
    env.sender.tow(["done", ticket]).end().with(0);
    assert!(env.sender.tow(["ls", "--json"]).end().with(0).out.is_empty());
}

fn what_is_in_its_ticket_is_done_by_it() {
    let env = TestEnvironment::new();
    fs::write(env.sender.path("small"), "small").unwrap();
    let ticket = env.sender.tow(["put", "small"]).end().with(0).text();
    env.sender.tow(["done", ticket.trim()]).end().with(0);
    // A ticket that was handed out can't be called back.
    env.receiver.get(ticket.trim(), "copy").end().summary();
}

/// All of them name the same content: each listed ticket takes back its own put.
fn a_listed_ticket_takes_back_its_own_put_among_equal_ones() {
    let env = TestEnvironment::new();
    let _daemon = env.sender.daemon();
    for name in ["first", "second", "third"] {
        fs::write(env.sender.path(name), "the same").unwrap();
        env.sender.tow(["put", name]).end().with(0);
    }
    let paths = || {
        let listed = env.sender.tow(["ls", "--json"]).end().with(0).events();
        let field = |object: &serde_json::Value, name: &str| object[name].as_str().unwrap().to_owned();
        listed.iter().map(|object| (field(object, "path"), field(object, "ticket"))).collect::<Vec<_>>()
    };
    for left in [2, 1, 0] {
        let (path, ticket) = paths().pop().unwrap();
        env.sender.tow(["done", &ticket]).end().with(0);
        let rest = paths();
        assert_eq!(rest.len(), left);
        assert!(rest.iter().all(|(other, _)| *other != path), "{path} is still held");
    }
}

fn tiny_files_come_with_the_descriptor() {
    let env = TestEnvironment::new();
    let tree = env.sender.path("tree");
    let files = 600;
    for number in 0..files {
        let path = tree.join(format!("{}", number % 7)).join(format!("{number}"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        file(&path, number, number * 1030 / files);
        dress(&path, 0o600, number as u32);
    }
    // Also the second time, when the index knows all of them.
    for name in ["first", "second"] {
        let mut share = env.sender.share(&tree);
        env.receiver.get(&share.ticket(), name).end().summary();
        assert_same(&tree, &env.receiver.path(name));
    }
}

fn encryption_that_is_required_is_confirmed() {
    let env = TestEnvironment::new();
    for (name, len) in [("small", 10), ("large", 100_000)] {
        file(&env.sender.path(name), 1, len);
    }
    let get = |ticket: &str, name: &str| {
        env.receiver.tow(["get", "--json", "--require-encryption", ticket, "-o", name]).end()
    };
    let mut share = env.sender.share("large");
    let summary = get(&share.ticket(), "large").summary();
    assert_eq!(summary.0["encrypted"], true);
    let mut share = env.sender.share("small");
    let ticket = share.ticket();
    let failure = get(&ticket, "small").failure();
    assert_eq!(failure["kind"], "refused");
    assert!(failure["message"].as_str().unwrap().contains("encryption is required"), "{failure}");
    assert_eq!(env.receiver.get(&ticket, "small").end().summary().0["encrypted"], false);
}
