//! Files and trees that a seed decides: the same on every machine, so that results can be compared.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::line::Files;

/// Between two edits of a similar file lie so many bytes on average.
const BETWEEN_EDITS: u64 = 64 << 10;
/// Of these, so many change on average: one in a hundred.
const EDIT: u64 = BETWEEN_EDITS / 100;
/// The mean length of a long edit: this, and as much of the other as changes.
const LONG_EDIT: f64 = 11e3;
const LONGER_EDIT: f64 = 16e3;
/// Multiples of these, without their whole parts, are spread evenly, also as pairs (Roberts' R2 sequence).
const SPREAD: [f64; 2] = [0.754_877_666_246_692_7, 0.569_840_290_998_053_2];
/// Number of words that a text is made of.
const WORDS: u64 = 4096;
/// A changed file differs in so many bytes in its middle, and has so many more.
const CHANGE: u64 = 64;
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

/// A file of `len` bytes of words, few of which are frequent.
pub fn text(path: &Path, len: u64, random: &mut Random) -> io::Result<()> {
    let words: Vec<Vec<u8>> = (0..WORDS).map(|_| word(random)).collect();
    let mut out = BufWriter::new(File::create(path)?);
    let mut left = len as usize;
    while left > 0 {
        let range = 1 + random.below(WORDS);
        let word = &words[random.below(range) as usize];
        let word = &word[..word.len().min(left)];
        out.write_all(word)?;
        left -= word.len();
    }
    out.flush()
}

/// Letters, and a space.
fn word(random: &mut Random) -> Vec<u8> {
    let letters = 2 + random.below(9);
    (0..letters).map(|_| b'a' + random.below(26) as u8).chain([b' ']).collect()
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

/// A later version of a file, of which so many thousandths are the same: edits of about 10 to 20 KB, a third
/// of which only insert and a third only remove. What is missing of the old file in the new one is two
/// thirds of what changes, and as much in every file of this size.
pub fn edit_long(old: &Path, new: &Path, thousandths: u32, random: &mut Random) -> io::Result<()> {
    let share = 1.0 - f64::from(thousandths) / 1000.0;
    let mean = LONG_EDIT + LONGER_EDIT * share;
    // Of edits that are close, some fall together: what a fifth more makes good.
    let same = mean / (share * (1.0 + share / 5.0)) - mean * 2.0 / 3.0;
    let mut old = File::open(old)?;
    let mut left = old.metadata()?.len();
    let mut out = BufWriter::new(File::create(new)?);
    for number in 0u32.. {
        let [gap, length] = SPREAD.map(|step| (0.5 + f64::from(number) * step).fract());
        let same = ((2.0 * same * gap) as u64).min(left);
        io::copy(&mut (&mut old).take(same), &mut out)?;
        left -= same;
        if left == 0 {
            break;
        }
        let len = 1 + (2.0 * mean * length) as u64;
        let kind = number % 3;
        if kind != 0 {
            let gone = len.min(left);
            io::copy(&mut (&mut old).take(gone), &mut io::sink())?;
            left -= gone;
        }
        if kind != 1 {
            random.write(len, &mut out)?;
        }
    }
    out.flush()
}

/// A tree of `count` files.
pub fn files(root: &Path, kind: Files, count: u64, random: &mut Random) -> io::Result<()> {
    let (_, largest) = shape(kind);
    for number in 0..count {
        let path = file_of(root, kind, number);
        if let Some(dir) = path.parent().filter(|dir| !dir.exists()) {
            fs::create_dir_all(dir)?;
        }
        let len = random.below(largest);
        match kind == Files::Mixed && number % 2 == 1 {
            true => text(&path, len, random)?,
            false => file(&path, len, random)?,
        }
    }
    Ok(())
}

/// Number of files in a directory, and the bytes below which they stay.
const fn shape(kind: Files) -> (u64, u64) {
    match kind {
        Files::Small => (100, 16 << 10),
        Files::Tiny => (1000, 4 << 10),
        Files::Mixed => (100, 64 << 10),
        Files::Medium => (100, 220 << 10),
    }
}

fn file_of(root: &Path, kind: Files, number: u64) -> PathBuf {
    root.join(format!("{:04}", number / shape(kind).0)).join(format!("{number}.bin"))
}

/// Changes `changed` of such a tree's files, scattered over it.
pub fn change(root: &Path, kind: Files, count: u64, changed: u64, random: &mut Random) -> io::Result<()> {
    for number in 0..changed {
        let path = file_of(root, kind, number * count / changed);
        let mut out = OpenOptions::new().write(true).open(&path)?;
        let len = out.metadata()?.len();
        out.seek(SeekFrom::Start(len / 2))?;
        random.write(CHANGE, &mut out)?;
        out.seek(SeekFrom::End(0))?;
        random.write(CHANGE, &mut out)?;
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
    out.seek(SeekFrom::Start(8 << 20))?;
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
    fn a_text_has_its_length_and_its_words_again_and_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("text");
        text(&path, 100_000, &mut Random::new("text")).unwrap();
        let content = fs::read_to_string(path).unwrap();
        assert_eq!(content.len(), 100_000);
        let words: std::collections::HashSet<&str> = content.split(' ').collect();
        assert!(words.len() < 1 + WORDS as usize, "{}", words.len());
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

    /// Bytes that an ideal tool would have to send: the runs of the new file that the old one lacks.
    #[test]
    fn long_edits_leave_as_much_missing_as_they_should() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (dir.path().join("old"), dir.path().join("new"));
        file(&old, 20_000_000, &mut Random::new("long")).unwrap();
        for (thousandths, expected) in [(990, 0.0068), (500, 0.368)] {
            edit_long(&old, &new, thousandths, &mut Random::new("edits")).unwrap();
            let (old, new) = (fs::read(&old).unwrap(), fs::read(&new).unwrap());
            let known: std::collections::HashSet<&[u8]> = old.chunks_exact(16).collect();
            // A block of the old file is found in the new one wherever it lies.
            let mut at = 0;
            let mut missing = 0;
            while at + 16 <= new.len() {
                let is_known = known.contains(&new[at..at + 16]);
                missing += usize::from(!is_known);
                at += if is_known { 16 } else { 1 };
            }
            let share = missing as f64 / 20e6;
            assert!(
                (share / expected - 1.0).abs() < 0.15,
                "{thousandths}: {share} is missing, not {expected}"
            );
        }
    }

    #[test]
    fn changed_files_are_as_many_as_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let trees = ["old", "new"].map(|name| dir.path().join(name));
        for tree in &trees {
            files(tree, Files::Tiny, 1200, &mut Random::new("files")).unwrap();
        }
        change(&trees[1], Files::Tiny, 1200, 30, &mut Random::new("change")).unwrap();
        let differs = |number: &u64| {
            let [old, new] =
                [0, 1].map(|tree| fs::read(file_of(&trees[tree], Files::Tiny, *number)).unwrap());
            old != new
        };
        assert_eq!((0..1200).filter(differs).count(), 30);
        assert_eq!(fs::read_dir(&trees[0]).unwrap().count(), 2, "a thousand in a directory");
    }

    #[test]
    fn an_odd_tree_is_made_whole() {
        let dir = tempfile::tempdir().unwrap();
        odd_tree(dir.path(), &mut Random::new("odd")).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 16);
    }
}
