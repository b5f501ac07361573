//! Files that go in parts: as patches of an older version that is here, or as deltas of what the receiver signed, which
//! come in steps where that saves much.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::atomic::Ordering;

use towpath_content::delta::CopyOps;
use towpath_protocol::packing;

use super::Answering;
use crate::error::CopyError;
use crate::message::{Delta, Message};
use crate::patching::make_all;
use crate::reading::{OlderFile, Signed, part_of};
use crate::source::Located;
use towpath_content::delta::exchange::parts as deltas;
use towpath_content::delta::exchange::refine::{self, Split};
use towpath_reuse::policy::compression_level::likes_outlines;

/// Bytes of outlines of one file that are held until the receiver answers, at most: it holds no more.
const MOST_OUTLINED: usize = 16 << 20;

impl Answering {
    /// The content of a file as patches of parts of an older version; nothing if that was a guess and proves wrong.
    pub(super) fn say_patches(
        &self,
        entry: u64,
        located: &Located,
        older: &OlderFile,
        is_guess: bool,
    ) -> Result<(), CopyError> {
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

    /// The content of a file as deltas of what the receiver signed, each part once its signature is here; nothing if that was
    /// a guess and proves wrong.
    pub(super) fn say_parts(
        &self,
        entry: u64,
        located: &Located,
        base: &Signed,
        is_guess: bool,
    ) -> Result<(), CopyError> {
        // If it changed, the receiver learns so when it fetches it.
        let is_said = match located.open() {
            Ok(file) => InParts::new(self, entry, located, &file, (base, is_guess)).say(base),
            Err(_) => Ok(false),
        };
        self.signatures.forget(entry);
        match is_said? {
            true => Ok(()),
            false => self.say(Message::Delta(Delta { entry, is_given_up: true, ..Delta::default() })),
        }
    }

    fn packed_part(&self, made: &[u8]) -> Option<Vec<u8>> {
        let level = self.level(&self.control);
        if level > 0 { packing::pack(made, level) } else { None }
    }
}

/// Whether a guess that made this delta of a part is none that a search would better. The first part tells.
const fn proves_right(index: u64, delta: &[u8], target: u64) -> bool {
    index > 0 || delta.len() as u64 <= target / 2
}

/// A file that goes as deltas of parts.
///
/// While one part's literals travel the receiver signs the next ones: it tells the first few signatures behind the ask, while
/// the file is hashed, and each other when a part is said that wants it.
struct InParts<'a> {
    answering: &'a Answering,
    entry: u64,
    size: u64,
    file: &'a File,
    /// Its base may be quite another file.
    is_guess: bool,
    count: u64,
    /// The part that is made next.
    next: u64,
    /// Signatures that were told or asked for.
    told: u64,
    /// What the receiver's answers will be for, in their order.
    awaited: VecDeque<Awaited>,
}

/// What a signature of the receiver is for.
enum Awaited {
    /// The literals of an outline.
    Rest(Outlined),
    /// The next part.
    Part,
}

impl<'a> InParts<'a> {
    fn new(
        answering: &'a Answering,
        entry: u64,
        located: &Located,
        file: &'a File,
        (base, is_guess): (&Signed, bool),
    ) -> Self {
        let (size, count, awaited) = (located.stamp.size, base.parts(), VecDeque::new());
        Self { answering, entry, size, file, is_guess, count, next: 0, told: 0, awaited }
    }

    /// All parts. False: no more of the file should come so.
    fn say(mut self, base: &Signed) -> Result<bool, CopyError> {
        match base {
            Signed::InParts { ahead, .. } => {
                self.told = *ahead;
                self.awaited.extend((0..*ahead).map(|_| Awaited::Part));
            }
            Signed::Whole(signature) => {
                self.told = 1;
                if !self.say_part(signature)? {
                    return Ok(false);
                }
            }
        }
        while let Some(awaited) = self.awaited.pop_front() {
            let signature = self.answering.signatures.next(self.entry)?.signature;
            let is_said = match awaited {
                Awaited::Rest(part) => self.say_rest(part, &signature)?,
                Awaited::Part => self.say_part(&signature)?,
            };
            if !is_said {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn target(&self, index: u64) -> Option<Vec<u8>> {
        part_of(self.file, deltas::part(self.size, self.count, index)?)
    }

    /// The next part. False: there is none.
    fn say_part(&mut self, signature: &[u8]) -> Result<bool, CopyError> {
        let Some(target) = self.target(self.next) else { return Ok(false) };
        let made = deltas::make(signature, &target);
        let made = made.filter(|made| !self.is_guess || proves_right(self.next, made, target.len() as u64));
        let Some(made) = made else { return Ok(false) };
        let (part, wants_next) = (Outlined::new(self.next), self.told < self.count);
        self.next += 1;
        self.told += u64::from(wants_next);
        let delta = Delta { entry: self.entry, wants_next, ..Delta::default() };
        self.say_delta(delta, part, signature, made)?;
        Ok(true)
    }

    /// The literals of an outline. False: no more is wanted, or they are not what they were.
    fn say_rest(&mut self, part: Outlined, signature: &[u8]) -> Result<bool, CopyError> {
        let literals = part.literals(self.target(part.index));
        let Some(made) = literals.and_then(|literals| deltas::make(signature, &literals)) else {
            return Ok(false);
        };
        let delta = Delta { entry: self.entry, is_rest: true, ..Delta::default() };
        self.say_delta(delta, part, signature, made)?;
        Ok(true)
    }

    /// A delta of what is left of a part, or its outline if that pays.
    fn say_delta(
        &mut self,
        delta: Delta,
        mut part: Outlined,
        signature: &[u8],
        made: Vec<u8>,
    ) -> Result<(), CopyError> {
        let answering = self.answering;
        let is_liked = likes_outlines(&answering.delivered(&answering.control));
        let most = if is_liked { answering.takes_outlines.load(Ordering::Relaxed) as usize } else { 0 };
        let packed = answering.packed_part(&made);
        let bytes = packed.as_ref().unwrap_or(&made).len();
        let split = refine::split(&made, bytes, part.outlines.len(), most);
        let region = deltas::region_len(signature);
        if let (Some(Split { outline, further }), Some(region)) = (split, region) {
            let said = outline.to_bytes();
            if self.held() + part.bytes + said.len() <= MOST_OUTLINED {
                part.bytes += said.len();
                part.outlines.push((outline, region));
                self.await_signatures(Some(part), &delta);
                return answering
                    .say_part(Delta { is_outline: true, further: further as u32, ..delta }, said);
            }
        }
        self.await_signatures(None, &delta);
        let is_packed = packed.is_some();
        answering.say_part(Delta { is_packed, ..delta }, packed.unwrap_or(made))
    }

    /// What is about to be said wants these, in the order in which they come.
    fn await_signatures(&mut self, outlined: Option<Outlined>, delta: &Delta) {
        let next = delta.wants_next.then_some(Awaited::Part);
        for awaited in outlined.map(Awaited::Rest).into_iter().chain(next) {
            self.answering.signatures.expect(self.entry);
            self.awaited.push_back(awaited);
        }
    }

    /// Bytes of outlines that wait for their literals.
    fn held(&self) -> usize {
        let bytes = |awaited: &Awaited| if let Awaited::Rest(part) = awaited { part.bytes } else { 0 };
        self.awaited.iter().map(bytes).sum()
    }
}

/// A part of which the receiver knows what is copied. Its literals are read again once they are wanted: those of all parts
/// may be most of the file.
struct Outlined {
    index: u64,
    /// Each of the literals of the one before, with the bytes of the region that was signed for it.
    outlines: Vec<(CopyOps, usize)>,
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
            |of: Vec<u8>, (outline, region): &(CopyOps, usize)| outline.literals_of(&of, *region).ok();
        self.outlines.iter().try_fold(target?, literals)
    }
}
