//! A plain get serves others while it runs, by the ticket that they all have: its issuer tells them of each other.

use std::fs;
use std::io::{Write, pipe};

use crate::environment::{LOOPBACK, Running, TestEnvironment};
use crate::holders::by_peer;
use crate::runner::situations;
use crate::trees::{PIECE, assert_same, assert_same_bytes, bytes, file};

situations![
    who_comes_later_gets_part_of_it_from_who_came_first,
    who_comes_later_gets_half_of_a_tree_from_who_came_first,
    who_comes_later_gets_small_files_from_who_came_first,
    who_comes_later_gets_part_of_what_its_sender_still_reads,
    who_comes_later_gets_part_of_a_large_file,
    who_may_not_or_will_not_serve_serves_nobody,
    who_drew_on_a_get_that_is_over_goes_on_without_it,
    a_daemon_serves_what_it_gets_while_it_gets_it,
];

const SIZE: u64 = 12 << 20;

/// A sender with a slow line.
fn slow_share(env: &TestEnvironment, words: &[&str]) -> Running {
    file(&env.sender.path("file"), 1, SIZE);
    let fixed = ["share", "--listen", LOOPBACK, "--limit-rate", "3M"];
    env.sender.tow(fixed.iter().chain(words).chain(&["file"])).start()
}

/// Bytes that came from another node than the ticket's.
fn from_others(ticket: &str, brought: &[(String, u64)]) -> u64 {
    let issuer = ticket.parse::<towpath_content::Ticket>().unwrap().node.to_string();
    brought.iter().filter(|(node, _)| *node != issuer).map(|(_, bytes)| bytes).sum()
}

fn who_comes_later_gets_part_of_it_from_who_came_first() {
    // On a slow line a short file is worth it, too.
    for (size, rate) in [(2 * SIZE, "3M"), (2 << 20, "200k")] {
        let env = TestEnvironment::new();
        file(&env.sender.path("file"), 1, size);
        let fixed = ["share", "--listen", LOOPBACK, "--limit-rate", rate, "file"];
        let mut share = env.sender.tow(fixed).start();
        let ticket = share.ticket();
        let mut first = env.receiver.get(&ticket, "file").start();
        first.wait_for_bytes(size / 2);
        let later = by_peer(&env.stranger.get(&ticket, "file").end().summary());
        let first = first.end().summary();
        for machine in [&env.receiver, &env.stranger] {
            assert_same_bytes(&env.sender.path("file"), &machine.path("file"));
        }
        let lent = from_others(&ticket, &later);
        eprintln!("of {size} bytes of a file {lent} came from who came first");
        assert!(lent >= size / 4, "{later:?}");
        assert!(lent <= first.fetched(), "no more than it took");
    }
}

/// Folders with small and large files, of some `size` bytes.
fn folder(env: &TestEnvironment, size: u64) {
    for number in 0..40 {
        fs::create_dir_all(env.sender.path(format!("tree/{}", number % 7))).unwrap();
        file(&env.sender.path(format!("tree/{}/small {number}", number % 7)), number, 700 * number);
    }
    for number in 0..6 {
        file(&env.sender.path(format!("tree/{number}/large")), 100 + number, size / 6);
    }
}

fn who_comes_later_gets_half_of_a_tree_from_who_came_first() {
    let env = TestEnvironment::new();
    folder(&env, 2 * SIZE);
    let fixed = ["share", "--listen", LOOPBACK, "--limit-rate", "3M", "tree"];
    let mut share = env.sender.tow(fixed).start();
    let ticket = share.ticket();
    let mut first = env.receiver.get(&ticket, "tree").start();
    first.wait_for_bytes(SIZE);
    let later = by_peer(&env.stranger.get(&ticket, "tree").end().summary());
    let first = first.end().summary();
    for machine in [&env.receiver, &env.stranger] {
        assert_same(&env.sender.path("tree"), &machine.path("tree"));
    }
    let lent = from_others(&ticket, &later);
    eprintln!("of {} bytes of a tree {lent} came from who came first", 2 * SIZE);
    assert!(lent >= SIZE / 4, "{later:?}");
    assert!(lent <= first.fetched(), "no more than it took");
}

fn who_comes_later_gets_small_files_from_who_came_first() {
    let env = TestEnvironment::new();
    for folder in 0..20 {
        fs::create_dir_all(env.sender.path(format!("tree/{folder}"))).unwrap();
        for number in 0..150 {
            // The bytes of those up to 1 KiB are in the list of files.
            let (seed, size) = (folder * 1000 + number, 200 + 6 * number);
            file(&env.sender.path(format!("tree/{folder}/{number}")), seed, size);
        }
    }
    let fixed = ["share", "--listen", LOOPBACK, "--limit-rate", "400k", "tree"];
    let mut share = env.sender.tow(fixed).start();
    let ticket = share.ticket();
    let mut first = env.receiver.get(&ticket, "tree").start();
    first.wait_for_bytes(800_000);
    let later = env.stranger.get(&ticket, "tree").end().summary();
    first.end().summary();
    for machine in [&env.receiver, &env.stranger] {
        assert_same(&env.sender.path("tree"), &machine.path("tree"));
    }
    let lent = from_others(&ticket, &by_peer(&later));
    eprintln!("of {} bytes of small files {lent} came from who came first", later.fetched());
    assert!(lent >= 250_000, "{:?}", by_peer(&later));
}

fn who_comes_later_gets_part_of_what_its_sender_still_reads() {
    let env = TestEnvironment::new();
    let (reader, mut producer) = pipe().unwrap();
    let mut put = env.sender.tow(["put", "-", "--listen", LOOPBACK]).input(reader).start();
    let (ticket, all) = (put.ticket(), bytes(1, SIZE));
    let (front, rest) = all.split_at((SIZE - PIECE) as usize);
    producer.write_all(front).unwrap();
    let mut first = env.receiver.get(&ticket, "file").start();
    first.wait_for_bytes(SIZE - 2 * PIECE);
    let mut later = env.stranger.get_slowly(&ticket, "file", "2M").start();
    later.wait_for_bytes(SIZE - 2 * PIECE);
    // Only now it can be known what it becomes.
    producer.write_all(rest).unwrap();
    drop(producer);
    let later = by_peer(&later.end().summary());
    first.end().summary();
    for machine in [&env.receiver, &env.stranger] {
        assert!(fs::read(machine.path("file")).unwrap() == all);
    }
    let lent = from_others(&ticket, &later);
    eprintln!("of {SIZE} bytes that were still read {lent} came from who came first");
    // Each of the two alone fills its limit, so a busy machine may find that the other one adds little.
    assert!(lent > 0, "{later:?}");
}

fn who_comes_later_gets_part_of_a_large_file() {
    let env = TestEnvironment::new();
    // Its ticket names what its sender reads, whose content is not known yet.
    let size = 6 * SIZE;
    file(&env.sender.path("file"), 1, size);
    let mut share = env.sender.tow(["share", "--listen", LOOPBACK, "--limit-rate", "15M", "file"]).start();
    let ticket = share.ticket();
    let mut first = env.receiver.get(&ticket, "file").start();
    first.wait_for_bytes(size / 3);
    let later = by_peer(&env.stranger.get(&ticket, "file").end().summary());
    first.end().summary();
    assert_same_bytes(&env.sender.path("file"), &env.stranger.path("file"));
    let lent = from_others(&ticket, &later);
    eprintln!("of {size} bytes of a large file {lent} came from who came first");
    assert!(lent >= size / 8, "{later:?}");
}

fn who_may_not_or_will_not_serve_serves_nobody() {
    let off = "[sharing]\nwhile_getting = \"off\"\n";
    for (share, get, config) in
        [(&["--no-swarm"][..], &[][..], ""), (&[], &["--no-upload"], ""), (&[], &[], off)]
    {
        let env = TestEnvironment::new();
        let mut share = slow_share(&env, share);
        let ticket = share.ticket();
        env.receiver.configure(config);
        let fixed = ["get", "--json", "--no-search", &ticket, "-o", "file"];
        let mut first = env.receiver.tow(fixed.iter().chain(get)).start();
        first.wait_for_bytes(SIZE / 2);
        let later = by_peer(&env.stranger.get(&ticket, "file").end().summary());
        first.end().summary();
        assert_eq!(from_others(&ticket, &later), 0, "{get:?} {config:?}");
    }
}

fn who_drew_on_a_get_that_is_over_goes_on_without_it() {
    for is_killed in [false, true] {
        let env = TestEnvironment::new();
        let mut share = slow_share(&env, &[]);
        let ticket = share.ticket();
        let mut first = env.receiver.get(&ticket, "file").start();
        first.wait_for_bytes(SIZE / 3);
        // It takes longer than what is left of the first one.
        let mut later = env.stranger.get_slowly(&ticket, "file", "2M").start();
        later.wait_for_bytes(SIZE / 5);
        match is_killed {
            true => first.kill(),
            false => drop(first.end().summary()),
        }
        let later = by_peer(&later.end().summary());
        assert_same_bytes(&env.sender.path("file"), &env.stranger.path("file"));
        assert!(from_others(&ticket, &later) > 0, "{later:?}");
    }
}

fn a_daemon_serves_what_it_gets_while_it_gets_it() {
    let env = TestEnvironment::new();
    let mut share = slow_share(&env, &[]);
    let ticket = share.ticket();
    let _daemon = env.receiver.daemon_with(&format!("listen = [\"{LOOPBACK}\"]\n"));
    let mut first = env.receiver.get(&ticket, "file").start();
    first.wait_for_bytes(SIZE / 3);
    let mut later = env.stranger.get_slowly(&ticket, "file", "2M").start();
    later.wait_for_bytes(SIZE / 5);
    first.end().summary();
    let later = by_peer(&later.end().summary());
    assert_same_bytes(&env.sender.path("file"), &env.stranger.path("file"));
    let lent = from_others(&ticket, &later);
    assert!(lent > 0 && lent < SIZE, "it serves no more when it has all: {later:?}");
}
