//! Regions of local files that correspond to an object's missing chunks.
//!
//! Chunks that were found in a local file are anchors: what is missing between two of them most
//! likely resembles what that file has between them. So does what is missing before the first or
//! behind the last anchor, up to the file's start or end.

use std::ops::Range;

use super::shape::{MAX_REGION_LEN, MAX_TARGET_LEN};

/// A longer gap is handed out in parts of at most this many bytes (or one chunk), since target and
/// region of a delta are held in memory.
const PART_LEN: u64 = 4 << 20;
/// Bytes a region reaches beyond the place where the target would lie if nothing had moved, on sides
/// without an anchor: about a chunk.
const SLACK: u64 = 16 << 10;
/// A region has at most this many times the bytes of its gap ...
const REGION_PER_GAP: u64 = 4;
/// ... and this many more: a signature should not cost more than the gap.
const REGION_BEYOND_GAP: u64 = 64 << 10;

/// Position at which a chunk was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundAt<F> {
    /// The file.
    pub file: F,
    /// The chunk's first byte in it.
    pub offset: u64,
}

/// A chunk of the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefinedChunk<F> {
    /// Its bytes.
    pub len: u32,
    /// Position at which it was found, or `None` if it is missing.
    pub found: Option<FoundAt<F>>,
}

/// A run of missing chunks, or a part of one that is too long for one delta.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap<F> {
    /// The numbers of its chunks.
    pub chunks: Range<usize>,
    /// Its first byte in the object.
    pub offset: u64,
    /// Its bytes; at most 16 MiB if no chunk has more.
    pub len: u64,
    /// Region that is likely to resemble it, if any is.
    pub region: Option<RefineRegion<F>>,
}

/// A region of a file; never empty, at most 16 MiB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefineRegion<F> {
    /// The file.
    pub file: F,
    /// Its bytes.
    pub range: Range<u64>,
}

/// The gaps of an object whose chunks are given in order, with the regions that correspond to them.
/// `file_len` tells how many bytes a file has. One pass over the chunks.
///
/// Between two anchors in one file, in order, the region is what lies between them; before the
/// first and behind the last anchor it reaches to the file's start and end. Where the neighbours lie
/// in different files or the wrong way round, it is beside that one of them which is part of the longer run
/// found in one place. It never has more than four times the gap's bytes and 64 KiB.
pub fn refine<F: Clone + PartialEq>(chunks: &[RefinedChunk<F>], file_len: impl Fn(&F) -> u64) -> Vec<Gap<F>> {
    let stretches = stretches(chunks);
    let mut gaps = Vec::new();
    for (number, stretch) in stretches.iter().enumerate() {
        if stretch.found.is_none() {
            let left = number.checked_sub(1).map(|before| &stretches[before]);
            let corridor = corridor(stretch.len, left, stretches.get(number + 1), &file_len);
            push_parts(&mut gaps, chunks, stretch, corridor.as_ref());
        }
    }
    gaps
}

/// Neighbouring chunks that are all missing, or that lie in one file as they do in the object.
#[derive(Debug)]
struct RefineStretch<F> {
    chunks: Range<usize>,
    offset: u64,
    len: u64,
    found: Option<FoundAt<F>>,
}

impl<F: PartialEq> RefineStretch<F> {
    /// The first byte of its file behind it.
    fn end(&self) -> Option<u64> {
        self.found.as_ref().map(|position| position.offset.saturating_add(self.len))
    }

    fn goes_on_with(&self, found: Option<&FoundAt<F>>) -> bool {
        match (&self.found, found) {
            (None, None) => true,
            (Some(ours), Some(next)) => ours.file == next.file && self.end() == Some(next.offset),
            _ => false,
        }
    }
}

fn stretches<F: Clone + PartialEq>(chunks: &[RefinedChunk<F>]) -> Vec<RefineStretch<F>> {
    let mut all: Vec<RefineStretch<F>> = Vec::new();
    let mut offset = 0u64;
    for (number, chunk) in chunks.iter().enumerate() {
        match all.last_mut() {
            Some(last) if last.goes_on_with(chunk.found.as_ref()) => {
                last.chunks.end = number + 1;
                last.len += u64::from(chunk.len);
            }
            _ => {
                let found = chunk.found.clone();
                all.push(RefineStretch { chunks: number..number + 1, offset, len: chunk.len.into(), found });
            }
        }
        offset += u64::from(chunk.len);
    }
    all
}

/// The side of a corridor from which positions are known best.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RefineSide {
    Left,
    Right,
}

/// Part of a file that corresponds to a whole gap.
#[derive(Debug)]
struct Corridor<F> {
    file: F,
    range: Range<u64>,
    anchor: RefineSide,
}

/// The corridor of a gap of `gap` bytes between two stretches, both found if they are there.
fn corridor<F: Clone + PartialEq>(
    gap: u64,
    left: Option<&RefineStretch<F>>,
    right: Option<&RefineStretch<F>>,
    file_len: impl Fn(&F) -> u64,
) -> Option<Corridor<F>> {
    let reach = gap.saturating_add(SLACK);
    let (position, range, anchor) = match (left.and_then(anchor_behind), right.and_then(anchor_before)) {
        (None, None) => return None,
        (Some((position, end)), None) => (position, end..u64::MAX, RefineSide::Left),
        (None, Some(position)) => (position, 0..position.offset, RefineSide::Right),
        (Some((position, end)), Some(next)) if position.file == next.file && end <= next.offset => {
            (position, end..next.offset, RefineSide::Left)
        }
        (Some((position, end)), Some(_)) if left.map(|run| run.len) >= right.map(|run| run.len) => {
            (position, end..end.saturating_add(reach), RefineSide::Left)
        }
        (Some(_), Some(next)) => (next, next.offset.saturating_sub(reach)..next.offset, RefineSide::Right),
    };
    let range = range.start..range.end.min(file_len(&position.file));
    (range.start < range.end).then(|| Corridor { file: position.file.clone(), range, anchor })
}

/// Position of a stretch on the left of a gap, and its end there.
fn anchor_behind<F: PartialEq>(stretch: &RefineStretch<F>) -> Option<(&FoundAt<F>, u64)> {
    stretch.found.as_ref().zip(stretch.end())
}

/// Position of a stretch on the right of a gap.
const fn anchor_before<F>(stretch: &RefineStretch<F>) -> Option<&FoundAt<F>> {
    stretch.found.as_ref()
}

/// Adds a gap, in parts if it is long.
fn push_parts<F: Clone>(
    gaps: &mut Vec<Gap<F>>,
    chunks: &[RefinedChunk<F>],
    gap: &RefineStretch<F>,
    corridor: Option<&Corridor<F>>,
) {
    let (mut first, mut start) = (gap.chunks.start, 0);
    while first < gap.chunks.end {
        let (count, len) = part(&chunks[first..gap.chunks.end]);
        let region = corridor.and_then(|corridor| region(corridor, gap.len, start, len));
        gaps.push(Gap { chunks: first..first + count, offset: gap.offset + start, len, region });
        (first, start) = (first + count, start + len);
    }
}

/// Number of chunks that make the next part, and its bytes.
fn part<F>(chunks: &[RefinedChunk<F>]) -> (usize, u64) {
    let mut len = 0;
    for (count, chunk) in chunks.iter().enumerate() {
        if count > 0 && len + u64::from(chunk.len) > PART_LEN {
            return (count, len);
        }
        len += u64::from(chunk.len);
    }
    (chunks.len(), len)
}

/// Region of the corridor that corresponds to the part of a gap of `gap` bytes that has `len` bytes from
/// its byte `start` on.
fn region<F: Clone>(corridor: &Corridor<F>, gap: u64, start: u64, len: u64) -> Option<RefineRegion<F>> {
    let Range { start: low, end: high } = corridor.range;
    // The position of the insertion or removal in the gap is not known: the part may lie anywhere
    // between its distance from the gap's start and that from its end.
    let (inserted, removed) = (gap.saturating_sub(high - low), (high - low).saturating_sub(gap));
    let (is_first, is_last) = (start == 0, start + len == gap);
    let before = if is_first { 0 } else { inserted.saturating_add(SLACK) };
    let behind = if is_last { u64::MAX } else { removed.saturating_add(SLACK) };
    let here = low.saturating_add(start);
    let from = here.saturating_sub(before).max(low).min(high);
    let to = here.saturating_add(len).saturating_add(behind).min(high);
    let side = if is_last && !is_first { RefineSide::Right } else { corridor.anchor };
    let range = bounded(from..to.max(from), len, side);
    (!range.is_empty()).then(|| RefineRegion { file: corridor.file.clone(), range })
}

/// As much of `range` as a region for `len` bytes may have, counted from `side`.
fn bounded(range: Range<u64>, len: u64, side: RefineSide) -> Range<u64> {
    let limit = len.saturating_mul(REGION_PER_GAP).saturating_add(REGION_BEYOND_GAP);
    let limit = limit.min(MAX_REGION_LEN as u64);
    match side {
        RefineSide::Left => range.start..range.end.min(range.start.saturating_add(limit)),
        RefineSide::Right => range.start.max(range.end.saturating_sub(limit))..range.end,
    }
}

const _: () = assert!(PART_LEN <= MAX_TARGET_LEN as u64);
