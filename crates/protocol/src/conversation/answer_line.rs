//! Answers that a connection gives one after the other, more urgent ones first (`crate::turns`); or one that takes long, alone.
//!
//! [`AnsweringLine::turn`] takes steps in one of the threads for all peers (`crate::threads`), as long as there is room in the short
//! queue of the writer task. [`give`] is a task, which waits outside of these threads: for room, for the object that an answer
//! is about, and for the turn of a node's less urgent requests. So a peer that does not read, and one that watches, costs no
//! thread.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::error::TrySendError;
use towpath_content::Oid;

use super::SharedConversation;
use crate::answering::Answer;
use crate::outgoing::{Batch, Outbox, Outgoing};
use crate::service::Serving;
use crate::step::Step;
use crate::turns::TurnTaken;
use towpath_link::queued::OwnQueue;

/// Bytes of frames handed to the writer task at once.
const BATCH: usize = 256 << 10;
/// Interval at which the kernel is asked about the path, while data go out.
const LOOK: Duration = Duration::from_millis(10);
/// Time after which a turn ends if others wait for one.
const TURN: Duration = Duration::from_millis(10);

/// Answers of a connection that wait for those before them.
#[derive(Default)]
pub(super) struct WaitingAnswers {
    /// In the order in which they were asked for.
    waiting: VecDeque<RequestQueued>,
    /// A line gives them; else these are its tools, if there was one.
    is_given: bool,
    tools: Option<Box<Serving>>,
}

/// An answer that is to be given.
pub(super) struct RequestQueued {
    pub(super) answer: Answer,
    /// Of a `Get`: its place among those of its node.
    pub(super) turn: Option<TurnTaken>,
}

/// See the head of this module.
pub(super) struct AnsweringLine {
    shared: Arc<SharedConversation>,
    serving: Box<Serving>,
    /// The answer that is being given.
    given: Option<RequestQueued>,
    /// It gives this one alone.
    is_alone: bool,
    is_heavy: bool,
    frames: AnswerFrames,
    looked: Option<Instant>,
}

/// Reason why a turn is over.
enum TurnEnd {
    /// The writer task has to go on first.
    NoRoom,
    /// The answer goes on when its object has changed.
    Unchanged { request: u32, oid: Oid, seen: u64 },
    /// Another connection of the node sends what is more urgent.
    LessUrgent,
    /// Others wait for a turn.
    Yielded,
    /// Nothing is left to answer.
    Done,
}

/// Frames of the answer that is being given on their way to the writer task: a few hundred kilobytes at a time, on a slow
/// network one frame of data.
struct AnswerFrames {
    batch: Batch,
    bytes: usize,
    at_most: usize,
    /// Batches for which there was no room, and their queues.
    ready: VecDeque<(Outbox, Batch)>,
    /// What waits of this connection, beside all others.
    queue: OwnQueue,
}

impl WaitingAnswers {
    /// Adds an answer; returns the tools of the line that is to give it, unless one is at it.
    pub(super) fn add(
        &mut self,
        queued: RequestQueued,
        new: impl FnOnce() -> Serving,
    ) -> Option<Box<Serving>> {
        self.waiting.push_back(queued);
        let is_given = std::mem::replace(&mut self.is_given, true);
        (!is_given).then(|| self.tools.take().unwrap_or_else(|| Box::new(new())))
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
    fn goes_on(&self, queued: &RequestQueued) -> bool {
        let precedes = |other: &RequestQueued| match other.priority().cmp(&queued.priority()) {
            Ordering::Less => other.may_go() && other.owes_nothing(),
            Ordering::Equal => false,
            Ordering::Greater => other.may_go() && !queued.owes_nothing(),
        };
        queued.may_go() && !self.waiting.iter().any(precedes)
    }

    /// Completes when it may be the turn of one that waits for that of others.
    pub(super) fn turn_change(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        self.waiting.iter().find_map(|queued| queued.turn.as_ref()).map(TurnTaken::change)
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

/// Gives what waits, until nothing does.
pub(super) async fn give(mut line: Box<AnsweringLine>) {
    let shared = Arc::clone(&line.shared);
    loop {
        let threads = shared.service.threads(line.is_heavy);
        let turn = move || {
            let end = line.turn();
            (line, end)
        };
        let Some((back, end)) = threads.run(shared.node, turn).await else {
            // It panicked: nobody answers the rest.
            return shared.close();
        };
        line = back;
        match end {
            TurnEnd::NoRoom => line.frames.make_room().await,
            TurnEnd::Unchanged { request, oid, seen } => shared.until_changed(request, &oid, seen).await,
            TurnEnd::LessUrgent => shared.until_more_urgent().await,
            TurnEnd::Yielded => {}
            TurnEnd::Done => match line.rest() {
                Some(more) => line = more,
                None => return,
            },
        }
    }
}

impl AnsweringLine {
    /// Gives the answers that wait.
    pub(super) fn new(shared: Arc<SharedConversation>, serving: Box<Serving>) -> Box<Self> {
        let (given, frames) = (None, AnswerFrames::new(shared.queue.clone()));
        Box::new(Self { shared, serving, given, is_alone: false, is_heavy: false, frames, looked: None })
    }

    /// Gives one answer, which takes long.
    pub(super) fn alone(shared: Arc<SharedConversation>, answer: Answer) -> Box<Self> {
        let (serving, is_heavy) = (Box::new(shared.serving()), answer.is_heavy());
        let given = Some(RequestQueued { answer, turn: None });
        Box::new(Self { given, is_alone: true, is_heavy, ..*Self::new(shared, serving) })
    }

    /// Ends, unless something waits.
    fn rest(self: Box<Self>) -> Option<Box<Self>> {
        if self.is_alone {
            return None;
        }
        let shared = Arc::clone(&self.shared);
        let mut line = shared.waiting();
        if !line.waiting.is_empty() {
            return Some(self);
        }
        line.is_given = false;
        line.tools = Some(self.serving);
        None
    }

    /// Takes steps while there is room and nobody else has to have a turn.
    fn turn(&mut self) -> TurnEnd {
        let begun = Instant::now();
        loop {
            if !self.frames.has_room() {
                return TurnEnd::NoRoom;
            }
            let queued = match self.given.take().map_or_else(|| self.next(), Ok) {
                Ok(queued) => queued,
                Err(end) => return end,
            };
            if let Some(end) = self.give(queued, begun) {
                return end;
            }
        }
    }

    /// The next answer to give or to go on with.
    fn next(&self) -> Result<RequestQueued, TurnEnd> {
        let mut line = self.shared.waiting();
        if self.is_alone || line.waiting.is_empty() {
            return Err(TurnEnd::Done);
        }
        let is_over = |queued: &RequestQueued| self.shared.is_over(queued.answer.request());
        let at = line.waiting.iter().position(is_over).or_else(|| line.choose());
        at.and_then(|at| line.waiting.remove(at)).ok_or(TurnEnd::LessUrgent)
    }

    /// Goes on with an answer to its end, or until it is no longer the one to give, or the turn is over.
    fn give(&mut self, mut queued: RequestQueued, begun: Instant) -> Option<TurnEnd> {
        let (request, outbox) = (queued.answer.request(), self.shared.outbox(&queued.answer));
        self.frames.batch.given_up = self.shared.given_up(request);
        let end = loop {
            if self.shared.is_over(request) {
                break None;
            }
            if queued.is_contended() && !self.shared.waiting().goes_on(&queued) {
                self.frames.flush(&outbox);
                self.shared.waiting().waiting.push_front(queued);
                return None;
            }
            if !self.frames.has_room() {
                break Some(TurnEnd::NoRoom);
            }
            if begun.elapsed() >= TURN && self.is_wanted() {
                break Some(TurnEnd::Yielded);
            }
            match self.step(&mut queued, &outbox) {
                Step::More => {}
                Step::Wait { oid, seen } => break Some(TurnEnd::Unchanged { request, oid, seen }),
                Step::Over => break None,
            }
        };
        if end.is_some() {
            self.given = Some(queued);
        } else {
            // Before the peer can know of it, its number is free again.
            self.frames.push(Outgoing::control(self.shared.end(request)), &outbox);
        }
        self.frames.flush(&outbox);
        end
    }

    fn is_wanted(&self) -> bool {
        self.shared.service.threads(self.is_heavy).is_wanted(&self.shared.node)
    }

    fn step(&mut self, queued: &mut RequestQueued, outbox: &Outbox) -> Step {
        if self.looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
            self.looked = Some(Instant::now());
            self.shared.look(&mut self.serving);
        }
        self.frames.at_most = self.serving.sending().frame_len();
        let (mut sent, mut data, frames) = (0, 0, &mut self.frames);
        let step = queued.answer.step(&mut self.serving, &mut |frame| {
            sent += frame.len() as u64;
            data += frame.payload_len();
            frames.push(frame, outbox);
        });
        if let Some(root) = queued.answer.root().filter(|_| data > 0) {
            self.shared.served.sent(root, data);
        }
        queued.turn.iter().for_each(|turn| turn.went(sent));
        step
    }
}

impl AnswerFrames {
    fn new(queue: OwnQueue) -> Self {
        Self { batch: Batch::default(), bytes: 0, at_most: 0, ready: VecDeque::new(), queue }
    }

    /// True if more may wait for the writer task.
    fn has_room(&self) -> bool {
        self.ready.is_empty() && self.queue.has_room()
    }

    fn push(&mut self, frame: Outgoing, outbox: &Outbox) {
        self.bytes += frame.len();
        self.batch.frames.push(frame);
        if self.bytes >= self.at_most {
            self.flush(outbox);
        }
    }

    /// Hands the frames to the writer task; they wait here if there is no room.
    fn flush(&mut self, outbox: &Outbox) {
        self.bytes = 0;
        if self.batch.frames.is_empty() {
            return;
        }
        let (frames, given_up) = (std::mem::take(&mut self.batch.frames), self.batch.given_up.clone());
        let mut batch = Batch { frames, given_up, is_slow: self.at_most < BATCH, queued: None };
        batch.queued = Some(self.queue.add(batch.len()));
        let full = match self.ready.is_empty() {
            true => outbox.try_send(batch),
            false => Err(TrySendError::Full(batch)),
        };
        // A connection that ended takes no more; its requests are over.
        if let Err(TrySendError::Full(batch)) = full {
            self.ready.push_back((outbox.clone(), batch));
        }
    }

    /// Waits until what had no room has gone, and more may wait.
    async fn make_room(&mut self) {
        while let Some((outbox, batch)) = self.ready.pop_front() {
            let _ = outbox.send(batch).await;
        }
        self.queue.room().await;
    }
}
