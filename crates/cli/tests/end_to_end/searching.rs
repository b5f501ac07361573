//! Content on the receiver's disk does not cross a slow network, wherever it lies; and looking for it
//! does no harm. The sender's files are on a disk in memory, which no search enters.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;
use std::time::{Duration, UNIX_EPOCH};

use towpath_store::doubles::settle;

use crate::environment::{Call, Running, Summary, TestEnvironment, until_stopped};
use crate::runner::{situations, skip};
use crate::sshd::{Route, Way};
use crate::trees::{assert_same, assert_same_bytes, bytes, file, symlink};

situations![
    a_file_beside_it_under_another_name_is_not_fetched,
    a_strangers_ticket_draws_from_nothing_below_or_beyond_its_directory,
    a_directory_that_was_asked_for_is_searched,
    an_allowed_nodes_ticket_draws_from_anywhere,
    what_the_index_knows_is_found_in_a_changed_file,
    a_tree_that_was_renamed_costs_little,
    a_useless_tree_costs_nothing_but_reading,
    nothing_is_searched_if_it_is_not_wanted,
    nothing_is_searched_while_the_network_is_fast,
    an_older_version_in_place_is_drawn_from,
    changed_files_come_as_deltas_of_what_lies_in_their_places,
    large_changed_files_come_in_parts,
    a_version_that_both_sides_have_costs_least,
    whole_files_come_whole,
    a_renamed_directory_of_the_destination_costs_little,
    a_renamed_directory_of_little_files_costs_their_names,
    little_files_that_were_copied_cost_their_names_though_their_times_are_others,
    little_files_that_only_look_the_same_are_fetched,
    little_files_are_not_looked_for_while_the_network_is_fast,
    what_another_version_renamed_comes_as_a_delta_of_the_old_name,
    what_is_numbered_but_no_version_is_right_all_the_same,
    a_copy_searches_nothing_if_it_is_not_wanted,
    a_copy_searches_where_it_is_asked_and_explains,
    a_search_without_a_limit_is_not_limited,
    gets_and_copies_search_in_vain_within_the_same_budget,
    odd_things_in_a_searched_directory_do_no_harm,
    a_file_that_changes_while_it_is_searched_does_no_harm,
    a_get_that_is_killed_while_it_searches_goes_on,
];

pub const SIZE: u64 = 4 << 20;
/// 16 seconds for all of it: five of them may pass on a busy machine before the search finds it.
pub const SLOW: &str = "256K";
/// Slow enough for a search, and fast enough for a test that fetches all.
const SLOWISH: &str = "1500K";
/// A third of the file: what comes before the recipe, the recipe, and what a busy machine adds.
const LITTLE: u64 = SIZE / 3;

/// A sender whose disk is in memory, and a receiver with another one.
pub struct World {
    pub there: TestEnvironment,
    pub here: TestEnvironment,
}

impl World {
    pub fn new() -> Self {
        let world = Self { there: TestEnvironment::new_in_memory(), here: TestEnvironment::new() };
        if !world.there.dir().starts_with("/dev") || world.here.dir().starts_with("/dev") {
            skip("there is no disk in memory beside another disk");
        }
        ["dest", "dest/below", "elsewhere"].iter().for_each(|name| fs::create_dir(world.at(name)).unwrap());
        world
    }

    /// A path at the receiver.
    pub fn at(&self, name: &str) -> PathBuf {
        self.here.receiver.path(name)
    }

    /// A path at the sender.
    pub fn source(&self) -> PathBuf {
        self.there.sender.path("file")
    }

    /// The file is shared; its ticket.
    fn share(&self) -> (Running, String) {
        self.share_numbered(1)
    }

    /// As [`Self::share`], with the bytes of this number.
    fn share_numbered(&self, number: u64) -> (Running, String) {
        file(&self.source(), number, SIZE);
        let mut share = self.there.sender.share(self.source());
        let ticket = share.ticket();
        (share, ticket)
    }

    /// Gets it as `dest/new`.
    fn get(&self, ticket: &str, words: &str) -> Call {
        let fixed = ["get", "--json", ticket, "-o", "dest/new"];
        self.here.receiver.tow(fixed.into_iter().chain(words.split_whitespace()))
    }

    fn got(&self, ticket: &str, words: &str) -> Summary {
        let summary = self.get(ticket, words).end().summary();
        assert_same(&self.source(), &self.at("dest/new"));
        assert_eq!(summary.number("bytes"), SIZE);
        summary
    }
}

pub fn searched(summary: &Summary, name: &str) -> u64 {
    summary.0["search"][name].as_u64().unwrap_or_else(|| panic!("no {name}: {}", summary.0))
}

fn assert_little(summary: &Summary, fetched: u64) {
    assert!(fetched < LITTLE, "{fetched} bytes of {}", summary.0);
}

/// The file's bytes with others in front of them and in their middle.
pub fn older(seed: u64) -> Vec<u8> {
    let (old, half) = (bytes(seed, SIZE), SIZE as usize / 2);
    [b"once upon a time", &old[..half], &bytes(99, 20_000), &old[half + 5..]].concat()
}

fn a_file_beside_it_under_another_name_is_not_fetched() {
    let world = World::new();
    let (_share, ticket) = world.share();
    // Too unlike in name and size to be taken for an older version.
    fs::write(world.at("dest/other.txt"), [bytes(2, SIZE), bytes(1, SIZE)].concat()).unwrap();
    let summary = world.got(&ticket, &format!("--limit-rate {SLOW}"));
    assert_little(&summary, summary.fetched());
    assert_eq!((searched(&summary, "directories"), searched(&summary, "files")), (1, 1), "{}", summary.0);
}

fn a_strangers_ticket_draws_from_nothing_below_or_beyond_its_directory() {
    let world = World::new();
    let (_share, ticket) = world.share();
    for name in ["dest/below/file", "elsewhere/file", "file"] {
        file(&world.at(name), 1, SIZE);
    }
    file(&world.at("dest/useless"), 2, 1000);
    // A file in the index is no exception.
    world.here.receiver.tow(["index", "."]).end().with(0);
    let summary = world.got(&ticket, &format!("--limit-rate {SLOWISH}"));
    assert_eq!(summary.fetched(), SIZE, "{}", summary.0);
    assert!(searched(&summary, "looked_up") > 0 && searched(&summary, "hashed") == 1000, "{}", summary.0);
}

fn a_directory_that_was_asked_for_is_searched() {
    let world = World::new();
    let (_share, ticket) = world.share();
    fs::create_dir_all(world.at("elsewhere/deep/down")).unwrap();
    file(&world.at("elsewhere/deep/down/x"), 1, SIZE);
    file(&world.at("elsewhere/y"), 2, SIZE);
    let summary = world.got(&ticket, &format!("--limit-rate {SLOW} --search nowhere --search elsewhere"));
    assert_little(&summary, summary.fetched());
}

fn an_allowed_nodes_ticket_draws_from_anywhere() {
    let world = World::new();
    // Other situations have files of the usual name and size, which are looked at first, and a search has its budget.
    let (source, size) = (world.there.sender.path("of an allowed node"), SIZE + 4321);
    file(&source, 1, size);
    let sending = world.there.sender.daemon();
    let status = world.there.sender.tow(["status", "--json"]).end().with(0).events();
    let ticket = world.there.sender.tow(["put".as_ref(), source.as_os_str()]).end().with(0).text();
    let node = status[0]["node"].as_str().unwrap();
    let _receiving = world.here.receiver.daemon_with(&format!("allowed_nodes = [\"{node}\"]\n"));
    file(&world.at("elsewhere/other"), 1, size);
    let summary = world.get(ticket.trim(), &format!("--limit-rate {SLOW}")).end().summary();
    assert_same(&source, &world.at("dest/new"));
    assert_little(&summary, summary.fetched());
    drop(sending);
}

fn what_the_index_knows_is_found_in_a_changed_file() {
    let world = World::new();
    // Other situations have files of the usual name, which are found sooner.
    let source = world.there.sender.path("known to the index");
    file(&source, 1, SIZE);
    let mut share = world.there.sender.share(&source);
    let ticket = share.ticket();
    fs::write(world.at("elsewhere/older"), older(1)).unwrap();
    settle(&world.at("elsewhere/older")).unwrap();
    world.here.receiver.tow(["index", "elsewhere"]).end().with(0);
    let summary = world.get(&ticket, &format!("--limit-rate {SLOW} --reuse")).end().summary();
    assert_same(&source, &world.at("dest/new"));
    assert_little(&summary, summary.fetched());
    let found = searched(&summary, "from_index") + searched(&summary, "from_files");
    // The number of files looked into is not said. While the network brings what lies nowhere, the search goes on.
    assert!(found > SIZE / 2 && searched(&summary, "looked_up") > 0, "{}", summary.0);
}

/// Four large files. Of files with few pieces most are asked for before their recipe is here.
fn tree(root: &Path) {
    for number in 0..4 {
        let dir = root.join(format!("part {}", number % 2));
        fs::create_dir_all(&dir).unwrap();
        file(&dir.join(format!("file {number}")), 10 + number, SIZE);
    }
}

fn a_tree_that_was_renamed_costs_little() {
    let world = World::new();
    let source = world.there.sender.path("tree");
    tree(&source);
    tree(&world.at("elsewhere/old name"));
    let mut share = world.there.sender.share(&source);
    let ticket = share.ticket();
    let words = format!("--limit-rate {SLOWISH} --search elsewhere");
    let summary = world.get(&ticket, &words).end().summary();
    assert_same(&source, &world.at("dest/new"));
    assert!(summary.fetched() < 4 * LITTLE, "{}", summary.0);
}

fn a_useless_tree_costs_nothing_but_reading() {
    let world = World::new();
    let (_share, ticket) = world.share();
    for number in 0..40 {
        let len = if number < 5 { SIZE } else { 50_000 };
        file(&world.at(&format!("dest/{number}")), 100 + number, len);
    }
    let summary = world.got(&ticket, &format!("--limit-rate {SLOWISH}"));
    assert_eq!((summary.fetched(), summary.from("this machine")), (SIZE, 0), "{}", summary.0);
    assert!(summary.0["seconds"].as_f64().unwrap() < 6.0, "{}", summary.0);
}

fn nothing_is_searched_if_it_is_not_wanted() {
    let world = World::new();
    let (_share, ticket) = world.share();
    file(&world.at("dest/other"), 1, SIZE);
    let summary = world.got(&ticket, &format!("--limit-rate {SLOWISH} --no-search"));
    assert_eq!(summary.fetched(), SIZE);
    assert!(summary.0.get("search").is_none(), "{}", summary.0);
    // Nor for a stream, which has no place.
    let words = ["get", "--json", "--reuse", &ticket, "-o", "-"];
    let ended = world.here.stranger.tow(words).end().with(0);
    assert_eq!(ended.out.len() as u64, SIZE);
    assert!(!ended.err.contains("\"search\""), "{}", ended.err);
}

fn nothing_is_searched_while_the_network_is_fast() {
    let world = World::new();
    let (_share, ticket) = world.share();
    file(&world.at("dest/other"), 1, SIZE);
    let summary = world.got(&ticket, "");
    assert_eq!((summary.fetched(), searched(&summary, "looked_up")), (SIZE, 0), "{}", summary.0);
}

/// Pushes or pulls from the sender's disk in memory to `dest` at the receiver.
pub fn copied(route: &Route<'_>, words: &str, source: &Path, destination: &str) -> Summary {
    // An absolute path is the sender's as it is.
    let summary = route.copy(&format!("{words} --json"), source.to_str().unwrap(), destination).end();
    summary.summary()
}

fn an_older_version_in_place_is_drawn_from() {
    for way in [Way::Push, Way::Pull] {
        let world = World::new();
        file(&world.source(), 1, SIZE);
        fs::write(world.at("dest/file"), older(1)).unwrap();
        let words = format!("cp --via ssh --limit-rate {SLOW}");
        let summary = copied(&Route::new(&world.here, way), &words, &world.source(), "dest/file");
        assert_same(&world.source(), &world.at("dest/file"));
        assert_little(&summary, summary.number("literal"));
    }
}

/// Files of which a few bytes each differ from those at the receiver, small ones and one of some length.
fn changed_tree(world: &World, files: u64) -> PathBuf {
    let source = world.there.sender.path("tree");
    for seed in 0..files {
        let size = if seed == 0 { SIZE / 2 } else { 3000 * (seed + 1) };
        let mut content = bytes(seed, size);
        fs::create_dir_all(&source).unwrap();
        fs::create_dir_all(world.at("dest/tree")).unwrap();
        fs::write(world.at(&format!("dest/tree/{seed}")), &content).unwrap();
        content.splice(1000..1010, *b"changed, and longer");
        fs::write(source.join(seed.to_string()), content).unwrap();
    }
    source
}

fn changed_files_come_as_deltas_of_what_lies_in_their_places() {
    for way in [Way::Push, Way::Pull] {
        let world = World::new();
        let source = changed_tree(&world, 30);
        let words = format!("sync -a --via ssh --limit-rate {SLOW}");
        let summary = copied(&Route::new(&world.here, way), &words, &source, "dest");
        assert_same(&source, &world.at("dest/tree"));
        assert_eq!(searched(&summary, "changed"), 30, "{}", summary.0);
        assert!(summary.number("literal") < 100_000, "{}", summary.0);
    }
}

/// More than one part has, signed one by one if it is the only one.
fn large_changed_files_come_in_parts() {
    for files in [1, 2] {
        let world = World::new();
        let source = world.there.sender.path("tree");
        fs::create_dir_all(&source).unwrap();
        fs::create_dir_all(world.at("dest/tree")).unwrap();
        for number in 0..files {
            let old = bytes(77 + number, 20 << 20);
            fs::write(world.at(&format!("dest/tree/{number}")), &old).unwrap();
            let half = old.len() / 2;
            let new = [&old[..half], b"something new", &old[half..]].concat();
            fs::write(source.join(number.to_string()), new).unwrap();
        }
        let words = format!("cp -r --via ssh --limit-rate {SLOW} --explain");
        let route = Route::new(&world.here, Way::Pull);
        let told = route.copy(&words, source.to_str().unwrap(), "dest").end().with(0).text();
        assert_same(&source, &world.at("dest/tree"));
        assert!(told.contains("Made of older versions: "), "{told}");
    }
}

/// Text of which every line differs a little from the old one: no block of it is the same.
fn a_version_that_both_sides_have_costs_least() {
    let world = World::new();
    let line = |number: u32, what: &str| format!("line {number} of some {what} text\n");
    let text = |what: &str| (0..60_000).map(|number| line(number, what)).collect::<String>();
    let source = world.there.sender.path("tree");
    fs::create_dir_all(&source).unwrap();
    fs::create_dir_all(world.at("dest/tree")).unwrap();
    for name in ["one", "two"] {
        let noise = bytes(name.len() as u64, SIZE / 4);
        let content = |what: &str| [&noise[..], text(&format!("{what} {name}")).as_bytes()].concat();
        fs::write(world.at(&format!("dest/tree/{name}")), content("old")).unwrap();
        fs::write(source.join(name), content("changed")).unwrap();
        // The sender keeps the old one besides.
        fs::write(world.there.sender.path(name), content("old")).unwrap();
        world.here.sender.tow(["put", world.there.sender.path(name).to_str().unwrap()]).end().with(0);
    }
    let words = format!("sync -a --via ssh --limit-rate {SLOW}");
    let summary = copied(&Route::new(&world.here, Way::Push), &words, &source, "dest");
    assert_same(&source, &world.at("dest/tree"));
    assert_eq!(searched(&summary, "changed"), 2, "{}", summary.0);
    assert!(summary.number("literal") < 300_000, "{}", summary.0);
}

fn whole_files_come_whole() {
    let world = World::new();
    let source = changed_tree(&world, 3);
    let words = "sync -a -W --via ssh --limit-rate 3M";
    let summary = copied(&Route::new(&world.here, Way::Pull), words, &source, "dest");
    assert_same(&source, &world.at("dest/tree"));
    assert_eq!(summary.number("literal"), SIZE / 2 + 15_000 + 27, "{}", summary.0);
}

fn a_renamed_directory_of_the_destination_costs_little() {
    let world = World::new();
    let source = world.there.sender.path("tree");
    tree(&source.join("new name"));
    tree(&world.at("dest/old name"));
    let words = format!("sync -a --limit-rate {SLOWISH}");
    let summary = copied(&Route::new(&world.here, Way::Push), &words, &source, "dest");
    assert_same(&source.join("new name"), &world.at("dest/tree/new name"));
    assert!(summary.number("literal") < 4 * LITTLE, "{}", summary.0);
}

/// 300 files of the sender under a new name, and of the receiver under an old one, which tow never saw there;
/// their bytes together.
fn little_files(world: &World, content: impl Fn(u64) -> Vec<u8>, age: Duration) -> (PathBuf, u64) {
    let source = world.there.sender.path("tree");
    let (new, old) = (source.join("new name"), world.at("dest/tree/old name"));
    [&new, &old].into_iter().for_each(|dir| fs::create_dir_all(dir.join("below")).unwrap());
    let mut total = 0;
    for number in 0..300 {
        let name = if number % 2 == 0 { format!("file {number}") } else { format!("below/{number}") };
        let size = 2000 + 37 * number;
        let modified = UNIX_EPOCH + Duration::from_secs(1_700_000_000 + number);
        for (dir, content, time) in
            [(&new, bytes(number + 1, size), modified), (&old, content(number + 1), modified - age)]
        {
            assert_eq!(content.len() as u64, size);
            fs::write(dir.join(&name), content).unwrap();
            File::options().append(true).open(dir.join(&name)).unwrap().set_modified(time).unwrap();
        }
        total += size;
    }
    (source, total)
}

/// Bytes that crossed the network, in both directions.
pub fn crossed(summary: &Summary) -> u64 {
    summary.number("sent") + summary.number("received")
}

fn a_renamed_directory_of_little_files_costs_their_names() {
    for (way, word) in [(Way::Push, ""), (Way::Pull, "--delete --force")] {
        let world = World::new();
        let same = |seed| bytes(seed, 2000 + 37 * (seed - 1));
        let (source, total) = little_files(&world, same, Duration::ZERO);
        let words = format!("sync -a {word} --via ssh --limit-rate {SLOW}");
        let summary = copied(&Route::new(&world.here, way), &words, &source, "dest");
        assert_same(&source.join("new name"), &world.at("dest/tree/new name"));
        assert_eq!(world.at("dest/tree/old name").exists(), word.is_empty());
        assert_eq!(summary.number("literal"), 0, "{}", summary.0);
        assert_eq!(summary.number("matched"), total, "{}", summary.0);
        assert!(crossed(&summary) < total / 20, "{} of {total}: {}", crossed(&summary), summary.0);
    }
}

fn little_files_that_were_copied_cost_their_names_though_their_times_are_others() {
    let world = World::new();
    let same = |seed| bytes(seed, 2000 + 37 * (seed - 1));
    let (source, total) = little_files(&world, same, Duration::from_secs(100_000));
    let words = format!("sync -a --via ssh --limit-rate {SLOW}");
    let summary = copied(&Route::new(&world.here, Way::Push), &words, &source, "dest");
    assert_same(&source.join("new name"), &world.at("dest/tree/new name"));
    // Some are asked for with their contents before the first proves right.
    assert!(summary.number("matched") > total / 4, "{total}: {}", summary.0);
}

fn little_files_that_only_look_the_same_are_fetched() {
    let world = World::new();
    let few_are_same = |seed: u64| {
        let size = 2000 + 37 * (seed - 1);
        if seed.is_multiple_of(10) { bytes(seed, size) } else { bytes(seed + 1000, size) }
    };
    let (source, total) = little_files(&world, few_are_same, Duration::ZERO);
    let words = format!("sync -a --via ssh --limit-rate {SLOWISH}");
    let summary = copied(&Route::new(&world.here, Way::Pull), &words, &source, "dest");
    assert_same(&source.join("new name"), &world.at("dest/tree/new name"));
    assert_eq!(summary.number("matched") + summary.number("literal"), total, "{}", summary.0);
    assert!(summary.number("literal") > total * 8 / 10, "{}", summary.0);
}

/// A machine that is busy may take its own network for a slow one: once in five it does not.
fn little_files_are_not_looked_for_while_the_network_is_fast() {
    let same = |seed| bytes(seed, 2000 + 37 * (seed - 1));
    let all_came = |_| {
        let world = World::new();
        let (source, total) = little_files(&world, same, Duration::ZERO);
        let summary = copied(&Route::new(&world.here, Way::Push), "sync -a --via ssh", &source, "dest");
        assert_same(&source.join("new name"), &world.at("dest/tree/new name"));
        summary.number("literal") == total
    };
    assert!((0..5).any(all_came), "little files were looked for");
}

/// A release: a directory with its version in its name, a library with its own, and files that hardly differ.
fn release(dir: &Path, version: u32, change: &[u8]) {
    let dir = dir.join(format!("pkg-1.{version}.0"));
    fs::create_dir_all(dir.join("include")).unwrap();
    let changed = |seed, size: u64| {
        let mut content = bytes(seed, size);
        (1000..content.len() - 100).step_by(100_000).for_each(|at| {
            content.splice(at..at + 10, change.iter().copied());
        });
        content
    };
    fs::write(dir.join(format!("lib.so.1.{version}")), changed(1, 300_000)).unwrap();
    fs::write(dir.join("large"), changed(2, 5 << 20)).unwrap();
    fs::write(dir.join("same"), bytes(3, 200_000)).unwrap();
    (10..40).for_each(|seed| fs::write(dir.join(format!("include/{seed}.h")), bytes(seed, 3000)).unwrap());
}

fn what_another_version_renamed_comes_as_a_delta_of_the_old_name() {
    for (way, word) in [(Way::Push, ""), (Way::Pull, "--delete --force"), (Way::Pull, "-c")] {
        let world = World::new();
        let source = world.there.sender.path("tree");
        release(&source, 10, b"changed, and longer");
        release(&world.at("dest/tree"), 9, b"0123456789");
        let words = format!("sync -a {word} --via ssh --limit-rate {SLOW}");
        let summary = copied(&Route::new(&world.here, way), &words, &source, "dest");
        assert_same(&source.join("pkg-1.10.0"), &world.at("dest/tree/pkg-1.10.0"));
        assert_eq!(world.at("dest/tree/pkg-1.9.0").exists(), word != "--delete --force");
        assert_eq!(searched(&summary, "changed"), 33, "{}", summary.0);
        assert!(crossed(&summary) < 300_000, "{}: {}", crossed(&summary), summary.0);
    }
}

/// A row that moves up by one, so that what a file was made of is replaced meanwhile, and photos.
fn what_is_numbered_but_no_version_is_right_all_the_same() {
    let world = World::new();
    let source = world.there.sender.path("tree");
    [&source, &world.at("dest/tree")].into_iter().for_each(|dir| fs::create_dir_all(dir).unwrap());
    for number in 1..4 {
        fs::write(source.join(format!("log.{}", number + 1)), bytes(number, 100_000 + number)).unwrap();
        fs::write(world.at(&format!("dest/tree/log.{number}")), bytes(number, 100_000 + number)).unwrap();
    }
    fs::write(source.join("log.1"), bytes(9, 100_000)).unwrap();
    for number in 0..60 {
        let (theirs, ours) = (number + 100, number + 200);
        fs::write(source.join(format!("IMG_{theirs}.jpg")), bytes(theirs, 10_000 + 7 * number)).unwrap();
        fs::write(world.at(&format!("dest/tree/IMG_{ours}.jpg")), bytes(ours, 10_003 + 7 * number)).unwrap();
    }
    let words = format!("sync -a --delete --force --via ssh --limit-rate {SLOW}");
    let summary = copied(&Route::new(&world.here, Way::Pull), &words, &source, "dest");
    assert_same(&source, &world.at("dest/tree"));
    assert!(crossed(&summary) < 1_150_000, "{}: {}", crossed(&summary), summary.0);
}

fn a_copy_searches_nothing_if_it_is_not_wanted() {
    let world = World::new();
    file(&world.source(), 1, SIZE);
    let route = Route::new(&world.here, Way::Push);
    for word in ["--no-search", "-W"] {
        file(&world.at("dest/other"), 1, SIZE);
        let words = format!("sync {word} --limit-rate 3M");
        let summary = copied(&route, &words, &world.source(), "dest/new");
        assert_same_bytes(&world.source(), &world.at("dest/new"));
        assert_eq!(summary.number("literal"), SIZE, "{word}: {}", summary.0);
        assert!(summary.0.get("search").is_none(), "{word}: {}", summary.0);
        fs::remove_file(world.at("dest/new")).unwrap();
    }
}

/// The source lies where no search looks, so that it is not found itself.
fn a_copy_searches_where_it_is_asked_and_explains() {
    let memory = Path::new("/dev/shm");
    if !memory.is_dir() {
        skip("there is no file system in memory at /dev/shm");
    }
    let (there, elsewhere) = (tempfile::tempdir_in(memory).unwrap(), tempfile::tempdir().unwrap());
    let world = World::new();
    let source = there.path().join("file");
    // No other test has this one.
    file(&source, 9001, SIZE);
    file(&elsewhere.path().join("other"), 9001, SIZE);
    let search = elsewhere.path().display();
    let words = format!("cp --via ssh --limit-rate {SLOWISH} --explain --search {search}");
    let route = Route::new(&world.here, Way::Pull);
    let told = route.copy(&words, source.to_str().unwrap(), "dest/copy").end().with(0).text();
    assert_same_bytes(&source, &world.at("dest/copy"));
    let line = told.lines().find(|line| line.starts_with("Found in files that were searched")).unwrap();
    let found: u64 = line.chars().filter(char::is_ascii_digit).collect::<String>().parse().unwrap();
    assert!(found > SIZE / 2, "{told}");
}

fn a_search_without_a_limit_is_not_limited() {
    let world = World::new();
    let route = Route::new(&world.here, Way::Pull);
    let source = world.source();
    file(&source, 9002, SIZE);
    let copy = |effort: &str, destination: &str| {
        let words = format!("cp --json --via ssh --limit-rate {SLOWISH} --search-effort={effort}");
        route.copy(&words, source.to_str().unwrap(), destination).end()
    };
    let summary = copy("all", "dest/all").summary();
    assert_eq!(summary.0["search"]["limited"], false, "{}", summary.0);
    assert_same_bytes(&source, &world.at("dest/all"));
    copy("some", "dest/some").summary();
    assert_same_bytes(&source, &world.at("dest/some"));
    assert!(copy("much", "dest/much").with(2).text().contains("search-effort"));
}

fn gets_and_copies_search_in_vain_within_the_same_budget() {
    let world = World::new();
    // No other test has this one, where it would be found.
    let (_share, ticket) = world.share_numbered(9003);
    // Twice as much as may be looked at, one that is too large by itself, and nothing of it near.
    File::create(world.at("dest/below/large")).unwrap().set_len(9 * SIZE).unwrap();
    (0..16).for_each(|number| file(&world.at(&format!("dest/below/{number}.dat")), 500 + number, SIZE));
    let got = world.got(&ticket, "--limit-rate 1M --reuse");
    fs::remove_file(world.at("dest/new")).unwrap();
    let route = Route::new(&world.here, Way::Pull);
    let copied = copied(&route, "cp --via ssh --limit-rate 1M", &world.source(), "dest/new");
    for summary in [got, copied] {
        assert_eq!(summary.0["search"]["limited"], true, "{}", summary.0);
        assert!(searched(&summary, "hashed") <= 8 * SIZE, "{}", summary.0);
    }
}

fn odd_things_in_a_searched_directory_do_no_harm() {
    let world = World::new();
    let (_share, ticket) = world.share();
    let dir = world.at("elsewhere");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.join("file"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o666),
        0,
    )
    .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(dir.join("socket")).unwrap();
    symlink(&dir, &dir.join("round"));
    symlink("round/and/round", &dir.join("nowhere"));
    symlink(world.source(), &dir.join("the file itself"));
    file(&dir.join("secret"), 1, SIZE);
    fs::create_dir_all(dir.join("closed")).unwrap();
    for name in ["secret", "closed"] {
        fs::set_permissions(dir.join(name), fs::Permissions::from_mode(0o000)).unwrap();
    }
    File::create(dir.join("all holes")).unwrap().set_len(SIZE).unwrap();
    file(&dir.join("\x1b[31m\n"), 1, SIZE);
    let summary = world.got(&ticket, &format!("--limit-rate {SLOW} --search elsewhere"));
    assert_little(&summary, summary.fetched());
    fs::set_permissions(dir.join("closed"), fs::Permissions::from_mode(0o755)).unwrap();
}

fn a_file_that_changes_while_it_is_searched_does_no_harm() {
    let world = World::new();
    let (_share, ticket) = world.share();
    let (path, right) = (world.at("dest/other"), bytes(1, SIZE));
    fs::write(&path, &right).unwrap();
    let is_over = AtomicBool::new(false);
    scope(|scope| {
        scope.spawn(|| {
            let mut turns = (0..3).cycle();
            // No event: it is to change at whatever moment of the search, and to stand for about as
            // long as it takes to be read.
            until_stopped(&is_over, Duration::from_millis(3), || match turns.next().unwrap() {
                0 => fs::write(&path, bytes(7, SIZE / 2)).unwrap(),
                1 => fs::write(&path, &right).unwrap(),
                _ => fs::rename(&path, world.at("dest/another")).unwrap(),
            });
        });
        let got = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            world.got(&ticket, &format!("--limit-rate {SLOWISH}"))
        }));
        is_over.store(true, Ordering::Relaxed);
        got.unwrap();
    });
}

fn a_get_that_is_killed_while_it_searches_goes_on() {
    let world = World::new();
    let (_share, ticket) = world.share();
    // Something to read for a while, and half of what is wanted.
    (0..20).for_each(|number| file(&world.at(&format!("elsewhere/{number}")), 200 + number, SIZE));
    let half = [bytes(1, SIZE / 2), bytes(50, SIZE / 2)].concat();
    fs::write(world.at("elsewhere/x"), half).unwrap();
    let words = format!("--limit-rate {SLOWISH} --search elsewhere");
    let mut running = world.get(&ticket, &words).start();
    running.wait_for_bytes(1 << 20);
    running.kill();
    assert!(!world.at("dest/new").exists());
    let summary = world.got(&ticket, &words);
    assert!(summary.number("kept") >= 256 << 10, "{}", summary.0);
    assert!(summary.fetched() <= SIZE - summary.number("kept"), "{}", summary.0);
    let left: Vec<_> = crate::trees::names(&world.at("dest"));
    assert_eq!(left, ["below", "new"], "a temporary is left");
}
