//! Metadata of trees by ticket: owners, attributes, ACLs, hard links, pipes and devices, and those that need a word.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, lgetxattr, makedev, mknodat};

use crate::environment::{Ended, LOOPBACK, Machine, TestEnvironment};
use crate::likeness::{attribute, is_root, list_user, mode};
use crate::machinery::unprivileged;
use crate::odd_trees::{assert_equal, odd_tree};
use crate::runner::situations;

situations![
    everything_goes_by_ticket_where_it_is_asked_for,
    a_user_without_rights_gets_what_is_theirs,
    what_gives_rights_or_tells_of_a_machine_needs_a_word,
    hard_links_of_a_part_stay_together,
    what_a_single_files_ticket_does_not_tell_is_left_alone,
];

fn share(machine: &Machine, words: &[&str]) -> crate::environment::Running {
    machine.tow(["share", "--listen", LOOPBACK].iter().chain(words)).start()
}

fn everything_goes_by_ticket_where_it_is_asked_for() {
    let env = TestEnvironment::new();
    let (tree, copy) = (env.sender.path("tree"), env.receiver.path("copy"));
    odd_tree(&tree, is_root());
    let mut sharing = share(&env.sender, &["-aHAX", "tree"]);
    let ticket = sharing.ticket();
    env.receiver.tow(["get", "-aHAX", &ticket, "-o", "copy"]).end().with(0);
    assert_equal(&tree, &copy);
    // What was changed becomes equal again, other names included.
    fs::remove_file(copy.join("links/deep/1")).unwrap();
    fs::write(copy.join("links/deep/1"), "another").unwrap();
    attribute(&copy.join("attributes/file"), "user.more", b"more");
    let update = ["get", "--update", "--delete", "-i", "-aHAX", &ticket, "-o", "copy"];
    let changed = env.receiver.tow(update).end().with(0).text();
    assert!(changed.contains("links/deep/1") && changed.contains("attributes/file"), "{changed}");
    assert_equal(&tree, &copy);
    assert_eq!(env.receiver.tow(update).end().with(0).text(), "", "the second time changes nothing");
}

fn a_user_without_rights_gets_what_is_theirs() {
    let env = TestEnvironment::new();
    let tree = env.sender.path("tree");
    odd_tree(&tree, false);
    let program = unprivileged(&env);
    let mut sharing = env.sender.tow_as(&program, ["share", "--listen", LOOPBACK, "tree"]).start();
    let words = ["get", "-p", "--specials", &sharing.ticket(), "-o", "copy"];
    env.receiver.tow_as(&program, words).end().with(0);
    assert_equal(&tree, &env.receiver.path("copy"));
}

/// `dir`, `plain` and `same` (one file), `rights`, `pipe`, and of root `device`.
fn tree_with_rights(tree: &Path) {
    fs::create_dir_all(tree.join("dir")).unwrap();
    for name in ["plain", "rights"] {
        fs::write(tree.join(name), name.repeat(500)).unwrap();
    }
    fs::hard_link(tree.join("plain"), tree.join("same")).unwrap();
    attribute(&tree.join("plain"), "user.note", b"note");
    attribute(&tree.join("plain"), "user.xdg.origin.url", b"https://example.org/");
    list_user(&tree.join("plain"), 9);
    mknodat(CWD, tree.join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    mode(&tree.join("rights"), 0o4777);
    mode(&tree.join("dir"), 0o2775);
    if is_root() {
        lchown(tree.join("plain"), Some(54_321), Some(54_322)).unwrap();
        attribute(&tree.join("rights"), "trusted.note", b"note");
    }
}

fn value(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 1000];
    let len = lgetxattr(path, name, &mut value[..]).ok()?;
    value.truncate(len);
    Some(value)
}

fn what_gives_rights_or_tells_of_a_machine_needs_a_word() {
    let env = TestEnvironment::new();
    tree_with_rights(&env.sender.path("tree"));
    let device = env.sender.path("tree/device");
    let has_device = mknodat(CWD, &device, FileType::CharacterDevice, Mode::RUSR, makedev(1, 3)).is_ok();
    let (mut plain, mut all) = (share(&env.sender, &["tree"]), share(&env.sender, &["-X", "tree"]));
    let get = |ticket: &str, copy: &str, words: &[&str]| -> Ended {
        env.receiver.tow(["get", "--json", ticket, "-o", copy].iter().chain(words)).end()
    };
    let ended = get(&plain.ticket(), "copy", &[]).with(0);
    let left_out = 1 + u64::from(has_device);
    let skipped = ended.events().into_iter().filter(|event| event["event"] == "entry_skipped").count();
    assert_eq!(skipped as u64, left_out, "the pipe, and the device");
    let summary = ended.summary();
    assert_eq!((summary.number("failed"), summary.number("skipped")), (0, left_out));
    let copy = env.receiver.path("copy");
    assert!(!copy.join("pipe").exists() && !copy.join("device").exists());
    let seen = |path: &Path| fs::metadata(path).unwrap();
    assert_eq!(seen(&copy.join("rights")).mode() & 0o7000, 0);
    assert_eq!(seen(&copy.join("dir")).mode() & 0o7000, 0);
    assert_eq!(seen(&copy.join("rights")).permissions().mode() & 0o022, 0, "the umask holds");
    assert_eq!(seen(&copy.join("plain")).ino(), seen(&copy.join("same")).ino());
    assert_eq!(value(&copy.join("plain"), "user.note").as_deref(), Some(&b"note"[..]));
    assert!(value(&copy.join("plain"), "system.posix_acl_access").is_some());
    assert_eq!(value(&copy.join("plain"), "user.xdg.origin.url"), None);
    let owner = if is_root() { 54_321 } else { seen(&env.sender.path("tree")).uid() };
    assert_eq!(seen(&copy.join("plain")).uid(), owner);
    let told = env.receiver.tow(["get", &plain.ticket(), "-o", "again"]).end().with(0);
    assert!(told.err.contains("pipe: a FIFO is left out; --specials makes it"), "{}", told.err);
    assert!(told.err.contains("left out\n"), "its last line counts it: {}", told.err);
    // An update of what is there says and does the same.
    let updated = env.receiver.tow(["get", "--update", &plain.ticket(), "-o", "again"]).end().with(0);
    assert!(updated.err.contains("pipe: a FIFO") && updated.err.contains("left out"), "{}", updated.err);
    assert!(told.err.contains("tow: left out: setuid or setgid bits of 2 entries (-p"), "{}", told.err);
    // Both sides have to say it.
    let text = get(&all.ticket(), "some", &["--specials"]).text();
    assert_eq!(text.contains("\"privileged_xattrs\":1"), is_root(), "{text}");
    assert_eq!(value(&env.receiver.path("some/rights"), "trusted.note"), None);
    assert!(value(&env.receiver.path("some/plain"), "user.xdg.origin.url").is_some());
    assert!(env.receiver.path("some/pipe").exists());
    let words = if is_root() { &["-p", "-X", "-D", "--no-owner"][..] } else { &["-p", "-X", "--specials"] };
    get(&all.ticket(), "rights", words).summary();
    let copy = env.receiver.path("rights");
    assert_eq!(seen(&copy.join("rights")).mode() & 0o7777, 0o4777);
    assert_eq!(value(&copy.join("rights"), "trusted.note").is_some(), is_root());
    assert_eq!(copy.join("device").exists(), has_device);
    assert_eq!(seen(&copy.join("plain")).uid(), rustix::process::geteuid().as_raw());
}

fn hard_links_of_a_part_stay_together() {
    let env = TestEnvironment::new();
    let tree = env.sender.path("tree");
    fs::create_dir_all(tree.join("b")).unwrap();
    // Groups that are not wanted come before.
    for (group, names) in [("1", ["a1", "a2"]), ("2", ["a3", "a4"]), ("3", ["b/1", "b/2"])] {
        fs::write(tree.join(names[0]), group.repeat(3000)).unwrap();
        fs::hard_link(tree.join(names[0]), tree.join(names[1])).unwrap();
    }
    let mut sharing = share(&env.sender, &["tree"]);
    let ticket = sharing.ticket();
    let ino = |path: &str| fs::metadata(env.receiver.path(path)).unwrap().ino();
    env.receiver.tow(["get", &ticket, "b", "a4"]).end().with(0);
    assert_eq!(ino("b/1"), ino("b/2"));
    fs::create_dir(env.receiver.path("there")).unwrap();
    env.receiver.tow(["get", "--update", &ticket, "b", "a4", "-o", "there"]).end().with(0);
    assert_eq!(ino("there/b/1"), ino("there/b/2"));
    env.receiver.tow(["get", "--no-hard-links", &ticket, "-o", "apart"]).end().with(0);
    assert_ne!(ino("apart/b/1"), ino("apart/b/2"));
}

fn what_a_single_files_ticket_does_not_tell_is_left_alone() {
    let env = TestEnvironment::new();
    let (source, copy) = (env.sender.path("file"), env.receiver.path("copy"));
    for path in [&source, &copy] {
        fs::write(path, "the same bytes").unwrap();
    }
    attribute(&copy, "user.note", b"note");
    list_user(&copy, 9);
    if is_root() {
        lchown(&copy, Some(54_321), Some(54_322)).unwrap();
    }
    let (owner, acl) = (fs::metadata(&copy).unwrap().uid(), value(&copy, "system.posix_acl_access"));
    let mut sharing = share(&env.sender, &["file"]);
    env.receiver.tow(["get", "--update", "--checksum", &sharing.ticket(), "-o", "copy"]).end().with(0);
    assert_eq!(fs::metadata(&copy).unwrap().uid(), owner);
    assert_eq!(value(&copy, "user.note").as_deref(), Some(&b"note"[..]));
    assert_eq!(value(&copy, "system.posix_acl_access").is_some(), acl.is_some());
}
