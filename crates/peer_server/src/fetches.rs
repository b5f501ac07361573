//! Fetches from this service, for the person who serves it: by whom, how much went, and how they ended.
//!
//! A fetch is what one node asks for by one ticket, over however many connections, whoever dialled them. Each connection's
//! task looks now and then at what went over it. How each ended is noted in the log of this home, if there is one; without anybody
//! who watches nothing else is kept.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use towpath_api::{Event, Fetch, FetchState, RELAYED, Seconds};
use towpath_content::{NodeId, Oid};
use towpath_files::display_name;
use towpath_protocol::{HAS_ALL, Peer, Served, ServedFetch};
use towpath_store::{ObjectKind, Store};

use crate::fetch_limit::FetchLimit;
use crate::fresh::now;
use towpath_config::fetch_log::{FetchLog, FetchNote, FetchOutcome};
use towpath_content::lock::lock;

/// Interval of looks, ...
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// ... and where nobody watches.
const LOOK_SELDOM: Duration = Duration::from_secs(2);
/// A receiver whose connections are gone may come back at once.
const COMES_BACK: Duration = Duration::from_millis(500);

/// Events that nobody has read yet, at most. Whoever tells of a fetch holds a lock and cannot wait: of one for whose end there
/// is no place nothing is told, and how far others are is told later.
const WAITING: usize = 4096;

/// Objects that are being fetched.
pub struct Fetches {
    store: Arc<dyn Store>,
    under_way: Mutex<HashMap<(NodeId, Oid), FetchUnderWay>>,
    watcher: Mutex<Option<mpsc::Sender<Event>>>,
    /// Names of what is served: of a file that changed the store knows nothing.
    names: Mutex<HashMap<Oid, Vec<u8>>>,
    /// Roots that only so many nodes may fetch.
    limits: Mutex<HashMap<Oid, Arc<FetchLimit>>>,
    log: Option<FetchLog>,
}

/// One fetch.
struct FetchUnderWay {
    connections: usize,
    /// The ticket's mark.
    ticket: Option<u64>,
    /// `None`: it came by a relay.
    address: Option<IpAddr>,
    begun: Instant,
    bytes: u64,
    trouble: Option<String>,
    reported: Option<u64>,
    /// Place of the event that tells its end, once something was told of it.
    end: Option<mpsc::OwnedPermit<Event>>,
}

impl FetchUnderWay {
    fn new(address: Option<IpAddr>) -> Self {
        let begun = Instant::now();
        Self {
            connections: 0,
            ticket: None,
            address,
            begun,
            bytes: 0,
            trouble: None,
            reported: None,
            end: None,
        }
    }

    fn told_address(&self) -> String {
        self.address.map_or_else(|| RELAYED.to_owned(), |address| address.to_canonical().to_string())
    }
}

/// A connection's parts in fetches, by root.
type FetchParts = HashMap<Oid, FetchPart>;

/// A connection's part in a fetch.
struct FetchPart {
    /// The fetch's number on the connection.
    number: u64,
    /// Bytes that went, at the last look.
    bytes: u64,
    /// The peer needs nothing more of it.
    has_ended: bool,
}

impl FetchPart {
    const fn new(number: u64) -> Self {
        Self { number, bytes: 0, has_ended: false }
    }
}

impl Fetches {
    /// Nobody fetches anything yet.
    pub fn new(store: Arc<dyn Store>) -> Self {
        let (under_way, watcher, names) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { store, under_way, watcher, names, limits: Mutex::default(), log: None }
    }

    /// Notes in `log` how each fetch ends.
    #[must_use]
    pub fn noted_in(self, log: FetchLog) -> Self {
        Self { log: Some(log), ..self }
    }

    /// Names what is served as `root`.
    pub fn name(&self, root: Oid, name: &[u8]) {
        lock(&self.names).insert(root, name.to_vec());
    }

    /// From now on `limit` is told who has all of its root. That counts as long as somebody watches.
    pub fn count(&self, limit: &Arc<FetchLimit>) {
        lock(&self.limits).insert(limit.root(), Arc::clone(limit));
    }

    /// Events from now on.
    pub fn watch(&self) -> mpsc::Receiver<Event> {
        let (watcher, inbox) = mpsc::channel(WAITING);
        *lock(&self.watcher) = Some(watcher);
        inbox
    }

    /// Watches what goes over a connection from this address until it ends; does not keep it. What comes by a relay has none.
    pub fn attend(
        self: &Arc<Self>,
        peer: &Arc<Peer>,
        address: Option<IpAddr>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (fetches, closed) = (Arc::clone(self), peer.closed());
        let (node, served, peer) = (peer.node(), Arc::clone(peer.served()), Arc::downgrade(peer));
        async move {
            let is_watched = lock(&fetches.watcher).is_some();
            if !is_watched && fetches.log.is_none() {
                return closed.await;
            }
            let every = if is_watched { LOOK_EVERY } else { LOOK_SELDOM };
            let (mut parts, mut ticks) = (FetchParts::default(), tokio::time::interval(every));
            let mut closed = std::pin::pin!(closed);
            loop {
                let has_ended = tokio::select! {
                    () = &mut closed => true,
                    _ = ticks.tick() => false,
                };
                fetches.look(&served, (node, address), &mut parts);
                if has_ended {
                    break;
                }
            }
            let said = peer.upgrade().and_then(|peer| peer.finished());
            parts.retain(|_, part| !part.has_ended);
            parts.keys().for_each(|root| fetches.leave((node, *root), said.as_deref()));
        }
    }

    /// Counts what went since the last look.
    fn look(
        self: &Arc<Self>,
        served: &Served,
        (node, address): (NodeId, Option<IpAddr>),
        parts: &mut FetchParts,
    ) {
        let fetches = served.fetches();
        let goes_on = |root: &Oid, part: &FetchPart| {
            let goes_on = fetches.get(root).is_some_and(|now| now.number == part.number);
            if !goes_on && !part.has_ended {
                self.leave((node, *root), None);
            }
            goes_on
        };
        parts.retain(|root, part| goes_on(root, part));
        for (root, now) in fetches {
            let is_new = !parts.contains_key(&root);
            let part = parts.entry(root).or_insert_with(|| FetchPart::new(now.number));
            if !part.has_ended {
                self.count_part(&(node, root), (&now, address), part, is_new);
            }
        }
    }

    /// Counts what went of one of them since the last look; `is_new`: that was before it began.
    fn count_part(
        self: &Arc<Self>,
        key: &(NodeId, Oid),
        (now, address): (&ServedFetch, Option<IpAddr>),
        part: &mut FetchPart,
        is_new: bool,
    ) {
        let gone = now.bytes.saturating_sub(std::mem::replace(&mut part.bytes, now.bytes));
        let mut under_way = lock(&self.under_way);
        let is_known = under_way.contains_key(key);
        if !is_known && !is_new && gone == 0 {
            // It ended by what was said on another connection.
            return;
        }
        let fetch = under_way.entry(*key).or_insert_with(|| FetchUnderWay::new(address));
        fetch.connections += usize::from(is_new || !is_known);
        fetch.ticket = now.ticket;
        fetch.bytes += gone;
        fetch.trouble = fetch.trouble.take().or_else(|| now.last_error.clone());
        self.report(key, fetch);
        drop(under_way);
        if let Some(said) = now.ended {
            part.has_ended = true;
            self.leave(*key, said);
        }
    }

    /// A connection is gone; `said` is what the receiver said if it needs nothing more.
    fn leave(self: &Arc<Self>, key: (NodeId, Oid), said: Option<&str>) {
        let mut under_way = lock(&self.under_way);
        let Some(fetch) = under_way.get_mut(&key) else { return };
        fetch.connections -= 1;
        match said {
            Some(said) => self.end(&mut under_way, &key, Some(said)),
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
        let Some(mut fetch) = under_way.remove(key) else { return };
        let trouble = fetch.trouble.clone();
        let (state, error) = match (said, trouble) {
            (Some(HAS_ALL), _) => (FetchState::Complete, None),
            (Some(_), trouble) => (FetchState::Partly, trouble),
            (None, Some(trouble)) => (FetchState::Failed, Some(trouble)),
            (None, None) => (FetchState::BrokenOff, None),
        };
        self.note(key, &fetch, state);
        // Of one without a place nothing was told.
        if let Some(place) = fetch.end.take() {
            place.send(self.event(key, &fetch, state, error));
        }
        if said == Some(HAS_ALL)
            && let Some(limit) = lock(&self.limits).get(&key.1)
        {
            limit.has_all(&key.0);
        }
    }

    /// Notes how a fetch ended.
    fn note(&self, (node, root): &(NodeId, Oid), fetch: &FetchUnderWay, state: FetchState) {
        let Some(log) = &self.log else { return };
        let outcome = match state {
            FetchState::Complete => FetchOutcome::Whole,
            FetchState::Partly => FetchOutcome::Part,
            FetchState::Failed => FetchOutcome::Failed,
            FetchState::Begun | FetchState::UnderWay | FetchState::BrokenOff => FetchOutcome::BrokenOff,
        };
        let (address, bytes) = (fetch.told_address(), fetch.bytes);
        let (oid, node, ticket) = (root.to_string(), *node, fetch.ticket);
        let note = FetchNote { oid, ticket, node, address, at: now(), outcome, bytes };
        if let Err(error) = log.append(&note) {
            tracing::warn!(%error, "who fetched can't be kept");
        }
    }

    /// Tells how far a fetch is, if that is news and there is room for it.
    fn report(&self, key: &(NodeId, Oid), fetch: &mut FetchUnderWay) {
        let mut watcher = lock(&self.watcher);
        watcher.take_if(|events| events.is_closed());
        let Some(events) = watcher.clone() else { return };
        drop(watcher);
        if fetch.reported == Some(fetch.bytes) {
            return;
        }
        if fetch.end.is_none() {
            fetch.end = events.clone().try_reserve_owned().ok();
        }
        if fetch.end.is_some()
            && let Ok(place) = events.try_reserve()
        {
            let state = if fetch.reported.is_none() { FetchState::Begun } else { FetchState::UnderWay };
            place.send(self.event(key, fetch, state, None));
            fetch.reported = Some(fetch.bytes);
        }
    }

    fn event(
        &self,
        (node, root): &(NodeId, Oid),
        fetch: &FetchUnderWay,
        state: FetchState,
        error: Option<String>,
    ) -> Event {
        let about = self.store.have(root).ok();
        let is_tree = about.as_ref().is_some_and(|have| have.about.kind == ObjectKind::Tree);
        Event::Fetch(Fetch {
            state,
            peer: node.short().to_string(),
            address: fetch.told_address(),
            oid: root.to_string(),
            name: display_name(&lock(&self.names).get(root).cloned().unwrap_or_default()),
            bytes: fetch.bytes,
            size: about.filter(|_| !is_tree && !root.is_live()).map(|have| have.layout.size()),
            seconds: Seconds::from_duration(fetch.begun.elapsed()),
            error,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use towpath_plugins::direct::relayed::BY_RELAY;
    use towpath_store::MemoryStore;

    use super::*;

    type Told = Vec<(String, FetchState)>;

    fn told(inbox: &mut mpsc::Receiver<Event>) -> Told {
        let event = |event| match event {
            Event::Fetch(fetch) => (fetch.oid, fetch.state),
            _ => panic!("another event"),
        };
        std::iter::from_fn(|| inbox.try_recv().ok()).map(event).collect()
    }

    #[test]
    fn a_slow_reader_misses_no_end_of_what_it_was_told_and_memory_is_bounded() {
        let fetches = Fetches::new(Arc::new(MemoryStore::new()));
        let mut inbox = fetches.watch();
        let [one, other] = [b"one", &b"other"[..]].map(|data| (NodeId([1; 32]), Oid::of(data)));
        let mut under_way = HashMap::new();
        let mut go_on = |fetches: &Fetches, key, bytes| {
            let new = || FetchUnderWay::new(Some(Ipv4Addr::LOCALHOST.into()));
            let fetch: &mut FetchUnderWay = under_way.entry(key).or_insert_with(new);
            fetch.bytes = bytes;
            fetches.report(&key, fetch);
        };
        (0..2 * WAITING as u64).for_each(|bytes| go_on(&fetches, one, bytes));
        go_on(&fetches, other, 1);
        [one, other].iter().for_each(|key| fetches.end(&mut under_way, key, Some(HAS_ALL)));
        let events = told(&mut inbox);
        assert_eq!(events.len(), WAITING);
        assert_eq!(events.first(), Some(&(one.1.to_string(), FetchState::Begun)));
        assert_eq!(events.last(), Some(&(one.1.to_string(), FetchState::Complete)));
        assert!(events.iter().all(|(oid, _)| *oid == one.1.to_string()), "no end of what had no beginning");
    }

    #[test]
    fn who_comes_by_a_relay_has_no_address() {
        let v4 = Ipv4Addr::new(192, 0, 2, 1);
        for (address, told) in
            [(Some(v4.to_ipv6_mapped().into()), "192.0.2.1"), (None, BY_RELAY), (None, RELAYED)]
        {
            assert_eq!(FetchUnderWay::new(address).told_address(), told);
        }
    }
}
