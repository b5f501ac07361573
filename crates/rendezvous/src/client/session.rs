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

/// A server is asked after so long whether it is there, ...
const QUIET: Duration = Duration::from_secs(60);
/// ... and if it says nothing then, it is gone.
const PATIENCE: Duration = Duration::from_secs(15);
/// One that says much and answers nothing does not hear: it is gone, too.
const DEAF: Duration = Duration::from_secs(150);

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
    /// When the server said something, ...
    heard: Instant,
    /// ... and when it said that it is there.
    answered: Instant,
}

/// What a server said.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HeardMessage {
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
        Self { told: ToldServer::default(), last: 0, heard: now, answered: now }
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
    pub(super) fn hear(
        &mut self,
        now: Instant,
        kind: u8,
        body: &Bytes,
    ) -> Result<HeardMessage, &'static str> {
        self.heard = now;
        let message = ToClient::from_frame(kind, body).map_err(|_| "the server can't be understood")?;
        Ok(match message {
            Some(ToClient::Seen(address)) => HeardMessage::Seen(address),
            // A forged one is passed over: nothing else of the server is the worse for it.
            Some(ToClient::Entry(entry)) => {
                SignedEntry::verified(&entry).map_or(HeardMessage::Nothing, HeardMessage::Entry)
            }
            Some(ToClient::Told(topic)) => HeardMessage::Told(topic),
            Some(ToClient::Refused(why)) => HeardMessage::Refused(why),
            Some(ToClient::Pong) => {
                self.answered = now;
                HeardMessage::Nothing
            }
            _ => HeardMessage::Nothing,
        })
    }

    /// What is to be said to hear whether the server is there; an error if it is gone.
    pub(super) fn look(&self, now: Instant) -> Result<Option<ToServer>, &'static str> {
        let [silent, deaf] = [self.heard, self.answered].map(|then| now.saturating_duration_since(then));
        match () {
            () if silent > QUIET + PATIENCE => Err("the server says nothing"),
            () if deaf > DEAF => Err("the server does not hear"),
            () => Ok((deaf > QUIET).then_some(ToServer::Ping)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_asked_each_minute_and_gone_if_it_says_nothing_or_does_not_hear() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut session = ServerSession::new(start);
        let say = |session: &mut ServerSession, seconds, message: ToClient| {
            let (kind, body) = message.to_frame();
            session.hear(at(seconds), kind, &body).unwrap()
        };
        assert_eq!((session.look(at(60)), session.look(at(61))), (Ok(None), Ok(Some(ToServer::Ping))));
        assert!(session.look(at(76)).is_err(), "it says nothing");
        say(&mut session, 70, ToClient::Pong);
        assert_eq!((session.look(at(130)), session.look(at(131))), (Ok(None), Ok(Some(ToServer::Ping))));
        for seconds in (80..=220).step_by(20) {
            say(&mut session, seconds, ToClient::Left);
            assert!(session.look(at(seconds)).is_ok());
        }
        assert_eq!(session.look(at(221)), Err("the server does not hear"));
        assert!(session.hear(at(221), 35, &Bytes::new()).is_err());
    }
}
