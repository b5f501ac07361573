//! The base of a file's delta: its older version, or where a copy of it was interrupted, what came by then and the rest of the
//! older version behind it. What came is right most likely, so the delta has nothing of it; and it proves nothing, as the file
//! is hashed from its front on in any case.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use towpath_content::delta::exchange::SignedParts;
use towpath_content::delta::exchange::parts::parts;
use towpath_files::FileBody;

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
