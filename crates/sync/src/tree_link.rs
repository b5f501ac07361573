//! The receiver's half of the tree protocol between its threads: one takes the sender's messages, one merges, one tells the
//! sender what became of files, and those that write them say so.

use std::convert::Infallible;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use towpath_protocol::{ControlReceiver, ControlSender};

use super::endpoint::{Endpoint, remote_error};
use super::file_result::FileResult;
use super::merge::Merge;
use super::message::{Message, hung_up};
use super::tree_receiving::{News, SenderStep, TreeReceiving};
use crate::error::CopyError;
use towpath_content::lock::lock;
use towpath_ssh::race::Race;
use towpath_sync_messages::race_talk::heed_move;

/// See the head of this module.
#[derive(Default)]
pub struct TreeLink {
    tree: Mutex<TreeReceiving>,
    /// Something came, news was told, or the copy is over.
    came: Condvar,
    /// There is news.
    news: Notify,
}

impl TreeLink {
    /// One of a copy that begins, and the task that tells the sender over `control`.
    pub fn start(control: ControlSender) -> (Arc<Self>, JoinHandle<()>) {
        let link = Arc::new(Self::default());
        let telling = Arc::clone(&link);
        (link, tokio::spawn(async move { telling.tell(&control).await }))
    }

    /// Takes what the sender says, to the end; events go to the person, and new addresses to the race.
    pub async fn hear(
        &self,
        endpoint: &Endpoint,
        inbox: &mut ControlReceiver,
        race: Option<&Race>,
    ) -> Result<Infallible, CopyError> {
        loop {
            match Message::from_bytes(inbox.next().await.ok_or_else(hung_up)?)? {
                Message::Event(report) if !endpoint.is_remote_end => {
                    endpoint.events.pass(report, &endpoint.other).await?
                }
                Message::Fatal(fatal) => return Err(remote_error(&fatal, &endpoint.other)),
                Message::Ready(moved) if !endpoint.is_remote_end => heed_move(race, &moved),
                message => self.take(message)?,
            }
        }
    }

    /// Takes a message that is about the tree.
    pub fn take(&self, message: Message) -> Result<(), CopyError> {
        lock(&self.tree).take(message)?;
        self.came.notify_all();
        Ok(())
    }

    /// Merges what comes. Blocks.
    pub fn follow(&self, mut merge: Merge) -> Result<(), CopyError> {
        loop {
            let next = lock(&self.tree).next_step()?;
            let step = match next {
                Some(step) => step,
                None => {
                    merge.push()?;
                    self.wait_for_step()?
                }
            };
            if !merge.take(step)? {
                return merge.finish();
            }
        }
    }

    fn wait_for_step(&self) -> Result<SenderStep, CopyError> {
        let mut tree = lock(&self.tree);
        loop {
            match tree.next_step()? {
                Some(step) => return Ok(step),
                None => tree = self.came.wait(tree).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Tells the sender what it is to know, until the copy is over and it knows all.
    async fn tell(&self, control: &ControlSender) {
        loop {
            let next = lock(&self.tree).poll(Instant::now());
            match next {
                News::Send(message) => {
                    self.came.notify_all();
                    if control.send(message.into_bytes()).await.is_err() {
                        return self.end();
                    }
                }
                News::Wait(until) => tokio::time::sleep_until(until.into()).await,
                News::Nothing => self.news.notified().await,
                News::Over => return,
            }
        }
    }

    /// The entry that is being looked at is wanted.
    pub fn want(&self, entry: u64) {
        lock(&self.tree).want(entry);
    }

    /// Asks the sender for a few bytes that tell of the network, and waits for them. False: they are not here after `limit`.
    pub fn probe(&self, limit: Duration) -> bool {
        let since = Instant::now();
        lock(&self.tree).probe();
        self.news.notify_one();
        let mut tree = lock(&self.tree);
        while !tree.is_probed() {
            let Some(left) = limit.checked_sub(since.elapsed()).filter(|left| !left.is_zero()) else {
                return false;
            };
            (tree, _) = self.came.wait_timeout(tree, left).unwrap_or_else(PoisonError::into_inner);
        }
        true
    }

    /// All entries below this one were looked at.
    pub fn considered(&self, entry: u64) -> Result<(), CopyError> {
        let is_told = lock(&self.tree).considered(entry);
        self.news.notify_one();
        if is_told { Ok(()) } else { Err(hung_up()) }
    }

    /// A file is done with.
    pub fn settled(&self, entry: u64, result: FileResult) {
        lock(&self.tree).settled(entry, result);
        self.news.notify_one();
    }

    /// The copy is over, however it ended.
    pub fn end(&self) {
        lock(&self.tree).end();
        self.came.notify_all();
        self.news.notify_one();
    }
}
