//! One end of a circuit: what to send, keep, send again and acknowledge; PAUSE, GO, and when to give up. Pure: it is
//! handed messages, bytes and the time.
//!
//! ```text
//!   write ──► sending ──► Block, Close ──►              ┌── lost ──► PAUSE ── resumed ──► GO
//!   read  ◄── receiving ◄── Block, Close                Up                │
//!                       ──► Ack                         └── all said and acknowledged, Abort, limits ──► over
//! ```
//!
//! A loss of the connection ends nothing: what is not acknowledged is kept, and once the other end has told the last
//! block it has, sending goes on behind it.

mod path;
mod receiving;
mod sending;

use std::time::{Duration, Instant};

use thiserror::Error;
use towpath_link::PathInfo;

use crate::message::{FailReason, RelayMessage};
pub use path::{FIRST_WINDOW, MAX_HELD, MAX_WINDOW};
use receiving::BlockReceiving;
use sending::BlockSending;
pub use sending::MAX_BLOCKS;

/// So long after the connection was lost a circuit is given up.
pub const PAUSE_LIMIT: Duration = Duration::from_secs(60);
/// The same once nobody uses it any more.
const LINGER: Duration = Duration::from_secs(5);
/// Who has heard nothing for so long asks, ...
const QUIET: Duration = Duration::from_secs(20);
/// ... or for so long if something is to be acknowledged ...
const QUIET_WAITING: Duration = Duration::from_secs(5);
/// ... and takes the connection for lost if so long no answer comes.
const SILENCE: Duration = Duration::from_secs(10);
/// Where the path is measured, and so is known when an acknowledgement can be expected, both are as short as that, but not shorter.
/// Who got another address, or whose router did, hears nothing and is told nothing.
pub const LEAST_QUIET: Duration = Duration::from_secs(1);
/// The same of the time for an answer.
pub const LEAST_SILENCE: Duration = Duration::from_millis(1500);
/// So long after the last block more of them are expected.
const STREAMING: Duration = Duration::from_secs(5);

/// What the other end, or the relay in its place, did against the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CircuitViolation {
    /// A block out of order, or doubled.
    #[error("block {number} came where {expected} was due")]
    Order {
        /// Its number.
        number: u64,
        /// The number that was due.
        expected: u64,
    },
    /// Something came behind the end.
    #[error("a block came behind the end")]
    AfterEnd,
    /// An acknowledgement of what was never sent, or that takes one back.
    #[error("{through} was acknowledged where {sent} was sent")]
    Ack {
        /// What was acknowledged.
        through: u64,
        /// What was sent.
        sent: u64,
    },
    /// More came than may be under way.
    #[error("more came than may be under way, where {held} bytes were held")]
    Flood {
        /// Bytes held by then.
        held: usize,
    },
    /// After a loss: a last block that was never sent, or that comes before one that was acknowledged.
    #[error("the other end has received {received}, between {acked} acknowledged and {sent} sent")]
    Resume {
        /// The last block it says to have.
        received: u64,
        /// The last that was acknowledged.
        acked: u64,
        /// The last that was sent.
        sent: u64,
    },
    /// A message that has no place on a circuit.
    #[error("a message that has no place on a circuit")]
    Message,
}

/// Reason why a circuit is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CircuitEnd {
    /// Both directions ended, and all was acknowledged.
    #[error("the circuit was finished")]
    Finished,
    /// The other end left.
    #[error("the other end left the circuit")]
    Aborted,
    /// This end left.
    #[error("this end left the circuit")]
    Left,
    /// The connection was lost and not found again in time.
    #[error("no way to the other end for {PAUSE_LIMIT:?}")]
    GivenUp,
    /// The relay ended it.
    #[error("{why}")]
    Failed {
        /// The relay's reason.
        why: FailReason,
    },
    /// The other end or the relay broke the rules.
    #[error("{violation}")]
    Violated {
        /// The rule.
        violation: CircuitViolation,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CircuitState {
    /// A connection carries it.
    Up,
    /// PAUSE, since then.
    Paused(Instant),
    Over(CircuitEnd),
}

/// See the head of this module.
pub struct Circuit {
    sending: BlockSending,
    receiving: BlockReceiving,
    state: CircuitState,
    /// When something was heard last.
    heard: Instant,
    /// When the last block came.
    block_at: Option<Instant>,
    /// When the other end was asked, if nothing was heard since.
    asked: Option<Instant>,
    /// `Ping` is still to be said: the connection may take nothing more.
    owes_question: bool,
    /// It asked.
    owes_answer: bool,
    /// Since when nobody uses this end.
    left: Option<Instant>,
    /// `Abort` is still to be said.
    owes_abort: bool,
    losses: u32,
}

impl Circuit {
    /// A circuit whose connection stands at `now`.
    pub fn new(now: Instant) -> Self {
        Self {
            sending: BlockSending::new(),
            receiving: BlockReceiving::new(),
            state: CircuitState::Up,
            heard: now,
            block_at: None,
            asked: None,
            owes_question: false,
            owes_answer: false,
            left: None,
            owes_abort: false,
            losses: 0,
        }
    }

    /// Takes bytes from the front of `bytes`; `Some(0)` if there is no room now, `None` if nothing may be written.
    pub fn write(&mut self, bytes: &[u8]) -> Option<usize> {
        match self.state {
            CircuitState::Over(_) => None,
            _ if self.sending.is_closing() => None,
            _ => Some(self.sending.write(bytes)),
        }
    }

    /// Nothing more will be written: the other end reads the end behind what was.
    pub fn close(&mut self) {
        self.sending.close();
    }

    /// Hands on what fits into `space`; `Ok(None)` if nothing is there yet, 0 at the end. What came before the circuit
    /// was over is handed on first.
    pub fn read(&mut self, space: &mut [u8], now: Instant) -> Result<Option<usize>, CircuitEnd> {
        match (self.receiving.read(space, now), self.state) {
            (None, CircuitState::Over(end)) => Err(end),
            (read, _) => {
                self.check_finished();
                Ok(read)
            }
        }
    }

    /// True if [`Self::read`] would not wait.
    pub fn is_readable(&self) -> bool {
        self.receiving.is_readable() || self.end().is_some()
    }

    /// True if [`Self::write`] would not wait.
    pub fn is_writable(&self) -> bool {
        self.sending.has_room() || self.sending.is_closing() || self.end().is_some()
    }

    /// Nobody reads or writes any more. What was written is still delivered, within a limit.
    pub fn leave(&mut self, now: Instant) {
        self.left = self.left.or(Some(now));
        self.sending.close();
        self.receiving.discard(now);
        self.check_left();
    }

    /// The next message to send on the connection.
    pub fn transmit(&mut self, now: Instant) -> Option<RelayMessage> {
        if std::mem::take(&mut self.owes_abort) {
            return Some(RelayMessage::Abort);
        }
        if self.state != CircuitState::Up {
            return None;
        }
        let answer = std::mem::take(&mut self.owes_answer).then(|| self.receiving.ack());
        if let Some(through) = answer.or_else(|| self.receiving.transmit(now)) {
            self.check_finished();
            return Some(RelayMessage::Ack { through });
        }
        self.sending.transmit(now).or_else(|| self.ask(now))
    }

    fn ask(&mut self, now: Instant) -> Option<RelayMessage> {
        self.ask_if_quiet(now);
        std::mem::take(&mut self.owes_question).then_some(RelayMessage::Ping)
    }

    fn ask_if_quiet(&mut self, now: Instant) {
        if self.asked.is_none() && now >= self.heard + self.quiet() {
            (self.asked, self.owes_question) = (Some(now), true);
        }
    }

    fn quiet(&self) -> Duration {
        match self.patience() {
            Some(time) => time.clamp(LEAST_QUIET, QUIET_WAITING),
            None if self.sending.is_waiting() => QUIET_WAITING,
            None => QUIET,
        }
    }

    fn silence(&self) -> Duration {
        self.patience().map_or(SILENCE, |time| time.clamp(LEAST_SILENCE, SILENCE))
    }

    /// Time after which something should have come, if something is expected: an acknowledgement, or the next block.
    fn patience(&self) -> Option<Duration> {
        let streams = self.block_at.is_some_and(|at| self.heard < at + STREAMING);
        self.sending.patience().filter(|_| streams || self.sending.is_waiting())
    }

    /// A message came on the connection.
    pub fn handle(&mut self, message: RelayMessage, now: Instant) {
        if self.state != CircuitState::Up {
            return;
        }
        (self.heard, self.asked, self.owes_question) = (now, None, false);
        if let Err(violation) = self.understand(message, now) {
            self.over(CircuitEnd::Violated { violation });
            self.owes_abort = true;
        }
        self.check_finished();
        self.check_left();
    }

    fn understand(&mut self, message: RelayMessage, now: Instant) -> Result<(), CircuitViolation> {
        match message {
            RelayMessage::Block { number, bytes } => {
                self.block_at = Some(now);
                self.receiving.block(number, bytes)?;
            }
            RelayMessage::Close { number } => self.receiving.close(number, now)?,
            RelayMessage::Ack { through } => self.sending.acked(through, now)?,
            RelayMessage::Ping => self.owes_answer = true,
            RelayMessage::Abort => self.over(CircuitEnd::Aborted),
            RelayMessage::Fail { why: FailReason::ShuttingDown } => self.lost(now),
            RelayMessage::Fail { why } => self.over(CircuitEnd::Failed { why }),
            _ => return Err(CircuitViolation::Message),
        }
        if self.left.is_some() {
            self.receiving.discard(now);
        }
        Ok(())
    }

    fn over(&mut self, end: CircuitEnd) {
        if self.end().is_none() {
            self.state = CircuitState::Over(end);
        }
    }

    fn check_finished(&mut self) {
        if self.sending.is_done() && self.receiving.is_done() {
            self.over(CircuitEnd::Finished);
        }
    }

    /// Once nobody uses this end and the other has everything, the other shall not wait for more.
    fn check_left(&mut self) {
        if self.left.is_some()
            && self.sending.is_done()
            && !self.receiving.is_at_end()
            && self.end().is_none()
        {
            self.over(CircuitEnd::Left);
            self.owes_abort = true;
        }
    }

    /// PAUSE: the connection was lost at `now`.
    pub fn lost(&mut self, now: Instant) {
        if self.state == CircuitState::Up {
            self.state = CircuitState::Paused(now);
            self.losses += 1;
            (self.asked, self.owes_question, self.owes_answer) = (None, false, false);
        }
    }

    /// GO: there is another connection, and the other end has taken in everything up to `received`. `is_other_way` if it
    /// is with another relay.
    pub fn resumed(&mut self, received: u64, is_other_way: bool, now: Instant) {
        if !matches!(self.state, CircuitState::Paused(_)) {
            return;
        }
        self.heard = now;
        self.state = CircuitState::Up;
        self.receiving.resumed(now);
        if let Err(violation) = self.sending.resumed(received, is_other_way) {
            self.over(CircuitEnd::Violated { violation });
            self.owes_abort = true;
        }
    }

    /// No relay goes on with it, for this reason.
    pub fn fail(&mut self, why: FailReason) {
        self.over(CircuitEnd::Failed { why });
    }

    /// The time has come that [`Self::next_timeout`] told.
    pub fn handle_timeout(&mut self, now: Instant) {
        let limit = if self.left.is_some() { LINGER } else { PAUSE_LIMIT };
        match self.state {
            CircuitState::Paused(since) if now >= since + limit => self.over(CircuitEnd::GivenUp),
            CircuitState::Up if self.asked.is_some_and(|asked| now >= asked + self.silence()) => {
                self.lost(now)
            }
            CircuitState::Up if self.left.is_some_and(|left| now >= left + PAUSE_LIMIT) => {
                self.over(CircuitEnd::Left);
                self.owes_abort = true;
            }
            // Also where the question can't be sent, because the connection takes nothing: then it is not answered, either.
            CircuitState::Up => self.ask_if_quiet(now),
            _ => {}
        }
    }

    /// When [`Self::handle_timeout`] or [`Self::transmit`] is due, if nothing happens before.
    pub fn next_timeout(&self) -> Option<Instant> {
        let limit = if self.left.is_some() { LINGER } else { PAUSE_LIMIT };
        match self.state {
            CircuitState::Over(_) => None,
            CircuitState::Paused(since) => Some(since + limit),
            CircuitState::Up => {
                let silence = self.asked.map_or(self.heard + self.quiet(), |asked| asked + self.silence());
                let left = self.left.map(|left| left + PAUSE_LIMIT);
                self.receiving.ack_at().into_iter().chain(left).chain([silence]).min()
            }
        }
    }

    /// True while no connection carries it.
    pub const fn is_paused(&self) -> bool {
        matches!(self.state, CircuitState::Paused(_))
    }

    /// Why it is over, if it is.
    pub const fn end(&self) -> Option<CircuitEnd> {
        match self.state {
            CircuitState::Over(end) => Some(end),
            _ => None,
        }
    }

    /// The last block that was taken in: what the other end is told after a loss.
    pub const fn received(&self) -> u64 {
        self.receiving.received()
    }

    /// What acknowledgements tell of the path.
    pub fn path_info(&self) -> PathInfo {
        PathInfo { receive_queue_bytes: self.receiving.held() as u64, ..self.sending.info() }
    }

    /// Bytes held: to send again, and to be read.
    pub fn held(&self) -> usize {
        self.sending.held() + self.receiving.held()
    }

    /// Bytes of blocks sent so far, those sent again included.
    pub const fn sent_bytes(&self) -> u64 {
        self.sending.total()
    }

    /// Connections lost so far.
    pub const fn losses(&self) -> u32 {
        self.losses
    }
}

#[cfg(test)]
mod tests;
