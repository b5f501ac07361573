//! Another process that swaps a directory for a symbolic link while the tree is written.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use towpath_content::tree::Metadata;
use towpath_files::{Destination, FileError, FlushLimits, Overwrite, WriteOptions};

use crate::support::{names_in, path};

const TRIES: usize = 3000;
/// When a busy machine has still not let the two meet.
const MOST_TRIES: usize = 100 * TRIES;

/// Swaps the names of `dst/d`, a directory, and `dst/evil`, a link out of the tree, until told to
/// stop.
fn keep_swapping(root: &Path, stop: &AtomicBool) {
    let (dir, link) = (root.join("d"), root.join("evil"));
    while !stop.load(Ordering::Relaxed) {
        renameat_with(CWD, &dir, CWD, &link, RenameFlags::EXCHANGE).unwrap();
    }
}

/// Writes below `dst/d` through a fresh handle, so that the way there is looked up every time.
fn write_once(root: &Path, turn: usize) -> Result<(), FileError> {
    let flush = FlushLimits { files: 1, ..FlushLimits::default() };
    let to = Destination::open(root, WriteOptions { flush, ..WriteOptions::default() })?;
    let (plain, name) = (Metadata::default(), turn.to_string());
    let at = path(&["d", &name]);
    match turn % 16 {
        0 => drop(to.commit(to.stage_file(0)?, at, &plain, Overwrite::Never)?),
        1 => drop(to.make_symlink(&at, b"t", &plain, Overwrite::Never)?),
        2 => drop(to.finish_dir(&path(&["d"]), &Metadata { mode: 0o711, ..plain })?),
        _ if turn.is_multiple_of(2) => drop(to.make_dir(&at)?),
        _ => drop((to.make_dir(&path(&["d"]))?, to.make_dir(&at)?)),
    }
    to.remove_staging()
}

/// Ends the swapping also when the test fails.
struct StopWhenDropped<'a>(&'a AtomicBool);

impl Drop for StopWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_directory_swapped_for_a_link_lets_nothing_out() {
    let tmp = tempfile::tempdir().unwrap();
    let (root, outside) = (tmp.path().join("dst"), tmp.path().join("outside"));
    fs::create_dir_all(root.join("d")).unwrap();
    fs::create_dir(&outside).unwrap();
    let mode = fs::metadata(&outside).unwrap().mode();
    symlink(&outside, root.join("evil")).unwrap();
    let stop = AtomicBool::new(false);
    let (mut written, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| keep_swapping(&root, &stop));
        let _stop = StopWhenDropped(&stop);
        let mut turns = 0..MOST_TRIES;
        while let Some(turn) = turns.next().filter(|&turn| turn < TRIES || written == 0 || refused == 0) {
            match write_once(&root, turn) {
                Ok(()) => written += 1,
                Err(FileError::OutsideTree { .. } | FileError::NotADirectory { .. }) => refused += 1,
                Err(other) => panic!("{other}"),
            }
        }
    });
    assert_eq!(names_in(&outside), [""; 0]);
    assert_eq!(fs::metadata(&outside).unwrap().mode(), mode);
    assert!(written > 0 && refused > 0, "no race: {written} written, {refused} refused");
}
