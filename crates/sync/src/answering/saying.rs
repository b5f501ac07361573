//! How answers get to the receiver: in messages that a control stream takes, packed where that pays, contents no
//! faster than the person wants and on the better way where there is one.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use towpath_protocol::{ControlClosed, ControlSender, Delivered};

use super::Answering;
use crate::error::CopyError;
use crate::message::hung_up;
use crate::message::{Answer, Answers, Delta, Message};
use crate::reading::Ask;
use towpath_content::lock::lock;
use towpath_reuse::policy::compression_level::compression_level;

/// Bytes of answers in one message, and what each takes besides its content, at most.
const MESSAGE_BYTES: usize = 192 << 10;
const ANSWER_COST: usize = 96;
/// Bytes of a delta in one message.
const DELTA_BYTES: usize = 128 << 10;

impl Answering {
    /// Blocks while the connection takes no more.
    pub fn say(&self, message: Message) -> Result<(), CopyError> {
        self.runtime.block_on(self.control.send(message.into_bytes())).map_err(|_| hung_up())
    }

    /// The next bytes of the tree, at most a block.
    pub fn say_entries(&self, bytes: Bytes) -> Result<(), CopyError> {
        let bytes = Message::Entries(bytes).into_bytes();
        let bytes = match self.pack_entries.load(Ordering::Relaxed) {
            0 => bytes,
            level => Message::pack(bytes, level as i32),
        };
        self.runtime.block_on(self.control.send(bytes)).map_err(|_| hung_up())
    }

    fn say_packed(&self, message: Message) -> Result<(), CopyError> {
        self.say_at_rate(self.packed(message, &self.control))
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

    fn say_at_rate(&self, bytes: Bytes) -> Result<(), CopyError> {
        self.send_at_rate(&self.control, bytes).map_err(|_| hung_up())
    }

    /// The person's limit holds for all ways together.
    fn send_at_rate(&self, way: &ControlSender, bytes: Bytes) -> Result<(), ControlClosed> {
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
            let (base, older, in_parts, is_guess) = (None, None, false, false);
            Some(Ask {
                entry,
                compare: false,
                inline,
                is_again: true,
                base,
                older,
                in_parts,
                is_guess,
                located,
            })
        });
        again.collect()
    }

    /// One part's delta, in runs that messages take; `last` is what is said with the last one.
    pub(super) fn say_part(&self, last: Delta, bytes: Vec<u8>) -> Result<(), CopyError> {
        let bytes = Bytes::from(bytes);
        for start in (0..bytes.len()).step_by(DELTA_BYTES) {
            let end = bytes.len().min(start + DELTA_BYTES);
            let is_last = end == bytes.len();
            let run = if is_last { last.clone() } else { Delta { entry: last.entry, ..Delta::default() } };
            let run = Delta { bytes: bytes.slice(start..end), is_last, ..run };
            self.say_at_rate(Message::Delta(run).into_bytes())?;
        }
        Ok(())
    }

    /// Answers in messages that a control stream takes, contents on the better way.
    pub(super) fn say_answers(&self, answers: Vec<Answer>) -> Result<(), CopyError> {
        let beside = lock(&self.beside).clone();
        let Some(way) = beside else {
            return in_messages(answers, |answers| self.say_packed(Message::Answers(Answers { answers })));
        };
        let (whole, named): (Vec<_>, Vec<_>) = answers.into_iter().partition(Answer::is_whole);
        in_messages(named, |answers| self.say_packed(Message::Answers(Answers { answers })))?;
        in_messages(whole, |answers| self.say_beside(&way, answers))
    }

    /// Contents that go `way`, or over the first connection after all.
    fn say_beside(&self, way: &ControlSender, mut answers: Vec<Answer>) -> Result<(), CopyError> {
        self.note_beside(&answers, true);
        // Its bytes are shared, not copied.
        let message = Message::Answers(Answers { answers: answers.clone() });
        if self.send_at_rate(way, self.packed(message, way)).is_ok() {
            return Ok(());
        }
        self.note_beside(&answers, false);
        // Its loss may have been noticed between the two, and each of these be answered again too.
        answers.iter_mut().for_each(|answer| answer.is_again = true);
        self.say_packed(Message::Answers(Answers { answers }))
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
    mut say: impl FnMut(Vec<Answer>) -> Result<(), CopyError>,
) -> Result<(), CopyError> {
    let (mut message, mut bytes) = (Vec::new(), 0);
    for answer in answers {
        let cost = answer.content.len() + ANSWER_COST;
        if bytes + cost > MESSAGE_BYTES {
            say(std::mem::take(&mut message))?;
            bytes = 0;
        }
        bytes += cost;
        message.push(answer);
    }
    if message.is_empty() { Ok(()) } else { say(message) }
}
