//! Entries of a destination: looked at, listed, kept accessible meanwhile, moved away.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use towpath_content::tree::Kind;
use towpath_files::{Destination, FileError, Made, ScanOptions, WriteOptions};

use crate::support::{as_nobody, ask, commit, destination, metadata, names_in, path, stamp};

fn mode(path: &std::path::Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn what_is_there_is_looked_at_without_following() {
    let (tmp, to) = destination();
    let root = tmp.path().join("dst");
    fs::write(tmp.path().join("outside"), b"secret").unwrap();
    symlink("../outside", root.join("l")).unwrap();
    symlink("..", root.join("up")).unwrap();
    fs::write(root.join("f"), b"abc").unwrap();
    let options = ScanOptions { follow_links: true, ..Default::default() };
    let look = |names: &[&str]| to.look(&path(names), &options);
    assert!(matches!(look(&["l"]).unwrap().unwrap().entry.kind, Kind::Symlink { .. }));
    assert!(matches!(look(&["f"]).unwrap().unwrap().entry.kind, Kind::File { size: 3, .. }));
    assert!(look(&["none"]).unwrap().is_none());
    assert!(look(&["none", "x"]).unwrap().is_none());
    assert!(matches!(look(&["up", "outside"]), Err(FileError::OutsideTree { .. })));
    assert!(matches!(look(&["f", "x"]), Err(FileError::NotADirectory { .. })));
    assert_eq!(look(&[]).unwrap().unwrap().entry.kind, Kind::Directory);
}

#[test]
fn names_come_sorted_whatever_the_budget_and_without_the_staging() {
    let (tmp, to) = destination();
    let root = tmp.path().join("dst");
    to.staging().name().unwrap();
    let mut wanted: Vec<String> = (0..500).map(|i| format!("{i}")).collect();
    wanted.iter().for_each(|name| fs::write(root.join(name), b"").unwrap());
    wanted.sort();
    for names_budget in [0, 1 << 20] {
        let options =
            ScanOptions { names_budget, scratch: tmp.path().to_path_buf(), ..ScanOptions::default() };
        let mut names = to.names(&path(&[]), &options).unwrap();
        let got = std::iter::from_fn(|| names.next().unwrap());
        assert_eq!(got.map(|name| String::from_utf8(name).unwrap()).collect::<Vec<_>>(), wanted);
    }
    assert!(to.names(&path(&["1"]), &ScanOptions::default()).is_err());
}

#[test]
fn a_closed_directory_is_written_into_and_keeps_its_mode() {
    if !as_nobody("present::a_closed_directory_is_written_into_and_keeps_its_mode") {
        return;
    }
    let tmp = tempfile::tempdir().unwrap();
    let root = tmp.path().join("dst");
    for dir in ["read-only", "none"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    let close = |path: &std::path::Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    close(&root.join("read-only"), 0o2555);
    close(&root.join("none"), 0);
    close(&root, 0o555);
    let to = Destination::open(&root, WriteOptions::default()).unwrap();
    assert_eq!(to.make_dir(&path(&[])).unwrap(), Made::Existing);
    fs::create_dir(root.join("gone")).unwrap();
    close(&root.join("gone"), 0o555);
    to.make_dir(&path(&["gone"])).unwrap();
    to.removal().remove(&path(&["gone"]), &mut ask(|_, _| true)).unwrap();
    to.make_dir(&path(&["gone"])).unwrap();
    to.keep_dir(&path(&["gone"])).unwrap();
    assert_eq!(mode(&root.join("gone")), 0o700, "what was removed has no mode to give back");
    for dir in ["read-only", "none"] {
        // Twice: what it had before is not forgotten.
        to.make_dir(&path(&[dir])).unwrap();
        assert_eq!(to.make_dir(&path(&[dir])).unwrap(), Made::Existing);
        commit(&to, &[dir, "f"], b"");
        assert!(matches!(to.keep_dir(&path(&[dir])), Err(FileError::Busy { .. })));
        stamp(to.flush());
        to.keep_dir(&path(&[dir])).unwrap();
    }
    to.staging().remove().unwrap();
    to.keep_dir(&path(&[])).unwrap();
    assert_eq!((mode(&root), mode(&root.join("read-only"))), (0o555, 0o2555));
    assert_eq!(mode(&root.join("none")), 0);
    close(&root, 0o755);
    close(&root.join("none"), 0o755);
    assert_eq!(names_in(&root.join("none")), ["f"]);
}

#[test]
fn a_backup_takes_the_old_one_away_and_makes_directories_like_the_originals() {
    let (tmp, to) = destination();
    let root = tmp.path().join("dst");
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::write(root.join("a/b/f"), b"old").unwrap();
    fs::set_permissions(root.join("a"), fs::Permissions::from_mode(0o711)).unwrap();
    fs::set_permissions(root.join("a/b"), fs::Permissions::from_mode(0o570)).unwrap();
    to.backups().rename(&path(&["a", "b", "f"]), &path(&["old", "a", "b", "f~"])).unwrap();
    assert_eq!(fs::read(root.join("old/a/b/f~")).unwrap(), b"old");
    assert_eq!((mode(&root.join("old/a")), mode(&root.join("old/a/b"))), (0o711, 0o770));
    assert!(!root.join("a/b/f").exists());

    fs::write(root.join("a/b/f"), b"newer").unwrap();
    to.backups().rename(&path(&["a", "b", "f"]), &path(&["old", "a", "b", "f~"])).unwrap();
    assert_eq!(fs::read(root.join("old/a/b/f~")).unwrap(), b"newer");
    fs::write(root.join("f"), b"").unwrap();
    let refused = to.backups().rename(&path(&["f"]), &path(&["old", "a"]));
    assert!(matches!(refused, Err(FileError::Exists { .. })), "{refused:?}");
    let gone = to.backups().rename(&path(&["gone"]), &path(&["gone~"]));
    assert!(matches!(gone, Err(FileError::Vanished { .. })), "{gone:?}");
}

#[test]
fn a_backup_onto_another_name_of_the_same_file_leaves_one() {
    let (tmp, to) = destination();
    let root = tmp.path().join("dst");
    fs::write(root.join("f"), b"").unwrap();
    fs::hard_link(root.join("f"), root.join("f~")).unwrap();
    to.backups().rename(&path(&["f"]), &path(&["f~"])).unwrap();
    assert_eq!(names_in(&root), ["f~"]);
    assert!(to.backups().rename(&path(&["f~"]), &path(&["f~"])).is_err());
    assert_eq!(names_in(&root), ["f~"]);
}

#[test]
fn a_directory_is_backed_up_whole() {
    let (tmp, to) = destination();
    let root = tmp.path().join("dst");
    to.make_dir(&path(&["d"])).unwrap();
    fs::write(root.join("d/f"), b"").unwrap();
    to.backups().rename(&path(&["d"]), &path(&["d~"])).unwrap();
    to.make_dir(&path(&["d"])).unwrap();
    commit(&to, &["d", "g"], b"");
    stamp(to.flush());
    to.finish_dir(&path(&["d"]), &metadata(0o755, 5)).unwrap();
    assert_eq!((names_in(&root.join("d")), names_in(&root.join("d~"))), (vec!["g".into()], vec!["f".into()]));
    assert!(to.backups().rename(&path(&["d"]), &path(&["d", "x"])).is_err());
}

#[test]
fn an_ordinary_file_system_takes_no_two_names_for_one() {
    let (tmp, to) = destination();
    fs::write(tmp.path().join("dst/a"), b"").unwrap();
    fs::hard_link(tmp.path().join("dst/a"), tmp.path().join("dst/A")).unwrap();
    assert!(!to.folding().folds(&path(&["a"])).unwrap());
    assert_eq!(to.folding().actual_name(&path(&["a"])).unwrap().unwrap(), b"a");
    assert_eq!(to.folding().actual_name(&path(&["A"])).unwrap().unwrap(), b"A");
    assert_eq!(to.folding().actual_name(&path(&["b"])).unwrap(), None);
    assert!(names_in(&tmp.path().join("dst").join(to.staging().name().unwrap())).is_empty());
}

#[test]
fn a_folding_file_system_is_found_out_and_tells_the_name_it_has() {
    let tmp = tempfile::tempdir().unwrap();
    let Some(_mounted) = folding(tmp.path()) else {
        println!("skipped: this kernel has no file system that folds names");
        return;
    };
    fs::write(tmp.path().join("name"), b"").unwrap();
    let to = Destination::open(tmp.path(), WriteOptions::default()).unwrap();
    assert!(to.folding().folds(&path(&["NAME"])).unwrap());
    assert!(to.look(&path(&["NAME"]), &ScanOptions::default()).unwrap().is_some());
    assert_eq!(to.folding().actual_name(&path(&["NAME"])).unwrap().unwrap(), b"name");
}

/// Mounts one that folds case: tmpfs with a Unicode table, or an image of FAT.
fn folding(at: &std::path::Path) -> Option<crate::support::Mounted> {
    use crate::support::{Mounted, is_root, run};
    if !is_root() {
        return None;
    }
    if let Some(mounted) = Mounted::new("tmpfs", "size=1m,casefold", at) {
        let made = run(std::process::Command::new("chattr").arg("+F").arg(at));
        return made.is_ok_and(|made| made.status.success()).then_some(mounted);
    }
    let image = at.with_extension("image");
    let made = run(std::process::Command::new("mkfs.vfat").args(["-C", "-v"]).arg(&image).arg("1440"));
    made.ok().filter(|made| made.status.success())?;
    let mut mount = std::process::Command::new("mount");
    mount.args(["-t", "vfat", "-o", "loop"]).arg(&image).arg(at);
    run(&mut mount).is_ok_and(|run| run.status.success()).then(|| Mounted::already(at))
}
