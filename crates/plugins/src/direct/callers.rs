//! A connection's session, and who waits for which of its requests.
//!
//! The session says what is to be done. What takes no time (messages into the queue, outcomes, ends)
//! is done here at once, under the lock; what may wait is handed to the reader task.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{mpsc, oneshot};
use towpath_transfer::plugin::{Description, Sink};
use towpath_transfer::{Delivery, Outcome};

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

/// What the reader task does outside the lock.
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

    /// Does what the session says, or puts it into `later`.
    pub fn settle(&mut self, later: &mut Vec<Later>) {
        while let Some(effect) = self.session.poll() {
            match effect {
                // A connection that ended takes no more; whoever asked is told by the session.
                Effect::Send(body) => drop(self.urgent.send(body)),
                Effect::Outcome { request, tag, outcome } => {
                    if let Some(sink) = self.sink(request) {
                        sink.outcome(tag, outcome);
                    }
                }
                Effect::Ended { request, result } => {
                    if let Some(caller) = self.waiting.remove(&request) {
                        // One that has gone needs no end.
                        let _ = caller.end.send(result);
                    }
                }
                Effect::Delivery { request, delivery } => {
                    later.extend(self.sink(request).map(|sink| Later::Deliver(Arc::clone(sink), delivery)));
                }
                Effect::Answer { request, answer } => {
                    if let Some(Gets::Answers(Answers::Descriptions(to))) = self.gets(request) {
                        later.push(Later::Describe(to.clone(), answer));
                    }
                }
                Effect::Ranges { request, ranges } => {
                    if let Some(Gets::Answers(Answers::Ranges(to))) = self.gets(request) {
                        later.push(Later::Tell(to.clone(), ranges));
                    }
                }
                Effect::Greeted { control, compress } => later.push(Later::Greeted { control, compress }),
                Effect::Request(body) => later.push(Later::Request(body)),
                Effect::Control(body) => later.push(Later::Control(body)),
                // Whoever looks at the session sees it.
                Effect::Closed => {}
            }
        }
    }

    fn gets(&self, request: u32) -> Option<&Gets> {
        self.waiting.get(&request).map(|caller| &caller.gets)
    }

    fn sink(&self, request: u32) -> Option<&Arc<dyn Sink>> {
        match self.gets(request)? {
            Gets::Wants(sink) => Some(sink),
            Gets::Answers(_) => None,
        }
    }
}
