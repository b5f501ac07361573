//! The connection with NATS, as long as the server lives. These go on at once:
//!
//! | | |
//! |---|---|
//! | `publish` | what clients say here is published |
//! | `greet` | it is said how many were, every two seconds, and after each (re)connection |
//! | `hear_all` | what other servers publish is taken in; who has published more than came is read |
//! | `hear_own` | others who read are answered |
//! | `read_all` | the entries of others, page by page |
//! | `mailboxes` | guests and numbers of mailboxes |
//!
//! The client of NATS dials again by itself, any server of the cluster. So nothing here ends but with the server.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::{Client, ConnectOptions, Event, Message};
use futures_util::StreamExt;
use tokio::sync::{Notify, watch};
use towpath_content::lock::lock;
use towpath_rendezvous::RendezvousServer;
use towpath_rendezvous::page::{self, EntryPage, cursor_from_bytes};
use towpath_rendezvous::sharing::{EntryNews, SaidEntry, SharingStatus};

use crate::drawn;
use crate::mailbox_message::NUMBER;
use crate::mailboxes::SharedMailboxes;
use crate::message::{self, PublishedEntry, ServerHello, ServerName};
use crate::peers::Peers;
use crate::place::{NatsLogin, NatsPlace};
use crate::reading::{UnreadServers, read_all, take};

/// Time for NATS to answer, ...
const ANSWER: Duration = Duration::from_secs(2);
/// ... and interval at which it is asked whether it is still there: a machine that vanished is noticed after two or three.
const PING: Duration = Duration::from_secs(5);
/// Interval at which a server says how much it has published: what was lost on the way is noticed then.
const HELLO_EVERY: Duration = Duration::from_secs(2);
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
    /// Entries that were published so far.
    published: AtomicU64,
    peers: Mutex<Peers>,
    unread: UnreadServers,
    /// There is a new connection, or something was lost.
    again: Arc<Notify>,
    mailboxes: SharedMailboxes,
}

/// Shares the entries of `server` with all others at this place, until the server is no more. How it stands is told by `status`.
pub async fn share(
    server: Arc<RendezvousServer>,
    settings: NatsSettings,
    status: Arc<watch::Sender<SharingStatus>>,
) {
    let (news, again) = (server.news(), Arc::new(Notify::new()));
    let client = connect(&settings, &again, &status).await;
    let name = ServerName(drawn());
    let (mailboxes, guests) = SharedMailboxes::new(Arc::clone(&server), client.clone(), name);
    let questions = server.mailbox_questions();
    let sharing = Sharing {
        server,
        client,
        name,
        published: AtomicU64::new(0),
        peers: Mutex::default(),
        unread: UnreadServers::default(),
        again,
        mailboxes,
    };
    let own = sharing.name.all();
    tokio::select! {
        () = sharing.publish(news) => {}
        () = sharing.greet(&status) => {}
        () = sharing.each(message::ALL, |message| sharing.hear_all(message)) => {}
        () = sharing.each(&own, |message| sharing.hear_own(message)) => {}
        () = read_all(&sharing.client, &sharing.unread, &sharing.peers, &sharing.server) => {}
        () = sharing.mailboxes.attend(questions, guests) => {}
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
            // What was missed here is missed by others: they notice by the number, and read.
            let published = self.published.fetch_add(1, Ordering::Relaxed) + 1;
            if let SaidEntry::Entry(said) = news {
                let entry = PublishedEntry { name: self.name, published, entry: said.bytes };
                self.send(message::ENTRY.into(), entry.to_bytes()).await;
            }
        }
    }

    /// Says hello now and then, and asks others for theirs when there is a new connection.
    async fn greet(&self, status: &watch::Sender<SharingStatus>) {
        let mut ticks = tokio::time::interval(HELLO_EVERY);
        loop {
            let asks = tokio::select! {
                () = self.again.notified() => true,
                _ = ticks.tick() => false,
            };
            self.send(message::HELLO.into(), self.hello(asks).to_bytes()).await;
            if asks {
                // What was sent before has been taken when this is answered.
                match tokio::time::timeout(ANSWER, self.client.flush()).await {
                    Ok(Ok(())) => _ = status.send_replace(SharingStatus::Shared),
                    _ => self.again.notify_one(),
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    fn hello(&self, asks: bool) -> ServerHello {
        ServerHello { name: self.name, published: self.published.load(Ordering::Relaxed), asks }
    }

    async fn send(&self, subject: String, payload: Vec<u8>) {
        if let Err(error) = self.client.publish(subject, payload.into()).await {
            tracing::debug!(%error, "NATS takes nothing");
        }
    }

    async fn hear_all(&self, message: Message) {
        if message.subject.as_str() == message::HELLO {
            return self.hear_hello(&message.payload).await;
        }
        if message.subject.as_str() == NUMBER {
            let known = message.reply.zip(self.mailboxes.knows(&message.payload));
            if let Some((to, name)) = known {
                self.send(to.to_string(), name.to_vec()).await;
            }
            return;
        }
        let Ok(PublishedEntry { name, published, entry }) = PublishedEntry::from_bytes(&message.payload)
        else {
            return;
        };
        if lock(&self.peers).entry(name, published) {
            self.unread.add(name);
        }
        take(&self.server, entry);
    }

    async fn hear_own(&self, message: Message) {
        match message.subject.rsplit('.').next() {
            Some("guest") => return self.mailboxes.hear_guest(&message.payload),
            Some("letter") => return self.mailboxes.hear_letter(&message.payload),
            _ => {}
        }
        let Some(to) = message.reply else { return self.hear_hello(&message.payload).await };
        if let Ok(after) = cursor_from_bytes(&message.payload) {
            let page = EntryPage::of(self.server.said_here(after, page::MAX_BYTES));
            self.send(to.to_string(), page.to_bytes()).await;
        }
    }

    async fn hear_hello(&self, payload: &[u8]) {
        let Ok(ServerHello { name, published, asks }) = ServerHello::from_bytes(payload) else { return };
        if lock(&self.peers).hello(name, published) {
            self.unread.add(name);
        }
        if asks {
            self.send(name.hello(), self.hello(false).to_bytes()).await;
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
