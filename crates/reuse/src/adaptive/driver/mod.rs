//! Ties the [`Scheduler`] to the world: tells it what happens, and does what it answers.
//!
//! One task a transfer, from the first chunk on. Disk operations run in the search's own thread
//! (`disk`), network requests as calls of the wrapped plugin (`network_sink`, `deltas`); both come back as
//! messages, and so does what the session wants. What the disk finds goes to the session through a task of
//! its own, so that a session that is behind delays the disk and nothing else.

mod deltas;
mod disk;
mod network_sink;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use towpath_content::chunking::{ChunkHash, Parameters};
use towpath_disk_search::scope::Mounts;
use towpath_disk_search::{self as disk_search, Executor, Scope};
use towpath_store::disk::chunk_index::Location;
use towpath_store::{DiskStore, Stamp};
use towpath_transfer::source::Sink;
use towpath_transfer::want::Group;
use towpath_transfer::{Context, Outcome, Source, Tag, Want, WantId};

use self::deltas::{DeltaState, RegionUses};
use self::disk::{ByHash, Finds, RunningOperation};
use self::network_sink::NetworkSink;
use super::backpressure::Queues;
use super::budget::Effort;
use super::costs::Costs;
use super::event::{Action, End, Event};
use super::groups::WantedChunk;
use super::heuristics::File;
use super::meter::chunk_window;
use super::neighbours::Neighbours;
use super::operations::DiskLimits;
use super::paths::SplitDirectory;
use super::plugin::SharedDriver;
use super::scheduler::{Scheduler, Settings};

/// Interval at which queues are looked at, and decided anew what goes on: a pause that is noticed a quarter of a
/// second late costs more than the search saves.
const TICK: Duration = Duration::from_millis(10);

/// Destinations that are remembered: what is forgotten is indexed in vain.
const DESTINATIONS: usize = 1 << 16;

/// Search of a transfer.
#[derive(Clone)]
pub struct Search {
    /// Store whose index is searched, and learns what is read.
    pub store: Arc<DiskStore>,
    /// Directories where it begins and that it may enter.
    pub scope: Scope,
    /// Names that are not looked at: temporaries.
    pub leave_out: Arc<dyn Fn(&OsStr) -> bool + Send + Sync>,
    /// Effort where probably nothing is found.
    pub effort: Effort,
    /// Bytes a second that are expected of the network at most; 0: nobody said.
    pub limit_rate: u64,
}

/// A message to the driver.
pub(super) enum DriverMessage {
    /// The session wants chunks.
    Wanted {
        /// The wants.
        wants: Vec<Want>,
        /// By what right.
        context: Context,
        /// Their sink.
        sink: Arc<dyn Sink>,
        /// Told when each has ended.
        done: oneshot::Sender<()>,
    },
    /// The session does not want these any more.
    Withdrawn(Vec<Tag>),
    /// The network brought one.
    Arrived {
        /// The want's tag.
        tag: Tag,
        /// The call that it is of.
        call: u64,
        /// Its bytes.
        len: u32,
        /// Number of these that a delta saved.
        saved: u32,
    },
    /// Chunks of the disk have reached the session, each by its tag and its call.
    Given(Vec<(Tag, u64)>),
    /// The network did not bring one.
    Ended {
        /// The want's tag.
        tag: Tag,
        /// The call that it is of.
        call: u64,
        /// Outcome of it.
        outcome: Outcome,
    },
}

/// One call of the session.
struct NetworkCall {
    context: Context,
    sink: Arc<dyn Sink>,
    open: usize,
    done: Option<oneshot::Sender<()>>,
}

/// A want that has not ended.
struct OpenWant {
    want: Want,
    call: u64,
    delta: DeltaState,
    /// The disk had it, and it is on its way to the session.
    is_given: bool,
}

struct Driver {
    network: Arc<dyn Source>,
    search: Search,
    shared: Arc<SharedDriver>,
    messages: mpsc::WeakUnboundedSender<DriverMessage>,
    token: CancellationToken,
    scheduler: Scheduler,
    executor: Executor,
    finds: Finds,
    calls: HashMap<u64, NetworkCall>,
    open: HashMap<Tag, OpenWant>,
    by_hash: ByHash,
    /// Further wants of a chunk that is wanted already.
    twins: HashMap<ChunkHash, Vec<Tag>>,
    last_call: u64,
    /// Parameters by which wanted chunks are cut, and how many are.
    cuts: Vec<(Parameters, usize)>,
    running: HashMap<disk_search::OperationId, RunningOperation>,
    located: HashMap<Tag, Location>,
    neighbours: Neighbours,
    /// Paths of the transfer's files, where what lies is about to be replaced, and of likely older versions, and how long these are.
    destinations: HashMap<PathBuf, Option<u64>>,
    /// What came of regions.
    regions: RegionUses,
    /// Files of which the index says that they hold wanted chunks.
    promised: HashSet<Arc<Path>>,
    listed: HashSet<(u64, u64)>,
    mounts: Vec<(PathBuf, disk_search::DirectoryId)>,
    looks: bool,
}

/// Runs until cancelled.
pub(super) async fn run(
    network: Arc<dyn Source>,
    search: Search,
    shared: Arc<SharedDriver>,
    messages: mpsc::WeakUnboundedSender<DriverMessage>,
    mut inbox: mpsc::UnboundedReceiver<DriverMessage>,
    token: CancellationToken,
) {
    let by_hash = ByHash::default();
    let mounts = Arc::new(Mounts::read().unwrap_or_default());
    let (executor, mut events) = match Executor::start(
        Arc::clone(&search.store),
        disk::rules(&search, &by_hash, &mounts),
        disk_search::QueueLimits::default(),
    ) {
        Ok(started) => started,
        Err(error) => {
            tracing::warn!(%error, "nothing can be searched here");
            return refuse_all(inbox).await;
        }
    };
    let (finds, found) = mpsc::channel(disk::FINDINGS);
    tokio::spawn(token.clone().run_until_cancelled_owned(disk::deliver_all(found, messages.clone())));
    let disk = (executor, finds, by_hash);
    let mut driver = Driver::new(network, search, shared, messages, token, disk);
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            message = inbox.recv() => match message {
                Some(message) => driver.recv(message, &mounts),
                None => return,
            },
            Some(event) = disk::next_event(&mut events, &driver.finds) => driver.searched(event),
            _ = tick.tick() => driver.tick(),
        }
    }
}

/// Without a search all chunks are had as pieces.
async fn refuse_all(mut inbox: mpsc::UnboundedReceiver<DriverMessage>) {
    while let Some(message) = inbox.recv().await {
        if let DriverMessage::Wanted { wants, sink, done, .. } = message {
            wants.iter().for_each(|want| sink.outcome(want.tag, Outcome::NotHere));
            let _ = done.send(());
        }
    }
}

impl Driver {
    fn new(
        network: Arc<dyn Source>,
        search: Search,
        shared: Arc<SharedDriver>,
        messages: mpsc::WeakUnboundedSender<DriverMessage>,
        token: CancellationToken,
        (executor, finds, by_hash): (Executor, Finds, ByHash),
    ) -> Self {
        let settings = Settings {
            limits: DiskLimits::default(),
            parallel: 1,
            costs: Costs::default(),
            rate: shared.meter().rate(),
            effort: search.effort,
        };
        Self {
            network,
            search,
            shared,
            messages,
            token,
            scheduler: Scheduler::new(settings),
            executor,
            finds,
            calls: HashMap::new(),
            open: HashMap::new(),
            by_hash,
            twins: HashMap::new(),
            last_call: 0,
            cuts: Vec::new(),
            running: HashMap::new(),
            located: HashMap::new(),
            neighbours: Neighbours::default(),
            destinations: HashMap::new(),
            regions: RegionUses::default(),
            promised: HashSet::new(),
            listed: HashSet::new(),
            mounts: Vec::new(),
            looks: false,
        }
    }

    fn recv(&mut self, message: DriverMessage, mounts: &Mounts) {
        match message {
            DriverMessage::Wanted { wants, context, sink, done } => {
                self.look(mounts);
                self.wanted(wants, context, sink, done);
            }
            DriverMessage::Withdrawn(tags) => {
                let is_open = |tag: &Tag| self.open.get(tag).is_some_and(|open| !open.is_given);
                let tags: Vec<Tag> = tags.into_iter().filter(is_open).collect();
                tags.iter().for_each(|tag| self.end(*tag, Some(Outcome::Cancelled)));
                self.feed(Event::Withdrawn(tags));
            }
            // Late, of a tag that is used again: it is nobody's.
            DriverMessage::Arrived { tag, call, .. } | DriverMessage::Ended { tag, call, .. }
                if self.is_of_another_call(tag, call) => {}
            DriverMessage::Arrived { tag, len, saved, .. } => {
                self.region_proved(tag, saved > 0);
                // In this order: whoever waits for the last one reads the account.
                self.feed(Event::Arrived { tag, len, saved });
                self.end(tag, None);
            }
            DriverMessage::Given(mut given) => {
                given.retain(|(tag, call)| !self.is_of_another_call(*tag, *call));
                given.into_iter().for_each(|(tag, _)| self.end(tag, None));
            }
            // By a plugin that gave up more than it was told to: it is still wanted.
            DriverMessage::Ended { tag, outcome: Outcome::Cancelled, .. } => {
                self.feed(Event::NotBrought(vec![tag]))
            }
            DriverMessage::Ended { tag, outcome: Outcome::RetryLater(_), .. } if self.gives_up_delta(tag) => {
                self.feed(Event::NotBrought(vec![tag]));
            }
            DriverMessage::Ended { tag, outcome, .. } => {
                self.end(tag, Some(outcome));
                self.feed(Event::Withdrawn(vec![tag]));
            }
        }
    }

    fn is_of_another_call(&self, tag: Tag, call: u64) -> bool {
        self.open.get(&tag).is_some_and(|open| open.call != call)
    }

    /// Once: where to begin.
    fn look(&mut self, mounts: &Mounts) {
        if !std::mem::replace(&mut self.looks, true) {
            let beginnings = self.search.scope.outward(mounts);
            let directories = beginnings.iter().map(|begin| SplitDirectory::new(&begin.path)).collect();
            self.mounts = beginnings
                .into_iter()
                .map(|begin| (begin.path.clone(), disk_search::DirectoryId::start(&begin.path)))
                .collect();
            let extra = self.search.scope.extra.iter().map(|path| SplitDirectory::new(path)).collect();
            self.feed(Event::ExtraDirectories(extra));
            self.feed(Event::Look(directories));
        }
    }

    fn wanted(&mut self, wants: Vec<Want>, context: Context, sink: Arc<dyn Sink>, done: oneshot::Sender<()>) {
        self.last_call += 1;
        let call = self.last_call;
        self.calls.insert(call, NetworkCall { context, sink, open: wants.len(), done: Some(done) });
        let mut groups: Vec<(Arc<Group>, Vec<WantedChunk>)> = Vec::new();
        for want in wants {
            let (WantId::Chunk { hash, len }, Some(origin)) = (&want.id, &want.origin) else { continue };
            let chunk = WantedChunk { tag: want.tag, offset: origin.offset, len: *len };
            let known = groups.iter_mut().rev().find(|(group, _)| Arc::ptr_eq(group, &want.group));
            match known {
                Some((_, chunks)) => chunks.push(chunk),
                None => groups.push((Arc::clone(&want.group), vec![chunk])),
            }
            self.count_cut(self.shared.parameters(&origin.oid), true);
            self.name(ChunkHash(*hash), want.tag, *len);
            self.open.insert(want.tag, OpenWant { want, call, delta: DeltaState::Untried, is_given: false });
        }
        for (group, chunks) in groups {
            let likely = [&group.older, &group.destination].into_iter().flatten();
            let likely = likely.filter_map(|path| self.likely(path)).collect();
            self.feed(Event::Wanted { files: vec![Arc::new(self.file(&group))], chunks });
            self.feed(Event::Seen(likely));
        }
    }

    /// The file that is about to be replaced, or another likely older version, the first time that this is asked.
    fn likely(&mut self, path: &Path) -> Option<File> {
        if self.destinations.len() >= DESTINATIONS || self.destinations.contains_key(path) {
            return None;
        }
        let is_file = path.symlink_metadata().is_ok_and(|there| there.is_file());
        let stamp = Stamp::of_path(path).ok().filter(|_| is_file);
        self.destinations.insert(path.into(), stamp.map(|stamp| stamp.size));
        let stamp = stamp?;
        Some(disk::file(path, stamp.size, Some(stamp.modified())))
    }

    /// The file as the heuristics compare it: where the file will lie, or its name where the search begins.
    fn file(&self, group: &Group) -> File {
        let path = match &group.destination {
            Some(path) => path.clone(),
            None => self.search.scope.start.join(disk::path_of(&group.path)),
        };
        disk::file(&path, group.size.unwrap_or(0), group.modified)
    }

    fn count_cut(&mut self, parameters: Option<Parameters>, is_more: bool) {
        let Some(parameters) = parameters else { return };
        let known = self.cuts.iter_mut().find(|(known, _)| *known == parameters);
        match (known, is_more) {
            (Some((_, count)), true) => *count += 1,
            (Some((_, count)), false) => *count -= 1,
            (None, true) => self.cuts.push((parameters, 1)),
            (None, false) => {}
        }
        self.cuts.retain(|(_, count)| *count > 0);
    }

    /// The search's thread looks for a chunk.
    fn name(&mut self, hash: ChunkHash, tag: Tag, len: u32) {
        match self.by_hash.write().unwrap_or_else(PoisonError::into_inner).entry(hash) {
            Entry::Vacant(slot) => drop(slot.insert((tag, len))),
            Entry::Occupied(_) => self.twins.entry(hash).or_default().push(tag),
        }
    }

    /// All wants of a chunk: nobody looks for it any more.
    fn take_named(&mut self, hash: &ChunkHash) -> impl Iterator<Item = Tag> + use<> {
        let first = self.by_hash.write().unwrap_or_else(PoisonError::into_inner).remove(hash);
        let twins = self.twins.remove(hash).unwrap_or_default();
        first.map(|(tag, _)| tag).into_iter().chain(twins)
    }

    /// A want of a chunk is over; others of it may not be.
    fn unname(&mut self, hash: &ChunkHash, tag: Tag) {
        let mut by_hash = self.by_hash.write().unwrap_or_else(PoisonError::into_inner);
        let mut twins = self.twins.remove(hash).unwrap_or_default();
        twins.retain(|twin| *twin != tag);
        let is_first = by_hash.get(hash).is_some_and(|(named, _)| *named == tag);
        match (is_first, twins.pop()) {
            (true, None) => drop(by_hash.remove(hash)),
            (true, Some(next)) => drop(by_hash.get_mut(hash).map(|(named, _)| *named = next)),
            (false, next) => twins.extend(next),
        }
        if !twins.is_empty() {
            self.twins.insert(*hash, twins);
        }
    }

    /// A want is over; `outcome` tells the session unless it has the bytes.
    fn end(&mut self, tag: Tag, outcome: Option<Outcome>) {
        let Some(OpenWant { want, call, .. }) = self.open.remove(&tag) else { return };
        if let WantId::Chunk { hash, .. } = &want.id {
            self.unname(&ChunkHash(*hash), tag);
        }
        self.located.remove(&tag);
        let cut = want.origin.as_ref().and_then(|origin| self.shared.parameters(&origin.oid));
        self.count_cut(cut, false);
        let Some(ended) = self.calls.get_mut(&call) else { return };
        if let Some(outcome) = outcome {
            ended.sink.outcome(tag, outcome);
        }
        ended.open -= 1;
        if ended.open == 0
            && let Some(done) = self.calls.remove(&call).and_then(|call| call.done)
        {
            // Nobody may wait for it any more.
            let _ = done.send(());
        }
    }

    fn tick(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let pressure = self.calls.values().next().map(|call| call.sink.backpressure()).unwrap_or_default();
        let state = self.network.state();
        let path = state.path;
        let (now, rate) = (self.shared.now(), self.scheduler.network_rate(self.shared.now()));
        let disks = &self.shared.disks;
        let disks = if self.executor.outstanding() == 0 { disks.wait(now) } else { disks.wait_before() };
        self.feed(Event::Backpressure(Queues {
            writer_backlog: pressure.writer_backlog,
            receive_queue: pressure.receive_queue.max(path.receive_queue),
            window: chunk_window(rate, path.round_trip, state.sources, state.window),
            round_trip: path.round_trip,
            processors: self.shared.processors.wait(now),
            disks,
        }));
        self.feed(Event::Tick);
        self.shared.set_account(self.scheduler.account());
    }

    /// Tells the scheduler, and does what it says until nothing is left to do.
    fn feed(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            for action in self.scheduler.handle(self.shared.now(), event) {
                events.extend(self.act(action));
            }
        }
        if self.scheduler.is_complete() {
            self.running.keys().for_each(|id| self.executor.cancel(*id));
            self.shared.set_account(self.scheduler.account());
        }
    }

    fn act(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::Start { id, operation, is_wide } => {
                // Operations that rested may have ended so, and nothing was resumed.
                self.executor.rest(false);
                if !self.start(id, operation, is_wide) {
                    let took = Duration::ZERO;
                    return Some(Event::Completed { operation: id, took, end: End::Failed });
                }
            }
            // All that runs rests or goes on at once, as the scheduler has it.
            Action::Pause(_) => self.executor.rest(true),
            Action::Resume(_) => self.executor.rest(false),
            Action::AskNetwork(tags) => self.ask(&tags),
            Action::CancelNetwork(tags) => self.network.cancel(&tags),
            Action::GiveUp(tags) => tags.into_iter().for_each(|tag| self.end(tag, Some(Outcome::NotHere))),
            Action::Recompute => {
                let started = Instant::now();
                self.scheduler.recompute();
                return Some(Event::Recomputed(started.elapsed()));
            }
        }
        None
    }

    /// Asks the network, each call's wants by its own right.
    fn ask(&mut self, tags: &[Tag]) {
        let mut by_call: HashMap<u64, Vec<Want>> = HashMap::new();
        for open in tags.iter().filter_map(|tag| self.open.get(tag)) {
            by_call.entry(open.call).or_default().push(open.want.clone());
        }
        for (number, mut wants) in by_call {
            let likely = self.match_regions(&wants);
            let signing = (!likely.is_empty()).then(|| {
                let measured = self.shared.meter().network(&self.network.state().path, self.shared.now());
                // No faster than the person allows.
                (likely, measured.at_most(self.search.limit_rate as f64))
            });
            let (Some(call), Some(messages)) = (self.calls.get(&number), self.messages.upgrade()) else {
                continue;
            };
            let (network, context) = (Arc::clone(&self.network), call.context.clone());
            let sink = Arc::new(NetworkSink { inner: Arc::clone(&call.sink), call: number, messages });
            let token = self.token.clone();
            tokio::spawn(token.run_until_cancelled_owned(async move {
                if let Some((likely, measured)) = signing {
                    deltas::sign(&mut wants, likely, measured).await;
                }
                network.get(wants, &context, sink).await;
            }));
        }
    }
}
