//! The source: pieces go to the network as they are, chunks to the [`driver`](super::driver), which
//! chooses between network and disk.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};
use towpath_content::Oid;
use towpath_content::chunking::Parameters;
use towpath_content::lock::lock;
use towpath_content::recipe;
use towpath_transfer::source::{Backlog, PathState, Query, Sink, SourceState};
use towpath_transfer::{
    Advice, BoxFuture, Context, Delivery, Description, ObjectFacts, OpenWays, Outcome, RestWay, Root, Source,
    Tag, Want, WantId,
};

use super::account::Account;
use super::backpressure::Queues;
use super::call_sink::CallSink;
use super::costs::Costs;
use super::driver::{self, DriverMessage, Search};
use super::meter::{Meter, MeteredWant};
use super::older_versions::{self, OlderVersions};
use super::pieces::{self, Pieces};
use super::stalls::Stalls;
use crate::delta::made::MadeDeltas;
use crate::policy::network::Network;
use crate::policy::table::{PROMISING_PART, VERSION_GROWN};

/// Parts of a recipe that wait for whoever reads them.
const PARTS: usize = 8;
/// KiB of older versions of objects that come as one delta, and of these, that are held at one time.
const WHOLE_KIB: u32 = 32 << 10;
/// Objects whose parameters are remembered.
const OBJECTS: usize = 4096;

/// Draws from a network and from this machine's disk at once. See the head of [`super`].
pub struct Adaptive {
    network: Arc<dyn Source>,
    search: Search,
    shared: Arc<SharedDriver>,
    driver: OnceLock<mpsc::UnboundedSender<DriverMessage>>,
    /// Room for what comes as one delta.
    whole: Semaphore,
    token: CancellationToken,
    _end: DropGuard,
}

/// State shared by source, driver and sinks.
pub(super) struct SharedDriver {
    start: Instant,
    meter: Mutex<Meter>,
    pieces: Mutex<Pieces>,
    older: Mutex<OlderVersions>,
    /// Parameters by which the chunks of an object were cut, by its recipe.
    parameters: Mutex<HashMap<Oid, Parameters>>,
    account: Mutex<Account>,
    pub(super) processors: Stalls,
    pub(super) disks: Stalls,
}

impl SharedDriver {
    /// Since the transfer began.
    pub(super) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    pub(super) fn meter(&self) -> MutexGuard<'_, Meter> {
        lock(&self.meter)
    }

    pub(super) fn parameters(&self, oid: &Oid) -> Option<Parameters> {
        lock(&self.parameters).get(oid).copied()
    }

    pub(super) fn set_account(&self, account: Account) {
        *lock(&self.account) = account;
    }

    fn learn(&self, oid: Oid, root: &[u8]) {
        let Ok(root) = recipe::RecipeRoot::from_bytes(root) else { return };
        let mut parameters = lock(&self.parameters);
        if parameters.len() < OBJECTS {
            // A live object is asked for by either of its names.
            parameters.extend([oid, root.object].map(|oid| (oid, root.parameters)));
        }
    }
}

impl Adaptive {
    /// Draws from `network`, and from the disk as far as `search` allows.
    pub fn new(network: Arc<dyn Source>, search: Search) -> Arc<Self> {
        let shared = SharedDriver {
            start: Instant::now(),
            meter: Mutex::new(Meter::new(Costs::default())),
            pieces: Mutex::default(),
            older: Mutex::default(),
            parameters: Mutex::default(),
            account: Mutex::default(),
            processors: Stalls::of_processors(),
            disks: Stalls::of_disks(),
        };
        let token = CancellationToken::new();
        let _end = token.clone().drop_guard();
        let (shared, driver) = (Arc::new(shared), OnceLock::new());
        let whole = Semaphore::new(WHOLE_KIB as usize);
        Arc::new(Self { network, search, shared, driver, whole, token, _end })
    }

    /// Account of what was searched and found so far.
    pub fn account(&self) -> Account {
        lock(&self.shared.account).clone()
    }

    /// Files that came as deltas of their older versions, as if all of these had been in their places.
    pub fn made_deltas(&self) -> MadeDeltas {
        lock(&self.shared.older).made().clone()
    }

    /// Bytes of an object that did not have to come, as its pieces came as deltas.
    pub fn saved_by_deltas(&self, oid: &Oid) -> u64 {
        lock(&self.shared.older).saved(oid)
    }

    /// The network as pieces show it, and `path` to the sender, and no faster than the person allows.
    pub fn network(&self, path: &PathState) -> Network {
        let measured = self.shared.meter().network(path, self.shared.now());
        measured.at_most(self.search.limit_rate as f64)
    }

    /// Takes pieces of an object back from the network, all but the first `kept`: its recipe is the better
    /// way.
    fn take_back(&self, oid: &Oid, kept: usize) {
        let tags = lock(&self.shared.pieces).take_back(oid, kept);
        if !tags.is_empty() {
            self.network.cancel(&tags);
        }
    }

    /// Gives wants for all of a file its older version as base, as far as that is here and of use. Only peers to
    /// whom this machine's files may be known get their hashes.
    async fn add_bases(&self, mut wants: Vec<Want>) -> Vec<Want> {
        let network = self.network(&self.network.state().path);
        if !self.search.scope.beyond_destination || !network.is_slow() {
            return wants;
        }
        let may_have: Vec<bool> = {
            let older = lock(&self.shared.older);
            wants.iter().map(|want| older.may_have(want)).collect()
        };
        let mut signed = Vec::new();
        if may_have.contains(&true) {
            let copies = wants.clone();
            let signing = move || {
                let signed =
                    |(want, may): (&Want, bool)| may.then(|| older_versions::sign(want, network)).flatten();
                copies.iter().zip(may_have).map(signed).collect::<Vec<_>>()
            };
            signed = tokio::task::spawn_blocking(signing).await.unwrap_or_default();
        }
        let mut older = lock(&self.shared.older);
        for (want, signed) in wants.iter_mut().zip(signed.into_iter().chain(std::iter::repeat(None))) {
            let (base, file) = signed.unzip();
            older.requested(want, file);
            if base.is_some() {
                // In parts it would be requested without it.
                (want.base, want.undivided) = (base, true);
            }
        }
        drop(older);
        wants
    }

    /// True if an object comes as one delta of its older version.
    fn comes_whole(&self, facts: &ObjectFacts<'_>) -> bool {
        if !self.search.scope.beyond_destination || !older_versions::has_few_pieces(facts.size) {
            return false;
        }
        let state = self.network.state();
        let network = self.network(&state.path);
        state.makes_deltas && network.is_slow() && lock(&self.shared.older).comes_whole(facts, network)
    }

    /// True if a want for all of an object is one that this source advised: another one is a chunk like others.
    fn is_whole(&self, want: &Want) -> bool {
        want.whole_object().is_some_and(|oid| lock(&self.shared.older).was_whole(&oid))
    }

    /// Requests an object as one delta, once there is room for its older version and what is made of it.
    async fn bring_whole(&self, want: Want, context: &Context, sink: &Arc<dyn Sink>) {
        let kib = u32::try_from((want.id.len() * (VERSION_GROWN + 1)) >> 10).unwrap_or(u32::MAX);
        // It is never closed.
        let _room = self.whole.acquire_many(kib.clamp(1, WHOLE_KIB)).await;
        let tag = want.tag;
        let wants = self.add_bases(vec![want]).await;
        if wants.iter().all(|want| want.base.is_none()) {
            return sink.outcome(tag, Outcome::NotHere);
        }
        let sink = PieceSink::new(&wants, Arc::clone(sink), Arc::clone(&self.shared));
        self.network.get(wants, context, Arc::new(sink)).await;
    }

    /// Hands something to the driver, which runs from the first chunk on.
    fn send(&self, message: DriverMessage) {
        let driver = self.driver.get_or_init(|| {
            // Without a bound of its own: sinks and the session's one task cannot wait, and tell ends of wants, which a
            // session has as many of as it likes at once. Each want is in two messages, at most: brought or not, and withdrawn.
            let (tx, inbox) = mpsc::unbounded_channel();
            let (network, shared) = (Arc::clone(&self.network), Arc::clone(&self.shared));
            let task =
                driver::run(network, self.search.clone(), shared, tx.downgrade(), inbox, self.token.clone());
            let token = self.token.clone();
            tokio::spawn(async move { token.run_until_cancelled(task).await });
            tx
        });
        // It ends only with this source.
        let _ = driver.send(message);
    }
}

/// True if a file lies where the object goes, or was found: most likely an older version of it.
fn is_promising(facts: &ObjectFacts<'_>) -> bool {
    let likely = [&facts.group.older, &facts.group.destination].into_iter().flatten();
    let mut found = likely.filter_map(|path| path.symlink_metadata().ok());
    found.any(|found| found.is_file() && found.len() >= facts.size / PROMISING_PART)
}

/// True if the driver chooses where a want comes from.
fn is_chunk(want: &Want) -> bool {
    matches!(want.id, WantId::Chunk { .. }) && want.origin.is_some()
}

impl Adaptive {
    /// True if the rest of an object is better drawn from the older version that lies in its place.
    fn wants_samples(&self, facts: &ObjectFacts<'_>) -> bool {
        is_promising(facts) && self.shared.meter().wants_samples(facts, self.shared.now())
    }

    /// True if the rest of an object is better drawn by its recipe.
    fn wants_recipe(&self, facts: &ObjectFacts<'_>) -> bool {
        let path = self.network.state().path;
        let wanted = self.shared.meter().wants_recipe(facts, is_promising, &path, self.shared.now());
        if let Some(MeteredWant { kept }) = wanted {
            lock(&self.shared.pieces).question(facts.oid, facts.asked_as);
            // Nothing that most likely is here already is to come before the recipe.
            self.take_back(&facts.oid, kept);
        }
        wanted.is_some()
    }
}

impl Root for Adaptive {
    fn advise(&self, facts: &ObjectFacts<'_>) -> Advice {
        let way = match facts.open {
            OpenWays { whole: true, .. } if self.comes_whole(facts) => RestWay::Whole,
            OpenWays { samples: true, .. } if self.wants_samples(facts) => RestWay::Samples,
            OpenWays { recipe: true, .. } if self.wants_recipe(facts) => RestWay::Recipe,
            _ => RestWay::Pieces,
        };
        // The driver chooses among them.
        Advice { way, chunks_at_once: true }
    }
}

impl Source for Adaptive {
    fn name(&self) -> &str {
        "adaptive"
    }

    fn inner(&self) -> Option<&dyn Source> {
        Some(&*self.network)
    }

    fn state(&self) -> SourceState {
        let state = self.network.state();
        let window = self.shared.meter().window(state.window.saturating_sub(state.beside), self.shared.now());
        SourceState { window: window + state.beside, ..state }
    }

    fn describe<'a>(
        &'a self,
        query: Query,
        context: &'a Context,
        answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        if !query.recipe {
            return self.network.describe(query, context, answers);
        }
        let oid = query.oid;
        let (parts, mut inbox) = mpsc::channel(PARTS);
        Box::pin(async move {
            let mut has_come = false;
            let passing = async {
                while let Some(part) = inbox.recv().await {
                    if let Description::Recipe(part) = &part
                        && let Some(root) = &part.root
                    {
                        has_come = true;
                        self.shared.learn(oid, root);
                    }
                    if answers.send(part).await.is_err() {
                        return;
                    }
                }
            };
            let mut end = RecipeEnd { shared: &self.shared, oid, has_come: false };
            let (result, ()) = tokio::join!(self.network.describe(query, context, parts), passing);
            end.has_come = has_come && result.is_ok();
            if end.has_come {
                self.take_back(&oid, 0);
            }
            result
        })
    }

    fn get<'a>(&'a self, wants: Vec<Want>, context: &'a Context, sink: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        let (whole, others): (Vec<_>, Vec<_>) = wants.into_iter().partition(|want| self.is_whole(want));
        let (chunks, others): (Vec<_>, Vec<_>) = others.into_iter().partition(is_chunk);
        Box::pin(async move {
            let made = join_all(whole.into_iter().map(|want| self.bring_whole(want, context, &sink)));
            let brought = async {
                if !others.is_empty() {
                    let others = self.add_bases(others).await;
                    let sink = PieceSink::new(&others, Arc::clone(&sink), Arc::clone(&self.shared));
                    self.network.get(others, context, Arc::new(sink)).await;
                }
            };
            let chosen = async {
                if !chunks.is_empty() {
                    self.shared.meter().switched();
                    let (done, end) = oneshot::channel();
                    let (sink, _until_over) = CallSink::before(Arc::clone(&sink));
                    let context = context.clone();
                    self.send(DriverMessage::Wanted { wants: chunks, context, sink, done });
                    let _ = end.await;
                }
            };
            tokio::join!(brought, chosen, made);
        })
    }

    fn cancel(&self, tags: &[Tag]) {
        lock(&self.shared.pieces).withdrawn(tags);
        lock(&self.shared.older).withdrawn(tags);
        self.network.cancel(tags);
        if let Some(driver) = self.driver.get() {
            let _ = driver.send(DriverMessage::Withdrawn(tags.to_vec()));
        }
    }
}

/// Tells that a question for a recipe is over, however it ends.
struct RecipeEnd<'a> {
    shared: &'a SharedDriver,
    oid: Oid,
    has_come: bool,
}

impl Drop for RecipeEnd<'_> {
    fn drop(&mut self) {
        self.shared.meter().recipe_ended(self.has_come, self.shared.now());
        lock(&self.shared.pieces).answered(&self.oid);
    }
}

/// Measures the network by the pieces that it brings.
struct PieceSink {
    inner: Arc<dyn Sink>,
    shared: Arc<SharedDriver>,
    /// Pieces that show the network's rate, each with its object and its bytes: those with a base do not.
    pieces: Mutex<HashMap<Tag, (Oid, u64)>>,
}

impl PieceSink {
    fn new(wants: &[Want], inner: Arc<dyn Sink>, shared: Arc<SharedDriver>) -> Self {
        let pieces = wants.iter().filter_map(|want| match &want.id {
            WantId::Piece { oid, .. } if want.base.is_none() => Some((want.tag, (*oid, want.missing_len()))),
            _ => None,
        });
        let pieces: HashMap<_, _> = pieces.collect();
        let now = shared.now();
        let mut meter = shared.meter();
        pieces.values().for_each(|(oid, bytes)| meter.requested(*oid, *bytes, now));
        drop(meter);
        let mut under_way = lock(&shared.pieces);
        for want in wants {
            if let Some((oid, _)) = pieces.get(&want.tag) {
                under_way.requested(*oid, want.tag);
            }
        }
        drop(under_way);
        Self { inner, shared, pieces: Mutex::new(pieces) }
    }

    /// A piece came or did not: whether it had been taken back.
    fn ended(&self, tag: Tag, has_come: bool) -> bool {
        let Some((oid, bytes)) = lock(&self.pieces).remove(&tag) else { return false };
        let Backlog { writer_backlog, receive_queue } = self.inner.backpressure();
        let processors = self.shared.processors.wait(self.shared.now());
        let mut meter = self.shared.meter();
        meter.ended(&oid, bytes, has_come, self.shared.now());
        meter.look(Queues { writer_backlog, receive_queue, processors, ..Queues::default() });
        drop(meter);
        lock(&self.shared.pieces).ended(&oid, tag)
    }
}

impl Sink for PieceSink {
    fn deliver(&self, delivery: Delivery) -> BoxFuture<'_, ()> {
        let len = delivery.payload.bytes().len() as u64;
        if lock(&self.shared.older).came(delivery.tag, len, delivery.saved) {
            self.shared.meter().grow(len);
        }
        self.ended(delivery.tag, true);
        self.inner.deliver(delivery)
    }

    fn partial_piece(&self, delivery: Delivery) {
        self.inner.partial_piece(delivery);
    }

    fn outcome(&self, tag: Tag, outcome: Outcome) {
        lock(&self.shared.older).ended(tag, &outcome);
        let was_taken_back = self.ended(tag, false);
        self.inner.outcome(tag, pieces::outcome_for_session(outcome, was_taken_back));
    }

    fn backpressure(&self) -> Backlog {
        self.inner.backpressure()
    }
}

impl Drop for PieceSink {
    /// A call that was given up.
    fn drop(&mut self) {
        let left = std::mem::take(&mut *lock(&self.pieces));
        let (mut meter, now) = (self.shared.meter(), self.shared.now());
        left.values().for_each(|(oid, bytes)| meter.ended(oid, *bytes, false, now));
        drop(meter);
        let mut pieces = lock(&self.shared.pieces);
        for (tag, (oid, _)) in &left {
            pieces.ended(oid, *tag);
        }
    }
}
