//! Entries that one side offers over a real connection, as the other asks for them.

#![allow(clippy::unwrap_used)] // Clippy spares only functions marked as tests, not their helpers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};
use towpath_content::delta::exchange::{Base, DeltaRun, DeltaStep, NextSignature, Reply, Request, StepOf};
use towpath_content::ticket::BoundSecret;
use towpath_content::tree::Time;
use towpath_content::{NodeId, Oid};
use towpath_link::doubles::connected;
use towpath_protocol::wire::{self, Body, Get, Hello, MAX_ENTRIES, WireWant};
use towpath_protocol::{EntryAsk, EntryTag, Issuer, Offer, Peer, PeerConfig, Replies, Service};
use towpath_store::MemoryStore;
use towpath_transfer::offer::{EntryBody, EntryContent, EntryQuery, EntrySink, EntryWant, SignatureWay};
use towpath_transfer::{BoxFuture, Outcome, Tag};

/// Entries below this number are little files.
const LITTLE: u64 = 600;
/// One that comes in two parts.
const IN_PARTS: u64 = LITTLE;
/// One that is no more.
const GONE: u64 = LITTLE + 1;
const PACK: u32 = 1;

struct Nobody;

impl Issuer for Nobody {
    fn secret(&self, _: &Oid) -> Option<BoundSecret> {
        None
    }

    fn is_allowed(&self, _: &NodeId, _: &Oid) -> bool {
        false
    }

    fn sign(&self, _: &[u8]) -> [u8; 64] {
        [0; 64]
    }
}

fn bytes_of(entry: u64) -> Bytes {
    format!("the content of entry {entry}, of which there are many alike").into()
}

fn content(entry: u64, body: EntryBody) -> EntryContent {
    let bytes = bytes_of(entry);
    let (oid, size) = (Some(Oid::of(&bytes)), bytes.len() as u64);
    EntryContent { oid, size, modified: Time { seconds: 9, nanos: 8 }, is_sparse: false, body }
}

/// Offers entries.
#[derive(Default)]
struct Entries {
    /// Bytes of contents before and after packing.
    sent: Mutex<(usize, usize)>,
    signatures: Mutex<Vec<NextSignature>>,
}

impl Entries {
    async fn send(&self, replies: &Replies, contents: Vec<(EntryTag, EntryContent)>) {
        for batch in replies.batches(contents) {
            let (message, (plain, packed)) = batch.packed(PACK as i32);
            replies.send(message).await.unwrap();
            let mut sent = self.sent.lock().unwrap();
            *sent = (sent.0 + plain, sent.1 + packed);
        }
    }

    /// Two runs, for each of which there is a signature.
    async fn send_in_parts(&self, tag: EntryTag, replies: &Replies) {
        self.send(replies, vec![(tag, content(IN_PARTS, EntryBody::Delta(Reply::InParts)))]).await;
        for wants_signature in [true, false] {
            let signature = replies.next_signature(tag).await.unwrap();
            self.signatures.lock().unwrap().push(signature);
            let step = DeltaStep::Delta { of: StepOf::NextPart { wants_signature }, is_packed: false };
            replies.send(replies.run(tag, &DeltaRun::Last(step, b"part"))).await.unwrap();
        }
        replies.end(tag);
    }
}

impl Offer for Entries {
    fn answer(&self, asks: Vec<EntryAsk>, replies: &Arc<Replies>) {
        let (mut little, mut in_parts) = (Vec::new(), None);
        for EntryAsk { tag, query } in asks {
            match query.entry {
                IN_PARTS => in_parts = Some(tag),
                GONE => replies.refuse(tag, &Outcome::Gone),
                entry => little.push((tag, content(entry, EntryBody::Whole(bytes_of(entry))))),
            }
        }
        Handle::current().block_on(async {
            self.send(replies, little).await;
            if let Some(tag) = in_parts {
                self.send_in_parts(tag, replies).await;
            }
        });
    }
}

/// Takes what comes, and signs what is wanted.
#[derive(Default)]
struct Taken {
    way: Mutex<Option<Arc<dyn SignatureWay>>>,
    ends: Mutex<BTreeMap<Tag, Vec<String>>>,
}

impl Taken {
    fn note(&self, tag: Tag, what: String) {
        self.ends.lock().unwrap().entry(tag).or_default().push(what);
    }

    fn sign(&self, tag: Tag) {
        let way = self.way.lock().unwrap().clone().unwrap();
        way.send(tag, &NextSignature::Signed(tag.to_string().into_bytes()));
    }
}

impl EntrySink for Taken {
    fn asked(&self, tags: &[Tag], way: Arc<dyn SignatureWay>) {
        if tags.contains(&IN_PARTS) {
            *self.way.lock().unwrap() = Some(way);
            self.sign(IN_PARTS);
        }
    }

    fn contents(&self, contents: Vec<(Tag, EntryContent)>, kept: usize) -> BoxFuture<'_, ()> {
        assert!(kept > 0);
        for (tag, came) in contents {
            match came.body.clone() {
                EntryBody::Whole(_) => assert_eq!(came, content(tag, EntryBody::Whole(bytes_of(tag)))),
                body => assert_eq!(body, EntryBody::Delta(Reply::InParts)),
            }
            self.note(tag, "content".into());
        }
        Box::pin(std::future::ready(()))
    }

    fn run(&self, tag: Tag, run: Bytes) -> BoxFuture<'_, ()> {
        let wanted = DeltaRun::from_bytes(&run).unwrap().wanted();
        (0..wanted).for_each(|_| self.sign(tag));
        self.note(tag, format!("run that wants {wanted}"));
        Box::pin(std::future::ready(()))
    }

    fn outcome(&self, tag: Tag, outcome: Outcome) {
        self.note(tag, format!("{outcome:?}"));
    }
}

fn want(entry: u64) -> EntryWant {
    let base = Base::Parts { count: 2, ahead: 1 };
    let base = (entry == IN_PARTS).then_some(Request { base, is_guess: false, outlines: 0 });
    let query = EntryQuery { entry, compare: false, inline: 100, pack: PACK, base };
    EntryWant { tag: entry, query: Arc::new(query) }
}

fn weak(offer: &Arc<impl Offer + 'static>) -> Weak<dyn Offer> {
    Arc::downgrade(offer) as _
}

/// Two ends of a connection; the second one has a service.
async fn peers(offer: Option<Weak<dyn Offer>>) -> [Arc<Peer>; 2] {
    let [near, far] = connected([NodeId([1; 32]), NodeId([2; 32])]).await;
    let service = Arc::new(Service::new(Arc::new(MemoryStore::new()), Arc::new(Nobody)));
    offer.into_iter().for_each(|offer| service.set_offer(offer));
    [Peer::start(near, PeerConfig::default(), None), Peer::start(far, PeerConfig::default(), Some(service))]
}

/// What came of these entries.
async fn asked(peer: &Peer, entries: std::ops::Range<u64>) -> BTreeMap<Tag, Vec<String>> {
    let taken = Arc::new(Taken::default());
    let wants: Vec<_> = entries.map(want).collect();
    let calls = wants
        .chunks(MAX_ENTRIES)
        .map(|wants| peer.get_entries(wants.to_vec(), Arc::clone(&taken) as Arc<dyn EntrySink>));
    futures_util::future::join_all(calls).await;
    std::mem::take(&mut *taken.ends.lock().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn little_contents_a_delta_in_runs_and_a_refusal_come_as_they_are_offered() {
    let offer = Arc::new(Entries::default());
    let [near, far] = peers(Some(weak(&offer))).await;
    let mut ends = asked(&near, 0..LITTLE + 2).await;
    assert_eq!(ends.remove(&GONE).unwrap(), ["Gone"]);
    assert_eq!(ends.remove(&IN_PARTS).unwrap(), ["content", "run that wants 1", "run that wants 0"]);
    assert_eq!(ends.len(), LITTLE as usize);
    assert!(ends.values().all(|end| *end == ["content"]), "{ends:?}");
    let signed = NextSignature::Signed(IN_PARTS.to_string().into_bytes());
    assert_eq!(*offer.signatures.lock().unwrap(), [signed.clone(), signed]);
    let (plain, packed) = *offer.sent.lock().unwrap();
    assert!(packed < plain / 2, "{packed} of {plain}");
    assert_eq!((near.ended(), far.ended()), (None, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_offer_or_after_it_every_want_is_to_be_asked_for_later() {
    let later = format!("{:?}", Outcome::RetryLater(Duration::from_millis(200)));
    for offer in [None, Some(Weak::<Entries>::new() as Weak<dyn Offer>)] {
        let [near, _far] = peers(offer).await;
        let ends = asked(&near, 0..5).await;
        assert!(ends.len() == 5 && ends.values().all(|end| *end == [later.clone()]), "{ends:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wants_of_a_connection_that_is_gone_end_at_once() {
    let [near, far] = peers(None).await;
    far.close("tea time");
    near.closed().await;
    let ends = asked(&near, 0..3).await;
    let lost = format!("{:?}", Outcome::RetryLater(Duration::ZERO));
    assert!(ends.len() == 3 && ends.values().all(|end| *end == [lost.clone()]), "{ends:?}");
}

/// Takes nothing, and says when something came.
#[derive(Default)]
struct Stuck {
    came: Notify,
    ends: Mutex<Vec<(Tag, Outcome)>>,
}

impl EntrySink for Stuck {
    fn asked(&self, _: &[Tag], _: Arc<dyn SignatureWay>) {}

    fn contents(&self, _: Vec<(Tag, EntryContent)>, _: usize) -> BoxFuture<'_, ()> {
        self.came.notify_one();
        Box::pin(std::future::pending())
    }

    fn run(&self, _: Tag, _: Bytes) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    fn outcome(&self, tag: Tag, outcome: Outcome) {
        self.ends.lock().unwrap().push((tag, outcome));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn contents_whose_handing_over_the_end_interrupts_are_to_be_asked_for_again() {
    let offer = Arc::new(Entries::default());
    let [near, far] = peers(Some(weak(&offer))).await;
    let stuck = Arc::new(Stuck::default());
    let call = near.get_entries(vec![want(0), want(1)], Arc::clone(&stuck) as Arc<dyn EntrySink>);
    let close = async {
        stuck.came.notified().await;
        // The reader is busy, so only this side can end it.
        near.close("enough");
    };
    tokio::join!(call, close);
    far.closed().await;
    let lost = Outcome::RetryLater(Duration::ZERO);
    assert_eq!(*stuck.ends.lock().unwrap(), [(0, lost.clone()), (1, lost)]);
}

/// Waits for a signature that does not come, and says what became of that.
struct Waiting(mpsc::UnboundedSender<Option<NextSignature>>);

impl Offer for Waiting {
    fn answer(&self, asks: Vec<EntryAsk>, replies: &Arc<Replies>) {
        let tag = asks[0].tag;
        self.0.send(None).unwrap();
        let signature = Handle::current().block_on(replies.next_signature(tag));
        assert!(replies.is_over(tag.request));
        replies.end(tag);
        self.0.send(signature).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offer_hears_that_the_connection_has_ended() {
    let (waits, mut waiting) = mpsc::unbounded_channel();
    let offer = Arc::new(Waiting(waits));
    let [near, _far] = peers(Some(weak(&offer))).await;
    let sink = Arc::new(Stuck::default());
    let call = near.get_entries(vec![want(IN_PARTS)], Arc::clone(&sink) as Arc<dyn EntrySink>);
    let close = async {
        assert_eq!(waiting.recv().await, Some(None));
        near.close("enough");
        assert_eq!(waiting.recv().await, Some(None), "no signature");
    };
    tokio::join!(call, close);
}

/// Every entry has so much that all together are more than a window.
struct Large;

const LARGE: usize = 200_000;

impl Offer for Large {
    fn answer(&self, asks: Vec<EntryAsk>, replies: &Arc<Replies>) {
        let whole = |ask: &EntryAsk| {
            let body = EntryBody::Whole(vec![ask.query.entry as u8; LARGE].into());
            (ask.tag, content(ask.query.entry, body))
        };
        for batch in replies.batches(asks.iter().map(whole).collect()) {
            Handle::current().block_on(replies.send(batch.plain())).unwrap();
        }
    }
}

/// Counts bytes.
#[derive(Default)]
struct Counted(Mutex<usize>);

impl EntrySink for Counted {
    fn asked(&self, _: &[Tag], _: Arc<dyn SignatureWay>) {}

    fn contents(&self, contents: Vec<(Tag, EntryContent)>, _: usize) -> BoxFuture<'_, ()> {
        for (tag, content) in contents {
            assert_eq!(content.body, EntryBody::Whole(vec![tag as u8; LARGE].into()));
            *self.0.lock().unwrap() += LARGE;
        }
        Box::pin(std::future::ready(()))
    }

    fn run(&self, _: Tag, _: Bytes) -> BoxFuture<'_, ()> {
        panic!("nothing comes in parts")
    }

    fn outcome(&self, tag: Tag, outcome: Outcome) {
        panic!("{tag}: {outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn more_comes_than_a_window_has_room_for() {
    let offer = Arc::new(Large);
    let [near, _far] = peers(Some(weak(&offer))).await;
    let counted = Arc::new(Counted::default());
    near.get_entries((0..50).map(want).collect(), Arc::clone(&counted) as Arc<dyn EntrySink>).await;
    assert_eq!(*counted.0.lock().unwrap(), 50 * LARGE);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offer_hears_that_a_caller_has_gone_and_is_asked_the_next() {
    let (waits, mut waiting) = mpsc::unbounded_channel();
    let offer = Arc::new(Waiting(waits));
    let [near, far] = peers(Some(weak(&offer))).await;
    for _ in 0..2 {
        let sink = Arc::new(Stuck::default());
        let call = near.get_entries(vec![want(IN_PARTS)], Arc::clone(&sink) as Arc<dyn EntrySink>);
        tokio::select! {
            () = call => panic!("it has not ended"),
            asked = waiting.recv() => assert_eq!(asked, Some(None)),
        }
        assert_eq!(*sink.ends.lock().unwrap(), [(IN_PARTS, Outcome::RetryLater(Duration::ZERO))]);
        assert_eq!(waiting.recv().await, Some(None), "no signature");
    }
    assert_eq!((near.ended(), far.ended()), (None, None));
}

/// Refuses everything, and says when it did.
struct Refusing(mpsc::Sender<()>);

impl Offer for Refusing {
    fn answer(&self, asks: Vec<EntryAsk>, replies: &Arc<Replies>) {
        asks.iter().for_each(|ask| replies.refuse(ask.tag, &Outcome::Gone));
        let _ = self.0.blocking_send(());
    }
}

/// Refusals piled up here without end.
#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_asks_on_and_reads_no_refusal_is_left() {
    let [near, far] = connected([NodeId([1; 32]), NodeId([2; 32])]).await;
    let (refused, mut refusals) = mpsc::channel(1);
    let offer = Arc::new(Refusing(refused));
    let service = Arc::new(Service::new(Arc::new(MemoryStore::new()), Arc::new(Nobody)));
    service.set_offer(weak(&offer));
    let peer = Peer::start(far, PeerConfig::default(), Some(service));
    let (_unread, mut writer) = near.split();
    let hello = Hello { version: wire::VERSION, ..Hello::default() };
    writer.send_bytes(wire::CONTROL, &[], Body::Hello(hello).to_frame()).await.unwrap();
    let asking = async {
        let wants = vec![WireWant { entry: Some(9), ..WireWant::default() }; MAX_ENTRIES];
        for request in 1..2000 {
            let get = Body::Get(Get { request, wants: wants.clone(), ..Get::default() }).to_frame();
            writer.send_bytes(wire::CONTROL, &[], get).await.unwrap();
            writer.flush().await.unwrap();
            tokio::select! {
                _ = refusals.recv() => {}
                () = peer.closed() => return request,
            }
        }
        panic!("goes on for ever");
    };
    let asked = tokio::time::timeout(Duration::from_secs(60), asking).await.unwrap();
    assert_eq!(peer.ended().as_deref(), Some("answers what it has not read"));
    assert!(asked > 64, "one that reads slowly is not left: {asked}");
}
