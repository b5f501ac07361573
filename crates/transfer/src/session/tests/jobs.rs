//! Jobs that a worker takes from the queue at once.

use std::time::Instant;

use towpath_content::pieces::Layout;

use super::super::jobs::{Jobs, Queue};
use super::super::work::Job;
use super::*;
use crate::object::ObjectInFlight;
use crate::want::{Delivery, Payload, Want, WantId};

fn object() -> Arc<ObjectInFlight> {
    Arc::new(ObjectInFlight::new(1, Oid::of(b""), Arc::new(Group::default()), Memory::new()))
}

fn check(len: u64) -> Job {
    let id = WantId::Piece { oid: Oid::of(b""), layout: Layout::of(len).unwrap(), index: 0 };
    let group = Arc::new(Group::default());
    let want = Want { tag: 1, id, positions: Vec::new(), group, origin: None, base: None, part: None };
    let delivery = Delivery {
        tag: 1,
        payload: Payload::Zeros,
        proof: None,
        source: "the source".into(),
        timing: (Instant::now(), Instant::now()),
        saved: 0,
    };
    Job::Check { want: Box::new(want), delivery, destinations: Vec::new(), room: None }
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
fn what_is_queued_is_done_after_the_end() {
    let (jobs, queue) = Jobs::new();
    jobs.send(check(1000));
    drop(jobs);
    assert_eq!([take(&queue), take(&queue)], [1, 0]);
}
