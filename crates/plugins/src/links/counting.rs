//! The sink of the entries that one link is asked for: counts what it answers, and knows what it owes when it is given up.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Notify;
use towpath_content::delta::exchange::Reply;
use towpath_content::lock::lock;
use towpath_transfer::offer::{EntryBody, EntryContent, EntrySink, EntryWant, SignatureWay};
use towpath_transfer::{BoxFuture, Outcome, Tag};

use super::answers::AwaitedAnswers;
use super::shares::{AskNumber, EntryShares, LinkKey};

/// What all links' sinks of one call tell.
#[derive(Clone)]
pub(super) struct EntryCallSink {
    /// Whoever called.
    sink: Arc<dyn EntrySink>,
    /// What nobody answered yet.
    awaited: Arc<Mutex<AwaitedAnswers>>,
    shares: Arc<Mutex<EntryShares>>,
    /// Told when a link answers, or is given up.
    room: Arc<Notify>,
}

impl EntryCallSink {
    /// Of one call for entries.
    pub(super) fn new(
        sink: &Arc<dyn EntrySink>,
        shares: &Arc<Mutex<EntryShares>>,
        room: &Arc<Notify>,
    ) -> Self {
        let (sink, shares, room) = (Arc::clone(sink), Arc::clone(shares), Arc::clone(room));
        Self { sink, awaited: Arc::default(), shares, room }
    }
}

/// See the head of this module.
pub(super) struct CountingSink {
    call: EntryCallSink,
    link: LinkKey,
    wants: Vec<EntryWant>,
    owed: Mutex<OwedEntries>,
}

#[derive(Default)]
struct OwedEntries {
    /// Not answered, with the numbers of the questions.
    unanswered: HashMap<Tag, AskNumber>,
    /// Come in parts, of which nobody here knows the last.
    in_parts: HashSet<Tag>,
    /// Contents that are being handed on.
    handing: usize,
}

impl CountingSink {
    /// For what a link is asked for, by questions with these numbers.
    pub(super) fn new(
        call: &EntryCallSink,
        link: LinkKey,
        wants: Vec<EntryWant>,
        numbers: impl Iterator<Item = AskNumber>,
    ) -> Arc<Self> {
        let unanswered: HashMap<Tag, AskNumber> = wants.iter().map(|want| want.tag).zip(numbers).collect();
        let mut awaited = lock(&call.awaited);
        wants.iter().for_each(|want| awaited.asked(want.tag));
        drop(awaited);
        let owed = Mutex::new(OwedEntries { unanswered, ..OwedEntries::default() });
        Arc::new(Self { call: call.clone(), link, wants, owed })
    }

    /// What was not answered ends as that of a lost link does. True if entries come in parts: to begin those anew costs more than to wait
    /// for a link that may only be late.
    pub(super) fn give_up(&self) -> bool {
        let mut owed = lock(&self.owed);
        let given_up = std::mem::take(&mut owed.unanswered);
        let has_parts = !owed.in_parts.is_empty();
        drop(owed);
        let numbers: Vec<AskNumber> = given_up.values().copied().collect();
        lock(&self.call.shares).given_up(self.link, &numbers, Instant::now());
        given_up.into_keys().for_each(|tag| self.not_answered(tag, Outcome::RetryLater(Duration::ZERO)));
        self.call.room.notify_waiters();
        has_parts
    }

    /// Takes what this link was not even asked for: those that no other one will answer.
    pub(super) fn unasked(&self, mut wants: Vec<EntryWant>) -> Vec<EntryWant> {
        wants.retain(|want| self.takes(want.tag) && lock(&self.call.awaited).not_answered(want.tag));
        wants
    }

    /// Those that it owes, with a number from this one on, and that nobody else was asked for, with their numbers.
    pub(super) fn late(&self, from: AskNumber) -> Vec<(EntryWant, AskNumber)> {
        let (owed, awaited) = (lock(&self.owed), lock(&self.call.awaited));
        let number = |want: &EntryWant| owed.unanswered.get(&want.tag).copied().filter(|at| *at >= from);
        let may_be_lent = |want: &&EntryWant| may_be_lent(want) && awaited.is_lone(want.tag);
        let late = self.wants.iter().filter(may_be_lent);
        late.filter_map(|want| Some((want.clone(), number(want)?))).collect()
    }

    /// What it was asked for.
    pub(super) fn wants(&self) -> &[EntryWant] {
        &self.wants
    }

    /// The link that was asked.
    pub(super) const fn link(&self) -> LinkKey {
        self.link
    }

    /// Completes once other links have answered all that this one owes.
    pub(super) async fn until_needless(&self) {
        loop {
            let mut told = pin!(self.call.room.notified());
            told.as_mut().enable();
            if self.is_needless() {
                return;
            }
            told.await;
        }
    }

    fn is_needless(&self) -> bool {
        let (owed, awaited) = (lock(&self.owed), lock(&self.call.awaited));
        let is_busy = owed.handing > 0 || !owed.in_parts.is_empty() || owed.unanswered.is_empty();
        !is_busy && !owed.unanswered.keys().any(|tag| awaited.awaits(*tag))
    }

    /// This link owes it no more; false if it did not.
    fn takes(&self, tag: Tag) -> bool {
        let number = lock(&self.owed).unanswered.remove(&tag);
        number.into_iter().for_each(|number| lock(&self.call.shares).not_answered(self.link, &[number]));
        number.is_some()
    }

    fn not_answered(&self, tag: Tag, outcome: Outcome) {
        if lock(&self.call.awaited).not_answered(tag) {
            self.call.sink.outcome(tag, outcome);
        }
    }

    fn answered(&self, tags: &[Tag]) {
        let mut owed = lock(&self.owed);
        let numbers: Vec<AskNumber> = tags.iter().filter_map(|tag| owed.unanswered.remove(tag)).collect();
        drop(owed);
        lock(&self.call.shares).answered(self.link, &numbers, Instant::now());
    }
}

/// True if a second link may be asked for it. A delta is a conversation.
pub(super) fn may_be_lent(want: &EntryWant) -> bool {
    want.query.base.is_none()
}

impl Drop for CountingSink {
    fn drop(&mut self) {
        let numbers: Vec<AskNumber> = lock(&self.owed).unanswered.values().copied().collect();
        lock(&self.call.shares).not_answered(self.link, &numbers);
        self.call.room.notify_waiters();
    }
}

impl EntrySink for CountingSink {
    fn asked(&self, tags: &[Tag], way: Arc<dyn SignatureWay>) {
        let awaited: Vec<Tag> =
            tags.iter().copied().filter(|tag| lock(&self.call.awaited).awaits(*tag)).collect();
        self.call.sink.asked(&awaited, way);
    }

    fn contents(&self, mut contents: Vec<(Tag, EntryContent)>, kept: usize) -> BoxFuture<'_, ()> {
        let tags: Vec<Tag> = contents.iter().map(|(tag, _)| *tag).collect();
        let mut awaited = lock(&self.call.awaited);
        contents.retain(|(tag, _)| awaited.answered(*tag));
        drop(awaited);
        let is_in_parts = |content: &EntryContent| content.body == EntryBody::Delta(Reply::InParts);
        let in_parts = contents.iter().filter(|(_, content)| is_in_parts(content)).map(|(tag, _)| *tag);
        let mut owed = lock(&self.owed);
        owed.in_parts.extend(in_parts);
        owed.handing += 1;
        drop(owed);
        self.answered(&tags);
        self.call.room.notify_waiters();
        Box::pin(async move {
            if !contents.is_empty() {
                self.call.sink.contents(contents, kept).await;
            }
            lock(&self.owed).handing -= 1;
            self.call.room.notify_waiters();
        })
    }

    fn run(&self, tag: Tag, run: Bytes) -> BoxFuture<'_, ()> {
        self.call.sink.run(tag, run)
    }

    fn outcome(&self, tag: Tag, outcome: Outcome) {
        let was_owed = lock(&self.owed).unanswered.contains_key(&tag);
        self.answered(&[tag]);
        match outcome {
            Outcome::RetryLater(_) if was_owed => self.not_answered(tag, outcome),
            // It ends the runs of a content that came.
            _ if lock(&self.owed).in_parts.contains(&tag) => self.call.sink.outcome(tag, outcome),
            _ if was_owed && lock(&self.call.awaited).answered(tag) => self.call.sink.outcome(tag, outcome),
            _ => {}
        }
        self.call.room.notify_waiters();
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

    fn call(told: &Arc<Told>) -> EntryCallSink {
        let sink = Arc::clone(told) as Arc<dyn EntrySink>;
        EntryCallSink::new(&sink, &Arc::default(), &Arc::default())
    }

    fn want(tag: Tag) -> EntryWant {
        let query = EntryQuery { entry: 0, compare: false, inline: 0, pack: 0, base: None };
        EntryWant { tag, query: Arc::new(query) }
    }

    /// A delta that was given up twice was fetched whole, though its link had only been late.
    #[tokio::test]
    async fn what_comes_in_parts_goes_on_when_the_rest_is_given_up_and_late_answers_are_nobody_s() {
        let told = Arc::new(Told::default());
        let (call, wants) = (call(&told), [1, 2, 3].map(want));
        let counting = CountingSink::new(&call, 0, wants.to_vec(), 0..3);
        counting.contents(vec![(1, content(EntryBody::Delta(Reply::InParts)))], 0).await;
        assert!(counting.give_up(), "one comes in parts");
        let ended: HashSet<String> = lock(&told.0).split_off(1).into_iter().collect();
        assert_eq!(ended, ["end 2", "end 3"].map(String::from).into());
        counting.run(1, Bytes::new()).await;
        counting.contents(vec![(2, content(EntryBody::Named))], 0).await;
        counting.outcome(3, Outcome::NotHere);
        counting.outcome(1, Outcome::RetryLater(Duration::ZERO));
        assert_eq!(*lock(&told.0), ["content 1", "run 1", "end 1"]);
        let none = CountingSink::new(&call, 0, wants.to_vec(), 3..6);
        assert!(!none.give_up(), "nothing comes in parts");
    }

    /// All four ends of what two links are asked for; each is told once.
    #[tokio::test]
    async fn of_what_two_links_are_asked_for_the_first_answer_is_told_and_the_last_loss() {
        let (told, lost) = (Arc::new(Told::default()), Outcome::RetryLater(Duration::ZERO));
        let (call, wants) = (call(&told), [1, 2, 3, 4].map(want));
        let first = CountingSink::new(&call, 0, wants.to_vec(), 0..4);
        assert_eq!(
            first.late(2).iter().map(|(want, at)| (want.tag, *at)).collect::<Vec<_>>(),
            [(3, 2), (4, 3)]
        );
        let second = CountingSink::new(&call, 1, wants.to_vec(), 4..8);
        assert!(first.late(0).is_empty(), "two are asked for each, and no third one");
        second.contents(vec![(1, content(EntryBody::Named))], 0).await;
        first.contents(vec![(1, content(EntryBody::Named))], 0).await;
        first.outcome(2, lost.clone());
        second.contents(vec![(2, content(EntryBody::Named))], 0).await;
        first.outcome(3, lost.clone());
        second.outcome(3, lost);
        assert!(!first.is_needless());
        assert_eq!(second.unasked(vec![want(4)]), [], "the first one is asked");
        assert_eq!(first.unasked(vec![want(4)]), [want(4)]);
        assert_eq!(*lock(&told.0), ["content 1", "content 2", "end 3"]);
    }

    #[tokio::test]
    async fn a_link_is_needless_once_another_one_has_answered_all_that_it_owes() {
        let told = Arc::new(Told::default());
        let (call, wants) = (call(&told), [1, 2].map(want));
        let first = CountingSink::new(&call, 0, wants.to_vec(), 0..2);
        let second = CountingSink::new(&call, 1, vec![want(2)], 2..3);
        second.contents(vec![(2, content(EntryBody::Named))], 0).await;
        assert!(!first.is_needless(), "it owes one more");
        first.contents(vec![(1, content(EntryBody::Named))], 0).await;
        assert!(first.is_needless());
        first.until_needless().await;
    }
}
