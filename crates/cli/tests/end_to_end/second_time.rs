//! Content that is on this machine already does not cross the network again.

use std::fs;

use crate::environment::TestEnvironment;
use crate::runner::situations;
use crate::trees::{assert_same, bytes, file};

situations![
    of_a_changed_tree_only_new_bytes_come_from_the_peer,
    the_same_file_to_another_place_comes_from_this_machine,
    a_copy_that_was_changed_here_is_not_taken_for_what_it_was,
    a_sender_does_not_learn_what_came_from_another,
    a_refused_destination_does_not_become_the_senders,
];

const EACH: u64 = 300_000;

fn of_a_changed_tree_only_new_bytes_come_from_the_peer() {
    let env = TestEnvironment::new();
    let tree = env.sender.path("tree");
    fs::create_dir_all(tree.join("sub")).unwrap();
    for number in 0..10 {
        file(&tree.join(format!("sub/{number}")), number, EACH);
    }
    let mut share = env.sender.share(&tree);
    let first_ticket = share.ticket();
    env.receiver.get(&first_ticket, "first").end().summary();
    share.interrupt();
    share.end().with(130);

    fs::rename(tree.join("sub/1"), tree.join("renamed")).unwrap();
    fs::remove_file(tree.join("sub/2")).unwrap();
    file(&tree.join("sub/3"), 1003, EACH);
    file(&tree.join("added"), 1004, EACH);
    let mut share = env.sender.share(&tree);
    assert_ne!(share.ticket(), first_ticket, "another tree has another ticket");
    let summary = env.receiver.get(&share.ticket(), "second").end().summary();
    assert_same(&tree, &env.receiver.path("second"));
    assert_eq!(summary.from("this machine"), 8 * EACH, "{}", summary.0);
    let fetched = summary.fetched();
    assert!((2 * EACH..2 * EACH + (64 << 10)).contains(&fetched), "{fetched}: {}", summary.0);
}

fn the_same_file_to_another_place_comes_from_this_machine() {
    let env = TestEnvironment::new();
    let source = env.sender.path("file");
    file(&source, 1, 3 << 20);
    let mut share = env.sender.share(&source);
    let ticket = share.ticket();
    env.receiver.get(&ticket, "first").end().summary();
    let summary = env.receiver.get(&ticket, "second").end().summary();
    assert_same(&source, &env.receiver.path("second"));
    assert_eq!((summary.from("this machine"), summary.fetched()), (3 << 20, 0), "{}", summary.0);
}

fn a_copy_that_was_changed_here_is_not_taken_for_what_it_was() {
    let env = TestEnvironment::new();
    let source = env.sender.path("file");
    file(&source, 1, 1 << 20);
    let mut share = env.sender.share(&source);
    let ticket = share.ticket();
    env.receiver.get(&ticket, "first").end().summary();
    fs::write(env.receiver.path("first"), bytes(99, 1 << 20)).unwrap();
    let summary = env.receiver.get(&ticket, "second").end().summary();
    assert_same(&source, &env.receiver.path("second"));
    assert_eq!(summary.fetched(), 1 << 20, "{}", summary.0);
}

/// The same file on two machines that do not know of each other; the receiver has it from one.
fn same_file_from_two(env: &TestEnvironment) {
    let sources = [env.sender.path("file"), env.stranger.path("file")];
    sources.iter().for_each(|source| file(source, 1, 1 << 20));
    let mut share = env.sender.share(&sources[0]);
    env.receiver.get(&share.ticket(), "first").end().summary();
}

/// Bytes that are not requested from it would tell a sender what lies here.
fn a_sender_does_not_learn_what_came_from_another() {
    let env = TestEnvironment::new();
    same_file_from_two(&env);
    let mut share = env.stranger.share("file");
    let summary = env.receiver.get(&share.ticket(), "second").end().summary();
    assert_eq!((summary.from("this machine"), summary.fetched()), (0, 1 << 20), "{}", summary.0);
    // Unless its user says so.
    let words = ["get", "--json", "--reuse", &share.ticket(), "-o", "third"];
    let summary = env.receiver.tow(words).end().summary();
    assert_eq!((summary.from("this machine"), summary.fetched()), (1 << 20, 0), "{}", summary.0);
    assert_same(&env.stranger.path("file"), &env.receiver.path("third"));
}

fn a_refused_destination_does_not_become_the_senders() {
    let env = TestEnvironment::new();
    same_file_from_two(&env);
    file(&env.stranger.path("another"), 2, 1000);
    let mut another = env.stranger.share("another");
    assert_eq!(env.receiver.get(&another.ticket(), "first").end().failure()["kind"], "exists");
    let mut share = env.stranger.share("file");
    let summary = env.receiver.get(&share.ticket(), "second").end().summary();
    assert_eq!((summary.from("this machine"), summary.fetched()), (0, 1 << 20), "{}", summary.0);
}
