//! Sink of one call: it takes nothing more once the call is over or was dropped, so that nobody waits for it in vain.

use std::sync::Arc;

use tokio_util::sync::{CancellationToken, DropGuard};
use towpath_transfer::source::{Backlog, Sink};
use towpath_transfer::{BoxFuture, Delivery, Outcome, Tag};

/// See the head of this module.
pub(super) struct CallSink {
    inner: Arc<dyn Sink>,
    over: CancellationToken,
}

impl CallSink {
    /// The sink before `inner`, until the guard is dropped.
    pub(super) fn before(inner: Arc<dyn Sink>) -> (Arc<dyn Sink>, DropGuard) {
        let over = CancellationToken::new();
        let guard = over.clone().drop_guard();
        (Arc::new(Self { inner, over }), guard)
    }
}

impl Sink for CallSink {
    fn deliver(&self, delivery: Delivery) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let _ = self.over.run_until_cancelled(self.inner.deliver(delivery)).await;
        })
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
