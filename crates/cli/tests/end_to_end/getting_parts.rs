//! Entries of a ticket are told without their contents; a part of a tree costs only its own bytes.

use std::fs;
use std::path::Path;

use crate::environment::{Ended, Running, TestEnvironment};
use crate::runner::situations;
use crate::trees::{assert_same, bytes, dress, entries, file, names, symlink};

situations![
    a_list_tells_everything_and_fetches_no_contents,
    a_list_has_odd_names_escaped_for_people_and_as_they_are_for_programs,
    a_daemon_lists_as_well,
    a_single_files_ticket_lists_one_line,
    only_the_paths_that_are_asked_for_cross_the_network,
    a_path_goes_where_cp_would_put_it,
    a_path_that_is_not_in_the_tree_is_named,
    what_is_unclear_is_refused_before_anything_is_written,
    what_has_a_paths_place_is_not_overwritten,
    a_part_of_a_tree_that_was_interrupted_goes_on,
    what_filters_leave_out_is_not_fetched,
    a_file_has_no_paths_in_it,
];

const LARGE: u64 = 2 << 20;

/// `one` (large), `two` (large), `small`, `sub/{deep/{leaf,link},other}`.
fn shared_tree(env: &TestEnvironment) -> Running {
    let tree = env.sender.path("tree");
    fs::create_dir_all(tree.join("sub/deep")).unwrap();
    for (seed, name) in (1..).zip(["one", "two"]) {
        file(&tree.join(name), seed, LARGE);
    }
    for (seed, name) in (3..).zip(["small", "sub/other", "sub/deep/leaf"]) {
        file(&tree.join(name), seed, 3000);
        dress(&tree.join(name), 0o640, seed as u32);
    }
    symlink("leaf", &tree.join("sub/deep/link"));
    for name in ["sub/deep", "sub", ""] {
        dress(&tree.join(name), 0o755, 9);
    }
    env.sender.share(tree)
}

/// `tow get TICKET WORDS...`
fn get(env: &TestEnvironment, ticket: &str, words: &[&str]) -> Ended {
    env.receiver.tow(["get", "--json", ticket].iter().chain(words)).end()
}

fn listed(ended: &Ended) -> Vec<(String, String)> {
    let of = |event: &serde_json::Value, name: &str| event[name].as_str().unwrap().to_owned();
    let events = ended.events().into_iter().filter(|event| event["event"] == "entry");
    events.map(|event| (of(&event, "path"), of(&event, "kind"))).collect()
}

const ALL: [(&str, &str); 8] = [
    ("one", "file"),
    ("small", "file"),
    ("sub", "directory"),
    ("sub/deep", "directory"),
    ("sub/deep/leaf", "file"),
    ("sub/deep/link", "symlink"),
    ("sub/other", "file"),
    ("two", "file"),
];

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(path, kind)| (path.to_string(), kind.to_string())).collect()
}

fn a_list_tells_everything_and_fetches_no_contents() {
    let env = TestEnvironment::new();
    let mut share = shared_tree(&env);
    let ticket = share.ticket();
    let ended = get(&env, &ticket, &["--list"]);
    assert_eq!(listed(&ended), pairs(&ALL));
    let leaf = ended.events().into_iter().find(|event| event["path"] == "sub/deep/leaf").unwrap();
    assert_eq!((leaf["mode"].as_u64(), leaf["size"].as_u64()), (Some(0o640), Some(3000)));
    assert_eq!(leaf["modified"], serde_json::json!({ "seconds": 1_234_567_890, "nanos": 5 }));
    let summary = ended.summary();
    assert_eq!((summary.number("entries"), summary.number("bytes")), (8, 2 * LARGE + 9000));
    assert!(summary.fetched() < 4000, "only the descriptor: {}", summary.0);
    assert_eq!(names(&env.receiver.path("")), [""; 0], "nothing is written");
    // A part of it, with the paths that it has in the tree.
    let part = get(&env, &ticket, &["--list", "sub/deep", "small", "--exclude=link"]);
    let expected = [ALL[1], ALL[3], ALL[4]];
    assert_eq!(listed(&part), pairs(&expected));
    // No program reads the closing line for an entry.
    let text = env.receiver.tow(["get", "--list", &ticket]).end().with(0);
    assert_eq!(text.text().lines().count(), 8, "{}", text.text());
    assert!(
        text.text().contains("-rw-r-----          3000 2009-02-13 23:31:30 sub/deep/leaf\n"),
        "{}",
        text.text()
    );
    assert!(text.text().contains("sub/deep/\n") && text.text().contains("sub/deep/link -> leaf\n"));
    assert!(text.err.contains("tow: 8 entries, 4.01 MiB in files"), "{}", text.err);
}

fn a_list_has_odd_names_escaped_for_people_and_as_they_are_for_programs() {
    use std::os::unix::ffi::OsStrExt;
    let env = TestEnvironment::new();
    let tree = env.sender.path("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join(std::ffi::OsStr::from_bytes(b"a\x1b[2J\xff")), "x").unwrap();
    let mut share = env.sender.share(&tree);
    let ticket = share.ticket();
    let text = env.receiver.tow(["get", "--list", &ticket]).end().with(0).text();
    assert!(text.ends_with("a\\u{1b}[2J\\xff\n"), "{text}");
    let events = get(&env, &ticket, &["--list"]).events();
    assert_eq!(events[0]["path"], serde_json::json!(b"a\x1b[2J\xff"));
}

fn a_daemon_lists_as_well() {
    let env = TestEnvironment::new();
    let mut share = shared_tree(&env);
    let _daemon = env.receiver.daemon();
    let ended = get(&env, &share.ticket(), &["--list"]);
    assert_eq!(listed(&ended), pairs(&ALL));
    assert!(ended.summary().fetched() < 4000);
}

fn a_single_files_ticket_lists_one_line() {
    let env = TestEnvironment::new();
    // The smaller one is in its ticket.
    for (name, len) in [("little", 10), ("larger", 70_000)] {
        let path = env.sender.path(name);
        file(&path, 1, len);
        dress(&path, 0o604, 7);
        let mut share = env.sender.share(&path);
        let ended = env.receiver.tow(["get", "--list", &share.ticket()]).end().with(0);
        assert_eq!(ended.text(), format!("-rw----r-- {len:>13} 2009-02-13 23:31:30 {name}\n"));
        let summary = get(&env, &share.ticket(), &["--list"]).summary();
        assert_eq!((summary.number("entries"), summary.number("bytes"), summary.fetched()), (1, len, 0));
    }
    assert_eq!(names(&env.receiver.path("")), [""; 0]);
}

fn only_the_paths_that_are_asked_for_cross_the_network() {
    let env = TestEnvironment::new();
    let mut share = shared_tree(&env);
    let ticket = share.ticket();
    let summary = get(&env, &ticket, &["sub", "two", "--no-search"]).summary();
    assert!(summary.fetched() < LARGE + 20_000, "{}", summary.0);
    assert_eq!(names(&env.receiver.path("")), ["sub", "two"]);
    for name in ["sub", "two"] {
        assert_same(&env.sender.path("tree").join(name), &env.receiver.path(name));
    }
    // The same by a daemon, which has it already.
    let _daemon = env.receiver.daemon();
    let summary = get(&env, &ticket, &["sub/other", "-o", "again"]).summary();
    assert_same(&env.sender.path("tree/sub/other"), &env.receiver.path("again"));
    assert_eq!(summary.0["output"], env.receiver.path("again").to_str().unwrap());
}

fn a_path_goes_where_cp_would_put_it() {
    let env = TestEnvironment::new();
    let mut share = shared_tree(&env);
    let ticket = share.ticket();
    fs::create_dir(env.receiver.path("there")).unwrap();
    // The words, and where the first path ends up.
    for (words, place) in [
        (&["sub/deep"][..], "deep"),
        (&["./sub//deep/", "-o", "there"], "there/deep"),
        (&["sub/deep", "-o", "new"], "new"),
        // As with cp: it is a directory by now.
        (&["sub/deep", "-o", "new"], "new/deep"),
        (&["sub/deep/leaf", "-o", "there/file"], "there/file"),
        (&["sub/deep/leaf", "small", "-o", "there"], "there/leaf"),
    ] {
        get(&env, &ticket, words).summary();
        let source = env.sender.path("tree").join(words[0]);
        if place == "new" {
            assert_same(&source, &env.receiver.path(place));
        }
        let found = entries(&env.receiver.path(place));
        assert!(entries(&source).iter().all(|entry| found.contains(entry)), "{words:?}: {found:?}");
    }
    assert_eq!(names(&env.receiver.path("there")), ["deep", "file", "leaf", "small"]);
}

fn a_path_that_is_not_in_the_tree_is_named() {
    let env = TestEnvironment::new();
    let mut share = shared_tree(&env);
    let ticket = share.ticket();
    for words in [&["nothing/here", "small"][..], &["--list", "nothing/here", "small"]] {
        let ended = get(&env, &ticket, words);
        let failed: Vec<_> =
            ended.events().into_iter().filter(|event| event["event"] == "file_failed").collect();
        assert_eq!(failed.len(), 1, "{failed:?}");
        assert_eq!(
            (&failed[0]["path"], &failed[0]["error"]),
            (&"nothing/here".into(), &"it is not in the tree".into())
        );
        assert_eq!(ended.partial_summary().number("failed"), 1);
    }
    assert_eq!(names(&env.receiver.path("")), ["small"]);
    // As somebody would who thinks of scp.
    let failure = get(&env, &ticket, &["new"]).failure();
    assert_eq!(failure["kind"], "not_found");
    assert!(failure["hint"].as_str().unwrap().contains("-o DEST"), "{failure}");
}

fn what_is_unclear_is_refused_before_anything_is_written() {
    let env = TestEnvironment::new();
    let mut share = shared_tree(&env);
    let ticket = share.ticket();
    for (words, why) in [
        (&["sub", "sub/deep"][..], "lies in sub"),
        (&["sub/other", "other"], "would be other"),
        (&["."], "the tree itself"),
        (&["sub/../one"], "no path in a tree"),
        (&["one", "two", "-o", "new"], "no directory"),
        (&["--filter=: .rules"], "dir-merge"),
    ] {
        let ended = get(&env, &ticket, words).with(2);
        let failure =
            serde_json::from_str::<serde_json::Value>(ended.text().lines().last().unwrap()).unwrap();
        assert!(failure["message"].as_str().unwrap().contains(why), "{words:?}: {failure}");
    }
    let ended = get(&env, &ticket, &["small", "-o", "-"]).with(2);
    assert!(ended.out.is_empty() && ended.err.contains("whole file"), "{}", ended.err);
    assert_eq!(names(&env.receiver.path("")), [""; 0]);
}

fn what_has_a_paths_place_is_not_overwritten() {
    let env = TestEnvironment::new();
    let mut share = shared_tree(&env);
    let ticket = share.ticket();
    fs::create_dir(env.receiver.path("deep")).unwrap();
    fs::write(env.receiver.path("small"), "precious").unwrap();
    let failure = get(&env, &ticket, &["sub/deep", "one"]).failure();
    assert_eq!(failure["kind"], "exists", "{failure}");
    assert_eq!(names(&env.receiver.path("")), ["deep", "small"], "it was seen before anything was written");
    assert_eq!(names(&env.receiver.path("deep")), [""; 0]);
    get(&env, &ticket, &["small"]).failure();
    let some = get(&env, &ticket, &["small", "sub/other"]).partial_summary();
    assert_eq!((some.number("failed"), some.number("entries")), (1, 2));
    assert_eq!(fs::read_to_string(env.receiver.path("small")).unwrap(), "precious");
    // The same file again costs nothing.
    let again = get(&env, &ticket, &["sub/other"]).summary();
    assert_eq!((again.number("kept"), again.number("failed")), (3000, 0));
}

fn a_part_of_a_tree_that_was_interrupted_goes_on() {
    let env = TestEnvironment::new();
    let mut share = shared_tree(&env);
    let ticket = share.ticket();
    for words in [&["one", "sub", "-o", "."][..], &["sub", "-o", "new"]] {
        let slowly = ["get", "--json", "--no-search", "--limit-rate", "200K", &ticket];
        if words.contains(&"one") {
            let mut running = env.receiver.tow(slowly.iter().chain(words)).start();
            running.wait_for_bytes(400_000);
            running.kill();
        }
        let summary = get(&env, &ticket, words).summary();
        assert_eq!(summary.number("failed"), 0);
        assert!(!words.contains(&"one") || summary.number("kept") > 100_000, "{}", summary.0);
    }
    for (name, copy) in [("one", "one"), ("sub", "sub"), ("sub", "new")] {
        assert_same(&env.sender.path("tree").join(name), &env.receiver.path(copy));
    }
    assert_eq!(names(&env.receiver.path("")), ["new", "one", "sub"], "nothing else is left");
}

fn what_filters_leave_out_is_not_fetched() {
    let env = TestEnvironment::new();
    let mut share = shared_tree(&env);
    let ticket = share.ticket();
    fs::write(env.receiver.path("patterns"), "two\n# all links\nlink\n").unwrap();
    let summary = get(
        &env,
        &ticket,
        &["-o", "copy", "--exclude-from=patterns", "--include=/sub/other", "--exclude=/sub/o*"],
    )
    .summary();
    assert!(summary.fetched() < LARGE + 20_000, "{}", summary.0);
    let expected = ["", "one", "small", "sub", "sub/deep", "sub/deep/leaf", "sub/other"];
    assert_eq!(entries(&env.receiver.path("copy")), expected.map(|path| Path::new(path).to_path_buf()));
    // With a path the patterns begin where it goes.
    get(&env, &ticket, &["sub", "-o", "part", "--exclude=/sub/deep"]).summary();
    assert_eq!(names(&env.receiver.path("part")), ["other"]);
    assert_eq!(fs::read(env.receiver.path("part/other")).unwrap(), bytes(4, 3000));
}

fn a_file_has_no_paths_in_it() {
    let env = TestEnvironment::new();
    file(&env.sender.path("file"), 1, 70_000);
    let mut share = env.sender.share("file");
    let failure = get(&env, &share.ticket(), &["copy"]).failure_with(2);
    assert!(failure["message"].as_str().unwrap().contains("names a single file"), "{failure}");
    assert!(failure["hint"].as_str().unwrap().contains("-o DEST"), "{failure}");
}
