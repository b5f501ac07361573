//! Another file system mounted inside the destination.

use std::fs;
use std::os::unix::fs::MetadataExt;

use towpath_content::tree::{Kind, Metadata};
use towpath_files::{Destination, Overwrite, ScanOptions, WriteOptions};

use crate::support::{
    Mounted, commit, destination, metadata, names_in, outline, path, quiet, scan_all, stamp,
};

#[test]
fn files_links_and_pipes_are_written_into_a_mounted_file_system() {
    let (tmp, to) = destination();
    let root = tmp.path().join("dst");
    fs::create_dir_all(root.join("d/mnt")).unwrap();
    let Some(_mounted) = Mounted::new("tmpfs", "size=1m", &root.join("d/mnt")) else { return };
    fs::create_dir(root.join("d/mnt/sub")).unwrap();
    let at = |name: &str| path(&["d", "mnt", "sub", name]);
    let staged = to.stage_file_for(&at("f"), 3).unwrap();
    staged.write_piece(0, b"abc", false).unwrap();
    assert_eq!(names_in(&root.join("d/mnt")), [staged.staging(), "sub"]);
    // The last file's directory says nothing of the next one's.
    let beside = to.stage_content_for(&path(&["d", "k"]), b"k", false).unwrap();
    let again = to.stage_content_for(&at("k"), b"k", false).unwrap();
    assert_eq!((again.staging(), beside.staging() == again.staging()), (staged.staging(), false));
    [beside, again].into_iter().for_each(|staged| staged.discard().unwrap());
    to.commit(staged, at("f"), &metadata(0o640, 5), Overwrite::Never).unwrap();
    commit(&to, &["g"], b"in the root");
    assert!(to.flush().into_iter().all(|placed| placed.outcome.is_ok()));
    to.nodes().symlink(&at("l"), b"t", &Metadata::default(), Overwrite::Never).unwrap();
    to.nodes().special(&at("p"), &Kind::Fifo, &metadata(0o600, 5), Overwrite::Never).unwrap();
    let seen = to.stamp_at(&at("f")).unwrap();
    to.nodes().hard_link(&at("f"), &seen, &at("h"), Overwrite::Never).unwrap();
    assert!(to.nodes().hard_link(&at("f"), &seen, &path(&["h"]), Overwrite::Never).is_err());
    let mut names = to.names(&path(&["d", "mnt"]), &ScanOptions::default()).unwrap();
    assert_eq!((names.next().unwrap(), names.next().unwrap()), (Some(b"sub".to_vec()), None));
    to.staging().remove().unwrap();
    to.sync().unwrap();
    assert_eq!(names_in(&root.join("d/mnt")), ["sub"]);
    assert_eq!(names_in(&root.join("d/mnt/sub")), ["f", "h", "l", "p"]);
    assert_eq!(fs::read(root.join("d/mnt/sub/h")).unwrap(), b"abc");
}

#[test]
fn what_an_interruption_left_in_a_mounted_file_system_is_gone_on_with() {
    let (tmp, to) = destination();
    let root = tmp.path().join("dst");
    fs::create_dir(root.join("mnt")).unwrap();
    let Some(_mounted) = Mounted::new("tmpfs", "size=1m", &root.join("mnt")) else { return };
    let at = path(&["mnt", "f"]);
    let staged = to.stage_file_for(&at, 3).unwrap();
    staged.write_piece(0, b"abc", false).unwrap();
    let (staging, temp) = (staged.staging().to_owned(), staged.name().to_owned());
    let quiet = quiet();
    drop((staged, to));
    let to = Destination::open(&root, WriteOptions::default()).unwrap();
    to.staging().adopt_for(&at, &staging, &|name| name == temp).unwrap();
    let staged = to.staging().reopen_for(&at, &temp).unwrap();
    drop(quiet);
    to.commit(staged, at, &metadata(0o640, 5), Overwrite::Never).unwrap();
    stamp(to.flush());
    to.staging().remove().unwrap();
    assert_eq!(fs::read(root.join("mnt/f")).unwrap(), b"abc");
    assert_eq!(names_in(&root.join("mnt")), ["f"]);
}

#[test]
fn a_scan_that_stays_on_its_file_system_shows_mounted_directories_empty() {
    let tmp = tempfile::tempdir().unwrap();
    fs::create_dir_all(tmp.path().join("d/mnt")).unwrap();
    let Some(_mounted) = Mounted::new("tmpfs", "size=1m,mode=711", &tmp.path().join("d/mnt")) else { return };
    fs::write(tmp.path().join("d/mnt/f"), b"").unwrap();
    let stays = ScanOptions { one_file_system: true, ..Default::default() };
    assert_eq!(outline(&scan_all(tmp.path(), &stays)).join(" "), "+ +d +mnt - - -");
    assert_eq!(outline(&scan_all(tmp.path(), &Default::default())).join(" "), "+ +d +mnt f - - -");
    assert_eq!(fs::metadata(tmp.path().join("d/mnt")).unwrap().mode() & 0o777, 0o711);
}
