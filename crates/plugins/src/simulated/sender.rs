//! The machine that has what is fetched, at one of its two addresses. It sends no faster than its link, so that what waits can still
//! be cancelled.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use towpath_content::ticket::BoundSecret;
use towpath_content::tree::Time;
use towpath_content::{NodeId, Oid};
use towpath_protocol::answering::{Answer, Answering, Taken};
use towpath_protocol::incoming::Decoder;
use towpath_protocol::outgoing::Outgoing;
use towpath_protocol::processors::Processors;
use towpath_protocol::service::Serving;
use towpath_protocol::session::{Effect, Session};
use towpath_protocol::step::Step;
use towpath_protocol::wire::{Body, ContentList, Contents, ContentsBody, WireContent};
use towpath_protocol::{EntryAsk, Issuer, Service};
use towpath_simnet::{ConnectionId, Net, SimNode};
use towpath_store::{About, MemoryStore, Store};
use towpath_transfer::offer::{EntryBody, EntryContent};

use super::link::{bytes_of, frame};
use super::{BINDING, Conduct, RATE, RECEIVER, SECRET, WakePlan};

/// What is sent before the link has carried it lies in the kernel's buffer: so much time's worth.
const BUFFERED: Duration = Duration::from_millis(50);
/// Entries whose contents go in one message.
const TOGETHER: usize = 16;
/// Bytes of an entry's content.
pub(crate) const ENTRY: usize = 2000;

/// A host: the machine that fetches, or an address of the other one.
pub(crate) enum Machine<R> {
    Receiver(R),
    Sender(Sender),
}

/// See the head of this module.
pub(crate) struct Sender {
    conduct: Conduct,
    service: Arc<Service>,
    ends: BTreeMap<ConnectionId, ServingEnd>,
    /// Time at which the link has carried what was sent.
    free: Option<Instant>,
    wake: WakePlan,
}

/// A connection's end that answers.
struct ServingEnd {
    session: Session,
    decoder: Decoder,
    answering: Answering,
    serving: Serving,
    answers: VecDeque<QueuedAnswer>,
}

/// An answer of which more is to be sent.
enum QueuedAnswer {
    Data(Box<Answer>),
    Entries(u32, VecDeque<EntryAsk>),
}

/// Every object may be had, also by whoever shows no secret: files without a tree that names them.
struct Generous;

impl Issuer for Generous {
    fn secret(&self, _: &Oid) -> Option<BoundSecret> {
        Some(SECRET.into())
    }

    fn is_allowed(&self, _: &NodeId, _: &Oid) -> bool {
        true
    }

    fn sign(&self, _: &[u8]) -> [u8; 64] {
        unreachable!("no live objects here")
    }
}

/// A service that holds objects with these contents, and their names.
pub(crate) fn service(contents: &[impl AsRef<[u8]>]) -> (Arc<Service>, Vec<Oid>) {
    let store = MemoryStore::new();
    let put = |(number, content): (usize, &[u8])| {
        let mut key = [9; 32];
        key[..8].copy_from_slice(&number.to_le_bytes());
        let live = Oid::Live(key);
        store.put_init(&live, &About::default()).unwrap();
        store.put_data(&live, content).unwrap();
        store.put_commit(&live).unwrap()
    };
    let oids = contents.iter().map(AsRef::as_ref).enumerate().map(put).collect();
    (Arc::new(Service::new(Arc::new(store), Arc::new(Generous))), oids)
}

/// The content of an entry that is offered.
pub(crate) fn entry_bytes(entry: u64) -> Bytes {
    entry.to_le_bytes().into_iter().cycle().take(ENTRY).collect::<Vec<_>>().into()
}

impl Sender {
    pub(crate) fn new(conduct: Conduct, service: Arc<Service>) -> Self {
        Self { conduct, service, ends: BTreeMap::new(), free: None, wake: WakePlan::default() }
    }

    fn settle(&mut self, net: &mut Net) {
        for connection in self.ends.keys().copied().collect::<Vec<_>>() {
            while let Some(effect) = self.ends.get_mut(&connection).and_then(|end| end.session.poll()) {
                self.perform(net, connection, effect);
            }
        }
        self.answer(net);
        let wakes = self.ends.values().filter_map(|end| end.session.next_wake());
        let is_asked = self.ends.values().any(|end| !end.answers.is_empty());
        let free = self.free.filter(|_| is_asked).map(|free| free - BUFFERED);
        let next = wakes.chain(free).min();
        next.into_iter().for_each(|at| self.wake.plan(net, at));
    }

    fn perform(&mut self, net: &mut Net, connection: ConnectionId, effect: Effect) {
        let Some(end) = self.ends.get_mut(&connection) else { return };
        match effect {
            Effect::Send(body) | Effect::SendFirst(body) => {
                end.send(net, connection, &Outgoing::control(body));
            }
            Effect::Request(body) => end.take(body),
            Effect::Greeted { encoding, .. } => {
                encoding.into_iter().for_each(|encoding| end.answering.encode(encoding));
            }
            Effect::Closed => {
                self.ends.remove(&connection);
                net.close(connection);
            }
            _ => {}
        }
    }

    /// Goes on answering as long as the link carries it soon.
    fn answer(&mut self, net: &mut Net) {
        let now = net.instant();
        let mut free = self.free.unwrap_or(now).max(now);
        for (&connection, end) in &mut self.ends {
            while free <= now + BUFFERED
                && let Some(bytes) = end.step(net, connection)
            {
                free += Duration::from_secs_f64(bytes as f64 / RATE);
            }
        }
        self.free = Some(free);
    }
}

impl ServingEnd {
    fn send(&mut self, net: &mut Net, connection: ConnectionId, frame: &Outgoing) -> usize {
        self.session.liveness_mut().spoke(net.instant());
        let bytes = bytes_of(frame);
        let len = bytes.len();
        net.send(connection, bytes);
        len
    }

    /// Takes a request.
    fn take(&mut self, body: Body) {
        if matches!(body, Body::ContentCredit(_)) {
            return;
        }
        match self.answering.take(body, &Generous) {
            Err(why) => self.session.close(Some(why)),
            Ok(Taken::Nothing) => {}
            Ok(Taken::Refused(messages)) => self.session.reply(messages),
            Ok(Taken::Cancelled(outcome)) => self.session.reply([outcome]),
            Ok(Taken::Answer(answer)) => self.answers.push_back(QueuedAnswer::Data(answer)),
            Ok(Taken::Entries(asks)) => {
                let request = asks.first().map(|ask| ask.tag.request);
                let queued = request.map(|request| QueuedAnswer::Entries(request, asks.into()));
                self.answers.extend(queued);
            }
        }
    }

    /// Goes on with the first answer. Returns the bytes that it sent; `None` if nobody asks.
    fn step(&mut self, net: &mut Net, connection: ConnectionId) -> Option<usize> {
        let mut frames = Vec::new();
        let answer = match self.answers.pop_front()? {
            QueuedAnswer::Data(answer) => self.step_data(answer, &mut frames),
            QueuedAnswer::Entries(request, asks) => self.step_entries((request, asks), &mut frames),
        };
        answer.into_iter().for_each(|answer| self.answers.push_front(answer));
        Some(frames.iter().map(|frame| self.send(net, connection, frame)).sum())
    }

    /// Returns what is left of it.
    fn step_data(&mut self, mut answer: Box<Answer>, frames: &mut Vec<Outgoing>) -> Option<QueuedAnswer> {
        let request = answer.request();
        let is_over = self.answering.is_over(request);
        if !is_over && answer.step(&mut self.serving, &mut |frame| frames.push(frame)) == Step::More {
            return Some(QueuedAnswer::Data(answer));
        }
        frames.push(Outgoing::control(self.answering.end(request)));
        None
    }

    fn step_entries(
        &mut self,
        (request, mut asks): (u32, VecDeque<EntryAsk>),
        frames: &mut Vec<Outgoing>,
    ) -> Option<QueuedAnswer> {
        if !self.answering.is_over(request) {
            let some = asks.drain(..asks.len().min(TOGETHER));
            let contents = some.map(|ask| WireContent::new(ask.tag.want, content(ask.query.entry))).collect();
            let body = Some(ContentsBody::List(ContentList { contents }));
            frames.push(Outgoing::control(Body::Contents(Contents { request, body })));
            if !asks.is_empty() {
                return Some(QueuedAnswer::Entries(request, asks));
            }
        }
        frames.push(Outgoing::control(self.answering.end(request)));
        None
    }
}

fn content(entry: u64) -> EntryContent {
    let bytes = entry_bytes(entry);
    let (oid, size) = (Some(Oid::of(&bytes)), bytes.len() as u64);
    let modified = Time { seconds: 9, nanos: 8 };
    EntryContent { oid, size, modified, is_sparse: false, body: EntryBody::Whole(bytes) }
}

impl SimNode for Sender {
    fn opened(&mut self, net: &mut Net, connection: ConnectionId, _: usize) {
        let session = Session::new(self.conduct.config(true, None), net.instant());
        let mut answering = Answering::new(RECEIVER, BINDING, Processors::default());
        answering.set_offer(true);
        let serving = Serving::new(Arc::clone(&self.service), RECEIVER);
        let (decoder, answers) = (Decoder::default(), VecDeque::new());
        self.ends.insert(connection, ServingEnd { session, decoder, answering, serving, answers });
        self.settle(net);
    }

    fn receive(&mut self, net: &mut Net, connection: ConnectionId, message: Vec<u8>) {
        let Some(ServingEnd { session, decoder, .. }) = self.ends.get_mut(&connection) else { return };
        match decoder.decode(frame(&message), |header| session.expected(header)) {
            Ok(incoming) => session.receive(net.instant(), incoming),
            Err(why) => session.close(Some(why)),
        }
        self.settle(net);
    }

    fn closed(&mut self, net: &mut Net, connection: ConnectionId) {
        if let Some(end) = self.ends.get_mut(&connection) {
            end.session.close(None);
        }
        self.settle(net);
    }

    fn wake(&mut self, net: &mut Net) {
        let now = net.instant();
        self.wake.woken(now);
        for end in self.ends.values_mut() {
            if end.session.next_wake().is_some_and(|at| at <= now) {
                end.session.tick(now);
            }
        }
        self.settle(net);
    }
}

impl<R: SimNode> SimNode for Machine<R> {
    fn start(&mut self, net: &mut Net) {
        if let Self::Receiver(receiver) = self {
            receiver.start(net);
        }
    }

    fn opened(&mut self, net: &mut Net, connection: ConnectionId, peer: usize) {
        match self {
            Self::Receiver(receiver) => receiver.opened(net, connection, peer),
            Self::Sender(sender) => sender.opened(net, connection, peer),
        }
    }

    fn receive(&mut self, net: &mut Net, connection: ConnectionId, message: Vec<u8>) {
        match self {
            Self::Receiver(receiver) => receiver.receive(net, connection, message),
            Self::Sender(sender) => sender.receive(net, connection, message),
        }
    }

    fn closed(&mut self, net: &mut Net, connection: ConnectionId) {
        match self {
            Self::Receiver(receiver) => receiver.closed(net, connection),
            Self::Sender(sender) => sender.closed(net, connection),
        }
    }

    fn wake(&mut self, net: &mut Net) {
        match self {
            Self::Receiver(receiver) => receiver.wake(net),
            Self::Sender(sender) => sender.wake(net),
        }
    }
}
