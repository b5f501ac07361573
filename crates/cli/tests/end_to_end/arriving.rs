//! Files and trees that are sent arrive identical: bytes, names, modes, times, symbolic links, holes.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::environment::{Summary, TestEnvironment};
use crate::runner::situations;
use crate::trees::{PIECE, assert_same, bytes, dress, file, size, sparse_file, symlink};

situations![
    files_of_every_size_around_a_piece_arrive_identical,
    a_tree_arrives_identical,
    odd_names_arrive_as_they_are,
    modes_arrive_as_the_umask_has_them,
    an_empty_directory_arrives,
    holes_stay_holes_in_a_file,
    holes_stay_holes_in_a_tree,
    a_large_file_is_shared_before_it_is_read,
    without_a_destination_it_comes_under_its_own_name,
    a_name_that_would_paint_the_terminal_is_shown_escaped,
    a_terminal_is_told_what_comes_and_where_to_before_how_it_ended,
    programs_are_told_what_comes_before_all_else,
    several_receivers_fetch_at_once,
];

/// Shares `source`, gets it as `destination`, compares.
fn send(env: &TestEnvironment, source: &Path, destination: &Path) -> Summary {
    let mut share = env.sender.share(source);
    let summary = env.receiver.get(&share.ticket(), destination).end().summary();
    assert_same(source, destination);
    summary
}

fn files_of_every_size_around_a_piece_arrive_identical() {
    let env = TestEnvironment::new();
    for len in [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE - 1] {
        let source = env.sender.path(format!("{len} bytes"));
        file(&source, len, len);
        dress(&source, 0o641, 123_456_789);
        let summary = send(&env, &source, &env.receiver.path(format!("{len}")));
        assert_eq!(summary.number("bytes"), len);
        assert_eq!(summary.number("kept") + summary.fetched(), len);
    }
}

fn a_tree_arrives_identical() {
    let env = TestEnvironment::new();
    let tree = env.sender.path("tree");
    fs::create_dir_all(tree.join("a/b/c")).unwrap();
    fs::create_dir_all(tree.join("empty")).unwrap();
    for (place, len) in [0, 1, 5000, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE + 7].into_iter().enumerate() {
        let path = tree.join(["a", "a/b", "a/b/c"][place % 3]).join(format!("{len}"));
        file(&path, len + 1, len);
        dress(&path, [0o600, 0o755, 0o444, 0o000][place % 4], 7 + place as u32);
    }
    symlink("../a/b", &tree.join("a/to a directory"));
    symlink("/nowhere/at/all", &tree.join("dangling"));
    dress(&tree.join("a/b/c"), 0o555, 5);
    dress(&tree.join("a/b"), 0o750, 4);
    dress(&tree.join("empty"), 0o711, 3);
    dress(&tree, 0o700, 999_999_999);
    let summary = send(&env, &tree, &env.receiver.path("copy"));
    assert_eq!(summary.number("bytes"), size(&tree));
    assert_eq!(summary.number("failed"), 0);
    assert_eq!(summary.number("entries"), 14, "five directories, seven files, two links");
}

fn odd_names_arrive_as_they_are() {
    let env = TestEnvironment::new();
    let tree = env.sender.path("odd");
    fs::create_dir(&tree).unwrap();
    let longest = [b'n'; 255];
    let names: [&[u8]; 9] = [
        b"new\nline",
        b"\xff\xfe not text",
        b"-o",
        b" ",
        b".hidden",
        b"~",
        b"\x1b[31m",
        "\u{202e}txt".as_bytes(),
        &longest,
    ];
    for name in names {
        let name = OsStr::from_bytes(name);
        fs::write(tree.join(name), name.as_bytes()).unwrap();
        fs::create_dir(tree.join("dirs")).or_else(|_| fs::metadata(tree.join("dirs")).map(drop)).unwrap();
        fs::create_dir(tree.join("dirs").join(name)).unwrap();
        fs::write(tree.join("dirs").join(name).join(name), b"below").unwrap();
    }
    send(&env, &tree, &env.receiver.path("copy"));
    // A single file, whose temporary has its name too.
    for name in names {
        let mut share = env.sender.share(tree.join(OsStr::from_bytes(name)));
        let ticket = share.ticket();
        if name.starts_with(b".") {
            let refused = env.receiver.tow(["get", &ticket]).end().with(2);
            assert!(refused.err.contains("the sender calls it .hidden, a hidden name"), "{}", refused.err);
            env.receiver.tow(["get", &ticket, "-o", ".hidden"]).end().with(0);
        } else {
            env.receiver.tow(["get", &ticket]).end().with(0);
        }
        assert_same(&tree.join(OsStr::from_bytes(name)), &env.receiver.path(OsStr::from_bytes(name)));
    }
}

/// The receiver's umask holds, whatever the sender says.
fn modes_arrive_as_the_umask_has_them() {
    let env = TestEnvironment::new();
    let open = env.sender.path("open");
    fs::create_dir(&open).unwrap();
    fs::write(open.join("program"), b"x").unwrap();
    for path in [open.join("program"), open.clone()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let program = open.join("program");
    for (path, name) in [(&open, "tree"), (&program, "file")] {
        let mut share = env.sender.share(path);
        let ticket = share.ticket();
        env.receiver.get(&ticket, name).end().summary();
    }
    for name in ["tree", "tree/program", "file"] {
        let mode = env.receiver.path(name).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o022, 0, "{name}: {mode:o}");
    }
}

fn an_empty_directory_arrives() {
    let env = TestEnvironment::new();
    let tree = env.sender.path("empty");
    fs::create_dir(&tree).unwrap();
    dress(&tree, 0o750, 1);
    let summary = send(&env, &tree, &env.receiver.path("copy"));
    assert_eq!((summary.number("bytes"), summary.number("entries")), (0, 1));
}

const SPARSE: u64 = 48 << 20;

fn assert_mostly_holes(path: &Path) {
    let metadata = fs::metadata(path).unwrap();
    let allocated = metadata.blocks() * 512;
    assert!(allocated < 4 << 20, "{} has {allocated} bytes allocated", path.display());
}

fn holes_stay_holes_in_a_file() {
    let env = TestEnvironment::new();
    let source = env.sender.path("sparse");
    sparse_file(&source, SPARSE, &[0, 20 << 20, SPARSE - 4096]);
    let summary = send(&env, &source, &env.receiver.path("copy"));
    assert_mostly_holes(&env.receiver.path("copy"));
    assert!(summary.fetched() < 4 << 20, "zeros cost nothing: {}", summary.0);
}

fn holes_stay_holes_in_a_tree() {
    let env = TestEnvironment::new();
    let tree = env.sender.path("tree");
    fs::create_dir(&tree).unwrap();
    sparse_file(&tree.join("sparse"), SPARSE, &[1 << 20, 30 << 20]);
    sparse_file(&tree.join("nothing but a hole"), SPARSE, &[]);
    let summary = send(&env, &tree, &env.receiver.path("copy"));
    assert_mostly_holes(&env.receiver.path("copy/sparse"));
    assert_mostly_holes(&env.receiver.path("copy/nothing but a hole"));
    assert!(summary.fetched() < 4 << 20, "zeros cost nothing: {}", summary.0);
}

fn a_large_file_is_shared_before_it_is_read() {
    let env = TestEnvironment::new();
    let source = env.sender.path("large");
    file(&source, 1, (64 << 20) + 12345);
    dress(&source, 0o604, 42);
    let summary = send(&env, &source, &env.receiver.path("copy"));
    assert_eq!(summary.number("bytes"), (64 << 20) + 12345);
}

fn without_a_destination_it_comes_under_its_own_name() {
    let env = TestEnvironment::new();
    file(&env.sender.path("a file"), 1, 1000);
    let mut share = env.sender.share("a file");
    let ended = env.receiver.tow(["get", &share.ticket()]).end().with(0);
    assert_same(&env.sender.path("a file"), &env.receiver.path("a file"));
    assert!(ended.out.is_empty(), "standard output is for data: {}", ended.text());
    assert!(ended.err.contains("a file"), "{}", ended.err);
}

fn a_name_that_would_paint_the_terminal_is_shown_escaped() {
    let env = TestEnvironment::new();
    let name = "\u{1b}[31mred\u{202e}";
    file(&env.sender.path(name), 1, 1000);
    let mut share = env.sender.share(name);
    let ticket = share.ticket();
    let first = env.receiver.tow(["get", &ticket]).end().with(0);
    assert_same(&env.sender.path(name), &env.receiver.path(name));
    fs::write(env.receiver.path(name), b"something else").unwrap();
    let second = env.receiver.tow(["get", &ticket]).end().with(1);
    for talk in [first.err, second.err] {
        assert!(talk.contains("red") && !talk.contains(['\u{1b}', '\u{202e}']), "{talk:?}");
    }
}

fn a_terminal_is_told_what_comes_and_where_to_before_how_it_ended() {
    let env = TestEnvironment::new();
    file(&env.sender.path("notes"), 1, 700_000);
    fs::create_dir(env.sender.path("photos")).unwrap();
    file(&env.sender.path("photos/one"), 2, 700_000);
    for (name, what) in [("notes", "notes (683.59 KiB)"), ("photos", "photos/")] {
        let mut share = env.sender.share(name);
        let words = ["get".to_owned(), share.ticket()];
        let shown = env.receiver.tow(&words).at_terminal().end().with(0).err;
        let path = env.receiver.path(name);
        let begun = shown.find(&format!("tow: receiving {what} into {}", path.display()));
        let ended = shown.find(&format!(" -> {}", path.display()));
        assert!(begun.is_some() && begun < ended, "{shown:?}");
        for daemon in [false, true] {
            let _daemon = daemon.then(|| env.stranger.daemon());
            let quiet = ["-q".to_owned()].into_iter().chain(words.clone());
            assert_eq!(env.stranger.tow(quiet).at_terminal().end().with(0).err, "");
            let _ = fs::remove_file(env.stranger.path(name));
            let _ = fs::remove_dir_all(env.stranger.path(name));
        }
        let elsewhere = env.stranger.tow(&words).end().with(0);
        assert!(!elsewhere.err.contains("receiving"), "a log needs no line more: {}", elsewhere.err);
    }
}

fn programs_are_told_what_comes_before_all_else() {
    let env = TestEnvironment::new();
    file(&env.sender.path("notes"), 1, 700_000);
    let mut share = env.sender.share("notes");
    let ticket = share.ticket();
    let told = |event: &serde_json::Value, name: &str| {
        assert_eq!((&event["event"], &event["name"]), (&"receiving".into(), &"notes".into()));
        assert_eq!((&event["kind"], &event["size"]), (&"file".into(), &700_000.into()));
        assert_eq!(event["output"].as_str(), env.receiver.path(name).to_str());
    };
    let came = env.receiver.get(&ticket, "a").end().with(0).events();
    told(&came[0], "a");
    let again = env.receiver.get(&ticket, "a").end().with(0).events();
    assert!(again.iter().all(|event| event["event"] != "receiving"), "it was there: {again:?}");
    let _daemon = env.receiver.daemon();
    told(&env.receiver.get(&ticket, "b").end().with(0).events()[0], "b");
}

fn several_receivers_fetch_at_once() {
    let env = TestEnvironment::new();
    let source = env.sender.path("popular");
    fs::write(&source, bytes(3, 3 << 20)).unwrap();
    let mut share = env.sender.share(&source);
    let ticket = share.ticket();
    let copies: Vec<_> = (0..4).map(|number| env.receiver.path(format!("copy {number}"))).collect();
    let getting: Vec<_> = copies.iter().map(|copy| env.receiver.get(&ticket, copy).start()).collect();
    getting.into_iter().for_each(|running| drop(running.end().summary()));
    copies.iter().for_each(|copy| assert_same(&source, copy));
}
