//! The connection with one server: dialled again when it is lost, and told everything anew.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ring::aead::NONCE_LEN;
use tokio::sync::watch;
use towpath_content::lock::lock;
use towpath_link::backoff::BackoffConfig;
use towpath_link::{Backoff, Connection, Frame, FrameReader, FrameWriter, Identity};

use super::session::{HeardMessage, Moment, ServerSession};
use super::told::Wish;
use super::{MeetingState, ServerClient, ServerStatus};
use crate::dialling::ServerWay;
use crate::entry::SignedEntry;
use crate::message::ToServer;
use crate::server::{chance, now};
use crate::topic::Topic;

/// Interval at which it is looked what has to be said again, and what is over.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The longest wait between attempts to reach a server: after its restart all is back within a minute.
const BACKOFF: BackoffConfig = BackoffConfig {
    first: Duration::from_millis(500),
    longest: Duration::from_secs(10),
    shortest: Duration::from_millis(50),
    forget_after: Duration::from_secs(300),
};
/// Time for the last words.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Why a connection is over.
enum VisitEnd {
    /// Nobody wants it any more.
    Unwanted,
    /// It broke, or the server is not as it should be.
    Lost(&'static str),
}

const BROKE: VisitEnd = VisitEnd::Lost("the connection broke");

/// Keeps the connection until nobody wants it.
pub(super) async fn run(way: ServerWay, client: Weak<ServerClient>, mut wanted: watch::Receiver<u64>) {
    let mut backoff = Backoff::new(BACKOFF);
    loop {
        let trouble = match visit(&way, &client, &mut wanted).await {
            Ok(None) => return,
            Ok(Some((why, lasted))) => {
                if lasted >= LOOK_EVERY {
                    backoff.succeeded();
                }
                why.to_owned()
            }
            Err(why) => why,
        };
        tracing::debug!(server = %way.server.place, trouble, "no rendezvous");
        let Some(client) = client.upgrade() else { return };
        client.status.send_replace(ServerStatus { seen: None, trouble: Some(trouble) });
        drop(client);
        tokio::select! {
            () = tokio::time::sleep(backoff.next(Instant::now(), chance())) => {}
            () = until_unwanted(&mut wanted) => return,
        }
    }
}

/// Dials, and says and hears until the connection ends. Returns why and how long it lasted, or `None` if nobody wants it.
async fn visit(
    way: &ServerWay,
    client: &Weak<ServerClient>,
    wanted: &mut watch::Receiver<u64>,
) -> Result<Option<(&'static str, Duration)>, String> {
    let connection = tokio::select! {
        dialled = way.dial() => dialled?,
        () = until_unwanted(wanted) => return Ok(None),
    };
    let (begun, Connection { mut reader, writer, .. }) = (Instant::now(), connection);
    reader.hold_short(true);
    let session = ServerSession::new(begun);
    let visit = Visit { client, identity: &way.identity, writer, session };
    Ok(match visit.attend(&mut reader, wanted).await {
        VisitEnd::Unwanted => None,
        VisitEnd::Lost(why) => Some((why, begun.elapsed())),
    })
}

async fn until_unwanted(wanted: &mut watch::Receiver<u64>) {
    while wanted.changed().await.is_ok() {}
}

/// A connection while it stands.
struct Visit<'a> {
    client: &'a Weak<ServerClient>,
    identity: &'a Identity,
    writer: FrameWriter,
    session: ServerSession,
}

impl Visit<'_> {
    /// Says and hears until the end.
    async fn attend(mut self, reader: &mut FrameReader, wanted: &mut watch::Receiver<u64>) -> VisitEnd {
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        wanted.mark_changed();
        loop {
            let result = tokio::select! {
                frame = reader.next() => self.hear(frame.ok().flatten()),
                changed = wanted.changed() => match changed {
                    Ok(()) => self.say(None).await,
                    Err(_) => return self.last_words().await,
                },
                _ = ticks.tick() => self.look().await,
            };
            if let Err(end) = result {
                return end;
            }
            reader.rest();
        }
    }

    /// Says what is due, behind `first`.
    async fn say(&mut self, first: Option<ToServer>) -> Result<(), VisitEnd> {
        let wishes = self.client.upgrade().map(|client| client.wishes()).unwrap_or_default();
        let due = self.session.due(&wishes, moment(), self.identity, nonce);
        for message in first.into_iter().chain(due) {
            let (kind, body) = message.to_frame();
            self.writer.send_bytes(kind, &[], body).await.map_err(|_| BROKE)?;
        }
        self.writer.flush().await.map_err(|_| BROKE)?;
        self.writer.rest().await.map_err(|_| BROKE)
    }

    async fn last_words(mut self) -> VisitEnd {
        let leaving = async {
            let _ = self.say(None).await;
            let _ = self.writer.finish().await;
        };
        let _ = tokio::time::timeout(LAST_WORDS, leaving).await;
        VisitEnd::Unwanted
    }

    /// Looks what is over, what has to be said again, and whether the server is still there.
    async fn look(&mut self) -> Result<(), VisitEnd> {
        let now = now();
        for state in self.client.upgrade().map(|client| client.states()).unwrap_or_default() {
            state.found.send_if_modified(|found| found.expire(now));
        }
        let first = self.session.look(Instant::now()).map_err(VisitEnd::Lost)?;
        self.say(first).await
    }

    fn hear(&mut self, frame: Option<Frame>) -> Result<(), VisitEnd> {
        let frame = frame.ok_or(BROKE)?;
        let heard = self.session.hear(Instant::now(), frame.kind, &frame.body).map_err(VisitEnd::Lost)?;
        let Some(client) = self.client.upgrade() else { return Ok(()) };
        match heard {
            HeardMessage::Seen(address) => {
                client.status.send_replace(ServerStatus { seen: Some(address), trouble: None });
            }
            HeardMessage::Entry(signed) => {
                client.states_of(&signed.topic).iter().for_each(|state| state.take(&signed));
            }
            HeardMessage::Told(topic) => {
                for state in client.states_of(&topic) {
                    state.found.send_modify(|found| found.told += 1);
                }
            }
            HeardMessage::Refused(why) => {
                tracing::debug!(why = why.reason(), "a rendezvous refuses");
                client.status.send_modify(|status| status.trouble = Some(why.reason().to_owned()));
            }
            HeardMessage::Nothing => {}
        }
        Ok(())
    }
}

fn moment() -> Moment {
    let millis = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    Moment { instant: Instant::now(), millis: u64::try_from(millis).unwrap_or(u64::MAX) }
}

fn nonce() -> Option<[u8; NONCE_LEN]> {
    let mut nonce = [0; NONCE_LEN];
    let filled = rustix::rand::getrandom(&mut nonce, rustix::rand::GetRandomFlags::empty());
    filled.is_ok_and(|filled| filled == nonce.len()).then_some(nonce)
}

impl ServerClient {
    /// What is wanted now. Where several parts of a program have one topic, it says what the one with most says.
    fn wishes(&self) -> BTreeMap<Topic, Wish> {
        let mut wishes = BTreeMap::new();
        for state in self.states() {
            let entry = lock(&state.entry).clone();
            let wish = wishes
                .entry(state.keys.topic())
                .or_insert_with(|| Wish { keys: state.keys.clone(), entry: None });
            if entry.as_ref().map(|entry| entry.has) > wish.entry.as_ref().map(|entry| entry.has) {
                wish.entry = entry;
            }
        }
        wishes
    }

    fn states(&self) -> Vec<Arc<MeetingState>> {
        lock(&self.topics).values().flatten().filter_map(Weak::upgrade).collect()
    }

    fn states_of(&self, topic: &Topic) -> Vec<Arc<MeetingState>> {
        lock(&self.topics).get(topic).into_iter().flatten().filter_map(Weak::upgrade).collect()
    }
}

impl MeetingState {
    fn take(&self, signed: &SignedEntry) {
        if signed.node != self.own {
            self.found.send_if_modified(|found| found.take(now(), &self.keys, signed));
        }
    }
}
