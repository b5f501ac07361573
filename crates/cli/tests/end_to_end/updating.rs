//! `tow get --update`: what is there becomes equal to the ticket's tree, as `tow sync` would make it.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::environment::{Ended, TestEnvironment};
use crate::runner::situations;
use crate::trees::{assert_same, bytes, dress, file, names, symlink};

situations![
    what_differs_is_replaced_and_only_that_comes,
    a_dry_run_tells_what_would_be_and_changes_nothing,
    what_the_tree_does_not_have_goes_with_delete_alone,
    more_than_half_needs_force_and_limits_hold,
    what_filters_leave_out_is_neither_fetched_nor_removed,
    paths_are_updated_in_a_directory,
    backups_keep_what_was_replaced,
    contents_are_compared_if_asked_for,
    an_update_that_was_interrupted_goes_on,
    a_daemon_updates_as_well,
    a_single_file_is_updated_too,
    small_changed_files_come_as_deltas_where_the_sender_may_know_them,
    what_can_not_be_updated_is_refused,
];

const LARGE: u64 = 3 << 20;

/// `large`, `sub/{one,two}`, `link`; what was sent before, and what is sent now.
struct World {
    env: TestEnvironment,
}

impl World {
    fn new() -> Self {
        let env = TestEnvironment::new();
        let tree = env.sender.path("tree");
        fs::create_dir_all(tree.join("sub")).unwrap();
        file(&tree.join("large"), 1, LARGE);
        for (seed, name) in (2..).zip(["sub/one", "sub/two"]) {
            file(&tree.join(name), seed, 5000);
            dress(&tree.join(name), 0o640, seed as u32);
        }
        symlink("large", &tree.join("link"));
        let world = Self { env };
        world.get(&["-o", "copy"]).summary();
        world
    }

    /// `tow get TICKET WORDS...` of the tree as it is now.
    fn get(&self, words: &[&str]) -> Ended {
        let mut share = self.env.sender.share("tree");
        let ticket = share.ticket();
        self.env.receiver.tow(["get", "--json", "--no-search", &ticket].iter().chain(words)).end()
    }

    fn update(&self, words: &[&str]) -> Ended {
        self.get(&[&["--update", "-o", "copy"], words].concat())
    }

    /// Other bytes in the middle of the large file, and of a small one; one goes, one comes.
    fn change(&self) {
        let at = |name: &str| self.env.sender.path("tree").join(name);
        let mut large = bytes(1, LARGE);
        large[1_500_000..1_500_010].fill(7);
        fs::write(at("large"), large).unwrap();
        fs::write(at("sub/one"), "changed").unwrap();
        fs::remove_file(at("sub/two")).unwrap();
        file(&at("sub/three"), 9, 4000);
    }

    fn assert_updated(&self) {
        assert_same(&self.env.sender.path("tree"), &self.env.receiver.path("copy"));
    }
}

/// Changes and removals that were told.
fn told(ended: &Ended) -> Vec<String> {
    let events = ended.events();
    let told = events.iter().filter_map(|event| match event["event"].as_str().unwrap() {
        "item" => Some(format!("{} {}", event["changes"].as_str().unwrap(), event["path"].as_str().unwrap())),
        "deleted" => Some(format!("deleted {}", event["path"].as_str().unwrap())),
        _ => None,
    });
    told.collect()
}

fn what_differs_is_replaced_and_only_that_comes() {
    let world = World::new();
    let inode = || world.env.receiver.path("copy/link").symlink_metadata().unwrap().ino();
    let before = inode();
    assert_eq!(told(&world.update(&[])), [""; 0], "it is as it should be");
    world.change();
    let ended = world.update(&["--delete"]);
    let summary = ended.summary();
    assert!(summary.fetched() < LARGE / 4, "the large file is here but for one piece: {}", summary.0);
    let updated = &summary.0["updated"];
    assert_eq!(
        (&updated["created"], &updated["transferred"], &updated["deleted"]),
        (&1.into(), &3.into(), &1.into())
    );
    world.assert_updated();
    assert_eq!(inode(), before, "what is the same is left alone");
    // One that is not there yet is made.
    world.get(&["--update", "-o", "another"]).summary();
    assert_same(&world.env.sender.path("tree"), &world.env.receiver.path("another"));
}

fn a_dry_run_tells_what_would_be_and_changes_nothing() {
    let world = World::new();
    world.change();
    fs::create_dir(world.env.receiver.path("kept")).unwrap();
    let before = |name: &str| fs::read(world.env.receiver.path("copy").join(name)).unwrap();
    let (large, one) = (before("large"), before("sub/one"));
    let ended = world.update(&["-n", "--delete"]);
    let told = told(&ended);
    for line in [">f+++++++++ sub/three", ">f..t...... large", ">f.st...... sub/one", "deleted sub/two"] {
        assert!(told.iter().any(|told| told == line), "{line}: {told:?}");
    }
    let summary = ended.summary();
    assert_eq!(
        (&summary.0["updated"]["deleted"], summary.fetched() < 20_000),
        (&1.into(), true),
        "{}",
        summary.0
    );
    assert_eq!((before("large"), before("sub/one")), (large, one));
    assert_eq!(names(&world.env.receiver.path("copy/sub")), ["one", "two"]);
    // To people it says so without being asked.
    let mut share = world.env.sender.share("tree");
    let words = ["get", "--update", "-n", "--delete", &share.ticket(), "-o", "copy"];
    let text = world.env.receiver.tow(words).end().with(0);
    assert!(
        text.text().contains("sub/three\n") && text.text().contains("deleting sub/two\n"),
        "{}",
        text.text()
    );
    world.get(&["--update", "-n", "-o", "none"]).summary();
    assert!(!world.env.receiver.path("none").exists());
}

fn what_the_tree_does_not_have_goes_with_delete_alone() {
    let world = World::new();
    world.change();
    world.update(&[]).summary();
    assert_eq!(names(&world.env.receiver.path("copy/sub")), ["one", "three", "two"]);
    world.update(&["--delete"]).summary();
    world.assert_updated();
}

fn more_than_half_needs_force_and_limits_hold() {
    let world = World::new();
    for number in 0..20 {
        file(&world.env.receiver.path(format!("copy/extra {number}")), number, 10);
    }
    let ended = world.update(&["--delete"]).with(3);
    assert!(ended.text().contains("would remove") || ended.text().contains("--force"), "{}", ended.text());
    assert_eq!(names(&world.env.receiver.path("copy")).len(), 23, "nothing is removed");
    let some = world.update(&["--delete", "--max-delete=5"]).partial_summary();
    assert_eq!(
        (&some.0["updated"]["deleted"], &some.0["updated"]["max_delete_reached"]),
        (&5.into(), &true.into())
    );
    world.update(&["--delete", "--force"]).summary();
    world.assert_updated();
}

fn what_filters_leave_out_is_neither_fetched_nor_removed() {
    let world = World::new();
    world.change();
    fs::write(world.env.receiver.path("copy/mine.bak"), "mine").unwrap();
    let summary = world.update(&["--delete", "--exclude=*.bak", "--exclude=/large"]).summary();
    assert!(summary.fetched() < 20_000, "{}", summary.0);
    assert_eq!(fs::read(world.env.receiver.path("copy/mine.bak")).unwrap(), b"mine");
    assert_eq!(fs::read(world.env.receiver.path("copy/large")).unwrap(), bytes(1, LARGE));
    assert_eq!(names(&world.env.receiver.path("copy/sub")), ["one", "three"]);
}

fn paths_are_updated_in_a_directory() {
    let world = World::new();
    world.change();
    fs::write(world.env.receiver.path("copy/extra"), "x").unwrap();
    let ended = world.update(&["sub", "nothing", "--delete"]);
    assert_eq!(ended.partial_summary().number("failed"), 1);
    assert_same(&world.env.sender.path("tree/sub"), &world.env.receiver.path("copy/sub"));
    assert_eq!(
        fs::read(world.env.receiver.path("copy/large")).unwrap(),
        bytes(1, LARGE),
        "nobody asked for it"
    );
    assert!(world.env.receiver.path("copy/extra").exists(), "it does not lie in what was asked for");
    let failure = world.get(&["--update", "sub", "-o", "none"]).failure_with(2);
    assert!(failure["message"].as_str().unwrap().contains("no directory"), "{failure}");
}

fn backups_keep_what_was_replaced() {
    let world = World::new();
    world.change();
    world.update(&["--delete", "--backup", "--backup-dir=old"]).summary();
    assert_eq!(fs::read(world.env.receiver.path("copy/old/large")).unwrap(), bytes(1, LARGE));
    assert_eq!(fs::read(world.env.receiver.path("copy/old/sub/two")).unwrap(), bytes(3, 5000));
    assert_eq!(fs::read(world.env.receiver.path("copy/sub/one")).unwrap(), b"changed");
}

fn contents_are_compared_if_asked_for() {
    let world = World::new();
    let copy = world.env.receiver.path("copy/sub/one");
    let mut changed = bytes(2, 5000);
    changed[7] ^= 1;
    fs::write(&copy, &changed).unwrap();
    dress(&copy, 0o640, 2);
    // Size and time are the same.
    world.update(&[]).summary();
    assert_eq!(fs::read(&copy).unwrap(), changed);
    assert_eq!(told(&world.update(&["--checksum"])), [">fc........ sub/one"]);
    world.assert_updated();
}

fn an_update_that_was_interrupted_goes_on() {
    let world = World::new();
    file(&world.env.sender.path("tree/large"), 8, LARGE);
    let mut share = world.env.sender.share("tree");
    let ticket = share.ticket();
    let words = ["get", "--json", "--no-search", "--update", "--limit-rate", "300K", &ticket, "-o", "copy"];
    let mut running = world.env.receiver.tow(words).start();
    running.wait_for_bytes(1 << 20);
    running.kill();
    drop(share);
    assert_eq!(
        fs::read(world.env.receiver.path("copy/large")).unwrap(),
        bytes(1, LARGE),
        "the old one, whole"
    );
    let summary = world.update(&["--delete"]).summary();
    assert!(summary.fetched() < LARGE - (400 << 10), "{}", summary.0);
    world.assert_updated();
    assert_eq!(names(&world.env.receiver.path("copy")), ["large", "link", "sub"], "nothing else is left");
}

fn a_daemon_updates_as_well() {
    let world = World::new();
    world.change();
    let _daemon = world.env.receiver.daemon();
    let ended = world.update(&["--delete"]);
    assert!(told(&ended).contains(&"deleted sub/two".to_owned()), "{}", ended.text());
    ended.summary();
    world.assert_updated();
}

fn a_single_file_is_updated_too() {
    let world = World::new();
    let env = &world.env;
    // The last one has a ticket that names it before it is read, the first one is in its ticket.
    for (name, size) in [("little", 300), ("file", LARGE), ("large", 65 << 20)] {
        let (source, copy) = (env.sender.path(name), env.receiver.path(name));
        for change in [0, 7] {
            let mut content = bytes(1, size);
            content[size as usize / 2] ^= change;
            fs::write(&source, &content).unwrap();
            let mut share = env.sender.share(name);
            let ticket = share.ticket();
            // What changed is found by comparing, which a busy machine does more slowly than this one's network brings all.
            let rate = if change == 0 { "1G" } else { "20M" };
            let words = ["get", "--json", "--no-search", "--update", "--limit-rate", rate, &ticket];
            if size > 64 << 20 {
                // Its content has a name once it is read.
                share.wait_until("has read the file", |_| {
                    let ended = env.stranger.tow(["get", "--json", "--list", &ticket]).end();
                    (ended.code() == 0 && ended.events()[0]["size"] == size).then_some(())
                });
            }
            let summary = env.receiver.tow(words).end().summary();
            assert_eq!(fs::read(&copy).unwrap(), content);
            assert_eq!(summary.0["updated"]["transferred"], 1, "{}", summary.0);
            assert!(size < LARGE || change == 0 || summary.fetched() < size / 4, "{}", summary.0);
            let again = env.receiver.tow(words).end().summary();
            assert_eq!((&again.0["updated"]["transferred"], again.fetched()), (&0.into(), 0), "{}", again.0);
        }
    }
    let mut share = env.sender.share("file");
    let words = ["get", "--json", "--update", &share.ticket(), "-o", "copy"];
    env.receiver.tow(words).end().summary();
    assert!(env.receiver.path("copy/file").exists(), "as with cp, a directory takes it");
}

/// On a slow network. A stranger is sent no signature, so all of each file comes.
fn small_changed_files_come_as_deltas_where_the_sender_may_know_them() {
    const SMALL: u64 = 100_000;
    let env = TestEnvironment::new();
    let (tree, number) = (env.sender.path("tree"), 40);
    fs::create_dir_all(&tree).unwrap();
    for seed in 0..number {
        let old = bytes(seed, SMALL);
        fs::write(tree.join(format!("{seed}")), [&old[..30_000], b"something new", &old[30_000..]].concat())
            .unwrap();
    }
    let mut share = env.sender.share("tree");
    let ticket = share.ticket();
    let fetched = |older: &str, name: &str, words: &[&str]| {
        let older = env.receiver.path(older);
        fs::create_dir(&older).unwrap();
        (0..number).for_each(|seed| file(&older.join(format!("{seed}")), seed, SMALL));
        let line = ["get", "--json", "--limit-rate", "1500K", &ticket, "-o", name];
        let summary = env.receiver.tow(line.iter().chain(words)).end().summary();
        assert_same(&tree, &env.receiver.path(name));
        summary.fetched()
    };
    let all = number * SMALL;
    assert!(fetched("stranger", "stranger", &["--update"]) >= all);
    assert!(fetched("stranger-1.0", "stranger-1.1", &[]) >= all);
    // What is under way before the network is known to be slow comes whole.
    for (older, name, words) in
        [("known", "known", &["--update", "--reuse"][..]), ("v1.0", "v1.1", &["--reuse"])]
    {
        let came = fetched(older, name, words);
        assert!(came < all / 2, "{name}: {came} of {all}");
    }
}

fn what_can_not_be_updated_is_refused() {
    let world = World::new();
    file(&world.env.sender.path("file"), 1, 70_000);
    fs::write(world.env.receiver.path("taken"), "precious").unwrap();
    let mut share = world.env.sender.share("file");
    let ticket = share.ticket();
    fs::create_dir(world.env.receiver.path("file")).unwrap();
    let failure = world.env.receiver.tow(["get", "--json", "--update", &ticket]).end().failure_with(2);
    assert!(failure["message"].as_str().unwrap().contains("is a directory"), "{failure}");
    let failure = world.get(&["--update", "-o", "taken"]).failure_with(2);
    assert!(failure["message"].as_str().unwrap().contains("no directory"), "{failure}");
    assert_eq!(fs::read(world.env.receiver.path("taken")).unwrap(), b"precious");
    // Each flag is for an update.
    for flag in ["--delete", "-n", "--backup", "--max-delete=1", "--checksum", "--force", "-i", "--suffix=x"]
    {
        let ended = world.env.receiver.tow(["get", &ticket, flag]).end().with(2);
        assert!(ended.err.contains("--update"), "{flag}: {}", ended.err);
    }
}
