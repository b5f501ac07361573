//! Entries that another service offers, over connections that come and go.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use towpath_content::Oid;
use towpath_content::delta::exchange::NextSignature;
use towpath_content::tree::Time;
use towpath_link::Identity;
use towpath_plugins::direct::DirectConfig;
use towpath_plugins::takeover::Names;
use towpath_plugins::{Direct, LinkWays, Local, Takeover};
use towpath_protocol::{EntryAsk, Offer, Peer, PeerConfig, Replies, Service};
use towpath_store::{About, MemoryStore, Store};
use towpath_transfer::offer::{
    EntryBody, EntryContent, EntryQuery, EntrySink, EntryWant, OfferSource, SignatureWay,
};
use towpath_transfer::session::OnDone;
use towpath_transfer::session::{EntryNext, EntryRequest, EntryTarget};
use towpath_transfer::{BoxFuture, Context, Outcome, Query, Session, Single, Source, Tag};

use crate::support::*;

const NAMES: Names = Names { first: "ssh", better: "tls" };
/// A file that does not come with its name; all others do.
const LARGE: u64 = 1 << 40;

fn bytes_of(entry: u64) -> Vec<u8> {
    match entry {
        LARGE => pattern(5 * PIECE + 7, 9),
        _ => format!("what is in file {entry}").into_bytes(),
    }
}

/// Offers files; those from a number on not before they are released.
struct Files {
    held_from: u64,
    held: Mutex<Vec<(EntryAsk, Arc<Replies>)>>,
    answered: AtomicU64,
}

impl Files {
    fn held_from(held_from: u64) -> Arc<Self> {
        Arc::new(Self { held_from, held: Mutex::default(), answered: AtomicU64::new(0) })
    }

    async fn answer_now(&self, asks: Vec<EntryAsk>, replies: &Replies) {
        self.answered.fetch_add(asks.len() as u64, Ordering::SeqCst);
        let content = |EntryAsk { tag, query }: EntryAsk| {
            let bytes = bytes_of(query.entry);
            let (oid, size) = (Some(Oid::of(&bytes)), bytes.len() as u64);
            let is_little = size <= query.inline.into();
            let body = if is_little { EntryBody::Whole(bytes.into()) } else { EntryBody::Named };
            (tag, EntryContent { oid, size, modified: Time::default(), is_sparse: false, body })
        };
        for batch in replies.batches(asks.into_iter().map(content).collect()) {
            // The connection may be lost.
            let _ = replies.send(batch.packed(1).0).await;
        }
    }

    fn held(&self) -> usize {
        self.held.lock().unwrap().len()
    }

    async fn release(&self) {
        let held = std::mem::take(&mut *self.held.lock().unwrap());
        for (ask, replies) in held {
            self.answer_now(vec![ask], &replies).await;
        }
    }
}

impl Offer for Files {
    fn answer(&self, asks: Vec<EntryAsk>, replies: &Arc<Replies>) {
        let (later, now) = asks.into_iter().partition(|ask| ask.query.entry >= self.held_from);
        Handle::current().block_on(self.answer_now(now, replies));
        let later: Vec<EntryAsk> = later;
        self.held.lock().unwrap().extend(later.into_iter().map(|ask| (ask, Arc::clone(replies))));
    }
}

/// A way to a service that offers `files` and has what is in `store`.
struct Way {
    direct: Arc<Direct>,
    near: Arc<Peer>,
    far: Arc<Peer>,
}

async fn way_to(files: &Arc<Files>, store: &Arc<MemoryStore>) -> Way {
    way_between(files, store, PeerConfig::default()).await
}

/// The same, each side of which is configured so.
async fn way_between(files: &Arc<Files>, store: &Arc<MemoryStore>, config: PeerConfig) -> Way {
    let keys = Keys { identity: Identity::generate().unwrap(), secrets: [].into(), allow_all: true };
    let service = Arc::new(Service::new(Arc::clone(store) as _, Arc::new(keys)));
    service.set_offer(Arc::downgrade(files) as Weak<dyn Offer>);
    let (near, far) = connected().await;
    let far = Peer::start(far, config.clone(), Some(service));
    let near = Peer::start(near, config, None);
    let direct = Arc::new(Direct::over(Arc::clone(&near), Identity::generate().unwrap()));
    Way { direct, near, far }
}

async fn way(files: &Arc<Files>) -> Way {
    way_to(files, &Arc::new(MemoryStore::new())).await
}

type Came = mpsc::UnboundedSender<(u64, Bytes)>;

/// Notes what comes of an entry, by its name if it does not come with it.
struct Noted {
    entry: u64,
    came: Came,
}

impl Noted {
    fn fetch(&self, oid: Oid, size: u64) -> EntryNext {
        let (entry, came, target) = (self.entry, self.came.clone(), Arc::new(Memory::default()));
        let object = request(oid, Some(size), &target);
        let on_done: OnDone = Box::new(move |result| {
            result.unwrap();
            drop(came.send((entry, target.bytes.lock().unwrap().clone().into())));
        });
        EntryNext::Fetch(Box::new((object, on_done)))
    }
}

impl EntryTarget for Noted {
    fn content(&mut self, content: EntryContent) -> EntryNext {
        match (content.body, content.oid) {
            (EntryBody::Whole(bytes), _) => drop(self.came.send((self.entry, bytes))),
            (_, Some(oid)) => return self.fetch(oid, content.size),
            (_, None) => {}
        }
        EntryNext::Over
    }

    fn run(&mut self, _: Bytes, _: &mut dyn FnMut(&NextSignature)) -> EntryNext {
        EntryNext::Over
    }

    fn ended(&mut self, outcome: Outcome) -> EntryNext {
        let _ = self.came.send((self.entry, format!("{outcome:?}").into()));
        EntryNext::Over
    }
}

/// A session that asks for entries, and what comes of them.
struct Bench {
    session: Session,
    came: mpsc::UnboundedReceiver<(u64, Bytes)>,
    note: Came,
}

fn query(entry: u64) -> EntryQuery {
    EntryQuery { entry, compare: false, inline: 1000, pack: 1, base: None }
}

fn context() -> Context {
    Context { root: Oid::of(b""), node: None, secret: None, hints: tokio::sync::watch::channel(Vec::new()).1 }
}

impl Bench {
    fn over<P: Source + OfferSource + 'static>(way: &Arc<P>) -> Self {
        let (note, came) = mpsc::unbounded_channel();
        let config = impatient(Duration::from_secs(10));
        let session = Session::start_with_offers(
            Single::root(Arc::clone(way) as _),
            Arc::clone(way) as _,
            context(),
            config,
        );
        Self { session, came, note }
    }

    async fn submit(&self, entries: impl IntoIterator<Item = u64>) {
        let target = |entry| Box::new(Noted { entry, came: self.note.clone() });
        let requests =
            entries.into_iter().map(|entry| EntryRequest { query: query(entry), target: target(entry) });
        self.session.submit_entries(requests.collect()).await;
    }

    /// Waits until these came, in any order and nothing besides.
    async fn expect(&mut self, entries: impl IntoIterator<Item = u64>) {
        let expected: Vec<u64> = entries.into_iter().collect();
        let mut came = Vec::new();
        while came.len() < expected.len() {
            let next = tokio::time::timeout(LIMIT, self.came.recv()).await;
            let (entry, bytes) = next.expect("an entry does not come").unwrap();
            assert!(*bytes == *bytes_of(entry), "entry {entry}: {:?}", bytes.get(..30));
            came.push(entry);
        }
        came.sort_unstable();
        assert_eq!(came, expected);
        assert!(self.came.try_recv().is_err(), "something came twice");
    }
}

#[tokio::test]
async fn little_files_come_with_their_names_and_a_large_one_by_its_name() {
    let store = Arc::new(MemoryStore::new());
    put(&store, &bytes_of(LARGE), &About::default());
    let files = Files::held_from(u64::MAX);
    let way = way_to(&files, &store).await;
    let mut bench = Bench::over(&way.direct);
    bench.submit((0..500).chain([LARGE])).await;
    bench.expect((0..500).chain([LARGE])).await;
    let counters = bench.session.progress().snapshot();
    assert_eq!((counters.objects, counters.done), (1, bytes_of(LARGE).len() as u64));
    assert_eq!(way.direct.state().trouble, None);
}

#[tokio::test]
async fn a_better_way_that_is_offered_in_mid_call_takes_what_is_asked_for_next() {
    let (first_files, better_files) = (Files::held_from(100), Files::held_from(u64::MAX));
    let (first, better) = (way(&first_files).await, way(&better_files).await);
    let takeover = Takeover::new(first.direct.clone(), NAMES);
    let mut bench = Bench::over(&takeover);
    bench.submit(0..300).await;
    bench.expect(0..100).await;
    assert!(is_soon(LIMIT, || first_files.held() == 200).await);
    takeover.offer(better.direct.clone());
    bench.submit(300..400).await;
    bench.expect(300..400).await;
    // What was asked for before comes where it was asked.
    first_files.release().await;
    bench.expect(100..300).await;
    assert_eq!([&first_files, &better_files].map(|files| files.answered.load(Ordering::SeqCst)), [300, 100]);
}

#[tokio::test]
async fn what_a_better_way_did_not_bring_before_it_was_lost_comes_the_first_way() {
    let (first_files, better_files) = (Files::held_from(u64::MAX), Files::held_from(150));
    let (first, better) = (way(&first_files).await, way(&better_files).await);
    let takeover = Takeover::new(first.direct.clone(), NAMES);
    takeover.offer(better.direct.clone());
    let mut bench = Bench::over(&takeover);
    bench.submit(0..400).await;
    bench.expect(0..150).await;
    assert!(is_soon(LIMIT, || better_files.held() == 250).await);
    better.far.close("cable pulled");
    bench.expect(150..400).await;
    bench.submit(400..410).await;
    bench.expect(400..410).await;
    assert_eq!([&first_files, &better_files].map(|files| files.answered.load(Ordering::SeqCst)), [260, 150]);
    assert_eq!(takeover.active(), "ssh");
}

#[tokio::test]
async fn a_better_way_that_was_lost_while_nobody_asked_costs_no_entry() {
    let (first_files, better_files) = (Files::held_from(u64::MAX), Files::held_from(u64::MAX));
    let (first, better) = (way(&first_files).await, way(&better_files).await);
    let takeover = Takeover::new(first.direct.clone(), NAMES);
    takeover.offer(better.direct.clone());
    better.far.close("tea time");
    better.near.closed().await;
    let mut bench = Bench::over(&takeover);
    bench.submit(0..10).await;
    bench.expect(0..10).await;
    assert_eq!(first_files.answered.load(Ordering::SeqCst), 10);
    assert!(better.direct.state().trouble.is_some());
}

#[tokio::test]
async fn entries_wait_for_a_way_where_the_first_must_not_be_used() {
    let files = Files::held_from(u64::MAX);
    let better = way(&files).await;
    let takeover = Takeover::only_better("no TLS connection yet", NAMES);
    let unasked = takeover.get_entries(vec![want(7), want(8)], Arc::new(Nothing)).await;
    assert_eq!(unasked, [want(7), want(8)]);
    let mut bench = Bench::over(&takeover);
    bench.submit(0..10).await;
    takeover.offer(better.direct.clone());
    bench.expect(0..10).await;
}

#[tokio::test]
async fn without_a_connection_nothing_is_asked_for() {
    let dialling = Direct::new(Identity::generate().unwrap(), DirectConfig::default(), None);
    assert_eq!(dialling.get_entries(vec![want(1)], Arc::new(Nothing)).await, [want(1)]);
    let lost = way(&Files::held_from(0)).await;
    lost.far.close("tea time");
    lost.near.closed().await;
    assert_eq!(lost.direct.get_entries(vec![want(2)], Arc::new(Nothing)).await, [want(2)]);
    assert!(lost.near.ended().is_some());
    assert_eq!(lost.direct.state().trouble, lost.near.ended());
}

#[tokio::test]
async fn a_connection_that_is_lost_in_mid_call_is_in_trouble_when_the_call_ends() {
    let files = Files::held_from(0);
    let lost = way(&files).await;
    let call = lost.direct.get_entries(vec![want(1)], Arc::new(Nothing));
    let losing = async {
        assert!(is_soon(LIMIT, || files.held() == 1).await);
        lost.far.close("cable pulled");
    };
    let (unasked, ()) = tokio::join!(call, losing);
    assert_eq!(unasked, [], "it was asked for");
    assert!(lost.near.ended().is_some());
    assert_eq!(lost.direct.state().trouble, lost.near.ended());
}

/// Of a copy of one file there is one question, and the link that it went to was cut: nobody else was asked until that link counted
/// as dead. So it was with what follows a file that is still hashed.
#[tokio::test]
async fn what_a_quiet_link_was_asked_for_is_asked_of_another() {
    let store = Arc::new(MemoryStore::new());
    put(&store, &bytes_of(LARGE), &About::default());
    let links = LinkWays::new();
    // Nobody reads or speaks at its other end.
    let (near, _silent) = connected().await;
    let quiet = Peer::start(near, PeerConfig::default(), None);
    links.join(Arc::new(Direct::over(Arc::clone(&quiet), Identity::generate().unwrap())));
    let mut bench = Bench::over(&links);
    bench.submit((0..3).chain([LARGE])).await;
    // The other side of a copy says twice a second that it is there.
    let files = Files::held_from(u64::MAX);
    let spoken = way_between(&files, &store, PeerConfig { control: true, ..PeerConfig::default() }).await;
    links.join(spoken.direct.clone());
    bench.expect((0..3).chain([LARGE])).await;
    assert!(quiet.ended().is_none(), "it may only be late");
}

/// A question for a file that is still hashed was heard to its end from one link, also where that link was cut.
#[tokio::test]
async fn an_answer_with_which_a_quiet_link_does_not_go_on_is_asked_of_another() {
    let (files, live) = (Files::held_from(u64::MAX), Oid::Live([7; 32]));
    let stores = [(); 2].map(|()| {
        let store = Arc::new(MemoryStore::new());
        store.put_init(&live, &About::default()).unwrap();
        store.put_data(&live, &pattern(2 * PIECE, 1)).unwrap();
        store
    });
    stores[1].put_commit(&live).unwrap();
    // While its file is hashed the first one does not say that it is there.
    let quiet = way_to(&files, &stores[0]).await;
    let config = PeerConfig { control: true, ..PeerConfig::default() };
    let spoken = way_between(&files, &stores[1], config).await;
    let (links, context) = (LinkWays::new(), context());
    links.join(quiet.direct.clone());
    let (answers, mut inbox) = mpsc::channel(1);
    let hearing = async {
        inbox.recv().await.expect("what is known so far");
        links.join(spoken.direct.clone());
        while inbox.recv().await.is_some() {}
    };
    let asking = async {
        let answers = answers;
        let query = || Query { follow: true, proofs: Some(0..2), ..Query::about(live) };
        while links.describe(query(), &context, answers.clone()).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    let both = async { tokio::join!(asking, hearing) };
    tokio::time::timeout(LIMIT, both).await.expect("it waits for the quiet link");
    assert!(quiet.near.ended().is_none(), "it may only be late");
}

#[tokio::test]
async fn ways_that_know_no_entries_are_passed_over() {
    let store =
        || -> Arc<dyn Source> { Arc::new(Local::new(Arc::new(MemoryStore::new()), Arc::new(|_| true))) };
    let neither = Takeover::new(store(), NAMES);
    neither.offer(store());
    assert_eq!(neither.get_entries(vec![want(1)], Arc::new(Nothing)).await, [want(1)]);
    let files = Files::held_from(u64::MAX);
    let way = way(&files).await;
    let first = Takeover::new(way.direct.clone(), NAMES);
    first.offer(store());
    let mut bench = Bench::over(&first);
    bench.submit(0..3).await;
    bench.expect(0..3).await;
}

fn want(entry: u64) -> EntryWant {
    EntryWant { tag: entry, query: Arc::new(query(entry)) }
}

/// Takes outcomes, and nothing else.
struct Nothing;

impl EntrySink for Nothing {
    fn asked(&self, _: &[Tag], _: Arc<dyn SignatureWay>) {}

    fn contents(&self, contents: Vec<(Tag, EntryContent)>, _: usize) -> BoxFuture<'_, ()> {
        unreachable!("contents: {contents:?}")
    }

    fn run(&self, tag: Tag, _: Bytes) -> BoxFuture<'_, ()> {
        unreachable!("a run for {tag}")
    }

    fn outcome(&self, _: Tag, outcome: Outcome) {
        assert_eq!(outcome, Outcome::RetryLater(Duration::ZERO));
    }
}
