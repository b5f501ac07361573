//! What the tests share.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use towpath_content::tree::{Metadata, Time};
use towpath_files::{
    Destination, Overwrite, Placed, RelPath, ScanOptions, Scanned, Stamp, WriteOptions, scan,
};

pub fn path(names: &[&str]) -> RelPath {
    RelPath::new(names).unwrap()
}

pub fn metadata(mode: u32, seconds: i64) -> Metadata {
    Metadata { mode, modified: Time { seconds, nanos: 123_456_789 }, ..Metadata::default() }
}

/// A new tree `dst` in a temporary directory.
pub fn destination() -> (TempDir, Destination) {
    let tmp = tempfile::tempdir().unwrap();
    let made = Destination::create(&tmp.path().join("dst"), WriteOptions::default()).unwrap();
    (tmp, made)
}

/// Stages and commits a file of these bytes.
pub fn commit(to: &Destination, names: &[&str], bytes: &[u8]) -> Vec<Placed> {
    let staged = to.stage_file(bytes.len() as u64).unwrap();
    staged.write_piece(0, bytes, false).unwrap();
    to.commit(staged, path(names), &metadata(0o640, 1_000_000_000), Overwrite::Never).unwrap()
}

pub fn only(mut placed: Vec<Placed>) -> Placed {
    assert_eq!(placed.len(), 1);
    placed.remove(0)
}

pub fn stamp(placed: Vec<Placed>) -> Stamp {
    only(placed).outcome.unwrap()
}

/// Names in a directory, sorted.
pub fn names_in(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// A whole scan.
pub fn scan_all(root: &Path, options: &ScanOptions) -> Vec<Scanned> {
    let mut steps = Vec::new();
    scan::<()>(root, options, &mut |step| {
        steps.push(step);
        Ok(())
    })
    .unwrap();
    steps
}

/// A scan as short text: `+name` enters, `-` leaves, `name` is a leaf, `!` a failure.
pub fn outline(steps: &[Scanned]) -> Vec<String> {
    let text = |name: &[u8]| towpath_files::display_name(name);
    let line = |step: &Scanned| match step {
        Scanned::Enter(found) => format!("+{}", text(&found.entry.name)),
        Scanned::Leaf(found) => text(&found.entry.name),
        Scanned::Leave => "-".into(),
        Scanned::Failed(_) => "!".into(),
    };
    steps.iter().map(line).collect()
}

/// How many descriptors of this process are open on things below `dir`.
pub fn descriptors_below(dir: &Path) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    open.filter(|fd| std::fs::read_link(fd.as_ref().unwrap().path()).is_ok_and(|to| to.starts_with(dir)))
        .count()
}

/// `tree/m/m/m/…` with the files `a` and `z` on every level.
pub fn nest(root: &Path, depth: usize) {
    let mut dir = std::fs::File::open(root).unwrap();
    for level in 0..=depth {
        for name in ["a", "z"] {
            let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
            rustix::fs::openat(&dir, name, flags, rustix::fs::Mode::RUSR).unwrap();
        }
        if level < depth {
            rustix::fs::mkdirat(&dir, "m", rustix::fs::Mode::RWXU).unwrap();
            let flags = rustix::fs::OFlags::DIRECTORY;
            dir = rustix::fs::openat(&dir, "m", flags, rustix::fs::Mode::empty()).unwrap().into();
        }
    }
}

/// Removes a tree too deep for a removal that holds every level open.
pub fn remove_deep(dir: &Path) {
    assert!(Command::new("rm").arg("-rf").arg(dir).status().unwrap().success());
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
