//! The seam to other servers: entries that clients said here go out, entries that were said elsewhere come in. What is between
//! the servers (an engine, see `towpath-rendezvous-nats`) calls three methods of [`RendezvousServer`], and nothing here knows it:
//!
//! | method | |
//! |---|---|
//! | [`RendezvousServer::news`] | each entry that a client says here, as it comes |
//! | [`RendezvousServer::said_here`] | all that were said here and hold, in parts: for a server that was away |
//! | [`RendezvousServer::take`] | an entry that was said elsewhere; it is checked, for whoever writes to an engine may lie |
//!
//! For mailboxes there is a seam of its own: [`crate::mailbox_sharing`].

use bytes::Bytes;
use tokio::sync::broadcast;
use towpath_content::NodeId;

use crate::entry::SharedEntry;
use crate::message::Refusal;
use crate::server::RendezvousServer;
use crate::topic::Topic;

/// What was said here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SaidEntry {
    /// An entry.
    Entry(SharedEntry),
    /// More than was waited for: [`RendezvousServer::said_here`] has all.
    Missed,
}

/// What clients say here from now on.
#[derive(Debug)]
pub struct EntryNews(pub(crate) broadcast::Receiver<SharedEntry>);

impl EntryNews {
    /// The next; `None` when the server is no more. Cancel-safe.
    pub async fn next(&mut self) -> Option<SaidEntry> {
        match self.0.recv().await {
            Ok(entry) => Some(SaidEntry::Entry(entry)),
            Err(broadcast::error::RecvError::Lagged(_)) => Some(SaidEntry::Missed),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}

/// How entries are shared now, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SharingStatus {
    /// Not yet, or no more, for this reason. The server goes on with what it has.
    Away(String),
    /// With all other servers.
    Shared,
}

impl RendezvousServer {
    /// What clients say here from now on.
    pub fn news(&self) -> EntryNews {
        EntryNews(self.news_sender().subscribe())
    }

    /// What clients said here and what holds, in the order of topic and node, behind `after`: as many as have together this many
    /// bytes at most. None is left when nothing comes.
    pub fn said_here(&self, after: Option<(Topic, NodeId)>, most: usize) -> Vec<SharedEntry> {
        self.with_board(|_, board| (board.said_here(after, most), Vec::new()))
    }

    /// Takes an entry that was said at another server, and tells who watches. Refused like one of a client.
    pub fn take(&self, entry: Bytes) -> Result<(), Refusal> {
        self.with_board(|now, board| match board.take(now, entry) {
            Ok(told) => (Ok(()), told),
            Err(why) => (Err(why), Vec::new()),
        })
    }
}
