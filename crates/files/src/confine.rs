//! Opening directories below a held one, never through a symbolic link unless the user asked for
//! that on the reading side.
//!
//! The kernel does it in one call where it can (`openat2`, Linux 5.6); elsewhere, and where a
//! sandbox forbids that call, the path is walked name by name, each opened with `O_NOFOLLOW`. Both
//! ways refuse the same things: a symbolic link is `ELOOP`, whatever it points to.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, openat, openat2, statat};
use rustix::io::Errno;

use crate::path::RelPath;

/// Bytes of path per `openat2`, below the kernel's `PATH_MAX` of 4096 with its NUL.
const MAX_STEP: usize = 4000;
/// Times that a lookup which raced with a rename elsewhere is tried again before walking.
const RETRIES: usize = 16;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Treatment of a symbolic link on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Links {
    /// It is refused with `ELOOP`.
    #[default]
    Refuse,
    /// It is followed wherever it leads.
    Follow,
}

/// Opens the directory at `path` below `root`, symbolic links treated as told.
pub(crate) fn open_at(root: impl AsFd, path: &RelPath, links: Links) -> Result<OwnedFd, Errno> {
    match links {
        Links::Refuse => open_below(root, path),
        Links::Follow => by_walk(root.as_fd(), path, links),
    }
}

/// Opens the directory at `path` below `root`.
pub(crate) fn open_below(root: impl AsFd, path: &RelPath) -> Result<OwnedFd, Errno> {
    match by_kernel(root.as_fd(), path) {
        // A sandbox may answer EPERM to a call it does not know; the walk tells whether it did.
        Err(Errno::NOSYS | Errno::PERM | Errno::AGAIN) => by_walk(root.as_fd(), path, Links::Refuse),
        opened => opened,
    }
}

/// Opens the directory `name` (one checked name) in `dir`.
pub(crate) fn open_dir(dir: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    match openat(&dir, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()) {
        Err(Errno::NOTDIR) if is_symlink(dir.as_fd(), name) => Err(Errno::LOOP),
        opened => opened,
    }
}

/// Opens the directory `name` in `dir`, symbolic links treated as told.
pub(crate) fn open_dir_at(dir: impl AsFd, name: &[u8], links: Links) -> Result<OwnedFd, Errno> {
    match links {
        Links::Refuse => open_dir(dir, name),
        Links::Follow => openat(dir, name, DIRECTORY, Mode::empty()),
    }
}

/// Opens a root by the user's own word: symbolic links in `path` are followed.
pub(crate) fn open_root(path: &std::path::Path) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, DIRECTORY, Mode::empty())
}

fn is_symlink(dir: BorrowedFd<'_>, name: &[u8]) -> bool {
    statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
}

fn by_walk(root: BorrowedFd<'_>, path: &RelPath, links: Links) -> Result<OwnedFd, Errno> {
    let mut dir = openat(root, ".", DIRECTORY, Mode::empty())?;
    for name in path.names() {
        dir = open_dir_at(&dir, name, links)?;
    }
    Ok(dir)
}

fn by_kernel(root: BorrowedFd<'_>, path: &RelPath) -> Result<OwnedFd, Errno> {
    let mut rest = path.as_bytes();
    let mut dir = None;
    while !rest.is_empty() || dir.is_none() {
        let (step, after) = first_step(rest);
        let from = dir.as_ref().map_or(root, AsFd::as_fd);
        dir = Some(kernel_step(from, step)?);
        rest = after;
    }
    dir.ok_or(Errno::INVAL)
}

/// Cuts as many whole names off the front of a path as one call takes.
fn first_step(path: &[u8]) -> (&[u8], &[u8]) {
    if path.len() <= MAX_STEP {
        return (path, b"");
    }
    let slash = path[..MAX_STEP].iter().rposition(|&b| b == b'/');
    slash.map_or((path, &b""[..]), |at| (&path[..at], &path[at + 1..]))
}

fn kernel_step(from: BorrowedFd<'_>, step: &[u8]) -> Result<OwnedFd, Errno> {
    let step = if step.is_empty() { b"." } else { step };
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let open = || openat2(from, step, DIRECTORY, Mode::empty(), resolve);
    let mut opened = open();
    for _ in 0..RETRIES {
        match opened {
            Err(Errno::AGAIN | Errno::INTR) => opened = open(),
            Err(Errno::XDEV) => return Err(Errno::LOOP),
            done => return done,
        }
    }
    opened
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, RenameFlags, fstat, mkdirat, renameat_with};
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    type Way = fn(BorrowedFd<'_>, &RelPath) -> Result<OwnedFd, Errno>;
    const WAYS: [(&str, Way); 3] = [
        ("openat2", by_kernel),
        ("walk", |root, path| by_walk(root, path, Links::Refuse)),
        ("either", |root, path| open_below(root, path)),
    ];

    fn path(names: &[&str]) -> RelPath {
        RelPath::new(names).unwrap()
    }

    fn kernel_can(root: &OwnedFd) -> bool {
        !matches!(by_kernel(root.as_fd(), &RelPath::root()), Err(Errno::NOSYS | Errno::PERM))
    }

    fn each_way(root: &Path, check: impl Fn(&str, &dyn Fn(&[&str]) -> Result<OwnedFd, Errno>)) {
        let root = open_root(root).unwrap();
        for (label, way) in WAYS {
            if label == "openat2" && !kernel_can(&root) {
                println!("skipped: this kernel has no openat2");
                continue;
            }
            check(label, &|names| way(root.as_fd(), &path(names)));
        }
    }

    #[test]
    fn both_ways_reach_the_same_directory() {
        let tmp = tempfile::tempdir().unwrap();
        fs::create_dir_all(tmp.path().join("a/b/c")).unwrap();
        let wanted = rustix::fs::stat(tmp.path().join("a/b/c")).unwrap().st_ino;
        each_way(tmp.path(), |label, open| {
            assert_eq!(fstat(open(&["a", "b", "c"]).unwrap()).unwrap().st_ino, wanted, "{label}");
            assert_eq!(open(&["a", "x"]).unwrap_err(), Errno::NOENT, "{label}");
            open(&[]).unwrap();
        });
    }

    #[test]
    fn both_ways_refuse_links_first_midway_and_last() {
        let tmp = tempfile::tempdir().unwrap();
        fs::create_dir_all(tmp.path().join("a/b/c")).unwrap();
        symlink("a", tmp.path().join("inside")).unwrap();
        symlink("/", tmp.path().join("outside")).unwrap();
        symlink("b", tmp.path().join("a/link")).unwrap();
        symlink("..", tmp.path().join("a/up")).unwrap();
        each_way(tmp.path(), |label, open| {
            for names in
                [&["inside"][..], &["inside", "b"], &["outside"], &["outside", "etc"], &["a", "link", "c"]]
            {
                assert_eq!(open(names).unwrap_err(), Errno::LOOP, "{label} {names:?}");
            }
            assert_eq!(open(&["a", "up", "a"]).unwrap_err(), Errno::LOOP, "{label}");
        });
    }

    #[test]
    fn both_ways_refuse_a_file_in_the_way() {
        let tmp = tempfile::tempdir().unwrap();
        fs::write(tmp.path().join("f"), b"").unwrap();
        each_way(tmp.path(), |label, open| {
            assert_eq!(open(&["f"]).unwrap_err(), Errno::NOTDIR, "{label}");
            assert_eq!(open(&["f", "x"]).unwrap_err(), Errno::NOTDIR, "{label}");
        });
    }

    #[test]
    fn paths_longer_than_the_system_takes_at_once_are_reached() {
        let tmp = tempfile::tempdir().unwrap();
        let name = "n".repeat(255);
        let names = vec![name.as_str(); 40];
        let mut dir = open_root(tmp.path()).unwrap();
        for name in &names {
            mkdirat(&dir, *name, Mode::RWXU).unwrap();
            dir = open_dir(&dir, name.as_bytes()).unwrap();
        }
        let wanted = fstat(&dir).unwrap().st_ino;
        each_way(tmp.path(), |label, open| {
            assert_eq!(fstat(open(&names).unwrap()).unwrap().st_ino, wanted, "{label}");
        });
    }

    #[test]
    fn both_ways_lose_no_race_against_a_directory_swapped_for_a_link() {
        let tmp = tempfile::tempdir().unwrap();
        let (dir, link) = (tmp.path().join("d"), tmp.path().join("evil"));
        fs::create_dir_all(dir.join("sub")).unwrap();
        fs::create_dir_all(tmp.path().join("outside/sub")).unwrap();
        symlink(tmp.path().join("outside"), &link).unwrap();
        let wanted = rustix::fs::stat(dir.join("sub")).unwrap().st_ino;
        let swap = || renameat_with(CWD, &dir, CWD, &link, RenameFlags::EXCHANGE).unwrap();
        each_way(tmp.path(), |label, open| {
            let stop = AtomicBool::new(false);
            let (mut opened, mut refused, mut escaped) = (0, 0, 0);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !stop.load(Relaxed) {
                        swap()
                    }
                });
                let mut tries = 0..1_000_000;
                while tries.next().is_some_and(|i| i < 3000 || opened == 0 || refused == 0) {
                    match open(&["d", "sub"]).map(|dir| fstat(dir).unwrap().st_ino) {
                        Ok(inode) if inode == wanted => opened += 1,
                        // Not a directory: the link when opened, the directory when looked at.
                        Err(Errno::LOOP | Errno::NOTDIR) => refused += 1,
                        _ => escaped += 1,
                    }
                }
                stop.store(true, Relaxed);
            });
            assert_eq!(escaped, 0, "{label}");
            assert!(opened > 0 && refused > 0, "{label}: no race");
        });
    }
}
