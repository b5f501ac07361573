//! Destinations of gets, as with `cp`, and what is never overwritten.

use std::fs;
use std::path::Path;

use crate::environment::TestEnvironment;
use crate::machinery::{Mounted, is_root, unprivileged};
use crate::runner::{situations, skip};
use crate::trees::{assert_same, file, names, symlink};

situations![
    two_gets_of_one_file_to_one_name_leave_one_file,
    the_ticket_is_read_from_standard_input,
    an_existing_directory_takes_it_under_its_own_name,
    an_existing_file_is_refused_and_unchanged,
    a_symlink_at_the_destination_is_not_followed,
    a_symlink_to_a_directory_is_a_directory,
    the_same_file_again_is_done_at_once,
    the_same_large_file_again_is_done_at_once,
    a_file_just_written_and_got_again_is_done_at_once,
    a_finished_tree_is_not_written_into,
    a_missing_folder_is_not_made,
    what_can_not_be_written_is_called_by_its_own_name,
    standard_output_gets_the_bytes_alone,
    a_tree_does_not_go_to_standard_output,
];

fn small_file(env: &TestEnvironment) -> std::path::PathBuf {
    let path = env.sender.path("small");
    file(&path, 5, 70_000);
    crate::trees::dress(&path, 0o640, 5);
    path
}

fn small_tree(env: &TestEnvironment) -> std::path::PathBuf {
    let tree = env.sender.path("tree");
    fs::create_dir(&tree).unwrap();
    file(&tree.join("one"), 1, 1000);
    file(&tree.join("two"), 2, 2000);
    tree
}

fn assert_nothing_left(dir: &Path, expected: &[&str]) {
    assert_eq!(names(dir), expected, "temporaries or strangers");
}

/// Its temporary was named: `.copy.tow-…`.
fn what_can_not_be_written_is_called_by_its_own_name() {
    if !is_root() {
        skip("needs root, to mount a small file system and to have a directory of somebody else");
    }
    let env = TestEnvironment::new();
    file(&env.sender.path("large"), 1, 9_000_000);
    let program = unprivileged(&env);
    let mut share = env.sender.share("large");
    let ticket = share.ticket();
    let get = |copy: &Path| ["get", &ticket, "-o", copy.to_str().unwrap()].map(String::from);
    fs::create_dir(env.receiver.path("foreign")).unwrap();
    let copy = env.receiver.path("foreign/copy");
    let ended = env.receiver.tow_as(&program, get(&copy)).end().with(1);
    let wanted = format!("tow: {}: permission denied\n     run it as", copy.display());
    assert!(ended.err.contains(&wanted), "not {wanted}: {}", ended.err);
    let full = env.stranger.path("full");
    let _full = Mounted::tmpfs(&full, "size=4m");
    let copy = full.join("copy");
    let ended = env.stranger.tow(get(&copy)).end().with(1);
    let wanted = format!("tow: {}: no space left\n     free some space", copy.display());
    assert!(ended.err.contains(&wanted), "not {wanted}: {}", ended.err);
}

fn the_ticket_is_read_from_standard_input() {
    let env = TestEnvironment::new();
    let source = small_file(&env);
    let mut share = env.sender.share(&source);
    let ticket = share.ticket();
    let get = env.receiver.tow(["get", "-", "-o", "copy"]).input_text(&format!("\n {ticket} \r\n"));
    get.end().with(0);
    assert_same(&source, &env.receiver.path("copy"));
    let empty = env.receiver.tow(["get", "-", "-o", "none"]).input_text("").end().with(2);
    assert!(empty.err.contains("ticket"), "{}", empty.err);
}

fn an_existing_directory_takes_it_under_its_own_name() {
    let env = TestEnvironment::new();
    let (source, tree) = (small_file(&env), small_tree(&env));
    fs::create_dir(env.receiver.path("there")).unwrap();
    for source in [&source, &tree] {
        let mut share = env.sender.share(source);
        env.receiver.get(&share.ticket(), "there").end().summary();
        assert_same(source, &env.receiver.path("there").join(source.file_name().unwrap()));
    }
    assert_nothing_left(&env.receiver.path("there"), &["small", "tree"]);
}

fn an_existing_file_is_refused_and_unchanged() {
    let env = TestEnvironment::new();
    let source = small_file(&env);
    let mut share = env.sender.share(&source);
    let ticket = share.ticket();
    fs::write(env.receiver.path("mine"), b"precious").unwrap();
    let failure = env.receiver.get(&ticket, "mine").end().failure();
    assert_eq!(failure["kind"], "exists");
    assert!(failure["message"].as_str().unwrap().contains("mine"), "{failure}");
    assert_eq!(fs::read(env.receiver.path("mine")).unwrap(), b"precious");
    let mut share = env.sender.share(small_tree(&env));
    assert_eq!(env.receiver.get(&share.ticket(), "mine").end().failure()["kind"], "exists");
    assert_eq!(fs::read(env.receiver.path("mine")).unwrap(), b"precious");
    assert_nothing_left(&env.receiver.path(""), &["mine"]);
}

fn a_symlink_at_the_destination_is_not_followed() {
    let env = TestEnvironment::new();
    let mut file_share = env.sender.share(small_file(&env));
    let mut tree_share = env.sender.share(small_tree(&env));
    fs::write(env.receiver.path("mine"), b"precious").unwrap();
    symlink("mine", &env.receiver.path("to a file"));
    symlink("not here yet", &env.receiver.path("to nothing"));
    for link in ["to a file", "to nothing"] {
        for ticket in [file_share.ticket(), tree_share.ticket()] {
            assert_eq!(env.receiver.get(&ticket, link).end().failure()["kind"], "exists", "{link}");
        }
    }
    assert_eq!(fs::read(env.receiver.path("mine")).unwrap(), b"precious");
    assert_nothing_left(&env.receiver.path(""), &["mine", "to a file", "to nothing"]);
}

fn a_symlink_to_a_directory_is_a_directory() {
    let env = TestEnvironment::new();
    let source = small_file(&env);
    let mut share = env.sender.share(&source);
    fs::create_dir(env.receiver.path("there")).unwrap();
    symlink("there", &env.receiver.path("link"));
    env.receiver.get(&share.ticket(), "link").end().summary();
    assert_same(&source, &env.receiver.path("there/small"));
}

fn assert_second_get_is_free(env: &TestEnvironment, ticket: &str, size: u64) {
    env.receiver.get(ticket, "copy").end().summary();
    let again = env.receiver.get(ticket, "copy").end().summary();
    assert_eq!((again.fetched(), again.number("kept")), (0, size), "{}", again.0);
}

fn the_same_file_again_is_done_at_once() {
    let env = TestEnvironment::new();
    let source = small_file(&env);
    let mut share = env.sender.share(&source);
    assert_second_get_is_free(&env, &share.ticket(), 70_000);
    // Still there after somebody else wrote into it: refused.
    fs::write(env.receiver.path("copy"), b"other").unwrap();
    assert_eq!(env.receiver.get(&share.ticket(), "copy").end().failure()["kind"], "exists");
    assert_eq!(fs::read(env.receiver.path("copy")).unwrap(), b"other");
}

/// Its ticket names a live object.
fn the_same_large_file_again_is_done_at_once() {
    let env = TestEnvironment::new();
    let source = env.sender.path("large");
    file(&source, 9, 65 << 20);
    let mut share = env.sender.share(&source);
    assert_second_get_is_free(&env, &share.ticket(), 65 << 20);
}

/// Its time is so new that its stamp proves nothing.
fn a_file_just_written_and_got_again_is_done_at_once() {
    let env = TestEnvironment::new();
    let source = env.sender.path("new");
    let mut share =
        env.sender.tow(["put", "-", "--listen", crate::environment::LOOPBACK]).input_text("new").start();
    let ticket = share.ticket();
    fs::write(&source, "new").unwrap();
    assert_second_get_is_free(&env, &ticket, 3);
    assert_eq!(fs::read(env.receiver.path("copy")).unwrap(), b"new");
}

fn a_finished_tree_is_not_written_into() {
    let env = TestEnvironment::new();
    let tree = small_tree(&env);
    let mut share = env.sender.share(&tree);
    let ticket = share.ticket();
    env.receiver.get(&ticket, "copy").end().summary();
    // As with cp, the second goes inside; the third finds its place taken.
    env.receiver.get(&ticket, "copy").end().summary();
    assert_same(&tree, &env.receiver.path("copy/tree"));
    assert_eq!(env.receiver.get(&ticket, "copy").end().failure()["kind"], "exists");
}

fn a_missing_folder_is_not_made() {
    let env = TestEnvironment::new();
    let mut file_share = env.sender.share(small_file(&env));
    let mut tree_share = env.sender.share(small_tree(&env));
    for ticket in [file_share.ticket(), tree_share.ticket()] {
        let failure = env.receiver.get(&ticket, "not/there").end().failure();
        assert_eq!(failure["kind"], "not_found", "{failure}");
        assert!(failure["message"].as_str().unwrap().contains("not"), "{failure}");
    }
    assert_nothing_left(&env.receiver.path(""), &[]);
}

fn standard_output_gets_the_bytes_alone() {
    let env = TestEnvironment::new();
    let source = small_file(&env);
    let mut share = env.sender.share(&source);
    let ended = env.receiver.tow(["get", &share.ticket(), "-o", "-"]).end().with(0);
    assert!(ended.out == fs::read(&source).unwrap(), "the bytes differ");
    let ended = env.receiver.tow(["get", "--json", &share.ticket(), "-o", "-"]).end().with(0);
    assert!(ended.out == fs::read(&source).unwrap(), "with --json too");
    let last = ended.err.lines().last().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    assert_eq!(last.unwrap()["event"], "summary", "which tells its events on standard error");
}

fn a_tree_does_not_go_to_standard_output() {
    let env = TestEnvironment::new();
    let mut share = env.sender.share(small_tree(&env));
    let ended = env.receiver.tow(["get", &share.ticket(), "-o", "-"]).end().with(2);
    assert!(ended.out.is_empty(), "nothing is written: {}", ended.text());
    assert!(ended.err.contains("tree") || ended.err.contains("directory"), "{}", ended.err);
}

/// The loser ended with 1 and left a temporary of the whole file, which nothing removed.
fn two_gets_of_one_file_to_one_name_leave_one_file() {
    let env = TestEnvironment::new();
    file(&env.sender.path("x"), 1, 3 << 20);
    let mut share = env.sender.share("x");
    let ticket = share.ticket();
    let gets: Vec<_> = (0..2).map(|_| env.receiver.get_slowly(&ticket, "x", "2M").start()).collect();
    for get in gets {
        get.end().summary();
    }
    assert_same(&env.sender.path("x"), &env.receiver.path("x"));
    assert_eq!(names(&env.receiver.path("")), ["x"]);
}
