//! Both machines with their files in memory: messages cross as bytes, in any order of work, and may be lost or changed.

mod liar;
mod messages;
mod pair;
mod steps;

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;

use crate::Oid;
use crate::delta::patch;

use super::*;

/// Bytes that resemble nothing.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

/// A file that has so many changes of so many bytes over `base`, spread evenly and not aligned.
pub fn edited(base: &[u8], count: usize, len: usize) -> Vec<u8> {
    let mut file = base.to_vec();
    let spacing = (base.len() / count.max(1)).max(len + 1);
    for (seed, at) in (2..).zip((spacing / 3..base.len().saturating_sub(len)).step_by(spacing)) {
        file[at..at + len].copy_from_slice(&noise(seed, len));
    }
    file
}

/// A description of a base, before it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Describe {
    Signature,
    Named,
    Parts { count: u64, ahead: u64 },
}

/// Facts of one exchange.
#[derive(Clone)]
pub struct Scene {
    pub base: Vec<u8>,
    pub file: Vec<u8>,
    pub describe: Describe,
    pub is_guess: bool,
    pub outlines: usize,
    /// The responder has the base, too.
    pub has_base: bool,
    /// The network likes steps, and packing.
    pub in_steps: bool,
    pub packs: bool,
    /// So many readings of the base and of the file go well.
    pub readable: [usize; 2],
}

/// A message on its way, as bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    Signature(Vec<u8>),
    Reply(Vec<u8>),
    Run(Vec<u8>),
}

/// Outcome of an exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Made {
    /// The file, with the bytes that came and those that went.
    File {
        came: usize,
        went: usize,
    },
    UnknownBase,
    GivenUp,
    /// One waits for the other, who sends nothing any more.
    Waiting,
}

pub struct Pair {
    scene: Scene,
    requester: Requester,
    responder: Responder,
    inbox: SignatureInbox,
    ahead: Range<u64>,
    to_responder: VecDeque<Message>,
    to_requester: VecDeque<Message>,
    made: Vec<u8>,
    end: Option<RequesterEnd>,
    /// Messages that were sent.
    pub sent: usize,
    came: usize,
    went: usize,
    /// Outlines that came.
    pub outlines: usize,
}

impl fmt::Debug for Scene {
    /// Without the bytes, which would fill the screen.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { base, file, describe, is_guess, outlines, has_base, in_steps, packs, readable: _ } = self;
        let lens = (base.len(), file.len());
        write!(f, "{lens:?} {describe:?} {:?}", (is_guess, outlines, has_base, in_steps, packs))
    }
}

impl Scene {
    pub fn of(base: &[u8], file: &[u8], describe: Describe) -> Self {
        Self {
            base: base.to_vec(),
            file: file.to_vec(),
            describe,
            is_guess: false,
            outlines: 2,
            has_base: true,
            in_steps: true,
            packs: true,
            readable: [usize::MAX; 2],
        }
    }

    pub fn request(&self) -> Request {
        let len = self.base.len() as u64;
        let base = match self.describe {
            Describe::Named => Base::Named(Oid::of(&self.base)),
            Describe::Parts { count, ahead } => Base::Parts { count, ahead },
            Describe::Signature => {
                let parts = SignedParts::new(len, self.file.len() as u64, 1).unwrap();
                Base::Signature(parts.sign(0, &self.base, self.in_steps).unwrap())
            }
        };
        Request { base, is_guess: self.is_guess, outlines: self.outlines }
    }

    /// Bytes of one of the two files, while it can be read.
    fn read(&mut self, of: usize, range: Range<u64>) -> Option<Vec<u8>> {
        self.readable[of] = self.readable[of].checked_sub(1)?;
        let bytes = if of == 0 { &self.base } else { &self.file };
        bytes.get(usize_range(range)).map(<[u8]>::to_vec)
    }

    pub fn begin(self) -> Pair {
        let request = self.request();
        let ahead = 0..request.base.ahead();
        let requester = Requester::new(&request, self.base.len() as u64);
        let bytes = request.to_bytes();
        let request = Request::from_bytes(&bytes).unwrap();
        let mut inbox = SignatureInbox::default();
        inbox.expect(request.base.ahead());
        let responder = Responder::new(request, &Oid::of(&self.file), self.file.len() as u64);
        Pair {
            made: vec![0; self.file.len()],
            scene: self,
            requester,
            responder,
            inbox,
            ahead,
            to_responder: VecDeque::new(),
            to_requester: VecDeque::new(),
            end: None,
            sent: 1,
            came: 0,
            went: bytes.len(),
            outlines: 0,
        }
    }

    /// The exchange, if nothing goes wrong.
    pub fn run(self) -> Made {
        self.begin().run(&mut |_, message| vec![message], |_| 0)
    }
}

impl Pair {
    /// Lets both work in the order that `choose` says, of so many that can; `pass` says what becomes of the messages.
    pub fn run(
        &mut self,
        pass: &mut impl FnMut(usize, Message) -> Vec<Message>,
        mut choose: impl FnMut(usize) -> usize,
    ) -> Made {
        loop {
            let mut can: Vec<fn(&mut Self, &mut _) -> bool> = Vec::new();
            if !self.ahead.is_empty() {
                can.push(|pair, pass| pair.sign_ahead(pass));
            }
            if !self.to_responder.is_empty() {
                can.push(|pair, _| pair.deliver_signature());
            }
            if !self.to_requester.is_empty() {
                can.push(|pair, pass| pair.deliver_reply(pass));
            }
            can.push(|pair, pass| pair.respond(pass));
            let chosen = choose(can.len()) % can.len();
            can.rotate_left(chosen);
            if !can.into_iter().any(|work| work(self, pass)) {
                return self.outcome();
            }
            self.assert_bounds();
        }
    }

    fn outcome(&self) -> Made {
        match self.end {
            // The check that the caller makes.
            Some(RequesterEnd::Written) if self.made == self.scene.file => {
                Made::File { came: self.came, went: self.went }
            }
            Some(RequesterEnd::Same) if self.scene.base == self.scene.file => {
                Made::File { came: self.came, went: self.went }
            }
            Some(RequesterEnd::UnknownBase) => Made::UnknownBase,
            Some(_) => Made::GivenUp,
            None => Made::Waiting,
        }
    }

    fn assert_bounds(&self) {
        assert!(self.requester.held() <= REQUESTER_HOLDS, "{}", self.requester.held());
        assert!(self.responder.held() + self.inbox.held() <= RESPONDER_HOLDS + MAX_OUTLINED_LEN);
    }

    fn send(&mut self, message: Message, pass: &mut impl FnMut(usize, Message) -> Vec<Message>) {
        for message in pass(self.sent, message) {
            match message {
                Message::Signature(bytes) => {
                    self.went += bytes.len();
                    self.to_responder.push_back(Message::Signature(bytes));
                }
                Message::Reply(bytes) | Message::Run(bytes) if bytes.is_empty() => {}
                message => {
                    let (Message::Reply(bytes) | Message::Run(bytes) | Message::Signature(bytes)) = &message;
                    self.came += bytes.len();
                    self.to_requester.push_back(message);
                }
            }
        }
        self.sent += 1;
    }

    fn sign_ahead(&mut self, pass: &mut impl FnMut(usize, Message) -> Vec<Message>) -> bool {
        let Some(index) = self.ahead.next() else { return false };
        let Describe::Parts { count, .. } = self.scene.describe else { return false };
        let (base, file) = (self.scene.base.len() as u64, self.scene.file.len() as u64);
        let parts = SignedParts::new(base, file, count).unwrap();
        let bytes = &self.scene.base[usize_range(parts.base(index).unwrap())];
        let signature = parts.sign(index, bytes, self.scene.in_steps).unwrap();
        self.send(Message::Signature(NextSignature::Signed(signature).to_bytes()), pass);
        true
    }

    fn deliver_signature(&mut self) -> bool {
        let Some(Message::Signature(bytes)) = self.to_responder.pop_front() else { return false };
        let taken = NextSignature::from_bytes(&bytes).map(|signature| self.inbox.recv(signature));
        if !matches!(taken, Ok(Ok(()))) {
            // Whoever carries the exchange ends the connection.
            self.to_responder.clear();
            self.to_requester.clear();
        }
        true
    }

    fn deliver_reply(&mut self, pass: &mut impl FnMut(usize, Message) -> Vec<Message>) -> bool {
        let size = self.scene.file.len() as u64;
        let taken = match self.to_requester.pop_front() {
            Some(Message::Reply(bytes)) => {
                Reply::from_bytes(&bytes).is_ok_and(|reply| self.requester.recv_reply(reply, size).is_ok())
            }
            Some(Message::Run(bytes)) => DeltaRun::from_bytes(&bytes).is_ok_and(|run| {
                self.outlines += usize::from(matches!(run, DeltaRun::Last(DeltaStep::Outline { .. }, _)));
                self.requester.recv_run(run, self.scene.in_steps).is_ok()
            }),
            _ => return false,
        };
        if !taken {
            self.end = Some(RequesterEnd::GivenUp);
            self.to_requester.clear();
            self.to_responder.clear();
            self.ahead = 0..0;
            return true;
        }
        while self.request(pass) {}
        true
    }

    /// The next action of the requester.
    fn request(&mut self, pass: &mut impl FnMut(usize, Message) -> Vec<Message>) -> bool {
        let held = self.requester.held();
        assert!(held <= REQUESTER_HOLDS, "{held}");
        match self.requester.poll() {
            RequesterAction::Wait => return false,
            RequesterAction::End(end) => {
                // What came before an end is not undone by what comes behind it.
                self.end.get_or_insert(end);
                return false;
            }
            RequesterAction::Read(range) => {
                let bytes = self.scene.read(0, range);
                self.requester.read(bytes);
            }
            RequesterAction::Unpack { packed, limit } => {
                let unpacked = zstd::bulk::decompress(packed, limit as usize).ok();
                self.requester.unpacked(unpacked);
            }
            RequesterAction::ApplyPatch { patch, base, len } => {
                let part = patch::apply(patch, base, len as usize).ok();
                self.requester.patched(part);
            }
            RequesterAction::Send(signature) => {
                // Those that go ahead come first.
                while self.sign_ahead(pass) {}
                self.send(Message::Signature(signature.to_bytes()), pass);
            }
            RequesterAction::Write { offset, bytes, .. } => {
                self.made[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
            }
        }
        true
    }

    /// The next action of the responder.
    fn respond(&mut self, pass: &mut impl FnMut(usize, Message) -> Vec<Message>) -> bool {
        match self.responder.poll() {
            ResponderAction::End => return false,
            ResponderAction::Reply(reply) => self.send(Message::Reply(reply.to_bytes()), pass),
            ResponderAction::Send(run) => {
                self.inbox.expect(run.wanted() as u64);
                let message = Message::Run(run.to_bytes());
                self.send(message, pass);
            }
            ResponderAction::Read(range) => {
                let bytes = self.scene.read(1, range);
                self.responder.read(bytes);
            }
            ResponderAction::FindBase(oid) => {
                let is_here = self.scene.has_base && oid == Oid::of(&self.scene.base);
                self.responder.found(is_here.then_some(self.scene.base.len() as u64));
            }
            ResponderAction::MakePatches(parts) => self.patch(parts, pass),
            ResponderAction::Pack(delta) => {
                let packed = zstd::bulk::compress(delta, 1).ok().filter(|packed| packed.len() < delta.len());
                let packed = packed.filter(|_| self.scene.packs);
                self.responder.packed(packed, self.scene.in_steps);
            }
            ResponderAction::AwaitSignature => match self.inbox.take() {
                Some(signature) => self.responder.signature(signature),
                None => return false,
            },
        }
        true
    }

    fn patch(&mut self, parts: PatchParts, pass: &mut impl FnMut(usize, Message) -> Vec<Message>) {
        for index in 0..parts.count() {
            let base = &self.scene.base[usize_range(parts.base(index).unwrap())];
            let target = &self.scene.file[usize_range(parts.target(index).unwrap())];
            if !self.responder.patched(patch::make(base, target)) {
                return;
            }
            while let ResponderAction::Send(run) = self.responder.poll() {
                let message = Message::Run(run.to_bytes());
                self.send(message, pass);
            }
        }
    }
}

pub fn usize_range(range: Range<u64>) -> Range<usize> {
    range.start as usize..range.end as usize
}
