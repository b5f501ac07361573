//! A machine with a network, a disk and a processor in virtual time, on which the scheduler is tried.
//!
//! Fluid between events: each resource has a rate, and who wants it at the same time gets an equal part.
//! The network brings what was asked for in order; what comes is taken up and checked by the processor,
//! then written by the disk. Reading and hashing want both. The queues between are what the
//! scheduler sees. A full queue stops who fills it.

use std::collections::{HashSet, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use towpath_transfer::rate::Rate;

use super::tree::Tree;
use crate::adaptive::backpressure::{Backpressure, Queues};
use crate::adaptive::benefit::{RecipePolicy, RecipeProgress};
use crate::adaptive::budget::Effort;
use crate::adaptive::costs::Costs;
use crate::adaptive::event::{Action, End, Event};
use crate::adaptive::groups::WantedChunk;
use crate::adaptive::heuristics::File;
use crate::adaptive::operations::{DiskLimits, OperationId, PlannedOperation};
use crate::adaptive::paths::SplitDirectory;
use crate::adaptive::{Account, Scheduler, Settings};
use crate::policy::network::Network;

/// Most bytes that the sink and the kernel's receive queue hold.
const SINK: f64 = 32e6;
const KERNEL: f64 = 4e6;
/// Bytes of a chunk, as recipes cut them on average; of the largest objects they are coarser here, so that
/// thousands of environments take minutes.
pub const CHUNK: u64 = 16 << 10;
/// Interval at which it is asked whether the recipe is wanted.
const LOOK: f64 = 0.01;
const MOST_CHUNKS: u64 = 2048;

/// Rates of the environment, and how they change.
#[derive(Debug, Clone)]
pub struct Speeds {
    pub network: f64,
    pub disk: f64,
    pub processor: f64,
}

/// One random environment.
pub struct Environment {
    pub speeds: Speeds,
    /// Time at which everything changes, and the rates from then on.
    pub change: Option<(f64, Speeds)>,
    pub round_trip: f64,
    pub stat: f64,
    pub size: u64,
    pub tree: Tree,
    /// The file that helps, and which of the chunks it has.
    pub useful: Option<(SplitDirectory, Box<[u8]>)>,
    pub has: HashSet<u64>,
}

impl Environment {
    /// Chunks of an object of so many bytes.
    pub fn chunks_of(size: u64) -> u64 {
        size.div_ceil(CHUNK).clamp(1, MOST_CHUNKS)
    }

    fn chunks(&self) -> u64 {
        Self::chunks_of(self.size)
    }

    /// Bytes that are kept on their way on a network of so many a second.
    fn window(&self, rate: f64) -> f64 {
        (2.0 * rate * self.round_trip).clamp(1e6, 16e6)
    }

    /// Seconds that what is on its way takes when the network's rate has changed.
    pub fn backlog(&self, (at, after): &(f64, Speeds)) -> f64 {
        let rest = (self.size as f64 - at * self.speeds.network).max(0.0);
        self.window(self.speeds.network).min(rest) / after.network
    }
}

/// Strategy of fetching the object.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Strategy {
    /// It begins at this time.
    Network(f64),
    /// The recipe at once, then the search with the network idle until all that can be found is found;
    /// then the network for the rest. It begins at this time.
    Disk(f64),
    /// Network and disk at once, and how hard is searched.
    Adaptive(Effort),
}

struct Reading {
    id: OperationId,
    operation: PlannedOperation,
    /// Bytes read, or seconds passed.
    done: f64,
    began: f64,
    is_paused: bool,
    paused: f64,
}

/// One fetch under way.
pub struct Fetch<'a> {
    world: &'a Environment,
    strategy: Strategy,
    now: f64,
    /// Asked for: chunk, when its first byte can come, bytes still to come.
    wire: VecDeque<(u64, f64, f64)>,
    kernel: f64,
    sink: f64,
    missing: HashSet<u64>,
    not_asked: VecDeque<u64>,
    rate: Rate,
    backpressure: Backpressure,
    policy: RecipePolicy,
    /// Bytes of the recipe to come, and when the sender has it.
    recipe: Option<(f64, f64)>,
    scheduler: Option<Scheduler>,
    readings: Vec<Reading>,
    last_tick: f64,
}

fn at(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

impl<'a> Fetch<'a> {
    /// Seconds that the fetch takes, and what was searched.
    pub fn run(world: &'a Environment, strategy: Strategy) -> (f64, Account) {
        let mut fetch = Self {
            world,
            strategy,
            now: match strategy {
                Strategy::Network(from) | Strategy::Disk(from) => from,
                Strategy::Adaptive(_) => 0.0,
            },
            wire: VecDeque::new(),
            kernel: 0.0,
            sink: 0.0,
            missing: (0..world.chunks()).collect(),
            not_asked: (0..world.chunks()).collect(),
            rate: Rate::default(),
            backpressure: Backpressure::default(),
            policy: RecipePolicy::default(),
            recipe: None,
            scheduler: None,
            readings: Vec::new(),
            last_tick: 0.0,
        };
        for _ in 0..3_000_000 {
            if fetch.missing.is_empty() {
                let speeds = fetch.speeds();
                let took =
                    fetch.now + fetch.kernel / speeds.processor + (fetch.kernel + fetch.sink) / speeds.disk;
                return (took, fetch.scheduler.map(|it| it.account()).unwrap_or_default());
            }
            fetch.decide();
            fetch.advance();
        }
        panic!("no end at {} s, {} chunks missing", fetch.now, fetch.missing.len());
    }

    fn chunk(&self) -> f64 {
        self.world.size as f64 / self.world.chunks() as f64
    }

    fn speeds(&self) -> &Speeds {
        match &self.world.change {
            Some((when, after)) if self.now >= *when => after,
            _ => &self.world.speeds,
        }
    }

    fn queues(&self) -> Queues {
        let window = match self.strategy {
            Strategy::Disk(_) if self.may_find_more() => 0.0,
            _ => self.world.window(self.speeds().network).max(2.0 * self.chunk()),
        };
        Queues {
            writer_backlog: self.sink as u64,
            receive_queue: self.kernel as u64,
            window: window as u64,
            round_trip: at(self.world.round_trip),
            processors: 0,
            disks: 0,
        }
    }

    fn may_find_more(&self) -> bool {
        self.missing.iter().any(|chunk| self.world.has.contains(chunk))
    }

    fn outstanding(&self) -> f64 {
        self.wire.iter().map(|(_, _, left)| left).sum()
    }

    /// The driver's work between two events.
    fn decide(&mut self) {
        self.backpressure.look(self.queues());
        if self.scheduler.is_some() {
            self.feed(Event::Backpressure(self.queues()));
            return;
        }
        if self.recipe.is_none() && self.wants_recipe() {
            let sender = self.now + self.world.round_trip + self.world.size as f64 / 1e9;
            self.recipe = Some((0.0025 * self.world.size as f64, sender));
        }
        let window = self.queues().window as f64;
        while self.outstanding() < window
            && let Some(chunk) = self.not_asked.pop_front()
        {
            self.ask(chunk);
        }
    }

    fn wants_recipe(&mut self) -> bool {
        let rest = self.missing.len() as f64 * self.chunk();
        let progress = RecipeProgress {
            elapsed: at(self.now),
            arrived: self.world.size - rest as u64,
            rest: rest as u64,
            size: self.world.size,
            network: Network {
                rate: self.rate.get(at(self.now), 64 << 10),
                round_trip: at(self.world.round_trip),
            },
            // There is no TCP here that has to find it.
            hoped_rate: 0.0,
            disk_rate: Costs::new(self.chunk() as u64).hoped_rate(),
            is_growing: false,
            disk_is_free: self.backpressure.disk_is_free(),
            is_promising: true,
            is_alike: false,
            processors_are_short: false,
        };
        match self.strategy {
            Strategy::Network(_) => false,
            Strategy::Disk(_) => true,
            Strategy::Adaptive(_) => self.policy.wants(&progress),
        }
    }

    fn ask(&mut self, chunk: u64) {
        self.rate.requested(at(self.now));
        self.wire.push_back((chunk, self.now + self.world.round_trip, self.chunk()));
    }

    /// The recipe is here: what is missing is wanted as chunks.
    fn begin_search(&mut self) {
        let costs = Costs::new(self.chunk() as u64);
        let effort = if let Strategy::Adaptive(effort) = self.strategy { effort } else { Effort::All };
        let settings =
            Settings { limits: DiskLimits::default(), parallel: 1, costs, rate: self.rate, effort };
        self.scheduler = Some(Scheduler::new(settings));
        self.wire.clear();
        let destination = SplitDirectory::new(Path::new(super::replay::DESTINATION));
        let file = File {
            directory: destination.clone(),
            name: b"data.bin".as_slice().into(),
            size: self.world.size,
            modified: None,
        };
        let len = self.chunk() as u32;
        let chunks = self.missing.iter();
        let chunks =
            chunks.map(|chunk| WantedChunk { tag: *chunk, offset: chunk * u64::from(len), len }).collect();
        self.feed(Event::Backpressure(self.queues()));
        self.feed(Event::Look(std::iter::successors(Some(destination), SplitDirectory::parent).collect()));
        self.feed(Event::Wanted { files: vec![Arc::new(file)], chunks });
    }

    fn feed(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let Some(scheduler) = &mut self.scheduler else { return };
            for action in scheduler.handle(at(self.now), event) {
                self.act(action, &mut events);
            }
        }
    }

    fn act(&mut self, action: Action, events: &mut VecDeque<Event>) {
        match action {
            Action::Start { id, operation: PlannedOperation::Check(_), .. } => {
                events.push_back(Event::Completed {
                    operation: id,
                    took: Duration::ZERO,
                    end: End::Checked(Vec::new()),
                })
            }
            Action::Start { id, operation, .. } => {
                let rests = self.readings.iter().any(|it| it.is_paused);
                assert!(!rests, "the driver would let all go on");
                let (began, done, paused) = (self.now, 0.0, 0.0);
                self.readings.push(Reading { id, operation, done, began, is_paused: false, paused });
            }
            Action::Pause(id) => self.rest(id, true),
            Action::Resume(id) => self.rest(id, false),
            Action::AskNetwork(tags) => tags.into_iter().for_each(|tag| self.ask(tag)),
            Action::CancelNetwork(tags) => {
                let under_way = self.wire.front().map(|it| it.0);
                self.wire.retain(|it| Some(it.0) == under_way || !tags.contains(&it.0));
            }
            // They come as they would have come.
            Action::GiveUp(tags) => tags.into_iter().for_each(|tag| self.ask(tag)),
            Action::Recompute => {
                self.scheduler.as_mut().unwrap().recompute();
                events.push_back(Event::Recomputed(Duration::from_micros(100)));
            }
        }
    }

    fn rest(&mut self, id: OperationId, is_paused: bool) {
        self.readings.iter_mut().filter(|it| it.id == id).for_each(|it| it.is_paused = is_paused);
    }

    /// Lets time pass until the next thing happens.
    fn advance(&mut self) {
        let speeds = self.speeds().clone();
        let hashes =
            self.readings.iter().any(|it| !it.is_paused && matches!(it.operation, PlannedOperation::Hash(_)));
        // A flow with little to do takes no more than that.
        let flows = self.wire.front().is_some_and(|it| it.1 <= self.now);
        let inflow = if flows { speeds.network } else { 0.0 };
        let beside = |rate: f64, queue: f64| {
            let needed = if queue > 200e3 { rate } else { inflow };
            rate - needed.min(rate / 2.0)
        };
        let writes = self.sink > 1.0 || inflow > 0.0;
        let disk_read = beside(speeds.disk, self.sink);
        let hash_cpu = beside(speeds.processor, self.kernel);
        let hash = disk_read.min(hash_cpu);
        // The rest that hashing leaves of the disk and the processor is the others'.
        let write = if writes { speeds.disk - if hashes { hash } else { 0.0 } } else { 0.0 };
        let check = speeds.processor - if hashes { hash } else { 0.0 };
        let network = if self.kernel < KERNEL { speeds.network } else { check.min(speeds.network) };
        let network = if self.sink < SINK { network } else { write.min(network) };
        let check = if self.sink < SINK { check } else { write.min(check) };
        let step = self.step(network, hash);
        self.bring(step, network);
        self.take_up(step, check, write);
        self.now += step;
        self.read(step, hash);
        if self.now - self.last_tick > 0.01 {
            self.last_tick = self.now;
            self.feed(Event::Tick);
        }
    }

    /// Until a chunk came, a chunk was hashed, a directory was listed or anything changes.
    fn step(&self, network: f64, hash: f64) -> f64 {
        let mut step = (self.chunk() / self.speeds().network).clamp(0.002, 0.25);
        let mut until = |seconds: f64| step = step.min(seconds.max(1e-6));
        if matches!(self.strategy, Strategy::Adaptive(_)) && self.scheduler.is_none() && self.recipe.is_none()
        {
            until(LOOK);
        }
        if let Some((bytes, ready)) = self.recipe
            && self.scheduler.is_none()
        {
            until(if ready > self.now { ready - self.now } else { bytes / network });
        }
        match self.wire.front() {
            Some((_, ready, _)) if *ready > self.now => until(ready - self.now),
            Some((_, _, left)) => until(left / network),
            None => {}
        }
        if let Some((when, _)) = self.world.change.as_ref().filter(|change| change.0 > self.now) {
            until(when - self.now);
        }
        for reading in self.readings.iter().filter(|it| !it.is_paused) {
            match &reading.operation {
                PlannedOperation::Hash(file) => {
                    let is_useful = self.is_useful(file);
                    let left = file.size as f64 - reading.done;
                    until(if is_useful { left.min(self.chunk()) } else { left } / hash);
                }
                _ => until(self.world.stat - reading.done),
            }
        }
        if self.sink > 500e3 || (self.wire.is_empty() && self.sink > 1.0) {
            until(self.sink / self.speeds().disk);
        }
        step
    }

    fn is_useful(&self, file: &File) -> bool {
        self.world
            .useful
            .as_ref()
            .is_some_and(|(directory, name)| *directory == file.directory && *name == file.name)
    }

    fn bring(&mut self, step: f64, network: f64) {
        let mut room = step * network;
        if let Some((left, ready)) = &mut self.recipe
            && self.scheduler.is_none()
            && *ready <= self.now
        {
            let bytes = room.min(*left);
            (*left, room) = (*left - bytes, room - bytes);
            if *left < 1e-3 {
                return self.begin_search();
            }
        }
        while room > 1e-3
            && let Some((chunk, ready, left)) = self.wire.front_mut()
            && *ready <= self.now + 1e-9
        {
            let bytes = room.min(*left);
            (*left, room) = (*left - bytes, room - bytes);
            self.kernel += bytes;
            if *left < 1e-3 {
                let chunk = *chunk;
                self.wire.pop_front();
                self.came(chunk, step);
            }
        }
    }

    fn came(&mut self, chunk: u64, step: f64) {
        let (len, is_idle) = (self.chunk() as u64, self.wire.is_empty());
        self.rate.arrived(at(self.now + step), len, is_idle);
        self.missing.remove(&chunk);
        self.feed(Event::Arrived { tag: chunk, len: len as u32, saved: 0 });
    }

    fn take_up(&mut self, step: f64, check: f64, write: f64) {
        let checked = (step * check).min(self.kernel);
        self.kernel -= checked;
        self.sink = (self.sink + checked - step * write).max(0.0);
    }

    fn read(&mut self, step: f64, hash: f64) {
        let mut over = Vec::new();
        for at in 0..self.readings.len() {
            let reading = &mut self.readings[at];
            if reading.is_paused {
                reading.paused += step;
                continue;
            }
            let (id, before) = (reading.id, reading.done);
            let PlannedOperation::Hash(file) = reading.operation.clone() else {
                reading.done += step;
                if reading.done >= self.world.stat - 1e-9 {
                    over.push(id);
                }
                continue;
            };
            reading.done += step * hash;
            let (after, size) = (reading.done, file.size as f64);
            if after >= size - 1.0 {
                over.push(id);
            }
            if self.is_useful(&file) {
                self.find(id, before / size, (after + 1.0) / size);
            }
        }
        over.into_iter().for_each(|id| self.complete(id));
    }

    /// The chunks in this part of the useful file are found and go to the writer.
    fn find(&mut self, operation: OperationId, from: f64, to: f64) {
        let chunks = self.world.chunks();
        let place = |share: f64| (share * chunks as f64).floor() as u64;
        for chunk in place(from)..place(to).min(chunks) {
            if self.world.has.contains(&chunk) && self.missing.remove(&chunk) {
                self.sink += self.chunk();
                self.feed(Event::Found { operation, tags: vec![chunk] });
            }
        }
    }

    fn complete(&mut self, id: OperationId) {
        let Some(at_index) = self.readings.iter().position(|it| it.id == id) else { return };
        let reading = self.readings.swap_remove(at_index);
        let took = at((self.now - reading.began - reading.paused).max(0.0));
        let end = match &reading.operation {
            PlannedOperation::Stat(directory) => {
                let (files, directories) = self.world.tree.list(directory);
                self.feed(Event::Listed { operation: id, files, directories });
                End::Listed
            }
            PlannedOperation::Hash(file) => End::Hashed { bytes: file.size },
            PlannedOperation::Check(_) | PlannedOperation::Read { .. } => End::Failed,
        };
        self.feed(Event::Completed { operation: id, took, end });
    }
}
