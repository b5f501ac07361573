//! A thread for what is probably in vain: it reads from the disk only when nobody else wants to (the kernel's idle class,
//! `ioprio_set(2)`; schedulers without classes take no notice), and hashes on one core.
//!
//! Threads of the usual pool read for everybody, so this one is a pool of its own, in which all that an operation would
//! spread over several cores stays.

use std::cell::Cell;
use std::sync::OnceLock;

use rayon::{ThreadPool, ThreadPoolBuilder};

use super::kernel as class;

/// See the head of this module. It begins with the first operation.
#[derive(Debug, Default)]
pub struct GentleThread(OnceLock<Option<ThreadPool>>);

thread_local! {
    static IS_GENTLE: Cell<bool> = const { Cell::new(false) };
}

impl GentleThread {
    /// Runs it there, and returns when it is done; here if no thread can be had.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        match self.0.get_or_init(begin) {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }
}

fn begin() -> Option<ThreadPool> {
    let builder = ThreadPoolBuilder::new().num_threads(1).thread_name(|_| "disk-search-idle".into());
    let begun = builder.start_handler(|_| {
        IS_GENTLE.set(true);
        class::set(class::IDLE);
    });
    begun.build().ok()
}

/// Runs what others wait for as any thread would.
pub fn pausing<T>(work: impl FnOnce() -> T) -> T {
    if !IS_GENTLE.get() {
        return work();
    }
    class::set(class::NONE);
    let result = work();
    class::set(class::IDLE);
    result
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn it_reads_when_nobody_else_does_but_for_what_others_wait_for() {
        let thread = GentleThread::default();
        let usual = class::get();
        let seen =
            thread.run(|| (class::get(), pausing(class::get), class::get(), rayon::current_num_threads()));
        assert_eq!((seen.0, seen.2, seen.3), (class::IDLE, class::IDLE, 1));
        assert_ne!(seen.1, class::IDLE);
        assert_eq!(pausing(class::get), usual, "any other thread is left as it is");
    }
}
