//! A service that lies to our `Direct` and its session.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncWriteExt, DuplexStream, duplex, split};
use tokio::task::JoinSet;
use towpath_content::{NodeId, Oid};
use towpath_link::connection::{ReadHalf, WriteHalf};
use towpath_link::frame::encode_head;
use towpath_link::{Connection, Identity, PathProbe, PeerProof, Transport};
use towpath_plugins::Direct;
use towpath_plugins::direct::DirectConfig;
use towpath_protocol::callers::Answers;
use towpath_protocol::session::Question;
use towpath_protocol::wire::{Body, Describe, Description, Get, Goodbye, Have, Ping, ProofOf, RequestOnly};
use towpath_protocol::wire::{Stated, VERSION, WireOutcome};
use towpath_protocol::{Peer, PeerConfig};
use towpath_store::{About, MemoryStore};
use towpath_transfer::{Session, Single};

use super::liar::{Liar, header, hello};
use crate::support::*;

/// Error of the session with a service that answers every `Get` by `lie`.
async fn error_after<F: Future<Output = ()> + Send + 'static>(
    lie: impl Fn(Liar, Get) -> F + Send + Sync + Copy + 'static,
) -> String {
    // Long enough to be asked again by the next connection.
    error_within(Duration::from_secs(4), move |connection| async move {
        let mut liar = Liar::polite(connection).await;
        if let Some(get) = liar.hear_get().await {
            lie(liar, get).await;
        }
    })
    .await
}

async fn error_of<F: Future<Output = ()> + Send + 'static>(
    serve_badly: impl Fn(Connection) -> F + Send + Sync + 'static,
) -> String {
    error_within(Duration::from_secs(1), serve_badly).await
}

/// Error of the session with a service that treats each connection so. Meanwhile a good
/// service of the same process is not disturbed.
async fn error_within<F: Future<Output = ()> + Send + 'static>(
    wait_limit: Duration,
    serve_badly: impl Fn(Connection) -> F + Send + Sync + 'static,
) -> String {
    let data = pattern(2 * PIECE, 1);
    let oid = Oid::of(&data);
    let bad = listen(&Identity::generate().unwrap(), serve_badly).await;
    let (config, target) = (impatient(wait_limit), Arc::new(Memory::default()));
    let silence = Duration::from_millis(500);
    let direct =
        DirectConfig { peer: PeerConfig { silence, ..PeerConfig::default() }, ..DirectConfig::default() };
    let direct = Direct::new(Identity::generate().unwrap(), direct, None);
    let session = Session::start(Single::root(Arc::new(direct)), bad.context(oid), config);
    let failing = session.fetch(request(oid, Some(data.len() as u64), &target));
    let failing = tokio::time::timeout(LIMIT, failing);
    let (failed, ()) = tokio::join!(failing, expect_good_fetch(&data));
    assert!(target.completed.lock().unwrap().is_none());
    failed.expect("hangs").unwrap_err().to_string()
}

async fn expect_good_fetch(data: &[u8]) {
    let store = Arc::new(MemoryStore::new());
    let (oid, target) = (put(&store, data, &About::default()), Arc::new(Memory::default()));
    let good = serve(store, &[oid]).await;
    let direct = Direct::new(Identity::generate().unwrap(), DirectConfig::default(), None);
    let session = Session::start(Single::root(Arc::new(direct)), good.context(oid), impatient(LIMIT));
    session.fetch(request(oid, None, &target)).await.unwrap();
    target.expect(data);
}

fn proof(get: &Get, nodes: &[u8]) -> Body {
    let (first, count) = (get.wants[0].first, get.wants[0].count.into());
    Body::Proof(ProofOf {
        request: get.request,
        want: Some(0),
        first,
        count,
        nodes: Bytes::copy_from_slice(nodes),
    })
}

/// The true proof of both pieces.
fn true_proof(get: &Get) -> Body {
    let data = pattern(2 * PIECE, 1);
    let layout = towpath_content::pieces::Layout::of(data.len() as u64).unwrap();
    let nodes = [layout.value(0, &data[..PIECE]), layout.value(1, &data[PIECE..])].concat();
    proof(get, &nodes)
}

#[track_caller]
fn assert_says(error: &str, words: &str) {
    assert!(error.contains(words), "says {error:?}, not {words:?}");
}

#[tokio::test]
async fn wrong_bytes_with_a_true_proof() {
    let error = error_after(|mut liar, get| async move {
        liar.say(true_proof(&get)).await;
        liar.data(header(get.request, 0, 0), &pattern(PIECE, 2)).await;
        liar.linger().await;
    });
    assert_says(&error.await, "sent bytes that do not match their hash");
}

#[tokio::test]
async fn a_wrong_proof() {
    let error = error_after(|mut liar, get| async move {
        liar.say(proof(&get, &[3; 64])).await;
        liar.data(header(get.request, 0, 0), &pattern(PIECE, 1)).await;
        liar.linger().await;
    });
    assert_says(&error.await, "sent a wrong proof");
}

#[tokio::test]
async fn a_proof_longer_than_its_pieces_need() {
    let error = error_after(|mut liar, get| async move {
        liar.say(proof(&get, &[3; 100 << 10])).await;
        liar.linger().await;
    });
    assert_says(&error.await, "a proof that is too long for its pieces");
}

#[tokio::test]
async fn a_piece_without_proof_or_too_long() {
    let error = error_after(|mut liar, get| async move {
        liar.data(header(get.request, 0, 0), &pattern(PIECE, 1)).await;
        liar.linger().await;
    });
    assert_says(&error.await, "without the proof that it needs");
}

#[tokio::test]
async fn data_for_pieces_wants_or_requests_that_were_never_asked() {
    let mut all = JoinSet::new();
    for (request, want, piece) in
        [(0, 0, 99), (0, 99, 0), (0, u32::MAX, u32::MAX), (1000, 0, 0), (u32::MAX, 0, 0)]
    {
        all.spawn(async move {
            let error = error_after(move |mut liar, get| async move {
                liar.data(header(if request == 0 { get.request } else { request }, want, piece), b"gift")
                    .await;
                liar.linger().await;
            });
            assert_says(&error.await, "sent data that was not asked for");
        });
    }
    all.join_all().await;
}

#[tokio::test]
async fn answers_to_questions_that_were_never_put() {
    let answers = [
        Body::Description(Description { request: 500, size: Some(1), ..Description::default() }),
        Body::Proof(ProofOf { request: 500, ..ProofOf::default() }),
        Body::Outcome(WireOutcome { request: 500, code: 1, ..WireOutcome::default() }),
        Body::Done(RequestOnly { request: 500 }),
    ];
    let mut all = JoinSet::new();
    for answer in answers {
        all.spawn(async { assert_says(&error_of_saying(answer).await, "not asked for") });
    }
    all.join_all().await;
}

/// The error after a hello and `body`.
async fn error_of_saying(body: Body) -> String {
    error_of(move |connection| {
        let body = body.clone();
        async move {
            let mut liar = Liar::polite(connection).await;
            liar.say(body).await;
            liar.linger().await;
        }
    })
    .await
}

#[tokio::test]
async fn huge_and_impossible_counts() {
    let mut all = JoinSet::new();
    let (huge, many) = (u64::MAX, Bytes::from_static(&[9; 100]));
    for (body, words) in [
        (
            Body::Proof(ProofOf { request: 1, want: Some(0), first: huge, count: huge, nodes: many.clone() }),
            "not asked",
        ),
        (
            Body::Proof(ProofOf { request: 1, want: None, first: huge, count: 2, nodes: many.clone() }),
            "impossible",
        ),
        (
            Body::Description(Description { request: 1, size: Some(huge), ..Description::default() }),
            "over the limit",
        ),
        (Body::Have(Have { request: 1, bounds: vec![5, 2] }), "impossible ranges"),
        (Body::Have(Have { request: 1, bounds: vec![5] }), "impossible ranges"),
        (Body::Stated(Stated { request: 1, statement: many.clone(), signature: many }), "bad statement"),
    ] {
        all.spawn(async move { assert_says(&error_of_saying(body).await, words) });
    }
    all.join_all().await;
}

#[tokio::test]
async fn words_of_no_protocol() {
    let unknown = error_of(|connection| async {
        let mut liar = Liar::polite(connection).await;
        liar.frame(0, Bytes::from_static(&[0x98, 0x06, 0x01])).await;
        liar.linger().await;
    });
    assert_says(&unknown.await, "unknown kind");
    let garbage = error_of(|connection| async {
        let mut liar = Liar::polite(connection).await;
        liar.frame(0, Bytes::from_static(&[0xff; 40])).await;
        liar.linger().await;
    });
    assert_says(&garbage.await, "is not Protocol Buffers");
    let kind = error_of(|connection| async {
        let mut liar = Liar::polite(connection).await;
        liar.frame(9, Bytes::from_static(b"?")).await;
        liar.linger().await;
    });
    assert_says(&kind.await, "a frame of an unknown kind");
    let short = error_of(|connection| async {
        let mut liar = Liar::polite(connection).await;
        liar.frame(1, Bytes::from_static(b"short")).await;
        liar.linger().await;
    });
    assert_says(&short.await, "is shorter than its header");
}

#[tokio::test]
async fn hellos_that_are_missing_twice_there_or_of_another_version() {
    for body in [Body::Ping(Ping::default()), Body::Done(RequestOnly { request: 1 })] {
        let none = error_of(move |connection| {
            let body = body.clone();
            async move {
                let mut liar = Liar::new(connection);
                liar.say(body).await;
                liar.linger().await;
            }
        });
        assert_says(&none.await, "did not begin with a hello");
    }
    let data_first = error_of(|connection| async {
        let mut liar = Liar::new(connection);
        liar.data(header(1, 0, 0), b"data").await;
        liar.linger().await;
    });
    assert_says(&data_first.await, "did not begin with a hello");
    assert_says(&error_of_saying(hello(VERSION)).await, "sent a second hello");
    let version = error_of(|connection| async {
        let mut liar = Liar::new(connection);
        liar.say(hello(VERSION - 1)).await;
        liar.linger().await;
    });
    assert_says(&version.await, "speaks version 1 of the protocol, this program speaks 2");
}

#[tokio::test]
async fn requests_to_a_side_that_only_receives() {
    let get = Body::Get(Get { request: 1, ..Get::default() });
    assert_says(&error_of_saying(get).await, "asked a service that only receives");
}

#[tokio::test]
async fn silence_and_pings_without_end() {
    let silent = error_of(|connection| async {
        let _liar = Liar::polite(connection).await;
        std::future::pending().await
    });
    assert_says(&silent.await, "not a byte came for 500ms");
    let pinging = error_of(|connection| async {
        let mut liar = Liar::polite(connection).await;
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        loop {
            ticks.tick().await;
            liar.say(Body::Ping(Ping::default())).await;
        }
    });
    assert_says(&pinging.await, "nothing came for 1 second");
}

#[tokio::test]
async fn connections_closed_in_the_middle() {
    let cut = error_after(|mut liar, get| async move {
        liar.say(true_proof(&get)).await;
        liar.data(header(get.request, 0, 0), &pattern(1000, 1)).await;
    });
    let error = cut.await;
    assert!(error.contains("the connection was cut off") || error.contains("other end is gone"), "{error}");
    let goodbye = Body::Goodbye(Goodbye { reason: "tea\u{7}time".into() });
    assert_says(&error_of_saying(goodbye).await, "the peer closed: teatime");
}

/// A peer that was done with every request at once was asked again at once.
#[tokio::test]
async fn a_peer_that_is_done_without_data_is_not_asked_in_a_spin() {
    static GETS: AtomicUsize = AtomicUsize::new(0);
    let error = error_of(|connection| async {
        let mut liar = Liar::polite(connection).await;
        while let Some(get) = liar.hear_get().await {
            GETS.fetch_add(1, Ordering::Relaxed);
            liar.say(Body::Done(RequestOnly { request: get.request })).await;
        }
    });
    assert_says(&error.await, "nothing came for 1 second");
    let gets = GETS.load(Ordering::Relaxed);
    assert!((1..30).contains(&gets), "asked {gets} times in a second");
}

/// A peer that is done with requests that it does not even read, so that they pile up here.
#[tokio::test]
async fn a_peer_that_answers_what_it_has_not_read() {
    let (near, far) = connected().await;
    let peer = Peer::start(near, PeerConfig::default(), None);
    let mut liar = Liar::polite(far).await;
    assert!(peer.greeted().await);
    let asking = async {
        for request in 1..=100_000 {
            let question = Question::Watch(Describe { root: vec![0; 200].into(), ..Describe::default() });
            let (ranges, _keep) = tokio::sync::mpsc::channel(1);
            let ask = peer.ask(question, Answers::Ranges(ranges));
            let lie = liar.say(Body::Done(RequestOnly { request }));
            let (asked, ()) = tokio::join!(biased; ask, lie);
            if asked.is_err() {
                return request;
            }
        }
        panic!("goes on for ever");
    };
    let asked = tokio::time::timeout(LIMIT, asking).await.unwrap();
    assert_eq!(peer.ended().as_deref(), Some("answers what it has not read"));
    assert!(asked < 1500, "{asked} requests waited");
}

/// A stream that a test writes raw bytes to.
struct Raw(DuplexStream);

impl Transport for Raw {
    fn peer(&self) -> NodeId {
        NodeId([1; 32])
    }

    fn proof(&self) -> PeerProof {
        PeerProof::Claim
    }

    fn binding(&self) -> [u8; 32] {
        [2; 32]
    }

    fn probe(&self) -> PathProbe {
        PathProbe::none()
    }

    fn split(self: Box<Self>) -> (ReadHalf, WriteHalf) {
        let (read, write) = split(self.0);
        (Box::new(read), Box::pin(write))
    }
}

/// Reason why the connection ended after a hello and `bytes`.
async fn end_after_raw(bytes: &[u8]) -> String {
    let (near, mut far) = duplex(1 << 20);
    let peer = Peer::start(Connection::new(Box::new(Raw(near))), PeerConfig::default(), None);
    let hello = hello(VERSION).to_frame();
    far.write_all(&encode_head(0, hello.len()).unwrap()).await.unwrap();
    far.write_all(&hello).await.unwrap();
    far.write_all(bytes).await.unwrap();
    far.shutdown().await.unwrap();
    tokio::time::timeout(LIMIT, peer.closed()).await.unwrap();
    peer.ended().unwrap()
}

#[tokio::test]
async fn frames_that_are_too_long_empty_or_cut_short() {
    assert_says(&end_after_raw(&u32::MAX.to_le_bytes()).await, "over the limit");
    assert_says(&end_after_raw(&[0; 4]).await, "a frame of no bytes");
    assert_says(&end_after_raw(&[9, 0, 0, 0, 0, 1]).await, "cut off");
}
