//! A large file whose older version does not lie in its place comes as a delta of it all the same, if that lies where one
//! would look for it; what only seems to be one does no harm.

use std::fs;

use crate::runner::situations;
use crate::searching::{SIZE, SLOW, World, copied, crossed, older, searched};
use crate::sshd::{Route, Way};
use crate::trees::{assert_same_bytes, bytes, file};

situations![
    an_older_version_beside_the_destination_is_drawn_from,
    an_older_version_that_was_renamed_is_drawn_from,
    what_is_no_version_does_not_hide_what_the_search_finds,
    nothing_beside_the_destination_is_read_if_that_is_not_wanted,
];

/// Bytes of all that is said and sent of a file whose older version is used as a whole.
const LITTLE: u64 = 120_000;

fn an_older_version_beside_the_destination_is_drawn_from() {
    for way in [Way::Push, Way::Pull] {
        let world = World::new();
        let source = world.there.sender.path("tree");
        ["dest/old/deep", "dest/new"].iter().for_each(|dir| fs::create_dir_all(world.at(dir)).unwrap());
        fs::create_dir_all(source.join("deep")).unwrap();
        file(&source.join("deep/file"), 1, SIZE);
        fs::write(world.at("dest/old/deep/file"), older(1)).unwrap();
        let words = format!("sync -a --via ssh --limit-rate {SLOW}");
        let from = source.join(".");
        let summary = copied(&Route::new(&world.here, way), &words, &from, "dest/new");
        assert_same_bytes(&source.join("deep/file"), &world.at("dest/new/deep/file"));
        assert_eq!(searched(&summary, "changed"), 1, "{}", summary.0);
        assert!(crossed(&summary) < LITTLE, "{}: {}", crossed(&summary), summary.0);
    }
}

fn an_older_version_that_was_renamed_is_drawn_from() {
    let world = World::new();
    file(&world.source(), 1, SIZE);
    fs::write(world.at("dest/earlier"), older(1)).unwrap();
    file(&world.at("dest/other.txt"), 2, SIZE);
    let words = format!("cp --via ssh --limit-rate {SLOW}");
    // No other file of this machine has this name, as the sender's own and those of other situations would.
    let (to, source) = ("dest/renamed since then", world.source());
    let summary = copied(&Route::new(&world.here, Way::Pull), &words, &source, to);
    assert_same_bytes(&source, &world.at(to));
    assert_eq!(searched(&summary, "changed"), 1, "{}", summary.0);
    assert!(crossed(&summary) < LITTLE, "{}: {}", crossed(&summary), summary.0);
}

/// It is signed in vain, and then the file comes as if it were not there.
fn what_is_no_version_does_not_hide_what_the_search_finds() {
    let world = World::new();
    file(&world.source(), 1, SIZE);
    ["dest/old", "dest/new"].iter().for_each(|dir| fs::create_dir(world.at(dir)).unwrap());
    file(&world.at("dest/old/file"), 2, SIZE);
    fs::write(world.at("elsewhere/another name"), bytes(1, SIZE)).unwrap();
    let words = format!("cp --via ssh --limit-rate {SLOW}");
    let summary = copied(&Route::new(&world.here, Way::Pull), &words, &world.source(), "dest/new/file");
    assert_same_bytes(&world.source(), &world.at("dest/new/file"));
    assert_eq!(searched(&summary, "changed"), 0, "{}", summary.0);
    assert!(crossed(&summary) < SIZE / 3, "{}: {}", crossed(&summary), summary.0);
}

fn nothing_beside_the_destination_is_read_if_that_is_not_wanted() {
    for word in ["--no-search", "-W"] {
        let world = World::new();
        file(&world.source(), 1, SIZE);
        ["dest/old", "dest/new"].iter().for_each(|dir| fs::create_dir(world.at(dir)).unwrap());
        file(&world.at("dest/old/file"), 1, SIZE);
        let words = format!("sync {word} --via ssh --limit-rate 3M");
        let summary = copied(&Route::new(&world.here, Way::Push), &words, &world.source(), "dest/new/file");
        assert_same_bytes(&world.source(), &world.at("dest/new/file"));
        assert_eq!(summary.number("literal"), SIZE, "{word}: {}", summary.0);
    }
}
