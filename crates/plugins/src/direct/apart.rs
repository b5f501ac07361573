//! What came for one call over a connection that others use, too: it waits here until the session takes it, so that a session
//! that is behind does not stop the connection. There is room for all that the call asked for.

use std::sync::Arc;

use tokio::sync::mpsc;
use towpath_transfer::source::{Backlog, Sink};
use towpath_transfer::{BoxFuture, Delivery, Outcome, Tag};

/// Sink of the call.
struct ApartSink {
    inner: Arc<dyn Sink>,
    queue: mpsc::Sender<Delivery>,
}

/// A sink for a call of so many wants, and what hands on to `inner`: it ends once the sink is dropped and all has been taken.
pub fn apart(inner: Arc<dyn Sink>, wants: usize) -> (Arc<dyn Sink>, impl Future<Output = ()> + Send) {
    let (queue, mut inbox) = mpsc::channel(wants.max(1));
    let sink = Arc::new(ApartSink { inner: Arc::clone(&inner), queue });
    let handing_on = async move {
        while let Some(delivery) = inbox.recv().await {
            inner.deliver(delivery).await;
        }
    };
    (sink, handing_on)
}

impl Sink for ApartSink {
    fn deliver(&self, delivery: Delivery) -> BoxFuture<'_, ()> {
        // Each want comes once, so this does not wait. A call that was given up takes nothing more.
        Box::pin(async move { drop(self.queue.send(delivery).await) })
    }

    fn partial_piece(&self, delivery: Delivery) {
        self.inner.partial_piece(delivery);
    }

    fn outcome(&self, tag: Tag, outcome: Outcome) {
        self.inner.outcome(tag, outcome);
    }

    fn backpressure(&self) -> Backlog {
        self.inner.backpressure()
    }
}
