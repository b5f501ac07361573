//! Answers of an [`Offer`](super::offer::Offer) on their way to the peer that asked, and signatures on their way back.
//!
//! Answers go out before data that wait, in the order of the calls. Contents and runs have a window of 4 MiB, so who sends them waits
//! for the peer, and for the limit of the rate.

use std::sync::{Arc, Mutex};

use prost::Message;
use tokio::sync::Notify;
use towpath_content::delta::exchange::{DeltaRun, NextSignature, Reply};
use towpath_content::lock::lock;
use towpath_transfer::Outcome;
use towpath_transfer::offer::{EntryBody, EntryContent};

use super::asks::{AskStates, EntryTag};
use super::delivery::Delivered;
use super::packing::pack;
use super::window::{ControlClosed, SendWindow};
use super::wire::{
    Body, ContentList, Contents, ContentsBody, MAX_CONTENTS, MAX_ENTRIES, WireContent, WireOutcome, WireRun,
};

/// Bytes that stand around a content in its list, at most.
const AROUND: usize = 16;

/// See the head of this module.
pub struct Replies {
    states: Arc<Mutex<dyn AskStates>>,
    window: SendWindow,
    /// A signature came, or something is over.
    changed: Notify,
}

/// Contents that go in one message, which may be packed.
#[derive(Default)]
pub struct ContentBatch {
    request: u32,
    list: ContentList,
    /// Bytes of it, at most.
    len: usize,
    /// Questions that end with it.
    ended: Vec<EntryTag>,
}

/// A message that is ready to be sent, and the questions that end with it. Who drops it ends them otherwise.
pub struct ReplyMessage {
    body: Option<Body>,
    ended: Vec<EntryTag>,
}

impl Replies {
    /// Answers the questions that have these states, within `window`.
    pub(super) fn new(states: Arc<Mutex<dyn AskStates>>, window: SendWindow) -> Self {
        window.open();
        Self { states, window, changed: Notify::new() }
    }

    /// Contents that answer questions of one request, in as few messages as may be. One that is too long for a message goes by its name
    /// alone. Nothing is sent of those that the peer has given up.
    pub fn batches(&self, contents: Vec<(EntryTag, EntryContent)>) -> Vec<ContentBatch> {
        let mut batches: Vec<ContentBatch> = Vec::new();
        for (tag, content) in contents {
            let is_awaited = lock(&self.states).awaits(tag);
            let is_last = content.body != EntryBody::Delta(Reply::InParts);
            let content = fitting(tag.want, content);
            let len = content.encoded_len() + AROUND;
            if !batches.last().is_some_and(|last| last.has_room(len)) {
                batches.push(ContentBatch { request: tag.request, ..ContentBatch::default() });
            }
            if let Some(last) = batches.last_mut() {
                last.ended.extend(is_last.then_some(tag));
                if is_awaited {
                    last.len += len;
                    last.list.contents.push(content);
                }
            }
        }
        batches
    }

    /// The next run of an entry whose content said that it comes in parts. The signatures that it wants are expected from now on.
    pub fn run(&self, tag: EntryTag, run: &DeltaRun<'_>) -> ReplyMessage {
        let EntryTag { request, want } = tag;
        let mut states = lock(&self.states);
        states.expect_signatures(tag, run.wanted() as u64);
        let body = || Body::Run(WireRun { request, want, bytes: run.to_bytes().into() });
        ReplyMessage { body: states.awaits(tag).then(body), ended: Vec::new() }
    }

    /// Sends what is ready, and ends the questions that end with it.
    pub async fn send(&self, message: ReplyMessage) -> Result<(), ControlClosed> {
        let ReplyMessage { body, ended } = message;
        if let Some(body) = body {
            self.window.send(body.frame_len(), body).await?;
        }
        ended.into_iter().for_each(|tag| self.end(tag));
        Ok(())
    }

    /// Ends a question: nothing more comes of it. Changes nothing if it has ended.
    pub fn end(&self, tag: EntryTag) {
        // Before the peer can know of it, its number is free again.
        let done = lock(&self.states).end_ask(tag);
        done.into_iter().for_each(|done| self.window.push(done));
    }

    /// Ends a question without a content.
    pub fn refuse(&self, tag: EntryTag, outcome: &Outcome) {
        if lock(&self.states).awaits(tag) {
            self.window.push(Body::Outcome(WireOutcome::new(tag.request, Some(tag.want), outcome)));
        }
        self.end(tag);
    }

    /// The next signature of a question, of those that its base promised or a run wanted. `None`: the connection is over, or nobody waits
    /// for an answer any more.
    pub async fn next_signature(&self, tag: EntryTag) -> Option<NextSignature> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let mut states = lock(&self.states);
                if !states.awaits(tag) {
                    return None;
                }
                if let Some(signature) = states.take_signature(tag) {
                    return Some(signature);
                }
            }
            changed.await;
        }
    }

    /// The rate at which the peer takes contents and runs, and its delay.
    pub fn delivered(&self) -> Delivered {
        self.window.delivered()
    }

    /// True if nobody waits for more of a request.
    pub fn is_over(&self, request: u32) -> bool {
        !lock(&self.states).is_under_way(request)
    }

    /// The peer gives back credit. An error is a reason to close the connection.
    pub(super) fn give_back(&self, bytes: u64) -> Result<(), String> {
        match self.window.give_back(bytes) {
            true => Ok(()),
            false => Err("gave back more of contents than was sent".into()),
        }
    }

    /// A signature came, or something is over: whoever waits looks.
    pub(super) fn wake(&self) {
        self.changed.notify_waiters();
    }

    /// The connection has ended.
    pub(super) fn close(&self) {
        self.window.close();
        self.wake();
    }
}

impl ContentBatch {
    /// As it is.
    pub fn plain(self) -> ReplyMessage {
        self.into_message(ContentsBody::List)
    }

    /// Packed with this level of zstd, if that makes it fewer bytes; and the bytes before and after. Takes long.
    pub fn packed(self, level: i32) -> (ReplyMessage, (usize, usize)) {
        let plain = self.list.encode_to_vec();
        let packed = pack(&plain, level);
        let lens = (plain.len(), packed.as_ref().map_or(plain.len(), Vec::len));
        let body =
            |list| packed.map_or(ContentsBody::List(list), |packed| ContentsBody::Packed(packed.into()));
        (self.into_message(body), lens)
    }

    fn into_message(self, body: impl FnOnce(ContentList) -> ContentsBody) -> ReplyMessage {
        let Self { request, list, ended, .. } = self;
        let is_needed = !list.contents.is_empty();
        let body = is_needed.then(|| Body::Contents(Contents { request, body: Some(body(list)) }));
        ReplyMessage { body, ended }
    }

    fn has_room(&self, len: usize) -> bool {
        self.list.contents.len() < MAX_ENTRIES && self.len + len <= MAX_CONTENTS
    }
}

/// A content that fits into a message.
fn fitting(want: u32, content: EntryContent) -> WireContent {
    let content = WireContent::new(want, content);
    match content.encoded_len() + AROUND > MAX_CONTENTS {
        true => WireContent { body: None, ..content },
        false => content,
    }
}

#[cfg(test)]
mod tests;
