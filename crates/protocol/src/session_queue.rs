//! Messages of a session that wait for the writer task, in their order. A peer that answers what it has not read would have them
//! pile up, so there are so many places for them, and others for signatures.
//!
//! Of the messages that name pieces of one request, a cancellation and the outcome of such, one waits; what comes meanwhile is
//! named by it, too.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use towpath_content::lock::lock;

use super::session::MOST_ANSWERS;
use super::wire::{Body, MAX_REQUESTS, MAX_ROOTS};

/// Messages other than signatures. Of a peer that answers only what it has read, there are for each request that it takes at once
/// at most the cancellation of its predecessor, the request and its own cancellation, each as a whole and of pieces, two that
/// refuse one of its own, the outcome of pieces of that, and in all a few proofs and answers to its pings.
const MESSAGES: usize = 9 * MAX_REQUESTS + MAX_ROOTS + MOST_ANSWERS as usize;
/// Signatures: as many as a few hundred entries have that come in parts at once.
const SIGNATURES: usize = 4096;

/// A message, and its place. If it names pieces, these wait apart, under this name.
struct WaitingMessage {
    body: Body,
    pieces: Option<PiecesName>,
    _place: OwnedSemaphorePermit,
}

/// The request that a message is about, and whether it is an outcome.
type PiecesName = (u32, bool);

/// The pieces that waiting messages name.
type WaitingPieces = Arc<Mutex<BTreeMap<PiecesName, Vec<u32>>>>;

/// The end that the session has.
pub(super) struct SessionSender {
    pieces: WaitingPieces,
    messages: Arc<Semaphore>,
    signatures: Arc<Semaphore>,
    queue: mpsc::Sender<WaitingMessage>,
}

/// The end that the writer task has.
pub(super) struct SessionReceiver {
    pieces: WaitingPieces,
    queue: mpsc::Receiver<WaitingMessage>,
}

/// An empty queue.
pub(super) fn session_queue() -> (SessionSender, SessionReceiver) {
    let (queue, receiver) = mpsc::channel(MESSAGES + SIGNATURES);
    let pieces = WaitingPieces::default();
    let [messages, signatures] = [MESSAGES, SIGNATURES].map(|most| Arc::new(Semaphore::new(most)));
    let receiver = SessionReceiver { pieces: Arc::clone(&pieces), queue: receiver };
    (SessionSender { pieces, messages, signatures, queue }, receiver)
}

/// The pieces that a message may name, and under what they wait.
const fn pieces_of(body: &mut Body) -> Option<(PiecesName, &mut Vec<u32>)> {
    match body {
        Body::Cancel(cancel) => Some(((cancel.request, false), &mut cancel.pieces)),
        Body::Outcome(outcome) => Some(((outcome.request, true), &mut outcome.pieces)),
        _ => None,
    }
}

impl WaitingMessage {
    /// The message, with the pieces that were named meanwhile.
    fn take(mut self, waiting: &WaitingPieces) -> Body {
        let named = self.pieces.and_then(|name| lock(waiting).remove(&name));
        if let Some(((_, pieces), named)) = pieces_of(&mut self.body).zip(named) {
            *pieces = named;
        }
        self.body
    }
}

impl SessionSender {
    /// Puts a message into the queue; false if there is no place for it. A connection that ended takes no more.
    pub(super) fn send(&self, mut body: Body) -> bool {
        let mut waiting = lock(&self.pieces);
        let named = pieces_of(&mut body).filter(|(_, pieces)| !pieces.is_empty());
        let named = named.map(|(name, pieces)| (name, std::mem::take(pieces)));
        if let Some((name, pieces)) = &named
            && let Some(waiting) = waiting.get_mut(name)
        {
            waiting.extend(pieces);
            return true;
        }
        let places = if matches!(body, Body::Signature(_)) { &self.signatures } else { &self.messages };
        let place = Arc::clone(places).try_acquire_owned();
        // There is room for as many as have places.
        place.is_ok_and(|place| {
            let pieces = named.as_ref().map(|(name, _)| *name);
            waiting.extend(named);
            let _ = self.queue.try_send(WaitingMessage { body, pieces, _place: place });
            true
        })
    }
}

impl SessionReceiver {
    /// Waits for the next message; `None` when nothing more will come. Cancel-safe.
    pub(super) async fn recv(&mut self) -> Option<Body> {
        let message = self.queue.recv().await;
        message.map(|message| message.take(&self.pieces))
    }

    /// The next message, if there is one.
    pub(super) fn try_recv(&mut self) -> Option<Body> {
        let message = self.queue.try_recv();
        message.ok().map(|message| message.take(&self.pieces))
    }

    /// True if none waits.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Ping, WireCancel, WireOutcome, WireSignature};

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

    #[test]
    fn one_message_names_all_pieces_that_wait_and_a_whole_request_is_none_of_them() {
        let (sender, mut receiver) = session_queue();
        let cancel = |request, pieces| Body::Cancel(WireCancel { request, pieces });
        for (request, pieces) in [(1, vec![0, 1]), (2, vec![7, 0]), (1, vec![0, 2, 3, 0]), (1, Vec::new())] {
            assert!(sender.send(cancel(request, pieces)));
        }
        let ended = Body::Outcome(WireOutcome::cancelled(1, vec![9, 9]));
        assert!(sender.send(ended.clone()));
        let first = [cancel(1, vec![0, 1, 0, 2, 3, 0]), cancel(2, vec![7, 0]), cancel(1, Vec::new()), ended];
        assert_eq!(std::iter::from_fn(|| receiver.try_recv()).collect::<Vec<_>>(), first);
        for piece in 0..100_000 {
            assert!(sender.send(cancel(1, vec![0, piece])), "it takes one place");
        }
        let Some(Body::Cancel(all)) = receiver.try_recv() else { panic!() };
        assert!(all.pieces.len() == 200_000 && receiver.is_empty());
    }
}
