//! A connection's session, and who waits for which of its requests.
//!
//! The session says what is to be done. Messages go into the queue under the lock, so that they go
//! out in their order; the rest is done outside of it, as what others do may take time or come back
//! here.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use towpath_content::NodeId;
use towpath_transfer::offer::{EntryContent, EntrySink, EntryWant};
use towpath_transfer::source::{Description, Sink};
use towpath_transfer::{Delivery, Outcome, Tag, Want};

use super::entry_caller::EntryCaller;
use super::requests::GetRequest;
use super::session::{Effect, Encoded, Question, Session};
use super::session_queue::SessionSender;
use super::urgent::{UNREAD, Urgent};
use super::wire::{Body, WireHolder, Withdrawn};

/// Destination of the answers to a question.
pub enum Answers {
    /// To a `Describe`.
    Descriptions(mpsc::Sender<Description>),
    /// To a `Watch`.
    Ranges(mpsc::Sender<Vec<Range<u64>>>),
}

/// Hears that tickets were withdrawn, from whoever says so. Called by a connection's reader, which waits.
pub trait WithdrawalSink: Send + Sync {
    /// What a peer says; nothing of it was checked.
    fn withdrawn(&self, told: &Withdrawn);
}

/// Hears of other nodes that serve what is fetched, too. Called by a connection's reader, which waits.
pub trait HolderSink: Send + Sync {
    /// What `peer` says; nothing of it was checked.
    fn holder(&self, peer: &NodeId, told: &WireHolder);
}

/// Who hears what a peer says beside its answers.
#[derive(Clone, Default)]
pub struct PeerNews {
    /// Told which tickets the peer says were withdrawn. Default: nobody.
    pub withdrawals: Option<Arc<dyn WithdrawalSink>>,
    /// Told who else serves what is fetched. Default: nobody.
    pub holders: Option<Arc<dyn HolderSink>>,
}

/// The session and its callers.
pub struct Callers {
    session: Session,
    waiting: HashMap<u32, Caller>,
    queue: SessionSender,
    urgent: Urgent,
    node: NodeId,
    news: PeerNews,
}

enum Caller {
    Wants(Arc<Wants>),
    Entries(Arc<EntryCaller>),
    Answers { to: Answers, end: oneshot::Sender<Result<(), Outcome>> },
}

/// The caller of a `Get`, who goes on when nobody holds this any more: when the request has ended
/// and all that followed from it is done, a delivery under way included.
pub struct Wants {
    sink: Arc<dyn Sink>,
    _end: oneshot::Sender<()>,
}

/// An action to be done outside the lock.
pub enum Act {
    /// Hands over the front of a piece.
    PartialPiece(Arc<Wants>, Delivery),
    /// Ends a want.
    Outcome(Arc<Wants>, Tag, Outcome),
    /// Ends a want of an entry.
    NoContent(Arc<EntryCaller>, Tag, Outcome),
    /// Tells of a withdrawal.
    Withdrawn(Arc<dyn WithdrawalSink>, Withdrawn),
    /// Tells of a holder.
    Holder(Arc<dyn HolderSink>, NodeId, WireHolder),
    /// Ends a question.
    End(oneshot::Sender<Result<(), Outcome>>, Result<(), Outcome>),
    /// Work for the reader task alone.
    Later(Later),
}

/// Work that may take time, or belongs to the connection's tasks. It follows from frames only.
pub enum Later {
    /// Waits while the receiving side is behind.
    Deliver(Arc<Wants>, Delivery),
    /// Waits while the receiving side is behind.
    Contents {
        /// Who asked.
        caller: Arc<EntryCaller>,
        /// Each of another want.
        contents: Vec<(Tag, EntryContent)>,
        /// Bytes that they keep in memory.
        kept: usize,
        /// Bytes that they count for.
        cost: usize,
    },
    /// Waits while the receiving side is behind.
    Run {
        /// Who asked.
        caller: Arc<EntryCaller>,
        /// The want.
        tag: Tag,
        /// The run.
        run: Bytes,
        /// Bytes that it counts for.
        cost: usize,
    },
    /// Waits until the asker takes it.
    Describe(mpsc::Sender<Description>, Description),
    /// Waits until the asker takes it.
    Tell(mpsc::Sender<Vec<Range<u64>>>, Vec<Range<u64>>),
    /// See [`Effect::Greeted`].
    Greeted {
        /// The peer has a control stream.
        control: bool,
        /// Encoding of the answering half.
        encoding: Option<Encoded>,
    },
    /// See [`Effect::Measured`].
    Measured,
    /// For the answering half.
    Request(Body),
    /// For the control stream.
    Control(Body),
}

impl Callers {
    /// Nobody waits yet. The hello is the first in the `queue`; `urgent` goes before it. What `node` says beside its answers goes
    /// to `news`.
    pub(super) fn new(
        session: Session,
        (queue, urgent): (SessionSender, Urgent),
        (node, news): (NodeId, PeerNews),
    ) -> Self {
        Self { session, waiting: HashMap::new(), queue, urgent, node, news }
    }

    /// The session, to look at. Whoever changes it calls [`Self::settle`] before the lock is let go.
    pub const fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Asks for data. The receiver fails when each want has ended.
    pub fn get(&mut self, request: GetRequest, sink: Arc<dyn Sink>) -> (u32, oneshot::Receiver<()>) {
        let (end, ending) = oneshot::channel();
        let number = self.session.get(Instant::now(), request);
        self.waiting.insert(number, Caller::Wants(Arc::new(Wants { sink, _end: end })));
        (number, ending)
    }

    /// Asks for entries. The receiver fails when each want has ended, and the token is cancelled once the sink knows of them.
    pub(super) fn get_entries(
        &mut self,
        wants: &[EntryWant],
        sink: Arc<dyn EntrySink>,
    ) -> (u32, oneshot::Receiver<()>, CancellationToken) {
        let (end, ending) = oneshot::channel();
        let (number, asked) = (self.session.get_entries(wants), CancellationToken::new());
        let caller = EntryCaller::new(sink, asked.clone(), end);
        self.waiting.insert(number, Caller::Entries(Arc::new(caller)));
        (number, ending, asked)
    }

    /// As [`Self::get`], of the want that was asked for ahead, if it is among `wants`: it is taken out.
    pub fn claim(
        &mut self,
        wants: &mut Vec<Want>,
        sink: &Arc<dyn Sink>,
    ) -> Option<(u32, oneshot::Receiver<()>)> {
        let (end, ending) = oneshot::channel();
        let number = self.session.claim(Instant::now(), wants)?;
        self.waiting.insert(number, Caller::Wants(Arc::new(Wants { sink: Arc::clone(sink), _end: end })));
        Some((number, ending))
    }

    /// Puts a question. The receiver gets how it ended.
    pub fn ask(&mut self, question: Question, to: Answers) -> (u32, oneshot::Receiver<Result<(), Outcome>>) {
        let (end, ending) = oneshot::channel();
        let number = self.session.ask(question);
        self.waiting.insert(number, Caller::Answers { to, end });
        (number, ending)
    }

    /// Queues the messages that the session sends, and puts into `acts` what else it says.
    pub fn settle(&mut self, acts: &mut Vec<Act>) {
        while let Some(effect) = self.session.poll() {
            acts.extend(self.act(effect));
        }
    }

    fn act(&mut self, effect: Effect) -> Option<Act> {
        let later = match effect {
            Effect::Send(body) => {
                // Whoever asked a connection that ended gets an outcome from the session.
                if !self.queue.send(body) {
                    self.session.close(Some(UNREAD.into()));
                }
                return None;
            }
            Effect::SendFirst(body) => {
                self.urgent.send(body);
                return None;
            }
            Effect::PartialPiece { request, delivery } => {
                return Some(Act::PartialPiece(self.wants(request)?, delivery));
            }
            Effect::Outcome { request, tag, outcome } => {
                return Some(match self.waiting.get(&request)? {
                    Caller::Wants(wants) => Act::Outcome(Arc::clone(wants), tag, outcome),
                    Caller::Entries(caller) => Act::NoContent(Arc::clone(caller), tag, outcome),
                    Caller::Answers { .. } => return None,
                });
            }
            Effect::GoesOn { request, by } => {
                let wants = self.wants(request)?;
                self.waiting.insert(by, Caller::Wants(wants));
                return None;
            }
            Effect::Ended { request, result } => match self.waiting.remove(&request)? {
                Caller::Wants(_) | Caller::Entries(_) => return None,
                Caller::Answers { end, .. } => return Some(Act::End(end, result)),
            },
            // The one that looks at the session sees it.
            Effect::Closed => return None,
            Effect::Delivery { request, delivery } => Later::Deliver(self.wants(request)?, delivery),
            Effect::Contents { request, contents, kept, cost } => {
                Later::Contents { caller: self.entries(request)?, contents, kept, cost }
            }
            Effect::Run { request, tag, run, cost } => {
                Later::Run { caller: self.entries(request)?, tag, run, cost }
            }
            Effect::Answer { request, answer } => match self.waiting.get(&request)? {
                Caller::Answers { to: Answers::Descriptions(to), .. } => Later::Describe(to.clone(), answer),
                _ => return None,
            },
            Effect::Ranges { request, ranges } => match self.waiting.get(&request)? {
                Caller::Answers { to: Answers::Ranges(to), .. } => Later::Tell(to.clone(), ranges),
                _ => return None,
            },
            Effect::Withdrawn(told) => return Some(Act::Withdrawn(self.news.withdrawals.clone()?, told)),
            Effect::Holder(told) => return Some(Act::Holder(self.news.holders.clone()?, self.node, told)),
            Effect::Greeted { control, encoding } => Later::Greeted { control, encoding },
            Effect::Measured => Later::Measured,
            Effect::Request(body) => Later::Request(body),
            Effect::Control(body) => Later::Control(body),
        };
        Some(Act::Later(later))
    }

    fn wants(&self, request: u32) -> Option<Arc<Wants>> {
        match self.waiting.get(&request)? {
            Caller::Wants(wants) => Some(Arc::clone(wants)),
            Caller::Entries(_) | Caller::Answers { .. } => None,
        }
    }

    fn entries(&self, request: u32) -> Option<Arc<EntryCaller>> {
        match self.waiting.get(&request)? {
            Caller::Entries(caller) => Some(Arc::clone(caller)),
            Caller::Wants(_) | Caller::Answers { .. } => None,
        }
    }
}

impl Wants {
    /// Hands over bytes. If this is dropped before the receiving side has taken them, as the
    /// connection has ended, the want ends as "retry later".
    pub async fn deliver(self: Arc<Self>, delivery: Delivery) {
        let mut undelivered = Undelivered { wants: &self, tag: Some(delivery.tag) };
        self.sink.deliver(delivery).await;
        undelivered.tag = None;
    }
}

struct Undelivered<'a> {
    wants: &'a Wants,
    tag: Option<Tag>,
}

impl Drop for Undelivered<'_> {
    fn drop(&mut self) {
        if let Some(tag) = self.tag {
            self.wants.sink.outcome(tag, Outcome::RetryLater(Duration::ZERO));
        }
    }
}

impl Act {
    /// Does what takes no time; returns what is left.
    pub fn perform(self) -> Option<Later> {
        match self {
            Self::PartialPiece(wants, delivery) => wants.sink.partial_piece(delivery),
            Self::Outcome(wants, tag, outcome) => wants.sink.outcome(tag, outcome),
            Self::NoContent(caller, tag, outcome) => caller.outcome(tag, outcome),
            Self::Withdrawn(sink, told) => sink.withdrawn(&told),
            Self::Holder(sink, peer, told) => sink.holder(&peer, &told),
            // A caller that has gone needs no end.
            Self::End(caller, result) => drop(caller.send(result)),
            Self::Later(later) => return Some(later),
        }
        None
    }
}
