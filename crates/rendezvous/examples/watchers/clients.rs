//! Those who change entries, and those who watch them. When an entry was changed stands in it, as an address: microseconds.

use std::io::BufRead;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use towpath_content::Oid;
use towpath_content::lock::lock;
use towpath_content::ticket::Secret;
use towpath_link::Identity;
use towpath_rendezvous::client::{FoundNodes, Meeting};
use towpath_rendezvous::place::KnownServer;
use towpath_rendezvous::{HolderEntry, Rendezvous, ServerPlace, TopicKeys};

/// Nodes that change entries; each has its share of the topics.
const CHANGERS: usize = 10;

/// Microseconds since 1970.
pub fn micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

fn keys(topic: usize) -> TopicKeys {
    TopicKeys::new(&Oid::of(&topic.to_le_bytes()), &Secret([7; 16]).into())
}

fn known(place: &ServerPlace) -> [KnownServer; 1] {
    [KnownServer { place: place.clone(), is_trusted: true }]
}

fn entry(at: u64) -> HolderEntry {
    let address = SocketAddr::new(IpAddr::V6(Ipv6Addr::from(u128::from(at))), 1);
    HolderEntry { serves: true, addresses: vec![address], ..HolderEntry::default() }
}

/// When the newest entry was changed.
fn changed_at(found: &FoundNodes) -> u64 {
    let stamps = found.iter().filter_map(|(_, entry)| match entry.addresses.first()?.ip() {
        IpAddr::V6(address) => u64::try_from(u128::from(address)).ok(),
        IpAddr::V4(_) => None,
    });
    stamps.max().unwrap_or(0)
}

/// Those who change entries.
pub struct Changers {
    meetings: Vec<Meeting>,
    _nodes: Vec<Rendezvous>,
}

impl Changers {
    /// Says an entry under each topic.
    pub fn start(place: &ServerPlace, topics: usize) -> Self {
        let node = |_| Rendezvous::new(Identity::generate().expect("a key"));
        let nodes: Vec<Rendezvous> = (0..CHANGERS).map(node).collect();
        let meeting = |topic: usize| {
            let meeting = nodes[topic % CHANGERS].meet(&known(place), &keys(topic));
            meeting.say(Some(entry(micros())));
            meeting
        };
        Self { meetings: (0..topics).map(meeting).collect(), _nodes: nodes }
    }

    /// Waits until each has been told what there is over so many connections.
    pub async fn until_connected(&self, connections: usize) {
        for meeting in &self.meetings {
            let mut found = meeting.found();
            let _ = found.wait_for(|found| found.told >= connections).await;
        }
    }

    /// Waits until somebody who comes now finds an entry under each topic.
    pub async fn until_there(&self, place: &ServerPlace, topics: usize) {
        let node = Rendezvous::new(Identity::generate().expect("a key"));
        for topic in 0..topics {
            let meeting = node.meet(&known(place), &keys(topic));
            let mut found = meeting.found();
            let _ = found.wait_for(|found| changed_at(found) > 0).await;
        }
    }

    /// Changes so many entries each second, evenly.
    pub async fn change(&self, a_second: usize, seconds: usize) {
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / a_second as u32);
        for (_, meeting) in (0..a_second * seconds).zip(self.meetings.iter().cycle()) {
            ticks.tick().await;
            meeting.say(Some(entry(micros())));
        }
        // The last ones are on their way.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Watches: `told N` when all were told over N connections, and at the end a line `AT DELAY` for each change.
pub fn be_watchers(place: &ServerPlace, topics: usize, watchers: Range<usize>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let told = runtime.block_on(async {
        let told = Arc::new(Mutex::new(Vec::new()));
        let tasks: Vec<_> = watchers.map(|watcher| watch(place, watcher % topics, &told)).collect();
        tokio::spawn(tell_connections(tasks));
        told
    });
    // Until the other end has had enough.
    let _ = std::io::stdin().lock().read_line(&mut String::new());
    for (at, delay) in lock(&told).iter() {
        println!("{at} {delay}");
    }
    std::process::exit(0);
}

type Delays = Arc<Mutex<Vec<(u64, u64)>>>;

fn watch(place: &ServerPlace, topic: usize, told: &Delays) -> (Rendezvous, Arc<Meeting>) {
    let node = Rendezvous::new(Identity::generate().expect("a key"));
    let meeting = Arc::new(node.meet(&known(place), &keys(topic)));
    let (mut found, told, mut last) = (meeting.found(), Arc::clone(told), 0);
    tokio::spawn(async move {
        while found.changed().await.is_ok() {
            let at = changed_at(&found.borrow_and_update());
            if at > last {
                last = at;
                lock(&told).push((at, micros().saturating_sub(at)));
            }
        }
    });
    (node, meeting)
}

async fn tell_connections(watchers: Vec<(Rendezvous, Arc<Meeting>)>) {
    for connections in 1.. {
        for (_, meeting) in &watchers {
            let mut found = meeting.found();
            let _ = found.wait_for(|found| found.told >= connections).await;
        }
        println!("told {connections}");
    }
}
