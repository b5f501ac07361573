//! Events of a node and its actions: the border between a pure state machine under test and
//! the simulated network.

use std::time::{Duration, Instant};

use fastrand::Rng;

/// A connection; the same number at both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub(crate) usize);

/// A program on one host. It acts through [`Net`] and only when it is told something.
pub trait SimNode {
    /// The simulation begins.
    fn start(&mut self, _net: &mut Net) {}

    /// A connection stands: one that was asked for, or one that host `peer` has made.
    fn opened(&mut self, _net: &mut Net, _connection: ConnectionId, _peer: usize) {}

    /// A message came over a connection, in order and once, unless a fault says otherwise.
    fn receive(&mut self, net: &mut Net, connection: ConnectionId, message: Vec<u8>);

    /// A connection ended, or could not be made.
    fn closed(&mut self, _net: &mut Net, _connection: ConnectionId) {}

    /// A datagram came: perhaps, in any order.
    fn datagram(&mut self, _net: &mut Net, _from: usize, _message: Vec<u8>) {}

    /// A time asked for by [`Net::wake_at`] has come.
    fn wake(&mut self, _net: &mut Net) {}
}

/// Actions that a node requests while it handles an event; they happen when it returns.
pub struct Net {
    now: Duration,
    base: Instant,
    host: usize,
    next_connection: usize,
    pub(crate) random: Rng,
    pub(crate) actions: Vec<Action>,
}

/// Action that a node requested.
pub(crate) enum Action {
    Connect { connection: ConnectionId, to: usize },
    Send { connection: ConnectionId, message: Vec<u8> },
    Close(ConnectionId),
    Datagram { to: usize, message: Vec<u8> },
    Wake(Duration),
}

impl Net {
    pub(crate) const fn new(
        now: Duration,
        base: Instant,
        host: usize,
        next_connection: usize,
        random: Rng,
    ) -> Self {
        Self { now, base, host, next_connection, random, actions: Vec::new() }
    }

    /// Time since the start.
    pub const fn now(&self) -> Duration {
        self.now
    }

    /// The same as a moment, for state machines that are handed one. Only differences mean anything.
    pub fn instant(&self) -> Instant {
        self.base + self.now
    }

    /// The host this node runs on: its index in the scenario.
    pub const fn host(&self) -> usize {
        self.host
    }

    /// Random numbers that follow from the world's seed.
    pub const fn random(&mut self) -> &mut Rng {
        &mut self.random
    }

    /// Asks for a connection to another host: [`SimNode::opened`] or [`SimNode::closed`] will follow.
    pub fn connect(&mut self, to: usize) -> ConnectionId {
        let connection = ConnectionId(self.next_connection);
        self.next_connection += 1;
        self.actions.push(Action::Connect { connection, to });
        connection
    }

    /// Sends a message; on a connection that has ended it is lost.
    pub fn send(&mut self, connection: ConnectionId, message: Vec<u8>) {
        self.actions.push(Action::Send { connection, message });
    }

    /// Ends a connection: the peer is told when what was sent before has arrived.
    pub fn close(&mut self, connection: ConnectionId) {
        self.actions.push(Action::Close(connection));
    }

    /// Sends a datagram.
    pub fn send_datagram(&mut self, to: usize, message: Vec<u8>) {
        self.actions.push(Action::Datagram { to, message });
    }

    /// Asks to be woken, at once if the time is past. Wakes are not taken back: a node that has changed
    /// its mind ignores them.
    pub fn wake_at(&mut self, at: Duration) {
        self.actions.push(Action::Wake(at));
    }

    /// As [`Self::wake_at`], for a moment of [`Self::instant`]'s kind.
    pub fn wake_at_instant(&mut self, at: Instant) {
        self.wake_at(at.saturating_duration_since(self.base));
    }
}
