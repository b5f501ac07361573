//! A changed file of some hundred KiB to some MiB costs a get about what it costs a copy: little more than what differs.

use std::fs;
use std::time::{Duration, SystemTime};

use towpath_content::{Hint, Ticket};

use crate::environment::{Call, Summary};
use crate::runner::situations;
use crate::searching::World;
use crate::slow_line::SlowLine;
use crate::sshd::{Route, Way};
use crate::trees::{assert_same, bytes, names};

situations![
    a_changed_file_costs_a_get_about_what_it_costs_a_copy,
    a_changed_file_of_a_stranger_comes_by_its_pieces,
    a_changed_file_that_is_got_alone_comes_as_a_delta,
    what_came_as_a_delta_is_explained,
    a_get_that_is_killed_in_a_step_of_a_delta_goes_on,
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
        // Each in a world of its own: what came once is found by its content.
        let world = placed(size, &["copied/file"]);
        let copied = copied(&world);
        assert_got(&world, "copied");
        let gets = [("updated/file", "--update", "updated"), ("tree-1.0/file", "", "tree-1.1")];
        let gets = gets.map(|(older, words, tree)| {
            let world = placed(size, &[older]);
            let came = got(&world, &format!("{words} --reuse -o {tree}")).fetched();
            assert_got(&world, tree);
            came
        });
        let copy = copied.number("literal");
        eprintln!("{size} bytes: {copy} by a copy (all {}), {gets:?} by gets", copied.number("received"));
        for came in gets {
            assert!(came <= copy + copy / 4, "{size} bytes: {came}, where a copy brings {copy}");
        }
    }
}

fn a_changed_file_of_a_stranger_comes_by_its_pieces() {
    let size = 700 * KIB;
    let world = placed(size, &["updated/file"]);
    let mut new = versions(size).0;
    new[7..17].fill(7);
    new.push(7);
    fs::write(world.there.sender.path("tree/file"), new).unwrap();
    let came = got(&world, "--update -o updated").fetched();
    assert_got(&world, "updated");
    // The descriptor comes besides.
    let others = size + 1 - 256 * KIB;
    assert!(
        (others..others + 500).contains(&came),
        "{came}: one of three pieces is as it was, and nothing is signed"
    );
}

fn a_changed_file_that_is_got_alone_comes_as_a_delta() {
    for size in SIZES {
        let world = placed(size, &["file-1.0"]);
        let new = world.there.sender.path("file-1.1");
        fs::rename(world.there.sender.path("tree/file"), &new).unwrap();
        let mut share = world.there.sender.share(&new);
        let line = format!("get --json --reuse --limit-rate {RATE} {}", share.ticket());
        let came = world.here.receiver.tow(line.split_whitespace()).end().summary().fetched();
        assert_same(&new, &world.at("file-1.1"));
        eprintln!("{size} bytes: {came} by a get of it alone");
        assert!(came < size / 4, "{size} bytes: {came}");
    }
}

fn what_came_as_a_delta_is_explained() {
    let in_place = "it was in its place";
    for (what, base, why) in [
        ("--update -o updated", "updated/file", in_place),
        ("-o tree-1.1", "tree-1.0/file", "its path differs in numbers of folders"),
        ("pull", "copied/file", in_place),
        ("push", "copied/file", in_place),
    ] {
        let world = placed(400 * KIB, &[base]);
        let source = format!("{}/", world.there.sender.path("tree").display());
        let copy = |way| {
            let words = format!("sync -a --explain --via ssh --limit-rate {RATE}");
            Route::new(&world.here, way).copy(&words, &source, "copied").end()
        };
        let ended = match what {
            "pull" => copy(Way::Pull),
            "push" => copy(Way::Push),
            words => {
                let mut share = world.there.sender.share("tree");
                let line = format!("get --reuse --explain --limit-rate {RATE} {} {words}", share.ticket());
                world.here.receiver.tow(line.split_whitespace()).end()
            }
        };
        let ended = ended.with(0);
        let told = format!("{}{}", ended.text(), ended.err);
        let base = format!("as a delta of {}: {why}", world.at(base).display());
        let line = told.lines().find(|line| line.contains(&base)).unwrap_or_else(|| panic!("{base}: {told}"));
        assert!(
            line.starts_with("  ") && line.contains("file: ") && line.contains(" bytes came for "),
            "{line}"
        );
    }
}

/// Each time once more of what a get takes has passed. Most of that are the steps of one file's delta.
fn a_get_that_is_killed_in_a_step_of_a_delta_goes_on() {
    const MOMENTS: u64 = 6;
    let size = 3072 * KIB;
    let (old, mut new) = (versions(size).0, versions(size).0);
    // Scattered: the outline of the delta comes first.
    for at in (9..new.len() - 1000).step_by(50_000) {
        new[at..at + 650].copy_from_slice(&bytes(at as u64, 650));
    }
    let mut all = 0;
    for moment in 0..=MOMENTS {
        let (world, is_update) = (placed(size, &["updated/file", "tree-1.0/file"]), moment % 2 == 1);
        let changed = world.there.sender.path("tree/file");
        fs::write(&changed, &new).unwrap();
        // It may be as old as the other version, by the clock of a file system, and has the same size.
        let later = SystemTime::now() + Duration::from_secs(10);
        fs::File::options().write(true).open(changed).unwrap().set_modified(later).unwrap();
        let mut share = world.there.sender.share("tree");
        let mut ticket: Ticket = share.ticket().parse().unwrap();
        let line = SlowLine::to(ticket.hints[0].rest(), 200_000, 200_000);
        ticket.hints = vec![Hint::new(format!("tow://{}", line.address), 0, 1).unwrap()];
        let tree = if is_update { "updated" } else { "tree-1.1" };
        let get = |rate: &str| -> Call {
            let update = if is_update { " --update" } else { "" };
            let line = format!("get --json --reuse --limit-rate {rate} {ticket} -o {tree}{update}");
            world.here.receiver.tow(line.split_whitespace())
        };
        if moment > 0 {
            let mut running = get("50K").start();
            let until = all * moment / (MOMENTS + 1);
            running.wait_until("comes", |_| (line.passed() >= until).then_some(()));
            running.kill();
            assert!(fs::read(world.at("updated/file")).unwrap() == old, "{moment}: it is whole");
        }
        let passed = line.passed();
        let came = get(RATE).end().summary().fetched();
        assert_got(&world, tree);
        let passed = line.passed() - passed;
        eprintln!("moment {moment}: {came} bytes came, and {passed} passed, of {all}");
        if moment == 0 {
            all = passed;
        }
        assert!(came < size / 20 && passed < 2 * all, "{moment}: {came}, {passed}");
        let new = if is_update { None } else { Some("tree-1.1") };
        let expected: Vec<_> =
            ["dest", "elsewhere", "tree-1.0"].into_iter().chain(new).chain(["updated"]).collect();
        assert_eq!(names(&world.at("")), expected, "{moment}: something is left");
    }
}
