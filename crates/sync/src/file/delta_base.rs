//! The base of a file's delta: its older version, or where a copy of it was interrupted or its connection was lost, what came by
//! then and the rest of the older version behind it. What came is right most likely, so the delta has nothing of it; and it
//! proves nothing, as the file is hashed from its front on in any case.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use towpath_content::Oid;
use towpath_content::delta::exchange::SignedParts;
use towpath_content::delta::exchange::parts::parts;
use towpath_content::pieces::MIN_LOG2;
use towpath_files::{FileBody, FileError, RelPath, Stamp};
use towpath_reuse::candidates::machine::Machine;
use towpath_reuse::candidates::rules::FileCandidate;
use towpath_reuse::delta::made::IN_PLACE;
use towpath_store::hash_open_file;
use towpath_targets::placing::{Begun, Placing};

use super::{CopyFile, Note};

/// Parts of a file that are here, from its front on, and where the older version goes on behind them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Front {
    /// Bytes that are here.
    pub end: u64,
    /// Bytes of the older version that they stand for.
    pub instead: u64,
}

impl Front {
    /// The whole parts among the first `here` bytes of a file of `size`, whose older version has `old`.
    pub fn of(here: u64, old: u64, size: u64) -> Option<Self> {
        let cut = SignedParts::new(old, size, parts(old, size)?)?;
        let whole =
            (0..cut.count()).take_while(|index| cut.target(*index).is_some_and(|part| part.end <= here));
        let last = whole.last()?;
        Some(Self { end: cut.target(last)?.end, instead: cut.base(last)?.end })
    }

    /// The first `here` bytes of a file of `size`, whose older version has `old`, in the same share. This copy wrote them itself,
    /// so they need not be whole parts.
    pub fn at(here: u64, old: u64, size: u64) -> Option<Self> {
        let instead = u128::from(here) * u128::from(old) / u128::from(size.max(1));
        (1..=size).contains(&here).then_some(Self { end: here, instead: instead as u64 })
    }

    /// Bytes of both together, with an older version of so many.
    pub const fn joined(self, old: u64) -> u64 {
        self.end + old.saturating_sub(self.instead)
    }
}

/// See the head of this module.
pub struct DeltaBase {
    older: File,
    size: u64,
    front: Option<(FileBody, Front)>,
}

impl DeltaBase {
    /// Of an older version of so many bytes, and of what is here.
    pub fn new(older: File, old: u64, front: Option<(FileBody, Front)>) -> Self {
        let size = front.as_ref().map_or(old, |(_, front)| front.joined(old));
        Self { older, size, front }
    }

    /// Its bytes.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Some of them; none if they can't be read.
    pub fn read(&self, range: Range<u64>) -> Option<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(range.end.checked_sub(range.start)?).ok()?];
        let (here, shift) = match &self.front {
            None => (0, 0),
            Some((body, front)) => {
                let here = front.end.clamp(range.start, range.end) - range.start;
                body.read_at(range.start, &mut bytes[..here as usize]).ok()?;
                (here, front.instead.wrapping_sub(front.end))
            }
        };
        let from = (range.start + here).wrapping_add(shift);
        self.older.read_exact_at(&mut bytes[here as usize..], from).ok()?;
        Some(bytes)
    }
}

/// What a file is made of by a delta.
pub struct FileBase<'a> {
    pub(super) file: &'a CopyFile,
}

impl<'a> FileBase<'a> {
    /// Whether what it is made of does not lie in its place, but was found.
    pub fn is_found(&self) -> bool {
        self.found().is_some()
    }

    /// Whether that may be quite another file.
    pub fn is_guess(&self) -> bool {
        self.found().is_some_and(|found| found.is_guess(self.file.size()))
    }

    /// Where its older version lies, and why that is taken for one.
    pub fn named(&self) -> Option<(PathBuf, &'static str)> {
        let path = self.older_version()?.whole_path(self.file.receiving.opened()?);
        let reason = self.found().map_or(IN_PLACE, |found| found.resemblance.name());
        Some((path, reason))
    }

    fn found(&self) -> Option<&'a FileCandidate> {
        let found = self.file.found.get().filter(|found| !found.is_same());
        found.filter(|_| self.file.wanted.old.is_none())
    }

    /// What it is to be made of by a delta. None where other pieces of it are here already than the first parts, from a copy
    /// that was interrupted.
    pub fn open(&self) -> Option<DeltaBase> {
        let older = self.older_version().filter(|_| self.may_be())?;
        let file = older.open(self.file.receiving.opened()?)?;
        let rest = self.rest().and_then(|rest| Some((rest.body.clone(), rest.front?)));
        Some(DeltaBase::new(file, older.size(), rest))
    }

    /// Makes it of its older version. False: that has other bytes.
    pub fn take(&self, oid: &Oid) -> Result<bool, FileError> {
        let placing = self.file.receiving.placing()?;
        let older = self.older_version().and_then(|older| Some((older.open(placing)?, older.size())));
        let Some((older, size)) = older else { return Ok(false) };
        self.file.parts().take_all(&older, size.min(self.file.size()), oid)
    }

    /// What came of it before, which is taken the first time.
    fn rest(&self) -> Option<Arc<Rest>> {
        let known = self.file.state().rest.clone();
        known.or_else(|| self.take_rest())
    }

    fn take_rest(&self) -> Option<Arc<Rest>> {
        let (placing, path) = (self.file.receiving.opened()?, &self.file.wanted.path);
        let reopen = |name: &str| placing.destination.staging().reopen_for(path, name);
        let (staged, ranges) = placing.left_of(&self.file.key(), self.file.size(), reopen).ok()??;
        // Pieces come in any order.
        let here = if ranges.len() == 1 { front_of(&ranges) } else { 0 };
        let old = self.older_version().map_or(0, |older| older.size());
        let (body, front) = (staged.body().clone(), Front::of(here, old, self.file.size()));
        let rest = Arc::new(Rest { body, front, ranges });
        let mut state = self.file.state();
        (state.staged, state.rest) = (Some(staged), Some(Arc::clone(&rest)));
        Some(rest)
    }

    /// A temporary for it, and where bytes are in that: what came before, else a new one. An interrupted copy goes on with it.
    pub(super) fn begin(&self, size: u64) -> Result<Begun, FileError> {
        let rest = self.rest();
        let left = rest.zip(self.file.state().staged.take());
        let (staged, ranges) = match left {
            Some((rest, staged)) => {
                staged.body().set_size(size)?;
                (staged, rest.ranges.clone())
            }
            None => (self.file.fresh(size)?, Vec::new()),
        };
        self.file.receiving.placing()?.note_part(&self.file.key(), &staged, size > 1 << MIN_LOG2);
        Ok((staged, ranges))
    }

    /// What is probably an older version: what lies in its place, or else what was found for it.
    pub(super) fn older_version(&self) -> Option<OlderVersion<'a>> {
        if let Some(stamp) = &self.file.wanted.old {
            return Some(OlderVersion { path: &self.file.wanted.path, stamp, is_outside: false });
        }
        let found = self.found()?;
        let (path, stamp) = (&found.file.path, &found.file.stamp);
        Some(OlderVersion { path, stamp, is_outside: found.is_outside() })
    }

    fn may_be(&self) -> bool {
        let options = &self.file.receiving.options;
        let is_wanted = !options.whole_file && !options.dry_run && self.file.wanted.compare.is_none();
        is_wanted && self.rest().is_none_or(|rest| rest.front.is_some())
    }

    /// The name of the older version that is here, if that alone is the base. Reads it unless the index knows it.
    pub fn oid(&self) -> Option<Oid> {
        let older = self.older_version().filter(|_| self.may_be() && self.rest().is_none())?;
        older.oid(self.file.receiving.opened()?)
    }

    /// Bytes of its base, if there is one.
    pub fn size(&self) -> Option<u64> {
        let old = self.older_version()?.size();
        let front = self.rest().and_then(|rest| rest.front);
        Some(front.map_or(old, |front| front.joined(old)))
    }
}

/// What came of a file before: in an interrupted copy, or over a connection that was lost.
pub(super) struct Rest {
    pub(super) body: FileBody,
    /// What is here of its front, if that may be part of a base.
    pub(super) front: Option<Front>,
    pub(super) ranges: Vec<Range<u64>>,
}

/// Bytes at the front that sorted ranges have.
pub(super) fn front_of(ranges: &[Range<u64>]) -> u64 {
    if let Some(Range { start: 0, end }) = ranges.first() { *end } else { 0 }
}

/// A file that is here.
pub(super) struct OlderVersion<'a> {
    /// Below the destination, or outside a whole one.
    path: &'a RelPath,
    stamp: &'a Stamp,
    is_outside: bool,
}

impl OlderVersion<'_> {
    pub(super) const fn size(&self) -> u64 {
        self.stamp.size
    }

    fn whole_path(&self, placing: &Placing<Note>) -> PathBuf {
        if self.is_outside { self.path.below(Path::new("/")) } else { placing.whole_path(self.path) }
    }

    /// Opens it, if it is still what was seen.
    pub(super) fn open(&self, placing: &Placing<Note>) -> Option<File> {
        match self.is_outside {
            true => Machine::open()?.open_file(self.path, self.stamp),
            false => placing.destination.open_file(self.path, self.stamp).ok(),
        }
    }

    /// The name of its content. Reads it unless the index knows that.
    fn oid(&self, placing: &Placing<Note>) -> Option<Oid> {
        let whole = self.whole_path(placing);
        let known = placing.known_at(&whole, self.stamp);
        known.or_else(|| Some(hash_open_file(&self.open(placing)?, &whole).ok()?.oid))
    }
}

#[cfg(test)]
mod tests {
    use towpath_files::SingleFile;

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn whole_parts_alone_count() {
        // Three parts.
        let (old, size) = (18 * MIB, 24 * MIB);
        for (here, end, instead) in
            [(8 * MIB, 8, 6), (16 * MIB - 1, 8, 6), (16 * MIB, 16, 12), (24 * MIB, 24, 18)]
        {
            let front = Front::of(here, old, size).unwrap();
            assert_eq!(front, Front { end: end * MIB, instead: instead * MIB }, "{here}");
            assert_eq!(front.joined(old), (end + 18 - instead) * MIB);
        }
        assert_eq!(Front::of(8 * MIB - 1, old, size), None);
        assert_eq!(Front::of(u64::MAX, 0, u64::MAX), None);
    }

    #[test]
    fn what_came_over_a_lost_connection_counts_to_the_byte() {
        for (here, old, size, expected) in [
            (0, 100, 100, None),
            (7, 100, 100, Some(7)),
            (50, 30, 100, Some(15)),
            (100, 30, 100, Some(30)),
            (101, 30, 100, None),
            (1, 0, 0, None),
            (u64::MAX, u64::MAX, u64::MAX, Some(u64::MAX)),
        ] {
            let front = Front::at(here, old, size);
            assert_eq!(front, expected.map(|instead| Front { end: here, instead }), "{here} {old} {size}");
            assert!(
                front.is_none_or(|front| front.joined(old) <= old.max(size)),
                "it may be cut like those two"
            );
        }
    }

    #[test]
    fn what_is_here_stands_in_front_of_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("older");
        std::fs::write(&path, b"abcdefghij").unwrap();
        let older = || File::open(&path).unwrap();
        let file = SingleFile::create(&folder.path().join("new"), 12).unwrap();
        file.body().write_piece(0, b"ABCDEF", false).unwrap();
        for (instead, all) in
            [(6, &b"ABCDEFghij"[..]), (4, b"ABCDEFefghij"), (8, b"ABCDEFij"), (10, b"ABCDEF")]
        {
            let base = DeltaBase::new(older(), 10, Some((file.body().clone(), Front { end: 6, instead })));
            assert_eq!(base.size(), all.len() as u64);
            for (from, to) in [(0, base.size()), (0, 3), (2, 6), (5, base.size()), (6, base.size())] {
                assert_eq!(
                    base.read(from..to).as_deref(),
                    Some(&all[from as usize..to as usize]),
                    "{from} {to}"
                );
            }
            assert_eq!(base.read(0..base.size() + 1), None);
        }
        assert_eq!(DeltaBase::new(older(), 10, None).read(2..5).as_deref(), Some(&b"cde"[..]));
        file.discard().unwrap();
    }
}
