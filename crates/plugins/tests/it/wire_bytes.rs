//! Bytes on the wire: fewer, if one of both ends asks for compression and both know it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use bytes::Bytes;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::watch;
use tokio::time::timeout;
use towpath_link::pipe::{self, Role};
use towpath_link::{Connection, Identity, PathProbe};
use towpath_plugins::Direct;
use towpath_protocol::processor::{Decode, Encode, Encoding, Processor, conformance};
use towpath_protocol::processors::Processors;
use towpath_protocol::rules::Rules;
use towpath_protocol::{COMPRESS, Pace, Peer, PeerConfig, Service};
use towpath_store::doubles::noise;
use towpath_store::{About, MemoryStore};
use towpath_transfer::{Context, FirstPiece, Query, Session, Single, Source};

use crate::slow_path::slow;
use crate::support::*;

/// Bytes that do not shrink.
const NOISE: usize = 1_280_000;

/// Counts what is read.
struct Counted<R>(R, Count);

/// Bytes so far.
type Count = Arc<watch::Sender<u64>>;

impl<R: AsyncRead + Unpin> AsyncRead for Counted<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.0).poll_read(cx, buf);
        self.1.send_modify(|count| *count += (buf.filled().len() - before) as u64);
        polled
    }
}

/// Two ends, and how much the first one has received.
async fn counted() -> (Connection, Connection, Count) {
    let (near, far) = tokio::io::duplex(1 << 20);
    let ((near_read, near_write), (far_read, far_write)) = (tokio::io::split(near), tokio::io::split(far));
    let (node, count) = (|| Identity::generate().unwrap().node_id(), Arc::new(watch::channel(0).0));
    let near_read = Counted(near_read, Arc::clone(&count));
    let (near, far) = tokio::join!(
        pipe::open(near_read, near_write, node(), Role::Initiator, LIMIT),
        pipe::open(far_read, far_write, node(), Role::Responder, LIMIT),
    );
    (near.unwrap(), far.unwrap(), count)
}

/// Number of bytes that came for `data`.
async fn received(data: &[u8], here: bool, there: bool) -> u64 {
    let config = |compress: bool| {
        let wishes = compress.then(|| COMPRESS.to_owned()).into_iter().collect();
        PeerConfig { wishes, ..PeerConfig::default() }
    };
    received_with(data, config(here), config(there)).await
}

async fn received_with(data: &[u8], here: PeerConfig, there: PeerConfig) -> u64 {
    received_by(data, here, there, PathProbe::none()).await
}

/// The same, where the sender's kernel says this of the path.
async fn received_by(data: &[u8], here: PeerConfig, there: PeerConfig, path: PathProbe) -> u64 {
    let (direct, context, count) = asking(data, here, there, path).await;
    fetched(direct, context, data).await;
    *count.borrow()
}

/// Asks for `data` by this right, and returns how much has come.
async fn asking(
    data: &[u8],
    here: PeerConfig,
    there: PeerConfig,
    path: PathProbe,
) -> (Direct, Context, Count) {
    let (near, mut far, count) = counted().await;
    far.info = path;
    let store = Arc::new(MemoryStore::new());
    let oid = put(&store, data, &About::default());
    let keys = Keys { identity: Identity::generate().unwrap(), secrets: [].into(), allow_all: true };
    let service = Arc::new(Service::new(store, Arc::new(keys)));
    let serving = Peer::start(far, there, Some(service));
    tokio::spawn(async move { serving.closed().await });
    let direct = Direct::over(Peer::start(near, here, None), Identity::generate().unwrap());
    let hints = watch::channel(Vec::new()).1;
    (direct, Context { root: oid, node: None, secret: None, hints }, count)
}

async fn fetched(direct: Direct, context: Context, data: &[u8]) {
    let oid = context.root;
    let session = Session::start(Single::root(Arc::new(direct)), context, impatient(LIMIT));
    let target = Arc::new(Memory::default());
    session.fetch(request(oid, None, &target)).await.unwrap();
    target.expect(data);
}

/// Of any length, also compressed. Without a want it comes, and with one it does not come again.
#[tokio::test]
async fn the_first_piece_comes_with_the_answer_and_only_once() {
    let text = b"all work and no play makes a dull text ".repeat(30_000);
    let config = || PeerConfig { wishes: vec![COMPRESS.to_owned()], ..PeerConfig::default() };
    for (data, config) in
        [(&text, &config as &dyn Fn() -> PeerConfig), (&noise(1, NOISE), &PeerConfig::default)]
    {
        for len in [1, 2000, 1 << 18, data.len()] {
            let (data, path) = (&data[..len], PathProbe::none());
            let plain = received_with(data, config(), config()).await;
            let (direct, context, count) = asking(data, config(), config(), path).await;
            let query = Query { first: FirstPiece::Wanted, ..Query::about(context.root) };
            let (answers, mut described) = tokio::sync::mpsc::channel(4);
            direct.describe(query, &context, answers).await.unwrap();
            assert!(described.recv().await.is_some());
            let first = len.min(1 << 18) as u64 * plain / (len as u64 + 1000);
            timeout(LIMIT, count.subscribe().wait_for(|count| *count >= first)).await.unwrap().unwrap();
            fetched(direct, context, data).await;
            let eager = *count.borrow();
            assert!(eager <= plain + 1000, "{eager} instead of {plain} for {len}");
        }
    }
}

#[tokio::test]
async fn compression_shrinks_what_can_shrink_if_either_end_asks() {
    let text = b"all work and no play makes a dull text ".repeat(100_000);
    let plain = received(&text, false, false).await;
    assert!(plain > text.len() as u64);
    for (here, there) in [(true, false), (false, true), (true, true)] {
        let packed = received(&text, here, there).await;
        assert!(packed < plain / 20, "{packed} of {plain} with {here} and {there}");
    }
}

#[tokio::test]
async fn what_does_not_shrink_goes_as_it_is() {
    let noise = noise(1, NOISE);
    let (plain, packed) = (received(&noise, false, false).await, received(&noise, true, true).await);
    assert!(packed <= plain + 1000, "{packed} of {plain}");
}

#[tokio::test]
async fn on_a_slow_path_text_shrinks_unasked_and_noise_costs_nothing() {
    let config = || PeerConfig { send_pace: Arc::new(Pace::new(4 << 20)), ..PeerConfig::default() };
    let text = b"all work and no play makes a dull text ".repeat(50_000);
    let packed = received_by(&text, config(), config(), slow()).await;
    assert!(packed < text.len() as u64 / 20, "{packed} of {}", text.len());
    let noise = noise(1, NOISE);
    let plain = received(&noise, false, false).await;
    let sent = received_by(&noise, config(), config(), slow()).await;
    // Heads of small frames.
    assert!(sent < plain + plain / 200, "{sent} and {plain}");
}

#[tokio::test]
async fn a_side_that_never_compresses_is_sent_no_compressed_data() {
    let never = || {
        let processors = Processors::default().configured(false, &Rules::default());
        PeerConfig { processors, ..PeerConfig::default() }
    };
    let text = b"all work and no play makes a dull text ".repeat(10_000);
    for (here, there) in [(never(), PeerConfig::default()), (PeerConfig::default(), never())] {
        assert!(received_by(&text, here, there, slow()).await > text.len() as u64);
    }
}

/// Sends only the first byte of a run of equal ones.
struct Runs;

impl Processor for Runs {
    fn name(&self) -> &str {
        "runs"
    }

    fn encoding(&self) -> Option<&dyn Encoding> {
        Some(self)
    }
}

impl Encoding for Runs {
    fn capability(&self) -> &str {
        "x-runs"
    }

    fn wish(&self) -> &str {
        "x-wants-runs"
    }

    fn encoder(&self) -> Box<dyn Encode> {
        Box::new(Self)
    }

    fn decoder(&self) -> Box<dyn Decode> {
        Box::new(Self)
    }
}

impl Encode for Runs {
    fn encode(&mut self, payload: &[u8]) -> Option<Bytes> {
        let is_run = payload.iter().all(|byte| *byte == payload[0]);
        let len = u32::try_from(payload.len()).unwrap().to_le_bytes();
        is_run.then(|| [&payload[..1], &len].concat().into())
    }
}

impl Decode for Runs {
    fn decode(&mut self, payload: &[u8], expected: usize) -> Result<Bytes, String> {
        match payload {
            [byte, len @ ..] if *len == u32::try_from(expected).unwrap().to_le_bytes() => {
                Ok(vec![*byte; expected].into())
            }
            _ => Err("sent what is no run".into()),
        }
    }
}

#[test]
fn encodings_keep_the_contract() {
    conformance::examine(&Runs);
    Processors::default().encodings().for_each(|(_, encoding)| conformance::examine(encoding));
}

#[tokio::test]
async fn another_encoding_is_used_where_both_have_it_and_one_asks() {
    let data = vec![7; 4 << 20];
    let config = |has: bool, asks: bool| PeerConfig {
        processors: Processors::with(if has { vec![Arc::new(Runs)] } else { Vec::new() }).unwrap(),
        wishes: asks.then(|| "x-wants-runs".to_owned()).into_iter().collect(),
        ..PeerConfig::default()
    };
    for (here, there, is_used) in [
        (config(true, true), config(true, false), true),
        (config(true, false), config(true, true), true),
        (config(true, false), config(true, false), false),
        (config(true, true), config(false, false), false),
        (config(false, false), config(true, true), false),
    ] {
        let received = received_with(&data, here, there).await;
        assert_eq!(received < 20_000, is_used, "{received}");
    }
}
