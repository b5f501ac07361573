//! One connection with a server, without the connection: what is due to be said, what is heard, and whether the server is still
//! there. Pure: handed what is wanted, messages and the time.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ring::aead::NONCE_LEN;
use towpath_link::Identity;

use super::told::{Due, LIFE, ToldServer, Wish};
use crate::entry::SignedEntry;
use crate::message::{Refusal, ToClient, ToServer};
use crate::topic::Topic;

/// A server that says nothing for so long is asked, ...
pub(super) const QUIET: Duration = Duration::from_secs(60);
/// ... and if it says nothing then, it is gone.
pub(super) const PATIENCE: Duration = Duration::from_secs(15);

/// The time, by both clocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    /// Of this program.
    pub(super) instant: Instant,
    /// Milliseconds since 1970, as this machine has them.
    pub(super) millis: u64,
}

/// See the head of this module.
#[derive(Debug)]
pub(super) struct ServerSession {
    told: ToldServer,
    /// Number of the last entry that was told: each has a larger one.
    last: u64,
    /// When the server said something.
    heard: Instant,
}

/// What a server said.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// This node's address, as the server sees it.
    Seen(SocketAddr),
    /// An entry of the node that it names. Whether the ticket opens it was not looked at.
    Entry(SignedEntry),
    /// All entries that there were have been told.
    Told(Topic),
    /// It refuses something.
    Refused(Refusal),
    /// Nothing that matters.
    Nothing,
}

impl ServerSession {
    /// Of a connection that stands now.
    pub(super) fn new(now: Instant) -> Self {
        Self { told: ToldServer::default(), last: 0, heard: now }
    }

    /// What is to be told now, which counts as told. `nonce` draws at random; without that nothing can be sealed, and the end is
    /// told instead.
    pub(super) fn due(
        &mut self,
        wishes: &BTreeMap<Topic, Wish>,
        now: Moment,
        identity: &Identity,
        mut nonce: impl FnMut() -> Option<[u8; NONCE_LEN]>,
    ) -> Vec<ToServer> {
        let due = self.told.due(wishes, now.instant);
        let message = |due| match due {
            Due::Watch(topic) => ToServer::Watch(topic),
            Due::Unwatch(topic) => ToServer::Unwatch(topic),
            Due::Say(keys, entry) => {
                self.last = now.millis.max(self.last + 1);
                let times = (self.last, now.millis / 1000 + LIFE.as_secs());
                let nonce = nonce();
                let entry = entry.as_ref().filter(|_| nonce.is_some());
                let signed = SignedEntry::new(identity, &keys, times, entry, nonce.unwrap_or_default());
                ToServer::Announce(signed.to_bytes().into())
            }
        };
        due.into_iter().map(message).collect()
    }

    /// Takes what the server said. An error says why the connection is over.
    pub(super) fn hear(&mut self, now: Instant, kind: u8, body: &Bytes) -> Result<Heard, &'static str> {
        self.heard = now;
        let message = ToClient::from_frame(kind, body).map_err(|_| "the server can't be understood")?;
        Ok(match message {
            Some(ToClient::Seen(address)) => Heard::Seen(address),
            // A forged one is passed over: nothing else of the server is the worse for it.
            Some(ToClient::Entry(entry)) => {
                SignedEntry::verified(&entry).map_or(Heard::Nothing, Heard::Entry)
            }
            Some(ToClient::Told(topic)) => Heard::Told(topic),
            Some(ToClient::Refused(why)) => Heard::Refused(why),
            _ => Heard::Nothing,
        })
    }

    /// What is to be said because the server says nothing; an error if it is gone.
    pub(super) fn look(&self, now: Instant) -> Result<Option<ToServer>, &'static str> {
        let silent = now.saturating_duration_since(self.heard);
        match silent > QUIET + PATIENCE {
            true => Err("the server says nothing"),
            false => Ok((silent > QUIET).then_some(ToServer::Ping)),
        }
    }
}
