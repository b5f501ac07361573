//! Requests that change from one way to a better one in mid-transfer, and back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, mpsc, watch};
use towpath_content::Oid;
use towpath_link::Identity;
use towpath_plugins::direct::DirectConfig;
use towpath_plugins::takeover::Names;
use towpath_plugins::{Direct, Local, Takeover};
use towpath_protocol::{Peer, PeerConfig, Service};
use towpath_store::{About, MemoryStore};
use towpath_transfer::offer::{EntryContent, EntryQuery, EntrySink, EntryWant, OfferSource, SignatureWay};
use towpath_transfer::source::{Query, Sink, SourceState};
use towpath_transfer::{BoxFuture, Context, Description, Outcome, Session, Single, Source, Tag, Want};

use crate::support::*;

const NAMES: Names = Names { first: "ssh", better: "tls" };

/// Counts the wants that go through, and may be in trouble.
struct Way {
    inner: Arc<dyn Source>,
    wants: AtomicU64,
    asked: Notify,
    /// Requests wait until this is false.
    holds: watch::Sender<bool>,
    trouble: Mutex<Option<String>>,
}

impl Way {
    fn over(store: &Arc<MemoryStore>) -> Arc<Self> {
        Self::before(Arc::new(Local::new(Arc::clone(store) as _, Arc::new(|_| true))))
    }

    fn before(inner: Arc<dyn Source>) -> Arc<Self> {
        let (wants, holds) = (AtomicU64::new(0), watch::Sender::new(false));
        Arc::new(Self { inner, wants, asked: Notify::new(), holds, trouble: Mutex::default() })
    }

    /// As one of two ways: it knows no entries.
    fn plugin(self: &Arc<Self>) -> Arc<dyn Source> {
        self.clone()
    }

    fn lose(&self, trouble: bool) {
        *self.trouble.lock().unwrap() = trouble.then(|| "lost".into());
    }

    fn wants(&self) -> u64 {
        self.wants.load(Ordering::Relaxed)
    }
}

impl Source for Way {
    fn name(&self) -> &str {
        "way"
    }
    fn state(&self) -> SourceState {
        let trouble = self.trouble.lock().unwrap().clone();
        SourceState { trouble, ..SourceState::of_window(PIECE as u64 * 2) }
    }
    fn inner(&self) -> Option<&dyn Source> {
        Some(&*self.inner)
    }
    fn describe<'a>(
        &'a self,
        query: Query,
        context: &'a Context,
        answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        self.inner.describe(query, context, answers)
    }
    fn get<'a>(&'a self, wants: Vec<Want>, context: &'a Context, sink: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        self.wants.fetch_add(wants.len() as u64, Ordering::Relaxed);
        self.asked.notify_one();
        Box::pin(async move {
            let _ = self.holds.subscribe().wait_for(|holds| !holds).await;
            self.inner.get(wants, context, sink).await;
        })
    }
}

/// It has none.
impl OfferSource for Way {
    fn get_entries(&self, wants: Vec<EntryWant>, sink: Arc<dyn EntrySink>) -> BoxFuture<'_, Vec<EntryWant>> {
        self.wants.fetch_add(wants.len() as u64, Ordering::Relaxed);
        self.asked.notify_one();
        Box::pin(async move {
            let _ = self.holds.subscribe().wait_for(|holds| !holds).await;
            wants.iter().for_each(|want| sink.outcome(want.tag, Outcome::NotHere));
            Vec::new()
        })
    }
}

/// Entries that have ended.
#[derive(Default)]
struct Ended(Mutex<Vec<Tag>>);

impl EntrySink for Ended {
    fn asked(&self, _: &[Tag], _: Arc<dyn SignatureWay>) {}
    fn contents(&self, _: Vec<(Tag, EntryContent)>, _: usize) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
    fn run(&self, _: Tag, _: Bytes) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
    fn outcome(&self, tag: Tag, _: Outcome) {
        self.0.lock().unwrap().push(tag);
    }
}

fn entries(count: u64) -> Vec<EntryWant> {
    let query = |entry| EntryQuery { entry, compare: false, inline: 4096, pack: 0, base: None };
    (0..count).map(|entry| EntryWant { tag: entry, query: Arc::new(query(entry)) }).collect()
}

fn context(root: Oid) -> Context {
    Context { root, node: None, secret: None, hints: watch::channel(Vec::new()).1 }
}

async fn fetch<P: Source + 'static>(plugin: &Arc<P>, data: &[u8]) {
    let session = Session::start(
        Single::root(Arc::clone(plugin) as _),
        context(Oid::of(data)),
        impatient(Duration::from_secs(10)),
    );
    let target = Arc::new(Memory::default());
    session.fetch(request(Oid::of(data), Some(data.len() as u64), &target)).await.unwrap();
    target.expect(data);
}

#[tokio::test]
async fn new_requests_go_the_better_way_unless_it_is_in_trouble() {
    let (store, data) = (Arc::new(MemoryStore::new()), pattern(5 * PIECE, 1));
    put(&store, &data, &About::default());
    let (first, better, other) = (Way::over(&store), Way::over(&store), Way::over(&store));
    let takeover = Takeover::new(first.plugin(), NAMES);
    let check = async |active, counts: [u64; 3]| {
        assert_eq!(takeover.active(), active);
        fetch(&takeover, &data).await;
        assert_eq!([first.wants(), better.wants(), other.wants()], counts);
    };
    check("ssh", [5, 0, 0]).await;
    takeover.offer(better.plugin());
    check("tls", [5, 5, 0]).await;
    better.lose(true);
    check("ssh", [10, 5, 0]).await;
    better.lose(false);
    check("tls", [10, 10, 0]).await;
    better.lose(true);
    takeover.offer(other.plugin());
    check("tls", [10, 10, 5]).await;
}

/// All small files of a copy over a long path came by ssh's pipe, as they were asked for before two links stood.
#[tokio::test]
async fn entries_that_the_first_way_has_not_been_asked_for_go_the_better_one() {
    let store = Arc::new(MemoryStore::new());
    for (gives_way, is_offered) in [(true, true), (true, false), (false, true)] {
        let (first, better, ended) = (Way::over(&store), Way::over(&store), Arc::new(Ended::default()));
        let takeover = Takeover::new(Arc::clone(&first), NAMES);
        if gives_way {
            takeover.give_way();
        }
        first.holds.send_replace(true);
        let asking = tokio::spawn({
            let (takeover, ended) = (Arc::clone(&takeover), Arc::clone(&ended));
            async move { takeover.get_entries(entries(3000), ended).await }
        });
        first.asked.notified().await;
        let before = first.wants();
        assert!((1..=64).contains(&before) == gives_way, "{before}");
        if is_offered {
            takeover.offer(Arc::clone(&better));
        }
        if is_offered && gives_way {
            better.asked.notified().await;
        }
        first.holds.send_replace(false);
        assert_eq!(tokio::time::timeout(Duration::from_secs(20), asking).await.unwrap().unwrap(), []);
        let counts = if is_offered { [before, 3000 - before] } else { [3000, 0] };
        assert_eq!([first.wants(), better.wants()], counts);
        let mut ended = std::mem::take(&mut *ended.0.lock().unwrap());
        ended.sort_unstable();
        assert!(ended.iter().copied().eq(0..3000), "each once");
    }
}

/// What the first way owed filled the window, and a faster one that stood after a moment was asked seconds later.
#[tokio::test]
async fn the_better_way_does_not_wait_for_what_still_comes_the_first_way() {
    let (store, data) = (Arc::new(MemoryStore::new()), pattern(9 * PIECE, 1));
    put(&store, &data, &About::default());
    let (first, better) = (Way::over(&store), Way::over(&store));
    let takeover = Takeover::new(first.plugin(), NAMES);
    first.holds.send_replace(true);
    let offering = async {
        first.asked.notified().await;
        let before = first.wants();
        takeover.offer(better.plugin());
        assert_eq!(takeover.state().beside, before * PIECE as u64);
        while first.wants() + better.wants() < 9 {
            tokio::task::yield_now().await;
        }
        assert_eq!(first.wants(), before);
        first.holds.send_replace(false);
    };
    tokio::join!(fetch(&takeover, &data), offering);
    let SourceState { window, beside, .. } = takeover.state();
    assert_eq!((window, beside), (2 * PIECE as u64, 0), "nothing comes the first way any more");
}

/// One of several connections is lost in mid-transfer: the others bring what it owed, and nothing goes back to the first way.
#[tokio::test]
async fn a_further_connection_that_is_lost_sends_nobody_back() {
    let (store, data) = (Arc::new(MemoryStore::new()), pattern(40 * PIECE, 1));
    put(&store, &data, &About::default());
    let first = Way::over(&store);
    let takeover = Takeover::new(first.plugin(), NAMES);
    let keys = Keys { identity: Identity::generate().unwrap(), secrets: [].into(), allow_all: true };
    let service = Arc::new(Service::new(store, Arc::new(keys)));
    let mut far_ends = Vec::new();
    let mut connect = async || {
        let (near, far) = connected().await;
        far_ends.push(Peer::start(far, PeerConfig::default(), Some(Arc::clone(&service))));
        Peer::start(near, PeerConfig::default(), None)
    };
    let config = DirectConfig { connections: 2, ..DirectConfig::default() };
    let direct = Direct::over_several(connect().await, Identity::generate().unwrap(), config);
    let (direct, second) = (Arc::new(direct), connect().await);
    assert!(direct.join(Arc::clone(&second)));
    takeover.offer(Arc::clone(&direct));
    let losing = async {
        while second.heard().bytes < PIECE as u64 {
            tokio::task::yield_now().await;
        }
        second.close("lost");
    };
    tokio::join!(fetch(&takeover, &data), losing);
    assert_eq!((first.wants(), direct.lacks(), takeover.active()), (0, 1, "tls"));
}

/// A connection that is lost while nobody asks shows only when somebody does.
#[tokio::test]
async fn a_lost_connection_costs_no_want() {
    let (store, data) = (Arc::new(MemoryStore::new()), pattern(5 * PIECE, 1));
    put(&store, &data, &About::default());
    let first = Way::over(&store);
    let takeover = Takeover::new(first.plugin(), NAMES);
    let keys = Keys { identity: Identity::generate().unwrap(), secrets: [].into(), allow_all: true };
    let service = Arc::new(Service::new(store, Arc::new(keys)));
    for _ in 0..3 {
        let (near, far) = connected().await;
        let far = Peer::start(far, PeerConfig::default(), Some(Arc::clone(&service)));
        let near = Peer::start(near, PeerConfig::default(), None);
        takeover.offer(Arc::new(Direct::over(Arc::clone(&near), Identity::generate().unwrap())));
        let before = first.wants();
        fetch(&takeover, &data).await;
        assert_eq!((first.wants(), takeover.active()), (before, "tls"));
        far.close("cable pulled");
        near.closed().await;
        fetch(&takeover, &data).await;
        assert_eq!((first.wants(), takeover.active()), (before + 5, "ssh"));
        // Questions go the first way as well.
        let (answers, mut inbox) = mpsc::channel(10);
        let query = Query::about(Oid::of(&data));
        takeover.describe(query, &context(Oid::of(&data)), answers).await.unwrap();
        assert!(inbox.recv().await.is_some());
    }
}

/// In the middle of many requests the way changes again and again: each object arrives.
#[tokio::test]
async fn ways_that_come_and_go_in_mid_transfer_lose_nothing() {
    let (store, data) = (Arc::new(MemoryStore::new()), pattern(40 * PIECE, 3));
    put(&store, &data, &About::default());
    let takeover = Takeover::new(Way::over(&store).plugin(), NAMES);
    let all = Way::before(takeover.clone());
    let keys = Keys { identity: Identity::generate().unwrap(), secrets: [].into(), allow_all: true };
    let service = Arc::new(Service::new(store, Arc::new(keys)));
    let switching = async {
        loop {
            let (near, far) = connected().await;
            let _far = Peer::start(far, PeerConfig::default(), Some(Arc::clone(&service)));
            let near = Peer::start(near, PeerConfig::default(), None);
            takeover.offer(Arc::new(Direct::over(near, Identity::generate().unwrap())));
            all.asked.notified().await;
        }
    };
    let fetching = async {
        for _ in 0..5 {
            fetch(&all, &data).await;
        }
    };
    tokio::select! {
        () = fetching => {}
        () = switching => {}
    }
}

#[tokio::test]
async fn what_the_better_way_does_not_have_is_not_asked_again() {
    let (empty, full) = (Arc::new(MemoryStore::new()), Arc::new(MemoryStore::new()));
    let oid = put(&full, b"data", &About::default());
    let first = Way::over(&full);
    let takeover = Takeover::new(first.plugin(), NAMES);
    takeover.offer(Way::over(&empty).plugin());
    let session = Session::start(Single::root(takeover), context(oid), impatient(Duration::from_millis(200)));
    assert!(session.fetch(request(oid, Some(4), &Arc::new(Memory::default()))).await.is_err());
    assert_eq!(first.wants(), 0);
}

#[tokio::test]
async fn without_a_first_way_wants_wait_for_the_better_one() {
    let (store, data) = (Arc::new(MemoryStore::new()), pattern(3 * PIECE, 1));
    put(&store, &data, &About::default());
    let takeover = Takeover::only_better("no TLS connection yet", NAMES);
    assert_eq!(takeover.state().trouble.as_deref(), Some("no TLS connection yet"));
    let all = Way::before(takeover.clone());
    let offering = async {
        all.asked.notified().await;
        takeover.offer(Way::over(&store).plugin());
    };
    tokio::join!(fetch(&all, &data), offering);
    assert_eq!(takeover.state().trouble, None);
}
