//! Runs a transfer in a world, in simulated time: by the dealer, or from one source alone.
//!
//! Each source brings what it is asked for in order, the first byte a round trip after the question. Those that share a link share it evenly,
//! as far as each can fill its share.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use towpath_transfer::intervals::Intervals;
use towpath_transfer::{Outcome, Tag};

use super::world::{Honesty, STRETCHES, World};
use crate::Dealer;
use crate::event::{
    DealerAction, DealerEvent, DealtPart, SourceFacts, SourceHolding, SourceNumber, WantedRange,
};

/// Longest transfer.
const GIVEN_UP: f64 = 1e6;

/// Something that was asked of a source.
#[derive(Debug)]
struct Asked {
    /// Time at which its first byte can be here.
    from: f64,
    part: DealtPart,
    left: f64,
}

/// A source while it is simulated.
#[derive(Debug, Default)]
struct Running {
    /// Its number while it is there.
    id: Option<SourceNumber>,
    queue: VecDeque<Asked>,
    rate: f64,
}

/// What a transfer came to.
#[derive(Debug, Clone, Copy)]
pub struct Came {
    pub by: [u64; 64],
    pub seconds: f64,
    /// Bytes that came though they were there already.
    pub twice: u64,
    /// Most work of an event.
    pub most_steps: u64,
}

/// A transfer by the dealer.
pub struct Simulation<'a> {
    world: &'a World,
    dealer: Dealer,
    now: f64,
    sources: Vec<Running>,
    by_id: BTreeMap<SourceNumber, usize>,
    /// Bytes of each want that are there.
    there: BTreeMap<Tag, Intervals>,
    /// How many are asked for each part, to see that it is never more than two.
    asked: BTreeMap<(Tag, u64), Vec<SourceNumber>>,
    changes: VecDeque<f64>,
    gained: Vec<[bool; STRETCHES]>,
    next_id: SourceNumber,
    missing: u64,
    came: Came,
}

/// Bytes that a source of a world likes to have under way.
fn window(world: &World, source: usize) -> u64 {
    let rate = world.alone(source);
    (1.5 * rate * world.sources[source].round_trip) as u64 + (512 << 10)
}

impl<'a> Simulation<'a> {
    /// Runs a world's transfer to its end.
    pub fn run(world: &'a World, seed: u64) -> Came {
        let mut changes: Vec<f64> = world.sources.iter().flat_map(|source| source.changes()).collect();
        changes.sort_by(f64::total_cmp);
        changes.dedup();
        let mut simulation = Self {
            world,
            dealer: Dealer::new(seed),
            now: 0.0,
            sources: world.sources.iter().map(|_| Running::default()).collect(),
            by_id: BTreeMap::new(),
            there: BTreeMap::new(),
            asked: BTreeMap::new(),
            changes: changes.into(),
            gained: vec![[false; STRETCHES]; world.sources.len()],
            next_id: 0,
            missing: world.size,
            came: Came { by: [0; 64], seconds: 0.0, twice: 0, most_steps: 0 },
        };
        let wants = (0..world.size.div_ceil(world.want)).map(|tag| WantedRange {
            tag,
            range: tag * world.want..((tag + 1) * world.want).min(world.size),
        });
        simulation.tell(DealerEvent::Wanted { wants: wants.collect(), to_come: 0 });
        while !simulation.dealer.is_complete() {
            simulation.step();
        }
        assert_eq!(simulation.missing, 0, "all that is wanted came");
        simulation.came.seconds = simulation.now;
        simulation.came
    }

    fn step(&mut self) {
        self.change();
        share_links(self.world, &mut self.sources, self.now);
        let next = self.next();
        assert!(next < GIVEN_UP, "nothing comes any more at {}", self.now);
        let passed = next - self.now;
        self.now = next;
        let mut done = Vec::new();
        for (index, source) in self.sources.iter_mut().enumerate() {
            if source.rate > 0.0
                && let Some(first) = source.queue.front_mut()
            {
                first.left -= source.rate * passed;
                if first.left < 1.0 {
                    done.extend(source.queue.pop_front().map(|asked| (index, asked)));
                }
            }
        }
        if done.is_empty() && self.wake().is_some_and(|at| at <= next) {
            self.tell(DealerEvent::Tick);
        }
        for (index, asked) in done {
            self.brought(index, asked);
        }
    }

    fn wake(&self) -> Option<f64> {
        self.dealer.wake(Duration::from_secs_f64(self.now)).map(|at| at.as_secs_f64())
    }

    /// Time at which something happens next.
    fn next(&self) -> f64 {
        let mut next = self.changes.front().copied().unwrap_or(f64::INFINITY);
        next = next.min(self.wake().unwrap_or(f64::INFINITY).max(self.now));
        for source in &self.sources {
            let Some(first) = source.queue.front() else { continue };
            if source.rate > 0.0 {
                next = next.min(self.now + first.left / source.rate);
            } else if first.from > self.now {
                next = next.min(first.from);
            }
        }
        next
    }

    /// Sources come, go and gain.
    fn change(&mut self) {
        if self.now > 0.0 && self.changes.front().is_none_or(|&at| at > self.now) {
            return;
        }
        while self.changes.front().is_some_and(|&at| at <= self.now) {
            self.changes.pop_front();
        }
        for index in 0..self.world.sources.len() {
            let source = &self.world.sources[index];
            let new: Vec<usize> = source
                .gains
                .iter()
                .flatten()
                .enumerate()
                .filter(|(stretch, at)| **at <= self.now && !self.gained[index][*stretch])
                .map(|(stretch, _)| stretch)
                .collect();
            new.iter().for_each(|&stretch| self.gained[index][stretch] = true);
            match (self.sources[index].id, source.is_present(self.now)) {
                (None, true) => self.comes(index),
                (Some(id), false) => {
                    (self.sources[index].id, self.sources[index].rate) = (None, 0.0);
                    self.sources[index].queue.clear();
                    self.by_id.remove(&id);
                    self.asked.values_mut().for_each(|askers| askers.retain(|asker| *asker != id));
                    self.tell(DealerEvent::Gone { source: id });
                }
                (Some(id), true) if !new.is_empty() => {
                    let added = new.iter().map(|&stretch| self.world.stretch(stretch)).collect();
                    self.tell(DealerEvent::Have { source: id, added });
                }
                _ => {}
            }
        }
    }

    fn comes(&mut self, index: usize) {
        let id = self.next_id;
        self.next_id += 1;
        self.sources[index].id = Some(id);
        self.by_id.insert(id, index);
        let source = &self.world.sources[index];
        let has = (0..STRETCHES).filter(|&stretch| self.gained[index][stretch]);
        let holding = match source.gains {
            None => SourceHolding::Everything,
            Some(_) => SourceHolding::Parts(has.map(|stretch| self.world.stretch(stretch)).collect()),
        };
        let facts = SourceFacts {
            window: window(self.world, index),
            round_trip: Duration::from_secs_f64(source.round_trip),
            priority: 0,
            price: 0,
            proves: source.proves,
        };
        self.tell(DealerEvent::SourceAdded { source: id, facts, holding });
    }

    fn brought(&mut self, index: usize, asked: Asked) {
        let Some(source) = self.sources[index].id else { return };
        let part = asked.part;
        if let Some(askers) = self.asked.get_mut(&(part.tag, part.part.start)) {
            askers.retain(|asker| *asker != source);
        }
        let is_wrong = match self.world.sources[index].honesty {
            Honesty::Wrong(since) => self.now >= since,
            Honesty::Honest | Honesty::Denies => false,
        };
        if self.world.sources[index].honesty == Honesty::Denies {
            return self.tell(DealerEvent::NotBrought { source, part, outcome: Outcome::NotHere });
        }
        if is_wrong {
            return self.tell(DealerEvent::Corrupt { source, part });
        }
        let there = self.there.entry(part.tag).or_default();
        let before = there.len();
        there.insert(part.part.clone());
        let new = there.len() - before;
        self.missing -= new;
        self.came.by[index] += new;
        self.came.twice += part.part.end - part.part.start - new;
        self.tell(DealerEvent::Arrived { source, part });
    }

    fn tell(&mut self, event: DealerEvent) {
        let before = self.dealer.steps();
        let actions = self.dealer.handle(Duration::from_secs_f64(self.now), event);
        self.came.most_steps = self.came.most_steps.max(self.dealer.steps() - before);
        let mut ended = Vec::new();
        for action in actions {
            match action {
                DealerAction::Ask { source, wants } => self.ask(source, wants),
                DealerAction::Cancel { source, wants } => ended.extend(self.cancel(source, wants)),
                DealerAction::Drop(source) => {
                    if let Some(index) = self.by_id.remove(&source) {
                        self.sources[index].queue.clear();
                        self.sources[index].rate = 0.0;
                        self.asked.values_mut().for_each(|askers| askers.retain(|asker| *asker != source));
                    }
                }
                DealerAction::Open(_) => {}
            }
        }
        for (source, part) in ended {
            self.tell(DealerEvent::NotBrought { source, part, outcome: Outcome::Cancelled });
        }
    }

    fn ask(&mut self, source: SourceNumber, wants: Vec<DealtPart>) {
        let index = self.by_id[&source];
        let from = self.now + self.world.sources[index].round_trip;
        for part in wants {
            if self.world.sources[index].gains.is_some() {
                let at = part.tag * self.world.want;
                let range = at + part.part.start..at + part.part.end;
                let has = (0..STRETCHES).filter(|&stretch| self.gained[index][stretch]);
                let mut all = Intervals::default();
                has.for_each(|stretch| all.insert(self.world.stretch(stretch)));
                assert!(all.covers(&range), "only what it has is asked of a source");
            }
            let askers = self.asked.entry((part.tag, part.part.start)).or_default();
            askers.push(source);
            assert!(askers.len() <= 2, "nothing is asked of more than two at once");
            let left = if self.world.sources[index].honesty == Honesty::Denies {
                1.0
            } else {
                (part.part.end - part.part.start) as f64
            };
            self.sources[index].queue.push_back(Asked { from, part, left });
        }
    }

    /// Cancels what has not begun to come; the rest comes.
    fn cancel(&mut self, source: SourceNumber, wants: Vec<DealtPart>) -> Vec<(SourceNumber, DealtPart)> {
        let Some(&index) = self.by_id.get(&source) else { return Vec::new() };
        let mut ended = Vec::new();
        for part in wants {
            if let Some(askers) = self.asked.get_mut(&(part.tag, part.part.start)) {
                askers.retain(|asker| *asker != source);
            }
            let queue = &mut self.sources[index].queue;
            let position = queue.iter().position(|asked| asked.part == part);
            let full = (part.part.end - part.part.start) as f64;
            match position {
                Some(at) if queue[at].left >= full => {
                    queue.remove(at);
                    ended.push((source, part));
                }
                // It is coming, or came in this moment and is told next.
                _ => {}
            }
        }
        ended
    }
}

/// Rates of all sources at this time.
fn share_links(world: &World, sources: &mut [Running], now: f64) {
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); world.links.len()];
    for (index, source) in sources.iter_mut().enumerate() {
        let is_asked = source.queue.front().is_some_and(|first| first.from <= now + 1e-12);
        source.rate = 0.0;
        if is_asked && world.sources[index].works(now) {
            match world.sources[index].link {
                Some(link) => members[link].push(index),
                None => source.rate = world.sources[index].rate,
            }
        }
    }
    for (mut members, &link) in members.into_iter().zip(&world.links) {
        members.sort_by(|&a, &b| world.sources[a].rate.total_cmp(&world.sources[b].rate));
        let (mut room, mut left) = (link, members.len());
        for index in members {
            sources[index].rate = world.sources[index].rate.min(room / left as f64);
            room -= sources[index].rate;
            left -= 1;
        }
    }
}

/// Seconds that one source takes alone, its window full of runs in order; what was lost when it went is asked for again.
pub fn alone(world: &World, source: usize) -> f64 {
    let it = &world.sources[source];
    let (rate, window) = (world.alone(source), window(world, source) as f64);
    let mut changes: Vec<f64> = it.changes();
    changes.sort_by(f64::total_cmp);
    // With a window above rate times round trip it brings its rate whenever it works, a round trip after it came.
    debug_assert!(window > rate * it.round_trip);
    let (mut now, mut left) = (0.0, world.size as f64);
    for at in changes.into_iter().chain([f64::INFINITY]) {
        if at <= now {
            continue;
        }
        if it.works(f64::midpoint(now, at.min(now + 1.0))) {
            let came =
                it.present.iter().map(|times| times.start).filter(|&start| start <= now).fold(0.0, f64::max);
            let from = now.max(came + it.round_trip);
            let carried = rate * (at - from).max(0.0);
            if carried >= left {
                return from + left / rate;
            }
            left -= carried;
        }
        now = at;
    }
    f64::INFINITY
}
