//! The connection with NATS, as long as the server lives. These go on at once:
//!
//! | | |
//! |---|---|
//! | `publish` | what clients say here is published |
//! | `entries` | what other servers publish is taken in |
//! | `greet` | hello is said after each (re)connection, and when something was missed |
//! | `hellos` | who says hello is answered so, and read |
//! | `pages` | others who read are told |
//!
//! The client of NATS dials again by itself, any server of the cluster. So nothing here ends but with the server.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, ConnectOptions, Event, Message};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::sync::{Notify, watch};
use towpath_rendezvous::RendezvousServer;
use towpath_rendezvous::page::{self, Page, cursor_from_bytes};
use towpath_rendezvous::sharing::{EntryNews, News, SharingStatus};

use crate::place::{NatsLogin, NatsPlace};
use crate::reading::{Unread, read_all};
use crate::subject::{self, ServerName};

/// Time for NATS to answer, ...
const ANSWER: Duration = Duration::from_secs(2);
/// ... and interval at which it is asked whether it is still there: a machine that vanished is noticed after two or three.
const PING: Duration = Duration::from_secs(5);
/// Pause after something failed.
const PAUSE: Duration = Duration::from_secs(1);
/// Messages of others that wait to be taken in. What is more is lost and noticed, and others are read anew.
const WAITING: usize = 1024;

/// How entries are shared.
#[derive(Debug, Clone)]
pub struct NatsSettings {
    /// Where NATS is.
    pub place: NatsPlace,
    /// Who this server is there.
    pub login: Option<NatsLogin>,
}

/// What the parts have in common.
struct Sharing {
    server: Arc<RendezvousServer>,
    client: Client,
    name: ServerName,
    unread: Unread,
    again: Arc<Notify>,
}

/// Shares the entries of `server` with all others at this place, until the server is no more. How it stands is told by `status`.
pub async fn share(
    server: Arc<RendezvousServer>,
    settings: NatsSettings,
    status: Arc<watch::Sender<SharingStatus>>,
) {
    let (news, again) = (server.news(), Arc::new(Notify::new()));
    let client = connect(&settings, &again, &status).await;
    let sharing = Sharing { server, client, name: drawn(), unread: Unread::default(), again };
    let (hello, page) = (sharing.name.hello(), sharing.name.page());
    tokio::select! {
        () = sharing.publish(news) => {}
        () = sharing.greet(&status) => {}
        () = sharing.each(subject::ENTRY, |message| sharing.take_entry(message)) => {}
        () = sharing.each(subject::HELLO, |message| sharing.answer_hello(message)) => {}
        () = sharing.each(&hello, |message| sharing.take_hello(message)) => {}
        () = sharing.each(&page, |message| sharing.tell_page(message)) => {}
        () = read_all(&sharing.client, &sharing.unread, &sharing.server) => {}
    }
}

fn drawn() -> ServerName {
    let mut bytes = [0; 16];
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    ServerName(u128::from_le_bytes(bytes))
}

/// Takes an entry in, if it is as it should be: whoever writes to NATS may lie.
pub(crate) fn take(server: &RendezvousServer, entry: Bytes) {
    if let Err(why) = server.take(entry) {
        tracing::debug!(why = why.reason(), "an entry of NATS is passed over");
    }
}

/// Dials until NATS is reached once; from then on its client dials by itself.
async fn connect(
    settings: &NatsSettings,
    again: &Arc<Notify>,
    status: &Arc<watch::Sender<SharingStatus>>,
) -> Client {
    loop {
        let (noticed, told) = (Arc::clone(again), Arc::clone(status));
        let options = options(settings.login.clone()).event_callback(move |event| {
            notice(&event, &noticed, &told);
            std::future::ready(())
        });
        match options.connect(settings.place.addresses()).await {
            Ok(client) => return client,
            Err(error) => away(status, format!("{}: {}", settings.place, with_causes(&error))),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn options(login: Option<NatsLogin>) -> ConnectOptions {
    let options = ConnectOptions::new()
        .name("tow rendezvous")
        .no_echo()
        .connection_timeout(ANSWER)
        .ping_interval(PING)
        .subscription_capacity(WAITING);
    match login {
        Some(NatsLogin::User(user, password)) => options.user_and_password(user, password),
        Some(NatsLogin::Token(token)) => options.token(token),
        None => options,
    }
}

fn notice(event: &Event, again: &Notify, status: &watch::Sender<SharingStatus>) {
    match event {
        Event::Connected | Event::SlowConsumer(_) => again.notify_one(),
        Event::Disconnected => away(status, "the connection with NATS is lost".into()),
        Event::ClientError(error) => tracing::debug!(%error, "NATS"),
        Event::ServerError(error) => away(status, error.to_string()),
        _ => {}
    }
}

/// Says once why entries are not shared.
fn away(status: &watch::Sender<SharingStatus>, why: String) {
    let now = SharingStatus::Away(why);
    status.send_if_modified(|before| std::mem::replace(before, now.clone()) != now);
}

/// An error with what caused it: the one on top often says little.
fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source()).take(5).map(ToString::to_string);
    let mut words: Vec<String> = Vec::new();
    for cause in causes {
        // Some say their cause themselves.
        if !words.last().is_some_and(|last| last.contains(&cause)) {
            words.push(cause);
        }
    }
    words.join(": ")
}

impl Sharing {
    /// Does this with each message under a subject. The subscription lives through reconnections.
    async fn each<F: Future<Output = ()>>(&self, subject: &str, work: impl Fn(Message) -> F) {
        loop {
            match self.client.subscribe(subject.to_owned()).await {
                Ok(mut messages) => {
                    while let Some(message) = messages.next().await {
                        work(message).await;
                    }
                }
                Err(error) => tracing::debug!(%error, subject, "NATS takes no subscription"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Publishes what is said here, until the server is no more.
    async fn publish(&self, mut news: EntryNews) {
        while let Some(news) = news.next().await {
            match news {
                News::Entry(entry) => self.send(subject::ENTRY.into(), entry.bytes).await,
                News::Missed => self.again.notify_one(),
            }
        }
    }

    /// Says hello whenever that is to be done: so others read this server, and this one reads them.
    async fn greet(&self, status: &watch::Sender<SharingStatus>) {
        loop {
            self.again.notified().await;
            self.send(subject::HELLO.into(), self.name.to_string().into()).await;
            // What was sent before has been taken when this is answered.
            match tokio::time::timeout(ANSWER, self.client.flush()).await {
                Ok(Ok(())) => _ = status.send_replace(SharingStatus::Shared),
                _ => self.again.notify_one(),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn send(&self, subject: String, payload: Bytes) {
        if let Err(error) = self.client.publish(subject, payload).await {
            tracing::debug!(%error, "NATS takes nothing");
            self.again.notify_one();
        }
    }

    async fn take_entry(&self, message: Message) {
        take(&self.server, message.payload);
    }

    /// A server has come: it shall know this one, too.
    async fn answer_hello(&self, message: Message) {
        if let Some(name) = self.hear(&message) {
            self.send(name.hello(), self.name.to_string().into()).await;
        }
    }

    async fn take_hello(&self, message: Message) {
        self.hear(&message);
    }

    fn hear(&self, message: &Message) -> Option<ServerName> {
        let name = std::str::from_utf8(&message.payload).ok()?.parse().ok()?;
        self.unread.add(name);
        Some(name)
    }

    async fn tell_page(&self, message: Message) {
        if let (Some(to), Ok(after)) = (message.reply, cursor_from_bytes(&message.payload)) {
            let page = Page::of(self.server.said_here(after, page::MAX_BYTES));
            self.send(to.to_string(), page.to_bytes().into()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("above")]
    struct Above(#[source] std::io::Error);

    #[test]
    fn an_error_is_shown_with_its_cause_and_none_twice() {
        let error = Above(std::io::Error::other("below"));
        assert_eq!(with_causes(&error), "above: below");
        assert_eq!(with_causes(&std::io::Error::other("alone")), "alone");
    }
}
