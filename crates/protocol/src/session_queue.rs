//! Messages of a session that wait for the writer task, in their order. A peer that answers what it has not read would have them
//! pile up, so there are so many places for them, and others for signatures.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::answering::MAX_ROOTS;
use super::session::MOST_ANSWERS;
use super::wire::{Body, MAX_REQUESTS};

/// Messages other than signatures. Of a peer that answers only what it has read, there are for each request that it takes at once
/// at most the cancellation of its predecessor, the request and its own cancellation, two that refuse one of its own, and in all a
/// few proofs and answers to its pings.
const MESSAGES: usize = 6 * MAX_REQUESTS + MAX_ROOTS + MOST_ANSWERS as usize;
/// Signatures: as many as a few hundred entries have that come in parts at once.
const SIGNATURES: usize = 4096;

/// A message, and its place.
type WaitingMessage = (Body, OwnedSemaphorePermit);

/// The end that the session has.
pub(super) struct SessionSender {
    messages: Arc<Semaphore>,
    signatures: Arc<Semaphore>,
    queue: mpsc::Sender<WaitingMessage>,
}

/// The end that the writer task has.
pub(super) struct SessionReceiver(mpsc::Receiver<WaitingMessage>);

/// An empty queue.
pub(super) fn session_queue() -> (SessionSender, SessionReceiver) {
    let (queue, receiver) = mpsc::channel(MESSAGES + SIGNATURES);
    let [messages, signatures] = [MESSAGES, SIGNATURES].map(|most| Arc::new(Semaphore::new(most)));
    (SessionSender { messages, signatures, queue }, SessionReceiver(receiver))
}

impl SessionSender {
    /// Puts a message into the queue; false if there is no place for it. A connection that ended takes no more.
    pub(super) fn send(&self, body: Body) -> bool {
        let places = if matches!(body, Body::Signature(_)) { &self.signatures } else { &self.messages };
        let place = Arc::clone(places).try_acquire_owned();
        // There is room for as many as have places.
        place.is_ok_and(|place| {
            let _ = self.queue.try_send((body, place));
            true
        })
    }
}

impl SessionReceiver {
    /// Waits for the next message; `None` when nothing more will come. Cancel-safe.
    pub(super) async fn recv(&mut self) -> Option<Body> {
        self.0.recv().await.map(|(body, _)| body)
    }

    /// The next message, if there is one.
    pub(super) fn try_recv(&mut self) -> Option<Body> {
        self.0.try_recv().ok().map(|(body, _)| body)
    }

    /// True if none waits.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Ping, WireSignature};

    #[test]
    fn signatures_take_no_place_of_others_and_others_none_of_theirs() {
        let (sender, mut receiver) = session_queue();
        let (ping, signature) = (Body::Ping(Ping::default()), Body::Signature(WireSignature::default()));
        let fill = |body: &Body| {
            std::iter::repeat_with(|| sender.send(body.clone())).take_while(|sent| *sent).count()
        };
        assert_eq!((fill(&signature), fill(&ping)), (SIGNATURES, MESSAGES));
        assert_eq!((fill(&signature), fill(&ping)), (0, 0));
        assert!(receiver.try_recv() == Some(signature.clone()) && !receiver.is_empty());
        assert_eq!((fill(&ping), fill(&signature)), (0, 1));
        drop(receiver);
    }
}
