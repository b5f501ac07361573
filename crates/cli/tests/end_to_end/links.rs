//! A get that goes out by several of this machine's links at once. On loopback two names of one link have to do.

use std::fs;

use crate::environment::{LOOPBACK, Running, Summary, TestEnvironment};
use crate::runner::situations;
use crate::trees::{assert_same, assert_same_bytes, file};

situations![
    a_file_comes_by_two_links_at_once,
    a_tree_comes_by_two_links_at_once,
    a_link_that_is_not_there_brings_nothing,
    what_is_no_link_of_this_machine_is_said,
];

/// Names of the links by which something came.
fn links(summary: &Summary) -> Vec<&str> {
    summary.sources().filter_map(|source| source["path"].as_str()).collect()
}

/// Serves `name`, so slowly that neither link brings all before the other one is there.
fn share(env: &TestEnvironment, name: &str) -> Running {
    env.sender.tow(["share", "--listen", LOOPBACK, "--limit-rate", "20M", name]).start()
}

fn a_file_comes_by_two_links_at_once() {
    let env = TestEnvironment::new();
    file(&env.sender.path("file"), 1, 40 << 20);
    let mut share = share(&env, "file");
    let words = ["get", "--json", "--bind", "lo,127.0.0.1", &share.ticket(), "-o", "file"];
    let summary = env.receiver.tow(words).end().summary();
    assert_same_bytes(&env.sender.path("file"), &env.receiver.path("file"));
    assert_eq!(links(&summary), ["127.0.0.1", "lo"]);
}

fn a_tree_comes_by_two_links_at_once() {
    let env = TestEnvironment::new();
    fs::create_dir(env.sender.path("tree")).unwrap();
    for number in 0..20 {
        file(&env.sender.path(format!("tree/large {number}")), number, 1 << 20);
        file(&env.sender.path(format!("tree/small {number}")), number, 3000);
    }
    let mut share = share(&env, "tree");
    let words = ["get", "--json", "--bind", "lo,127.0.0.1", &share.ticket(), "-o", "tree"];
    let summary = env.receiver.tow(words).end().summary();
    assert_same(&env.sender.path("tree"), &env.receiver.path("tree"));
    assert_eq!(links(&summary), ["127.0.0.1", "lo"]);
}

/// It may come later, so the configuration may name it.
fn a_link_that_is_not_there_brings_nothing() {
    let env = TestEnvironment::new();
    file(&env.sender.path("file"), 1, 4 << 20);
    let mut share = share(&env, "file");
    env.receiver.configure("bind = [\"towpath9\", \"lo\"]\n");
    let summary = env.receiver.get(&share.ticket(), "file").end().summary();
    assert_same_bytes(&env.sender.path("file"), &env.receiver.path("file"));
    assert_eq!(links(&summary), ["lo"]);
}

fn what_is_no_link_of_this_machine_is_said() {
    let env = TestEnvironment::new();
    file(&env.sender.path("file"), 1, 1 << 20);
    let mut share = share(&env, "file");
    let ticket = share.ticket();
    for (link, problem) in [
        ("towpath9", "this machine has no interface or address 'towpath9' now"),
        ("192.0.2.7", "this machine has no interface or address '192.0.2.7' now"),
        ("no link", "'no link' is neither an address nor the name of an interface"),
    ] {
        let ended = env.receiver.tow(["get", "--bind", link, &ticket, "-o", "file"]).end();
        assert!(ended.with(2).err.contains(problem), "{link}");
        assert!(!env.receiver.path("file").exists());
    }
}
