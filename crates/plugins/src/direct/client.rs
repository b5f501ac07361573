//! The plugin itself: dials the services that hints name, keeps connections, and dials again
//! when one is lost.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use towpath_content::hint::{self, PeerAddress};
use towpath_content::lock::lock;
use towpath_content::{Hint, NodeId, Oid};
use towpath_link::dialling::{Decision, Dialling};
use towpath_link::tcp::DialConfig;
use towpath_link::{Connection, Identity};
use towpath_transfer::offer::{EntrySink, EntryWant, OfferSource};
use towpath_transfer::source::{
    Backlog, NETWORK_PRICE, PathState, Query, RELAYED_PRICE, Sink, SourceState, UNREACHED_PRICE,
};
use towpath_transfer::{
    BoxFuture, Context, Delivery, Description, FirstPiece, Outcome, Source, SourceId, Tag, Want,
};

use towpath_protocol::callers::Answers;
use towpath_protocol::requests::GetRequest;
use towpath_protocol::session::Question;
use towpath_protocol::wire::{Describe, oid_field};
use towpath_protocol::{Arrived, Peer, PeerConfig, PeerUse, Stall};

use super::SCHEME;
use super::apart::apart;
use super::attempt::{DialAttempt, Dialled, SlotDialling};
use super::entries::MeasuredEntries;
use super::pool::{PeerHost, PeerNeeds};
use super::relayed::{call_by, is_relayed, relays};
use super::slots::{Slot, Slots};
use super::unasked::{Unasked, UnaskedCall};

/// Time for which wants are left alone after the connection was lost.
const PAUSE: Duration = Duration::from_millis(100);
/// With more than this delivered and not written, more connections would bring nothing.
const MOST_BACKLOG: u64 = 4 << 20;

/// Time within which the peer of a connection that was found answers what an object is.
const PATIENCE: Duration = Duration::from_secs(3);
/// Interval at which such a connection is looked at, and bytes between two looks that are pings alone.
const LOOK_EVERY: Duration = Duration::from_millis(250);
const PING: u64 = 64;

/// Time in which a peer that can be dialled is reached, mostly.
const LATE: Duration = Duration::from_millis(150);

/// Time after which a peer that was not reached is asked beside other transfers, where a connection with it stands.
const UNREACHED: Duration = Duration::from_secs(1);

/// Time between two rounds of dialling where a relay brings the bytes meanwhile.
const SHORT_PAUSE: Duration = Duration::from_millis(100);

/// Silence that ends a connection where a relay brings the bytes meanwhile: whoever moved is to be dialled anew soon. The other end
/// speaks every five seconds at least.
const BESIDE_A_RELAY: Duration = Duration::from_secs(8);

/// Time for which a path counts as measured.
const MEASURED: Duration = Duration::from_millis(1);

/// Configuration of how the plugin reaches peers.
#[derive(Clone)]
pub struct DirectConfig {
    /// Connections to the peer at first. Default 1.
    pub connections: usize,
    /// Connections to the peer at most, if more of them bring more. Default 16.
    pub most_connections: usize,
    /// How addresses are dialled. From one of several ends of this machine, it is named so in what comes.
    pub dial: DialConfig,
    /// Configuration of each connection.
    pub peer: PeerConfig,
    /// The peer is called through relays, and not dialled.
    pub is_relayed: bool,
    /// The only address that is dialled. Default: those that hints name.
    pub only: Option<SocketAddr>,
}

impl Default for DirectConfig {
    fn default() -> Self {
        let (dial, peer) = (DialConfig::default(), PeerConfig::default());
        Self { connections: 1, most_connections: 16, dial, peer, is_relayed: false, only: None }
    }
}

/// Brings objects from another service. See the head of [`super`].
pub struct Direct {
    identity: Identity,
    /// The service that it asks; `None`: the one that issued the ticket.
    node: Option<NodeId>,
    config: DirectConfig,
    slots: Arc<Slots>,
    unasked: Unasked,
    /// Has connections that stand already, and answers what the peer asks on those that are dialled.
    host: Option<Arc<dyn PeerHost>>,
    /// A connection that was found brought nothing, and none was dialled since.
    shuns: AtomicBool,
    last_error: Mutex<Option<String>>,
    /// The address at which the peer was reached last.
    led: Mutex<Option<SocketAddr>>,
    /// Time since which there is no connection: from the beginning, or as far as somebody looked.
    unreached: Mutex<Option<Instant>>,
    /// The path as it was measured last.
    measured: Mutex<Option<(Instant, PathState)>>,
}

impl Direct {
    /// A plugin that dials the ticket's issuer, as `identity`, unless `host` has a connection that may be used.
    pub fn new(identity: Identity, config: DirectConfig, host: Option<Arc<dyn PeerHost>>) -> Self {
        let slots = Arc::new(Slots::new(config.connections, config.most_connections));
        Self {
            identity,
            node: None,
            config,
            slots,
            unasked: Unasked::default(),
            host,
            shuns: AtomicBool::new(false),
            last_error: Mutex::default(),
            led: Mutex::default(),
            unreached: Mutex::new(Some(Instant::now())),
            measured: Mutex::default(),
        }
    }

    /// The same for another holder of what is asked for, at the addresses of the hints that name it.
    #[must_use]
    pub fn to(self, node: NodeId) -> Self {
        Self { node: Some(node), ..self }
    }

    /// A plugin that asks over a connection that stands already, whoever dialled it, and never
    /// dials.
    pub fn over(peer: Arc<Peer>, identity: Identity) -> Self {
        Self::over_several(peer, identity, DirectConfig { most_connections: 1, ..DirectConfig::default() })
    }

    /// The same, over several: how many are wanted it says ([`Self::wanted`]), and whoever has them brings them
    /// ([`Self::join`]).
    pub fn over_several(peer: Arc<Peer>, identity: Identity, config: DirectConfig) -> Self {
        let slots = Arc::new(Slots::standing(peer, config.connections, config.most_connections));
        Self { slots, ..Self::new(identity, config, None) }
    }

    /// The address at which the peer was reached last, if it was dialled.
    pub fn led(&self) -> Option<SocketAddr> {
        *lock(&self.led)
    }

    /// Reaches the peer, and asks it nothing.
    pub(super) async fn reach(&self, context: &Context) -> Result<(), Outcome> {
        let slot = self.slots.idlest();
        let peer = self.peer(slot, context).await?;
        let is_there = peer.greeted().await;
        self.ended(slot, &peer, if is_there { Ok(()) } else { Err(Outcome::RetryLater(PAUSE)) })
    }

    /// Number of connections that are wanted; none where it dials by itself.
    pub fn wanted(&self) -> Option<watch::Receiver<usize>> {
        self.slots.are_brought().then(|| self.slots.wanted())
    }

    /// Connections that are wanted and do not stand.
    pub fn lacks(&self) -> usize {
        self.slots.lacks()
    }

    /// Takes in a further connection to the same node; false if none is wanted.
    pub fn join(&self, peer: Arc<Peer>) -> bool {
        self.slots.join(peer)
    }

    /// Hands a ticket over for what it names to be fetched: `Ok` once that can be had from the peer.
    pub async fn hand_over(&self, ticket: Bytes, context: &Context) -> Result<(), Outcome> {
        let slot = self.slots.idlest();
        let peer = self.peer(slot, context).await?;
        // Whether it can be asked so its hello says.
        peer.greeted().await;
        let (answers, _none) = mpsc::channel(1);
        let result = peer.ask(Question::Bring(ticket), Answers::Descriptions(answers)).await;
        self.ended(slot, &peer, result)
    }

    fn set_last_error(&self, last_error: Option<String>) {
        *lock(&self.last_error) = last_error;
    }

    /// Notes how a connection did. Those that were brought say nothing of the first, without which there is no way.
    fn note(&self, slot: &Slot, error: Option<String>) {
        if !self.slots.are_brought() || self.slots.is_first(slot) {
            self.set_last_error(error);
        }
    }

    /// A connection that stands and on which the root is proved, or how long to wait.
    async fn peer(&self, slot: &Slot, context: &Context) -> Result<Arc<PeerUse>, Outcome> {
        let mut dialling = slot.dialling.lock().await;
        let standing = slot.peer();
        let peer = match (dialling.backoff.decide(Instant::now(), standing.is_some()), standing) {
            (Decision::Use, Some(peer)) => peer,
            (decision, _) => {
                if let Some(why) = slot.take_lost() {
                    self.note(slot, Some(why));
                }
                match (self.slots.are_brought(), self.slots.is_first(slot)) {
                    (false, _) => {}
                    (true, true) => return Err(Outcome::NotHere),
                    // The others stand.
                    (true, false) => return Err(Outcome::RetryLater(PAUSE)),
                }
                let reached = match (self.find(slot, context, false), decision) {
                    (Some(found), _) => Ok((found, true)),
                    (None, Decision::Wait(wait)) => Err(Outcome::RetryLater(wait)),
                    (None, _) => self.dial_or_find(slot, &mut dialling, context).await,
                };
                // What can't be dialled is asked beside others; what could be is about to be dialled again.
                let may_share = decision == Decision::Dial || self.led().is_none();
                let shared = || Some((self.find(slot, context, may_share)?, true));
                let (peer, is_found) = reached.or_else(|outcome| shared().ok_or(outcome))?;
                dialling.attempt = None;
                let peer = Arc::new(peer);
                slot.set(Arc::clone(&peer), is_found);
                peer
            }
        };
        self.prove(&peer, context);
        Ok(peer)
    }

    /// Shows the right to the root on a connection, unless there is none to show; false if it can't be shown there.
    fn prove(&self, peer: &Peer, context: &Context) -> bool {
        context.secret.is_none_or(|secret| {
            let proof = secret.prove(peer.binding(), &self.identity.node_id(), &context.root);
            peer.prove(&context.root, &proof)
        })
    }

    /// A connection of this service with the node, for the first slot: further ones are there to be more than those that stand.
    /// One that others use only if it may be shared.
    fn find(&self, slot: &Slot, context: &Context, may_share: bool) -> Option<PeerUse> {
        let (host, node) = (self.host.as_ref()?, self.node.or(context.node)?);
        let is_any_way = self.config.dial.from.is_none() && self.config.only.is_none();
        let may_be_any = is_any_way && self.slots.is_first(slot);
        if !may_be_any || self.shuns.load(Ordering::Relaxed) {
            return None;
        }
        // The other connections of this transfer are there as well.
        let may_share = may_share && self.slots.peers().next().is_none();
        let needs = PeerNeeds { may_share, ..PeerNeeds::of(&self.config.peer, self.config.is_relayed) };
        host.pool().take(&node, needs, context.root, |peer| self.prove(peer, context))
    }

    /// A connection that is dialled, or one that somebody else brings meanwhile; true for such a one. If that takes long, one that
    /// others use.
    async fn dial_or_find(
        &self,
        slot: &Slot,
        dialling: &mut SlotDialling,
        context: &Context,
    ) -> Result<(PeerUse, bool), Outcome> {
        let finding = async {
            let Some(host) = &self.host else { return std::future::pending().await };
            let free = host.pool().until(|| self.find(slot, context, false));
            match tokio::time::timeout(UNREACHED, free).await {
                Ok(found) => found,
                Err(_late) => host.pool().until(|| self.find(slot, context, true)).await,
            }
        };
        tokio::select! {
            dialled = self.dial(dialling, context) => Ok((dialled?, false)),
            found = finding => Ok((found, true)),
        }
    }

    /// A connection that a relay carries.
    async fn call(&self, dialling: &mut Dialling, context: &Context) -> Result<PeerUse, Outcome> {
        let Some(node) = self.node.or(context.node) else { return Err(Outcome::NotHere) };
        let hints = context.hints.borrow().clone();
        let is_it = |named: Option<NodeId>| named.or(context.node) == Some(node);
        let relays = relays(hints, is_it, |total| random() % (total + 1));
        if relays.is_empty() {
            self.shuns.store(false, Ordering::Relaxed);
            return Err(Outcome::NotHere);
        }
        let called = call_by(relays, &self.identity, node, self.host.as_ref()).await;
        let wait = dialling.dialled(Instant::now(), random());
        match called {
            Ok(connection) => self.start(connection, context),
            Err(error) => {
                self.shuns.store(false, Ordering::Relaxed);
                self.set_last_error(Some(error));
                Err(Outcome::RetryLater(wait))
            }
        }
    }

    /// Dials what is to stand before it is asked, as long as this is polled. Where they are brought somebody else does.
    async fn open_ahead(&self, context: &Context) {
        let mut wanted = self.slots.wanted();
        while !self.slots.are_brought() {
            wanted.mark_unchanged();
            let dialling = self.slots.missing().map(|slot| self.peer(slot, context));
            join_all(dialling.collect::<Vec<_>>()).await;
            if wanted.changed().await.is_err() {
                break;
            }
        }
        std::future::pending().await
    }

    async fn dial(&self, dialling: &mut SlotDialling, context: &Context) -> Result<PeerUse, Outcome> {
        if self.config.is_relayed {
            return self.call(&mut dialling.backoff, context).await;
        }
        let Some(node) = self.node.or(context.node) else { return Err(Outcome::NotHere) };
        let hints = context.hints.borrow().clone();
        let is_it = |named: Option<NodeId>| named.or(context.node) == Some(node);
        let has_relay = is_relayed(&hints, is_it);
        let attempt = match &mut dialling.attempt {
            Some(attempt) => attempt,
            none => {
                let addresses = match self.config.only {
                    Some(only) => vec![only],
                    None => addresses(hints, is_it).await,
                };
                if addresses.is_empty() {
                    self.shuns.store(false, Ordering::Relaxed);
                    return Err(self.nowhere(context));
                }
                none.insert(self.attempt(addresses, node, has_relay))
            }
        };
        let dialled = attempt.ended().await;
        dialling.attempt = None;
        let is_missed = has_relay && dialled.as_ref().is_none_or(|dialled| dialled.connection.is_err());
        let wait = match is_missed {
            true => dialling.backoff.missed(Instant::now(), SHORT_PAUSE),
            false => dialling.backoff.dialled(Instant::now(), random()),
        };
        let Some(Dialled { connection, addresses }) = dialled else { return Err(Outcome::RetryLater(wait)) };
        match connection {
            // Its use remains to be seen, so what was in the way is not forgotten.
            Ok(connection) => {
                let is_it = |address: &SocketAddr| Some(address.ip().to_canonical()) == connection.address;
                *lock(&self.led) = addresses.into_iter().find(is_it);
                let peer = self.start(connection, context)?;
                if has_relay {
                    peer.set_silence(BESIDE_A_RELAY);
                }
                Ok(peer)
            }
            Err(error) => {
                self.shuns.store(false, Ordering::Relaxed);
                self.set_last_error(Some(explain(&error)));
                Err(Outcome::RetryLater(wait))
            }
        }
    }

    fn attempt(&self, addresses: Vec<SocketAddr>, node: NodeId, has_relay: bool) -> DialAttempt {
        let unreached = lock(&self.unreached).map_or(Duration::ZERO, |since| since.elapsed());
        let unreached = has_relay.then_some(unreached);
        DialAttempt::begin(addresses, self.identity.clone(), node, self.config.dial.clone(), unreached)
    }

    /// Starts a connection that was dialled or called. Where there is a host the peer may ask there, too.
    fn start(&self, connection: Connection, context: &Context) -> Result<PeerUse, Outcome> {
        let config = self.config.peer.clone();
        let peer = match (&self.host, self.config.is_relayed) {
            (None, _) => return Ok(PeerUse::lent(Peer::start(connection, config, None))),
            (Some(host), true) => host.start_relayed(connection, config),
            (Some(host), false) => host.start(connection, config),
        };
        // Another transfer may have been quicker.
        PeerUse::alone(&peer, context.root).ok_or(Outcome::RetryLater(PAUSE))
    }

    /// Price of what it brings. Where it has not been reached for a moment, others come first.
    fn price(&self) -> u32 {
        let (mut since, now) = (lock(&self.unreached), Instant::now());
        *since = match self.slots.peers().next() {
            Some(_) => None,
            None => Some(since.unwrap_or(now)),
        };
        let is_late = since.is_some_and(|since| now.saturating_duration_since(since) > LATE);
        match (is_late, self.config.is_relayed) {
            (true, _) => UNREACHED_PRICE,
            (false, true) => RELAYED_PRICE,
            (false, false) => NETWORK_PRICE,
        }
    }

    /// No address is known. Where a rendezvous is named it may tell one.
    fn nowhere(&self, context: &Context) -> Outcome {
        let may_be_told = context.hints.borrow().iter().any(|named| named.scheme() == hint::RENDEZVOUS);
        let (why, outcome) = match may_be_told {
            true => ("nobody who has it is known at the rendezvous", Outcome::RetryLater(LOOK_EVERY)),
            false => ("no hint tells an address that this program can dial", Outcome::NotHere),
        };
        self.set_last_error(Some(why.into()));
        outcome
    }

    /// Amounts that came of the peer, by all connections together.
    pub(crate) fn heard(&self) -> Arrived {
        self.slots.peers().map(|peer| peer.heard()).fold(Arrived::default(), Arrived::with)
    }

    /// The ways to the peer, all connections together. The kernel is asked now and then only: states are asked for often.
    fn path(&self) -> PathState {
        let (mut measured, now) = (lock(&self.measured), Instant::now());
        if let Some((at, path)) = *measured
            && now.saturating_duration_since(at) < MEASURED
        {
            return path;
        }
        let heard = self.heard();
        let bare = PathState { arrived: heard.bytes, is_due: heard.awaits_data, ..PathState::default() };
        let paths = self.slots.peers().filter_map(|peer| peer.path());
        let path = paths.fold(bare, |all, path| PathState {
            round_trip: all.round_trip.max(path.rtt),
            shortest: all.shortest.max(path.min_rtt),
            receive_queue: all.receive_queue + path.receive_queue_bytes,
            ..all
        });
        *measured = Some((now, path));
        path
    }

    async fn ask_about(
        &self,
        query: Query,
        context: &Context,
        answers: mpsc::Sender<Description>,
    ) -> Result<(), Outcome> {
        let slot = self.slots.idlest();
        let peer = self.peer(slot, context).await?;
        if query.recipe && !peer.has_recipes().await {
            return self.ended(slot, &peer, Err(Outcome::NotHere));
        }
        if query.samples && !peer.has_samples().await {
            return self.ended(slot, &peer, Err(Outcome::NotHere));
        }
        // Whoever is asked no more than what an object is has the answer at once.
        let is_quick = slot.is_found() && !query.recipe && !query.samples && !query.follow;
        let silent = async {
            match is_quick {
                true => until_silent(&peer).await,
                false => std::future::pending().await,
            }
        };
        let question = Question::Describe(describe(context, &query));
        let closed = answers.clone();
        let asking = peer.ask(question, Answers::Descriptions(answers));
        match query.first {
            FirstPiece::Unsaid => {}
            FirstPiece::Wanted => peer.get_ahead(&context.root, &query.oid, true),
            FirstPiece::MayBeHere => peer.get_ahead(&context.root, &query.oid, false),
        }
        tokio::select! {
            result = asking => self.ended(slot, &peer, result),
            () = closed.closed() => Ok(()),
            () = silent => {
                self.shun(slot);
                Err(Outcome::RetryLater(PAUSE))
            }
        }
    }

    /// After a request: a connection that held resets the wait for the next one.
    fn ended(&self, slot: &Slot, peer: &Peer, result: Result<(), Outcome>) -> Result<(), Outcome> {
        let ended = peer.ended();
        let is_over = ended.is_some();
        self.note(slot, ended);
        result.map_err(|outcome| match outcome {
            Outcome::RetryLater(_) if is_over => Outcome::RetryLater(PAUSE),
            other => other,
        })
    }

    async fn bring(&self, slot: &Slot, wants: Vec<Want>, context: &Context, sink: Arc<dyn Sink>) {
        let waiting = self.unasked.wait(&wants);
        let peer = match self.peer(slot, context).await {
            Ok(peer) => peer,
            Err(outcome) => return wants.iter().for_each(|want| sink.outcome(want.tag, outcome.clone())),
        };
        let given_up = CancellationToken::new();
        let _end = given_up.clone().drop_guard();
        let sink: Arc<dyn Sink> =
            Arc::new(SlotSink { inner: sink, slots: Arc::clone(&self.slots), given_up });
        if slot.is_found() {
            let (sink, handing_on) = apart(sink, wants.len());
            let asking = self.ask_for(&peer, (waiting, wants), context, sink);
            let asking = async {
                tokio::select! {
                    () = asking => {}
                    () = until_stalled(&peer) => self.shun(slot),
                }
            };
            tokio::join!(asking, handing_on);
        } else {
            self.ask_for(&peer, (waiting, wants), context, sink).await;
        }
        self.asked(slot, &peer).await;
    }

    /// Asks for wants that waited for the connection, and waits until each has ended.
    async fn ask_for(
        &self,
        peer: &PeerUse,
        (waiting, mut wants): (UnaskedCall<'_>, Vec<Want>),
        context: &Context,
        sink: Arc<dyn Sink>,
    ) {
        let claimed = peer.claim(&mut wants, &sink);
        // Only runs of bytes wait for the peer's hello.
        let is_run = |want: &Want| want.origin.is_some() || want.part.is_some() || want.base.is_some();
        let by_bytes = wants.iter().any(is_run) && peer.has_recipes().await;
        for want in waiting.end(&mut wants) {
            sink.outcome(want.tag, Outcome::Cancelled);
        }
        if !peer.has_deltas() {
            let is_guess = |want: &mut Want| want.base.as_ref().is_some_and(|base| base.request.is_guess);
            wants.extract_if(.., is_guess).for_each(|want| sink.outcome(want.tag, Outcome::NotHere));
            wants.iter_mut().for_each(|want| want.base = None);
        }
        let requests = GetRequest::all(&context.root, wants, by_bytes).into_iter();
        let asked = join_all(requests.map(|request| peer.get(request, Arc::clone(&sink))));
        tokio::join!(asked, async {
            if let Some(claimed) = claimed {
                claimed.await;
            }
        });
    }

    /// After wants were asked for on a connection: whether it still stands.
    async fn asked(&self, slot: &Slot, peer: &Peer) {
        let ended = peer.ended();
        let stands = ended.is_none();
        self.note(slot, ended);
        if stands {
            slot.proved_useful().await;
        }
    }

    /// A connection that was found brings nothing: the next one is dialled, and only if that can't be the found one is tried again.
    fn shun(&self, slot: &Slot) {
        self.shuns.store(true, Ordering::Relaxed);
        slot.release();
    }

    /// A connection that stands, if there is one.
    async fn standing(&self, slot: &Slot) -> Option<Arc<PeerUse>> {
        // Somebody may be dialling.
        let _dialling = slot.dialling.lock().await;
        let peer = slot.peer();
        if peer.is_none()
            && let Some(why) = slot.take_lost()
        {
            self.note(slot, Some(why));
        }
        peer
    }
}

/// Sink of a connection, on the way to the session.
struct SlotSink {
    inner: Arc<dyn Sink>,
    slots: Arc<Slots>,
    /// The call is over or was dropped: nobody waits for its sink, which would hold up the whole connection.
    given_up: CancellationToken,
}

impl Sink for SlotSink {
    fn deliver(&self, delivery: Delivery) -> BoxFuture<'_, ()> {
        let bytes = delivery.payload.bytes();
        if !bytes.is_empty() {
            let is_waiting = self.inner.backpressure().writer_backlog <= MOST_BACKLOG;
            self.slots.arrived(bytes.len() as u64, is_waiting, Instant::now());
        }
        Box::pin(async move {
            let _ = self.given_up.run_until_cancelled(self.inner.deliver(delivery)).await;
        })
    }

    fn partial_piece(&self, delivery: Delivery) {
        self.inner.partial_piece(delivery);
    }

    /// A lost connection ends wants as "retry now"; asking again at once would spin while the peer
    /// is away.
    fn outcome(&self, tag: Tag, outcome: Outcome) {
        let outcome = match outcome {
            Outcome::RetryLater(delay) => Outcome::RetryLater(delay.max(PAUSE)),
            other => other,
        };
        self.inner.outcome(tag, outcome);
    }

    fn backpressure(&self) -> Backlog {
        self.inner.backpressure()
    }
}

impl Source for Direct {
    fn name(&self) -> &str {
        "direct"
    }

    /// It dials with TLS only; one that uses what stands asks that.
    fn state(&self) -> SourceState {
        SourceState {
            path: self.path(),
            trouble: lock(&self.last_error).clone(),
            is_encrypted: self.slots.peers().all(|peer| peer.is_encrypted()),
            makes_deltas: true,
            price: self.price(),
            ..SourceState::of_window(self.slots.window())
        }
    }

    fn describe<'a>(
        &'a self,
        query: Query,
        context: &'a Context,
        answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        Box::pin(self.ask_about(query, context, answers))
    }

    fn get<'a>(&'a self, wants: Vec<Want>, context: &'a Context, sink: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        let hands = self.slots.deal(wants);
        Box::pin(async move {
            let calls = hands.into_iter().map(|(slot, outstanding, wants)| {
                let sink = Arc::clone(&sink);
                async move {
                    self.bring(slot, wants, context, sink).await;
                    drop(outstanding);
                }
            });
            tokio::select! {
                _ = join_all(calls) => {}
                () = self.open_ahead(context) => {}
            }
        })
    }

    /// These wants are cancelled and no others; one that shares a run of bytes with others that are needed comes with them.
    fn cancel(&self, tags: &[Tag]) {
        if tags.is_empty() {
            return;
        }
        self.unasked.cancel(tags);
        for peer in self.slots.peers() {
            peer.cancel(tags);
        }
    }

    /// A connection that was found, that others use, or over which the peer fetches, is left to them.
    fn finish<'a>(&'a self, how: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let ends = self.slots.take_all().into_iter().map(|(peer, is_found)| async move {
                match is_found || peer.has_others() || *peer.served().use_changes().borrow() {
                    true => peer.leave(how),
                    false => peer.finish(how).await,
                }
            });
            join_all(ends).await;
        })
    }

    fn report_corrupt(&self, source: &SourceId) {
        let is_this_way = source.path() == self.config.peer.way.as_deref();
        for peer in self.slots.peers().filter(|_| is_this_way) {
            if source.node() == Some(&peer.node()) {
                peer.close("the peer sent what does not match its hash");
            }
        }
    }

    fn have<'a>(
        &'a self,
        oid: Oid,
        context: &'a Context,
        ranges: mpsc::Sender<Vec<Range<u64>>>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let Ok(peer) = self.peer(self.slots.idlest(), context).await else { return };
            let query = Query { follow: true, ..Query::about(oid) };
            let question = Question::Watch(describe(context, &query));
            let closed = ranges.clone();
            tokio::select! {
                _ = peer.ask(question, Answers::Ranges(ranges)) => {}
                () = closed.closed() => {}
            }
        })
    }
}

/// Asks over a connection that stands: nothing is dialled for an offer.
impl OfferSource for Direct {
    fn get_entries(&self, wants: Vec<EntryWant>, sink: Arc<dyn EntrySink>) -> BoxFuture<'_, Vec<EntryWant>> {
        Box::pin(async move {
            let (slot, _outstanding) = self.slots.for_entries(wants.len());
            let Some(peer) = self.standing(slot).await else { return wants };
            peer.get_entries(wants, Arc::new(MeasuredEntries::new(sink, Arc::clone(&self.slots)))).await;
            self.asked(slot, &peer).await;
            Vec::new()
        })
    }
}

/// Completes when nothing comes on a connection though it is due.
async fn until_stalled(peer: &Peer) {
    let (mut stall, mut ticks) = (Stall::default(), tokio::time::interval(LOOK_EVERY));
    loop {
        ticks.tick().await;
        let heard = peer.heard();
        if stall.look(Instant::now(), heard.bytes, PING, heard.awaits_data).is_some() {
            return;
        }
    }
}

/// Completes when the peer of a connection that was found has not answered for long: other transfers may have asked before.
async fn until_silent(peer: &PeerUse) {
    loop {
        let before = peer.heard().bytes;
        tokio::time::sleep(PATIENCE).await;
        if !peer.has_others() || peer.heard().bytes.saturating_sub(before) <= PING {
            return;
        }
    }
}

/// The message of a question, but for its number.
fn describe(context: &Context, query: &Query) -> Describe {
    Describe {
        request: 0,
        root: oid_field(&context.root),
        oid: oid_field(&query.oid),
        block: query.coverage.map(|coverage| coverage.block),
        values_from: query.proofs.as_ref().map(|run| run.start),
        values_to: query.proofs.as_ref().map_or(0, |run| run.end),
        follow: query.follow,
        recipe: query.recipe,
        samples: query.samples,
    }
}

/// The addresses at which the issuer of a ticket is dialled.
pub(super) async fn dialled_addresses(context: &Context) -> Vec<SocketAddr> {
    let hints = context.hints.borrow().clone();
    addresses(hints, |named| named.is_none() || named == context.node).await
}

/// The addresses in hints that name a node which `is_it`, or none, in the order of RFC 2782. Names are looked up; hints of
/// other plugins are left out.
async fn addresses(hints: Vec<Hint>, is_it: impl Fn(Option<NodeId>) -> bool) -> Vec<SocketAddr> {
    let named = |hint: &Hint| hint.rest().parse::<PeerAddress>().ok().filter(|_| hint.scheme() == SCHEME);
    let is_ours = |hint: &Hint| named(hint).is_some_and(|peer| is_it(peer.node));
    let ours = hints.into_iter().filter(is_ours).collect();
    let mut addresses = Vec::new();
    for hint in hint::order(ours, |total| random() % (total + 1)) {
        let Some(peer) = named(&hint) else { continue };
        match tokio::net::lookup_host(&peer.address).await {
            Ok(found) => addresses.extend(found),
            Err(error) => tracing::debug!(hint = hint.method, %error, "could not look up"),
        }
    }
    addresses
}

/// An error with what caused it.
fn explain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// A number for jitter and weighted draws; nothing secret depends on it.
fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}
