//! Answers what a peer asks, from the store: frame in, index look-up, read, frame out.
//!
//! Each connection has one thread that answers its requests in turn and sends batches of frames
//! to the writer task through a short queue, so a peer that does not read holds a few hundred
//! kilobytes and one thread that sleeps. Following a live object is a thread of its own that
//! waits for the store.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use towpath_content::live::{MAX_VALUES, Statement};
use towpath_content::pieces::MIN_LOG2;
use towpath_content::ticket::Secret;
use towpath_content::{NodeId, Oid, tree};
use towpath_link::PathProbe;
use towpath_store::{Availability, Descriptors, ObjectKind, State, Store, StoreError};
use towpath_transfer::Outcome;

use super::access::{Decision, Facts, decide};
use super::peer::{Outbox, Outgoing, suggestion};
use super::requests::oid_of;
use super::wire::{
    self, Body, DataHeader, Description, Get, ProofOf, RequestOnly, Stated, WireOutcome, WireWant,
};

/// Requests under way on one connection, in each direction.
pub(super) const MAX_REQUESTS: usize = 64;
/// Wants in a `Get`.
const MAX_WANTS: usize = 1024;
/// Pieces or chunks in a `Get`.
const MAX_PIECES: u64 = 4096;
/// Roots proved on a connection.
const MAX_ROOTS: usize = 64;
/// Objects followed or watched on one connection: each takes a thread.
const MAX_FOLLOWED: usize = 8;
/// Values in one `Proof` message that answers a `Describe`.
const PROOF_RUN: u64 = 4096;
/// Bytes of frames handed to the writer task at once.
const BATCH: usize = 256 << 10;
/// Decoded descriptor blocks kept per connection.
const BLOCKS: usize = 64;
/// How often a follower looks whether its connection is still there.
const FOLLOW_TICK: Duration = Duration::from_millis(500);

/// What a service needs besides the store: secrets and a key.
pub trait Issuer: Send + Sync {
    /// The secret of the ticket for `root`, if this service issued one or was given it.
    fn secret(&self, root: &Oid) -> Option<Secret>;
    /// Whether a node may fetch anything, by configuration.
    fn is_allowed(&self, node: &NodeId) -> bool;
    /// Signs with the node's key.
    fn sign(&self, message: &[u8]) -> [u8; 64];
}

/// Answers peers; shared by all connections.
pub struct Service {
    store: Arc<dyn Store>,
    issuer: Arc<dyn Issuer>,
}

impl Service {
    /// Serves from `store` by the rights that `issuer` knows.
    pub fn new(store: Arc<dyn Store>, issuer: Arc<dyn Issuer>) -> Self {
        Self { store, issuer }
    }
}

/// State shared by the conversation with one peer and its threads.
struct Talk {
    service: Arc<Service>,
    node: NodeId,
    binding: [u8; 32],
    outbox: Outbox,
    probe: PathProbe,
    roots: Mutex<HashSet<Oid>>,
    /// Roots that are bound, at most as many as were proved.
    bindings: Mutex<HashMap<Oid, Oid>>,
    /// Requests under way, and whether they were cancelled.
    under_way: Mutex<HashMap<u32, bool>>,
    followers: AtomicUsize,
    token: CancellationToken,
}

/// The answering half of one connection. Dropping it ends its threads.
pub struct Conversation {
    talk: Arc<Talk>,
    requests: mpsc::Sender<Request>,
    proofs: usize,
    _end: DropGuard,
}

/// What the connection's one reading thread answers, in turn.
enum Request {
    Get(Get),
    Describe(wire::Describe),
}

impl Conversation {
    /// Begins to answer one peer.
    pub fn start(
        service: Arc<Service>,
        node: NodeId,
        binding: [u8; 32],
        outbox: Outbox,
        probe: PathProbe,
    ) -> Self {
        let token = CancellationToken::new();
        let talk = Arc::new(Talk {
            service,
            node,
            binding,
            outbox,
            probe,
            roots: Mutex::default(),
            bindings: Mutex::default(),
            under_way: Mutex::default(),
            followers: AtomicUsize::new(0),
            token: token.clone(),
        });
        let (requests, inbox) = mpsc::channel(MAX_REQUESTS);
        let server = Arc::clone(&talk);
        tokio::task::spawn_blocking(move || serve_requests(&server, inbox));
        Self { talk, requests, proofs: 0, _end: token.drop_guard() }
    }

    /// Takes a request. An error is a reason to close the connection.
    pub async fn request(&mut self, body: Body) -> Result<(), String> {
        match body {
            Body::Prove(prove) => self.prove(&prove),
            Body::Get(get) => {
                check_get(&get)?;
                self.talk.begin(get.request)?;
                self.queue(Request::Get(get)).await
            }
            Body::Describe(question) if question.follow => self.follow(question, answer_describe),
            Body::Describe(question) => {
                self.talk.begin(question.request)?;
                self.queue(Request::Describe(question)).await
            }
            Body::Watch(question) => self.follow(question, answer_watch),
            Body::Cancel(cancel) => {
                self.talk.cancel(cancel.request);
                Ok(())
            }
            _ => Err("sent a message that does not belong here".into()),
        }
    }

    /// Never waits: the count of requests under way is checked first.
    async fn queue(&self, request: Request) -> Result<(), String> {
        self.requests.send(request).await.map_err(|_| "the service is shutting down".to_owned())
    }

    fn prove(&mut self, prove: &wire::Prove) -> Result<(), String> {
        self.proofs += 1;
        if self.proofs > MAX_ROOTS {
            return Err("proved too many roots".into());
        }
        let root = Oid::from_bytes(&prove.root).map_err(|error| error.to_string())?;
        let proof: [u8; 32] =
            prove.proof[..].try_into().map_err(|_| "sent a proof of the wrong length".to_owned())?;
        let secret = self.talk.service.issuer.secret(&root);
        if secret.is_some_and(|secret| secret.check(&proof, &self.talk.binding, &self.talk.node, &root)) {
            lock(&self.talk.roots).insert(root);
        }
        Ok(())
    }

    /// Answers on a thread of its own, which waits for the object to change.
    fn follow(&self, question: wire::Describe, answer: fn(&Talk, &wire::Describe)) -> Result<(), String> {
        self.talk.begin(question.request)?;
        if self.talk.followers.fetch_add(1, Ordering::Relaxed) >= MAX_FOLLOWED {
            return Err("follows too many objects".into());
        }
        let talk = Arc::clone(&self.talk);
        tokio::task::spawn_blocking(move || {
            answer(&talk, &question);
            talk.followers.fetch_sub(1, Ordering::Relaxed);
            talk.end(question.request);
        });
        Ok(())
    }
}

fn check_get(get: &Get) -> Result<(), String> {
    let pieces: u64 = get.wants.iter().map(|want| u64::from(want.count)).sum();
    if get.wants.len() > MAX_WANTS || pieces > MAX_PIECES {
        return Err(format!("asked for {} wants and {pieces} pieces at once", get.wants.len()));
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Talk {
    fn begin(&self, request: u32) -> Result<(), String> {
        let mut under_way = lock(&self.under_way);
        if under_way.len() >= MAX_REQUESTS {
            return Err("has too many requests under way".into());
        }
        match under_way.insert(request, false) {
            None => Ok(()),
            Some(_) => Err("used the number of a request that is under way".into()),
        }
    }

    /// A request that has ended meanwhile needs no cancellation.
    fn cancel(&self, request: u32) {
        if let Some(cancelled) = lock(&self.under_way).get_mut(&request) {
            *cancelled = true;
        }
    }

    fn end(&self, request: u32) {
        lock(&self.under_way).remove(&request);
        self.send(Body::Done(RequestOnly { request }));
    }

    fn is_over(&self, request: u32) -> bool {
        self.token.is_cancelled() || lock(&self.under_way).get(&request) == Some(&true)
    }

    fn send(&self, body: Body) -> bool {
        self.outbox.blocking_send(vec![Outgoing::control(body)]).is_ok()
    }

    fn store(&self) -> &dyn Store {
        &*self.service.store
    }

    /// Judges one request for `oid` under `root`.
    fn judge(&self, root: &Oid, oid: &Oid, block: Option<u64>, blocks: &mut Blocks) -> Decision {
        let node_allowed = self.service.issuer.is_allowed(&self.node);
        let root_proved = lock(&self.roots).contains(root);
        let is_root = root_proved && (oid == root || self.bound(root) == Some(*oid));
        let ask_block = root_proved && !is_root && !node_allowed;
        let mentioned = block.filter(|_| ask_block).and_then(|block| blocks.mentions(self, root, block, oid));
        decide(Facts { node_allowed, root_proved, is_root, mentioned })
    }

    /// What a live object is bound to; once known it stays.
    fn bound(&self, oid: &Oid) -> Option<Oid> {
        if !oid.is_live() {
            return None;
        }
        if let Some(content) = lock(&self.bindings).get(oid) {
            return Some(*content);
        }
        let State::Bound(content) = self.store().have(oid).ok()?.state else { return None };
        lock(&self.bindings).insert(*oid, content);
        Some(content)
    }

    fn judge_question(&self, question: &wire::Describe) -> Result<Oid, Outcome> {
        let refused = |why: &str| Outcome::Refused(why.into());
        let root = Oid::from_bytes(&question.root).map_err(|_| refused("the root is not an OID"))?;
        let oid = Oid::from_bytes(&question.oid).map_err(|_| refused("not an OID"))?;
        match self.judge(&root, &oid, question.block, &mut Blocks::default()) {
            Decision::Allow => Ok(oid),
            Decision::Refuse(why) => Err(refused(why)),
        }
    }
}

/// Which OIDs the blocks of tree descriptors mention; the last few blocks are kept.
#[derive(Default)]
struct Blocks {
    known: HashMap<(Oid, u64), HashSet<Oid>>,
    order: VecDeque<(Oid, u64)>,
}

impl Blocks {
    /// Whether block `block` of `root` mentions `oid`; `None` if the block can't be had.
    fn mentions(&mut self, talk: &Talk, root: &Oid, block: u64, oid: &Oid) -> Option<bool> {
        let key = (*root, block);
        if !self.known.contains_key(&key) {
            let oids = read_block(talk, root, block)?;
            if self.order.len() >= BLOCKS
                && let Some(oldest) = self.order.pop_front()
            {
                self.known.remove(&oldest);
            }
            self.order.push_back(key);
            self.known.insert(key, oids);
        }
        Some(self.known.get(&key)?.contains(oid))
    }
}

fn read_block(talk: &Talk, root: &Oid, block: u64) -> Option<HashSet<Oid>> {
    let content = talk.bound(root).unwrap_or(*root);
    let have = talk.store().have(&content).ok()?;
    // Any file may hold bytes that look like a block; only a tree descriptor's are believed.
    let layout = Some(have.layout).filter(|_| have.about.kind == ObjectKind::Tree)?;
    let start = block.checked_mul(tree::BLOCK as u64)?;
    let mut piece = Vec::new();
    talk.store().read_piece(&content, start / layout.piece_len(), &mut piece).ok()?;
    let at = (start % layout.piece_len()) as usize;
    let bytes = piece.get(at..piece.len().min(at + tree::BLOCK))?;
    Some(tree::oids_in_block(bytes).ok()?.into_iter().collect())
}

/// The outcome that a store's error means to a peer.
fn outcome_of(error: &StoreError) -> Outcome {
    match error {
        StoreError::NotHere | StoreError::Corrupt { .. } => Outcome::NotHere,
        StoreError::NotYet => Outcome::RetryLater(Duration::from_millis(200)),
        StoreError::SourceChanged { .. } => Outcome::SourceChanged,
        StoreError::Refused { why } => Outcome::Refused((*why).into()),
        StoreError::Io { .. } => Outcome::Refused("the sender could not read its file".into()),
    }
}

/// [`outcome_of`] for what the peer may have by a ticket of this service: that was here when the
/// ticket was made, so if it is not the file it was read from has changed.
fn outcome_of_put(talk: &Talk, oid: &Oid, error: &StoreError) -> Outcome {
    match error {
        StoreError::NotHere if !oid.is_live() && !talk.service.issuer.is_allowed(&talk.node) => {
            Outcome::SourceChanged
        }
        error => outcome_of(error),
    }
}

fn answer_describe(talk: &Talk, question: &wire::Describe) {
    let result = talk.judge_question(question).and_then(|oid| describe(talk, question, &oid));
    if let Err(outcome) = result {
        talk.send(Body::Outcome(WireOutcome::new(question.request, None, &outcome)));
    }
}

fn describe(talk: &Talk, question: &wire::Describe, oid: &Oid) -> Result<(), Outcome> {
    let have = talk.store().have(oid).map_err(|error| outcome_of_put(talk, oid, &error))?;
    let size = (!oid.is_live()).then(|| have.layout.size());
    talk.send(Body::Description(Description::new(question.request, &have.about, size)));
    match (oid.is_live(), question.values_from) {
        (true, Some(from)) => follow(talk, question, oid, from),
        (false, Some(from)) => prove_values(talk, question, oid, &have, from),
        (_, None) => Ok(()),
    }
}

fn prove_values(
    talk: &Talk,
    question: &wire::Describe,
    oid: &Oid,
    have: &Availability,
    from: u64,
) -> Result<(), Outcome> {
    let end = question.values_to.min(have.layout.count());
    let mut first = from;
    while first < end && !talk.is_over(question.request) {
        let run = first..end.min(first + PROOF_RUN);
        let nodes =
            match talk.store().get_descriptors(oid, run.clone()).map_err(|error| outcome_of(&error))? {
                Descriptors::Proof(nodes) => nodes.into(),
                Descriptors::Values(_) => return Err(Outcome::NotHere),
            };
        let (request, count) = (question.request, run.end - run.start);
        talk.send(Body::Proof(ProofOf { request, want: None, first, count, nodes }));
        first = run.end;
    }
    Ok(())
}

/// Sends signed values of a live object as they come, and its binding at the end.
fn follow(talk: &Talk, question: &wire::Describe, object: &Oid, from: u64) -> Result<(), Outcome> {
    let mut first = from;
    loop {
        let version = talk.store().version(object);
        let have = talk.store().have(object).map_err(|error| outcome_of(&error))?;
        match have.state {
            State::Live { generation } => {
                let end = have.pieces.first().filter(|run| run.start == 0).map_or(0, |run| run.end);
                while first < end && !talk.is_over(question.request) {
                    first = send_values(talk, question, object, generation, first..end)?;
                }
            }
            State::Bound(content) => {
                let bound = talk.store().have(&content).map_err(|error| outcome_of(&error))?;
                let size = bound.layout.size();
                sign_and_send(talk, question.request, &Statement::Bound { object: *object, content, size });
                return Ok(());
            }
            _ => return Ok(()),
        }
        if !question.follow || talk.is_over(question.request) {
            return Ok(());
        }
        wait(talk, question.request, object, version);
    }
}

/// Blocks until the object changes or the peer no longer asks.
fn wait(talk: &Talk, request: u32, object: &Oid, seen: u64) {
    while !talk.is_over(request) && talk.store().wait_change(object, seen, FOLLOW_TICK) == seen {}
}

fn send_values(
    talk: &Talk,
    question: &wire::Describe,
    object: &Oid,
    generation: u64,
    run: Range<u64>,
) -> Result<u64, Outcome> {
    let run = run.start..run.end.min(run.start + MAX_VALUES as u64);
    let values = match talk.store().get_descriptors(object, run.clone()) {
        Ok(Descriptors::Values(values)) => values,
        // Bound in this very moment: the next round sees it.
        Ok(Descriptors::Proof(_)) | Err(StoreError::NotYet) => return Ok(run.end),
        Err(error) => return Err(outcome_of(&error)),
    };
    let statement = Statement::Values { object: *object, generation, first: run.start, values };
    sign_and_send(talk, question.request, &statement);
    Ok(run.end)
}

fn sign_and_send(talk: &Talk, request: u32, statement: &Statement) {
    let signature = talk.service.issuer.sign(&statement.message());
    let signature = Bytes::copy_from_slice(&signature);
    talk.send(Body::Stated(Stated { request, statement: statement.to_bytes().into(), signature }));
}

fn answer_watch(talk: &Talk, question: &wire::Describe) {
    let oid = match talk.judge_question(question) {
        Ok(oid) => oid,
        Err(outcome) => {
            talk.send(Body::Outcome(WireOutcome::new(question.request, None, &outcome)));
            return;
        }
    };
    let mut told = None;
    while !talk.is_over(question.request) {
        let version = talk.store().version(&oid);
        let Ok(have) = talk.store().have(&oid) else { return };
        if told.as_ref() != Some(&have.pieces) {
            let bounds = have.pieces.iter().flat_map(|run| [run.start, run.end]).collect();
            talk.send(Body::Have(wire::Have { request: question.request, bounds }));
        }
        told = Some(have.pieces);
        if !question.follow {
            return;
        }
        wait(talk, question.request, &oid, version);
    }
}

/// The connection's reading thread.
fn serve_requests(talk: &Talk, mut inbox: mpsc::Receiver<Request>) {
    let mut blocks = Blocks::default();
    while let Some(request) = inbox.blocking_recv() {
        let get = match request {
            Request::Get(get) => get,
            Request::Describe(question) => {
                answer_describe(talk, &question);
                talk.end(question.request);
                continue;
            }
        };
        let mut out = Batch { talk, frames: Vec::new(), bytes: 0, suggested: suggestion(&talk.probe) };
        for index in 0..get.wants.len() {
            if talk.is_over(get.request) {
                break;
            }
            if let Err((want, outcome)) = serve_want(&mut out, &mut blocks, &get, index) {
                out.push(Outgoing::control(Body::Outcome(WireOutcome::new(
                    get.request,
                    Some(want),
                    &outcome,
                ))));
            }
        }
        out.flush();
        talk.end(get.request);
    }
}

/// Frames on their way to the writer task, a few hundred kilobytes at a time.
struct Batch<'a> {
    talk: &'a Talk,
    frames: Vec<Outgoing>,
    bytes: usize,
    suggested: u32,
}

impl Batch<'_> {
    fn push(&mut self, frame: Outgoing) {
        self.bytes += frame.len();
        self.frames.push(frame);
        if self.bytes >= BATCH {
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.bytes = 0;
        if !self.frames.is_empty() {
            // A connection that ended takes no more; the thread finds out by its token.
            let _ = self.talk.outbox.blocking_send(std::mem::take(&mut self.frames));
        }
    }
}

type Served = Result<(), (u32, Outcome)>;

fn serve_want(out: &mut Batch<'_>, blocks: &mut Blocks, get: &Get, index: usize) -> Served {
    let want = &get.wants[index];
    let number = index as u32;
    let refused = |why: &str| (number, Outcome::Refused(why.into()));
    let root = Oid::from_bytes(&get.root).map_err(|_| refused("the root is not an OID"))?;
    let Some(oid) = oid_of(want).map_err(|_| refused("not an OID"))? else {
        return serve_chunk(out, &root, get.request, number, want);
    };
    if let Decision::Refuse(why) = out.talk.judge(&root, &oid, want.block, blocks) {
        return Err(refused(why));
    }
    let served = serve_run(out, &oid, get.request, number, want);
    served.map_err(|error| (number, outcome_of_put(out.talk, &oid, &error)))
}

fn serve_run(
    out: &mut Batch<'_>,
    oid: &Oid,
    request: u32,
    number: u32,
    want: &WireWant,
) -> Result<(), StoreError> {
    let store = Arc::clone(&out.talk.service.store);
    let end = want.first.checked_add(u64::from(want.count));
    let run = want.first..end.ok_or(StoreError::Refused { why: "no object has such pieces" })?;
    let mut buffer = Vec::new();
    for index in run.clone() {
        if out.talk.is_over(request) {
            return Ok(());
        }
        // Whole small objects are read at once; asking for holes would cost more than reading.
        let mut zeros = run != (0..1) && store.is_zero(oid, index);
        if !zeros {
            store.read_piece(oid, index, &mut buffer)?;
            zeros = are_zeros(&buffer);
        }
        // A short first piece asked for alone is the whole object, which needs no proof.
        let is_whole = run == (0..1) && !zeros && buffer.len() < 1 << MIN_LOG2;
        if index == run.start && !oid.is_live() && !is_whole {
            send_proof(out, &*store, oid, request, number, &run)?;
        }
        let header = DataHeader {
            request,
            want: number,
            piece: (index - run.start) as u32,
            offset: 0,
            suggested: out.suggested,
            zeros,
        };
        match zeros {
            true => out.push(Outgoing::data(&header, Bytes::new())),
            false => send_piece(out, header, std::mem::take(&mut buffer)),
        }
    }
    Ok(())
}

/// Whether there is nothing but zeros; other data mostly show it in their first block.
fn are_zeros(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.chunks(4096).all(|block| block.iter().fold(0, |sum, byte| sum | byte) == 0)
}

fn send_proof(
    out: &mut Batch<'_>,
    store: &dyn Store,
    oid: &Oid,
    request: u32,
    number: u32,
    run: &Range<u64>,
) -> Result<(), StoreError> {
    if let Descriptors::Proof(nodes) = store.get_descriptors(oid, run.clone())? {
        let (first, count) = (run.start, run.end - run.start);
        let proof = ProofOf { request, want: Some(number), first, count, nodes: nodes.into() };
        out.push(Outgoing::control(Body::Proof(proof)));
    }
    Ok(())
}

/// A piece in frames of at most [`wire::MAX_PAYLOAD`]; the buffer is handed on, not copied.
fn send_piece(out: &mut Batch<'_>, mut header: DataHeader, bytes: Vec<u8>) {
    let mut rest = Bytes::from(bytes);
    loop {
        let part = rest.split_to(rest.len().min(wire::MAX_PAYLOAD));
        let len = part.len() as u32;
        out.push(Outgoing::data(&header, part));
        header.offset += len;
        if rest.is_empty() {
            return;
        }
    }
}

/// Chunks are named by hash alone, so only allowed nodes may ask for them.
fn serve_chunk(out: &mut Batch<'_>, _root: &Oid, request: u32, number: u32, want: &WireWant) -> Served {
    let refused = |why: &str| (number, Outcome::Refused(why.into()));
    if !out.talk.service.issuer.is_allowed(&out.talk.node) {
        return Err(refused("chunks are for allowed nodes"));
    }
    let hash: [u8; 32] = want.chunk[..].try_into().map_err(|_| refused("not a chunk's hash"))?;
    let bytes = out.talk.store().get_chunk(&hash).map_err(|error| (number, outcome_of(&error)))?;
    let header =
        DataHeader { request, want: number, piece: 0, offset: 0, suggested: out.suggested, zeros: false };
    send_piece(out, header, bytes);
    Ok(())
}
