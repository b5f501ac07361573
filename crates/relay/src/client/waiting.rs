//! Waiting at relays to be called.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use towpath_content::NodeId;
use towpath_link::backoff::BackoffConfig;
use towpath_link::tls::accept_over;
use towpath_link::{Backoff, Connection, Identity, Protocol};

use super::calling::{ANSWER, HANDSHAKE};
use super::dialling::{AttemptError, RelayDial, ask, dial_relay, next_answer};
use super::driving::{CircuitWay, start};
use crate::message::{CircuitId, FailReason, RelayMessage};
use crate::pass::RelayPass;
use crate::place::RelayPlace;

/// A relay that is silent is asked after so long ...
const QUIET: Duration = Duration::from_secs(20);
/// ... and is lost if it does not answer in this time.
const SILENCE: Duration = Duration::from_secs(10);
/// Calls that may wait to be taken; what comes beyond is not answered.
const CALLS: usize = 16;
/// A relay that refuses is asked again so seldom.
const REFUSED_PAUSE: Duration = Duration::from_secs(300);

/// A relay to wait at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingPlace {
    /// The relay.
    pub place: RelayPlace,
    /// Its pass, if it wants one.
    pub pass: Option<RelayPass>,
}

/// How waiting at one relay goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitingState {
    /// It is being dialled, or will be again after a failure.
    Connecting,
    /// This node can be called there.
    Waiting,
    /// It refuses; it is asked again now and then.
    Refused(FailReason),
}

/// Waits at relays, until it is dropped.
pub struct Waiting {
    calls: mpsc::Receiver<IncomingCall>,
    states: watch::Receiver<Vec<WaitingState>>,
    _tasks: JoinSet<()>,
}

impl Waiting {
    /// Waits at all of `places` as `identity`. Relays that are lost are dialled again.
    pub fn start(places: Vec<WaitingPlace>, identity: &Identity, how: &RelayDial) -> Self {
        let (sender, calls) = mpsc::channel(CALLS);
        let (telling, states) = watch::channel(vec![WaitingState::Connecting; places.len()]);
        let (places, telling) = (Arc::from(places), Arc::new(telling));
        let mut tasks = JoinSet::new();
        for at in 0..Arc::<[WaitingPlace]>::clone(&places).len() {
            let post = Arc::new(WaitingPost {
                places: Arc::clone(&places),
                at,
                identity: identity.clone(),
                how: how.clone(),
                calls: sender.clone(),
                states: Arc::clone(&telling),
            });
            tasks.spawn(post.run());
        }
        Self { calls, states, _tasks: tasks }
    }

    /// The next call; `None` if there is no relay to wait at. Cancel-safe.
    pub async fn next(&mut self) -> Option<IncomingCall> {
        self.calls.recv().await
    }

    /// How it goes, by relay; changes can be waited for.
    pub fn states(&self) -> watch::Receiver<Vec<WaitingState>> {
        self.states.clone()
    }
}

/// Waiting at one relay.
struct WaitingPost {
    places: Arc<[WaitingPlace]>,
    at: usize,
    identity: Identity,
    how: RelayDial,
    calls: mpsc::Sender<IncomingCall>,
    states: Arc<watch::Sender<Vec<WaitingState>>>,
}

impl WaitingPost {
    async fn run(self: Arc<Self>) {
        let mut backoff = Backoff::new(BackoffConfig::default());
        loop {
            let error = match self.register().await {
                Ok(connection) => {
                    self.tell(WaitingState::Waiting);
                    backoff.succeeded();
                    match self.wait(connection).await {
                        // A call took the connection: calls wait at the relay until there is another.
                        Ok(()) => continue,
                        Err(error) => error,
                    }
                }
                Err(error) => error,
            };
            let pause = match error {
                AttemptError::Refused { why: why @ (FailReason::NotAllowed | FailReason::Violation) } => {
                    self.tell(WaitingState::Refused(why));
                    REFUSED_PAUSE
                }
                _ => {
                    self.tell(WaitingState::Connecting);
                    backoff.next(Instant::now(), fastrand::u64(..))
                }
            };
            tracing::debug!(relay = %self.places[self.at].place, %error, "can't be called there");
            sleep(pause).await;
        }
    }

    fn tell(&self, state: WaitingState) {
        self.states.send_if_modified(|states| std::mem::replace(&mut states[self.at], state) != state);
    }

    async fn register(&self) -> Result<Connection, AttemptError> {
        let WaitingPlace { place, pass } = &self.places[self.at];
        let mut connection = dial_relay(place, &self.identity, &self.how).await?;
        connection.reader.hold_short(true);
        let node = self.identity.node_id();
        let pass = pass.as_ref().map(|pass| pass.proof(&connection.binding, &node));
        ask(&mut connection, &RelayMessage::Wait { pass }, ANSWER).await?;
        Ok(connection)
    }

    /// Waits for a call, which takes the connection, or until the relay is lost.
    async fn wait(self: &Arc<Self>, mut connection: Connection) -> Result<(), AttemptError> {
        // An answer is due that a call must not take for its own.
        let mut is_asked = false;
        loop {
            connection.reader.rest();
            let message = match timeout(QUIET, next(&mut connection)).await {
                Ok(message) => message?,
                Err(_) => {
                    is_asked = true;
                    asked(&mut connection).await?
                }
            };
            match message {
                RelayMessage::Incoming { circuit, caller } if is_asked => {
                    IncomingCall::of(self, circuit, caller, None).offer();
                }
                RelayMessage::Incoming { circuit, caller } => {
                    match IncomingCall::of(self, circuit, caller, Some(connection)).offer() {
                        Some(left) => connection = left,
                        None => return Ok(()),
                    }
                }
                RelayMessage::Ok { .. } => is_asked = false,
                RelayMessage::Fail { why } => return Err(AttemptError::Refused { why }),
                _ => return Err(AttemptError::Answer),
            }
        }
    }
}

/// Cancel-safe.
async fn next(connection: &mut Connection) -> Result<RelayMessage, AttemptError> {
    let frame = connection.reader.next().await.map_err(|source| AttemptError::Read { source })?;
    let frame = frame.ok_or(AttemptError::Answer)?;
    RelayMessage::decode(frame.kind, frame.body).map_err(|_| AttemptError::Answer)
}

/// Asks whether the relay is still there; the next message is the answer, or as good as one.
async fn asked(connection: &mut Connection) -> Result<RelayMessage, AttemptError> {
    let sent = RelayMessage::Ping.send(&mut connection.writer).await;
    sent.map_err(|source| AttemptError::Write { source })?;
    let limit = SILENCE;
    timeout(limit, next(connection)).await.map_err(|_| AttemptError::NoAnswer { limit })?
}

/// A node calls. Dropping it leaves the call unanswered.
pub struct IncomingCall {
    caller: NodeId,
    circuit: CircuitId,
    /// Where it was told.
    post: Arc<WaitingPost>,
    /// The connection on which it was told; none if that went to another call.
    connection: Option<Connection>,
}

impl IncomingCall {
    fn of(
        post: &Arc<WaitingPost>,
        circuit: CircuitId,
        caller: NodeId,
        connection: Option<Connection>,
    ) -> Self {
        Self { caller, circuit, post: Arc::clone(post), connection }
    }

    /// Hands it to who takes calls. If there are too many, it is not taken, and its connection is returned.
    fn offer(self) -> Option<Connection> {
        let post = Arc::clone(&self.post);
        match post.calls.try_send(self) {
            Ok(()) => None,
            Err(TrySendError::Full(call) | TrySendError::Closed(call)) => {
                let caller = call.caller.short();
                tracing::debug!(%caller, "too many calls at once; this one is not taken");
                call.connection
            }
        }
    }

    /// The node that calls, as the relay tells it; [`Self::accept`] has it proved.
    pub const fn caller(&self) -> NodeId {
        self.caller
    }

    /// The relay by which the call came.
    pub fn relay(&self) -> &RelayPlace {
        &self.post.places[self.post.at].place
    }

    /// Takes the call, to speak one of `protocols`.
    pub async fn accept(mut self, protocols: &[Protocol]) -> Result<Connection, AttemptError> {
        let (post, caller) = (Arc::clone(&self.post), self.caller);
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => dial_relay(self.relay(), &post.identity, &post.how).await?,
        };
        let connection = match self.take(&mut connection).await {
            Ok(()) => Some(connection),
            // Whether the relay has joined both ends is not known: the caller may have gone on.
            Err(AttemptError::Read { .. } | AttemptError::Write { .. }) => None,
            Err(error) => return Err(error),
        };
        let way = CircuitWay {
            places: Arc::clone(&post.places),
            at: post.at,
            identity: post.identity.clone(),
            how: post.how.clone(),
            circuit: self.circuit,
            other: caller,
            is_caller: false,
        };
        let (socket, probe) = start(way, connection);
        let accepted = accept_over(socket, &post.identity, protocols, HANDSHAKE, probe).await;
        let connection = accepted.map_err(|source| AttemptError::EndToEnd { source })?;
        if connection.peer != caller {
            return Err(AttemptError::WrongCaller);
        }
        Ok(connection)
    }

    /// Tells the relay, on the connection on which the call came or on one of its own. Calls that it told before it knew
    /// are taken by connections of their own.
    async fn take(&mut self, connection: &mut Connection) -> Result<(), AttemptError> {
        let take = RelayMessage::Take { circuit: self.circuit };
        take.queue(&mut connection.writer).map_err(|source| AttemptError::Write { source })?;
        for _ in 0..=CALLS {
            match next_answer(connection, ANSWER).await? {
                RelayMessage::Ok { .. } => {
                    connection.reader.hold_short(false);
                    return Ok(());
                }
                RelayMessage::Fail { why } => return Err(AttemptError::Refused { why }),
                RelayMessage::Incoming { circuit, caller } => {
                    Self::of(&self.post, circuit, caller, None).offer();
                }
                _ => return Err(AttemptError::Answer),
            }
        }
        Err(AttemptError::Answer)
    }
}
