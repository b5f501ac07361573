//! Fetches from this service, for the person who serves it: by whom, how much went, and how they ended.
//!
//! A fetch is what one node asks for by one ticket, over however many connections. Each connection's
//! task looks now and then at what went over it. Without anybody who watches nothing is kept.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use towpath_api::{Event, Fetch, FetchState, Seconds};
use towpath_content::{NodeId, Oid};
use towpath_files::display_name;
use towpath_protocol::{HAS_ALL, Peer, Served};
use towpath_store::{ObjectKind, Store};

use towpath_content::lock::lock;

/// Interval of looks.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// A receiver whose connections are gone may come back at once.
const COMES_BACK: Duration = Duration::from_millis(500);

/// Objects that are being fetched.
pub struct Fetches {
    store: Arc<dyn Store>,
    under_way: Mutex<HashMap<(NodeId, Oid), FetchUnderWay>>,
    watcher: Mutex<Option<mpsc::UnboundedSender<Event>>>,
    /// Names of what is served: of a file that changed the store knows nothing.
    names: Mutex<HashMap<Oid, Vec<u8>>>,
}

/// One fetch.
struct FetchUnderWay {
    connections: usize,
    address: IpAddr,
    begun: Instant,
    bytes: u64,
    trouble: Option<String>,
    reported: Option<u64>,
}

impl FetchUnderWay {
    fn new(address: IpAddr) -> Self {
        Self { connections: 0, address, begun: Instant::now(), bytes: 0, trouble: None, reported: None }
    }
}

/// A connection's part in a fetch.
struct FetchPart {
    key: (NodeId, Oid),
    bytes: u64,
}

impl Fetches {
    /// Nobody fetches anything yet.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, under_way: Mutex::default(), watcher: Mutex::default(), names: Mutex::default() }
    }

    /// Names what is served as `root`.
    pub(crate) fn name(&self, root: Oid, name: &[u8]) {
        lock(&self.names).insert(root, name.to_vec());
    }

    /// Events from now on.
    pub(crate) fn watch(&self) -> mpsc::UnboundedReceiver<Event> {
        // The end of a fetch must not be lost. Its sender holds a lock and cannot wait: a few short events a second
        // gather for a slow reader.
        let (watcher, inbox) = mpsc::unbounded_channel();
        *lock(&self.watcher) = Some(watcher);
        inbox
    }

    /// Watches what goes over a connection until it ends.
    pub(crate) async fn attend(self: &Arc<Self>, peer: &Peer, address: IpAddr) {
        if lock(&self.watcher).is_none() {
            return peer.closed().await;
        }
        let mut part = None;
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        loop {
            let has_ended = tokio::select! {
                () = peer.closed() => true,
                _ = ticks.tick() => false,
            };
            part = self.look(peer.served(), peer.node(), address, part);
            if has_ended {
                break;
            }
        }
        if let Some(part) = part {
            self.leave(part.key, peer.finished());
        }
    }

    /// Counts what went since the last look.
    fn look(
        self: &Arc<Self>,
        served: &Served,
        node: NodeId,
        address: IpAddr,
        part: Option<FetchPart>,
    ) -> Option<FetchPart> {
        let root = served.root()?;
        let (key, mut counted) = ((node, root), 0);
        let part = part.filter(|part| {
            counted = part.bytes;
            let is_same = part.key == key;
            if !is_same {
                self.leave(part.key, None);
            }
            is_same
        });
        let mut under_way = lock(&self.under_way);
        let fetch = under_way.entry(key).or_insert_with(|| FetchUnderWay::new(address));
        fetch.connections += usize::from(part.is_none());
        let bytes = served.bytes();
        fetch.bytes += bytes.saturating_sub(counted);
        fetch.trouble = fetch.trouble.take().or_else(|| served.last_error());
        let state = if fetch.reported.is_none() { FetchState::Begun } else { FetchState::UnderWay };
        if fetch.reported.replace(fetch.bytes) != Some(fetch.bytes) {
            self.report(&key, fetch, state, None);
        }
        Some(FetchPart { key, bytes })
    }

    /// A connection is gone; `said` is what the receiver said if it needs nothing more.
    fn leave(self: &Arc<Self>, key: (NodeId, Oid), said: Option<String>) {
        let mut under_way = lock(&self.under_way);
        let Some(fetch) = under_way.get_mut(&key) else { return };
        fetch.connections -= 1;
        match said {
            Some(said) => self.end(&mut under_way, &key, Some(&said)),
            None if fetch.connections == 0 => {
                let fetches = Arc::clone(self);
                tokio::spawn(async move {
                    tokio::time::sleep(COMES_BACK).await;
                    let mut under_way = lock(&fetches.under_way);
                    if under_way.get(&key).is_some_and(|fetch| fetch.connections == 0) {
                        fetches.end(&mut under_way, &key, None);
                    }
                });
            }
            None => {}
        }
    }

    fn end(
        &self,
        under_way: &mut HashMap<(NodeId, Oid), FetchUnderWay>,
        key: &(NodeId, Oid),
        said: Option<&str>,
    ) {
        let Some(fetch) = under_way.remove(key) else { return };
        let trouble = fetch.trouble.clone();
        let (state, error) = match (said, trouble) {
            (Some(HAS_ALL), _) => (FetchState::Complete, None),
            (Some(_), trouble) => (FetchState::Partly, trouble),
            (None, Some(trouble)) => (FetchState::Failed, Some(trouble)),
            (None, None) => (FetchState::BrokenOff, None),
        };
        self.report(key, &fetch, state, error);
    }

    fn report(
        &self,
        (node, root): &(NodeId, Oid),
        fetch: &FetchUnderWay,
        state: FetchState,
        error: Option<String>,
    ) {
        let mut watcher = lock(&self.watcher);
        let Some(events) = &*watcher else { return };
        let about = self.store.have(root).ok();
        let is_tree = about.as_ref().is_some_and(|have| have.about.kind == ObjectKind::Tree);
        let event = Event::Fetch(Fetch {
            state,
            peer: node.short().to_string(),
            address: fetch.address.to_canonical().to_string(),
            oid: root.to_string(),
            name: display_name(&lock(&self.names).get(root).cloned().unwrap_or_default()),
            bytes: fetch.bytes,
            size: about.filter(|_| !is_tree && !root.is_live()).map(|have| have.layout.size()),
            seconds: Seconds::from_duration(fetch.begun.elapsed()),
            error,
        });
        if events.send(event).is_err() {
            *watcher = None;
        }
    }
}
