//! Files that go in parts: as patches of an older version that is here, or as deltas of what the receiver signed, which
//! come in steps where that saves much.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use towpath_api::ApiError;
use towpath_content::delta::Outline;
use towpath_plugins::packing;

use super::Answering;
use crate::copy::deltas;
use crate::copy::finer::{self, Split};
use crate::copy::message::{Delta, Message};
use crate::copy::patching::make_all;
use crate::copy::reading::{Older, part_of};
use crate::copy::source::Located;

/// Bytes of outlines of one file that are held until the receiver answers, at most: it holds no more.
const MOST_OUTLINED: usize = 16 << 20;

impl Answering {
    /// The content of a file as patches of parts of an older version; nothing if that was a guess and proves wrong.
    pub(super) fn say_patches(
        &self,
        entry: u64,
        located: &Located,
        older: &Older,
        is_guess: bool,
    ) -> Result<(), ApiError> {
        let delta = Delta { entry, ..Delta::default() };
        let given_up = || self.say(Message::Delta(Delta { is_given_up: true, ..delta.clone() }));
        let Ok(file) = located.open() else { return given_up() };
        let hardest = self.pack.load(Ordering::Relaxed).max(1) as i32;
        let make = |index, level| {
            let patch = older.patch(index, &file, &*self.store, level)?;
            let target = deltas::part(located.stamp.size, older.parts, index)?;
            (!is_guess || proves_right(index, &patch, target.end - target.start)).then_some(patch)
        };
        match make_all(older.parts, hardest, make, |patch| self.say_part(delta.clone(), patch))? {
            true => Ok(()),
            false => given_up(),
        }
    }

    /// The content of a file as deltas of what the receiver signed, one part at a time; nothing if that was a guess and
    /// proves wrong.
    pub(super) fn say_parts(
        &self,
        entry: u64,
        located: &Located,
        base: &[Bytes],
        is_guess: bool,
    ) -> Result<(), ApiError> {
        let delta = Delta { entry, ..Delta::default() };
        let given_up = || self.say(Message::Delta(Delta { is_given_up: true, ..delta.clone() }));
        // If it changed, the receiver learns so when it fetches it.
        let Ok(file) = located.open() else { return given_up() };
        let count = base.len() as u64;
        let target = |index: u64| part_of(&file, deltas::part(located.stamp.size, count, index)?);
        let make = |index: u64, _| {
            let signature = base.get(index as usize)?;
            let target = target(index)?;
            let made = deltas::make(signature, &target)?;
            if is_guess && !proves_right(index, &made, target.len() as u64) {
                return None;
            }
            let packed = self.packed_part(&made);
            Some((Outlined::new(index), signature, made, packed))
        };
        let mut outlined = VecDeque::new();
        let is_made = make_all(count, 0, make, |(part, signature, made, packed)| {
            outlined.extend(self.say_delta(&delta, part, signature, made, packed, held(&outlined))?);
            Ok(())
        })?;
        match is_made {
            true => self.say_literals(&delta, outlined, target),
            false => {
                // Those answers must not be taken for another file's.
                outlined.iter().try_for_each(|_| self.outlines.next().map(drop))?;
                given_up()
            }
        }
    }

    /// A delta of what is left of a part, or its outline if that pays: then the part is returned. `held`: bytes of
    /// the outlines of others.
    fn say_delta(
        &self,
        delta: &Delta,
        mut part: Outlined,
        signature: &[u8],
        made: Vec<u8>,
        packed: Option<Vec<u8>>,
        held: usize,
    ) -> Result<Option<Outlined>, ApiError> {
        let most = self.takes_outlines.load(Ordering::Relaxed) as usize;
        let bytes = packed.as_ref().unwrap_or(&made).len();
        let split = finer::split(&made, bytes, part.outlines.len(), most);
        let region = deltas::region_len(signature);
        if let (Some(Split { outline, further }), Some(region)) = (split, region) {
            let said = outline.to_bytes();
            if held + part.bytes + said.len() <= MOST_OUTLINED {
                part.bytes += said.len();
                part.outlines.push((outline, region));
                self.outlines.told();
                self.say_part(Delta { is_outline: true, further, ..delta.clone() }, said)?;
                return Ok(Some(part));
            }
        }
        let is_packed = packed.is_some();
        self.say_part(Delta { is_packed, ..delta.clone() }, packed.unwrap_or(made))?;
        Ok(None)
    }

    /// The literals of outlines, as deltas of what the receiver signs for each, or outlined once more.
    fn say_literals(
        &self,
        delta: &Delta,
        mut outlined: VecDeque<Outlined>,
        target: impl Fn(u64) -> Option<Vec<u8>>,
    ) -> Result<(), ApiError> {
        let mut is_wanted = true;
        while let Some(part) = outlined.pop_front() {
            // Each is answered, also if no more is wanted.
            let answer = self.outlines.next()?;
            let literals = if is_wanted { part.literals(target(part.index)) } else { None };
            let made = literals.and_then(|literals| deltas::make(&answer.signature, &literals));
            let Some(made) = made.filter(|_| answer.entry == delta.entry) else {
                is_wanted = false;
                continue;
            };
            let packed = self.packed_part(&made);
            outlined.extend(self.say_delta(delta, part, &answer.signature, made, packed, held(&outlined))?);
        }
        if is_wanted {
            return Ok(());
        }
        self.say(Message::Delta(Delta { is_given_up: true, ..delta.clone() }))
    }

    fn packed_part(&self, made: &[u8]) -> Option<Vec<u8>> {
        let level = self.pack.load(Ordering::Relaxed) as i32;
        if level > 0 { packing::pack(made, level) } else { None }
    }
}

/// Whether a guess that made this delta of a part is none that a search would better. The first part tells.
const fn proves_right(index: u64, delta: &[u8], target: u64) -> bool {
    index > 0 || delta.len() as u64 <= target / 2
}

/// A part of which the receiver knows what is copied. Its literals are read again once they are wanted: those of all parts
/// may be most of the file.
struct Outlined {
    index: u64,
    /// Each of the literals of the one before, with the bytes of the region that was signed for it.
    outlines: Vec<(Outline, usize)>,
    /// Bytes of these as they were told.
    bytes: usize,
}

impl Outlined {
    const fn new(index: u64) -> Self {
        Self { index, outlines: Vec::new(), bytes: 0 }
    }

    /// What is left of the part; none if it is not what it was.
    fn literals(&self, target: Option<Vec<u8>>) -> Option<Vec<u8>> {
        let literals =
            |of: Vec<u8>, (outline, region): &(Outline, usize)| outline.literals_of(&of, *region).ok();
        self.outlines.iter().try_fold(target?, literals)
    }
}

fn held(outlined: &VecDeque<Outlined>) -> usize {
    outlined.iter().map(|part| part.bytes).sum()
}
