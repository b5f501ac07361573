//! Faults of a copy: each is named with what to do next. The rest is done, and the exit status is rsync's or cp's.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::environment::{Ended, TOW, TestEnvironment};
use crate::machinery::{Mounted, SetOnDrop, descendants, is_root, tool};
use crate::runner::{situations, skip};
use crate::sshd::{HOST, Route, Sshd, Way};
use crate::trees::{assert_same, assert_same_bytes, file, names, symlink};

situations![
    a_file_that_may_not_be_read_is_named_and_the_rest_is_copied,
    a_directory_that_may_not_be_written_is_named_and_the_rest_is_copied,
    a_file_that_vanishes_is_named_and_the_rest_is_copied,
    a_file_that_changes_while_it_is_read_is_never_copied_half_old_half_new,
    a_large_file_that_changes_while_it_is_read_is_told_of_once,
    a_full_disk_is_told_and_the_sync_goes_on_with_room,
    as_many_files_as_fit_are_copied_to_a_full_disk,
    what_is_complete_when_a_disk_is_full_over_ssh_stays,
    a_file_that_may_not_be_written_is_called_by_its_own_name,
    a_destination_below_a_file_is_told_in_words,
    without_a_place_for_temporary_files_it_goes_as_far_as_others,
    a_file_in_the_way_of_a_tree_is_kept,
    a_directory_in_the_way_of_a_file_is_kept_unless_forced,
    a_program_that_is_not_there_is_told_of,
    a_login_that_prints_is_told_of,
    a_host_that_is_not_there_is_told_of,
    a_source_that_is_not_there_is_told_of,
    two_other_machines_at_once_are_refused,
    another_side_that_stops_is_given_up,
    a_tls_port_that_is_closed_is_told_of,
    a_device_or_a_fifo_that_was_named_as_destination_is_refused,
    a_file_is_written_behind_a_link_that_was_named_as_destination,
    one_of_several_sources_that_is_not_there_ends_with_23,
    a_destination_with_one_file_is_guarded,
];

/// Later than this is not "after three seconds" any more, on any machine.
const LATE: Duration = Duration::from_secs(15);
const WAYS: [Way; 3] = [Way::Here, Way::Push, Way::Pull];

/// A tree of small files at the sender.
fn tree(env: &TestEnvironment, files: &[&str]) {
    for (number, name) in files.iter().enumerate() {
        let path = env.sender.path("tree").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        file(&path, number as u64, 10_000);
    }
}

fn mode(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// It ended so, and said all these words.
fn assert_says(ended: Ended, code: i32, words: &[&str]) {
    let ended = ended.with(code);
    words.iter().for_each(|word| assert!(ended.err.contains(word), "no '{word}' in: {}", ended.err));
}

fn a_file_that_may_not_be_read_is_named_and_the_rest_is_copied() {
    for way in WAYS {
        for (command, code) in [("sync --stats", 23), ("cp", 3)] {
            let env = TestEnvironment::new();
            tree(&env, &["a", "closed", "dir/below", "z"]);
            mode(env.sender.path("tree/closed"), 0);
            let route = Route::new(&env, way).without_rights();
            let ended = route.copy(command, "tree/", "copy").end();
            let told = String::from_utf8_lossy(&ended.out);
            assert!(command == "cp" || told.contains("files transferred: 3\n"), "three came: {told}");
            assert_says(ended, code, &["closed: ", "1 entry was not copied"]);
            assert_eq!(names(&env.receiver.path("copy")), ["a", "dir", "z"], "{way:?}");
        }
    }
}

fn a_directory_that_may_not_be_written_is_named_and_the_rest_is_copied() {
    if !is_root() {
        skip("needs root, to have a directory of somebody else");
    }
    for way in WAYS {
        let env = TestEnvironment::new();
        tree(&env, &["a", "foreign/file", "z"]);
        let route = Route::new(&env, way).without_rights();
        fs::create_dir_all(env.receiver.path("copy/foreign")).unwrap();
        mode(env.receiver.path("copy"), 0o777);
        assert_says(route.copy("sync", "tree/", "copy").end(), 23, &["foreign"]);
        assert_eq!(names(&env.receiver.path("copy")), ["a", "foreign", "z"], "{way:?}");
    }
}

fn a_file_that_vanishes_is_named_and_the_rest_is_copied() {
    for way in [Way::Push, Way::Pull] {
        let env = TestEnvironment::new();
        tree(&env, &["a", "z"]);
        (0..3).for_each(|number| file(&env.sender.path(format!("tree/m{number}")), number, 2 << 20));
        let route = Route::new(&env, way);
        let mut running = route.copy("sync --json --no-search --limit-rate 1500K", "tree/", "copy").start();
        running.wait_for_bytes(1);
        fs::remove_file(env.sender.path("tree/m2")).unwrap();
        let summary = running.end().summary_with(24);
        assert!(summary.number("vanished") > 0, "{}", summary.0);
        assert_same(&env.sender.path("tree/z"), &env.receiver.path("copy/z"));
    }
}

/// Each of its versions is of one byte throughout.
fn a_file_that_changes_while_it_is_read_is_never_copied_half_old_half_new() {
    for way in WAYS {
        let env = TestEnvironment::new();
        let source = env.sender.path("tree/changing");
        fs::create_dir(env.sender.path("tree")).unwrap();
        file(&env.sender.path("tree/z"), 1, 1000);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let version = |byte: u8| fs::write(&source, vec![byte; 3 << 20]).unwrap();
            version(0);
            let is_over = &is_over;
            scope.spawn(move || {
                (1..=250).take_while(|_| !is_over.load(Ordering::Relaxed)).for_each(version);
            });
            let route = Route::new(&env, way);
            let ended = route.copy("sync --no-search --limit-rate 3M", "tree/", "copy").end();
            is_over.store(true, Ordering::Relaxed);
            let copy = env.receiver.path("copy/changing");
            match fs::read(&copy) {
                Ok(copy) => assert!(copy.iter().all(|byte| *byte == copy[0]), "{way:?}: a mixture"),
                Err(_) => assert_says(ended, 23, &["changing: "]),
            }
        });
        assert_same_bytes(&env.sender.path("tree/z"), &env.receiver.path("copy/z"));
    }
}

/// It is on its way before it is read to the end, so both sides see that it can't be had.
fn a_large_file_that_changes_while_it_is_read_is_told_of_once() {
    for way in [Way::Push, Way::Pull] {
        let env = TestEnvironment::new();
        let source = env.sender.path("tree/changing");
        fs::create_dir(env.sender.path("tree")).unwrap();
        file(&source, 1, 70 << 20);
        let is_over = AtomicBool::new(false);
        let ended = thread::scope(|scope| {
            scope.spawn(|| {
                let changing = fs::File::options().write(true).open(&source).unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    changing.write_all_at(b"x", 0).unwrap();
                }
            });
            let _stopping = SetOnDrop(&is_over);
            Route::new(&env, way).copy("sync --json", "tree/", "copy").end()
        });
        let events = ended.with(23).events();
        let told: Vec<_> = events.iter().filter(|event| event["event"] == "file_failed").collect();
        assert_eq!(told.len(), 1, "{way:?}: {told:?}");
    }
}

fn a_full_disk_is_told_and_the_sync_goes_on_with_room() {
    for way in WAYS {
        let env = TestEnvironment::new();
        tree(&env, &["a"]);
        (0..8).for_each(|number| file(&env.sender.path(format!("tree/{number}")), number, 1 << 20));
        let there = Mounted::tmpfs(&env.receiver.path("there"), "size=4m");
        let route = Route::new(&env, way);
        assert_says(route.copy("sync", "tree/", "there/copy").end(), 11, &["space"]);
        there.remount("size=24m");
        route.copy("sync", "tree/", "there/copy").end().with(0);
        assert_same(&env.sender.path("tree"), &env.receiver.path("there/copy"));
        let left: Vec<_> = names(&env.receiver.path("there"));
        assert_eq!(left, ["copy"], "a temporary is left");
    }
}

/// They were copied side by side, and none was complete when the disk was full.
fn as_many_files_as_fit_are_copied_to_a_full_disk() {
    let env = TestEnvironment::new();
    let sources = ["a", "b", "c", "d"];
    sources.iter().for_each(|name| file(&env.sender.path(name), 1, 3_000_000));
    let _there = Mounted::tmpfs(&env.receiver.path("there"), "size=8m");
    let there = env.receiver.path("there");
    let words = ["cp"].iter().chain(&sources).map(AsRef::as_ref).chain([there.as_os_str()]);
    let ended = env.sender.tow(words).end();
    assert!(!ended.err.contains(".tow-"), "the file's own name: {}", ended.err);
    assert_says(ended, 1, &["no space left in"]);
    let copied: Vec<_> = names(&there).into_iter().filter(|name| !name.starts_with('.')).collect();
    assert_eq!(copied.len(), 2, "{copied:?}");
    copied.iter().for_each(|name| assert_same_bytes(&env.sender.path(name), &there.join(name)));
}

/// Not even a small file was there in the end.
fn what_is_complete_when_a_disk_is_full_over_ssh_stays() {
    for way in [Way::Push, Way::Pull] {
        let env = TestEnvironment::new();
        tree(&env, &["small"]);
        file(&env.sender.path("tree/x"), 1, 6_000_000);
        file(&env.sender.path("tree/y"), 1, 6_000_001);
        let _there = Mounted::tmpfs(&env.receiver.path("there"), "size=8m");
        let route = Route::new(&env, way);
        assert_says(route.copy("cp -r", "tree/.", "there").end(), 1, &["no space left in"]);
        assert_same_bytes(&env.sender.path("tree/small"), &env.receiver.path("there/small"));
    }
}

/// The folder was named, and the source before it.
fn a_file_that_may_not_be_written_is_called_by_its_own_name() {
    if !is_root() {
        skip("needs root, to have a directory of somebody else");
    }
    for way in WAYS {
        let env = TestEnvironment::new();
        file(&env.sender.path("f"), 1, 70_000);
        let route = Route::new(&env, way).without_rights();
        let foreign = env.receiver.path("foreign");
        fs::create_dir(&foreign).unwrap();
        for destination in ["foreign/other", "foreign"] {
            let ended = route.copy("cp", "f", destination).end().with(3);
            let name = if destination == "foreign" { "f" } else { "other" };
            let host = if way == Way::Push { "elsewhere:" } else { "" };
            let wanted = format!("tow: {host}{}: permission denied; run it as", foreign.join(name).display());
            // On a busy machine it is said before that ssh is waited for.
            let is_told = ended.err.lines().any(|line| line.starts_with(&wanted));
            assert!(is_told, "not {wanted}: {}", ended.err);
        }
    }
}

fn a_destination_below_a_file_is_told_in_words() {
    let env = TestEnvironment::new();
    ["a", "f"].iter().for_each(|name| file(&env.sender.path(name), 1, 100));
    for command in ["cp", "sync"] {
        let ended = env.sender.tow([command, "a", "f/"]).end();
        assert!(ended.err.starts_with("tow: f/: not a directory\n"), "{}", ended.err);
    }
    let ended = env.sender.tow(["cp", "a", "a"]).end();
    let wanted = format!("tow: {}: source and destination are the same", env.sender.path("a").display());
    assert!(ended.err.starts_with(&wanted), "{}", ended.err);
}

/// It ended with `what was noted: permission denied`.
fn without_a_place_for_temporary_files_it_goes_as_far_as_others() {
    let env = TestEnvironment::new();
    tree(&env, &["a", "sub/b"]);
    symlink("nowhere", &env.sender.path("tree/link"));
    std::os::unix::net::UnixListener::bind(env.sender.path("tree/socket")).unwrap();
    let copy = env.sender.tow(["sync", "tree/", "copy"]).variable("TMPDIR", "/nosuch");
    let ended = copy.end().with(0);
    assert!(!ended.err.contains("noted"), "{}", ended.err);
    assert_same_bytes(&env.sender.path("tree/sub/b"), &env.sender.path("copy/sub/b"));
}

fn a_file_in_the_way_of_a_tree_is_kept() {
    for way in WAYS {
        let env = TestEnvironment::new();
        tree(&env, &["a"]);
        fs::write(env.receiver.path("copy"), "mine").unwrap();
        let route = Route::new(&env, way);
        assert_says(route.copy("sync", "tree/", "copy").end(), 3, &["copy"]);
        assert_says(route.copy("cp", "tree", "copy").end(), 1, &["copy"]);
        assert_eq!(fs::read(env.receiver.path("copy")).unwrap(), b"mine", "{way:?}");
    }
}

fn a_directory_in_the_way_of_a_file_is_kept_unless_forced() {
    for way in WAYS {
        let env = TestEnvironment::new();
        tree(&env, &["a", "name", "z"]);
        fs::create_dir_all(env.receiver.path("copy/name")).unwrap();
        fs::write(env.receiver.path("copy/name/mine"), "mine").unwrap();
        let route = Route::new(&env, way);
        assert_says(route.copy("sync", "tree/", "copy").end(), 23, &["name"]);
        assert_eq!(fs::read(env.receiver.path("copy/name/mine")).unwrap(), b"mine", "{way:?}");
        assert_same(&env.sender.path("tree/z"), &env.receiver.path("copy/z"));
        route.copy("sync --force", "tree/", "copy").end().with(0);
        assert_same(&env.sender.path("tree"), &env.receiver.path("copy"));
    }
}

fn a_program_that_is_not_there_is_told_of() {
    let env = TestEnvironment::new();
    tree(&env, &["a"]);
    let sshd = Sshd::start(&env);
    for (command, code) in [("sync", 12), ("cp", 1)] {
        let words = [command, "-e", &sshd.rsh(), "--tow-path", "/nowhere/tow", "tree/", "elsewhere:copy"];
        let ended = env.sender.tow(words).end();
        assert_says(ended, code, &["not installed on elsewhere", "--tow-path"]);
    }
}

/// A shell in ssh's place.
pub fn shell(env: &TestEnvironment, commands: &str) -> String {
    let script = env.dir().join("rsh");
    fs::write(&script, format!("#!/bin/sh\nshift\n{commands}\n")).unwrap();
    mode(&script, 0o755);
    script.display().to_string()
}

fn a_login_that_prints_is_told_of() {
    let env = TestEnvironment::new();
    tree(&env, &["a"]);
    let program = env.receiver.remote_tow(&[TOW.into()]);
    let rsh = shell(&env, "echo Welcome to this machine; eval \"exec env $*\"");
    let other = format!("elsewhere:{}", env.receiver.path("copy").display());
    let words = ["sync", "-e", &rsh, "--tow-path", &program, "tree/", &other];
    let ended = env.sender.tow(words).end();
    assert_says(ended, 11, &["elsewhere", "it began with \"Welcome", "login script"]);
}

fn a_host_that_is_not_there_is_told_of() {
    let env = TestEnvironment::new();
    tree(&env, &["a"]);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let rsh = format!("ssh -F none -o BatchMode=yes -p {port}");
    tool("ssh");
    for (command, code) in [("sync", 12), ("cp", 1)] {
        let ended = env.sender.tow([command, "-e", &rsh, "tree/", "127.0.0.1:copy"]).end();
        assert_says(ended, code, &["127.0.0.1", "could not connect"]);
    }
}

fn a_source_that_is_not_there_is_told_of() {
    for way in WAYS {
        let env = TestEnvironment::new();
        let route = Route::new(&env, way);
        assert_says(route.copy("sync", "missing", "copy").end(), 23, &["missing"]);
        assert_says(route.copy("cp", "missing", "copy").end(), 1, &["missing"]);
        assert!(names(&env.receiver.path("")).is_empty(), "{way:?}");
    }
}

fn two_other_machines_at_once_are_refused() {
    let env = TestEnvironment::new();
    for command in ["sync", "cp"] {
        assert_says(env.sender.tow([command, "here:a", "there:b"]).end(), 2, &["one side"]);
    }
}

fn another_side_that_stops_is_given_up() {
    for (way, via) in [(Way::Push, "--via ssh"), (Way::Pull, "")] {
        let env = TestEnvironment::new();
        fs::create_dir(env.sender.path("tree")).unwrap();
        file(&env.sender.path("tree/big"), 1, 9 << 20);
        let route = Route::new(&env, way);
        let words = format!("sync --json --no-search --timeout 3 --limit-rate 3M {via}");
        let mut running = route.copy(&words, "tree/", "copy").start();
        running.wait_for_bytes(1 << 20);
        let sessions = descendants(route.sshd.as_ref().unwrap().id());
        let other = sessions.iter().find(|process| process.name == "tow").unwrap();
        other.signal(Signal::STOP);
        let is_in_time = running.ends_within(LATE);
        other.signal(Signal::KILL);
        assert!(is_in_time, "{way:?} {via}: it runs on {LATE:?} after the other side stopped");
        let failure = running.end().failure_with(30);
        assert_eq!(failure["kind"], "timed_out", "{failure}");
    }
}

/// The other side has no network but ssh's pipe.
fn a_tls_port_that_is_closed_is_told_of() {
    if !is_root() {
        skip("needs root, to cut the other side off the network");
    }
    let env = TestEnvironment::new();
    tree(&env, &["a"]);
    let sshd = Sshd::start(&env);
    let alone = [tool("unshare").display().to_string(), "-n".into(), TOW.into()];
    let program = env.receiver.remote_tow(&alone);
    let other = format!("{HOST}:{}", env.receiver.path("copy").display());
    let copy = |via: &str| {
        let words =
            ["sync", "--timeout", "3", via, "-e", &sshd.rsh(), "--tow-path", &program, "tree/", &other];
        env.sender.tow(words).end()
    };
    assert_says(copy("--via=tls"), 12, &["TLS", "--via tls"]);
    assert!(!env.receiver.path("copy/a").exists());
    copy("--no-z").with(0);
    assert_same(&env.sender.path("tree"), &env.receiver.path("copy"));
}

/// `tow cp f /dev/null` took the device from the whole machine.
fn a_device_or_a_fifo_that_was_named_as_destination_is_refused() {
    for way in WAYS {
        let env = TestEnvironment::new();
        file(&env.sender.path("f"), 1, 1000);
        let fifo = env.receiver.path("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
            .unwrap();
        symlink("fifo", &env.receiver.path("link"));
        symlink("/dev/null", &env.receiver.path("null"));
        let route = Route::new(&env, way);
        for (command, code) in [("cp", 1), ("sync", 3)] {
            let way_in = if way == Way::Push { "ssh elsewhere 'cat > " } else { "cat FILE > " };
            assert_says(route.copy(command, "f", "fifo").end(), code, &["is a FIFO", way_in]);
            assert_says(route.copy(command, "f", "link").end(), code, &["is a FIFO"]);
            assert_says(
                route.copy(command, "f", "null").end(),
                code,
                &["is a device", "tow get -o - TICKET"],
            );
        }
        assert!(std::os::unix::fs::FileTypeExt::is_fifo(&fs::metadata(&fifo).unwrap().file_type()));
        assert_eq!(names(&env.receiver.path("")), ["fifo", "link", "null"], "{way:?}");
    }
}

fn a_file_is_written_behind_a_link_that_was_named_as_destination() {
    for way in WAYS {
        let env = TestEnvironment::new();
        file(&env.sender.path("f"), 1, 1000);
        fs::create_dir(env.receiver.path("there")).unwrap();
        file(&env.receiver.path("there/real"), 2, 500);
        symlink("there/real", &env.receiver.path("link"));
        symlink("nowhere", &env.receiver.path("dangling"));
        let route = Route::new(&env, way);
        route.copy("cp", "f", "link").end().with(0);
        assert!(env.receiver.path("link").is_symlink(), "{way:?}");
        assert_same_bytes(&env.sender.path("f"), &env.receiver.path("there/real"));
        assert_eq!(names(&env.receiver.path("there")), ["real"]);
        assert_says(route.copy("cp", "f", "dangling").end(), 1, &["leads nowhere", "remove it"]);
        assert!(env.receiver.path("dangling").is_symlink());
        // rsync's habit, also below a destination.
        route.copy("sync", "f", "link").end().with(0);
        assert!(!env.receiver.path("link").is_symlink(), "{way:?}");
    }
}

fn one_of_several_sources_that_is_not_there_ends_with_23() {
    let env = TestEnvironment::new();
    file(&env.sender.path("a"), 1, 1000);
    let (copy, list) = (env.sender.path("copy"), env.sender.path("list"));
    assert_says(env.sender.tow(["sync", "a", "missing", "copy/"]).end(), 23, &["missing"]);
    assert_says(env.sender.tow(["cp", "a", "missing", "copy/"]).end(), 3, &["missing"]);
    fs::write(&list, "a\nmissing\n").unwrap();
    assert_says(env.sender.tow(["sync", "--files-from", "list", ".", "listed"]).end(), 23, &["missing"]);
    assert_same_bytes(&env.sender.path("a"), &copy.join("a"));
}

/// The destination itself was counted: "1 of 2" was not more than half.
fn a_destination_with_one_file_is_guarded() {
    let env = TestEnvironment::new();
    fs::create_dir_all(env.sender.path("empty/sub")).unwrap();
    for (destination, source) in [("a", "empty/"), ("b", "empty")] {
        let image =
            env.sender.path(destination).join(if source == "empty" { "empty/image" } else { "image" });
        fs::create_dir_all(image.parent().unwrap()).unwrap();
        file(&image, 1, 1000);
        let sync = |more: &str| env.sender.tow(["sync", "--delete", more, source, destination]).end();
        assert_says(sync("-r"), 25, &["1 of 1 entries would be deleted", "--force"]);
        assert!(image.exists());
        sync("--force").with(0);
        assert!(!image.exists());
    }
}
