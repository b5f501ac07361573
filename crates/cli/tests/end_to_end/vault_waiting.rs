//! Puts that are not committed: the server can't be reached, the connection breaks, or they are on their way. They are seen as what they are,
//! nobody takes them for a backup, and they are committed once.

use std::fs;
use std::path::Path;

use serde_json::Value;
use towpath_link::Identity;
use towpath_vault_protocol::ClientMessage;

use crate::environment::Machine;
use crate::lying_server::{Fate, Honest, Liar, LyingServer, raw};
use crate::runner::situations;
use crate::trees::{assert_same_bytes, bytes};
use crate::vault::{PASSPHRASE, Vaults, assert_told, call, find, number, put, told};
use crate::vault_attacks::{keys_of, member, state};

situations![
    a_put_without_a_server_is_kept_and_said_to_be_no_backup,
    what_waits_goes_behind_what_others_put_meanwhile,
    what_others_put_too_is_said_and_nothing_is_lost,
    a_put_that_is_cut_off_waits,
    a_put_on_its_way_is_seen_by_another_process,
];

/// A machine with a vault that has `notes`.
fn with_notes() -> (Vaults, Machine, String) {
    let vaults = Vaults::new();
    let one = vaults.env.machine("one");
    let id = vaults.init(&one);
    fs::write(one.path("notes"), bytes(1, 100_000)).unwrap();
    put(&one, "notes");
    (vaults, one, id)
}

fn write(machine: &Machine, name: &str, seed: u64) {
    fs::write(machine.path(name), [bytes(1, 100_000), bytes(seed, 2000)].concat()).unwrap();
}

/// Puts without a server.
fn keep(machine: &Machine, name: &str, seed: u64) {
    write(machine, name, seed);
    assert_told(
        call(machine, &["put", name]),
        &["is NOT on the server, and this is no backup", "tow vault commit"],
    );
}

/// Entries that are told as not committed.
fn marked(machine: &Machine) -> Vec<String> {
    let entries = call(machine, &["ls", "--json"]).with(0).events();
    let marked = entries.iter().filter(|entry| entry["committed"] == false);
    marked.map(|entry| entry["name"].as_str().unwrap().to_owned()).collect()
}

fn assert_got(machine: &Machine, name: &str) -> Value {
    let got = told(machine, &["get", name, "-o", "back", "--overwrite"]);
    assert_same_bytes(&machine.path(name), &machine.path("back"));
    got
}

fn a_put_without_a_server_is_kept_and_said_to_be_no_backup() {
    let (mut vaults, one, id) = with_notes();
    vaults.stop();
    assert_told(call(&one, &["ls"]), &["vault's server"]);
    keep(&one, "notes", 2);
    keep(&one, "a secret name", 3);
    keep(&one, "notes", 4);
    let events = call(&one, &["put", "notes", "--json"]).with(1).events();
    assert!(events[0]["event"] == "kept" && events[0]["committed"] == false, "{events:?}");
    assert_eq!(marked(&one), ["a secret name", "notes"]);
    let listed = call(&one, &["ls"]).with(0);
    assert_eq!(
        listed.text().matches("(not committed: on this machine alone)").count(),
        2,
        "{}",
        listed.text()
    );
    assert!(listed.err.contains("going by what this machine saw last"), "{}", listed.err);
    assert_eq!(call(&one, &["log"]).with(0).text().matches("not committed").count(), 3);
    assert_eq!(assert_got(&one, "notes")["committed"], false);
    assert_got(&one, "a secret name");
    assert_hidden(&state(&one, &id), b"a secret name");
    assert_hidden(&state(&one, &id), &bytes(3, 2000)[..100]);
    vaults.start();
    assert_eq!((marked(&one).len(), assert_got(&one, "notes")["committed"].clone()), (2, false.into()));
    let committed = told(&one, &["commit"]);
    assert_eq!(committed["versions"], serde_json::json!([2, 3, 4]));
    assert!(marked(&one).is_empty() && told(&one, &["commit"])["versions"] == serde_json::json!([]));
    assert_eq!(assert_got(&one, "notes")["committed"], true);
    let two = vaults.env.machine("two");
    vaults.join(&two, &id);
    write(&two, "notes", 4);
    assert_got(&two, "notes");
    assert_eq!(number(&told(&one, &["check", "--all"]), "faults"), 0);
}

/// Asserts that no file below a folder has these bytes.
fn assert_hidden(folder: &Path, secret: &[u8]) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            assert_hidden(&path, secret);
        } else {
            let content = fs::read(&path).unwrap();
            assert!(!content.windows(secret.len()).any(|part| part == secret), "{}", path.display());
        }
    }
}

fn what_waits_goes_behind_what_others_put_meanwhile() {
    let (mut vaults, one, id) = with_notes();
    let two = vaults.env.machine("two");
    vaults.join(&two, &id);
    vaults.stop();
    keep(&one, "notes", 2);
    keep(&one, "list", 3);
    vaults.start();
    write(&two, "theirs", 7);
    put(&two, "theirs");
    write(&one, "more", 5);
    let last = call(&one, &["put", "more"]).with(0);
    assert!(last.err.contains("committed what waited here: version 3, 4"), "{}", last.err);
    assert!(last.err.contains("version 5"), "{}", last.err);
    for (name, seed) in [("notes", 2), ("list", 3), ("theirs", 7), ("more", 5)] {
        write(&two, name, seed);
        assert_got(&two, name);
    }
}

fn what_others_put_too_is_said_and_nothing_is_lost() {
    let (mut vaults, one, id) = with_notes();
    let two = vaults.env.machine("two");
    vaults.join(&two, &id);
    vaults.stop();
    keep(&one, "notes", 2);
    vaults.start();
    write(&two, "notes", 9);
    told(&two, &["put", "notes", "--overwrite"]);
    write(&one, "other", 5);
    for words in [&["commit"][..], &["put", "other"]] {
        assert_told(
            call(&one, words),
            &["'notes' is kept on this machine and NOT on the server", "somebody else changed it"],
        );
    }
    assert_eq!(marked(&one), ["notes"]);
    assert_eq!(assert_got(&one, "notes")["committed"], false);
    assert_eq!(number(&told(&one, &["commit", "--drop"]), "versions"), 1);
    assert!(marked(&one).is_empty());
    assert_told(call(&one, &["put", "notes"]), &["changed by somebody else"]);
    told(&one, &["put", "notes", "--overwrite"]);
    assert_got(&one, "notes");
    put(&one, "other");
}

/// What it does with a version that is offered.
enum Cut {
    /// Both connections end.
    HangUp,
    /// Nobody hears of it, and nobody answers.
    Swallow,
}

impl Liar for Cut {
    fn asked(&mut self, message: ClientMessage) -> Fate {
        match (&message, self) {
            (ClientMessage::Propose { .. } | ClientMessage::Whole { .. }, Self::HangUp) => Fate::HangUp,
            (
                ClientMessage::Propose { .. } | ClientMessage::Whole { .. } | ClientMessage::Block(_),
                Self::Swallow,
            ) => Fate::Answer(Vec::new()),
            _ => Fate::Pass(raw(message.to_frames())),
        }
    }
}

/// A machine whose way to the server leads through a liar.
fn behind_a_liar() -> (Vaults, Machine, LyingServer) {
    let (vaults, one, id) = with_notes();
    let server = Identity::load_or_create(&find(&vaults.env.machine("server").home(""), "node.key")).unwrap();
    let liar = LyingServer::new(&server, &vaults.place, member(&keys_of(&one, &id)));
    fs::write(state(&one, &id).join("server"), &liar.place).unwrap();
    (vaults, one, liar)
}

fn a_put_that_is_cut_off_waits() {
    let (_vaults, one, liar) = behind_a_liar();
    liar.lie(Cut::HangUp);
    keep(&one, "notes", 2);
    keep(&one, "list", 3);
    assert_eq!(marked(&one), ["list", "notes"]);
    liar.lie(Honest);
    assert_eq!(told(&one, &["commit"])["versions"], serde_json::json!([2, 3]));
    assert_got(&one, "notes");
    assert_got(&one, "list");
}

fn a_put_on_its_way_is_seen_by_another_process() {
    let (_vaults, one, liar) = behind_a_liar();
    write(&one, "notes", 2);
    liar.lie(Cut::Swallow);
    let mut on_its_way = one.tow(["vault", "put", "notes"]).variable(PASSPHRASE.0, PASSPHRASE.1).start();
    on_its_way.wait_until("is on its way", |_| (marked(&one) == ["notes"]).then_some(()));
    assert!(call(&one, &["log"]).with(0).text().contains("not committed"));
    assert_eq!(assert_got(&one, "notes")["committed"], false);
    on_its_way.kill();
    assert_eq!(marked(&one), ["notes"], "it was cut off");
    liar.lie(Honest);
    assert_eq!(told(&one, &["commit"])["versions"], serde_json::json!([2]));
    assert_eq!(assert_got(&one, "notes")["committed"], true);
}
