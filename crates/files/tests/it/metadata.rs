//! Metadata carried from one tree to another: what a second run would find to do is nothing.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use towpath_content::tree::{Kind, Metadata, Owner, Xattr};
use towpath_files::{
    Destination, FileError, Found, Overwrite, Policy, ScanOptions, WriteOptions, differences, look,
};

use crate::support::{
    Mounted, acl, as_nobody, attribute, everything, is_root, metadata, only, path, run, set_attribute, stamp,
};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

fn archive() -> WriteOptions {
    WriteOptions { policy: Policy::archive(), ..WriteOptions::default() }
}

fn open(root: &Path, policy: Policy) -> Destination {
    Destination::open(root, WriteOptions { policy, ..WriteOptions::default() }).unwrap()
}

/// Writes `found` as `name` and says what a second run would find to do.
fn carry(to: &Destination, found: &Found, name: &str) -> towpath_files::Differences {
    let (at, entry) = (path(&[name]), &found.entry);
    match &entry.kind {
        Kind::File { .. } => {
            let staged = to.stage_file(0).unwrap();
            to.commit(staged, at.clone(), &entry.metadata, Overwrite::Replace).unwrap();
            let placed = only(to.flush());
            assert!(placed.outcome.is_ok() && placed.lacking.is_none(), "{placed:?}");
        }
        Kind::Directory => {
            to.make_dir(&at).unwrap();
            to.finish_dir(&at, &entry.metadata).unwrap();
        }
        Kind::Symlink { target } => {
            assert!(
                to.nodes()
                    .symlink(&at, target, &entry.metadata, Overwrite::Replace)
                    .unwrap()
                    .lacking
                    .is_none()
            )
        }
        kind => {
            assert!(
                to.nodes()
                    .special(&at, kind, &entry.metadata, Overwrite::ReplaceAny)
                    .unwrap()
                    .lacking
                    .is_none()
            )
        }
    }
    let there = to.look(&at, &everything()).unwrap().unwrap();
    assert_eq!(there.entry.kind, entry.kind);
    differences(&entry.kind, &entry.metadata, &there.entry.metadata, &Policy::archive())
}

#[test]
fn everything_of_every_kind_is_carried_and_a_second_run_finds_nothing_to_do() {
    if !is_root() {
        println!("skipped: needs root");
        return;
    }
    let tmp = tempfile::tempdir().unwrap();
    let (src, dst) = (tmp.path().join("src"), tmp.path().join("dst"));
    fs::create_dir_all(src.join("dir")).unwrap();
    fs::write(src.join("file"), b"").unwrap();
    symlink("nowhere", src.join("link")).unwrap();
    mknodat(CWD, src.join("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    mknodat(CWD, src.join("sock"), FileType::Socket, Mode::RWXU, 0).unwrap();
    mknodat(CWD, src.join("char"), FileType::CharacterDevice, Mode::RWXU, rustix::fs::makedev(1, 3)).unwrap();
    mknodat(CWD, src.join("block"), FileType::BlockDevice, Mode::RWXU, rustix::fs::makedev(7, 300)).unwrap();
    for name in ["dir", "file", "link", "fifo", "sock", "char", "block"] {
        std::os::unix::fs::lchown(src.join(name), Some(1234), Some(2345)).unwrap();
        if !set_attribute(&src.join(name), "trusted.tow", name.as_bytes()) {
            return;
        }
    }
    for name in ["dir", "file"] {
        set_attribute(&src.join(name), "user.tow", b"\0\xff");
        set_attribute(&src.join(name), ACCESS, &acl());
    }
    set_attribute(&src.join("dir"), DEFAULT, &acl());
    fs::set_permissions(src.join("file"), fs::Permissions::from_mode(0o6750)).unwrap();
    fs::create_dir(&dst).unwrap();
    let to = Destination::open(&dst, archive()).unwrap();
    for name in ["dir", "file", "link", "fifo", "sock", "char", "block"] {
        let found = look(&src.join(name), &everything()).unwrap();
        assert!(found.entry.metadata.xattrs.iter().any(|x| x.name == b"trusted.tow"), "{name}");
        let left = carry(&to, &found, name);
        assert!(!left.any(), "{name}: {left:?}");
        let is = fs::symlink_metadata(dst.join(name)).unwrap();
        assert_eq!((is.uid(), is.gid(), is.mtime()), (1234, 2345, found.entry.metadata.modified.seconds));
        assert_eq!(attribute(&dst.join(name), "trusted.tow").unwrap(), name.as_bytes());
    }
    assert_eq!(attribute(&dst.join("file"), ACCESS), attribute(&src.join("file"), ACCESS));
    assert_eq!(attribute(&dst.join("dir"), DEFAULT).unwrap(), acl());
    assert_eq!(fs::metadata(dst.join("file")).unwrap().mode() & 0o7777, 0o6750);
    assert_eq!(fs::metadata(dst.join("char")).unwrap().rdev(), rustix::fs::makedev(1, 3));
    to.staging().remove().unwrap();
    to.finish_dir(&path(&[]), &look(&src, &everything()).unwrap().entry.metadata).unwrap();
    let mut rsync = std::process::Command::new("rsync");
    match run(rsync.args(["-aHAXni", "--delete"]).arg(src.join("")).arg(dst.join(""))) {
        Ok(run) => {
            assert_eq!(String::from_utf8_lossy(&run.stdout), "", "{}", String::from_utf8_lossy(&run.stderr))
        }
        Err(error) => println!("skipped: no rsync to compare with ({error})"),
    }
}

#[test]
fn an_acl_and_attributes_that_the_source_lacks_are_removed() {
    let tmp = tempfile::tempdir().unwrap();
    let file = tmp.path().join("f");
    fs::write(&file, b"").unwrap();
    if !set_attribute(&file, "user.old", b"x") || !set_attribute(&file, ACCESS, &acl()) {
        return;
    }
    let to = Destination::open(tmp.path(), archive()).unwrap();
    let seen = to.look(&path(&["f"]), &everything()).unwrap().unwrap();
    assert_eq!(seen.entry.metadata.mode, 0o660);
    let mut wanted = Metadata { mode: 0o640, xattrs: Vec::new(), ..seen.entry.metadata.clone() };
    let found = differences(&seen.entry.kind, &wanted, &seen.entry.metadata, &Policy::archive());
    assert!(found.mode && found.acls && found.xattrs && !found.time && !found.user, "{found:?}");
    wanted.xattrs = vec![Xattr { name: b"user.new".to_vec(), value: b"y".to_vec() }];
    let after = to.set_metadata(&path(&["f"]), &seen.stamp, &wanted).unwrap();
    assert!(after.same_file(&seen.stamp));
    assert_eq!((attribute(&file, "user.old"), attribute(&file, ACCESS)), (None, None));
    assert_eq!(attribute(&file, "user.new").unwrap(), b"y");
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o640);
    let kept = open(tmp.path(), Policy::default());
    set_attribute(&file, ACCESS, &acl());
    kept.set_metadata(&path(&["f"]), &after, &wanted).unwrap();
    assert!(attribute(&file, "user.new").is_some() && attribute(&file, ACCESS).is_some());
}

#[test]
fn only_what_is_asked_for_is_read() {
    let tmp = tempfile::tempdir().unwrap();
    let file = tmp.path().join("f");
    fs::write(&file, b"").unwrap();
    if !set_attribute(&file, "user.a", b"x") || !set_attribute(&file, ACCESS, &acl()) {
        return;
    }
    set_attribute(&file, "user.rsync.%stat", b"x");
    let names = |options: ScanOptions| -> Vec<String> {
        let found = look(&file, &options).unwrap().entry.metadata.xattrs;
        found.into_iter().map(|x| String::from_utf8(x.name).unwrap()).collect()
    };
    assert!(names(ScanOptions::default()).is_empty());
    assert_eq!(names(ScanOptions { xattrs: true, ..Default::default() }), ["user.a"]);
    assert_eq!(names(ScanOptions { acls: true, ..Default::default() }), [ACCESS]);
    assert_eq!(names(everything()), [ACCESS, "user.a"]);
    let owner = |named| look(&file, &ScanOptions { owner_names: named, ..Default::default() });
    assert!(owner(false).unwrap().entry.metadata.user.name.is_empty());
    if is_root() {
        assert_eq!(owner(true).unwrap().entry.metadata.user.name, b"root");
    }
}

#[test]
fn attributes_too_large_for_a_descriptor_are_told_and_left_out() {
    let tmp = tempfile::tempdir().unwrap();
    let Some(_mounted) = Mounted::new("tmpfs", "size=8m", tmp.path()) else { return };
    let file = tmp.path().join("f");
    fs::write(&file, b"").unwrap();
    for name in ["user.a", "user.b", "user.c", "user.d", "user.e"] {
        let set = rustix::fs::setxattr(&file, name, &[7; 60_000], rustix::fs::XattrFlags::empty());
        if set.is_err() {
            println!("skipped: this kernel's tmpfs takes no large attributes");
            return;
        }
    }
    let steps = crate::support::scan_all(tmp.path(), &everything());
    assert_eq!(crate::support::outline(&steps).join(" "), "+ f ! -");
    let found = look(&file, &everything()).unwrap();
    assert_eq!(found.entry.metadata.xattrs.len(), 4);
    assert!(found.incomplete.is_some());
}

#[test]
fn an_owner_goes_by_its_name_here_unless_numbers_are_asked_for() {
    if !is_root() {
        println!("skipped: needs root");
        return;
    }
    let tmp = tempfile::tempdir().unwrap();
    let named = |id: u32, name: &[u8]| Owner { id, name: name.to_vec() };
    let wanted =
        Metadata { user: named(54321, b"daemon"), group: named(54321, b"nogroup"), ..metadata(0o4750, 5) };
    let there = |policy: Policy| {
        let to = open(tmp.path(), policy);
        let staged = to.stage_file(0).unwrap();
        to.commit(staged, path(&["f"]), &wanted, Overwrite::Replace).unwrap();
        stamp(to.flush());
        to.staging().remove().unwrap();
        let is = fs::metadata(tmp.path().join("f")).unwrap();
        (is.uid(), is.gid(), is.mode() & 0o7777)
    };
    assert_eq!(there(Policy { numeric_ids: true, ..Policy::archive() }), (54321, 54321, 0o4750));
    assert_eq!(there(Policy::default()), (0, 0, 0o750));
    let daemon =
        fs::read_to_string("/etc/passwd").unwrap().lines().any(|line| line.starts_with("daemon:x:1:"));
    if daemon {
        assert_eq!(there(Policy::archive()).0, 1);
    }
}

#[test]
fn without_privileges_foreign_owners_are_left_out_and_no_setuid_survives() {
    if !as_nobody("metadata::without_privileges_foreign_owners_are_left_out_and_no_setuid_survives") {
        return;
    }
    let tmp = tempfile::tempdir().unwrap();
    let to = Destination::open(tmp.path(), archive()).unwrap();
    let owner = |id| Owner { id, name: Vec::new() };
    let wanted = Metadata { user: owner(0), group: owner(0), ..metadata(0o6755, 5) };
    let staged = to.stage_file(0).unwrap();
    to.commit(staged, path(&["f"]), &wanted, Overwrite::Never).unwrap();
    let placed = only(to.flush());
    assert!(placed.lacking.is_none() && placed.outcome.is_ok(), "{placed:?}");
    assert_eq!(fs::metadata(tmp.path().join("f")).unwrap().mode() & 0o7777, 0o755);
    let there = to.look(&path(&["f"]), &everything()).unwrap().unwrap().entry;
    let left = differences(&there.kind, &wanted, &there.metadata, &Policy::archive());
    assert!(!left.any(), "{left:?}");
    let device = Kind::CharDevice { major: 1, minor: 3 };
    let refused = to.nodes().special(&path(&["c"]), &device, &wanted, Overwrite::Never);
    assert!(matches!(refused, Err(FileError::Permission { .. })), "{refused:?}");
}

#[test]
fn without_privileges_a_read_only_file_gets_its_attributes() {
    if !as_nobody("metadata::without_privileges_a_read_only_file_gets_its_attributes") {
        return;
    }
    let tmp = tempfile::tempdir().unwrap();
    let file = tmp.path().join("f");
    fs::write(&file, b"").unwrap();
    if !set_attribute(&file, "user.old", b"") {
        return;
    }
    fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).unwrap();
    let to = Destination::open(tmp.path(), archive()).unwrap();
    let seen = to.look(&path(&["f"]), &everything()).unwrap().unwrap();
    let xattrs = vec![
        Xattr { name: b"security.tow".to_vec(), value: b"not ours to set".to_vec() },
        Xattr { name: b"user.new".to_vec(), value: b"x".to_vec() },
    ];
    let wanted = Metadata { xattrs, ..seen.entry.metadata.clone() };
    to.set_metadata(&path(&["f"]), &seen.stamp, &wanted).unwrap();
    assert_eq!((attribute(&file, "user.old"), attribute(&file, "user.new")), (None, Some(b"x".to_vec())));
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o444);
}

#[test]
fn a_file_system_without_acls_is_named_and_the_content_is_kept() {
    let tmp = tempfile::tempdir().unwrap();
    let Some(_mounted) = Mounted::new("ramfs", "mode=755", tmp.path()) else { return };
    let to = Destination::open(tmp.path(), archive()).unwrap();
    let xattrs = vec![Xattr { name: ACCESS.into(), value: acl() }];
    let wanted = Metadata { xattrs, ..metadata(0o660, 77) };
    let staged = to.stage_file(3).unwrap();
    staged.write_piece(0, b"abc", false).unwrap();
    to.commit(staged, path(&["f"]), &wanted, Overwrite::Never).unwrap();
    let placed = only(to.flush());
    assert!(placed.outcome.is_ok(), "{placed:?}");
    assert!(matches!(placed.lacking, Some(FileError::Unsupported { .. })), "{placed:?}");
    let is = fs::metadata(tmp.path().join("f")).unwrap();
    assert_eq!((is.mode() & 0o7777, is.mtime()), (0o660, 77));
    to.make_dir(&path(&["d"])).unwrap();
    let finished = to.finish_dir(&path(&["d"]), &wanted);
    assert!(matches!(finished, Err(FileError::Unsupported { .. })), "{finished:?}");
    assert_eq!(fs::metadata(tmp.path().join("d")).unwrap().mode() & 0o7777, 0o660);
    let none = Metadata { xattrs: Vec::new(), ..wanted };
    to.finish_dir(&path(&["d"]), &none).unwrap();
    assert!(look(&tmp.path().join("f"), &everything()).unwrap().incomplete.is_none());
}

/// Attributes that new files get from their directory are not those their source had.
#[test]
fn a_new_file_has_none_of_the_acl_that_its_directory_hands_on() {
    let tmp = tempfile::tempdir().unwrap();
    if !set_attribute(tmp.path(), DEFAULT, &acl()) {
        return;
    }
    let acls = |policy: Policy, name: &str| {
        let to = open(tmp.path(), policy);
        let staged = to.stage_content_for(&path(&[name]), b"abc", false).unwrap();
        to.commit(staged, path(&[name]), &metadata(0o640, 5), Overwrite::Never).unwrap();
        stamp(to.flush());
        to.staging().remove().unwrap();
        attribute(&tmp.path().join(name), ACCESS)
    };
    assert_eq!(acls(Policy::archive(), "f"), None);
    assert!(acls(Policy { acls: false, ..Policy::default() }, "g").is_some(), "they are not of interest");
}

#[test]
fn times_of_directories_and_links_can_be_left_out() {
    let tmp = tempfile::tempdir().unwrap();
    let to = open(tmp.path(), Policy { dir_times: false, link_times: false, ..Policy::default() });
    to.make_dir(&path(&["d"])).unwrap();
    to.finish_dir(&path(&["d"]), &metadata(0o755, 77)).unwrap();
    to.nodes().symlink(&path(&["l"]), b"t", &metadata(0o777, 77), Overwrite::Never).unwrap();
    for name in ["d", "l"] {
        assert_ne!(fs::symlink_metadata(tmp.path().join(name)).unwrap().mtime(), 77);
    }
}

#[test]
fn without_modes_what_is_replaced_keeps_its_own() {
    let tmp = tempfile::tempdir().unwrap();
    fs::write(tmp.path().join("f"), b"").unwrap();
    fs::set_permissions(tmp.path().join("f"), fs::Permissions::from_mode(0o4701)).unwrap();
    fs::create_dir(tmp.path().join("d")).unwrap();
    fs::set_permissions(tmp.path().join("d"), fs::Permissions::from_mode(0o511)).unwrap();
    let to = open(tmp.path(), Policy { modes: false, ..Policy::default() });
    for name in ["f", "g"] {
        let staged = to.stage_file(0).unwrap();
        to.commit(staged, path(&[name]), &metadata(0o6777, 5), Overwrite::Replace).unwrap();
    }
    assert!(to.flush().iter().all(|placed| placed.outcome.is_ok()));
    for name in ["d", "e"] {
        to.make_dir(&path(&[name])).unwrap();
        assert_eq!(fs::metadata(tmp.path().join(name)).unwrap().mode() & 0o700, 0o700);
        to.finish_dir(&path(&[name]), &metadata(0o2777, 5)).unwrap();
    }
    let mode = |name: &str| fs::metadata(tmp.path().join(name)).unwrap().mode() & 0o7777;
    assert_eq!((mode("f"), mode("d")), (0o4701, 0o511));
    assert_eq!((mode("g"), mode("e")), (0o755, 0o755), "with the usual umask of 022");
}

#[test]
fn metadata_goes_to_no_other_inode_than_the_one_that_was_seen() {
    let tmp = tempfile::tempdir().unwrap();
    let outside = tmp.path().join("outside");
    let root = tmp.path().join("dst");
    fs::create_dir(&root).unwrap();
    for file in [&outside, &root.join("f")] {
        fs::write(file, b"").unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
    }
    let to = Destination::open(&root, archive()).unwrap();
    let seen = to.stamp_at(&path(&["f"])).unwrap();
    fs::remove_file(root.join("f")).unwrap();
    symlink(&outside, root.join("f")).unwrap();
    let refused = to.set_metadata(&path(&["f"]), &seen, &metadata(0o777, 5));
    assert!(matches!(refused, Err(FileError::Changed { .. })), "{refused:?}");
    fs::remove_file(root.join("f")).unwrap();
    fs::hard_link(&outside, root.join("f")).unwrap();
    let refused = to.set_metadata(&path(&["f"]), &seen, &metadata(0o777, 5));
    assert!(matches!(refused, Err(FileError::Changed { .. })), "{refused:?}");
    assert_eq!(fs::metadata(&outside).unwrap().mode() & 0o7777, 0o600);
}

#[test]
fn a_link_has_its_own_owner() {
    if !is_root() {
        println!("skipped: needs root");
        return;
    }
    let tmp = tempfile::tempdir().unwrap();
    fs::write(tmp.path().join("aim"), b"").unwrap();
    chown(tmp.path().join("aim"), Some(7), Some(7)).unwrap();
    symlink("aim", tmp.path().join("l")).unwrap();
    let to = Destination::open(tmp.path(), archive()).unwrap();
    let seen = to.stamp_at(&path(&["l"])).unwrap();
    let owner = |id| Owner { id, name: Vec::new() };
    let wanted = Metadata { user: owner(99), group: owner(99), ..metadata(0o777, 5) };
    to.set_metadata(&path(&["l"]), &seen, &wanted).unwrap();
    let is = |name: &str| fs::symlink_metadata(tmp.path().join(name)).unwrap();
    assert_eq!((is("l").uid(), is("l").gid(), is("l").mtime()), (99, 99, 5));
    assert_eq!((is("aim").uid(), is("aim").gid()), (7, 7));
}
