//! The calls that ask for entries, and the bounded sink that they deliver into.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::entries::EntryLedger;
use super::events::{EntryMessage, SessionEvent};
use crate::offer::{EntryContent, EntrySink, EntryWant, OfferSource, SignatureWay};
use crate::source::BoxFuture;
use crate::want::{Outcome, Tag};

/// Bytes that came and that no target has taken, at most.
const ROOM: u32 = 8 << 20;

/// Parts that calls need.
pub(super) struct EntryCalls {
    source: Arc<dyn OfferSource>,
    sink: Arc<SessionEntrySink>,
    events: mpsc::UnboundedSender<SessionEvent>,
    token: CancellationToken,
}

/// In the place of a source, where nobody offers anything.
pub(super) struct NoOffers;

struct SessionEntrySink {
    events: mpsc::UnboundedSender<SessionEvent>,
    room: Arc<Semaphore>,
}

impl EntryCalls {
    /// Calls of `source`, which end with `token`.
    pub(super) fn new(
        source: Arc<dyn OfferSource>,
        events: mpsc::UnboundedSender<SessionEvent>,
        token: CancellationToken,
    ) -> Self {
        let room = Arc::new(Semaphore::new(ROOM as usize));
        let sink = Arc::new(SessionEntrySink { events: events.clone(), room });
        Self { source, sink, events, token }
    }

    /// Asks for entries as long as any are due.
    pub(super) fn ask(&self, table: &mut EntryLedger) {
        loop {
            let wants = table.next_wants(Instant::now());
            if wants.is_empty() {
                return;
            }
            self.call(wants);
        }
    }

    fn call(&self, wants: Vec<EntryWant>) {
        let tags = wants.iter().map(|want| want.tag).collect();
        let (source, token) = (Arc::clone(&self.source), self.token.clone());
        let (sink, events) = (Arc::clone(&self.sink), self.events.clone());
        tokio::spawn(async move {
            let call = source.get_entries(wants, sink);
            let unasked = token.run_until_cancelled(call).await.unwrap_or_default();
            let _ = events.send(SessionEvent::Entry(EntryMessage::CallEnded { tags, unasked }));
        });
    }
}

impl SessionEntrySink {
    /// Waits for room; what is larger than all of it waits for that.
    async fn reserve(&self, bytes: usize) -> Option<Arc<OwnedSemaphorePermit>> {
        let bytes = u32::try_from(bytes).unwrap_or(ROOM).min(ROOM);
        Arc::clone(&self.room).acquire_many_owned(bytes).await.ok().map(Arc::new)
    }

    /// A session that ended needs no messages.
    fn send(&self, message: EntryMessage) {
        let _ = self.events.send(SessionEvent::Entry(message));
    }
}

impl EntrySink for SessionEntrySink {
    fn asked(&self, tags: &[Tag], way: Arc<dyn SignatureWay>) {
        self.send(EntryMessage::Asked { tags: tags.to_vec(), way });
    }

    fn contents(&self, contents: Vec<(Tag, EntryContent)>, kept: usize) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let room = self.reserve(kept).await;
            self.send(EntryMessage::Contents { contents, room });
        })
    }

    fn run(&self, tag: Tag, run: Bytes) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let room = self.reserve(run.len()).await;
            self.send(EntryMessage::Run { tag, run, room });
        })
    }

    fn outcome(&self, tag: Tag, outcome: Outcome) {
        self.send(EntryMessage::Outcome { tag, outcome });
    }
}

impl OfferSource for NoOffers {
    fn get_entries(&self, wants: Vec<EntryWant>, sink: Arc<dyn EntrySink>) -> BoxFuture<'_, Vec<EntryWant>> {
        wants.iter().for_each(|want| sink.outcome(want.tag, Outcome::NotHere));
        Box::pin(std::future::ready(Vec::new()))
    }
}
