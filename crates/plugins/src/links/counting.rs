//! The sink of the entries that one link is asked for: counts what it answers, and knows what it owes when it is given up.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Notify;
use towpath_content::delta::exchange::Reply;
use towpath_content::lock::lock;
use towpath_transfer::offer::{EntryBody, EntryContent, EntrySink, EntryWant, SignatureWay};
use towpath_transfer::{BoxFuture, Outcome, Tag};

use super::shares::{EntryShares, LinkKey};

/// See the head of this module.
pub(super) struct CountingSink {
    sink: Arc<dyn EntrySink>,
    shares: Arc<Mutex<EntryShares>>,
    /// Told when the link answers, or is given up.
    room: Arc<Notify>,
    link: LinkKey,
    owed: Mutex<OwedEntries>,
}

#[derive(Default)]
struct OwedEntries {
    /// Not answered.
    unanswered: HashSet<Tag>,
    /// The answer was that they come in parts, of which nobody here knows the last.
    in_parts: HashSet<Tag>,
}

impl CountingSink {
    /// For what a link is asked for; `to` is told what it answers.
    pub(super) fn new(
        sink: Arc<dyn EntrySink>,
        (shares, room): (Arc<Mutex<EntryShares>>, Arc<Notify>),
        link: LinkKey,
        wants: &[EntryWant],
    ) -> Arc<Self> {
        let unanswered = wants.iter().map(|want| want.tag).collect();
        let owed = Mutex::new(OwedEntries { unanswered, in_parts: HashSet::new() });
        Arc::new(Self { sink, shares, room, link, owed })
    }

    /// Nobody waits for the link any more: what it owes ends as that of a lost one does.
    pub(super) fn give_up(&self) {
        let OwedEntries { unanswered, in_parts } = std::mem::take(&mut *lock(&self.owed));
        lock(&self.shares).not_answered(self.link, unanswered.len());
        let lost = unanswered.into_iter().chain(in_parts);
        lost.for_each(|tag| self.sink.outcome(tag, Outcome::RetryLater(Duration::ZERO)));
        self.room.notify_waiters();
    }

    fn answered(&self, tags: impl Iterator<Item = (Tag, bool)>) {
        let mut owed = lock(&self.owed);
        let mut count = 0;
        for (tag, is_in_parts) in tags {
            let is_new = owed.unanswered.remove(&tag);
            count += usize::from(is_new);
            if is_new && is_in_parts {
                owed.in_parts.insert(tag);
            }
        }
        drop(owed);
        lock(&self.shares).answered(self.link, count, Instant::now());
        self.room.notify_waiters();
    }
}

impl Drop for CountingSink {
    fn drop(&mut self) {
        lock(&self.shares).not_answered(self.link, lock(&self.owed).unanswered.len());
        self.room.notify_waiters();
    }
}

impl EntrySink for CountingSink {
    fn asked(&self, tags: &[Tag], way: Arc<dyn SignatureWay>) {
        self.sink.asked(tags, way);
    }

    fn contents(&self, contents: Vec<(Tag, EntryContent)>, kept: usize) -> BoxFuture<'_, ()> {
        let is_in_parts = |content: &EntryContent| content.body == EntryBody::Delta(Reply::InParts);
        self.answered(contents.iter().map(|(tag, content)| (*tag, is_in_parts(content))));
        self.sink.contents(contents, kept)
    }

    fn run(&self, tag: Tag, run: Bytes) -> BoxFuture<'_, ()> {
        self.sink.run(tag, run)
    }

    fn outcome(&self, tag: Tag, outcome: Outcome) {
        lock(&self.owed).in_parts.remove(&tag);
        self.answered(std::iter::once((tag, false)));
        self.sink.outcome(tag, outcome);
    }
}
