//! The caller of a request for entries.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use towpath_transfer::offer::{EntryContent, EntrySink};
use towpath_transfer::{Outcome, Tag};

/// The caller, who goes on when nobody holds this any more: when the request has ended and all that followed from it is done.
pub struct EntryCaller {
    sink: Arc<dyn EntrySink>,
    /// Cancelled once the sink knows that it asked.
    asked: CancellationToken,
    _end: oneshot::Sender<()>,
}

impl EntryCaller {
    pub(super) const fn new(
        sink: Arc<dyn EntrySink>,
        asked: CancellationToken,
        end: oneshot::Sender<()>,
    ) -> Self {
        Self { sink, asked, _end: end }
    }

    /// Hands over contents. If this is dropped before the receiving side has taken them, as the connection has ended, their wants
    /// end as "retry later".
    pub(super) async fn contents(&self, contents: Vec<(Tag, EntryContent)>, kept: usize) {
        let tags = contents.iter().map(|(tag, _)| *tag).collect();
        let mut untaken = Untaken { caller: self, tags };
        self.asked.cancelled().await;
        self.sink.contents(contents, kept).await;
        untaken.tags.clear();
    }

    /// Hands over a run.
    pub(super) async fn run(&self, tag: Tag, run: Bytes) {
        self.sink.run(tag, run).await;
    }

    /// Ends a want.
    pub(super) fn outcome(&self, tag: Tag, outcome: Outcome) {
        self.sink.outcome(tag, outcome);
    }
}

/// Wants whose contents the receiving side has not taken.
struct Untaken<'a> {
    caller: &'a EntryCaller,
    tags: Vec<Tag>,
}

impl Drop for Untaken<'_> {
    fn drop(&mut self) {
        self.tags.iter().for_each(|tag| self.caller.outcome(*tag, Outcome::RetryLater(Duration::ZERO)));
    }
}
