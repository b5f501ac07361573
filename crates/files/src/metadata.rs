//! Metadata put on a file, directory or symbolic link: the one place where it happens.
//!
//! It goes on a *held* descriptor of the inode that was just made (for a symbolic link, which
//! cannot be held that way: on its unpredictable name in the staging directory), never on a path.
//! `apply` keeps the order that the kernel's side effects demand: owner first, as a new owner
//! clears setuid; then extended attributes and ACLs, as an ACL rewrites the group bits; then the
//! mode; times last, as everything before may touch them. Owners, attributes and ACLs are not
//! applied yet.

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, Mode, Timespec, Timestamps, UTIME_OMIT, fchmod, futimens, utimensat};
use rustix::io::Errno;
use towpath_content::tree::{Metadata, Time};

/// What of an entry's metadata is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Permission bits as given (default). Otherwise new things get what the process's umask says.
    pub modes: bool,
    /// Setuid and setgid bits too. Default: dropped, whoever asks for them.
    pub special_bits: bool,
    /// Time of last modification (default). Otherwise: now.
    pub times: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self { modes: true, special_bits: false, times: true }
    }
}

/// What metadata is put on.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target<'a> {
    /// An open regular file.
    File(BorrowedFd<'a>),
    /// An open directory.
    Directory(BorrowedFd<'a>),
    /// The symbolic link of this name in an open directory.
    Link(BorrowedFd<'a>, &'a [u8]),
}

/// Puts on `target` what `policy` takes of `metadata`.
pub(crate) fn apply(target: Target<'_>, metadata: &Metadata, policy: &Policy) -> Result<(), Errno> {
    apply_mode(target, metadata, policy)?;
    if policy.times { apply_times(target, metadata.modified) } else { Ok(()) }
}

fn apply_mode(target: Target<'_>, metadata: &Metadata, policy: &Policy) -> Result<(), Errno> {
    match target {
        Target::File(file) => fchmod(file, allowed_mode(metadata.mode, 0o666, policy)),
        Target::Directory(dir) => fchmod(dir, allowed_mode(metadata.mode, 0o777, policy)),
        Target::Link(..) => Ok(()),
    }
}

fn allowed_mode(wanted: u32, fresh: u32, policy: &Policy) -> Mode {
    let mask = if policy.special_bits { 0o7777 } else { 0o1777 };
    Mode::from_raw_mode(if policy.modes { wanted & mask } else { fresh & !umask() })
}

fn apply_times(target: Target<'_>, modified: Time) -> Result<(), Errno> {
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: modified.seconds, tv_nsec: nanos(modified) },
    };
    match target {
        Target::File(fd) | Target::Directory(fd) => futimens(fd, &times),
        Target::Link(dir, name) => utimensat(dir, name, &times, AtFlags::SYMLINK_NOFOLLOW),
    }
}

/// Larger values have other meanings to the kernel ("now", "leave").
fn nanos(time: Time) -> rustix::fs::Nsecs {
    time.nanos.min(999_999_999).into()
}

/// The process's umask, which the system tells without changing it only in `/proc`.
fn umask() -> u32 {
    const USUAL: u32 = 0o022;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|digits| u32::from_str_radix(digits.trim(), 8).ok()).unwrap_or(USUAL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::os::fd::AsFd;
    use std::os::unix::fs::{MetadataExt, symlink};

    fn metadata(mode: u32, seconds: i64, nanos: u32) -> Metadata {
        Metadata { mode, modified: Time { seconds, nanos }, ..Metadata::default() }
    }

    fn applied(metadata: &Metadata, policy: &Policy) -> fs::Metadata {
        let file = tempfile::tempfile().unwrap();
        apply(Target::File(file.as_fd()), metadata, policy).unwrap();
        file.metadata().unwrap()
    }

    #[test]
    fn mode_and_time_are_kept_to_the_nanosecond() {
        let got = applied(&metadata(0o640, 1_000_000_007, 123_456_789), &Policy::default());
        assert_eq!(got.mode() & 0o7777, 0o640);
        assert_eq!((got.mtime(), got.mtime_nsec()), (1_000_000_007, 123_456_789));
        assert_eq!(applied(&metadata(0o600, -5, 1), &Policy::default()).mtime(), -5);
    }

    #[test]
    fn setuid_and_setgid_are_dropped_unless_asked_for() {
        let asked = Policy { special_bits: true, ..Policy::default() };
        assert_eq!(applied(&metadata(0o6755, 0, 0), &Policy::default()).mode() & 0o7777, 0o755);
        assert_eq!(applied(&metadata(0o6755, 0, 0), &asked).mode() & 0o7777, 0o6755);
    }

    #[test]
    fn what_the_policy_leaves_out_is_as_if_made_here() {
        let none = Policy { modes: false, times: false, special_bits: true };
        let got = applied(&metadata(0o4000, 7, 0), &none);
        assert_eq!(got.mode() & 0o7777, 0o666 & !umask());
        assert!(got.mtime() > 7);
    }

    #[test]
    fn a_link_gets_its_own_time_and_not_what_it_points_to() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = File::open(tmp.path()).unwrap();
        fs::write(tmp.path().join("f"), b"").unwrap();
        symlink("f", tmp.path().join("l")).unwrap();
        apply(Target::Link(dir.as_fd(), b"l"), &metadata(0o777, 99, 5), &Policy::default()).unwrap();
        assert_eq!(fs::symlink_metadata(tmp.path().join("l")).unwrap().mtime(), 99);
        assert_ne!(fs::metadata(tmp.path().join("f")).unwrap().mtime(), 99);
    }

    #[test]
    fn nanoseconds_out_of_range_do_not_mean_now() {
        let got = applied(&metadata(0o600, 5, (1 << 30) - 1), &Policy::default());
        assert_eq!((got.mtime(), got.mtime_nsec()), (5, 999_999_999));
    }
}
