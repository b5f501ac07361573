//! Positions of an object's pieces in an older version: it is followed from one piece to the next, through what
//! was inserted and removed, by a few bytes of the object here and there. Pure, but for the bytes of the older
//! version that it is handed a way to read.
//!
//! An insertion shifts all behind it. So the next piece is looked for where the last one ended; if its samples
//! are not there, something was changed in it, and its last sample is searched around where it should be. That
//! tells where the rest of the piece lies, and all that follows. What lies between the samples that were found
//! before the change and those behind it is missing. Nothing is cut and nothing hashed for this: samples are a
//! guess, and each piece that is made of them is checked by its value like any other.

use std::io;
use std::ops::Range;

use memchr::memmem;
use towpath_content::pieces::Layout;

/// A sample is taken at each multiple of this many bytes: of a change half as much on either side is missing,
/// and a fifth of a percent of the object has to be told.
pub const EVERY: u64 = 8 << 10;
/// Bytes of a sample: by chance no two are alike.
pub const SAMPLE_LEN: usize = 16;

/// Distance around a sample that is searched at first; doubled with each piece of which nothing was found.
const REACH: u64 = 128 << 10;
const FARTHEST: u64 = 4 << 20;
/// Samples of one piece that are searched: the last ones, if one occurs more than once.
const TRIES: usize = 3;
/// Bytes that are searched in all, as a multiple of the older version's: what is not alike is not searched
/// for ever.
const SEARCHED: u64 = 2;

/// Number of samples of a piece of `len` bytes: none of a rest that is shorter than one.
pub const fn sample_count(len: u64) -> usize {
    match len.checked_sub(SAMPLE_LEN as u64) {
        Some(last) => (last / EVERY) as usize + 1,
        None => 0,
    }
}

/// Puts the samples of a piece behind what `samples` holds.
pub fn sample(piece: &[u8], samples: &mut Vec<u8>) {
    let runs = piece.chunks(EVERY as usize);
    runs.filter_map(|run| run.get(..SAMPLE_LEN)).for_each(|bytes| samples.extend_from_slice(bytes));
}

/// The samples of an object's pieces, from its front on, as far as they have come.
#[derive(Debug)]
pub struct Samples {
    layout: Layout,
    bytes: Vec<u8>,
    pieces: u64,
}

impl Samples {
    /// None of them has come.
    pub const fn new(layout: Layout) -> Self {
        Self { layout, bytes: Vec::new(), pieces: 0 }
    }

    /// Of how many pieces they have come.
    pub const fn pieces(&self) -> u64 {
        self.pieces
    }

    /// Takes the next ones. False if these are others, or not those of whole pieces.
    pub fn learn(&mut self, first: u64, bytes: &[u8]) -> bool {
        let (mut pieces, mut left) = (first, bytes.len());
        while left > 0 && pieces < self.layout.count() {
            let Some(rest) = left.checked_sub(self.len_of(pieces)) else { return false };
            (pieces, left) = (pieces + 1, rest);
        }
        let is_next = first == self.pieces && left == 0;
        if is_next {
            self.bytes.extend_from_slice(bytes);
            self.pieces = pieces;
        }
        is_next
    }

    /// Those of piece `index`.
    pub fn of(&self, index: u64) -> Option<&[u8]> {
        let from = usize::try_from(index).ok()?.checked_mul(self.len_of(0))?;
        (index < self.pieces).then(|| self.bytes.get(from..from + self.len_of(index)))?
    }

    fn len_of(&self, index: u64) -> usize {
        sample_count(self.layout.len(index)) * SAMPLE_LEN
    }
}

/// An older version of an object.
pub trait BaseReader: Send + Sync {
    /// Its number of bytes.
    fn size(&self) -> u64;
    /// Reads some of them.
    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;
}

/// Likely making of a piece: of two runs of the older version, and of what is missing between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PieceMatch {
    /// Missing bytes, within the piece. Nothing if it is empty.
    pub missing: Range<u64>,
    /// Shift of what is in front of that: its distance further on in the older version.
    before: i64,
    /// And what is behind it.
    after: i64,
}

impl PieceMatch {
    /// True if all of the piece lies in the older version, at its own place.
    pub const fn is_in_place(&self) -> bool {
        self.missing.start >= self.missing.end && self.before == 0 && self.after == 0
    }

    /// Reads what is not missing of the piece that begins at `start`; the rest of `buf` stays as it is.
    pub fn read(&self, start: u64, older: &dyn BaseReader, buf: &mut [u8]) -> io::Result<()> {
        let (front, tail) = (self.missing.start as usize, self.missing.end as usize);
        let (piece, rest) = buf.split_at_mut(front);
        read_at(older, moved(start, self.before), piece)?;
        read_at(older, moved(start + tail as u64, self.after), &mut rest[tail - front..])
    }
}

/// Follows one object through its older version. Pieces come in any order, but best in their own.
#[derive(Debug)]
pub struct Following {
    /// Shift at which the last piece ended.
    shift: i64,
    reach: u64,
    searched: u64,
}

impl Default for Following {
    fn default() -> Self {
        Self { shift: 0, reach: REACH, searched: 0 }
    }
}

impl Following {
    /// Looks for the piece that begins at `start`, whose samples are these and which has as many bytes as
    /// `buf`. Returns how it is likely made, or none if nothing of it was found. If nothing is missing, `buf`
    /// holds it.
    pub fn find(
        &mut self,
        start: u64,
        samples: &[u8],
        older: &dyn BaseReader,
        buf: &mut [u8],
    ) -> Option<PieceMatch> {
        let samples = samples.as_chunks::<SAMPLE_LEN>().0;
        let (before, len) = (self.shift, buf.len() as u64);
        let here = read_run(older, moved(start, before), buf);
        let good =
            samples.iter().enumerate().take_while(|(at, sample)| is_at(buf, &here, *at, *sample)).count();
        let front = match good {
            0 => 0,
            all if all == samples.len() => here.end as u64,
            some => (some as u64 - 1) * EVERY + SAMPLE_LEN as u64,
        };
        if front == len {
            self.reach = REACH;
            return Some(PieceMatch { missing: len..len, before, after: before });
        }
        let tail =
            if good < samples.len() { self.find_tail(start, good, samples, older, buf, &here) } else { len };
        self.reach = if front > 0 || tail < len { REACH } else { (2 * self.reach).min(FARTHEST) };
        if front == 0 && tail == 0 {
            // All of it, though elsewhere than the last piece: that is read now.
            let piece_match = PieceMatch { missing: 0..0, before: self.shift, after: self.shift };
            return piece_match.read(start, older, buf).is_ok().then_some(piece_match);
        }
        (front > 0 || tail < len).then_some(PieceMatch { missing: front..tail, before, after: self.shift })
    }

    /// From where on the piece is found again behind a change. `buf` has `here` of it, where it would be
    /// without one; it may be overwritten.
    fn find_tail(
        &mut self,
        start: u64,
        good: usize,
        samples: &[[u8; SAMPLE_LEN]],
        older: &dyn BaseReader,
        buf: &mut [u8],
        here: &Range<usize>,
    ) -> u64 {
        let (len, last) = (buf.len() as u64, samples.len() - 1);
        let mut here = here.clone();
        if !(is_at(buf, &here, last, &samples[last]) && here.end == buf.len()) {
            let Some((found, shift)) = self.search_last(start, good, samples, older) else { return len };
            self.shift = shift;
            here = read_run(older, moved(start, shift), buf);
            if found < last || here.end < buf.len() {
                // Something was changed at its end, too.
                return len;
            }
        }
        let is_good = |at: &usize| is_at(buf, &here, *at, &samples[*at]);
        let first = (good..=last).rev().take_while(is_good).last().unwrap_or(last);
        first as u64 * EVERY
    }

    /// Searches the last of the samples from `good` on that occurs just once; where it lies tells the shift.
    fn search_last(
        &mut self,
        start: u64,
        good: usize,
        samples: &[[u8; SAMPLE_LEN]],
        older: &dyn BaseReader,
    ) -> Option<(usize, i64)> {
        let tried = (good..samples.len()).rev().take(TRIES);
        for at in tried {
            let offset = start + at as u64 * EVERY;
            if let Some(found) = self.search(moved(offset, self.shift), &samples[at], older) {
                return Some((at, found as i64 - offset as i64));
            }
        }
        None
    }

    /// Searches a sample around `expected`: found once, or not at all.
    fn search(&mut self, expected: i64, sample: &[u8], older: &dyn BaseReader) -> Option<u64> {
        if self.searched > SEARCHED * older.size() {
            return None;
        }
        let from = expected.saturating_sub_unsigned(self.reach).max(0) as u64;
        let to = (expected.saturating_add_unsigned(self.reach).max(0) as u64).min(older.size());
        let mut window = vec![0; to.checked_sub(from)? as usize];
        self.searched += window.len() as u64;
        older.read(from, &mut window).ok()?;
        let mut positions = memmem::find_iter(&window, sample);
        let first = positions.next()?;
        positions.next().is_none().then_some(from + first as u64)
    }
}

const fn moved(offset: u64, shift: i64) -> i64 {
    (offset as i64).saturating_add(shift)
}

fn read_at(older: &dyn BaseReader, offset: i64, buf: &mut [u8]) -> io::Result<()> {
    if buf.is_empty() {
        return Ok(());
    }
    older.read(u64::try_from(offset).map_err(io::Error::other)?, buf)
}

/// Reads what there is of the run that begins at `offset`, which may reach beyond either end: which part of
/// `buf` that is.
fn read_run(older: &dyn BaseReader, offset: i64, buf: &mut [u8]) -> Range<usize> {
    let len = buf.len() as i64;
    let from = 0_i64.saturating_sub(offset).clamp(0, len);
    let to = (older.size() as i64).saturating_sub(offset).clamp(from, len);
    let part = from as usize..to as usize;
    match read_at(older, offset + from, &mut buf[part.clone()]) {
        Ok(()) => part,
        Err(_) => 0..0,
    }
}

/// True if sample `at` lies in its place in `buf`, of which `here` was read.
fn is_at(buf: &[u8], here: &Range<usize>, at: usize, sample: &[u8]) -> bool {
    let from = at * EVERY as usize;
    let to = from + SAMPLE_LEN;
    here.start <= from && to <= here.end && buf.get(from..to) == Some(sample)
}

#[cfg(test)]
mod tests;
