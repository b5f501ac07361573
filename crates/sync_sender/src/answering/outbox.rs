//! How answers get to the receiver: in messages, packed where that pays; and entries, over the control stream.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use towpath_content::lock::lock;
use towpath_protocol::offer::EntryTag;
use towpath_protocol::{Delivered, Replies, ReplyMessage};
use towpath_reuse::policy::compression_level::compression_level;

use super::replies::NamedAnswer;
use super::{Answering, QUICK};
use crate::errands::Errands;
use crate::error::CopyError;
use crate::message::{TreePart, hung_up};

/// What goes to the receiver in answer to one `Get`, in order.
pub(super) struct AnswerQueue {
    pub(super) replies: Arc<Replies>,
    pub(super) errands: Errands,
}

impl AnswerQueue {
    pub(super) fn new(replies: &Arc<Replies>, runtime: &Handle) -> Self {
        Self { replies: Arc::clone(replies), errands: Errands::start(runtime) }
    }

    /// Sends a message. Blocks while others wait.
    pub(super) fn send(&self, message: ReplyMessage) -> Result<(), CopyError> {
        let replies = Arc::clone(&self.replies);
        self.errands.hand(async move { replies.send(message).await.map_err(|_| hung_up()) })
    }

    /// Nothing more comes of a question.
    pub(super) fn end(&self, tag: EntryTag) -> Result<(), CopyError> {
        let replies = Arc::clone(&self.replies);
        self.errands.hand(async move {
            replies.end(tag);
            Ok(())
        })
    }
}

impl Answering {
    /// Sends a part of the tree. Blocks while the connection takes no more.
    pub fn send_part(&self, part: TreePart, errands: &Errands) -> Result<(), CopyError> {
        let level = lock(&self.state).pack.unwrap_or(QUICK);
        let (message, control) = (part.pack(level as i32).into_bytes(), self.control.clone());
        errands.hand(async move { control.send(message).await.map_err(|_| hung_up()) })
    }

    /// zstd's level for the next answers; 0: they go as they are.
    pub(super) fn level(&self, replies: &Replies) -> i32 {
        let asked = lock(&self.state).pack.unwrap_or(0);
        compression_level(asked, &self.delivered(replies))
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
    pub(super) fn send_answers(&self, answers: Vec<NamedAnswer>, out: &AnswerQueue) -> Result<(), CopyError> {
        for batch in out.replies.batches(answers) {
            let level = self.level(&out.replies);
            if level == 0 || !lock(&self.state).packing.is_due() {
                out.send(batch.plain())?;
                continue;
            }
            let (message, (before, after)) = batch.packed(level);
            lock(&self.state).packing.packed(before, after);
            out.send(message)?;
        }
        Ok(())
    }
}
