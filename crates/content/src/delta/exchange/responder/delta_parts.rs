//! A file that goes as deltas of parts that the requester signs: while the literals of one part travel, it signs the next ones.

use std::collections::VecDeque;

use crate::delta::CopyOps;
use crate::delta::exchange::refine::{self, Split};
use crate::delta::exchange::{DeltaStep, MAX_OUTLINED_LEN, StepOf, parts};

use super::ResponderAction;

/// See the head of this module.
#[derive(Debug)]
pub struct DeltaParts {
    size: u64,
    count: u64,
    /// Outlines of a part that the requester answers.
    most: usize,
    is_guess: bool,
    /// The part that is made next.
    next: u64,
    /// Signatures of parts that came, are on their way or are wanted.
    wanted: u64,
    awaited: VecDeque<AwaitedSignature>,
    work: Option<PartWork>,
}

/// Use of a signature.
#[derive(Debug)]
enum AwaitedSignature {
    Part,
    Literals(Outlined),
}

/// A part of which the requester knows what is copied. Its literals are read again once they are wanted: those of all parts
/// may be most of the file.
#[derive(Debug)]
struct Outlined {
    index: u64,
    /// Each of the literals of the one before, as it is encoded, with the bytes of the region that was signed for it.
    outlines: Vec<(Vec<u8>, usize)>,
}

/// A step in the making.
#[derive(Debug)]
struct PartWork {
    part: Outlined,
    of: StepOf,
    signature: Vec<u8>,
    /// The delta, once the file's bytes were read.
    made: Vec<u8>,
}

impl DeltaParts {
    /// Of a file of `size` bytes in `count` parts. The first signature is here, or so many are on their way.
    pub fn new(
        size: u64,
        count: u64,
        first: Option<Vec<u8>>,
        ahead: u64,
        (most, is_guess): (usize, bool),
    ) -> Self {
        let awaited = (0..ahead).map(|_| AwaitedSignature::Part).collect();
        let (wanted, work) = (ahead + u64::from(first.is_some()), None);
        let mut parts = Self { size, count, most, is_guess, next: 0, wanted, awaited, work };
        if let Some(signature) = first {
            parts.begin_part(signature);
        }
        parts
    }

    /// Of a file of `size` bytes as one part, behind outlines, each with the bytes of its region; what they leave is signed.
    pub fn behind_outlines(
        size: u64,
        outlines: Vec<(Vec<u8>, usize)>,
        signature: Vec<u8>,
        (most, is_guess): (usize, bool),
    ) -> Self {
        let part = Outlined { index: 0, outlines };
        let work = Some(PartWork { part, of: StepOf::Literals, signature, made: Vec::new() });
        Self { size, count: 1, most, is_guess, next: 1, wanted: 1, awaited: VecDeque::new(), work }
    }

    fn begin_part(&mut self, signature: Vec<u8>) {
        let wants_signature = self.wanted < self.count;
        self.wanted += u64::from(wants_signature);
        let part = Outlined { index: self.next, outlines: Vec::new() };
        self.next += 1;
        let of = StepOf::NextPart { wants_signature };
        self.work = Some(PartWork { part, of, signature, made: Vec::new() });
    }

    /// What is to be done next.
    pub fn work(&self) -> ResponderAction<'_> {
        match &self.work {
            None if self.awaited.is_empty() => ResponderAction::End,
            None => ResponderAction::AwaitSignature,
            Some(work) if work.made.is_empty() => {
                let range = parts::part(self.size, self.count, work.part.index);
                ResponderAction::Read(range.unwrap_or_default())
            }
            Some(work) => ResponderAction::Pack(&work.made),
        }
    }

    /// The next signature; none if nobody waits for it.
    pub fn signature(&mut self, signature: Vec<u8>) -> Option<()> {
        if self.work.is_some() {
            return None;
        }
        match self.awaited.pop_front()? {
            AwaitedSignature::Part => self.begin_part(signature),
            AwaitedSignature::Literals(part) => {
                self.work = Some(PartWork { part, of: StepOf::Literals, signature, made: Vec::new() });
            }
        }
        Some(())
    }

    /// The file's bytes of the part; none if no delta can be made of them, or none that is worth it.
    pub fn read(&mut self, target: Vec<u8>) -> Option<()> {
        let work = self.work.as_mut()?;
        let literals = work.part.literals(target)?;
        let made = parts::make(&work.signature, &literals)?;
        let is_first = work.part.index == 0 && work.part.outlines.is_empty();
        if is_first && self.is_guess && !parts::proves_right(0, made.len(), literals.len() as u64) {
            return None;
        }
        work.made = made;
        Some(())
    }

    /// The step to send of the delta, which may be packed: all of it, or its outline if that pays.
    pub fn packed(&mut self, packed: Option<Vec<u8>>, in_steps: bool) -> Option<(DeltaStep, Vec<u8>)> {
        let PartWork { mut part, of, signature, made } = self.work.take()?;
        let bytes = packed.as_ref().unwrap_or(&made).len();
        let most = if in_steps { self.most } else { 0 };
        let split = refine::split(&made, bytes, part.outlines.len(), most);
        if let (Some(Split { outline, further }), Some(region)) = (split, parts::region_len(&signature)) {
            let outline = outline.to_bytes();
            if self.outlined() + part.len() + outline.len() <= MAX_OUTLINED_LEN {
                part.outlines.push((outline.clone(), region));
                self.awaited.push_back(AwaitedSignature::Literals(part));
                self.await_next(of);
                return Some((DeltaStep::Outline { of, further }, outline));
            }
        }
        self.await_next(of);
        let step = DeltaStep::Delta { of, is_packed: packed.is_some() };
        Some((step, packed.unwrap_or(made)))
    }

    /// The signature of the next part comes behind those that wait.
    fn await_next(&mut self, of: StepOf) {
        if of == (StepOf::NextPart { wants_signature: true }) {
            self.awaited.push_back(AwaitedSignature::Part);
        }
    }

    /// Bytes of outlines that wait for their literals.
    fn outlined(&self) -> usize {
        let len = |awaited: &AwaitedSignature| match awaited {
            AwaitedSignature::Literals(part) => part.len(),
            AwaitedSignature::Part => 0,
        };
        self.awaited.iter().map(len).sum()
    }

    /// Bytes that are held.
    pub fn held(&self) -> usize {
        let work = |work: &PartWork| work.part.len() + work.signature.len() + work.made.len();
        self.outlined() + self.work.as_ref().map_or(0, work)
    }
}

impl Outlined {
    /// What is left of the part; none if it is not what it was.
    fn literals(&self, target: Vec<u8>) -> Option<Vec<u8>> {
        self.outlines.iter().try_fold(target, |of, (outline, region)| {
            CopyOps::from_bytes(outline).ok()?.literals_of(&of, *region).ok()
        })
    }

    fn len(&self) -> usize {
        self.outlines.iter().map(|(outline, _)| outline.len()).sum()
    }
}
