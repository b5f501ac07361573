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
    /// Nobody waits for these any more, though their answers may come.
    given_up: HashSet<Tag>,
    /// Some answer was that an entry comes in parts, of which nobody here knows the last.
    has_parts: bool,
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
        let owed = Mutex::new(OwedEntries { unanswered, ..OwedEntries::default() });
        Arc::new(Self { sink, shares, room, link, owed })
    }

    /// What was not answered ends as that of a lost link does. True if entries come in parts: to begin those anew costs more than to wait
    /// for a link that may only be late.
    pub(super) fn give_up(&self) -> bool {
        let mut owed = lock(&self.owed);
        owed.given_up = std::mem::take(&mut owed.unanswered);
        let (given_up, has_parts) = (owed.given_up.clone(), owed.has_parts);
        drop(owed);
        lock(&self.shares).given_up(self.link, given_up.len(), Instant::now());
        given_up.into_iter().for_each(|tag| self.sink.outcome(tag, Outcome::RetryLater(Duration::ZERO)));
        self.room.notify_waiters();
        has_parts
    }

    /// True if somebody waits for this one.
    fn is_awaited(&self, tag: Tag) -> bool {
        !lock(&self.owed).given_up.contains(&tag)
    }

    fn answered(&self, tags: impl Iterator<Item = Tag>) {
        let mut owed = lock(&self.owed);
        let count = tags.filter(|tag| owed.unanswered.remove(tag)).count();
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
        let awaited: Vec<Tag> = tags.iter().copied().filter(|tag| self.is_awaited(*tag)).collect();
        self.sink.asked(&awaited, way);
    }

    fn contents(&self, mut contents: Vec<(Tag, EntryContent)>, kept: usize) -> BoxFuture<'_, ()> {
        contents.retain(|(tag, _)| self.is_awaited(*tag));
        let is_in_parts = |content: &EntryContent| content.body == EntryBody::Delta(Reply::InParts);
        if contents.iter().any(|(_, content)| is_in_parts(content)) {
            lock(&self.owed).has_parts = true;
        }
        self.answered(contents.iter().map(|(tag, _)| *tag));
        self.sink.contents(contents, kept)
    }

    fn run(&self, tag: Tag, run: Bytes) -> BoxFuture<'_, ()> {
        self.sink.run(tag, run)
    }

    fn outcome(&self, tag: Tag, outcome: Outcome) {
        if self.is_awaited(tag) {
            self.answered(std::iter::once(tag));
            self.sink.outcome(tag, outcome);
        }
    }
}

#[cfg(test)]
mod tests {
    use towpath_content::Oid;
    use towpath_content::tree::Time;
    use towpath_transfer::offer::EntryQuery;

    use super::*;

    /// Notes what it is told.
    #[derive(Default)]
    struct Told(Mutex<Vec<String>>);

    impl EntrySink for Told {
        fn asked(&self, _: &[Tag], _: Arc<dyn SignatureWay>) {}

        fn contents(&self, contents: Vec<(Tag, EntryContent)>, _: usize) -> BoxFuture<'_, ()> {
            contents.iter().for_each(|(tag, _)| lock(&self.0).push(format!("content {tag}")));
            Box::pin(std::future::ready(()))
        }

        fn run(&self, tag: Tag, _: Bytes) -> BoxFuture<'_, ()> {
            lock(&self.0).push(format!("run {tag}"));
            Box::pin(std::future::ready(()))
        }

        fn outcome(&self, tag: Tag, _: Outcome) {
            lock(&self.0).push(format!("end {tag}"));
        }
    }

    fn content(body: EntryBody) -> EntryContent {
        let modified = Time { seconds: 0, nanos: 0 };
        EntryContent { oid: Some(Oid::of(b"x")), size: 1, modified, is_sparse: false, body }
    }

    /// A delta that was given up twice was fetched whole, though its link had only been late.
    #[tokio::test]
    async fn what_comes_in_parts_goes_on_when_the_rest_is_given_up_and_late_answers_are_nobody_s() {
        let told = Arc::new(Told::default());
        let query = Arc::new(EntryQuery { entry: 0, compare: false, inline: 0, pack: 0, base: None });
        let wants: Vec<EntryWant> = (1..4).map(|tag| EntryWant { tag, query: Arc::clone(&query) }).collect();
        let counting = CountingSink::new(Arc::clone(&told) as _, Default::default(), 0, &wants);
        counting.contents(vec![(1, content(EntryBody::Delta(Reply::InParts)))], 0).await;
        assert!(counting.give_up(), "one comes in parts");
        let ended: HashSet<String> = lock(&told.0).split_off(1).into_iter().collect();
        assert_eq!(ended, ["end 2", "end 3"].map(String::from).into());
        counting.run(1, Bytes::new()).await;
        counting.contents(vec![(2, content(EntryBody::Named))], 0).await;
        counting.outcome(3, Outcome::NotHere);
        counting.outcome(1, Outcome::RetryLater(Duration::ZERO));
        assert_eq!(*lock(&told.0), ["content 1", "run 1", "end 1"]);
        let none = CountingSink::new(told, Default::default(), 0, &wants);
        assert!(!none.give_up(), "nothing comes in parts");
    }
}
