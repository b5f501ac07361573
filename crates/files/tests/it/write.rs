//! Writing a tree.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use towpath_content::tree::Metadata;
use towpath_files::{Destination, FileError, FlushLimits, Made, Overwrite, RelPath, WriteOptions};

use crate::support::{commit, destination, metadata, names_in, only, path, stamp};

#[test]
fn a_tree_is_written_with_its_modes_and_times() {
    let (tmp, to) = destination();
    let root = tmp.path().join("dst");
    assert_eq!(to.make_dir(&RelPath::root()).unwrap(), Made::New);
    assert_eq!(to.make_dir(&path(&["d"])).unwrap(), Made::New);
    assert_eq!(fs::metadata(root.join("d")).unwrap().mode() & 0o7777, 0o700);
    assert!(commit(&to, &["d", "f"], b"content").is_empty());
    to.nodes()
        .symlink(&path(&["d", "l"]), b"../..//anywhere", &metadata(0o777, 77), Overwrite::Never)
        .unwrap();
    let placed = only(to.flush());
    to.staging().remove().unwrap();
    to.finish_dir(&path(&["d"]), &metadata(0o750, 5)).unwrap();
    to.finish_dir(&RelPath::root(), &metadata(0o2755, 6)).unwrap();
    to.sync().unwrap();

    let looks = |at: &str| {
        let is = fs::symlink_metadata(root.join(at)).unwrap();
        (is.mode() & 0o7777, is.mtime(), is.mtime_nsec())
    };
    assert_eq!(looks("d/f"), (0o640, 1_000_000_000, 123_456_789));
    assert_eq!(looks("d"), (0o750, 5, 123_456_789));
    assert_eq!(looks(""), (0o755, 6, 123_456_789));
    assert_eq!(looks("d/l").1, 77);
    assert_eq!(fs::read_link(root.join("d/l")).unwrap(), Path::new("../..//anywhere"));
    assert_eq!(fs::read(root.join("d/f")).unwrap(), b"content");
    assert_eq!(names_in(&root), ["d"]);
    let is = fs::metadata(root.join("d/f")).unwrap();
    let got = placed.outcome.unwrap();
    assert_eq!((placed.path, got.inode, got.size), (path(&["d", "f"]), is.ino(), 7));
    assert_eq!((got.changed.seconds, i64::from(got.changed.nanos)), (is.ctime(), is.ctime_nsec()));
}

#[test]
fn odd_names_are_written_as_they_are() {
    let (tmp, to) = destination();
    for name in [&b"new\nline"[..], b"\xff\xfe", &[b'n'; 255], b"..."] {
        let staged = to.stage_file(0).unwrap();
        let at = RelPath::new([name]).unwrap();
        to.commit(staged, at, &Metadata::default(), Overwrite::Never).unwrap();
        stamp(to.flush());
        assert!(tmp.path().join("dst").join(OsStr::from_bytes(name)).exists());
    }
}

#[test]
fn a_file_has_no_name_before_the_flush() {
    let (tmp, to) = destination();
    let root = tmp.path().join("dst");
    commit(&to, &["a"], b"a");
    commit(&to, &["b"], b"b");
    assert_eq!(names_in(&root), [to.staging().name().unwrap()]);
    assert_eq!(to.flush().len(), 2);
    assert_eq!(names_in(&root).len(), 3);
    assert!(to.flush().is_empty());
}

#[test]
fn commits_flush_by_themselves_at_each_limit() {
    let far = FlushLimits { files: 100, bytes: 1 << 40, dirs: 100 };
    let each = [
        (FlushLimits { files: 3, ..far }, ["x", "x", "x"]),
        (FlushLimits { bytes: 3, ..far }, ["x", "x", "x"]),
        (FlushLimits { dirs: 3, ..far }, ["x", "y", "z"]),
    ];
    for (flush, dirs) in each {
        let tmp = tempfile::tempdir().unwrap();
        let options = WriteOptions { flush, ..WriteOptions::default() };
        let to = Destination::create(&tmp.path().join("dst"), options).unwrap();
        ["x", "y", "z"].iter().for_each(|dir| assert_eq!(to.make_dir(&path(&[dir])).unwrap(), Made::New));
        let counts =
            ["1", "2", "3"].iter().zip(dirs).map(|(name, dir)| commit(&to, &[dir, name], b"b").len());
        assert_eq!(counts.collect::<Vec<_>>(), [0, 0, 3], "{flush:?}");
    }
}

#[test]
fn a_file_that_is_there_stays_unless_told_to_replace_it() {
    let (tmp, to) = destination();
    let file = tmp.path().join("dst/f");
    fs::write(&file, b"old").unwrap();
    commit(&to, &["f"], b"new");
    commit(&to, &["g"], b"new");
    let mut placed = to.flush();
    let other = placed.pop().unwrap();
    let refused = only(placed);
    assert!(matches!(refused.outcome, Err(FileError::Exists { .. })), "{refused:?}");
    assert!(other.outcome.is_ok());
    assert_eq!(fs::read(&file).unwrap(), b"old");

    let again = to.staging().reopen(&refused.temp).unwrap();
    to.commit(again, refused.path, &metadata(0o600, 0), Overwrite::Replace).unwrap();
    stamp(to.flush());
    assert_eq!(fs::read(&file).unwrap(), b"new");
}

#[test]
fn a_link_in_the_way_is_never_written_through() {
    let (tmp, to) = destination();
    let outside = tmp.path().join("outside");
    fs::create_dir(&outside).unwrap();
    symlink(&outside, tmp.path().join("dst/d")).unwrap();
    symlink(outside.join("new"), tmp.path().join("dst/f")).unwrap();
    let merging = Destination::open(&tmp.path().join("dst"), WriteOptions::default()).unwrap();

    let made = merging.make_dir(&path(&["d"]));
    assert!(matches!(made, Err(FileError::OutsideTree { .. })), "{made:?}");
    assert!(matches!(to.make_dir(&path(&["d"])), Err(FileError::Exists { .. })));
    let made = merging.make_dir(&path(&["d", "x"]));
    assert!(matches!(made, Err(FileError::OutsideTree { .. })), "{made:?}");
    let linked = merging.nodes().symlink(&path(&["d", "l"]), b"t", &Metadata::default(), Overwrite::Replace);
    assert!(matches!(linked, Err(FileError::OutsideTree { .. })), "{linked:?}");
    let finished = merging.finish_dir(&path(&["d"]), &metadata(0o777, 0));
    assert!(matches!(finished, Err(FileError::OutsideTree { .. })), "{finished:?}");
    let staged = merging.stage_file(0).unwrap();
    let refused = merging.commit(staged, path(&["d", "f"]), &Metadata::default(), Overwrite::Replace);
    assert!(matches!(refused, Err(FileError::OutsideTree { .. })), "{refused:?}");
    commit(&merging, &["f"], b"new");
    assert!(matches!(only(merging.flush()).outcome, Err(FileError::Exists { .. })));
    assert!(names_in(&outside).is_empty());
}

#[test]
fn a_file_in_the_way_of_a_directory_is_an_error() {
    let (tmp, _) = destination();
    fs::write(tmp.path().join("dst/f"), b"").unwrap();
    let to = Destination::open(&tmp.path().join("dst"), WriteOptions::default()).unwrap();
    assert!(matches!(to.make_dir(&path(&["f"])), Err(FileError::NotADirectory { .. })));
    assert!(matches!(to.make_dir(&path(&["f", "x"])), Err(FileError::NotADirectory { .. })));
    assert!(matches!(to.make_dir(&path(&["no", "x"])), Err(FileError::Vanished { .. })));
}

#[test]
fn the_same_link_again_is_fine_and_another_is_not() {
    let (tmp, to) = destination();
    let make =
        |target: &[u8], overwrite| to.nodes().symlink(&path(&["l"]), target, &metadata(0o777, 7), overwrite);
    let first = make(b"target", Overwrite::Never).unwrap();
    assert!(make(b"target", Overwrite::Never).unwrap().stamp.same_file(&first.stamp));
    assert!(matches!(make(b"other", Overwrite::Never), Err(FileError::Exists { .. })));
    assert_eq!(fs::read_link(tmp.path().join("dst/l")).unwrap(), Path::new("target"));
    make(b"other", Overwrite::Replace).unwrap();
    assert_eq!(fs::read_link(tmp.path().join("dst/l")).unwrap(), Path::new("other"));
    assert!(make(b"", Overwrite::Never).is_err());
    assert!(make(b"a\0b", Overwrite::Never).is_err());
    assert!(make(&[b'x'; 4096], Overwrite::Never).is_err());
    let staging = tmp.path().join("dst").join(to.staging().name().unwrap());
    assert!(names_in(&staging).is_empty());
}

#[test]
fn a_root_that_is_there_is_refused_unless_resumed() {
    let tmp = tempfile::tempdir().unwrap();
    let root = tmp.path().join("dst");
    Destination::create(&root, WriteOptions::default()).unwrap();
    assert_eq!(fs::metadata(&root).unwrap().mode() & 0o7777, 0o700);
    let again = Destination::create(&root, WriteOptions::default());
    assert!(matches!(again, Err(FileError::Exists { .. })), "{again:?}");
    let resume = WriteOptions { resume: true, ..WriteOptions::default() };
    let resumed = Destination::create(&root, resume).unwrap();
    assert_eq!(resumed.make_dir(&RelPath::root()).unwrap(), Made::Existing);
    symlink("dst", tmp.path().join("link")).unwrap();
    let linked = Destination::create(&tmp.path().join("link"), resume);
    assert!(matches!(linked, Err(FileError::OutsideTree { .. })), "{linked:?}");
    for bad in ["", "/", "..", "dst/.."] {
        assert!(Destination::create(&tmp.path().join(bad).join(".."), resume).is_err());
    }
}

#[test]
fn a_finished_read_only_directory_is_written_into_on_resume() {
    let (tmp, to) = destination();
    to.make_dir(&path(&["d"])).unwrap();
    to.finish_dir(&path(&["d"]), &metadata(0o555, 5)).unwrap();
    drop(to);
    let to = Destination::open(&tmp.path().join("dst"), WriteOptions::default()).unwrap();
    assert_eq!(to.make_dir(&path(&["d"])).unwrap(), Made::Existing);
    assert_eq!(fs::metadata(tmp.path().join("dst/d")).unwrap().mode() & 0o7777, 0o755);
    commit(&to, &["d", "f"], b"");
    stamp(to.flush());
}

#[test]
fn a_directory_is_not_finished_while_files_wait_for_it() {
    let (_tmp, to) = destination();
    to.make_dir(&path(&["d"])).unwrap();
    commit(&to, &["d", "f"], b"");
    let early = to.finish_dir(&path(&["d"]), &metadata(0o755, 5));
    assert!(matches!(early, Err(FileError::Busy { .. })), "{early:?}");
    assert!(matches!(to.staging().remove(), Err(FileError::Busy { .. })));
    stamp(to.flush());
    to.finish_dir(&path(&["d"]), &metadata(0o755, 5)).unwrap();
}

#[test]
fn a_sparse_write_keeps_holes_and_other_writes_do_not() {
    let (tmp, to) = destination();
    const MIB: usize = 1 << 20;
    let blocks = |name: &str, sparse| {
        let staged = to.stage_file(8 * MIB as u64).unwrap();
        let mut piece = vec![0; MIB];
        piece[MIB / 2] = 1;
        (0..8).for_each(|i| staged.write_piece((i * MIB) as u64, &piece, sparse).unwrap());
        to.commit(staged, path(&[name]), &Metadata::default(), Overwrite::Never).unwrap();
        stamp(to.flush());
        let is = fs::metadata(tmp.path().join("dst").join(name)).unwrap();
        assert_eq!(is.len(), 8 * MIB as u64);
        is.blocks() * 512
    };
    assert!(blocks("sparse", true) <= 8 * 64 * 1024);
    assert!(blocks("full", false) >= 8 * MIB as u64);
}

#[test]
fn a_piece_beyond_the_end_is_refused() {
    let (_tmp, to) = destination();
    let staged = to.stage_file(10).unwrap();
    staged.write_piece(8, b"ab", false).unwrap();
    assert!(staged.write_piece(8, b"abc", false).is_err());
    assert!(staged.write_piece(u64::MAX, b"ab", true).is_err());
    staged.body().set_size(11).unwrap();
    staged.write_piece(8, b"abc", false).unwrap();
    let mut read = [9; 11];
    staged.body().read_at(0, &mut read).unwrap();
    assert_eq!(&read, b"\0\0\0\0\0\0\0\0abc");
}

#[test]
fn setuid_is_kept_only_if_asked_for() {
    let (tmp, to) = destination();
    for (special_bits, wanted) in [(false, 0o755), (true, 0o6755)] {
        let policy = towpath_files::Policy { special_bits, ..Default::default() };
        let options = WriteOptions { policy, ..WriteOptions::default() };
        let to = Destination::open(to.path(), options).unwrap();
        let staged = to.stage_file(0).unwrap();
        to.commit(staged, path(&["f"]), &metadata(0o6755, 0), Overwrite::Replace).unwrap();
        stamp(to.flush());
        let mode = fs::metadata(tmp.path().join("dst/f")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, wanted);
    }
}
