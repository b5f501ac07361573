//! A connection to another service: its handle.
//!
//! Either side may ask. What a frame means and what is due when is for the connection's
//! [`Session`] to say; the tasks, `reader` and `writer`, move the frames.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use towpath_content::{NodeId, Oid};
use towpath_link::stall::Arrived;
use towpath_link::{Connection, PathInfo, PathProbe, PeerProof};
use towpath_transfer::offer::{EntrySink, EntryWant};
use towpath_transfer::source::Sink;
use towpath_transfer::{Outcome, SourceId, Want};

use super::callers::{Act, Answers, Callers, Later, PeerNews};
use super::control::{self, ControlReceiver, ControlSender};
use super::conversation::{Conversation, Outboxes};
use super::entry_way::EntryWay;
use super::introducing::IntroducedPeer;
use super::outgoing::{Outbox, Outgoing};
use super::pace::Pace;
use super::reader::read_frames;
use super::requests::GetRequest;
use super::served::Served;
use super::service::Service;
use super::session::{Greeting, PEER_CLOSED, Question, Session, SessionConfig};
use super::session_queue::session_queue;
use super::shared::{Shared, Traffic};
use super::urgent::urgent_queue;
use super::window::SendWindow;
use super::wire::{Body, WireServes, oid_field};
use super::writer::{Messages, WriterQueues, write_frames};
use crate::processors::Processors;

/// Batches of frames that wait for the writer task; a batch has at most about 256 KiB.
const OUT_QUEUE: usize = 4;

/// Longest time for sending that nothing more is needed.
const FINISH_TIME: Duration = Duration::from_millis(200);

/// Behaviour of this side of a connection.
#[derive(Clone)]
pub struct PeerConfig {
    /// Not a byte for this long: the connection is lost. Default 20 s.
    pub silence: Duration,
    /// Limits what this side sends.
    pub send_pace: Arc<Pace>,
    /// Limits what this side takes.
    pub receive_pace: Arc<Pace>,
    /// Counts.
    pub traffic: Arc<Traffic>,
    /// This side has a control stream ([`Peer::control`]). Default: no.
    pub control: bool,
    /// Wishes by name, as [`super::COMPRESS`]: such data are encoded in both directions. Default: only
    /// those sent, and if the peer asks.
    pub wishes: Vec<String>,
    /// The encodings of data that this side takes and can send. Default: those of this build.
    pub processors: Processors,
    /// Urgency of this side's requests among all that its node sends the peer. Default 0.
    pub priority: i8,
    /// Who hears what the peer says beside its answers. Default: nobody.
    pub news: PeerNews,
    /// Name of the way to the peer, where there are several: what comes is told apart by it. Default: none.
    pub way: Option<String>,
    /// The peer is told that name, and where this side has none the peer's is taken. Default: no.
    pub tells_link: bool,
    /// Number of this connection among those by that way, from 1 on, which the peer is told with the name. Default 0: it is alone.
    pub link_number: u32,
    /// Anybody may be the peer: until it has a right to something it is given little memory. Default: no.
    pub from_anyone: bool,
}

impl Default for PeerConfig {
    fn default() -> Self {
        Self {
            silence: Duration::from_secs(20),
            send_pace: Arc::new(Pace::new(0)),
            receive_pace: Arc::new(Pace::new(0)),
            traffic: Arc::default(),
            control: false,
            wishes: Vec::new(),
            processors: Processors::default(),
            priority: 0,
            news: PeerNews::default(),
            way: None,
            tells_link: false,
            link_number: 0,
            from_anyone: false,
        }
    }
}

impl PeerConfig {
    fn session(&self, node: &NodeId, serves: bool, probe: &PathProbe) -> SessionConfig {
        SessionConfig {
            silence: self.silence,
            control: self.control,
            processors: self.processors.clone(),
            wishes: self.wishes.clone(),
            serves,
            priority: self.priority,
            measures: probe.read().is_none(),
            paces: probe.paces(),
            source: SourceId::peer_by(*node, self.way.as_deref()),
            tells_link: self.tells_link,
            link_number: self.link_number,
        }
    }
}

/// A connection to another service. Dropping the last handle closes it.
pub struct Peer {
    pub(super) shared: Arc<Shared>,
    outbox: Outbox,
    binding: [u8; 32],
    proof: PeerProof,
    probe: PathProbe,
    served: Arc<Served>,
    control: Mutex<Option<(ControlSender, ControlReceiver)>>,
    /// Urgency of this side's requests.
    pub(super) priority: i8,
    _close: DropGuard,
}

impl Peer {
    /// Starts the tasks of a connection; `service`, if given, answers what the peer asks.
    pub fn start(connection: Connection, config: PeerConfig, service: Option<Arc<Service>>) -> Arc<Self> {
        let (node, address, proof) = (connection.peer, connection.address, connection.proof);
        let (binding, probe) = (connection.binding, connection.info.clone());
        let (reader, writer) = connection.split();
        let [token, greeted, measured, known] = std::array::from_fn(|_| CancellationToken::new());
        let (outbox, outgoing) = mpsc::channel(OUT_QUEUE);
        let (answers_in, answers) = mpsc::channel(OUT_QUEUE);
        let (urgent_in, urgent) = urgent_queue();
        let session = config.session(&node, service.is_some(), &probe);
        let session = Session::new(session, Instant::now());
        let (messages_in, messages) = session_queue();
        let news = (node, config.news.clone());
        let callers = Mutex::new(Callers::new(session, (messages_in, urgent_in.clone()), news));
        let contents = SendWindow::new(urgent_in.clone(), Arc::clone(&config.send_pace));
        let stream = || control::ControlStream::new(urgent_in, Arc::clone(&config.send_pace));
        let (stream, control) = config.control.then(stream).unzip();
        if !config.from_anyone || service.as_ref().is_some_and(|service| service.knows(&node)) {
            known.cancel();
        }
        let PeerConfig { send_pace: pace, receive_pace, traffic, processors, priority, .. } = config;
        let shared = Arc::new(Shared {
            node,
            callers,
            token: token.clone(),
            receive_pace,
            traffic,
            heard: reader.counter(),
            listens: AtomicBool::new(false),
            greeted,
            known,
            measured,
            control: stream,
        });
        // Puts the hello into the queue.
        shared.change(|_| ());
        let messages = Messages { control: urgent, session: messages };
        let queues = WriterQueues { messages, answers, outgoing, pace: Arc::clone(&pace) };
        tokio::spawn(write_frames(Arc::clone(&shared), writer, queues));
        let served = Arc::<Served>::default();
        let conversation = service.map(|service| {
            let introduced = IntroducedPeer::new(service.introducer(), &shared, address);
            let outboxes = Outboxes { answers: answers_in, data: outbox.clone(), pace };
            let (who, ways) = ((node, Arc::clone(&served), introduced), (outboxes, contents));
            Conversation::start(service, who, binding, processors.clone(), ways, probe.clone())
        });
        tokio::spawn(read_frames(Arc::clone(&shared), reader, processors, conversation));
        Arc::new(Self {
            shared,
            outbox,
            binding,
            proof,
            probe,
            served,
            control: Mutex::new(control),
            priority,
            _close: token.drop_guard(),
        })
    }

    /// True if the connection was lost because nothing came.
    pub fn was_silent(&self) -> bool {
        self.shared.with(|session| session.liveness().is_lost())
    }

    /// From now on the connection is lost after this long without a byte. The other side must agree:
    /// it sends a ping after a quarter of its own limit.
    pub fn set_silence(&self, silence: Duration) {
        self.shared.change(|callers| callers.session().liveness_mut().set_silence(silence));
    }

    /// Amount that came on this connection, to see a stall by.
    pub fn heard(&self) -> Arrived {
        let (bytes, listens) =
            (self.shared.heard.load(Ordering::Relaxed), self.shared.listens.load(Ordering::Relaxed));
        Arrived { bytes, listens, awaits_data: listens && self.shared.with(Session::awaits_data) }
    }

    /// The service at the other end.
    pub fn node(&self) -> NodeId {
        self.shared.node
    }

    /// True if this program encrypts the connection itself, as with TLS.
    pub fn is_encrypted(&self) -> bool {
        self.proof == PeerProof::Key
    }

    /// The binding of proofs on this connection.
    pub const fn binding(&self) -> &[u8; 32] {
        &self.binding
    }

    /// Name of the peer in deliveries, with the link by which they come, if one was named: by this side, or in the peer's hello.
    pub fn source(&self) -> SourceId {
        self.shared.with(|session| session.source().clone())
    }

    /// True if the peer can be asked for recipes and for runs of bytes: what its hello said, which this
    /// waits for.
    pub async fn has_recipes(&self) -> bool {
        self.greeted().await && self.shared.with(|session| session.greeting().has_recipes)
    }

    /// What the peer's hello said; nothing before it has come.
    pub fn greeting(&self) -> Greeting {
        self.shared.with(|session| session.greeting())
    }

    /// True if the peer can be asked for samples, as its hello said, which this waits for.
    pub async fn has_samples(&self) -> bool {
        self.greeted().await && self.shared.with(|session| session.greeting().has_samples)
    }

    /// Bytes that the peer last suggested to keep outstanding; 0 if it has no opinion.
    pub fn suggested(&self) -> u64 {
        self.shared.with(Session::suggested)
    }

    /// The path as the kernel measures it, if it is TCP; else the round trip alone, once that is measured.
    pub fn path(&self) -> Option<PathInfo> {
        self.probe.read().or_else(|| {
            let shortest = self.shared.with(Session::round_trip)?;
            Some(PathInfo { rtt: shortest, min_rtt: shortest, ..PathInfo::default() })
        })
    }

    /// Completes when the round trip of a connection is known of which the kernel does not tell it: of a pipe.
    pub fn until_measured(&self) -> impl Future<Output = ()> + Send + use<> {
        self.shared.measured.clone().cancelled_owned()
    }

    /// Reason why the connection ended, if it has.
    pub fn ended(&self) -> Option<String> {
        let is_over = || self.shared.token.is_cancelled().then(|| "the connection was closed".into());
        self.shared.ended().or_else(is_over)
    }

    /// Completes when the connection has ended. Whoever waits does not keep it.
    pub fn closed(&self) -> impl Future<Output = ()> + Send + use<> {
        self.shared.token.clone().cancelled_owned()
    }

    /// Completes when the peer had a right to something: it proved a root, or was allowed what it asked for. At once
    /// unless anybody may be the peer ([`PeerConfig::from_anyone`]).
    pub fn until_known(&self) -> impl Future<Output = ()> + Send + use<> {
        self.shared.known.clone().cancelled_owned()
    }

    /// Waits for the peer's hello: only then has it accepted the connection. False if the
    /// connection ended before.
    pub async fn greeted(&self) -> bool {
        tokio::select! {
            () = self.shared.greeted.cancelled() => true,
            () = self.shared.token.cancelled() => false,
        }
    }

    /// The control stream: once, and only if this side was configured to have one. Its messages
    /// overtake data that wait to be sent, but not data that the peer is still taking in.
    pub fn control(&self) -> Option<(ControlSender, ControlReceiver)> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Objects that the peer fetches from this side.
    pub const fn served(&self) -> &Arc<Served> {
        &self.served
    }

    /// Closes the connection, as this side needs nothing more of it, and waits a moment until that is said.
    pub async fn finish(&self, how: &str) {
        self.close(how);
        // Its other end lives as long as the task that writes.
        let _ = tokio::time::timeout(FINISH_TIME, self.outbox.closed()).await;
    }

    /// The reason that the peer gave when it needed nothing more: [`super::HAS_ALL`] or [`super::HAS_THE_REST`].
    pub fn finished(&self) -> Option<String> {
        let said = self.ended()?.strip_prefix(PEER_CLOSED)?.to_owned();
        [super::HAS_ALL, super::HAS_THE_REST].contains(&&*said).then_some(said)
    }

    /// Closes the connection.
    pub fn close(&self, why: &str) {
        self.shared.change(|callers| callers.session().close(Some(why.into())));
    }

    /// Sends a control message; false if the connection has ended.
    pub async fn send(&self, body: Body) -> bool {
        self.outbox.send(Outgoing::control(body).into()).await.is_ok()
    }

    /// Shows the right to `root`, once on a connection; false if it can't be shown on this one ([`Session::prove`]).
    pub fn prove(&self, root: &Oid, proof: &[u8; 32]) -> bool {
        self.shared.change(|callers| callers.session().prove(root, proof))
    }

    /// Says that what is got under `root`, to which the right was shown, is served at this port; 0: no more. False if the peer does
    /// not know that, or not yet.
    pub fn serve(&self, root: &Oid, port: u16) -> bool {
        self.shared.change(|callers| {
            let knows = callers.session().greeting().has_holders;
            let serves = WireServes { root: oid_field(root), port: port.into() };
            callers.session().reply(knows.then_some(Body::Serves(serves)));
            knows
        })
    }

    /// Asks for data; each want ends through `sink`. Returns when all have ended.
    pub async fn get(&self, request: GetRequest, sink: Arc<dyn Sink>) {
        let (request, ending) = self.shared.change(|callers| callers.get(request, sink));
        let _forget = Forget { peer: self, request };
        // Its sender is dropped in the end.
        let _ = ending.await;
    }

    /// Asks for entries that the peer offers: at least one, at most [`MAX_ENTRIES`](super::wire::MAX_ENTRIES), for all of which
    /// the same may come with the names. Returns when nothing more comes.
    pub async fn get_entries(&self, wants: Vec<EntryWant>, sink: Arc<dyn EntrySink>) {
        let (request, ending, asked) =
            self.shared.change(|callers| callers.get_entries(&wants, Arc::clone(&sink)));
        let _forget = Forget { peer: self, request };
        let asked = asked.drop_guard();
        let tags: Vec<_> = wants.iter().map(|want| want.tag).collect();
        sink.asked(&tags, Arc::new(EntryWay::new(&self.shared, request, &tags)));
        // What came meanwhile has waited for that.
        drop(asked);
        // Its sender is dropped in the end.
        let _ = ending.await;
    }

    /// Asks for the first piece of an object, which [`Self::claim`] brings once it is known to be wanted; or gives that up.
    pub fn get_ahead(&self, root: &Oid, oid: &Oid, may_be_wanted: bool) {
        let (now, oid) = (Instant::now(), (oid, may_be_wanted));
        self.shared.change(|callers| callers.session().get_ahead(now, root, oid));
    }

    /// Takes the want out of `wants` that was asked for ahead, if it is there; it ends through `sink`.
    pub fn claim(
        &self,
        wants: &mut Vec<Want>,
        sink: &Arc<dyn Sink>,
    ) -> Option<impl Future<Output = ()> + use<'_>> {
        let mut acts = Vec::new();
        let (request, ending) = self.shared.settle(&mut acts, |callers| callers.claim(wants, sink))?;
        let forget = Forget { peer: self, request };
        let come: Vec<Later> = acts.into_iter().filter_map(Act::perform).collect();
        Some(async move {
            for later in come {
                if let Later::Deliver(wants, delivery) = later {
                    wants.deliver(delivery).await;
                }
            }
            let _ = ending.await;
            drop(forget);
        })
    }

    /// Puts a question, at once; its answers go where `answers` says.
    pub fn ask(
        &self,
        question: Question,
        answers: Answers,
    ) -> impl Future<Output = Result<(), Outcome>> + use<'_> {
        let (request, ending) = self.shared.change(|callers| callers.ask(question, answers));
        let forget = Forget { peer: self, request };
        async move {
            let result = ending.await.unwrap_or(Err(Outcome::RetryLater(Duration::ZERO)));
            drop(forget);
            result
        }
    }

    /// Cancels the wants with these tags that `user` asked for, as [`Session::cancel`] does.
    pub fn cancel(&self, user: u64, tags: &[u64]) {
        self.shared.change(|callers| callers.session().cancel(user, tags));
    }
}

/// Gives a request up when its caller goes.
struct Forget<'a> {
    peer: &'a Peer,
    request: u32,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.peer.shared.change(|callers| callers.session().give_up(self.request));
    }
}
