//! Mailboxes of several servers. A guest whose number waits elsewhere is carried to that server; a number is given by one server
//! alone. Each conversation is carried by the two servers at its ends, frame by frame, and ends when one is lost.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::Client;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use towpath_content::lock::lock;
use towpath_rendezvous::RendezvousServer;
use towpath_rendezvous::elsewhere::{GivenNumber, MailboxQuestion, SeekingGuest};
use towpath_rendezvous::message::{Refusal, ToClient, ToServer};

use crate::drawn;
use crate::mailbox_message::{
    AskedNumber, CarriedFrame, ComingGuest, ConversationName, NUMBER, NumberQuestion,
};
use crate::message::ServerName;

/// Time for a server to say that somebody waits there, ...
const SEEK: Duration = Duration::from_millis(500);
/// ... after which all are asked again, so many times in all: while servers find each other, or are busy, a question may be lost; ...
const SEEKS: usize = 3;
/// ... and for one to say that it has given a number: each code waits for that.
const CLAIM: Duration = Duration::from_millis(300);
/// Numbers that are drawn for one mailbox, at most.
const MOST_TRIES: u32 = 6;
/// Time for the first word of the server where somebody waits.
const ANSWER: Duration = Duration::from_secs(3);
/// Time for a whole conversation: people compare fingerprints in it.
const WHOLE: Duration = Duration::from_secs(900);
/// Conversations, questions included.
const MOST: usize = 1024;
/// Frames of a conversation that wait.
const WAITING: usize = 16;

/// Frames that come in a conversation; ends when one was lost, or too many wait.
struct FrameInbox {
    frames: mpsc::Receiver<(u8, Bytes)>,
    name: ConversationName,
    all: Conversations,
}

/// Where frames of each conversation go, and the number of the next one.
type Conversations = Arc<Mutex<HashMap<ConversationName, (mpsc::Sender<(u8, Bytes)>, u64)>>>;

impl Drop for FrameInbox {
    fn drop(&mut self) {
        lock(&self.all).remove(&self.name);
    }
}

/// See the head of this module.
pub(crate) struct SharedMailboxes {
    server: Arc<RendezvousServer>,
    client: Client,
    name: ServerName,
    conversations: Conversations,
    came: mpsc::Sender<(ComingGuest, FrameInbox)>,
}

/// Guests of other servers who came and are to be attended to.
pub(crate) struct GuestsFromElsewhere(mpsc::Receiver<(ComingGuest, FrameInbox)>);

/// The way of a conversation's frames to the other server.
struct FrameOutbox<'a> {
    client: &'a Client,
    to: ServerName,
    conversation: ConversationName,
    count: u64,
}

impl FrameOutbox<'_> {
    async fn send(&mut self, (kind, body): (u8, Bytes)) {
        self.count += 1;
        let frame = CarriedFrame { conversation: self.conversation, count: self.count, kind, body };
        if let Err(error) = self.client.publish(self.to.letter(), frame.to_bytes().into()).await {
            tracing::debug!(%error, "NATS takes no letter");
        }
    }
}

impl SharedMailboxes {
    /// Those of `server`, whose name among the others this is.
    pub(crate) fn new(
        server: Arc<RendezvousServer>,
        client: Client,
        name: ServerName,
    ) -> (Self, GuestsFromElsewhere) {
        let (came, guests) = mpsc::channel(WAITING);
        (Self { server, client, name, conversations: Arc::default(), came }, GuestsFromElsewhere(guests))
    }

    /// Asks others what clients here want to know, and carries what guests say, for ever.
    pub(crate) async fn attend(
        &self,
        mut questions: mpsc::Receiver<MailboxQuestion>,
        mut guests: GuestsFromElsewhere,
    ) {
        let mut under_way: FuturesUnordered<BoxFuture<'_, ()>> = FuturesUnordered::new();
        loop {
            let has_room = under_way.len() < MOST;
            tokio::select! {
                Some(asked) = questions.recv(), if has_room => under_way.push(match asked {
                    MailboxQuestion::Seek(guest) => Box::pin(self.seek(guest)),
                    MailboxQuestion::Given(given) => Box::pin(self.claim(given)),
                }),
                Some((guest, inbox)) = guests.0.recv(), if has_room => {
                    under_way.push(Box::pin(self.host(guest, inbox)));
                }
                Some(()) = under_way.next() => {}
            }
        }
    }

    /// The first server that says yes.
    async fn ask(&self, asked: &AskedNumber, limit: Duration) -> Option<ServerName> {
        let answer = self.client.request(NUMBER, asked.to_bytes().into());
        let answer = timeout(limit, answer).await.ok()?.ok()?;
        Some(ServerName(answer.payload.as_ref().try_into().ok()?))
    }

    /// The same, asked several times.
    async fn seek_host(&self, asked: &AskedNumber) -> Option<ServerName> {
        for _ in 0..SEEKS {
            let end = Instant::now() + SEEK;
            let found = self.ask(asked, SEEK).await;
            if found.is_some() {
                return found;
            }
            sleep_until(end).await;
        }
        None
    }

    /// Another server asks for a number. The answer is for who says yes.
    pub(crate) fn knows(&self, payload: &[u8]) -> Option<[u8; 16]> {
        let AskedNumber { question, number, node } = AskedNumber::from_bytes(payload).ok()?;
        let knows = match question {
            NumberQuestion::Waits => self.server.who_waits(number).is_some(),
            NumberQuestion::IsAnothers => self.server.is_anothers(number, &node),
        };
        knows.then_some(self.name.0)
    }

    /// A number is told to its client once nobody else has it.
    async fn claim(&self, mut given: GivenNumber) {
        while given.tries() < MOST_TRIES {
            let (question, number, node) = (NumberQuestion::IsAnothers, given.number, given.node);
            if self.ask(&AskedNumber { question, number, node }, CLAIM).await.is_none() {
                break;
            }
            match self.server.draw_again(&given) {
                Some(again) => given = again,
                None => return,
            }
        }
        self.server.confirm(&given);
    }

    /// Carries a guest of this server to the one where somebody waits for it.
    async fn seek(&self, mut guest: SeekingGuest) {
        let nobody = ToClient::Refused(Refusal::NobodyWaits);
        let (question, number, node) = (NumberQuestion::Waits, guest.number, guest.node);
        let host = self.seek_host(&AskedNumber { question, number, node }).await;
        let opened = host.and_then(|host| Some((host, self.open(ConversationName(drawn()))?)));
        let Some((host, mut inbox)) = opened else {
            self.server.tell_guest(&guest, nobody);
            return;
        };
        let (server, conversation, from) = (self.name, inbox.name, guest.from.ip());
        let coming = ComingGuest { server, conversation, node, from, number };
        let mut outbox = FrameOutbox { client: &self.client, to: host, conversation, count: 0 };
        let sent = self.client.publish(host.guest(), coming.to_bytes().into()).await;
        let first = timeout(ANSWER, inbox.frames.recv()).await.ok().flatten();
        let (Ok(()), Some(first)) = (sent, first) else {
            self.server.tell_guest(&guest, nobody);
            return outbox.send(ToServer::Leave.to_frame()).await;
        };
        if self.tell(&guest, Some(first)) {
            let carrying = self.carry(&mut guest, &mut inbox, &mut outbox);
            if timeout(WHOLE, carrying).await.is_err() {
                self.tell(&guest, None);
            }
        }
        outbox.send(ToServer::Leave.to_frame()).await;
    }

    /// Both ways, until one end leaves.
    async fn carry(&self, guest: &mut SeekingGuest, inbox: &mut FrameInbox, outbox: &mut FrameOutbox<'_>) {
        loop {
            tokio::select! {
                said = guest.said.recv() => match said {
                    Some(message) => outbox.send(message.to_frame()).await,
                    None => return,
                },
                frame = inbox.frames.recv() => if !self.tell(guest, frame) {
                    return;
                },
            }
        }
    }

    /// Tells a guest what its host's server says; false if that is all.
    fn tell(&self, guest: &SeekingGuest, frame: Option<(u8, Bytes)>) -> bool {
        let message = frame.and_then(|(kind, body)| ToClient::from_frame(kind, &body).ok()?);
        // What a mailbox has no use for is not for the guest's ears.
        let message = message.filter(|message| {
            matches!(message, ToClient::Joined(_) | ToClient::Letter(_) | ToClient::Refused(_))
        });
        let is_last = !matches!(message, Some(ToClient::Joined(_) | ToClient::Letter(_)));
        self.server.tell_guest(guest, message.unwrap_or(ToClient::Left)) && !is_last
    }

    /// A guest of another server comes; what it says is kept until it is attended to.
    pub(crate) fn hear_guest(&self, payload: &[u8]) {
        let Ok(guest) = ComingGuest::from_bytes(payload) else { return };
        if let Some(inbox) = self.open(guest.conversation)
            && self.came.try_send((guest, inbox)).is_err()
        {
            tracing::debug!("a guest of another server is one too many");
        }
    }

    /// Has it talk with whoever waits here.
    async fn host(&self, coming: ComingGuest, mut inbox: FrameInbox) {
        let ComingGuest { server: to, conversation, node, from, number } = coming;
        let mut outbox = FrameOutbox { client: &self.client, to, conversation, count: 0 };
        let Some(mut guest) = self.server.let_in(node, SocketAddr::new(from, 0), number) else {
            return outbox.send(ToClient::Refused(Refusal::TooMany).to_frame()).await;
        };
        let end = Instant::now() + WHOLE;
        loop {
            tokio::select! {
                told = guest.next() => {
                    let is_last = matches!(told, None | Some(ToClient::Left | ToClient::Refused(_)));
                    outbox.send(told.unwrap_or(ToClient::Left).to_frame()).await;
                    if is_last {
                        return;
                    }
                }
                frame = inbox.frames.recv() => {
                    let message = frame.and_then(|(kind, body)| ToServer::from_frame(kind, &body).ok()?);
                    match message {
                        Some(letter @ ToServer::Letter(_)) => guest.say(letter),
                        _ => return outbox.send(ToClient::Left.to_frame()).await,
                    }
                }
                () = sleep_until(end) => return,
            }
        }
    }

    /// A conversation begins; `None` if there are too many, or one has this name.
    fn open(&self, name: ConversationName) -> Option<FrameInbox> {
        let mut conversations = lock(&self.conversations);
        if conversations.len() >= MOST || conversations.contains_key(&name) {
            return None;
        }
        let (sender, frames) = mpsc::channel(WAITING);
        conversations.insert(name, (sender, 1));
        Some(FrameInbox { frames, name, all: Arc::clone(&self.conversations) })
    }

    /// A frame of a conversation. What comes out of turn ends it: one before was lost.
    pub(crate) fn hear_letter(&self, payload: &[u8]) {
        let Ok(CarriedFrame { conversation, count, kind, body }) = CarriedFrame::from_bytes(payload) else {
            return;
        };
        let mut conversations = lock(&self.conversations);
        let Some((sender, next)) = conversations.get_mut(&conversation) else { return };
        let is_next = std::mem::replace(next, *next + 1) == count;
        if !is_next || sender.try_send((kind, body)).is_err() {
            conversations.remove(&conversation);
        }
    }
}
