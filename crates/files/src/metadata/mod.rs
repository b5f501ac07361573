//! Metadata put on a file, directory, symbolic link or special file: the one place where it
//! happens.
//!
//! It goes on a *held* inode (`held`), the one that was just made or looked at, never on a path.
//! `apply` keeps the order that the kernel's side effects demand: owner first, as a new owner
//! clears setuid; then extended attributes and ACLs, as an ACL rewrites the group bits; then the
//! mode, whose group bits are the mask of an ACL and so fit it when both come from one source;
//! times last, as everything before may touch them.
//!
//! Mode and times must succeed. An owner, attribute or ACL that cannot be set leaves the rest as
//! it should be and is told as `Lacking`.
//!
//! | file | story |
//! |---|---|
//! | `held` | an inode held by a descriptor, and the system calls on it |
//! | `kernel` | the names of attributes without holding an inode |
//! | `attributes` | extended attributes and ACLs: which of them, reading, writing |
//! | `owners` | users and groups by name and by number |
//! | `compare` | what of two things' metadata differs, under a policy |

mod attributes;
mod compare;
mod held;
mod kernel;
mod owners;

use std::path::Path;
use std::sync::OnceLock;

use rustix::fs::{FileType, Stat, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;
use rustix::process::{Gid, Uid, getegid, geteuid, getgroups};
use towpath_content::tree::{Metadata, Time};

use crate::error::FileError;

pub(crate) use attributes::{Which, has_none as has_no_attributes, read as read_attributes};
pub use attributes::{is_privileged, tells_origin};
pub use compare::{Differences, differences};
pub(crate) use held::{HeldMetadata, hold};
pub use owners::{group, user};
pub(crate) use owners::{named_group, named_user};

use held::file_type;

const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;

/// Metadata of an entry that are applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Permission bits as given (default). Otherwise what was there keeps its own, and new things
    /// get what the umask leaves of those given.
    pub modes: bool,
    /// Bits that new things do not get where `modes` is off, if not those of this process's umask (default).
    pub umask: Option<u32>,
    /// Setuid and setgid bits too. Default: dropped, whoever asks for them. A bit whose owner is
    /// to be applied and could not be is dropped in any case.
    pub special_bits: bool,
    /// Time of last modification of anything but directories and symbolic links (default).
    /// Otherwise: now.
    pub times: bool,
    /// Times of directories (default).
    pub dir_times: bool,
    /// Times of symbolic links (default).
    pub link_times: bool,
    /// The owning user, if this process is root; else everything belongs to who runs it.
    pub owner: bool,
    /// The owning group, if this process is root or in that group.
    pub group: bool,
    /// Users and groups are taken by number. Otherwise by name, where this machine knows it.
    pub numeric_ids: bool,
    /// POSIX ACLs, together with modes: what is given none loses those it had.
    pub acls: bool,
    /// Extended attributes of `user.`; others in that namespace are removed.
    pub xattrs: bool,
    /// With `xattrs`, by root: those of all other namespaces but `system.` too. They make programs run with rights of
    /// their own, or say who may do what, so they are the sender's to give only where a person asked for them.
    pub privileged_xattrs: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            modes: true,
            umask: None,
            special_bits: false,
            times: true,
            dir_times: true,
            link_times: true,
            owner: false,
            group: false,
            numeric_ids: false,
            acls: false,
            xattrs: false,
            privileged_xattrs: false,
        }
    }
}

impl Policy {
    /// Everything, owners by name.
    pub const fn archive() -> Self {
        Self {
            modes: true,
            umask: None,
            special_bits: true,
            times: true,
            dir_times: true,
            link_times: true,
            owner: true,
            group: true,
            numeric_ids: false,
            acls: true,
            xattrs: true,
            privileged_xattrs: true,
        }
    }

    /// Bits that new things do not get.
    pub fn umask(&self) -> u32 {
        self.umask.unwrap_or_else(umask)
    }

    const fn takes_acls(&self) -> bool {
        self.acls && self.modes
    }

    const fn takes_times(&self, of: FileType) -> bool {
        match of {
            FileType::Directory => self.dir_times,
            FileType::Symlink => self.link_times,
            _ => self.times,
        }
    }
}

/// Metadata of what had the name before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PreviousMetadata {
    /// Nothing.
    Nothing,
    /// A thing of this mode.
    Mode(u32),
}

/// Something that is in place without all of its metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lacking {
    op: &'static str,
    errno: Errno,
}

impl Lacking {
    /// The error to name, for the thing at `path`.
    pub(crate) fn of(self, path: &Path) -> FileError {
        FileError::new(self.op, path, self.errno)
    }
}

/// Puts on `target` what `policy` takes of `metadata`; tells the first thing that is lacking.
pub(crate) fn apply(
    target: HeldMetadata<'_>,
    metadata: &Metadata,
    policy: &Policy,
    before: PreviousMetadata,
) -> Result<Option<Lacking>, Errno> {
    apply_to(target, &Now { stat: target.stat()?, is_plain: false }, metadata, policy, before)
}

/// State of something before its metadata are applied.
pub(crate) struct Now {
    pub(crate) stat: Stat,
    /// It has no attributes but what the system itself gave it, so there are none to remove.
    pub(crate) is_plain: bool,
}

/// [`apply`] to what was looked at already.
pub(crate) fn apply_to(
    target: HeldMetadata<'_>,
    now: &Now,
    metadata: &Metadata,
    policy: &Policy,
    before: PreviousMetadata,
) -> Result<Option<Lacking>, Errno> {
    let Now { stat, is_plain } = now;
    let has_attributes = !(*is_plain && metadata.xattrs.is_empty());
    let mut lacking = None;
    let mut note = |op, outcome: Result<(), Errno>| {
        if let Err(errno) = outcome {
            lacking.get_or_insert(Lacking { op, errno });
        }
    };
    let owned = apply_owner(target, stat, metadata, policy);
    let is_as_before = owned == Ok(false) && !has_attributes;
    note("set the owner of", owned.map(drop));
    if policy.xattrs && has_attributes {
        note("set attributes of", apply_xattrs(target, stat, metadata, policy));
    }
    if policy.takes_acls() && has_attributes {
        note("set the ACL of", attributes::write_acls(target, &metadata.xattrs));
    }
    // Another owner or ACL changes the mode too.
    match is_as_before {
        true => apply_mode(target, stat, metadata, policy, before)?,
        false => apply_mode(target, &target.stat()?, metadata, policy, before)?,
    }
    if policy.takes_times(file_type(stat)) {
        set_time(target, metadata.modified)?;
    }
    Ok(lacking)
}

/// The user and group a thing should have here, as far as this process may set them.
fn wanted_owner(metadata: &Metadata, policy: &Policy) -> (Option<u32>, Option<u32>) {
    let root = is_root();
    let user = (policy.owner && root).then(|| owners::local_user(&metadata.user, policy.numeric_ids));
    let group = policy.group.then(|| owners::local_group(&metadata.group, policy.numeric_ids));
    (user, group.filter(|&group| root || is_member(group)))
}

/// True if this process may do everything. It never becomes another user's.
pub fn is_root() -> bool {
    static IS_ROOT: OnceLock<bool> = OnceLock::new();
    *IS_ROOT.get_or_init(|| geteuid().is_root())
}

fn is_member(group: u32) -> bool {
    let in_list = || getgroups().is_ok_and(|groups| groups.iter().any(|one| one.as_raw() == group));
    getegid().as_raw() == group || in_list()
}

/// Sets the owner; true if it had another one.
fn apply_owner(
    target: HeldMetadata<'_>,
    stat: &Stat,
    metadata: &Metadata,
    policy: &Policy,
) -> Result<bool, Errno> {
    let (user, group) = wanted_owner(metadata, policy);
    let user = user.filter(|&id| id != stat.st_uid && id != u32::MAX);
    let group = group.filter(|&id| id != stat.st_gid && id != u32::MAX);
    if user.is_none() && group.is_none() {
        return Ok(false);
    }
    target.set_owner(user.map(Uid::from_raw), group.map(Gid::from_raw)).map(|()| true)
}

/// Attributes of `user.` can be set only by who may write; the mode set afterwards ends that.
fn apply_xattrs(
    target: HeldMetadata<'_>,
    stat: &Stat,
    metadata: &Metadata,
    policy: &Policy,
) -> Result<(), Errno> {
    let write = || attributes::write_xattrs(target, &metadata.xattrs, policy.privileged_xattrs);
    let mode = stat.st_mode & 0o7777;
    let ours = stat.st_uid == geteuid().as_raw() && !is_root();
    if ours && mode & 0o600 != 0o600 && file_type(stat) != FileType::Symlink {
        target.set_mode(mode | 0o600)?;
        let written = write();
        return written.and(target.set_mode(mode));
    }
    write()
}

fn apply_mode(
    target: HeldMetadata<'_>,
    stat: &Stat,
    metadata: &Metadata,
    policy: &Policy,
    before: PreviousMetadata,
) -> Result<(), Errno> {
    let wanted = wanted_mode(metadata, stat, policy, before);
    if file_type(stat) == FileType::Symlink || wanted == stat.st_mode & 0o7777 {
        return Ok(());
    }
    target.set_mode(wanted)
}

/// The mode for something that `stat` tells of, once its owner is set.
fn wanted_mode(metadata: &Metadata, stat: &Stat, policy: &Policy, before: PreviousMetadata) -> u32 {
    match before {
        _ if policy.modes => metadata.mode & 0o7777 & !dropped_bits(metadata, stat, policy),
        // A directory in one whose group is inherited hands it on.
        PreviousMetadata::Nothing => metadata.mode & 0o777 & !policy.umask() | inherited_setgid(stat),
        PreviousMetadata::Mode(mode) => mode,
    }
}

fn inherited_setgid(stat: &Stat) -> u32 {
    if file_type(stat) == FileType::Directory { stat.st_mode & SETGID } else { 0 }
}

fn dropped_bits(metadata: &Metadata, stat: &Stat, policy: &Policy) -> u32 {
    if !policy.special_bits {
        return SETUID | SETGID;
    }
    let mut dropped = 0;
    if policy.owner && stat.st_uid != owners::local_user(&metadata.user, policy.numeric_ids) {
        dropped |= SETUID;
    }
    if policy.group && stat.st_gid != owners::local_group(&metadata.group, policy.numeric_ids) {
        dropped |= SETGID;
    }
    dropped
}

pub(crate) fn set_time(target: HeldMetadata<'_>, modified: Time) -> Result<(), Errno> {
    target.set_times(&Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: modified.seconds, tv_nsec: nanos(modified) },
    })
}

/// Larger values have other meanings to the kernel ("now", "leave").
fn nanos(time: Time) -> rustix::fs::Nsecs {
    time.nanos.min(999_999_999).into()
}

/// Metadata that a stranger chose, less the permissions that this process's umask holds back: of the mode, and of the
/// ACL that new things in a directory begin with, to which no umask is applied. One that can't be read is left out.
pub fn masked(metadata: Metadata) -> Metadata {
    let mut metadata = Metadata { mode: metadata.mode & !umask(), ..metadata };
    metadata.xattrs.retain_mut(|xattr| {
        xattr.name != attributes::DEFAULT.to_bytes() || attributes::mask_acl(&mut xattr.value, umask())
    });
    metadata
}

/// The process's umask when it was first asked for. Nothing here changes it.
pub fn umask() -> u32 {
    static UMASK: OnceLock<u32> = OnceLock::new();
    *UMASK.get_or_init(read_umask)
}

/// The system tells it without changing it only in `/proc`.
fn read_umask() -> u32 {
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
        let lacking =
            apply(HeldMetadata::Open(file.as_fd()), metadata, policy, PreviousMetadata::Nothing).unwrap();
        assert_eq!(lacking, None);
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
        let none = Policy { modes: false, times: false, special_bits: true, ..Policy::default() };
        let got = applied(&metadata(0o4766, 7, 0), &none);
        assert_eq!(got.mode() & 0o7777, 0o766 & !umask());
        assert!(got.mtime() > 7);
        let other = Policy { umask: Some(0o137), ..none };
        assert_eq!(applied(&metadata(0o4766, 7, 0), &other).mode() & 0o7777, 0o640);
    }

    #[test]
    fn a_link_gets_its_own_time_and_not_what_it_points_to() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = File::open(tmp.path()).unwrap();
        fs::write(tmp.path().join("f"), b"").unwrap();
        symlink("f", tmp.path().join("l")).unwrap();
        let link = hold(&dir, b"l").unwrap();
        let link = HeldMetadata::Named(link.as_fd());
        apply(link, &metadata(0o777, 99, 5), &Policy::default(), PreviousMetadata::Nothing).unwrap();
        assert_eq!(fs::symlink_metadata(tmp.path().join("l")).unwrap().mtime(), 99);
        assert_ne!(fs::metadata(tmp.path().join("f")).unwrap().mtime(), 99);
    }

    #[test]
    fn nanoseconds_out_of_range_do_not_mean_now() {
        let got = applied(&metadata(0o600, 5, (1 << 30) - 1), &Policy::default());
        assert_eq!((got.mtime(), got.mtime_nsec()), (5, 999_999_999));
    }
}
