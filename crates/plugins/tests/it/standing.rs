//! Connections that stand already and that a transfer may use beside others.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use tokio::sync::mpsc;
use towpath_content::pieces::Layout;
use towpath_content::{Hint, NodeId, Oid};
use towpath_link::tcp::Timeouts;
use towpath_link::{Connection, Identity, doubles};
use towpath_plugins::direct::{DirectConfig, PeerHost, PeerPool};
use towpath_plugins::hinted::HintedWay;
use towpath_plugins::{Direct, HintedNodes};
use towpath_protocol::{HAS_ALL, Peer, PeerConfig, Service};
use towpath_store::{About, MemoryStore};
use towpath_transfer::finder::{Finder, SourceChange};
use towpath_transfer::source::{Backlog, Query, Sink};
use towpath_transfer::{
    BoxFuture, Context, Delivery, Outcome, Session, SessionConfig, Single, Source, SourceId, Tag, Want,
    WantId,
};

use crate::support::*;

#[derive(Default)]
struct Host(PeerPool);

impl PeerHost for Host {
    fn start(&self, connection: Connection, config: PeerConfig) -> Arc<Peer> {
        let peer = Peer::start(connection, config, None);
        self.0.add(&peer);
        peer
    }

    fn pool(&self) -> &PeerPool {
        &self.0
    }
}

/// Two services with a connection, on which either may ask; one has it among those that stand.
struct Scene {
    near: Arc<Peer>,
    far: Arc<Peer>,
    host: Arc<Host>,
    data: Vec<u8>,
}

async fn scene() -> Scene {
    let (near, far) = connected().await;
    let data = pattern(4 * PIECE, 1);
    let service = || {
        let store = Arc::new(MemoryStore::new());
        put(&store, &data, &About::default());
        let keys = Keys { identity: Identity::generate().unwrap(), secrets: [].into(), allow_all: true };
        Some(Arc::new(Service::new(store, Arc::new(keys))))
    };
    let [near, far] = [near, far].map(|connection| Peer::start(connection, PeerConfig::default(), service()));
    assert!(near.greeted().await);
    let host = Arc::<Host>::default();
    host.0.add(&near);
    Scene { near, far, host, data }
}

impl Scene {
    fn direct(&self) -> Arc<Direct> {
        self.direct_as(DirectConfig::default())
    }

    fn direct_as(&self, config: DirectConfig) -> Arc<Direct> {
        let host = Arc::clone(&self.host) as Arc<dyn PeerHost>;
        Arc::new(Direct::new(Identity::generate().unwrap(), config, Some(host)))
    }

    fn context(&self, node: NodeId) -> Context {
        let hints = tokio::sync::watch::channel(Vec::new()).1;
        Context { root: Oid::of(&self.data), node: Some(node), secret: None, hints }
    }

    /// One for each piece.
    fn wants(&self) -> Vec<Want> {
        let (oid, layout) = (Oid::of(&self.data), Layout::of(self.data.len() as u64).unwrap());
        (0..4).map(|index| Want::new(index, WantId::Piece { oid, layout, index })).collect()
    }

    async fn fetch(&self, source: Arc<dyn Source>, node: NodeId) {
        let context = self.context(node);
        let session = Session::start(Single::root(source), context, SessionConfig::default());
        let (target, oid) = (Arc::new(Memory::default()), Oid::of(&self.data));
        let fetching = session.fetch(request(oid, None, &target));
        tokio::time::timeout(LIMIT, fetching).await.expect("it comes").unwrap();
        target.expect(&self.data);
    }
}

/// Takes nothing.
#[derive(Default)]
struct Stuck(tokio::sync::Notify);

impl Sink for Stuck {
    fn deliver(&self, _delivery: Delivery) -> BoxFuture<'_, ()> {
        self.0.notify_one();
        Box::pin(std::future::pending())
    }

    fn outcome(&self, _tag: Tag, _outcome: Outcome) {}

    fn backpressure(&self) -> Backlog {
        Backlog::default()
    }
}

#[tokio::test]
async fn what_a_transfer_found_it_leaves_to_others() {
    let scene = scene().await;
    let (node, root) = (scene.near.node(), Oid::of(&scene.data));
    let state = || scene.far.served().fetches().get(&root).map(|fetch| (fetch.number, fetch.ended));
    for number in 0..2 {
        // Nothing can be dialled, so they share it.
        let (first, second) = (scene.direct(), scene.direct());
        scene.fetch(first.clone(), node).await;
        scene.fetch(second.clone(), node).await;
        first.finish(HAS_ALL).await;
        scene.fetch(second.clone(), node).await;
        assert_eq!(state(), Some((number, None)), "one still needs it");
        second.finish("").await;
        let is_told = || state() == Some((number, Some(Some(HAS_ALL))));
        assert!(is_soon(LIMIT, is_told).await, "the other side knows how it ended");
        assert_eq!((scene.near.ended(), scene.far.ended()), (None, None));
    }
    let left = scene.direct();
    scene.fetch(left.clone(), node).await;
    drop(left);
    assert!(is_soon(LIMIT, || state() == Some((2, Some(None)))).await, "without a word it gave up");
    scene.fetch(scene.direct(), node).await;
}

/// Notes how wants ended.
#[derive(Default)]
struct Ends(Mutex<Vec<(Tag, Option<Outcome>)>>);

impl Sink for Ends {
    fn deliver(&self, delivery: Delivery) -> BoxFuture<'_, ()> {
        self.0.lock().unwrap().push((delivery.tag, None));
        Box::pin(std::future::ready(()))
    }

    fn outcome(&self, tag: Tag, outcome: Outcome) {
        self.0.lock().unwrap().push((tag, Some(outcome)));
    }

    fn backpressure(&self) -> Backlog {
        Backlog::default()
    }
}

/// The wants of both have the same tags.
#[tokio::test]
async fn what_one_transfer_cancels_another_one_gets_over_the_same_connection() {
    let scene = scene().await;
    let context = scene.context(scene.near.node());
    let ends = [(); 2].map(|()| Arc::new(Ends::default()));
    let directs = [scene.direct(), scene.direct()];
    let mut asking = [0, 1].map(|at| directs[at].get(scene.wants(), &context, Arc::clone(&ends[at]) as _));
    for asked in &mut asking {
        let asked = std::future::poll_fn(|context| Poll::Ready(asked.as_mut().poll(context).is_ready()));
        assert!(!asked.await);
    }
    assert!(scene.near.heard().awaits_data);
    directs[1].cancel(&[0, 1, 2, 3]);
    let [first, second] = asking;
    tokio::time::timeout(LIMIT, async { tokio::join!(first, second) }).await.expect("they end");
    let [mut first, second] = ends.map(|ends| std::mem::take(&mut *ends.0.lock().unwrap()));
    first.sort_by_key(|(tag, _)| *tag);
    assert_eq!(first, [0, 1, 2, 3].map(|tag| (tag, None)));
    assert_eq!(second.len(), 4);
    assert!(second.iter().any(|(_, outcome)| *outcome == Some(Outcome::Cancelled)), "{second:?}");
}

/// A router that drops what is for it: nobody refuses, and nobody answers.
#[tokio::test]
async fn a_node_at_whose_address_nobody_answers_is_asked_beside_others_while_it_is_dialled() {
    let scene = scene().await;
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let hint = Hint::new(format!("tow://{}", silent.local_addr().unwrap()), 0, 1).unwrap();
    let first = scene.direct();
    scene.fetch(first.clone(), scene.near.node()).await;
    let forever = Timeouts { connect: 10 * LIMIT, handshake: 10 * LIMIT };
    let second = scene.direct_as(DirectConfig { dial: forever.into(), ..DirectConfig::default() });
    let hints = tokio::sync::watch::channel(vec![hint]).1;
    let context = Context { hints, ..scene.context(scene.near.node()) };
    let (query, (answers, mut inbox)) = (Query::about(context.root), mpsc::channel(4));
    let asked = tokio::time::timeout(LIMIT, second.describe(query, &context, answers)).await;
    assert_eq!(asked.expect("it answers"), Ok(()));
    assert!(inbox.recv().await.is_some());
    drop(first);
}

#[tokio::test]
async fn the_end_of_the_transfer_that_dialled_leaves_its_connection_to_those_that_share_it() {
    let data = pattern(4 * PIECE, 1);
    let store = Arc::new(MemoryStore::new());
    let oid = put(&store, &data, &About::default());
    let listening = serve(store, &[oid]).await;
    let (identity, host) = (Identity::generate().unwrap(), Arc::<Host>::default());
    let direct = || {
        let host = Arc::clone(&host) as Arc<dyn PeerHost>;
        Arc::new(Direct::new(identity.clone(), DirectConfig::default(), Some(host)))
    };
    let fetch = async |source: &Arc<Direct>, context| {
        let source = Arc::clone(source) as Arc<dyn Source>;
        let session = Session::start(Single::root(source), context, SessionConfig::default());
        let target = Arc::new(Memory::default());
        let fetching = session.fetch(request(oid, None, &target));
        tokio::time::timeout(LIMIT, fetching).await.expect("it comes").unwrap();
        target.expect(&data);
    };
    let unreached = || Context { hints: tokio::sync::watch::channel(Vec::new()).1, ..listening.context(oid) };
    let (dialled, found) = (direct(), direct());
    fetch(&dialled, listening.context(oid)).await;
    fetch(&found, unreached()).await;
    assert_eq!(host.0.len(), 1);
    dialled.finish(HAS_ALL).await;
    fetch(&found, unreached()).await;
    found.finish(HAS_ALL).await;
    host.0.tidy();
    assert!(host.0.is_empty(), "nobody needs it any more");
}

#[tokio::test]
async fn a_connection_that_brought_what_is_wrong_is_closed_for_all() {
    let scene = scene().await;
    let direct = scene.direct();
    scene.fetch(direct.clone(), scene.near.node()).await;
    direct.report_corrupt(&SourceId::peer(NodeId([9; 32])));
    assert_eq!(scene.near.ended(), None, "somebody else's fault");
    direct.report_corrupt(&SourceId::peer(scene.near.node()));
    tokio::time::timeout(LIMIT, scene.far.closed()).await.expect("it is closed");
    scene.host.0.tidy();
    assert!(scene.host.0.is_empty());
}

/// What the one side did not take kept the connection from what the other side asked.
#[tokio::test]
async fn a_session_that_takes_nothing_holds_up_nothing_else_on_a_connection_that_it_found() {
    let scene = scene().await;
    let (direct, context) = (scene.direct(), scene.context(scene.near.node()));
    let sink = Arc::new(Stuck::default());
    let asking = direct.get(scene.wants(), &context, sink.clone());
    let other = async {
        sink.0.notified().await;
        // Another transfer of this side, and one of the other side.
        scene.fetch(scene.direct(), scene.near.node()).await;
        let over = Arc::new(Direct::over(Arc::clone(&scene.far), Identity::generate().unwrap()));
        scene.fetch(over, scene.far.node()).await;
    };
    tokio::select! {
        () = asking => panic!("nothing was taken"),
        () = other => {}
    }
}

/// It was asked again and again, though it could have been dialled.
#[tokio::test]
async fn a_connection_that_brings_nothing_is_left_for_one_that_can_be_dialled() {
    let data = pattern(4 * PIECE, 1);
    let store = Arc::new(MemoryStore::new());
    let oid = put(&store, &data, &About::default());
    let listening = serve(store, &[oid]).await;
    let identity = Identity::generate().unwrap();
    for is_described in [false, true] {
        let [near, mut far] = doubles::connected([identity.node_id(), listening.node]).await;
        // It says that it answers, and nothing more.
        far.writer.send_bytes(0, &[], hello(&["answers"]).to_frame()).await.unwrap();
        far.writer.flush().await.unwrap();
        let near = Peer::start(near, PeerConfig::default(), None);
        assert!(near.greeted().await);
        let host = Arc::<Host>::default();
        host.0.add(&near);
        let direct = Direct::new(identity.clone(), DirectConfig::default(), Some(host as Arc<dyn PeerHost>));
        let session =
            Session::start(Single::root(Arc::new(direct)), listening.context(oid), SessionConfig::default());
        let target = Arc::new(Memory::default());
        let size = is_described.then_some(data.len() as u64);
        let fetching = session.fetch(request(oid, size, &target));
        tokio::time::timeout(LIMIT, fetching).await.expect("it comes").unwrap();
        target.expect(&data);
        assert_eq!(near.ended(), None, "others may have use for it");
    }
}

/// One that a relay carries is asked by the source that asks by relays, and by no other: it is dearer, and a direct one is looked for.
#[tokio::test]
async fn a_connection_by_a_relay_is_asked_by_the_source_that_asks_by_relays_alone() {
    let (scene, pool) = (scene().await, Arc::<Host>::default());
    pool.0.add_relayed(&scene.near);
    let node = scene.near.node();
    assert!(pool.0.is_relayed(&node) && !pool.0.reaches(&node));
    let direct = |is_relayed| {
        let config = DirectConfig { is_relayed, ..DirectConfig::default() };
        let host = Arc::clone(&pool) as Arc<dyn PeerHost>;
        Arc::new(Direct::new(Identity::generate().unwrap(), config, Some(host)))
    };
    let context = scene.context(node);
    let asked = direct(false).describe(Query::about(context.root), &context, mpsc::channel(1).0).await;
    assert_eq!(asked, Err(Outcome::NotHere));
    scene.fetch(direct(true), node).await;
    // A finder tells of it, though no hint names a relay, and only of the node that is asked for.
    for (issuer, count) in [(node, 1), (scene.far.node(), 0)] {
        let made = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let (counted, relayed) = (Arc::clone(&made), direct(true));
        let make = move |_, way| -> Vec<Arc<dyn Source>> {
            counted.fetch_add(usize::from(way == HintedWay::Relayed), Ordering::Relaxed);
            vec![Arc::clone(&relayed) as Arc<dyn Source>]
        };
        let finder = HintedNodes::new(Box::new(make), Some(Arc::clone(&pool) as Arc<dyn PeerHost>));
        let (changes, mut told) = mpsc::channel(4);
        let context = scene.context(issuer);
        let looking = async {
            while let Some(change) = told.recv().await {
                if matches!(change, SourceChange::Looked) {
                    break;
                }
            }
        };
        tokio::select! {
            () = finder.find(&context, changes) => panic!("another one may come"),
            () = looking => {}
        }
        assert_eq!(made.load(Ordering::Relaxed), count);
    }
}
