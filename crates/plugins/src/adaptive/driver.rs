//! Ties the [`Scheduler`] to the world: tells it what happens, and does what it answers.
//!
//! One task a transfer, from the first chunk on. Disk operations run in the search's own thread, network
//! requests as calls of the wrapped plugin; both come back as messages, and so does what the session
//! wants. What the disk finds goes to the session through a task of its own, so that a session that is
//! behind delays the disk and nothing else.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use towpath_content::chunking::{ChunkHash, Parameters};
use towpath_content::delta;
use towpath_content::tree::Time;
use towpath_store::disk::chunk_index::Location;
use towpath_store::{DiskStore, Stamp};
use towpath_transfer::plugin::{Pressure, Sink};
use towpath_transfer::want::{Group, Payload};
use towpath_transfer::{
    Basis, BoxFuture, Context, Delivery, Origin, Outcome, Tag, TransferPlugin, Want, WantId,
};

use super::costs::Costs;
use super::event::{Action, End, Event};
use super::groups::Chunk;
use super::heuristics::File;
use super::meter::chunk_window;
use super::neighbours::{Neighbours, Region};
use super::operations::{Limits, Operation, OperationId, Span};
use super::paths::Directory;
use super::plugin::Shared;
use super::pressure::Queues;
use super::scheduler::{Scheduler, Settings};
use super::worth::delta_pays;
use crate::disk_search::scope::Mounts;
use crate::disk_search::{self, Candidate, Executor, Finished, FoundChunk, InFlight, Rules, Scope};
use crate::local::SOURCE;

/// How often queues are looked at, and judged anew what goes on: a pause that is noticed a quarter of a
/// second late costs more than the search saves.
const TICK: Duration = Duration::from_millis(10);
/// Bytes of a chunk, on average, in recipes of most objects.
const CHUNK: u64 = 16 << 10;
/// Directories that were listed, remembered by device and inode so that none is listed twice.
const LISTED: usize = 1 << 18;

/// Where a transfer may search.
#[derive(Clone)]
pub struct Search {
    /// Whose index is asked, and learns what is read.
    pub store: Arc<DiskStore>,
    /// Where it begins and what it may enter.
    pub scope: Scope,
    /// Names that are not looked at: temporaries.
    pub leave_out: Arc<dyn Fn(&OsStr) -> bool + Send + Sync>,
}

/// What the driver is told.
pub(super) enum Told {
    /// The session wants chunks.
    Wanted {
        /// Which.
        wants: Vec<Want>,
        /// By what right.
        context: Context,
        /// Where they go.
        sink: Arc<dyn Sink>,
        /// Told when each has ended.
        done: oneshot::Sender<()>,
    },
    /// The session does not want these any more.
    Withdrawn(Vec<Tag>),
    /// The network brought one.
    Arrived {
        /// Which.
        tag: Tag,
        /// Its bytes.
        len: u32,
        /// How many of these a delta saved.
        saved: u32,
    },
    /// What the disk found has reached the session.
    Given(Tag),
    /// The network did not bring one.
    Ended {
        /// Which.
        tag: Tag,
        /// Why.
        outcome: Outcome,
    },
}

/// One call of the session.
struct Call {
    context: Context,
    sink: Arc<dyn Sink>,
    open: usize,
    done: Option<oneshot::Sender<()>>,
}

/// A want that has not ended.
struct Open {
    want: Want,
    call: u64,
    delta: DeltaState,
}

/// Whether a want was asked for as a delta.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DeltaState {
    Untried,
    Asked,
    /// What came of it was of no use: it is asked for as it is.
    Failed,
}

/// An operation on the disk.
struct Running {
    id: OperationId,
    /// Of a CACHE-CHECK: what is looked up. Of a CACHE-READ: how many chunks.
    tags: Vec<Tag>,
    /// Of a STAT: device and inode of the directory, once the first part has come.
    lists: Option<(u64, u64)>,
}

/// Which chunks are wanted, by what they hash to: read by the search's thread.
type ByHash = Arc<RwLock<HashMap<ChunkHash, (Tag, u32)>>>;

/// What the disk found, on its way to the session.
type Finds = mpsc::UnboundedSender<(Arc<dyn Sink>, Delivery, InFlight)>;

struct Driver {
    network: Arc<dyn TransferPlugin>,
    search: Search,
    shared: Arc<Shared>,
    told: mpsc::WeakUnboundedSender<Told>,
    token: CancellationToken,
    scheduler: Scheduler,
    executor: Executor,
    finds: Finds,
    calls: HashMap<u64, Call>,
    open: HashMap<Tag, Open>,
    by_hash: ByHash,
    last_call: u64,
    /// How wanted chunks are cut, and how many are.
    cuts: Vec<(Parameters, usize)>,
    running: HashMap<disk_search::OperationId, Running>,
    /// Those that are to pause.
    paused: HashSet<OperationId>,
    located: HashMap<Tag, Location>,
    neighbours: Neighbours,
    /// Files of which the index says that they hold wanted chunks.
    promised: HashSet<Arc<Path>>,
    listed: HashSet<(u64, u64)>,
    mounts: Vec<(PathBuf, disk_search::Directory)>,
    looks: bool,
}

/// Runs until cancelled.
pub(super) async fn run(
    network: Arc<dyn TransferPlugin>,
    search: Search,
    shared: Arc<Shared>,
    told: mpsc::WeakUnboundedSender<Told>,
    mut inbox: mpsc::UnboundedReceiver<Told>,
    token: CancellationToken,
) {
    let by_hash = ByHash::default();
    let mounts = Arc::new(Mounts::read().unwrap_or_default());
    let (executor, mut events) = match Executor::start(
        Arc::clone(&search.store),
        rules(&search, &by_hash, &mounts),
        disk_search::Limits::default(),
    ) {
        Ok(started) => started,
        Err(error) => {
            tracing::warn!(%error, "nothing can be searched here");
            return refuse_all(inbox).await;
        }
    };
    let (finds, found) = mpsc::unbounded_channel();
    tokio::spawn(token.clone().run_until_cancelled_owned(deliver_all(found, told.clone())));
    let settings = Settings {
        limits: Limits::default(),
        parallel: 1,
        costs: Costs::new(CHUNK),
        rate: shared.meter().rate(),
    };
    let mut driver = Driver {
        network,
        search,
        shared,
        told,
        token,
        scheduler: Scheduler::new(settings),
        executor,
        finds,
        calls: HashMap::new(),
        open: HashMap::new(),
        by_hash,
        last_call: 0,
        cuts: Vec::new(),
        running: HashMap::new(),
        paused: HashSet::new(),
        located: HashMap::new(),
        neighbours: Neighbours::default(),
        promised: HashSet::new(),
        listed: HashSet::new(),
        mounts: Vec::new(),
        looks: false,
    };
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            told = inbox.recv() => match told {
                Some(told) => driver.told(told, &mounts),
                None => return,
            },
            Some(event) = events.recv() => driver.searched(event),
            _ = tick.tick() => driver.tick(),
        }
    }
}

/// What the search's thread asks.
fn rules(search: &Search, by_hash: &ByHash, mounts: &Arc<Mounts>) -> Rules {
    let by_hash = Arc::clone(by_hash);
    let (scope, mounts) = (search.scope.clone(), Arc::clone(mounts));
    Rules {
        wanted: Arc::new(move |hash| {
            by_hash.read().unwrap_or_else(PoisonError::into_inner).get(hash).map(|(_, len)| *len)
        }),
        may_use: Arc::new(move |path| scope.covers(path, &mounts)),
        leave_out: Arc::clone(&search.leave_out),
    }
}

/// Without a search all chunks are had as pieces.
async fn refuse_all(mut inbox: mpsc::UnboundedReceiver<Told>) {
    while let Some(told) = inbox.recv().await {
        if let Told::Wanted { wants, sink, done, .. } = told {
            wants.iter().for_each(|want| sink.outcome(want.tag, Outcome::NotHere));
            let _ = done.send(());
        }
    }
}

async fn deliver_all(
    mut found: mpsc::UnboundedReceiver<(Arc<dyn Sink>, Delivery, InFlight)>,
    told: mpsc::WeakUnboundedSender<Told>,
) {
    while let Some((sink, delivery, held)) = found.recv().await {
        let tag = delivery.tag;
        sink.deliver(delivery).await;
        drop(held);
        if let Some(told) = told.upgrade() {
            // It ends only with this task.
            let _ = told.send(Told::Given(tag));
        }
    }
}

impl Driver {
    fn told(&mut self, told: Told, mounts: &Mounts) {
        match told {
            Told::Wanted { wants, context, sink, done } => {
                self.look(mounts);
                self.wanted(wants, context, sink, done);
            }
            Told::Withdrawn(tags) => {
                let tags: Vec<Tag> = tags.into_iter().filter(|tag| self.open.contains_key(tag)).collect();
                tags.iter().for_each(|tag| self.end(*tag, Some(Outcome::Cancelled)));
                self.feed(Event::Withdrawn(tags));
            }
            Told::Arrived { tag, len, saved } => {
                // In this order: whoever waits for the last one reads the account.
                self.feed(Event::Arrived { tag, len, saved });
                self.end(tag, None);
            }
            Told::Given(tag) => self.end(tag, None),
            // Cancelled with others that the disk had: it is still wanted.
            Told::Ended { tag, outcome: Outcome::Cancelled } => self.feed(Event::NotBrought(vec![tag])),
            Told::Ended { tag, outcome: Outcome::RetryLater(_) } if self.gives_up_delta(tag) => {
                self.feed(Event::NotBrought(vec![tag]));
            }
            Told::Ended { tag, outcome } => {
                self.end(tag, Some(outcome));
                self.feed(Event::Withdrawn(vec![tag]));
            }
        }
    }

    /// Whether a want was asked for as a delta; if so, it is not again.
    fn gives_up_delta(&mut self, tag: Tag) -> bool {
        let open = self.open.get_mut(&tag).filter(|open| open.delta == DeltaState::Asked);
        open.map(|open| open.delta = DeltaState::Failed).is_some()
    }

    /// Once: where to begin.
    fn look(&mut self, mounts: &Mounts) {
        if !std::mem::replace(&mut self.looks, true) {
            let beginnings = self.search.scope.outward(mounts);
            let directories = beginnings.iter().map(|begin| Directory::new(&begin.path)).collect();
            self.mounts = beginnings
                .into_iter()
                .map(|begin| (begin.path.clone(), disk_search::Directory::start(&begin.path)))
                .collect();
            let asked = self.search.scope.extra.iter().map(|path| Directory::new(path)).collect();
            self.feed(Event::Asked(asked));
            self.feed(Event::Look(directories));
        }
    }

    fn wanted(&mut self, wants: Vec<Want>, context: Context, sink: Arc<dyn Sink>, done: oneshot::Sender<()>) {
        self.last_call += 1;
        let call = self.last_call;
        self.calls.insert(call, Call { context, sink, open: wants.len(), done: Some(done) });
        let mut groups: Vec<(Arc<Group>, Vec<Chunk>)> = Vec::new();
        for want in wants {
            let (WantId::Chunk { hash, len }, Some(origin)) = (&want.id, &want.origin) else { continue };
            let chunk = Chunk { tag: want.tag, offset: origin.offset, len: *len };
            let known = groups.iter_mut().rev().find(|(group, _)| Arc::ptr_eq(group, &want.group));
            match known {
                Some((_, chunks)) => chunks.push(chunk),
                None => groups.push((Arc::clone(&want.group), vec![chunk])),
            }
            self.count_cut(self.shared.parameters(&origin.oid), true);
            self.by_hash
                .write()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(ChunkHash(*hash), (want.tag, *len));
            self.open.insert(want.tag, Open { want, call, delta: DeltaState::Untried });
        }
        for (group, chunks) in groups {
            self.feed(Event::Wanted { files: vec![Arc::new(self.file(&group))], chunks });
        }
    }

    /// What the heuristics compare: where the file will lie, or its name where the search begins.
    fn file(&self, group: &Group) -> File {
        let path = match &group.destination {
            Some(path) => path.clone(),
            None => self.search.scope.start.join(path_of(&group.path)),
        };
        file(&path, group.size.unwrap_or(0), group.modified)
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

    /// A want is over; `outcome` tells the session unless it has the bytes.
    fn end(&mut self, tag: Tag, outcome: Option<Outcome>) {
        let Some(Open { want, call, .. }) = self.open.remove(&tag) else { return };
        if let WantId::Chunk { hash, .. } = &want.id {
            let hash = ChunkHash(*hash);
            self.by_hash.write().unwrap_or_else(PoisonError::into_inner).remove(&hash);
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
        let pressure = self.calls.values().next().map(|call| call.sink.pressure()).unwrap_or_default();
        let path = self.network.path();
        let rate = self.scheduler.network_rate(self.shared.now());
        self.feed(Event::Pressure(Queues {
            writer_backlog: pressure.writer_backlog,
            receive_queue: pressure.receive_queue.max(path.receive_queue),
            window: chunk_window(rate, path.round_trip, self.network.window()),
            round_trip: path.round_trip,
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
            Action::Start { id, operation } => {
                // What was resting may have ended so, and nothing is begun while the search rests.
                self.executor.rest(false);
                if !self.start(id, operation) {
                    let took = Duration::ZERO;
                    return Some(Event::Completed { operation: id, took, end: End::Failed });
                }
            }
            Action::Pause(id) => {
                self.paused.insert(id);
                self.rest();
            }
            Action::Resume(id) => {
                self.paused.remove(&id);
                self.rest();
            }
            Action::AskNetwork(tags) => self.ask(&tags),
            Action::CancelNetwork(tags) => self.network.cancel_chunks(&tags),
            Action::Recompute => {
                let started = Instant::now();
                self.scheduler.recompute();
                return Some(Event::Recomputed(started.elapsed()));
            }
        }
        None
    }

    /// One operation runs at a time, or a look-up besides: both rest while one of them is to.
    fn rest(&self) {
        self.executor.rest(!self.paused.is_empty());
    }

    /// Hands an operation to the disk; false if it cannot be done.
    fn start(&mut self, id: OperationId, operation: Operation) -> bool {
        let (operation, tags) = match operation {
            Operation::Check(mut tags) => {
                tags.retain(|tag| self.open.contains_key(tag));
                let hashes = tags.iter().filter_map(|tag| self.hash(*tag)).collect();
                (disk_search::Operation::CacheCheck(hashes), tags)
            }
            Operation::Read { spans, .. } => {
                let located =
                    |span: &Span| Some((self.hash(span.tag)?, self.located.get(&span.tag)?.clone()));
                let chunks: Vec<_> = spans.iter().filter_map(located).collect();
                (disk_search::Operation::CacheRead(chunks), spans.iter().map(|span| span.tag).collect())
            }
            Operation::Hash(file) => match self.hash_operation(&file) {
                Some(operation) => (operation, Vec::new()),
                None => return false,
            },
            Operation::Stat(directory) => {
                (disk_search::Operation::Stat(self.directory(directory.path())), Vec::new())
            }
        };
        match self.executor.submit(operation) {
            Ok(submitted) => {
                self.running.insert(submitted, Running { id, tags, lists: None });
                true
            }
            Err(_full) => false,
        }
    }

    fn hash(&self, tag: Tag) -> Option<ChunkHash> {
        match &self.open.get(&tag)?.want.id {
            WantId::Chunk { hash, .. } => Some(ChunkHash(*hash)),
            WantId::Piece { .. } | WantId::Block { .. } => None,
        }
    }

    /// A file is cut as most of the wanted chunks are, or as its own size suggests if some are cut so.
    fn hash_operation(&self, file: &File) -> Option<disk_search::Operation> {
        let usual = Parameters::for_size(file.size);
        let is_usual = |(parameters, _): &&(Parameters, usize)| Some(*parameters) == usual;
        let most = || self.cuts.iter().max_by_key(|(_, count)| *count);
        let (parameters, _) = *self.cuts.iter().find(is_usual).or_else(most)?;
        let dir: Arc<Path> = file.directory.path().into();
        let name = path_of(&file.name).into_os_string();
        let stamp = Stamp::of_path(&dir.join(&name)).ok()?;
        let candidate = Candidate { dir, name, stamp };
        let again = self.promised.contains(&*candidate.path());
        Some(disk_search::Operation::Hash { candidate, parameters, again })
    }

    /// A directory, with the file system that the search came from into it.
    fn directory(&self, path: PathBuf) -> disk_search::Directory {
        let above = self.mounts.iter().filter(|(begin, _)| path.starts_with(begin));
        let nearest = above.max_by_key(|(begin, _)| begin.as_os_str().len());
        match nearest {
            Some((begin, directory)) if *begin != path => {
                disk_search::Directory { path: path.into(), mount: directory.mount }
            }
            _ => disk_search::Directory::start(&path),
        }
    }

    /// Asks the network, each call's wants by its own right.
    fn ask(&mut self, tags: &[Tag]) {
        let mut by_call: HashMap<u64, Vec<Want>> = HashMap::new();
        for open in tags.iter().filter_map(|tag| self.open.get(tag)) {
            by_call.entry(open.call).or_default().push(open.want.clone());
        }
        for (call, mut wants) in by_call {
            let likely = self.liken(&wants);
            let (Some(call), Some(told)) = (self.calls.get(&call), self.told.upgrade()) else { continue };
            let (network, context) = (Arc::clone(&self.network), call.context.clone());
            let sink = Arc::new(NetworkSink { inner: Arc::clone(&call.sink), told });
            let token = self.token.clone();
            tokio::spawn(token.run_until_cancelled_owned(async move {
                if !likely.is_empty() {
                    sign(&mut wants, likely).await;
                }
                network.get_chunks(wants, &context, sink).await;
            }));
        }
    }

    /// What runs of `wants` that follow each other in an object likely resemble, as far as it pays. Only
    /// whom this machine's files may be known to is told what they hash to.
    fn liken(&mut self, wants: &[Want]) -> Vec<(Range<usize>, Region)> {
        if !self.search.scope.beyond_destination {
            return Vec::new();
        }
        let rate = self.scheduler.wire_rate(self.shared.now());
        let mut likely = Vec::new();
        let mut start = 0;
        for run in wants.chunk_by(|a, b| self.may_join(a, b)) {
            let numbers = start..start + run.len();
            start = numbers.end;
            let Some(Origin { oid, offset }) = run.first().and_then(|want| want.origin) else { continue };
            let len = run.iter().map(|want| want.id.len()).sum();
            let region = self.neighbours.region(&oid, &(offset..offset + len));
            let is_untried = run.first().is_some_and(|want| self.is_untried(want.tag));
            if let Some(region) = region.filter(|it| is_untried && delta_pays(rate, len, it.len())) {
                likely.push((numbers, region));
            }
        }
        let likened = likely.iter().flat_map(|(numbers, _)| &wants[numbers.clone()]);
        for want in likened {
            self.open.get_mut(&want.tag).into_iter().for_each(|open| open.delta = DeltaState::Asked);
        }
        likely
    }

    fn is_untried(&self, tag: Tag) -> bool {
        self.open.get(&tag).is_some_and(|open| open.delta == DeltaState::Untried)
    }

    /// Whether `next` follows in the object of `want`, and is to be asked for alike.
    fn may_join(&self, want: &Want, next: &Want) -> bool {
        let ends = want.origin.map(|it| Origin { offset: it.offset + want.id.len(), ..it });
        ends.is_some() && ends == next.origin && self.is_untried(want.tag) == self.is_untried(next.tag)
    }

    fn searched(&mut self, event: disk_search::Event) {
        match event {
            disk_search::Event::Listed { id, listing } => self.listed(id, listing),
            disk_search::Event::Found { id, chunk, held } => self.found(id, chunk, held),
            disk_search::Event::Ended { id, result, cost } => {
                let Some(Running { id, tags, .. }) = self.running.remove(&id) else { return };
                // One that ends while it is to pause is never told to go on, and the next one would rest for it.
                self.paused.remove(&id);
                self.rest();
                let end = match result {
                    Ok(finished) => self.finished(finished, &tags, cost.bytes),
                    Err(error) => {
                        tracing::debug!(%error, "a search's operation came to nothing");
                        End::Failed
                    }
                };
                self.feed(Event::Completed { operation: id, took: cost.time, end });
            }
        }
    }

    fn listed(&mut self, id: disk_search::OperationId, listing: disk_search::Listing) {
        let Some(running) = self.running.get_mut(&id) else { return };
        let operation = running.id;
        if running.lists.replace(listing.identity).is_none()
            && self.listed.len() < LISTED
            && !self.listed.insert(listing.identity)
        {
            return self.executor.cancel(id);
        }
        for directory in &listing.directories {
            let parent = directory.path.parent();
            let begin = self.mounts.iter_mut().find(|(begin, _)| Some(begin.as_path()) == parent);
            if let Some((_, begin)) = begin {
                begin.mount = directory.mount;
            }
        }
        let files = listing.files.iter().map(|candidate| {
            let modified = Some(modified(&candidate.stamp));
            file(&candidate.path(), candidate.stamp.size, modified)
        });
        let below = listing.directories.iter().filter(|directory| self.search.scope.enters(&directory.path));
        let names = below.filter_map(|directory| directory.path.file_name());
        let directories = names.map(|name| name.as_bytes().into()).collect();
        let files = files.collect();
        self.feed(Event::Listed { operation, files, directories });
    }

    fn found(&mut self, id: disk_search::OperationId, chunk: FoundChunk, held: InFlight) {
        let known = self.by_hash.read().unwrap_or_else(PoisonError::into_inner).get(&chunk.hash).copied();
        let (Some((tag, _)), Some(operation)) = (known, self.running.get(&id).map(|it| it.id)) else {
            return;
        };
        let Some(open) = self.open.get(&tag) else { return };
        if let Some(Origin { oid, offset }) = open.want.origin {
            self.neighbours.found(&oid, offset, open.want.id.len(), chunk.place);
        }
        let Some(call) = self.calls.get(&open.call) else { return };
        let now = Instant::now();
        let delivery = Delivery {
            tag,
            payload: Payload::Bytes(chunk.bytes),
            proof: None,
            source: SOURCE.into(),
            timing: (now, now),
            saved: 0,
        };
        // The task ends only with this one.
        let _ = self.finds.send((Arc::clone(&call.sink), delivery, held));
        self.by_hash.write().unwrap_or_else(PoisonError::into_inner).remove(&chunk.hash);
        self.feed(Event::Found { operation, tag });
    }

    fn finished(&mut self, finished: Finished, tags: &[Tag], bytes: u64) -> End {
        match finished {
            Finished::Stat => End::Listed { files: Vec::new(), directories: Vec::new() },
            Finished::Hash(_) => End::Hashed { bytes },
            Finished::CacheRead(_) => End::Read { chunks: tags.len() as u64 },
            Finished::CacheCheck(places) => {
                let mut by_file: HashMap<Arc<Path>, (u64, Vec<Span>)> = HashMap::new();
                for (tag, place) in tags.iter().zip(places) {
                    let Some(place) = place.filter(|_| self.open.contains_key(tag)) else { continue };
                    let (_, spans) =
                        by_file.entry(Arc::clone(&place.path)).or_insert((place.stamp.size, Vec::new()));
                    spans.push(Span { tag: *tag, offset: place.offset });
                    if self.promised.len() < LISTED {
                        self.promised.insert(Arc::clone(&place.path));
                    }
                    self.located.insert(*tag, place);
                }
                let files = by_file.into_iter();
                End::Checked(
                    files.map(|(path, (size, spans))| (Arc::new(file(&path, size, None)), spans)).collect(),
                )
            }
        }
    }
}

/// Signs regions, each for the run of wants that likely resembles it. What cannot be read helps nobody.
async fn sign(wants: &mut [Want], likely: Vec<(Range<usize>, Region)>) {
    let (runs, regions): (Vec<_>, Vec<_>) = likely.into_iter().unzip();
    let lens = runs.iter().map(|run| wants[run.clone()].iter().map(|want| want.id.len()).sum());
    let work: Vec<(Region, u64)> = regions.into_iter().zip(lens).collect();
    let signing = move || work.into_iter().map(|(region, len)| basis(&region, len)).collect::<Vec<_>>();
    let signed = tokio::task::spawn_blocking(signing).await.unwrap_or_default();
    for (run, basis) in runs.into_iter().zip(signed) {
        wants[run].iter_mut().for_each(|want| want.basis.clone_from(&basis));
    }
}

fn basis(region: &Region, len: u64) -> Option<Arc<Basis>> {
    let base = disk_search::read(&region.path, &region.range).ok()?;
    let target = usize::try_from(len).ok()?;
    let block = delta::block_len(base.len(), target, &delta::Hints::default());
    let signature = delta::Signature::of(&base, block, target).ok()?.to_bytes().into();
    Some(Arc::new(Basis { base: base.into(), signature }))
}

/// A file as the heuristics know it.
fn file(path: &Path, size: u64, modified: Option<Time>) -> File {
    let name = path.file_name().map_or(&b""[..], OsStrExt::as_bytes);
    let directory = Directory::new(path.parent().unwrap_or(path));
    File { directory, name: name.into(), size, modified }
}

fn modified(stamp: &Stamp) -> Time {
    const SECOND: i64 = 1_000_000_000;
    // Between 0 and 10^9.
    let nanos = u32::try_from(stamp.mtime_ns.rem_euclid(SECOND)).unwrap_or(0);
    Time { seconds: stamp.mtime_ns.div_euclid(SECOND), nanos }
}

fn path_of(bytes: &[u8]) -> PathBuf {
    OsStr::from_bytes(bytes).into()
}

/// What the network brings goes to the session, and the driver hears of it.
struct NetworkSink {
    inner: Arc<dyn Sink>,
    told: mpsc::UnboundedSender<Told>,
}

impl Sink for NetworkSink {
    fn deliver(&self, delivery: Delivery) -> BoxFuture<'_, ()> {
        let (tag, len) = (delivery.tag, payload_len(&delivery.payload));
        let saved = u32::try_from(delivery.saved).unwrap_or(u32::MAX);
        Box::pin(async move {
            self.inner.deliver(delivery).await;
            // The driver may be gone, with all that it waits for.
            let _ = self.told.send(Told::Arrived { tag, len, saved });
        })
    }

    fn outcome(&self, tag: Tag, outcome: Outcome) {
        let _ = self.told.send(Told::Ended { tag, outcome });
    }

    fn pressure(&self) -> Pressure {
        self.inner.pressure()
    }
}

fn payload_len(payload: &Payload) -> u32 {
    match payload {
        Payload::Bytes(bytes) => u32::try_from(bytes.len()).unwrap_or(u32::MAX),
        Payload::Zeros => 0,
    }
}
