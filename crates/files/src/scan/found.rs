//! One entry as the scan found it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, major, minor, openat, readlinkat, statat};
use rustix::io::Errno;
use towpath_content::tree::{Entry, Kind, MAX_TARGET, Metadata, Owner, Time, Xattr};

use super::ScanOptions;
use crate::confine::Links;
use crate::error::{FileError, READ_ATTRIBUTES};
use crate::metadata::{HeldMetadata, has_no_attributes, named_group, named_user, read_attributes};
use crate::stamp::Stamp;

/// An entry, and what a descriptor does not say of it. Moved often, so what is seldom there is kept apart.
#[derive(Debug)]
pub struct Found {
    /// The entry as a descriptor has it; a file's OID and extents are not filled in, and extended
    /// attributes, names of owners and hard links only where the [`ScanOptions`] ask for them.
    pub entry: Entry,
    /// Stamp of what it looked like.
    pub stamp: Stamp,
    /// Number of its names.
    pub links: u64,
    /// A regular file that takes less room on disk than it has bytes: it probably has holes.
    pub looks_sparse: bool,
    /// For a regular file, if the [`ScanOptions`] ask for it: the way to its bytes.
    pub file: Option<Box<ScannedFile>>,
    /// Error by which some of its attributes are missing. A scan reports it as a failure of its own.
    pub incomplete: Option<Box<FileError>>,
}

/// A regular file that a scan saw. Holds its directory open: keep few of them.
#[derive(Debug, Clone)]
pub struct ScannedFile {
    dir: Arc<OwnedFd>,
    name: Vec<u8>,
    path: PathBuf,
    stamp: Stamp,
    sparse: bool,
    links: Links,
}

impl ScannedFile {
    /// Opens it for reading, if its name still stands for the file that was seen; it may have
    /// other bytes by now, which its stamp would show.
    pub fn open(&self) -> Result<File, FileError> {
        let file = open_regular(self.dir.as_fd(), &self.name, self.links)
            .map_err(|e| FileError::new("open", &self.path, e))?;
        check_same(file, &self.stamp).map_err(|how| FileError::changed("open", &self.path, how))
    }

    /// Stamp of what it looked like.
    pub const fn stamp(&self) -> &Stamp {
        &self.stamp
    }

    /// Its path, for messages.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// True if it takes less room on disk than it has bytes: ask
    /// [`data_extents`](crate::data_extents) where its holes are.
    pub const fn looks_sparse(&self) -> bool {
        self.sparse
    }
}

/// Time without a change after which something counts as at rest: ten of the slowest usual ticks.
const AT_REST: Duration = Duration::from_millis(100);
/// The same where a file system seems to keep whole seconds only.
const COARSELY_AT_REST: Duration = Duration::from_secs(3);

/// A name whose inode was looked at, before anything of it is read.
#[derive(Debug)]
pub(crate) struct Sighted {
    stat: Stat,
    /// Held if more than the stat is to be read, so that all of it is read of one inode.
    held: Option<OwnedFd>,
}

impl Sighted {
    /// Looks at `name` in `dir`.
    pub(crate) fn at(dir: BorrowedFd<'_>, name: &[u8], options: &ScanOptions) -> Result<Self, Errno> {
        Self::at_time(dir, name, options, SystemTime::now())
    }

    /// [`Self::at`], `now` being the time.
    fn at_time(
        dir: BorrowedFd<'_>,
        name: &[u8],
        options: &ScanOptions,
        now: SystemTime,
    ) -> Result<Self, Errno> {
        if !options.which_attributes().any() {
            let flags = if options.follow_links { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
            return statat(dir, name, flags).map(|stat| Self { stat, held: None });
        }
        if let Some(stat) = Self::without_attributes(dir, name, options, now) {
            return Ok(Self { stat, held: None });
        }
        let links = if options.follow_links { OFlags::empty() } else { OFlags::NOFOLLOW };
        let held = openat(dir, name, OFlags::PATH | OFlags::CLOEXEC | links, Mode::empty())?;
        Ok(Self { stat: fstat(&held)?, held: Some(held) })
    }

    /// Looks at what has no attributes by its name alone, which takes two calls instead of five. That both are about one
    /// inode shows in its ctime: it is older than the first call, and giving an inode a name, another's or a new one,
    /// sets it. `None` for whatever has to be held: what has attributes or was changed just now, and links, which have
    /// more to be read.
    fn without_attributes(
        dir: BorrowedFd<'_>,
        name: &[u8],
        options: &ScanOptions,
        now: SystemTime,
    ) -> Option<Stat> {
        if options.follow_links || !has_no_attributes(dir, name, options.which_attributes()) {
            return None;
        }
        let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
        (!is_link && is_at_rest(&stat, now)).then_some(stat)
    }

    pub(crate) fn is_dir(&self) -> bool {
        FileType::from_raw_mode(self.stat.st_mode) == FileType::Directory
    }

    pub(crate) const fn device(&self) -> u64 {
        self.stat.st_dev
    }

    /// Reads what the options ask for.
    pub(crate) fn describe(
        self,
        dir: &Arc<OwnedFd>,
        name: &[u8],
        path: &dyn Fn() -> PathBuf,
        options: &ScanOptions,
    ) -> Result<Found, Errno> {
        let kind = self.kind(dir.as_fd(), name)?;
        let held = self.held.as_ref().map(|held| HeldMetadata::Named(held.as_fd()));
        let mut found = Found::new(name, &self.stat, kind, held, path, options);
        if matches!(found.entry.kind, Kind::File { .. }) && options.files {
            found.file = Some(Box::new(ScannedFile {
                dir: Arc::clone(dir),
                name: name.to_vec(),
                path: path(),
                stamp: found.stamp,
                sparse: found.looks_sparse,
                links: options.links(),
            }));
        }
        Ok(found)
    }

    fn kind(&self, dir: BorrowedFd<'_>, name: &[u8]) -> Result<Kind, Errno> {
        match &self.held {
            Some(held) => kind(&self.stat, held.as_fd(), b""),
            None => kind(&self.stat, dir, name),
        }
    }
}

impl Found {
    /// Looks at `name` in `dir`. A directory that is found is described as it was before opening.
    pub(crate) fn look(
        dir: &Arc<OwnedFd>,
        name: &[u8],
        path: &dyn Fn() -> PathBuf,
        options: &ScanOptions,
    ) -> Result<Self, Errno> {
        Sighted::at(dir.as_fd(), name, options)?.describe(dir, name, path, options)
    }

    /// An open directory.
    pub(crate) fn directory(
        dir: BorrowedFd<'_>,
        name: &[u8],
        path: &dyn Fn() -> PathBuf,
        options: &ScanOptions,
    ) -> Result<Self, Errno> {
        let held = options.which_attributes().any().then_some(HeldMetadata::Open(dir));
        Ok(Self::new(name, &fstat(dir)?, Kind::Directory, held, path, options))
    }

    fn new(
        name: &[u8],
        stat: &Stat,
        kind: Kind,
        held: Option<HeldMetadata<'_>>,
        path: &dyn Fn() -> PathBuf,
        options: &ScanOptions,
    ) -> Self {
        let stamp = Stamp::from_stat(stat);
        let looks_sparse = matches!(kind, Kind::File { size, .. } if bytes_on_disk(stat) < size);
        let read = |held| read_attributes(held, options.which_attributes());
        let (xattrs, failed): (Vec<Xattr>, Option<io::Error>) = held.map_or_else(Default::default, read);
        let (user, group) = owners(stat, options.owner_names);
        let metadata =
            Metadata { mode: stat.st_mode & 0o7777, user, group, modified: stamp.modified, xattrs };
        Self {
            entry: Entry { name: name.to_vec(), kind, metadata, hard_link: None },
            stamp,
            links: widened(stat.st_nlink),
            looks_sparse,
            file: None,
            incomplete: failed.map(|error| Box::new(FileError::new(READ_ATTRIBUTES, &path(), error))),
        }
    }
}

/// True if its last change was a while before `now`.
fn is_at_rest(stat: &Stat, now: SystemTime) -> bool {
    let Time { seconds, nanos } = Stamp::from_stat(stat).changed;
    let changed = i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    let rest = if nanos == 0 { COARSELY_AT_REST } else { AT_REST };
    // No file system reports a time that this could not count.
    now.duration_since(UNIX_EPOCH).is_ok_and(|now| now.as_nanos() as i128 - changed > rest.as_nanos() as i128)
}

fn bytes_on_disk(stat: &Stat) -> u64 {
    u64::try_from(stat.st_blocks).map_or(u64::MAX, |blocks| blocks.saturating_mul(512))
}

fn owners(stat: &Stat, named: bool) -> (Owner, Owner) {
    if named {
        return (named_user(stat.st_uid), named_group(stat.st_gid));
    }
    let owner = |id| Owner { id, name: Vec::new() };
    (owner(stat.st_uid), owner(stat.st_gid))
}

/// The type of the kernel's link count differs between architectures.
fn widened(count: impl Into<u64>) -> u64 {
    count.into()
}

fn kind(stat: &Stat, dir: BorrowedFd<'_>, name: &[u8]) -> Result<Kind, Errno> {
    let (major, minor) = (major(stat.st_rdev), minor(stat.st_rdev));
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Ok(Kind::Directory),
        FileType::RegularFile => {
            let size = u64::try_from(stat.st_size).map_err(|_| Errno::OVERFLOW)?;
            Ok(Kind::File { size, oid: None, extents: None })
        }
        FileType::Symlink => read_target(dir, name).map(|target| Kind::Symlink { target }),
        FileType::Fifo => Ok(Kind::Fifo),
        FileType::Socket => Ok(Kind::Socket),
        FileType::CharacterDevice => Ok(Kind::CharDevice { major, minor }),
        FileType::BlockDevice => Ok(Kind::BlockDevice { major, minor }),
        FileType::Unknown => Err(Errno::OPNOTSUPP),
    }
}

fn read_target(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Vec<u8>, Errno> {
    let target = readlinkat(dir, name, Vec::new())?.into_bytes();
    match target.len() {
        1..=MAX_TARGET => Ok(target),
        _ => Err(Errno::NAMETOOLONG),
    }
}

/// Opens for reading without waiting for a pipe's writer, or following a link unless told to.
pub(crate) fn open_regular(dir: BorrowedFd<'_>, name: &[u8], links: Links) -> Result<File, Errno> {
    let nofollow = if links == Links::Follow { OFlags::empty() } else { OFlags::NOFOLLOW };
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | nofollow;
    openat(dir, name, flags, Mode::empty()).map(File::from)
}

/// Checks that an opened file is the regular file that was seen.
pub(crate) fn check_same(file: File, seen: &Stamp) -> Result<File, &'static str> {
    let stat = fstat(&file).map_err(|_| "cannot be looked at")?;
    let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if regular && Stamp::from_stat(&stat).same_file(seen) { Ok(file) } else { Err("another file now") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use rustix::fs::{XattrFlags, lsetxattr};

    const LATER: Duration = Duration::from_secs(3600);

    fn all() -> ScanOptions {
        ScanOptions { xattrs: true, acls: true, ..ScanOptions::default() }
    }

    /// Findings of a read of `name` so long after its last change, and whether that took holding it.
    fn read(root: &Path, name: &str, after: Duration, options: &ScanOptions) -> (Found, bool) {
        let dir = Arc::new(OwnedFd::from(File::open(root).unwrap()));
        let changed = statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).unwrap().st_ctime;
        let now = UNIX_EPOCH + Duration::from_secs(changed.try_into().unwrap()) + after;
        let sighted = Sighted::at_time(dir.as_fd(), name.as_bytes(), options, now).unwrap();
        let is_held = sighted.held.is_some();
        (sighted.describe(&dir, name.as_bytes(), &|| root.join(name), options).unwrap(), is_held)
    }

    fn root() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("plain"), b"bytes").unwrap();
        fs::write(root.path().join("other"), b"bytes").unwrap();
        fs::create_dir(root.path().join("dir")).unwrap();
        symlink("plain", root.path().join("link")).unwrap();
        root
    }

    /// True where the system has the call that lists by name.
    fn lists_by_name(root: &Path) -> bool {
        let dir = File::open(root).unwrap();
        let can = has_no_attributes(dir.as_fd(), b"plain", all().which_attributes());
        if !can {
            println!("skipped: no listxattrat, or attributes on everything");
        }
        can
    }

    #[test]
    fn only_what_is_at_rest_and_has_no_attributes_is_not_held() {
        let root = root();
        if !lists_by_name(root.path()) {
            return;
        }
        let is_held = |name, after, options: &ScanOptions| read(root.path(), name, after, options).1;
        for name in ["plain", "dir"] {
            assert!(!is_held(name, LATER, &all()), "{name}");
            assert!(is_held(name, Duration::ZERO, &all()), "{name} was changed just now");
        }
        assert!(is_held("link", LATER, &all()), "its target is to be read too");
        assert!(is_held("link", LATER, &ScanOptions { follow_links: true, ..all() }));
    }

    #[test]
    fn a_name_that_another_file_was_given_just_now_is_not_at_rest() {
        let root = root();
        let seen = |name| rustix::fs::stat(root.path().join(name)).unwrap();
        let before = seen("other");
        // Past the grain of the clock that ctimes are of.
        std::thread::sleep(Duration::from_millis(30));
        fs::rename(root.path().join("other"), root.path().join("plain")).unwrap();
        let after = seen("plain");
        assert_eq!((before.st_ino, before.st_mtime), (after.st_ino, after.st_mtime));
        let changed = |stat: &Stat| (stat.st_ctime, stat.st_ctime_nsec);
        assert_ne!(changed(&before), changed(&after), "a file system whose renames leave no trace");
    }

    #[test]
    fn attributes_and_acls_are_found_however_long_ago_they_were_set() {
        let root = root();
        // Owner, one more user, group, mask, others.
        let acl = [
            &[2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 4, 0, 1, 0, 0, 0][..],
            &[
                4, 0, 4, 0, 255, 255, 255, 255, 16, 0, 4, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255,
                255,
            ],
        ]
        .concat();
        for (name, value) in [("user.note", b"n".to_vec()), ("system.posix_acl_access", acl)] {
            for file in ["plain", "dir"] {
                let set = lsetxattr(root.path().join(file), name, &value, XattrFlags::empty());
                if set == Err(Errno::OPNOTSUPP) {
                    println!("skipped: no {name} here");
                    continue;
                }
                set.unwrap();
                for after in [Duration::ZERO, LATER] {
                    let (found, is_held) = read(root.path(), file, after, &all());
                    let xattrs = found.entry.metadata.xattrs;
                    assert!(xattrs.iter().any(|xattr| xattr.name == name.as_bytes()), "{file}: {xattrs:?}");
                    assert!(is_held);
                }
            }
        }
        // Attributes that nobody asked for are none.
        let without = ScanOptions { xattrs: true, ..ScanOptions::default() };
        let (found, _) = read(root.path(), "plain", LATER, &without);
        assert!(found.entry.metadata.xattrs.iter().all(|xattr| xattr.name.starts_with(b"user.")));
    }
}
