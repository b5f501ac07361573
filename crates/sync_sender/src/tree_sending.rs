//! The sender's half of the tree protocol: pure. It is handed the steps of the walk and the receiver's messages, puts out
//! the parts of the tree, and knows where the files are that the receiver may still ask for.
//!
//! | state | takes | until |
//! |---|---|---|
//! | walking, with room | steps of the walk | the receiver is too far behind, or the walk is over |
//! | walking, without | nothing of the walk | `Considered` makes room |
//! | told | nothing of the walk | the copy is over |
//! | over | nothing of the walk | |
//!
//! In each state the receiver may say what it considered and settled, and ask. A file is known from its step on: until it was
//! considered, or, if it is wanted then or was asked for before, until it is settled.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use towpath_content::tree::{BLOCK, Encoder, Event, Time};
use towpath_files::Stamp;

use super::file_result::FileResult;
use super::message::{Considered, MOST_SETTLED, Message, Settled, TreePart, internal, violation};
use crate::error::CopyError;

/// Entries that the walk may be ahead of the receiver.
pub const WINDOW: usize = 64 << 10;
/// Bytes of descriptor that the walk may be ahead of the receiver, exceeded by those of one step at most.
pub const WINDOW_BYTES: u64 = 16 << 20;
/// Files wanted and not settled, beyond which a receiver does not keep to its window: what it settled may still be on
/// the way.
pub const MOST_WANTED: usize = 32 << 10;

/// See the head of this module. `L` is where a file is, `W` what is kept of one that is wanted.
pub struct TreeSending<L, W> {
    state: WalkStage,
    /// Entries told.
    entries: u64,
    /// Entries that the receiver has considered: all before this one.
    considered: u64,
    /// The entries told and not considered, one after the other.
    ahead: VecDeque<Ahead<L>>,
    bytes_ahead: u64,
    /// Files that are wanted and not settled.
    wanted: HashMap<u64, W>,
    is_incomplete: bool,
    /// Parts that were not put out.
    parts: VecDeque<TreePart>,
}

enum WalkStage {
    Walking(Box<Encoder>),
    Told,
    Over,
}

/// An entry that was told.
struct Ahead<L> {
    /// In the descriptor.
    bytes: u64,
    /// For a file that was not requested yet.
    located: Option<L>,
}

impl<L, W> Default for TreeSending<L, W> {
    fn default() -> Self {
        Self {
            state: WalkStage::Walking(Box::new(Encoder::new(true))),
            entries: 0,
            considered: 0,
            ahead: VecDeque::new(),
            bytes_ahead: 0,
            wanted: HashMap::new(),
            is_incomplete: false,
            parts: VecDeque::new(),
        }
    }
}

impl<L, W: From<L>> TreeSending<L, W> {
    /// Whether the next step may be taken; if the copy is over, to be refused.
    pub fn has_room(&self) -> bool {
        let (entries, bytes) = self.ahead();
        matches!(self.state, WalkStage::Over) || entries < WINDOW && bytes <= WINDOW_BYTES
    }

    /// Entries, and bytes of descriptor, that were told and not considered.
    pub fn ahead(&self) -> (usize, u64) {
        (self.ahead.len(), self.bytes_ahead)
    }

    /// Number of files that are wanted and not settled.
    pub fn wanted(&self) -> usize {
        self.wanted.len()
    }

    /// Takes the next step of the walk; `located` is where a file is.
    pub fn step(&mut self, event: &Event, located: Option<L>) -> Result<(), CopyError> {
        let WalkStage::Walking(encoder) = &mut self.state else { return Err(internal("the copy is over")) };
        encoder.push(event).map_err(|error| internal(&error.to_string()))?;
        let finished = encoder.take();
        let bytes = finished.len() as u64;
        if !matches!(event, Event::Leave) {
            self.entries += 1;
            self.ahead.push_back(Ahead { bytes: 0, located });
        }
        if let Some(last) = self.ahead.back_mut() {
            last.bytes += bytes;
            self.bytes_ahead += bytes;
        }
        self.put_out(finished);
        Ok(())
    }

    /// The directory that comes next is told without what is in it.
    pub fn closed(&mut self) {
        self.parts.push_back(TreePart::Closed(self.entries));
    }

    /// Something could not be read.
    pub const fn incomplete(&mut self) {
        self.is_incomplete = true;
    }

    /// There are no more steps.
    pub fn finish(&mut self) -> Result<(), CopyError> {
        let WalkStage::Walking(encoder) = std::mem::replace(&mut self.state, WalkStage::Told) else {
            self.state = WalkStage::Over;
            return Err(internal("the copy is over"));
        };
        let rest = encoder.finish().map_err(|error| internal(&error.to_string()))?;
        self.put_out(rest);
        self.parts.push_back(TreePart::End { is_incomplete: self.is_incomplete });
        Ok(())
    }

    /// The next part of the tree that is to be sent.
    pub fn poll(&mut self) -> Option<TreePart> {
        self.parts.pop_front()
    }

    /// The copy is over, however it ended.
    pub fn end(&mut self) {
        self.state = WalkStage::Over;
    }

    /// Takes a message of the receiver: the files that it is done with.
    pub fn recv(&mut self, message: Message) -> Result<Vec<(FileResult, W)>, CopyError> {
        match message {
            Message::Considered(considered) => self.consider(&considered).map(|()| Vec::new()),
            Message::Settled(settled) => self.settle(settled),
            _ => Err(violation("a message that a receiver does not send")),
        }
    }

    /// A file that the receiver asks for, if it may; it is kept until it is settled.
    pub fn ask(&mut self, entry: u64) -> Option<&mut W> {
        self.want(entry);
        self.wanted.get_mut(&entry)
    }

    /// A file that is wanted and not settled.
    pub fn wanted_file(&mut self, entry: u64) -> Option<&mut W> {
        self.wanted.get_mut(&entry)
    }

    fn want(&mut self, entry: u64) {
        if let Some(located) = self.take(entry) {
            self.wanted.insert(entry, located.into());
        }
    }

    fn take(&mut self, entry: u64) -> Option<L> {
        let at = entry.checked_sub(self.considered)?;
        self.ahead.get_mut(usize::try_from(at).ok()?)?.located.take()
    }

    /// Keeps what is wanted, and forgets what else was looked at.
    fn consider(&mut self, considered: &Considered) -> Result<(), CopyError> {
        if considered.entry > self.entries {
            return Err(violation("entries that were not told of"));
        }
        let runs = considered.runs().ok_or_else(|| violation("wanted entries that are none"))?;
        for run in runs {
            // What was considered before is wanted already, or forgotten.
            (run.start.max(self.considered)..run.end).for_each(|entry| self.want(entry));
        }
        if self.wanted() > MOST_WANTED {
            return Err(violation("more files wanted than may be under way"));
        }
        while self.considered < considered.entry
            && let Some(Ahead { bytes, .. }) = self.ahead.pop_front()
        {
            self.considered += 1;
            self.bytes_ahead -= bytes;
        }
        Ok(())
    }

    fn settle(&mut self, settled: Settled) -> Result<Vec<(FileResult, W)>, CopyError> {
        let Settled { placed, dropped, unchanged, lost } = settled;
        if [&placed, &dropped, &lost].iter().any(|list| list.len() > MOST_SETTLED) {
            return Err(violation("more files settled at once than a message may have"));
        }
        let of = |entries: Vec<u64>, result| entries.into_iter().map(move |entry| (entry, result));
        let unchanged = unchanged.into_iter().map(|unchanged| {
            let changed = Time { seconds: unchanged.seconds, nanos: unchanged.nanos };
            let stamp = Stamp { inode: unchanged.inode, changed, ..Stamp::default() };
            (unchanged.entry, FileResult::Unchanged(stamp))
        });
        let given_up = of(dropped, FileResult::Dropped).chain(of(lost, FileResult::Lost));
        let settled = given_up.chain(of(placed, FileResult::Placed)).chain(unchanged);
        Ok(settled.filter_map(|(entry, result)| Some((result, self.settled(entry, result)?))).collect())
    }

    /// What was known of a file that is done with. One that is in place need not have been wanted.
    fn settled(&mut self, entry: u64, result: FileResult) -> Option<W> {
        let wanted = self.wanted.remove(&entry);
        match result {
            FileResult::Dropped | FileResult::Lost => wanted,
            FileResult::Placed | FileResult::Unchanged(_) => wanted.or_else(|| self.take(entry).map(W::from)),
        }
    }

    /// One block a part, so that a message never exceeds what the control stream takes.
    fn put_out(&mut self, bytes: Vec<u8>) {
        let bytes = Bytes::from(bytes);
        let blocks = (0..bytes.len()).step_by(BLOCK);
        self.parts.extend(blocks.map(|at| TreePart::Entries(bytes.slice(at..bytes.len().min(at + BLOCK)))));
    }
}

#[cfg(test)]
mod tests;
