//! `tow index`: what is read ahead of time need not be fetched, and is read once.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;
use towpath_store::doubles::settle;

use crate::environment::{Machine, Running, TestEnvironment};
use crate::runner::situations;
use crate::running::metrics;
use crate::trees::{assert_same, symlink};

situations![
    an_indexed_file_is_not_fetched,
    what_has_not_changed_is_not_read_again,
    what_can_not_be_indexed_is_named_and_the_rest_is_done,
    an_index_that_is_damaged_is_built_again,
    what_a_daemon_keeps_in_the_index_is_not_fetched,
    a_running_daemon_indexes_what_a_command_names,
];

/// A file of so many bytes, in a folder that may have to be made.
fn file(path: &Path, seed: u64, len: u64) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    crate::trees::file(path, seed, len);
}

/// Indexes, and returns the summary.
fn index(machine: &Machine, path: &Path, code: i32) -> Value {
    let words = ["index".as_ref(), "--json".as_ref(), path.as_os_str()];
    let events = machine.tow(words).end().with(code).events();
    let summary = events.last().unwrap().clone();
    assert_eq!(summary["event"], "summary");
    summary
}

fn counts(summary: &Value) -> [u64; 5] {
    ["files", "bytes", "unchanged", "read", "failed"].map(|name| summary[name].as_u64().unwrap())
}

fn an_indexed_file_is_not_fetched() {
    let env = TestEnvironment::new();
    let source = env.sender.path("file");
    file(&source, 1, 3 << 20);
    file(&env.receiver.path("old/elsewhere"), 1, 3 << 20);
    assert_eq!(counts(&index(&env.receiver, &env.receiver.path("old"), 0)), [1, 3 << 20, 0, 3 << 20, 0]);
    let mut share = env.sender.share(&source);
    let ticket = share.ticket();
    let words = ["get", "--json", "--reuse", &ticket, "-o", "copy"];
    let summary = env.receiver.tow(words).end().summary();
    assert_same(&source, &env.receiver.path("copy"));
    assert_eq!((summary.from("this machine"), summary.fetched()), (3 << 20, 0), "{}", summary.0);
    // A stranger is not to learn what is here from what is not asked for.
    let summary = env.receiver.get(&ticket, "again").end().summary();
    assert_eq!(summary.fetched(), 0, "it is this sender's by now");
    let other = env.stranger.path("file");
    file(&other, 2, 1 << 20);
    file(&env.receiver.path("old/second"), 2, 1 << 20);
    index(&env.receiver, &env.receiver.path("old"), 0);
    let mut share = env.stranger.share(&other);
    let summary = env.receiver.get(&share.ticket(), "unasked").end().summary();
    assert_eq!(summary.fetched(), 1 << 20);
}

fn what_has_not_changed_is_not_read_again() {
    let env = TestEnvironment::new();
    let tree = env.receiver.path("tree");
    for (number, len) in [10, 5000, 300_000, 2 << 20].into_iter().enumerate() {
        file(&tree.join(format!("sub/{number}")), number as u64, len);
    }
    file(&tree.join("empty"), 1, 0);
    symlink("/etc/passwd", &tree.join("link"));
    settle(&tree.join("sub/3")).unwrap();
    let all = 10 + 5000 + 300_000 + (2 << 20);
    assert_eq!(counts(&index(&env.receiver, &tree, 0)), [4, all, 0, all, 0]);
    assert_eq!(counts(&index(&env.receiver, &tree, 0)), [4, all, 4, 0, 0]);
    file(&tree.join("sub/1"), 99, 6000);
    settle(&tree.join("sub/1")).unwrap();
    assert_eq!(counts(&index(&env.receiver, &tree, 0)), [4, all + 1000, 3, 6000, 0]);
    // Its own folders are no part of what is indexed, also if they lie in it.
    let home = env.receiver.home("");
    file(&home.join("a-file"), 5, 5000);
    assert_eq!(counts(&index(&env.receiver, &home, 0))[0], 1);
    let text = env.receiver.tow(["index".as_ref(), tree.as_os_str()]).end().with(0).err;
    assert!(text.contains("4 files of") && text.contains("4 of them unchanged"), "{text}");
}

fn what_can_not_be_indexed_is_named_and_the_rest_is_done() {
    let env = TestEnvironment::new();
    let (tree, nowhere) = (env.receiver.path("tree"), env.receiver.path("nowhere"));
    file(&tree.join("good"), 1, 5000);
    let words = ["index".as_ref(), "--json".as_ref(), tree.as_os_str(), nowhere.as_os_str()];
    let events = env.receiver.tow(words).end().with(3).events();
    let failed: Vec<_> = events.iter().filter(|event| event["event"] == "file_failed").collect();
    assert_eq!(failed.len(), 1);
    assert!(failed[0]["path"].as_str().unwrap().ends_with("nowhere"));
    let failure = env.receiver.tow(["index".as_ref(), nowhere.as_os_str()]).end().with(1).err;
    assert!(failure.contains("nowhere") && failure.contains("nothing could be indexed"), "{failure}");
    env.receiver.tow(["index"]).end().with(2);

    if rustix::process::geteuid().is_root() {
        return;
    }
    file(&tree.join("secret"), 2, 5000);
    fs::set_permissions(tree.join("secret"), fs::Permissions::from_mode(0o000)).unwrap();
    assert_eq!(counts(&index(&env.receiver, &tree, 3))[..], [1, 5000, 1, 0, 1]);
}

fn an_index_that_is_damaged_is_built_again() {
    let env = TestEnvironment::new();
    let tree = env.receiver.path("tree");
    file(&tree.join("file"), 1, 200_000);
    settle(&tree.join("file")).unwrap();
    let first = counts(&index(&env.receiver, &tree, 0));
    let index_file = find(&env.receiver.home(""), "chunks.db").unwrap();
    fs::write(&index_file, vec![0x55; 10_000]).unwrap();
    assert_eq!(counts(&index(&env.receiver, &tree, 0)), first);
    assert_eq!(counts(&index(&env.receiver, &tree, 0)), [1, 200_000, 1, 0, 0]);
}

fn what_a_daemon_keeps_in_the_index_is_not_fetched() {
    let env = TestEnvironment::new();
    let (source, kept) = (env.sender.path("file"), env.receiver.path("kept"));
    file(&source, 1, 3 << 20);
    file(&kept.join("first"), 2, 123_456);
    let configuration = format!("log_level = \"info\"\nindex = [\"{}\"]\n", kept.display());
    let mut daemon = env.receiver.daemon_with(&configuration);
    let has_read = |daemon: &mut Running, bytes: u64| {
        daemon.wait_until("indexes so many bytes", |daemon| {
            let (text, bytes) = (daemon.error_text(), bytes.to_string());
            let is_told = |line: &str| line.contains("indexed what changed") && line.contains(&bytes);
            text.lines().any(is_told).then_some(())
        });
    };
    has_read(&mut daemon, 123_456);
    file(&kept.join("new/deep/elsewhere"), 1, 3 << 20);
    has_read(&mut daemon, 3 << 20);
    let mut share = env.sender.share(&source);
    let words = ["get", "--json", "--reuse", &share.ticket(), "-o", "copy"];
    let summary = env.receiver.tow(words).end().summary();
    assert_same(&source, &env.receiver.path("copy"));
    assert_eq!((summary.from("this machine"), summary.fetched()), (3 << 20, 0), "{}", summary.0);
    daemon.interrupt();
    daemon.end().with(0);
}

/// Path of a file of this name below a folder.
fn find(folder: &Path, name: &str) -> Option<std::path::PathBuf> {
    fs::read_dir(folder).unwrap().flatten().find_map(|entry| match entry.path() {
        path if entry.file_name() == name => Some(path),
        path if path.is_dir() => find(&path, name),
        _ => None,
    })
}

fn a_running_daemon_indexes_what_a_command_names() {
    let env = TestEnvironment::new();
    let machine = &env.receiver;
    let _daemon = machine.daemon();
    file(&machine.path("tree/sub/file"), 1, 300_000);
    settle(&machine.path("tree/sub/file")).unwrap();
    let indexed = |folder: &str, named: &str, code: i32| {
        machine.tow(["index", "--json", named]).folder(&machine.path(folder)).end().with(code).events()
    };
    let first = indexed("tree", "sub", 0).pop().unwrap();
    assert_eq!((&first["event"], counts(&first)), (&"summary".into(), [1, 300_000, 0, 300_000, 0]));
    assert_eq!(counts(&indexed("tree", ".", 0).pop().unwrap()), [1, 300_000, 1, 0, 0]);
    let failed = indexed("tree", "nowhere", 1).pop().unwrap();
    assert_eq!((&failed["event"], &failed["kind"]), (&"failed".into(), &"not_found".into()));
    let samples = metrics(machine);
    assert_eq!(samples["towpath_local_requests_total{call=\"/v1/index\",status=\"200\"}"], 3, "{samples:?}");
}
