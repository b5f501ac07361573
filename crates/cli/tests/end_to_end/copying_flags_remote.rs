//! The flags of `tow sync` and `tow cp` that are about the other side and the way there.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use crate::copying_flags::one_of_each;
use crate::environment::{Call, Summary};
use crate::likeness::{Scene, age, is_root, mode, words, write};
use crate::runner::{situations, skip};
use crate::trees;

situations![
    the_other_side_is_reached_by_the_command_and_program_that_are_named,
    data_go_the_way_that_is_named,
    compressed_data_are_fewer_on_the_way,
    what_a_tree_holds_is_told_packed,
    a_changed_file_travels_whole_only_when_so_asked,
    a_limited_rate_is_kept_to,
    a_limited_rate_is_kept_to_by_changes_of_what_is_there,
    small_changes_here_and_there_travel_as_little_more_than_themselves,
    of_a_file_that_is_half_new_little_more_than_that_half_travels,
    what_nobody_looks_at_is_not_told,
    of_what_the_sender_has_in_both_versions_only_the_difference_travels,
    a_silent_other_side_is_given_up_in_the_time_that_was_given,
    owners_go_by_name_unless_numbers_are_asked_for,
];

const TOW: &str = env!("CARGO_BIN_EXE_tow");

/// Command that runs the other side, which is `$*`.
const PLAINLY: &str = "exec sh -c \"$*\"";
/// The same, with all that passes kept.
const RECORDED: &str = "tee ../sent | sh -c \"$*\" | tee ../received";

/// Flags that reach it.
const REMOTELY: &str = "-e ../rsh --tow-path TOW";

/// A command that does not go far: it drops the host and runs the rest here, at another home.
struct FakeRsh<'a> {
    scene: &'a Scene,
}

impl<'a> FakeRsh<'a> {
    fn new(scene: &'a Scene, run: &str) -> Self {
        let home = scene.elsewhere().home("");
        let script = format!("#!/bin/sh\nshift\nexport TOW_HOME='{}'\n{run}\n", home.display());
        let path = scene.machine().path("rsh");
        fs::write(&path, script).unwrap();
        mode(&path, 0o755);
        Self { scene }
    }

    /// A call in a twin that reaches the other side so. `HERE:` is where the twin is over there.
    fn call(&self, twin: &str, line: &str) -> Call {
        let twin = self.scene.twin(twin);
        let line = line.replace("HERE:", &format!("host:{}/", twin.display()));
        let line = line.replace("TOW", TOW);
        self.scene.machine().tow(words(&line)).folder(&twin)
    }

    /// Bytes that the last call had on the pipe, in both directions.
    fn passed(&self) -> u64 {
        let len = |name| fs::metadata(self.scene.machine().path(name)).unwrap().len();
        len("sent") + len("received")
    }
}

fn the_other_side_is_reached_by_the_command_and_program_that_are_named() {
    let scene = Scene::new(one_of_each);
    let rsh = FakeRsh::new(&scene, PLAINLY);
    for command in ["sync", "cp"] {
        let call =
            |name: &str, rest: &str| rsh.call(&format!("{command}-{name}"), &format!("{command} {rest}"));
        call("there", "-e ../rsh --tow-path TOW src/ HERE:new").end().with(0);
        assert!(scene.machine().path(format!("{command}-there/new")).is_dir());
        call("back", "-e ../rsh --tow-path TOW HERE:src/ new").end().with(0);
        assert!(scene.machine().path(format!("{command}-back/new")).is_dir());
        let no_program = call("no-program", "-e ../rsh --tow-path /nowhere/tow src HERE:").end();
        assert!(no_program.code() != 0 && no_program.err.contains("--tow-path"), "{}", no_program.err);
        let no_command = call("no-command", "-e /nowhere/rsh src HERE:").end();
        assert!(no_command.code() != 0 && no_command.err.contains("/nowhere/rsh"), "{}", no_command.err);
    }
}

fn data_go_the_way_that_is_named() {
    let scene = Scene::new(|folder| {
        fs::create_dir(folder.join("src")).unwrap();
        trees::file(&folder.join("src/big"), 1, 2_000_000);
    });
    let rsh = FakeRsh::new(&scene, RECORDED);
    for command in ["sync", "cp"] {
        rsh.call(
            &format!("{command}-ssh"),
            &format!("{command} --no-search --via ssh {REMOTELY} src HERE:dst"),
        )
        .end()
        .with(0);
        assert!(rsh.passed() > 2_000_000, "{}", rsh.passed());
        // Content that is there already would not travel at all; nor what a busy machine, which seems far, searches.
        trees::file(&scene.machine().path("scene/src/big"), command.len() as u64, 2_000_000);
        rsh.call(
            &format!("{command}-tls"),
            &format!("{command} --no-search --via tls {REMOTELY} src HERE:dst"),
        )
        .end()
        .with(0);
        assert!(rsh.passed() < 100_000, "{}", rsh.passed());
        trees::file(&scene.machine().path("scene/src/big"), 7, 2_000_000);
    }
}

fn compressed_data_are_fewer_on_the_way() {
    let scene =
        Scene::new(|folder| fs::write(folder.join("text"), "much the same. ".repeat(100_000)).unwrap());
    for (number, (line, fits)) in
        [("sync -z", true), ("sync -z --no-z", false), ("sync", false), ("cp -z", true), ("cp", false)]
            .into_iter()
            .enumerate()
    {
        // A home of its own each time: what is there already does not travel.
        let fresh =
            Scene::new(|folder| drop(fs::copy(scene.machine().path("scene/text"), folder.join("text"))));
        let rsh = FakeRsh::new(&fresh, RECORDED);
        // A busy machine, which seems far, would search.
        let line = format!("{line} --no-search");
        rsh.call(&number.to_string(), &format!("{line} --via ssh {REMOTELY} text HERE:copy")).end().with(0);
        assert_eq!(rsh.passed() < 500_000, fits, "{line}: {}", rsh.passed());
    }
}

/// In a copy to the other side only, at first.
fn what_a_tree_holds_is_told_packed() {
    let scene = Scene::new(|folder| {
        fs::create_dir(folder.join("tree")).unwrap();
        (0..2000)
            .for_each(|number| drop(fs::write(folder.join(format!("tree/number {number} of them")), "x")));
    });
    let rsh = FakeRsh::new(&scene, RECORDED);
    for (twin, places) in [("there", "tree/ HERE:copy"), ("back", "HERE:tree/ copy")] {
        rsh.call(twin, &format!("sync -n --via ssh {REMOTELY} {places}")).end().with(0);
        // A name takes 20 of some 35.
        assert!(rsh.passed() < 40_000, "{twin}: {}", rsh.passed());
    }
}

fn a_changed_file_travels_whole_only_when_so_asked() {
    for (flags, whole) in [("-W", true), ("-W --no-W", false), ("", false)] {
        let scene = Scene::new(|folder| {
            trees::file(&folder.join("old"), 1, 4_000_000);
            let mut changed = fs::read(folder.join("old")).unwrap();
            changed[1_000_000] ^= 1;
            fs::write(folder.join("file"), changed).unwrap();
            age(&folder.join("old"), 0);
        });
        let rsh = FakeRsh::new(&scene, RECORDED);
        let line = format!("sync --json --via ssh {REMOTELY} {flags} file HERE:old");
        let summary = Summary(rsh.call("twin", &line).end().with(0).events().pop().unwrap());
        assert_eq!(rsh.passed() > 4_000_000, whole, "{flags}: {}", rsh.passed());
        assert_eq!(summary.number("matched") == 0, whole, "{flags}: {}", summary.0);
    }
}

fn a_limited_rate_is_kept_to() {
    for (flags, least) in [
        ("sync --bwlimit=400", Duration::from_secs(1)),
        ("sync --limit-rate=400K", Duration::from_secs(1)),
        ("sync --bwlimit=1 --no-bwlimit", Duration::ZERO),
        ("cp --limit-rate=400K", Duration::from_secs(1)),
    ] {
        let scene = Scene::new(|folder| trees::file(&folder.join("file"), 1, 700_000));
        let rsh = FakeRsh::new(&scene, RECORDED);
        let line = format!("{flags} --no-search --via ssh {REMOTELY} file HERE:copy");
        let running = rsh.call("twin", &line).start();
        assert!(!running.ends_within(least), "{flags}: within {least:?}");
        running.end().with(0);
    }
}

fn a_limited_rate_is_kept_to_by_changes_of_what_is_there() {
    let scene = Scene::new(|folder| trees::file(&folder.join("file"), 1, 700_000));
    let rsh = FakeRsh::new(&scene, PLAINLY);
    let copy = format!("sync --limit-rate=400K --no-search --via ssh {REMOTELY} file HERE:copy");
    rsh.call("twin", &copy.replace("400K", "0")).end().with(0);
    trees::file(&scene.machine().path("twin/file"), 2, 710_000);
    let running = rsh.call("twin", &copy).start();
    assert!(!running.ends_within(Duration::from_secs(1)));
    running.end().with(0);
    trees::assert_same_bytes(&scene.machine().path("twin/file"), &scene.machine().path("twin/copy"));
}

fn small_changes_here_and_there_travel_as_little_more_than_themselves() {
    let scene = Scene::new(|folder| {
        trees::file(&folder.join("old"), 1, 8_000_000);
        let mut changed = fs::read(folder.join("old")).unwrap();
        (20_000..changed.len()).step_by(40_000).for_each(|at| changed[at] ^= 1);
        fs::write(folder.join("file"), changed).unwrap();
        age(&folder.join("old"), 0);
    });
    let rsh = FakeRsh::new(&scene, PLAINLY);
    // So slow that a round trip is cheap. A block around each change would be 200 KB.
    let line = format!("sync --json --limit-rate=1M --no-search --via ssh {REMOTELY} file HERE:old");
    let summary = Summary(rsh.call("twin", &line).end().with(0).events().pop().unwrap());
    assert!(summary.number("literal") < 60_000, "{}", summary.0);
    trees::assert_same_bytes(&scene.machine().path("twin/file"), &scene.machine().path("twin/old"));
}

fn what_nobody_looks_at_is_not_told() {
    let [listed, told, silent, counted] = ["-v", "--json", "", "--stats"].map(|flags| {
        let scene = Scene::new(|folder| {
            fs::create_dir(folder.join("tree")).unwrap();
            (0..200).for_each(|number| write(&folder.join(format!("tree/{number}")), "little", 0));
        });
        let rsh = FakeRsh::new(&scene, RECORDED);
        rsh.call("twin", &format!("sync -r {flags} --via ssh {REMOTELY} tree HERE:copy")).end().with(0);
        rsh.passed()
    });
    let (told, silent) = (listed.min(told), silent.max(counted));
    assert!(told > silent + 200 * 30, "{told} {silent}");
}

fn of_a_file_that_is_half_new_little_more_than_that_half_travels() {
    let scene = Scene::new(|folder| {
        trees::file(&folder.join("old"), 1, 10_000_000);
        trees::file(&folder.join("new"), 2, 10_000_000);
        let (old, new) = (fs::read(folder.join("old")).unwrap(), fs::read(folder.join("new")).unwrap());
        // Runs of both, of other lengths each time.
        let mut file = Vec::new();
        let mut at = 0;
        for number in 0.. {
            let (keep, change) = (3_001 + number * 7_919 % 34_567, 2_003 + number * 6_907 % 33_333);
            let Some(kept) = old.get(at..at + keep) else { break };
            file.extend_from_slice(kept);
            file.extend_from_slice(&new[at..at + change.min(new.len() - at)]);
            at += keep + change;
        }
        fs::write(folder.join("file"), file).unwrap();
        age(&folder.join("old"), 0);
        fs::remove_file(folder.join("new")).unwrap();
    });
    let rsh = FakeRsh::new(&scene, PLAINLY);
    let old = fs::read(scene.machine().path("scene/old")).unwrap();
    let file = fs::read(scene.machine().path("scene/file")).unwrap();
    let new = file.iter().zip(&old).filter(|(new, old)| new != old).count() as u64 * 256 / 255;
    let line = format!("sync --json --limit-rate=3M --no-search --via ssh {REMOTELY} file HERE:old");
    let summary = Summary(rsh.call("twin", &line).end().with(0).events().pop().unwrap());
    let travelled = summary.number("literal");
    assert!(travelled < new + new / 50, "{travelled} for {new}");
    assert_eq!(file, fs::read(scene.machine().path("twin/old")).unwrap());
}

fn of_what_the_sender_has_in_both_versions_only_the_difference_travels() {
    let scene = Scene::new(|folder| {
        trees::file(&folder.join("old"), 1, 6_000_000);
        let mut changed = fs::read(folder.join("old")).unwrap();
        (0..changed.len()).step_by(4096).for_each(|at| changed[at] ^= 1);
        fs::write(folder.join("file"), changed).unwrap();
        write(&folder.join("little"), "it is the same, and newer. ".repeat(20), 9);
        write(&folder.join("older"), "it is the same, and newer. ".repeat(20), 0);
        age(&folder.join("old"), 0);
    });
    let rsh = FakeRsh::new(&scene, PLAINLY);
    scene.machine().tow(words("put old")).folder(&scene.machine().path("scene")).end().with(0);
    // A receiver may name as a base what it was sent before, and nothing else that lies here.
    for (twin, name) in [("before", "old"), ("before2", "older")] {
        rsh.call(twin, &format!("sync --via ssh {REMOTELY} {name} HERE:copy")).end().with(0);
    }
    // A block of each change would be all of it.
    let line = format!("sync --json --limit-rate=1M --no-search --via ssh {REMOTELY}");
    for (twin, names, most) in [("one", "file HERE:old", 60_000), ("two", "little HERE:older", 0)] {
        let line = format!("{line} {names}");
        let summary = Summary(rsh.call(twin, &line).end().with(0).events().pop().unwrap());
        assert!(summary.number("literal") <= most, "{}", summary.0);
    }
    trees::assert_same_bytes(&scene.machine().path("one/file"), &scene.machine().path("one/old"));
}

fn a_silent_other_side_is_given_up_in_the_time_that_was_given() {
    // Without the flag data may stall for a minute, and silence lasts as long before it is one.
    let stalls = "sh -c \"$*\" | { stdbuf -o0 head -c 200000; exec cat > /dev/null; }";
    for (line, code) in
        [("sync --timeout=1", 30), ("sync --no-timeout --timeout=1", 30), ("cp --timeout=1", 1)]
    {
        let scene = Scene::new(|folder| trees::file(&folder.join("file"), 1, 4_000_000));
        let rsh = FakeRsh::new(&scene, stalls);
        let start = Instant::now();
        // The sender's own folder is on this machine: a search that is quick would find the file there.
        let line = format!("{line} --no-search");
        rsh.call("twin", &format!("{line} --via ssh {REMOTELY} HERE:file copy")).end().with(code);
        assert!(start.elapsed() < Duration::from_secs(12), "{line}: {:?}", start.elapsed());
    }
}

fn owners_go_by_name_unless_numbers_are_asked_for() {
    if !is_root() {
        skip("owners are root's affair");
    }
    let scene = Scene::new(|folder| {
        write(&folder.join("file"), "mine", 0);
        std::os::unix::fs::chown(folder.join("file"), Some(1), Some(1)).unwrap();
        // Over there the user of this name has another number.
        let users = fs::read_to_string("/etc/passwd").unwrap();
        let one = users.lines().find(|line| line.split(':').nth(2) == Some("1")).unwrap();
        let other = one.replacen(":1:", ":4321:", 1);
        fs::write(folder.join("users"), users.replace(one, &other)).unwrap();
    });
    let users = scene.machine().path("scene/users");
    let run =
        format!("unshare -m sh -c 'mount --bind {} /etc/passwd && exec \"$@\"' sh \"$@\"", users.display());
    let rsh = FakeRsh::new(&scene, &run);
    for (number, (line, owner)) in [
        ("sync", 4321),
        ("sync --numeric-ids", 1),
        ("sync --numeric-ids --no-numeric-ids", 4321),
        ("cp", 4321),
        ("cp --numeric-ids", 1),
    ]
    .into_iter()
    .enumerate()
    {
        rsh.call(&number.to_string(), &format!("{line} {REMOTELY} file HERE:copy")).end().with(0);
        let copy = fs::metadata(scene.machine().path(format!("{number}/copy"))).unwrap();
        assert_eq!((copy.uid(), copy.gid()), (owner, 1), "{line}");
    }
}
