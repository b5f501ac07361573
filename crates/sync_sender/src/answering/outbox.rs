//! How answers get to the receiver: in messages of a bounded length, packed where that pays; and entries, over the control
//! stream.

use std::sync::atomic::Ordering;
use std::time::Duration;

use towpath_protocol::{Delivered, Replies};
use towpath_transfer::offer::EntryBody;

use super::Answering;
use super::replies::NamedAnswer;
use crate::error::CopyError;
use crate::message::{TreePart, hung_up};
use towpath_content::delta::exchange::Reply;
use towpath_content::lock::lock;
use towpath_reuse::policy::compression_level::compression_level;

/// Bytes of answers in one message, and what each takes besides its content, at most.
const MESSAGE_BYTES: usize = 192 << 10;
const ANSWER_COST: usize = 96;

impl Answering {
    /// Sends a part of the tree. Blocks while the connection takes no more.
    pub fn send_part(&self, part: TreePart) -> Result<(), CopyError> {
        let message = part.pack(self.pack_entries.load(Ordering::Relaxed) as i32);
        self.runtime.block_on(self.control.send(message.into_bytes())).map_err(|_| hung_up())
    }

    /// zstd's level for the next answers; 0: they go as they are.
    pub(super) fn level(&self, replies: &Replies) -> i32 {
        compression_level(self.pack.load(Ordering::Relaxed), &self.delivered(replies))
    }

    /// What became of earlier answers.
    pub(super) fn delivered(&self, replies: &Replies) -> Delivered {
        if self.rules.is_limited {
            // All waits for the person's limit.
            return Delivered { late: Duration::MAX, fastest: Some(0.0) };
        }
        // Entries and answers go over one network.
        let (answers, entries) = (replies.delivered(), self.control.delivered());
        let fastest = [answers.fastest, entries.fastest].into_iter().flatten().reduce(f64::max);
        Delivered { fastest, ..answers }
    }

    /// Sends answers of one `Get`, in messages, each packed if the receiver finds that worth it.
    pub(super) fn send_answers(&self, answers: Vec<NamedAnswer>, replies: &Replies) -> Result<(), CopyError> {
        in_messages(answers, |answers| {
            let level = Some(self.level(replies)).filter(|level| *level > 0 && lock(&self.packing).is_due());
            let sent = self.runtime.block_on(replies.send(answers, level.unwrap_or(0)));
            let (before, after) = sent.map_err(|_| hung_up())?;
            if level.is_some() {
                lock(&self.packing).packed(before, after);
            }
            Ok(())
        })
    }
}

fn in_messages(
    answers: Vec<NamedAnswer>,
    mut send: impl FnMut(Vec<NamedAnswer>) -> Result<(), CopyError>,
) -> Result<(), CopyError> {
    let (mut message, mut bytes) = (Vec::new(), 0);
    for answer in answers {
        let cost = ANSWER_COST + len(&answer.1.body);
        if bytes + cost > MESSAGE_BYTES && !message.is_empty() {
            send(std::mem::take(&mut message))?;
            bytes = 0;
        }
        bytes += cost;
        message.push(answer);
    }
    if message.is_empty() { Ok(()) } else { send(message) }
}

fn len(body: &EntryBody) -> usize {
    match body {
        EntryBody::Whole(content) => content.len(),
        EntryBody::Delta(Reply::Whole(delta)) => delta.len(),
        EntryBody::Named | EntryBody::Delta(_) => 0,
    }
}
