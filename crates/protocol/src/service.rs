//! The serving side: the store and the rights to it.
//!
//! `answering` takes a peer's requests, `gets` and `answers` answer them; both ask here whether the
//! peer may have an object.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::num::NonZero;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Semaphore;
use towpath_content::delta::exchange::Request;
use towpath_content::lock::lock;
use towpath_content::pieces::Layout;
use towpath_content::ticket::BoundSecret;
use towpath_content::{NodeId, Oid, tree};
use towpath_link::PathInfo;
use towpath_store::{Availability, ObjectKind, RecipeNodes, State, Store, StoreError};
use towpath_transfer::{Metadata, Outcome};

use super::access::{Decision, Facts, GivenSecret, Holding, TicketEnd, decide};
use super::buffers::Buffers;
use super::introducing::Introducer;
use super::offer::Offer;
use super::sending::Sending;
use super::served::Served;
use super::steps;
use super::threads::AnswerThreads;
use super::turns::NodeTurns;
use crate::processor::Object;
use crate::processors::Processors;
use towpath_link::queued::QueuedBytes;

/// Decoded descriptor blocks kept for all peers.
const BLOCKS: usize = 256;
/// Least threads that answer; more on a machine that has a quarter as many processors.
const THREADS: usize = 32;
/// Threads for answers that may read all of an object, and of these for one node.
const HEAVY: (usize, usize) = (12, 4);
/// Recipes that a service makes at once.
const RECIPES: usize = 8;
/// Deltas that a service makes at once; whoever asks for more gets the bytes as they are.
const DELTAS: usize = 4;
/// Delay before asking again for a recipe while too many are being made.
pub(super) const RECIPE_WAIT: Duration = Duration::from_secs(1);
/// Delay before a delta may be requested again while too many others are made.
const BUSY_WAIT: Duration = Duration::from_millis(200);
/// Time until a holder is asked again that does not know yet what a live root became.
pub(super) const NOT_BOUND_WAIT: Duration = Duration::from_millis(200);
/// Bindings of roots kept by whoever answers: more roots than can be proved on a connection.
const BINDINGS: usize = 64;

/// Refusal of a service that fetches nothing for others.
pub const NO_CACHE: &str = "this service is no cache";

/// Needs of a service besides the store: secrets and a key.
pub trait Issuer: Send + Sync {
    /// The secret of the ticket for `root`, if this service issued one.
    fn secret(&self, root: &Oid) -> Option<BoundSecret>;
    /// Why the ticket for `root` with this secret opens nothing any more to `node`, which proved it, if it is over. Asked with the
    /// proof and with each request. A service that does not look at the clock honours no ticket that ends.
    fn over(&self, _node: &NodeId, _root: &Oid, secret: &BoundSecret) -> Option<TicketEnd> {
        secret.terms.expires.map(|_| TicketEnd::Expired)
    }
    /// Tickets for `root` that are known to be withdrawn.
    fn withdrawn(&self, _root: &Oid) -> Vec<KnownWithdrawal> {
        Vec::new()
    }
    /// The secrets of tickets for `root` that this service was given, and by which it got what it has of it.
    fn given(&self, _root: &Oid) -> Vec<GivenSecret> {
        Vec::new()
    }
    /// Lets so many bytes be passed on of what this service was given by the ticket for `root` with this secret, or says how long
    /// to wait.
    fn pass_on(&self, _root: &Oid, _secret: &BoundSecret, _bytes: u64) -> Result<(), Duration> {
        Ok(())
    }
    /// Fetches what the ticket `text`, which `node` hands over, names, for whoever has the ticket. Returns at once: with the right that
    /// the ticket gives, once what comes can be had here; else when to ask again, or why not at all.
    fn bring(&self, _node: &NodeId, _text: &[u8]) -> BringReply {
        BringReply { proved: None, outcome: Err(Outcome::Refused(NO_CACHE.into())) }
    }
    /// The binding of a live root that this service was given: it can't sign one itself, and hands on what the issuer signed.
    fn relayed(&self, _root: &Oid) -> Option<RelayedBinding> {
        None
    }
    /// True if the file `oid` of the tree `root` is served to who has the ticket by which this service gets that: while it comes,
    /// only what has come by it. Who makes a tree may name in it what this machine has from elsewhere.
    fn has_come(&self, _root: &Oid, _oid: &Oid) -> bool {
        true
    }
    /// True if a node may fetch this very object, by configuration or by an operation under way.
    fn is_allowed(&self, node: &NodeId, oid: &Oid) -> bool;
    /// True if a node may have anything without a ticket, by configuration: one that may is not asked for one.
    fn is_known(&self, _node: &NodeId) -> bool {
        false
    }
    /// Signs with the node's key.
    fn sign(&self, message: &[u8]) -> [u8; 64];
}

/// What is said to who hands over a ticket for what it names to be fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BringReply {
    /// The ticket's root and secret: who has the ticket has the right. `None` if it counts for nothing here.
    pub proved: Option<(Oid, BoundSecret)>,
    /// `Ok` once what comes can be had here.
    pub outcome: Result<(), Outcome>,
}

/// A withdrawn ticket, with its issuer's word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownWithdrawal {
    /// The ticket's secret, which whoever asks has to prove.
    pub secret: BoundSecret,
    /// The withdrawal, as it was signed.
    pub withdrawal: Bytes,
    /// The signature of the ticket's node.
    pub signature: Bytes,
}

/// Content that a live object is bound to, with its issuer's word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayedBinding {
    /// The content.
    pub content: Oid,
    /// The statement that says so, as it was signed.
    pub statement: Bytes,
    /// The signature of the ticket's node.
    pub signature: Bytes,
}

/// Answers peers; shared by all connections.
pub struct Service {
    store: Arc<dyn Store>,
    issuer: Arc<dyn Issuer>,
    processors: Processors,
    /// One for each recipe that may be made at once: it takes all processors.
    recipes: Arc<Semaphore>,
    /// One for each delta that may be made at once: it takes memory and time.
    deltas: Arc<Semaphore>,
    /// Order of each node's requests, by urgency.
    turns: Arc<NodeTurns>,
    threads: AnswerThreads,
    heavy: AnswerThreads,
    blocks: Mutex<Blocks>,
    buffers: Buffers,
    /// What waits for all peers.
    queued: Arc<QueuedBytes>,
    /// Who answers questions for entries.
    offer: Mutex<Option<Weak<dyn Offer>>>,
    introducer: Arc<Introducer>,
}

impl Service {
    /// Serves from `store` by the rights that `issuer` knows.
    pub fn new(store: Arc<dyn Store>, issuer: Arc<dyn Issuer>) -> Self {
        let [recipes, deltas] = [RECIPES, DELTAS].map(|most| Arc::new(Semaphore::new(most)));
        let (processors, turns, offer) = (Processors::default(), Arc::default(), Mutex::new(None));
        let most =
            std::thread::available_parallelism().map_or(1, NonZero::get).saturating_mul(4).max(THREADS);
        let (threads, heavy) = (AnswerThreads::new(most, most / 2), AnswerThreads::new(HEAVY.0, HEAVY.1));
        let (blocks, buffers, introducer) = (Mutex::default(), Buffers::default(), Arc::default());
        Self {
            store,
            issuer,
            processors,
            recipes,
            deltas,
            turns,
            threads,
            heavy,
            blocks,
            buffers,
            queued: Arc::default(),
            offer,
            introducer,
        }
    }

    /// Answers with at most so many threads, of which one node has at most `per_node`.
    #[must_use]
    pub fn with_threads(self, most: usize, per_node: usize) -> Self {
        Self { threads: AnswerThreads::new(most, per_node), ..self }
    }

    /// Adds `processors`, which all served content passes.
    #[must_use]
    pub fn with_processors(self, processors: Processors) -> Self {
        Self { processors, ..self }
    }

    /// From now on whoever is connected may ask for the entries of `offer`, as long as that is there: it is for services that speak
    /// with one peer alone. Before, and after it, they are told to ask later.
    pub fn set_offer(&self, offer: Weak<dyn Offer>) {
        *lock(&self.offer) = Some(offer);
    }

    /// Who answers questions for entries.
    pub(super) fn offer(&self) -> Option<Arc<dyn Offer>> {
        lock(&self.offer).as_ref()?.upgrade()
    }

    /// The recipe of an object, made if need be, unless too many are being made.
    fn recipe(&self, oid: &Oid) -> Result<Arc<dyn RecipeNodes>, Outcome> {
        let _permit = self.recipes.try_acquire().map_err(|_| Outcome::RetryLater(RECIPE_WAIT))?;
        self.store.recipe(oid).map_err(|error| outcome_of(&error))
    }

    /// True if a node may have anything without a ticket.
    pub fn knows(&self, node: &NodeId) -> bool {
        self.issuer.is_known(node)
    }

    /// The threads for answers, those that are heavy or others.
    pub(super) const fn threads(&self, is_heavy: bool) -> &AnswerThreads {
        if is_heavy { &self.heavy } else { &self.threads }
    }

    pub(super) const fn queued(&self) -> &Arc<QueuedBytes> {
        &self.queued
    }

    pub(super) const fn turns(&self) -> &Arc<NodeTurns> {
        &self.turns
    }

    /// This service, of the node `own`, is at these addresses now, too. All who fetch from it by a ticket of its own are told.
    pub fn moved(&self, own: NodeId, addresses: &[SocketAddr]) {
        self.introducer.moved(own, addresses);
    }

    pub(super) const fn introducer(&self) -> &Arc<Introducer> {
        &self.introducer
    }

    pub(super) fn issuer(&self) -> &dyn Issuer {
        &*self.issuer
    }

    pub(super) fn store(&self) -> &dyn Store {
        &*self.store
    }
}

/// The tools for answering one peer: the service, and what it remembers of objects that the
/// peer asked for.
pub struct Serving {
    service: Arc<Service>,
    node: NodeId,
    sending: Sending,
    /// Roots that are bound; once known that stays.
    bindings: HashMap<Oid, Oid>,
    served: Arc<Served>,
}

impl Serving {
    /// Answers `node` for `service`.
    pub fn new(service: Arc<Service>, node: NodeId) -> Self {
        let (sending, bindings, served) = (Sending::default(), HashMap::new(), Arc::default());
        Self { service, node, sending, bindings, served }
    }

    /// Notes errors there, too.
    #[must_use]
    pub fn noting(self, served: Arc<Served>) -> Self {
        Self { served, ..self }
    }

    pub(super) fn served(&self) -> &Served {
        &self.served
    }

    /// Takes the state of the path of answers, `None` if nothing is known of it, as before the first call, and how many bytes a
    /// second all answers may take together.
    pub const fn look(&mut self, path: Option<PathInfo>, limit: Option<u64>) {
        self.sending.look(path, limit);
    }

    pub(super) const fn sending(&mut self) -> &mut Sending {
        &mut self.sending
    }

    pub(super) fn buffers(&self) -> &Buffers {
        &self.service.buffers
    }

    pub(super) fn is_allowed(&self, oid: &Oid) -> bool {
        self.service.issuer.is_allowed(&self.node, oid)
    }

    pub(super) fn pass_on(&self, root: &Oid, secret: &BoundSecret, bytes: u64) -> Result<(), Duration> {
        self.service.issuer.pass_on(root, secret, bytes)
    }

    pub(super) fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.service.issuer.sign(message)
    }

    pub(super) fn relayed(&self, oid: &Oid) -> Option<RelayedBinding> {
        self.service.issuer.relayed(oid).filter(|_| oid.is_live())
    }

    pub(super) fn store(&self) -> &dyn Store {
        &*self.service.store
    }

    pub(super) fn recipe(&self, oid: &Oid) -> Result<Arc<dyn RecipeNodes>, Outcome> {
        self.service.recipe(oid)
    }

    /// The next step of a delta that makes `target`, as runs. None: it is better sent as it is.
    pub(super) fn delta(&self, request: Request, target: &[u8]) -> Result<Option<VecDeque<Bytes>>, Outcome> {
        let is_guess = request.is_guess;
        let made = self.service.deltas.try_acquire().map(|_permit| steps::make(request, target));
        match made {
            Ok(None) if is_guess => Err(Outcome::NotHere),
            Err(_) if is_guess => Err(Outcome::RetryLater(BUSY_WAIT)),
            made => Ok(made.unwrap_or_default()),
        }
    }

    pub(super) fn processors(&self) -> &Processors {
        &self.service.processors
    }

    /// The object as the processors see it, if any of them looks at chunks.
    pub(super) fn see(&self, oid: &Oid) -> Result<Option<Seen>, StoreError> {
        match self.processors().inspect_any() {
            true => self.store().have(oid).map(|have| Some(Seen::new(self.processors(), oid, have))),
            false => Ok(None),
        }
    }

    /// Decides about one request for `oid` under `root`, and says no as its peer is told.
    pub(super) fn allow(
        &mut self,
        holding: Option<Holding>,
        root: &Oid,
        oid: &Oid,
        block: Option<u64>,
    ) -> Result<(), Outcome> {
        match self.decide(holding, root, oid, block) {
            Decision::Allow => Ok(()),
            Decision::Refuse(_) if block.is_none() && self.is_unbound(holding, root) => {
                Err(Outcome::RetryLater(NOT_BOUND_WAIT))
            }
            Decision::Refuse(why) => Err(Outcome::Refused(why.into())),
            Decision::Lacks => Err(Outcome::NotHere),
        }
    }

    fn decide(&mut self, holding: Option<Holding>, root: &Oid, oid: &Oid, block: Option<u64>) -> Decision {
        let node_allowed = self.is_allowed(oid);
        let is_root = holding.is_some() && (oid == root || self.bound(root) == Some(*oid));
        let ask_block = holding.is_some() && !is_root && !node_allowed;
        let mentioned = block.filter(|_| ask_block).and_then(|block| self.mentions(root, block, oid));
        let is_given = matches!(holding, Some(Holding::Given { .. }));
        let has_come = !is_given || mentioned != Some(true) || self.service.issuer.has_come(root, oid);
        decide(Facts { node_allowed, root: holding, is_root, mentioned, has_come })
    }

    /// True if a root comes here of which nobody told yet what it became. The peer may know.
    fn is_unbound(&mut self, holding: Option<Holding>, root: &Oid) -> bool {
        let is_given = holding.is_some_and(|holding| holding != Holding::Issued && holding.serves());
        is_given && root.is_live() && self.bound(root).is_none()
    }

    /// The content that a live object is bound to.
    fn bound(&mut self, oid: &Oid) -> Option<Oid> {
        if !oid.is_live() {
            return None;
        }
        if let Some(content) = self.bindings.get(oid) {
            return Some(*content);
        }
        let content = match self.store().have(oid) {
            Ok(Availability { state: State::Bound(content), .. }) => content,
            _ => self.relayed(oid)?.content,
        };
        if self.bindings.len() < BINDINGS {
            self.bindings.insert(*oid, content);
        }
        Some(content)
    }

    /// True if block `block` of `root` mentions `oid`; `None` if the block can't be had.
    fn mentions(&mut self, root: &Oid, block: u64, oid: &Oid) -> Option<bool> {
        let content = self.bound(root).unwrap_or(*root);
        let key = BlockKey { content, generation: generation(self.store(), &content), block };
        let known = lock(&self.service.blocks).mentions(&key, oid);
        if known.is_some() {
            return known;
        }
        let oids = read_block(self.store(), &content, block)?;
        let mentioned = oids.contains(oid);
        lock(&self.service.blocks).insert(key, oids);
        Some(mentioned)
    }

    /// [`outcome_of`] for what the peer may have by a ticket of this service: that was here when the
    /// ticket was made, so if it is not the file it was read from has changed. Of what this service was given it may well
    /// have parts only.
    pub(super) fn outcome_of_put(&self, holding: Option<Holding>, oid: &Oid, error: &StoreError) -> Outcome {
        let is_given = matches!(holding, Some(Holding::Given { .. }));
        match error {
            StoreError::NotHere if !oid.is_live() && !is_given && !self.is_allowed(oid) => {
                Outcome::SourceChanged
            }
            error => outcome_of(error),
        }
    }
}

/// An object that processors look at.
pub(super) struct Seen {
    pub(super) layout: Layout,
    pub(super) metadata: Metadata,
    name: Vec<u8>,
    /// A descriptor of a tree, of which not the bytes are looked at, but those of its files.
    pub(super) is_tree: bool,
}

impl Seen {
    pub(super) fn new(processors: &Processors, oid: &Oid, have: Availability) -> Self {
        let metadata = Metadata::default();
        let is_tree = have.about.kind == ObjectKind::Tree;
        let mut seen = Self { layout: have.layout, metadata, name: have.about.name, is_tree };
        seen.metadata = processors.describe(&seen.object(oid));
        seen
    }

    pub(super) fn object<'a>(&'a self, oid: &'a Oid) -> Object<'a> {
        let size = (!oid.is_live()).then(|| self.layout.size());
        Object { oid, name: &self.name, size, metadata: &self.metadata }
    }
}

/// A block of a tree descriptor. One that is still being put has other blocks when it is begun anew.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct BlockKey {
    content: Oid,
    generation: Option<u64>,
    block: u64,
}

/// OIDs that the blocks of tree descriptors mention; the last few blocks are kept.
#[derive(Default)]
struct Blocks {
    known: HashMap<BlockKey, HashSet<Oid>>,
    order: VecDeque<BlockKey>,
}

impl Blocks {
    /// True if a block mentions `oid`; `None` if it is not known.
    fn mentions(&self, key: &BlockKey, oid: &Oid) -> Option<bool> {
        Some(self.known.get(key)?.contains(oid))
    }

    fn insert(&mut self, key: BlockKey, oids: HashSet<Oid>) {
        // Two may have read it at once.
        if self.known.insert(key, oids).is_some() {
            return;
        }
        if self.order.len() >= BLOCKS
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        self.order.push_back(key);
    }
}

/// The generation of an object that is still being put.
fn generation(store: &dyn Store, content: &Oid) -> Option<u64> {
    let found = content.is_live().then(|| store.have(content).ok()).flatten()?;
    if let State::Live { generation } = found.state { Some(generation) } else { None }
}

fn read_block(store: &dyn Store, content: &Oid, block: u64) -> Option<HashSet<Oid>> {
    let have = store.have(content).ok()?;
    // Any file may hold bytes that look like a block; only a tree descriptor's are believed.
    let layout = Some(have.layout).filter(|_| have.about.kind == ObjectKind::Tree)?;
    let start = block.checked_mul(tree::BLOCK as u64)?;
    let mut piece = Vec::new();
    store.read_piece(content, start / layout.piece_len(), &mut piece).ok()?;
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
        StoreError::Bytes(error) if error.may_pass() => Outcome::RetryLater(Duration::from_secs(2)),
        StoreError::Io { .. } | StoreError::Bytes(_) => {
            Outcome::Refused("the sender could not read its file".into())
        }
    }
}

#[cfg(test)]
mod tests {
    use towpath_store::MemoryStore;

    use super::*;

    const NODE: NodeId = NodeId([1; 32]);
    const LIVE: Oid = Oid::Live([2; 32]);

    /// Knows what a live root became, once that is set.
    #[derive(Default)]
    struct Holder(Mutex<Option<RelayedBinding>>);

    impl Issuer for Holder {
        fn secret(&self, _root: &Oid) -> Option<BoundSecret> {
            None
        }

        fn relayed(&self, _root: &Oid) -> Option<RelayedBinding> {
            lock(&self.0).clone()
        }

        fn is_allowed(&self, _node: &NodeId, _oid: &Oid) -> bool {
            false
        }

        fn sign(&self, _message: &[u8]) -> [u8; 64] {
            unreachable!("a holder signs nothing")
        }
    }

    #[test]
    fn a_holder_that_does_not_know_yet_what_a_root_became_says_later() {
        let holder = Arc::new(Holder::default());
        let service = Arc::new(Service::new(Arc::new(MemoryStore::new()), Arc::clone(&holder) as _));
        let mut serving = Serving::new(service, NODE);
        let content = Oid::of(b"content");
        let given = |settings_allow| Some(Holding::Given { ticket_allows: true, settings_allow });
        let later = Err(Outcome::RetryLater(NOT_BOUND_WAIT));
        assert_eq!(serving.allow(given(true), &LIVE, &LIVE, None), Ok(()));
        assert_eq!(serving.allow(given(true), &LIVE, &content, None), later);
        for other in [None, given(false), Some(Holding::Issued), Some(Holding::Over(TicketEnd::Expired))] {
            let said = serving.allow(other, &LIVE, &content, None);
            assert!(matches!(said, Err(Outcome::Refused(_))), "{other:?}: {said:?}");
        }
        let said = serving.allow(given(true), &LIVE, &content, Some(0));
        assert!(matches!(said, Err(Outcome::Refused(_))), "a block of the list was named: {said:?}");
        let [statement, signature] = [b"statement", &b"signature"[..]].map(Bytes::from_static);
        *lock(&holder.0) = Some(RelayedBinding { content, statement, signature });
        assert_eq!(serving.allow(given(true), &LIVE, &content, None), Ok(()));
        let other = Oid::of(b"other");
        assert!(matches!(serving.allow(given(true), &LIVE, &other, None), Err(Outcome::Refused(_))));
    }
}
