//! Work on other threads, whose results are given back in the order in which it went in. If the system gives fewer threads, there are
//! fewer; if it gives none, who brings the work does it.

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

/// Threads, at most: one more reads, writes and sends, and keeps no more of them busy.
const MOST: usize = 6;

/// Threads that do the same kind of work.
pub struct OrderedCrew<Work, Done> {
    workers: Vec<CrewWorker<Work, Done>>,
    waiting: usize,
    went_in: usize,
    came_out: usize,
}

enum CrewWorker<Work, Done> {
    Thread(CrewThread<Work, Done>),
    /// Who brings the work does it.
    Here(Box<dyn FnMut(Work) -> Done + Send>, VecDeque<Done>),
}

struct CrewThread<Work, Done> {
    work: Option<SyncSender<Work>>,
    done: Receiver<Done>,
    thread: Option<JoinHandle<()>>,
}

/// What a thread does.
type ThreadMain = Box<dyn FnOnce() + Send>;

/// Threads for work that one more prepares and takes back.
pub fn threads_beside() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).saturating_sub(1).clamp(1, MOST)
}

impl<Work: Send + 'static, Done: Send + 'static> OrderedCrew<Work, Done> {
    /// A crew of workers. For each thread so much work waits, or so many results, at most.
    pub fn new<Worker: FnMut(Work) -> Done + Send + 'static>(
        waiting: usize,
        workers: impl IntoIterator<Item = Worker>,
    ) -> Self {
        Self::started(waiting, workers, |main| Builder::new().spawn(main))
    }

    /// The same on threads that `spawn` gives, or does not.
    fn started<Worker: FnMut(Work) -> Done + Send + 'static>(
        waiting: usize,
        workers: impl IntoIterator<Item = Worker>,
        mut spawn: impl FnMut(ThreadMain) -> io::Result<JoinHandle<()>>,
    ) -> Self {
        let mut there = Vec::new();
        for worker in workers {
            match CrewThread::start(waiting, worker, &mut spawn) {
                Ok(thread) => there.push(CrewWorker::Thread(thread)),
                Err(worker) if there.is_empty() => {
                    there.push(CrewWorker::Here(Box::new(worker), VecDeque::new()));
                    break;
                }
                Err(_) => break,
            }
        }
        Self { workers: there, waiting, went_in: 0, came_out: 0 }
    }

    /// True if a result has to be taken before more work may go in.
    pub const fn is_full(&self) -> bool {
        self.went_in - self.came_out >= self.waiting * self.workers.len()
    }

    /// True if there is no work under way.
    pub const fn is_idle(&self) -> bool {
        self.went_in == self.came_out
    }

    /// Gives work to the next thread. The crew must not be full.
    pub fn begin(&mut self, work: Work) {
        let next = self.went_in % self.workers.len();
        self.went_in += 1;
        match &mut self.workers[next] {
            // A thread that died gives no result, which whoever asks for the next one is told.
            CrewWorker::Thread(thread) => drop(thread.work.as_ref().map(|to| to.send(work))),
            CrewWorker::Here(worker, done) => done.push_back(worker(work)),
        }
    }

    /// The next result; `None`: its thread died. Some work must be under way.
    pub fn next_done(&mut self) -> Option<Done> {
        let next = self.came_out % self.workers.len();
        self.came_out += 1;
        match &mut self.workers[next] {
            CrewWorker::Thread(thread) => thread.done.recv().ok(),
            CrewWorker::Here(_, done) => done.pop_front(),
        }
    }
}

impl<Work: Send + 'static, Done: Send + 'static> CrewThread<Work, Done> {
    /// A thread with this worker; without a thread the worker comes back.
    fn start<Worker: FnMut(Work) -> Done + Send + 'static>(
        most: usize,
        worker: Worker,
        spawn: &mut dyn FnMut(ThreadMain) -> io::Result<JoinHandle<()>>,
    ) -> Result<Self, Worker> {
        let (work, waiting) = sync_channel(most);
        let (results, done) = sync_channel(most);
        let (give, given) = sync_channel::<Worker>(1);
        let main = move || {
            let Ok(mut worker) = given.recv() else { return };
            // It ends when nobody takes results any more, or gives work.
            let _ = waiting.into_iter().try_for_each(|work| results.send(worker(work)));
        };
        let Ok(thread) = spawn(Box::new(main)) else { return Err(worker) };
        // It waits for that.
        let _ = give.send(worker);
        Ok(Self { work: Some(work), done, thread: Some(thread) })
    }
}

/// Ends the thread.
impl<Work, Done> Drop for CrewThread<Work, Done> {
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
            let mut crew = OrderedCrew::new(
                64,
                (0..count).map(|_| {
                    |work: u32| {
                        (0..work % 7 * 1000).fold(work, |sum, more| std::hint::black_box(sum ^ more ^ more))
                    }
                }),
            );
            let mut came = Vec::new();
            for work in 0..1000 {
                while crew.is_full() {
                    came.push(crew.next_done().unwrap());
                }
                crew.begin(work);
            }
            while !crew.is_idle() {
                came.push(crew.next_done().unwrap());
            }
            assert_eq!(came, (0..1000).collect::<Vec<_>>());
        }
    }

    #[test]
    fn work_is_done_with_fewer_threads_or_none() {
        for there in 0..3 {
            let mut left = there;
            let mut crew = OrderedCrew::started(9, (0..4).map(|_| |work: u32| work + 1), |main| {
                left = usize::checked_sub(left, 1).ok_or(io::ErrorKind::WouldBlock)?;
                Builder::new().spawn(main)
            });
            assert_eq!(crew.workers.len(), there.max(1));
            let mut came = Vec::new();
            for work in 0..200 {
                while crew.is_full() {
                    came.push(crew.next_done().unwrap());
                }
                crew.begin(work);
            }
            while !crew.is_idle() {
                came.push(crew.next_done().unwrap());
            }
            assert_eq!(came, (1..=200).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_crew_that_nobody_asks_ends_and_a_thread_that_died_is_told() {
        let mut crew = OrderedCrew::new(64, [|work: u32| assert!(work > 0)]);
        (0..20).for_each(|work| crew.begin(work));
        assert_eq!(crew.next_done(), None);
        let mut crew = OrderedCrew::new(64, [|work: u32| work]);
        (0..64).for_each(|work| crew.begin(work));
        assert_eq!((crew.next_done(), crew.is_full()), (Some(0), false));
    }
}
