//! Files and trees: making them, and comparing all that must arrive.

use std::collections::BTreeMap;
use std::fs::{self, File, FileTimes};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

/// Bytes of a piece.
pub const PIECE: u64 = 256 << 10;

/// Bytes that look random; the same for the same seed.
pub fn bytes(seed: u64, len: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(len as usize + 8);
    while (bytes.len() as u64) < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len as usize);
    bytes
}

/// A file of so many bytes.
pub fn file(path: &Path, seed: u64, len: u64) {
    fs::write(path, bytes(seed, len)).unwrap();
}

/// A file with data at these offsets and holes between them.
pub fn sparse_file(path: &Path, len: u64, data: &[u64]) {
    let file = File::create(path).unwrap();
    file.set_len(len).unwrap();
    for &offset in data {
        file.write_all_at(&bytes(offset, 4096), offset).unwrap();
    }
}

/// Sets a mode, and a time that no clock of now shows.
pub fn dress(path: &Path, mode: u32, nanos: u32) {
    let time = modified(nanos);
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    File::open(path).unwrap().set_times(FileTimes::new().set_modified(time)).unwrap();
}

/// A time with nanoseconds.
fn modified(nanos: u32) -> SystemTime {
    UNIX_EPOCH + Duration::new(1_234_567_890, nanos)
}

/// A symbolic link with a time of its own.
pub fn symlink(target: impl AsRef<Path>, path: &Path) {
    std::os::unix::fs::symlink(target, path).unwrap();
    let time = Timespec { tv_sec: 1_111_111_111, tv_nsec: 222_333_444 };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Properties of an entry that a person can see, besides a file's bytes.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    kind: &'static str,
    mode: u32,
    size: u64,
    modified: (i64, i64),
    target: Option<PathBuf>,
}

fn look(path: &Path) -> Seen {
    let metadata = fs::symlink_metadata(path).unwrap();
    let kind = match metadata.file_type() {
        kind if kind.is_dir() => "directory",
        kind if kind.is_symlink() => "symlink",
        kind if kind.is_file() => "file",
        _ => "special",
    };
    Seen {
        kind,
        mode: metadata.mode() & 0o7777,
        size: if kind == "directory" { 0 } else { metadata.size() },
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        target: fs::read_link(path).ok(),
    }
}

/// A tree's entries by their path in it; the root's is empty.
fn look_around(root: &Path) -> BTreeMap<PathBuf, Seen> {
    let mut seen = BTreeMap::from([(PathBuf::new(), look(root))]);
    let mut open: Vec<_> = root.is_dir().then(PathBuf::new).into_iter().collect();
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(root.join(&dir)).unwrap() {
            let path = dir.join(entry.unwrap().file_name());
            let entry = look(&root.join(&path));
            if entry.kind == "directory" {
                open.push(path.clone());
            }
            seen.insert(path, entry);
        }
    }
    seen
}

/// Two files must have the same bytes.
pub fn assert_same_bytes(one: &Path, other: &Path) {
    let (mut left, mut right) = (File::open(one).unwrap(), File::open(other).unwrap());
    let (mut here, mut there) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    loop {
        let (read, same) = (fill(&mut left, &mut here), fill(&mut right, &mut there));
        assert!(here[..read] == there[..same], "{} and {} differ", one.display(), other.display());
        if read == 0 {
            return;
        }
    }
}

fn fill(file: &mut File, buffer: &mut [u8]) -> usize {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..]).unwrap() {
            0 => break,
            read => filled += read,
        }
    }
    filled
}

/// Two files or trees must be the same in all that a person can see.
pub fn assert_same(one: &Path, other: &Path) {
    let (left, right) = (look_around(one), look_around(other));
    for (path, seen) in &left {
        assert_eq!(right.get(path), Some(seen), "{path:?} differs in {}", other.display());
    }
    let strange: Vec<_> = right.keys().filter(|path| !left.contains_key(*path)).collect();
    assert!(strange.is_empty(), "{strange:?} are only in {}", other.display());
    for (path, _) in left.iter().filter(|(_, seen)| seen.kind == "file") {
        let at = |root: &Path| if path.as_os_str().is_empty() { root.into() } else { root.join(path) };
        assert_same_bytes(&at(one), &at(other));
    }
}

/// Every entry of a tree, relative to it.
pub fn entries(root: &Path) -> Vec<PathBuf> {
    look_around(root).into_keys().collect()
}

/// Bytes of all files of a tree.
pub fn size(root: &Path) -> u64 {
    look_around(root).values().filter(|seen| seen.kind == "file").map(|seen| seen.size).sum()
}

/// The names in a directory, sorted.
pub fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
