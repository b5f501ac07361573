//! Cutting of a file and the base that both sides have into parts, each of which is a patch of what lies around its place.
//!
//! That takes little memory and several threads. Of near matches more are found than of far ones, and in fewer bits.

use std::ops::Range;

use super::parts::part;

/// Bytes of a file and its base together that are one patch, whatever has moved within them.
const WHOLE: u64 = 8 << 20;
/// Bytes of a part of more, at most. Each part looks through all that lies around it, so fewer parts take less time.
const PART_LEN: u64 = 4 << 20;
/// Parts of a file, at most.
const MAX_PATCHES: u64 = 2048;
/// Bytes of the base on either side that belong to a part: so many, and as much as the file grew or shrank if that
/// is not more than this.
const AROUND: u64 = 2 << 20;
const MAX_MOVED: u64 = 4 << 20;

/// A base that both sides have, and the parts in which a file comes as patches of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PatchParts {
    base_len: u64,
    size: u64,
    count: u64,
}

impl PatchParts {
    /// Of a base and a file of so many bytes; none if they are too large.
    pub fn new(base_len: u64, size: u64) -> Option<Self> {
        let count = match base_len.saturating_add(size) <= WHOLE {
            true => 1,
            false => base_len.max(size).div_ceil(PART_LEN),
        };
        (count <= MAX_PATCHES).then_some(Self { base_len, size, count })
    }

    /// Number of parts.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Bytes of the base that part `index` is a patch of.
    pub fn base(&self, index: u64) -> Option<Range<u64>> {
        if self.count == 1 {
            return Some(0..self.base_len);
        }
        let part = part(self.base_len, self.count, index)?;
        let around = AROUND + self.base_len.abs_diff(self.size).min(MAX_MOVED);
        Some(part.start.saturating_sub(around)..self.base_len.min(part.end.saturating_add(around)))
    }

    /// Bytes of the file that are part `index`.
    pub fn target(&self, index: u64) -> Option<Range<u64>> {
        part(self.size, self.count, index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_comes_in_parts_once_it_is_large() {
        for (base_len, new, count) in [
            (0, 0, Some(1)),
            (4 << 20, 4 << 20, Some(1)),
            (4 << 20, (4 << 20) + 1, Some(2)),
            (69_486_560, 69_486_592, Some(17)),
            (8 << 30, 8 << 30, Some(2048)),
            (8 << 30, (8 << 30) + 1, None),
            (u64::MAX, 1, None),
        ] {
            assert_eq!(PatchParts::new(base_len, new).map(|parts| parts.count()), count, "{base_len} {new}");
        }
    }

    #[test]
    fn a_part_is_a_patch_of_what_lies_around_its_place() {
        const M: u64 = 1 << 20;
        for (base_len, new, index, base) in [
            (20 * M, 20 * M, 0, 0..6 * M),
            (20 * M, 20 * M, 2, 6 * M..14 * M),
            (20 * M, 20 * M, 4, 14 * M..20 * M),
            (20 * M, 21 * M, 3, 20 * M * 3 / 6 - 3 * M..20 * M * 4 / 6 + 3 * M),
            (20 * M, 200 * M, 25, 4 * M..10 * M + 20 * M / 50 + 6 * M),
            (0, 20 * M, 5, 0..0),
            (3 * M, 5 * M, 0, 0..3 * M),
        ] {
            assert_eq!(
                PatchParts::new(base_len, new).unwrap().base(index),
                Some(base),
                "{base_len} {new} {index}"
            );
        }
    }
}
