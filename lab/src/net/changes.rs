//! The scenario changes its links at its times.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use towpath_simnet::scenario::LinkChange;

use crate::emulator::Emulator;

/// Changes that are still to come; dropped, none of them does.
pub struct LinkChanges {
    /// Nothing is sent over it: its end tells.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl LinkChanges {
    /// `changes` are in the order of their times, which count from now.
    pub(super) fn start(changes: Vec<LinkChange>, emulator: Arc<Emulator>) -> Self {
        let start = Instant::now();
        let (stop, stopped) = channel();
        let thread = thread::spawn(move || {
            for change in changes {
                let rest = change.at.saturating_sub(start.elapsed());
                if stopped.recv_timeout(rest) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
                emulator.set(change.link, change.way, &change.params);
            }
        });
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for LinkChanges {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
