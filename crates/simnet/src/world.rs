//! The clock, the events, and the nodes that live by them.
//!
//! Time jumps from one event to the next. Events of one moment happen in the order in which they were
//! caused, and all random numbers follow from one seed: two worlds of the same scenario, nodes and
//! seed go through the same events to the byte ([`World::digest`]).

use std::cmp::Reverse;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BinaryHeap, VecDeque};
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::fault::{Faults, NetFault, Passing};
use crate::link::{Counters, Link, LinkConfig, PacketFate};
use crate::node::{Action, ConnectionId, Net, SimNode};
use crate::routes::{Hop, Routes};
use crate::scenario::{LinkChange, LinkSpec, LinkWay, Scenario};
use crate::stream::{Connection, HEAD, LineState, SentContent, StreamDirection};

/// Size of a datagram's head on a link (UDP and IP).
const DATAGRAM_HEAD: u64 = 28;
/// A host that does not answer for so long cannot be reached.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// See the head of this module.
pub struct World<N> {
    now: Duration,
    base: Instant,
    nodes: Vec<N>,
    is_down: Vec<bool>,
    random: Vec<Rng>,
    /// As the scenario says, with the changes so far.
    links: Vec<LinkSpec>,
    /// Two directions of each link.
    directions: Vec<EventLine>,
    changes: VecDeque<LinkChange>,
    routes: Routes,
    connections: Vec<Connection>,
    events: BinaryHeap<Reverse<ScheduledEntry>>,
    caused: u64,
    messages: u64,
    faults: Option<Faults>,
    digest: DefaultHasher,
}

/// One direction of a link, and the messages at its source that wait for room.
struct EventLine {
    link: Link,
    waiting: VecDeque<Parcel>,
    is_pumping: bool,
}

impl EventLine {
    fn new(config: &LinkConfig, seed: u64) -> Self {
        Self { link: Link::new(config.clone(), seed), waiting: VecDeque::new(), is_pumping: false }
    }
}

/// An event and its moment. What was caused first happens first.
struct ScheduledEntry {
    at: Duration,
    number: u64,
    event: WorldEvent,
}

impl PartialEq for ScheduledEntry {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}

impl Eq for ScheduledEntry {}

impl PartialOrd for ScheduledEntry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ScheduledEntry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

enum WorldEvent {
    Start(usize),
    Wake(usize),
    /// A message is at the beginning of a hop, or at its end.
    Travel(Parcel),
    /// A line has room again.
    Pump(usize),
    /// A host learns that a connection has ended.
    Closed(usize, ConnectionId),
    Change,
}

/// A message on its way.
struct Parcel {
    kind: EventKind,
    content: SentContent,
    way: Rc<[Hop]>,
    /// Hops behind it.
    passed: usize,
    attempt: u32,
}

#[derive(Clone, Copy)]
enum EventKind {
    Datagram {
        from: usize,
        to: usize,
    },
    /// A message of a connection from one of its sides; without a number it keeps to no order.
    Stream {
        connection: ConnectionId,
        side: usize,
        number: Option<u64>,
    },
}

impl<N: SimNode> World<N> {
    /// The scenario's hosts and links, a node on each host. Nodes start at time 0, in order.
    pub fn new(scenario: &Scenario, seed: u64, node: impl FnMut(usize) -> N) -> Self {
        let links = scenario.links.clone();
        let hosts = scenario.hosts.len();
        let mut seeds = Rng::with_seed(seed);
        let mut directions = Vec::with_capacity(links.len() * 2);
        for link in &links {
            directions.push(EventLine::new(&link.forth, seeds.u64(..)));
            directions.push(EventLine::new(&link.back, seeds.u64(..)));
        }
        let mut world = Self {
            now: Duration::ZERO,
            base: Instant::now(),
            nodes: (0..hosts).map(node).collect(),
            is_down: vec![false; hosts],
            random: (0..hosts).map(|_| seeds.fork()).collect(),
            routes: Routes::new(hosts, &links),
            links,
            directions,
            changes: scenario.changes.clone().into(),
            connections: Vec::new(),
            events: BinaryHeap::new(),
            caused: 0,
            messages: 0,
            faults: None,
            digest: DefaultHasher::new(),
        };
        for change in &scenario.changes {
            world.cause(change.at, WorldEvent::Change);
        }
        (0..hosts).for_each(|host| world.cause(Duration::ZERO, WorldEvent::Start(host)));
        world
    }

    /// From now on `faults` decides what befalls each message of a connection.
    pub fn set_faults(&mut self, faults: Faults) {
        self.faults = Some(faults);
    }

    /// Time since the start.
    pub const fn now(&self) -> Duration {
        self.now
    }

    /// The nodes, by host.
    pub fn nodes(&self) -> &[N] {
        &self.nodes
    }

    /// Messages sent over connections so far.
    pub const fn messages(&self) -> u64 {
        self.messages
    }

    /// Counters of what went over a link, forth and back.
    pub fn counters(&self, link: usize) -> [Counters; 2] {
        [self.directions[link * 2].link.counters(), self.directions[link * 2 + 1].link.counters()]
    }

    /// A number for everything that nodes were told, when, and in which order.
    pub fn digest(&self) -> u64 {
        self.digest.finish()
    }

    /// The program on a host ends: its connections do, and nobody answers until [`Self::restart`].
    pub fn stop(&mut self, host: usize) {
        self.is_down[host] = true;
        for index in 0..self.connections.len() {
            if self.connections[index].side(host).is_some() {
                self.break_connection(ConnectionId(index));
            }
        }
    }

    /// A new program on a host that was stopped.
    pub fn restart(&mut self, host: usize, node: N) {
        self.nodes[host] = node;
        self.is_down[host] = false;
        self.cause(self.now, WorldEvent::Start(host));
    }

    /// Breaks a connection: what is under way is lost, and both ends are told.
    pub fn break_connection(&mut self, connection: ConnectionId) {
        let broken = &mut self.connections[connection.0];
        if broken.state == LineState::Closed {
            return;
        }
        broken.state = LineState::Closed;
        for end in broken.ends {
            self.cause(self.now, WorldEvent::Closed(end, connection));
        }
    }

    /// Goes on until `is_over`, or until nothing is left to happen, or to the moment `limit`. Returns
    /// whether it is over.
    pub fn run(&mut self, limit: Duration, mut is_over: impl FnMut(&Self) -> bool) -> bool {
        while !is_over(self) {
            let is_due = self.events.peek().is_some_and(|Reverse(entry)| entry.at <= limit);
            if !is_due {
                return false;
            }
            self.step();
        }
        true
    }

    /// One event.
    fn step(&mut self) {
        let Some(Reverse(ScheduledEntry { at, event, .. })) = self.events.pop() else { return };
        self.now = at;
        match event {
            WorldEvent::Start(host) => self.tell(host, SimNode::start),
            WorldEvent::Wake(host) => self.tell(host, SimNode::wake),
            WorldEvent::Travel(parcel) => self.travel(parcel),
            WorldEvent::Pump(line) => {
                self.directions[line].is_pumping = false;
                self.pump(line);
            }
            WorldEvent::Closed(host, connection) => {
                self.tell(host, |node, net| node.closed(net, connection));
            }
            WorldEvent::Change => self.change(),
        }
    }

    fn cause(&mut self, at: Duration, event: WorldEvent) {
        self.caused += 1;
        self.events.push(Reverse(ScheduledEntry { at: at.max(self.now), number: self.caused, event }));
    }

    fn note(&mut self, fact: impl Hash) {
        fact.hash(&mut self.digest);
    }

    /// Calls a node and does what it asks for.
    fn tell(&mut self, host: usize, call: impl FnOnce(&mut N, &mut Net)) {
        if self.is_down[host] {
            return;
        }
        self.note((self.now, host));
        let random = std::mem::take(&mut self.random[host]);
        let mut net = Net::new(self.now, self.base, host, self.connections.len(), random);
        call(&mut self.nodes[host], &mut net);
        self.random[host] = net.random;
        for action in net.actions {
            self.act(host, action);
        }
    }

    fn act(&mut self, host: usize, action: Action) {
        match action {
            Action::Connect { connection, to } => self.connect(host, connection, to),
            Action::Send { connection, message } => self.send(host, connection, SentContent::Data(message)),
            Action::Close(connection) => self.send(host, connection, SentContent::Close),
            Action::Datagram { to, message } => {
                let Some(way) = self.routes.way(host, to) else { return };
                let (kind, content) = (EventKind::Datagram { from: host, to }, SentContent::Data(message));
                self.travel(Parcel { kind, content, way, passed: 0, attempt: 0 });
            }
            Action::Wake(at) => self.cause(at, WorldEvent::Wake(host)),
        }
    }

    fn connect(&mut self, from: usize, connection: ConnectionId, to: usize) {
        let ways = match from == to {
            true => None,
            false => self.routes.way(from, to).zip(self.routes.way(to, from)),
        };
        let state = if ways.is_some() { LineState::Opening } else { LineState::Closed };
        let (forth, back) = ways.unwrap_or_default();
        let delay = |way: &[Hop]| -> Duration {
            way.iter().map(|hop| self.directions[hop.index()].link.config().delay).sum()
        };
        let round_trip = delay(&forth) + delay(&back);
        let directions = [StreamDirection::new(forth), StreamDirection::new(back)];
        let ends = [from, to];
        self.connections.push(Connection { ends, state, since: self.now, directions, round_trip });
        match state {
            LineState::Closed => self.cause(self.now, WorldEvent::Closed(from, connection)),
            _ => self.send(from, connection, SentContent::Open),
        }
    }

    /// Sends a message from `host` over a connection of its.
    fn send(&mut self, host: usize, id: ConnectionId, content: SentContent) {
        let connection = &self.connections[id.0];
        let Some(side) = connection.side(host).filter(|_| connection.state != LineState::Closed) else {
            return;
        };
        let fault = match (&content, &mut self.faults) {
            (SentContent::Data(bytes), Some(faults)) => {
                let to = connection.ends[1 - side];
                let number = self.messages;
                faults(&Passing { number, now: self.now, from: host, to, connection: id, bytes })
            }
            _ => NetFault::None,
        };
        if matches!(content, SentContent::Data(_)) {
            self.messages += 1;
        }
        match fault {
            NetFault::None => self.dispatch(id, side, content, true),
            NetFault::Break => self.break_connection(id),
            NetFault::Stall => self.connections[id.0].directions[side].stall(),
            NetFault::Hold(time) => {
                let parcel = self.parcel(id, side, content, false);
                self.cause(self.now + time, WorldEvent::Travel(parcel));
            }
            NetFault::Twice => {
                self.dispatch(id, side, content.clone(), true);
                self.dispatch(id, side, content, false);
            }
            NetFault::Replace(bytes) => self.dispatch(id, side, SentContent::Data(bytes), true),
        }
    }

    fn dispatch(&mut self, connection: ConnectionId, side: usize, content: SentContent, in_order: bool) {
        let parcel = self.parcel(connection, side, content, in_order);
        self.travel(parcel);
    }

    fn parcel(
        &mut self,
        connection: ConnectionId,
        side: usize,
        content: SentContent,
        in_order: bool,
    ) -> Parcel {
        let direction = &mut self.connections[connection.0].directions[side];
        let number = in_order.then(|| direction.number());
        let way = Rc::clone(&direction.way);
        Parcel { kind: EventKind::Stream { connection, side, number }, content, way, passed: 0, attempt: 0 }
    }

    /// A parcel comes to its next hop.
    fn travel(&mut self, parcel: Parcel) {
        let Some(hop) = parcel.way.get(parcel.passed) else { return self.arrive(parcel) };
        let index = hop.index();
        match parcel.kind {
            EventKind::Stream { .. } if parcel.passed == 0 => {
                let line = &mut self.directions[index];
                line.waiting.push_back(parcel);
                if !line.is_pumping {
                    self.pump(index);
                }
            }
            _ => self.enter(parcel, index),
        }
    }

    /// Lets what waits at a line enter it, as far as there is room.
    fn pump(&mut self, index: usize) {
        loop {
            let line = &mut self.directions[index];
            let Some(parcel) = line.waiting.front() else { return };
            let room = line.link.room_at(self.now, parcel.content.len());
            if room > self.now {
                line.is_pumping = true;
                return self.cause(room, WorldEvent::Pump(index));
            }
            if let Some(parcel) = line.waiting.pop_front() {
                self.enter(parcel, index);
            }
        }
    }

    fn enter(&mut self, mut parcel: Parcel, index: usize) {
        let len = match parcel.kind {
            EventKind::Stream { .. } => parcel.content.len(),
            EventKind::Datagram { .. } => parcel.content.len() - HEAD + DATAGRAM_HEAD,
        };
        match (self.directions[index].link.offer(self.now, len), parcel.kind) {
            (PacketFate::Arrives(at), _) => {
                parcel.passed += 1;
                self.cause(at, WorldEvent::Travel(parcel));
            }
            (_, EventKind::Datagram { .. }) => {}
            (_, EventKind::Stream { connection, .. }) => self.again(parcel, connection),
        }
    }

    /// Sends a lost message of a stream again, later.
    fn again(&mut self, mut parcel: Parcel, id: ConnectionId) {
        let connection = &self.connections[id.0];
        match connection.state {
            LineState::Closed => return,
            LineState::Opening if self.now - connection.since > CONNECT_TIME => return self.give_up(id),
            _ => {}
        }
        let wait = connection.wait(parcel.attempt);
        parcel.attempt += 1;
        parcel.passed = 0;
        self.cause(self.now + wait, WorldEvent::Travel(parcel));
    }

    /// A connection could not be made: who asked for it is told.
    fn give_up(&mut self, id: ConnectionId) {
        let connection = &mut self.connections[id.0];
        connection.state = LineState::Closed;
        let (dialler, way_back) = (connection.ends[0], connection.round_trip / 2);
        self.cause(self.now + way_back, WorldEvent::Closed(dialler, id));
    }

    /// A parcel is at its host.
    fn arrive(&mut self, parcel: Parcel) {
        match parcel.kind {
            EventKind::Datagram { from, to } => {
                let SentContent::Data(bytes) = parcel.content else { return };
                self.note(&bytes);
                self.tell(to, |node, net| node.datagram(net, from, bytes));
            }
            EventKind::Stream { connection, side, number } => {
                let direction = &mut self.connections[connection.0].directions[side];
                if !direction.lets_through(number) {
                    return;
                }
                let due = match number {
                    Some(number) => direction.arrive(number, parcel.content),
                    None => vec![parcel.content],
                };
                due.into_iter().for_each(|content| self.deliver(connection, side, content));
            }
        }
    }

    /// A message's turn has come at the end of its connection.
    fn deliver(&mut self, id: ConnectionId, side: usize, content: SentContent) {
        let connection = &mut self.connections[id.0];
        if connection.state == LineState::Closed {
            return;
        }
        let (from, to) = (connection.ends[side], connection.ends[1 - side]);
        match content {
            SentContent::Open if self.is_down[to] => self.give_up(id),
            SentContent::Open => {
                self.send(to, id, SentContent::Opened);
                self.tell(to, |node, net| node.opened(net, id, from));
            }
            SentContent::Opened => {
                connection.state = LineState::Open;
                self.tell(to, |node, net| node.opened(net, id, from));
            }
            SentContent::Data(bytes) => {
                self.note(&bytes);
                self.tell(to, |node, net| node.receive(net, id, bytes));
            }
            SentContent::Close => {
                connection.state = LineState::Closed;
                self.tell(to, |node, net| node.closed(net, id));
            }
        }
    }

    /// The scenario's next change.
    fn change(&mut self) {
        let Some(change) = self.changes.pop_front() else { return };
        let link = &mut self.links[change.link];
        link.apply(change.way, &change.params);
        if change.way != LinkWay::Back {
            self.directions[change.link * 2].link.set(link.forth.clone());
        }
        if change.way != LinkWay::Forth {
            self.directions[change.link * 2 + 1].link.set(link.back.clone());
        }
    }
}

#[cfg(test)]
mod tests;
