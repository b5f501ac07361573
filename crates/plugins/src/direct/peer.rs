//! One connection to another service: a reader task and a writer task, requests out, answers in.
//!
//! Either side may ask. The reader task hands answers to the requests under way and a peer's
//! requests to the [`Service`], if there is one here. It never waits on anything but the sink of
//! the request that a data frame belongs to, so a slow disk slows this connection and no other.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};
use towpath_content::NodeId;
use towpath_link::frame::WriteError;
use towpath_link::{Connection, Frame, FrameReader, FrameWriter};
use towpath_transfer::{BoxFuture, Description, Outcome, Proof};

use super::compress::{self, Unpacker};
use super::control::{self, ControlReceiver, ControlSender};
use super::conversation::Conversation;
use super::outgoing::{Outbox, Outgoing};
use super::pace::Pace;
use super::requests::{Answers, GetUnderWay, QuestionUnderWay, Violation};
use super::service::{MAX_REQUESTS, Service};
use super::wire::{self, Body, DataHeader, Goodbye, Hello, Ping, RequestOnly};

/// A ping goes out after this part of the silence that loses a connection.
const PING_PART: u32 = 4;
/// Batches of frames that wait for the writer task; a batch has at most about 256 KiB.
const OUT_QUEUE: usize = 4;
const NO_HELLO: &str = "did not begin with a hello";
/// How long a connection that ends in a violation is kept to tell why.
const GOODBYE_TIME: Duration = Duration::from_secs(2);

/// Bytes that went over all connections of a session, headers included.
#[derive(Debug, Default)]
pub struct Traffic {
    sent: AtomicU64,
    received: AtomicU64,
}

impl Traffic {
    /// Bytes sent.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Bytes received.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

/// How this side of a connection behaves.
#[derive(Clone)]
pub struct PeerConfig {
    /// The same on every connection of a session.
    pub session: [u8; 16],
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
    /// Data are compressed in both directions. Default: only those sent, and if the peer asks.
    pub compress: bool,
}

impl Default for PeerConfig {
    fn default() -> Self {
        let silence = Duration::from_secs(20);
        let (send_pace, receive_pace) = (Arc::new(Pace::new(0)), Arc::new(Pace::new(0)));
        let traffic = Arc::default();
        Self { session: [0; 16], silence, send_pace, receive_pace, traffic, control: false, compress: false }
    }
}

#[derive(Default)]
struct UnderWay {
    gets: HashMap<u32, GetUnderWay>,
    questions: HashMap<u32, QuestionUnderWay>,
    /// Requests that were sent and of which the peer has not said that they are done, given up or
    /// not: it counts them against its limit.
    sent: HashMap<u32, OwnedSemaphorePermit>,
}

/// State shared by the handle and the tasks.
struct Shared {
    node: NodeId,
    under_way: Mutex<UnderWay>,
    suggested: AtomicU64,
    next_request: AtomicU32,
    /// Why the connection ended.
    end: Mutex<Option<String>>,
    token: CancellationToken,
    /// Milliseconds.
    silence: AtomicU64,
    was_silent: AtomicBool,
    receive_pace: Arc<Pace>,
    traffic: Arc<Traffic>,
    compress: bool,
    /// Cancelled once the peer's hello has come.
    greeted: CancellationToken,
    /// The control stream, if this side has one.
    control: Option<Arc<control::Stream>>,
}

impl Shared {
    fn silence(&self) -> Duration {
        Duration::from_millis(self.silence.load(Ordering::Relaxed))
    }

    fn with<T>(&self, f: impl FnOnce(&mut UnderWay) -> T) -> T {
        f(&mut self.under_way.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn set_end(&self, why: String) {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
    }

    fn why(&self) -> Option<String> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A connection to another service. Dropping the last handle closes it.
pub struct Peer {
    shared: Arc<Shared>,
    outbox: Outbox,
    binding: [u8; 32],
    /// Requests that may still be put: the other side closes connections that exceed its limit.
    room: Arc<Semaphore>,
    control: Mutex<Option<(ControlSender, ControlReceiver)>>,
    _close: DropGuard,
}

impl Peer {
    /// Starts the tasks of a connection; `service`, if given, answers what the peer asks.
    pub fn start(connection: Connection, config: PeerConfig, service: Option<Arc<Service>>) -> Arc<Self> {
        let (node, binding, probe) = (connection.peer, connection.binding, connection.info.clone());
        let (reader, writer) = connection.split();
        let token = CancellationToken::new();
        let (outbox, outgoing) = mpsc::channel(OUT_QUEUE);
        let (urgent_in, urgent) = mpsc::unbounded_channel();
        let (stream, control) = match config.control {
            true => {
                let (stream, sender, receiver) = control::Stream::new(urgent_in);
                (Some(stream), Some((sender, receiver)))
            }
            false => (None, None),
        };
        let shared = Arc::new(Shared {
            node,
            under_way: Mutex::default(),
            suggested: AtomicU64::new(0),
            next_request: AtomicU32::new(1),
            end: Mutex::default(),
            token: token.clone(),
            silence: AtomicU64::new(millis(config.silence)),
            was_silent: AtomicBool::new(false),
            receive_pace: Arc::clone(&config.receive_pace),
            traffic: Arc::clone(&config.traffic),
            compress: config.compress,
            greeted: CancellationToken::new(),
            control: stream,
        });
        let pace = Arc::clone(&config.send_pace);
        let queues = Queues { urgent, outgoing, pace, shared: Arc::clone(&shared) };
        tokio::spawn(write_frames(Arc::clone(&shared), writer, queues, hello(&config)));
        let conversation =
            service.map(|service| Conversation::start(service, node, binding, outbox.clone(), probe));
        tokio::spawn(read_frames(Arc::clone(&shared), reader, conversation));
        let room = Arc::new(Semaphore::new(MAX_REQUESTS));
        let control = Mutex::new(control);
        Arc::new(Self { shared, outbox, binding, room, control, _close: token.drop_guard() })
    }

    /// Whether the connection was lost because nothing came.
    pub fn was_silent(&self) -> bool {
        self.shared.was_silent.load(Ordering::Relaxed)
    }

    /// From now on the connection is lost after this long without a byte. The other side must agree:
    /// it sends a ping after a quarter of its own limit.
    pub fn set_silence(&self, silence: Duration) {
        self.shared.silence.store(millis(silence), Ordering::Relaxed);
    }

    /// The service at the other end.
    pub fn node(&self) -> NodeId {
        self.shared.node
    }

    /// What proofs on this connection are bound to.
    pub const fn binding(&self) -> &[u8; 32] {
        &self.binding
    }

    /// Bytes that the peer last suggested to keep outstanding; 0 if it has no opinion.
    pub fn suggested(&self) -> u64 {
        self.shared.suggested.load(Ordering::Relaxed)
    }

    /// Why the connection ended, if it has.
    pub fn ended(&self) -> Option<String> {
        self.shared
            .why()
            .or_else(|| self.shared.token.is_cancelled().then(|| "the connection was closed".into()))
    }

    /// Completes when the connection has ended.
    pub async fn closed(&self) {
        self.shared.token.cancelled().await;
    }

    /// As [`Self::closed`], for whoever waits without keeping the connection.
    pub fn until_closed(&self) -> impl Future<Output = ()> + Send + use<> {
        self.shared.token.clone().cancelled_owned()
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

    /// Closes the connection.
    pub fn close(&self, why: &str) {
        self.shared.set_end(why.into());
        self.shared.token.cancel();
    }

    /// A number for a new request.
    pub fn request_number(&self) -> u32 {
        self.shared.next_request.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a control message; false if the connection has ended.
    pub async fn send(&self, body: Body) -> bool {
        self.outbox.send(vec![Outgoing::control(body)]).await.is_ok()
    }

    /// Sends a control message if there is room for it now: for cancellations, which are a help
    /// and no more.
    pub fn try_send(&self, body: Body) {
        let _ = self.outbox.try_send(vec![Outgoing::control(body)]);
    }

    /// Waits until the peer's limit allows one more request; false if the connection has ended.
    async fn enter(&self, request: u32) -> bool {
        let permit = tokio::select! {
            permit = Arc::clone(&self.room).acquire_owned() => permit.ok(),
            () = self.shared.token.cancelled() => None,
        };
        let Some(permit) = permit else { return false };
        self.shared.with(|under_way| under_way.sent.insert(request, permit));
        true
    }

    /// Sends a `Get`; its wants end through its sink. Returns when all have ended.
    pub async fn get(
        &self,
        request: u32,
        get: GetUnderWay,
        message: wire::Get,
        ended: oneshot::Receiver<()>,
    ) {
        self.shared.with(|under_way| under_way.gets.insert(request, get));
        let guard = Forget { peer: self, request };
        if self.enter(request).await && self.send(Body::Get(message)).await && self.ended().is_none() {
            // The sender is dropped when the request is taken out of the table.
            let _ = ended.await;
        }
        drop(guard);
    }

    /// Puts a question; its answers go where `answers` says.
    pub async fn ask(&self, request: u32, body: Body, answers: Answers) -> Result<(), Outcome> {
        let (end, ended) = oneshot::channel();
        let question = QuestionUnderWay { answers, end: Some(end) };
        self.shared.with(|under_way| under_way.questions.insert(request, question));
        let _guard = Forget { peer: self, request };
        if !self.enter(request).await || !self.send(body).await || self.ended().is_some() {
            return Err(Outcome::RetryLater(Duration::ZERO));
        }
        ended.await.unwrap_or(Err(Outcome::RetryLater(Duration::ZERO)))
    }

    /// Cancels requests that hold one of `tags`.
    pub fn cancel(&self, tags: &[u64]) {
        let requests: Vec<u32> = self.shared.with(|under_way| {
            let holding = under_way.gets.iter_mut().filter(|(_, get)| tags.iter().any(|&tag| get.holds(tag)));
            holding.map(|(&request, get)| (get.cancel(), request).1).collect()
        });
        for request in requests {
            self.try_send(Body::Cancel(RequestOnly { request }));
        }
    }
}

/// Takes a request out of the table when its caller goes. If it had not ended the peer is told,
/// and its wants end as "retry later".
struct Forget<'a> {
    peer: &'a Peer,
    request: u32,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        let (get, is_open) = self.peer.shared.with(|under_way| {
            let question = under_way.questions.remove(&self.request);
            let get = under_way.gets.remove(&self.request);
            let is_open = get.is_some() || question.is_some_and(|question| question.end.is_some());
            (get, is_open && under_way.sent.contains_key(&self.request))
        });
        if is_open {
            self.peer.try_send(Body::Cancel(RequestOnly { request: self.request }));
        }
        if let Some(get) = get {
            get.end_all(&Outcome::RetryLater(Duration::ZERO));
        }
    }
}

fn hello(config: &PeerConfig) -> Outgoing {
    let optional = [(control::CAPABILITY, config.control), (compress::WISH, config.compress)];
    let optional = optional.iter().filter(|(_, wanted)| *wanted).map(|(name, _)| *name);
    Outgoing::control(Body::Hello(Hello {
        version: wire::VERSION,
        session: Bytes::copy_from_slice(&config.session),
        capabilities: wire::CAPABILITIES.into_iter().chain(optional).map(String::from).collect(),
        software: concat!("towpath ", env!("CARGO_PKG_VERSION")).into(),
    }))
}

/// What waits for the writer task.
struct Queues {
    /// Frames of the control stream, which go first.
    urgent: mpsc::UnboundedReceiver<Outgoing>,
    outgoing: mpsc::Receiver<Vec<Outgoing>>,
    pace: Arc<Pace>,
    shared: Arc<Shared>,
}

impl Queues {
    /// What goes out next, a ping if there is nothing; `None` when nothing more will come.
    async fn next(&mut self) -> Option<Vec<Outgoing>> {
        tokio::select! {
            biased;
            Some(frame) = self.urgent.recv() => Some(vec![frame]),
            batch = self.outgoing.recv() => batch,
            () = tokio::time::sleep(self.shared.silence() / PING_PART) => Some(vec![Outgoing::control(Body::Ping(Ping {}))]),
        }
    }

    /// Waits until a batch may go out. What is urgent does not wait with it, but counts.
    async fn pass(&mut self, writer: &mut FrameWriter, batch: &[Outgoing]) -> Result<(), WriteError> {
        let pace = Arc::clone(&self.pace);
        let passing = pace.pass(batch.iter().map(|frame| frame.len() as u64).sum());
        tokio::pin!(passing);
        loop {
            let frame = tokio::select! {
                biased;
                () = &mut passing => return Ok(()),
                Some(frame) = self.urgent.recv() => frame,
            };
            self.pace.wait(frame.len() as u64, Instant::now());
            write_batch(writer, vec![frame]).await?;
            writer.flush().await?;
        }
    }

    fn is_empty(&self) -> bool {
        self.urgent.is_empty() && self.outgoing.is_empty()
    }

    /// What was queued before the end.
    fn rest(&mut self) -> Option<Vec<Outgoing>> {
        self.urgent.try_recv().map(|frame| vec![frame]).or_else(|_| self.outgoing.try_recv()).ok()
    }
}

/// The writer task: frames in the order they come, those of the control stream first, a ping when
/// there are none.
async fn write_frames(shared: Arc<Shared>, mut writer: FrameWriter, mut queues: Queues, first: Outgoing) {
    let work = async {
        write_batch(&mut writer, vec![first]).await?;
        writer.flush().await?;
        while let Some(batch) = queues.next().await {
            queues.pass(&mut writer, &batch).await?;
            let bytes: usize = batch.iter().map(Outgoing::len).sum();
            shared.traffic.sent.fetch_add(bytes as u64, Ordering::Relaxed);
            write_batch(&mut writer, batch).await?;
            if queues.is_empty() {
                writer.flush().await?;
            }
        }
        Ok(())
    };
    let result: Result<(), WriteError> = tokio::select! {
        result = work => result,
        () = shared.token.cancelled() => Ok(()),
    };
    if let Err(error) = result {
        tracing::debug!(%error, "writing ended");
        shared.token.cancel();
        return;
    }
    // What was queued before the end still goes out, and why this is the end.
    let farewell = async {
        while let Some(batch) = queues.rest() {
            write_batch(&mut writer, batch).await?;
        }
        if let Some(reason) = shared.why() {
            write_batch(&mut writer, vec![Outgoing::control(Body::Goodbye(Goodbye { reason }))]).await?;
        }
        writer.finish().await
    };
    let _ = tokio::time::timeout(GOODBYE_TIME, farewell).await;
}

async fn write_batch(writer: &mut FrameWriter, batch: Vec<Outgoing>) -> Result<(), WriteError> {
    for frame in batch {
        let header = frame.header.as_ref().map_or(&[][..], |header| &header[..]);
        writer.send_bytes(frame.kind, header, frame.body).await?;
    }
    Ok(())
}

/// The reader task: ends with the connection, and every request with it.
async fn read_frames(shared: Arc<Shared>, mut reader: FrameReader, conversation: Option<Conversation>) {
    let mut inbound =
        Inbound { shared: Arc::clone(&shared), conversation, unpacker: Unpacker::default(), greeted: false };
    let result = tokio::select! {
        result = inbound.run(&mut reader) => result,
        () = shared.token.cancelled() => Ok(()),
    };
    if let Err(why) = result {
        tracing::debug!(peer = %shared.node.short(), why, "connection ended");
        shared.set_end(why);
    }
    shared.token.cancel();
    if let Some(stream) = &shared.control {
        stream.close();
    }
    let UnderWay { gets, .. } = shared.with(std::mem::take);
    gets.into_values().for_each(|get| get.end_all(&Outcome::RetryLater(Duration::ZERO)));
}

/// What the reader task does with frames. Errors are reasons to close the connection.
struct Inbound {
    shared: Arc<Shared>,
    conversation: Option<Conversation>,
    unpacker: Unpacker,
    greeted: bool,
}

impl Inbound {
    async fn run(&mut self, reader: &mut FrameReader) -> Result<(), String> {
        loop {
            let before = reader.received();
            let frame = next_frame(reader, &self.shared).await?;
            self.shared.traffic.received.fetch_add(reader.received() - before, Ordering::Relaxed);
            if !self.greeted && frame.kind != wire::CONTROL {
                return Err(NO_HELLO.into());
            }
            match frame.kind {
                wire::CONTROL => self.control(frame.body).await?,
                wire::DATA => self.data(frame.body).await?,
                _ => return Err("sent a frame of an unknown kind".into()),
            }
        }
    }

    async fn control(&mut self, body: Bytes) -> Result<(), String> {
        let body = Body::from_frame(body).map_err(|error| format!("sent a message that {error}"))?;
        if !self.greeted && !matches!(body, Body::Hello(_) | Body::Goodbye(_)) {
            return Err(NO_HELLO.into());
        }
        match body {
            Body::Hello(hello) => self.hello(&hello),
            Body::Ping(_) => Ok(()),
            Body::Goodbye(goodbye) => Err(format!("the peer closed: {}", wire::printable(&goodbye.reason))),
            Body::Description(description) => {
                let answer =
                    Description::Object { about: description.about(), layout: layout_of(&description)? };
                self.answer(description.request, answer).await
            }
            Body::Stated(stated) => self.stated(stated).await,
            Body::Proof(proof) => self.proof(proof).await,
            Body::Have(have) => self.have(have).await,
            Body::Outcome(outcome) => self.outcome(&outcome),
            Body::Done(done) => self.done(done.request),
            Body::ControlData(data) => self.stream()?.receive(data.message),
            Body::ControlCredit(credit) => self.stream()?.credit(credit.bytes),
            Body::ControlEnd(_) => self.stream()?.end(),
            request => match &mut self.conversation {
                Some(conversation) => conversation.request(request).await,
                None => Err("asked a service that only receives".into()),
            },
        }
    }

    fn hello(&mut self, hello: &Hello) -> Result<(), String> {
        if self.greeted {
            return Err("sent a second hello".into());
        }
        if hello.version != wire::VERSION {
            return Err(format!("speaks version {} of the protocol, this program speaks 1", hello.version));
        }
        self.greeted = true;
        let has = |name: &str| hello.capabilities.iter().any(|capability| capability == name);
        if let Some(stream) = &self.shared.control {
            stream.greet(has(control::CAPABILITY));
        }
        if let Some(conversation) = &self.conversation
            && has(compress::CAPABILITY)
            && (self.shared.compress || has(compress::WISH))
        {
            conversation.compress();
        }
        self.shared.greeted.cancel();
        Ok(())
    }

    fn stream(&self) -> Result<&control::Stream, String> {
        self.shared.control.as_deref().ok_or("spoke on a control stream that is not there".into())
    }

    /// A request that is not under way was given up meanwhile, or never made.
    fn was_made(&self, request: u32) -> Result<(), Violation> {
        match (1..self.shared.next_request.load(Ordering::Relaxed)).contains(&request) {
            true => Ok(()),
            false => Err(Violation::Unasked),
        }
    }

    /// Hands an answer to its question; a question given up meanwhile needs none.
    async fn answer(&self, request: u32, answer: Description) -> Result<(), String> {
        self.was_made(request).map_err(|violation| violation.to_string())?;
        let sender =
            self.shared.with(|under_way| match under_way.questions.get(&request).map(|q| &q.answers) {
                Some(Answers::Descriptions(sender)) => Some(sender.clone()),
                _ => None,
            });
        if let Some(sender) = sender {
            let _ = sender.send(answer).await;
        }
        Ok(())
    }

    async fn stated(&self, stated: wire::Stated) -> Result<(), String> {
        let statement = towpath_content::live::Statement::from_bytes(&stated.statement)
            .map_err(|error| format!("sent a bad statement: {error}"))?;
        let signature = stated.signature.to_vec();
        self.answer(stated.request, Description::Live { statement, signature }).await
    }

    async fn proof(&self, proof: wire::ProofOf) -> Result<(), String> {
        if proof.want.is_none() {
            let end = proof.first.checked_add(proof.count).ok_or("sent a proof of impossible pieces")?;
            let (request, run) = (proof.request, proof.first..end);
            return self.answer(request, Description::Proof(Proof { run, nodes: proof.nodes })).await;
        }
        self.with_get(proof.request, |get| get.proof(proof))
    }

    async fn have(&self, have: wire::Have) -> Result<(), String> {
        let (pairs, rest) = have.bounds.as_chunks::<2>();
        if !rest.is_empty() || pairs.iter().any(|[start, end]| start >= end) {
            return Err("sent impossible ranges".into());
        }
        let ranges = pairs.iter().map(|&[start, end]| start..end).collect();
        let sender =
            self.shared.with(|under_way| match under_way.questions.get(&have.request).map(|q| &q.answers) {
                Some(Answers::Ranges(sender)) => Some(sender.clone()),
                _ => None,
            });
        if let Some(sender) = sender {
            let _ = sender.send(ranges).await;
        }
        Ok(())
    }

    fn with_get(
        &self,
        request: u32,
        f: impl FnOnce(&mut GetUnderWay) -> Result<(), Violation>,
    ) -> Result<(), String> {
        let taken = self.shared.with(|under_way| match under_way.gets.get_mut(&request) {
            Some(get) => f(get),
            None => self.was_made(request),
        });
        taken.map_err(|violation| violation.to_string())
    }

    fn outcome(&self, message: &wire::WireOutcome) -> Result<(), String> {
        let question = self.shared.with(|under_way| {
            under_way.questions.get_mut(&message.request).and_then(|question| question.end.take())
        });
        match question {
            Some(end) => drop(end.send(Err(message.outcome()))),
            None => self.with_get(message.request, |get| get.outcome(message))?,
        }
        Ok(())
    }

    fn done(&self, request: u32) -> Result<(), String> {
        self.was_made(request).map_err(|violation| violation.to_string())?;
        let (get, question) = self.shared.with(|under_way| {
            under_way.sent.remove(&request);
            (under_way.gets.remove(&request), under_way.questions.remove(&request))
        });
        if let Some(get) = get {
            // After a cancellation some wants end only here.
            get.end_all(&Outcome::Cancelled);
        }
        if let Some(end) = question.and_then(|mut question| question.end.take()) {
            let _ = end.send(Ok(()));
        }
        Ok(())
    }

    async fn data(&mut self, body: Bytes) -> Result<(), String> {
        self.shared.receive_pace.pass(body.len() as u64).await;
        let (header, payload) = DataHeader::decode(body).map_err(|error| error.to_string())?;
        if header.suggested > 0 {
            self.shared.suggested.store(header.suggested.into(), Ordering::Relaxed);
        }
        let payload = match header.zstd {
            true => self.unpack(&header, &payload)?,
            false => Some(payload),
        };
        let Some(payload) = payload else { return Ok(()) };
        let taken = self.shared.with(|under_way| {
            let Some(get) = under_way.gets.get_mut(&header.request) else {
                return self.was_made(header.request).map(|()| None);
            };
            let delivery = get.data(header, payload)?;
            Ok(delivery.map(|delivery| (get.sink(), delivery)))
        });
        let taken = taken.map_err(|violation: Violation| violation.to_string())?;
        if let Some((sink, delivery)) = taken {
            let waiting: BoxFuture<'_, ()> = sink.deliver(delivery);
            waiting.await;
        }
        Ok(())
    }

    /// The bytes of a compressed payload; `None` if its request was given up meanwhile.
    fn unpack(&mut self, header: &DataHeader, payload: &[u8]) -> Result<Option<Bytes>, String> {
        let expected = self.shared.with(|under_way| match under_way.gets.get(&header.request) {
            Some(get) => get.expected(header).map(Some),
            None => self.was_made(header.request).map(|()| None),
        });
        match expected.map_err(|violation| violation.to_string())? {
            Some(expected) => self.unpacker.unpack(payload, expected).map(Some),
            None => Ok(None),
        }
    }
}

fn layout_of(description: &wire::Description) -> Result<Option<towpath_content::pieces::Layout>, String> {
    let Some(size) = description.size else { return Ok(None) };
    towpath_content::pieces::Layout::of(size).map(Some).map_err(|error| error.to_string())
}

/// The next frame; an error after `silence` without a single byte.
async fn next_frame(reader: &mut FrameReader, shared: &Shared) -> Result<Frame, String> {
    let (mut before, mut quiet) = (reader.received(), Duration::ZERO);
    loop {
        // In parts, as the limit may change meanwhile.
        let part = shared.silence() / PING_PART;
        match tokio::time::timeout(part, reader.next()).await {
            Ok(Ok(Some(frame))) => return Ok(frame),
            Ok(Ok(None)) => return Err("the peer closed the connection".into()),
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_) if reader.received() != before => (before, quiet) = (reader.received(), Duration::ZERO),
            Err(_) => quiet += part,
        }
        let silence = shared.silence();
        if quiet >= silence {
            shared.was_silent.store(true, Ordering::Relaxed);
            return Err(format!("not a byte came for {silence:?}"));
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
