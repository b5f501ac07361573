//! A disk that fills up.

use std::path::Path;
use std::process::Command;

use towpath_files::{Destination, FileError, SingleFile, WriteOptions};

use crate::support::is_root;

/// A file system of 256 KiB that is unmounted when dropped.
struct Small(tempfile::TempDir);

impl Small {
    fn mount() -> Option<Self> {
        let tmp = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"]).arg(tmp.path());
        mount.status().is_ok_and(|status| status.success()).then_some(Self(tmp))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_is_told_apart_and_what_was_written_stays() {
    if !is_root() {
        println!("skipped: needs root");
        return;
    }
    let Some(disk) = Small::mount() else {
        println!("skipped: mounting is not allowed here");
        return;
    };
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
