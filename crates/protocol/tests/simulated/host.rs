//! A host of the simulation: performs what the state machines say, as `peer`, `conversation` and
//! `client` do on a real connection.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use towpath_transfer::SourceId;

use bytes::Bytes;
use towpath_content::pieces::PieceTree;
use towpath_content::ticket::{BoundSecret, Secret};
use towpath_content::{NodeId, Oid};
use towpath_link::Frame;
use towpath_link::backoff::BackoffConfig;
use towpath_link::dialling::{Decision, Dialling};
use towpath_protocol::answering::{Answer, Answering, Taken};
use towpath_protocol::incoming::Decoder;
use towpath_protocol::outgoing::Outgoing;
use towpath_protocol::processors::Processors;
use towpath_protocol::requests::GetRequest;
use towpath_protocol::service::{Issuer, Service, Serving};
use towpath_protocol::session::{Effect, Question, Session, SessionConfig};
use towpath_protocol::step::Step;
use towpath_protocol::wire::{Body, Describe};
use towpath_simnet::{ConnectionId, Net, SimNode};
use towpath_store::{About, MemoryStore, Store};
use towpath_transfer::{Delivery, Description, Outcome, Tag, Want};

use crate::fetch::Fetch;

/// Binding of proofs: here there is no TLS session to take it from.
pub const BINDING: [u8; 32] = [7; 32];
pub const SECRET: Secret = Secret([5; 16]);
/// Not a byte for this long: a connection is lost.
pub const SILENCE: Duration = Duration::from_secs(20);
/// The longest wait between attempts to reach a peer, as in the plugin.
const LONGEST_WAIT: Duration = Duration::from_secs(3);

pub fn node_of(host: usize) -> NodeId {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&(host as u64).to_le_bytes());
    NodeId(key)
}

/// Every object may be had by whoever shows the secret.
struct OneSecret;

impl Issuer for OneSecret {
    fn secret(&self, _: &Oid) -> Option<BoundSecret> {
        Some(SECRET.into())
    }

    fn is_allowed(&self, _: &NodeId, _: &Oid) -> bool {
        false
    }

    fn sign(&self, _: &[u8]) -> [u8; 64] {
        unreachable!("no live objects here")
    }
}

/// A service over a store in memory that holds one object.
pub fn service(content: &[u8]) -> (Arc<Service>, Oid) {
    put(|store, live| store.put_data(live, content).unwrap())
}

/// The same of an object that its application cut into chunks of so many bytes.
pub fn service_in_chunks(content: &[u8], len: usize) -> (Arc<Service>, Oid) {
    put(|store, live| {
        for chunk in content.chunks(len) {
            store.put_data(live, chunk).unwrap();
            store.put_boundary(live).unwrap();
        }
    })
}

fn put(write: impl FnOnce(&MemoryStore, &Oid)) -> (Arc<Service>, Oid) {
    let (store, live) = (MemoryStore::new(), Oid::Live([9; 32]));
    store.put_init(&live, &About::default()).unwrap();
    write(&store, &live);
    let oid = store.put_commit(&live).unwrap();
    (Arc::new(Service::new(Arc::new(store), Arc::new(OneSecret))), oid)
}

/// A session with host `peer`, which asks of one that `serves`, too.
pub fn session(peer: usize, serves: bool, now: Instant) -> Session {
    let config = SessionConfig {
        measures: false,
        silence: SILENCE,
        control: false,
        processors: Processors::default(),
        paces: false,
        wishes: Vec::new(),
        serves,
        priority: 0,
        source: SourceId::other("host", Some(&peer.to_string())),
        tells_link: false,
        link_number: 0,
    };
    Session::new(config, now)
}

/// One end of a connection.
struct End {
    session: Session,
    decoder: Decoder,
    answering: Answering,
    serving: Option<Serving>,
    answers: VecDeque<Answer>,
    /// Answers that go on when an object is no longer as it was in a version.
    waiting: Vec<(Answer, Oid, u64)>,
    question: Option<u32>,
    is_greeted: bool,
}

/// What a host that fetches lets others have meanwhile.
struct Offered {
    store: Arc<MemoryStore>,
    tree: Arc<PieceTree>,
    /// The pieces that were announced last.
    told: Option<Vec<Range<u64>>>,
}

/// See the head of this module.
pub struct Host {
    service: Option<Arc<Service>>,
    /// Host to ask, and for what.
    source: usize,
    wanted: Option<Oid>,
    by_recipe: bool,
    /// An older version that it has.
    older: Option<Vec<u8>>,
    /// Chunks that it has already, by hash.
    on_disk: HashMap<[u8; 32], Vec<u8>>,
    offered: Option<Offered>,
    pub fetch: Option<Fetch>,
    /// Wants that are cancelled on the way, if it does so.
    pub mind: Option<Mind>,
    /// Time that a step of an answer takes, and when the next one is due.
    step_time: Duration,
    step_at: Option<Instant>,
    dialling: Dialling,
    dialled: Option<ConnectionId>,
    redial_at: Option<Instant>,
    /// Time at which this host is to be woken next.
    wake_at: Option<Instant>,
    ends: BTreeMap<ConnectionId, End>,
    /// Reasons why connections ended, for messages of tests.
    pub log: Vec<String>,
}

/// Cancels wants for no reason, each once, and asks again for what did not come.
#[derive(Default)]
pub struct Mind {
    under_way: BTreeSet<Tag>,
    cancelled: BTreeSet<Tag>,
    /// Wants that ended as cancelled.
    pub ended: usize,
}

impl Mind {
    fn asked(&mut self, wants: &[Want]) {
        self.under_way.extend(wants.iter().map(|want| want.tag));
    }

    /// Something came: the want that is to be cancelled now.
    fn came(&mut self, delivery: &Delivery) -> Option<Tag> {
        self.under_way.remove(&delivery.tag);
        let tag = self.under_way.iter().rev().find(|tag| !self.cancelled.contains(tag)).copied()?;
        self.cancelled.insert(tag);
        Some(tag)
    }

    fn ended(&mut self, tag: Tag, outcome: &Outcome) {
        self.under_way.remove(&tag);
        if *outcome == Outcome::Cancelled {
            assert!(self.cancelled.contains(&tag), "nobody cancelled it");
            self.ended += 1;
        }
    }
}

impl Host {
    pub fn serving(service: &Arc<Service>) -> Self {
        Self::new(Some(Arc::clone(service)), 0, None)
    }

    /// One that takes so long for each step of an answer.
    pub fn serving_slowly(service: &Arc<Service>, step_time: Duration) -> Self {
        Self { step_time, ..Self::serving(service) }
    }

    /// One that cancels some of what it asks for.
    pub fn changing_its_mind(source: usize, oid: Oid) -> Self {
        Self { mind: Some(Mind::default()), ..Self::fetching(source, oid) }
    }

    pub fn fetching(source: usize, oid: Oid) -> Self {
        Self::new(None, source, Some(oid))
    }

    pub fn fetching_by_recipe(source: usize, oid: Oid) -> Self {
        Self { by_recipe: true, ..Self::fetching(source, oid) }
    }

    /// One that has an older version.
    pub fn fetching_over(source: usize, oid: Oid, older: Vec<u8>) -> Self {
        Self { older: Some(older), ..Self::fetching(source, oid) }
    }

    /// One that has chunks of it on its disk, by hash, and lets others have the pieces that are whole.
    pub fn sharing(source: usize, tree: PieceTree, on_disk: HashMap<[u8; 32], Vec<u8>>) -> Self {
        let (oid, store) = (tree.oid(), Arc::new(MemoryStore::new()));
        let service = Service::new(Arc::clone(&store) as Arc<dyn Store>, Arc::new(OneSecret));
        let offered = Some(Offered { store, tree: Arc::new(tree), told: None });
        Self { by_recipe: true, on_disk, offered, ..Self::new(Some(Arc::new(service)), source, Some(oid)) }
    }

    fn new(service: Option<Arc<Service>>, source: usize, wanted: Option<Oid>) -> Self {
        let dialling = Dialling::new(BackoffConfig { longest: LONGEST_WAIT, ..BackoffConfig::default() });
        Self {
            service,
            source,
            wanted,
            by_recipe: false,
            older: None,
            on_disk: HashMap::new(),
            offered: None,
            fetch: None,
            mind: None,
            step_time: Duration::ZERO,
            step_at: None,
            dialling,
            dialled: None,
            redial_at: None,
            wake_at: None,
            ends: BTreeMap::new(),
            log: Vec::new(),
        }
    }

    pub fn is_over(&self) -> bool {
        self.wanted.is_none() || self.fetch.as_ref().is_some_and(Fetch::is_over)
    }

    /// Dials and asks, as far as there is something to ask for.
    fn go_on(&mut self, net: &mut Net) {
        self.redial_at = None;
        let Some(fetch) = self.fetch.as_ref().filter(|fetch| !fetch.is_over()) else { return };
        let is_standing = self.dialled.is_some();
        match self.dialling.decide(net.instant(), is_standing) {
            Decision::Use => self.ask(net),
            Decision::Wait(wait) => self.redial_at = Some(net.instant() + wait),
            Decision::Dial if fetch.may_ask(net.instant()) => {
                let random = net.random().u64(..);
                self.dialling.dialled(net.instant(), random);
                self.dialled = Some(net.connect(self.source));
            }
            Decision::Dial => {}
        }
    }

    fn ask(&mut self, net: &mut Net) {
        let now = net.instant();
        let (Some(fetch), Some(connection)) = (&mut self.fetch, self.dialled) else { return };
        let Some(end) = self.ends.get_mut(&connection) else { return };
        // The peer's hello tells whether it has recipes.
        if (fetch.by_recipe || fetch.older.is_some()) && !end.is_greeted {
            return;
        }
        if !fetch.is_described() {
            if end.question.is_none() && fetch.may_ask(now) {
                let root = Bytes::from(fetch.oid.to_bytes().to_vec());
                let recipe = fetch.by_recipe && end.session.greeting().has_recipes;
                let question = Describe { root: root.clone(), oid: root, recipe, ..Describe::default() };
                end.question = Some(end.session.ask(Question::Describe(question)));
            }
            return;
        }
        loop {
            let wants = fetch.next_wants(now);
            if wants.is_empty() {
                return;
            }
            self.mind.iter_mut().for_each(|mind| mind.asked(&wants));
            end.session.get(now, GetRequest::new(&fetch.oid, wants, end.session.greeting().has_recipes));
        }
    }

    /// Performs what is to be done, until nothing is.
    fn settle(&mut self, net: &mut Net) {
        loop {
            self.go_on(net);
            let is_done = self.ends.keys().copied().collect::<Vec<_>>().into_iter().all(|connection| {
                let mut quiet = true;
                while let Some(effect) = self.ends.get_mut(&connection).and_then(|end| end.session.poll()) {
                    quiet = false;
                    self.perform(net, connection, effect);
                }
                quiet
            });
            if is_done {
                break;
            }
        }
        self.announce();
        self.go_on_answering(net);
        self.plan_wake(net);
    }

    /// Tells those who watch of the pieces that are whole, if these are others than before.
    fn announce(&mut self) {
        let (Some(fetch), Some(offered)) = (&self.fetch, &mut self.offered) else { return };
        let pieces = fetch.whole_pieces(&offered.tree);
        if offered.told.as_ref() != Some(&pieces.whole) {
            offered.told = Some(pieces.whole.clone());
            offered.store.announce(&fetch.oid, Some(Arc::new(pieces)));
        }
        for end in self.ends.values_mut() {
            let is_due = |(_, oid, seen): &mut (Answer, Oid, u64)| offered.store.version(oid) != *seen;
            end.answers.extend(end.waiting.extract_if(.., is_due).map(|(answer, ..)| answer));
        }
    }

    /// Gives answers to their end; if steps take their time, a step of each when that is over.
    fn go_on_answering(&mut self, net: &mut Net) {
        let now = net.instant();
        if self.step_at.is_some_and(|at| at > now) {
            return;
        }
        for (&connection, end) in &mut self.ends {
            while step(net, connection, end) && self.step_time.is_zero() {}
        }
        let is_asked = self.ends.values().any(|end| !end.answers.is_empty());
        self.step_at = is_asked.then(|| now + self.step_time);
    }

    /// Asks to be woken when something is due, unless that was asked for already.
    fn plan_wake(&mut self, net: &mut Net) {
        let sessions = self.ends.values().filter_map(|end| end.session.next_wake());
        let fetch = self
            .fetch
            .as_ref()
            .filter(|fetch| !fetch.is_over())
            .and_then(|fetch| fetch.next_wake(net.instant()));
        let Some(next) = sessions.chain(fetch).chain(self.redial_at).chain(self.step_at).min() else {
            return;
        };
        if self.wake_at.is_none_or(|at| next < at) {
            self.wake_at = Some(next);
            net.wake_at_instant(next);
        }
    }

    fn perform(&mut self, net: &mut Net, connection: ConnectionId, effect: Effect) {
        let now = net.instant();
        let Some(end) = self.ends.get_mut(&connection) else { return };
        match (effect, &mut self.fetch) {
            (Effect::Send(body) | Effect::Control(body), _) => {
                send(net, connection, end, Outgoing::control(body))
            }
            (Effect::Request(body), _) => answer(end, body),
            (Effect::Greeted { encoding, .. }, _) => {
                end.is_greeted = true;
                encoding.into_iter().for_each(|encoding| end.answering.encode(encoding));
            }
            (Effect::Closed, _) => self.hang_up(net, connection),
            (Effect::Delivery { delivery, .. }, Some(fetch)) => {
                if let Some(tag) = self.mind.as_mut().and_then(|mind| mind.came(&delivery)) {
                    end.session.cancel(0, &[tag]);
                }
                match fetch.delivered(&delivery, now) {
                    true => self.dialling.useful(),
                    false => end.session.close(Some("sent what does not match its hash".into())),
                }
            }
            (Effect::Outcome { tag, outcome, .. }, Some(fetch)) => {
                self.mind.iter_mut().for_each(|mind| mind.ended(tag, &outcome));
                fetch.ended(tag, &outcome, now);
            }
            (
                Effect::Answer { answer: Description::Object { layout: Some(layout), .. }, .. },
                Some(fetch),
            ) => {
                fetch.described(layout, now);
            }
            (Effect::Answer { answer: Description::Recipe(part), .. }, Some(fetch)) => {
                match fetch.recipe(part) {
                    true => {}
                    false => end.session.close(Some("sent a wrong recipe".into())),
                }
            }
            (Effect::Ended { request, result }, Some(fetch)) if end.question == Some(request) => {
                end.question = None;
                fetch.question_ended(&result, now);
                let missing = Outcome::RetryLater(Duration::ZERO);
                let outcome = result.err().unwrap_or(missing);
                if !fetch.is_described() {
                    fetch.not_described(&outcome, now);
                }
            }
            _ => {}
        }
    }

    fn hang_up(&mut self, net: &mut Net, connection: ConnectionId) {
        let Some(end) = self.ends.remove(&connection) else { return };
        self.log.extend(end.session.ended().map(str::to_owned));
        if let Some(goodbye) = end.session.goodbye() {
            net.send(connection, bytes_of(&Outgoing::control(goodbye)));
        }
        net.close(connection);
        if self.dialled == Some(connection) {
            self.dialled = None;
        }
    }
}

/// Takes a request.
fn answer(end: &mut End, body: Body) {
    if end.serving.is_none() {
        return end.session.close(Some("asked a service that only receives".into()));
    }
    match end.answering.take(body, &OneSecret) {
        Err(why) => end.session.close(Some(why)),
        Ok(Taken::Nothing | Taken::Entries(_)) => {}
        Ok(Taken::Refused(messages)) => end.session.reply(messages),
        Ok(Taken::Cancelled(outcome)) => end.session.reply([outcome]),
        Ok(Taken::Answer(answer)) => end.answers.push_back(*answer),
    }
}

/// Goes on with the first answer; false if there is none.
fn step(net: &mut Net, connection: ConnectionId, end: &mut End) -> bool {
    let (Some(serving), Some(mut answer)) = (&mut end.serving, end.answers.pop_front()) else { return false };
    let (request, mut frames) = (answer.request(), Vec::new());
    let stepped = match end.answering.is_over(request) {
        true => Step::Over,
        false => answer.step(serving, &mut |frame| frames.push(frame)),
    };
    match stepped {
        Step::More => end.answers.push_front(answer),
        Step::Wait { oid, seen } => end.waiting.push((answer, oid, seen)),
        Step::Over => frames.push(Outgoing::control(end.answering.end(request))),
    }
    frames.into_iter().for_each(|frame| send(net, connection, end, frame));
    true
}

fn send(net: &mut Net, connection: ConnectionId, end: &mut End, frame: Outgoing) {
    end.session.liveness_mut().spoke(net.instant());
    net.send(connection, bytes_of(&frame));
}

/// A frame as one message: its kind, then its body.
pub fn bytes_of(frame: &Outgoing) -> Vec<u8> {
    let Frame { kind, body } = frame.to_frame();
    [&[kind][..], &body].concat()
}

/// The frame that a message is.
pub fn frame_of(message: &[u8]) -> Frame {
    match message.split_first() {
        Some((&kind, body)) => Frame { kind, body: Bytes::copy_from_slice(body) },
        None => Frame { kind: 0, body: Bytes::new() },
    }
}

impl SimNode for Host {
    fn start(&mut self, net: &mut Net) {
        self.fetch = self.wanted.map(|oid| Fetch::new(oid, net.instant()));
        if let Some(fetch) = &mut self.fetch {
            fetch.by_recipe = self.by_recipe;
            fetch.older.clone_from(&self.older);
            fetch.on_disk = std::mem::take(&mut self.on_disk);
        }
        self.settle(net);
    }

    fn opened(&mut self, net: &mut Net, connection: ConnectionId, peer: usize) {
        let mut session = session(peer, self.service.is_some(), net.instant());
        if self.dialled == Some(connection)
            && let Some(oid) = &self.wanted
        {
            session.prove(oid, &SECRET.prove(&BINDING, &node_of(net.host()), oid));
        }
        let serving = self.service.as_ref().map(|service| Serving::new(Arc::clone(service), node_of(peer)));
        let answering = Answering::new(node_of(peer), BINDING, Processors::default());
        let end = End {
            session,
            decoder: Decoder::default(),
            answering,
            serving,
            answers: VecDeque::new(),
            waiting: Vec::new(),
            question: None,
            is_greeted: false,
        };
        self.ends.insert(connection, end);
        self.settle(net);
    }

    fn receive(&mut self, net: &mut Net, connection: ConnectionId, message: Vec<u8>) {
        let Some(end) = self.ends.get_mut(&connection) else { return };
        let frame = frame_of(&message);
        match end.decoder.decode(frame, |header| end.session.expected(header)) {
            Ok(incoming) => end.session.receive(net.instant(), incoming),
            Err(why) => end.session.close(Some(why)),
        }
        self.settle(net);
    }

    fn closed(&mut self, net: &mut Net, connection: ConnectionId) {
        if let Some(end) = self.ends.get_mut(&connection) {
            end.session.close(None);
        }
        if self.dialled == Some(connection) && !self.ends.contains_key(&connection) {
            self.dialled = None;
        }
        self.settle(net);
    }

    fn wake(&mut self, net: &mut Net) {
        let now = net.instant();
        if self.wake_at.is_some_and(|at| at <= now) {
            self.wake_at = None;
        }
        if let Some(fetch) = &mut self.fetch {
            fetch.check_wait_limit(now);
        }
        for end in self.ends.values_mut() {
            if end.session.next_wake().is_some_and(|at| at <= now) {
                end.session.tick(now);
            }
        }
        self.settle(net);
    }
}
