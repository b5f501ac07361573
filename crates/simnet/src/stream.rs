//! Connections: messages in order, sent again when a link loses them.
//!
//! A stream is modelled message by message. Its sender waits until its first link has room, so a queue
//! that overflows at the source delays and does not lose; what is lost further on is sent again after a
//! round trip, twice that, and so on; what came early waits for what came late. Congestion control is
//! not modelled: a lossy link delays streams, it does not make them slower than their links.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use crate::routes::Hop;

/// Size of a message's head on a link (TCP and IP).
pub(crate) const HEAD: u64 = 40;
/// No message is sent again sooner than this.
const SHORTEST_WAIT: Duration = Duration::from_millis(10);
/// Nor later than this.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Progress of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineState {
    Opening,
    Open,
    Closed,
}

/// A connection between two hosts.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Ends: the one that dialled, and the other.
    pub(crate) ends: [usize; 2],
    pub(crate) state: LineState,
    /// Time at which it was requested.
    pub(crate) since: Duration,
    /// From the first end, and from the second.
    pub(crate) directions: [StreamDirection; 2],
    /// The sum of both delays.
    pub(crate) round_trip: Duration,
}

impl Connection {
    /// End that a host is.
    pub(crate) fn side(&self, host: usize) -> Option<usize> {
        self.ends.iter().position(|&end| end == host)
    }

    /// Time to wait before the message is sent again that was sent this often.
    pub(crate) fn wait(&self, attempt: u32) -> Duration {
        let factor = 1u32.checked_shl(attempt).unwrap_or(u32::MAX);
        self.round_trip.max(SHORTEST_WAIT).saturating_mul(factor).min(LONGEST_WAIT)
    }
}

/// Role of a message in its connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SentContent {
    /// The first message: asks for the connection.
    Open,
    /// The accepting end's answer.
    Opened,
    Data(Vec<u8>),
    Close,
}

impl SentContent {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Data(bytes) => bytes.len() as u64 + HEAD,
            _ => HEAD,
        }
    }
}

/// One direction of a connection.
#[derive(Debug)]
pub(crate) struct StreamDirection {
    pub(crate) way: Rc<[Hop]>,
    /// Messages from this number on do not arrive.
    stalled_from: Option<u64>,
    sent: u64,
    delivered: u64,
    early: BTreeMap<u64, SentContent>,
}

impl StreamDirection {
    pub(crate) const fn new(way: Rc<[Hop]>) -> Self {
        Self { way, stalled_from: None, sent: 0, delivered: 0, early: BTreeMap::new() }
    }

    /// The place of the next message in the order.
    pub(crate) const fn number(&mut self) -> u64 {
        self.sent += 1;
        self.sent - 1
    }

    /// Nothing that is sent from now on arrives.
    pub(crate) fn stall(&mut self) {
        self.stalled_from.get_or_insert(self.sent);
    }

    /// True if a message arrives; one without a number came after the stall, if there was one.
    pub(crate) fn lets_through(&self, number: Option<u64>) -> bool {
        self.stalled_from.is_none_or(|from| number.is_some_and(|number| number < from))
    }

    /// A message arrived: all that can be delivered now.
    pub(crate) fn arrive(&mut self, number: u64, content: SentContent) -> Vec<SentContent> {
        self.early.insert(number, content);
        let mut due = Vec::new();
        while let Some(content) = self.early.remove(&self.delivered) {
            self.delivered += 1;
            due.push(content);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_early_waits_for_what_came_late() {
        let mut direction = StreamDirection::new(Rc::from([]));
        let message = |byte| SentContent::Data(vec![byte]);
        let numbers: Vec<u64> = (0..3).map(|_| direction.number()).collect();
        assert_eq!(direction.arrive(numbers[1], message(1)), []);
        assert_eq!(direction.arrive(numbers[0], message(0)), [message(0), message(1)]);
        assert_eq!(direction.arrive(numbers[2], message(2)), [message(2)]);
    }
}
