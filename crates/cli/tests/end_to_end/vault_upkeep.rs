//! What a person does with versions that are there: compares them, puts again what hardly changed, and drops old ones.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;

use crate::environment::Machine;
use crate::odd_trees::assert_equal;
use crate::runner::situations;
use crate::trees::{assert_same_bytes, bytes, file};
use crate::vault::{PASSPHRASE, Vaults, assert_told, call, edit, find, number, put, told};

situations![
    what_changed_between_two_versions_is_told,
    a_difference_needs_no_contents,
    files_that_look_unchanged_are_not_read_again,
    names_that_another_machine_changed_are_not_written_over,
    old_versions_go_by_the_deleters_word_and_give_their_space_back,
    a_put_that_was_cut_short_leaves_nothing_after_a_collection,
];

/// Changes that a difference tells, as `added a`, `moved b from a` or `changed c content,time`.
fn changes(machine: &Machine, words: &[&str]) -> Vec<String> {
    let words: Vec<_> = ["diff"].iter().chain(words).chain(&["--json"]).copied().collect();
    let events = call(machine, &words).with(0).events();
    let line = |event: &Value| {
        let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
        let differs = event["differs"].as_array().map_or_else(String::new, |differs| {
            let words: Vec<_> = differs.iter().filter_map(Value::as_str).collect();
            format!(" {}", words.join(","))
        });
        let from = event["moved_from"].as_str().map_or_else(String::new, |from| format!(" from {from}"));
        let line = format!("{} {}{from}{differs}", text("change"), text("path"));
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let mut changes: Vec<_> = events.iter().filter(|event| event["event"] == "change").map(line).collect();
    changes.sort();
    changes
}

fn a_tree(folder: &Path) {
    fs::create_dir_all(folder.join("a")).unwrap();
    file(&folder.join("a/one"), 1, 20_000);
    file(&folder.join("a/two"), 2, 300);
    file(&folder.join("gone"), 3, 500);
    file(&folder.join("private"), 4, 600);
    file(&folder.join("edited"), 5, 700);
}

fn what_changed_between_two_versions_is_told() {
    let vaults = Vaults::new();
    let one = &vaults.env.sender;
    vaults.init(one);
    a_tree(&one.path("tree"));
    put(one, "tree");
    fs::rename(one.path("tree/a"), one.path("tree/b")).unwrap();
    fs::remove_file(one.path("tree/gone")).unwrap();
    fs::set_permissions(one.path("tree/private"), fs::Permissions::from_mode(0o600)).unwrap();
    file(&one.path("tree/edited"), 6, 800);
    file(&one.path("tree/new"), 7, 100);
    put(one, "tree");
    file(&one.path("notes"), 1, 3 << 20);
    put(one, "notes");
    let expected = [
        "added b",
        "added new",
        "changed edited content,time",
        "changed private mode",
        "moved b/one from a/one",
        "moved b/two from a/two",
        "removed a",
        "removed gone",
    ];
    // The last version of the vault changed something else; the entry's last change is meant.
    assert_eq!(changes(one, &["tree"]), expected);
    assert_eq!(changes(one, &["tree", "--from", "1", "--to", "2"]), expected);
    assert_eq!(changes(one, &["tree", "--from", "2"]), [""; 0]);
    let shown = call(one, &["diff", "tree"]).with(0);
    for line in
        ["~ edited  700 B -> 800 B  (content, time)", "~ private  0644 -> 0600  (mode)", "- gone  500 B"]
    {
        assert!(shown.text().contains(line), "'{line}' is not in {}", shown.text());
    }
    edit(&one.path("notes"));
    put(one, "notes");
    let last = told(one, &["diff", "notes"]);
    let changed = number(&last, "changed_bytes");
    assert!((1..=4 * 16_384).contains(&changed), "{last}");
    assert_eq!((number(&last, "from"), number(&last, "to")), (3, 4));
    assert_told(call(one, &["diff", "notes", "--from", "1"]), &["no entry 'notes' in version 1"]);
    assert_told(call(one, &["diff", "notes", "--to", "9"]), &["no version 9"]);
    call(one, &["diff", "notes", "--from", "4", "--to", "3"]).with(2);
}

fn a_difference_needs_no_contents() {
    let vaults = Vaults::new();
    let (one, two) = (&vaults.env.sender, &vaults.env.receiver);
    let id = vaults.init(one);
    a_tree(&one.path("tree"));
    file(&one.path("tree/large"), 8, 5 << 20);
    put(one, "tree");
    edit(&one.path("tree/large"));
    put(one, "tree");
    vaults.join(two, &id);
    assert_eq!(changes(two, &["tree"]), ["changed large content,time"]);
    let blocks = find(&two.home(""), &id).join("blocks");
    let kept: u64 = fs::read_dir(blocks).unwrap().map(|pack| pack.unwrap().metadata().unwrap().len()).sum();
    assert!((1..100_000).contains(&kept), "{kept} bytes of blocks were fetched");
}

/// Puts a tree until what was changed last is old enough to be believed; bytes that the last put read.
fn read_at_last(machine: &Machine, words: &[&str]) -> u64 {
    let words: Vec<_> = ["put", "tree"].iter().chain(words).copied().collect();
    let reads = (0..20).map(|_| number(&told(machine, &words), "read"));
    let mut last = u64::MAX;
    for read in reads {
        if read == 0 {
            return 0;
        }
        last = read;
    }
    last
}

fn files_that_look_unchanged_are_not_read_again() {
    let vaults = Vaults::new();
    let one = &vaults.env.sender;
    let id = vaults.init(one);
    a_tree(&one.path("tree"));
    file(&one.path("tree/large"), 8, 5 << 20);
    let whole = number(&put(one, "tree"), "read");
    assert!(whole > 5 << 20);
    assert_eq!(read_at_last(one, &[]), 0);
    assert_eq!(number(&told(one, &["put", "tree", "--checksum"]), "read"), whole);
    // The same size and the same time, but other bytes: the system's own clock gives it away.
    let time = fs::metadata(one.path("tree/a/two")).unwrap().modified().unwrap();
    file(&one.path("tree/a/two"), 9, 300);
    fs::File::open(one.path("tree/a/two")).unwrap().set_modified(time).unwrap();
    file(&one.path("tree/b"), 10, 900);
    let second = put(one, "tree");
    let read = number(&second, "read");
    assert!(second["is_new"] == true && (1200..100_000).contains(&read), "{second}");
    told(one, &["get", "tree", "-o", "back"]);
    assert_equal(&one.path("tree"), &one.path("back"));
    // What this machine knows of files is soft.
    fs::remove_dir_all(find(&one.home(""), &id).join("marks")).unwrap();
    let again = put(one, "tree");
    assert!(again["is_new"] == false && number(&again, "read") > 5 << 20, "{again}");
    assert_eq!(read_at_last(one, &[]), 0);
}

fn names_that_another_machine_changed_are_not_written_over() {
    let vaults = Vaults::new();
    let (one, two) = (&vaults.env.sender, &vaults.env.receiver);
    let id = vaults.init(one);
    vaults.join(two, &id);
    a_tree(&one.path("tree"));
    put(one, "tree");
    told(two, &["get", "tree"]);
    // No byte of a content changes.
    fs::rename(one.path("tree/gone"), one.path("tree/gone by another name")).unwrap();
    put(one, "tree");
    assert_told(call(two, &["put", "tree"]), &["changed by somebody else", "version 1"]);
    told(two, &["put", "tree", "--overwrite"]);
    told(one, &["get", "tree", "-o", "back"]);
    assert_equal(&two.path("tree"), &one.path("back"));
}

fn old_versions_go_by_the_deleters_word_and_give_their_space_back() {
    let vaults = Vaults::new();
    let (one, two) = (&vaults.env.sender, &vaults.env.receiver);
    let id = vaults.init(one);
    file(&one.path("notes"), 1, 2 << 20);
    put(one, "notes");
    vaults.join(two, &id);
    told(two, &["get", "notes"]);
    file(&one.path("large"), 2, 3 << 20);
    put(one, "large");
    told(one, &["forget", "large"]);
    edit(&one.path("notes"));
    put(one, "notes");
    let before = told(one, &["gc"]);
    assert_eq!((number(&before, "versions"), number(&before, "droppable")), (5, 4), "{before}");
    assert!(number(&before, "freeable_bytes") >= 3 << 20, "{before}");
    let kept = told(one, &["gc", "--keep", "4", "--dry-run"]);
    assert!(number(&kept, "droppable") == 1 && number(&kept, "freeable_bytes") < 1 << 20, "{kept}");
    assert_eq!(told(one, &["gc"]), before, "nothing was changed");
    let stored = on_disk(&vaults.folder());
    let gone = told(one, &["gc", "--keep", "1"]);
    assert_eq!(number(&gone, "dropped"), 4, "{gone}");
    assert!(number(&gone, "freed_bytes") >= 3 << 20, "{gone}");
    assert!(on_disk(&vaults.folder()) + (3 << 20) <= stored);
    // Who saw an older version goes on from there, and the newest is whole.
    let versions = call(two, &["log", "--json"]).with(0).events();
    assert_eq!(versions.iter().map(|version| number(version, "version")).collect::<Vec<_>>(), [4]);
    assert_told(call(two, &["restore", "notes", "--version", "1", "-o", "x"]), &["no version 1"]);
    told(two, &["get", "notes", "-o", "newest"]);
    assert_same_bytes(&one.path("notes"), &two.path("newest"));
    let checked = told(one, &["check", "--all"]);
    assert_eq!((number(&checked, "versions"), number(&checked, "faults")), (1, 0));
    assert_eq!(changes(one, &["notes"]), ["added"], "what was before is gone");
    // And versions go on.
    edit(&one.path("notes"));
    put(one, "notes");
    assert_eq!(changes(one, &["notes"]), ["changed content,time"]);
    call(one, &["gc", "--keep", "0"]).with(2);
}

/// Bytes of all files below a folder.
fn on_disk(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let sizes = entries.map(|entry| match entry.file_type().unwrap().is_dir() {
        true => on_disk(&entry.path()),
        false => entry.metadata().unwrap().len(),
    });
    sizes.sum()
}

fn a_put_that_was_cut_short_leaves_nothing_after_a_collection() {
    let vaults = Vaults::new();
    let (one, two) = (&vaults.env.sender, &vaults.env.receiver);
    let id = vaults.init(one);
    file(&one.path("notes"), 3, 100_000);
    put(one, "notes");
    vaults.join(two, &id);
    // More than one update takes: killed once its first version is there.
    fs::write(one.path("large"), bytes(1, 280 << 20)).unwrap();
    let running = one.tow(["vault", "put", "large"]).variable(PASSPHRASE.0, PASSPHRASE.1).start();
    let newest = || number(&call(two, &["log", "--json"]).with(0).events()[0], "version");
    let begun = (0..2000).find(|_| newest() > 1);
    running.kill();
    assert!(begun.is_some(), "the put made no version");
    let found = told(one, &["gc"]);
    if number(&found, "nameless_files") == 0 {
        // It was whole before it could be killed.
        assert_eq!(call(one, &["ls"]).with(0).text().lines().count(), 2);
        return;
    }
    assert!(number(&found, "nameless_bytes") > 50 << 20, "{found}");
    let gone = told(one, &["gc", "--keep", "1"]);
    assert_eq!(number(&gone, "nameless_files"), number(&found, "nameless_files"), "{gone}");
    assert!(number(&gone, "freed_bytes") > 50 << 20 && number(&gone, "stored_bytes") < 1 << 20, "{gone}");
    assert_eq!(number(&told(one, &["gc"]), "nameless_files"), 0);
    assert_eq!(number(&told(one, &["check", "--all"]), "faults"), 0);
    told(one, &["get", "notes", "-o", "back"]);
    assert_eq!(fs::read(one.path("back")).unwrap(), bytes(3, 100_000));
}
