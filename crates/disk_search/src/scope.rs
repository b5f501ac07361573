//! Scope of a search: where it begins, what it may enter, and in which order it goes outward. Pure, but for
//! [`Mounts::read`].
//!
//! A stranger must not learn from what is not asked of him what lies on this disk. So beyond the
//! destination, and what the user named, only those go whom the caller lets ([`Scope::beyond_destination`]).
//! Even they reach nothing on file systems of a network, on media that come and go, and on those that are
//! no disks, unless the destination or what the user named lies there; `/dev/shm` is such a one.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// File systems that are disks of this machine. All others are left alone: a list of those that are not
/// would miss tomorrow's.
const LOCAL: [&str; 18] = [
    "apfs", "bcachefs", "btrfs", "erofs", "exfat", "ext2", "ext3", "ext4", "f2fs", "hfsplus", "jfs",
    "nilfs2", "ntfs3", "overlay", "reiserfs", "vfat", "xfs", "zfs",
];
/// Directories in which desktops mount what is plugged in; large USB disks do not call themselves removable.
const MEDIA: [&str; 2] = ["/media", "/run/media"];
/// No place for users' files, however they are mounted.
const SYSTEM: [&str; 3] = ["/proc", "/sys", "/dev"];
/// But for this one, a file system in memory that everyone may use: searched, as any other that is no disk, only if the
/// destination lies there.
const SHARED_MEMORY: &str = "/dev/shm";

/// Directories that a search may enter. All paths are absolute and without symbolic links.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Scope {
    /// The directory that the transfer writes into.
    pub start: PathBuf,
    /// Directories to search when all above `start` is searched: the user's home.
    pub roots: Vec<PathBuf>,
    /// Directories that the user asked to have searched (`--search`).
    pub extra: Vec<PathBuf>,
    /// True if it may go further than `start` and `extra`. It is only asked of whom this machine's files may
    /// be known to, who may be sent signatures of them too.
    pub beyond_destination: bool,
    /// Of `start` only files that lie directly in it may be used: what is below is another's place.
    pub not_below: bool,
}

/// Reason why a directory is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reach {
    /// The transfer writes into it.
    Destination,
    /// The user asked for it.
    Requested,
    /// It lies above the destination.
    Above,
    /// It is the user's home.
    Home,
    /// It is where a file system of this machine begins.
    FileSystem,
}

/// A directory where a search begins, or begins again further out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beginning {
    /// The directory.
    pub path: PathBuf,
    /// Reason why it is searched.
    pub reach: Reach,
}

impl Scope {
    /// Beginnings, nearest first; each begins where those before it were searched wholly. One may lie
    /// within or above another, so directories reached before have to be noticed.
    pub fn outward(&self, mounts: &Mounts) -> Vec<Beginning> {
        let begin = |reach| move |path: &Path| Beginning { path: path.into(), reach };
        let mut all: Vec<_> = [&*self.start].into_iter().map(begin(Reach::Destination)).collect();
        all.extend(self.extra.iter().map(PathBuf::as_path).map(begin(Reach::Requested)));
        if self.beyond_destination {
            let above = self.start.ancestors().skip(1).map(begin(Reach::Above));
            let home = self.roots.iter().map(PathBuf::as_path).map(begin(Reach::Home));
            let points = mounts.usable().map(begin(Reach::FileSystem));
            all.extend(above.chain(home).chain(points).filter(|next| self.is_reached(&next.path, mounts)));
        }
        let mut seen = HashSet::new();
        all.retain(|next| !is_system(&next.path) && seen.insert(next.path.clone()));
        all
    }

    /// True if what lies at `path` may be used: for what an index finds anywhere.
    pub fn covers(&self, path: &Path, mounts: &Mounts) -> bool {
        let is_near = || match self.not_below {
            true => path.parent() == Some(&*self.start),
            false => path.starts_with(&self.start),
        };
        let is_named = || self.is_asked_for(path) || is_near();
        !is_system(path) && (is_named() || self.beyond_destination && self.is_reached(path, mounts))
    }

    /// True if the search may go from a directory into `below` in it.
    pub fn enters(&self, below: &Path) -> bool {
        !self.not_below || self.beyond_destination || self.is_asked_for(below)
    }

    fn is_asked_for(&self, path: &Path) -> bool {
        self.extra.iter().any(|dir| path.starts_with(dir))
    }

    fn is_reached(&self, path: &Path, mounts: &Mounts) -> bool {
        let (own, found) = (mounts.holding(&self.start), mounts.holding(path));
        found.is_some_and(|found| found.kind == MountKind::Local) || own.is_some() && own == found
    }
}

fn is_system(path: &Path) -> bool {
    SYSTEM.iter().any(|system| path.starts_with(system)) && !path.starts_with(SHARED_MEMORY)
}

/// Medium of a mounted file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MountKind {
    /// A disk of this machine.
    Local,
    /// Another machine, a medium that comes and goes, or no medium at all.
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ScopeMount {
    point: PathBuf,
    kind: MountKind,
}

/// The mounted file systems.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mounts(Vec<ScopeMount>);

impl Mounts {
    /// Those of this process, now.
    pub fn read() -> io::Result<Self> {
        Ok(Self::parse(&std::fs::read("/proc/self/mountinfo")?, &is_removable))
    }

    /// Reads what `/proc/self/mountinfo` says (`man 5 proc_pid_mountinfo`); `is_removable` is asked about a
    /// device, as `8:1`. Lines that are not understood are left out.
    pub fn parse(text: &[u8], is_removable: &dyn Fn(&str) -> bool) -> Self {
        let lines = text.split(|byte| *byte == b'\n');
        Self(lines.filter_map(|line| parse_line(line, is_removable)).collect())
    }

    /// Mount points of file systems that may be searched unasked, in the order of their mounting.
    fn usable(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().filter(|mount| mount.kind == MountKind::Local).map(|mount| &*mount.point)
    }

    /// The mount that `path` lies in: the innermost, and of several at one place the last.
    fn holding(&self, path: &Path) -> Option<&ScopeMount> {
        let holding = self.0.iter().filter(|mount| path.starts_with(&mount.point));
        holding.max_by_key(|mount| mount.point.components().count())
    }
}

fn parse_line(line: &[u8], is_removable: &dyn Fn(&str) -> bool) -> Option<ScopeMount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = std::str::from_utf8(fields.nth(2)?).ok()?;
    let point = PathBuf::from(unescape(fields.nth(1)?));
    // Optional fields end with a dash; then comes the file system's type.
    let mut fields = fields.skip_while(|field| *field != b"-");
    let of_type = std::str::from_utf8(fields.nth(1)?).ok()?;
    let is_plugged_in = MEDIA.iter().any(|media| point.starts_with(media)) || is_removable(device);
    let kind = if LOCAL.contains(&of_type) && !is_plugged_in { MountKind::Local } else { MountKind::Other };
    Some(ScopeMount { point, kind })
}

/// Takes back how the kernel writes blanks and backslashes: as three octal digits.
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(|_| *first == b'\\') {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes)
}

/// The kernel's attribute of the disk, or of the disk that this is a partition of.
fn is_removable(device: &str) -> bool {
    let own = Path::new("/sys/dev/block").join(device);
    let says_so = |path: PathBuf| std::fs::read(path).is_ok_and(|text| text.trim_ascii() == b"1");
    says_so(own.join("removable")) || says_so(own.join("../removable"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:5 / /proc rw - proc proc rw
24 22 0:6 / /dev rw master:2 shared:3 - devtmpfs udev rw
25 22 8:2 / /home rw - xfs /dev/sda2 rw
26 25 0:40 / /home/ann/remote rw - fuse.sshfs host: rw
27 22 0:41 / /srv/nfs rw - nfs4 server:/ rw
28 22 8:17 / /mnt/stick rw - vfat /dev/sdb1 rw
29 22 8:33 / /media/ann/big\\040disk rw - ext4 /dev/sdc1 rw
30 22 8:3 / /data\\134x rw - btrfs /dev/sda3 rw
31 22 0:42 / /tmp rw - tmpfs tmpfs rw
32 22 0:43 / /broken
33 22 8:4 / /sys/odd rw - ext4 /dev/sda4 rw
34 24 0:44 / /dev/shm rw - tmpfs tmpfs rw
";

    fn mounts() -> Mounts {
        Mounts::parse(TABLE.as_bytes(), &|device| device == "8:17")
    }

    fn outward(scope: &Scope) -> Vec<(String, Reach)> {
        let name = |next: Beginning| (next.path.to_str().unwrap().to_owned(), next.reach);
        scope.outward(&mounts()).into_iter().map(name).collect()
    }

    fn scope(start: &str, beyond_destination: bool) -> Scope {
        let extra = vec!["/srv/nfs/more".into()];
        Scope {
            start: start.into(),
            roots: vec!["/home/ann".into()],
            extra,
            beyond_destination,
            not_below: false,
        }
    }

    #[test]
    fn it_goes_from_the_destination_to_what_was_asked_above_home_and_further_disks() {
        use Reach::*;
        let expected = [
            ("/home/bob/a/b", Destination),
            ("/srv/nfs/more", Requested),
            ("/home/bob/a", Above),
            ("/home/bob", Above),
            ("/home", Above),
            ("/", Above),
            ("/home/ann", Home),
            ("/data\\x", FileSystem),
        ];
        let expected = expected.map(|(path, reach)| (path.to_owned(), reach));
        assert_eq!(outward(&scope("/home/bob/a/b", true)), expected);
    }

    #[test]
    fn a_stranger_stays_in_the_destination_and_what_was_asked() {
        let expected =
            [("/home/bob".to_owned(), Reach::Destination), ("/srv/nfs/more".to_owned(), Reach::Requested)];
        assert_eq!(outward(&scope("/home/bob", false)), expected);
    }

    #[test]
    fn a_destination_on_a_stick_is_searched_to_the_sticks_root_and_then_the_disks() {
        let found = outward(&scope("/mnt/stick/a/b", true));
        let found: Vec<_> = found.iter().map(|(path, _)| &**path).collect();
        let expected = [
            "/mnt/stick/a/b",
            "/srv/nfs/more",
            "/mnt/stick/a",
            "/mnt/stick",
            "/mnt",
            "/",
            "/home/ann",
            "/home",
            "/data\\x",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_destination_in_shared_memory_is_searched_to_its_root_and_then_the_disks() {
        let found = outward(&scope("/dev/shm/a/b", true));
        let found: Vec<_> = found.iter().map(|(path, _)| &**path).collect();
        let expected = [
            "/dev/shm/a/b",
            "/srv/nfs/more",
            "/dev/shm/a",
            "/dev/shm",
            "/",
            "/home/ann",
            "/home",
            "/data\\x",
        ];
        assert_eq!(found, expected);
        let covers = |start, path| scope(start, true).covers(Path::new(path), &mounts());
        assert!(covers("/dev/shm/a/b", "/dev/shm/c/file"));
        assert!(!covers("/dev/shm/a/b", "/dev/fd/file") && !covers("/dev/shm/a/b", "/dev/shmx/file"));
        assert!(!covers("/home/bob", "/dev/shm/c/file"), "another's memory is no disk of this one");
    }

    #[test]
    fn what_an_index_finds_is_used_only_within_the_scope() {
        let cases = [
            ("/home/bob/file", true, true),
            ("/home/bobby/file", false, true),
            ("/srv/nfs/more/file", true, true),
            ("/srv/nfs/file", false, false),
            ("/data\\x/file", false, true),
            ("/mnt/stick/file", false, false),
            ("/media/ann/big disk/file", false, false),
            ("/home/ann/remote/file", false, false),
            ("/tmp/file", false, false),
            ("/proc/1/mem", false, false),
            ("/sys/odd/file", false, false),
        ];
        for (path, near, far) in cases {
            let covers = |beyond| scope("/home/bob", beyond).covers(Path::new(path), &mounts());
            assert_eq!((covers(false), covers(true)), (near, far), "{path}");
        }
        let in_proc = scope("/proc/self", true);
        assert!(!in_proc.covers(Path::new("/proc/self/file"), &mounts()));
    }

    #[test]
    fn this_machines_own_table_is_read() {
        assert!(Mounts::read().unwrap().holding(Path::new("/")).is_some());
    }
}
