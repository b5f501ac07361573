//! The answering half of one connection at work: [`Answering`] decides, and what it takes is answered.
//!
//! A peer's requests are answered in turn (`answer_line`), in the threads for all peers, and batches of frames go to the
//! writer task through a short queue, so a peer that does not read holds a few hundred kilobytes. Each followed object is answered
//! beside the others, and so is each recipe that is asked for, as it may have to be made. One thread of the connection hands
//! questions for entries to the offer, which is for one peer alone.

mod answer_line;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::{Notify, mpsc};
use towpath_content::lock::lock;
use towpath_content::{NodeId, Oid};
use towpath_link::{PathProbe, unsent_limit};
use towpath_transfer::Outcome;

use self::answer_line::{AnsweringLine, RequestQueued, WaitingAnswers, give};
use super::answering::{Answer, Answering, KEPT_WAIT, Taken};
use super::asks::EntryAsk;
use super::introducing::IntroducedPeer;
use super::introductions::FetchedRoot;
use super::outgoing::Outbox;
use super::pace::Pace;
use super::replies::Replies;
use super::served::Served;
use super::service::{Service, Serving};
use super::session::Encoded;
use super::window::SendWindow;
use super::wire::{Body, MAX_REQUESTS, WireServes};
use crate::processors::Processors;
use towpath_link::queued::OwnQueue;

/// The answering half of one connection. Dropping it ends all of its answers.
pub struct Conversation {
    shared: Arc<SharedConversation>,
    introduced: IntroducedPeer,
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

/// State that all answers share.
struct SharedConversation {
    service: Arc<Service>,
    node: NodeId,
    served: Arc<Served>,
    waiting: Mutex<WaitingAnswers>,
    outboxes: Outboxes,
    queue: OwnQueue,
    probe: PathProbe,
    /// Limit of bytes that wait unsent in the kernel, as last set.
    unsent: Mutex<Option<u32>>,
    state: Arc<Mutex<Answering>>,
    replies: Arc<Replies>,
    /// Something is over.
    over: Notify,
}

/// Queues for answers.
pub(super) struct Outboxes {
    /// Those to questions, which go before data: nothing that is asked for in vain holds them up.
    pub(super) answers: Outbox,
    /// Those to `Get`s.
    pub(super) data: Outbox,
    /// Limits what goes out of them.
    pub(super) pace: Arc<Pace>,
}

impl Conversation {
    /// Begins to answer one peer.
    pub(super) fn start(
        service: Arc<Service>,
        (node, served, introduced): (NodeId, Arc<Served>, IntroducedPeer),
        binding: [u8; 32],
        processors: Processors,
        (outboxes, contents): (Outboxes, SendWindow),
        probe: PathProbe,
    ) -> Self {
        let state = Arc::new(Mutex::new(Answering::new(node, binding, processors)));
        let replies = Arc::new(Replies::new(Arc::clone(&state) as _, contents));
        let queue = OwnQueue::new(service.queued());
        let shared = Arc::new(SharedConversation {
            service,
            node,
            served,
            waiting: Mutex::default(),
            outboxes,
            queue,
            probe,
            unsent: Mutex::new(None),
            state,
            replies,
            over: Notify::new(),
        });
        Self { shared, introduced, asks: OnceLock::new() }
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
        if let Body::Finished(finished) = &body {
            self.shared.served.finished(finished);
            return Ok(RequestOutcome { replies: Vec::new(), is_known: false });
        }
        if let Body::Serves(serves) = &body {
            self.serves(serves)?;
            return Ok(RequestOutcome { replies: Vec::new(), is_known: false });
        }
        let proved = match &body {
            Body::Prove(prove) => Oid::from_bytes(&prove.root).ok(),
            _ => None,
        };
        let root = match &body {
            Body::Get(get) => Oid::from_bytes(&get.root).ok(),
            _ => None,
        };
        let (is_waited_for, mut state) =
            (matches!(body, Body::Signature(_) | Body::Cancel(_)), self.shared.state());
        state.set_offer(self.shared.service.offer().is_some());
        let taken = state.take(body, self.shared.service.issuer())?;
        let is_known = state.is_known();
        let fetched = proved.and_then(|root| self.fetched(&state, root));
        let ticket = root.and_then(|root| state.ticket_mark(&root));
        drop(state);
        fetched.into_iter().for_each(|fetched| self.introduced.joined(fetched));
        if is_waited_for {
            self.shared.replies.wake();
            self.shared.over.notify_waiters();
        }
        if let (Some(root), Taken::Answer(_)) = (root, &taken) {
            self.shared.served.requested(&root, ticket);
        }
        let replies = match taken {
            Taken::Nothing => Vec::new(),
            Taken::Refused(messages) => messages,
            Taken::Cancelled(outcome) => vec![outcome],
            Taken::Answer(answer) => {
                self.answer(*answer);
                Vec::new()
            }
            Taken::Entries(asks) => self.ask(asks).map(|()| Vec::new())?,
        };
        Ok(RequestOutcome { replies, is_known })
    }

    /// What the peer fetches under `root`, if others that fetch it may know of it.
    fn fetched(&self, state: &Answering, root: Oid) -> Option<FetchedRoot> {
        Some((root, state.shared_secret(&root, self.shared.service.issuer())?))
    }

    fn serves(&self, serves: &WireServes) -> Result<(), String> {
        let root = Oid::from_bytes(&serves.root).map_err(|error| error.to_string())?;
        let port = u16::try_from(serves.port).map_err(|_| "serves at a port that is none")?;
        let fetched = self.fetched(&self.shared.state(), root);
        fetched.into_iter().for_each(|fetched| self.introduced.serves(fetched, port));
        Ok(())
    }

    fn answer(&self, answer: Answer) {
        let shared = &self.shared;
        if answer.takes_long() {
            tokio::spawn(give(AnsweringLine::alone(Arc::clone(shared), answer)));
            return;
        }
        let turns = shared.service.turns();
        let turn = answer.priority().map(|priority| turns.enter(shared.node, priority));
        let tools = shared.waiting().add(RequestQueued { answer, turn }, || shared.serving());
        if let Some(tools) = tools {
            tokio::spawn(give(AnsweringLine::new(Arc::clone(shared), tools)));
        }
    }

    fn ask(&self, asks: Vec<EntryAsk>) -> Result<(), String> {
        let to_offer = self.asks.get_or_init(|| self.shared.ask_in_turn());
        // There is room: no more requests are under way than the queue holds.
        to_offer.try_send(asks).map_err(|_| "the service is shutting down".to_owned())
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl SharedConversation {
    fn state(&self) -> MutexGuard<'_, Answering> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers that wait.
    fn waiting(&self) -> MutexGuard<'_, WaitingAnswers> {
        lock(&self.waiting)
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

    /// The tools of one who answers.
    fn serving(&self) -> Serving {
        Serving::new(Arc::clone(&self.service), self.node).noting(Arc::clone(&self.served))
    }

    /// True if nobody wants more of a request.
    fn is_over(&self, request: u32) -> bool {
        self.state().is_over(request)
    }

    /// See [`Answering::given_up`].
    fn given_up(&self, request: u32) -> Option<Arc<AtomicBool>> {
        self.state().given_up(request)
    }

    /// A request has been answered; returns the message that says so.
    fn end(&self, request: u32) -> Body {
        self.state().end(request)
    }

    /// Every request is over.
    fn close(&self) {
        self.state().close();
        self.replies.close();
        self.over.notify_waiters();
    }

    /// The queue for an answer.
    fn outbox(&self, answer: &Answer) -> Outbox {
        let outbox = match answer {
            Answer::Get(_) => &self.outboxes.data,
            Answer::Question(_) => &self.outboxes.answers,
        };
        outbox.clone()
    }

    /// Asks the kernel how the path is, and tells it how much may wait there.
    fn look(&self, serving: &mut Serving) {
        let path = self.probe.read();
        serving.look(path, self.outboxes.pace.limit());
        let Some(limit) = path.as_ref().map(unsent_limit) else { return };
        let mut unsent = self.unsent.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *unsent, limit) != limit {
            self.probe.limit_unsent(limit);
        }
    }

    /// Completes when the object has changed, or the peer no longer asks.
    async fn until_changed(&self, request: u32, oid: &Oid, seen: u64) {
        let mut change = self.service.store().change(oid, seen);
        loop {
            let over = self.over.notified();
            tokio::pin!(over);
            over.as_mut().enable();
            if self.is_over(request) {
                return;
            }
            tokio::select! {
                _ = &mut change => return,
                () = over => {}
            }
        }
    }

    /// Completes when it may be the turn of what waits.
    async fn until_more_urgent(&self) {
        let change = self.waiting().turn_change();
        if let Some(change) = change {
            change.await;
        }
    }
}
