//! Random trees and flags: `tow sync` ends as rsync does, `tow cp` as `cp -a`.
//!
//! The names are few, so that kinds collide. `TOW_SYNC_CASES` says how many cases there are,
//! `TOW_SYNC_SEED` which is the first: a failure names the seed of its case.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::likeness::{HUNG, Scene, age, attribute, has_rsync, link, mode, settle, words, write};
use crate::runner::{situations, skip};

situations![random_trees_and_flags_end_as_with_rsync, forms_of_cp_end_as_with_cp];

const CASES: u64 = 150;
/// At once: they wait for processes and disks.
const THREADS: usize = 3;

/// Numbers that look random; the same for the same seed.
struct Dice(u64);

impl Dice {
    const fn new(seed: u64) -> Self {
        Self(seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    const fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % limit
    }

    const fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    const fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
const CONTENTS: [&str; 5] = ["", "one", "two", "other", "longer than the others"];
const TARGETS: [&str; 5] = ["a", "b", "../c", "../../../out", "/nowhere"];

/// Makes things anew below a folder; of what is there this share of names.
fn grow(dice: &mut Dice, folder: &Path, share: u64, depth: u32, files: &mut Vec<PathBuf>) {
    for name in NAMES {
        let path = folder.join(name);
        if dice.chance(share) {
            remove(&path);
            make(dice, &path, depth, files);
        }
        if fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_dir()) {
            grow(dice, &path, share, depth + 1, files);
            age(&path, dice.pick(&[0, 5, 9]));
        }
    }
}

fn remove(path: &Path) {
    let _ = fs::remove_file(path);
    let _ = fs::remove_dir_all(path);
}

fn make(dice: &mut Dice, path: &Path, depth: u32, files: &mut Vec<PathBuf>) {
    match dice.below(12) {
        0..=1 => {}
        2..=4 if depth < 3 => {
            fs::create_dir(path).unwrap();
            mode(path, dice.pick(&[0o755, 0o755, 0o700, 0o2750]));
        }
        5..=6 => link(dice.pick(&TARGETS), path, dice.pick(&[0, 5])),
        7 if !files.is_empty() => {
            let other = &files[dice.below(files.len() as u64) as usize];
            // It may be gone by now.
            let _ = fs::hard_link(other, path);
        }
        _ => {
            write(path, dice.pick(&CONTENTS), dice.pick(&[0, 5, 9]));
            mode(path, dice.pick(&[0o644, 0o644, 0o644, 0o600, 0o755]));
            files.push(path.into());
        }
    }
    if dice.chance(15) && fs::symlink_metadata(path).is_ok_and(|metadata| !metadata.is_symlink()) {
        attribute(path, "user.colour", dice.pick(&[b"red", b"sea"]));
    }
}

/// A source, and a destination that has nothing, something else, or much of the same.
fn trees(dice: &mut Dice, folder: &Path) {
    let [source, destination] = ["src", "dst"].map(|name| folder.join(name));
    fs::create_dir(&source).unwrap();
    grow(dice, &source, 75, 0, &mut Vec::new());
    match dice.below(8) {
        0 => return,
        1..=3 => fs::create_dir(&destination).unwrap(),
        _ => {
            let words = [Path::new("-a"), &source, &destination];
            assert!(std::process::Command::new("cp").args(words).status().unwrap().success());
        }
    }
    grow(dice, &destination, 30, 0, &mut Vec::new());
    age(&source, dice.pick(&[0, 5]));
    age(&destination, dice.pick(&[0, 5]));
}

const FLAGS: &[&str] = &[
    "-u",
    "--size-only",
    "-c",
    "-I",
    "--existing",
    "--ignore-existing",
    "--delete",
    "--delete",
    "--delete",
    "--delete-excluded",
    "--force",
    "--exclude=a",
    "--exclude=/b/",
    "--exclude=c/*",
    "--exclude=d/**/a",
    "--include=b --exclude=?",
    "-f hide_b",
    "-f P_c",
    "--no-perms --no-hard-links",
    // The first name of a group of hard links decides what of it is left out.
    "--no-times --no-hard-links",
    "--no-links",
    "--no-hard-links",
    "--no-xattrs --no-hard-links",
    "-W",
    "-b",
    "-b --suffix=.old",
    "-b --backup-dir=../kept",
    "-b --backup-dir=kept",
    "-n",
    "--safe-links",
    "--min-size=1",
    "--max-size=3",
    "--chmod=D700,Fu+x",
    "--remove-source-files",
];

/// Flags and operands.
fn line(dice: &mut Dice) -> String {
    let chosen: Vec<_> = FLAGS.iter().copied().filter(|_| dice.chance(9)).collect();
    let operands = dice.pick(&["src/ dst", "src/ dst", "src/ dst/", "src dst"]);
    format!("-i {} {operands}", chosen.join(" "))
}

fn compare(seed: u64) -> Vec<String> {
    let mut dice = Dice::new(seed);
    (0..5).for_each(|_| _ = dice.below(2));
    let scene = Scene::new(|folder| trees(&mut dice, folder));
    let line = line(&mut dice);
    // Otherwise more than half of a destination is not removed.
    let limit = if line.contains("--delete") { "--max-delete=1000" } else { "" };
    let ours = scene.ours("ours", &words(&format!("sync -p -X {limit} {line}")));
    let theirs = scene.theirs("theirs", "rsync", &words(&format!("-rlptgoHAX {limit} {line}")));
    let mut differences = ours.differences(&theirs);
    // Backups: tow also keeps what a hard link replaces; and directories made for them have the mode
    // that the original has at that moment, which rsync has changed by then.
    differences.retain(|line| !is_known_of_backups(line));
    // rsync fails where a dry run would have made way, where it left a file alone that is in the way of
    // a directory, and reads ACLs of files through links.
    let odd = ["failed to stat", "failed: Not a directory", "get_acl"];
    let fails_to_look = odd.iter().any(|text| theirs.errors.contains(text))
        || line.contains("--ignore-existing")
            && (line.contains("-n ") || theirs.errors.contains("*** Skipping"));
    // Hard links make rsync 3.5 hang now and then, or end with "protocol incompatibility".
    if fails_to_look || [HUNG, 2].contains(&theirs.code) {
        return Vec::new();
    }
    if differences.is_empty() {
        return Vec::new();
    }
    let said = format!("ours: {}theirs: {}", ours.errors, theirs.errors);
    vec![format!("seed {seed}: {line}\n {}\n{said}", differences.join("\n "))]
}

fn is_known_of_backups(line: &str) -> bool {
    line.ends_with("| nothing")
        || line.matches(": directory ").count() + line.matches("| directory ").count() == 2
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn random_trees_and_flags_end_as_with_rsync() {
    if !has_rsync() {
        skip("rsync is not installed");
    }
    let first = number("TOW_SYNC_SEED").unwrap_or(0);
    let seeds = first..first + number("TOW_SYNC_CASES").unwrap_or(CASES);
    let (next, wrong) = (AtomicU64::new(seeds.start), Mutex::new(Vec::new()));
    let work = || {
        while let Some(seed) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed < seeds.end) {
            let differences = compare(seed);
            wrong.lock().unwrap().extend(differences);
        }
    };
    thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(work))));
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} of {seeds:?}:\n{}", wrong.len(), wrong.join("\n"));
}

/// Makes files to copy, and places to copy them to.
fn places(folder: &Path) {
    for dir in ["dir/sub", "there", "full/dir/sub", "full/file"] {
        fs::create_dir_all(folder.join(dir)).unwrap();
    }
    write(&folder.join("file"), "file", 5);
    write(&folder.join("other"), "other", 5);
    write(&folder.join("old"), "older content", 0);
    write(&folder.join("dir/a"), "a", 5);
    write(&folder.join("dir/sub/b"), "b", 5);
    fs::hard_link(folder.join("dir/a"), folder.join("dir/also_a")).unwrap();
    write(&folder.join("full/dir/a"), "another a", 0);
    write(&folder.join("full/dir/sub/kept"), "kept", 0);
    write(&folder.join("full/other"), "another other", 0);
    link("file", &folder.join("link"), 0);
    link("dir", &folder.join("link_to_dir"), 0);
    link("nowhere", &folder.join("dangling"), 0);
    link("a", &folder.join("dir/link"), 0);
    settle(folder);
}

/// Operands of `tow cp` and `cp -a`, and whether both do it, or both refuse to.
const FORMS: &[(&str, bool)] = &[
    ("file new", true),
    ("file old", true),
    ("file there", true),
    ("file there/", true),
    ("file there/new", true),
    ("file new/", false),
    ("file nowhere/new", false),
    ("file/ there", false),
    ("nowhere there", false),
    ("dir new", true),
    ("dir/ new", true),
    ("dir new/", true),
    ("dir/ new/", true),
    ("dir there", true),
    ("dir/ there", true),
    ("dir/ there/", true),
    ("dir full", true),
    ("dir/. there", true),
    ("dir old", false),
    ("dir nowhere/new", false),
    ("dir/a dir/sub there", true),
    ("file other dir there", true),
    ("file other dir/ there/", true),
    ("file other full/dir", true),
    ("file other old", false),
    ("file other new", false),
    ("file nowhere other there", false),
    ("file full", false),
    ("link there", true),
    ("link new", true),
    ("link old", true),
    ("link_to_dir there", true),
    ("link_to_dir new", true),
    ("link_to_dir/ new", true),
    ("link_to_dir/. there", true),
    ("dangling there", true),
    ("file link_to_dir", true),
    ("-t there file dir", true),
    ("-t there/ dir/", true),
    ("-t new file", false),
    ("-t old file", false),
    ("-n file old", true),
    ("-n other full", true),
    ("-n dir full", true),
    ("dir dir", false),
    ("dir dir/sub", false),
    ("dir dir/new", false),
    ("file file", false),
    ("file ./file", false),
    ("file .", false),
];

fn forms_of_cp_end_as_with_cp() {
    let scene = Scene::new(places);
    let mut wrong = Vec::new();
    for (number, (form, works)) in FORMS.iter().enumerate() {
        let mut ours = scene.ours(&format!("{number}-ours"), &words(&format!("cp {form}")));
        let line = format!("-a --remove-destination {form}");
        let mut theirs = scene.theirs(&format!("{number}-theirs"), "cp", &words(&line));
        if (ours.code == 0, theirs.code == 0) != (*works, *works) {
            wrong.push(format!("cp {form}: ended with {}, cp with {}", ours.code, theirs.code));
        }
        (ours.code, theirs.code) = (0, 0);
        let differences = ours.differences(&theirs);
        // cp finds out half way that it copies into itself; tow before it begins.
        let is_into_itself = theirs.errors.contains("into itself");
        if !is_into_itself && !differences.is_empty() {
            let said = format!("ours: {}theirs: {}", ours.errors, theirs.errors);
            wrong.push(format!("cp {form}:\n {}\n{said}", differences.join("\n ")));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), FORMS.len(), wrong.join("\n"));
}
