//! The client: one connection to each server, for all topics of a program.
//!
//! [`Rendezvous::meet`] says what this node has under a topic and hears who else is there, at all servers that a ticket names.
//! A server that is away is dialled again and told everything anew; one that lies or hides entries is one of several.

mod connection;
mod found;
mod session;
#[cfg(test)]
mod tests;
mod told;

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, Weak};

use tokio::sync::watch;
use towpath_content::NodeId;
use towpath_content::lock::lock;
use towpath_link::Identity;
use towpath_link::tcp::SharedPort;

pub use found::FoundNodes;

use crate::dialling::ServerWay;
use crate::entry::HolderEntry;
use crate::place::{KnownServer, ServerPlace};
use crate::topic::{Topic, TopicKeys};

/// The connections with servers.
#[derive(Debug)]
pub struct Rendezvous {
    identity: Identity,
    /// Connections go out from here, so what servers see is an address that others may open connections to while this node does.
    port: Option<SharedPort>,
    clients: Mutex<HashMap<KnownServer, Weak<ServerClient>>>,
}

/// One server, as long as something is wanted of it.
#[derive(Debug)]
struct ServerClient {
    topics: Mutex<BTreeMap<Topic, Vec<Weak<MeetingState>>>>,
    /// Counts changes of what is wanted. The connection ends, with its last words, when it is gone.
    changes: watch::Sender<u64>,
    /// What is known of the server now.
    status: watch::Sender<ServerStatus>,
}

/// What is known of a server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerStatus {
    /// This node's address as the server sees it, while there is a connection.
    pub seen: Option<SocketAddr>,
    /// Why there is none.
    pub trouble: Option<String>,
}

/// What a program says and hears under one topic; dropping it ends both.
#[derive(Debug)]
pub struct Meeting {
    state: Arc<MeetingState>,
    clients: Vec<(KnownServer, Arc<ServerClient>)>,
}

#[derive(Debug)]
struct MeetingState {
    keys: TopicKeys,
    own: NodeId,
    entry: Mutex<Option<HolderEntry>>,
    found: watch::Sender<FoundNodes>,
}

impl Rendezvous {
    /// Nothing is dialled before something is wanted.
    pub fn new(identity: Identity) -> Self {
        let port = SharedPort::new();
        let port =
            port.inspect_err(|error| tracing::debug!(%error, "no port is held for crossing connections"));
        Self { identity, port: port.ok(), clients: Mutex::default() }
    }

    /// The port that connections go out from; it is what [`Meeting::seen`] tells outside.
    pub const fn port(&self) -> Option<&SharedPort> {
        self.port.as_ref()
    }

    /// Meets others who have the ticket with these keys, at all of these servers.
    pub fn meet(&self, servers: &[KnownServer], keys: &TopicKeys) -> Meeting {
        let (entry, found) = (Mutex::default(), watch::Sender::new(FoundNodes::default()));
        let own = self.identity.node_id();
        let state = Arc::new(MeetingState { keys: keys.clone(), own, entry, found });
        let clients = servers.iter().map(|server| (server.clone(), self.client(server))).collect();
        let meeting = Meeting { state, clients };
        for (_, client) in &meeting.clients {
            let mut topics = lock(&client.topics);
            topics.entry(keys.topic()).or_default().push(Arc::downgrade(&meeting.state));
        }
        meeting.tell();
        meeting
    }

    fn client(&self, server: &KnownServer) -> Arc<ServerClient> {
        let mut clients = lock(&self.clients);
        clients.retain(|_, client| client.strong_count() > 0);
        if let Some(client) = clients.get(server).and_then(Weak::upgrade) {
            return client;
        }
        let (changes, status) = (watch::Sender::new(0), watch::Sender::new(ServerStatus::default()));
        let wanted = changes.subscribe();
        let client = Arc::new(ServerClient { topics: Mutex::default(), changes, status });
        let way =
            ServerWay { server: server.clone(), identity: self.identity.clone(), port: self.port.clone() };
        tokio::spawn(connection::run(way, Arc::downgrade(&client), wanted));
        clients.insert(server.clone(), Arc::downgrade(&client));
        client
    }
}

impl Meeting {
    /// From now on others are told this of this node; `None`: that it is there no more.
    pub fn say(&self, entry: Option<HolderEntry>) {
        if std::mem::replace(&mut *lock(&self.state.entry), entry.clone()) != entry {
            self.tell();
        }
    }

    /// Others who are there, as it changes.
    pub fn found(&self) -> watch::Receiver<FoundNodes> {
        self.state.found.subscribe()
    }

    /// What is known of each server.
    pub fn servers(&self) -> Vec<(ServerPlace, ServerStatus)> {
        let status = |(server, client): &(KnownServer, Arc<ServerClient>)| {
            (server.place.clone(), client.status.borrow().clone())
        };
        self.clients.iter().map(status).collect()
    }

    /// This node's addresses as servers see them, now.
    pub fn seen(&self) -> Vec<SocketAddr> {
        let seen = self.clients.iter().filter_map(|(_, client)| client.status.borrow().seen);
        let mut seen: Vec<_> = seen.collect();
        seen.sort_unstable();
        seen.dedup();
        seen
    }

    /// Waits until something of the servers has changed.
    pub async fn changed(&self) {
        let mut all: Vec<_> = self.clients.iter().map(|(_, client)| client.status.subscribe()).collect();
        all.iter_mut().for_each(watch::Receiver::mark_unchanged);
        let each = all.iter_mut().map(|status| Box::pin(status.changed()));
        match each.len() {
            0 => std::future::pending().await,
            _ => drop(futures_util::future::select_all(each).await),
        }
    }

    fn tell(&self) {
        for (_, client) in &self.clients {
            client.changes.send_modify(|count| *count += 1);
        }
    }
}

impl Drop for Meeting {
    fn drop(&mut self) {
        for (_, client) in &self.clients {
            let mut topics = lock(&client.topics);
            if let Some(states) = topics.get_mut(&self.state.keys.topic()) {
                states.retain(|state| state.upgrade().is_some_and(|state| !Arc::ptr_eq(&state, &self.state)));
                if states.is_empty() {
                    topics.remove(&self.state.keys.topic());
                }
            }
        }
        self.tell();
    }
}
