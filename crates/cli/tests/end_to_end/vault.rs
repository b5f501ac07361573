//! Encrypted versions on a server that nobody has to trust.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::environment::{Ended, Machine, Running, TestEnvironment, first_line};
use crate::likeness::is_root;
use crate::odd_trees::{assert_equal, odd_tree};
use crate::runner::situations;
use crate::trees::{assert_same_bytes, bytes, entries, file};

situations![
    a_new_version_costs_what_changed_and_old_ones_stay,
    a_tree_comes_back_with_everything,
    files_that_moved_are_not_sent_again,
    a_passphrase_and_an_id_are_enough_on_another_machine,
    nobody_without_the_passphrase_or_key_file_learns_anything,
    a_stale_machine_writes_over_nobody,
    two_machines_put_at_once_and_both_are_there,
    a_lost_summary_or_cache_costs_nothing_but_time,
    an_edited_store_is_named_and_older_versions_stay,
    a_server_that_is_set_back_is_named,
    a_person_goes_on_after_a_server_was_set_back,
    an_older_version_becomes_the_newest_again,
    a_server_that_forks_is_named,
    a_put_that_is_killed_at_any_time_loses_nothing,
    a_long_put_is_whole_in_each_of_its_versions,
    what_goes_wrong_is_said,
];

pub(crate) const PASSPHRASE: (&str, &str) = ("TOW_VAULT_PASSPHRASE", "four words of mine");

/// A server, and machines that have a vault on it.
pub(crate) struct Vaults {
    pub(crate) env: TestEnvironment,
    server: Option<Running>,
    address: String,
    pub(crate) place: String,
}

impl Vaults {
    pub(crate) fn new() -> Self {
        let address = free();
        let mut vaults = Self { env: TestEnvironment::new(), server: None, address, place: String::new() };
        vaults.start();
        vaults
    }

    /// And a vault of machine `one` that has these notes, which machine `two` has joined. Told are both machines, and the vault.
    pub(crate) fn with_two(notes: &[u8]) -> (Self, Machine, Machine, String) {
        let vaults = Self::new();
        let (one, two) = (vaults.env.machine("one"), vaults.env.machine("two"));
        let id = vaults.init(&one);
        fs::write(one.path("notes"), notes).unwrap();
        put(&one, "notes");
        vaults.join(&two, &id);
        (vaults, one, two, id)
    }

    pub(crate) fn start(&mut self) {
        let machine = self.env.machine("server");
        let words = ["vault", "serve", "--public", "--listen", &self.address];
        let mut server = machine.tow(words).start();
        self.place = server.wait_until("its place", |server| first_line(&server.output()));
        self.server = Some(server);
    }

    pub(crate) fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            server.kill();
        }
    }

    /// The folder of the server's vaults.
    pub(crate) fn folder(&self) -> PathBuf {
        self.env.machine("server").home("data/vaults")
    }

    /// A copy of what the server keeps.
    fn copy(&self, name: &str) {
        let to = self.env.dir().join(name);
        run("cp", &[Path::new("-a"), &self.folder(), &to]);
    }

    /// Puts a copy in the place of what the server keeps.
    fn set_back(&mut self, name: &str) {
        self.stop();
        fs::remove_dir_all(self.folder()).unwrap();
        run("cp", &[Path::new("-a"), &self.env.dir().join(name), &self.folder()]);
        self.start();
    }

    /// Makes a vault; its id.
    pub(crate) fn init(&self, machine: &Machine) -> String {
        call(machine, &["init", &self.place]).with(0).text().trim().to_owned()
    }

    pub(crate) fn join(&self, machine: &Machine, id: &str) {
        call(machine, &["join", &self.place, id]).with(0);
    }
}

pub(crate) fn run(program: &str, words: &[&Path]) {
    assert!(Command::new(program).args(words).status().unwrap().success());
}

fn free() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// `tow vault` with these words and the right passphrase.
pub(crate) fn call(machine: &Machine, words: &[&str]) -> Ended {
    let words = ["vault"].iter().chain(words);
    machine.tow(words).variable(PASSPHRASE.0, PASSPHRASE.1).end()
}

/// The same with `--json`: its last event.
pub(crate) fn told(machine: &Machine, words: &[&str]) -> Value {
    let words: Vec<_> = words.iter().chain(&["--json"]).copied().collect();
    call(machine, &words).with(0).events().pop().unwrap()
}

pub(crate) fn put(machine: &Machine, name: &str) -> Value {
    told(machine, &["put", name])
}

pub(crate) fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("no {name} in {value}"))
}

pub(crate) fn assert_told(ended: Ended, words: &[&str]) {
    let ended = ended.with(1);
    for word in words {
        assert!(ended.err.contains(word), "'{word}' is not in: {}", ended.err);
    }
}

/// A text in which a few places are changed.
pub(crate) fn edit(path: &Path) {
    let mut content = fs::read(path).unwrap();
    for at in [1000, 100_000, 2_000_000] {
        content.splice(at..at + 10, *b"edited, and longer");
    }
    fs::write(path, content).unwrap();
}

fn a_new_version_costs_what_changed_and_old_ones_stay() {
    let vaults = Vaults::new();
    let one = &vaults.env.sender;
    vaults.init(one);
    file(&one.path("notes"), 1, 3 << 20);
    fs::copy(one.path("notes"), one.path("first")).unwrap();
    let first = put(one, "notes");
    assert!(number(&first, "uploaded") >= 3 << 20, "{first}");
    assert!(number(&first, "padding") * 100 <= 12 * number(&first, "whole_stored"), "{first}");
    edit(&one.path("notes"));
    let second = put(one, "notes");
    assert!(number(&second, "uploaded") < 16_384 && number(&second, "version") == 2, "{second}");
    let third = put(one, "notes");
    assert!(third["is_new"] == false && number(&third, "uploaded") == 0, "{third}");
    told(one, &["get", "notes", "-o", "newest"]);
    told(one, &["restore", "notes", "--version", "1", "-o", "oldest"]);
    assert_same_bytes(&one.path("notes"), &one.path("newest"));
    assert_same_bytes(&one.path("first"), &one.path("oldest"));
    let versions = call(one, &["log", "--json"]).with(0).events();
    let numbers: Vec<_> = versions.iter().map(|version| number(version, "version")).collect();
    assert_eq!(numbers, [2, 1, 0]);
    let checked = told(one, &["check", "--all"]);
    assert_eq!((number(&checked, "versions"), number(&checked, "faults")), (3, 0));
    told(one, &["forget", "notes"]);
    assert!(call(one, &["ls"]).with(0).out.is_empty());
    told(one, &["restore", "notes", "--version", "2", "-o", "remembered"]);
    assert_same_bytes(&one.path("notes"), &one.path("remembered"));
}

fn a_tree_comes_back_with_everything() {
    let vaults = Vaults::new();
    let one = &vaults.env.sender;
    vaults.init(one);
    fs::create_dir(one.path("odd")).unwrap();
    odd_tree(&one.path("odd"), is_root());
    put(one, "odd");
    told(one, &["get", "odd", "-o", "back"]);
    assert_equal(&one.path("odd"), &one.path("back"));
    let checked = told(one, &["check"]);
    assert_eq!(number(&checked, "faults"), 0);
}

fn files_that_moved_are_not_sent_again() {
    let vaults = Vaults::new();
    let one = &vaults.env.sender;
    vaults.init(one);
    fs::create_dir_all(one.path("tree/a")).unwrap();
    file(&one.path("tree/a/large"), 1, 1 << 20);
    for small in 0..50 {
        file(&one.path(format!("tree/a/small {small}")), small, 300 + small);
    }
    put(one, "tree");
    fs::rename(one.path("tree/a"), one.path("tree/z")).unwrap();
    fs::rename(one.path("tree/z/large"), one.path("tree/large")).unwrap();
    file(&one.path("tree/z/new"), 99, 1000);
    let second = put(one, "tree");
    assert!(number(&second, "uploaded") < 48 << 10, "{second}");
    assert!(number(&second, "reused") >= 1 << 20, "{second}");
    told(one, &["get", "tree", "-o", "back"]);
    assert_equal(&one.path("tree"), &one.path("back"));
}

fn a_passphrase_and_an_id_are_enough_on_another_machine() {
    let vaults = Vaults::new();
    let (one, two) = (&vaults.env.sender, &vaults.env.receiver);
    let id = vaults.init(one);
    file(&one.path("notes"), 1, 200_000);
    put(one, "notes");
    fs::remove_dir_all(one.home("")).unwrap();
    vaults.join(two, &id);
    told(two, &["get", "notes"]);
    assert_same_bytes(&one.path("notes"), &two.path("notes"));
    edit_small(&two.path("notes"));
    let second = put(two, "notes");
    assert!(number(&second, "uploaded") < 16_384, "what was got is not sent again: {second}");
}

fn edit_small(path: &Path) {
    let mut content = fs::read(path).unwrap();
    content.splice(5000..5000, *b"some words more");
    fs::write(path, content).unwrap();
}

fn nobody_without_the_passphrase_or_key_file_learns_anything() {
    let vaults = Vaults::new();
    let (one, two) = (&vaults.env.sender, &vaults.env.receiver);
    let id = vaults.init(one);
    fs::write(one.path("a name to hide"), "a sentence to hide ".repeat(1000)).unwrap();
    put(one, "a name to hide");
    let wrong = |machine: &Machine, words: &[&str]| {
        let words: Vec<_> = ["vault"].iter().chain(words).copied().collect();
        machine.tow(words).variable(PASSPHRASE.0, "four words of others").end()
    };
    assert_told(wrong(one, &["ls"]), &["wrong passphrase"]);
    assert_told(wrong(two, &["join", &vaults.place, &id]), &["not yours to read"]);
    let words = ["vault", "ls"];
    let none = one.tow(words).variable("TOW_VAULT_PASSPHRASE", "").end();
    assert_told(none, &["empty passphrase"]);
    for (path, content) in contents(&vaults.folder()).into_iter().chain(contents(&one.home("state"))) {
        for secret in ["a name to hide", "a sentence to hide", PASSPHRASE.1] {
            let found = content.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!found, "{secret} in {}", path.display());
        }
    }
    // A key file of its own does as well.
    file(&two.path("key"), 7, 64);
    file(&two.path("other"), 8, 64);
    let with = |key: &str, words: &[&str]| {
        let words: Vec<_> = ["vault", "--key-file", key].iter().chain(words).copied().collect();
        two.tow(words).end()
    };
    with("key", &["init", &vaults.place]).with(0);
    with("key", &["ls"]).with(0);
    assert_told(with("other", &["ls"]), &["wrong passphrase or key file"]);
    assert_told(call(two, &["ls"]), &["key file"]);
}

/// All files below a folder.
fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let paths = entries(folder).into_iter().map(|path| folder.join(path));
    paths.filter(|path| path.is_file()).map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

fn a_stale_machine_writes_over_nobody() {
    let vaults = Vaults::new();
    let (one, two) = (&vaults.env.sender, &vaults.env.receiver);
    let id = vaults.init(one);
    vaults.join(two, &id);
    file(&one.path("notes"), 1, 100_000);
    put(one, "notes");
    told(two, &["get", "notes"]);
    edit_small(&one.path("notes"));
    put(one, "notes");
    fs::write(two.path("notes"), "something else").unwrap();
    assert_told(call(two, &["put", "notes"]), &["changed by somebody else", "version 1", "--overwrite"]);
    // Another name is nobody's business.
    put_as(two, "notes", "mine");
    told(two, &["put", "notes", "--overwrite"]);
    told(one, &["get", "notes", "-o", "now"]);
    assert_eq!(fs::read_to_string(one.path("now")).unwrap(), "something else");
    told(one, &["restore", "notes", "--version", "2", "-o", "before"]);
    assert_same_bytes(&one.path("notes"), &one.path("before"));
}

fn put_as(machine: &Machine, path: &str, name: &str) -> Value {
    told(machine, &["put", path, "--as", name])
}

fn two_machines_put_at_once_and_both_are_there() {
    let vaults = Vaults::new();
    let (one, two) = (&vaults.env.sender, &vaults.env.receiver);
    let id = vaults.init(one);
    vaults.join(two, &id);
    for (machine, seed) in [(one, 1), (two, 2)] {
        file(&machine.path("file"), seed, 1 << 20);
    }
    for round in 0..3 {
        let running: Vec<_> = [(one, "one"), (two, "two")]
            .map(|(machine, name)| {
                let name = format!("{name} {round}");
                let words = ["vault", "put", "file", "--as", &name];
                machine.tow(words).variable(PASSPHRASE.0, PASSPHRASE.1).start()
            })
            .into();
        running.into_iter().for_each(|running| drop(running.end().with(0)));
    }
    assert_eq!(call(one, &["ls"]).with(0).text().lines().count(), 6);
    for (machine, name) in [(one, "one 2"), (two, "two 0")] {
        told(machine, &["get", name, "-o", name]);
        assert_same_bytes(&machine.path("file"), &machine.path(name));
    }
}

fn a_lost_summary_or_cache_costs_nothing_but_time() {
    let vaults = Vaults::new();
    let one = &vaults.env.sender;
    let id = vaults.init(one);
    file(&one.path("notes"), 1, 3 << 20);
    put(one, "notes");
    let state = find(&one.home(""), &id);
    for lost in ["summaries", "blocks", "nodes", "seen", "offered"] {
        let _ = fs::remove_dir_all(state.join(lost)).or_else(|_| fs::remove_file(state.join(lost)));
    }
    edit(&one.path("notes"));
    assert_told(call(one, &["put", "notes"]), &["neither put nor got on this machine"]);
    let second = told(one, &["put", "notes", "--overwrite"]);
    assert!(number(&second, "uploaded") < 16_384, "{second}");
    told(one, &["get", "notes", "-o", "back"]);
    assert_same_bytes(&one.path("notes"), &one.path("back"));
}

/// The folder of this name below another.
pub(crate) fn find(root: &Path, name: &str) -> PathBuf {
    let found = entries(root).into_iter().find(|path| path.file_name().is_some_and(|last| last == name));
    root.join(found.unwrap_or_else(|| panic!("no {name} below {}", root.display())))
}

/// Packs of the server, by their paths.
fn packs(vaults: &Vaults) -> BTreeSet<PathBuf> {
    let all = contents(&vaults.folder().join("packs")).into_iter().map(|(path, _)| path);
    all.filter(|path| path.file_name().is_some_and(|name| name.len() == 64)).collect()
}

fn an_edited_store_is_named_and_older_versions_stay() {
    let mut vaults = Vaults::new();
    let one = vaults.env.machine("one");
    let two = vaults.env.machine("two");
    let id = vaults.init(&one);
    file(&one.path("notes"), 1, 300_000);
    put(&one, "notes");
    let before = packs(&vaults);
    file(&one.path("notes.new"), 2, 300_000);
    fs::rename(one.path("notes.new"), one.path("notes")).unwrap();
    put(&one, "notes");
    vaults.stop();
    // Blocks, nodes and all: one byte in every thousand of the packs that the newest version brought.
    for pack in packs(&vaults).difference(&before) {
        let mut content = fs::read(pack).unwrap();
        content.iter_mut().step_by(1000).for_each(|byte| *byte ^= 1);
        fs::write(pack, content).unwrap();
    }
    vaults.start();
    vaults.join(&two, &id);
    let checked = call(&two, &["check"]);
    assert!(checked.code() == 1 && checked.err.contains("version 2"), "{}", checked.err);
    let got = call(&two, &["get", "notes"]);
    assert!(got.code() == 1 && !two.path("notes").exists(), "{}", got.err);
    told(&two, &["restore", "notes", "--version", "1", "-o", "older"]);
    assert_eq!(fs::read(two.path("older")).unwrap(), bytes(1, 300_000));
    // A log that is cut within its last record has lost a version that machines have seen.
    vaults.stop();
    let log = vaults.folder().join(format!("{id}.log"));
    let length = fs::metadata(&log).unwrap().len();
    fs::File::options().write(true).open(&log).unwrap().set_len(length - 10).unwrap();
    vaults.start();
    assert_told(call(&two, &["ls"]), &["rollback", "version 1", "version 2"]);
}

fn a_server_that_is_set_back_is_named() {
    let mut vaults = Vaults::new();
    let one = vaults.env.machine("one");
    vaults.init(&one);
    file(&one.path("notes"), 1, 50_000);
    put(&one, "notes");
    vaults.copy("before");
    edit_small(&one.path("notes"));
    put(&one, "notes");
    vaults.set_back("before");
    for words in [&["ls"][..], &["put", "notes"], &["get", "notes", "-o", "x"]] {
        assert_told(call(&one, words), &["rollback", "version 1", "version 2"]);
    }
    // What the server still has can be read.
    told(&one, &["restore", "notes", "--version", "1", "-o", "older"]);
    assert_eq!(fs::read(one.path("older")).unwrap(), bytes(1, 50_000));
}

fn a_person_goes_on_after_a_server_was_set_back() {
    let mut vaults = Vaults::new();
    let (one, two) = (vaults.env.machine("one"), vaults.env.machine("two"));
    let id = vaults.init(&one);
    file(&one.path("notes"), 1, 50_000);
    put(&one, "notes");
    vaults.join(&two, &id);
    call(&one, &["accept", "00000000"]).with(2);
    vaults.copy("before");
    edit_small(&one.path("notes"));
    put(&one, "notes");
    let shown = |version: &Value| version["root"].as_str().unwrap()[..8].to_owned();
    let versions = call(&one, &["log", "--json"]).with(0).events();
    vaults.set_back("before");
    // The error has what a person needs to go on.
    let next = format!("tow vault accept {}", shown(&versions[1]));
    assert_told(call(&one, &["ls"]), &["rollback", &shown(&versions[0]), &next]);
    for wrong in [shown(&versions[0]), shown(&versions[1])[..7].to_owned(), "zz".to_owned()] {
        let refused = call(&one, &["accept", &wrong]).with(2);
        assert!(refused.err.contains("the server shows version 1"), "{}", refused.err);
    }
    assert_told(call(&one, &["put", "notes"]), &["rollback"]);
    let accepted = told(&one, &["accept", &shown(&versions[1])]);
    assert_eq!((number(&accepted, "version"), number(&accepted, "seen_version")), (1, 2));
    assert_eq!(accepted["other_members"], false);
    // The proof that there was more stays.
    let kept = find(&one.home(""), &id).join(format!("head-2-{}", shown(&versions[0])));
    assert!(kept.exists(), "{}", kept.display());
    told(&one, &["get", "notes", "-o", "older"]);
    assert_eq!(fs::read(one.path("older")).unwrap(), bytes(1, 50_000));
    // What is there may be somebody else's by now.
    fs::copy(one.path("notes"), one.path("mine")).unwrap();
    told(&one, &["get", "notes", "--overwrite"]);
    fs::copy(one.path("mine"), one.path("notes")).unwrap();
    assert_eq!(number(&put(&one, "notes"), "version"), 2);
    // A machine that saw nothing newer notices nothing.
    told(&two, &["get", "notes"]);
    assert_same_bytes(&one.path("notes"), &two.path("notes"));
    assert_eq!(number(&told(&one, &["check", "--all"]), "faults"), 0);
}

fn an_older_version_becomes_the_newest_again() {
    let vaults = Vaults::new();
    let one = vaults.env.machine("one");
    vaults.init(&one);
    file(&one.path("notes"), 1, 50_000);
    file(&one.path("other"), 2, 3000);
    put(&one, "notes");
    edit_small(&one.path("notes"));
    put(&one, "notes");
    put(&one, "other");
    let reverted = told(&one, &["revert", "--to", "1"]);
    assert_eq!((number(&reverted, "version"), number(&reverted, "like")), (4, 1));
    let entries = call(&one, &["ls", "--json"]).with(0).events();
    assert_eq!(entries.iter().map(|entry| &entry["name"]).collect::<Vec<_>>(), ["notes"]);
    told(&one, &["get", "notes", "-o", "back"]);
    assert_eq!(fs::read(one.path("back")).unwrap(), bytes(1, 50_000));
    told(&one, &["restore", "other", "--version", "3", "-o", "undone"]);
    assert_same_bytes(&one.path("other"), &one.path("undone"));
    assert_eq!(number(&told(&one, &["check", "--all"]), "faults"), 0);
    assert_told(call(&one, &["revert", "--to", "9"]), &["no version 9"]);
}

/// One that is too long for one update replaces nothing before its last version.
fn a_long_put_is_whole_in_each_of_its_versions() {
    let vaults = Vaults::new();
    let one = &vaults.env.sender;
    vaults.init(one);
    file(&one.path("large"), 1, 50_000);
    put(one, "large");
    // Some 450 MB fit into one update.
    file(&one.path("large"), 2, 520 << 20);
    let last = number(&put(one, "large"), "version");
    assert!(last > 2, "it took one update");
    for version in 1..last {
        told(one, &["restore", "large", "--version", &version.to_string(), "-o", "old", "--overwrite"]);
        assert_eq!(fs::read(one.path("old")).unwrap(), bytes(1, 50_000), "version {version}");
    }
    told(one, &["get", "large", "-o", "new"]);
    assert_same_bytes(&one.path("large"), &one.path("new"));
    // The files that had it before are in the newest version no more.
    assert_eq!(number(&told(one, &["check"]), "files"), 1);
}

fn a_server_that_forks_is_named() {
    let mut vaults = Vaults::new();
    let (one, two) = (vaults.env.machine("one"), vaults.env.machine("two"));
    let id = vaults.init(&one);
    vaults.join(&two, &id);
    file(&one.path("notes"), 1, 50_000);
    file(&two.path("other"), 2, 50_000);
    vaults.copy("before");
    put(&one, "notes");
    vaults.set_back("before");
    put(&two, "other");
    assert_told(call(&one, &["ls"]), &["fork", "version 1", "different vaults"]);
    put_as(&two, "other", "again");
    let fork = call(&one, &["ls"]).with(1);
    assert!(fork.err.contains("fork") && fork.err.contains("version 2"), "{}", fork.err);
    // Whose line counts is a person's to say.
    let (_, hash) = fork.err.split_once("tow vault accept ").unwrap();
    told(&one, &["accept", &hash[..8]]);
    told(&one, &["get", "again"]);
    assert_same_bytes(&one.path("again"), &two.path("other"));
}

fn a_put_that_is_killed_at_any_time_loses_nothing() {
    let vaults = Vaults::new();
    let one = &vaults.env.sender;
    vaults.init(one);
    let mut content = bytes(1, 2 << 20);
    fs::write(one.path("notes"), &content).unwrap();
    put(one, "notes");
    for round in 0..12u64 {
        content.splice(1000..1000, bytes(round + 2, 200_000));
        fs::write(one.path("notes"), &content).unwrap();
        let words = ["vault", "put", "notes"];
        let running = one.tow(words).variable(PASSPHRASE.0, PASSPHRASE.1).start();
        running.kill_after(Duration::from_millis(150 + 25 * round));
        put(one, "notes");
        let back = format!("back {round}");
        told(one, &["get", "notes", "-o", &back]);
        assert_eq!(fs::read(one.path(&back)).unwrap(), content, "round {round}");
    }
    let checked = told(one, &["check", "--all"]);
    assert_eq!(number(&checked, "faults"), 0);
}

fn what_goes_wrong_is_said() {
    let mut vaults = Vaults::new();
    let one = vaults.env.machine("one");
    let none = call(&one, &["ls"]).with(2);
    assert!(none.err.contains("tow vault init"), "{}", none.err);
    call(&one, &["init", "nonsense"]).with(2);
    let made = call(&one, &["init", &vaults.place]).with(0);
    assert!(made.err.contains("loses the data"), "{}", made.err);
    assert_told(call(&one, &["get", "nothing"]), &["no entry 'nothing'"]);
    assert_told(call(&one, &["put", "nothing"]), &["nothing"]);
    let unknown = call(&one, &["log", "--vault", "ffff"]).with(2);
    assert!(unknown.err.contains("ffff"), "{}", unknown.err);
    file(&one.path("notes"), 1, 1000);
    put(&one, "notes");
    fs::write(one.path("there"), "mine").unwrap();
    assert_told(call(&one, &["get", "notes", "-o", "there"]), &["there"]);
    assert_eq!(fs::read_to_string(one.path("there")).unwrap(), "mine");
    told(&one, &["get", "notes", "-o", "there", "--overwrite"]);
    assert_told(call(&one, &["restore", "notes", "--version", "9", "-o", "y"]), &["no version 9"]);
    vaults.stop();
    assert_told(call(&one, &["ls"]), &["the vault's server"]);
}
