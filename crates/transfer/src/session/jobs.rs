//! The queue between the session's one task and its workers. A worker takes its share of small jobs at once:
//! to hand over each by itself, and to wake a thread for it, would cost as much as the job.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::work::Job;

/// Jobs taken at once, at most.
const MOST_JOBS: usize = 32;
/// Bytes to be checked in jobs that are taken at once, at most, but for the last.
const MOST_BYTES: u64 = 512 << 10;

/// Queue of jobs that the session's task fills. Dropping it ends the workers when the queue is empty.
pub(super) struct Jobs(Arc<Queue>);

/// State that the workers share.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<QueueState>,
    more: Condvar,
}

#[derive(Default)]
struct QueueState {
    // Bounded by the sinks' room, by the task's count of rechecks and by that of entries.
    waiting: VecDeque<Job>,
    /// Workers that wait for a job.
    idle: usize,
    closed: bool,
}

impl Jobs {
    /// An empty queue, and the workers' end of it.
    pub(super) fn new() -> (Self, Arc<Queue>) {
        let queue = Arc::<Queue>::default();
        (Self(Arc::clone(&queue)), queue)
    }

    /// Queues a job, and wakes a worker if one sleeps.
    pub(super) fn send(&self, job: Job) {
        let mut state = self.0.state();
        state.waiting.push_back(job);
        let sleeps = state.idle > 0;
        drop(state);
        if sleeps {
            self.0.more.notify_one();
        }
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        self.0.state().closed = true;
        self.0.more.notify_all();
    }
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a job and moves it to `jobs`, with as many small ones behind it as one of `workers` should do
    /// alone. None when no more will come.
    pub(super) fn take(&self, workers: usize, jobs: &mut Vec<Job>) {
        let mut state = self.state();
        while state.waiting.is_empty() && !state.closed {
            state.idle += 1;
            state = self.more.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
        let most = state.waiting.len().div_ceil(workers.max(1)).min(MOST_JOBS);
        let mut bytes = state.waiting.front().map_or(0, weight);
        jobs.extend(state.waiting.pop_front());
        while jobs.len() < most
            && bytes < MOST_BYTES
            && let Some(job) = state.waiting.pop_front_if(|job| weight(job) < MOST_BYTES)
        {
            bytes += weight(&job);
            jobs.push(job);
        }
    }
}

/// The bytes of a job that is known to be quick; others are done alone, as they may wait for a disk.
fn weight(job: &Job) -> u64 {
    match job {
        Job::Check { want, .. } => want.id.len(),
        Job::Entry(job) => job.weight().unwrap_or(MOST_BYTES),
        Job::Begin { .. } | Job::Compare { .. } | Job::Recheck { .. } | Job::Complete { .. } => MOST_BYTES,
    }
}
