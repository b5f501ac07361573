//! Gate at which the threads of a runtime wait until it is known what they may write.
//!
//! The far end of a copy learns from the first message what it is to write. What reads that message
//! starts a thread for answers before: with [`Gate::pass`] as the first thing that such threads do,
//! none of them does anything else before it has its limits. And whoever opens the gate counts the
//! threads of this process: one that does not wait here would be without limits for ever.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use super::{ConfinementError, Enforced, Limits, Writable};
use towpath_content::lock::lock;

/// Time that threads have to come to the gate; they are on their way.
const WAIT_LIMIT: Duration = Duration::from_secs(10);

/// A gate that is opened once.
#[derive(Default)]
pub struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    /// Threads before the gate.
    waiting: usize,
    /// Limits that they take with them; known once the gate is opened.
    opened: Option<Option<Arc<Limits>>>,
    /// One that could not take its limits.
    failure: Option<ConfinementError>,
}

impl Gate {
    /// Waits until the gate is opened and takes the limits on, if there are any. For threads that
    /// [`Self::open`] did not find waiting it is open: they are started by such as have their limits.
    pub fn pass(&self) {
        let mut state = lock(&self.state);
        if state.opened.is_some() {
            return;
        }
        state.waiting += 1;
        self.changed.notify_all();
        let limits = loop {
            if let Some(limits) = state.opened.clone() {
                break limits;
            }
            state = self.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        };
        drop(state);
        let taken = limits.map_or(Ok(Enforced::SwitchedOff), |limits| limits.confine_thread());
        let is_confined = taken.is_ok();
        let mut state = lock(&self.state);
        match taken {
            Ok(_) => state.waiting -= 1,
            Err(error) => drop(state.failure.get_or_insert(error)),
        }
        drop(state);
        self.changed.notify_all();
        if !is_confined {
            // The one that opened the gate ends the work, and this process with it.
            loop {
                std::thread::park();
            }
        }
    }

    /// Confines the calling thread and all that wait, which must be all others, and lets those pass; without limits if there is
    /// nothing `writable` to go by. After an error the work must not begin.
    ///
    /// Takes no longer than 10 s, and blocks the calling thread, which must be the one that starts
    /// all others from now on.
    pub fn open(&self, writable: Option<&Writable>) -> Result<Enforced, ConfinementError> {
        let Some(writable) = writable else {
            self.let_pass(None)?;
            return Ok(Enforced::SwitchedOff);
        };
        let limits = Arc::new(Limits::new(writable)?);
        let enforced = limits.confine_thread()?;
        if enforced != Enforced::Not {
            self.wait_for_all(WAIT_LIMIT)?;
        }
        self.let_pass(Some(limits))?;
        Ok(enforced)
    }

    /// Waits until all threads but this one are before the gate.
    fn wait_for_all(&self, wait_limit: Duration) -> Result<(), ConfinementError> {
        let deadline = Instant::now() + wait_limit;
        let mut state = lock(&self.state);
        loop {
            let others = threads()?.saturating_sub(1);
            let (waiting, left) = (state.waiting, deadline.saturating_duration_since(Instant::now()));
            if others == waiting {
                return Ok(());
            }
            if left.is_zero() {
                return Err(ConfinementError::Threads { others, waiting });
            }
            // A thread that ended says nothing.
            let part = left.min(Duration::from_millis(50));
            let woken = self.changed.wait_timeout(state, part);
            state = woken.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }

    fn let_pass(&self, limits: Option<Arc<Limits>>) -> Result<(), ConfinementError> {
        let mut state = lock(&self.state);
        state.opened = Some(limits);
        self.changed.notify_all();
        while state.waiting > 0 && state.failure.is_none() {
            state = self.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        state.failure.take().map_or(Ok(()), Err)
    }
}

/// Threads of this process.
fn threads() -> Result<usize, ConfinementError> {
    let threads = std::fs::read_dir("/proc/self/task").map(Iterator::count);
    threads.map_err(|source| ConfinementError::Io { what: "counting threads in /proc/self/task", source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_does_not_wait_keeps_the_gate_closed() {
        // The harness has threads of its own, which wait nowhere.
        let refused = Gate::default().wait_for_all(Duration::from_millis(100));
        assert!(matches!(refused, Err(ConfinementError::Threads { others: 1.., waiting: 0 })));
    }

    #[test]
    fn without_limits_whoever_waits_passes() {
        let gate = Arc::new(Gate::default());
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let gate = Arc::clone(&gate);
                std::thread::spawn(move || gate.pass())
            })
            .collect();
        assert_eq!(gate.open(None).unwrap(), Enforced::SwitchedOff);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        gate.pass();
    }
}
