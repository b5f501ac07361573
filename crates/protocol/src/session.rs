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
//!
//! | module | story |
//! |---|---|
//! | `outbox` | what is to be done, and requests that wait for room |
//! | `gets`, `ahead` | what was asked for, and a first piece that nobody wants yet |
//! | `entries` | what was asked for of the other side's offer |
//! | `questions` | what was asked about objects |
//! | `uses` | which transfers of this side use the connection |
//! | `config`, `effect` | how this side behaves; what a caller asks and has to do |
//! | `greeting`, `round_trip` | the hellos; how far the peer is |

mod ahead;
mod config;
mod effect;
mod entries;
mod gets;
mod greeting;
mod outbox;
mod questions;
mod round_trip;
mod uses;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bytes::Bytes;
use towpath_content::Oid;
use towpath_transfer::offer::EntryWant;
use towpath_transfer::{Outcome, SourceId, Tag, Want};

use self::ahead::Ahead;
pub use self::config::SessionConfig;
use self::effect::LOST;
pub use self::effect::{Effect, Encoded, Question};
use self::entries::OpenEntries;
use self::gets::OpenGets;
pub use self::greeting::Greeting;
use self::greeting::{hello, link_of};
use self::outbox::SessionOutbox;
use self::questions::OpenQuestions;
pub use self::round_trip::MOST_ANSWERS;
use self::round_trip::RoundTrip;
use self::uses::PeerUses;
use super::incoming::Incoming;
use super::liveness::Liveness;
use super::requests::{GetRequest, Violation};
use super::wire::{self, Body, DataHeader, Goodbye, Hello, MAX_ROOTS, Ping, Prove};

/// Prefix of the reason if the peer closed a connection.
pub const PEER_CLOSED: &str = "the peer closed: ";
/// The state of one connection. See the head of this module.
pub struct Session {
    config: SessionConfig,
    live: Liveness,
    /// The peer's hello; none before it has come.
    greeting: Option<Greeting>,
    gets: OpenGets,
    entries: OpenEntries,
    questions: OpenQuestions,
    proved: BTreeMap<Oid, [u8; 32]>,
    /// Withdrawals that came.
    withdrawals: usize,
    /// Messages about who serves that came.
    holders: usize,
    round_trip: RoundTrip,
    /// Transfers of this side that use it.
    pub(super) uses: PeerUses,
    end: Option<SessionEnd>,
    outbox: SessionOutbox,
}

/// The end of a connection.
struct SessionEnd {
    why: Option<String>,
}

impl Session {
    /// A connection that stands at `now`. The first effect is the hello, which goes out before all
    /// else.
    pub fn new(config: SessionConfig, now: Instant) -> Self {
        Self {
            // A person who copies sees both ends.
            live: Liveness::new(config.silence, now).watched(config.control),
            greeting: None,
            gets: OpenGets::new(config.source.clone()),
            entries: OpenEntries::default(),
            questions: OpenQuestions::default(),
            proved: BTreeMap::new(),
            withdrawals: 0,
            holders: 0,
            round_trip: RoundTrip::new(config.measures),
            uses: PeerUses::default(),
            end: None,
            outbox: SessionOutbox::new(hello(&config)),
            config,
        }
    }

    /// The next thing to be done.
    pub fn poll(&mut self) -> Option<Effect> {
        self.outbox.poll()
    }

    /// Shows the right to `root`, once on a connection: before what is asked by that right. False if it can't be shown here: a
    /// right to it by another ticket was, or there is no room for more.
    pub fn prove(&mut self, root: &Oid, proof: &[u8; 32]) -> bool {
        if let Some(known) = self.proved.get(root) {
            return known == proof;
        }
        if self.proved.len() >= MAX_ROOTS {
            return false;
        }
        if self.end.is_none() {
            self.proved.insert(*root, *proof);
            let (root, proof) = (wire::oid_field(root), Bytes::copy_from_slice(proof));
            self.outbox.send(Body::Prove(Prove { root, proof }));
        }
        true
    }

    /// Asks for data, now or once the peer's limit allows it; returns the request's number. Each
    /// want ends by a delivery or an outcome, then the request itself ends.
    pub fn get(&mut self, now: Instant, request: GetRequest) -> u32 {
        self.put(|session, number| {
            let urgency = session.config.priority.into();
            Body::Get(wire::Get { urgency, ..session.gets.begin(now, number, request) })
        })
    }

    /// Asks for entries, now or once the peer's limit allows it; returns the request's number. There is at least one, at most
    /// [`wire::MAX_ENTRIES`], and what may come with the names is the same for all. Each ends by a content that does not come in
    /// parts, or by an outcome; then, or with the last runs, the request itself ends.
    pub fn get_entries(&mut self, wants: &[EntryWant]) -> u32 {
        self.put(|session, request| {
            let urgency = session.config.priority.into();
            Body::Get(wire::Get { urgency, ..session.entries.begin(request, wants) })
        })
    }

    /// Sends the next signature of an entry's base, behind the request for it, unless that is over.
    pub fn sign(&mut self, request: u32, want: u32, signature: Bytes) {
        self.entries.sign(request, want, signature, &mut self.outbox);
    }

    /// Contents or a run that count for so much were taken.
    pub fn took(&mut self, cost: usize) {
        if self.end.is_none() {
            self.entries.took(cost, &mut self.outbox);
        }
    }

    /// Asks for the first piece of an object of which nothing is known yet, for [`Self::claim`]. If it may not be wanted after all,
    /// no more of it is to come.
    pub fn get_ahead(&mut self, now: Instant, root: &Oid, (oid, may_be_wanted): (&Oid, bool)) {
        if !may_be_wanted {
            return self.gets.stop_ahead(oid, &mut self.outbox);
        }
        self.gets.give_up_ahead(&mut self.outbox);
        if self.end.is_some() {
            return;
        }
        let (root, wants) = (wire::oid_field(root), vec![Ahead::wire_want(oid)]);
        self.put(|session, request| {
            session.gets.ahead = Some(Ahead::new(*oid, request, now));
            let urgency = session.config.priority.into();
            Body::Get(wire::Get { request, root, wants, urgency, ..wire::Get::default() })
        });
    }

    /// If a piece that is wanted was asked for ahead, takes its want out of `wants`, and returns the number
    /// of the request that it is under way by, which ends as if it had been asked for now. If only
    /// others of that object are wanted, that piece is given up.
    pub fn claim(&mut self, now: Instant, wants: &mut Vec<Want>) -> Option<u32> {
        let (request, taken) = self.gets.claim(now, wants, &mut self.outbox)?;
        if let Err(violation) = taken {
            self.close(Some(violation.to_string()));
        }
        Some(request)
    }

    /// Says this to the peer at once, in answer to a request or because it should know; messages that it would not know are
    /// left out.
    pub fn reply(&mut self, messages: impl IntoIterator<Item = Body>) {
        if self.end.is_none() {
            let Greeting { has_withdrawals, has_holders, answers, .. } = self.greeting();
            let is_known = |message: &Body| match message {
                Body::Withdrawn(_) => has_withdrawals,
                Body::Serves(_) | Body::Holder(_) => has_holders,
                Body::Finished(_) => answers,
                _ => true,
            };
            messages.into_iter().filter(is_known).for_each(|message| self.outbox.send(message));
        }
    }

    /// Puts a question, now or once the peer's limit allows it; returns the request's number. One that the peer, whose hello has come,
    /// would not know ends at once: it is not here.
    pub fn ask(&mut self, question: Question) -> u32 {
        if matches!(question, Question::Bring(_)) && !self.greeting().brings {
            let request = self.outbox.number();
            self.questions.begin(request, question);
            self.questions.finish(request, Err(Outcome::NotHere), &mut self.outbox);
            return request;
        }
        self.put(|session, request| session.questions.begin(request, question))
    }

    /// Cancels wants of `user`. What the peer does not deliver nevertheless ends as cancelled. One that shares a run of bytes
    /// with others that are needed comes with them.
    pub fn cancel(&mut self, user: u64, tags: &[Tag]) {
        self.gets.cancel(user, tags, &mut self.outbox);
    }

    /// Nobody waits for a request any more. If it has not ended, the peer gets a cancellation, and its wants end
    /// as "retry later".
    pub fn give_up(&mut self, request: u32) {
        let request = self.gets.current(request);
        let is_told = match self.gets.is_cancelled(request) {
            None if !self.questions.contains(request) && !self.entries.contains(request) => return,
            is_cancelled => is_cancelled.unwrap_or(false),
        };
        match is_told {
            true => self.outbox.withdraw(request),
            false => self.outbox.cancel(request),
        };
        self.finish(request);
    }

    /// Takes a frame that [`super::incoming::Decoder`] understood. One that the protocol does not
    /// allow closes the connection.
    pub fn receive(&mut self, now: Instant, incoming: Incoming) {
        self.live.received(now);
        if self.end.is_some() {
            return;
        }
        let (gets, questions, outbox) = (&mut self.gets, &self.questions, &mut self.outbox);
        let entries = &mut self.entries;
        let text = |violation: Violation| violation.to_string();
        let taken = match incoming {
            Incoming::Data { header, payload } => gets.data(now, (header, payload), outbox).map_err(text),
            Incoming::Answer(request, answer) => {
                questions.answer(request, Effect::Answer { request, answer }, outbox)
            }
            Incoming::Ranges(request, ranges) => {
                questions.answer(request, Effect::Ranges { request, ranges }, outbox)
            }
            Incoming::Contents(came) => entries.contents(came, outbox).map_err(text),
            Incoming::Run { run, cost } => entries.run(run, cost, outbox).map_err(text),
            Incoming::Message(Body::Delta(delta)) => gets.delta(now, &delta, outbox).map_err(text),
            Incoming::Message(body) => self.message(now, body),
        };
        if let Err(why) = taken {
            self.close(Some(why));
        }
    }

    /// Length that the packed payload of a data frame must have; `None` if its request was given up.
    pub fn expected(&self, header: &DataHeader) -> Result<Option<usize>, Violation> {
        self.outbox.was_put(header.request)?;
        self.gets.expected(header, self.greeting().in_parts)
    }

    /// The connection has ended, or is to be closed: all that is under way ends. `why`, if there is
    /// a reason, is told the peer. Only the first end counts.
    pub fn close(&mut self, why: Option<String>) {
        if self.end.is_some() {
            return;
        }
        self.end = Some(SessionEnd { why });
        self.outbox.clear();
        self.gets.ahead = None;
        let others = self.entries.numbers().chain(self.questions.numbers());
        let open: BTreeSet<u32> = self.gets.numbers().chain(others).collect();
        open.into_iter().for_each(|request| self.finish(request));
        self.outbox.push(Effect::Closed);
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

    /// The peer's capabilities: none before its hello has come.
    pub fn greeting(&self) -> Greeting {
        self.greeting.unwrap_or_default()
    }

    /// Name of the peer in deliveries. That the peer's hello names the link is known once it has come.
    pub const fn source(&self) -> &SourceId {
        &self.config.source
    }

    /// The shortest round trip of the first ones, if this connection measures it and enough are known.
    pub fn round_trip(&self) -> Option<Duration> {
        self.round_trip.get()
    }

    /// True if the peer owes data that were asked for.
    pub fn awaits_data(&self) -> bool {
        !self.gets.is_empty()
    }

    /// Bytes that the peer last suggested to keep outstanding; 0 if it has no opinion.
    pub const fn suggested(&self) -> u64 {
        self.gets.suggested()
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

    /// The time of [`Self::next_wake`] has come: a connection on which nothing came for too long is closed. Not to be called while
    /// nobody reads.
    pub fn tick(&mut self, now: Instant) {
        if self.end.is_none() && self.live.lose(now) {
            self.close(Some(format!("not a byte came for {:?}", self.live.silence())));
        }
        self.keep_alive(now);
    }

    /// Sends a ping if nothing went out for long.
    pub fn keep_alive(&mut self, now: Instant) {
        if self.end.is_none() && now >= self.live.ping_due() {
            self.live.spoke(now);
            self.outbox.send(Body::Ping(Ping::default()));
        }
    }

    /// Gives a request its number; `begin` notes it and makes its message, which is sent now or once there is room.
    fn put(&mut self, begin: impl FnOnce(&mut Self, u32) -> Body) -> u32 {
        let request = self.outbox.number();
        if request == u32::MAX {
            self.close(Some("this connection has no request numbers left".into()));
        }
        let body = begin(self, request);
        match self.end {
            Some(_) => self.finish(request),
            None => self.outbox.put(request, body),
        }
        request
    }

    /// Ends a request for whoever asked, as the connection will not answer it.
    fn finish(&mut self, request: u32) {
        let outbox = &mut self.outbox;
        if !self.gets.finish(request, &LOST, outbox) && !self.entries.finish(request, outbox) {
            self.questions.finish(request, Err(LOST), &mut self.outbox);
        }
    }

    fn message(&mut self, now: Instant, body: Body) -> Result<(), String> {
        let (gets, questions, outbox) = (&mut self.gets, &mut self.questions, &mut self.outbox);
        let entries = &mut self.entries;
        let text = |violation: Violation| violation.to_string();
        match body {
            Body::Hello(hello) => return self.hello(now, &hello),
            Body::Ping(ping) => self.round_trip.ping(now, &ping, outbox),
            Body::Goodbye(goodbye) => {
                return Err(format!("{PEER_CLOSED}{}", wire::printable(&goodbye.reason)));
            }
            Body::Proof(proof) => gets.proof(proof, outbox).map_err(text)?,
            Body::Recipe(part) => questions.recipe(part, &self.config.source, outbox)?,
            Body::Samples(samples) => questions.samples(samples, outbox)?,
            Body::Outcome(outcome) => {
                outbox.was_put(outcome.request).map_err(text)?;
                let is_question = questions.finish(outcome.request, Err(outcome.outcome()), outbox);
                if !is_question && !entries.outcome(&outcome, outbox).map_err(text)? {
                    gets.outcome(&outcome, outbox).map_err(text)?;
                }
            }
            Body::Done(done) => return answered(self, now, done.request).map_err(text),
            Body::Withdrawn(withdrawn) => {
                self.withdrawals += 1;
                match self.withdrawals <= wire::MAX_WITHDRAWALS {
                    true => outbox.push(Effect::Withdrawn(withdrawn)),
                    false => return Err("told too many withdrawals".into()),
                }
            }
            Body::Holder(_) | Body::Serves(_) if self.holders == wire::MAX_HOLDERS => {
                return Err("told too often who serves".into());
            }
            Body::Holder(holder) => {
                self.holders += 1;
                outbox.push(Effect::Holder(holder));
            }
            Body::ControlData(_) | Body::ControlCredit(_) | Body::ControlEnd(_) => {
                match self.config.control {
                    true => outbox.push(Effect::Control(body)),
                    false => return Err("spoke on a control stream that is not there".into()),
                }
            }
            request => match self.config.serves {
                true => {
                    self.holders += usize::from(matches!(request, Body::Serves(_)));
                    outbox.push(Effect::Request(request));
                }
                false => return Err("asked a service that only receives".into()),
            },
        }
        Ok(())
    }

    fn hello(&mut self, now: Instant, hello: &Hello) -> Result<(), String> {
        if self.greeting.is_some() {
            return Err("sent a second hello".into());
        }
        let (greeting, greeted) = Greeting::taken(&self.config, hello)?;
        self.greeting = Some(greeting);
        if self.config.tells_link && self.config.source.path().is_none() {
            self.config.source = source_by(&self.config.source, link_of(hello));
            self.gets.come_from(self.config.source.clone());
        }
        self.round_trip.measure(now, &mut self.outbox);
        self.outbox.push(greeted);
        Ok(())
    }
}

/// The peer is done with a request. The next steps of what came in part are requested, for whoever asked.
fn answered(session: &mut Session, now: Instant, request: u32) -> Result<(), Violation> {
    session.outbox.was_put(request)?;
    session.outbox.done(request);
    if let Some(next) = session.gets.next_steps(request) {
        session.put(|session, by| {
            session.outbox.push(Effect::GoesOn { request, by });
            let urgency = session.config.priority.into();
            Body::Get(wire::Get { urgency, ..session.gets.begin(now, by, next) })
        });
    }
    session.gets.done(request, &mut session.outbox);
    session.entries.finish(request, &mut session.outbox);
    session.questions.finish(request, Ok(()), &mut session.outbox);
    session.outbox.fill();
    Ok(())
}

/// The same peer by a link.
fn source_by(source: &SourceId, link: Option<&str>) -> SourceId {
    source.node().map_or_else(|| source.clone(), |node| SourceId::peer_by(*node, link))
}

#[cfg(test)]
mod tests;
