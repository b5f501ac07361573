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

use crate::fault::{Fault, Faults, Passing};
use crate::link::{Counters, Fate, Link, LinkConfig};
use crate::node::{Action, ConnectionId, Net, Node};
use crate::routes::{Hop, Routes};
use crate::scenario::{Change, LinkSpec, Scenario, Way};
use crate::stream::{Connection, Content, Direction, HEAD, State};

/// What the head of a datagram takes on a link (UDP and IP).
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
    directions: Vec<Line>,
    changes: VecDeque<Change>,
    routes: Routes,
    connections: Vec<Connection>,
    events: BinaryHeap<Reverse<Entry>>,
    caused: u64,
    messages: u64,
    faults: Option<Faults>,
    digest: DefaultHasher,
}

/// One direction of a link, and the messages at its source that wait for room.
struct Line {
    link: Link,
    waiting: VecDeque<Parcel>,
    is_pumping: bool,
}

impl Line {
    fn new(config: &LinkConfig, seed: u64) -> Self {
        Self { link: Link::new(config.clone(), seed), waiting: VecDeque::new(), is_pumping: false }
    }
}

/// An event and its moment. What was caused first happens first.
struct Entry {
    at: Duration,
    number: u64,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

enum Event {
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
    kind: Kind,
    content: Content,
    way: Rc<[Hop]>,
    /// Hops behind it.
    passed: usize,
    attempt: u32,
}

#[derive(Clone, Copy)]
enum Kind {
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

impl<N: Node> World<N> {
    /// The scenario's hosts and links, a node on each host. Nodes start at time 0, in order.
    pub fn new(scenario: &Scenario, seed: u64, node: impl FnMut(usize) -> N) -> Self {
        let links = scenario.links.clone();
        let hosts = scenario.hosts.len();
        let mut seeds = Rng::with_seed(seed);
        let mut directions = Vec::with_capacity(links.len() * 2);
        for link in &links {
            directions.push(Line::new(&link.forth, seeds.u64(..)));
            directions.push(Line::new(&link.back, seeds.u64(..)));
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
            world.cause(change.at, Event::Change);
        }
        (0..hosts).for_each(|host| world.cause(Duration::ZERO, Event::Start(host)));
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

    /// What went over a link, forth and back.
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
        self.cause(self.now, Event::Start(host));
    }

    /// Breaks a connection: what is under way is lost, and both ends are told.
    pub fn break_connection(&mut self, connection: ConnectionId) {
        let broken = &mut self.connections[connection.0];
        if broken.state == State::Closed {
            return;
        }
        broken.state = State::Closed;
        for end in broken.ends {
            self.cause(self.now, Event::Closed(end, connection));
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
        let Some(Reverse(Entry { at, event, .. })) = self.events.pop() else { return };
        self.now = at;
        match event {
            Event::Start(host) => self.tell(host, Node::start),
            Event::Wake(host) => self.tell(host, Node::wake),
            Event::Travel(parcel) => self.travel(parcel),
            Event::Pump(line) => {
                self.directions[line].is_pumping = false;
                self.pump(line);
            }
            Event::Closed(host, connection) => {
                self.tell(host, |node, net| node.closed(net, connection));
            }
            Event::Change => self.change(),
        }
    }

    fn cause(&mut self, at: Duration, event: Event) {
        self.caused += 1;
        self.events.push(Reverse(Entry { at: at.max(self.now), number: self.caused, event }));
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
            Action::Send { connection, message } => self.send(host, connection, Content::Data(message)),
            Action::Close(connection) => self.send(host, connection, Content::Close),
            Action::Datagram { to, message } => {
                let Some(way) = self.routes.way(host, to) else { return };
                let (kind, content) = (Kind::Datagram { from: host, to }, Content::Data(message));
                self.travel(Parcel { kind, content, way, passed: 0, attempt: 0 });
            }
            Action::Wake(at) => self.cause(at, Event::Wake(host)),
        }
    }

    fn connect(&mut self, from: usize, connection: ConnectionId, to: usize) {
        let ways = match from == to {
            true => None,
            false => self.routes.way(from, to).zip(self.routes.way(to, from)),
        };
        let state = if ways.is_some() { State::Opening } else { State::Closed };
        let (forth, back) = ways.unwrap_or_default();
        let delay = |way: &[Hop]| -> Duration {
            way.iter().map(|hop| self.directions[hop.index()].link.config().delay).sum()
        };
        let round_trip = delay(&forth) + delay(&back);
        let directions = [Direction::new(forth), Direction::new(back)];
        let ends = [from, to];
        self.connections.push(Connection { ends, state, since: self.now, directions, round_trip });
        match state {
            State::Closed => self.cause(self.now, Event::Closed(from, connection)),
            _ => self.send(from, connection, Content::Open),
        }
    }

    /// Sends a message from `host` over a connection of its.
    fn send(&mut self, host: usize, id: ConnectionId, content: Content) {
        let connection = &self.connections[id.0];
        let Some(side) = connection.side(host).filter(|_| connection.state != State::Closed) else { return };
        let fault = match (&content, &mut self.faults) {
            (Content::Data(bytes), Some(faults)) => {
                let to = connection.ends[1 - side];
                let number = self.messages;
                faults(&Passing { number, now: self.now, from: host, to, connection: id, bytes })
            }
            _ => Fault::None,
        };
        if matches!(content, Content::Data(_)) {
            self.messages += 1;
        }
        match fault {
            Fault::None => self.dispatch(id, side, content, true),
            Fault::Break => self.break_connection(id),
            Fault::Stall => self.connections[id.0].directions[side].stall(),
            Fault::Hold(time) => {
                let parcel = self.parcel(id, side, content, false);
                self.cause(self.now + time, Event::Travel(parcel));
            }
            Fault::Twice => {
                self.dispatch(id, side, content.clone(), true);
                self.dispatch(id, side, content, false);
            }
            Fault::Replace(bytes) => self.dispatch(id, side, Content::Data(bytes), true),
        }
    }

    fn dispatch(&mut self, connection: ConnectionId, side: usize, content: Content, in_order: bool) {
        let parcel = self.parcel(connection, side, content, in_order);
        self.travel(parcel);
    }

    fn parcel(&mut self, connection: ConnectionId, side: usize, content: Content, in_order: bool) -> Parcel {
        let direction = &mut self.connections[connection.0].directions[side];
        let number = in_order.then(|| direction.number());
        let way = Rc::clone(&direction.way);
        Parcel { kind: Kind::Stream { connection, side, number }, content, way, passed: 0, attempt: 0 }
    }

    /// A parcel comes to its next hop.
    fn travel(&mut self, parcel: Parcel) {
        let Some(hop) = parcel.way.get(parcel.passed) else { return self.arrive(parcel) };
        let index = hop.index();
        match parcel.kind {
            Kind::Stream { .. } if parcel.passed == 0 => {
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
                return self.cause(room, Event::Pump(index));
            }
            if let Some(parcel) = line.waiting.pop_front() {
                self.enter(parcel, index);
            }
        }
    }

    fn enter(&mut self, mut parcel: Parcel, index: usize) {
        let len = match parcel.kind {
            Kind::Stream { .. } => parcel.content.len(),
            Kind::Datagram { .. } => parcel.content.len() - HEAD + DATAGRAM_HEAD,
        };
        match (self.directions[index].link.offer(self.now, len), parcel.kind) {
            (Fate::Arrives(at), _) => {
                parcel.passed += 1;
                self.cause(at, Event::Travel(parcel));
            }
            (_, Kind::Datagram { .. }) => {}
            (_, Kind::Stream { connection, .. }) => self.again(parcel, connection),
        }
    }

    /// Sends a lost message of a stream again, later.
    fn again(&mut self, mut parcel: Parcel, id: ConnectionId) {
        let connection = &self.connections[id.0];
        match connection.state {
            State::Closed => return,
            State::Opening if self.now - connection.since > CONNECT_TIME => return self.give_up(id),
            _ => {}
        }
        let wait = connection.wait(parcel.attempt);
        parcel.attempt += 1;
        parcel.passed = 0;
        self.cause(self.now + wait, Event::Travel(parcel));
    }

    /// A connection could not be made: who asked for it is told.
    fn give_up(&mut self, id: ConnectionId) {
        let connection = &mut self.connections[id.0];
        connection.state = State::Closed;
        let (dialler, way_back) = (connection.ends[0], connection.round_trip / 2);
        self.cause(self.now + way_back, Event::Closed(dialler, id));
    }

    /// A parcel is at its host.
    fn arrive(&mut self, parcel: Parcel) {
        match parcel.kind {
            Kind::Datagram { from, to } => {
                let Content::Data(bytes) = parcel.content else { return };
                self.note(&bytes);
                self.tell(to, |node, net| node.datagram(net, from, bytes));
            }
            Kind::Stream { connection, side, number } => {
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
    fn deliver(&mut self, id: ConnectionId, side: usize, content: Content) {
        let connection = &mut self.connections[id.0];
        if connection.state == State::Closed {
            return;
        }
        let (from, to) = (connection.ends[side], connection.ends[1 - side]);
        match content {
            Content::Open if self.is_down[to] => self.give_up(id),
            Content::Open => {
                self.send(to, id, Content::Opened);
                self.tell(to, |node, net| node.opened(net, id, from));
            }
            Content::Opened => {
                connection.state = State::Open;
                self.tell(to, |node, net| node.opened(net, id, from));
            }
            Content::Data(bytes) => {
                self.note(&bytes);
                self.tell(to, |node, net| node.receive(net, id, bytes));
            }
            Content::Close => {
                connection.state = State::Closed;
                self.tell(to, |node, net| node.closed(net, id));
            }
        }
    }

    /// The scenario's next change.
    fn change(&mut self) {
        let Some(change) = self.changes.pop_front() else { return };
        let link = &mut self.links[change.link];
        link.apply(change.way, &change.params);
        if change.way != Way::Back {
            self.directions[change.link * 2].link.set(link.forth.clone());
        }
        if change.way != Way::Forth {
            self.directions[change.link * 2 + 1].link.set(link.back.clone());
        }
    }
}

#[cfg(test)]
mod tests;
