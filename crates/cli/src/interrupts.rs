//! ^C and requests to end, listened for from a moment on: whoever is told that the program is ready
//! may interrupt it at once.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens since it was made.
pub struct Interrupts {
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
}

impl Interrupts {
    /// Listens from now on. What can't be listened for ends the program as it ends any.
    pub fn listen() -> Self {
        Self {
            interrupt: signal(SignalKind::interrupt()).ok(),
            terminate: signal(SignalKind::terminate()).ok(),
        }
    }

    /// Completes at the next of them.
    pub async fn next(&mut self) {
        tokio::select! {
            () = received(self.interrupt.as_mut()) => {}
            () = received(self.terminate.as_mut()) => {}
        }
    }
}

async fn received(signal: Option<&mut Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::process::{Signal, getpid, kill_process};

    use super::*;

    #[tokio::test]
    async fn what_comes_before_it_is_waited_for_is_not_lost() {
        let mut interrupts = Interrupts::listen();
        for signal in [Signal::INT, Signal::TERM] {
            kill_process(getpid(), signal).unwrap();
            tokio::time::timeout(Duration::from_secs(10), interrupts.next()).await.unwrap();
        }
    }
}
