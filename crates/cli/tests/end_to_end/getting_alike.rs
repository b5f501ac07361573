//! A get draws on files that are alike and lie where it may look, under other names: the very same ones cost nothing, older
//! versions what is new; what only seems to be one does no harm.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;
use std::time::Duration;

use crate::environment::{Call, Running, Summary, until_stopped};
use crate::runner::situations;
use crate::searching::{World, searched};
use crate::trees::{assert_same, bytes, dress, file};

situations![
    the_next_version_of_a_file_beside_it_costs_what_is_new,
    what_is_the_same_under_another_name_costs_nothing,
    a_tree_beside_its_older_version_costs_what_is_new,
    a_strangers_tree_draws_on_no_tree_beside_it,
    an_update_draws_on_what_lies_beside_a_new_file,
    what_only_seems_to_be_a_version_comes_whole,
    a_file_that_changes_while_it_is_drawn_from_does_no_harm,
    nothing_alike_is_looked_for_if_that_is_not_wanted,
];

const SIZE: u64 = 20 << 20;
/// Four seconds for all of it.
const FASTER: &str = "5M";
/// Slow enough for a recipe of what is not in its place, and for a look at what is there.
const SLOW: &str = "512K";
/// What is new, and what comes before anything is known of the network.
const LITTLE: u64 = SIZE / 16;

/// A hundredth of the bytes in four runs differ from those of the seed.
fn newer(seed: u64) -> Vec<u8> {
    let mut content = bytes(seed, SIZE);
    let run = content.len() / 400;
    for at in 0..4 {
        let start = at * content.len() / 4 + 1_000_000;
        content[start..start + run].copy_from_slice(&bytes(99 + at as u64, run as u64));
    }
    content
}

fn shared(world: &World, path: &Path) -> (Running, String) {
    let mut share = world.there.sender.share(path);
    let ticket = share.ticket();
    (share, ticket)
}

/// Gets into the directory `dest`.
fn get(world: &World, ticket: &str, words: &str) -> Call {
    let fixed = ["get", "--json", ticket, "-o", "dest"];
    world.here.receiver.tow(fixed.into_iter().chain(words.split_whitespace()))
}

fn got(world: &World, path: &Path, rate: &str, words: &str) -> Summary {
    let words = format!("--limit-rate {rate} {words}");
    let (_share, ticket) = shared(world, path);
    let summary = get(world, &ticket, &words).end().summary();
    assert_same(path, &world.at("dest").join(path.file_name().unwrap()));
    summary
}

fn the_next_version_of_a_file_beside_it_costs_what_is_new() {
    let world = World::new();
    let source = world.there.sender.path("app-1.1.tar");
    fs::write(&source, newer(1)).unwrap();
    file(&world.at("dest/app-1.0.tar"), 1, SIZE);
    let summary = got(&world, &source, SLOW, "");
    assert!(summary.fetched() < LITTLE, "{}", summary.0);
    assert_eq!(searched(&summary, "changed"), 1, "{}", summary.0);
    assert!(searched(&summary, "by_change") > SIZE * 3 / 4, "{}", summary.0);
}

fn what_is_the_same_under_another_name_costs_nothing() {
    for len in [200_000, 3 << 20, SIZE] {
        let world = World::new();
        let (source, old) = (world.there.sender.path("new name"), world.at("dest/quite another"));
        for path in [&source, &old] {
            file(path, 2, len);
            dress(path, 0o644, 7);
        }
        let summary = got(&world, &source, SLOW, "");
        // A file of one piece begins to come with the first question.
        let most = if len > 262_144 { 0 } else { len };
        assert!(summary.fetched() <= most, "{len}: {}", summary.0);
        assert_eq!(searched(&summary, "by_change"), len, "{}", summary.0);
        assert_eq!(summary.number("kept"), len, "{}", summary.0);
    }
}

/// A large file that changed, and a little one that did not.
fn tree(root: &Path, large: &[u8]) {
    fs::create_dir_all(root.join("deep")).unwrap();
    fs::write(root.join("deep/large"), large).unwrap();
    file(&root.join("little"), 3, 100_000);
    dress(&root.join("little"), 0o644, 7);
}

fn a_tree_beside_its_older_version_costs_what_is_new() {
    let world = World::new();
    let source = world.there.sender.path("tree-1.1");
    tree(&source, &newer(1));
    tree(&world.at("dest/tree-1.0"), &bytes(1, SIZE));
    let summary = got(&world, &source, SLOW, "--reuse");
    assert!(summary.fetched() < LITTLE, "{}", summary.0);
    assert_eq!(searched(&summary, "changed"), 2, "{}", summary.0);
}

fn a_strangers_tree_draws_on_no_tree_beside_it() {
    let world = World::new();
    let source = world.there.sender.path("tree-1.1");
    tree(&source, &newer(1));
    tree(&world.at("dest/tree-1.0"), &bytes(1, SIZE));
    file(&world.at("dest/unlike"), 4, 1000);
    let summary = got(&world, &source, FASTER, "");
    assert!(summary.fetched() >= SIZE, "{}", summary.0);
    assert_eq!(searched(&summary, "changed"), 0, "{}", summary.0);
}

fn an_update_draws_on_what_lies_beside_a_new_file() {
    let world = World::new();
    let source = world.there.sender.path("tree");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("app-1.1.tar"), newer(1)).unwrap();
    file(&world.at("dest/app-1.0.tar"), 1, SIZE);
    for name in [source.join("new"), world.at("dest/old")] {
        file(&name, 3, 200_000);
        dress(&name, 0o644, 7);
    }
    let (_share, ticket) = shared(&world, &source);
    let words = format!("--limit-rate {SLOW} --update");
    let summary = get(&world, &ticket, &words).end().summary();
    for name in ["app-1.1.tar", "new"] {
        assert_same(&source.join(name), &world.at("dest").join(name));
    }
    assert!(summary.fetched() < LITTLE, "{}", summary.0);
    assert_eq!(searched(&summary, "changed"), 2, "{}", summary.0);
}

fn what_only_seems_to_be_a_version_comes_whole() {
    let world = World::new();
    let source = world.there.sender.path("app-1.1.tar");
    file(&source, 1, SIZE);
    file(&world.at("dest/app-1.0.tar"), 2, SIZE);
    let summary = got(&world, &source, FASTER, "");
    assert_eq!((summary.fetched(), searched(&summary, "changed")), (SIZE, 0), "{}", summary.0);
    assert!(summary.0["seconds"].as_f64().unwrap() < 12.0, "{}", summary.0);
}

fn a_file_that_changes_while_it_is_drawn_from_does_no_harm() {
    let world = World::new();
    let source = world.there.sender.path("app-1.1.tar");
    fs::write(&source, newer(1)).unwrap();
    let (path, old, is_over) = (world.at("dest/app-1.0.tar"), bytes(1, SIZE), AtomicBool::new(false));
    fs::write(&path, &old).unwrap();
    scope(|scope| {
        scope.spawn(|| {
            let mut turns = (0..3).cycle();
            // No event: it is to change at whatever moment it is read.
            until_stopped(&is_over, Duration::from_millis(10), || match turns.next().unwrap() {
                0 => fs::write(&path, bytes(7, SIZE / 2)).unwrap(),
                1 => fs::write(&path, &old).unwrap(),
                _ => fs::write(&path, "").unwrap(),
            });
        });
        let got = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| got(&world, &source, FASTER, "")));
        is_over.store(true, Ordering::Relaxed);
        assert!(got.unwrap().fetched() <= SIZE * 11 / 10);
    });
}

fn nothing_alike_is_looked_for_if_that_is_not_wanted() {
    let world = World::new();
    let source = world.there.sender.path("app-1.1.tar");
    file(&source, 1, SIZE);
    file(&world.at("dest/app-1.0.tar"), 1, SIZE);
    let summary = got(&world, &source, FASTER, "--no-search");
    assert_eq!(summary.fetched(), SIZE, "{}", summary.0);
    assert!(summary.0.get("search").is_none(), "{}", summary.0);
}
