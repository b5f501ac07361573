//! Deltas whose connection is lost: at each message, twice, and with a sender that lies behind it. The sender, the session and
//! the connections are real ones.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use towpath_content::Oid;
use towpath_content::delta::exchange::{NextSignature, Reply};
use towpath_content::lock::lock;
use towpath_files::Stamp;
use towpath_link::Identity;
use towpath_plugins::Direct;
use towpath_protocol::Peer;
use towpath_protocol::processor::{Inspector, Object, Processor};
use towpath_protocol::processors::Processors;
use towpath_reuse::candidates::search::CandidateSearch;
use towpath_reuse::policy::network::Network;
use towpath_store::doubles::noise;
use towpath_transfer::offer::{EntryBody, EntryContent, EntrySink, EntryWant, OfferSource, SignatureWay};
use towpath_transfer::progress::Snapshot;
use towpath_transfer::{BoxFuture, Context, Outcome, Session, SessionConfig, Single, SourceId, Tag};

use super::RemoteSupplier;
use crate::delta_requests::DeltaRequests;
use crate::file::tests::changed_file;
use crate::file_result::{FileResult, Settling};
use crate::first_files::FirstFiles;
use crate::network_look::NetworkLook;
use crate::sender_role::tests::sender_of;
use crate::supply::Supplier;
use crate::tree_link::TreeLink;

const LIMIT: Duration = Duration::from_secs(60);
/// Three parts.
const SIZE: usize = 18 << 20;
const ENTRY: u64 = 2;
/// Networks on which deltas come in steps, and at once.
const SLOW: Network = Network { rate: 1e6, round_trip: Duration::from_millis(20) };
const FASTER: Network = Network { rate: 8e6, ..SLOW };

/// What a connection does to what comes over it.
#[derive(Clone, Copy)]
enum Way {
    Honest,
    /// It is lost instead of this message.
    LostAt(usize),
    /// The sender lies in each content and run.
    Lying(fn(&mut EntryContent), fn(&mut Vec<u8>)),
}

/// Asks over one connection after the other, as each is lost.
struct Ways {
    ways: Vec<(Way, Arc<Peer>)>,
    at: AtomicUsize,
    /// Bytes that came and that were sent, over each.
    bytes: Arc<Mutex<Vec<u64>>>,
    /// Messages that came over each.
    messages: Vec<Arc<AtomicUsize>>,
    on_loss: Arc<dyn Fn() + Send + Sync>,
}

/// Passes on what comes over a connection.
struct WaySink {
    inner: Arc<dyn EntrySink>,
    way: Way,
    peer: Arc<Peer>,
    number: usize,
    bytes: Arc<Mutex<Vec<u64>>>,
    came: Arc<AtomicUsize>,
    on_loss: Arc<dyn Fn() + Send + Sync>,
}

/// Counts signatures.
struct CountedWay(Arc<dyn SignatureWay>, usize, Arc<Mutex<Vec<u64>>>);

impl OfferSource for Ways {
    fn get_entries(&self, wants: Vec<EntryWant>, sink: Arc<dyn EntrySink>) -> BoxFuture<'_, Vec<EntryWant>> {
        Box::pin(async move {
            let number = self.at.load(Ordering::SeqCst);
            let (way, peer) = &self.ways[number];
            let sent = wants.iter().filter_map(|want| want.query.base.as_ref());
            let sent: usize = sent.map(|request| request.base.signature_len()).sum();
            lock(&self.bytes)[number] += sent as u64;
            let sink = WaySink {
                inner: sink,
                way: *way,
                peer: Arc::clone(peer),
                number,
                bytes: Arc::clone(&self.bytes),
                came: Arc::clone(&self.messages[number]),
                on_loss: Arc::clone(&self.on_loss),
            };
            peer.get_entries(wants, Arc::new(sink)).await;
            if peer.ended().is_some() {
                self.at.fetch_max(number + 1, Ordering::SeqCst);
            }
            Vec::new()
        })
    }
}

impl WaySink {
    /// False: the connection is lost now, or was before.
    fn comes(&self, bytes: usize) -> bool {
        let came = self.came.fetch_add(1, Ordering::SeqCst);
        let is_lost = matches!(self.way, Way::LostAt(at) if came >= at);
        if is_lost {
            (self.on_loss)();
            self.peer.close("it is lost");
        } else {
            lock(&self.bytes)[self.number] += bytes as u64;
        }
        !is_lost
    }
}

impl EntrySink for WaySink {
    fn asked(&self, tags: &[Tag], way: Arc<dyn SignatureWay>) {
        self.inner.asked(tags, Arc::new(CountedWay(way, self.number, Arc::clone(&self.bytes))));
    }

    fn contents(&self, mut contents: Vec<(Tag, EntryContent)>, kept: usize) -> BoxFuture<'_, ()> {
        if !self.comes(kept) {
            return Box::pin(std::future::ready(()));
        }
        if let Way::Lying(lie, _) = self.way {
            contents.iter_mut().for_each(|(_, content)| lie(content));
        }
        self.inner.contents(contents, kept)
    }

    fn run(&self, tag: Tag, run: Bytes) -> BoxFuture<'_, ()> {
        if !self.comes(run.len()) {
            return Box::pin(std::future::ready(()));
        }
        let mut run = run.to_vec();
        if let Way::Lying(_, lie) = self.way {
            lie(&mut run);
        }
        self.inner.run(tag, run.into())
    }

    fn outcome(&self, tag: Tag, outcome: Outcome) {
        self.inner.outcome(tag, outcome);
    }
}

impl SignatureWay for CountedWay {
    fn send(&self, tag: Tag, signature: &NextSignature) {
        lock(&self.2)[self.1] += signature.len() as u64;
        self.0.send(tag, signature);
    }
}

/// Keeps how often a file was settled.
#[derive(Default)]
struct Settlements(AtomicUsize);

impl Settling for Settlements {
    fn settled(&self, _entry: u64, _result: FileResult) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A copy of one file.
struct Copied {
    /// What is in its place, and how it was counted.
    content: Vec<u8>,
    counted: Snapshot,
    settled: usize,
    /// Messages over the first connection.
    messages: usize,
    /// Bytes over each connection, without those that were fetched by name.
    bytes: Vec<u64>,
}

impl Copied {
    /// Bytes over the network but those of the first connection.
    fn later(&self) -> u64 {
        self.bytes[1..].iter().sum::<u64>()
    }

    /// Bytes that the sender brought.
    fn brought(&self) -> u64 {
        let here = SourceId::this_machine();
        self.counted.by_source.iter().filter(|(source, _)| **source != here).map(|(_, bytes)| bytes).sum()
    }
}

type OnLoss = fn(&Path);

/// The two versions of a file, what it passes, the network, and what happens at a loss.
struct Scene {
    old: Vec<u8>,
    new: Vec<u8>,
    inspected: Processors,
    network: Network,
    /// The sender has the older version, too.
    both_have_it: bool,
    on_loss: OnLoss,
}

impl Scene {
    /// A version with a change of 200 bytes in each 200,000.
    fn new(network: Network) -> Self {
        let old = noise(1, SIZE);
        let mut new = old.clone();
        (0..SIZE - 4096).step_by(200_000).for_each(|at| new[at + 9..at + 200].fill(7));
        let inspected = Processors::default();
        Self { old, new, inspected, network, both_have_it: false, on_loss: |_| {} }
    }

    /// Copies the new version over the old one, over these ways.
    async fn copy(&self, ways: &[Way]) -> Copied {
        copy(self, ways).await
    }
}

async fn copy(scene: &Scene, ways: &[Way]) -> Copied {
    let Scene { old, new, inspected, network, both_have_it, on_loss } = scene;
    let (network, on_loss) = (*network, *on_loss);
    let home = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| home.path().join(name));
    for (folder, content) in [(&from, new), (&to, old)] {
        fs::create_dir(folder).unwrap();
        fs::write(folder.join("file"), content).unwrap();
    }
    let sending = sender_of(&home.path().join("sender"), from).await;
    if *both_have_it {
        fs::write(home.path().join("older"), old).unwrap();
        sending.remember(&home.path().join("older"));
    }
    let (mut peers, mut near) = (Vec::new(), Vec::new());
    for way in ways {
        let [its, ours] = sending.connect().await;
        near.push(its);
        peers.push((*way, ours));
    }
    let stamp = Stamp::of(&File::open(to.join("file")).unwrap()).unwrap();
    let file = changed_file(home.path(), ENTRY, new.len() as u64, Some(stamp));
    let settlements = Arc::new(Settlements::default());
    file.receiving().set_settling(Arc::clone(&settlements) as _);

    let root = Direct::over(Arc::clone(&peers.last().unwrap().1), Identity::generate().unwrap());
    let bytes = Arc::new(Mutex::new(vec![0; ways.len()]));
    let messages: Vec<_> = ways.iter().map(|_| Arc::default()).collect();
    let lost: PathBuf = to.clone();
    let offers = Ways {
        ways: peers,
        at: AtomicUsize::new(0),
        bytes: Arc::clone(&bytes),
        messages: messages.clone(),
        on_loss: Arc::new(move || on_loss(&lost)),
    };
    let (_hints, hints) = watch::channel(Vec::new());
    let context = Context { root: Oid::of(b"copy"), node: None, secret: None, hints };
    let session = Session::start_with_offers(
        Single::root(Arc::new(root)),
        Arc::new(offers),
        context,
        SessionConfig::default(),
    );
    let session = Arc::new(session);
    let network = NetworkLook::new(Box::new(move || network), Box::pin(std::future::ready(())));
    let (tree, _telling) = TreeLink::start(sending.to_near.clone());
    let asking = (DeltaRequests::new(network), Arc::new(FirstFiles::new(false)));
    let supplier = RemoteSupplier::new(&tree, &session, false, asking, CandidateSearch::new(None), inspected);

    let (asked, asker) = (Arc::clone(&file), Arc::clone(&supplier));
    let asking = tokio::task::spawn_blocking(move || asker.bring(asked).and_then(|()| asker.push()));
    asking.await.unwrap().unwrap();
    // Whoever has the file could settle it.
    let waited = tokio::time::timeout(LIMIT, async {
        let mut looks = tokio::time::interval(Duration::from_millis(2));
        while Arc::strong_count(&file) > 1 {
            file.receiving().name_if_stuck();
            looks.tick().await;
        }
        file.receiving().name_if_stuck();
    });
    waited.await.expect("it hangs");
    let copied = Copied {
        content: fs::read(to.join("file")).unwrap_or_default(),
        counted: session.progress().snapshot(),
        settled: settlements.0.load(Ordering::SeqCst),
        messages: messages[0].load(Ordering::SeqCst),
        bytes: lock(&bytes).clone(),
    };
    supplier.end();
    copied
}

/// Asserts that the file is there, and that each of its bytes counts once.
fn assert_made(copied: &Copied, scene: &Scene, what: &str) {
    assert!(copied.content == scene.new, "{what}: other bytes");
    let Snapshot { expected, done, objects, .. } = copied.counted;
    assert_eq!((expected, done, objects), (SIZE as u64, SIZE as u64, 1), "{what}");
    assert_eq!(copied.settled, 1, "{what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delta_goes_on_wherever_its_connection_is_lost() {
    // Deltas in steps, deltas of three parts, and patches of five.
    for (network, both_have_it, least) in [(SLOW, false, 7), (FASTER, false, 5), (SLOW, true, 6)] {
        let scene = Scene { both_have_it, ..Scene::new(network) };
        let whole = scene.copy(&[Way::Honest]).await;
        assert_made(&whole, &scene, "no loss");
        assert!(whole.messages >= least, "{network:?}: {}", whole.messages);
        for at in 0..whole.messages {
            let what = format!("{network:?}, {both_have_it}, lost at message {at} of {}", whole.messages);
            let copied = scene.copy(&[Way::LostAt(at), Way::Honest]).await;
            assert_made(&copied, &scene, &what);
            // What is asked anew is no more than the delta was: of the file that is a fiftieth.
            assert!(copied.later() < SIZE as u64 / 50, "{what}: {}", copied.later());
            assert!(copied.brought() < SIZE as u64 / 50, "{what}: pieces came, {}", copied.brought());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delta_that_is_lost_once_more_goes_on_if_it_came_farther_and_is_fetched_else() {
    let scene = Scene::new(FASTER);
    let part = SIZE as u64 / 3;
    // On the first way the answers are that the base is not known, that it comes in parts, and three parts. On the second one
    // it is signed at once.
    for (losses, kept, most) in
        [([3, 3], 0, part / 10), ([3, 2], part, 2 * part + part / 10), ([2, 1], 0, 3 * part + part / 10)]
    {
        let ways = [Way::LostAt(losses[0]), Way::LostAt(losses[1]), Way::Honest];
        let copied = scene.copy(&ways).await;
        let what = format!("lost at {losses:?}");
        assert_made(&copied, &scene, &what);
        let (all, kept_there) = (copied.later() + copied.brought(), copied.counted.kept);
        assert!(all < most, "{what}: {all} of {most}");
        // A piece that a part ends in comes.
        assert!(kept.saturating_sub(2 << 20) <= kept_there && kept_there <= kept, "{what}: {kept_there}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sender_that_lies_behind_a_loss_spoils_nothing() {
    type Lie = (&'static str, bool, fn(&mut EntryContent), fn(&mut Vec<u8>));
    let lies: [Lie; 7] = [
        ("other bytes", true, |_| {}, |run| *run.last_mut().unwrap() ^= 1),
        ("runs that are cut", true, |_| {}, |run| run.truncate(3)),
        ("giving up", true, |content| content.body = EntryBody::Delta(Reply::GivenUp), |_| {}),
        ("nothing but a name", true, |content| content.body = EntryBody::Named, |_| {}),
        ("another name", false, |content| content.oid = Some(Oid::of(b"x")), |_| {}),
        ("another size", false, |content| content.size += 1, |_| {}),
        ("the same", false, |content| content.body = EntryBody::Delta(Reply::Same), |_| {}),
    ];
    let scene = Scene::new(FASTER);
    for (what, is_made, content, run) in lies {
        let copied = scene.copy(&[Way::LostAt(4), Way::Lying(content, run), Way::Honest]).await;
        match is_made {
            true => assert_made(&copied, &scene, what),
            false => {
                assert!(copied.content == scene.old && copied.settled <= 1, "{what}: {}", copied.settled)
            }
        }
    }
}

/// Refuses what is not the front of a file.
struct FrontAlone;

impl Processor for FrontAlone {
    fn name(&self) -> &str {
        "front"
    }

    fn inspector(&self) -> Option<&dyn Inspector> {
        Some(self)
    }
}

impl Inspector for FrontAlone {
    fn inspect(&self, _object: &Object<'_>, offset: u64, _bytes: &[u8]) -> Result<(), String> {
        if offset > 0 { Err("no more of it".into()) } else { Ok(()) }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_failed_in_its_delta_is_settled_once_though_its_connection_is_lost_then() {
    let refusing = Processors::with(vec![Arc::new(FrontAlone)]).unwrap();
    let refused = Scene { inspected: refusing, ..Scene::new(FASTER) };
    // Nothing can be made there any more: the folder is moved away at once, as a file may just be made in it.
    let no_room =
        Scene { on_loss: |to| fs::rename(to, to.with_extension("away")).unwrap(), ..Scene::new(FASTER) };
    for at in 1..5 {
        let ways = [Way::LostAt(at), Way::Honest];
        let copied = refused.copy(&ways).await;
        assert!(copied.content == refused.old, "refused, lost at {at}");
        assert_eq!(copied.settled, 1, "refused, lost at {at}");
        let copied = no_room.copy(&ways).await;
        assert_eq!((copied.content.len(), copied.settled), (0, 1), "no room, lost at {at}");
    }
}
