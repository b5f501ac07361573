//! Ends of circuits and relays as nodes of a simulated network: the state machines alone, with as little around them as
//! their I/O has.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use towpath_content::NodeId;
use towpath_relay::circuit::{Circuit, CircuitEnd};
use towpath_relay::message::{CircuitId, FailReason, RelayMessage};
use towpath_relay::pass::PassProof;
use towpath_relay::redial::{CALLEE_STAYS, CALLER_STAYS, Redial};
use towpath_relay::table::{GuestId, Pairing, Quotas, RelayTable, Side, TableAction, TableRequest};
use towpath_simnet::{ConnectionId, Net, SimNode};

/// Relays are hosts 0 and on; behind them the hub; then callers and those they call, in turn.
pub const RELAYS: usize = 3;
const FIRST_END: usize = RELAYS + 1;
/// Kind of the first message: the node, which TLS would prove.
const HELLO: u8 = 0;

pub enum SimHost {
    Relay(Box<RelayHost>),
    Hub,
    End(Box<EndHost>),
}

pub fn node_of(host: usize) -> NodeId {
    let mut id = [7; 32];
    id[..8].copy_from_slice(&(host as u64).to_le_bytes());
    NodeId(id)
}

fn encoded(message: &RelayMessage) -> Vec<u8> {
    let (kind, head, rest) = message.encode();
    [&[kind][..], &head, &rest].concat()
}

fn decoded(bytes: Vec<u8>) -> Option<RelayMessage> {
    let mut bytes = Bytes::from(bytes);
    let kind = bytes.split_to(1)[0];
    RelayMessage::decode(kind, bytes).ok()
}

/// A relay: its table, and who is joined with whom.
pub struct RelayHost {
    pub table: RelayTable,
    guests: HashMap<ConnectionId, GuestId>,
    connections: HashMap<GuestId, ConnectionId>,
    joined: HashMap<ConnectionId, (ConnectionId, Side, Rc<RefCell<Pairing>>)>,
    last: GuestId,
}

impl RelayHost {
    pub fn new() -> Self {
        let most = 1 << 20;
        let quotas = Quotas {
            connections: most,
            connections_per_node: most,
            connections_per_address: most,
            ..Quotas::default()
        };
        Self {
            table: RelayTable::new(quotas),
            guests: HashMap::new(),
            connections: HashMap::new(),
            joined: HashMap::new(),
            last: 0,
        }
    }

    fn said(&mut self, net: &mut Net, connection: ConnectionId, bytes: Vec<u8>) {
        if bytes[0] == HELLO {
            let node = NodeId(bytes[1..].try_into().unwrap());
            self.last += 1;
            self.guests.insert(connection, self.last);
            self.connections.insert(self.last, connection);
            return self.table.enter(self.last, node, IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap();
        }
        let message = decoded(bytes.clone());
        if let Some((other, side, pairing)) = self.joined.get(&connection).cloned() {
            match message.map(|message| pairing.borrow_mut().check(side, &message)) {
                Some(Ok(())) => net.send(other, bytes),
                _ => [connection, other].iter().for_each(|end| {
                    net.send(*end, encoded(&RelayMessage::Fail { why: FailReason::Violation }));
                    self.hang_up(net, *end);
                }),
            }
            return;
        }
        let Some(&guest) = self.guests.get(&connection) else { return };
        let request = match message {
            Some(RelayMessage::Wait { .. }) => TableRequest::Wait { is_allowed: true },
            Some(RelayMessage::Call { node, circuit }) => TableRequest::Call { node, circuit },
            Some(RelayMessage::Take { circuit }) => TableRequest::Take { circuit },
            Some(RelayMessage::Resume { circuit, node, received, pass }) => {
                TableRequest::Resume { circuit, node, received, is_allowed: pass.is_some() }
            }
            _ => return self.hang_up(net, connection),
        };
        self.table.request(guest, request, net.instant());
        if let Some(due) = self.table.next_timeout() {
            net.wake_at_instant(due);
        }
        self.act(net);
    }

    fn act(&mut self, net: &mut Net) {
        while let Some(action) = self.table.poll_action() {
            match action {
                TableAction::Tell(guest, message) => net.send(self.connections[&guest], encoded(&message)),
                TableAction::Dismiss(guest, why) => {
                    let connection = self.connections[&guest];
                    net.send(connection, encoded(&RelayMessage::Fail { why }));
                    self.hang_up(net, connection);
                }
                TableAction::Join(joined) => {
                    let pairing = Rc::new(RefCell::new(Pairing::new(joined.received)));
                    let [near, far] = joined.guests.map(|guest| self.connections[&guest]);
                    self.joined.insert(near, (far, Side::Near, Rc::clone(&pairing)));
                    self.joined.insert(far, (near, Side::Far, pairing));
                    net.send(near, encoded(&RelayMessage::Ok { received: joined.received[1] }));
                    net.send(far, encoded(&RelayMessage::Ok { received: joined.received[0] }));
                }
            }
        }
    }

    fn hang_up(&mut self, net: &mut Net, connection: ConnectionId) {
        if let Some(guest) = self.guests.remove(&connection) {
            self.connections.remove(&guest);
            self.table.leave(guest);
            net.close(connection);
        }
        if let Some((other, ..)) = self.joined.remove(&connection) {
            self.hang_up(net, other);
        }
    }
}

/// What a connection of an end is for, and with which relay.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Purpose {
    Wait(usize),
    /// A call, a take, a resume; given up then.
    Ask(usize, Instant),
    Up(usize),
}

/// What an end says and expects, and how fast.
#[derive(Debug, Clone, Copy)]
pub struct Talk {
    pub to_send: u64,
    pub to_read: u64,
    /// Bytes written in each step, and how long steps are apart.
    pub chunk: usize,
    pub step: Duration,
}

/// One end of a circuit, with what uses it.
pub struct EndHost {
    host: usize,
    talk: Talk,
    written: u64,
    read: u64,
    pub circuit: Option<Circuit>,
    id: CircuitId,
    lines: HashMap<ConnectionId, Purpose>,
    redial: Redial,
    /// The relay that carries the circuit.
    way: usize,
    next_step: Option<Instant>,
    /// Relay to ask next.
    next_ask: Option<(usize, Instant)>,
    next_waits: [Option<Instant>; RELAYS],
    is_wrong: bool,
    pub most_held: usize,
    /// The wake that was asked for last and has not come.
    wake: Option<Instant>,
}

impl EndHost {
    pub fn new(host: usize, talk: Talk) -> Self {
        let mut id = [9; 16];
        id[..8].copy_from_slice(&((host - FIRST_END) as u64 / 2).to_le_bytes());
        Self {
            host,
            talk,
            written: 0,
            read: 0,
            circuit: None,
            id: CircuitId(id),
            lines: HashMap::new(),
            redial: Redial::new(RELAYS, 0),
            way: 0,
            next_step: None,
            next_ask: None,
            next_waits: [None; RELAYS],
            is_wrong: false,
            most_held: 0,
            wake: None,
        }
    }

    /// Why its circuit is over, if it is.
    pub fn end(&self) -> Option<CircuitEnd> {
        self.circuit.as_ref()?.end()
    }

    /// Everything was said and read, and nothing else. Which of two ends says the last word does not learn whether it
    /// arrived, so one of them may look for the other in vain after that.
    pub fn is_well(&self) -> bool {
        let all = self.written == self.talk.to_send && self.read == self.talk.to_read;
        let has_ended = matches!(self.end(), Some(CircuitEnd::Finished | CircuitEnd::GivenUp));
        !self.is_wrong && all && has_ended
    }

    /// What was read is what was sent, as far as it came.
    pub fn is_true(&self) -> bool {
        !self.is_wrong
    }

    /// What a test that failed wants to know.
    pub fn state(&self) -> String {
        let Self { host, written, read, talk, id, lines, next_ask, way, wake, .. } = self;
        let (end, paused) = (self.end(), self.circuit.as_ref().map(Circuit::is_paused));
        format!(
            "{host}: {end:?} {paused:?} {written} {read} {talk:?} {id:?} {lines:?} {next_ask:?} {way} {wake:?}"
        )
    }

    fn is_caller(&self) -> bool {
        (self.host - FIRST_END).is_multiple_of(2)
    }

    fn other(&self) -> usize {
        if self.is_caller() { self.host + 1 } else { self.host - 1 }
    }

    fn begin(&mut self, net: &mut Net) {
        let wait = Duration::from_millis(net.random().u64(1000..6000));
        match self.is_caller() {
            true => self.next_ask = Some((0, net.instant() + wait)),
            false => self.next_waits = [Some(net.instant()); RELAYS],
        }
        self.go_on(net);
    }

    fn ask(&mut self, net: &mut Net, relay: usize) {
        let stays = match (&self.circuit, self.is_caller()) {
            (Some(_), true) => CALLER_STAYS,
            (Some(_), false) => CALLEE_STAYS,
            (None, _) => Duration::from_secs(12),
        };
        let connection = net.connect(relay);
        self.lines.insert(connection, Purpose::Ask(relay, net.instant() + stays));
    }

    fn first_words(&self, purpose: Purpose) -> RelayMessage {
        let (node, circuit) = (node_of(self.other()), self.id);
        match (&self.circuit, self.is_caller()) {
            _ if matches!(purpose, Purpose::Wait(_)) => RelayMessage::Wait { pass: None },
            (Some(end), is_caller) => {
                let pass = (!is_caller).then_some(PassProof([1; 32]));
                RelayMessage::Resume { circuit, node, received: end.received(), pass }
            }
            (None, true) => RelayMessage::Call { node, circuit },
            (None, false) => RelayMessage::Take { circuit },
        }
    }

    fn said(&mut self, net: &mut Net, connection: ConnectionId, bytes: Vec<u8>) {
        match (self.lines.get(&connection).copied(), decoded(bytes)) {
            (Some(Purpose::Up(_)), Some(message)) => {
                self.circuit.as_mut().unwrap().handle(message, net.instant());
            }
            (Some(Purpose::Ask(relay, _)), Some(RelayMessage::Ok { received })) => {
                self.lines.insert(connection, Purpose::Up(relay));
                self.stands(net, relay, received);
            }
            (Some(Purpose::Wait(relay)), Some(RelayMessage::Incoming { circuit, .. })) => {
                self.called(net, relay, circuit);
            }
            (Some(Purpose::Wait(_)), Some(RelayMessage::Ok { .. })) => {}
            _ => self.hung_up(net, connection),
        }
    }

    /// Takes a call. One that was taken before and came to nothing, since the caller calls again, is forgotten.
    fn called(&mut self, net: &mut Net, relay: usize, circuit: CircuitId) {
        if self.circuit.as_ref().is_some_and(|circuit| circuit.received() > 0) {
            return;
        }
        let (waits, others): (HashMap<_, _>, HashMap<_, _>) =
            self.lines.drain().partition(|(_, purpose)| matches!(purpose, Purpose::Wait(_)));
        others.into_keys().for_each(|line| net.close(line));
        (self.lines, self.circuit, self.id) = (waits, None, circuit);
        (self.written, self.next_step, self.next_ask) = (0, None, None);
        self.ask(net, relay);
    }

    fn stands(&mut self, net: &mut Net, relay: usize, received: u64) {
        let now = net.instant();
        match &mut self.circuit {
            Some(circuit) => circuit.resumed(received, relay != self.way, now),
            None => {
                self.circuit = Some(Circuit::new(now));
                self.redial = Redial::new(RELAYS, relay);
                self.next_step = Some(now);
            }
        }
        self.redial.succeeded();
        self.way = relay;
    }

    /// A connection is of no use any more.
    fn hung_up(&mut self, net: &mut Net, connection: ConnectionId) {
        net.close(connection);
        let now = net.instant();
        match self.lines.remove(&connection) {
            Some(Purpose::Wait(relay)) => self.next_waits[relay] = Some(now + Duration::from_millis(500)),
            Some(Purpose::Ask(relay, _)) if self.circuit.is_none() && self.is_caller() => {
                self.id.0[15] = self.id.0[15].wrapping_add(1);
                self.next_ask = Some(((relay + 1) % RELAYS, now + Duration::from_millis(300)));
            }
            Some(Purpose::Ask(relay, _)) => {
                // Whether the call was taken is not known: the caller may have gone on.
                if self.circuit.is_none() {
                    self.stands(net, relay, 0);
                    self.circuit.as_mut().unwrap().lost(now);
                }
                self.ask_next(net);
            }
            Some(Purpose::Up(_)) => {
                self.circuit.as_mut().unwrap().lost(now);
                self.ask_next(net);
            }
            _ => {}
        }
    }

    fn ask_next(&mut self, net: &mut Net) {
        let random = net.random().u64(..);
        if self.end().is_none()
            && let Some((relay, wait)) = self.redial.next(net.instant(), random)
        {
            self.next_ask = Some((relay, net.instant() + wait));
        }
    }

    /// Does all that is due.
    fn go_on(&mut self, net: &mut Net) {
        let now = net.instant();
        for relay in 0..RELAYS {
            if self.next_waits[relay].take_if(|at| *at <= now).is_some() {
                let connection = net.connect(relay);
                self.lines.insert(connection, Purpose::Wait(relay));
            }
        }
        let late = |purpose: &Purpose| matches!(purpose, Purpose::Ask(_, until) if *until <= now);
        let late: Vec<_> =
            self.lines.iter().filter(|(_, purpose)| late(purpose)).map(|(line, _)| *line).collect();
        late.into_iter().for_each(|line| self.hung_up(net, line));
        if let Some((relay, _)) = self.next_ask.take_if(|(_, at)| *at <= now)
            && self.end().is_none()
        {
            self.ask(net, relay);
        }
        self.carry(net);
        self.wake_again(net);
    }

    fn carry(&mut self, net: &mut Net) {
        let now = net.instant();
        let line =
            self.lines.iter().find(|(_, purpose)| matches!(purpose, Purpose::Up(_))).map(|(line, _)| *line);
        let Some(mut circuit) = self.circuit.take() else { return };
        circuit.handle_timeout(now);
        self.use_it(&mut circuit, net);
        while let Some(line) = line
            && let Some(message) = circuit.transmit(now)
        {
            net.send(line, encoded(&message));
        }
        self.most_held = self.most_held.max(circuit.held());
        let (is_over, is_paused) = (circuit.end().is_some(), circuit.is_paused());
        self.circuit = Some(circuit);
        match line {
            Some(line) if is_over => {
                self.lines.remove(&line);
                net.close(line);
            }
            Some(line) if is_paused => self.hung_up(net, line),
            _ => {}
        }
    }

    /// The program above: writes a little in each step, reads what is there.
    fn use_it(&mut self, circuit: &mut Circuit, net: &mut Net) {
        let (now, from, to) = (net.instant(), self.host as u64, self.other() as u64);
        if self.next_step.take_if(|at| *at <= now).is_some() {
            let left = (self.talk.to_send - self.written).min(self.talk.chunk as u64);
            let bytes: Vec<u8> = (self.written..self.written + left).map(|at| pattern(from, at)).collect();
            self.written += circuit.write(&bytes).unwrap_or(0) as u64;
            match self.written < self.talk.to_send {
                true => self.next_step = Some(now + self.talk.step),
                false => circuit.close(),
            }
        }
        if !circuit.is_readable() {
            return;
        }
        let mut space = vec![0; 50_000];
        while let Ok(Some(count @ 1..)) = circuit.read(&mut space, now) {
            let expected = (self.read..).map(|at| pattern(to, at));
            self.is_wrong |= space[..count].iter().zip(expected).any(|(&byte, expected)| byte != expected);
            self.read += count as u64;
        }
    }

    fn wake_again(&mut self, net: &mut Net) {
        let asks = self.lines.values().filter_map(|purpose| match purpose {
            Purpose::Ask(_, until) => Some(*until),
            _ => None,
        });
        let circuit = self.circuit.as_ref().and_then(Circuit::next_timeout);
        let step =
            self.next_step.filter(|_| self.circuit.as_ref().is_some_and(|circuit| circuit.end().is_none()));
        let waits = self.next_waits.into_iter().flatten();
        let next = asks.chain(waits).chain(circuit).chain(step).chain(self.next_ask.map(|(_, at)| at)).min();
        let Some(next) = next else { return };
        if self.wake.is_none_or(|wake| next < wake || wake <= net.instant()) {
            net.wake_at_instant(next);
            self.wake = Some(next);
        }
    }
}

/// The byte that a host says at this place.
fn pattern(host: u64, at: u64) -> u8 {
    (at.wrapping_add(host << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

impl SimNode for SimHost {
    fn start(&mut self, net: &mut Net) {
        if let Self::End(end) = self {
            end.begin(net);
        }
    }

    fn opened(&mut self, net: &mut Net, connection: ConnectionId, _: usize) {
        let Self::End(end) = self else { return };
        let Some(&purpose) = end.lines.get(&connection) else { return net.close(connection) };
        net.send(connection, [&[HELLO][..], &node_of(end.host).0].concat());
        net.send(connection, encoded(&end.first_words(purpose)));
    }

    fn receive(&mut self, net: &mut Net, connection: ConnectionId, message: Vec<u8>) {
        match self {
            Self::Relay(relay) => relay.said(net, connection, message),
            Self::End(end) => {
                end.said(net, connection, message);
                end.go_on(net);
            }
            Self::Hub => {}
        }
    }

    fn closed(&mut self, net: &mut Net, connection: ConnectionId) {
        match self {
            Self::Relay(relay) => {
                relay.hang_up(net, connection);
                relay.act(net);
            }
            Self::End(end) => {
                end.hung_up(net, connection);
                end.go_on(net);
            }
            Self::Hub => {}
        }
    }

    fn wake(&mut self, net: &mut Net) {
        match self {
            Self::Relay(relay) => {
                relay.table.handle_timeout(net.instant());
                relay.act(net);
            }
            Self::End(end) => end.go_on(net),
            Self::Hub => {}
        }
    }
}
