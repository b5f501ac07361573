//! Either side killed at any time; the same command goes on, and only what is missing crosses
//! the network.

use std::fs;
use std::path::PathBuf;

use crate::environment::{Running, Summary, TestEnvironment};
use crate::runner::situations;
use crate::trees::{assert_same, dress, file, names, size};

situations![
    the_receiver_of_a_file_is_killed,
    the_receiver_of_small_files_is_killed,
    the_receiver_of_a_tree_with_a_big_file_is_killed,
    the_receiver_of_a_live_file_is_killed,
    the_receiver_of_a_file_is_interrupted,
    the_receiver_of_a_tree_is_interrupted,
    the_sender_of_a_file_is_killed_and_comes_back_while_the_receiver_waits,
    the_sender_of_small_files_is_killed_and_comes_back_while_the_receiver_waits,
    the_sender_of_a_tree_with_a_big_file_is_killed_and_comes_back_while_the_receiver_waits,
    the_sender_of_a_live_file_is_killed_and_comes_back_while_the_receiver_waits,
    both_are_killed_and_started_again,
    a_sender_killed_while_it_hashes_comes_back_with_the_same_ticket,
    a_get_through_the_daemon_is_interrupted,
    the_receiving_daemon_is_killed,
    a_sender_interrupted_ends_with_130,
    two_gets_to_one_destination_do_not_mix,
    a_destination_that_appears_meanwhile_is_kept_and_nothing_else_is_left,
];

/// File or tree to send, its bytes, and a rate at which it takes some seconds.
struct Load {
    source: PathBuf,
    size: u64,
    rate: &'static str,
}

fn big_file(env: &TestEnvironment) -> Load {
    let source = env.sender.path("big");
    file(&source, 1, 12 << 20);
    dress(&source, 0o640, 7);
    Load { source, size: 12 << 20, rate: "4M" }
}

fn live_file(env: &TestEnvironment) -> Load {
    let source = env.sender.path("live");
    file(&source, 2, 66 << 20);
    dress(&source, 0o640, 7);
    Load { source, size: 66 << 20, rate: "22M" }
}

fn small_files(env: &TestEnvironment) -> Load {
    let source = env.sender.path("small");
    for number in 0..800 {
        let folder = source.join((number / 80).to_string());
        fs::create_dir_all(&folder).unwrap();
        file(&folder.join(number.to_string()), 1000 + number, 9000 + number);
    }
    Load { size: size(&source), source, rate: "1M" }
}

fn tree_with_a_big_file(env: &TestEnvironment) -> Load {
    let source = env.sender.path("tree");
    fs::create_dir_all(&source).unwrap();
    file(&source.join("a small one"), 3, 3000);
    file(&source.join("the big one"), 4, 12 << 20);
    Load { size: size(&source), source, rate: "4M" }
}

impl Load {
    fn share(&self, env: &TestEnvironment) -> Running {
        env.sender.share(&self.source)
    }

    /// A get that is right in the middle.
    fn half(&self, env: &TestEnvironment, ticket: &str) -> Running {
        let mut get = env.receiver.get_slowly(ticket, "copy", self.rate).start();
        get.wait_for_bytes(self.size * 3 / 5);
        get
    }

    /// The same get again. A limit keeps the network from bringing all of it before what is on
    /// disk has been compared, as it may on a busy machine.
    fn go_on(&self, env: &TestEnvironment, ticket: &str) -> Summary {
        env.receiver.get_slowly(ticket, "copy", self.rate).end().summary()
    }

    fn assert_arrived(&self, env: &TestEnvironment) {
        assert_same(&self.source, &env.receiver.path("copy"));
        assert_eq!(names(&env.receiver.path("")), ["copy"], "a temporary is left");
        let left: Vec<_> = names(&env.receiver.home("state/resume"));
        assert!(left.is_empty(), "resume records are left: {left:?}");
    }

    /// All of it was kept or fetched, and nothing twice. A tree's descriptor counts as well.
    fn assert_sum(&self, summary: &Summary) {
        let sum = summary.number("kept") + summary.fetched() + summary.number("zeros");
        let descriptor = if self.source.is_dir() { 256 << 10 } else { 0 };
        assert!((self.size..=self.size + descriptor).contains(&sum), "{sum} of {}: {}", self.size, summary.0);
    }

    fn assert_kept(&self, summary: &Summary) {
        assert!(summary.number("kept") > self.size / 5, "too little was kept: {}", summary.0);
        self.assert_sum(summary);
    }
}

fn kill_the_receiver(load: fn(&TestEnvironment) -> Load) {
    let env = TestEnvironment::new();
    let load = load(&env);
    let mut share = load.share(&env);
    let ticket = share.ticket();
    load.half(&env, &ticket).kill();
    assert!(!env.receiver.path("copy").is_file(), "it has its final name before it is complete");
    let summary = load.go_on(&env, &ticket);
    load.assert_arrived(&env);
    load.assert_kept(&summary);
}

fn the_receiver_of_a_file_is_killed() {
    kill_the_receiver(big_file);
}

fn the_receiver_of_small_files_is_killed() {
    kill_the_receiver(small_files);
}

fn the_receiver_of_a_tree_with_a_big_file_is_killed() {
    kill_the_receiver(tree_with_a_big_file);
}

fn the_receiver_of_a_live_file_is_killed() {
    kill_the_receiver(live_file);
}

fn interrupt_the_receiver(load: fn(&TestEnvironment) -> Load) {
    let env = TestEnvironment::new();
    let load = load(&env);
    let mut share = load.share(&env);
    let ticket = share.ticket();
    let get = load.half(&env, &ticket);
    get.interrupt();
    let last = get.end().with(130).events().pop().unwrap();
    assert_eq!((&last["event"], &last["kind"]), (&"failed".into(), &"interrupted".into()), "{last}");
    let summary = load.go_on(&env, &ticket);
    load.assert_arrived(&env);
    load.assert_kept(&summary);
}

fn the_receiver_of_a_file_is_interrupted() {
    interrupt_the_receiver(big_file);
}

fn the_receiver_of_a_tree_is_interrupted() {
    interrupt_the_receiver(small_files);
}

fn kill_the_sender(load: fn(&TestEnvironment) -> Load) {
    let env = TestEnvironment::new();
    let load = load(&env);
    let mut share = load.share(&env);
    let ticket = share.ticket();
    let get = load.half(&env, &ticket);
    share.kill();
    let mut share = load.share(&env);
    assert_eq!(share.ticket(), ticket, "the same command gives the same ticket");
    let summary = get.end().summary();
    load.assert_arrived(&env);
    load.assert_sum(&summary);
}

fn the_sender_of_a_file_is_killed_and_comes_back_while_the_receiver_waits() {
    kill_the_sender(big_file);
}

fn the_sender_of_small_files_is_killed_and_comes_back_while_the_receiver_waits() {
    kill_the_sender(small_files);
}

fn the_sender_of_a_tree_with_a_big_file_is_killed_and_comes_back_while_the_receiver_waits() {
    kill_the_sender(tree_with_a_big_file);
}

fn the_sender_of_a_live_file_is_killed_and_comes_back_while_the_receiver_waits() {
    kill_the_sender(live_file);
}

fn both_are_killed_and_started_again() {
    let env = TestEnvironment::new();
    for load in [big_file(&env), tree_with_a_big_file(&env), live_file(&env)] {
        let mut share = load.share(&env);
        let ticket = share.ticket();
        let get = load.half(&env, &ticket);
        share.kill();
        get.kill();
        let mut share = load.share(&env);
        assert_eq!(share.ticket(), ticket, "the same command gives the same ticket");
        let summary = load.go_on(&env, &ticket);
        load.assert_arrived(&env);
        load.assert_kept(&summary);
        let copy = env.receiver.path("copy");
        if copy.is_dir() { fs::remove_dir_all(copy) } else { fs::remove_file(copy) }.unwrap();
    }
}

fn a_sender_killed_while_it_hashes_comes_back_with_the_same_ticket() {
    let env = TestEnvironment::new();
    let load = live_file(&env);
    let mut share = load.share(&env);
    let ticket = share.ticket();
    share.kill();
    let mut share = load.share(&env);
    assert_eq!(share.ticket(), ticket);
    let summary = env.receiver.get(&ticket, "copy").end().summary();
    load.assert_arrived(&env);
    load.assert_sum(&summary);
}

fn a_get_through_the_daemon_is_interrupted() {
    let env = TestEnvironment::new();
    let _daemon = env.receiver.daemon();
    for load in [big_file(&env), small_files(&env), tree_with_a_big_file(&env)] {
        let mut share = load.share(&env);
        let ticket = share.ticket();
        let get = load.half(&env, &ticket);
        get.interrupt();
        get.end().with(130);
        let summary = load.go_on(&env, &ticket);
        load.assert_arrived(&env);
        load.assert_kept(&summary);
        let copy = env.receiver.path("copy");
        if copy.is_dir() { fs::remove_dir_all(copy) } else { fs::remove_file(copy) }.unwrap();
    }
}

fn the_receiving_daemon_is_killed() {
    let env = TestEnvironment::new();
    let daemon = env.receiver.daemon();
    let load = tree_with_a_big_file(&env);
    let mut share = load.share(&env);
    let ticket = share.ticket();
    let get = load.half(&env, &ticket);
    daemon.kill();
    let failure = get.end().failure();
    assert_eq!(failure["kind"], "unreachable", "{failure}");
    assert!(failure["message"].as_str().unwrap().contains("daemon"), "{failure}");
    let summary = load.go_on(&env, &ticket);
    load.assert_arrived(&env);
    load.assert_kept(&summary);
}

fn a_destination_that_appears_meanwhile_is_kept_and_nothing_else_is_left() {
    let env = TestEnvironment::new();
    let load = big_file(&env);
    let mut share = load.share(&env);
    let ticket = share.ticket();
    let get = load.half(&env, &ticket);
    fs::copy(&load.source, env.receiver.path("copy")).unwrap();
    dress(&env.receiver.path("copy"), 0o640, 7);
    // It is what was asked for, so nothing is left to do but to clean up.
    get.end().summary();
    load.assert_arrived(&env);
    // Anything else stays, and what came is kept until that is removed.
    fs::remove_file(env.receiver.path("copy")).unwrap();
    let env = TestEnvironment::new();
    let load = big_file(&env);
    let mut share = load.share(&env);
    let ticket = share.ticket();
    let get = load.half(&env, &ticket);
    fs::write(env.receiver.path("copy"), "other").unwrap();
    assert_eq!(get.end().failure()["kind"], "exists");
    assert_eq!(fs::read(env.receiver.path("copy")).unwrap(), b"other");
    fs::remove_file(env.receiver.path("copy")).unwrap();
    let summary = env.receiver.get(&ticket, "copy").end().summary();
    assert!(summary.fetched() == 0, "all of it was here: {}", summary.0);
    load.assert_arrived(&env);
}

fn a_sender_interrupted_ends_with_130() {
    let env = TestEnvironment::new();
    let load = big_file(&env);
    let mut share = load.share(&env);
    share.ticket();
    share.interrupt();
    let ended = share.end().with(130);
    assert!(ended.err.contains("interrupted"), "{}", ended.err);
}

fn two_gets_to_one_destination_do_not_mix() {
    let env = TestEnvironment::new();
    let load = big_file(&env);
    let mut share = load.share(&env);
    let ticket = share.ticket();
    let mut first = env.receiver.get_slowly(&ticket, "copy", "1M").start();
    first.wait_for_bytes(1 << 20);
    let second = env.receiver.get(&ticket, "copy").end().failure();
    assert!(second["hint"].as_str().unwrap().contains("another tow"), "{second}");
    assert!(first.runs(), "the first goes on: {}", first.error_text());
    first.kill();
    env.receiver.get(&ticket, "copy").end().summary();
    load.assert_arrived(&env);
}
