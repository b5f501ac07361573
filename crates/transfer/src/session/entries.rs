//! Entries that are asked for by their numbers: which of them are next, what goes to the workers of what comes, and what
//! becomes of each then. Pure: handed messages and the time.
//!
//! An entry is *queued*, in the order in which they were submitted, *delayed* until a moment, or *asked for*. Each time that it
//! is asked for it has another tag, so that what comes late of a call that ended is not taken for anything else.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;

use super::entry_target::{EntryNext, EntryTarget};
use super::entry_work::{EntryEvent, EntryJob, TaggedWay, wanted_by_run};
use super::events::EntryMessage;
use super::jobs::Jobs;
use super::work::Job;
use super::{EntrySubmission, Submission};
use crate::offer::{EntryContent, EntryQuery, EntryWant, SignatureWay};
use crate::want::{Outcome, Tag};

/// Names an entry within its session; never used twice.
pub(super) type EntryKey = u64;

/// Calls under way, at most: with those for objects they leave places for questions among the requests that a connection
/// takes at once.
const MOST_CALLS: usize = 40;
/// Wants of a call, at most.
pub(super) const MOST_WANTS: usize = 256;
/// Bytes of signatures in the bases of a call, at most, but for one alone.
const MOST_SIGNED: usize = 192 << 10;
/// Delay before an entry is asked for again that its source has no answer to now, at least.
const LEAST_DELAY: Duration = Duration::from_millis(100);
/// Delay of one that could not be asked for.
const UNASKED: Duration = Duration::from_millis(200);
/// Delay of one of which its call said nothing.
const FORGOTTEN: Duration = Duration::from_millis(500);
/// Tags of wants for objects are below.
const FIRST_TAG: Tag = 1 << 63;

/// Entries that are not over. Neighbours by number are needed one after the other, and so lie beside each other.
pub(super) struct EntryLedger {
    entries: BTreeMap<EntryKey, EntryInFlight>,
    queue: BTreeSet<EntryKey>,
    delayed: BTreeSet<(Instant, EntryKey)>,
    /// Wants of the calls that are under way.
    asked: BTreeMap<Tag, AskedWant>,
    calls: usize,
    /// Since when there is no way to ask, if there is none.
    unreachable: Option<Instant>,
    /// How long that is borne.
    wait_limit: Duration,
    next_key: EntryKey,
    next_tag: Tag,
}

struct EntryInFlight {
    query: Arc<EntryQuery>,
    permit: OwnedSemaphorePermit,
    /// None while a worker has it.
    target: Option<Box<dyn EntryTarget>>,
    /// Events that wait for that worker.
    waiting: VecDeque<WaitingEvent>,
    /// Its want, while something may come for it.
    tag: Option<Tag>,
    /// The content of that want came.
    has_come: bool,
    way: Option<TaggedWay>,
}

struct WaitingEvent {
    event: EntryEvent,
    room: Option<Arc<OwnedSemaphorePermit>>,
}

struct AskedWant {
    key: EntryKey,
    way: Option<TaggedWay>,
}

impl EntryLedger {
    /// Nothing is asked for yet. Without a way to ask, entries end after `wait_limit`.
    pub(super) fn new(wait_limit: Duration) -> Self {
        Self {
            entries: BTreeMap::new(),
            queue: BTreeSet::new(),
            delayed: BTreeSet::new(),
            asked: BTreeMap::new(),
            calls: 0,
            unreachable: None,
            wait_limit,
            next_key: 0,
            next_tag: FIRST_TAG,
        }
    }

    /// Takes a message; returns an object that is to be fetched in an entry's place.
    pub(super) fn take(&mut self, message: EntryMessage, jobs: &Jobs, now: Instant) -> Option<Submission> {
        match message {
            EntryMessage::Submit(submissions) => submissions.into_iter().for_each(|one| self.submitted(one)),
            EntryMessage::Asked { tags, way } => tags.iter().for_each(|&tag| self.asked(tag, &way, jobs)),
            EntryMessage::Contents { contents, room } => {
                contents
                    .into_iter()
                    .for_each(|(tag, content)| self.content(tag, content, room.clone(), jobs));
            }
            EntryMessage::Run { tag, run, room } => self.run(tag, run, room, jobs),
            EntryMessage::Outcome { tag, outcome } => self.outcome(tag, outcome, jobs, now),
            EntryMessage::CallEnded { tags, unasked } => self.call_ended(&tags, &unasked, jobs, now),
            EntryMessage::Done { key, target, next } => return self.done(key, target, next, jobs),
        }
        None
    }

    /// Takes the wants of the next call; none if enough are under way, or nothing is due.
    pub(super) fn next_wants(&mut self, now: Instant) -> Vec<EntryWant> {
        self.wake(now);
        let (mut wants, mut signed) = (Vec::new(), 0);
        if self.calls >= MOST_CALLS {
            return wants;
        }
        while let Some(&key) = self.queue.first()
            && let Some(entry) = self.entries.get_mut(&key)
            && fits(&entry.query, &wants, signed)
        {
            self.queue.pop_first();
            let tag = self.next_tag;
            self.next_tag += 1;
            entry.tag = Some(tag);
            self.asked.insert(tag, AskedWant { key, way: None });
            signed += signed_len(&entry.query);
            wants.push(EntryWant { tag, query: Arc::clone(&entry.query) });
        }
        self.calls += usize::from(!wants.is_empty());
        wants
    }

    /// Time at which the next delayed one is due.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.delayed.first().map(|&(due, _)| due)
    }

    fn wake(&mut self, now: Instant) {
        while self.next_wake().is_some_and(|due| due <= now) {
            self.queue.extend(self.delayed.pop_first().map(|(_, key)| key));
        }
    }

    fn submitted(&mut self, EntrySubmission { request, permit }: EntrySubmission) {
        let entry = EntryInFlight {
            query: Arc::new(request.query),
            permit,
            target: Some(request.target),
            waiting: VecDeque::new(),
            tag: None,
            has_come: false,
            way: None,
        };
        self.entries.insert(self.next_key, entry);
        self.queue.insert(self.next_key);
        self.next_key += 1;
    }

    /// The entry that waits for what comes under this tag.
    fn current(&mut self, tag: Tag) -> Option<(EntryKey, &mut EntryInFlight)> {
        let key = self.asked.get(&tag)?.key;
        let entry = self.entries.get_mut(&key).filter(|entry| entry.tag == Some(tag))?;
        Some((key, entry))
    }

    fn asked(&mut self, tag: Tag, way: &Arc<dyn SignatureWay>, jobs: &Jobs) {
        self.unreachable = None;
        let Some(asked) = self.asked.get_mut(&tag) else { return };
        let way = TaggedWay { tag, way: Arc::clone(way) };
        asked.way = Some(way.clone());
        let Some((key, entry)) = self.current(tag) else { return };
        entry.way = Some(way);
        if entry.ahead() > 0 {
            entry.push(key, EntryEvent::Asked, None, jobs);
        }
    }

    fn content(
        &mut self,
        tag: Tag,
        content: EntryContent,
        room: Option<Arc<OwnedSemaphorePermit>>,
        jobs: &Jobs,
    ) {
        if let Some((key, entry)) = self.current(tag).filter(|(_, entry)| !entry.has_come) {
            entry.has_come = true;
            entry.push(key, EntryEvent::Content(content), room, jobs);
        }
    }

    /// One that is gone needs no runs, but the sender may wait for signatures.
    fn run(&mut self, tag: Tag, run: Bytes, room: Option<Arc<OwnedSemaphorePermit>>, jobs: &Jobs) {
        match self.current(tag).filter(|(_, entry)| entry.has_come) {
            Some((key, entry)) => entry.push(key, EntryEvent::Run(run), room, jobs),
            None => {
                let way = self.asked.get(&tag).and_then(|asked| asked.way.as_ref());
                way.into_iter().for_each(|way| way.give_up(wanted_by_run(&run)));
            }
        }
    }

    fn outcome(&mut self, tag: Tag, outcome: Outcome, jobs: &Jobs, now: Instant) {
        let Some((key, entry)) = self.current(tag) else { return };
        match outcome {
            Outcome::RetryLater(delay) if !entry.has_come => self.delay(key, now + delay.max(LEAST_DELAY)),
            outcome => entry.end(key, outcome, jobs),
        }
    }

    /// A source that keeps the contract answered each want before it returned, or returned it. One that does not must
    /// not hang the session.
    fn call_ended(&mut self, tags: &[Tag], unasked: &[EntryWant], jobs: &Jobs, now: Instant) {
        self.calls -= 1;
        if !unasked.is_empty() {
            self.unreachable.get_or_insert(now);
        }
        let unasked: HashSet<Tag> = unasked.iter().map(|want| want.tag).collect();
        for tag in tags {
            match self.current(*tag) {
                Some((key, entry)) if entry.has_come => {
                    entry.end(key, Outcome::RetryLater(Duration::ZERO), jobs);
                }
                Some((key, _)) if unasked.contains(tag) => self.delay(key, now + UNASKED),
                Some((key, entry)) => {
                    tracing::warn!(entry = entry.query.entry, "an entry was left without an answer");
                    self.delay(key, now + FORGOTTEN);
                }
                None => {}
            }
            self.asked.remove(tag);
        }
    }

    /// Ends what can't be asked for if there was no way for too long.
    pub(super) fn look_for_stall(&mut self, jobs: &Jobs, now: Instant) {
        let waited = self.unreachable.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        if waited < self.wait_limit || self.unreachable.is_none() {
            return;
        }
        self.unreachable = None;
        let delayed = std::mem::take(&mut self.delayed).into_iter().map(|(_, key)| key);
        for key in std::mem::take(&mut self.queue).into_iter().chain(delayed) {
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.end(key, Outcome::RetryLater(waited), jobs);
            }
        }
    }

    /// A worker is done with an event.
    fn done(
        &mut self,
        key: EntryKey,
        target: Option<Box<dyn EntryTarget>>,
        next: EntryNext,
        jobs: &Jobs,
    ) -> Option<Submission> {
        let entry = self.entries.get_mut(&key)?;
        entry.target = target;
        match next {
            EntryNext::More => entry.go_on(key, jobs),
            EntryNext::Again(query) => {
                entry.forget_want();
                entry.query = Arc::new(query);
                self.queue.insert(key);
            }
            EntryNext::Over => drop(self.leave(key)),
            EntryNext::Fetch(fetch) => {
                let (request, on_done) = *fetch;
                return self.leave(key).map(|permit| Submission { request, on_done, permit });
            }
        }
        None
    }

    /// It is asked for once more, then.
    fn delay(&mut self, key: EntryKey, due: Instant) {
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.forget_want();
            self.delayed.insert((due, key));
        }
    }

    /// It is over; returns its slot.
    fn leave(&mut self, key: EntryKey) -> Option<OwnedSemaphorePermit> {
        let mut entry = self.entries.remove(&key)?;
        entry.forget_want();
        Some(entry.permit)
    }
}

impl EntryInFlight {
    /// Signatures that follow the question at once.
    fn ahead(&self) -> u64 {
        self.query.base.as_ref().map_or(0, |request| request.base.ahead())
    }

    fn push(
        &mut self,
        key: EntryKey,
        event: EntryEvent,
        room: Option<Arc<OwnedSemaphorePermit>>,
        jobs: &Jobs,
    ) {
        let event = WaitingEvent { event, room };
        match self.waiting.is_empty() {
            true => {
                let waits = self.hand(key, event, jobs);
                self.waiting.extend(waits);
            }
            false => self.waiting.push_back(event),
        }
    }

    /// Nothing more comes for its want.
    fn end(&mut self, key: EntryKey, outcome: Outcome, jobs: &Jobs) {
        self.tag = None;
        self.push(key, EntryEvent::Ended(outcome), None, jobs);
    }

    /// Hands the next event to a worker, unless one has the target.
    fn go_on(&mut self, key: EntryKey, jobs: &Jobs) {
        if let Some(event) = self.waiting.pop_front() {
            let waits = self.hand(key, event, jobs);
            waits.into_iter().for_each(|event| self.waiting.push_front(event));
        }
    }

    /// Hands an event to a worker; returns it if one has the target.
    fn hand(&mut self, key: EntryKey, event: WaitingEvent, jobs: &Jobs) -> Option<WaitingEvent> {
        let Some(target) = self.target.take() else { return Some(event) };
        let WaitingEvent { event, room } = event;
        jobs.send(Job::Entry(EntryJob { key, target, event, room, way: self.way.clone() }));
        None
    }

    /// What came or comes for its want counts no more. The sender gets no signatures that it waits for.
    fn forget_want(&mut self) {
        (self.tag, self.has_come) = (None, false);
        let ahead = self.ahead();
        let wanted = self.waiting.drain(..).map(|waiting| match waiting.event {
            EntryEvent::Asked => ahead,
            EntryEvent::Run(run) => wanted_by_run(&run),
            EntryEvent::Content(_) | EntryEvent::Ended(_) => 0,
        });
        let wanted = wanted.sum();
        self.way.take().into_iter().for_each(|way| way.give_up(wanted));
    }
}

/// True if a call with `wants`, with so many bytes of signatures, may have one more.
fn fits(query: &EntryQuery, wants: &[EntryWant], signed: usize) -> bool {
    let alike = |first: &EntryWant| (first.query.inline, first.query.pack) == (query.inline, query.pack);
    let has_room = || wants.len() < MOST_WANTS && signed + signed_len(query) <= MOST_SIGNED;
    wants.first().is_none_or(|first| alike(first) && has_room())
}

fn signed_len(query: &EntryQuery) -> usize {
    query.base.as_ref().map_or(0, |request| request.base.signature_len())
}
