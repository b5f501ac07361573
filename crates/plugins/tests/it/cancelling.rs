//! One of many wants of a call is cancelled, over a real connection on a slow path: its bytes do not cross, and the others
//! come as if nothing had been. What waits for a connection is cancelled, too.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::Semaphore;
use towpath_content::Oid;
use towpath_content::pieces::Layout;
use towpath_link::Identity;
use towpath_plugins::Direct;
use towpath_plugins::direct::DirectConfig;
use towpath_protocol::{Peer, PeerConfig, Service, Traffic};
use towpath_store::doubles::noise;
use towpath_store::{About, MemoryStore};
use towpath_transfer::source::{Backlog, Sink};
use towpath_transfer::want::Payload;
use towpath_transfer::{BoxFuture, Delivery, Outcome, Source, Tag, Want, WantId};

use crate::slow_path::slow;
use crate::support::*;

/// Pieces of the object: far more than all buffers on the way hold.
const PIECES: u64 = 64;

/// Takes nothing until it is opened.
struct Gated {
    gate: Semaphore,
    came: Mutex<BTreeMap<Tag, Delivery>>,
    outcomes: Mutex<Vec<(Tag, Outcome)>>,
    waits: Semaphore,
}

impl Gated {
    fn new() -> Arc<Self> {
        let [gate, waits] = [0, 0].map(Semaphore::new);
        Arc::new(Self { gate, waits, came: Mutex::default(), outcomes: Mutex::default() })
    }
}

impl Sink for Gated {
    fn deliver(&self, delivery: Delivery) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.waits.add_permits(1);
            self.gate.acquire().await.unwrap().forget();
            let twice = self.came.lock().unwrap().insert(delivery.tag, delivery);
            assert!(twice.is_none());
        })
    }

    fn outcome(&self, tag: Tag, outcome: Outcome) {
        self.outcomes.lock().unwrap().push((tag, outcome));
    }

    fn backpressure(&self) -> Backlog {
        Backlog::default()
    }
}

/// A service on a slow path with one object, a plugin that asks it, and what that receives.
struct Scene {
    listening: Listening,
    data: Vec<u8>,
    oid: Oid,
    direct: Direct,
    traffic: Arc<Traffic>,
}

impl Scene {
    async fn new() -> Self {
        let (store, identity) = (Arc::new(MemoryStore::new()), Identity::generate().unwrap());
        let data = noise(1, PIECES as usize * PIECE);
        let oid = put(&store, &data, &About::default());
        let keys = Keys { identity: identity.clone(), secrets: [(oid, SECRET)].into(), allow_all: false };
        let service = Arc::new(Service::new(store, Arc::new(keys)));
        let listening = listen(&identity, move |mut connection| {
            connection.info = slow();
            let peer = Peer::start(connection, PeerConfig::default(), Some(Arc::clone(&service)));
            async move { peer.closed().await }
        })
        .await;
        let traffic = Arc::new(Traffic::default());
        let peer = PeerConfig { traffic: Arc::clone(&traffic), ..PeerConfig::default() };
        let config = DirectConfig { most_connections: 1, peer, ..DirectConfig::default() };
        let direct = Direct::new(Identity::generate().unwrap(), config, None);
        Self { listening, data, oid, direct, traffic }
    }

    /// One for each piece, whose index is its tag.
    fn wants(&self) -> Vec<Want> {
        let (oid, layout) = (self.oid, Layout::of(self.data.len() as u64).unwrap());
        let want = |index| Want::new(index, WantId::Piece { oid, layout, index });
        (0..PIECES).map(want).collect()
    }

    /// All but these came, once, and these ended as cancelled; of their bytes nothing crossed.
    fn expect_all_but(&self, sink: &Gated, cancelled: &[Tag]) {
        let mut ended: Vec<_> = sink.outcomes.lock().unwrap().clone();
        ended.sort_by_key(|(tag, _)| *tag);
        assert_eq!(ended, cancelled.iter().map(|tag| (*tag, Outcome::Cancelled)).collect::<Vec<_>>());
        let came = sink.came.lock().unwrap();
        let others: Vec<Tag> = (0..PIECES).filter(|tag| !cancelled.contains(tag)).collect();
        assert_eq!(came.keys().copied().collect::<Vec<_>>(), others);
        for (tag, piece) in self.data.chunks(PIECE).enumerate() {
            let delivery = came.get(&(tag as Tag));
            assert!(delivery.is_none_or(|it| matches!(&it.payload, Payload::Bytes(bytes) if bytes == piece)));
        }
        let needed = (others.len() * PIECE) as u64;
        let received = self.traffic.received();
        assert!((needed..needed + PIECE as u64).contains(&received), "{received} instead of {needed}");
    }
}

#[tokio::test]
async fn one_of_many_wants_is_cancelled_and_the_others_come_untouched() {
    let (scene, sink) = (Scene::new().await, Gated::new());
    let context = scene.listening.context(scene.oid);
    let asking = scene.direct.get(scene.wants(), &context, sink.clone());
    let cancelling = async {
        // The first piece is here, and what is on its way waits behind it.
        sink.waits.acquire().await.unwrap().forget();
        scene.direct.cancel(&[PIECES - 4]);
        scene.direct.cancel(&[PIECES - 4, PIECES - 2]);
        scene.direct.cancel(&[PIECES + 1]);
        sink.gate.add_permits(Semaphore::MAX_PERMITS / 2);
    };
    tokio::time::timeout(LIMIT, async { tokio::join!(asking, cancelling) }).await.expect("it does not end");
    scene.expect_all_but(&sink, &[PIECES - 4, PIECES - 2]);
}

#[tokio::test]
async fn what_waits_for_a_connection_is_not_asked_for_once_it_is_cancelled() {
    let (scene, sink) = (Scene::new().await, Gated::new());
    sink.gate.add_permits(Semaphore::MAX_PERMITS / 2);
    let context = scene.listening.context(scene.oid);
    let asking = scene.direct.get(scene.wants(), &context, sink.clone());
    // It has begun to dial when this is polled.
    let cancelling = async { scene.direct.cancel(&[0, 1, 7]) };
    tokio::time::timeout(LIMIT, async { tokio::join!(asking, cancelling) }).await.expect("it does not end");
    scene.expect_all_but(&sink, &[0, 1, 7]);
}
