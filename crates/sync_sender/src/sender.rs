//! The sending side of a copy to another machine: sends its entries, and names the content of
//! the files that the receiver requests.
//!
//! ```text
//!   scan thread ── steps ──► TreeSending ── live tree descriptor ──► control stream
//!                                 │ where each file is (a window of them, and those that are wanted)
//!                                 ▼
//!   `Get`s of entries ──────► Answering: index, hash ──► contents
//! ```
//!
//! A file that nobody requests is not opened. Requests are answered in `answering`. What is not in the answers is fetched by
//! the receiver like any object, as `Offers` allows.

use std::sync::{Arc, Condvar, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::watch;
use towpath_api::copy::CopyOptions;
use towpath_content::tree::Event;
use towpath_files::FileError;
use towpath_protocol::offer::{EntryAsk, Offer};
use towpath_protocol::{ControlSender, Replies};
use towpath_store::DiskStore;

use super::answering::{AnswerRules, Answering, Scope, SentTree, WantedFile};
use super::events::{Events, failed_at, failed_to_read, left_out};
use super::file_result::FileResult;
use super::message::{Message, internal};
use super::offers::Offers;
use super::removal::Removal;
use super::source::{Located, SourceStep, Sources};
use crate::errands::Errands;
use crate::error::CopyError;
use towpath_content::lock::lock;

/// The sender of one copy.
pub struct Sender {
    runtime: Handle,
    events: Events,
    remove_sources: bool,
    removal: Removal,
    tree: Arc<SentTree>,
    /// The receiver considered entries, or the copy is over.
    moved: Condvar,
    answering: Arc<Answering>,
    /// Error that keeps it from answering.
    failed: watch::Sender<Option<CopyError>>,
}

impl Offer for Sender {
    fn answer(&self, asks: Vec<EntryAsk>, replies: &Arc<Replies>) {
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
        let tree = Arc::new(SentTree::default());
        Arc::new(Self {
            runtime: Handle::current(),
            removal: Removal::new(events.clone()),
            answering: Answering::new(Arc::clone(&tree), store, offers, control, events.clone(), rules),
            events,
            remove_sources: options.remove_source_files,
            tree,
            moved: Condvar::new(),
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
        let errands = Errands::start(&self.runtime);
        sources.read(&mut |step| {
            match step {
                SourceStep::Walk(event, located) => return self.walk(&event, located, &errands),
                SourceStep::Closed => lock(&self.tree).closed(),
                SourceStep::Failed { path, error, is_named } => {
                    lock(&self.tree).incomplete();
                    self.events.failure_in_order(failed_to_read(&path, &error, is_named));
                }
                SourceStep::Skipped { path, why } => {
                    self.events.failure_in_order(left_out(path.as_os_str().as_encoded_bytes(), why));
                }
            }
            Ok(())
        })?;
        self.removal.source_is_read();
        lock(&self.tree).finish()?;
        self.send_parts(&errands)?;
        errands.finish()
    }

    /// Waits while the receiver is far behind.
    fn walk(&self, event: &Event, located: Option<Located>, errands: &Errands) -> Result<(), CopyError> {
        let mut tree = lock(&self.tree);
        while !tree.has_room() {
            tree = self.moved.wait(tree).unwrap_or_else(PoisonError::into_inner);
        }
        tree.step(event, located)?;
        drop(tree);
        self.send_parts(errands)
    }

    fn send_parts(&self, errands: &Errands) -> Result<(), CopyError> {
        let next = || lock(&self.tree).poll();
        while let Some(part) = next() {
            self.answering.send_part(part, errands)?;
        }
        Ok(())
    }

    /// Handles a message of the receiver.
    pub fn recv(&self, message: Message) -> Result<(), CopyError> {
        let settled = lock(&self.tree).recv(message)?;
        self.moved.notify_all();
        settled.into_iter().for_each(|(result, file)| self.settle(&result, file));
        Ok(())
    }

    /// A file is done with.
    fn settle(&self, result: &FileResult, file: WantedFile) {
        self.answering.forget(&file);
        match result {
            FileResult::Lost if !file.is_told => self.report_lost(&file.located),
            FileResult::Placed => self.answering.placed(&file),
            FileResult::Lost | FileResult::Dropped | FileResult::Unchanged(_) => {}
        }
        if self.remove_sources && file.located.may_go(result) {
            self.removal.remove(file.located);
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
        lock(&self.tree).end();
        self.moved.notify_all();
        self.answering.end();
    }
}
