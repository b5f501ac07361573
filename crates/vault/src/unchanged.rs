//! Files that need not be read again: those that look as they did when their bytes were put.
//!
//! For each file this machine keeps a mark, a keyed hash of its path, device, inode, size and times. A file whose mark is there has the
//! bytes that the vault has, so its chunks and its hash are known. The marks are soft state: lost ones mean that files are read.
//! A file that was changed so lately that a further change could leave its times as they are gets no mark.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use towpath_content::codec::{Reader, Writer, invalid};
use towpath_content::tree::Time;
use towpath_content::{DecodeError, Oid};
use towpath_files::{RelPath, Stamp};
use towpath_vault_format::Digest;

use crate::keys::KeySecret;
use crate::summary::ChunkSummary;
use towpath_vault_difference::chunk_list::ChunkList;

/// The most marks: of as many files as a descriptor names.
const MAX_MARKS: usize = 1 << 24;
/// Within this time a clock of files may not have gone on.
const TICK: Duration = Duration::from_millis(100);
/// The same where times are whole seconds, or two.
const COARSE_TICK: Duration = Duration::from_secs(3);

/// A file of a content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentFile {
    /// Below the root.
    pub path: RelPath,
    /// What it looked like when it was found.
    pub stamp: Stamp,
    /// Where its bytes begin.
    pub start: u64,
}

/// A file as it was.
type Mark = [u8; 16];

/// The marks of a content's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileMarks {
    /// Hash of the entry as it was put. Marks of another one are of other bytes.
    pub entry: Digest,
    marks: BTreeSet<Mark>,
}

/// Bytes of a new content that are where the old one has them, or elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct UnchangedRun {
    /// Where they begin in the new content.
    at: u64,
    /// And in the old one.
    before: u64,
    length: u64,
}

/// What is known of a new content without reading it.
#[derive(Debug, Default)]
pub struct UnchangedFiles {
    runs: Vec<UnchangedRun>,
    /// Of the files that need not be read, by their numbers.
    oids: Vec<Option<Oid>>,
    /// The old content.
    chunks: Arc<ChunkList>,
}

impl FileMarks {
    /// Those of files that were seen, and read no earlier than `seen`. `entry`: hash of what they are put as.
    pub fn of(entry: Digest, key: &KeySecret, files: &[ContentFile], seen: SystemTime) -> Self {
        let settled = files.iter().filter(|file| is_settled(&file.stamp, seen));
        Self { entry, marks: settled.map(|file| mark(key, &file.path, &file.stamp)).collect() }
    }

    /// The encoding.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Writer::with_capacity(48 + 16 * self.marks.len());
        out.u8(1).raw(&self.entry.0).varint(self.marks.len() as u64);
        for mark in &self.marks {
            out.raw(mark);
        }
        out.into_bytes()
    }

    /// Reads an encoding.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        if reader.u8("marks")? != 1 {
            return Err(invalid("marks", "are of another version"));
        }
        let entry = Digest(reader.array("entry")?);
        let count = reader.bounded("marks", MAX_MARKS as u64)?;
        // Memory is taken as they come.
        let marks: Vec<Mark> = (0..count).map(|_| reader.array("mark")).collect::<Result<_, _>>()?;
        reader.finish()?;
        match marks.is_sorted_by(|one, next| one < next) {
            true => Ok(Self { entry, marks: marks.into_iter().collect() }),
            false => Err(invalid("marks", "are not in order")),
        }
    }
}

impl UnchangedFiles {
    /// What is known of `files`. `old` tells where each file begins in the old content, and its hash; `chunks` are that content's.
    pub fn new(
        files: &[ContentFile],
        marks: &FileMarks,
        key: &KeySecret,
        old: impl Iterator<Item = (RelPath, u64, Oid)>,
        chunks: Arc<ChunkList>,
    ) -> Self {
        let is_marked = |file: &ContentFile| marks.marks.contains(&mark(key, &file.path, &file.stamp));
        let marked = files.iter().zip(0..).filter(|(file, _)| is_marked(file));
        let numbers: HashMap<&RelPath, u32> = marked.map(|(file, number)| (&file.path, number)).collect();
        let mut found: Vec<Option<(u64, Oid)>> = vec![None; files.len()];
        for (path, before, oid) in old {
            if let Some(number) = numbers.get(&path) {
                found[*number as usize] = Some((before, oid));
            }
        }
        let mut unchanged = Self { chunks, ..Self::default() };
        for (file, found) in files.iter().zip(found) {
            unchanged.oids.push(found.map(|(_, oid)| oid));
            if let Some((before, _)) = found {
                unchanged.add(UnchangedRun { at: file.start, before, length: file.stamp.size });
            }
        }
        unchanged
    }

    fn add(&mut self, run: UnchangedRun) {
        match self.runs.last_mut() {
            Some(last) if last.at + last.length == run.at && last.before + last.length == run.before => {
                last.length += run.length;
            }
            _ => self.runs.push(run),
        }
    }

    /// The hash of a file that need not be read.
    pub fn oid(&self, file: usize) -> Option<Oid> {
        self.oids.get(file).copied().flatten()
    }

    /// The chunk that begins at `at`, if all its bytes are known. `is_border`: no chunk reaches over this place.
    pub fn chunk_at(&self, at: u64, is_border: impl FnOnce(u64) -> bool) -> Option<ChunkSummary> {
        let index = self.runs.partition_point(|run| run.at <= at).checked_sub(1)?;
        let UnchangedRun { at: start, before, length } = self.runs[index];
        let chunk = *self.chunks.beginning_at(before + (at - start))?;
        let (end, limit) = (at + u64::from(chunk.length), start + length);
        // A chunk that ended with its file may go on now.
        (end < limit || end == limit && is_border(end)).then_some(chunk)
    }
}

fn mark(key: &KeySecret, path: &RelPath, stamp: &Stamp) -> Mark {
    let Stamp { device, inode, size, modified, changed } = stamp;
    let mut hasher = blake3::Hasher::new_keyed(&key.0);
    for number in [*device, *inode, *size] {
        hasher.update(&number.to_le_bytes());
    }
    for Time { seconds, nanos } in [modified, changed] {
        hasher.update(&seconds.to_le_bytes()).update(&nanos.to_le_bytes());
    }
    let mut mark = Mark::default();
    mark.copy_from_slice(&hasher.update(path.as_bytes()).finalize().as_bytes()[..16]);
    mark
}

/// True if an equal stamp at any later time means equal bytes, of a file that was read no earlier than `seen`.
fn is_settled(stamp: &Stamp, seen: SystemTime) -> bool {
    let nanos = |since: Duration| since.as_nanos() as i128;
    let seen = seen.duration_since(UNIX_EPOCH).map_or(0, nanos);
    let age = |time: &Time| seen - i128::from(time.seconds) * 1_000_000_000 - i128::from(time.nanos);
    let tick = nanos(if stamp.changed.nanos == 0 { COARSE_TICK } else { TICK });
    // People set modification times in the future, too.
    age(&stamp.changed) > tick && age(&stamp.modified).abs() > tick
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: KeySecret = KeySecret([1; 32]);

    fn file(name: &str, start: u64, size: u64, changed: i64) -> ContentFile {
        let time = |seconds| Time { seconds, nanos: 1 };
        let stamp = Stamp { device: 1, inode: 2, size, modified: time(5), changed: time(changed) };
        ContentFile { path: RelPath::new([name]).unwrap(), stamp, start }
    }

    #[test]
    fn a_file_that_may_change_unseen_gets_no_mark() {
        let seen = UNIX_EPOCH + Duration::from_secs(100);
        let marks = |file: ContentFile| FileMarks::of(Digest([1; 32]), &KEY, &[file], seen).marks.len();
        assert_eq!(
            [marks(file("a", 0, 3, 98)), marks(file("a", 0, 3, 100)), marks(file("a", 0, 3, 200))],
            [1, 0, 0]
        );
        let coarse = |seconds| {
            let mut file = file("a", 0, 3, 0);
            file.stamp.changed = Time { seconds, nanos: 0 };
            marks(file)
        };
        assert_eq!([coarse(90), coarse(98)], [1, 0]);
        let mut made_young = file("a", 0, 3, 50);
        made_young.stamp.modified = Time { seconds: 100, nanos: 5 };
        assert_eq!(marks(made_young), 0);
    }

    #[test]
    fn a_mark_is_of_one_path_and_one_look() {
        let one = file("a", 0, 3, 9);
        let of = |file: &ContentFile, key: &KeySecret| mark(key, &file.path, &file.stamp);
        let mut others: Vec<_> = [file("b", 0, 3, 9), file("a", 0, 4, 9), file("a", 0, 3, 10)].into();
        let stamp = one.stamp;
        let nanos = Time { nanos: 9, ..stamp.modified };
        for stamp in
            [Stamp { device: 9, ..stamp }, Stamp { inode: 9, ..stamp }, Stamp { modified: nanos, ..stamp }]
        {
            others.push(ContentFile { stamp, ..one.clone() });
        }
        assert!(others.iter().all(|other| of(other, &KEY) != of(&one, &KEY)));
        assert_ne!(of(&one, &KeySecret([2; 32])), of(&one, &KEY));
    }

    proptest! {
        #[test]
        fn marks_come_back_and_never_cut_short(marks: BTreeSet<Mark>) {
            let marks = FileMarks { entry: Digest([3; 32]), marks };
            let bytes = marks.to_bytes();
            prop_assert_eq!(FileMarks::from_bytes(&bytes), Ok(marks));
            prop_assert!((0..bytes.len()).all(|end| FileMarks::from_bytes(&bytes[..end]).is_err()));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            if let Ok(marks) = FileMarks::from_bytes(&bytes) {
                prop_assert_eq!(marks.to_bytes(), bytes);
            }
        }
    }
}
