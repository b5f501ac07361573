//! Objects that go on by their recipes in mid-transfer, over real connections: chunks come from
//! here and there, and what the network brings it brings as runs of bytes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use towpath_content::Oid;
use towpath_content::chunking::{ChunkHash, Parameters};
use towpath_content::recipe::{RecipeBuilder, Run};
use towpath_link::{Connection, Identity};
use towpath_plugins::Direct;
use towpath_plugins::direct::DirectConfig;
use towpath_protocol::wire::{self, Description as Described};
use towpath_protocol::wire::{Body, Describe, RequestOnly};
use towpath_protocol::{PeerConfig, Traffic};
use towpath_store::{About, MemoryStore, Store};
use towpath_transfer::want::Payload;
use towpath_transfer::{
    Advice, BoxFuture, Context, Delivery, Description, ObjectFacts, Outcome, Query, RestWay, Root, Session,
    SessionConfig, Sink, Source, SourceId, SourceState, Tag, Want, WantId,
};

use crate::hostile_peer::liar::{Liar, header};
use crate::support::*;

/// Wants recipes once it was asked for some pieces, and serves every other chunk itself.
struct Half {
    network: Direct,
    data: Vec<u8>,
    after: usize,
    all_at_once: bool,
    pieces: AtomicUsize,
    /// Bytes of chunks that it served, and that it asked of the network.
    own: AtomicUsize,
    asked: AtomicUsize,
    asked_for_recipe: AtomicUsize,
    /// True if a question for the recipe is over.
    has_answer: watch::Sender<bool>,
}

/// Tells when a question is over, however it ends.
struct Answered<'a>(&'a watch::Sender<bool>);

impl Drop for Answered<'_> {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

impl Half {
    fn new(network: Direct, data: &[u8], after: usize) -> Self {
        let zero = || AtomicUsize::new(0);
        Self {
            network,
            data: data.to_vec(),
            after,
            all_at_once: true,
            pieces: zero(),
            own: zero(),
            asked: zero(),
            asked_for_recipe: zero(),
            has_answer: watch::channel(false).0,
        }
    }

    fn own_bytes(&self, want: &Want) -> Option<Bytes> {
        let WantId::Chunk { len, hash } = want.id else { return None };
        let offset = want.origin?.offset as usize;
        (hash[0] & 1 == 0).then(|| Bytes::copy_from_slice(&self.data[offset..offset + len as usize]))
    }
}

impl Root for Half {
    fn advise(&self, facts: &ObjectFacts<'_>) -> Advice {
        assert!(facts.missing <= facts.size && facts.size == self.data.len() as u64);
        let is_time = facts.open.recipe && self.pieces.load(Ordering::SeqCst) >= self.after;
        Advice {
            way: if is_time { RestWay::Recipe } else { RestWay::Pieces },
            chunks_at_once: self.all_at_once,
        }
    }
}

impl Source for Half {
    fn name(&self) -> &str {
        "half"
    }

    fn inner(&self) -> Option<&dyn Source> {
        Some(&self.network)
    }

    fn state(&self) -> SourceState {
        SourceState::of_window(4 * PIECE as u64)
    }

    fn describe<'a>(
        &'a self,
        query: Query,
        context: &'a Context,
        answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        let is_of_recipe = query.recipe;
        self.asked_for_recipe.fetch_add(usize::from(is_of_recipe), Ordering::SeqCst);
        Box::pin(async move {
            let _answered = is_of_recipe.then(|| Answered(&self.has_answer));
            self.network.describe(query, context, answers).await
        })
    }

    fn get<'a>(&'a self, wants: Vec<Want>, context: &'a Context, sink: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let (own, rest): (Vec<_>, Vec<_>) =
                wants.into_iter().partition(|want| self.own_bytes(want).is_some());
            for want in own {
                let bytes = self.own_bytes(&want).unwrap();
                self.own.fetch_add(bytes.len(), Ordering::SeqCst);
                let timing = (Instant::now(), Instant::now());
                let payload = Payload::Bytes(bytes);
                let delivery = Delivery {
                    tag: want.tag,
                    payload,
                    proof: None,
                    source: SourceId::other("own", None),
                    timing,
                    saved: 0,
                };
                sink.deliver(delivery).await;
            }
            let pieces = rest.iter().filter(|want| matches!(want.id, WantId::Piece { .. })).count();
            let before = self.pieces.fetch_add(pieces, Ordering::SeqCst);
            self.asked.fetch_add(rest.iter().map(|want| want.id.len() as usize).sum(), Ordering::SeqCst);
            self.network.get(rest, context, Arc::clone(&sink)).await;
            if pieces > 0 && before + pieces >= self.after {
                // No further piece before the recipe is here, or given up.
                self.has_answer.subscribe().wait_for(|has_answer| *has_answer).await.unwrap();
            }
        })
    }
}

/// Bytes that do not repeat.
fn content(len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|at| at.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()[0] ^ (at >> 13) as u8)
        .collect()
}

fn slowly() -> SessionConfig {
    SessionConfig { batch_bytes: PIECE as u64, calls: 1, ..impatient(LIMIT) }
}

/// Counts bytes that come over its connections.
fn counting() -> (Direct, Arc<Traffic>) {
    let traffic = Arc::new(Traffic::default());
    let peer = PeerConfig { traffic: Arc::clone(&traffic), ..PeerConfig::default() };
    let config = DirectConfig { peer, ..DirectConfig::default() };
    (Direct::new(Identity::generate().unwrap(), config, None), traffic)
}

#[tokio::test]
async fn half_of_the_chunks_cross_the_network_and_every_byte_is_right() {
    let data = content(40 * PIECE + 5);
    for all_at_once in [true, false] {
        let store = Arc::new(MemoryStore::new());
        let oid = put(&store, &data, &About::default());
        let service = serve(store, &[oid]).await;
        let (direct, traffic) = counting();
        let half = Arc::new(Half { all_at_once, ..Half::new(direct, &data, 4) });
        let session = Session::start(half.clone(), service.context(oid), slowly());
        let target = Arc::new(Memory::default());
        let fetching = session.fetch(request(oid, Some(data.len() as u64), &target));
        tokio::time::timeout(LIMIT, fetching).await.expect("hangs").unwrap();
        target.expect(&data);
        let snapshot = session.progress().snapshot();
        assert_eq!(snapshot.done, data.len() as u64);
        assert_eq!(half.asked_for_recipe.load(Ordering::SeqCst), 1);
        let (own, asked) = (half.own.load(Ordering::SeqCst), half.asked.load(Ordering::SeqCst));
        assert!(own > data.len() / 4, "{own} bytes of {} were served here", data.len());
        // Nothing is asked twice but at the border of pieces and chunks, and nothing else comes but
        // the recipe, proofs and heads.
        assert!(own + asked < data.len() + 200_000, "{own} here and {asked} from the network");
        let received = traffic.received() as usize;
        assert!((asked..asked + asked / 50 + 60_000).contains(&received), "{received} bytes for {asked}");
        assert_eq!(snapshot.by_source.len(), 2, "{:?}", snapshot.by_source);
    }
}

#[tokio::test]
async fn holes_cost_nothing_also_as_runs_of_bytes() {
    let mut data = content(30 * PIECE);
    data[9 * PIECE..28 * PIECE].fill(0);
    let store = Arc::new(MemoryStore::new());
    let oid = put(&store, &data, &About::default());
    let service = serve(store, &[oid]).await;
    let (direct, traffic) = counting();
    let half = Arc::new(Half::new(direct, &data, 4));
    let session = Session::start(half.clone(), service.context(oid), slowly());
    let target = Arc::new(Memory::default());
    session.fetch(request(oid, Some(data.len() as u64), &target)).await.unwrap();
    target.expect(&data);
    assert!((traffic.received() as usize) < 12 * PIECE);
}

/// A peer of before recipes is not asked for what it does not know.
#[tokio::test]
async fn a_peer_without_the_capability_is_asked_for_pieces_only() {
    let data = pattern(9 * PIECE, 1);
    let oid = Oid::of(&data);
    let old = listen(&Identity::generate().unwrap(), move |connection| async move {
        let mut liar = Liar::polite(connection).await;
        while let Some(body) = liar.hear().await {
            assert!(!matches!(&body, Body::Describe(question) if question.recipe), "{body:?}");
            let Body::Get(get) = body else { continue };
            assert!(get.wants.iter().all(|want| want.offset.is_none()));
            let outcome = Outcome::Refused("enough".into());
            liar.say(Body::Outcome(wire::WireOutcome::new(get.request, None, &outcome))).await;
            liar.say(Body::Done(RequestOnly { request: get.request })).await;
        }
    })
    .await;
    let (direct, _) = counting();
    let context = old.context(oid);
    let (answers, mut inbox) = mpsc::channel(4);
    let query = Query { recipe: true, ..Query::about(oid) };
    assert_eq!(direct.describe(query, &context, answers).await, Err(Outcome::NotHere));
    assert!(inbox.recv().await.is_none());
    let session = Session::start(Arc::new(Half::new(direct, &data, 0)), context, slowly());
    let target = Arc::new(Memory::default());
    let error = session.fetch(request(oid, Some(data.len() as u64), &target)).await.unwrap_err();
    assert_eq!(error.to_string(), "refused: enough");
}

/// The recipe of `oid` with many chunks in few bytes, and its only node.
fn endless(oid: Oid, size: u64) -> (Bytes, Bytes) {
    let mut nodes = Vec::new();
    let mut builder = RecipeBuilder::new(Parameters::Fixed { len: 64 }, |_, node| {
        nodes.push(Bytes::from(node));
        Ok::<_, std::convert::Infallible>(())
    })
    .unwrap();
    builder.push_run(Run { hash: ChunkHash([1; 32]), len: 64, repeat: size / 64 }).unwrap();
    let root = builder.finish(oid).unwrap();
    (root.to_bytes().into(), nodes.remove(0))
}

type Lie = fn(u32, Bytes, Bytes) -> Vec<wire::Recipe>;

/// Serves pieces well and answers questions for recipes by a lie.
async fn lie_to(connection: Connection, data: Arc<Vec<u8>>, lie: Lie) {
    let mut liar = Liar::new(connection);
    liar.say(hello(&[wire::RECIPES])).await;
    let (oid, size) = (Oid::of(&data), data.len() as u64);
    let store = MemoryStore::new();
    put(&store, &data, &About::default());
    while let Some(body) = liar.hear().await {
        match body {
            Body::Describe(Describe { request, recipe: true, .. }) => {
                let described = Described { request, size: Some(size), ..Described::default() };
                liar.say(Body::Description(described)).await;
                let (root, node) = endless(oid, size);
                for part in lie(request, root, node) {
                    liar.say(Body::Recipe(part)).await;
                }
                liar.say(Body::Done(RequestOnly { request })).await;
            }
            Body::Get(get) => {
                for (want, index) in get.wants.iter().zip(0..) {
                    let run = want.first..want.first + u64::from(want.count);
                    let Ok(towpath_store::Descriptors::Proof(nodes)) =
                        store.get_descriptors(&oid, run.clone())
                    else {
                        panic!("asked for what is not there")
                    };
                    let (first, count, nodes) = (run.start, want.count.into(), nodes.into());
                    let (request, number) = (get.request, Some(index));
                    liar.say(Body::Proof(wire::ProofOf { request, want: number, first, count, nodes })).await;
                    for (piece, at) in run.zip(0..) {
                        let from = piece as usize * PIECE;
                        liar.data(header(request, index, at), &data[from..data.len().min(from + PIECE)])
                            .await;
                    }
                }
                liar.say(Body::Done(RequestOnly { request: get.request })).await;
            }
            _ => {}
        }
    }
}

#[tokio::test]
async fn a_peer_that_lies_about_a_recipe_costs_no_byte() {
    let lies: [(&str, Lie); 7] = [
        ("too many chunks in a few bytes", |request, root, node| {
            vec![wire::Recipe { request, root: Some(root), nodes: vec![node] }]
        }),
        ("no end", |request, root, node| {
            let mut parts = vec![wire::Recipe { request, root: Some(root), nodes: vec![node.clone()] }];
            parts.extend((0..500).map(|_| wire::Recipe {
                request,
                root: None,
                nodes: vec![node.clone(); 100],
            }));
            parts
        }),
        ("no root", |request, _, node| vec![wire::Recipe { request, root: None, nodes: vec![node] }]),
        ("no nodes", |request, root, _| vec![wire::Recipe { request, root: Some(root), nodes: vec![] }]),
        ("nothing in it", |request, _, _| vec![wire::Recipe { request, root: None, nodes: vec![] }]),
        ("for another question", |_, root, node| {
            vec![wire::Recipe { request: 1000, root: Some(root), nodes: vec![node] }]
        }),
        ("garbage", |request, root, _| {
            vec![wire::Recipe { request, root: Some(root), nodes: vec![Bytes::from_static(b"?"); 9] }]
        }),
    ];
    let data = Arc::new(content(65 * PIECE));
    for (what, lie) in lies {
        let shared = Arc::clone(&data);
        let serve = move |connection| lie_to(connection, Arc::clone(&shared), lie);
        let liar = listen(&Identity::generate().unwrap(), serve).await;
        let (direct, _) = counting();
        let (oid, target) = (Oid::of(&data), Arc::new(Memory::default()));
        let half = Arc::new(Half::new(direct, &data, 1));
        let config = SessionConfig { batch_bytes: 8 * PIECE as u64, ..slowly() };
        let session = Session::start(half.clone(), liar.context(oid), config);
        let fetching = session.fetch(request(oid, Some(data.len() as u64), &target));
        let fetched = tokio::time::timeout(LIMIT, fetching).await.expect("hangs");
        assert!(fetched.is_ok(), "{what}: {fetched:?}");
        target.expect(&data);
        assert_eq!(half.own.load(Ordering::SeqCst), 0, "{what}");
    }
}

/// Wants of chunks, more than a `Get` holds, in one call.
#[tokio::test]
async fn any_number_of_chunks_may_be_asked_in_one_call() {
    let data = content(2 * PIECE);
    let store = Arc::new(MemoryStore::new());
    let oid = put(&store, &data, &About::default());
    let service = serve(store, &[oid]).await;
    let (direct, _) = counting();
    let wants: Vec<Want> = data
        .chunks(100)
        .zip(0..)
        .map(|(chunk, index)| Want {
            origin: Some(towpath_transfer::Origin { oid, offset: index * 100 }),
            ..Want::new(index, WantId::Chunk { hash: *Oid::of(chunk).digest(), len: chunk.len() as u32 })
        })
        .collect();
    assert!(wants.len() > 5 * 1024);
    let taken = Arc::new(Taken::default());
    let (count, context) = (wants.len(), service.context(oid));
    direct.get(wants, &context, Arc::clone(&taken) as Arc<dyn Sink>).await;
    let taken = taken.0.lock().unwrap();
    assert_eq!(taken.len(), count);
    assert!(taken.iter().all(|(&tag, bytes)| data[tag as usize * 100..].starts_with(bytes)));
    let total: usize = taken.values().map(Bytes::len).sum();
    assert_eq!(total, data.len());
    // With the connection still standing.
    let peer_is_well = direct.state().trouble.is_none();
    assert!(peer_is_well);
}

/// Keeps what it is given.
#[derive(Default)]
struct Taken(Mutex<HashMap<Tag, Bytes>>);

impl Sink for Taken {
    fn deliver(&self, delivery: Delivery) -> BoxFuture<'_, ()> {
        let Payload::Bytes(bytes) = delivery.payload else { panic!("no zeros here") };
        assert!(self.0.lock().unwrap().insert(delivery.tag, bytes).is_none(), "twice");
        Box::pin(async {})
    }

    fn outcome(&self, tag: Tag, outcome: Outcome) {
        panic!("want {tag} ended: {outcome:?}");
    }

    fn backpressure(&self) -> towpath_transfer::source::Backlog {
        towpath_transfer::source::Backlog::default()
    }
}
