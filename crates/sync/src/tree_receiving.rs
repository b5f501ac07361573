//! The receiver's half of the tree protocol: pure. It is handed the sender's messages, what the walk says, and the time; it
//! puts out the steps of the sender's tree one at a time, and what the sender is to be told.
//!
//! | state | messages of the tree | steps | news for the sender |
//! |---|---|---|---|
//! | coming | wait for the walk, so many bytes at most | while not too much news waits | gathered |
//! | told | refused | those that are left, then the end | gathered |
//! | over | passed over | refused: the other side hung up | what is left, at once |
//!
//! News of files that are done with waits for more of it: nobody waits for it but for how far the tree was considered, which
//! goes as soon as somebody looks, behind the files that were settled before.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use towpath_content::DecodeError;
use towpath_content::tree::{Decoder, Event};

use super::file_result::FileResult;
use super::message::{
    Considered, MOST_SETTLED, Message, PROBE, Settled, TreePart, Unchanged, hung_up, violation,
};
use crate::error::CopyError;

/// Bytes told by a sender and not looked at, at most: one that keeps to its window has 16 MiB of descriptor on the way,
/// and as many entries as directories that it told as closed.
pub const MAX_WAITING: usize = 22 << 20;
/// Files that are done with and not told, beyond which the walk waits.
pub const MOST_NEWS: usize = 32 << 10;
/// How long news waits for more: so often it is looked whether something urgent came, which takes less than being woken
/// for each.
const LOOK: Duration = Duration::from_millis(2);
const GATHER: Duration = LOOK.saturating_mul(10);
/// Bounds of runs that are told together.
const MOST_BOUNDS: usize = 8192;

/// See the head of this module.
#[derive(Default)]
pub struct TreeReceiving {
    state: TreeStage,
    /// Parts that the walk has not come to, and what they count.
    parts: VecDeque<TreePart>,
    waiting: usize,
    decoder: Decoder,
    /// Of the part that the walk is in.
    rest: Bytes,
    settled: VecDeque<(u64, FileResult)>,
    /// Entries that are wanted and were not considered: start, end, start, end, ….
    wanted: Vec<u64>,
    considered: VecDeque<Considered>,
    /// When the first news was seen that was not told.
    since: Option<Instant>,
    probe: ProbeStage,
}

/// Where the question stands how long a few bytes take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum ProbeStage {
    #[default]
    NotWanted,
    Wanted,
    UnderWay,
    Came,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum TreeStage {
    #[default]
    Coming,
    Told,
    Over,
}

/// A step of the sender's tree.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // Nearly all steps are of the large kind.
pub enum SenderStep {
    /// A step of the walk.
    Event(Event),
    /// See [`Message::Closed`].
    Closed(u64),
    /// There are no more. Incomplete: the sender could not read all of them.
    End { is_incomplete: bool },
}

/// What the sender is to be told.
#[derive(Debug)]
pub enum News {
    /// This.
    Send(Message),
    /// Nothing before then.
    Wait(Instant),
    /// Nothing.
    Nothing,
    /// Nothing any more.
    Over,
}

impl TreeReceiving {
    /// Takes a message of the sender.
    pub fn take(&mut self, message: Message) -> Result<(), CopyError> {
        if let Message::Probe(bytes) = message {
            return self.probed(bytes.len());
        }
        let part = TreePart::unpack(message)?;
        match self.state {
            TreeStage::Coming if self.held().0 <= MAX_WAITING => {}
            TreeStage::Coming => return Err(violation("more than was asked for")),
            TreeStage::Told => return Err(violation("more of a tree that has ended")),
            TreeStage::Over => return Ok(()),
        }
        if matches!(part, TreePart::End { .. }) {
            self.state = TreeStage::Told;
        }
        self.waiting += part.cost();
        self.parts.push_back(part);
        Ok(())
    }

    /// The sender is asked for a few bytes, the first time.
    pub fn probe(&mut self) {
        if self.probe == ProbeStage::NotWanted {
            self.probe = ProbeStage::Wanted;
        }
    }

    /// Whether these have come, or nothing comes any more.
    pub fn is_probed(&self) -> bool {
        self.probe == ProbeStage::Came || self.state == TreeStage::Over
    }

    fn probed(&mut self, len: usize) -> Result<(), CopyError> {
        let is_due = self.probe == ProbeStage::UnderWay && len == PROBE;
        self.probe = ProbeStage::Came;
        if is_due { Ok(()) } else { Err(violation("a probe that nobody asked for")) }
    }

    /// The next step. None: nothing came, or too much news waits.
    pub fn next_step(&mut self) -> Result<Option<SenderStep>, CopyError> {
        let bad = |error: DecodeError| violation(&error.to_string());
        if self.state == TreeStage::Over {
            return Err(hung_up());
        }
        if self.held().1 > MOST_NEWS {
            return Ok(None);
        }
        loop {
            if let Some(located) = self.decoder.next_event().map_err(bad)? {
                return Ok(Some(SenderStep::Event(located.event)));
            }
            if self.rest.has_remaining() {
                let taken = self.decoder.feed(&self.rest);
                self.rest.advance(taken);
                continue;
            }
            let Some(part) = self.parts.pop_front() else { return Ok(None) };
            self.waiting -= part.cost();
            match part {
                TreePart::Entries(bytes) => self.rest = bytes,
                TreePart::Closed(entry) => return Ok(Some(SenderStep::Closed(entry))),
                TreePart::End { is_incomplete } => {
                    std::mem::take(&mut self.decoder).finish().map_err(bad)?;
                    return Ok(Some(SenderStep::End { is_incomplete }));
                }
            }
        }
    }

    /// Bytes that wait for the walk, and files that are done with and not told.
    pub fn held(&self) -> (usize, usize) {
        (self.waiting, self.settled.len())
    }

    /// The entry that is being looked at is wanted.
    pub fn want(&mut self, entry: u64) {
        match self.wanted.last_mut().filter(|end| **end == entry) {
            Some(end) => *end += 1,
            None => self.wanted.extend([entry, entry + 1]),
        }
    }

    /// All entries below this one were looked at. False: nobody is told any more.
    pub fn considered(&mut self, entry: u64) -> bool {
        let wanted = std::mem::take(&mut self.wanted);
        match self.considered.back_mut() {
            Some(last) if last.wanted.len() + wanted.len() <= MOST_BOUNDS => {
                last.entry = entry;
                last.wanted.extend(wanted);
            }
            _ => self.considered.push_back(Considered { entry, wanted }),
        }
        self.state != TreeStage::Over
    }

    /// A file is done with.
    pub fn settled(&mut self, entry: u64, result: FileResult) {
        self.settled.push_back((entry, result));
    }

    /// The copy is over, however it ended.
    pub fn end(&mut self) {
        self.state = TreeStage::Over;
        self.parts.clear();
        self.rest.clear();
        self.waiting = 0;
    }

    /// What the sender is to be told now.
    pub fn poll(&mut self, now: Instant) -> News {
        if self.probe == ProbeStage::Wanted && self.state != TreeStage::Over {
            self.probe = ProbeStage::UnderWay;
            return News::Send(Message::Probe(Bytes::new()));
        }
        if self.settled.is_empty() && self.considered.is_empty() {
            return if self.state == TreeStage::Over { News::Over } else { News::Nothing };
        }
        let until = *self.since.get_or_insert(now) + GATHER;
        if !self.is_urgent() && now < until {
            return News::Wait(until.min(now + LOOK));
        }
        self.since = None;
        if !self.settled.is_empty() {
            return News::Send(self.next_settled());
        }
        // Behind what was settled: the sender forgets the others.
        self.considered.pop_front().map_or(News::Nothing, |next| News::Send(Message::Considered(next)))
    }

    fn is_urgent(&self) -> bool {
        self.settled.len() >= MOST_SETTLED || !self.considered.is_empty() || self.state == TreeStage::Over
    }

    fn next_settled(&mut self) -> Message {
        let mut message = Settled::default();
        let count = self.settled.len().min(MOST_SETTLED);
        for (entry, result) in self.settled.drain(..count) {
            match result {
                FileResult::Placed => message.placed.push(entry),
                FileResult::Dropped => message.dropped.push(entry),
                FileResult::Lost => message.lost.push(entry),
                FileResult::Unchanged(stamp) => message.unchanged.push(Unchanged {
                    entry,
                    inode: stamp.inode,
                    seconds: stamp.changed.seconds,
                    nanos: stamp.changed.nanos,
                }),
            }
        }
        Message::Settled(message)
    }
}

#[cfg(test)]
mod tests;
