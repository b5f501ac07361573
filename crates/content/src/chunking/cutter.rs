//! The rule of a chunker, apart from its buffer: how long is the first chunk of these bytes?
//!
//! A boundary depends on no byte before its chunk's start. So a long run of bytes can be cut from several
//! places at once, and the chains of chunks be joined where they meet: [`Cutter::chain`].

use super::{Parameters, gear, rabin};
use crate::codec::{DecodeError, invalid};

/// Finds the ends of chunks; made by [`Parameters::cutter`].
#[derive(Debug, Clone)]
pub struct Cutter {
    rule: CutRule,
    max: usize,
}

#[derive(Debug, Clone)]
enum CutRule {
    Fixed,
    Gear(gear::GearRule),
    Rabin(Box<rabin::RabinRule>),
}

impl Cutter {
    pub(super) fn new(parameters: &Parameters) -> Result<Self, DecodeError> {
        parameters.check()?;
        let rule = match *parameters {
            Parameters::Fixed { .. } => CutRule::Fixed,
            Parameters::Gear { min, avg, max } => CutRule::Gear(gear::GearRule::new(min, avg, max)),
            Parameters::Rabin { min, avg, max } => {
                CutRule::Rabin(Box::new(rabin::RabinRule::new(min, avg, max)))
            }
            Parameters::Given => return Err(invalid("chunker", "the application placed the cuts")),
        };
        Ok(Self { rule, max: parameters.max_len() as usize })
    }

    /// Greatest length of a chunk.
    pub const fn max_len(&self) -> usize {
        self.max
    }

    /// Length of the first chunk of `bytes`, of which only the first [`Self::max_len`] are looked at.
    ///
    /// If that is all of `bytes`, fewer than the greatest length, the chunk's end is known only where the
    /// object ends there too. A smaller length holds whatever follows.
    pub fn first_len(&self, bytes: &[u8]) -> usize {
        let bytes = &bytes[..bytes.len().min(self.max)];
        match &self.rule {
            CutRule::Fixed => bytes.len(),
            CutRule::Gear(rule) => rule.find(bytes),
            CutRule::Rabin(rule) => rule.find(bytes),
        }
    }

    /// The end of the chunk that begins at `start`, if that shows: `is_end` says that the object ends
    /// with `bytes`.
    pub fn end_of(&self, bytes: &[u8], start: usize, is_end: bool) -> Option<usize> {
        let rest = &bytes[start..];
        let len = self.first_len(rest);
        let is_known = len < rest.len() || len == self.max || is_end;
        (is_known && len > 0).then_some(start + len)
    }

    /// Start at or behind `offset` of an object for a chain of chunks that is likely to meet
    /// the one from the object's begin.
    pub const fn likely_start(&self, offset: u64) -> u64 {
        match self.rule {
            CutRule::Fixed => offset.next_multiple_of(self.max as u64),
            CutRule::Gear(_) | CutRule::Rabin(_) => offset,
        }
    }

    /// Calls `found` with the begin and the end of each chunk, one behind the other, that begins in
    /// `bytes` from `start` on, but before `until`, as far as their ends show.
    pub fn chain(
        &self,
        bytes: &[u8],
        mut start: usize,
        until: usize,
        is_end: bool,
        mut found: impl FnMut(usize, usize),
    ) {
        while start < until.min(bytes.len())
            && let Some(end) = self.end_of(bytes, start, is_end)
        {
            found(start, end);
            start = end;
        }
    }
}
