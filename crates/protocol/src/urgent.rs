//! The queue of messages that go out before all data: those of the control stream, contents and runs of entries and what
//! ends them, and credit for both.
//!
//! Who sends cannot wait for a place, as some hold a lock and some are dropped. There are as many places as messages may
//! gather for a peer that reads what it is sent. Any other peer is left.

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio_util::sync::CancellationToken;

use super::delivery::GIVE_BACK;
use super::wire::{Body, MAX_ENTRIES, MAX_REQUESTS, OVERHEAD, WINDOW};

/// Reason why a peer is left for which there is no place.
pub(super) const UNREAD: &str = "answers what it has not read";
/// Messages of two windows, credit for what came in two, the ends of all that the peer may ask for at once, and the end of
/// the control stream.
const PLACES: usize =
    2 * (WINDOW / OVERHEAD) + 2 * (WINDOW / GIVE_BACK) + MAX_REQUESTS * (MAX_ENTRIES + 1) + 1;

/// The end for those who send.
#[derive(Clone)]
pub(super) struct Urgent {
    queue: mpsc::Sender<Body>,
    overrun: CancellationToken,
}

/// The end that the writer task has.
pub(super) struct UrgentReceiver {
    queue: mpsc::Receiver<Body>,
    overrun: CancellationToken,
}

/// An empty queue.
pub(super) fn urgent_queue() -> (Urgent, UrgentReceiver) {
    let ((sender, queue), overrun) = (mpsc::channel(PLACES), CancellationToken::new());
    (Urgent { queue: sender, overrun: overrun.clone() }, UrgentReceiver { queue, overrun })
}

impl Urgent {
    /// Sends a message behind those that were sent. A connection that ended takes no more; who sends finds out otherwise.
    pub(super) fn send(&self, body: Body) {
        if let Err(TrySendError::Full(_)) = self.queue.try_send(body) {
            self.overrun.cancel();
        }
    }
}

impl UrgentReceiver {
    /// Waits for the next message. Cancel-safe.
    pub(super) async fn recv(&mut self) -> Option<Body> {
        self.queue.recv().await
    }

    /// The next message, if there is one.
    pub(super) fn try_recv(&mut self) -> Option<Body> {
        self.queue.try_recv().ok()
    }

    /// True if none waits.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Completes when there was no place for a message.
    pub(super) fn overrun(&self) -> impl Future<Output = ()> + use<> {
        self.overrun.clone().cancelled_owned()
    }
}
