//! Errors are told, with their exit status, and nothing wrong is written.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::Value;
use towpath_content::Ticket;
use towpath_content::ticket::Secret;

use crate::environment::{Call, Ended, LOOPBACK, TestEnvironment};
use crate::machinery::{Mounted, unprivileged};
use crate::runner::situations;
use crate::trees::{assert_same, bytes, file, names};

situations![
    a_file_that_changed_after_it_was_put_is_not_sent,
    a_file_of_a_tree_that_changed_is_left_out_and_named,
    a_file_that_was_removed_after_it_was_put_is_not_sent,
    a_damaged_ticket_is_told_apart,
    a_sender_that_is_gone_is_given_up,
    a_wrong_secret_is_refused,
    a_wrong_node_is_not_spoken_to,
    knowing_a_hash_is_not_enough,
    a_destination_below_a_file_is_refused,
    a_read_only_destination_is_refused,
    a_full_disk_is_told_and_the_transfer_goes_on_with_more_room,
    a_full_disk_stops_a_tree_and_it_goes_on_with_more_room,
    a_file_that_is_not_there_can_not_be_shared,
    a_special_file_can_not_be_shared,
    special_files_in_a_tree_are_named_and_left_out,
    what_put_leaves_out_is_named_at_both_ends,
    all_that_is_left_out_is_named_however_much_it_is,
    what_can_not_be_read_is_named_at_both_ends,
    of_several_things_to_put_the_others_go_on,
    usage_errors_end_with_2,
    usage_errors_are_told_to_programs_as_events,
    what_is_no_ticket_is_said_in_words,
    what_says_how_to_use_it_needs_no_home,
    a_home_that_depends_on_the_directory_is_refused,
    what_was_collected_is_told_in_words_that_agree,
    every_line_of_json_is_an_object_and_the_last_a_summary,
    quiet_says_nothing,
];

fn impatient(env: &TestEnvironment, ticket: &str, destination: &str) -> Call {
    env.receiver.tow(["get", "--json", "--timeout", "2", ticket, "-o", destination])
}

fn message(failure: &Value) -> &str {
    failure["message"].as_str().unwrap()
}

fn small_file(env: &TestEnvironment) -> PathBuf {
    let path = env.sender.path("small");
    file(&path, 5, 700_000);
    path
}

fn assert_nothing_written(env: &TestEnvironment) {
    assert!(!env.receiver.path("copy").exists());
}

fn a_file_that_changed_after_it_was_put_is_not_sent() {
    let env = TestEnvironment::new();
    let source = small_file(&env);
    let mut share = env.sender.share(&source);
    let ticket = share.ticket();
    fs::write(&source, bytes(6, 700_000)).unwrap();
    let failure = impatient(&env, &ticket, "copy").end().failure();
    assert_eq!(failure["kind"], "changed", "{failure}");
    assert!(message(&failure).contains("changed"), "{failure}");
    assert_nothing_written(&env);
    // The same in words, and then a new ticket for the new content.
    let ended = env.receiver.tow(["get", &ticket, "-o", "copy"]).end().with(1);
    assert!(ended.err.contains("changed"), "{}", ended.err);
    drop(share);
    let mut share = env.sender.share(&source);
    assert_ne!(share.ticket(), ticket);
    env.receiver.get(&share.ticket(), "copy").end().summary();
    assert_same(&source, &env.receiver.path("copy"));
}

fn a_file_of_a_tree_that_changed_is_left_out_and_named() {
    let env = TestEnvironment::new();
    let tree = env.sender.path("tree");
    fs::create_dir(&tree).unwrap();
    for (seed, name) in (1..).zip(["one", "two", "three"]) {
        file(&tree.join(name), seed, 50_000);
        crate::trees::dress(&tree.join(name), 0o644, 1);
    }
    let mut share = env.sender.share(&tree);
    let ticket = share.ticket();
    // When a receiver has it, all of it was read.
    env.receiver.get(&ticket, "before").end().summary();
    fs::remove_dir_all(env.receiver.path("before")).unwrap();
    fs::write(tree.join("two"), bytes(77, 50_000)).unwrap();
    let ended = impatient(&env, &ticket, "copy").end();
    let named: Vec<_> = ended.events().into_iter().filter(|event| event["event"] == "file_failed").collect();
    let summary = ended.partial_summary();
    assert_eq!(summary.number("failed"), 1);
    assert_eq!(named.len(), 1, "{named:?}");
    assert_eq!(named[0]["path"], "two");
    assert!(named[0]["error"].as_str().unwrap().contains("changed"), "{}", named[0]);
    let copied: Vec<_> =
        names(&env.receiver.path("copy")).into_iter().filter(|name| !name.starts_with('.')).collect();
    assert_eq!(copied, ["one", "three"]);
    // The file comes back as it was put: the same command brings the rest.
    file(&tree.join("two"), 2, 50_000);
    crate::trees::dress(&tree.join("two"), 0o644, 1);
    drop(share);
    let mut share = env.sender.share(&tree);
    assert_eq!(share.ticket(), ticket, "the same tree has the same ticket");
    let summary = impatient(&env, &ticket, "copy").end().summary();
    assert_eq!(
        (summary.number("kept"), names(&env.receiver.path("copy")).len()),
        (100_000, 3),
        "{}",
        summary.0
    );
    assert_same(&tree, &env.receiver.path("copy"));
}

fn a_file_that_was_removed_after_it_was_put_is_not_sent() {
    let env = TestEnvironment::new();
    let source = small_file(&env);
    let mut share = env.sender.share(&source);
    let ticket = share.ticket();
    fs::remove_file(&source).unwrap();
    let failure = impatient(&env, &ticket, "copy").end().failure();
    assert!(["changed", "not_found"].contains(&failure["kind"].as_str().unwrap()), "{failure}");
    assert_nothing_written(&env);
}

fn a_damaged_ticket_is_told_apart() {
    let env = TestEnvironment::new();
    let mut share = env.sender.share(small_file(&env));
    let ticket = share.ticket();
    let last = if ticket.ends_with('a') { "b" } else { "a" };
    let middle = ticket.len() / 2;
    let damaged = [
        ticket[..ticket.len() - 1].to_owned(),
        format!("{}{last}", &ticket[..ticket.len() - 8]),
        format!("{}{}", &ticket[..middle], &ticket[middle + 3..]),
        "tow:".into(),
        "tow:!".into(),
        "nothing".into(),
    ];
    for ticket in damaged {
        let failure = impatient(&env, &ticket, "copy").end().with(2);
        assert_eq!(failure.events().pop().unwrap()["kind"], "usage", "{ticket}");
    }
    assert_nothing_written(&env);
}

fn a_sender_that_is_gone_is_given_up() {
    let env = TestEnvironment::new();
    let mut share = env.sender.share(small_file(&env));
    let ticket = share.ticket();
    share.kill();
    let start = std::time::Instant::now();
    let failure = impatient(&env, &ticket, "copy").end().failure();
    assert_eq!(failure["kind"], "unreachable", "{failure}");
    assert!(failure["hint"].as_str().unwrap().contains("same command"), "{failure}");
    assert!(start.elapsed().as_secs() < 20, "--timeout 2 took {:?}", start.elapsed());
    assert_nothing_written(&env);
}

fn edit(ticket: &str, change: impl FnOnce(&mut Ticket)) -> String {
    let mut ticket: Ticket = ticket.parse().unwrap();
    change(&mut ticket);
    ticket.to_string()
}

fn a_wrong_secret_is_refused() {
    let env = TestEnvironment::new();
    let mut share = env.sender.share(small_file(&env));
    let wrong = edit(&share.ticket(), |ticket| ticket.secret = Secret([0; 16]));
    let failure = impatient(&env, &wrong, "copy").end().failure();
    assert_eq!(failure["kind"], "refused", "{failure}");
    assert!(failure["hint"].as_str().unwrap().contains("new ticket"), "{failure}");
    assert_nothing_written(&env);
}

/// The service at the address has another key than the ticket says.
fn a_wrong_node_is_not_spoken_to() {
    let env = TestEnvironment::new();
    let mut share = env.sender.share(small_file(&env));
    let mut other = env.receiver.share(env.receiver.path(""));
    let stranger: Ticket = other.ticket().parse().unwrap();
    let wrong = edit(&share.ticket(), |ticket| ticket.node = stranger.node);
    impatient(&env, &wrong, "copy").end().failure();
    assert_nothing_written(&env);
}

/// The OID of something that is there, with the secret of something else.
fn knowing_a_hash_is_not_enough() {
    let env = TestEnvironment::new();
    let _daemon = env.sender.daemon();
    file(&env.sender.path("public"), 1, 1000);
    file(&env.sender.path("private"), 2, 1000);
    let put = |name: &str| env.sender.tow(["put", name]).end().with(0).text();
    let (public, private) = (put("public"), put("private"));
    let private: Ticket = private.parse().unwrap();
    let wrong = edit(&public, |ticket| ticket.oid = private.oid);
    let failure = impatient(&env, &wrong, "copy").end().failure();
    assert_eq!(failure["kind"], "refused", "{failure}");
    assert_nothing_written(&env);
}

fn a_destination_below_a_file_is_refused() {
    let env = TestEnvironment::new();
    let mut share = env.sender.share(small_file(&env));
    fs::create_dir(env.sender.path("tree")).unwrap();
    let mut tree = env.sender.share("tree");
    fs::write(env.receiver.path("file"), b"mine").unwrap();
    for ticket in [share.ticket(), tree.ticket()] {
        let failure = impatient(&env, &ticket, "file/copy").end().failure();
        assert!(message(&failure).contains("file"), "{failure}");
    }
    assert_eq!(fs::read(env.receiver.path("file")).unwrap(), b"mine");
}

fn a_read_only_destination_is_refused() {
    let env = TestEnvironment::new();
    let mut share = env.sender.share(small_file(&env));
    let there = env.receiver.path("there");
    let _mounted = Mounted::tmpfs(&there, "size=1m,ro");
    let failure = impatient(&env, &share.ticket(), "there/copy").end().failure();
    assert!(message(&failure).contains("copy"), "it says where: {failure}");
}

fn a_full_disk_is_told_and_the_transfer_goes_on_with_more_room() {
    let env = TestEnvironment::new();
    let source = env.sender.path("big");
    file(&source, 1, 6 << 20);
    let mut share = env.sender.share(&source);
    let ticket = share.ticket();
    let mounted = Mounted::tmpfs(&env.receiver.path("there"), "size=3m");
    let failure = env.receiver.get(&ticket, "there/copy").end().failure();
    assert_eq!(failure["kind"], "no_space", "{failure}");
    assert!(failure["hint"].as_str().unwrap().contains("free some space"), "{failure}");
    assert!(!env.receiver.path("there/copy").exists());
    mounted.remount("size=16m");
    env.receiver.get(&ticket, "there/copy").end().summary();
    assert_same(&source, &env.receiver.path("there/copy"));
}

fn a_full_disk_stops_a_tree_and_it_goes_on_with_more_room() {
    let env = TestEnvironment::new();
    let tree = env.sender.path("tree");
    fs::create_dir(&tree).unwrap();
    (0..60).for_each(|number| file(&tree.join(number.to_string()), number, 100_000));
    let mut share = env.sender.share(&tree);
    let ticket = share.ticket();
    let mounted = Mounted::tmpfs(&env.receiver.path("there"), "size=3m");
    let failure = env.receiver.get(&ticket, "there/copy").end().failure();
    assert_eq!(failure["kind"], "no_space", "{failure}");
    mounted.remount("size=16m");
    env.receiver.get(&ticket, "there/copy").end().summary();
    assert_same(&tree, &env.receiver.path("there/copy"));
}

fn a_file_that_is_not_there_can_not_be_shared() {
    let env = TestEnvironment::new();
    for words in [&["share", "--listen", LOOPBACK, "nothing"][..], &["put", "nothing"]] {
        let ended = env.sender.tow(words).end().with(1);
        assert!(ended.out.is_empty() && ended.err.contains("nothing"), "{} {}", ended.text(), ended.err);
    }
}

fn a_special_file_can_not_be_shared() {
    let env = TestEnvironment::new();
    let ended = env.sender.tow(["share", "--listen", LOOPBACK, "/dev/null"]).end().with(2);
    assert!(ended.err.contains("/dev/null"), "{}", ended.err);
}

fn special_files_in_a_tree_are_named_and_left_out() {
    let env = TestEnvironment::new();
    let tree = env.sender.path("tree");
    fs::create_dir_all(tree.join("sub")).unwrap();
    file(&tree.join("sub/file"), 1, 1000);
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    rustix::fs::mkfifoat(rustix::fs::CWD, tree.join("sub/pipe"), mode).unwrap();
    let words = ["share", "--json", "--listen", LOOPBACK, "tree"];
    let mut share = env.sender.tow(words).start();
    let ended = env.receiver.get(&share.ticket(), "copy").end();
    assert_eq!(paths_of(&ended, "entry_skipped"), ["sub/pipe"], "the whole path in the tree");
    let summary = ended.summary();
    assert_eq!((summary.number("failed"), summary.number("skipped")), (0, 1));
    assert_eq!(names(&env.receiver.path("copy/sub")), ["file"]);
    share.interrupt();
    assert_eq!(left_out(&share.end().with(130)), [""; 0], "its receiver decides");
}

/// The paths that were told as left out, though they were asked for.
fn left_out(ended: &Ended) -> Vec<String> {
    paths_of(ended, "file_failed")
}

/// The paths of all events of one kind.
fn paths_of(ended: &Ended, kind: &str) -> Vec<String> {
    let told = ended.events().into_iter().filter(|event| event["event"] == kind);
    told.map(|event| event["path"].as_str().unwrap().to_owned()).collect()
}

/// `tow put DIR` dropped files without a word, with exit status 0; its receivers were not told either.
fn what_put_leaves_out_is_named_at_both_ends() {
    for with_daemon in [false, true] {
        let env = TestEnvironment::new();
        env.sender.configure("[processors]\nrefuse_names = [\"*.exe\"]\n");
        let tree = env.sender.path("tree");
        fs::create_dir(&tree).unwrap();
        for name in ["good", "small.exe"] {
            file(&tree.join(name), 1, 700);
        }
        let mode = rustix::fs::Mode::from_raw_mode(0o644);
        rustix::fs::mkfifoat(rustix::fs::CWD, tree.join("pipe"), mode).unwrap();
        let mut daemon = with_daemon.then(|| env.sender.daemon());
        // The daemon that follows listens there alone.
        let ended = env.sender.tow(["put", "--listen", LOOPBACK, "tree"]).end().with(3);
        assert!(!ended.err.contains("pipe"), "its receiver decides: {}", ended.err);
        assert!(ended.err.contains("tow: small.exe: refused by rules"), "{}", ended.err);
        let ticket = ended.text();
        // Said again, also of a tree that is known already, and to programs.
        let again = env.sender.tow(["--json", "put", "tree"]).end().with(3);
        assert_eq!(left_out(&again), ["small.exe"]);
        daemon.get_or_insert_with(|| env.sender.daemon());
        let got = env.receiver.get(ticket.trim(), "copy").end();
        assert_eq!(left_out(&got), ["small.exe"]);
        assert_eq!(paths_of(&got, "entry_skipped"), ["pipe"]);
        let summary = got.partial_summary();
        assert_eq!((summary.number("failed"), summary.number("skipped")), (1, 1));
        assert_eq!(names(&env.receiver.path("copy")), ["good"]);
    }
}

/// More than any queue on the way has room for.
fn all_that_is_left_out_is_named_however_much_it_is() {
    const COUNT: usize = 10_000;
    let env = TestEnvironment::new_in_memory();
    env.sender.configure("[processors]\nrefuse_names = [\"*.exe\"]\n");
    let tree = env.sender.path("tree");
    fs::create_dir(&tree).unwrap();
    let name = |number| format!("{number:05}.exe");
    (0..COUNT).for_each(|number| fs::write(tree.join(name(number)), name(number)).unwrap());
    // Said again, also of a tree that is known already.
    for _ in 0..2 {
        let put = env.sender.tow(["--json", "put", "tree"]).end().with(3);
        assert_eq!(left_out(&put), (0..COUNT).map(name).collect::<Vec<_>>());
        assert_eq!(put.events().last().unwrap()["event"], "ticket");
    }
    let _daemon = env.sender.daemon();
    let ticket = env.sender.tow(["put", "tree"]).end().with(3).text();
    let got = env.receiver.get(ticket.trim(), "copy").end();
    assert_eq!(left_out(&got), (0..COUNT).map(name).collect::<Vec<_>>());
    assert_eq!(got.partial_summary().number("failed"), COUNT as u64);
}

fn what_can_not_be_read_is_named_at_both_ends() {
    let env = TestEnvironment::new();
    let tree = env.sender.path("tree");
    fs::create_dir_all(tree.join("closed")).unwrap();
    for name in ["closed/inside", "open", "secret"] {
        file(&tree.join(name), 1, 100_000);
    }
    for name in ["closed", "secret"] {
        fs::set_permissions(tree.join(name), fs::Permissions::from_mode(0o000)).unwrap();
    }
    let program = unprivileged(&env);
    let words = ["share", "--json", "--listen", LOOPBACK, "tree"];
    let mut share = env.sender.tow_as(&program, words).start();
    let got = env.receiver.get(&share.ticket(), "copy").end();
    assert_eq!(left_out(&got), ["closed", "secret"]);
    assert_eq!(names(&env.receiver.path("copy")), ["open"]);
    share.interrupt();
    assert_eq!(left_out(&share.end().with(3)), ["closed", "secret"]);
}

fn of_several_things_to_put_the_others_go_on() {
    let env = TestEnvironment::new();
    let _daemon = env.sender.daemon();
    file(&env.sender.path("a"), 1, 700);
    file(&env.sender.path("b"), 2, 700);
    let ended = env.sender.tow(["put", "a", "nosuch", "b"]).end().with(3);
    assert_eq!(ended.text().lines().count(), 2, "{}", ended.text());
    assert!(ended.err.contains("nosuch"), "{}", ended.err);
    assert_eq!(left_out(&env.sender.tow(["--json", "put", "a", "b", "nosuch"]).end().with(3)), ["nosuch"]);
    env.sender.tow(["put", "nosuch"]).end().with(1);
    env.sender.tow(["put", "nosuch", "nowhere"]).end().with(1);
}

fn usage_errors_end_with_2() {
    let env = TestEnvironment::new();
    let calls: [&[&str]; 10] = [
        &[],
        &["fly"],
        &["get"],
        &["share"],
        &["get", "--limit-rate", "fast", "tow:x"],
        &["get", "--timeout", "soon", "tow:x"],
        &["share", "--listen", "here", "."],
        &["put", "-", "other"],
        &["done"],
        &["man", "nothing"],
    ];
    for words in calls {
        let ended = env.sender.tow(words).end().with(2);
        assert!(ended.out.is_empty() && !ended.err.is_empty(), "{words:?}: {}", ended.text());
    }
    env.sender.tow(["--help"]).end().with(0);
    env.sender.tow(["--version"]).end().with(0);
    let homeless = env.sender.tow(["status"]).variable("TOW_HOME", "").variable("HOME", "").end().with(2);
    assert!(homeless.err.contains("TOW_HOME"), "{}", homeless.err);
}

fn every_line_of_json_is_an_object_and_the_last_a_summary() {
    let env = TestEnvironment::new();
    let tree = env.sender.path("tree");
    fs::create_dir(&tree).unwrap();
    file(&tree.join("file"), 1, 3 << 20);
    let words = ["share", "--json", "--listen", LOOPBACK, "tree"];
    let mut share = env.sender.tow(words).start();
    let ended = env.receiver.get_slowly(&share.ticket(), "copy", "4M").end().with(0);
    assert!(ended.err.is_empty(), "standard error is for people: {}", ended.err);
    let kinds: Vec<_> =
        ended.events().iter().map(|event| event["event"].as_str().unwrap().to_owned()).collect();
    assert!(kinds.len() > 2, "progress is told: {kinds:?}");
    let (last, before) = kinds.split_last().unwrap();
    assert_eq!(last, "summary");
    let (first, between) = before.split_first().unwrap();
    assert_eq!(first, "receiving");
    assert!(between.iter().all(|kind| kind == "transfer"), "{kinds:?}");
    let summary = ended.summary();
    assert_eq!(
        (summary.number("bytes"), summary.number("entries"), summary.number("failed")),
        (3 << 20, 2, 0)
    );
    assert!(summary.0["seconds"].as_f64().unwrap() > 0.0);
    assert_eq!(summary.0["output"].as_str().unwrap(), env.receiver.path("copy").to_str().unwrap());
    share.interrupt();
    let ended = share.end().with(130);
    assert_eq!(ended.events()[0]["event"], "ticket");
}

fn quiet_says_nothing() {
    let env = TestEnvironment::new();
    let source = small_file(&env);
    let words = ["share", "-q", "--listen", LOOPBACK, "small"];
    let mut share = env.sender.tow(words).start();
    let ended = env.receiver.tow(["get", "-q", &share.ticket(), "-o", "copy"]).end().with(0);
    assert!(ended.out.is_empty() && ended.err.is_empty(), "{} {}", ended.text(), ended.err);
    assert_same(&source, &env.receiver.path("copy"));
    assert!(share.error_text().is_empty(), "{}", share.error_text());
    let ended = env.receiver.tow(["get", "-q", "tow:bad"]).end().with(2);
    assert!(!ended.err.is_empty(), "errors are not silenced");
}

fn usage_errors_are_told_to_programs_as_events() {
    let env = TestEnvironment::new();
    let ended = env.receiver.tow(["--json", "get", "--limit-rate", "fast", "tow:x"]).end();
    assert_eq!(ended.err, "");
    let failure = ended.failure_with(2);
    assert_eq!(failure["kind"], "usage", "{failure}");
    assert!(message(&failure).contains("invalid value 'fast' for '--limit-rate <RATE>'"), "{failure}");
    let failure = env.receiver.tow(["get", "--foo", "tow:x", "--json"]).end().failure_with(2);
    assert!(message(&failure).contains("unexpected argument '--foo'"), "{failure}");
    assert!(failure["hint"].as_str().unwrap().starts_with("usage: tow get"), "{failure}");
    // The opposite of some flag was offered instead of any unknown one.
    let ended = env.receiver.tow(["sync", "--foo", "a", "b"]).end().with(2);
    assert!(!ended.err.contains("--no-"), "{}", ended.err);
}

fn what_is_no_ticket_is_said_in_words() {
    let env = TestEnvironment::new();
    let says = |ticket: &str| env.receiver.tow(["get", ticket]).end().with(2).err;
    assert_eq!(
        says("photos"),
        "tow: 'photos' is no ticket: a ticket begins with tow:, a code with a number\n"
    );
    assert_eq!(says("tow:aaaa"), "tow: the ticket is damaged or cut short; copy it again, whole\n");
    let no_oid = "tow: 'blake3:12' is no OID: 64 of the digits 0 to 9 and a to f follow the colon\n";
    assert_eq!(says("blake3:12"), no_oid);
    let empty = env.receiver.tow(["get", "-"]).input_text("\n").end().with(2);
    assert_eq!(empty.err, "tow: no ticket came on standard input\n");
}

/// Environments in which programs are packed often have no `HOME`.
fn what_says_how_to_use_it_needs_no_home() {
    let env = TestEnvironment::new();
    for words in [&["man"][..], &["completions", "bash"], &["daemon", "--check-config"]] {
        let ended = env.receiver.tow(words).without("HOME").without("TOW_HOME").end().with(0);
        assert!(!ended.out.is_empty(), "{words:?}");
    }
    env.receiver.tow(["ls"]).without("HOME").without("TOW_HOME").end().with(2);
}

/// Two machines with relative homes were one, silently.
fn a_home_that_depends_on_the_directory_is_refused() {
    let env = TestEnvironment::new();
    let ended = env.receiver.tow(["ls"]).variable("TOW_HOME", "here").end().with(2);
    assert!(ended.err.contains("TOW_HOME is 'here', which is no absolute path"), "{}", ended.err);
}

fn what_was_collected_is_told_in_words_that_agree() {
    let env = TestEnvironment::new();
    let told = env.receiver.tow(["gc"]).end().with(0).text();
    assert_eq!(told, "0 B removed: 0 cached objects, 0 left-over files; 0 entries of the index forgotten\n");
}
