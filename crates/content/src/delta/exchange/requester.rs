//! The side that wants the file and has the base: makes the parts of what comes, and signs what is wanted.

use std::collections::VecDeque;
use std::ops::Range;

use super::{
    Base, DeltaRun, DeltaStep, MAX_OUTLINE_LEN, MAX_OUTLINED_LEN, MAX_OUTLINES, MAX_STEP_LEN,
    MAX_UNPACKED_LEN, NextSignature, NotDue, PatchParts, Reply, Request, SignedParts, StepOf, refine,
};

/// See the head of the exchange.
#[derive(Debug)]
pub struct Requester {
    described: AskedBase,
    is_guess: bool,
    /// Outlines of a part that it answers.
    most: usize,
    /// Bytes of the base.
    base_len: u64,
    state: RequesterState,
    outbox: VecDeque<NextSignature>,
}

/// Work for whoever drives a requester.
#[derive(Debug, PartialEq, Eq)]
pub enum RequesterAction<'a> {
    /// Nothing until the next message.
    Wait,
    /// These bytes of the base are needed: [`Requester::read`].
    Read(Range<u64>),
    /// A delta is to be unpacked, to at most so many bytes: [`Requester::unpacked`].
    Unpack {
        /// One zstd frame.
        packed: &'a [u8],
        /// Bytes that it may have.
        limit: u64,
    },
    /// A patch is to be applied: [`Requester::patched`].
    ApplyPatch {
        /// The patch.
        patch: &'a [u8],
        /// Its base.
        base: &'a [u8],
        /// Bytes that it makes.
        len: u64,
    },
    /// A message for the responder.
    Send(NextSignature),
    /// A part of the file.
    Write {
        /// Its first byte.
        offset: u64,
        /// Its bytes.
        bytes: Vec<u8>,
        /// Bytes that came for it.
        came: u64,
    },
    /// The exchange is over.
    End(RequesterEnd),
}

/// Outcome of an exchange for a requester.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequesterEnd {
    /// The file is the base.
    Same,
    /// The base that was named is not there: a request with a signature may follow.
    UnknownBase,
    /// All parts are written. It counts if it hashes to the file's name.
    Written,
    /// The file should be fetched.
    GivenUp,
}

/// Description of the base in the request.
#[derive(Debug)]
enum AskedBase {
    Named,
    /// In so many parts, of which so many signatures go ahead of the reply.
    Signed {
        count: u64,
        ahead: u64,
    },
    /// As one part, of which these outlines came.
    Outlined(Vec<Vec<u8>>),
}

#[derive(Debug)]
enum RequesterState {
    Asked,
    Receiving(Box<ReceivedParts>),
    Ended(RequesterEnd),
}

/// How a file is cut.
#[derive(Debug, Clone, Copy)]
enum PartCut {
    Signed(SignedParts),
    Patches(PatchParts),
}

#[derive(Debug)]
struct ReceivedParts {
    cut: PartCut,
    /// The part that comes next, and the one that is signed next.
    next: u64,
    signed: u64,
    made: u64,
    /// Parts whose literals are to come, in the order in which they come.
    outlined: VecDeque<PartSteps>,
    /// Bytes of the current step.
    step: Vec<u8>,
    tasks: VecDeque<StepTask>,
    /// Signatures in steps are liked.
    in_steps: bool,
    /// A part that was made: its first byte, its bytes, and as many as came for it.
    ready: Option<(u64, Vec<u8>, u64)>,
}

/// A part with its outlines, as they came.
#[derive(Debug, PartialEq, Eq)]
struct PartSteps {
    index: u64,
    outlines: Vec<Vec<u8>>,
}

/// What has to be done about a step. Each begins with a reading.
#[derive(Debug)]
enum StepTask {
    /// A part is complete.
    Make(PartMake),
    /// The last one of those that are outlined is signed, for so many further outlines.
    Refine { index: u64, further: usize },
    /// A part is signed.
    Sign { index: u64 },
}

#[derive(Debug)]
struct PartMake {
    part: PartSteps,
    step: Vec<u8>,
    /// Bytes that came for the part.
    came: u64,
    is_packed: bool,
    base: Vec<u8>,
    is_read: bool,
}

impl PartCut {
    const fn count(&self) -> u64 {
        match self {
            Self::Signed(parts) => parts.count(),
            Self::Patches(parts) => parts.count(),
        }
    }

    fn base(&self, index: u64) -> Option<Range<u64>> {
        match self {
            Self::Signed(parts) => parts.base(index),
            Self::Patches(parts) => parts.base(index),
        }
    }

    fn target(&self, index: u64) -> Option<Range<u64>> {
        match self {
            Self::Signed(parts) => parts.target(index),
            Self::Patches(parts) => parts.target(index),
        }
    }
}

impl Requester {
    /// For a file that was requested so, with a base of so many bytes.
    pub fn new(request: &Request, base_len: u64) -> Self {
        let described = match &request.base {
            Base::Named(_) => AskedBase::Named,
            Base::Signature(_) => AskedBase::Signed { count: 1, ahead: 1 },
            Base::Parts { count, ahead } => AskedBase::Signed { count: *count, ahead: *ahead },
            Base::Outlined { outlines, .. } => AskedBase::Outlined(outlines.clone()),
        };
        let (is_guess, most) = (request.is_guess, request.outlines);
        Self { described, is_guess, most, base_len, state: RequesterState::Asked, outbox: VecDeque::new() }
    }

    const fn has_named(&self) -> bool {
        matches!(self.described, AskedBase::Named)
    }

    /// Takes the reply, for a file of so many bytes.
    pub fn recv_reply(&mut self, reply: Reply, size: u64) -> Result<(), NotDue> {
        let taken = self.take_reply(reply, size);
        self.give_up_if(taken)
    }

    fn take_reply(&mut self, reply: Reply, size: u64) -> Result<(), NotDue> {
        if !matches!(self.state, RequesterState::Asked) {
            return Err(NotDue("a second reply"));
        }
        let end = match reply {
            Reply::Same if self.has_named() => RequesterEnd::Same,
            Reply::UnknownBase if self.has_named() => RequesterEnd::UnknownBase,
            Reply::Same | Reply::UnknownBase => return Err(NotDue("a base that nobody named is lacking")),
            Reply::GivenUp => RequesterEnd::GivenUp,
            Reply::Whole(bytes) => {
                let mut receiving = self.receiving(size)?;
                if receiving.cut.count() != 1 || !receiving.outlined.is_empty() {
                    return Err(NotDue("parts that came as one"));
                }
                receiving.next = 1;
                receiving.push_make(PartSteps { index: 0, outlines: Vec::new() }, bytes, false);
                self.state = RequesterState::Receiving(Box::new(receiving));
                return Ok(());
            }
            Reply::InParts => {
                self.state = RequesterState::Receiving(Box::new(self.receiving(size)?));
                return Ok(());
            }
        };
        self.state = RequesterState::Ended(end);
        Ok(())
    }

    fn receiving(&self, size: u64) -> Result<ReceivedParts, NotDue> {
        let signed_parts = |count| SignedParts::new(self.base_len, size, count).map(PartCut::Signed);
        let mut outlined = VecDeque::new();
        let (cut, signed) = match &self.described {
            AskedBase::Named => (PatchParts::new(self.base_len, size).map(PartCut::Patches), 0),
            AskedBase::Signed { count, ahead } => (signed_parts(*count), *ahead),
            AskedBase::Outlined(outlines) => {
                outlined.push_back(PartSteps { index: 0, outlines: outlines.clone() });
                (signed_parts(1), 1)
            }
        };
        let cut = cut.ok_or(NotDue("parts that are too many or too long"))?;
        Ok(ReceivedParts {
            cut,
            next: outlined.len() as u64,
            signed,
            made: 0,
            outlined,
            step: Vec::new(),
            tasks: VecDeque::new(),
            in_steps: false,
            ready: None,
        })
    }

    /// Takes the next run. `in_steps`: the network likes deltas in steps, for what is signed.
    pub fn recv_run(&mut self, run: DeltaRun<'_>, in_steps: bool) -> Result<(), NotDue> {
        let taken = match &mut self.state {
            RequesterState::Asked => Err(NotDue("a delta before the reply")),
            RequesterState::Ended(_) => {
                self.refuse(run.wanted());
                return Ok(());
            }
            RequesterState::Receiving(_) if run == DeltaRun::GivenUp => {
                self.state = RequesterState::Ended(RequesterEnd::GivenUp);
                return Ok(());
            }
            RequesterState::Receiving(receiving) => receiving.recv(run, in_steps),
        };
        self.give_up_if(taken)
    }

    /// What is to be done next.
    pub fn poll(&mut self) -> RequesterAction<'_> {
        if let Some(signature) = self.outbox.pop_front() {
            return RequesterAction::Send(signature);
        }
        if let RequesterState::Receiving(receiving) = &mut self.state {
            if let Some((offset, bytes, came)) = receiving.ready.take() {
                return RequesterAction::Write { offset, bytes, came };
            }
            if receiving.made == receiving.cut.count() {
                self.state = RequesterState::Ended(RequesterEnd::Written);
            }
        }
        match &self.state {
            RequesterState::Asked => RequesterAction::Wait,
            RequesterState::Ended(end) => RequesterAction::End(*end),
            RequesterState::Receiving(receiving) => receiving.work(),
        }
    }

    /// The bytes of a [`RequesterAction::Read`]; none: they can't be read.
    pub fn read(&mut self, bytes: Option<Vec<u8>>) {
        let signature = self.go_on(bytes, ReceivedParts::read).flatten();
        self.outbox.extend(signature.map(NextSignature::Signed));
    }

    /// The delta of a [`RequesterAction::Unpack`]; none: it can't be unpacked.
    pub fn unpacked(&mut self, delta: Option<Vec<u8>>) {
        let _ = self.go_on(delta, ReceivedParts::unpacked);
    }

    /// The part that a [`RequesterAction::ApplyPatch`] makes; none: the patch is none.
    pub fn patched(&mut self, part: Option<Vec<u8>>) {
        let _ = self.go_on(part, ReceivedParts::finish);
    }

    /// The request for the next step by itself, with a signature that was to be sent; none if the file does not come as one part, or
    /// an outline is too long.
    pub fn ask_anew(&self, signature: Vec<u8>) -> Option<Request> {
        let RequesterState::Receiving(receiving) = &self.state else { return None };
        let outlines = receiving.outlined.front().filter(|_| receiving.cut.count() == 1)?.outlines.clone();
        let (base_len, is_guess) = (self.base_len, self.is_guess);
        let fits = outlines.iter().all(|outline| outline.len() <= MAX_OUTLINE_LEN);
        let base = Base::Outlined { base_len, outlines, signature };
        fits.then_some(Request { base, is_guess, outlines: self.most })
    }

    /// Bytes that are held until the next message.
    pub fn held(&self) -> usize {
        let RequesterState::Receiving(receiving) = &self.state else { return 0 };
        let tasks = receiving.tasks.iter().map(StepTask::held).sum::<usize>();
        receiving.step.len() + receiving.outlined() + tasks
    }

    /// Does some work with bytes; without them, or if nothing comes of it, the exchange is given up.
    fn go_on<T>(
        &mut self,
        bytes: Option<Vec<u8>>,
        work: impl FnOnce(&mut ReceivedParts, Vec<u8>) -> Option<T>,
    ) -> Option<T> {
        let RequesterState::Receiving(receiving) = &mut self.state else { return None };
        let done = bytes.and_then(|bytes| work(receiving, bytes));
        if done.is_none() {
            self.give_up();
        }
        done
    }

    /// The file is not wanted so any more. Signatures that are owed are refused.
    pub fn give_up(&mut self) {
        if let RequesterState::Receiving(receiving) = &self.state {
            let owed = receiving.tasks.iter().filter(|task| !matches!(task, StepTask::Make(_))).count();
            self.refuse(owed);
        }
        self.state = RequesterState::Ended(RequesterEnd::GivenUp);
    }

    fn refuse(&mut self, signatures: usize) {
        self.outbox.extend((0..signatures).map(|_| NextSignature::GivenUp));
    }

    fn give_up_if(&mut self, taken: Result<(), NotDue>) -> Result<(), NotDue> {
        if taken.is_err() {
            self.give_up();
        }
        taken
    }
}

impl ReceivedParts {
    fn recv(&mut self, run: DeltaRun<'_>, in_steps: bool) -> Result<(), NotDue> {
        let (bytes, step) = match run {
            DeltaRun::More(bytes) => (bytes, None),
            DeltaRun::Last(step, bytes) => (bytes, Some(step)),
            DeltaRun::GivenUp => return Ok(()),
        };
        if self.step.len() + bytes.len() > MAX_STEP_LEN {
            return Err(NotDue("a delta that is longer than what it makes"));
        }
        self.step.extend_from_slice(bytes);
        self.in_steps = in_steps;
        match step {
            None => Ok(()),
            Some(step) => self.take(step),
        }
    }

    /// Takes a step whose bytes have all come.
    fn take(&mut self, step: DeltaStep) -> Result<(), NotDue> {
        let bytes = std::mem::take(&mut self.step);
        let of = match (step, self.cut) {
            (DeltaStep::Patch, PartCut::Patches(_)) => StepOf::NextPart { wants_signature: false },
            (DeltaStep::Delta { of, .. } | DeltaStep::Outline { of, .. }, PartCut::Signed(_)) => of,
            (DeltaStep::Patch, _) => return Err(NotDue("a patch of what was signed")),
            (_, PartCut::Patches(_)) => return Err(NotDue("a delta of what was named")),
        };
        let mut part = self.target(of)?;
        match step {
            DeltaStep::Outline { further, .. } => {
                part.outlines.push(bytes);
                self.tasks.push_back(StepTask::Refine { index: part.index, further });
                self.put_off(part)?;
            }
            DeltaStep::Delta { is_packed, .. } => self.push_make(part, bytes, is_packed),
            DeltaStep::Patch => self.push_make(part, bytes, false),
        }
        if of == (StepOf::NextPart { wants_signature: true }) {
            let index = self.sign()?;
            self.tasks.push_back(StepTask::Sign { index });
        }
        Ok(())
    }

    /// The part that a step is of: the next one, or the one whose literals' turn it is.
    fn target(&mut self, of: StepOf) -> Result<PartSteps, NotDue> {
        if of == StepOf::Literals {
            return self.outlined.pop_front().ok_or(NotDue("literals of no outline"));
        }
        let index = self.next;
        if index == self.cut.count() {
            return Err(NotDue("more parts than there are"));
        }
        self.next += 1;
        Ok(PartSteps { index, outlines: Vec::new() })
    }

    /// The literals of a part come later.
    fn put_off(&mut self, part: PartSteps) -> Result<(), NotDue> {
        let is_deep = part.outlines.len() > MAX_OUTLINES;
        self.outlined.push_back(part);
        match is_deep || self.outlined() > MAX_OUTLINED_LEN {
            true => Err(NotDue("more outlines than a part may have")),
            false => Ok(()),
        }
    }

    /// The part to sign next.
    fn sign(&mut self) -> Result<u64, NotDue> {
        let index = self.signed;
        if index >= self.cut.count() {
            return Err(NotDue("more signatures than there are parts"));
        }
        self.signed += 1;
        Ok(index)
    }

    /// Bytes of outlines whose literals are to come.
    fn outlined(&self) -> usize {
        self.outlined.iter().map(PartSteps::len).sum()
    }

    fn push_make(&mut self, part: PartSteps, step: Vec<u8>, is_packed: bool) {
        let came = (part.len() + step.len()) as u64;
        let make = PartMake { part, step, came, is_packed, base: Vec::new(), is_read: false };
        self.tasks.push_back(StepTask::Make(make));
    }

    fn work(&self) -> RequesterAction<'_> {
        let read = |index| RequesterAction::Read(self.cut.base(index).unwrap_or_default());
        match self.tasks.front() {
            None => RequesterAction::Wait,
            Some(StepTask::Refine { index, .. } | StepTask::Sign { index }) => read(*index),
            Some(StepTask::Make(make)) if make.is_packed => {
                RequesterAction::Unpack { packed: &make.step, limit: MAX_UNPACKED_LEN }
            }
            Some(StepTask::Make(make)) if !make.is_read => read(make.part.index),
            Some(StepTask::Make(make)) => RequesterAction::ApplyPatch {
                patch: &make.step,
                base: &make.base,
                len: self.len(make.part.index),
            },
        }
    }

    fn len(&self, index: u64) -> u64 {
        self.cut.target(index).map_or(0, |target| target.end - target.start)
    }

    /// Bytes of the base came: the signature that was made of them, if one was due. None: nothing can be done with them.
    fn read(&mut self, base: Vec<u8>) -> Option<Option<Vec<u8>>> {
        let signature = match self.tasks.front_mut()? {
            StepTask::Make(make) if matches!(self.cut, PartCut::Patches(_)) => {
                (make.base, make.is_read) = (base, true);
                return Some(None);
            }
            StepTask::Make(make) => {
                let (outlines, index) = (&make.part.outlines, make.part.index);
                let target = self.cut.target(index)?;
                let made = refine::apply(outlines, &make.step, &base, target.end - target.start)?;
                return self.finish(made).map(|()| None);
            }
            StepTask::Refine { index, further } => {
                let part = self.outlined.iter().find(|part| part.index == *index)?;
                refine::sign(&part.outlines, &base, *further)?
            }
            StepTask::Sign { index } => {
                let PartCut::Signed(parts) = self.cut else { return None };
                parts.sign(*index, &base, self.in_steps)?
            }
        };
        self.tasks.pop_front();
        Some(Some(signature))
    }

    fn unpacked(&mut self, delta: Vec<u8>) -> Option<()> {
        let Some(StepTask::Make(make)) = self.tasks.front_mut() else { return None };
        (make.step, make.is_packed) = (delta, false);
        Some(())
    }

    /// A part is made.
    fn finish(&mut self, bytes: Vec<u8>) -> Option<()> {
        let Some(StepTask::Make(make)) = self.tasks.front() else { return None };
        let (target, came) = (self.cut.target(make.part.index)?, make.came);
        if bytes.len() as u64 != target.end - target.start {
            return None;
        }
        self.tasks.pop_front();
        self.made += 1;
        self.ready = Some((target.start, bytes, came));
        Some(())
    }
}

impl PartSteps {
    fn len(&self) -> usize {
        self.outlines.iter().map(Vec::len).sum()
    }
}

impl StepTask {
    fn held(&self) -> usize {
        match self {
            Self::Make(make) => make.part.len() + make.step.len() + make.base.len(),
            Self::Refine { .. } | Self::Sign { .. } => 0,
        }
    }
}
