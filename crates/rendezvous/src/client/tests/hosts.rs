//! The hosts of the simulated network: two servers that share their entries, a server that lies, and clients in pairs.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use towpath_content::Oid;
use towpath_content::ticket::Secret;
use towpath_link::Identity;
use towpath_simnet::{ConnectionId, Net, SimNode};

use crate::board::{Board, BoardLimits, Sendings};
use crate::client::found::FoundNodes;
use crate::client::session::{HeardMessage, Moment, ServerSession};
use crate::client::told::Wish;
use crate::entry::{HolderEntry, MAX_ENTRY, SignedEntry};
use crate::entry_table::{ConnectionNumber, TableLimits};
use crate::message::{ToClient, ToServer};
use crate::topic::TopicKeys;

/// The first of these hosts are servers.
pub(super) const SERVERS: usize = 3;
/// The server of those who say what they have, ...
pub(super) const HOLDER_AT: usize = 0;
/// ... and that of those who seek it.
pub(super) const SEEKER_AT: usize = 1;
/// The server that lies. Everybody speaks to it, too.
pub(super) const LIAR: usize = 2;
/// Hosts in front of the clients.
const BEFORE: usize = SERVERS + 1;

/// Milliseconds since 1970 when it begins.
const EPOCH: u64 = 1_700_000_000_000;
/// Kind of a message that one server sends to another: an entry.
const SHARED: u8 = 200;
/// Interval at which clients look after their connections.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// A server that says nothing for so long is dialled anew by the other one.
const SILENCE: Duration = Duration::from_secs(20);
/// Interval at which a client has news, and the liar writes to the other servers.
const NEWS_EVERY: Duration = Duration::from_secs(15);
/// When the last news are said.
const NEWS_UNTIL: Duration = Duration::from_secs(50);
/// Nodes that the liar makes up.
const MADE_UP: usize = 40;

fn moment(net: &Net) -> Moment {
    Moment { instant: net.instant(), millis: EPOCH + net.now().as_millis() as u64 }
}

fn seconds(net: &Net) -> u64 {
    moment(net).millis / 1000
}

fn framed((kind, body): (u8, Bytes)) -> Vec<u8> {
    [&[kind][..], &body].concat()
}

/// Keys of all clients; those of a pair have one ticket.
#[derive(Clone)]
pub(super) struct People {
    identities: Arc<Vec<Identity>>,
    made_up: Arc<Vec<Identity>>,
}

impl People {
    pub(super) fn new(pairs: usize) -> Self {
        let some = |count| Arc::new((0..count).map(|_| Identity::generate().unwrap()).collect());
        Self { identities: some(2 * pairs), made_up: some(MADE_UP) }
    }

    fn identity(&self, host: usize) -> &Identity {
        &self.identities[host - BEFORE]
    }

    fn keys(&self, host: usize) -> TopicKeys {
        let pair = ((host - BEFORE) / 2) as u64;
        TopicKeys::new(&Oid::of(&pair.to_le_bytes()), &Secret([7; 16]).into())
    }
}

pub(super) enum SimHost {
    Server(Box<ServerHost>),
    Hub,
    Client(Box<ClientHost>),
}

impl SimNode for SimHost {
    fn start(&mut self, net: &mut Net) {
        match self {
            Self::Server(server) => server.start(net),
            Self::Client(client) => client.start(net),
            Self::Hub => {}
        }
    }

    fn opened(&mut self, net: &mut Net, connection: ConnectionId, peer: usize) {
        match self {
            Self::Server(server) => server.opened(net, connection, peer),
            Self::Client(client) => client.opened(net, connection, peer),
            Self::Hub => {}
        }
    }

    fn receive(&mut self, net: &mut Net, connection: ConnectionId, message: Vec<u8>) {
        match self {
            Self::Server(server) => server.receive(net, connection, &message),
            Self::Client(client) => client.receive(net, connection, &message),
            Self::Hub => {}
        }
    }

    fn closed(&mut self, net: &mut Net, connection: ConnectionId) {
        match self {
            Self::Server(server) => server.closed(net, connection),
            Self::Client(client) => client.closed(net, connection),
            Self::Hub => {}
        }
    }

    fn wake(&mut self, net: &mut Net) {
        match self {
            Self::Server(server) => server.wake(net),
            Self::Client(client) => client.wake(net),
            Self::Hub => {}
        }
    }
}

/// A server: a board, and connections with clients and other servers.
pub(super) struct ServerHost {
    host: usize,
    people: People,
    pub(super) board: Board,
    clients: HashMap<ConnectionId, ConnectionNumber>,
    connections: HashMap<ConnectionNumber, ConnectionId>,
    /// Connections with other servers: which, and when something came over them.
    servers: BTreeMap<ConnectionId, (usize, Duration)>,
    last: ConnectionNumber,
    /// Entries that came from elsewhere.
    pub(super) taken: u32,
    random: Rng,
    /// Entries that the liar has seen.
    seen: Vec<Bytes>,
}

impl ServerHost {
    pub(super) fn new(host: usize, people: &People, entries: TableLimits, seed: u64) -> Self {
        Self {
            host,
            people: people.clone(),
            board: Board::new(BoardLimits { entries, ..BoardLimits::default() }),
            clients: HashMap::new(),
            connections: HashMap::new(),
            servers: BTreeMap::new(),
            last: 0,
            taken: 0,
            random: Rng::with_seed(seed ^ 99),
            seen: Vec::new(),
        }
    }

    fn start(&mut self, net: &mut Net) {
        // Each dials those in front of it.
        self.dial_servers(net);
        net.wake_at(net.now() + LOOK_EVERY);
    }

    fn dial_servers(&self, net: &mut Net) {
        for other in 0..self.host {
            if !self.servers.values().any(|(server, _)| *server == other) {
                net.connect(other);
            }
        }
    }

    fn opened(&mut self, net: &mut Net, connection: ConnectionId, peer: usize) {
        if peer < SERVERS {
            self.servers.insert(connection, (peer, net.now()));
            for entry in self.board.said_here(None, usize::MAX) {
                net.send(connection, framed((SHARED, entry.bytes)));
            }
            return;
        }
        self.last += 1;
        self.clients.insert(connection, self.last);
        self.connections.insert(self.last, connection);
        let address = SocketAddr::from(([10, 0, (peer >> 8) as u8, peer as u8], 7000));
        let told = self.board.came(self.last, self.people.identity(peer).node_id(), address);
        self.deliver(net, told);
    }

    fn receive(&mut self, net: &mut Net, connection: ConnectionId, message: &[u8]) {
        let (now, body) = (seconds(net), Bytes::copy_from_slice(&message[1..]));
        let told = match self.clients.get(&connection) {
            Some(client) => match ToServer::from_frame(message[0], &body) {
                Ok(Some(message)) => self.board.say((now, 1), *client, message),
                _ => panic!("clients are honest"),
            },
            None => {
                // Or one that is over.
                let Some((_, heard)) = self.servers.get_mut(&connection) else { return };
                *heard = net.now();
                self.taken += 1;
                self.board.take(now, body).unwrap_or_default()
            }
        };
        if let Some(news) = self.board.news() {
            self.seen.push(news.bytes.clone());
            // The liar shares nothing that it hears.
            for server in self.servers.keys().filter(|_| self.host != LIAR) {
                net.send(*server, framed((SHARED, news.bytes.clone())));
            }
        }
        self.deliver(net, told);
    }

    fn deliver(&mut self, net: &mut Net, told: Sendings) {
        for (to, message) in told {
            let Some(connection) = self.connections.get(&to).copied() else { continue };
            match (&message, self.host) {
                (ToClient::Entry(entry), LIAR) => {
                    let lie = self.lie(entry.clone(), seconds(net));
                    lie.into_iter().for_each(|lie| net.send(connection, lie));
                }
                _ => net.send(connection, framed(message.to_frame())),
            }
        }
    }

    /// What the liar says instead of an entry.
    fn lie(&mut self, entry: Bytes, now: u64) -> Option<Vec<u8>> {
        let as_entry = |bytes: Vec<u8>| Some(framed((34, bytes.into())));
        match self.random.u32(0..6) {
            0 => {
                let mut forged = entry.to_vec();
                let at = self.random.usize(..forged.len());
                forged[at] ^= 1 << self.random.u8(0..8);
                as_entry(forged)
            }
            // An old one, perhaps of another key.
            1 => self.random.choice(&self.seen).and_then(|old| as_entry(old.to_vec())),
            2 => as_entry(self.made_up(&entry, now)),
            3 => as_entry(vec![0; MAX_ENTRY + 1]),
            // It hides it.
            4 => None,
            _ => as_entry(entry.to_vec()),
        }
    }

    /// An entry under the same topic, well signed, by somebody without the ticket.
    fn made_up(&mut self, entry: &[u8], now: u64) -> Vec<u8> {
        let node = &self.people.made_up[self.random.usize(..MADE_UP)];
        let keys = TopicKeys::new(&Oid::of(&self.random.u64(..).to_le_bytes()), &Secret([9; 16]).into());
        let holder = HolderEntry { has: 999, serves: true, ..HolderEntry::default() };
        let signed = SignedEntry::new(node, &keys, (now * 1000, now + 600), Some(&holder), [0; 12]);
        match SignedEntry::verified(entry) {
            Ok(real) if self.random.bool() => signed.moved(node, real.topic).to_bytes(),
            _ => signed.to_bytes(),
        }
    }

    fn closed(&mut self, net: &mut Net, connection: ConnectionId) {
        if let Some(client) = self.clients.remove(&connection) {
            self.connections.remove(&client);
            let told = self.board.gone(client);
            self.deliver(net, told);
        } else {
            self.servers.remove(&connection);
        }
    }

    fn wake(&mut self, net: &mut Net) {
        let now = seconds(net);
        self.board.expire(now);
        self.dial_servers(net);
        // What was lost or stalled on the way is made good by all that there is, as servers read each other.
        for (server, (_, heard)) in self.servers.clone() {
            if net.now() > heard + SILENCE {
                net.close(server);
                self.servers.remove(&server);
                continue;
            }
            net.send(server, vec![SHARED]);
            if self.host == LIAR {
                for _ in 0..5 {
                    let about = self.seen.last().cloned().unwrap_or_default();
                    let lie = [self.made_up(&about, now), vec![7; 5000], about.to_vec()];
                    lie.into_iter().for_each(|lie| net.send(server, framed((SHARED, lie.into()))));
                }
            } else if self.random.u32(0..4) == 0 {
                for entry in self.board.said_here(None, usize::MAX) {
                    net.send(server, framed((SHARED, entry.bytes)));
                }
            }
        }
        net.wake_at(net.now() + LOOK_EVERY);
    }
}

/// A client: its connections with servers, and what it has found.
pub(super) struct ClientHost {
    host: usize,
    people: People,
    keys: TopicKeys,
    servers: [usize; 2],
    sessions: HashMap<ConnectionId, (usize, ServerSession)>,
    dialling: HashMap<ConnectionId, usize>,
    pub(super) found: FoundNodes,
    /// What it says that it has: more with all its news.
    pub(super) part: u16,
    last_found: u16,
    news_at: Duration,
    random: Rng,
    /// Connections that were lost.
    pub(super) lost: u32,
    /// Entries that were no news, or lies.
    pub(super) passed_over: u32,
}

impl ClientHost {
    pub(super) fn new(host: usize, people: &People) -> Self {
        let server = if (host - BEFORE).is_multiple_of(2) { HOLDER_AT } else { SEEKER_AT };
        Self {
            host,
            people: people.clone(),
            keys: people.keys(host),
            servers: [server, LIAR],
            sessions: HashMap::new(),
            dialling: HashMap::new(),
            found: FoundNodes::default(),
            part: 1,
            last_found: 0,
            news_at: NEWS_EVERY,
            random: Rng::with_seed(host as u64),
            lost: 0,
            passed_over: 0,
        }
    }

    /// What its mate says that it has, as far as this one knows.
    pub(super) fn found_part(&self) -> Option<u16> {
        self.found.iter().next().map(|(_, entry)| entry.has)
    }

    fn start(&mut self, net: &mut Net) {
        // Not all at once.
        net.wake_at(Duration::from_millis(self.random.u64(0..5000)));
    }

    fn wake(&mut self, net: &mut Net) {
        if net.now() >= self.news_at && net.now() < NEWS_UNTIL {
            self.part += 1;
            self.news_at = net.now() + NEWS_EVERY;
        }
        self.found.expire(seconds(net));
        for connection in self.sessions.keys().copied().collect::<Vec<_>>() {
            let (_, session) = &self.sessions[&connection];
            match session.look(net.instant()) {
                Ok(first) => self.say(net, connection, first),
                Err(_) => self.lose(net, connection),
            }
        }
        for server in self.servers {
            let is_there = |(of, _): &(usize, ServerSession)| *of == server;
            if !self.sessions.values().any(is_there) && !self.dialling.values().any(|of| *of == server) {
                self.dialling.insert(net.connect(server), server);
            }
        }
        net.wake_at(net.now() + LOOK_EVERY);
    }

    fn opened(&mut self, net: &mut Net, connection: ConnectionId, peer: usize) {
        self.dialling.remove(&connection);
        self.sessions.insert(connection, (peer, ServerSession::new(net.instant())));
        self.say(net, connection, None);
    }

    fn say(&mut self, net: &mut Net, connection: ConnectionId, first: Option<ToServer>) {
        let entry = HolderEntry { has: self.part, serves: true, ..HolderEntry::default() };
        let wish = Wish { keys: self.keys.clone(), entry: Some(entry) };
        let wishes = BTreeMap::from([(self.keys.topic(), wish)]);
        let Some((_, session)) = self.sessions.get_mut(&connection) else { return };
        let random = &mut self.random;
        let mut nonce = || Some(std::array::from_fn(|_| random.u8(..)));
        let due = session.due(&wishes, moment(net), self.people.identity(self.host), &mut nonce);
        for message in first.into_iter().chain(due) {
            net.send(connection, framed(message.to_frame()));
        }
    }

    fn receive(&mut self, net: &mut Net, connection: ConnectionId, message: &[u8]) {
        let Some((_, session)) = self.sessions.get_mut(&connection) else { return };
        match session.hear(net.instant(), message[0], &Bytes::copy_from_slice(&message[1..])) {
            Ok(HeardMessage::Entry(signed)) => self.take(seconds(net), &signed),
            Ok(_) => {}
            Err(_) => self.lose(net, connection),
        }
    }

    fn take(&mut self, now: u64, signed: &SignedEntry) {
        let is_own = signed.node == self.people.identity(self.host).node_id();
        if is_own || signed.topic != self.keys.topic() || !self.found.take(now, &self.keys, signed) {
            self.passed_over += 1;
            return;
        }
        let found = self.found_part().unwrap_or(0);
        assert!(found >= self.last_found, "nothing old comes back: {found} after {}", self.last_found);
        self.last_found = found;
    }

    fn lose(&mut self, net: &mut Net, connection: ConnectionId) {
        net.close(connection);
        self.closed(net, connection);
    }

    fn closed(&mut self, net: &mut Net, connection: ConnectionId) {
        let was_there =
            self.sessions.remove(&connection).is_some() | self.dialling.remove(&connection).is_some();
        if was_there {
            self.lost += 1;
            net.wake_at(net.now() + Duration::from_millis(self.random.u64(500..5000)));
        }
    }
}
