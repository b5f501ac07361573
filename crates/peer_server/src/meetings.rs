//! Where others find what this service serves: at the rendezvous servers of its configuration. And where it finds them.
//!
//! What is announced is what [`Grants::served`] says, looked at again every few seconds and whenever a ticket is made. So a
//! daemon's restart, `tow done`, an end or a withdrawal need no word of their own here.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use towpath_config::Live;
use towpath_content::hint::{PeerAddress, RENDEZVOUS};
use towpath_content::lock::lock;
use towpath_content::ticket::BoundSecret;
use towpath_content::{Hint, Oid};
use towpath_link::Identity;
use towpath_rendezvous::client::{KnownServer, Meeting};
use towpath_rendezvous::{Entry, Rendezvous, ServerPlace, TopicKeys};

use crate::grants::Grants;

/// Interval at which it is looked what is served.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Tickets that are announced, at most.
const MOST_TICKETS: usize = 2048;
/// Servers that a ticket names, at most, and that are asked because one does.
const MOST_SERVERS: usize = 4;

/// See the head of this module.
pub struct Meetings {
    rendezvous: Rendezvous,
    grants: Arc<Grants>,
    config: Live,
    look: Notify,
    announced: Mutex<HashMap<(Oid, BoundSecret), Meeting>>,
}

impl Meetings {
    /// Nobody is met yet.
    pub fn new(identity: &Identity, grants: &Arc<Grants>, config: Live) -> Self {
        let (look, announced) = (Notify::new(), Mutex::default());
        let (rendezvous, grants) = (Rendezvous::new(identity.clone()), Arc::clone(grants));
        Self { rendezvous, grants, config, look, announced }
    }

    /// Servers of the configuration.
    fn configured(&self) -> Vec<KnownServer> {
        let servers = &self.config.get().rendezvous.servers;
        servers.iter().filter_map(place).map(|place| KnownServer { place, is_trusted: true }).collect()
    }

    /// True if others can find this service.
    pub fn is_used(&self) -> bool {
        !self.config.get().rendezvous.servers.is_empty()
    }

    /// Hints that name the servers, for a ticket that is about to be made: what it opens is announced at once.
    pub fn hints(&self, rank: usize) -> Vec<Hint> {
        self.look.notify_one();
        let servers = self.configured().into_iter().take(MOST_SERVERS).enumerate();
        let hint = |(at, server): (usize, KnownServer)| {
            let priority = u16::try_from(rank + at).unwrap_or(u16::MAX);
            Hint::new(server.place.method(), priority, 1).ok()
        };
        servers.filter_map(hint).collect()
    }

    /// Meets others who have the ticket for `root` with these hints: at the servers of the configuration, and at those that the
    /// ticket names. `None` if there are none.
    pub fn meet(&self, root: &Oid, secret: &BoundSecret, hints: &[Hint]) -> Option<Meeting> {
        let mut servers = self.configured();
        let named = hints.iter().filter(|hint| hint.scheme() == RENDEZVOUS);
        for place in named.filter_map(|hint| hint.rest().parse::<ServerPlace>().ok()).take(MOST_SERVERS) {
            if !servers.iter().any(|server| server.place == place) {
                servers.push(KnownServer { place, is_trusted: false });
            }
        }
        (!servers.is_empty()).then(|| self.rendezvous.meet(&servers, &TopicKeys::new(root, secret)))
    }

    /// Announces what is served at these addresses, for as long as it is polled.
    pub async fn keep_announced(&self, listening: Vec<SocketAddr>) -> Infallible {
        loop {
            self.announce(&listening);
            let _ = tokio::time::timeout(LOOK_EVERY, self.look.notified()).await;
        }
    }

    fn announce(&self, listening: &[SocketAddr]) {
        let (servers, mut announced) = (self.configured(), lock(&self.announced));
        if servers.is_empty() {
            announced.clear();
            return;
        }
        let mut served = self.grants.served();
        announced.retain(|ticket, _| served.contains_key(ticket));
        for (ticket, has_all) in served.drain() {
            if announced.len() >= MOST_TICKETS && !announced.contains_key(&ticket) {
                continue;
            }
            let met = || self.rendezvous.meet(&servers, &TopicKeys::new(&ticket.0, &ticket.1));
            let meeting = announced.entry(ticket).or_insert_with(met);
            meeting.say(Some(entry(has_all, listening)));
        }
    }
}

/// What is said of something that is served here.
fn entry(has_all: bool, listening: &[SocketAddr]) -> Entry {
    let has = if has_all { 1000 } else { 0 };
    Entry { has_all, serves: true, has, addresses: told(listening), ..Entry::default() }
}

/// Addresses that others are told: none of this machine alone, unless there are no others.
pub fn told(listening: &[SocketAddr]) -> Vec<SocketAddr> {
    let far: Vec<_> = listening.iter().copied().filter(|address| !address.ip().is_loopback()).collect();
    if far.is_empty() { listening.to_vec() } else { far }
}

fn place(place: &PeerAddress) -> Option<ServerPlace> {
    Some(ServerPlace { node: place.node?, address: place.address.clone() })
}
