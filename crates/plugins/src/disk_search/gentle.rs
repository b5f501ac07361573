//! A thread for what is probably in vain: it reads from the disk only when nobody else wants to (the kernel's idle class,
//! `ioprio_set(2)`; schedulers without classes take no notice), and hashes on one core.
//!
//! Threads of the usual pool read for everybody, so this one is a pool of its own, in which all that an operation would
//! spread over several cores stays.

use std::cell::Cell;
use std::sync::OnceLock;

use rayon::{ThreadPool, ThreadPoolBuilder};

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

/// Classes of reading and writing, of the calling thread.
#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "neither std nor rustix knows ioprio_set")]
mod class {
    /// As the thread's niceness has it.
    pub const NONE: libc::c_long = 0;
    /// When nobody else reads or writes: class 3, in the bits above 13.
    pub const IDLE: libc::c_long = 3 << 13;
    /// `IOPRIO_WHO_PROCESS`, which means a thread.
    const THREAD: libc::c_long = 1;
    const THIS: libc::c_long = 0;

    /// Where the kernel refuses or lacks it, the thread reads as any other.
    pub fn set(class: libc::c_long) {
        // SAFETY: the call takes three numbers and touches no memory of this process.
        let _ = unsafe { libc::syscall(libc::SYS_ioprio_set, THREAD, THIS, class) };
    }

    #[cfg(test)]
    pub fn get() -> libc::c_long {
        // SAFETY: the call takes two numbers and touches no memory of this process.
        unsafe { libc::syscall(libc::SYS_ioprio_get, THREAD, THIS) }
    }
}

/// Other systems have no such classes.
#[cfg(not(target_os = "linux"))]
mod class {
    pub const NONE: i64 = 0;
    pub const IDLE: i64 = 1;

    pub fn set(_: i64) {}
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
