//! The control stream: messages of the program above, in order, beside the data of a connection.
//!
//! Each direction has a [window](WINDOW). Messages wait in a queue of their own, from which the writer task takes first.

use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use towpath_content::lock::lock;

use super::delivery::Delivered;
use super::pace::Pace;
use super::urgent::Urgent;
pub use super::window::ControlClosed;
use super::window::{ReceiveWindow, SHORT, SendWindow, cost};
use super::wire::{Body, ControlCredit, ControlData, ControlEnd};
pub use super::wire::{MAX_MESSAGE, OVERHEAD, WINDOW};

/// The capability by which a side says in its hello that it has a control stream.
pub const CAPABILITY: &str = "control";
/// Messages that the window has room for, at most.
const MESSAGES: usize = WINDOW / OVERHEAD;
/// Reason why a peer that does not keep to the window is left.
const OVER_WINDOW: &str = "sent more on the control stream than its window allows";

/// The sending half. The stream ends for the peer when the last clone is dropped.
#[derive(Clone)]
pub struct ControlSender(Arc<StreamSending>);

/// The receiving half.
pub struct ControlReceiver {
    inbox: mpsc::Receiver<Bytes>,
    stream: Arc<ControlStream>,
}

/// Both directions of the stream, as the connection's tasks see it.
pub(super) struct ControlStream {
    /// Open once the peer's hello has come.
    window: SendWindow,
    state: Mutex<StreamState>,
}

#[derive(Default)]
struct StreamState {
    /// The peer's hello named the capability.
    is_open: bool,
    /// This side has no more to say.
    has_ended: bool,
    /// Count of what the peer sends.
    window: ReceiveWindow,
    /// Destination of the peer's messages; `None` once it has ended the stream.
    inbox: Option<mpsc::Sender<Bytes>>,
}

struct StreamSending(Arc<ControlStream>);

impl ControlStream {
    pub(super) fn new(urgent: Urgent, pace: Arc<Pace>) -> (Arc<Self>, (ControlSender, ControlReceiver)) {
        let (inbox_in, inbox) = mpsc::channel(MESSAGES);
        let state = Mutex::new(StreamState { inbox: Some(inbox_in), ..StreamState::default() });
        let stream = Arc::new(Self { window: SendWindow::new(urgent, pace), state });
        let sender = ControlSender(Arc::new(StreamSending(Arc::clone(&stream))));
        (Arc::clone(&stream), (sender, ControlReceiver { inbox, stream }))
    }

    fn state(&self) -> MutexGuard<'_, StreamState> {
        lock(&self.state)
    }

    /// The peer's hello has come.
    pub(super) fn greet(&self, peer_has_it: bool) {
        if !peer_has_it {
            return self.close();
        }
        let mut state = self.state();
        state.is_open = true;
        self.window.open();
        if state.has_ended {
            self.window.push(Body::ControlEnd(ControlEnd {}));
        }
    }

    /// Nothing more comes or goes.
    pub(super) fn close(&self) {
        self.window.close();
        self.state().inbox = None;
    }

    /// Takes data, credit or the end from the peer. Errors are reasons to close the connection.
    pub(super) fn take(&self, body: Body) -> Result<(), String> {
        match body {
            Body::ControlData(data) => self.receive(data.message),
            Body::ControlCredit(credit) => match self.window.give_back(credit.bytes) {
                true => Ok(()),
                false => Err("gave back more on the control stream than was sent".into()),
            },
            Body::ControlEnd(_) => self.end(),
            _ => Err("sent a message that does not belong on the control stream".into()),
        }
    }

    fn receive(&self, message: Bytes) -> Result<(), String> {
        if message.len() > MAX_MESSAGE {
            return Err(format!("sent a message of {} bytes on the control stream", message.len()));
        }
        let cost = cost(message.len());
        let mut state = self.state();
        let inbox = state.inbox.clone().ok_or("sent a message after the end of the control stream")?;
        if !state.window.recv(cost) {
            return Err(OVER_WINDOW.into());
        }
        drop(state);
        let message = if message.len() < SHORT { Bytes::copy_from_slice(&message) } else { message };
        match inbox.try_send(message) {
            Ok(()) => {}
            // Nobody listens any more.
            Err(TrySendError::Closed(_)) => self.took(cost),
            Err(TrySendError::Full(_)) => return Err(OVER_WINDOW.into()),
        }
        Ok(())
    }

    /// The peer has ended its direction.
    fn end(&self) -> Result<(), String> {
        match self.state().inbox.take() {
            Some(_) => Ok(()),
            None => Err("ended the control stream twice".into()),
        }
    }

    /// A message counts no longer.
    fn took(&self, cost: usize) {
        if let Some(bytes) = self.state().window.took(cost) {
            self.window.push(Body::ControlCredit(ControlCredit { bytes }));
        }
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
        self.0.0.window.send(message.len(), Body::ControlData(ControlData { message })).await
    }

    /// The rate at which the peer takes messages, and its delay.
    pub fn delivered(&self) -> Delivered {
        self.0.0.window.delivered()
    }
}

impl Drop for StreamSending {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.has_ended = true;
        if state.is_open {
            self.0.window.push(Body::ControlEnd(ControlEnd {}));
        }
    }
}

impl ControlReceiver {
    /// The peer's next message; `None` when it has ended the stream or the connection is gone.
    /// Cancel-safe.
    pub async fn next(&mut self) -> Option<Bytes> {
        let message = self.inbox.recv().await?;
        self.stream.took(cost(message.len()));
        Some(message)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::super::delivery::GIVE_BACK;
    use super::super::urgent::urgent_queue;
    use super::super::window::BRIEF;
    use super::*;

    #[test]
    fn what_nobody_listens_to_is_given_back_in_few_messages_and_all_of_it() {
        let (urgent, mut queue) = urgent_queue();
        let (stream, (_sender, receiver)) = ControlStream::new(urgent, Arc::new(Pace::new(0)));
        drop(receiver);
        let empty = Body::ControlData(ControlData { message: Bytes::new() });
        let count = 10 * WINDOW / OVERHEAD;
        for _ in 0..count {
            stream.take(empty.clone()).unwrap();
        }
        let mut given_back = 0;
        let mut messages = 0;
        while let Some(Body::ControlCredit(credit)) = queue.try_recv() {
            given_back += credit.bytes as usize;
            messages += 1;
        }
        assert_eq!((messages, given_back), (10 * WINDOW / GIVE_BACK, count * OVERHEAD));
    }

    #[tokio::test]
    async fn what_is_sent_counts_against_the_limit_and_only_what_is_long_waits_for_it() {
        let ((urgent, mut queue), pace) = (urgent_queue(), Arc::new(Pace::new(1)));
        let (stream, (sender, _receiver)) = ControlStream::new(urgent, Arc::clone(&pace));
        stream.greet(true);
        sender.send(Bytes::from_static(b"ask")).await.unwrap();
        assert!(queue.try_recv().is_some());
        assert!(pace.wait(0, Instant::now()).as_secs() > 60, "a byte a second");
        let long = sender.send(Bytes::from(vec![0; BRIEF]));
        tokio::select! {
            biased;
            _ = long => panic!("it does not wait"),
            () = std::future::ready(()) => assert!(queue.try_recv().is_none()),
        }
    }
}
