//! A disk that fills up.

use towpath_files::{Destination, FileError, SingleFile, WriteOptions};

use crate::support::Mounted;

#[test]
fn a_full_disk_is_told_apart_and_what_was_written_stays() {
    let disk = tempfile::tempdir().unwrap();
    let Some(_mounted) = Mounted::new("tmpfs", "size=256k", disk.path()) else { return };
    let to = Destination::create(&disk.path().join("dst"), WriteOptions::default()).unwrap();
    let staged = to.stage_file(1 << 20).unwrap();
    staged.write_piece(0, &[7; 128 << 10], false).unwrap();
    let full = staged.write_piece(128 << 10, &[7; 512 << 10], true);
    assert!(matches!(full, Err(FileError::NoSpace { .. })), "{full:?}");
    let mut read = [0; 128 << 10];
    staged.body().read_at(0, &mut read).unwrap();
    assert_eq!(read, [7; 128 << 10]);
    drop((staged, to));
    let file = SingleFile::create(&disk.path().join("f"), 1 << 20).unwrap();
    let full = file.write_piece(0, &[7; 512 << 10], false);
    assert!(matches!(full, Err(FileError::NoSpace { .. })), "{full:?}");
}
