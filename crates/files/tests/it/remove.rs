//! Removing what is there.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use towpath_files::{Destination, FileError, WriteOptions};

use crate::support::{Mounted, as_nobody, ask, descriptors_below, destination, names_in, nest, path};

#[test]
fn a_directory_goes_with_all_in_it_and_each_entry_is_asked_about() {
    let (tmp, to) = destination();
    let root = tmp.path().join("dst");
    fs::create_dir_all(root.join("d/a/b")).unwrap();
    fs::create_dir(tmp.path().join("outside")).unwrap();
    fs::write(tmp.path().join("outside/precious"), b"").unwrap();
    symlink(tmp.path().join("outside"), root.join("d/a/link")).unwrap();
    fs::write(root.join("d/f"), b"").unwrap();
    let mut asked = Vec::new();
    let removed = to.removal().remove(
        &path(&["d"]),
        &mut ask(|path, is_dir| {
            asked.push(format!("{path}{}", if is_dir { "/" } else { "" }));
            true
        }),
    );
    let removed = removed.unwrap();
    assert_eq!((removed.entries, removed.kept, removed.failures.len()), (5, false, 0));
    assert_eq!(asked, ["d/", "d/a/", "d/a/b/", "d/a/link", "d/f"]);
    assert!(names_in(&root).is_empty());
    assert_eq!(names_in(&tmp.path().join("outside")), ["precious"]);
    let gone = to.removal().remove(&path(&["d"]), &mut ask(|_, _| true));
    assert!(matches!(gone, Err(FileError::Vanished { .. })), "{gone:?}");
    assert!(to.make_dir(&path(&["d"])).is_ok(), "a directory that was removed is made anew");
    fs::write(root.join("d/new"), b"").unwrap();
    assert!(to.look(&path(&["d", "new"]), &Default::default()).unwrap().is_some());
}

#[test]
fn what_is_kept_keeps_its_parents_and_nothing_below_it_is_asked_about() {
    let (tmp, to) = destination();
    let root = tmp.path().join("dst");
    fs::create_dir_all(root.join("d/keep/inner")).unwrap();
    fs::create_dir_all(root.join("d/go")).unwrap();
    fs::write(root.join("d/f"), b"").unwrap();
    let removed = to.removal().remove(
        &path(&["d"]),
        &mut ask(|path, _| {
            assert!(!path.as_bytes().ends_with(b"inner"));
            !path.as_bytes().ends_with(b"keep")
        }),
    );
    let removed = removed.unwrap();
    assert_eq!((removed.entries, removed.kept), (2, true));
    assert!(removed.failures.is_empty());
    assert_eq!(names_in(&root.join("d")), ["keep"]);
    assert!(root.join("d/keep/inner").exists());
}

#[test]
fn many_names_and_deep_trees_are_removed_with_few_descriptors() {
    let (tmp, to) = destination();
    let root = tmp.path().join("dst");
    fs::create_dir(root.join("d")).unwrap();
    nest(&root.join("d"), 300);
    (0..3000).for_each(|i| fs::write(root.join(format!("d/{i}")), b"").unwrap());
    let mut most = 0;
    let removed = to.removal().remove(
        &path(&["d"]),
        &mut ask(|path, is_dir| {
            if is_dir && path.depth() % 50 == 0 {
                most = most.max(descriptors_below(tmp.path()));
            }
            true
        }),
    );
    assert_eq!(removed.unwrap().entries, 3000 + 301 * 2 + 301);
    assert!(names_in(&root).is_empty());
    assert!(most > 0 && most < 90, "{most}");
}

#[test]
fn directories_without_leave_are_emptied_by_their_owner() {
    if !as_nobody("remove::directories_without_leave_are_emptied_by_their_owner") {
        return;
    }
    let (tmp, to) = destination();
    let root = tmp.path().join("dst");
    fs::create_dir_all(root.join("d/none/in")).unwrap();
    fs::create_dir_all(root.join("d/kept")).unwrap();
    fs::write(root.join("d/kept/f"), b"").unwrap();
    let close = |name: &str, mode| {
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    close("d/none", 0);
    close("d/kept", 0o500);
    close("d", 0o500);
    let removed =
        to.removal().remove(&path(&["d"]), &mut ask(|path, _| !path.as_bytes().ends_with(b"f"))).unwrap();
    assert_eq!((removed.entries, removed.kept), (2, true), "{:?}", removed.failures);
    assert_eq!(fs::metadata(root.join("d/kept")).unwrap().mode() & 0o777, 0o500);
    assert_eq!(fs::metadata(root.join("d")).unwrap().mode() & 0o777, 0o500);
    assert!(!to.removal().remove(&path(&["d"]), &mut ask(|_, _| true)).unwrap().kept);
}

#[test]
fn what_is_mounted_there_stays() {
    let (tmp, to) = destination();
    let root = tmp.path().join("dst");
    fs::create_dir_all(root.join("d/mnt")).unwrap();
    fs::write(root.join("d/f"), b"").unwrap();
    let Some(_mounted) = Mounted::new("tmpfs", "size=1m", &root.join("d/mnt")) else { return };
    fs::write(root.join("d/mnt/precious"), b"").unwrap();
    for names in [&["d"][..], &["d", "mnt"]] {
        let removed = to.removal().remove(&path(names), &mut ask(|_, _| true)).unwrap();
        assert!(removed.kept);
        assert!(matches!(removed.failures[..], [FileError::Busy { .. }]), "{:?}", removed.failures);
    }
    assert_eq!(names_in(&root.join("d")), ["mnt"]);
    assert_eq!(names_in(&root.join("d/mnt")), ["precious"]);
}

#[test]
fn the_root_and_the_staging_directory_are_not_removed() {
    let (tmp, to) = destination();
    let staging = to.staging().name().unwrap();
    assert!(to.removal().remove(&path(&[]), &mut ask(|_, _| true)).is_err());
    assert!(to.removal().remove(&path(&[&staging]), &mut ask(|_, _| true)).is_err());
    let other = Destination::open(tmp.path(), WriteOptions::default()).unwrap();
    assert!(other.removal().remove(&path(&["dst", "gone"]), &mut ask(|_, _| true)).is_err());
    assert_eq!(names_in(&tmp.path().join("dst")), [staging]);
}
