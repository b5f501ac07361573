//! Jobs that a worker takes from the queue at once.

use std::time::Instant;

use bytes::Bytes;
use towpath_content::delta::exchange::{NextSignature, Reply};
use towpath_content::pieces::Layout;
use towpath_content::tree::Time;

use super::super::entry_work::{EntryEvent, EntryJob};
use super::super::jobs::{Jobs, Queue};
use super::super::work::Job;
use super::*;
use crate::object::ObjectInFlight;
use crate::offer::{EntryBody, EntryContent};
use crate::session::{EntryNext, EntryTarget};
use crate::source_id::SourceId;
use crate::want::{Delivery, Payload, Want, WantId};

fn object() -> Arc<ObjectInFlight> {
    Arc::new(ObjectInFlight::new(1, Oid::of(b""), Arc::new(Group::default()), Memory::new()))
}

fn check(len: u64) -> Job {
    let id = WantId::Piece { oid: Oid::of(b""), layout: Layout::of(len).unwrap(), index: 0 };
    let group = Arc::new(Group::default());
    let want = Want { group, ..Want::new(1, id) };
    let delivery = Delivery {
        tag: 1,
        payload: Payload::Zeros,
        proof: None,
        source: SourceId::other("the source", None),
        timing: (Instant::now(), Instant::now()),
        saved: 0,
    };
    Job::Check { want: Box::new(want), delivery, destinations: Vec::new(), doubted: Vec::new(), room: None }
}

/// A target that nothing reaches.
struct Unused;

impl EntryTarget for Unused {
    fn content(&mut self, _: EntryContent) -> EntryNext {
        EntryNext::Over
    }

    fn run(&mut self, _: Bytes, _: &mut dyn FnMut(&NextSignature)) -> EntryNext {
        EntryNext::Over
    }

    fn ended(&mut self, _: Outcome) -> EntryNext {
        EntryNext::Over
    }
}

fn entry(event: EntryEvent) -> Job {
    Job::Entry(EntryJob { key: 1, target: Box::new(Unused), event, room: None, way: None })
}

fn content(body: EntryBody) -> Job {
    let (oid, size, modified, is_sparse) = (None, 1000, Time::default(), false);
    entry(EntryEvent::Content(EntryContent { oid, size, modified, is_sparse, body }))
}

fn take(queue: &Queue) -> usize {
    let mut jobs = Vec::new();
    queue.take(2, &mut jobs);
    jobs.len()
}

#[test]
fn a_worker_takes_its_share_of_small_jobs_and_no_more() {
    let (jobs, queue) = Jobs::new();
    (0..10).for_each(|_| jobs.send(check(1000)));
    assert_eq!([take(&queue), take(&queue), take(&queue)], [5, 3, 1]);
    assert_eq!(take(&queue), 1);
    (0..200).for_each(|_| jobs.send(check(1000)));
    assert_eq!(take(&queue), 32);
}

#[test]
fn what_may_wait_for_a_disk_is_done_alone() {
    let (jobs, queue) = Jobs::new();
    jobs.send(Job::Recheck { object: object(), index: 0 });
    (0..3).for_each(|_| jobs.send(check(1000)));
    jobs.send(Job::Begin { object: object(), size: None });
    assert_eq!([take(&queue), take(&queue), take(&queue), take(&queue)], [1, 2, 1, 1]);
}

#[test]
fn contents_are_taken_many_at_a_time_and_what_has_to_be_made_is_made_alone() {
    let (jobs, queue) = Jobs::new();
    let whole = |len| content(EntryBody::Whole(vec![0; len].into()));
    (0..5).for_each(|_| jobs.send(whole(1000)));
    (0..3).for_each(|_| jobs.send(content(EntryBody::Named)));
    assert_eq!([take(&queue), take(&queue)], [4, 2]);
    jobs.send(whole(512 << 10));
    jobs.send(content(EntryBody::Delta(Reply::InParts)));
    jobs.send(entry(EntryEvent::Run(Bytes::new())));
    jobs.send(entry(EntryEvent::Asked));
    jobs.send(entry(EntryEvent::Ended(Outcome::NotHere)));
    assert_eq!([(); 6].map(|()| take(&queue)), [2, 1, 1, 1, 1, 1]);
}

#[test]
fn what_is_queued_is_done_after_the_end() {
    let (jobs, queue) = Jobs::new();
    jobs.send(check(1000));
    drop(jobs);
    assert_eq!([take(&queue), take(&queue)], [1, 0]);
}
