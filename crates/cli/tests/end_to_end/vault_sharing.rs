//! Members of a vault, each with a machine and a passphrase of their own.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::environment::{Ended, Machine};
use crate::runner::situations;
use crate::trees::{assert_same_bytes, bytes, file};
use crate::vault::{PASSPHRASE, Vaults, assert_told, call, edit, find, number, put, told};

situations![
    members_read_and_write_with_passphrases_of_their_own,
    a_reader_can_not_write_and_nobody_but_the_maker_drops_or_shares,
    who_was_revoked_reads_and_writes_nothing_new,
    keys_of_a_new_epoch_are_everybodys_who_stays,
    what_goes_wrong_with_members_is_said,
];

/// `tow vault` of another person.
fn theirs(machine: &Machine, words: &[&str]) -> Ended {
    let words = ["vault"].iter().chain(words);
    machine.tow(words).variable(PASSPHRASE.0, "a passphrase of another person").end()
}

fn theirs_told(machine: &Machine, words: &[&str]) -> Value {
    let words: Vec<_> = words.iter().chain(&["--json"]).copied().collect();
    theirs(machine, &words).with(0).events().pop().unwrap()
}

/// The invitation of the vault that a machine made.
fn invitation(owner: &Machine) -> String {
    told(owner, &["share"])["invitation"].as_str().unwrap().to_owned()
}

/// Joins another person's vault: the member's id.
fn join(owner: &Machine, other: &Machine) -> String {
    let waiting = theirs_told(other, &["join", &invitation(owner)]);
    assert_eq!(waiting["event"], "waiting", "{waiting}");
    waiting["member"].as_str().unwrap().to_owned()
}

fn share(owner: &Machine, other: &Machine, how: &[&str]) -> String {
    let member = join(owner, other);
    let words: Vec<_> = ["share", &member].iter().chain(how).copied().collect();
    told(owner, &words);
    member
}

/// Roles of all members.
fn roles(machine: &Machine) -> Vec<String> {
    let events = call(machine, &["share", "--json"]).with(0).events();
    let mut roles: Vec<_> =
        events.iter().filter_map(|event| event["role"].as_str().map(str::to_owned)).collect();
    roles.sort();
    roles
}

fn members_read_and_write_with_passphrases_of_their_own() {
    let vaults = Vaults::new();
    let (one, two) = (&vaults.env.sender, &vaults.env.receiver);
    vaults.init(one);
    file(&one.path("notes"), 1, 300_000);
    put(one, "notes");
    assert_eq!(roles(one), ["owner", "passphrase"]);
    let member = join(one, two);
    // Nothing is to be had before the owner shares it.
    assert_told(theirs(two, &["ls"]), &["not yours to read"]);
    let shared = told(one, &["share", &member, "--write"]);
    assert_eq!((&shared["role"], number(&shared, "epoch")), (&Value::from("writer"), 0));
    assert_eq!(told(one, &["share", &member, "--write"])["version"], shared["version"], "it may already");
    assert_eq!(theirs_told(two, &["join", &invitation(one)])["event"], "joined");
    theirs_told(two, &["get", "notes"]);
    assert_same_bytes(&one.path("notes"), &two.path("notes"));
    fs::write(two.path("theirs"), "a line of another person").unwrap();
    theirs_told(two, &["put", "theirs"]);
    told(one, &["get", "theirs"]);
    assert_same_bytes(&one.path("theirs"), &two.path("theirs"));
    assert_eq!(roles(one), ["owner", "passphrase", "writer"]);
    // The other's passphrase does not open the owner's machine, nor the owner's the other's.
    assert_told(theirs(one, &["ls"]), &["wrong passphrase"]);
    assert_told(call(two, &["ls"]), &["wrong passphrase"]);
    // The maker's passphrase is enough on another machine as before.
    let three = vaults.env.machine("three");
    let id = find_id(one);
    vaults.join(&three, &id);
    told(&three, &["get", "theirs"]);
    assert_same_bytes(&three.path("theirs"), &two.path("theirs"));
}

fn find_id(machine: &Machine) -> String {
    let vaults = find(&machine.home(""), "vaults");
    let id = fs::read_dir(vaults).unwrap().next().unwrap().unwrap().file_name();
    id.into_string().unwrap()
}

fn a_reader_can_not_write_and_nobody_but_the_maker_drops_or_shares() {
    let vaults = Vaults::new();
    let (one, two) = (&vaults.env.sender, &vaults.env.receiver);
    let three = vaults.env.machine("three");
    vaults.init(one);
    file(&one.path("notes"), 1, 50_000);
    put(one, "notes");
    let reader = share(one, two, &[]);
    let writer = share(one, &three, &["--write"]);
    theirs_told(two, &["get", "notes"]);
    assert_told(theirs(two, &["put", "notes", "--as", "mine"]), &["may only read"]);
    assert_told(theirs(two, &["forget", "notes"]), &["may only read"]);
    theirs_told(&three, &["get", "notes"]);
    theirs_told(&three, &["put", "notes", "--as", "mine"]);
    for member in [two, &three] {
        assert_told(theirs(member, &["gc", "--keep", "1"]), &["may not drop versions"]);
        assert_told(theirs(member, &["share", &reader, "--write"]), &["only the vault's owner"]);
        assert_told(theirs(member, &["share", "--revoke", &writer]), &["only the vault's owner"]);
    }
    // A writer becomes a reader.
    assert_eq!(told(one, &["share", &writer])["role"], "reader");
    assert_told(theirs(&three, &["put", "notes", "--as", "again"]), &["may only read"]);
    assert_eq!(roles(one), ["owner", "passphrase", "reader", "reader"]);
    // All versions are there, whoever tried.
    assert_eq!(number(&told(one, &["check", "--all"]), "faults"), 0);
    told(one, &["restore", "notes", "--version", "1", "-o", "first"]);
}

fn who_was_revoked_reads_and_writes_nothing_new() {
    let vaults = Vaults::new();
    let (one, two) = (&vaults.env.sender, &vaults.env.receiver);
    let id = vaults.init(one);
    file(&one.path("notes"), 1, 200_000);
    put(one, "notes");
    let member = share(one, two, &["--write"]);
    theirs_told(two, &["get", "notes"]);
    let revoked = told(one, &["share", "--revoke", &member[..8]]);
    assert_eq!((number(&revoked, "epoch"), &revoked["role"]), (1, &Value::Null), "{revoked}");
    fs::write(one.path("secret"), "a sentence for those who stay ".repeat(100)).unwrap();
    put(one, "secret");
    for words in [&["ls"][..], &["get", "secret"], &["put", "notes", "--overwrite"], &["log"], &["check"]] {
        assert_told(theirs(two, words), &["not yours to read"]);
    }
    // With all that the server has, too, nothing new can be read by what the member holds: its record of keys is the old one, and
    // the one that the vault has now gives it no secret.
    let state = |machine: &Machine| find(&machine.home(""), &id);
    for name in ["head", "shares"] {
        fs::copy(state(one).join(name), state(two).join(name)).unwrap();
    }
    copy_blobs(&state(one), &state(two));
    assert_told(theirs(two, &["get", "secret"]), &["not yours to read"]);
    told(one, &["get", "secret", "-o", "back"]);
    assert_same_bytes(&one.path("secret"), &one.path("back"));
    // A vault that is shared again is whole for the member.
    told(one, &["share", &member]);
    theirs_told(two, &["get", "secret"]);
    assert_same_bytes(&one.path("secret"), &two.path("secret"));
}

fn copy_blobs(from: &std::path::Path, to: &std::path::Path) {
    for folder in ["nodes", "blocks"] {
        let _ = fs::remove_dir_all(to.join(folder));
        let words: [PathBuf; 3] = ["-a".into(), from.join(folder), to.join(folder)];
        assert!(std::process::Command::new("cp").args(words).status().unwrap().success());
    }
}

fn keys_of_a_new_epoch_are_everybodys_who_stays() {
    let vaults = Vaults::new();
    let (one, two) = (&vaults.env.sender, &vaults.env.receiver);
    let (three, four) = (vaults.env.machine("three"), vaults.env.machine("four"));
    let id = vaults.init(one);
    file(&one.path("notes"), 1, 3 << 20);
    put(one, "notes");
    vaults.join(&four, &id);
    share(one, two, &["--write"]);
    let leaves = share(one, &three, &[]);
    theirs_told(two, &["get", "notes"]);
    told(one, &["share", "--revoke", &leaves]);
    // The member, the owner's other machine and the owner go on from one another, and blocks of both epochs make one file.
    edit(&two.path("notes"));
    let second = theirs_told(two, &["put", "notes"]);
    assert!(number(&second, "uploaded") < 8192, "what is there is not sent again: {second}");
    told(&four, &["get", "notes"]);
    assert_same_bytes(&two.path("notes"), &four.path("notes"));
    edit(&four.path("notes"));
    put(&four, "notes");
    told(one, &["get", "notes", "--overwrite"]);
    assert_same_bytes(&one.path("notes"), &four.path("notes"));
    told(one, &["restore", "notes", "--version", "1", "-o", "first"]);
    assert_eq!(fs::read(one.path("first")).unwrap(), bytes(1, 3 << 20));
    assert_eq!(number(&theirs_told(two, &["check", "--all"]), "faults"), 0);
    // So does a machine that has nothing but the passphrase.
    let five = vaults.env.machine("five");
    vaults.join(&five, &id);
    told(&five, &["get", "notes"]);
    assert_same_bytes(&one.path("notes"), &five.path("notes"));
}

fn what_goes_wrong_with_members_is_said() {
    let vaults = Vaults::new();
    let (one, two) = (&vaults.env.sender, &vaults.env.receiver);
    vaults.init(one);
    let member = join(one, two);
    assert_eq!(join(one, two), member, "a second try makes no other key");
    for (words, why) in [
        (&["share", "nonsense"][..], "no member's id"),
        (&["share", "--write"], "MEMBER"),
        (&["share", "--revoke", "ab"], "8 digits"),
        (&["share", "--revoke", "0123456789"], "begins with"),
        (&["join", "nonsense"], "invitation"),
    ] {
        let ended = call(one, words).with(2);
        assert!(ended.err.contains(why), "{words:?}: {}", ended.err);
    }
    let no_key = "02".repeat(32);
    assert_told(call(one, &["share", &no_key]), &["no public key"]);
    let owner = told_owner(one);
    assert_told(call(one, &["share", "--revoke", &owner]), &["no member that the vault is shared with"]);
    // An invitation with another owner's name is not this vault's.
    let invited = invitation(one);
    let forged = format!("{}/{member}", invited.rsplit_once('/').unwrap().0);
    let three = vaults.env.machine("three");
    assert_eq!(theirs_told(two, &["join", &invited])["event"], "waiting");
    assert!(theirs(two, &["join", &forged]).with(2).err.contains("another owner"));
    let third = theirs_told(&three, &["join", &forged])["member"].as_str().unwrap().to_owned();
    told(one, &["share", &third]);
    assert_told(theirs(&three, &["ls"]), &["not named by the vault's owner"]);
}

fn told_owner(machine: &Machine) -> String {
    let events = call(machine, &["share", "--json"]).with(0).events();
    let owner = events.iter().find(|event| event["role"] == "owner").unwrap();
    owner["member"].as_str().unwrap().to_owned()
}
