//! Where others find what this service serves: at the rendezvous servers of its configuration. And where it finds them.
//!
//! What is announced is what [`Grants::served`] says, looked at again every few seconds and whenever a ticket is made. So a
//! daemon's restart, `tow done`, an end or a withdrawal need no word of their own here.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use tokio::task::AbortHandle;
use towpath_config::{Config, Live};
use towpath_content::hint::{PeerAddress, RENDEZVOUS};
use towpath_content::lock::lock;
use towpath_content::ticket::BoundSecret;
use towpath_content::{Hint, Oid};
use towpath_link::Identity;
use towpath_plugins::direct::PeerHost;
use towpath_protocol::PeerConfig;
use towpath_rendezvous::client::Meeting;
use towpath_rendezvous::place::KnownServer;
use towpath_rendezvous::{HolderEntry, Rendezvous, ServerPlace, TopicKeys};

use crate::calling::{AT_ONCE, Calls, NodeCaller};
use crate::grants::Grants;
use crate::relayed::MOST_RELAYS;

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
    look: Arc<Notify>,
    announced: Mutex<HashMap<(Oid, BoundSecret), AnnouncedTicket>>,
}

/// A ticket that is announced, until this is dropped.
struct AnnouncedTicket {
    meeting: Arc<Meeting>,
    calling: AbortHandle,
}

impl Drop for AnnouncedTicket {
    fn drop(&mut self) {
        self.calling.abort();
    }
}

impl Meetings {
    /// Nobody is met yet.
    pub fn new(identity: &Identity, grants: &Arc<Grants>, config: Live) -> Self {
        let (look, announced) = (Arc::default(), Mutex::default());
        let (rendezvous, grants) = (Rendezvous::new(identity.clone()), Arc::clone(grants));
        Self { rendezvous, grants, config, look, announced }
    }

    /// True if others can find this service.
    pub fn is_used(&self) -> bool {
        !self.config.get().rendezvous.servers.is_empty()
    }

    /// Hints that name the servers, for a ticket that is about to be made: what it opens is announced at once.
    pub fn hints(&self, rank: usize) -> Vec<Hint> {
        self.look.notify_one();
        let servers = configured(&self.config.get()).into_iter().take(MOST_SERVERS).enumerate();
        let hint = |(at, server): (usize, KnownServer)| {
            let priority = u16::try_from(rank + at).unwrap_or(u16::MAX);
            Hint::new(server.place.method(), priority, 1).ok()
        };
        servers.filter_map(hint).collect()
    }

    /// Meets others who have the ticket for `root` with these hints: at the servers of the configuration, and at those that the
    /// ticket names. `None` if there are none.
    pub fn meet(&self, root: &Oid, secret: &BoundSecret, hints: &[Hint]) -> Option<Meeting> {
        let mut servers = configured(&self.config.get());
        let named = hints.iter().filter(|hint| hint.scheme() == RENDEZVOUS);
        for place in named.filter_map(|hint| hint.rest().parse::<ServerPlace>().ok()).take(MOST_SERVERS) {
            if !servers.iter().any(|server| server.place == place) {
                servers.push(KnownServer { place, is_trusted: false });
            }
        }
        (!servers.is_empty()).then(|| self.rendezvous.meet(&servers, &TopicKeys::new(root, secret)))
    }

    /// Calls others whom it met; `host` has the connections, which are configured so.
    pub fn caller(
        &self,
        identity: &Identity,
        host: Arc<dyn PeerHost>,
        config: impl Fn() -> PeerConfig + Send + Sync + 'static,
    ) -> Arc<NodeCaller> {
        let (identity, port) = (identity.clone(), self.rendezvous.port().cloned());
        Arc::new(NodeCaller {
            identity,
            port,
            host,
            config: Box::new(config),
            places: Semaphore::new(AT_ONCE),
        })
    }

    /// Announces what is served at these addresses, and has those called who ask for it, for as long as it is polled.
    pub async fn keep_announced(&self, listening: Vec<SocketAddr>, caller: Arc<NodeCaller>) -> Infallible {
        loop {
            self.announce(&listening, &caller);
            let _ = tokio::time::timeout(LOOK_EVERY, self.look.notified()).await;
        }
    }

    fn announce(&self, listening: &[SocketAddr], caller: &Arc<NodeCaller>) {
        let (servers, mut announced) = (configured(&self.config.get()), lock(&self.announced));
        if servers.is_empty() {
            announced.clear();
            return;
        }
        let relays: Vec<String> =
            self.config.get().rendezvous.relays.iter().take(MOST_RELAYS).map(ToString::to_string).collect();
        let mut served = self.grants.served();
        announced.retain(|ticket, _| served.contains_key(ticket));
        for (ticket, has_all) in served.drain() {
            if announced.len() >= MOST_TICKETS && !announced.contains_key(&ticket) {
                continue;
            }
            let announced = announced.entry(ticket).or_insert_with(|| {
                let (root, secret) = ticket;
                let meeting = Arc::new(self.rendezvous.meet(&servers, &TopicKeys::new(&root, &secret)));
                let (met, caller) = (Arc::clone(&meeting), Arc::clone(caller));
                let look = Arc::clone(&self.look);
                let calling = tokio::spawn(async move {
                    tokio::join!(caller.attend(&met, Calls::WhoAsks, root, secret), async {
                        loop {
                            met.changed().await;
                            look.notify_one();
                        }
                    });
                });
                AnnouncedTicket { meeting, calling: calling.abort_handle() }
            });
            let entry = entry(has_all, listening, announced.meeting.seen());
            announced.meeting.say(Some(HolderEntry { relays: relays.clone(), ..entry }));
        }
    }
}

/// What is said of something that is served here.
fn entry(has_all: bool, listening: &[SocketAddr], outside: Vec<SocketAddr>) -> HolderEntry {
    let has = if has_all { 1000 } else { 0 };
    let addresses = told(listening, &outside);
    HolderEntry { has_all, serves: true, has, addresses, outside, ..HolderEntry::default() }
}

/// Addresses that others are told: none of this machine alone, unless there are no others; and where a router that lets in what
/// comes to its own address would pass it on from, of which only the port is a guess.
pub fn told(listening: &[SocketAddr], outside: &[SocketAddr]) -> Vec<SocketAddr> {
    let far: Vec<_> = listening.iter().copied().filter(|address| !address.ip().is_loopback()).collect();
    let mut told = if far.is_empty() { listening.to_vec() } else { far };
    let port = listening.first().map(SocketAddr::port);
    for outer in outside.iter().zip(port).map(|(outside, port)| SocketAddr::new(outside.ip(), port)) {
        if !told.contains(&outer) {
            told.push(outer);
        }
    }
    told
}

/// Servers of the configuration.
pub fn configured(config: &Config) -> Vec<KnownServer> {
    let servers = config.rendezvous.servers.iter();
    servers.filter_map(place).map(|place| KnownServer { place, is_trusted: true }).collect()
}

fn place(place: &PeerAddress) -> Option<ServerPlace> {
    Some(ServerPlace { node: place.node?, address: place.address.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_of_use_elsewhere_if_anything_is() {
        let of = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>();
        let rows: [(&[&str], &[&str], &[&str]); 4] = [
            (&["10.0.0.2:7", "127.0.0.1:7"], &[], &["10.0.0.2:7"]),
            (&["127.0.0.1:7"], &["127.0.0.1:9"], &["127.0.0.1:7"]),
            (&["10.0.0.2:7"], &["192.0.2.1:9"], &["10.0.0.2:7", "192.0.2.1:7"]),
            (&[], &["192.0.2.1:9"], &[]),
        ];
        for (listening, outside, expected) in rows {
            assert_eq!(told(&of(listening), &of(outside)), of(expected), "{listening:?} {outside:?}");
        }
    }
}
