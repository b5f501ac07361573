//! One file beside its final name.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use towpath_content::tree::MAX_NAME;
use towpath_files::{FileError, Overwrite, Policy, SingleFile};

use crate::support::{metadata, names_in, quiet};

fn write(path: &Path, bytes: &[u8]) -> SingleFile {
    let file = SingleFile::create(path, bytes.len() as u64).unwrap();
    file.write_piece(0, bytes, false).unwrap();
    file
}

fn finish(file: SingleFile, overwrite: Overwrite) -> Result<towpath_files::Stamp, FileError> {
    file.finish(&metadata(0o640, 1_000_000_000), &Policy::default(), overwrite)
}

#[test]
fn a_file_appears_whole_under_its_name() {
    let tmp = tempfile::tempdir().unwrap();
    let path = tmp.path().join("f");
    let file = write(&path, b"content");
    let temp = file.temp_name().to_owned();
    assert!(temp.starts_with(".f.tow-") && temp.len() == 23, "{temp}");
    assert_eq!(names_in(tmp.path()), [temp.as_str()]);
    assert_eq!(fs::metadata(tmp.path().join(&temp)).unwrap().mode() & 0o7777, 0o600);
    let stamp = finish(file, Overwrite::Never).unwrap();
    assert_eq!(names_in(tmp.path()), ["f"]);
    assert_eq!(fs::read(&path).unwrap(), b"content");
    let is = fs::metadata(&path).unwrap();
    assert_eq!((is.mode() & 0o7777, is.mtime(), is.mtime_nsec()), (0o640, 1_000_000_000, 123_456_789));
    assert_eq!((stamp.inode, i64::from(stamp.changed.nanos)), (is.ino(), is.ctime_nsec()));
}

#[test]
fn a_file_that_is_there_stays_unless_told_to_replace_it() {
    let tmp = tempfile::tempdir().unwrap();
    let path = tmp.path().join("f");
    fs::write(&path, b"old").unwrap();
    let file = write(&path, b"new");
    let temp = file.temp_name().to_owned();
    let quiet = quiet();
    let refused = finish(file, Overwrite::Never);
    assert!(matches!(refused, Err(FileError::Exists { .. })), "{refused:?}");
    assert_eq!(fs::read(&path).unwrap(), b"old");
    finish(SingleFile::reopen(&path, &temp).unwrap(), Overwrite::Replace).unwrap();
    drop(quiet);
    assert_eq!(fs::read(&path).unwrap(), b"new");
    assert_eq!(names_in(tmp.path()), ["f"]);
}

#[test]
fn a_link_at_the_final_name_is_replaced_and_not_followed() {
    let tmp = tempfile::tempdir().unwrap();
    fs::write(tmp.path().join("aim"), b"precious").unwrap();
    symlink("aim", tmp.path().join("f")).unwrap();
    finish(write(&tmp.path().join("f"), b"new"), Overwrite::Replace).unwrap();
    assert_eq!(fs::read(tmp.path().join("aim")).unwrap(), b"precious");
    assert!(fs::symlink_metadata(tmp.path().join("f")).unwrap().is_file());
}

#[test]
fn dropping_keeps_the_temporary_and_resuming_finds_its_data() {
    let tmp = tempfile::tempdir().unwrap();
    let path = tmp.path().join("f");
    let file = SingleFile::create(&path, 4 << 20).unwrap();
    file.write_piece(1 << 20, &[7; 4096], true).unwrap();
    file.write_piece(3 << 20, &[7; 4096], true).unwrap();
    let temp = file.temp_name().to_owned();
    let early = SingleFile::reopen(&path, &temp);
    assert!(matches!(early, Err(FileError::Busy { .. })), "{early:?}");
    let quiet = quiet();
    drop(file);
    assert_eq!(names_in(tmp.path()), [temp.as_str()]);

    let file = SingleFile::reopen(&path, &temp).unwrap();
    drop(quiet);
    assert_eq!(file.body().size(), 4 << 20);
    let starts: Vec<u64> = file.data_ranges().map(|range| range.unwrap().start).collect();
    assert_eq!(starts, [1 << 20, 3 << 20]);
    file.discard().unwrap();
    assert!(names_in(tmp.path()).is_empty());
}

#[test]
fn the_longest_names_leave_room_for_the_temporary() {
    let tmp = tempfile::tempdir().unwrap();
    let two_byte = "ä".repeat(127) + "x";
    let names = [vec![b'n'; 255], two_byte.into_bytes(), vec![0xff; 255], b"x\ny".to_vec()];
    for name in names {
        let path = tmp.path().join(OsStr::from_bytes(&name));
        let file = write(&path, b"content");
        let temp = file.temp_name().to_owned();
        assert!(temp.len() <= MAX_NAME && temp.starts_with('.'), "{temp}");
        let quiet = quiet();
        drop(file);
        finish(SingleFile::reopen(&path, &temp).unwrap(), Overwrite::Never).unwrap();
        drop(quiet);
        assert_eq!(fs::read(&path).unwrap(), b"content");
        fs::remove_file(&path).unwrap();
        assert!(names_in(tmp.path()).is_empty());
    }
}

#[test]
fn a_resume_record_cannot_name_another_file() {
    let tmp = tempfile::tempdir().unwrap();
    let path = tmp.path().join("f");
    for name in [".g.tow-0123456789abcdef", "precious", ".f.tow-0123", "../f", ".f.tow-../../../../../"] {
        if !name.contains('/') {
            fs::write(tmp.path().join(name), b"precious").unwrap();
        }
        let refused = SingleFile::reopen(&path, name);
        assert!(matches!(refused, Err(FileError::OutsideTree { .. })), "{refused:?}");
    }
    symlink("precious", tmp.path().join(".f.tow-0123456789abcdef")).unwrap();
    let refused = SingleFile::reopen(&path, ".f.tow-0123456789abcdef");
    assert!(matches!(refused, Err(FileError::OutsideTree { .. })), "{refused:?}");
}

#[test]
fn a_path_without_a_name_or_a_parent_is_refused() {
    let tmp = tempfile::tempdir().unwrap();
    assert!(matches!(SingleFile::create(&tmp.path().join("no/f"), 0), Err(FileError::Vanished { .. })));
    assert!(matches!(SingleFile::create(Path::new("/"), 0), Err(FileError::OutsideTree { .. })));
    assert!(matches!(SingleFile::create(&tmp.path().join(".."), 0), Err(FileError::OutsideTree { .. })));
}
