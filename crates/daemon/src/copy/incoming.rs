//! A file that comes in parts, as deltas or patches of what lies in its place: put together as runs come.
//!
//! Nothing here proves anything: the caller hashes the whole.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use towpath_api::ApiError;
use towpath_content::Oid;

use super::deltas::{self, PART};
use super::file::CopyFile;
use super::finer;
use super::message::{Delta, violation};
use super::patches;

/// Bytes that a delta may have more than what it makes: it may not shrink, and ops take a few.
const ROOM: u64 = 1 << 20;
/// Bytes of a file's outlines whose literals are to come, at most.
const MOST_OUTLINED: usize = 16 << 20;

/// A file that comes in parts.
pub struct Incoming {
    /// Which.
    pub file: Arc<CopyFile>,
    /// What it is called.
    pub oid: Oid,
    base: File,
    old: u64,
    parts: u64,
    is_patch: bool,
    next: u64,
    /// The next part's delta, as far as it came.
    delta: Vec<u8>,
    /// Parts whose literals are to come, with their outlines, in the order in which they come.
    outlined: VecDeque<(u64, Vec<Vec<u8>>)>,
    made: u64,
}

/// What came of a run of a delta.
pub enum Taken {
    /// More is to come.
    Some,
    /// An outline, to be answered with this signature.
    Outline(Vec<u8>),
    /// A part, and how many bytes came for it.
    Part {
        /// Where it begins.
        offset: u64,
        /// Its bytes.
        content: Vec<u8>,
        /// Bytes on the network.
        came: u64,
        /// It was the last one.
        is_last: bool,
    },
    /// Nothing will come of it.
    Nothing,
}

impl Incoming {
    /// Nothing has come of it; `base` with its bytes.
    pub fn new(file: Arc<CopyFile>, oid: Oid, base: (File, u64), parts: u64, is_patch: bool) -> Self {
        let (base, old) = base;
        let (delta, outlined) = (Vec::new(), VecDeque::new());
        Self { file, oid, base, old, parts, is_patch, next: 0, delta, outlined, made: 0 }
    }

    /// The next run of its deltas.
    pub fn take(&mut self, run: &Delta) -> Result<Taken, ApiError> {
        if run.is_given_up {
            return Ok(Taken::Nothing);
        }
        let is_whole = self.is_patch && self.parts == 1;
        let most = if is_whole { self.file.size() + ROOM } else { PART + ROOM };
        if (self.delta.len() + run.bytes.len()) as u64 > most {
            return Err(violation("a delta that is longer than what it makes"));
        }
        self.delta.extend_from_slice(&run.bytes);
        if !run.is_last {
            return Ok(Taken::Some);
        }
        let came = std::mem::take(&mut self.delta);
        if run.is_outline {
            return self.take_outline(came, run.further);
        }
        let count = came.len() as u64;
        let Some((offset, content, before)) = self.part(&came, run.is_packed)? else {
            return Ok(Taken::Nothing);
        };
        self.made += 1;
        Ok(Taken::Part { offset, content, came: before + count, is_last: self.made == self.parts })
    }

    /// The outline of the next part, or, when all have come, of the literals of the one whose turn it is.
    fn take_outline(&mut self, outline: Vec<u8>, further: u32) -> Result<Taken, ApiError> {
        let (index, mut outlines) = match self.next < self.parts {
            true => (self.next, Vec::new()),
            false => self.outlined.pop_front().ok_or_else(|| violation("an outline of nothing"))?,
        };
        self.next = self.parts.min(self.next + 1);
        outlines.push(outline);
        let bytes = |outlines: &[Vec<u8>]| outlines.iter().map(Vec::len).sum::<usize>();
        let held =
            self.outlined.iter().map(|(_, outlines)| bytes(outlines)).sum::<usize>() + bytes(&outlines);
        if self.is_patch || outlines.len() > finer::MOST_OUTLINES || held > MOST_OUTLINED {
            return Err(violation("more outlines than a part may have"));
        }
        let base = self.base_of(index);
        let Some(signature) = base.and_then(|base| finer::sign(&outlines, &base, further)) else {
            return Ok(Taken::Nothing);
        };
        self.outlined.push_back((index, outlines));
        Ok(Taken::Outline(signature))
    }

    /// The part that a delta makes: where it begins, its bytes, and how many of them came before.
    fn part(&mut self, came: &[u8], is_packed: bool) -> Result<Option<(u64, Vec<u8>, u64)>, ApiError> {
        let size = self.file.size();
        if self.is_patch && self.parts == 1 {
            return Ok(apply_patch(&self.base, self.old, size, came).map(|content| (0, content, 0)));
        }
        let outlined = if self.next == self.parts { self.outlined.pop_front() } else { None };
        let (index, outlines) = match outlined {
            Some(outlined) => outlined,
            None if self.next == self.parts => return Err(violation("more parts than were told")),
            None => (self.next, Vec::new()),
        };
        self.next = self.parts.min(self.next + 1);
        let Some(range) = deltas::part(size, self.parts, index) else { return Ok(None) };
        let content = self.apply(came, is_packed, index, &outlines, range.end - range.start);
        let before = outlines.iter().map(Vec::len).sum::<usize>() as u64;
        Ok(content.map(|content| (range.start, content, before)))
    }

    fn apply(
        &self,
        came: &[u8],
        is_packed: bool,
        index: u64,
        outlines: &[Vec<u8>],
        len: u64,
    ) -> Option<Vec<u8>> {
        if self.is_patch {
            let around = patches::base_of(self.old, self.file.size(), self.parts, index)?;
            return patches::apply(came, &read(&self.base, &around)?, len);
        }
        let unpacked = if is_packed { Some(deltas::unpack(came)?) } else { None };
        let delta = unpacked.as_deref().unwrap_or(came);
        let base = self.base_of(index)?;
        finer::apply(outlines, delta, &base, len)
    }

    fn base_of(&self, index: u64) -> Option<Vec<u8>> {
        read(&self.base, &deltas::part(self.old, self.parts, index)?)
    }
}

/// The content that a patch of one part makes of a base of `old` bytes.
pub fn apply_patch(base: &File, old: u64, new: u64, patch: &[u8]) -> Option<Vec<u8>> {
    if !patches::may_be_whole(old, new) {
        return None;
    }
    patches::apply(patch, &read(base, &(0..old))?, new)
}

/// These bytes of a file.
pub fn read(file: &File, range: &Range<u64>) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(range.end - range.start).ok()?];
    file.read_exact_at(&mut bytes, range.start).ok().map(|()| bytes)
}
