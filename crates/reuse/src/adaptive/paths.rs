//! Nearness of two directories: the paper's path commonality (§6.2.2).
//!
//! The path of a file tells where a copy may lie: an older version near the destination, the
//! same path below another root (`/src/tow` and `/backup/src/tow`), a release beside the next
//! (`tow-1.2/docs` and `tow-1.3/docs`). The paper tells leftmost, middle and rightmost matches apart
//! and makes all but the last fall exponentially. What it leaves open is chosen here.

use std::cmp::Ordering;
use std::ffi::OsStr;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Going up from the whole path to nothing of it: such that half of a path in common is 4/9, as in
/// the paper's example (`/d` for `/d/new`: 0.444).
const NOTHING_IN_COMMON: f64 = 16.0 / 81.0;
/// Going down one directory: a parent has several, and only one is the right one. Going up has no
/// choice, so the few directories above the destination come before the many beside them.
const DOWN: f64 = 0.25;
/// Going down into one that is named like the one left: a version, a backup, a copy.
const DOWN_ALIKE: f64 = 0.7;

/// A directory's absolute path, cut into names. Cheap to clone, to hash and to compare: that is done for each pair of
/// a candidate and a group.
#[derive(Debug, Clone)]
pub struct SplitDirectory {
    names: Arc<[Name]>,
    /// Of the names, one after the other.
    hash: u64,
}

/// One name of a path. That two are different is seen without looking at them.
#[derive(Debug, Clone)]
pub struct Name {
    bytes: Arc<[u8]>,
    hash: u64,
}

impl Name {
    fn new(bytes: &[u8]) -> Self {
        Self { bytes: bytes.into(), hash: hash_of(&bytes) }
    }

    /// Its bytes, as they are.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && (Arc::ptr_eq(&self.bytes, &other.bytes) || self.bytes == other.bytes)
    }
}

impl Eq for Name {}

impl SplitDirectory {
    /// The names of an absolute path that is already free of `.` and `..` (those are left out).
    pub fn new(path: &Path) -> Self {
        let names = path.components().filter_map(|component| match component {
            Component::Normal(name) => Some(Name::new(name.as_bytes())),
            _ => None,
        });
        Self::of(names.collect())
    }

    fn of(names: Arc<[Name]>) -> Self {
        let hash = names.iter().fold(0, below);
        Self { names, hash }
    }

    /// The directory `name` in it.
    pub fn child(&self, name: &[u8]) -> Self {
        let name = Name::new(name);
        let hash = below(self.hash, &name);
        Self { names: self.names.iter().cloned().chain([name]).collect(), hash }
    }

    /// The one that holds it; `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        let (_, above) = self.names.split_last()?;
        Some(Self::of(above.into()))
    }

    /// As a path.
    pub fn path(&self) -> PathBuf {
        let mut path = PathBuf::from("/");
        path.extend(self.names.iter().map(|name| OsStr::from_bytes(name.bytes())));
        path
    }

    /// Its names from the root on.
    pub fn names(&self) -> &[Name] {
        &self.names
    }

    /// The same directory, if it lies in `from` or is it, below `to` instead.
    pub fn moved(&self, from: &Self, to: &Self) -> Option<Self> {
        let rest = self.names.strip_prefix(from.names())?;
        let hash = rest.iter().fold(to.hash, below);
        Some(Self { names: to.names.iter().chain(rest).cloned().collect(), hash })
    }

    /// Two directories without the names that both end with: of
    /// `/a/old/src` and `/a/new/src` they are `/a/old` and `/a/new`.
    pub fn before_common_end(&self, other: &Self) -> (Self, Self) {
        let common = common(self.names.iter().rev(), other.names.iter().rev());
        let cut = |names: &[Name]| Self::of(names[..names.len() - common].into());
        (cut(&self.names), cut(&other.names))
    }
}

impl PartialEq for SplitDirectory {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && (Arc::ptr_eq(&self.names, &other.names) || self.names == other.names)
    }
}

impl Eq for SplitDirectory {}

impl Hash for SplitDirectory {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl PartialOrd for SplitDirectory {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Any order will do.
impl Ord for SplitDirectory {
    fn cmp(&self, other: &Self) -> Ordering {
        let names = || self.names.iter().map(Name::bytes).cmp(other.names.iter().map(Name::bytes));
        self.hash.cmp(&other.hash).then_with(names)
    }
}

fn hash_of(it: &impl Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(it)
}

/// The hash of a directory below the one with this hash.
fn below(hash: u64, name: &Name) -> u64 {
    hash_of(&(hash, name.hash))
}

/// Probability, by path alone, that files of `source` are found in `candidate`: 1 for
/// the same directory. The best of the three kinds of match.
pub fn commonality(source: &SplitDirectory, candidate: &SplitDirectory) -> f64 {
    let (source, candidate) = (source.names(), candidate.names());
    let left = leftmost(source, candidate);
    left.max(middle(source, candidate)).max(rightmost(source, candidate))
}

/// Up from the source to where the paths part, then down to the candidate.
fn leftmost(source: &[Name], candidate: &[Name]) -> f64 {
    let shared = common(source.iter(), candidate.iter());
    let up = falling(shared, source.len());
    match (source.get(shared), &candidate[shared..]) {
        (_, []) => up,
        (Some(left), [entered, deeper @ ..]) if are_alike(left.bytes(), entered.bytes()) => {
            up * DOWN_ALIKE * down(deeper.len())
        }
        (_, names) => up * down(names.len()),
    }
}

/// The longest run of names of the source that the candidate has anywhere: it is on the way to where
/// the paths become one again. The names after the run are steps down.
fn middle(source: &[Name], candidate: &[Name]) -> f64 {
    let longest = source.len().max(candidate.len());
    let mut best = 0.0_f64;
    for end in 1..=candidate.len() {
        let tail = &candidate[..end];
        let run = (1..=source.len())
            .map(|to| common(source[..to].iter().rev(), tail.iter().rev()))
            .filter(|run| *run < end)
            .max()
            .unwrap_or(0);
        if run > 0 {
            best = best.max(falling(run, longest) * down(candidate.len() - end));
        }
    }
    best
}

/// Paths that end alike have become one again: the share of names is the likelihood as it stands.
fn rightmost(source: &[Name], candidate: &[Name]) -> f64 {
    let run = common(source.iter().rev(), candidate.iter().rev());
    match source.len().max(candidate.len()) {
        0 => 1.0,
        longest => run as f64 / longest as f64,
    }
}

/// Exponential in the names that are not shared, as the number of directories is.
fn falling(shared: usize, of: usize) -> f64 {
    if of == 0 { 1.0 } else { NOTHING_IN_COMMON.powf(1.0 - shared as f64 / of as f64) }
}

fn down(steps: usize) -> f64 {
    DOWN.powi(i32::try_from(steps).unwrap_or(i32::MAX))
}

fn common<'a>(one: impl Iterator<Item = &'a Name>, other: impl Iterator<Item = &'a Name>) -> usize {
    one.zip(other).take_while(|(one, other)| one == other).count()
}

/// True if one name begins or ends with the other, or both begin with the same letters for at least
/// half of the longer one: `tow` and `tow-old`, `release-1.2` and `release-1.3`.
pub(super) fn are_alike(one: &[u8], other: &[u8]) -> bool {
    let (short, long) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    if short.is_empty() {
        return false;
    }
    let begin = short.iter().zip(long).take_while(|(a, b)| a == b).count();
    long.starts_with(short) || long.ends_with(short) || (begin >= 3 && begin * 2 >= long.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn between(source: &str, candidate: &str) -> f64 {
        commonality(&SplitDirectory::new(Path::new(source)), &SplitDirectory::new(Path::new(candidate)))
    }

    #[test]
    fn a_table_of_paths() {
        for (source, candidate, expected) in [
            ("/d/new", "/d/new", 1.0),
            ("/d/new", "/d", 0.444),
            ("/", "/", 1.0),
            ("/s/y/n/c/test", "/s/y/n/c", 0.723),
            ("/s/y/n/c/test", "/", 0.198),
            ("/s/y/n/c/test", "/s/y/n/c/other", 0.181),
            ("/s/y/n/c/test", "/s/y-old", 0.191),
            ("/s/y/n/c/test", "/s/y-old/n", 0.273),
            ("/s/y/n/c/test", "/s/y-old/n/c", 0.378),
            ("/s/y/n/c/test", "/s/y-old/n/c/test", 0.6),
            ("/s/y/n/c/test", "/q", 0.049),
            ("/d/new", "/d/new/deeper", 0.25),
        ] {
            let found = between(source, candidate);
            assert!((found - expected).abs() < 0.001, "{source} {candidate}: {found}, not {expected}");
        }
    }

    #[test]
    fn carol_s_dsync_comes_before_either_junk() {
        let to = |candidate| between("/u/bob/src/dsync", candidate);
        assert!(to("/u/bob/src/junk") > to("/u/carol/src/junk"));
        assert!(to("/u/carol/src/dsync") > to("/u/bob/src/junk"));
    }

    #[test]
    fn a_move_is_told_by_what_does_not_end_alike() {
        let at = |path| SplitDirectory::new(Path::new(path));
        let (from, to) = at("/a/new/src/x").before_common_end(&at("/b/old/src/x"));
        assert_eq!((from.path(), to.path()), (PathBuf::from("/a/new"), PathBuf::from("/b/old")));
        assert_eq!(at("/a/new/docs").moved(&from, &to), Some(at("/b/old/docs")));
        assert_eq!(at("/a/newer").moved(&from, &to), None);
    }

    #[test]
    fn names_alike() {
        assert!(are_alike(b"tow", b"tow-old") && are_alike(b"release-1.2", b"release-1.3"));
        assert!(!are_alike(b"a", b"b") && !are_alike(b"", b"b") && !are_alike(b"notes", b"nothing"));
    }
}
