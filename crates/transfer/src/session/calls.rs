//! The calls of the root that bring batches of wants.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::SessionConfig;
use super::events::SessionEvent;
use super::sink::SessionSink;
use super::table::ObjectTable;
use crate::source::Context;
use crate::want::Want;

/// Calls that are under way, and what further ones need.
pub(super) struct RootCalls {
    context: Context,
    config: SessionConfig,
    sink: Arc<SessionSink>,
    events: mpsc::UnboundedSender<SessionEvent>,
    token: CancellationToken,
    /// Those of the limited number.
    under_way: usize,
}

impl RootCalls {
    /// None yet. Calls end with `token`.
    pub(super) fn new(
        context: Context,
        config: SessionConfig,
        events: mpsc::UnboundedSender<SessionEvent>,
        token: CancellationToken,
    ) -> Self {
        let sink = Arc::new(SessionSink::new(events.clone(), config.buffer_bytes));
        Self { context, config, sink, events, token, under_way: 0 }
    }

    /// Hands wants to the root: chunks at once if it likes that, the rest as long as its
    /// window has room.
    pub(super) fn ask(&mut self, table: &mut ObjectTable) {
        if table.ledger.has_due_chunks(Instant::now()) && table.chunks_at_once {
            let chunks = table.ledger.next_chunks(Instant::now());
            self.call(table, chunks, false);
        }
        // With enough calls under way further wants gather, so that small files go out in batches.
        // Wants that are due leave the delayed ones in any case: those wake the loop until they do.
        let most = self.config.calls * table.root.state().sources.max(1);
        while table.ledger.has_due(Instant::now()) && self.under_way < most {
            let window = table.root.state().window;
            if window == 0 {
                return;
            }
            let room = window.saturating_sub(table.ledger.requested().all);
            // Small rooms are left to grow, so that wants go out in batches.
            if table.ledger.requested().all > 0 && room < self.config.batch_bytes.min(window / 4) {
                return;
            }
            let room = room.min(self.config.batch_bytes);
            let wants = table.ledger.next_batch(room, self.config.batch_wants, Instant::now());
            if wants.is_empty() {
                return;
            }
            self.under_way += 1;
            if table.ledger.requested().whole > 0 {
                table.meter.requested();
            }
            self.call(table, wants, true);
        }
    }

    /// One of the limited number of calls returned.
    pub(super) const fn ended(&mut self) {
        self.under_way -= 1;
    }

    fn call(&self, table: &ObjectTable, mut wants: Vec<Want>, counted: bool) {
        if wants.is_empty() {
            return;
        }
        wants.iter_mut().for_each(|want| table.locate(want));
        let batch = table.ledger.last_batch();
        let tags = wants.iter().map(|want| want.tag).collect();
        let (root, context, token) = (Arc::clone(&table.root), self.context.clone(), self.token.clone());
        let (sink, events) = (Arc::clone(&self.sink), self.events.clone());
        tokio::spawn(async move {
            let call = root.get(wants, &context, sink);
            token.run_until_cancelled(call).await;
            let _ = events.send(SessionEvent::CallEnded { tags, batch, counted });
        });
    }
}
