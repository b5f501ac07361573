//! The base of a file's delta: its older version, or where a copy of it was interrupted or its connection was lost, what came by
//! then and the rest of the older version behind it. What came is right most likely, so the delta has nothing of it; and it
//! proves nothing, as the file is hashed from its front on in any case.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::MutexGuard;

use towpath_content::Oid;
use towpath_content::pieces::MIN_LOG2;
use towpath_files::{FileBody, FileError, RelPath, Stamp};
use towpath_reuse::candidates::machine::Machine;
use towpath_reuse::candidates::rules::FileCandidate;
use towpath_reuse::delta::made::IN_PLACE;
use towpath_store::hash_open_file;
use towpath_targets::placing::{Begun, Placing};
use towpath_transfer::intervals::Intervals;

use super::{CopyFile, FileState, Note};

/// What is here of a file from its front on, and where the older version goes on behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Front {
    /// Bytes that are here.
    pub end: u64,
    /// Bytes of the older version that they stand for.
    pub instead: u64,
}

impl Front {
    /// The first `here` bytes of a file of `size`, whose older version has `old`, in the same share.
    pub fn of(here: u64, old: u64, size: u64) -> Option<Self> {
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

/// What a file is made of that is here.
pub struct FileBase<'a> {
    pub(super) file: &'a CopyFile,
}

impl<'a> FileBase<'a> {
    /// Whether it may be quite another file than the older version.
    pub fn is_guess(&self) -> bool {
        self.file.found().is_some_and(|found| found.is_guess(self.file.size()))
    }

    /// Where its older version lies, and why that is taken for one.
    pub fn named(&self) -> Option<(PathBuf, &'static str)> {
        let path = self.older_version()?.whole_path(self.file.receiving.opened()?);
        let reason = self.file.found().map_or(IN_PLACE, |found| found.resemblance.name());
        Some((path, reason))
    }

    /// What it is to be made of by a delta.
    pub fn open(&self) -> Option<DeltaBase> {
        let older = self.for_delta()?;
        let file = older.open(self.file.receiving.opened()?)?;
        Some(DeltaBase::new(file, older.size(), self.front()))
    }

    /// Makes it of its older version, or of what may be the same. False: that has other bytes.
    pub fn take(&self, oid: &Oid) -> Result<bool, FileError> {
        let (placing, size) = (self.file.receiving.placing()?, self.file.size());
        let Some(older) = self.older_version() else { return Ok(false) };
        // The name of an older version was asked for.
        let may_be = |found: &FileCandidate| !found.is_same() || older.oid(placing) == Some(*oid);
        let file = older.open(placing).filter(|_| self.file.found().is_none_or(may_be));
        file.map_or(Ok(false), |file| self.file.parts().take_all(&file, older.size().min(size), oid))
    }

    /// What is here of its front: from a copy that was interrupted, or over a connection that was lost. None if most of what is here
    /// lies elsewhere.
    fn front(&self) -> Option<(FileBody, Front)> {
        let old = self.older_version().map_or(0, |older| older.size());
        let state = self.left();
        let here = state.came.prefix();
        let front = Front::of(here, old, state.size).filter(|_| here >= state.came.len() / 2)?;
        Some((state.staged.as_ref()?.body().clone(), front))
    }

    /// Bytes that are here of its front.
    pub fn front_len(&self) -> u64 {
        self.front().map_or(0, |(_, front)| front.end)
    }

    /// How the file stands, with what an interrupted copy left of it, which is taken the first time.
    fn left(&self) -> MutexGuard<'_, FileState> {
        let was_sought = std::mem::replace(&mut self.file.state().is_sought, true);
        let left = if was_sought { None } else { self.take_left() };
        let mut state = self.file.state();
        if let Some((staged, ranges)) = left {
            state.staged = Some(staged);
            ranges.into_iter().for_each(|range| state.came.insert(range));
        }
        state
    }

    fn take_left(&self) -> Option<Begun> {
        let (placing, path) = (self.file.receiving.opened()?, &self.file.wanted.path);
        let reopen = |name: &str| placing.destination.staging().reopen_for(path, name);
        placing.left_of(&self.file.key(), self.file.size(), reopen).ok()?
    }

    /// Has a temporary for it, with what came before, else a new one. An interrupted copy goes on with it.
    pub(super) fn begin(&self, size: u64) -> Result<FileBody, FileError> {
        let left = self.left().staged.take();
        let staged = match left {
            Some(staged) => {
                staged.body().set_size(size)?;
                staged
            }
            None => {
                self.file.state().came = Intervals::default();
                self.file.fresh(size)?
            }
        };
        self.file.receiving.placing()?.note_part(&self.file.key(), &staged, size > 1 << MIN_LOG2);
        let body = staged.body().clone();
        self.file.state().staged = Some(staged);
        Ok(body)
    }

    /// What is probably an older version: what lies in its place, or else what was found for it.
    pub(super) fn older_version(&self) -> Option<OlderVersion<'a>> {
        if let Some(stamp) = &self.file.wanted.old {
            return Some(OlderVersion { path: &self.file.wanted.path, stamp, is_outside: false });
        }
        let found = self.file.found()?;
        let (path, stamp) = (&found.file.path, &found.file.stamp);
        Some(OlderVersion { path, stamp, is_outside: found.is_outside() })
    }

    /// Its older version, where a delta may be made of that.
    fn for_delta(&self) -> Option<OlderVersion<'a>> {
        let options = &self.file.receiving.options;
        let is_wanted = !options.whole_file && !options.dry_run && !self.file.is_named_first();
        let may_be = || self.left().came.is_empty() || self.front().is_some();
        self.older_version().filter(|_| is_wanted && may_be())
    }

    /// The name of the older version that is here, if that alone is the base. Reads it unless the index knows it.
    pub fn oid(&self) -> Option<Oid> {
        let older = self.for_delta().filter(|_| self.front().is_none())?;
        older.oid(self.file.receiving.opened()?)
    }

    /// Bytes of its base, if there is one.
    pub fn size(&self) -> Option<u64> {
        let old = self.for_delta()?.size();
        Some(self.front().map_or(old, |(_, front)| front.joined(old)))
    }
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

    #[test]
    fn what_came_counts_to_the_byte() {
        for (here, old, size, expected) in [
            (0, 100, 100, None),
            (7, 100, 100, Some(7)),
            (50, 30, 100, Some(15)),
            (100, 30, 100, Some(30)),
            (101, 30, 100, None),
            (1, 0, 0, None),
            (u64::MAX, u64::MAX, u64::MAX, Some(u64::MAX)),
        ] {
            let front = Front::of(here, old, size);
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
