//! Who fetched something serves others by the same ticket: files and trees, while they come and afterwards, with and without
//! their issuer.

use std::fs;
use std::path::Path;

use crate::environment::{LOOPBACK, Machine, Running, Summary, TestEnvironment};
use crate::runner::situations;
use crate::trees::{assert_same, assert_same_bytes, file};

situations![
    a_file_comes_from_a_holder_when_its_issuer_is_gone,
    a_tree_comes_from_a_holder_when_its_issuer_is_gone,
    what_two_have_comes_from_both,
    what_has_come_is_passed_on_while_the_rest_comes,
    nearly_all_comes_from_a_holder_whose_old_version_changed_all_over,
    another_secret_opens_nothing_at_a_holder,
    only_what_is_whole_is_passed_on,
    what_failed_is_not_served_from_elsewhere,
];

/// Gets what `ticket` names, and stays.
fn stay(machine: &Machine, ticket: &str, destination: &str) -> Running {
    stay_with(machine, ticket, destination, &[])
}

fn stay_with(machine: &Machine, ticket: &str, destination: &str, words: &[&str]) -> Running {
    let fixed = ["get", "--json", "--stay", "--listen", LOOPBACK, ticket, "-o", destination];
    machine.tow(fixed.iter().chain(words)).start()
}

/// The ticket that a holder prints, once it has all.
fn holding(running: &mut Running) -> String {
    let ticket = running.ticket();
    running.wait_until("has all", |running| {
        String::from_utf8_lossy(&running.output()).contains(r#""event":"summary""#).then_some(())
    });
    ticket
}

/// Bytes by the node that they came from.
pub fn by_peer(summary: &Summary) -> Vec<(String, u64)> {
    let peers = summary.sources().filter(|source| source["kind"] == "peer");
    peers.map(|peer| (peer["node"].as_str().unwrap().into(), peer["bytes"].as_u64().unwrap())).collect()
}

fn a_file_comes_from_a_holder_when_its_issuer_is_gone() {
    let env = TestEnvironment::new();
    // One that is named by its content, and one whose name is live at first.
    for (number, size) in [(1, 3 << 20), (2, 70 << 20)] {
        let name = format!("file {number}");
        file(&env.sender.path(&name), number, size);
        let mut share = env.sender.share(&name);
        let mut holder = stay(&env.receiver, &share.ticket(), &name);
        let ticket = holding(&mut holder);
        share.kill();
        env.stranger.get(&ticket, &name).end().summary();
        assert_same_bytes(&env.sender.path(&name), &env.stranger.path(&name));
    }
}

fn a_tree_comes_from_a_holder_when_its_issuer_is_gone() {
    let env = TestEnvironment::new();
    for folder in 0..7 {
        fs::create_dir_all(env.sender.path(format!("tree/{folder}"))).unwrap();
    }
    for number in 0..300 {
        file(&env.sender.path(format!("tree/{}/{number}", number % 7)), number, 100 * number);
    }
    file(&env.sender.path("tree/large"), 1000, 9 << 20);
    let mut share = env.sender.share("tree");
    let mut holder = stay(&env.receiver, &share.ticket(), "tree");
    let ticket = holding(&mut holder);
    share.kill();
    env.stranger.get(&ticket, "tree").end().summary();
    assert_same(&env.sender.path("tree"), &env.stranger.path("tree"));
}

fn what_two_have_comes_from_both() {
    let env = TestEnvironment::new();
    file(&env.sender.path("file"), 1, 64 << 20);
    let mut share = env.sender.tow(["share", "--listen", LOOPBACK, "--limit-rate", "20M", "file"]).start();
    // As slow as the other one: else it may have brought all before that one came to it.
    let mut holder = stay_with(&env.receiver, &share.ticket(), "file", &["--upload-rate", "20M"]);
    let ticket = holding(&mut holder);
    let summary = env.stranger.get(&ticket, "file").end().summary();
    assert_same_bytes(&env.sender.path("file"), &env.stranger.path("file"));
    let brought = by_peer(&summary);
    assert_eq!(brought.len(), 2, "{brought:?}");
    assert!(brought.iter().all(|(_, bytes)| *bytes > 4 << 20), "{brought:?}");
}

fn what_has_come_is_passed_on_while_the_rest_comes() {
    let env = TestEnvironment::new();
    file(&env.sender.path("file"), 1, 24 << 20);
    let mut share = env.sender.tow(["share", "--listen", LOOPBACK, "--limit-rate", "4M", "file"]).start();
    let mut holder = stay(&env.receiver, &share.ticket(), "file");
    let ticket = holder.ticket();
    holder.wait_for_bytes(8 << 20);
    let summary = env.stranger.get(&ticket, "file").end().summary();
    assert_same_bytes(&env.sender.path("file"), &env.stranger.path("file"));
    let brought = by_peer(&summary);
    assert_eq!(brought.len(), 2, "{brought:?}");
    holding(&mut holder);
    assert_same_bytes(&env.sender.path("file"), &env.receiver.path("file"));
}

/// The pair of dsync's Figure 4 (§7.2.3): a slow sender, one receiver that has nine tenths of the file's chunks on its disk, and one
/// that has nothing. There is a change in each piece, so at first the one that has them can pass on none.
fn nearly_all_comes_from_a_holder_whose_old_version_changed_all_over() {
    let env = TestEnvironment::new();
    let size = 16 << 20;
    file(&env.sender.path("file"), 1, size);
    let mut old = fs::read(env.sender.path("file")).unwrap();
    old.chunks_mut(1 << 18).for_each(|piece| piece[1000..1500].fill(7));
    fs::create_dir(env.receiver.path("old")).unwrap();
    fs::write(env.receiver.path("old/version"), &old).unwrap();
    let words = ["share", "--listen", LOOPBACK, "--limit-rate", "400K", "file"];
    let mut share = env.sender.tow(words).start();
    let mut holder = stay_with(&env.receiver, &share.ticket(), "file", &["--search", "old"]);
    let ticket = holder.ticket();
    holder.wait_for_bytes(size * 8 / 10);
    let issuer = share.ticket().parse::<towpath_content::Ticket>().unwrap().node.to_string();
    let get = ["get", "--json", "--no-search", &ticket, "-o", "file"];
    let summary = env.stranger.tow(get).end().summary();
    assert_same_bytes(&env.sender.path("file"), &env.stranger.path("file"));
    let brought = by_peer(&summary);
    let from_holder: u64 = brought.iter().filter(|(node, _)| *node != issuer).map(|(_, bytes)| bytes).sum();
    assert!(from_holder * 10 >= size * 8, "{brought:?}");
}

fn another_secret_opens_nothing_at_a_holder() {
    let env = TestEnvironment::new();
    file(&env.sender.path("file"), 1, 2 << 20);
    let mut share = env.sender.share("file");
    let mut holder = stay(&env.receiver, &share.ticket(), "file");
    let right: towpath_content::Ticket = holding(&mut holder).parse().unwrap();
    share.kill();
    let node = right.hints.iter().find(|hint| hint.rest().contains('@')).unwrap().clone();
    let wrong = towpath_content::Ticket {
        secret: towpath_content::ticket::Secret([7; 16]),
        hints: vec![node],
        ..right
    };
    let refused = env.stranger.tow(["get", "--timeout", "3", &wrong.to_string(), "-o", "file"]).end();
    assert_ne!(refused.code(), 0);
    assert!(!Path::new(&env.stranger.path("file")).exists());
    assert!(fs::read_dir(env.stranger.path("")).unwrap().next().is_none(), "nothing is left");
}

fn only_what_is_whole_is_passed_on() {
    let env = TestEnvironment::new();
    fs::create_dir(env.sender.path("tree")).unwrap();
    file(&env.sender.path("tree/a"), 1, 1 << 20);
    let ticket = env.sender.share("tree").ticket();
    let refused = env.receiver.tow(["get", "--stay", &ticket, "a"]).end().with(2);
    assert!(refused.err.contains("only what is fetched whole is passed on"), "{}", refused.err);
    let refused = env.receiver.tow(["get", "--stay", "blake3:00"]).end().with(2);
    assert!(refused.err.contains("only what came by a ticket is passed on"), "{}", refused.err);
}

/// A tree's maker may name, by its hash, what the receiver has and never sent anywhere.
fn what_failed_is_not_served_from_elsewhere() {
    let env = TestEnvironment::new();
    fs::create_dir_all(env.sender.path("tree")).unwrap();
    for (name, seed) in [("kept", 1), ("private", 2)] {
        file(&env.sender.path("tree").join(name), seed, 300_000);
    }
    fs::create_dir_all(env.receiver.path("own")).unwrap();
    file(&env.receiver.path("own/private"), 2, 300_000);
    env.receiver.tow(["index", "own"]).end().with(0);
    let mut share = env.sender.share("tree");
    let ticket = share.ticket();
    // Who has all of it knows that the sender has read all.
    env.machine("other").get(&ticket, "tree").end().summary();
    file(&env.sender.path("tree/private"), 3, 200_000);
    let mut holder = stay(&env.receiver, &ticket, "tree");
    let longer = holding(&mut holder);
    assert!(!env.receiver.path("tree/private").exists(), "its sender does not have it any more");
    let stranger = env.stranger.get(&longer, "tree").end().summary_with(3);
    assert_same_bytes(&env.sender.path("tree/kept"), &env.stranger.path("tree/kept"));
    assert!(!env.stranger.path("tree/private").exists(), "{:?}", by_peer(&stranger));
    assert!(holder.runs(), "it serves what came");
}
