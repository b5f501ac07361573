//! Sink of the network: chunks go to the session, and the driver gets a message.

use std::sync::Arc;

use tokio::sync::mpsc;
use towpath_transfer::source::{Backlog, Sink};
use towpath_transfer::want::Payload;
use towpath_transfer::{BoxFuture, Delivery, Outcome, Tag};

use super::DriverMessage;

/// Sink of the network: chunks go to the session, and the driver gets a message.
pub(super) struct NetworkSink {
    pub(super) inner: Arc<dyn Sink>,
    /// The call that the wants are of.
    pub(super) call: u64,
    pub(super) messages: mpsc::UnboundedSender<DriverMessage>,
}

impl Sink for NetworkSink {
    fn deliver(&self, delivery: Delivery) -> BoxFuture<'_, ()> {
        let (tag, call, len) = (delivery.tag, self.call, payload_len(&delivery.payload));
        let saved = u32::try_from(delivery.saved).unwrap_or(u32::MAX);
        Box::pin(async move {
            self.inner.deliver(delivery).await;
            // The driver may be gone, with all that it waits for.
            let _ = self.messages.send(DriverMessage::Arrived { tag, call, len, saved });
        })
    }

    fn outcome(&self, tag: Tag, outcome: Outcome) {
        let _ = self.messages.send(DriverMessage::Ended { tag, call: self.call, outcome });
    }

    fn backpressure(&self) -> Backlog {
        self.inner.backpressure()
    }
}

fn payload_len(payload: &Payload) -> u32 {
    u32::try_from(payload.memory()).unwrap_or(u32::MAX)
}
