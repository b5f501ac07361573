//! The staging directory: private, kept by an interruption, adopted on resume.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use towpath_content::tree::Metadata;
use towpath_files::{Destination, FileError, Overwrite, WriteOptions};

use crate::support::{commit, descriptors_below, destination, metadata, names_in, path, quiet, stamp};

#[test]
fn staging_is_private_and_its_names_cannot_be_guessed() {
    let (tmp, to) = destination();
    let name = to.staging().name().unwrap();
    let dir = tmp.path().join("dst").join(&name);
    assert_eq!(fs::metadata(&dir).unwrap().mode() & 0o7777, 0o700);
    let digits = name.strip_prefix(".tow-").unwrap();
    assert!(digits.len() == 16 && u64::from_str_radix(digits, 16).is_ok(), "{name}");
    let staged = [to.stage_file(1).unwrap(), to.stage_file(1).unwrap()];
    assert_ne!(staged[0].name(), staged[1].name());
    for file in &staged {
        assert_eq!(fs::metadata(dir.join(file.name())).unwrap().mode() & 0o7777, 0o600);
    }
}

#[test]
fn content_that_is_at_hand_is_staged_in_one_go() {
    let (tmp, to) = destination();
    let end = [&b"abc"[..], &[0; 300 << 10]].concat();
    for (name, bytes, sparse) in
        [("little", &b"abc"[..], false), ("empty", b"", false), ("holes", &end, true)]
    {
        let staged = to.stage_content_for(&path(&[name]), bytes, sparse).unwrap();
        let temp = tmp.path().join("dst").join(staged.staging()).join(staged.name());
        assert_eq!(fs::metadata(temp).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(staged.body().size(), bytes.len() as u64);
        to.commit(staged, path(&[name]), &metadata(0o640, 5), Overwrite::Never).unwrap();
    }
    assert!(to.flush().into_iter().all(|placed| placed.outcome.is_ok()));
    to.staging().remove().unwrap();
    let root = tmp.path().join("dst");
    assert_eq!(fs::read(root.join("little")).unwrap(), b"abc");
    assert_eq!(fs::read(root.join("empty")).unwrap(), b"");
    assert_eq!(fs::read(root.join("holes")).unwrap(), end);
    let is = fs::metadata(root.join("holes")).unwrap();
    assert_eq!((is.mode() & 0o7777, is.mtime()), (0o640, 5));
}

#[test]
fn the_staging_directory_is_not_part_of_the_tree() {
    let (_tmp, to) = destination();
    let name = to.staging().name().unwrap();
    let merging = |names: &[&str]| to.make_dir(&path(names));
    assert!(matches!(merging(&[&name]), Err(FileError::OutsideTree { .. })));
    assert!(matches!(merging(&[&name, "x"]), Err(FileError::OutsideTree { .. })));
}

#[test]
fn an_interrupted_tree_is_found_and_gone_on_with() {
    let (tmp, to) = destination();
    let root = tmp.path().join("dst");
    let kept = to.stage_file(1 << 20).unwrap();
    kept.write_piece(512 << 10, b"half", false).unwrap();
    let (kept_name, staging) = (kept.name().to_owned(), to.staging().name().unwrap());
    let other = to.stage_file(1).unwrap();
    commit(&to, &["never-flushed"], b"x");
    assert!(to.staging().find_stale().unwrap().is_empty());
    let contender = Destination::open(&root, WriteOptions::default()).unwrap();
    let early = contender.staging().adopt(&staging, &|_| true);
    assert!(matches!(early, Err(FileError::Busy { .. })), "{early:?}");
    let quiet = quiet();
    drop((kept, other, to, contender));

    let to = Destination::open(&root, WriteOptions::default()).unwrap();
    assert_eq!(to.staging().find_stale().unwrap(), [staging.as_str()]);
    to.staging().adopt(&staging, &|name| name == kept_name).unwrap();
    assert_eq!(names_in(&root.join(&staging)), [kept_name.as_str()]);
    let again = to.staging().reopen(&kept_name).unwrap();
    drop(quiet);
    assert_eq!(again.body().size(), 1 << 20);
    let ranges: Vec<_> = again.data_ranges().map(Result::unwrap).collect();
    assert!(matches!(&ranges[..], [one] if one.start == 512 << 10 && one.end < 1 << 20), "{ranges:?}");
    to.commit(again, path(&["f"]), &metadata(0o444, 0), Overwrite::Never).unwrap();
    assert_eq!(stamp(to.flush()).size, 1 << 20);
    to.staging().remove().unwrap();
    assert_eq!(names_in(&root), ["f"]);
}

#[test]
fn a_committed_read_only_file_is_still_reopened() {
    let (tmp, to) = destination();
    let staged = to.stage_file(3).unwrap();
    let (name, staging) = (staged.name().to_owned(), to.staging().name().unwrap());
    to.commit(staged, path(&["f"]), &metadata(0o444, 0), Overwrite::Never).unwrap();
    let _quiet = quiet();
    drop(to);
    let to = Destination::open(&tmp.path().join("dst"), WriteOptions::default()).unwrap();
    to.staging().adopt(&staging, &|_| true).unwrap();
    to.staging().reopen(&name).unwrap().write_piece(0, b"abc", false).unwrap();
}

#[test]
fn only_an_own_private_directory_is_adopted() {
    let (tmp, to) = destination();
    let root = tmp.path().join("dst");
    let outside = tmp.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("precious"), b"").unwrap();
    symlink(&outside, root.join(".tow-0123456789abcdef")).unwrap();
    fs::create_dir(root.join(".tow-aaaaaaaaaaaaaaaa")).unwrap();
    fs::set_permissions(root.join(".tow-aaaaaaaaaaaaaaaa"), fs::Permissions::from_mode(0o777)).unwrap();
    fs::create_dir(root.join("plain")).unwrap();
    fs::set_permissions(root.join("plain"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(root.join("plain/precious"), b"").unwrap();
    fs::write(tmp.path().join("precious"), b"").unwrap();
    for bad in [".tow-0123456789abcdef", ".tow-aaaaaaaaaaaaaaaa", "plain", "..", "../outside", ".tow-.."] {
        assert!(to.staging().adopt(bad, &|_| false).is_err(), "{bad}");
    }
    assert!(to.staging().find_stale().unwrap().is_empty());
    assert_eq!(names_in(&outside), ["precious"]);
    assert_eq!(names_in(&root.join("plain")), ["precious"]);
    assert!(tmp.path().join("precious").exists());
}

#[test]
fn only_a_plain_temporary_file_is_reopened() {
    let (tmp, to) = destination();
    let staging = tmp.path().join("dst").join(to.staging().name().unwrap());
    fs::write(tmp.path().join("outside"), b"precious").unwrap();
    symlink(tmp.path().join("outside"), staging.join("link")).unwrap();
    fs::hard_link(tmp.path().join("outside"), staging.join("hard")).unwrap();
    fs::create_dir(staging.join("dir")).unwrap();
    for bad in ["link", "hard", "dir", "missing", "..", "../../outside", ""] {
        assert!(to.staging().reopen(bad).is_err(), "{bad}");
    }
}

#[test]
fn dropping_keeps_and_discarding_removes() {
    let (tmp, to) = destination();
    let staging = tmp.path().join("dst").join(to.staging().name().unwrap());
    let kept = to.stage_file(1).unwrap();
    let name = kept.name().to_owned();
    drop(kept);
    to.stage_file(1).unwrap().discard().unwrap();
    assert_eq!(names_in(&staging), [name]);
}

#[test]
fn a_size_the_disk_cannot_have_leaves_nothing_behind() {
    let (tmp, to) = destination();
    let staging = tmp.path().join("dst").join(to.staging().name().unwrap());
    assert!(to.stage_file(u64::MAX).is_err());
    assert!(names_in(&staging).is_empty());
}

#[test]
fn thousands_of_waiting_files_hold_no_descriptors() {
    let (tmp, to) = destination();
    for i in 0..1500 {
        let staged = to.stage_file(0).unwrap();
        let at = path(&[&i.to_string()]);
        to.commit(staged, at, &Metadata::default(), Overwrite::Never).unwrap();
    }
    assert!(descriptors_below(tmp.path()) < 10);
    assert!(to.flush().into_iter().all(|placed| placed.outcome.is_ok()));
}
