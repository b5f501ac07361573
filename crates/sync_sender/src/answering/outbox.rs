//! How answers get to the receiver: in messages that a control stream takes, packed where that pays, contents no
//! faster than the person wants and on the better way where there is one.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use towpath_content::delta::exchange::DeltaRun;
use towpath_protocol::{ControlClosed, ControlSender, Delivered};

use super::Answering;
use crate::error::CopyError;
use crate::message::hung_up;
use crate::message::{Answer, Answers, DeltaMessage, Message};
use crate::reading::Ask;
use towpath_content::lock::lock;
use towpath_reuse::policy::compression_level::compression_level;

/// Bytes of answers in one message, and what each takes besides its content, at most.
const MESSAGE_BYTES: usize = 192 << 10;
const ANSWER_COST: usize = 96;

impl Answering {
    /// Blocks while the connection takes no more.
    pub fn send(&self, message: Message) -> Result<(), CopyError> {
        self.runtime.block_on(self.control.send(message.into_bytes())).map_err(|_| hung_up())
    }

    /// The next bytes of the tree, at most a block.
    pub fn send_entries(&self, bytes: Bytes) -> Result<(), CopyError> {
        let bytes = Message::Entries(bytes).into_bytes();
        let bytes = match self.pack_entries.load(Ordering::Relaxed) {
            0 => bytes,
            level => Message::pack(bytes, level as i32),
        };
        self.runtime.block_on(self.control.send(bytes)).map_err(|_| hung_up())
    }

    fn send_packed(&self, message: Message) -> Result<(), CopyError> {
        self.send_bytes(self.packed(message, &self.control))
    }

    /// zstd's level for what goes `way` next; 0: it goes as it is.
    pub(super) fn level(&self, way: &ControlSender) -> i32 {
        compression_level(self.pack.load(Ordering::Relaxed), &self.delivered(way))
    }

    /// What became of what went this `way`.
    pub(super) fn delivered(&self, way: &ControlSender) -> Delivered {
        if self.is_limited {
            // All waits for the person's limit.
            return Delivered { late: Duration::MAX, fastest: Some(0.0) };
        }
        // All ways are of one network.
        let (this, first) = (way.delivered(), self.control.delivered());
        let fastest = [this.fastest, first.fastest].into_iter().flatten().reduce(f64::max);
        Delivered { fastest, ..this }
    }

    /// Packed for this `way`, if the receiver finds that worth it.
    fn packed(&self, message: Message, way: &ControlSender) -> Bytes {
        let bytes = message.into_bytes();
        let level = self.level(way);
        if level == 0 || !lock(&self.packing).is_due() {
            return bytes;
        }
        let packed = Message::pack(bytes.clone(), level);
        lock(&self.packing).packed(bytes.len(), packed.len());
        packed
    }

    fn send_bytes(&self, bytes: Bytes) -> Result<(), CopyError> {
        self.send_over(&self.control, bytes).map_err(|_| hung_up())
    }

    /// The person's limit holds for all ways together.
    fn send_over(&self, way: &ControlSender, bytes: Bytes) -> Result<(), ControlClosed> {
        self.runtime.block_on(way.send(bytes))
    }

    /// From now on contents go this way.
    pub fn carry(&self, way: ControlSender) {
        *lock(&self.beside) = Some(way);
    }

    /// A way that contents went was lost: what may not have come is to be answered once more.
    pub fn lost(&self) -> Vec<Ask> {
        let mut asked = lock(&self.asked);
        let again = asked.iter_mut().filter_map(|(&entry, asked)| {
            let (inline, located) = (asked.beside.take()?, asked.located.clone());
            Some(Ask { entry, compare: false, inline, is_again: true, request: None, located })
        });
        again.collect()
    }

    /// A run of a file that goes in parts.
    pub(super) fn send_run(&self, entry: u64, run: &DeltaRun<'_>) -> Result<(), CopyError> {
        // They may come as soon as it was sent.
        self.signatures.expect(entry, run.wanted() as u64);
        let bytes = run.to_bytes().into();
        self.send_bytes(Message::Delta(DeltaMessage { entry, bytes }).into_bytes())
    }

    /// Answers in messages that a control stream takes, contents on the better way.
    pub(super) fn send_answers(&self, answers: Vec<Answer>) -> Result<(), CopyError> {
        let beside = lock(&self.beside).clone();
        let Some(way) = beside else {
            return in_messages(answers, |answers| self.send_packed(Message::Answers(Answers { answers })));
        };
        let (whole, named): (Vec<_>, Vec<_>) = answers.into_iter().partition(Answer::is_whole);
        in_messages(named, |answers| self.send_packed(Message::Answers(Answers { answers })))?;
        in_messages(whole, |answers| self.send_beside(&way, answers))
    }

    /// Contents that go `way`, or over the first connection after all.
    fn send_beside(&self, way: &ControlSender, mut answers: Vec<Answer>) -> Result<(), CopyError> {
        self.note_beside(&answers, true);
        // Its bytes are shared, not copied.
        let message = Message::Answers(Answers { answers: answers.clone() });
        if self.send_over(way, self.packed(message, way)).is_ok() {
            return Ok(());
        }
        self.note_beside(&answers, false);
        // Its loss may have been noticed between the two, and each of these be answered again too.
        answers.iter_mut().for_each(|answer| answer.is_again = true);
        self.send_packed(Message::Answers(Answers { answers }))
    }

    /// These contents are about to go beside, or did not.
    fn note_beside(&self, answers: &[Answer], goes: bool) {
        let mut asked = lock(&self.asked);
        for answer in answers {
            if let Some(asked) = asked.get_mut(&answer.entry) {
                asked.beside = goes.then_some(answer.content.len() as u64);
            }
        }
    }
}

/// Says answers in messages that a control stream takes.
fn in_messages(
    answers: Vec<Answer>,
    mut send: impl FnMut(Vec<Answer>) -> Result<(), CopyError>,
) -> Result<(), CopyError> {
    let (mut message, mut bytes) = (Vec::new(), 0);
    for answer in answers {
        let cost = answer.content.len() + answer.reply.len() + ANSWER_COST;
        if bytes + cost > MESSAGE_BYTES {
            send(std::mem::take(&mut message))?;
            bytes = 0;
        }
        bytes += cost;
        message.push(answer);
    }
    if message.is_empty() { Ok(()) } else { send(message) }
}
