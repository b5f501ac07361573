//! Introductions at work: a service's connections by their numbers, and the messages that go out on them.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use bytes::Bytes;
use towpath_content::NodeId;
use towpath_content::lock::lock;

use super::introductions::{FetchedRoot, Introduction, Introductions};
use super::shared::Shared;
use super::wire::{Body, WireHolder, oid_field};

/// Those of one service.
#[derive(Default)]
pub(super) struct Introducer(Mutex<KnownConnections>);

#[derive(Default)]
struct KnownConnections {
    introductions: Introductions,
    by_number: HashMap<u64, Weak<Shared>>,
    last: u64,
}

/// A connection's part in them, which ends when this is dropped.
pub(super) struct IntroducedPeer {
    introducer: Arc<Introducer>,
    connection: Weak<Shared>,
    address: Option<IpAddr>,
    /// Number of the connection, once its peer fetches something of which others may know.
    number: OnceLock<u64>,
}

impl IntroducedPeer {
    /// Nothing is fetched yet over this connection, from `address`. Of a pipe, which has none, nobody is told.
    pub(super) fn new(
        introducer: &Arc<Introducer>,
        connection: &Arc<Shared>,
        address: Option<IpAddr>,
    ) -> Self {
        let (introducer, connection) = (Arc::clone(introducer), Arc::downgrade(connection));
        Self { introducer, connection, address, number: OnceLock::new() }
    }

    /// The peer proved the right to what it fetches.
    pub(super) fn joined(&self, fetched: FetchedRoot) {
        let Some((peer, address)) = self.connection.upgrade().zip(self.address) else { return };
        let mut known = lock(&self.introducer.0);
        let number = *self.number.get_or_init(|| known.add(&self.connection));
        let introductions = known.introductions.joined(number, (peer.node, address), fetched);
        let news = known.tell(introductions, &fetched);
        drop(known);
        news.into_iter().for_each(HolderNews::tell);
    }

    /// The peer serves what it fetches at this port; 0: no more.
    pub(super) fn serves(&self, fetched: FetchedRoot, port: u16) {
        let Some(number) = self.number.get() else { return };
        let mut known = lock(&self.introducer.0);
        let introductions = known.introductions.serves(*number, fetched, port);
        let news = known.tell(introductions, &fetched);
        drop(known);
        news.into_iter().for_each(HolderNews::tell);
    }
}

impl Introducer {
    /// This service is at these addresses now, too.
    pub(super) fn moved(&self, own: NodeId, addresses: &[SocketAddr]) {
        let mut known = lock(&self.0);
        let told = known.introductions.moved(own, addresses);
        let news = told.into_iter().flat_map(|(told, fetched)| known.tell(vec![told], &fetched));
        let news: Vec<HolderNews> = news.collect();
        drop(known);
        news.into_iter().for_each(HolderNews::tell);
    }
}

impl Drop for IntroducedPeer {
    fn drop(&mut self) {
        if let Some(number) = self.number.get() {
            let mut known = lock(&self.introducer.0);
            known.introductions.left(*number);
            known.by_number.remove(number);
        }
    }
}

impl KnownConnections {
    fn add(&mut self, connection: &Weak<Shared>) -> u64 {
        self.last += 1;
        self.by_number.insert(self.last, Weak::clone(connection));
        self.last
    }

    fn tell(&self, introductions: Vec<Introduction>, (root, _): &FetchedRoot) -> Vec<HolderNews> {
        let news = |told: Introduction| {
            let connection = self.by_number.get(&told.connection)?.upgrade()?;
            let (node, address) = (Bytes::copy_from_slice(&told.holder.node.0), told.holder.address);
            let holder = WireHolder { root: oid_field(root), node, address: address.to_string() };
            Some(HolderNews { connection, holder })
        };
        introductions.into_iter().filter_map(news).collect()
    }
}

/// A message that is to go out on a connection.
struct HolderNews {
    connection: Arc<Shared>,
    holder: WireHolder,
}

impl HolderNews {
    fn tell(self) {
        self.connection.change(|callers| callers.session().reply([Body::Holder(self.holder)]));
    }
}
