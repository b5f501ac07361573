//! Files and directories opened by absolute paths, no part of which is a symbolic link.
//!
//! The kernel sees to that in one call where it can (`openat2`, Linux 5.6); elsewhere, and where a
//! sandbox forbids that call, the path is walked name by name.

use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Component, Path};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, StatxFlags, fstat, openat, openat2, statx};
use rustix::io::Errno;
use towpath_store::Stamp;

use super::SearchError;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Flags for opening: a path that has become a pipe or a terminal is neither waited for nor taken over.
const FILE: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
/// Bytes of path per call, below the kernel's `PATH_MAX` of 4096 with its NUL.
const MAX_STEP: usize = 4000;

/// A mounted file system: two mounts of one device are two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MountId {
    device: u64,
    /// 0 where the kernel does not tell (before Linux 5.8).
    id: u64,
}

/// The mount that an open directory lies in.
pub(super) fn mount_of(dir: impl AsFd) -> Result<MountId, Errno> {
    let device = fstat(&dir)?.st_dev;
    let status = statx(&dir, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok();
    let status = status.filter(|status| status.stx_mask & StatxFlags::MNT_ID.bits() != 0);
    Ok(MountId { device, id: status.map_or(0, |status| status.stx_mnt_id) })
}

/// Opens the directory at `path`.
pub(super) fn directory(path: &Path) -> Result<OwnedFd, SearchError> {
    open(path, DIRECTORY).map_err(|error| SearchError::of(path, error))
}

/// Opens the regular file at `path`, and its stamp.
pub(super) fn regular(path: &Path) -> Result<(File, Stamp), SearchError> {
    let failed = |error: Errno| SearchError::of(path, error);
    let file = open(path, FILE).map_err(failed)?;
    let found = fstat(&file).map_err(failed)?;
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => Ok((file.into(), Stamp::from_stat(&found))),
        _ => Err(SearchError::Unfit(path.into())),
    }
}

/// The bytes of a regular file at `range`, whatever they are now. A file that has become shorter is an error.
pub fn read(path: &Path, range: &Range<u64>) -> Result<Vec<u8>, SearchError> {
    let (file, stamp) = regular(path)?;
    if stamp.size < range.end {
        return Err(SearchError::Changed(path.into()));
    }
    let mut bytes = vec![0; (range.end - range.start) as usize];
    file.read_exact_at(&mut bytes, range.start).map_err(|error| SearchError::of(path, error))?;
    Ok(bytes)
}

/// The bytes of the regular file at `path`, if there is one.
pub fn size(path: &Path) -> Option<u64> {
    stamp(path).ok().map(|stamp| stamp.size)
}

/// The stamp of the regular file at `path`, which is not opened for reading.
pub(super) fn stamp(path: &Path) -> Result<Stamp, SearchError> {
    let failed = |error: Errno| SearchError::of(path, error);
    let found = fstat(open(path, OFlags::PATH | OFlags::CLOEXEC).map_err(failed)?).map_err(failed)?;
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => Ok(Stamp::from_stat(&found)),
        _ => Err(SearchError::Unfit(path.into())),
    }
}

fn open(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let root = rustix::fs::open("/", DIRECTORY, Mode::empty())?;
    let relative = path.strip_prefix("/").map_err(|_| Errno::INVAL)?;
    if relative.as_os_str().is_empty() {
        return openat(&root, ".", flags, Mode::empty());
    }
    if relative.as_os_str().len() <= MAX_STEP {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match openat2(&root, relative, flags | OFlags::NOFOLLOW, Mode::empty(), resolve) {
            // A sandbox may answer EPERM to a call it does not know; the walk tells whether it did.
            Err(Errno::NOSYS | Errno::PERM | Errno::AGAIN) => {}
            opened => return opened,
        }
    }
    walk(root, relative, flags)
}

fn walk(root: OwnedFd, relative: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let (mut dir, mut names) = (root, relative.components().peekable());
    while let Some(name) = names.next() {
        let Component::Normal(name) = name else { return Err(Errno::INVAL) };
        let flags = if names.peek().is_some() { DIRECTORY } else { flags };
        dir = openat(&dir, name, flags | OFlags::NOFOLLOW, Mode::empty())?;
    }
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_refused_first_midway_and_last_on_both_ways() {
        let tmp = tempfile::tempdir().unwrap();
        let root = tmp.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::write(root.join("a/b/file"), b"bytes").unwrap();
        symlink("a", root.join("dir")).unwrap();
        symlink("file", root.join("a/b/link")).unwrap();
        for (path, is_open) in [("a/b/file", true), ("dir/b/file", false), ("a/b/link", false)] {
            let path = root.join(path);
            let slash = rustix::fs::open("/", DIRECTORY, Mode::empty()).unwrap();
            let walked = walk(slash, path.strip_prefix("/").unwrap(), FILE);
            assert_eq!((regular(&path).is_ok(), walked.is_ok()), (is_open, is_open), "{path:?}");
            assert_eq!(stamp(&path).is_ok(), is_open, "{path:?}");
        }
        assert!(matches!(regular(&root.join("dir/b/file")), Err(SearchError::Unfit(_))));
        assert!(matches!(regular(&root.join("a/b")), Err(SearchError::Unfit(_))));
        assert!(matches!(regular(&root.join("a/b/none")), Err(SearchError::Gone(_))));
        assert_eq!(read(&root.join("a/b/file"), &(1..4)).unwrap(), b"yte");
        assert!(matches!(read(&root.join("a/b/file"), &(1..6)), Err(SearchError::Changed(_))));
        assert!(read(&root.join("a/b/link"), &(1..4)).is_err());
        assert!(directory(&root.join("a/../a")).is_err() || mount_of(directory(&root).unwrap()).is_ok());
    }
}
