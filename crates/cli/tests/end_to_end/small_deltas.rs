//! A changed file of some hundred KiB to some MiB costs a get about what it costs a copy: little more than what differs.

use std::fs;
use std::path::Path;

use crate::environment::Summary;
use crate::runner::situations;
use crate::searching::World;
use crate::sshd::{Route, Way};
use crate::trees::{assert_same, bytes};

situations![
    a_changed_file_costs_a_get_about_what_it_costs_a_copy,
    a_changed_file_of_a_stranger_comes_by_its_pieces,
    a_changed_file_that_is_got_alone_comes_as_a_delta,
    what_came_as_a_delta_is_explained,
];

const KIB: u64 = 1 << 10;
const SIZES: [u64; 5] = [100 * KIB, 300 * KIB, 400 * KIB, 1024 * KIB, 3072 * KIB];
/// Slow from the first byte on, and fast enough for a test that fetches all.
const RATE: &str = "1M";

/// The older version: noise. The newer one differs in some bytes of each 200 KiB, and has a few more in its middle.
fn versions(size: u64) -> (Vec<u8>, Vec<u8>) {
    let old = bytes(size, size);
    let mut new = old.clone();
    for at in (50 * KIB as usize..old.len()).step_by(200 * KIB as usize) {
        new[at..at + 40].copy_from_slice(&bytes(at as u64, 40));
    }
    let middle = new.len() / 2;
    new.splice(middle..middle, *b"something new");
    (old, new)
}

/// The newer version in a tree at the sender, the older one in `names` at the receiver.
fn placed(size: u64, names: &[&str]) -> World {
    let world = World::new();
    let (old, new) = versions(size);
    let tree = world.there.sender.path("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), new).unwrap();
    for name in names {
        let path = world.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, &old).unwrap();
    }
    world
}

fn assert_got(world: &World, tree: &str) {
    assert_same(&world.there.sender.path("tree"), &world.at(tree));
}

/// `tow get` of the tree with these words, as one who may know what is here if it is said so.
fn got(world: &World, words: &str) -> Summary {
    let mut share = world.there.sender.share("tree");
    let line = format!("get --json --limit-rate {RATE} {} {words}", share.ticket());
    world.here.receiver.tow(line.split_whitespace()).end().summary()
}

fn copied(world: &World) -> Summary {
    let words = format!("sync -a --json --via ssh --limit-rate {RATE}");
    let source = format!("{}/", world.there.sender.path("tree").display());
    Route::new(&world.here, Way::Pull).copy(&words, &source, "copied").end().summary()
}

fn a_changed_file_costs_a_get_about_what_it_costs_a_copy() {
    for size in SIZES {
        let world = placed(size, &["copied/file", "updated/file", "tree-1.0/file"]);
        let copied = copied(&world);
        assert_got(&world, "copied");
        let updated = got(&world, "--update --reuse -o updated");
        assert_got(&world, "updated");
        let new = got(&world, "--reuse -o tree-1.1");
        assert_got(&world, "tree-1.1");
        let [copy, update, new] = [copied.number("literal"), updated.fetched(), new.fetched()];
        eprintln!("{size} bytes: {copy} by a copy, {update} by an update, {new} by a get");
        for came in [update, new] {
            assert!(came <= 2 * copy + 8 * KIB, "{size} bytes: {came}, where a copy brings {copy}");
        }
    }
}

fn a_changed_file_of_a_stranger_comes_by_its_pieces() {
    let size = 400 * KIB;
    let world = placed(size, &["updated/file"]);
    let mut new = versions(size).0;
    new[7..17].fill(7);
    fs::write(world.there.sender.path("tree/file"), new).unwrap();
    let came = got(&world, "--update -o updated").fetched();
    assert_got(&world, "updated");
    assert_eq!(came, 256 * KIB, "one of two pieces is as it was, and nothing is signed");
}

fn a_changed_file_that_is_got_alone_comes_as_a_delta() {
    for size in SIZES {
        let world = placed(size, &["file-1.0"]);
        let mut share = world.there.sender.share(Path::new("tree/file"));
        let line = format!("get --json --reuse --limit-rate {RATE} {} -o file-1.1", share.ticket());
        let came = world.here.receiver.tow(line.split_whitespace()).end().summary().fetched();
        assert_same(&world.there.sender.path("tree/file"), &world.at("file-1.1"));
        eprintln!("{size} bytes: {came} by a get of it alone");
        assert!(came < size / 4, "{size} bytes: {came}");
    }
}

fn what_came_as_a_delta_is_explained() {
    let world = placed(400 * KIB, &["copied/file", "updated/file", "tree-1.0/file"]);
    let mut share = world.there.sender.share("tree");
    let ticket = share.ticket();
    let get = |words: &str| format!("get --reuse --explain --limit-rate {RATE} {ticket} {words}");
    let gets = [get("--update -o updated"), get("-o tree-1.1")];
    let told = gets.map(|line| world.here.receiver.tow(line.split_whitespace()).end().with(0).text());
    let words = format!("sync -a --explain --via ssh --limit-rate {RATE}");
    let source = format!("{}/", world.there.sender.path("tree").display());
    let pulled = Route::new(&world.here, Way::Pull).copy(&words, &source, "copied").end().with(0).text();
    fs::write(world.at("copied/file"), versions(400 * KIB).0).unwrap();
    let pushed = Route::new(&world.here, Way::Push).copy(&words, &source, "copied").end().with(0).text();
    let [updated, new] = told;
    for (told, base, why) in [
        (updated, "updated/file", "it was in its place"),
        (new, "tree-1.0/file", "its path differs in numbers of folders"),
        (pulled, "copied/file", "it was in its place"),
        (pushed, "copied/file", "it was in its place"),
    ] {
        let base = format!("as a delta of {}: {why}", world.at(base).display());
        let line = told.lines().find(|line| line.contains(&base)).unwrap_or_else(|| panic!("{base}: {told}"));
        assert!(line.starts_with("  ") && line.contains("file: ") && line.contains(" bytes came for "), "{line}");
    }
}
