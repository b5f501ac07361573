//! The answering half of one connection at work: [`Answering`] decides, threads answer.
//!
//! One thread, from the first request on that has an answer, answers a peer's requests in turn, more urgent ones first (`super::turns`), and sends
//! batches of frames to the writer task through a short queue, so a peer that does not read holds a few
//! hundred kilobytes and one thread that sleeps. A further one hands questions for entries to the offer. Each followed object takes a further thread, which waits for the store, and so does each
//! recipe that is asked for, as it may have to be made.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use towpath_content::{NodeId, Oid};
use towpath_link::{PathProbe, unsent_limit};
use towpath_transfer::Outcome;

use super::answering::{Answer, Answering, KEPT_WAIT, Taken};
use super::asks::EntryAsk;
use super::outgoing::{self, Outbox, Outgoing};
use super::replies::Replies;
use super::served::Served;
use super::service::{Service, Serving};
use super::session::Encoded;
use super::step::Step;
use super::turns::TurnTaken;
use super::window::SendWindow;
use super::wire::{Body, MAX_REQUESTS};
use crate::processors::Processors;

/// Bytes of frames handed to the writer task at once.
const BATCH: usize = 256 << 10;
/// Interval at which the kernel is asked about the path, while data go out.
const LOOK: Duration = Duration::from_millis(10);
/// Interval at which a follower looks whether its connection is still there.
const FOLLOW_TICK: Duration = Duration::from_millis(500);

/// The answering half of one connection. Dropping it ends its threads.
pub struct Conversation {
    shared: Arc<SharedConversation>,
    /// To the thread that answers, once there is one.
    answers: OnceLock<mpsc::Sender<RequestQueued>>,
    /// To the thread that hands questions to the offer, once there is one.
    asks: OnceLock<mpsc::Sender<Vec<EntryAsk>>>,
}

/// The immediate outcome of a request.
pub(super) struct RequestOutcome {
    /// Messages that answer it.
    pub(super) replies: Vec<Body>,
    /// The peer had a right to something, now or before.
    pub(super) is_known: bool,
}

/// An answer that is to be given.
struct RequestQueued {
    answer: Answer,
    /// Of a `Get`: its place among those of its node.
    turn: Option<TurnTaken>,
}

/// Requests that wait for the thread that answers.
struct RequestLine {
    inbox: mpsc::Receiver<RequestQueued>,
    /// In the order in which it was asked.
    waiting: VecDeque<RequestQueued>,
}

/// State that the threads share.
struct SharedConversation {
    service: Arc<Service>,
    node: NodeId,
    served: Arc<Served>,
    outboxes: Outboxes,
    probe: PathProbe,
    /// Limit of bytes that wait unsent in the kernel, as last set.
    unsent: Mutex<Option<u32>>,
    state: Arc<Mutex<Answering>>,
    replies: Arc<Replies>,
}

/// Queues for answers.
pub(super) struct Outboxes {
    /// Those to questions, which go before data: nothing that is asked for in vain holds them up.
    pub(super) answers: Outbox,
    /// Those to `Get`s.
    pub(super) data: Outbox,
}

impl Conversation {
    /// Begins to answer one peer.
    pub(super) fn start(
        service: Arc<Service>,
        (node, served): (NodeId, Arc<Served>),
        binding: [u8; 32],
        processors: Processors,
        (outboxes, contents): (Outboxes, SendWindow),
        probe: PathProbe,
    ) -> Self {
        let state = Arc::new(Mutex::new(Answering::new(node, binding, processors)));
        let replies = Arc::new(Replies::new(Arc::clone(&state) as _, contents));
        let shared = Arc::new(SharedConversation {
            service,
            node,
            served,
            outboxes,
            probe,
            unsent: Mutex::new(None),
            state,
            replies,
        });
        Self { shared, answers: OnceLock::new(), asks: OnceLock::new() }
    }

    /// Sets the encoding of data.
    pub fn encode(&self, encoding: Encoded) {
        self.shared.state().encode(encoding);
    }

    /// Takes credit of contents. An error is a reason to close the connection.
    pub(super) fn give_back(&self, bytes: u64) -> Result<(), String> {
        self.shared.replies.give_back(bytes)
    }

    /// Takes a request. An error is a reason to close the connection.
    pub(super) fn request(&self, body: Body) -> Result<RequestOutcome, String> {
        let root = match &body {
            Body::Get(get) => Oid::from_bytes(&get.root).ok(),
            _ => None,
        };
        let (is_waited_for, mut state) =
            (matches!(body, Body::Signature(_) | Body::Cancel(_)), self.shared.state());
        state.set_offer(self.shared.service.offer().is_some());
        let taken = state.take(body, self.shared.service.issuer())?;
        let is_known = state.is_known();
        drop(state);
        if is_waited_for {
            self.shared.replies.wake();
        }
        if let (Some(root), Taken::Answer(_)) = (root, &taken) {
            self.shared.served.requested(&root);
        }
        let replies = match taken {
            Taken::Nothing => Vec::new(),
            Taken::Refused(messages) => messages,
            Taken::Cancelled(outcome) => vec![outcome],
            Taken::Answer(answer) => self.answer(answer).map(|()| Vec::new())?,
            Taken::Entries(asks) => self.ask(asks).map(|()| Vec::new())?,
        };
        Ok(RequestOutcome { replies, is_known })
    }

    fn answer(&self, answer: Answer) -> Result<(), String> {
        if answer.takes_long() {
            let shared = Arc::clone(&self.shared);
            let queued = RequestQueued { answer, turn: None };
            tokio::task::spawn_blocking(move || {
                shared.give(queued, &mut shared.serving(), |_| true).is_none()
            });
            return Ok(());
        }
        let turns = self.shared.service.turns();
        let turn = answer.priority().map(|priority| turns.enter(self.shared.node, priority));
        let answers = self.answers.get_or_init(|| self.shared.answer_in_turn());
        // There is room: no more requests are under way than the queue holds.
        answers
            .try_send(RequestQueued { answer, turn })
            .map_err(|_| "the service is shutting down".to_owned())
    }

    fn ask(&self, asks: Vec<EntryAsk>) -> Result<(), String> {
        let to_offer = self.asks.get_or_init(|| self.shared.ask_in_turn());
        // There is room, as for answers.
        to_offer.try_send(asks).map_err(|_| "the service is shutting down".to_owned())
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        self.shared.state().close();
        self.shared.replies.close();
    }
}

impl SharedConversation {
    fn state(&self) -> MutexGuard<'_, Answering> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the thread that gives the answers it is sent, until nobody sends more.
    fn answer_in_turn(self: &Arc<Self>) -> mpsc::Sender<RequestQueued> {
        let (answers, inbox) = mpsc::channel(MAX_REQUESTS);
        let shared = Arc::clone(self);
        tokio::task::spawn_blocking(move || {
            let mut serving = shared.serving();
            let mut line = RequestLine { inbox, waiting: VecDeque::new() };
            while let Some(queued) = line.next(&shared) {
                if let Some(queued) = shared.give(queued, &mut serving, |queued| line.goes_on(queued)) {
                    line.waiting.push_front(queued);
                }
            }
        });
        answers
    }

    /// Starts the thread that hands questions to the offer, until nobody sends more.
    fn ask_in_turn(self: &Arc<Self>) -> mpsc::Sender<Vec<EntryAsk>> {
        let (asks, mut inbox) = mpsc::channel::<Vec<EntryAsk>>(MAX_REQUESTS);
        let shared = Arc::clone(self);
        tokio::task::spawn_blocking(move || {
            while let Some(asks) = inbox.blocking_recv() {
                shared.offer(asks);
            }
        });
        asks
    }

    /// Has the questions of one request answered, unless the peer has given it up.
    fn offer(&self, asks: Vec<EntryAsk>) {
        let is_over = asks.first().is_none_or(|ask| self.is_over(ask.tag.request));
        match self.service.offer().filter(|_| !is_over) {
            Some(offer) => offer.answer(asks, &self.replies),
            None => {
                let outcome = Outcome::RetryLater(KEPT_WAIT);
                asks.iter().for_each(|ask| self.replies.refuse(ask.tag, &outcome));
            }
        }
    }

    fn serving(&self) -> Serving {
        Serving::new(Arc::clone(&self.service), self.node).noting(Arc::clone(&self.served))
    }

    fn is_over(&self, request: u32) -> bool {
        self.state().is_over(request)
    }

    /// Gives an answer to its end, or until nobody wants more of it, or until it no longer `goes_on`:
    /// then it is returned.
    fn give(
        &self,
        mut queued: RequestQueued,
        serving: &mut Serving,
        mut goes_on: impl FnMut(&RequestQueued) -> bool,
    ) -> Option<RequestQueued> {
        let (request, mut looked) = (queued.answer.request(), Instant::now());
        self.look(serving);
        let mut batch = self.batch(&queued.answer);
        while !self.is_over(request) {
            if !goes_on(&queued) {
                batch.flush();
                return Some(queued);
            }
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                self.look(serving);
            }
            batch.at_most = serving.sending().frame_len();
            let mut sent = 0;
            let step = queued.answer.step(serving, &mut |frame| {
                sent += frame.len() as u64;
                self.served.sent(frame.payload_len());
                batch.push(frame);
            });
            queued.turn.iter().for_each(|turn| turn.went(sent));
            match step {
                Step::More => {}
                Step::Wait { oid, seen } => {
                    batch.flush();
                    self.wait(request, &oid, seen);
                }
                Step::Over => break,
            }
        }
        batch.flush();
        // Before the peer can know of it, its number is free again.
        let done = self.state().end(request);
        batch.push(Outgoing::control(done));
        batch.flush();
        None
    }

    fn batch(&self, answer: &Answer) -> AnswerBatch<'_> {
        let outbox = match answer {
            Answer::Get(_) => &self.outboxes.data,
            Answer::Question(_) => &self.outboxes.answers,
        };
        let given_up = self.state().given_up(answer.request());
        AnswerBatch { outbox, given_up, frames: Vec::new(), bytes: 0, at_most: BATCH }
    }

    /// Asks the kernel how the path is, and tells it how much may wait there.
    fn look(&self, serving: &mut Serving) {
        let path = self.probe.read();
        serving.look(path);
        let Some(limit) = path.as_ref().map(unsent_limit) else { return };
        let mut unsent = self.unsent.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *unsent, limit) != limit {
            self.probe.limit_unsent(limit);
        }
    }

    /// Blocks until the object changes or the peer no longer asks.
    fn wait(&self, request: u32, oid: &Oid, seen: u64) {
        while !self.is_over(request) && self.service.store().wait_change(oid, seen, FOLLOW_TICK) == seen {}
    }
}

impl RequestLine {
    /// Waits for the next answer to give or to go on with; `None` when the connection has ended.
    fn next(&mut self, shared: &SharedConversation) -> Option<RequestQueued> {
        loop {
            self.take_in();
            if self.waiting.is_empty() {
                return self.inbox.blocking_recv();
            }
            let is_over = |queued: &RequestQueued| shared.is_over(queued.answer.request());
            if let Some(at) = self.waiting.iter().position(is_over).or_else(|| self.choose()) {
                return self.waiting.remove(at);
            }
            // Another connection of the node sends what is more urgent.
            self.waiting.iter().find_map(|queued| queued.turn.as_ref()).into_iter().for_each(TurnTaken::wait);
        }
    }

    fn take_in(&mut self) {
        while let Ok(queued) = self.inbox.try_recv() {
            self.waiting.push_back(queued);
        }
    }

    /// Of those that may go the most urgent, or a less urgent one if that has its rare turn; of equals
    /// the first.
    fn choose(&self) -> Option<usize> {
        if !self.waiting.iter().any(RequestQueued::is_contended) {
            return Some(0);
        }
        let able = || self.waiting.iter().enumerate().filter(|(_, queued)| queued.may_go());
        let most = able().map(|(_, queued)| queued.priority()).max()?;
        let has_turn = |queued: &RequestQueued| queued.priority() == most || queued.owes_nothing();
        let chosen =
            able().filter(|(_, queued)| has_turn(queued)).min_by_key(|(_, queued)| queued.priority());
        chosen.map(|(at, _)| at)
    }

    /// True if the answer that is being given is still the one to give.
    fn goes_on(&mut self, queued: &RequestQueued) -> bool {
        if !queued.is_contended() {
            return true;
        }
        self.take_in();
        let precedes = |other: &RequestQueued| match other.priority().cmp(&queued.priority()) {
            Ordering::Less => other.may_go() && other.owes_nothing(),
            Ordering::Equal => false,
            Ordering::Greater => other.may_go() && !queued.owes_nothing(),
        };
        queued.may_go() && !self.waiting.iter().any(precedes)
    }
}

impl RequestQueued {
    /// Questions are short, and go before any data.
    fn priority(&self) -> i16 {
        self.turn.as_ref().map_or(i16::MAX, |turn| turn.priority().into())
    }

    fn is_contended(&self) -> bool {
        self.turn.as_ref().is_some_and(TurnTaken::is_contended)
    }

    fn may_go(&self) -> bool {
        self.turn.as_ref().is_none_or(TurnTaken::may_go)
    }

    fn owes_nothing(&self) -> bool {
        self.turn.as_ref().is_some_and(TurnTaken::owes_nothing)
    }
}

/// Frames on their way to the writer task: a few hundred kilobytes at a time, on a slow network one
/// frame of data.
struct AnswerBatch<'a> {
    outbox: &'a Outbox,
    given_up: Option<Arc<AtomicBool>>,
    frames: Vec<Outgoing>,
    bytes: usize,
    at_most: usize,
}

impl AnswerBatch<'_> {
    fn push(&mut self, frame: Outgoing) {
        self.bytes += frame.len();
        self.frames.push(frame);
        if self.bytes >= self.at_most {
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.bytes = 0;
        if !self.frames.is_empty() {
            let (frames, given_up) = (std::mem::take(&mut self.frames), self.given_up.clone());
            let batch = outgoing::Batch { frames, given_up, is_slow: self.at_most < BATCH };
            // A connection that ended takes no more; the thread finds out as its requests are over.
            let _ = self.outbox.blocking_send(batch);
        }
    }
}
