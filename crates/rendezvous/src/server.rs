//! The server: connections around a [`Board`]. Who stays is bounded in all and by address; who does not read is let go.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{broadcast, mpsc};
use tokio_util::sync::CancellationToken;
use towpath_content::lock::lock;
use towpath_link::{Connection, FrameReader, FrameWriter};

use crate::address_group::AddressGroup;
use crate::board::{Board, BoardLimits, Sendings};
use crate::elsewhere::{Asked, EndsElsewhere};
use crate::entry::SharedEntry;
use crate::entry_table::ConnectionNumber;
use crate::message::{Refusal, ToClient, ToServer};

/// Messages that may wait for a client: more than all entries of a topic.
const WAITING: usize = 1024;
/// Entries that wait for whoever carries them to other servers. What is more is not kept: [`crate::sharing::EntryNews::next`] says so.
const NEWS_WAITING: usize = 1024;
/// Longest time for a client to take what is written to it.
const WRITE_LIMIT: Duration = Duration::from_secs(30);
/// Interval at which entries that are over are forgotten.
const EXPIRE_EVERY: Duration = Duration::from_secs(10);

/// How much a server takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerLimits {
    /// Of entries and mailboxes.
    pub board: BoardLimits,
    /// Connections in all. Default: 20,000.
    pub connections: usize,
    /// Connections from one address. Default: 512.
    pub per_address: usize,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self { board: BoardLimits::default(), connections: 20_000, per_address: 512 }
    }
}

/// A rendezvous server, for connections that somebody accepts.
#[derive(Debug)]
pub struct RendezvousServer {
    limits: ServerLimits,
    state: Mutex<ServerState>,
    answered: AtomicUsize,
    news: broadcast::Sender<SharedEntry>,
}

#[derive(Debug, Default)]
struct ServerState {
    board: Board,
    clients: HashMap<ConnectionNumber, (mpsc::Sender<ToClient>, AddressGroup)>,
    from: HashMap<AddressGroup, usize>,
    last: ConnectionNumber,
    elsewhere: EndsElsewhere,
}

impl RendezvousServer {
    /// One that has nothing yet.
    pub fn new(limits: ServerLimits) -> Arc<Self> {
        let state = ServerState { board: Board::new(limits.board), ..ServerState::default() };
        let news = broadcast::Sender::new(NEWS_WAITING);
        Arc::new(Self { limits, state: Mutex::new(state), answered: AtomicUsize::new(0), news })
    }

    /// Clients that are there, entries and mailboxes.
    pub fn counts(&self) -> (usize, usize, usize) {
        let state = lock(&self.state);
        let (entries, mailboxes) = state.board.kept();
        (state.clients.len(), entries, mailboxes)
    }

    /// Messages that were answered so far.
    pub fn answered(&self) -> usize {
        self.answered.load(Ordering::Relaxed)
    }

    /// Forgets what is over, now and then, for as long as it is polled.
    pub async fn keep_tidy(&self) -> std::convert::Infallible {
        let mut ticks = tokio::time::interval(EXPIRE_EVERY);
        loop {
            ticks.tick().await;
            lock(&self.state).board.expire(now());
        }
    }

    /// Serves a client from `address` until it goes, or `token` ends everything.
    pub async fn serve(&self, connection: Connection, address: SocketAddr, token: &CancellationToken) {
        let node = connection.peer;
        let Connection { mut reader, mut writer, .. } = connection;
        let Some((number, mut outbox)) = self.enter(node, address) else {
            let _ = send(&mut writer, &[ToClient::Refused(Refusal::TooMany)]).await;
            return;
        };
        reader.hold_short(true);
        let why = tokio::select! {
            why = self.attend(number, &mut reader, &mut writer, &mut outbox) => why,
            () = token.cancelled() => {
                let _ = send(&mut writer, &[ToClient::Refused(Refusal::Ending)]).await;
                "the server is ending"
            }
        };
        tracing::debug!(node = %node.short(), why, "a client is gone");
        self.leave(number);
    }

    /// A client is gone.
    pub(crate) fn leave(&self, number: ConnectionNumber) {
        let mut state = lock(&self.state);
        let told = state.leave(number);
        state.deliver(told);
    }

    pub(crate) fn enter(
        &self,
        node: towpath_content::NodeId,
        address: SocketAddr,
    ) -> Option<(ConnectionNumber, mpsc::Receiver<ToClient>)> {
        let (mut state, from) = (lock(&self.state), AddressGroup::of(address.ip()));
        let there = state.from.get(&from).copied().unwrap_or(0);
        if state.clients.len() >= self.limits.connections || there >= self.limits.per_address {
            return None;
        }
        state.last += 1;
        let (number, (outbox, inbox)) = (state.last, mpsc::channel(WAITING));
        state.clients.insert(number, (outbox, from));
        *state.from.entry(from).or_default() += 1;
        let told = state.board.came(number, node, address);
        state.deliver(told);
        Some((number, inbox))
    }

    /// Answers a client; returns why it is over.
    async fn attend(
        &self,
        number: ConnectionNumber,
        reader: &mut FrameReader,
        writer: &mut FrameWriter,
        outbox: &mut mpsc::Receiver<ToClient>,
    ) -> &'static str {
        let mut messages = Vec::new();
        loop {
            // What waits for it goes first: so no more waits for who asks much at once than one answer.
            tokio::select! {
                biased;
                count = outbox.recv_many(&mut messages, WAITING) => {
                    if count == 0 {
                        return "it did not take what was told";
                    }
                    if send(writer, &messages).await.is_err() {
                        return "it takes nothing";
                    }
                    messages.clear();
                }
                frame = reader.next() => match frame {
                    Ok(Some(frame)) => match ToServer::from_frame(frame.kind, &frame.body) {
                        Ok(Some(message)) => self.say(number, message),
                        Ok(None) => {}
                        Err(_) => return "it can't be understood",
                    },
                    Ok(None) => return "it left",
                    Err(_) => return "the connection broke",
                },
            }
            reader.rest();
        }
    }

    pub(crate) fn say(&self, number: ConnectionNumber, message: ToServer) {
        self.answered.fetch_add(1, Ordering::Relaxed);
        let mut state = lock(&self.state);
        let asked = Asked::by(&message);
        let told = match state.elsewhere.carry(number, message) {
            Ok(message) => state.board.say((now(), chance()), number, message),
            Err(told) => told,
        };
        let news = state.board.news();
        let ServerState { elsewhere, board, .. } = &mut *state;
        let told = elsewhere.ask(number, asked, board, told);
        state.deliver(told);
        drop(state);
        // Without another server nobody wants to know.
        let _ = news.map(|news| self.news.send(news));
    }

    pub(crate) const fn news_sender(&self) -> &broadcast::Sender<SharedEntry> {
        &self.news
    }

    /// Does something with the board, and delivers what comes of it.
    pub(crate) fn with_board<T>(&self, work: impl FnOnce(u64, &mut Board) -> (T, Sendings)) -> T {
        self.with_elsewhere(|_, board| work(now(), board))
    }

    /// The same with what is elsewhere, too.
    pub(crate) fn with_elsewhere<T>(
        &self,
        work: impl FnOnce(&mut EndsElsewhere, &mut Board) -> (T, Sendings),
    ) -> T {
        let mut state = lock(&self.state);
        let ServerState { elsewhere, board, .. } = &mut *state;
        let (result, told) = work(elsewhere, board);
        state.deliver(told);
        result
    }
}

impl ServerState {
    fn deliver(&mut self, sendings: Sendings) {
        for (to, message) in sendings {
            // Whoever leaves so much unread is let go: its outbox ends.
            if let Some((outbox, _)) = self.clients.get(&to)
                && outbox.try_send(message).is_err()
            {
                let told = self.leave(to);
                self.deliver(told);
            }
        }
    }

    fn leave(&mut self, number: ConnectionNumber) -> Sendings {
        let Some((_, from)) = self.clients.remove(&number) else { return Vec::new() };
        if let Some(there) = self.from.get_mut(&from) {
            *there -= 1;
            if *there == 0 {
                self.from.remove(&from);
            }
        }
        self.elsewhere.gone(number);
        self.board.gone(number)
    }
}

async fn send(writer: &mut FrameWriter, messages: &[ToClient]) -> Result<(), ()> {
    let writing = async {
        for message in messages {
            let (kind, body) = message.to_frame();
            writer.send_bytes(kind, &[], body).await.map_err(drop)?;
        }
        writer.flush().await.map_err(drop)?;
        writer.rest().await.map_err(drop)
    };
    tokio::time::timeout(WRITE_LIMIT, writing).await.map_err(drop)?
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// An even draw. Where the system has none, numbers are the smallest that are free.
pub(crate) fn chance() -> u64 {
    let mut bytes = [0; 8];
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u64::from_le_bytes(bytes)
}
