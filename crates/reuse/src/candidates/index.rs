//! The files of the destination, by what a new file may have in common with one of them: size and time, a path that
//! differs in version numbers alone, or, of large ones, the name or the directory.
//!
//! Looked at once, beside the walk; what it tells may be over by the time it is used, and proves nothing.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use towpath_content::tree::Time;
use towpath_files::{
    FileError, HardLinks, Prune, RelPath, ScanOptions, Scanned, Stamp, is_temporary_name, scan_pruned,
};

use super::by_version::pattern;
use super::is_file;
use super::rules::{FileCandidate, Resemblance};
use crate::policy::table::{LEAST_NAMED, MOST_RESIZED, SAME_MOST, VERSION_GROWN};
use towpath_content::delta::exchange::parts as deltas;

/// Files of the destination that are kept in mind.
const MAX_KNOWN: usize = 200_000;
/// Files of the same size that are compared with a new one.
const MAX_COMPARED: usize = 1024;

/// Facts about a new file.
#[derive(Debug, Clone, Copy)]
pub struct Sought<'a> {
    /// Below the destination's root.
    pub path: &'a RelPath,
    /// Bytes.
    pub size: u64,
    /// Last modification.
    pub modified: Time,
}

/// A file of the destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Present {
    /// Below the destination's root.
    pub path: RelPath,
    /// Its stamp when it was seen.
    pub stamp: Stamp,
}

/// See the head of this module.
#[derive(Debug, Default)]
pub struct FileIndex {
    /// By size and then by time.
    files: Vec<Present>,
    /// Hashes of what paths have in common with those of older versions, and which files these are: by hash, and so by size.
    by_key: Vec<(u64, u32)>,
}

impl FileIndex {
    /// Looks at what is below `root`, but not in other file systems; if `is_flat`, only at what lies right in it.
    pub fn of(root: &Path, is_flat: bool, is_over: &AtomicBool) -> Self {
        let options = ScanOptions { one_file_system: true, files: false, ..ScanOptions::default() };
        let (mut files, mut dirs) = (Vec::new(), Vec::new());
        let visit = &mut |step| {
            match step {
                Scanned::Enter(found) => dirs.push(found.entry.name),
                Scanned::Leave => drop(dirs.pop()),
                Scanned::Leaf(found) if is_file(&found.entry.kind) && LEAST_NAMED <= found.stamp.size => {
                    // The first name is the root's.
                    let names = dirs.iter().skip(1).chain([&found.entry.name]);
                    let path = RelPath::new(names);
                    files.extend(path.ok().map(|path| Present { path, stamp: found.stamp }));
                }
                Scanned::Leaf(_) | Scanned::Failed(_) => {}
            }
            if files.len() < MAX_KNOWN && !is_over.load(Ordering::Relaxed) { Ok(()) } else { Err(()) }
        };
        // An unreadable entry is no help, and that is all.
        let _ = scan_pruned(root, &options, &mut HardLinks::default(), &mut OwnFiles { is_flat }, visit);
        Self::sorted(files)
    }

    fn sorted(mut files: Vec<Present>) -> Self {
        files.sort_unstable_by_key(|file| (file.stamp.size, file.stamp.modified));
        let keys = |(index, file): (u32, &Present)| {
            keys(&file.path, file.stamp.size).map(move |(_, key)| (key, index))
        };
        let mut by_key: Vec<_> = (0..).zip(&files).flat_map(keys).collect();
        by_key.sort_unstable();
        Self { files, by_key }
    }

    /// The file that is most like this one.
    pub fn same_content(&self, file: &Sought<'_>) -> Option<FileCandidate> {
        if !Resemblance::SameTime.is_for(file.size) {
            return None;
        }
        let of_size = range(&self.files, |stamp| stamp.size, file.size);
        let of_time = self.of_size_and_time(file);
        let others = of_time.iter().chain(of_size).take(MAX_COMPARED);
        let is_only_one = of_size.len() == 1;
        let in_common = |other: &Present| {
            let is_named_so = other.path.names().last() == file.path.names().last();
            let is_of_time = other.stamp.modified == file.modified;
            (is_of_time || is_named_so || is_only_one).then_some((is_of_time, is_named_so))
        };
        let alike = others.filter_map(|other| Some((other, in_common(other)?)));
        let (file, (is_of_time, _)) = alike.max_by_key(|(_, in_common)| *in_common)?;
        let resemblance = if is_of_time { Resemblance::SameTime } else { Resemblance::SameSize };
        Some(FileCandidate { file: file.clone(), resemblance })
    }

    /// The file that this one is probably another version of, the one nearest in size if there are several. A large one
    /// that has the size and time of quite another file was rather moved, and is found by searching.
    pub fn other_version(&self, file: &Sought<'_>) -> Option<FileCandidate> {
        if self.files.is_empty() {
            return None;
        }
        let moved = if file.size > SAME_MOST { self.of_size_and_time(file) } else { &[] };
        let by = |(by, key)| Some((self.nearest(key, file.size, by)?, by));
        let (found, resemblance) = keys(file.path, file.size).find_map(by)?;
        let is_moved = !moved.is_empty() && !moved.contains(found);
        (!is_moved).then(|| FileCandidate { file: found.clone(), resemblance })
    }

    /// A large file of this size and time, which was most likely moved; one of its name if there are several.
    pub fn moved(&self, file: &Sought<'_>) -> Option<FileCandidate> {
        let of_time = if file.size > SAME_MOST { self.of_size_and_time(file) } else { &[] };
        let is_named_so = |other: &&Present| other.path.names().last() == file.path.names().last();
        let found = of_time.iter().find(is_named_so).or(of_time.first())?;
        Some(FileCandidate { file: found.clone(), resemblance: Resemblance::SameTime })
    }

    fn of_size_and_time(&self, file: &Sought<'_>) -> &[Present] {
        range(range(&self.files, |stamp| stamp.size, file.size), |stamp| stamp.modified, file.modified)
    }

    fn nearest(&self, key: u64, size: u64, by: Resemblance) -> Option<&Present> {
        let start = self.by_key.partition_point(|(other, _)| *other < key);
        let end = self.by_key.partition_point(|(other, _)| *other <= key);
        let alike = &self.by_key[start..end];
        let present = |(_, index): &(u64, u32)| self.files.get(*index as usize);
        let smaller = alike.partition_point(|it| present(it).is_some_and(|other| other.stamp.size < size));
        let nearest =
            alike[smaller.saturating_sub(1)..alike.len().min(smaller + 1)].iter().filter_map(present);
        let nearest = nearest.min_by_key(|other| other.stamp.size.abs_diff(size))?;
        let base_len = nearest.stamp.size;
        let is_resized = by == Resemblance::Neighbour && base_len.abs_diff(size) > size / MOST_RESIZED;
        (!is_resized && may_be_version(base_len, size)).then_some(nearest)
    }
}

/// True if sizes don't tell against one being a version of the other, and a delta can be made.
pub fn may_be_version(base_len: u64, new: u64) -> bool {
    base_len.max(new) / VERSION_GROWN <= base_len.min(new) && deltas::parts(base_len, new).is_some()
}

/// Keys that a file's path has in common with those of its older versions, the likeliest first.
fn keys(path: &RelPath, size: u64) -> impl Iterator<Item = (Resemblance, u64)> + use<> {
    let (dir, name) = path.split().unwrap_or_default();
    let unnumbered = pattern(dir.as_bytes());
    let key = |by: Resemblance, of: (&[u8], &[u8])| {
        let mut hasher = DefaultHasher::new();
        (by, of).hash(&mut hasher);
        (by, hasher.finish())
    };
    let keys = [
        key(Resemblance::Renumbered, (&unnumbered, name)),
        key(Resemblance::Namesake, (b"", name)),
        key(Resemblance::Numbered, (&unnumbered, &pattern(name))),
        key(Resemblance::Neighbour, (dir.as_bytes(), extension(name))),
    ];
    keys.into_iter().filter(move |(by, _)| by.is_for(size))
}

/// The part of a name behind its last dot; nothing if that is its first sign.
fn extension(name: &[u8]) -> &[u8] {
    let dot = name.iter().rposition(|sign| *sign == b'.').filter(|at| *at > 0);
    dot.map_or(b"", |at| &name[at + 1..])
}

/// Those of sorted files that have this key.
fn range<K: Ord>(files: &[Present], key: impl Fn(&Stamp) -> K, wanted: K) -> &[Present] {
    let start = files.partition_point(|file| key(&file.stamp) < wanted);
    let end = files.partition_point(|file| key(&file.stamp) <= wanted);
    &files[start..end]
}

/// Leaves out files that are being written, by this transfer or another one, and directories where these are not wanted.
struct OwnFiles {
    is_flat: bool,
}

impl Prune for OwnFiles {
    fn enter(&mut self, _: BorrowedFd<'_>, _: &RelPath) -> Result<(), FileError> {
        Ok(())
    }

    fn leave(&mut self) {}

    fn shows(&mut self, _: &RelPath, name: &[u8], is_dir: bool) -> bool {
        !(is_temporary_name(name) || is_dir && self.is_flat)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::policy::table::LARGE;

    /// A time.
    pub const fn at(seconds: i64) -> Time {
        Time { seconds, nanos: 0 }
    }

    /// An index of files with these paths, sizes and times.
    pub fn index(files: &[(&str, u64, i64)]) -> FileIndex {
        let file = |&(path, size, seconds): &(&str, u64, i64)| Present {
            path: path_of(path),
            stamp: Stamp { size, modified: at(seconds), ..Stamp::default() },
        };
        FileIndex::sorted(files.iter().map(file).collect())
    }

    /// A path.
    pub fn path_of(path: &str) -> RelPath {
        RelPath::new(path.split('/')).unwrap()
    }

    /// A candidate's path, and what it has in common with the file.
    fn told(candidate: &FileCandidate) -> (&[u8], Resemblance) {
        (candidate.file.path.as_bytes(), candidate.resemblance)
    }

    #[test]
    fn a_table_of_likenesses() {
        let index = index(&[
            ("a/one", 1000, 1),
            ("a/two", 1000, 1),
            ("b/two", 1000, 2),
            ("c/alone", 2000, 1),
            ("little", 10, 1),
            ("large", 5 << 20, 1),
        ]);
        for (name, size, seconds, like) in [
            ("two", 1000, 1, Some(("a/two", Resemblance::SameTime))),
            ("other", 1000, 2, Some(("b/two", Resemblance::SameTime))),
            ("one", 1000, 2, Some(("b/two", Resemblance::SameTime))),
            ("one", 1000, 3, Some(("a/one", Resemblance::SameSize))),
            ("other", 1000, 3, None),
            ("other", 2000, 3, Some(("c/alone", Resemblance::SameSize))),
            ("alone", 2001, 1, None),
            ("little", 10, 1, None),
            ("large", 5 << 20, 1, None),
        ] {
            let found = index.same_content(&Sought { path: &path_of(name), size, modified: at(seconds) });
            let like = like.map(|(path, by)| (path.as_bytes(), by));
            assert_eq!(found.as_ref().map(told), like, "{name} {seconds}");
        }
    }

    #[test]
    fn a_table_of_versions() {
        let index = index(&[
            ("lib/libx.so.1.31.0", 300_000, 1),
            ("lib/libx.so.1.2", 100_000, 1),
            ("lib/liby.so.1", 300_000, 1),
            ("pkg-1.9/a1.h", 5000, 1),
            ("pkg-1.9/a2.h", 6000, 1),
            ("pkg-1.9/large", 256 << 20, 1),
            ("pkg-1.9/larger", (256 << 20) + 1, 1),
        ]);
        use Resemblance::{Numbered, Renumbered};
        for (path, size, found) in [
            ("lib/libx.so.1.31.1", 310_000, Some(("lib/libx.so.1.31.0", Numbered))),
            ("lib/libx.so.1.31.1", 190_000, Some(("lib/libx.so.1.2", Numbered))),
            ("lib/libx.so.1.31.1", 600_000, Some(("lib/libx.so.1.31.0", Numbered))),
            ("lib/libx.so.1.31.1", 900_000, None),
            ("lib/libx.so.1.31.1", 30_000, None),
            ("lib/libz.so.1.31.1", 300_000, None),
            ("other/libx.so.1.31.1", 300_000, None),
            ("pkg-1.10/a1.h", 6000, Some(("pkg-1.9/a1.h", Renumbered))),
            ("pkg-1.10/a3.h", 5900, Some(("pkg-1.9/a2.h", Numbered))),
            ("pkg-1.10/large", 256 << 20, Some(("pkg-1.9/large", Renumbered))),
            ("pkg-1.10/larger", 256 << 20, None),
        ] {
            let given = index.other_version(&Sought { path: &path_of(path), size, modified: at(9) });
            let given = given.as_ref().map(told);
            assert_eq!(given, found.map(|(path, which)| (path.as_bytes(), which)), "{path} {size}");
        }
    }

    #[test]
    fn large_files_have_older_versions_under_the_same_name_or_in_the_same_directory() {
        const MIB: u64 = 1 << 20;
        let index = index(&[
            ("a/disk.img", 100 * MIB, 1),
            ("b/disk.img", 90 * MIB, 1),
            ("c/old.img", 50 * MIB, 1),
            ("c/older.img", 49 * MIB, 1),
            ("c/image", 50 * MIB, 1),
            ("c/.img", 50 * MIB, 1),
            ("v1/disk.img", 60 * MIB, 1),
            ("c/little.img", LARGE - 1, 1),
        ]);
        use Resemblance::{Namesake, Neighbour, Renumbered};
        for (path, size, found) in [
            ("d/disk.img", 94 * MIB, Some(("b/disk.img", Namesake))),
            ("d/disk.img", 96 * MIB, Some(("a/disk.img", Namesake))),
            ("d/disk.img", 20 * MIB, None),
            ("v2/disk.img", 96 * MIB, Some(("v1/disk.img", Renumbered))),
            ("v2/disk.img", 200 * MIB, Some(("a/disk.img", Namesake))),
            ("c/disk1.img", 49 * MIB + 1, Some(("c/older.img", Neighbour))),
            ("c/disk.img", 50 * MIB, Some(("v1/disk.img", Namesake))),
            ("v3/disk7.img", 60 * MIB, None),
            ("c/new.img", 50 * MIB, Some(("c/old.img", Neighbour))),
            ("c/new.img", 54 * MIB, Some(("c/old.img", Neighbour))),
            ("c/new.img", 56 * MIB, None),
            ("c/new", 50 * MIB, Some(("c/image", Neighbour))),
            ("d/new.img", 50 * MIB, None),
            ("c/new.img", LARGE - 1, None),
        ] {
            let given = index.other_version(&Sought { path: &path_of(path), size, modified: at(9) });
            let given = given.as_ref().map(told);
            assert_eq!(given, found.map(|(path, by)| (path.as_bytes(), by)), "{path} {size}");
        }
    }

    #[test]
    fn of_a_hundred_thousand_names_that_differ_in_their_numbers_one_is_found_at_once() {
        let many: Vec<_> = (0..100_000).map(|number| format!("photos/{number}.jpg")).collect();
        let many: Vec<_> = (300..).zip(&many).map(|(size, path)| (path.as_str(), size, 1)).collect();
        let index = index(&many);
        let path = path_of("photos/1000000.jpg");
        for size in 50_000..60_000 {
            let found = index.other_version(&Sought { path: &path, size, modified: at(9) }).unwrap();
            assert_eq!(found.file.stamp.size, size);
        }
    }

    #[test]
    fn what_has_size_and_time_of_another_large_file_was_moved() {
        let index = index(&[("wal/0001", 16 << 20, 2), ("old/segment", 16 << 20, 1)]);
        for (path, seconds, found) in
            [("wal/0003", 1, None), ("wal/0003", 3, Some("wal/0001")), ("wal/0003", 2, Some("wal/0001"))]
        {
            let sought = Sought { path: &path_of(path), size: 16 << 20, modified: at(seconds) };
            let given = index.other_version(&sought).map(|given| given.file.path);
            assert_eq!(given, found.map(path_of), "{path} {seconds}");
        }
        for (path, size, seconds, found) in [
            ("wal/0003", 16 << 20, 1, Some("old/segment")),
            ("wal/0003", 16 << 20, 3, None),
            ("wal/0003", 15 << 20, 1, None),
        ] {
            let given = index.moved(&Sought { path: &path_of(path), size, modified: at(seconds) });
            assert_eq!(given.map(|given| given.file.path), found.map(path_of), "{path} {size} {seconds}");
        }
    }
}
