//! Files and trees that a seed decides: the same on every machine, so that results can be compared.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Between two edits of a similar file lie so many bytes on average.
const BETWEEN_EDITS: u64 = 64 << 10;
/// Of these, so many change on average: one in a hundred.
const EDIT: u64 = BETWEEN_EDITS / 100;
/// A directory of small files has so many.
const PER_DIRECTORY: u64 = 100;
const LARGEST_SMALL_FILE: u64 = 16 << 10;
const DEPTH: usize = 40;

/// Endless random bytes.
pub struct Random(blake3::OutputReader);

impl Random {
    /// Those of this seed.
    pub fn new(seed: &str) -> Self {
        Self(blake3::Hasher::new_derive_key("towpath lab data").update(seed.as_bytes()).finalize_xof())
    }

    /// A number below `end`, or 0.
    fn below(&mut self, end: u64) -> u64 {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        u64::from_le_bytes(bytes) % end.max(1)
    }

    fn write(&mut self, len: u64, out: &mut impl Write) -> io::Result<()> {
        io::copy(&mut (&mut self.0).take(len), out).map(drop)
    }
}

/// A file of `len` random bytes.
pub fn file(path: &Path, len: u64, random: &mut Random) -> io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    random.write(len, &mut out)?;
    out.flush()
}

/// A later version of a file, 99 % the same: scattered over it, some of its bytes are replaced, some
/// removed, and others inserted.
pub fn edit(old: &Path, new: &Path, random: &mut Random) -> io::Result<()> {
    let mut old = File::open(old)?;
    let mut left = old.metadata()?.len();
    let mut out = BufWriter::new(File::create(new)?);
    while left > 0 {
        let same = random.below(2 * BETWEEN_EDITS).min(left);
        io::copy(&mut (&mut old).take(same), &mut out)?;
        left -= same;
        let len = 1 + random.below(2 * EDIT);
        let kind = random.below(4);
        // One edit in four only inserts, one only removes, two replace.
        if kind != 0 {
            let gone = len.min(left);
            io::copy(&mut (&mut old).take(gone), &mut io::sink())?;
            left -= gone;
        }
        if kind != 1 && left > 0 {
            random.write(len, &mut out)?;
        }
    }
    out.flush()
}

/// A tree of `count` small files.
pub fn small_files(root: &Path, count: u64, random: &mut Random) -> io::Result<()> {
    for number in 0..count {
        let dir = root.join(format!("{:04}", number / PER_DIRECTORY));
        fs::create_dir_all(&dir)?;
        let len = random.below(LARGEST_SMALL_FILE);
        file(&dir.join(format!("{number}.bin")), len, random)?;
    }
    Ok(())
}

/// A tree of what breaks programs.
pub fn odd_tree(root: &Path, random: &mut Random) -> io::Result<()> {
    let names: [&[u8]; 10] = [
        b"with spaces  in it",
        b"with\na newline",
        b"not utf-8: \xff\xfe",
        b"-rf",
        b"*",
        b"quote ' and \" and \\",
        b"$(false)`false`;&",
        b"~",
        b"host:path",
        "ß π 雪".as_bytes(),
    ];
    for name in names {
        let len = random.below(100_000);
        file(&root.join(OsStr::from_bytes(name)), len, random)?;
    }
    fs::write(root.join(OsStr::from_bytes(&[b'n'; 255])), "a name as long as it can be")?;
    fs::write(root.join("empty"), "")?;
    fs::create_dir(root.join("empty directory"))?;
    deep(root, random)?;
    links(root)?;
    sparse(&root.join("sparse"), random)
}

fn deep(root: &Path, random: &mut Random) -> io::Result<()> {
    let deep = (0..DEPTH).fold(root.join("deep"), |path, level| path.join(format!("level {level}")));
    fs::create_dir_all(&deep)?;
    file(&deep.join("bottom"), 10_000, random)
}

fn links(root: &Path) -> io::Result<()> {
    let dir = root.join("links");
    fs::create_dir(&dir)?;
    symlink("../empty", dir.join("to a file"))?;
    symlink("../deep", dir.join("to a directory"))?;
    symlink("nowhere", dir.join("dangling"))?;
    symlink("to itself", dir.join("to itself"))?;
    symlink("/", dir.join("to the root"))?;
    fs::hard_link(root.join("-rf"), dir.join("hard"))
}

/// Some data far behind a hole.
fn sparse(path: &Path, random: &mut Random) -> io::Result<()> {
    let mut out = File::create(path)?;
    random.write(5000, &mut out)?;
    io::Seek::seek(&mut out, io::SeekFrom::Start(8 << 20))?;
    random.write(5000, &mut out)?;
    out.set_len(16 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_the_same_file_again() {
        let dir = tempfile::tempdir().unwrap();
        let make = |name: &str, seed| {
            let path = dir.path().join(name);
            file(&path, 1000, &mut Random::new(seed)).unwrap();
            fs::read(path).unwrap()
        };
        assert_eq!(make("one", "a"), make("two", "a"));
        assert_ne!(make("one", "a"), make("two", "b"));
        // Also with the next release of whatever draws these numbers.
        assert_eq!(make("one", "a")[..4], [123, 42, 76, 179], "the generator has changed");
    }

    #[test]
    fn a_similar_file_is_99_percent_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (dir.path().join("old"), dir.path().join("new"));
        let mut random = Random::new("similar");
        let len = 4 << 20;
        file(&old, len, &mut random).unwrap();
        edit(&old, &new, &mut random).unwrap();
        let (old, new) = (fs::read(old).unwrap(), fs::read(new).unwrap());
        let blocks: std::collections::HashSet<&[u8]> = new.windows(64).collect();
        let lost = old.chunks_exact(64).filter(|block| !blocks.contains(block)).count() as f64;
        let share = lost / (len as f64 / 64.0);
        assert!((0.005..0.02).contains(&share), "{share} of the blocks are gone");
        assert!(old.len().abs_diff(new.len()) < len as usize / 100);
    }

    #[test]
    fn an_odd_tree_is_made_whole() {
        let dir = tempfile::tempdir().unwrap();
        odd_tree(dir.path(), &mut Random::new("odd")).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 16);
    }
}
