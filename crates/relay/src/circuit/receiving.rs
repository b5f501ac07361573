//! The receiving direction of a circuit's end: blocks in order, acknowledged when they were handed on. Pure.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};

use super::CircuitViolation;
use super::path::{CALM, MAX_WINDOW};
use super::sending::MAX_BLOCKS;

/// Bytes that are acknowledged at once ...
const ACK_BYTES: usize = 128 << 10;
/// ... and how long fewer may wait for more.
pub(super) const ACK_DELAY: Duration = Duration::from_millis(8);
/// The same once no relay was lost for [`CALM`]: each acknowledgement costs a relay as much as a block, but what waits for one goes again after a
/// loss.
const CALM_ACK_BYTES: usize = 256 << 10;
const CALM_ACK_DELAY: Duration = Duration::from_millis(24);

/// See the head of this module.
pub(super) struct BlockReceiving {
    inbox: VecDeque<Bytes>,
    inbox_bytes: usize,
    /// The last number taken in, the end's included.
    received: u64,
    /// The last number handed on.
    handed_on: u64,
    /// The last number acknowledged on the present connection.
    acked: u64,
    /// Bytes handed on and not acknowledged.
    owed: usize,
    ack_at: Option<Instant>,
    /// When the first block was handed on since a relay was lost, and whether that is long ago.
    calm_since: Option<Instant>,
    is_calm: bool,
    has_ended: bool,
}

impl BlockReceiving {
    pub(super) const fn new() -> Self {
        Self {
            inbox: VecDeque::new(),
            inbox_bytes: 0,
            received: 0,
            handed_on: 0,
            acked: 0,
            owed: 0,
            ack_at: None,
            calm_since: None,
            is_calm: false,
            has_ended: false,
        }
    }

    /// Takes a block in.
    pub(super) fn block(&mut self, number: u64, bytes: Bytes) -> Result<(), CircuitViolation> {
        self.count(number)?;
        if self.inbox_bytes + bytes.len() > MAX_WINDOW || self.inbox.len() >= MAX_BLOCKS {
            return Err(CircuitViolation::Flood { held: self.inbox_bytes });
        }
        self.inbox_bytes += bytes.len();
        self.inbox.push_back(bytes);
        Ok(())
    }

    /// Takes the direction's end in.
    pub(super) fn close(&mut self, number: u64, now: Instant) -> Result<(), CircuitViolation> {
        self.count(number)?;
        self.has_ended = true;
        self.hand_on_end(now);
        Ok(())
    }

    fn count(&mut self, number: u64) -> Result<(), CircuitViolation> {
        let expected = self.received.saturating_add(1);
        if self.has_ended {
            return Err(CircuitViolation::AfterEnd);
        }
        if number != expected {
            return Err(CircuitViolation::Order { number, expected });
        }
        self.received = number;
        Ok(())
    }

    /// Hands on what fits into `space`; `None` if there is nothing yet, 0 at the end.
    pub(super) fn read(&mut self, space: &mut [u8], now: Instant) -> Option<usize> {
        let mut filled = 0;
        self.is_calm = self.calm_since.is_some_and(|since| now.saturating_duration_since(since) >= CALM);
        let delay = if self.is_calm { CALM_ACK_DELAY } else { ACK_DELAY };
        while let Some(front) = self.inbox.front_mut()
            && filled < space.len()
        {
            let count = front.len().min(space.len() - filled);
            front.copy_to_slice(&mut space[filled..filled + count]);
            filled += count;
            self.owed += count;
            if front.is_empty() {
                self.inbox.pop_front();
                self.handed_on += 1;
                self.calm_since.get_or_insert(now);
                self.ack_at = self.ack_at.or(Some(now + delay));
            }
        }
        self.inbox_bytes -= filled;
        if self.inbox.is_empty() {
            self.inbox = VecDeque::new();
            self.hand_on_end(now);
        }
        (filled > 0 || self.is_at_end()).then_some(filled)
    }

    fn hand_on_end(&mut self, now: Instant) {
        if self.is_at_end() && self.handed_on < self.received {
            self.handed_on = self.received;
            self.ack_at = Some(now);
        }
    }

    /// True if nothing follows any more.
    pub(super) fn is_at_end(&self) -> bool {
        self.has_ended && self.inbox.is_empty()
    }

    /// True if [`Self::read`] would not wait.
    pub(super) fn is_readable(&self) -> bool {
        self.has_ended || !self.inbox.is_empty()
    }

    /// True if all has come, was handed on and acknowledged.
    pub(super) const fn is_done(&self) -> bool {
        self.has_ended && self.acked == self.received
    }

    /// Nobody reads any more: what is here and what may come counts as handed on.
    pub(super) fn discard(&mut self, now: Instant) {
        self.inbox = VecDeque::new();
        self.inbox_bytes = 0;
        self.hand_on_end(now);
    }

    /// An acknowledgement that is due.
    pub(super) fn transmit(&mut self, now: Instant) -> Option<u64> {
        let enough = if self.is_calm { CALM_ACK_BYTES } else { ACK_BYTES };
        let is_due = self.owed >= enough || self.ack_at.is_some_and(|at| at <= now);
        if !is_due || self.handed_on == self.acked {
            return None;
        }
        Some(self.ack())
    }

    /// An acknowledgement at once, also if it tells nothing new.
    pub(super) const fn ack(&mut self) -> u64 {
        (self.acked, self.owed, self.ack_at) = (self.handed_on, 0, None);
        self.handed_on
    }

    pub(super) const fn ack_at(&self) -> Option<Instant> {
        self.ack_at
    }

    /// On a new connection everything is acknowledged again.
    pub(super) fn resumed(&mut self, now: Instant) {
        self.acked = 0;
        (self.calm_since, self.is_calm) = (None, false);
        self.ack_at = (self.handed_on > 0).then_some(now);
    }

    pub(super) const fn received(&self) -> u64 {
        self.received
    }

    /// Bytes held.
    pub(super) const fn held(&self) -> usize {
        self.inbox_bytes
    }
}
