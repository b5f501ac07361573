//! Patches: a target as corrections of a base that both sides have. A match goes on through bytes that differ, and the
//! differences travel: of a program that was linked again nearly all bytes are where they were, but for addresses.
//!
//! The idea is bsdiff's (Percival, "Naive differences of executable code", 2003), the search is not: instead of sorting all
//! suffixes of the base, every eighth of its windows of 24 bytes is looked up by its hash. Layout: `docs/formats/patch.md`.
//!
//! A patch is a claim: what is made of it counts if it hashes to the target's name.
//!
//! Memory: the index takes between half of the base's bytes and as many as these; ops and differences are at most
//! some target's bytes. Time is proportional to base and target, whatever their bytes.

use thiserror::Error;

use crate::codec::{DecodeError, Reader, Writer, invalid};

/// Bytes of a base or a target, at most.
pub const MAX_LEN: usize = 1 << 27;

/// The version of the layout.
const VERSION: u8 = 1;
/// Bytes that are looked up, and how far apart the windows of the base begin.
const WINDOW: usize = 24;
const STRIDE: usize = 8;
/// Of so many bytes so many must be equal for the last displacement to be tried again.
const PROBE: usize = 8;
const LEAST_EQUAL: u32 = 6;
/// Score that an equal byte adds to a match, and one that differs takes away.
const EQUAL: i32 = 1;
const DIFFERENT: i32 = -2;
/// A match that has fallen so far below its best is over.
const MOST_LOST: i32 = 64;
/// A match that is worth less is not worth its op.
const LEAST_WORTH: i32 = 16;
/// Equal bytes in a row that are counted and not told, at least.
const LEAST_RUN: usize = 32;

/// Reason why a patch does not make the target that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PatchError {
    /// It can't be read.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// It draws on bytes that the base does not have.
    #[error("a patch draws on bytes outside of its base")]
    OutsideBase,
    /// It makes more or fewer bytes than were asked for.
    #[error("a patch makes {found} bytes where {expected} were asked for")]
    Length {
        /// Bytes that were asked for.
        expected: usize,
        /// Bytes that it makes, or more than the limit.
        found: u64,
    },
}

/// One step: literals, then bytes of the base that are equal, then some that are corrected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct PatchOp {
    literal: usize,
    /// Distance of the base's position from where it would be read if nothing had moved.
    moved: i64,
    equal: usize,
    corrected: usize,
}

/// A patch that makes `target` of `base`; none if either is too long.
pub fn make(base: &[u8], target: &[u8]) -> Option<Vec<u8>> {
    if base.len() > MAX_LEN || target.len() > MAX_LEN {
        return None;
    }
    let mut finder = MatchFinder { base, target, index: WindowIndex::of(base), made: PatchMaker::default() };
    finder.run();
    Some(finder.made.into_bytes(target))
}

/// The `expected` bytes that a patch makes of `base`. No memory is taken before it is known that there are as many.
pub fn apply(patch: &[u8], base: &[u8], expected: usize) -> Result<Vec<u8>, PatchError> {
    let mut reader = Reader::new(patch);
    if reader.u8("patch version")? != VERSION {
        return Err(invalid("patch version", "is not 1").into());
    }
    let ops = reader.bytes("patch ops", patch.len())?;
    let differences = reader.bytes("patch differences", patch.len())?;
    let literals = reader.take("patch literals", reader.remaining())?;
    check(ops, base.len(), differences.len(), literals.len(), expected)?;
    let mut target = Vec::with_capacity(expected);
    let (mut ops, mut from, mut differences, mut literals) =
        (Reader::new(ops), 0usize, differences, literals);
    while ops.remaining() > 0 {
        let op = read_op(&mut ops)?;
        let (literal, rest) = literals.split_at(op.literal);
        target.extend_from_slice(literal);
        literals = rest;
        from = moved(from, op.moved).ok_or(PatchError::OutsideBase)?;
        target.extend_from_slice(&base[from..from + op.equal]);
        from += op.equal;
        let (difference, rest) = differences.split_at(op.corrected);
        let corrected = base[from..from + op.corrected].iter().zip(difference);
        target.extend(corrected.map(|(old, difference)| old.wrapping_add(*difference)));
        (from, differences) = (from + op.corrected, rest);
    }
    Ok(target)
}

/// Checks that ops stay within base, differences, literals and the target, and use all of them.
fn check(
    ops: &[u8],
    base: usize,
    differences: usize,
    literals: usize,
    expected: usize,
) -> Result<(), PatchError> {
    let mut reader = Reader::new(ops);
    let (mut from, mut corrected, mut literal, mut made) = (0usize, 0usize, 0usize, 0usize);
    while reader.remaining() > 0 {
        let op = read_op(&mut reader)?;
        from = moved(from, op.moved).ok_or(PatchError::OutsideBase)? + op.equal + op.corrected;
        if from > base {
            return Err(PatchError::OutsideBase);
        }
        corrected += op.corrected;
        literal += op.literal;
        made += op.literal + op.equal + op.corrected;
        if made > expected {
            return Err(PatchError::Length { expected, found: made as u64 });
        }
    }
    if corrected != differences || literal != literals {
        return Err(invalid("patch", "has bytes that no op uses, or fewer than they use").into());
    }
    if made != expected {
        return Err(PatchError::Length { expected, found: made as u64 });
    }
    Ok(())
}

fn read_op(reader: &mut Reader<'_>) -> Result<PatchOp, DecodeError> {
    let limit = MAX_LEN as u64;
    let literal = reader.bounded("patch literal", limit)? as usize;
    let moved = reader.signed("patch displacement")?;
    let equal = reader.bounded("patch equal", limit)? as usize;
    let corrected = reader.bounded("patch corrected", limit)? as usize;
    if literal == 0 && equal == 0 && corrected == 0 {
        return Err(invalid("patch op", "does nothing"));
    }
    Ok(PatchOp { literal, moved, equal, corrected })
}

/// A place of the base, so far from another.
fn moved(from: usize, by: i64) -> Option<usize> {
    let to = i64::try_from(from).ok()?.checked_add(by)?;
    usize::try_from(to).ok().filter(|to| *to <= MAX_LEN)
}

/// Ops and differences as they are found; literals stay in the target.
#[derive(Default)]
struct PatchMaker {
    ops: Writer,
    differences: Vec<u8>,
    literals: Vec<std::ops::Range<usize>>,
    /// Position where the base would be read if nothing moved.
    from: usize,
}

impl PatchMaker {
    /// Literals, then a match that begins at `from` in the base.
    fn add(&mut self, base: &[u8], target: &[u8], literals: std::ops::Range<usize>, from: usize, len: usize) {
        let start = literals.end;
        let mut literal = literals.len();
        self.literals.push(literals);
        let (old, new) = (&base[from..from + len], &target[start..start + len]);
        let mut at = 0;
        while at < len || literal > 0 {
            let equal = equal_run(&old[at..], &new[at..]);
            let corrected = corrected_run(&old[at + equal..], &new[at + equal..]);
            let moved = (from + at) as i64 - self.from as i64;
            self.ops.varint(literal as u64).signed(moved).varint(equal as u64).varint(corrected as u64);
            let differing = old[at + equal..][..corrected].iter().zip(&new[at + equal..][..corrected]);
            self.differences.extend(differing.map(|(old, new)| new.wrapping_sub(*old)));
            at += equal + corrected;
            self.from = from + at;
            literal = 0;
        }
    }

    fn into_bytes(self, target: &[u8]) -> Vec<u8> {
        let literals: usize = self.literals.iter().map(ExactSizeIterator::len).sum();
        let mut writer = Writer::with_capacity(self.ops.len() + self.differences.len() + literals + 16);
        writer.u8(VERSION).bytes(&self.ops.into_bytes()).bytes(&self.differences);
        for run in self.literals {
            writer.raw(&target[run]);
        }
        writer.into_bytes()
    }
}

/// Bytes that are equal from the front on.
fn equal_run(old: &[u8], new: &[u8]) -> usize {
    let words = old.as_chunks::<8>().0.iter().zip(new.as_chunks::<8>().0);
    let words = words.take_while(|(old, new)| old == new).count() * 8;
    let rest = old[words..].iter().zip(&new[words..]);
    words + rest.take_while(|(old, new)| old == new).count()
}

/// Bytes from the front on that travel as differences: up to a run of equal ones that is worth an op.
fn corrected_run(old: &[u8], new: &[u8]) -> usize {
    let mut corrected = 0;
    let differs = |at: &usize| old[*at] != new[*at];
    while let Some(next) = (corrected..old.len().min(corrected + LEAST_RUN)).find(differs) {
        corrected = next + 1;
    }
    corrected
}

/// Positions of the base's windows, by their hash.
struct WindowIndex {
    /// Places divided by [`STRIDE`], plus 1; 0 where there is none.
    places: Vec<u32>,
    shift: u32,
}

impl WindowIndex {
    fn of(base: &[u8]) -> Self {
        let windows = base.len().saturating_sub(WINDOW) / STRIDE + 1;
        let bits = usize::BITS - windows.leading_zeros();
        let mut index = Self { places: vec![0; 1 << bits], shift: u64::BITS - bits };
        if base.len() < WINDOW {
            return index;
        }
        for number in 0..windows {
            if let Some(window) = window_at(base, number * STRIDE) {
                let slot = &mut index.places[hash(window, index.shift)];
                // The first of equal ones stays: of zeros and the like there are many.
                if *slot == 0 {
                    *slot = number as u32 + 1;
                }
            }
        }
        index
    }

    /// A place of the base where these bytes may be.
    fn find(&self, window: &[u8; WINDOW]) -> Option<usize> {
        let place = self.places[hash(window, self.shift)];
        place.checked_sub(1).map(|number| number as usize * STRIDE)
    }
}

fn window_at(bytes: &[u8], at: usize) -> Option<&[u8; WINDOW]> {
    bytes.get(at..)?.first_chunk()
}

fn hash(window: &[u8; WINDOW], shift: u32) -> usize {
    const FACTORS: [u64; WINDOW / 8] = [0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f, 0x1656_67b1_9e37_79f9];
    let words = window.as_chunks::<8>().0.iter().zip(FACTORS);
    let mix = |mixed: u64, (word, factor): (&[u8; 8], u64)| {
        mixed.rotate_left(23) ^ u64::from_le_bytes(*word).wrapping_mul(factor)
    };
    (words.fold(0, mix).wrapping_mul(FACTORS[0]) >> shift) as usize
}

/// Finds matches from the target's front to its end.
struct MatchFinder<'a> {
    base: &'a [u8],
    target: &'a [u8],
    index: WindowIndex,
    made: PatchMaker,
}

impl MatchFinder<'_> {
    fn run(&mut self) {
        let (mut literal, mut at, mut displacement) = (0, 0, 0i64);
        while at < self.target.len() {
            let Some(from) = self.candidate(at, displacement) else {
                at += 1;
                continue;
            };
            let (len, worth) = self.forward(from, at);
            if worth < LEAST_WORTH {
                at += 1;
                continue;
            }
            let back = self.backward(from, at, literal);
            self.made.add(self.base, self.target, literal..at - back, from - back, back + len);
            displacement = from as i64 - at as i64;
            at += len;
            literal = at;
        }
        if literal < self.target.len() {
            let from = self.made.from;
            self.made.add(self.base, self.target, literal..self.target.len(), from, 0);
        }
    }

    /// Position in the base where the bytes at `at` may go on: at the last displacement, or where the index has them.
    fn candidate(&self, at: usize, displacement: i64) -> Option<usize> {
        let last = usize::try_from(at as i64 + displacement).ok();
        let last = last.filter(|from| self.probe(*from, at));
        last.or_else(|| {
            let window = window_at(self.target, at)?;
            self.index.find(window).filter(|from| window_at(self.base, *from) == Some(window))
        })
    }

    fn probe(&self, from: usize, at: usize) -> bool {
        let old = self.base.get(from..).and_then(|rest| rest.first_chunk::<PROBE>());
        let new = self.target[at..].first_chunk::<PROBE>();
        let (Some(old), Some(new)) = (old, new) else { return false };
        let differing = u64::from_le_bytes(*old) ^ u64::from_le_bytes(*new);
        let equal = differing.to_le_bytes().into_iter().filter(|byte| *byte == 0).count();
        equal as u32 >= LEAST_EQUAL
    }

    /// Bytes of the best match from here on, and what it is worth.
    fn forward(&self, from: usize, at: usize) -> (usize, i32) {
        let (old, new) = (&self.base[from..], &self.target[at..]);
        let (old, new) = (&old[..old.len().min(new.len())], &new[..old.len().min(new.len())]);
        let mut best = Best::default();
        let (old_words, new_words) = (old.as_chunks::<8>(), new.as_chunks::<8>());
        for (old, new) in old_words.0.iter().zip(new_words.0) {
            if old == new {
                best.equal(8);
            } else if !old.iter().zip(new).all(|(old, new)| best.goes_on(old == new)) {
                return best.found();
            }
        }
        old_words.1.iter().zip(new_words.1).all(|(old, new)| best.goes_on(old == new));
        best.found()
    }

    /// Bytes of the best match before here, of those that are no part of the match before.
    fn backward(&self, from: usize, at: usize, literal: usize) -> usize {
        let mut best = Best::default();
        let mut pairs = self.base[..from].iter().rev().zip(self.target[literal..at].iter().rev());
        pairs.all(|(old, new)| best.goes_on(old == new));
        best.found().0
    }
}

/// The best match so far while it is tried to make it longer.
#[derive(Default)]
struct Best {
    worth: i32,
    tried: usize,
    best: i32,
    len: usize,
}

impl Best {
    /// Takes so many equal bytes.
    fn equal(&mut self, count: i32) {
        self.worth = self.worth.saturating_add(EQUAL * count);
        self.tried += count as usize;
        if self.worth > self.best {
            (self.best, self.len) = (self.worth, self.tried);
        }
    }

    /// Takes one more byte; false once the match is over.
    fn goes_on(&mut self, is_equal: bool) -> bool {
        if is_equal {
            self.equal(1);
            return true;
        }
        self.worth += DIFFERENT;
        self.tried += 1;
        self.worth >= self.best - MOST_LOST
    }

    /// Bytes of the match, and what it is worth.
    const fn found(&self) -> (usize, i32) {
        (self.len, self.best)
    }
}

#[cfg(test)]
mod tests;
