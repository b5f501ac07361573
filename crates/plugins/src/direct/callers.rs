//! A connection's session, and who waits for which of its requests.
//!
//! The session says what is to be done. Messages go into the queue under the lock, so that they go
//! out in their order; the rest is done outside of it, as what others do may take time or come back
//! here.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{mpsc, oneshot};
use towpath_transfer::plugin::{Description, Sink};
use towpath_transfer::{Delivery, Outcome, Tag};

use super::requests::GetRequest;
use super::session::{Effect, Question, Session};
use super::wire::Body;

/// Where messages go out before all data. It has no bound of its own: requests are bounded by the
/// peer's limit, the control stream by its window.
pub type Urgent = mpsc::UnboundedSender<Body>;

/// Where answers to a question go.
pub enum Answers {
    /// To a `Describe`.
    Descriptions(mpsc::Sender<Description>),
    /// To a `Watch`.
    Ranges(mpsc::Sender<Vec<Range<u64>>>),
}

/// How a request ended. An error without a word: the connection did.
pub type Ending = oneshot::Receiver<Result<(), Outcome>>;

/// The session and its callers.
pub struct Callers {
    session: Session,
    waiting: HashMap<u32, Caller>,
    urgent: Urgent,
}

struct Caller {
    gets: Gets,
    end: oneshot::Sender<Result<(), Outcome>>,
}

/// What a caller gets besides the end.
enum Gets {
    Wants(Arc<dyn Sink>),
    Answers(Answers),
}

/// What is done outside the lock.
pub enum Act {
    /// Ends a want.
    Outcome(Arc<dyn Sink>, Tag, Outcome),
    /// Ends a request.
    End(oneshot::Sender<Result<(), Outcome>>, Result<(), Outcome>),
    /// What only the reader task can do.
    Later(Later),
}

/// What may take time, or belongs to the connection's tasks. It follows from frames only.
pub enum Later {
    /// Waits while the receiving side is behind.
    Deliver(Arc<dyn Sink>, Delivery),
    /// Waits until the asker takes it.
    Describe(mpsc::Sender<Description>, Description),
    /// Waits until the asker takes it.
    Tell(mpsc::Sender<Vec<Range<u64>>>, Vec<Range<u64>>),
    /// See [`Effect::Greeted`].
    Greeted {
        /// The peer has a control stream.
        control: bool,
        /// The answering half compresses.
        compress: bool,
    },
    /// For the answering half.
    Request(Body),
    /// For the control stream.
    Control(Body),
}

impl Callers {
    /// Nobody waits yet. The hello is the first in the queue.
    pub fn new(session: Session, urgent: Urgent) -> Self {
        Self { session, waiting: HashMap::new(), urgent }
    }

    /// The session, to look at. Whoever changes it calls [`Self::settle`] before the lock is let go.
    pub const fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Asks for data.
    pub fn get(&mut self, request: GetRequest, sink: Arc<dyn Sink>) -> (u32, Ending) {
        let number = self.session.get(Instant::now(), request);
        (number, self.wait_for(number, Gets::Wants(sink)))
    }

    /// Puts a question.
    pub fn ask(&mut self, question: Question, answers: Answers) -> (u32, Ending) {
        let number = self.session.ask(question);
        (number, self.wait_for(number, Gets::Answers(answers)))
    }

    fn wait_for(&mut self, request: u32, gets: Gets) -> Ending {
        let (end, ending) = oneshot::channel();
        self.waiting.insert(request, Caller { gets, end });
        ending
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
                // A connection that ended takes no more; whoever asked is told by the session.
                let _ = self.urgent.send(body);
                return None;
            }
            Effect::Outcome { request, tag, outcome } => {
                return Some(Act::Outcome(self.sink(request)?, tag, outcome));
            }
            Effect::Ended { request, result } => {
                return Some(Act::End(self.waiting.remove(&request)?.end, result));
            }
            // Whoever looks at the session sees it.
            Effect::Closed => return None,
            Effect::Delivery { request, delivery } => Later::Deliver(self.sink(request)?, delivery),
            Effect::Answer { request, answer } => match self.gets(request)? {
                Gets::Answers(Answers::Descriptions(to)) => Later::Describe(to.clone(), answer),
                _ => return None,
            },
            Effect::Ranges { request, ranges } => match self.gets(request)? {
                Gets::Answers(Answers::Ranges(to)) => Later::Tell(to.clone(), ranges),
                _ => return None,
            },
            Effect::Greeted { control, compress } => Later::Greeted { control, compress },
            Effect::Request(body) => Later::Request(body),
            Effect::Control(body) => Later::Control(body),
        };
        Some(Act::Later(later))
    }

    fn gets(&self, request: u32) -> Option<&Gets> {
        self.waiting.get(&request).map(|caller| &caller.gets)
    }

    fn sink(&self, request: u32) -> Option<Arc<dyn Sink>> {
        match self.gets(request)? {
            Gets::Wants(sink) => Some(Arc::clone(sink)),
            Gets::Answers(_) => None,
        }
    }
}

impl Act {
    /// Does what takes no time; returns what is left.
    pub fn perform(self) -> Option<Later> {
        match self {
            Self::Outcome(sink, tag, outcome) => sink.outcome(tag, outcome),
            // A caller that has gone needs no end.
            Self::End(caller, result) => drop(caller.send(result)),
            Self::Later(later) => return Some(later),
        }
        None
    }
}
