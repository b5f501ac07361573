//! `--by-daemon`: a copy that the daemon makes is the one that its caller would have made, within the daemon's limits.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::Signal;

use crate::environment::{Machine, Running, TOW, TestEnvironment, WAIT_LIMIT, soon};
use crate::machinery::descendants;
use crate::runner::{situations, skip};
use crate::running::metrics;
use crate::sshd::{Route, Way};
use crate::trees::{assert_same, assert_same_bytes, file};

situations![
    a_daemon_copies_where_and_as_its_caller_would,
    a_daemon_copies_over_the_ssh_of_its_caller,
    what_ssh_says_is_told_as_without_a_daemon,
    a_copy_by_a_daemon_ends_with_its_caller,
    a_copy_by_a_daemon_ends_with_ssh,
    a_daemon_refuses_what_it_may_not_write_before_it_writes,
    a_daemon_that_ends_waits_for_copies_and_then_ends_them,
    a_daemon_makes_so_many_copies_and_no_more,
];

/// Time that something ended may take to be gone.
const SECONDS: Duration = Duration::from_secs(8);

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// A number of `tow status`.
fn status(machine: &Machine, name: &str) -> u64 {
    let status = machine.tow(["status", "--json"]).end().with(0).events();
    status[0][name].as_u64().unwrap()
}

/// Waits until the daemon makes no copy and has none of its connections.
fn assert_idle(machine: &Machine, daemon: &Running, open: usize) {
    soon(SECONDS, || (status(machine, "copies") == 0).then_some(())).expect("a copy goes on");
    let idle = soon(SECONDS, || (sockets(daemon) <= open).then_some(()));
    assert!(idle.is_some(), "{} sockets are open, {open} were before", sockets(daemon));
}

/// Connections that it has open. Files of sources stay open for a while, as the store keeps them.
fn sockets(daemon: &Running) -> usize {
    let open = fs::read_dir(format!("/proc/{}/fd", daemon.id())).unwrap();
    let targets = open.filter_map(|descriptor| fs::read_link(descriptor.unwrap().path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
}

fn tree(env: &TestEnvironment) {
    fs::create_dir_all(env.sender.path("tree/sub")).unwrap();
    file(&env.sender.path("tree/big"), 1, 9 << 20);
    (0..9).for_each(|number| file(&env.sender.path(format!("tree/sub/{number}")), 100 + number, 50_000));
}

/// A copy that takes two seconds, as `big` is new, and has begun.
fn half(route: &Route<'_>, words: &str) -> Running {
    static SEED: AtomicU64 = AtomicU64::new(1000);
    file(&route.env.sender.path("tree/big"), SEED.fetch_add(1, Ordering::Relaxed), 9 << 20);
    let words = format!("{words} --by-daemon --json --no-search --limit-rate 4M");
    let mut running = route.copy(&words, "tree/", "copy/").start();
    running.wait_for_bytes(2 << 20);
    running
}

fn a_daemon_copies_where_and_as_its_caller_would() {
    let env = TestEnvironment::new();
    let machine = &env.sender;
    let _daemon = machine.daemon();
    let here = machine.path("here");
    fs::create_dir_all(here.join("tree/sub")).unwrap();
    file(&here.join("tree/sub/file"), 1, 70_000);
    file(&here.join("tree/open"), 2, 10);
    fs::set_permissions(here.join("tree/open"), fs::Permissions::from_mode(0o666)).unwrap();
    let with_umask = |umask: &str, line: &str| {
        let program = ["sh", "-c", &format!("umask {umask}; exec \"$0\" \"$@\""), TOW].map(String::from);
        let words = format!("{line} --by-daemon").split(' ').map(String::from).collect::<Vec<_>>();
        machine.tow_as(&program, words).folder(&here).end().with(0)
    };
    with_umask("077", "cp tree copy");
    assert_same(&here.join("tree"), &here.join("copy"));
    // An entry without its own mode gets the caller's umask, whatever the daemon's is.
    for (umask, directory, open) in [("027", 0o750, 0o640), ("0", 0o755, 0o666), ("077", 0o700, 0o600)] {
        let (copy, into) = (format!("copy-{umask}"), format!("into-{umask}"));
        with_umask(umask, &format!("sync --no-p --no-A tree/ {copy}"));
        assert_eq!((mode(&here.join(&copy)), mode(&here.join(&copy).join("open"))), (directory, open));
        with_umask(umask, &format!("sync --no-p --no-A tree/open tree/sub {into}/"));
        let made = if umask == "0" { 0o777 } else { directory };
        assert_eq!((mode(&here.join(&into)), mode(&here.join(&into).join("open"))), (made, open));
        // The person's umask holds back what nobody is named for.
        with_umask(umask, &format!("cp tree/open plus-{umask}"));
        with_umask(umask, &format!("sync --chmod a=,+rwx tree/open plus-{umask}"));
        assert_eq!(mode(&here.join(format!("plus-{umask}"))), made);
    }
    // `.` is what is in the caller's directory, to both.
    with_umask("022", "sync tree/. ../dot");
    assert_same(&here.join("tree"), &machine.path("dot"));
    let within = here.join("tree");
    machine.tow(["cp", "--by-daemon", ".", "../../dot-cp"]).folder(&within).end().with(0);
    assert_same(&within, &machine.path("dot-cp"));
    assert_eq!(status(machine, "copies"), 0);
}

fn a_daemon_copies_over_the_ssh_of_its_caller() {
    for way in [Way::Push, Way::Pull] {
        let env = TestEnvironment::new();
        tree(&env);
        let route = Route::new(&env, way);
        let daemon = route.caller().daemon();
        for words in ["cp", "sync --via ssh", "sync --via tls -c"] {
            let copy = format!("copy {words}");
            let line = format!("{words} --by-daemon --json");
            let summary = route.copy(&line, "tree/.", &copy).end().summary();
            assert_same(&env.sender.path("tree"), &env.receiver.path(&copy));
            assert!(summary.number("sent") > 0, "{}", summary.0);
        }
        let running = half(&route, "sync -I");
        assert_eq!(status(route.caller(), "copies"), 1);
        let names = |id| descendants(id).into_iter().map(|process| process.name).collect::<Vec<_>>();
        assert_eq!(names(daemon.id()), [""; 0], "a daemon starts no programs");
        assert_eq!(names(running.id()), ["ssh"]);
        running.end().with(0);
        route.wait_for_the_other_side();
    }
}

fn what_ssh_says_is_told_as_without_a_daemon() {
    let env = TestEnvironment::new();
    tree(&env);
    let _daemon = env.sender.daemon();
    let route = Route::new(&env, Way::Push);
    let rsh = route.sshd.as_ref().unwrap().rsh();
    for (rsh, program, to) in [
        (rsh.as_str(), "/nowhere/tow", "elsewhere:copy"),
        (rsh.as_str(), "echo", "elsewhere:copy"),
        ("/nowhere/ssh", "tow", "elsewhere:copy"),
        ("ssh -F none -o BatchMode=yes -p 1", "tow", "127.0.0.1:copy"),
    ] {
        let words = ["cp", "--json", "-e", rsh, "--tow-path", program, "tree", to];
        let usual = env.sender.tow(words).end();
        let by_daemon = env.sender.tow(words.into_iter().chain(["--by-daemon"])).end();
        assert_eq!(usual.code(), by_daemon.code());
        assert_eq!(usual.failure(), by_daemon.failure());
    }
    let none = ["cp", "--json", "--by-daemon", "nothing", "copy"];
    assert_eq!(env.sender.tow(none).end().failure()["kind"], "not_found");
    let without = env.receiver.tow(none).end().failure();
    assert!(without["message"].as_str().unwrap().contains("no daemon is running"), "{without}");
}

fn a_copy_by_a_daemon_ends_with_its_caller() {
    for way in [Way::Push, Way::Pull] {
        let env = TestEnvironment::new();
        tree(&env);
        let route = Route::new(&env, way);
        let daemon = route.caller().daemon();
        let open = sockets(&daemon);
        let running = half(&route, "sync");
        running.kill();
        assert_idle(route.caller(), &daemon, open);
        let samples = metrics(route.caller());
        let count = |what: &str| samples[&format!("towpath_transfers_{what}_total{{direction=\"copy\"}}")];
        assert_eq!((count("begun"), count("done"), count("failed")), (1, 0, 1));
        route.wait_for_the_other_side();
        let running = half(&route, "sync");
        running.interrupt();
        assert_eq!(running.end().failure_with(20)["kind"], "interrupted");
        assert_idle(route.caller(), &daemon, open);
        route.wait_for_the_other_side();
        let summary = route.copy("sync --by-daemon --json", "tree/", "copy/").end().summary();
        assert_same(&env.sender.path("tree"), &env.receiver.path("copy"));
        assert!(summary.fetched() < 8 << 20, "it goes on where it was: {}", summary.0);
    }
}

fn a_copy_by_a_daemon_ends_with_ssh() {
    let env = TestEnvironment::new();
    tree(&env);
    let route = Route::new(&env, Way::Push);
    let daemon = route.caller().daemon();
    let open = sockets(&daemon);
    let running = half(&route, "sync --via ssh");
    let ssh = descendants(running.id()).into_iter().find(|process| process.name == "ssh").unwrap();
    ssh.signal(Signal::KILL);
    assert_eq!(running.end().failure_with(12)["kind"], "unreachable");
    assert_idle(route.caller(), &daemon, open);
    route.copy("sync --by-daemon", "tree/", "copy/").end().with(0);
    assert_same(&env.sender.path("tree"), &env.receiver.path("copy"));
}

fn a_daemon_refuses_what_it_may_not_write_before_it_writes() {
    let env = TestEnvironment::new();
    let machine = &env.sender;
    tree(&env);
    for folder in ["in", "out"] {
        fs::create_dir(machine.path(folder)).unwrap();
    }
    file(&machine.path("out/file"), 5, 10);
    symlink("../out", machine.path("in/link")).unwrap();
    symlink("../out/file", machine.path("in/file")).unwrap();
    let inside = machine.path("in").display().to_string();
    let daemon = machine.daemon_with(&format!("log_level = \"info\"\nwrite_below = [\"{inside}\"]\n"));
    if daemon.error_text().contains("not enforced") {
        skip("this kernel has no Landlock");
    }
    let copy = |line: &str| machine.tow(line.split(' ').chain(["--by-daemon", "--json"])).end();
    for line in [
        "cp tree out/copy",
        "cp tree in/link/copy",
        "cp tree in/../copy",
        "cp tree/big in/file",
        "sync tree/ out",
        "sync -b --backup-dir ../../out/kept tree/ in/copy",
        "sync --remove-source-files tree/ in/copy",
    ] {
        let refused = copy(line);
        let code = if line.starts_with("cp") { 1 } else { 5 };
        let refused = refused.failure_with(code).to_string();
        assert!(refused.contains("write_below"), "{line}: {refused}");
        assert!(!machine.path("in/copy").exists() && machine.path("tree/big").exists(), "{line}");
    }
    assert_eq!(fs::read_dir(machine.path("out")).unwrap().count(), 1);
    copy("sync -n tree/ out").with(0);
    copy("sync -b --backup-dir ../kept tree/ in/copy").with(0);
    assert_same(&machine.path("tree"), &machine.path("in/copy"));
    copy("cp tree/sub in/sub").with(0);
}

fn a_daemon_that_ends_waits_for_copies_and_then_ends_them() {
    let env = TestEnvironment::new();
    tree(&env);
    let route = Route::new(&env, Way::Push);
    let daemon = env.sender.daemon_with("grace = 60\n");
    let running = half(&route, "sync");
    daemon.signal(Signal::TERM);
    running.end().with(0);
    daemon.end().with(0);
    assert_same(&env.sender.path("tree"), &env.receiver.path("copy"));
    let daemon = env.sender.daemon_with("grace = 0\n");
    let running = half(&route, "sync -I -W");
    daemon.signal(Signal::TERM);
    assert_eq!(running.end().failure_with(12)["kind"], "unreachable");
    daemon.end().with(0);
    route.wait_for_the_other_side();
    let _daemon = env.sender.daemon();
    route.copy("sync -c --by-daemon", "tree/", "copy/").end().with(0);
    assert_same(&env.sender.path("tree"), &env.receiver.path("copy"));
}

fn a_daemon_makes_so_many_copies_and_no_more() {
    let env = TestEnvironment::new();
    tree(&env);
    let route = Route::new(&env, Way::Push);
    let _daemon = env.sender.daemon_with("[limits]\ncopies = 1\n");
    let running = half(&route, "sync");
    let refused = env.sender.tow(["cp", "--json", "--by-daemon", "tree/big", "other"]).end().failure();
    assert_eq!(refused["kind"], "busy");
    assert!(refused.to_string().contains("limits.copies"), "{refused}");
    running.end().with(0);
    let copied = || env.sender.tow(["cp", "--by-daemon", "tree/big", "other"]).end().code() == 0;
    soon(WAIT_LIMIT, || copied().then_some(())).unwrap();
    assert_same_bytes(&env.sender.path("tree/big"), &env.sender.path("other"));
}
