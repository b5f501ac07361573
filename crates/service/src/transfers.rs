//! The transfers of this service: each has a number, and what happens in any of them can be
//! listened to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{broadcast, mpsc};
use towpath_api::{Event, TransferEvent};

/// Interval at which progress is reported.
pub(crate) const PROGRESS_EVERY: Duration = Duration::from_millis(200);
/// Events kept for a listener that is slow; it misses older ones. About 100 KiB.
const KEPT: usize = 256;
/// Events on their way to one listener.
const QUEUE: usize = 16;

/// All transfers.
#[derive(Debug)]
pub(crate) struct Transfers {
    last: AtomicU64,
    gets: Arc<AtomicU64>,
    events: broadcast::Sender<TransferEvent>,
}

impl Default for Transfers {
    fn default() -> Self {
        let (events, _) = broadcast::channel(KEPT);
        Self { last: AtomicU64::new(0), gets: Arc::default(), events }
    }
}

impl Transfers {
    /// A new put of `oid`.
    pub(crate) fn begin_put(&self, oid: String) -> Transfer {
        self.begin("put", oid, None)
    }

    /// A new get of `oid`, which counts as one as long as it lives.
    pub(crate) fn begin_get(&self, oid: String) -> Transfer {
        self.gets.fetch_add(1, Ordering::Relaxed);
        self.begin("get", oid, Some(GetCount(Arc::clone(&self.gets))))
    }

    fn begin(&self, direction: &'static str, oid: String, counted: Option<GetCount>) -> Transfer {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        Transfer { number, direction, oid, events: self.events.clone(), _counted: counted }
    }

    /// Gets under way.
    pub(crate) fn gets(&self) -> u64 {
        self.gets.load(Ordering::Relaxed)
    }

    /// Events from now on.
    pub(crate) fn listen(&self) -> mpsc::Receiver<TransferEvent> {
        let (listener, inbox) = mpsc::channel(QUEUE);
        tokio::spawn(hand_on(self.events.subscribe(), listener));
        inbox
    }
}

/// One of those that are counted, until it is dropped.
#[derive(Debug)]
struct GetCount(Arc<AtomicU64>);

impl Drop for GetCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn hand_on(mut events: broadcast::Receiver<TransferEvent>, listener: mpsc::Sender<TransferEvent>) {
    loop {
        let event = tokio::select! {
            event = events.recv() => event,
            () = listener.closed() => return,
        };
        let event = match event {
            Ok(event) => event,
            Err(broadcast::error::RecvError::Lagged(count)) => TransferEvent {
                transfer: 0,
                direction: String::new(),
                oid: String::new(),
                content: None,
                event: Event::Missed { count },
            },
            Err(broadcast::error::RecvError::Closed) => return,
        };
        if listener.send(event).await.is_err() {
            return;
        }
    }
}

/// One transfer, as its events name it.
#[derive(Debug)]
pub(crate) struct Transfer {
    number: u64,
    direction: &'static str,
    oid: String,
    events: broadcast::Sender<TransferEvent>,
    _counted: Option<GetCount>,
}

impl Transfer {
    /// Tells everybody who listens. Tickets, lists and changes of entries are left out: they are for whoever asked.
    pub(crate) fn report(&self, event: &Event) {
        if self.events.receiver_count() == 0
            || matches!(
                event,
                Event::Ticket(_)
                    | Event::Terms(_)
                    | Event::Entry(_)
                    | Event::Item { .. }
                    | Event::Deleted { .. }
            )
        {
            return;
        }
        let mut event = event.clone();
        // One object has no key twice.
        let content = match &mut event {
            Event::Summary(summary) => Some(std::mem::take(&mut summary.oid)),
            _ => None,
        };
        let content = content.filter(|content| !content.is_empty());
        let (direction, oid) = (self.direction.into(), self.oid.clone());
        let _ = self.events.send(TransferEvent { transfer: self.number, direction, oid, content, event });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_slow_listener_is_told_how_many_events_it_missed() {
        let transfers = Transfers::default();
        let mut listener = transfers.listen();
        let transfer = transfers.begin_put("x".into());
        let sent = (KEPT + QUEUE) as u64 * 2;
        for _ in 0..sent {
            transfer.report(&Event::Alive);
        }
        drop((transfer, transfers));
        let (mut received, mut missed) = (0, 0);
        while let Some(event) = listener.recv().await {
            match event.event {
                Event::Missed { count } => missed += count,
                _ => received += 1,
            }
        }
        assert!(missed > 0);
        assert_eq!(received + missed, sent);
    }
}
