//! The sending side of a copy to another machine: sends its entries, and names the content of
//! the files that the receiver requests.
//!
//! ```text
//!   scan thread ── live tree descriptor ──────► control stream
//!        │ where each file is (a window of them)
//!        ▼                                     `Get`s of entries, over any connection
//!   EntryTable ── those that are wanted ─────────► Answering: index, hash ──► contents
//! ```
//!
//! A file that nobody requests is not opened. Requests are answered in `answering`. What is not in the answers is fetched by
//! the receiver like any object, as `Offers` allows.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::watch;
use towpath_api::copy::CopyOptions;
use towpath_content::tree::{Encoder, Event, Time};
use towpath_files::FileError;
use towpath_protocol::offer::{EntryAsk, Offer};
use towpath_protocol::{ControlSender, Replies};
use towpath_store::DiskStore;

use super::answering::{AnswerRules, Answering, Scope};
use super::events::{Events, failed_at, failed_to_read, left_out};
use super::file_result::FileResult;
use super::message::{Considered, Empty, MOST_SETTLED, Message, Settled, TreeBytes, internal, violation};
use super::offers::Offers;
use super::removal::Removal;
use super::source::{Located, SourceStep, Sources};
use crate::error::CopyError;
use towpath_content::lock::lock;

/// Entries that the scan may be ahead of the receiver.
const WINDOW: usize = 64 << 10;
/// Bytes of descriptor that the scan may be ahead of the receiver.
const WINDOW_BYTES: u64 = 16 << 20;

/// Positions of the files that the receiver may still ask for.
#[derive(Default)]
struct EntryTable {
    state: Mutex<TableState>,
    changed: Condvar,
}

#[derive(Default)]
struct TableState {
    /// Entries that the receiver has considered: all before this one.
    considered: u64,
    /// The entries sent and not considered, one after the other.
    ahead: VecDeque<Ahead>,
    bytes_ahead: u64,
    is_over: bool,
}

/// An entry that was sent.
struct Ahead {
    /// In the descriptor.
    bytes: u64,
    /// For a file that was not requested yet.
    located: Option<Located>,
}

impl TableState {
    fn is_far_ahead(&self) -> bool {
        self.ahead.len() >= WINDOW || self.bytes_ahead > WINDOW_BYTES
    }
}

impl EntryTable {
    /// Takes the next entry; waits while the receiver is far behind. False: the copy is over.
    fn add(&self, bytes: u64, located: Option<Located>) -> bool {
        let mut state = lock(&self.state);
        while state.is_far_ahead() && !state.is_over {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.ahead.push_back(Ahead { bytes, located });
        state.bytes_ahead += bytes;
        !state.is_over
    }

    fn take(&self, entry: u64) -> Option<Located> {
        let mut state = lock(&self.state);
        let at = entry.checked_sub(state.considered)?;
        state.ahead.get_mut(usize::try_from(at).ok()?)?.located.take()
    }

    /// All entries before this one, which was sent, are of no interest any more.
    fn consider(&self, entry: u64) {
        let mut state = lock(&self.state);
        while state.considered < entry
            && let Some(Ahead { bytes, .. }) = state.ahead.pop_front()
        {
            state.considered += 1;
            state.bytes_ahead -= bytes;
        }
        drop(state);
        self.changed.notify_all();
    }

    fn end(&self) {
        lock(&self.state).is_over = true;
        self.changed.notify_all();
    }
}

/// The sender of one copy.
pub struct Sender {
    events: Events,
    remove_sources: bool,
    removal: Removal,
    table: EntryTable,
    entries: AtomicU64,
    answering: Arc<Answering>,
    /// Error that keeps it from answering.
    failed: watch::Sender<Option<CopyError>>,
}

impl Offer for Sender {
    fn answer(&self, asks: Vec<EntryAsk>, replies: &Arc<Replies>) {
        self.answering.want(asks.iter().map(|ask| ask.query.entry), |entry| self.table.take(entry));
        match self.answering.answer_all(asks, replies) {
            Ok(()) => {}
            // The receiver asks again, if there is another connection.
            Err(CopyError::HungUp) => tracing::debug!("a connection was lost while it was answered"),
            Err(error) => drop(self.failed.send_replace(Some(error))),
        }
    }
}

impl Sender {
    /// A sender over `control`; `is_inspected`: something looks at all contents. Must be made within a runtime.
    pub fn new(
        store: (Arc<DiskStore>, Scope),
        offers: Arc<Offers>,
        control: ControlSender,
        events: Events,
        options: &CopyOptions,
        is_inspected: bool,
    ) -> Arc<Self> {
        let rules = AnswerRules { is_limited: options.limit_rate > 0, is_inspected };
        Arc::new(Self {
            removal: Removal::new(events.clone()),
            answering: Answering::new(store, offers, control, events.clone(), rules),
            events,
            remove_sources: options.remove_source_files,
            table: EntryTable::default(),
            entries: AtomicU64::new(0),
            failed: watch::Sender::new(None),
        })
    }

    /// Completes when it can't answer any more: the reason.
    pub async fn failed(&self) -> CopyError {
        let mut failed = self.failed.subscribe();
        let error = failed.wait_for(Option::is_some).await.ok().and_then(|error| error.clone());
        error.unwrap_or_else(|| internal("the sender is gone"))
    }

    /// Reads the sources and sends their entries; returns at the end of the tree, when the receiver may
    /// still be asking. Blocks.
    pub fn send_tree(&self, mut sources: Sources) -> Result<(), CopyError> {
        let mut encoder = Encoder::new(true);
        let mut is_incomplete = false;
        sources.read(&mut |step| match step {
            SourceStep::Walk(event, located) => self.walk(&mut encoder, &event, located),
            SourceStep::Closed => self.send(Message::Closed(self.entries.load(Ordering::Relaxed))),
            SourceStep::Failed { path, error, is_named } => {
                is_incomplete = true;
                self.events.failure_in_order(failed_to_read(&path, &error, is_named));
                Ok(())
            }
            SourceStep::Skipped { path, why } => {
                self.events.failure_in_order(left_out(path.as_os_str().as_encoded_bytes(), why));
                Ok(())
            }
        })?;
        self.removal.source_is_read();
        let rest = encoder.finish().map_err(|error| internal(&error.to_string()))?;
        if is_incomplete {
            self.send(Message::Incomplete(Empty {}))?;
        }
        self.send_entries(rest)?;
        self.send(Message::Entries(TreeBytes::default()))
    }

    fn walk(&self, encoder: &mut Encoder, event: &Event, located: Option<Located>) -> Result<(), CopyError> {
        encoder.push(event).map_err(|error| internal(&error.to_string()))?;
        let finished = encoder.take();
        if !matches!(event, Event::Leave) {
            self.entries.fetch_add(1, Ordering::Relaxed);
            if !self.table.add(finished.len() as u64, located) {
                return Err(internal("the copy is over"));
            }
        }
        self.send_entries(finished)
    }

    fn send_entries(&self, bytes: Vec<u8>) -> Result<(), CopyError> {
        let bytes = Bytes::from(bytes);
        // One block a message, so that a message never exceeds what the control stream takes.
        let block = towpath_content::tree::BLOCK;
        (0..bytes.len())
            .step_by(block)
            .try_for_each(|at| self.answering.send_entries(bytes.slice(at..bytes.len().min(at + block))))
    }

    fn send(&self, message: Message) -> Result<(), CopyError> {
        self.answering.send(message)
    }

    /// Handles a message of the receiver.
    pub fn recv(&self, message: Message) -> Result<(), CopyError> {
        match message {
            Message::Considered(considered) => self.consider(&considered),
            Message::Settled(settled) => {
                let lists = [&settled.placed, &settled.dropped, &settled.lost];
                if lists.iter().any(|list| list.len() > MOST_SETTLED) {
                    return Err(violation("more files settled at once than a message may have"));
                }
                self.settle(settled);
                Ok(())
            }
            _ => Err(violation("a message that a receiver does not send")),
        }
    }

    /// Keeps what is wanted, and forgets what else was looked at.
    fn consider(&self, considered: &Considered) -> Result<(), CopyError> {
        if considered.entry > self.entries.load(Ordering::Relaxed) {
            return Err(violation("entries that were not told of"));
        }
        let wanted = considered.runs().ok_or_else(|| violation("wanted entries that are none"))?;
        if !self.answering.want(wanted.into_iter().flatten(), |entry| self.table.take(entry)) {
            return Err(violation("more files wanted than may be under way"));
        }
        self.table.consider(considered.entry);
        Ok(())
    }

    fn settle(&self, settled: Settled) {
        for entry in settled.dropped {
            self.answering.forget(entry);
        }
        let lost = settled.lost.into_iter().filter_map(|entry| self.answering.forget(entry));
        lost.filter(|file| !file.is_told).for_each(|file| self.report_lost(&file.located));
        let placed = settled.placed.into_iter().map(|entry| (entry, FileResult::Placed));
        let unchanged = settled.unchanged.into_iter().map(|unchanged| {
            let changed = Time { seconds: unchanged.seconds, nanos: unchanged.nanos };
            let stamp = towpath_files::Stamp { inode: unchanged.inode, changed, ..Default::default() };
            (unchanged.entry, FileResult::Unchanged(stamp))
        });
        for (entry, result) in placed.chain(unchanged) {
            let file = self.answering.forget(entry);
            file.iter().filter(|_| result == FileResult::Placed).for_each(|file| self.answering.placed(file));
            let located = file.map(|file| file.located).or_else(|| self.table.take(entry));
            if let Some(located) = located.filter(|located| self.remove_sources && located.may_go(&result)) {
                self.removal.remove(located);
            }
        }
    }

    /// A file that was named and could not be read to the end.
    fn report_lost(&self, located: &Located) {
        let path = located.whole_path();
        let error = match located.open() {
            Err(error) => error,
            Ok(_) => FileError::changed("read", &path, "written to while it was read"),
        };
        self.events.failure(failed_at(&path, &error));
    }

    /// The copy is over, however it ended.
    pub fn end(&self) {
        self.table.end();
        self.answering.end();
    }
}
