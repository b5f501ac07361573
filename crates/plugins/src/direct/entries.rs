//! Entries over several connections: what they bring counts for how many are wanted, as with pieces.
//!
//! Nobody knows the bytes of an entry before it comes, so each is guessed to have as many as small files have.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use towpath_content::delta::exchange::Reply;
use towpath_transfer::offer::{EntryBody, EntryContent, EntrySink, SignatureWay};
use towpath_transfer::{BoxFuture, Outcome, Tag};

use super::slots::Slots;

/// Bytes that an entry is guessed to have.
pub(super) const GUESS: u64 = 16 << 10;
/// A receiving side that takes longer than this for what came is behind: the network waits for it.
const BEHIND: Duration = Duration::from_millis(20);

/// Sink of entries, on the way to whoever asked.
pub(super) struct MeasuredEntries {
    inner: Arc<dyn EntrySink>,
    slots: Arc<Slots>,
    is_behind: AtomicBool,
}

impl MeasuredEntries {
    /// Hands on to `inner`.
    pub(super) fn new(inner: Arc<dyn EntrySink>, slots: Arc<Slots>) -> Self {
        Self { inner, slots, is_behind: AtomicBool::new(false) }
    }

    /// Hands on what brings so many bytes.
    async fn hand_on(&self, bytes: u64, handing: BoxFuture<'_, ()>) {
        let now = Instant::now();
        self.slots.arrived(bytes, !self.is_behind.load(Ordering::Relaxed), now);
        handing.await;
        self.is_behind.store(now.elapsed() > BEHIND, Ordering::Relaxed);
    }
}

/// Bytes that come with a content.
fn bytes_of(content: &EntryContent) -> u64 {
    let bytes = match &content.body {
        EntryBody::Whole(bytes) => bytes.len(),
        EntryBody::Delta(Reply::Whole(delta)) => delta.len(),
        EntryBody::Named | EntryBody::Delta(_) => 0,
    };
    bytes as u64
}

impl EntrySink for MeasuredEntries {
    fn asked(&self, tags: &[Tag], way: Arc<dyn SignatureWay>) {
        self.inner.asked(tags, way);
    }

    fn contents(&self, contents: Vec<(Tag, EntryContent)>, kept: usize) -> BoxFuture<'_, ()> {
        let bytes = contents.iter().map(|(_, content)| bytes_of(content)).sum();
        Box::pin(self.hand_on(bytes, self.inner.contents(contents, kept)))
    }

    fn run(&self, tag: Tag, run: Bytes) -> BoxFuture<'_, ()> {
        Box::pin(self.hand_on(run.len() as u64, self.inner.run(tag, run)))
    }

    fn outcome(&self, tag: Tag, outcome: Outcome) {
        self.inner.outcome(tag, outcome);
    }
}
