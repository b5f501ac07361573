//! Hard links, special files and replacing.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};

use towpath_content::tree::Kind;
use towpath_files::{FileError, Overwrite};

use crate::support::{commit, destination, metadata, names_in, path, stamp};

#[test]
fn a_file_gets_a_further_name() {
    let (tmp, to) = destination();
    let root = tmp.path().join("dst");
    commit(&to, &["a"], b"bytes");
    let seen = stamp(to.flush());
    to.nodes().hard_link(&path(&["a"]), &seen, &path(&["b"]), Overwrite::Never).unwrap();
    fs::write(root.join("c"), b"other").unwrap();
    let taken = to.nodes().hard_link(&path(&["a"]), &seen, &path(&["c"]), Overwrite::Never);
    assert!(matches!(taken, Err(FileError::Exists { .. })), "{taken:?}");
    to.nodes().hard_link(&path(&["a"]), &seen, &path(&["c"]), Overwrite::Replace).unwrap();
    let again = to.nodes().hard_link(&path(&["a"]), &seen, &path(&["c"]), Overwrite::Replace).unwrap();
    assert!(again.same_file(&seen));
    for name in ["a", "b", "c"] {
        assert_eq!(fs::metadata(root.join(name)).unwrap().ino(), seen.inode);
    }
    assert_eq!(fs::metadata(root.join("a")).unwrap().nlink(), 3);
    assert!(names_in(&root.join(to.staging().name().unwrap())).is_empty());
}

#[test]
fn a_link_that_took_the_place_of_the_first_name_gets_no_further_one() {
    let (tmp, to) = destination();
    let root = tmp.path().join("dst");
    fs::write(tmp.path().join("outside"), b"secret").unwrap();
    commit(&to, &["a"], b"bytes");
    let seen = stamp(to.flush());
    fs::remove_file(root.join("a")).unwrap();
    symlink(tmp.path().join("outside"), root.join("a")).unwrap();
    let linked = to.nodes().hard_link(&path(&["a"]), &seen, &path(&["b"]), Overwrite::Never);
    assert!(matches!(linked, Err(FileError::Changed { .. })), "{linked:?}");
    assert!(!root.join("b").exists());
    assert_eq!(fs::metadata(tmp.path().join("outside")).unwrap().nlink(), 1);
    assert!(names_in(&root.join(to.staging().name().unwrap())).is_empty());
}

#[test]
fn links_have_further_names_too() {
    let (tmp, to) = destination();
    let made = to.nodes().symlink(&path(&["l"]), b"t", &metadata(0o777, 5), Overwrite::Never).unwrap();
    to.nodes().hard_link(&path(&["l"]), &made.stamp, &path(&["m"]), Overwrite::Never).unwrap();
    let is = fs::symlink_metadata(tmp.path().join("dst/m")).unwrap();
    assert_eq!((is.ino(), is.nlink()), (made.stamp.inode, 2));
}

#[test]
fn pipes_and_sockets_are_made_with_their_metadata() {
    let (tmp, to) = destination();
    for (name, kind) in [("p", Kind::Fifo), ("s", Kind::Socket)] {
        to.nodes().special(&path(&[name]), &kind, &metadata(0o640, 77), Overwrite::Never).unwrap();
        let is = fs::metadata(tmp.path().join("dst").join(name)).unwrap();
        assert_eq!((is.mode() & 0o7777, is.mtime()), (0o640, 77));
        assert_eq!((is.file_type().is_fifo(), is.file_type().is_socket()), (name == "p", name == "s"));
        let again = to.nodes().special(&path(&[name]), &kind, &metadata(0o640, 77), Overwrite::Replace);
        assert!(matches!(again, Err(FileError::Exists { .. })), "{again:?}");
    }
    let refused = to.nodes().special(&path(&["d"]), &Kind::Directory, &metadata(0o640, 77), Overwrite::Never);
    assert!(matches!(refused, Err(FileError::Io { .. })), "{refused:?}");
}

#[test]
fn one_kind_replaces_another_but_never_a_directory() {
    let (tmp, to) = destination();
    let (root, at) = (tmp.path().join("dst"), path(&["x"]));
    let (plain, any) = (metadata(0o640, 5), Overwrite::ReplaceAny);
    to.nodes().special(&at, &Kind::Fifo, &plain, any).unwrap();
    let staged = to.stage_file(0).unwrap();
    to.commit(staged, at.clone(), &plain, any).unwrap();
    stamp(to.flush());
    assert!(fs::metadata(root.join("x")).unwrap().is_file());
    to.nodes().symlink(&at, b"t", &plain, any).unwrap();
    to.nodes().special(&at, &Kind::Socket, &plain, any).unwrap();
    assert!(fs::metadata(root.join("x")).unwrap().file_type().is_socket());
    fs::create_dir(root.join("d")).unwrap();
    let refused = to.nodes().special(&path(&["d"]), &Kind::Fifo, &plain, any);
    assert!(matches!(refused, Err(FileError::Exists { .. })), "{refused:?}");
    assert!(names_in(&root.join(to.staging().name().unwrap())).is_empty());
}
