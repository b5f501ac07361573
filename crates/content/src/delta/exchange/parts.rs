//! Cutting of a file and its base into parts, each of which is a delta of its counterpart: signed where the base lies, made where
//! the file does. Both sides hold one part at a time.

use std::ops::Range;

use crate::delta::{Delta, MAX_BLOCK_LEN, MAX_TARGET_LEN, Signature, diff};

/// Bytes of a part, at most.
pub const MAX_PART_LEN: u64 = MAX_TARGET_LEN as u64;
/// Bytes of most parts: the literals of the first one travel while others are signed. What moved from one to another is a
/// literal, so that shorter ones would cost more than they save.
const USUAL_PART: u64 = MAX_PART_LEN / 2;
/// Parts of a file: a larger one comes as pieces, or as chunks if those are found.
pub const MAX_PARTS: u64 = 16;
/// Bytes of the shortest block: of a shorter one the sum is dearer than packed bytes.
const LEAST_BLOCK: u32 = 512;
/// Files from this size on change here and there, and each change costs a block that may not pack, unless deltas come in
/// two steps. Smaller ones come as trees, of which most files are the same or packed to a third or so: there signatures
/// count for more.
const LARGE: u64 = 4 << 20;
/// A block that is not made longer for what comes in two steps: files that have longer ones are programs and archives,
/// whose changes are as many as they are long (of node, longer ones cost 5 % more).
const MOST_DOUBLED: u32 = 4096;
/// Bytes of a signature before its sums, and of each of those, at most.
const SIGNATURE_HEAD: u64 = 64;
const SUM: u64 = 12;

/// Into how many parts a file is cut; none if it is too large.
pub fn parts(base_len: u64, new: u64) -> Option<u64> {
    let larger = base_len.max(new);
    let fewest = larger.div_ceil(MAX_PART_LEN).max(1);
    (fewest <= MAX_PARTS).then(|| larger.div_ceil(USUAL_PART).clamp(fewest, MAX_PARTS))
}

/// One of `count` parts of a file; `None` if it is too long to be held.
pub(super) fn part(size: u64, count: u64, index: u64) -> Option<Range<u64>> {
    // A file of so many parts at most; a longer one's are too long.
    let at = |index: u64| size.checked_mul(index).map(|bytes| bytes / count);
    let range = at(index)?..at(index + 1)?;
    (range.end - range.start <= MAX_PART_LEN).then_some(range)
}

/// Bytes of a block: so long that signature and wasted literals are about as much where changes are few.
///
/// With `n` bytes, `c` changes and 10 bytes for a block's sums, a large file costs 10 n/b of signature. What a change
/// wastes is a block, and the sum is least at b = sqrt(10 n/c); in two steps it is 2 sqrt(8 b), the literal in blocks that
/// are as fine as suits it, and the least lies at (3.5 n/c)^(2/3), farther up: twice as long for a few hundred changes.
fn block_len(size: u64, in_two_steps: bool) -> u32 {
    let root = u32::try_from(size.isqrt()).unwrap_or(MAX_BLOCK_LEN).clamp(1, MAX_BLOCK_LEN);
    if size < LARGE {
        return (2 * root).next_power_of_two().max(LEAST_BLOCK);
    }
    let block = 1 << (root * 2 / 3).ilog2();
    if in_two_steps { block.max(MOST_DOUBLED.min(2 * block)) } else { block }
}

/// The signature of a part of a file of `size` bytes, for a target of so many whose delta may come in two steps.
pub(super) fn sign(base: &[u8], size: u64, target: u64, in_two_steps: bool) -> Option<Vec<u8>> {
    let target = usize::try_from(target).ok()?;
    Some(Signature::of(base, block_len(size, in_two_steps), target).ok()?.to_bytes())
}

/// Bytes of that signature, at most, for so many of a part.
pub fn signature_len(part: u64, size: u64, in_two_steps: bool) -> u64 {
    SIGNATURE_HEAD + part.div_ceil(block_len(size, in_two_steps).into()) * SUM
}

/// `target` as a delta of what was signed so; none if that is no signature.
pub(super) fn make(signature: &[u8], target: &[u8]) -> Option<Vec<u8>> {
    Some(diff(&Signature::from_bytes(signature).ok()?, target).ok()?.to_bytes())
}

/// Bytes of the region that was signed so.
pub(super) fn region_len(signature: &[u8]) -> Option<usize> {
    Signature::from_bytes(signature).ok().map(|signature| signature.region_len())
}

/// The `len` bytes that a delta makes of `base`; none if it makes others.
pub(super) fn apply(delta: &[u8], base: &[u8], len: u64) -> Option<Vec<u8>> {
    Delta::from_bytes(delta).ok()?.apply(base, usize::try_from(len).ok()?).ok()
}

/// True if no part of a file of so many bytes, cut into `count`, is too long.
pub(super) const fn fit(size: u64, count: u64) -> bool {
    count > 0 && size.div_ceil(count) <= MAX_PART_LEN
}

/// True if a guess that made a delta or patch of so many bytes of a part is none that a search would better. The first part tells.
pub(super) const fn proves_right(index: u64, made: usize, target: u64) -> bool {
    index > 0 || made as u64 <= target / 2
}

/// A base that is signed in parts, for a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignedParts {
    base_len: u64,
    size: u64,
    count: u64,
}

impl SignedParts {
    /// Of a base and a file of so many bytes; none if a part would be too long.
    pub const fn new(base_len: u64, size: u64, count: u64) -> Option<Self> {
        match fit(base_len, count) && fit(size, count) {
            true => Some(Self { base_len, size, count }),
            false => None,
        }
    }

    /// Number of parts.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Bytes of the base that are part `index`.
    pub fn base(&self, index: u64) -> Option<Range<u64>> {
        part(self.base_len, self.count, index)
    }

    /// Bytes of the file that are part `index`.
    pub fn target(&self, index: u64) -> Option<Range<u64>> {
        part(self.size, self.count, index)
    }

    /// The signature of part `index` of the base, which has these bytes. `in_steps`: its delta may come in steps.
    pub fn sign(&self, index: u64, bytes: &[u8], in_steps: bool) -> Option<Vec<u8>> {
        let target = self.target(index)?;
        sign(bytes, self.base_len, target.end - target.start, in_steps)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::noise;
    use super::*;

    #[test]
    fn parts_cover_a_file_without_gaps() {
        for (base_len, new, count) in [
            (0, 0, Some(1)),
            (1, USUAL_PART, Some(1)),
            (1, USUAL_PART + 1, Some(2)),
            (3 * MAX_PART_LEN, 5, Some(6)),
            (9 * MAX_PART_LEN, 5, Some(MAX_PARTS)),
            (MAX_PARTS * MAX_PART_LEN, 0, Some(MAX_PARTS)),
            (MAX_PARTS * MAX_PART_LEN + 1, 0, None),
            (0, u64::MAX, None),
        ] {
            assert_eq!(parts(base_len, new), count, "{base_len} {new}");
            for size in count.map(|_| [base_len, new]).into_iter().flatten() {
                let count = count.unwrap();
                let ends = (0..count).map(|index| part(size, count, index).unwrap());
                let end = ends.fold(0, |end, range| {
                    assert_eq!(range.start, end);
                    range.end
                });
                assert_eq!(end, size);
            }
        }
        assert_eq!(part(MAX_PART_LEN + 1, 1, 0), None, "it grew");
        assert_eq!(part(u64::MAX, 3, 2), None);
    }

    #[test]
    fn blocks_grow_with_the_root_of_the_file() {
        for (size, block, in_two_steps) in [
            (0, 512, 512),
            (60_000, 512, 512),
            (70_000, 1024, 1024),
            (4_000_000, 4096, 4096),
            (9_000_000, 1024, 2048),
            (20_000_000, 2048, 4096),
            (50_000_000, 4096, 4096),
            (200_000_000, 8192, 8192),
            (1 << 40, 1 << 15, 1 << 15),
        ] {
            assert_eq!(block_len(size, false), block, "{size}");
            assert_eq!(block_len(size, true), in_two_steps, "{size}");
        }
    }

    #[test]
    fn a_changed_file_is_made_again_of_little() {
        let base = noise(1, 200_000);
        let target = [&base[..50_000], b"new", &base[50_100..]].concat();
        let signature = sign(&base, 200_000, target.len() as u64, false).unwrap();
        assert!(signature.len() as u64 <= signature_len(200_000, 200_000, false));
        let delta = make(&signature, &target).unwrap();
        assert!(signature.len() + delta.len() < 5000, "{} {}", signature.len(), delta.len());
        assert_eq!(apply(&delta, &base, target.len() as u64).unwrap(), target);
    }

    #[test]
    fn parts_of_a_large_file_are_made_again_of_little() {
        let base = noise(1, 20 << 20);
        let half = base.len() / 2;
        let target = [&base[..half], b"something new", &base[half..]].concat();
        let (base_len, new) = (base.len() as u64, target.len() as u64);
        let count = parts(base_len, new).unwrap();
        for index in 0..count {
            let range = |size| part(size, count, index).map(|it| it.start as usize..it.end as usize).unwrap();
            let (base, target) = (&base[range(base_len)], &target[range(new)]);
            let signature = sign(base, base_len, target.len() as u64, false).unwrap();
            let delta = make(&signature, target).unwrap();
            assert!(delta.len() < 5000, "{}", delta.len());
            assert_eq!(apply(&delta, base, target.len() as u64).unwrap(), target);
        }
    }

    #[test]
    fn lies_make_nothing() {
        let base = noise(1, 100_000);
        assert_eq!(make(b"no signature", &base), None);
        let delta = make(&sign(&base, 100_000, 100_000, false).unwrap(), &base).unwrap();
        assert_eq!(apply(&delta, &base[1000..], 100_000), None);
        assert_eq!(apply(&delta, &base, 99_999), None);
        assert_eq!(apply(b"no delta", &base, 100_000), None);
    }
}
