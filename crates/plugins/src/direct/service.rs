//! What a service gives to whom: the store, the rights, and the state of the talk with one peer.
//!
//! `conversation` takes requests, `gets` and `answers` answer them; all of them ask here whether a
//! peer may have an object.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use towpath_content::ticket::Secret;
use towpath_content::{NodeId, Oid, tree};
use towpath_link::PathProbe;
use towpath_store::{ObjectKind, State, Store, StoreError};
use towpath_transfer::Outcome;

use super::access::{Decision, Facts, decide};
use super::outgoing::{Outbox, Outgoing};
use super::wire::{self, Body, RequestOnly};

/// Requests under way on one connection, in each direction.
pub(super) const MAX_REQUESTS: usize = 64;
/// Decoded descriptor blocks kept per connection.
const BLOCKS: usize = 64;

/// What a service needs besides the store: secrets and a key.
pub trait Issuer: Send + Sync {
    /// The secret of the ticket for `root`, if this service issued one or was given it.
    fn secret(&self, root: &Oid) -> Option<Secret>;
    /// Whether a node may fetch this very object, by configuration or by an operation under way.
    fn is_allowed(&self, node: &NodeId, oid: &Oid) -> bool;
    /// Signs with the node's key.
    fn sign(&self, message: &[u8]) -> [u8; 64];
}

/// Answers peers; shared by all connections.
pub struct Service {
    store: Arc<dyn Store>,
    pub(super) issuer: Arc<dyn Issuer>,
}

impl Service {
    /// Serves from `store` by the rights that `issuer` knows.
    pub fn new(store: Arc<dyn Store>, issuer: Arc<dyn Issuer>) -> Self {
        Self { store, issuer }
    }
}

/// State shared by the conversation with one peer and its threads.
pub(super) struct Talk {
    pub(super) service: Arc<Service>,
    pub(super) node: NodeId,
    pub(super) binding: [u8; 32],
    pub(super) outbox: Outbox,
    pub(super) probe: PathProbe,
    pub(super) roots: Mutex<HashSet<Oid>>,
    /// Roots that are bound, at most as many as were proved.
    bindings: Mutex<HashMap<Oid, Oid>>,
    /// Requests under way, and whether they were cancelled.
    under_way: Mutex<HashMap<u32, bool>>,
    pub(super) followers: AtomicUsize,
    /// Data are sent compressed.
    pub(super) compress: AtomicBool,
    pub(super) token: CancellationToken,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Talk {
    pub(super) fn new(
        service: Arc<Service>,
        node: NodeId,
        binding: [u8; 32],
        outbox: Outbox,
        probe: PathProbe,
    ) -> Self {
        Self {
            service,
            node,
            binding,
            outbox,
            probe,
            roots: Mutex::default(),
            bindings: Mutex::default(),
            under_way: Mutex::default(),
            followers: AtomicUsize::new(0),
            compress: AtomicBool::new(false),
            token: CancellationToken::new(),
        }
    }

    pub(super) fn is_allowed(&self, oid: &Oid) -> bool {
        self.service.issuer.is_allowed(&self.node, oid)
    }

    pub(super) fn shared_store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.service.store)
    }

    pub(super) fn begin(&self, request: u32) -> Result<(), String> {
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
    pub(super) fn cancel(&self, request: u32) {
        if let Some(cancelled) = lock(&self.under_way).get_mut(&request) {
            *cancelled = true;
        }
    }

    pub(super) fn end(&self, request: u32) {
        lock(&self.under_way).remove(&request);
        self.send(Body::Done(RequestOnly { request }));
    }

    pub(super) fn is_over(&self, request: u32) -> bool {
        self.token.is_cancelled() || lock(&self.under_way).get(&request) == Some(&true)
    }

    pub(super) fn send(&self, body: Body) -> bool {
        self.outbox.blocking_send(vec![Outgoing::control(body)]).is_ok()
    }

    pub(super) fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.service.issuer.sign(message)
    }

    pub(super) fn store(&self) -> &dyn Store {
        &*self.service.store
    }

    /// Judges one request for `oid` under `root`.
    pub(super) fn judge(&self, root: &Oid, oid: &Oid, block: Option<u64>, blocks: &mut Blocks) -> Decision {
        let node_allowed = self.is_allowed(oid);
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

    pub(super) fn judge_question(&self, question: &wire::Describe) -> Result<Oid, Outcome> {
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
pub(super) struct Blocks {
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
pub(super) fn outcome_of(error: &StoreError) -> Outcome {
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
pub(super) fn outcome_of_put(talk: &Talk, oid: &Oid, error: &StoreError) -> Outcome {
    match error {
        StoreError::NotHere if !oid.is_live() && !talk.is_allowed(oid) => Outcome::SourceChanged,
        error => outcome_of(error),
    }
}
