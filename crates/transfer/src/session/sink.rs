//! The sink that sources deliver into: bounded by bytes, so that a slow disk slows the network.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::events::SessionEvent;
use crate::source::{Backlog, BoxFuture, Sink};
use crate::want::{Delivery, Outcome, Tag};

/// One per session, shared by all calls.
pub(super) struct SessionSink {
    events: mpsc::UnboundedSender<SessionEvent>,
    room: Arc<Semaphore>,
    capacity: u32,
}

impl SessionSink {
    pub(super) fn new(events: mpsc::UnboundedSender<SessionEvent>, capacity: u32) -> Self {
        Self { events, room: Arc::new(Semaphore::new(capacity as usize)), capacity }
    }

    async fn reserve(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(self.capacity);
        Arc::clone(&self.room).acquire_many_owned(bytes).await.ok()
    }
}

impl Sink for SessionSink {
    fn deliver(&self, delivery: Delivery) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let room = self.reserve(delivery.payload.memory()).await;
            // A session that ended needs no deliveries.
            let _ = self.events.send(SessionEvent::Delivery { delivery, room });
        })
    }

    fn partial_piece(&self, delivery: Delivery) {
        let _ = self.events.send(SessionEvent::PartialPiece(delivery));
    }

    fn outcome(&self, tag: Tag, outcome: Outcome) {
        let _ = self.events.send(SessionEvent::Outcome { tag, outcome });
    }

    fn backpressure(&self) -> Backlog {
        let used = u64::from(self.capacity) - self.room.available_permits() as u64;
        Backlog { writer_backlog: used, receive_queue: 0 }
    }
}
