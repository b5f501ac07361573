//! Helpers that the tests share.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

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

/// Number of descriptors of this process that are open on things below `dir`.
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
    assert!(run(Command::new("rm").arg("-rf").arg(dir)).unwrap().status.success());
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A file system that is unmounted when dropped.
pub struct Mounted(std::path::PathBuf);

impl Mounted {
    /// Mounts a new `kind` (`tmpfs`, `ramfs`) with these options at `path`; None, and a line that
    /// says so, where that is not allowed.
    pub fn new(kind: &str, options: &str, path: &Path) -> Option<Self> {
        let mut mount = Command::new("mount");
        mount.args(["-t", kind, "-o", options, kind]).arg(path);
        if is_root() && run(&mut mount).is_ok_and(|run| run.status.success()) {
            return Some(Self(path.to_path_buf()));
        }
        println!("skipped: mounting a {kind} is not allowed here");
        None
    }

    /// One that was mounted by other means.
    pub fn already(path: &Path) -> Self {
        Self(path.to_path_buf())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = run(Command::new("umount").arg(&self.0));
    }
}

/// Runs the test of this full name once more as a user without privileges; true if it is to be
/// run here, because that is the user already.
pub fn as_nobody(test: &str) -> bool {
    use std::os::unix::process::CommandExt;
    if !is_root() {
        return true;
    }
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args([test, "--exact"]).uid(65534).gid(65534).current_dir("/");
    match run(&mut again) {
        Ok(run) => {
            let told = String::from_utf8_lossy(&run.stdout).into_owned();
            assert!(run.status.success() && told.contains("1 passed"), "{told}");
        }
        Err(error) => println!("skipped: another user cannot run this program ({error})"),
    }
    false
}

/// The raw attribute of an ACL: owner rw, user 1234 rw, group r, mask rw, others nothing. With it a
/// file has mode 0660.
pub fn acl() -> Vec<u8> {
    const NO_ID: u32 = u32::MAX;
    let entries = [(1u16, 6u16, NO_ID), (2, 6, 1234), (4, 4, NO_ID), (0x10, 6, NO_ID), (0x20, 0, NO_ID)];
    let mut raw = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        raw.extend(tag.to_le_bytes());
        raw.extend(permissions.to_le_bytes());
        raw.extend(id.to_le_bytes());
    }
    raw
}

/// Sets an attribute; false, and a line that says so, where the file system has none.
pub fn set_attribute(path: &Path, name: &str, value: &[u8]) -> bool {
    let set = rustix::fs::lsetxattr(path, name, value, rustix::fs::XattrFlags::empty());
    match set {
        Err(rustix::io::Errno::OPNOTSUPP) => println!("skipped: no attributes on this file system"),
        set => set.unwrap(),
    }
    set.is_ok()
}

/// The value of an attribute.
pub fn attribute(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = Vec::with_capacity(65536);
    rustix::fs::lgetxattr(path, name, rustix::buffer::spare_capacity(&mut value)).ok()?;
    Some(value)
}

/// Everything a look or scan can tell.
pub fn everything() -> ScanOptions {
    ScanOptions { xattrs: true, acls: true, owner_names: true, hard_links: true, ..Default::default() }
}

/// Held by tests that start programs while none has [`quiet`].
static STARTING: RwLock<()> = RwLock::new(());

/// Held by a test that lets go of a lock on a file and takes it again: a program that another test starts has all open
/// files, and their locks, until it runs.
pub fn quiet() -> RwLockReadGuard<'static, ()> {
    STARTING.read().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a program when no test needs quiet, and waits for its end.
pub fn run(command: &mut Command) -> std::io::Result<Output> {
    let alone = STARTING.write().unwrap_or_else(PoisonError::into_inner);
    let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    drop(alone);
    started?.wait_with_output()
}

/// Decides what is removed, and does not care what was.
pub struct Ask<F>(F);

/// A decision by path and whether it is a directory.
pub fn ask<F: FnMut(&RelPath, bool) -> bool>(may: F) -> Ask<F> {
    Ask(may)
}

impl<F: FnMut(&RelPath, bool) -> bool> towpath_files::Removing for Ask<F> {
    fn may(&mut self, path: &RelPath, is_dir: bool) -> bool {
        (self.0)(path, is_dir)
    }

    fn gone(&mut self, _path: &RelPath, _is_dir: bool) {}
}
