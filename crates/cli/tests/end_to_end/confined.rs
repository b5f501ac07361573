//! Confinement of the far end of a copy and of the daemon by the kernel. They have all that their work needs.

use std::fs;
use std::os::unix::fs::symlink;

use crate::environment::{Ended, LOOPBACK, TOW, TestEnvironment};
use crate::machinery::descendants;
use crate::runner::{situations, skip};
use crate::sshd::{Route, Way};
use crate::trees::{assert_same, assert_same_bytes, file};

situations![
    the_kernel_refuses_the_far_end_a_write_elsewhere,
    the_far_end_has_every_place_that_its_copy_writes,
    the_far_end_of_a_pull_removes_what_it_sent_and_nothing_more,
    no_thread_of_the_far_end_may_start_programs,
    a_daemon_is_confined_and_says_which_places_are_not_its_own,
    a_daemon_writes_in_its_users_home_and_reads_everywhere,
    whatever_runs_leaves_no_core,
];

/// A way whose both ends keep temporaries in a folder of their own, not in the one that has all of the
/// test: what may be written there would hide what may not. The far end tells how it is confined.
fn route<'a>(env: &'a TestEnvironment, way: Way, variables: &[&str]) -> Route<'a> {
    let temporary = env.dir().join("temporary");
    fs::create_dir_all(&temporary).unwrap();
    let temporary = format!("TMPDIR={}", temporary.display());
    let mut route = Route::new(env, way);
    let words = ["env", &temporary, "TOW_LOG=info"].into_iter().chain(variables.iter().copied());
    route.program = words.chain([TOW]).map(Into::into).collect();
    route
}

/// Ends a situation on a kernel that enforces nothing.
fn needs_landlock(ended: &Ended) {
    assert!(ended.err.contains("what this copy may write: "), "{}", ended.err);
    if ended.err.contains("not enforced") {
        skip("this kernel has no Landlock");
    }
    assert!(ended.err.contains("enforced"), "{}", ended.err);
}

/// Its records are to go to a folder that is not its own: as root it may write there, but for the kernel.
fn the_kernel_refuses_the_far_end_a_write_elsewhere() {
    let env = TestEnvironment::new();
    file(&env.sender.path("file"), 1, 1000);
    let first = route(&env, Way::Push, &[]).copy("cp", "file", "first").end().with(0);
    needs_landlock(&first);
    let (resume, elsewhere) = (env.receiver.home("state/resume"), env.dir().join("elsewhere"));
    fs::remove_dir_all(&resume).unwrap();
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, &resume).unwrap();
    fs::remove_dir_all(env.dir().join("sshd")).unwrap();
    let mut route = route(&env, Way::Push, &[]);
    let refused = route.copy("cp", "file", "second").end().with(1);
    assert!(refused.err.contains("permission denied"), "{}", refused.err);
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0, "something was written elsewhere");
    assert!(!env.receiver.path("second").exists());
    // Nothing else was in the way.
    route.program.insert(1, "TOW_SANDBOX=off".into());
    let free = route.copy("cp", "file", "second").end().with(0);
    assert!(free.err.contains("what this copy may write: switched off"), "{}", free.err);
    assert_same_bytes(&env.sender.path("file"), &env.receiver.path("second"));
    // The configuration switches it off too.
    route.program.remove(1);
    env.receiver.configure("sandbox = \"off\"\n");
    let free = route.copy("cp", "file", "third").end().with(0);
    assert!(free.err.contains("what this copy may write: switched off"), "{}", free.err);
}

fn the_far_end_has_every_place_that_its_copy_writes() {
    let env = TestEnvironment::new();
    let (tree, at) = (env.sender.path("tree"), |name: &str| env.receiver.path(name));
    fs::create_dir_all(tree.join("sub")).unwrap();
    (0..20).for_each(|number| file(&tree.join(format!("sub/{number}")), number, 20_000));
    file(&tree.join("big"), 100, 3 << 20);
    let route = route(&env, Way::Push, &[]);
    // A destination that is not there yet, and may not be made yet.
    let dry = route.copy("sync -n", "tree/", "copy").end().with(0);
    assert!(!at("copy").exists() && dry.err.contains("what this copy may write"), "{}", dry.err);
    for words in ["sync --via ssh", "sync --via tls", "sync -c"] {
        route.copy(words, "tree/", "copy").end().with(0);
        assert_same(&tree, &at("copy"));
    }
    // A link to a directory is that directory; cp writes behind a link to a file, and sync replaces it.
    fs::create_dir(at("real")).unwrap();
    symlink("real", at("link")).unwrap();
    route.copy("sync", "tree/", "link/").end().with(0);
    assert_same(&tree, &at("real"));
    for link in ["file-link", "replaced"] {
        symlink("real/big", at(link)).unwrap();
    }
    route.copy("cp", "tree/sub/1", "file-link").end().with(0);
    assert!(at("file-link").is_symlink());
    assert_same_bytes(&tree.join("sub/1"), &at("real/big"));
    route.copy("sync", "tree/big", "replaced").end().with(0);
    assert!(!at("replaced").is_symlink());
    // Files under new names, and what they replace, within and without.
    file(&tree.join("big"), 101, 3 << 20);
    route.copy("sync --backup --backup-dir ../../kept/today", "tree/", "copy/.").end().with(0);
    assert_same(&tree, &at("copy"));
    assert!(env.receiver.path("../kept/today/big").is_file());
    file(&tree.join("big"), 102, 3 << 20);
    let outside = at("outside");
    route
        .copy(&format!("sync --delete -b --backup-dir {}", outside.display()), "tree/", "copy")
        .end()
        .with(0);
    assert!(outside.join("big").is_file());
    file(&tree.join("big"), 103, 3 << 20);
    route.copy("sync -b --backup-dir within", "tree/", "copy").end().with(0);
    assert!(at("copy/within/big").is_file());
    route.copy("cp -b", "tree/big", "file-link").end().with(0);
    assert!(at("real/big~").is_file());
}

fn the_far_end_of_a_pull_removes_what_it_sent_and_nothing_more() {
    let env = TestEnvironment::new();
    for name in ["tree/sub/a", "tree/b", "single", "beside"] {
        fs::create_dir_all(env.sender.path(name).parent().unwrap()).unwrap();
        file(&env.sender.path(name), name.len() as u64, 5000);
    }
    let route = route(&env, Way::Pull, &[]);
    for (source, copy) in [("tree/", "copy"), ("single", "one")] {
        let pulled = route.copy("sync --remove-source-files", source, copy).end().with(0);
        assert!(pulled.err.contains("what this copy may write"), "{}", pulled.err);
    }
    assert!(env.receiver.path("copy/sub/a").is_file() && env.receiver.path("one").is_file());
    let left = |name: &str| env.sender.path(name).exists();
    assert!(!left("tree/sub/a") && !left("tree/b") && !left("single") && left("beside"));
}

/// A line of `/proc/ID/status` of each thread.
fn each_thread(id: u32, field: &str) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{id}/task")).unwrap();
    let status = tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("status")).ok());
    let value = |status: String| {
        let value =
            status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?.trim().into();
        Some(value)
    };
    status.filter_map(value).collect()
}

/// 2 is a filter; a kernel without them has no such line, or 0.
fn assert_filtered(id: u32) {
    let (filters, rights) = (each_thread(id, "Seccomp"), each_thread(id, "NoNewPrivs"));
    assert!(filters.len() > 1 && filters.iter().all(|mode| mode == "2"), "{filters:?}");
    assert!(rights.iter().all(|none| none == "1"), "{rights:?}");
}

fn no_thread_of_the_far_end_may_start_programs() {
    for way in [Way::Push, Way::Pull] {
        let env = TestEnvironment::new();
        file(&env.sender.path("file"), 1, 9 << 20);
        let route = route(&env, way, &[]);
        let words = "cp --json --no-search --limit-rate 4M";
        let mut running = route.copy(words, "file", "copy").start();
        running.wait_for_bytes(1 << 20);
        let far = descendants(route.sshd.as_ref().unwrap().id());
        let far = far.iter().find(|process| process.name == "tow").unwrap();
        assert_filtered(far.id);
        running.end().with(0);
        assert_same_bytes(&env.sender.path("file"), &env.receiver.path("copy"));
    }
}

fn a_daemon_is_confined_and_says_which_places_are_not_its_own() {
    let env = TestEnvironment::new();
    file(&env.sender.path("file"), 1, 500_000);
    let mut sharing = env.sender.share(env.sender.path("file"));
    let ticket = sharing.ticket();
    for folder in ["in", "out"] {
        fs::create_dir(env.receiver.path(folder)).unwrap();
    }
    symlink("../out", env.receiver.path("in/link")).unwrap();
    let inside = env.receiver.path("in");
    let daemon = env
        .receiver
        .daemon_with(&format!("log_level = \"info\"\nwrite_below = [\"{}\"]\n", inside.display()));
    assert!(daemon.error_text().contains("what the daemon may write: "), "{}", daemon.error_text());
    if daemon.error_text().contains("not enforced") {
        skip("this kernel has no Landlock");
    }
    assert_filtered(daemon.id());
    env.receiver.get(&ticket, inside.join("file")).end().with(0);
    assert_same_bytes(&env.sender.path("file"), &inside.join("file"));
    for elsewhere in ["out/file", "in/link/file", "in/../file"] {
        let refused = env.receiver.get(&ticket, env.receiver.path(elsewhere)).end().failure();
        assert!(refused.to_string().contains("write_below"), "{refused}");
        assert!(!env.receiver.path(elsewhere).exists(), "{elsewhere}");
    }
    drop(daemon);
    let daemon = env.receiver.daemon_with("sandbox = \"off\"\nwrite_below = [\"/nowhere\"]\n");
    assert!(each_thread(daemon.id(), "Seccomp").iter().all(|mode| mode == "0"));
    env.receiver.get(&ticket, env.receiver.path("out/file")).end().with(0);
}

fn a_daemon_writes_in_its_users_home_and_reads_everywhere() {
    let env = TestEnvironment::new();
    file(&env.sender.path("file"), 1, 500_000);
    let mut sharing = env.sender.share(env.sender.path("file"));
    let ticket = sharing.ticket();
    // No home above it, so that it is only the person's home that lets it write.
    let (home, temporary) = (env.receiver.home("person"), env.dir().join("temporary"));
    [&home, &temporary].iter().for_each(|folder| fs::create_dir(folder).unwrap());
    let call = env.receiver.tow(["daemon", "--listen", LOOPBACK]);
    let call = call.variable("HOME", home.to_str().unwrap()).variable("TMPDIR", temporary.to_str().unwrap());
    let daemon = env.receiver.daemon_of(call);
    env.receiver.get(&ticket, home.join("file")).end().with(0);
    assert_same_bytes(&env.sender.path("file"), &home.join("file"));
    env.receiver.get(&ticket, env.receiver.path("file")).end().with(0);
    // Files that it puts may lie in the system's folders.
    env.receiver.tow(["put", "/etc/passwd"]).end().with(0);
    drop(daemon);
}

fn whatever_runs_leaves_no_core() {
    let env = TestEnvironment::new();
    let daemon = env.receiver.daemon();
    let limits = fs::read_to_string(format!("/proc/{}/limits", daemon.id())).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    let soft: u64 = core.split_whitespace().nth(4).unwrap().parse().unwrap();
    assert!(soft <= 1, "{core}");
}
