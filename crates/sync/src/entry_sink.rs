//! A double for tests: takes what comes of entries that a test asks for.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::sync::mpsc;
use towpath_content::lock::lock;
use towpath_transfer::offer::{EntryContent, EntrySink, SignatureWay};
use towpath_transfer::{BoxFuture, Outcome, Tag};

/// Something that came of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Came {
    Content(EntryContent),
    Run(Bytes),
    Outcome(Outcome),
}

/// See the head of this module.
pub struct TestSink {
    came: mpsc::UnboundedSender<Came>,
    /// The way of the entries that were asked for last, and the first of them.
    way: Mutex<Option<(Tag, Arc<dyn SignatureWay>)>>,
}

impl TestSink {
    pub fn new() -> (Arc<Self>, mpsc::UnboundedReceiver<Came>) {
        let (came_in, came) = mpsc::unbounded_channel();
        (Arc::new(Self { came: came_in, way: Mutex::default() }), came)
    }

    /// The way of an entry, which is told as soon as it was asked for.
    pub async fn way(&self, tag: Tag) -> Arc<dyn SignatureWay> {
        loop {
            if let Some((_, way)) = lock(&self.way).clone().filter(|(asked, _)| *asked == tag) {
                return way;
            }
            tokio::task::yield_now().await;
        }
    }

    fn tell(&self, came: Came) {
        // A test that has ended needs no more.
        let _ = self.came.send(came);
    }
}

impl EntrySink for TestSink {
    fn asked(&self, tags: &[Tag], way: Arc<dyn SignatureWay>) {
        *lock(&self.way) = Some((tags[0], way));
    }

    fn contents(&self, contents: Vec<(Tag, EntryContent)>, _kept: usize) -> BoxFuture<'_, ()> {
        contents.into_iter().for_each(|(_, content)| self.tell(Came::Content(content)));
        Box::pin(std::future::ready(()))
    }

    fn run(&self, _tag: Tag, run: Bytes) -> BoxFuture<'_, ()> {
        self.tell(Came::Run(run));
        Box::pin(std::future::ready(()))
    }

    fn outcome(&self, _tag: Tag, outcome: Outcome) {
        self.tell(Came::Outcome(outcome));
    }
}
