//! A similar file lies on the receiver's disk, or in the file's place: over a slow network little more than what differs comes.

use std::sync::Arc;
use std::time::Duration;

use towpath_disk_search::Scope;
use towpath_link::Identity;
use towpath_plugins::Direct;
use towpath_plugins::direct::DirectConfig;
use towpath_protocol::{Pace, PeerConfig, Traffic};
use towpath_reuse::adaptive::{Adaptive, Effort, Search};
use towpath_store::doubles::noise;
use towpath_store::{About, DiskStore, MemoryStore};
use towpath_transfer::want::Group;
use towpath_transfer::{ObjectRequest, Session, SessionConfig};

use crate::following::{Bytes, Updated};
use crate::support::*;

const SIZE: usize = 4 << 20;
const EDIT: usize = 5000;
const EDITS: usize = 6;
/// Bytes a second.
const RATE: u64 = 400_000;

/// Two versions, of which the newer has some bytes replaced, inserted or removed in six places.
fn versions() -> (Vec<u8>, Vec<u8>) {
    let old = noise(0, SIZE);
    let mut new = old.clone();
    for edit in (0..EDITS).rev() {
        let at = SIZE / 10 + edit * SIZE / 8;
        let gone = [EDIT, 0, 2 * EDIT][edit % 3];
        new.splice(at..at + gone, noise(edit as u64 + 1, EDIT));
    }
    (old, new)
}

struct Brought {
    traffic: Arc<Traffic>,
    adaptive: Arc<Adaptive>,
}

impl Brought {
    /// Bytes of chunks that crossed the network.
    fn crossed(&self) -> u64 {
        let account = self.adaptive.account();
        account.from_network + account.in_vain - account.by_delta
    }

    /// Bytes that came besides, and besides the pieces that are asked for before the recipe is here: two on an idle
    /// machine.
    fn beyond(&self) -> u64 {
        self.traffic.received().saturating_sub(6 * PIECE as u64 + self.crossed())
    }
}

/// Cost of fetching the newer version where the older one is at hand.
async fn fetch(beyond_destination: bool) -> Brought {
    let (old, new) = versions();
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let (here, elsewhere) = (root.join("here"), root.join("elsewhere"));
    for dir in [&here, &elsewhere] {
        std::fs::create_dir(dir).unwrap();
    }
    std::fs::write(elsewhere.join("other.bin"), &old).unwrap();

    let store = Arc::new(MemoryStore::new());
    let oid = put(&store, &new, &About::default());
    let service = serve(store, &[oid]).await;
    let traffic = Arc::new(Traffic::default());
    let receive_pace = Arc::new(Pace::new(RATE));
    let peer = PeerConfig { receive_pace, traffic: Arc::clone(&traffic), ..PeerConfig::default() };
    let config = DirectConfig { peer, most_connections: 1, ..DirectConfig::default() };
    let network = Arc::new(Direct::new(Identity::generate().unwrap(), config, None));
    let scope = Scope { start: here.clone(), extra: vec![elsewhere], beyond_destination, ..Scope::default() };
    let store = Arc::new(DiskStore::open(&root.join("state"), &root.join("data")).unwrap());
    let adaptive = Adaptive::new(
        network,
        Search { store, scope, leave_out: Arc::new(|_| false), effort: Effort::Some, limit_rate: 0 },
    );

    let session = Session::start(adaptive.clone(), service.context(oid), SessionConfig::default());
    let target = Arc::new(Memory::default());
    let group = Group {
        path: b"new.bin".to_vec(),
        size: Some(new.len() as u64),
        destination: Some(here.join("new.bin")),
        ..Group::default()
    };
    let request = ObjectRequest { group: Arc::new(group), ..request(oid, Some(new.len() as u64), &target) };
    tokio::time::timeout(LIMIT, session.fetch(request)).await.expect("hangs").unwrap();
    target.expect(&new);
    Brought { traffic, adaptive }
}

#[tokio::test(flavor = "multi_thread")]
async fn little_more_than_what_differs_crosses_a_slow_network() {
    let brought = fetch(true).await;
    // Bytes that the disk brought sooner may still be under way, and nothing tells when all of them were counted.
    let is_little = is_soon(Duration::from_secs(5), || brought.beyond() < 40_000).await;
    let (crossed, account) = (brought.crossed(), brought.adaptive.account());
    assert!(is_little, "{} bytes besides {crossed} of chunks: {account:?}", brought.beyond());
    assert!(account.by_delta > (EDITS * EDIT) as u64, "{account:?}");
    // Without the older version all of it would cross. How much comes while the disk reads is a matter of how busy
    // the machine is.
    assert!(crossed < SIZE as u64 / 4, "{crossed} bytes of chunks: {account:?}");
}

/// Content of the disk is no business of strangers.
#[tokio::test(flavor = "multi_thread")]
async fn strangers_are_sent_no_signatures() {
    let account = fetch(false).await.adaptive.account();
    assert!(account.by_delta == 0 && account.from_files > SIZE as u64 / 2, "{account:?}");
}

/// Bytes that cross the network, both ways, for a file of `size` bytes that differs from its older version in this place of every
/// so many, and is longer by a few.
async fn updated(size: usize, every: usize, beyond_destination: bool) -> u64 {
    let older = noise(1, size);
    let mut new = older.clone();
    for at in (every / 2..size).step_by(every) {
        new.splice(at..at + 40, noise(at as u64, 40));
    }
    new.splice(size / 2..size / 2, *b"something new");
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    std::fs::write(root.join("file"), &older).unwrap();
    let store = Arc::new(MemoryStore::new());
    let oid = put(&store, &new, &About::default());
    let service = serve(store, &[oid]).await;
    let traffic = Arc::new(Traffic::default());
    let mut peer = PeerConfig { traffic: Arc::clone(&traffic), ..PeerConfig::default() };
    // Pieces must not be here before there is a recipe.
    if size > 4 << 20 {
        peer.receive_pace = Arc::new(Pace::new(RATE));
    }
    let config = DirectConfig { peer, most_connections: 1, ..DirectConfig::default() };
    let network = Arc::new(Direct::new(Identity::generate().unwrap(), config, None));
    let scope = Scope { start: root.clone(), beyond_destination, ..Scope::default() };
    let store = Arc::new(DiskStore::open(&root.join("state"), &root.join("data")).unwrap());
    // So slow that the network is never measured.
    let search =
        Search { store, scope, leave_out: Arc::new(|_| false), effort: Effort::Some, limit_rate: RATE };
    let session =
        Session::start(Adaptive::new(network, search), service.context(oid), SessionConfig::default());
    let target = Arc::new(Updated { memory: Memory::default(), older: Bytes(older) });
    let group = Group {
        path: b"file".to_vec(),
        size: Some(new.len() as u64),
        destination: Some(root.join("file")),
        ..Group::default()
    };
    let (size, group) = (Some(new.len() as u64), Arc::new(group));
    let request = ObjectRequest { oid, size, group, target: target.clone(), recipe: None };
    tokio::time::timeout(LIMIT, session.fetch(request)).await.expect("hangs").unwrap();
    target.memory.expect(&new);
    traffic.received() + traffic.sent()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_few_pieces_costs_little_more_than_what_differs() {
    for (size, every, most) in [
        (100_000, 50_000, 9_000),
        (400_000, 100_000, 18_000),
        (1_000_000, 150_000, 12_000),
        (3_000_000, 300_000, 18_000),
    ] {
        let crossed = updated(size, every, true).await;
        eprintln!("{size} bytes, a change in each {every}: {crossed} cross both ways");
        assert!(crossed < most, "{crossed} bytes for {size}");
        assert!(updated(size, every, false).await > size as u64 / 3, "a stranger is sent no signature");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_file_of_which_each_chunk_changed_comes_as_deltas_of_the_same_place() {
    // Pieces that come before the recipe are some of it.
    let crossed = updated(8_000_000, 10_000, true).await;
    eprintln!("8000000 bytes, a change in each 10000: {crossed} cross both ways");
    assert!(crossed < 2_500_000, "{crossed} bytes");
}
