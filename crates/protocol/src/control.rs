//! The control stream: messages of the program above, in order, beside the data of a connection.
//!
//! Each direction has a window of [`WINDOW`] bytes, given back as the other side takes messages, so
//! neither a slow reader nor a hostile writer costs more memory than that. Messages wait in a queue
//! of their own, from which the writer task takes first.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use thiserror::Error;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Semaphore, mpsc};

use super::delivery::{ControlDelivery, Delivered, GIVE_BACK};
use super::pace::Pace;
pub use super::wire::MAX_MESSAGE;
use super::wire::{Body, ControlCredit, ControlData, ControlEnd};

/// The capability by which a side says in its hello that it has a control stream.
pub const CAPABILITY: &str = "control";
/// Bytes of messages that may be on their way in a direction, or wait to be taken.
pub const WINDOW: usize = 4 << 20;
/// Shorter messages are copied: a frame shares its memory with those around it, of up to 304 KiB, and a message that waits
/// would keep all of that.
const SHORT: usize = 128 << 10;
/// Shorter messages do not wait for the limit of the rate, but count: others wait for what they say.
const BRIEF: usize = 4 << 10;
/// Bytes that a message counts for besides its own, so that empty ones are not for nothing.
pub const OVERHEAD: usize = 64;
/// Messages that the window has room for, at most.
const MESSAGES: usize = WINDOW / OVERHEAD;
/// Reason why a peer that does not keep to the window is left.
const OVER_WINDOW: &str = "sent more on the control stream than its window allows";

/// Nothing more can be sent: the connection is gone, or the peer has no control stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the other side takes no more messages")]
pub struct ControlClosed;

/// The sending half. The stream ends for the peer when the last clone is dropped.
#[derive(Clone)]
pub struct ControlSender(Arc<StreamSending>);

/// The receiving half.
pub struct ControlReceiver {
    inbox: mpsc::Receiver<Bytes>,
    /// Taken and not given back yet.
    taken: usize,
    stream: Arc<ControlStream>,
}

/// Queue of messages that go out before all data. It has no bound of its own, as who drops a sender cannot wait:
/// messages are bounded by the peer's window, and credit is one short message for each [`GIVE_BACK`] bytes that the peer sent.
pub(super) type Urgent = mpsc::UnboundedSender<Body>;

/// Both directions of the stream, as the connection's tasks see it.
pub(super) struct ControlStream {
    /// Bytes that may still be sent; nothing before the peer's hello.
    credit: Semaphore,
    /// Limits what is sent.
    pace: Arc<Pace>,
    state: Mutex<StreamState>,
    urgent: Urgent,
}

#[derive(Default)]
struct StreamState {
    /// The peer's hello named the capability.
    is_open: bool,
    /// This side has no more to say.
    has_ended: bool,
    /// Sent, and given back by the peer.
    delivery: ControlDelivery,
    /// Received, and not given back to the peer.
    received: usize,
    /// Received since nobody listens any more, and not given back.
    unread: usize,
    /// Destination of the peer's messages; `None` once it has ended the stream.
    inbox: Option<mpsc::Sender<Bytes>>,
}

struct StreamSending(Arc<ControlStream>);

const fn cost(message: &Bytes) -> usize {
    message.len() + OVERHEAD
}

impl ControlStream {
    pub(super) fn new(urgent: Urgent, pace: Arc<Pace>) -> (Arc<Self>, (ControlSender, ControlReceiver)) {
        let (inbox_in, inbox) = mpsc::channel(MESSAGES);
        let state = Mutex::new(StreamState { inbox: Some(inbox_in), ..StreamState::default() });
        let stream = Arc::new(Self { credit: Semaphore::new(0), pace, state, urgent });
        let sender = ControlSender(Arc::new(StreamSending(Arc::clone(&stream))));
        (Arc::clone(&stream), (sender, ControlReceiver { inbox, taken: 0, stream }))
    }

    fn state(&self) -> MutexGuard<'_, StreamState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, body: Body) {
        // A connection that ended takes no more; whoever sends finds out by its credit.
        let _ = self.urgent.send(body);
    }

    /// The peer's hello has come.
    pub(super) fn greet(&self, peer_has_it: bool) {
        if !peer_has_it {
            return self.close();
        }
        let mut state = self.state();
        state.is_open = true;
        self.credit.add_permits(WINDOW);
        if state.has_ended {
            self.push(Body::ControlEnd(ControlEnd {}));
        }
    }

    /// Nothing more comes or goes.
    pub(super) fn close(&self) {
        self.credit.close();
        self.state().inbox = None;
    }

    /// Takes data, credit or the end from the peer. Errors are reasons to close the connection.
    pub(super) fn take(&self, body: Body) -> Result<(), String> {
        match body {
            Body::ControlData(data) => self.receive(data.message),
            Body::ControlCredit(credit) => self.credit(credit.bytes),
            Body::ControlEnd(_) => self.end(),
            _ => Err("sent a message that does not belong on the control stream".into()),
        }
    }

    fn receive(&self, message: Bytes) -> Result<(), String> {
        if message.len() > MAX_MESSAGE {
            return Err(format!("sent a message of {} bytes on the control stream", message.len()));
        }
        let cost = cost(&message);
        let mut state = self.state();
        let inbox = state.inbox.clone().ok_or("sent a message after the end of the control stream")?;
        if state.received + cost > WINDOW {
            return Err(OVER_WINDOW.into());
        }
        state.received += cost;
        drop(state);
        let message = if message.len() < SHORT { Bytes::copy_from_slice(&message) } else { message };
        match inbox.try_send(message) {
            Ok(()) => {}
            Err(TrySendError::Closed(_)) => self.pass_over(cost),
            Err(TrySendError::Full(_)) => return Err(OVER_WINDOW.into()),
        }
        Ok(())
    }

    /// Nobody listens any more. What comes is given back in the same crumbs as what is taken, so that a peer that sends
    /// little messages and reads nothing does not fill the queue with credit.
    fn pass_over(&self, cost: usize) {
        let mut state = self.state();
        state.unread += cost;
        if state.unread >= GIVE_BACK {
            let unread = std::mem::take(&mut state.unread);
            drop(state);
            self.give_back(unread);
        }
    }

    /// The peer gives back credit.
    fn credit(&self, bytes: u64) -> Result<(), String> {
        let mut state = self.state();
        let bytes = usize::try_from(bytes).ok().filter(|&bytes| bytes <= state.delivery.under_way());
        let bytes = bytes.ok_or("gave back more on the control stream than was sent")?;
        state.delivery.taken(bytes, Instant::now());
        self.credit.add_permits(bytes);
        Ok(())
    }

    /// The peer has ended its direction.
    fn end(&self) -> Result<(), String> {
        match self.state().inbox.take() {
            Some(_) => Ok(()),
            None => Err("ended the control stream twice".into()),
        }
    }

    fn give_back(&self, bytes: usize) {
        self.state().received -= bytes;
        self.push(Body::ControlCredit(ControlCredit { bytes: bytes as u64 }));
    }
}

impl ControlSender {
    /// Sends a message of at most [`MAX_MESSAGE`] bytes; waits until the peer has room for it, and the limit of the rate
    /// lets it pass.
    /// Cancel-safe: a message is sent as a whole or not at all.
    pub async fn send(&self, message: Bytes) -> Result<(), ControlClosed> {
        if message.len() > MAX_MESSAGE {
            return Err(ControlClosed);
        }
        let (stream, cost) = (&self.0.0, cost(&message));
        match message.len() < BRIEF {
            true => drop(stream.pace.wait(cost as u64, Instant::now())),
            false => stream.pace.pass(cost as u64).await,
        }
        let room = stream.credit.acquire_many(cost as u32).await.map_err(|_| ControlClosed)?;
        room.forget();
        stream.state().delivery.sent(cost, Instant::now());
        stream.push(Body::ControlData(ControlData { message }));
        Ok(())
    }

    /// The rate at which the peer takes messages, and its delay.
    pub fn delivered(&self) -> Delivered {
        self.0.0.state().delivery.delivered(Instant::now())
    }
}

impl Drop for StreamSending {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.has_ended = true;
        if state.is_open {
            self.0.push(Body::ControlEnd(ControlEnd {}));
        }
    }
}

impl ControlReceiver {
    /// The peer's next message; `None` when it has ended the stream or the connection is gone.
    /// Cancel-safe.
    pub async fn next(&mut self) -> Option<Bytes> {
        let message = self.inbox.recv().await?;
        self.taken += cost(&message);
        if self.taken >= GIVE_BACK {
            self.stream.give_back(std::mem::take(&mut self.taken));
        }
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_listens_to_is_given_back_in_few_messages_and_all_of_it() {
        let (urgent, mut queue) = mpsc::unbounded_channel();
        let (stream, (_sender, receiver)) = ControlStream::new(urgent, Arc::new(Pace::new(0)));
        drop(receiver);
        let empty = Body::ControlData(ControlData { message: Bytes::new() });
        let count = 10 * WINDOW / OVERHEAD;
        for _ in 0..count {
            stream.take(empty.clone()).unwrap();
        }
        let mut given_back = 0;
        let mut messages = 0;
        while let Ok(Body::ControlCredit(credit)) = queue.try_recv() {
            given_back += credit.bytes as usize;
            messages += 1;
        }
        assert_eq!((messages, given_back), (10 * WINDOW / GIVE_BACK, count * OVERHEAD));
    }

    #[tokio::test]
    async fn what_is_sent_counts_against_the_limit_and_only_what_is_long_waits_for_it() {
        let ((urgent, mut queue), pace) = (mpsc::unbounded_channel(), Arc::new(Pace::new(1)));
        let (stream, (sender, _receiver)) = ControlStream::new(urgent, Arc::clone(&pace));
        stream.greet(true);
        sender.send(Bytes::from_static(b"ask")).await.unwrap();
        assert!(queue.try_recv().is_ok());
        assert!(pace.wait(0, Instant::now()).as_secs() > 60, "a byte a second");
        let long = sender.send(Bytes::from(vec![0; BRIEF]));
        tokio::select! {
            biased;
            _ = long => panic!("it does not wait"),
            () = std::future::ready(()) => assert!(queue.try_recv().is_err()),
        }
    }
}
