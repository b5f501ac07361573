//! The sending direction of a circuit's end: blocks are kept until they are acknowledged. Pure.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use towpath_link::PathInfo;

use super::CircuitViolation;
use super::path::{PathEstimate, SentMark};
use crate::message::{MAX_BLOCK, RelayMessage};

/// Blocks that may be under way, whatever their size.
pub const MAX_BLOCKS: usize = 1024;

/// A block that the other end has not acknowledged. It has a mark once it was sent on the present connection.
struct KeptBlock {
    bytes: Bytes,
    mark: Option<SentMark>,
}

/// How far the end of this direction has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closing {
    Open,
    /// To be said behind all blocks.
    Wanted,
    /// Said on the present connection.
    Sent,
    Acked,
}

/// See the head of this module.
pub(super) struct BlockSending {
    /// Blocks `acked + 1` and on.
    kept: VecDeque<KeptBlock>,
    kept_bytes: usize,
    acked: u64,
    /// Of what is kept, blocks that the other end has or that were sent on the present connection.
    sent: usize,
    /// Bytes of blocks that were sent on the present connection and are not acknowledged.
    in_flight: usize,
    /// The highest number ever sent, the end's included.
    highest: u64,
    /// Bytes of the next block.
    tail: BytesMut,
    closing: Closing,
    path: PathEstimate,
    /// Bytes of blocks that left, those sent again included.
    total: u64,
    /// Blocks sent again.
    again: u64,
}

impl BlockSending {
    pub(super) fn new() -> Self {
        Self {
            kept: VecDeque::new(),
            kept_bytes: 0,
            acked: 0,
            sent: 0,
            in_flight: 0,
            highest: 0,
            tail: BytesMut::new(),
            closing: Closing::Open,
            path: PathEstimate::default(),
            total: 0,
            again: 0,
        }
    }

    /// Takes bytes from the front of `bytes`, as many as there is room for.
    pub(super) fn write(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while taken < bytes.len() {
            let room = self.room().min(bytes.len() - taken);
            if room == 0 {
                break;
            }
            self.tail.extend_from_slice(&bytes[taken..taken + room]);
            taken += room;
            if self.tail.len() >= self.path.block_len() {
                self.cut();
            }
        }
        taken
    }

    /// Bytes that the tail has room for now.
    fn room(&self) -> usize {
        if self.closing != Closing::Open || self.kept.len() >= MAX_BLOCKS {
            return 0;
        }
        let window = self.path.window().saturating_sub(self.kept_bytes + self.tail.len());
        window.min(self.path.block_len().saturating_sub(self.tail.len()).max(1))
    }

    /// True if [`Self::write`] would take something.
    pub(super) fn has_room(&self) -> bool {
        self.room() > 0
    }

    /// Makes a block of the tail.
    fn cut(&mut self) {
        let len = self.tail.len().min(MAX_BLOCK);
        let bytes = self.tail.split_to(len).freeze();
        if self.tail.is_empty() {
            self.tail = BytesMut::new();
        }
        self.kept_bytes += bytes.len();
        self.kept.push_back(KeptBlock { bytes, mark: None });
    }

    /// Nothing more will be written.
    pub(super) fn close(&mut self) {
        if self.closing == Closing::Open {
            self.closing = Closing::Wanted;
        }
    }

    pub(super) const fn is_closing(&self) -> bool {
        !matches!(self.closing, Closing::Open)
    }

    /// True if all that was written, and the end behind it, is acknowledged.
    pub(super) const fn is_done(&self) -> bool {
        matches!(self.closing, Closing::Acked)
    }

    /// True if the other end has still to acknowledge something.
    pub(super) fn is_waiting(&self) -> bool {
        !self.kept.is_empty() || self.closing == Closing::Sent
    }

    /// The next message of this direction.
    pub(super) fn transmit(&mut self, now: Instant) -> Option<RelayMessage> {
        if self.sent == self.kept.len() && !self.tail.is_empty() && self.kept.len() < MAX_BLOCKS {
            self.cut();
        }
        if self.sent < self.kept.len() {
            // More may be kept than may be under way: after a loss, or when the path has become narrower.
            return (self.in_flight < self.path.window()).then(|| self.block(now));
        }
        if self.closing != Closing::Wanted || !self.tail.is_empty() {
            return None;
        }
        self.closing = Closing::Sent;
        let number = self.acked + self.kept.len() as u64 + 1;
        self.highest = number;
        Some(RelayMessage::Close { number })
    }

    fn block(&mut self, now: Instant) -> RelayMessage {
        let is_last = self.sent + 1 == self.kept.len() && self.tail.is_empty();
        let is_starved = is_last && self.kept_bytes < self.path.window();
        let mark = self.path.sent(now, self.in_flight == 0, is_starved);
        let block = &mut self.kept[self.sent];
        block.mark = Some(mark);
        self.sent += 1;
        self.total += block.bytes.len() as u64;
        self.in_flight += block.bytes.len();
        let number = self.acked + self.sent as u64;
        self.again += u64::from(number <= self.highest);
        self.highest = self.highest.max(number);
        RelayMessage::Block { number, bytes: block.bytes.clone() }
    }

    /// The other end has handed on everything up to `through`.
    pub(super) fn acked(&mut self, through: u64, now: Instant) -> Result<(), CircuitViolation> {
        let end = self.acked + self.sent as u64 + u64::from(self.closing == Closing::Sent);
        if through > end || through < self.acked {
            return Err(CircuitViolation::Ack { through, sent: end });
        }
        let mut fresh = through - self.acked;
        while fresh > 0
            && let Some(block) = self.kept.pop_front()
        {
            fresh -= 1;
            self.acked += 1;
            self.sent -= 1;
            self.kept_bytes -= block.bytes.len();
            if let Some(mark) = block.mark {
                self.in_flight -= block.bytes.len();
                self.path.acked(block.bytes.len(), mark, fresh == 0, now);
            }
        }
        if fresh > 0 {
            self.acked += fresh;
            self.closing = Closing::Acked;
        }
        self.rest();
        Ok(())
    }

    /// Holds no memory while there is nothing to keep.
    fn rest(&mut self) {
        if self.kept.is_empty() {
            self.kept = VecDeque::new();
        }
    }

    /// On a new connection, and the other end has taken in everything up to `received`.
    pub(super) fn resumed(&mut self, received: u64, is_other_way: bool) -> Result<(), CircuitViolation> {
        if received < self.acked || received > self.highest {
            return Err(CircuitViolation::Resume { received, acked: self.acked, sent: self.highest });
        }
        let has = usize::try_from(received - self.acked).unwrap_or(usize::MAX);
        let has_end = self.closing != Closing::Acked && has > self.kept.len();
        self.closing = match self.closing {
            Closing::Sent if !has_end => Closing::Wanted,
            closing => closing,
        };
        self.sent = has.min(self.kept.len());
        for block in &mut self.kept {
            block.mark = None;
        }
        self.in_flight = 0;
        self.path.lost(is_other_way);
        Ok(())
    }

    /// Time after which an acknowledgement of what is under way is late; `None` if the path is not measured.
    pub(super) fn patience(&self) -> Option<Duration> {
        self.path.patience(self.in_flight)
    }

    pub(super) fn info(&self) -> PathInfo {
        let unsent = self.kept.iter().skip(self.sent).map(|block| block.bytes.len()).sum::<usize>();
        PathInfo { retransmits: self.again, ..self.path.info(self.held(), unsent + self.tail.len()) }
    }

    /// Bytes held.
    pub(super) fn held(&self) -> usize {
        self.kept_bytes + self.tail.len()
    }

    /// Bytes of blocks that left so far, those sent again included.
    pub(super) const fn total(&self) -> u64 {
        self.total
    }
}
