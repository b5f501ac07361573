//! Work on other threads, whose results are given back in the order in which it went in.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Work that waits for one thread, and results that nobody took, at most.
const WAITING: usize = 64;
/// Threads, at most: one more reads, writes and sends, and keeps no more of them busy.
const MOST: usize = 6;

/// Threads that do the same kind of work.
#[derive(Debug)]
pub struct OrderedCrew<Work, Done> {
    workers: Vec<CrewWorker<Work, Done>>,
    went_in: usize,
    came_out: usize,
}

#[derive(Debug)]
struct CrewWorker<Work, Done> {
    work: Option<SyncSender<Work>>,
    done: Receiver<Done>,
    thread: Option<JoinHandle<()>>,
}

/// Threads for work that one more prepares and takes back.
pub fn threads_beside() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).saturating_sub(1).clamp(1, MOST)
}

impl<Work: Send + 'static, Done: Send + 'static> OrderedCrew<Work, Done> {
    /// A crew of workers.
    pub fn new<Worker: FnMut(Work) -> Done + Send + 'static>(
        workers: impl IntoIterator<Item = Worker>,
    ) -> Self {
        Self { workers: workers.into_iter().map(CrewWorker::new).collect(), went_in: 0, came_out: 0 }
    }

    /// True if a result has to be taken before more work may go in.
    pub const fn is_full(&self) -> bool {
        self.went_in - self.came_out >= WAITING * self.workers.len()
    }

    /// True if there is no work under way.
    pub const fn is_idle(&self) -> bool {
        self.went_in == self.came_out
    }

    /// Gives work to the next thread. The crew must not be full.
    pub fn begin(&mut self, work: Work) {
        let worker = &self.workers[self.went_in % self.workers.len()];
        self.went_in += 1;
        // A thread that died gives no result, which whoever asks for the next one is told.
        let _ = worker.work.as_ref().map(|to| to.send(work));
    }

    /// The next result; `None`: its thread died. Some work must be under way.
    pub fn next(&mut self) -> Option<Done> {
        let worker = &self.workers[self.came_out % self.workers.len()];
        self.came_out += 1;
        worker.done.recv().ok()
    }
}

impl<Work: Send + 'static, Done: Send + 'static> CrewWorker<Work, Done> {
    fn new(mut worker: impl FnMut(Work) -> Done + Send + 'static) -> Self {
        let (work, waiting) = sync_channel(WAITING);
        let (results, done) = sync_channel(WAITING);
        let thread = std::thread::spawn(move || {
            // It ends when nobody takes results any more, or gives work.
            let _ = waiting.into_iter().try_for_each(|work| results.send(worker(work)));
        });
        Self { work: Some(work), done, thread: Some(thread) }
    }
}

/// Ends the thread.
impl<Work, Done> Drop for CrewWorker<Work, Done> {
    fn drop(&mut self) {
        self.work = None;
        while self.done.recv().is_ok() {}
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_work_however_long_each_takes() {
        for count in [1, 3] {
            let mut crew = OrderedCrew::new((0..count).map(|_| {
                |work: u32| {
                    (0..work % 7 * 1000).fold(work, |sum, more| std::hint::black_box(sum ^ more ^ more))
                }
            }));
            let mut came = Vec::new();
            for work in 0..1000 {
                while crew.is_full() {
                    came.push(crew.next().unwrap());
                }
                crew.begin(work);
            }
            while !crew.is_idle() {
                came.push(crew.next().unwrap());
            }
            assert_eq!(came, (0..1000).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_crew_that_nobody_asks_ends_and_a_thread_that_died_is_told() {
        let mut crew = OrderedCrew::new([|work: u32| assert!(work > 0)]);
        (0..20).for_each(|work| crew.begin(work));
        assert_eq!(crew.next(), None);
        let mut crew = OrderedCrew::new([|work: u32| work]);
        (0..WAITING as u32).for_each(|work| crew.begin(work));
        assert_eq!((crew.next(), crew.is_full()), (Some(0), false));
    }
}
