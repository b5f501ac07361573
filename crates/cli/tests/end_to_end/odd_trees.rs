//! A tree with everything that a file system can hold, as far as the user may make it, and the
//! comparison of two such trees: ours, and rsync's.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags, makedev, mknodat, setxattr, utimensat,
};
use rustix::io::Errno;

use crate::machinery::tool;
use crate::runner::skip;
use crate::trees::{PIECE, assert_same, entries, file, sparse_file};

/// Makes the tree; with `as_root` also what nobody else can make or read.
pub fn odd_tree(root: &Path, as_root: bool) {
    for dir in ["empty", "links/deep/er", "attributes", "modes", "modes/read only", "specials", "owners"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    names(root);
    links(&root.join("links"));
    attributes(&root.join("attributes"), as_root);
    contents(root);
    if as_root {
        owners(&root.join("owners"));
    }
    specials(&root.join("specials"), as_root);
    modes(&root.join("modes"), as_root);
    times(root, &mut 0);
}

fn names(root: &Path) {
    let long = "n".repeat(255);
    let odd: [&[u8]; 12] = [
        b"new\nline",
        b"not \xff\xfe text",
        long.as_bytes(),
        b"-rf",
        b" ",
        b"back\\slash",
        b"host:path",
        b"\x1b[31m",
        b"*",
        b".tow-mine",
        "\u{e9}".as_bytes(),
        "e\u{301}\u{301}".as_bytes(),
    ];
    for (number, name) in odd.iter().enumerate() {
        file(&root.join(OsStr::from_bytes(name)), number as u64, number as u64);
        let dir = root.join("empty").join(OsStr::from_bytes(name));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("below"), name).unwrap();
    }
    fs::create_dir(root.join("really empty")).unwrap();
}

fn links(dir: &Path) {
    for (group, names) in [("one", ["deep/1", "deep/er/1", "a"]), ("two", ["z", "deep/2", "deep/er/0"])] {
        fs::write(dir.join(group), group).unwrap();
        names.iter().for_each(|name| fs::hard_link(dir.join(group), dir.join(name)).unwrap());
    }
    let targets = ["nowhere", "/etc/hostname", "deep", "../links/deep/er", "one", "/", "..", "with\nline"];
    for (number, target) in targets.iter().enumerate() {
        std::os::unix::fs::symlink(target, dir.join(format!("to {number}"))).unwrap();
    }
    fs::hard_link(dir.join("to 0"), dir.join("deep/the same link")).unwrap();
}

fn attributes(dir: &Path, as_root: bool) {
    file(&dir.join("file"), 1, 1000);
    fs::create_dir(dir.join("dir")).unwrap();
    for path in [dir.join("file"), dir.join("dir")] {
        attribute(&path, "user.empty", b"");
        attribute(&path, "user.binary", &[0, 1, 255]);
        attribute(&path, "user.long", &[b'x'; 2000]);
        attribute(&path, "system.posix_acl_access", &acl(7));
        if as_root {
            attribute(&path, "trusted.mine", b"mine");
        }
    }
    attribute(&dir.join("dir"), "system.posix_acl_default", &acl(5));
}

fn attribute(path: &Path, name: &str, value: &[u8]) {
    match setxattr(path, name, value, XattrFlags::empty()) {
        Err(Errno::OPNOTSUPP) => skip("the temporary folder has no extended attributes"),
        result => result.unwrap(),
    }
}

/// An access control list in the kernel's form: owner, a user, group, mask, others.
fn acl(permissions: u16) -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let entries =
        [(1, 7, NOBODY), (2, permissions, 12_345), (4, 5, NOBODY), (16, 7, NOBODY), (32, 4, NOBODY)];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend(u16::to_le_bytes(tag));
        bytes.extend(u16::to_le_bytes(permissions));
        bytes.extend(u32::to_le_bytes(id));
    }
    bytes
}

fn contents(root: &Path) {
    fs::write(root.join("no content"), "").unwrap();
    sparse_file(&root.join("sparse"), 40 << 20, &[0, 5 << 20, 39 << 20]);
    sparse_file(&root.join("nothing but a hole"), 9 << 20, &[]);
    file(&root.join("pieces"), 7, 700_001);
}

fn owners(dir: &Path) {
    for (name, user, group) in [("known", 1, 2), ("unknown", 54_321, 65_000), ("group only", 0, 4)] {
        let path = dir.join(name);
        fs::write(&path, name).unwrap();
        lchown(&path, Some(user), Some(group)).unwrap();
        std::os::unix::fs::symlink("x", dir.join(format!("{name} link"))).unwrap();
        lchown(dir.join(format!("{name} link")), Some(user), Some(group)).unwrap();
        fs::create_dir(dir.join(format!("{name} dir"))).unwrap();
        lchown(dir.join(format!("{name} dir")), Some(user), Some(group)).unwrap();
    }
    // After the owner, whose change clears it.
    fs::set_permissions(dir.join("unknown"), Permissions::from_mode(0o6755)).unwrap();
}

fn specials(dir: &Path, as_root: bool) {
    let make = |name: &str, kind, device| {
        match mknodat(CWD, dir.join(name), kind, Mode::from_raw_mode(0o640), device) {
            // Not even root may, in some containers.
            Err(Errno::PERM) => (),
            result => result.unwrap(),
        }
    };
    make("fifo", FileType::Fifo, 0);
    fs::hard_link(dir.join("fifo"), dir.join("the same fifo")).unwrap();
    make("socket", FileType::Socket, 0);
    if as_root {
        make("character device", FileType::CharacterDevice, makedev(1, 3));
        make("block device", FileType::BlockDevice, makedev(240, 70_000));
    }
}

fn modes(dir: &Path, as_root: bool) {
    for mode in [0o600, 0o444, 0o4755, 0o2755, 0o1777, 0o7777, 0o001] {
        // Nobody but root can read the last one.
        if mode & 0o400 != 0 || as_root {
            let path = dir.join(format!("file {mode:o}"));
            fs::write(&path, format!("{mode:o}")).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        }
        let path = dir.join(format!("dir {mode:o}"));
        if mode & 0o500 == 0o500 || as_root {
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        }
    }
    if as_root {
        fs::write(dir.join("closed"), "closed").unwrap();
        fs::set_permissions(dir.join("closed"), Permissions::from_mode(0o0)).unwrap();
    }
    let read_only = dir.join("read only");
    fs::create_dir(read_only.join("below")).unwrap();
    fs::write(read_only.join("below/file"), "content").unwrap();
    for path in ["below/file", "below", "."] {
        fs::set_permissions(read_only.join(path), Permissions::from_mode(0o555)).unwrap();
    }
}

/// Every entry gets a time of its own: long ago, before 1970, and to come; directories last.
fn times(path: &Path, number: &mut i64) {
    let metadata = fs::symlink_metadata(path).unwrap();
    if metadata.is_dir() {
        let mut below: Vec<PathBuf> =
            fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
        below.sort();
        below.iter().for_each(|path| times(path, number));
    }
    *number += 1;
    let seconds = [-1_000_000_000, -1, 0, 1_234_567_890, 4_102_444_800][(*number % 5) as usize];
    let time = Timespec { tv_sec: seconds + *number * 1000 - 7, tv_nsec: 999_999_999 - *number };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Two trees must be the same in all that we and rsync can see.
pub fn assert_equal(one: &Path, other: &Path) {
    assert_same(one, other);
    assert_as_sparse(one, other);
    for (from, to) in [(one, other), (other, one)] {
        assert_eq!(rsync_would_change(from, to), "", "{} -> {}", from.display(), to.display());
    }
}

fn rsync_would_change(from: &Path, to: &Path) -> String {
    let flags =
        ["-aHAX", "--devices", "--specials", "--checksum", "--modify-window=-1", "--delete", "-n", "-i"];
    let mut command = Command::new(tool("rsync"));
    command.args(flags).arg(from.join("")).arg(to.join(""));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn assert_as_sparse(one: &Path, other: &Path) {
    for name in ["sparse", "nothing but a hole"].iter().filter(|name| one.join(name).exists()) {
        let blocks = |root: &Path| File::open(root.join(name)).unwrap().metadata().unwrap().blocks();
        let (before, after) = (blocks(one), blocks(other));
        // Over the network each of three runs of data takes a whole piece.
        assert!(after <= before + 3 * PIECE / 512, "{name} had {before} blocks, and has {after}");
    }
}

/// Each entry's inode and time of last change; others later tell that something was written. Of
/// directories only the inode: their times are set again to what they are.
pub type Inodes = BTreeMap<PathBuf, (u64, (i64, i64))>;

/// Those of a tree.
pub fn inodes(root: &Path) -> Inodes {
    let inode = |path: PathBuf| {
        let metadata = fs::symlink_metadata(root.join(&path)).unwrap();
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        (path, (metadata.ino(), if metadata.is_dir() { (0, 0) } else { changed }))
    };
    entries(root).into_iter().map(inode).collect()
}

/// Entries that are not as they were.
pub fn touched(before: &Inodes, root: &Path) -> Vec<String> {
    let after = inodes(root);
    let paths: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let differs = paths.into_iter().filter(|path| before.get(*path) != after.get(*path));
    differs.map(|path| format!("{path:?}")).collect()
}
