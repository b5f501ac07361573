//! One connection as a state machine: the hellos, what this side asks and what the peer answers,
//! and whether the peer is still there. Pure: handed frames and the time, it tells what to do.
//!
//! ```text
//!   get, ask, prove, cancel ─┐                       ┌─ Send: a message for the peer
//!                            ├──> Session ── poll ──>├─ Delivery, Outcome, Answer, Ended: for who asked
//!   bytes ── Decoder ────────┘       ^               ├─ Request: for the answering half
//!                          tick (time)               └─ Closed: nothing more comes or goes
//! ```
//!
//! [`super::peer`] performs its effects on a real connection; a simulation performs them as it
//! likes. After each call, [`Session::poll`] is called until there are no more effects. The
//! answering half is [`super::answering`]. (A session of a *transfer*, which may use many of these
//! connections, is `towpath_transfer::Session`.)

mod ahead;
mod greeting;
mod round_trip;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use towpath_content::Oid;
use towpath_transfer::{Delivery, Description, Outcome, RecipePart, Tag};

use self::ahead::Ahead;
use self::greeting::{Greeting, hello};
use self::round_trip::RoundTrip;
use super::incoming::Incoming;
use super::liveness::Liveness;
use super::requests::{GetRequest, GetUnderWay, Violation};
use super::wire::{self, Body, DataHeader, Goodbye, Ping, Prove, RequestOnly, WireOutcome};
use crate::processors::Processors;

pub use self::round_trip::MOST_ANSWERS;

/// Requests under way on one connection, in each direction.
pub const MAX_REQUESTS: usize = 64;

/// Prefix of the reason if the peer closed a connection.
pub const PEER_CLOSED: &str = "the peer closed: ";
/// Outcome of a request that the connection did not outlive, or that nobody waits for.
const LOST: Outcome = Outcome::RetryLater(Duration::ZERO);

/// Behaviour of this side of a connection.
#[derive(Debug, Clone)]
pub struct SessionConfig {
    /// The same on every connection of a transfer's session.
    pub id: [u8; 16],
    /// Not a byte for this long: the connection is lost.
    pub silence: Duration,
    /// This side has a control stream.
    pub control: bool,
    /// The encodings of data that this side takes and can send.
    pub processors: Processors,
    /// Wishes by name: such data are encoded in both directions, not only those sent and if the peer
    /// asks.
    pub wishes: Vec<String>,
    /// This side has an answering half.
    pub serves: bool,
    /// Urgency of this side's `Get`s among those of its node.
    pub priority: i8,
    /// It measures the round trip by itself, as the kernel does not tell it.
    pub measures: bool,
    /// Name of the peer in deliveries.
    pub source: Arc<str>,
}

/// Encoding that the answering half may use: the peer takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encoded {
    /// Of this side's encodings.
    pub number: u8,
    /// Either side asks for it; otherwise it is used only where that is quicker.
    pub is_asked: bool,
    /// Payloads of any size can be encoded, and tell it.
    pub in_parts: bool,
}

/// An action that the caller has to do.
#[derive(Debug, Clone)]
pub enum Effect {
    /// Send a message, in this order.
    Send(Body),
    /// The peer's hello has come.
    Greeted {
        /// It has a control stream.
        control: bool,
        /// Encoding that the answering half may use.
        encoding: Option<Encoded>,
    },
    /// The round trip is known, or better than before: [`Session::round_trip`].
    Measured,
    /// The bytes of a want.
    Delivery {
        /// The `Get` that asked.
        request: u32,
        /// The bytes.
        delivery: Delivery,
    },
    /// The first bytes of a piece of which no more come; its outcome follows.
    PartialPiece {
        /// The `Get` that asked.
        request: u32,
        /// The bytes.
        delivery: Delivery,
    },
    /// A want ended without bytes.
    Outcome {
        /// The `Get` that asked.
        request: u32,
        /// The want.
        tag: Tag,
        /// Its outcome.
        outcome: Outcome,
    },
    /// An answer to a `Describe`.
    Answer {
        /// The question.
        request: u32,
        /// The answer.
        answer: Description,
    },
    /// An answer to a `Watch`.
    Ranges {
        /// The question.
        request: u32,
        /// The pieces that can be had.
        ranges: Vec<Range<u64>>,
    },
    /// Nothing more comes for a request; of a `Get`, every want has ended.
    Ended {
        /// The request's number.
        request: u32,
        /// The outcome of a question; `Ok` for a `Get`.
        result: Result<(), Outcome>,
    },
    /// A request of the peer: for [`super::answering::Answering::take`].
    Request(Body),
    /// Data, credit or end of the control stream.
    Control(Body),
    /// The connection has ended: [`Session::goodbye`] tells what to say last.
    Closed,
}

/// A question about an object, to which the session gives its number.
#[derive(Debug, Clone)]
pub enum Question {
    /// A question what an object is.
    Describe(wire::Describe),
    /// A question which pieces can be had.
    Watch(wire::Describe),
}

/// The parts of a question beside what the object is.
#[derive(Debug, Clone, Copy, Default)]
struct PendingQuestion {
    recipe: bool,
    samples: bool,
}

/// The state of one connection. See the head of this module.
pub struct Session {
    config: SessionConfig,
    live: Liveness,
    /// The peer's hello; none before it has come.
    greeting: Option<Greeting>,
    next_request: u32,
    gets: BTreeMap<u32, GetUnderWay>,
    ahead: Option<Ahead>,
    /// Open questions, and what they ask for.
    questions: BTreeMap<u32, PendingQuestion>,
    /// Requests that were sent and of which the peer has not said that they are done, given up or
    /// not: it counts them against its limit.
    sent: BTreeSet<u32>,
    /// Requests for which there is no room yet.
    waiting: VecDeque<(u32, Body)>,
    proved: BTreeSet<Oid>,
    round_trip: RoundTrip,
    suggested: u64,
    end: Option<RequestEnd>,
    effects: VecDeque<Effect>,
}

struct RequestEnd {
    why: Option<String>,
    silent: bool,
}

impl Session {
    /// A connection that stands at `now`. The first effect is the hello, which goes out before all
    /// else.
    pub fn new(config: SessionConfig, now: Instant) -> Self {
        let hello = Effect::Send(hello(&config));
        Self {
            // A person who copies sees both ends.
            live: Liveness::new(config.silence, now).watched(config.control),
            config,
            greeting: None,
            next_request: 1,
            gets: BTreeMap::new(),
            ahead: None,
            questions: BTreeMap::new(),
            sent: BTreeSet::new(),
            waiting: VecDeque::new(),
            proved: BTreeSet::new(),
            round_trip: RoundTrip::default(),
            suggested: 0,
            end: None,
            effects: [hello].into(),
        }
    }

    /// The next thing to be done.
    pub fn poll(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Shows the right to `root`, once on a connection: before what is asked by that right.
    pub fn prove(&mut self, root: &Oid, proof: &[u8; 32]) {
        if self.end.is_none() && self.proved.insert(*root) {
            let (root, proof) = (wire::oid_field(root), Bytes::copy_from_slice(proof));
            self.effects.push_back(Effect::Send(Body::Prove(Prove { root, proof })));
        }
    }

    /// Asks for data, now or once the peer's limit allows it; returns the request's number. Each
    /// want ends by a delivery or an outcome, then the request itself ends.
    pub fn get(&mut self, now: Instant, request: GetRequest) -> u32 {
        let number = self.number();
        let GetRequest { runs, message } = request;
        self.gets.insert(number, GetUnderWay::new(runs, Arc::clone(&self.config.source), now));
        let urgency = self.config.priority.into();
        self.put(number, Body::Get(wire::Get { request: number, urgency, ..message }));
        number
    }

    /// Ends a request of the peer at once, by these messages.
    pub fn refuse(&mut self, messages: [Body; 2]) {
        if self.end.is_none() {
            self.effects.extend(messages.map(Effect::Send));
        }
    }

    /// Puts a question, now or once the peer's limit allows it; returns the request's number.
    pub fn ask(&mut self, question: Question) -> u32 {
        let request = self.number();
        let pending = match &question {
            Question::Describe(question) => {
                PendingQuestion { recipe: question.recipe, samples: question.samples }
            }
            Question::Watch(_) => PendingQuestion::default(),
        };
        self.questions.insert(request, pending);
        let body = match question {
            Question::Describe(question) => Body::Describe(wire::Describe { request, ..question }),
            Question::Watch(question) => Body::Watch(wire::Describe { request, ..question }),
        };
        self.put(request, body);
        request
    }

    /// Cancels `Get`s that hold one of `tags`. What the peer does not deliver nevertheless ends as
    /// cancelled.
    pub fn cancel(&mut self, tags: &[Tag]) {
        let holds = |get: &GetUnderWay| !get.is_cancelled() && tags.iter().any(|&tag| get.holds(tag));
        let holding: Vec<u32> =
            self.gets.iter().filter(|(_, get)| holds(get)).map(|(&request, _)| request).collect();
        for request in holding {
            self.gets.get_mut(&request).into_iter().for_each(GetUnderWay::cancel);
            match self.withdraw(request) {
                true => self.finish(request, &Outcome::Cancelled, Ok(())),
                false => self.send_cancel(request),
            }
        }
    }

    /// Nobody waits for a request any more. If it has not ended, the peer gets a cancellation, and its wants end
    /// as "retry later".
    pub fn give_up(&mut self, request: u32) {
        let get = self.gets.get(&request);
        if get.is_none() && !self.questions.contains_key(&request) {
            return;
        }
        let is_told = get.is_some_and(GetUnderWay::is_cancelled);
        if !self.withdraw(request) && !is_told {
            self.send_cancel(request);
        }
        self.finish(request, &LOST, Err(LOST));
    }

    /// Takes a frame that [`super::incoming::Decoder`] understood. One that the protocol does not
    /// allow closes the connection.
    pub fn receive(&mut self, now: Instant, incoming: Incoming) {
        self.live.received(now);
        if self.end.is_some() {
            return;
        }
        let taken = match incoming {
            Incoming::Data { header, payload } => self.data(now, header, payload),
            Incoming::Answer(request, answer) => self.answer(request, Effect::Answer { request, answer }),
            Incoming::Ranges(request, ranges) => self.answer(request, Effect::Ranges { request, ranges }),
            Incoming::Message(Body::Delta(delta)) => self.delta(now, &delta),
            Incoming::Message(body) => self.message(now, body),
        };
        if let Err(why) = taken {
            self.close(Some(why));
        }
    }

    /// Length that the packed payload of a data frame must have; `None` if its request was given up.
    pub fn expected(&self, header: &DataHeader) -> Result<Option<usize>, Violation> {
        self.was_put(header.request)?;
        if self.ahead.as_ref().is_some_and(|ahead| ahead.request == header.request) {
            // Its length is not known, so it must tell.
            return Ok(self.greeting().in_parts.then_some(wire::MAX_PAYLOAD));
        }
        self.gets.get(&header.request).map(|get| get.expected(header)).transpose()
    }

    /// The connection has ended, or is to be closed: all that is under way ends. `why`, if there is
    /// a reason, is told the peer. Only the first end counts.
    pub fn close(&mut self, why: Option<String>) {
        self.finish_all(RequestEnd { why, silent: false });
    }

    /// Reason why the connection ended, if it has.
    pub fn ended(&self) -> Option<&str> {
        self.end.as_ref().map(|end| end.why.as_deref().unwrap_or("the connection was closed"))
    }

    /// The last message.
    pub fn goodbye(&self) -> Option<Body> {
        let reason = self.end.as_ref()?.why.clone()?;
        Some(Body::Goodbye(Goodbye { reason }))
    }

    /// True if the connection was lost because nothing came.
    pub fn was_silent(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end.silent)
    }

    /// True if the peer owes data that were asked for.
    pub fn awaits_data(&self) -> bool {
        !self.gets.is_empty()
    }

    /// Bytes that the peer last suggested to keep outstanding; 0 if it has no opinion.
    pub const fn suggested(&self) -> u64 {
        self.suggested
    }

    /// Liveness of the peer.
    pub const fn liveness(&self) -> &Liveness {
        &self.live
    }

    /// As [`Self::liveness`], for noting that bytes came or went, or that another silence is too
    /// long.
    pub const fn liveness_mut(&mut self) -> &mut Liveness {
        &mut self.live
    }

    /// Time at which [`Self::tick`] has something to do; `None` once the connection has ended.
    pub fn next_wake(&self) -> Option<Instant> {
        self.end.is_none().then(|| self.live.ping_due().min(self.live.lost_at()))
    }

    /// The time of [`Self::next_wake`] has come.
    pub fn tick(&mut self, now: Instant) {
        self.check_silence(now);
        self.keep_alive(now);
    }

    /// Sends a ping if nothing went out for long.
    pub fn keep_alive(&mut self, now: Instant) {
        if self.end.is_none() && now >= self.live.ping_due() {
            self.live.spoke(now);
            self.effects.push_back(Effect::Send(Body::Ping(Ping::default())));
        }
    }

    /// Closes a connection on which nothing came for too long.
    pub fn check_silence(&mut self, now: Instant) {
        if self.end.is_none() && now >= self.live.lost_at() {
            let why = format!("not a byte came for {:?}", self.live.silence());
            self.finish_all(RequestEnd { why: Some(why), silent: true });
        }
    }

    fn number(&mut self) -> u32 {
        let number = self.next_request;
        match number.checked_add(1) {
            Some(next) => self.next_request = next,
            None => self.close(Some("this connection has no request numbers left".into())),
        }
        number
    }

    fn put(&mut self, request: u32, body: Body) {
        if self.end.is_some() {
            return self.finish(request, &LOST, Err(LOST));
        }
        self.waiting.push_back((request, body));
        self.fill();
    }

    /// Sends what there is room for.
    fn fill(&mut self) {
        while self.sent.len() < MAX_REQUESTS
            && let Some((request, body)) = self.waiting.pop_front()
        {
            self.sent.insert(request);
            self.effects.push_back(Effect::Send(body));
        }
    }

    /// Takes back a request that was not sent yet; false if it was.
    fn withdraw(&mut self, request: u32) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|(waiting, _)| *waiting != request);
        self.waiting.len() < before
    }

    fn send_cancel(&mut self, request: u32) {
        self.effects.push_back(Effect::Send(Body::Cancel(RequestOnly { request })));
    }

    /// Ends a request for whoever asked: a `Get` with this outcome of wants that have not ended, a
    /// question with this result.
    fn finish(&mut self, request: u32, outcome: &Outcome, result: Result<(), Outcome>) {
        if let Some(mut get) = self.gets.remove(&request) {
            let effects = &mut self.effects;
            effects
                .extend(get.take_partial_piece().map(|delivery| Effect::PartialPiece { request, delivery }));
            get.end_all(outcome, |tag, outcome| {
                effects.push_back(Effect::Outcome { request, tag, outcome });
            });
            self.effects.push_back(Effect::Ended { request, result: Ok(()) });
        } else if self.questions.remove(&request).is_some() {
            self.effects.push_back(Effect::Ended { request, result });
        }
    }

    fn finish_all(&mut self, end: RequestEnd) {
        if self.end.is_some() {
            return;
        }
        self.end = Some(end);
        self.waiting.clear();
        self.ahead = None;
        let open: BTreeSet<u32> = self.gets.keys().chain(self.questions.keys()).copied().collect();
        for request in open {
            self.finish(request, &LOST, Err(LOST));
        }
        self.effects.push_back(Effect::Closed);
    }

    fn message(&mut self, now: Instant, body: Body) -> Result<(), String> {
        match body {
            Body::Hello(hello) => self.hello(now, &hello),
            Body::Ping(ping) => self.ping(now, &ping),
            Body::Goodbye(goodbye) => Err(format!("{PEER_CLOSED}{}", wire::printable(&goodbye.reason))),
            Body::Proof(proof) => match self.ahead(proof.request) {
                Some(ahead) => {
                    ahead.proof(proof);
                    Ok(())
                }
                None => self.with_get(proof.request, |get| get.proof(proof)),
            },
            Body::Recipe(part) => self.recipe(part),
            Body::Samples(samples) => self.samples(samples),
            Body::Outcome(outcome) => self.outcome(&outcome),
            Body::Done(done) => self.done(done.request),
            Body::ControlData(_) | Body::ControlCredit(_) | Body::ControlEnd(_) => {
                match self.config.control {
                    true => self.pass_on(Effect::Control(body)),
                    false => Err("spoke on a control stream that is not there".into()),
                }
            }
            request => match self.config.serves {
                true => self.pass_on(Effect::Request(request)),
                false => Err("asked a service that only receives".into()),
            },
        }
    }

    fn pass_on(&mut self, effect: Effect) -> Result<(), String> {
        self.effects.push_back(effect);
        Ok(())
    }

    /// A request that was put and is not under way was given up meanwhile.
    fn was_put(&self, request: u32) -> Result<(), Violation> {
        let was_numbered = (1..self.next_request).contains(&request);
        let is_waiting = || self.waiting.iter().any(|(waiting, _)| *waiting == request);
        match self.sent.contains(&request) || was_numbered && !is_waiting() {
            true => Ok(()),
            false => Err(Violation::Unasked),
        }
    }

    /// Hands an answer to its question; a question given up meanwhile needs none.
    fn answer(&mut self, request: u32, answer: Effect) -> Result<(), String> {
        self.was_put(request).map_err(|violation| violation.to_string())?;
        match self.questions.contains_key(&request) {
            true => self.pass_on(answer),
            false => Ok(()),
        }
    }

    fn samples(&mut self, samples: wire::Samples) -> Result<(), String> {
        let wire::Samples { request, first, bytes } = samples;
        if self.questions.get(&request).is_some_and(|question| !question.samples) {
            return Err("sent samples that were not asked for".into());
        }
        if bytes.is_empty() || bytes.len() > wire::MAX_SAMPLES {
            return Err("sent too many or no samples at once".into());
        }
        self.answer(request, Effect::Answer { request, answer: Description::Samples { first, bytes } })
    }

    fn recipe(&mut self, part: wire::Recipe) -> Result<(), String> {
        let wire::Recipe { request, root, nodes } = part;
        if self.questions.get(&request).is_some_and(|question| !question.recipe) {
            return Err("sent a recipe that was not asked for".into());
        }
        let maker = Arc::clone(&self.config.source);
        let answer = Description::Recipe(RecipePart { maker, root, nodes });
        self.answer(request, Effect::Answer { request, answer })
    }

    fn with_get(
        &mut self,
        request: u32,
        f: impl FnOnce(&mut GetUnderWay) -> Result<(), Violation>,
    ) -> Result<(), String> {
        let taken = self.was_put(request).and_then(|()| self.gets.get_mut(&request).map_or(Ok(()), f));
        taken.map_err(|violation| violation.to_string())
    }

    fn outcome(&mut self, message: &WireOutcome) -> Result<(), String> {
        let request = message.request;
        self.was_put(request).map_err(|violation| violation.to_string())?;
        if self.questions.contains_key(&request) {
            self.finish(request, &LOST, Err(message.outcome()));
            return Ok(());
        }
        if self.ahead(request).is_some() {
            // A peer that wants it asks again, and learns why it can't be had.
            self.ahead = None;
        }
        let Some(get) = self.gets.get_mut(&request) else { return Ok(()) };
        let effects = &mut self.effects;
        let taken =
            get.outcome(message, |tag, outcome| effects.push_back(Effect::Outcome { request, tag, outcome }));
        taken.map_err(|violation| violation.to_string())
    }

    fn done(&mut self, request: u32) -> Result<(), String> {
        self.was_put(request).map_err(|violation| violation.to_string())?;
        self.sent.remove(&request);
        if let Some(ahead) = self.ahead(request) {
            ahead.is_done = true;
        }
        // After a cancellation some wants end only here.
        self.finish(request, &Outcome::Cancelled, Ok(()));
        self.fill();
        Ok(())
    }

    fn data(&mut self, now: Instant, header: DataHeader, payload: Option<Bytes>) -> Result<(), String> {
        self.was_put(header.request).map_err(|violation| violation.to_string())?;
        if header.suggested > 0 {
            self.suggested = header.suggested.into();
        }
        if let Some(ahead) = self.ahead(header.request) {
            if !payload.is_some_and(|payload| ahead.data(header, payload)) {
                self.give_up_ahead();
            }
            return Ok(());
        }
        let (Some(get), Some(payload)) = (self.gets.get_mut(&header.request), payload) else { return Ok(()) };
        let deliveries = get.data(now, header, payload).map_err(|violation| violation.to_string())?;
        self.hand_on(header.request, deliveries);
        Ok(())
    }

    fn delta(&mut self, now: Instant, message: &wire::Delta) -> Result<(), String> {
        let request = message.request;
        self.was_put(request).map_err(|violation| violation.to_string())?;
        let Some(get) = self.gets.get_mut(&request) else { return Ok(()) };
        let effects = &mut self.effects;
        let end = |tag, outcome| effects.push_back(Effect::Outcome { request, tag, outcome });
        let deliveries = get.delta(now, message, end).map_err(|violation| violation.to_string())?;
        self.hand_on(request, deliveries);
        Ok(())
    }

    fn hand_on(&mut self, request: u32, deliveries: Vec<Delivery>) {
        self.effects.extend(deliveries.into_iter().map(|delivery| Effect::Delivery { request, delivery }));
    }
}

#[cfg(test)]
mod tests;
