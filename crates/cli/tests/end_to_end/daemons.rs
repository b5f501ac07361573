//! The service in the background: its socket, and tickets that outlive it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;

use serde_json::Value;

use crate::environment::{LOOPBACK, TestEnvironment, first_line};
use crate::runner::situations;
use crate::trees::{assert_same, file};

situations![
    programs_are_told_where_a_daemon_listens,
    files_and_trees_go_from_daemon_to_daemon,
    what_is_done_is_refused_from_then_on,
    done_takes_what_ls_shows,
    a_restarted_daemon_honours_the_old_tickets_at_the_same_port,
    a_killed_daemon_honours_the_old_tickets_at_the_same_port,
    what_was_put_without_a_daemon_is_served_by_it,
    a_put_stream_outlives_the_daemon,
    a_second_daemon_is_refused,
    a_stale_socket_is_replaced,
    nobody_else_can_reach_the_socket,
    status_tells_of_the_daemon,
    names_that_are_not_text_pass_through_the_daemon,
    a_daemon_ends_at_once_when_interrupted_twice,
];

fn put(env: &TestEnvironment, path: &str) -> String {
    let ended = env.sender.tow(["put", path]).end().with(0);
    first_line(&ended.out).unwrap()
}

/// Objects that `ls` or `status` tells of.
fn objects(env: &TestEnvironment, command: &str) -> Vec<Value> {
    env.sender.tow([command, "--json"]).end().with(0).events()
}

fn files_and_trees_go_from_daemon_to_daemon() {
    let env = TestEnvironment::new();
    let (_sending, _receiving) = (env.sender.daemon(), env.receiver.daemon());
    fs::create_dir(env.sender.path("tree")).unwrap();
    file(&env.sender.path("tree/inner"), 1, 5000);
    file(&env.sender.path("single"), 2, 1 << 20);
    for name in ["tree", "single"] {
        env.receiver.get(&put(&env, name), name).end().summary();
        assert_same(&env.sender.path(name), &env.receiver.path(name));
    }
    let listed = objects(&env, "ls");
    let kinds: Vec<_> = listed.iter().map(|object| object["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["tree", "blob"]);
    assert!(listed[1]["path"].as_str().unwrap().ends_with("/single"), "{}", listed[1]);
    assert_eq!(listed[1]["size"], 1 << 20);
    let shown = env.sender.tow(["ls"]).end().with(0).text();
    let objects = shown.lines().filter(|line| !line.starts_with(' '));
    assert_eq!(objects.count(), 2, "{shown}");
    assert!(
        shown.lines().all(|line| !line.contains("tow:")),
        "no secrets for people to copy by accident: {shown}"
    );
}

fn what_is_done_is_refused_from_then_on() {
    let env = TestEnvironment::new();
    let _daemon = env.sender.daemon();
    file(&env.sender.path("single"), 2, 70_000);
    fs::create_dir(env.sender.path("tree")).unwrap();
    for name in ["single", "tree"] {
        let ticket = put(&env, name);
        let before = env.receiver.path(format!("{name} before"));
        env.receiver.get(&ticket, &before).end().summary();
        // Content that the receiver has itself needs nobody's leave.
        if before.is_dir() { fs::remove_dir(before) } else { fs::remove_file(before) }.unwrap();
        env.sender.tow(["done", &ticket]).end().with(0);
        let failure =
            env.receiver.tow(["get", "--json", "--timeout", "3", &ticket, "-o", "after"]).end().failure();
        assert_eq!(failure["kind"], "refused", "{failure}");
        let again = env.sender.tow(["done", &ticket]).end().with(1);
        assert!(again.err.contains("tow ls"), "{}", again.err);
    }
    assert!(objects(&env, "ls").is_empty());
    assert!(env.sender.path("single").exists(), "the file itself stays");
}

fn done_takes_what_ls_shows() {
    let env = TestEnvironment::new();
    let _daemon = env.sender.daemon();
    file(&env.sender.path("single"), 2, 1000);
    fs::create_dir(env.sender.path("tree")).unwrap();
    for name in ["single", "tree"] {
        // A live object's content is known when a receiver has it.
        env.receiver.get(&put(&env, name), name).end().summary();
        let shown = env.sender.tow(["ls"]).end().with(0).text();
        let oid = shown.split_whitespace().next().unwrap();
        env.sender.tow(["done", oid]).end().with(0);
        assert!(objects(&env, "ls").is_empty(), "{oid}");
    }
}

fn come_back(env: &TestEnvironment, end: fn(crate::environment::Running)) {
    let daemon = env.sender.daemon();
    file(&env.sender.path("single"), 2, 70_000);
    fs::create_dir(env.sender.path("tree")).unwrap();
    file(&env.sender.path("tree/inner"), 3, 600_000);
    let tickets = ["single", "tree"].map(|name| put(env, name));
    let before = objects(env, "status");
    end(daemon);
    let _daemon = env.sender.daemon();
    let after = objects(env, "status");
    assert_eq!((&after[0]["node"], &after[0]["listening"]), (&before[0]["node"], &before[0]["listening"]));
    for (ticket, name) in tickets.iter().zip(["single", "tree"]) {
        env.receiver.get(ticket, name).end().summary();
        assert_same(&env.sender.path(name), &env.receiver.path(name));
        assert_eq!(put(env, name), *ticket, "the same thing keeps its ticket");
    }
}

fn a_restarted_daemon_honours_the_old_tickets_at_the_same_port() {
    come_back(&TestEnvironment::new(), |daemon| {
        daemon.interrupt();
        daemon.end().with(0);
    });
}

fn a_killed_daemon_honours_the_old_tickets_at_the_same_port() {
    come_back(&TestEnvironment::new(), crate::environment::Running::kill);
}

fn what_was_put_without_a_daemon_is_served_by_it() {
    let env = TestEnvironment::new();
    file(&env.sender.path("single"), 2, 70_000);
    let words = ["put", "--listen", LOOPBACK, "single"];
    let ended = env.sender.tow(words).end().with(0);
    assert!(ended.err.contains("tow daemon"), "it says what to do next: {}", ended.err);
    let ticket = first_line(&ended.out).unwrap();
    let _daemon = env.sender.daemon();
    env.receiver.get(&ticket, "copy").end().summary();
    assert_same(&env.sender.path("single"), &env.receiver.path("copy"));
}

fn a_put_stream_outlives_the_daemon() {
    let env = TestEnvironment::new();
    let daemon = env.sender.daemon();
    let put = env.sender.tow(["put", "-"]).input_text("some words").end().with(0);
    let ticket = first_line(&put.out).unwrap();
    daemon.kill();
    let _daemon = env.sender.daemon();
    env.receiver.get(&ticket, "copy").end().summary();
    assert_eq!(fs::read(env.receiver.path("copy")).unwrap(), b"some words");
}

fn a_second_daemon_is_refused() {
    let env = TestEnvironment::new();
    let mut first = env.sender.daemon();
    let ended = env.sender.tow(["daemon", "--listen", LOOPBACK]).end().with(1);
    assert!(ended.err.contains("already running"), "{}", ended.err);
    assert!(first.runs());
    assert_eq!(objects(&env, "status").len(), 1, "the first still answers");
}

fn a_stale_socket_is_replaced() {
    let env = TestEnvironment::new();
    let folder = env.sender.home("run");
    fs::create_dir(&folder).unwrap();
    drop(UnixListener::bind(folder.join("tow.sock")).unwrap());
    let daemon = env.sender.daemon();
    let status = env.sender.tow(["status"]).end().with(0).text();
    assert!(status.contains("running") && !status.contains("not running"), "{status}");
    daemon.kill();
    assert!(folder.join("tow.sock").exists(), "a killed daemon leaves its socket");
    let status = env.sender.tow(["status"]).end().with(0).text();
    assert!(status.contains("not running"), "{status}");
    let daemon = env.sender.daemon();
    daemon.interrupt();
    daemon.end().with(0);
    assert!(!folder.join("tow.sock").exists(), "one that ends takes it away");
}

fn nobody_else_can_reach_the_socket() {
    let env = TestEnvironment::new();
    fs::create_dir(env.sender.home("run")).unwrap();
    crate::trees::dress(&env.sender.home("run"), 0o777, 0);
    let _daemon = env.sender.daemon();
    let (folder, socket) = (env.sender.home("run"), env.sender.home("run/tow.sock"));
    assert!(fs::metadata(&socket).unwrap().file_type().is_socket());
    assert_eq!(fs::metadata(&socket).unwrap().mode() & 0o7777, 0o600);
    assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o7777, 0o700);
    let key = env.sender.home("config/node.key");
    assert_eq!(fs::metadata(key).unwrap().mode() & 0o077, 0, "the private key");
}

fn status_tells_of_the_daemon() {
    let env = TestEnvironment::new();
    let alone = objects(&env, "status");
    assert_eq!(alone[0]["listening"].as_array().unwrap().len(), 0);
    let _daemon = env.sender.daemon();
    let status = objects(&env, "status");
    assert_eq!(status[0]["node"], alone[0]["node"]);
    assert!(status[0]["listening"][0].as_str().unwrap().starts_with("127.0.0.1:"), "{}", status[0]);
    assert_eq!(status[0]["version"], env!("CARGO_PKG_VERSION"));
}

fn names_that_are_not_text_pass_through_the_daemon() {
    let env = TestEnvironment::new();
    let (_sending, _receiving) = (env.sender.daemon(), env.receiver.daemon());
    let name = OsStr::from_bytes(b"\xff\xfe");
    file(&env.sender.path(name), 1, 1000);
    let ended = env.sender.tow([OsStr::new("put"), name]).end().with(0);
    let ticket = first_line(&ended.out).unwrap();
    env.receiver.get(&ticket, OsStr::from_bytes(b"copy \xff")).end().summary();
    assert_same(&env.sender.path(name), &env.receiver.path(OsStr::from_bytes(b"copy \xff")));
    env.receiver.tow(["get", "--json", &ticket]).end().summary();
    assert_same(&env.sender.path(name), &env.receiver.path(name));
}

fn a_daemon_ends_at_once_when_interrupted_twice() {
    let env = TestEnvironment::new();
    let mut daemon = env.receiver.daemon();
    file(&env.sender.path("single"), 1, 12 << 20);
    let mut share = env.sender.share("single");
    let mut get = env.receiver.get_slowly(&share.ticket(), "copy", "1M").start();
    get.wait_for_bytes(256 << 10);
    let start = std::time::Instant::now();
    daemon.interrupt();
    daemon.wait_until("says that it waits", |daemon| daemon.error_text().contains("waiting").then_some(()));
    daemon.interrupt();
    daemon.end().with(0);
    assert!(start.elapsed().as_secs() < 5, "it waited for a transfer of its own: {:?}", start.elapsed());
    get.end().failure();
}

/// `tow --json daemon` printed nothing, so no script could learn its address.
fn programs_are_told_where_a_daemon_listens() {
    let env = TestEnvironment::new();
    let before = env.sender.tow(["--json", "status"]).end().with(0).events();
    assert_eq!(before[0]["daemon"], false, "{}", before[0]);
    let mut daemon = env.sender.tow(["--json", "daemon", "--listen", LOOPBACK]).start();
    let line = daemon.wait_until("tells where", |daemon| first_line(&daemon.output()));
    let told: Value = serde_json::from_str(&line).unwrap();
    let status = env.sender.tow(["--json", "status"]).end().with(0).events().remove(0);
    assert_eq!((&told["event"], &status["daemon"]), (&"listening".into(), &true.into()));
    assert_eq!((&told["listening"], &told["node"]), (&status["listening"], &status["node"]));
    assert!(std::path::Path::new(told["socket"].as_str().unwrap()).exists());
    daemon.interrupt();
    daemon.end().with(0);
}
