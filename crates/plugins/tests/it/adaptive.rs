//! The adaptive plugin between a network that does as a test says and a real directory.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use bytes::Bytes;
use tempfile::TempDir;
use tokio::sync::mpsc;
use towpath_content::Oid;
use towpath_content::chunking::{ChunkHash, Parameters};
use towpath_content::recipe::RecipeBuilder;
use towpath_disk_search::Scope;
use towpath_reuse::adaptive::{Adaptive, Effort, Search};
use towpath_store::DiskStore;
use towpath_store::doubles::{noise, settle};
use towpath_transfer::source::{Backlog, RecipePart};
use towpath_transfer::source_id::THIS_MACHINE;
use towpath_transfer::want::{Group, ObjectOffset, Origin, Payload};
use towpath_transfer::{
    BoxFuture, Context, Delivery, Description, Outcome, Query, Sink, Source, SourceId, SourceState, Tag,
    Want, WantId,
};
use towpath_transfer_conformance::{self as conformance, Fixture, Subject};

use crate::support::LIMIT;

const SIZE: usize = 600_000;
const CUT_BY: Parameters = Parameters::DEFAULT;
const NETWORK: &str = "network";

/// Habit of the network with chunks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Habit {
    Brings,
    Refuses,
    Hangs,
}

/// Knows one object.
struct Network {
    data: Vec<u8>,
    habit: Habit,
    /// Times that chunks were asked for.
    asked: Arc<Count>,
    cancelled: AtomicUsize,
}

impl Source for Network {
    fn name(&self) -> &str {
        NETWORK
    }

    fn state(&self) -> SourceState {
        SourceState::of_window(64 << 10)
    }

    fn describe<'a>(
        &'a self,
        _query: Query,
        _context: &'a Context,
        answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        let mut builder = RecipeBuilder::new(CUT_BY, |_, _| Ok::<_, std::convert::Infallible>(())).unwrap();
        chunks(&self.data).iter().for_each(|(hash, _, len)| builder.push(*hash, *len).unwrap());
        let root = builder.finish(Oid::of(&self.data)).unwrap().to_bytes();
        let part =
            RecipePart { maker: SourceId::other(NETWORK, None), root: Some(root.into()), nodes: Vec::new() };
        Box::pin(async move {
            answers.send(Description::Recipe(part)).await.unwrap();
            Ok(())
        })
    }

    fn get<'a>(&'a self, wants: Vec<Want>, _context: &'a Context, sink: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        self.asked.up();
        Box::pin(async move {
            for want in wants {
                let at = want.origin.unwrap().offset as usize;
                let bytes = Bytes::copy_from_slice(&self.data[at..at + want.id.len() as usize]);
                let (payload, timing) = (Payload::Bytes(bytes), (Instant::now(), Instant::now()));
                match self.habit {
                    Habit::Brings => {
                        let source = SourceId::other(NETWORK, None);
                        sink.deliver(Delivery {
                            tag: want.tag,
                            payload,
                            proof: None,
                            source,
                            timing,
                            saved: 0,
                        })
                        .await;
                    }
                    Habit::Refuses => sink.outcome(want.tag, Outcome::NotHere),
                    Habit::Hangs => std::future::pending().await,
                }
            }
        })
    }

    fn cancel(&self, tags: &[Tag]) {
        self.cancelled.fetch_add(tags.len(), Ordering::SeqCst);
    }
}

/// The chunks of `data`: name, place, length.
fn chunks(data: &[u8]) -> Vec<(ChunkHash, usize, u32)> {
    let mut chunker = CUT_BY.chunker().unwrap();
    let (mut rest, mut lens) = (data, Vec::new());
    while let Some(chunk) = chunker.cut(&mut rest) {
        lens.push(chunk.len());
    }
    while let Some(chunk) = chunker.finish() {
        lens.push(chunk.len());
    }
    let mut at = 0;
    let chunk = |len| {
        let start = at;
        at += len;
        (ChunkHash::of(&data[start..start + len]), start, len as u32)
    };
    lens.into_iter().map(chunk).collect()
}

/// Source of a want, or the reason why there was none.
type Ending = Result<(String, Bytes), Outcome>;

/// Ends of wants.
#[derive(Default)]
struct Ends {
    ended: Mutex<HashMap<Tag, Ending>>,
    /// Of one that falls behind for a while: how often it was looked at since, 0 before.
    looks: Option<Arc<Count>>,
}

impl Sink for Ends {
    fn deliver(&self, delivery: Delivery) -> BoxFuture<'_, ()> {
        let (Payload::Bytes(bytes) | Payload::Hashed(bytes)) = delivery.payload else { panic!("no bytes") };
        let end = Ok((delivery.source.to_string(), bytes));
        assert!(self.ended.lock().unwrap().insert(delivery.tag, end).is_none(), "brought twice");
        Box::pin(async {})
    }

    fn outcome(&self, tag: Tag, outcome: Outcome) {
        self.ended.lock().unwrap().insert(tag, Err(outcome));
    }

    fn backpressure(&self) -> Backlog {
        let looks = self.looks.as_ref().filter(|looks| looks.get() > 0);
        let is_behind = looks.is_some_and(|looks| looks.up() <= 20);
        let writer_backlog = if is_behind { 16 << 20 } else { 0 };
        Backlog { writer_backlog, receive_queue: 0 }
    }
}

/// Names that are not looked at.
type LeaveOut = Arc<dyn Fn(&OsStr) -> bool + Send + Sync>;

/// The plugin over a network and a searched directory.
struct World {
    base: TempDir,
    network: Arc<Network>,
    plugin: Arc<Adaptive>,
    wants: Vec<Want>,
    context: Context,
}

fn search(base: &Path) -> Search {
    let base = base.canonicalize().unwrap();
    let start = base.join("files");
    fs::create_dir_all(&start).unwrap();
    let store = Arc::new(DiskStore::open(&base.join("state"), &base.join("data")).unwrap());
    let scope = Scope { start, ..Scope::default() };
    Search { store, scope, leave_out: Arc::new(|_| false), effort: Effort::Some, limit_rate: 0 }
}

/// Count of something that happened.
#[derive(Default)]
struct Count {
    number: Mutex<usize>,
    changed: Condvar,
}

impl Count {
    fn get(&self) -> usize {
        *self.number.lock().unwrap()
    }

    /// Once more: so often.
    fn up(&self) -> usize {
        let mut number = self.number.lock().unwrap();
        *number += 1;
        self.changed.notify_all();
        *number
    }

    /// Waits for it, on a thread that may, but no longer than anything may take.
    fn wait_for(&self, number: usize) {
        let now = self.number.lock().unwrap();
        drop(self.changed.wait_timeout_while(now, LIMIT, |now| *now < number).unwrap());
    }
}

impl World {
    /// After the plugin has seen the recipe.
    async fn new(habit: Habit, files: &[(&str, &[u8])]) -> Self {
        Self::leaving_out(Arc::new(|_| false), Arc::default(), habit, files).await
    }

    /// The search asks `leave_out` of every name; `asked` counts what the network is asked.
    async fn leaving_out(
        leave_out: LeaveOut,
        asked: Arc<Count>,
        habit: Habit,
        files: &[(&str, &[u8])],
    ) -> Self {
        let (base, data) = (tempfile::tempdir().unwrap(), noise(1, SIZE));
        let search = Search { leave_out, ..search(base.path()) };
        for (name, bytes) in files {
            let path = search.scope.start.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, bytes).unwrap();
            settle(&path).unwrap();
        }
        let oid = Oid::of(&data);
        let context = Fixture { objects: vec![data.clone()] }.context();
        let network = Arc::new(Network { data, habit, asked, cancelled: AtomicUsize::new(0) });
        let plugin = Adaptive::new(Arc::clone(&network) as Arc<dyn Source>, search);
        let (answers, mut inbox) = mpsc::channel(4);
        let query = Query { recipe: true, ..Query::about(oid) };
        plugin.describe(query, &context, answers).await.unwrap();
        assert!(inbox.recv().await.is_some());
        let group = Arc::new(Group { size: Some(SIZE as u64), ..Group::default() });
        let want = |(tag, (hash, at, len)): (Tag, (ChunkHash, usize, u32))| Want {
            positions: vec![ObjectOffset { object: 1, offset: at as u64 }],
            group: Arc::clone(&group),
            origin: Some(Origin { oid, offset: at as u64 }),
            ..Want::new(tag, WantId::Chunk { hash: hash.0, len })
        };
        let wants = (1..).zip(chunks(&network.data)).map(want).collect();
        Self { base, network, plugin, wants, context }
    }

    /// Asks for all chunks; each must end, and with the right bytes. Bytes that the disk brought.
    async fn fetch(&self) -> u64 {
        self.fetch_to(Ends::default()).await
    }

    async fn fetch_to(&self, ends: Ends) -> u64 {
        let ends = Arc::new(ends);
        let sink = Arc::clone(&ends) as Arc<dyn Sink>;
        let fetching = self.plugin.get(self.wants.clone(), &self.context, sink);
        tokio::time::timeout(LIMIT, fetching).await.expect("it does not end");
        let ends = ends.ended.lock().unwrap();
        let mut from_disk = 0;
        for want in &self.wants {
            let end = ends.get(&want.tag).expect("a want has not ended");
            if let (Ok((source, bytes)), WantId::Chunk { hash, .. }) = (end, &want.id) {
                assert_eq!(ChunkHash::of(bytes).0, *hash);
                from_disk += if source == THIS_MACHINE { bytes.len() as u64 } else { 0 };
            }
        }
        from_disk
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_file_holds_is_found_though_the_network_hangs() {
    let (same, other) = (noise(1, SIZE), noise(2, SIZE));
    let asked = Arc::new(Count::default());
    let seen = Arc::clone(&asked);
    // The disk is not done before the network has been asked for anything.
    let leave_out = move |_: &OsStr| {
        seen.wait_for(1);
        false
    };
    let files = [("another name", &same[..]), ("other", &other)];
    let world = World::leaving_out(Arc::new(leave_out), asked, Habit::Hangs, &files).await;
    assert_eq!(world.fetch().await, SIZE as u64);
    let account = world.plugin.account();
    assert_eq!((account.from_files + account.from_index, account.from_network), (SIZE as u64, 0));
    assert!(world.network.cancelled.load(Ordering::SeqCst) > 0, "what was asked for is cancelled");
}

/// Once a file was known to the index and held much of what was wanted, it was neither read nor asked
/// for single chunks: all came over the network.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_the_index_knows_is_read_again_for_many_chunks() {
    let first = World::new(Habit::Hangs, &[("x", &noise(1, SIZE))]).await;
    assert_eq!(first.fetch().await, SIZE as u64);
    let again = Adaptive::new(Arc::clone(&first.network) as Arc<dyn Source>, search(first.base.path()));
    let (answers, _inbox) = mpsc::channel(4);
    let query = Query { recipe: true, ..Query::about(Oid::of(&first.network.data)) };
    again.describe(query, &first.context, answers).await.unwrap();
    let again = World { plugin: again, ..first };
    assert_eq!(again.fetch().await, SIZE as u64);
}

/// A search once rested for ever if what it did had come to its end at the moment it was to rest.
#[tokio::test(flavor = "multi_thread")]
async fn a_search_goes_on_after_a_rest_in_which_its_operation_ended() {
    let looks = Arc::new(Count::default());
    let seen = Arc::clone(&looks);
    // The last entry of the last directory is looked at until the search is to rest.
    let leave_out = move |name: &OsStr| {
        if name == "last" {
            seen.up();
            seen.wait_for(5);
        }
        false
    };
    let files = [("directory/last", &noise(1, SIZE)[..])];
    let world = World::leaving_out(Arc::new(leave_out), Arc::default(), Habit::Hangs, &files).await;
    let ends = Ends { looks: Some(Arc::clone(&looks)), ..Ends::default() };
    assert_eq!(world.fetch_to(ends).await, SIZE as u64);
    assert!(looks.get() >= 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_nowhere_on_the_disk_comes_over_the_network() {
    let world = World::new(Habit::Brings, &[("other", &noise(2, SIZE))]).await;
    assert_eq!(world.fetch().await, 0);
    assert_eq!(world.plugin.account().from_network, SIZE as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_of_the_network_reaches_the_session() {
    let world = World::new(Habit::Refuses, &[]).await;
    assert_eq!(world.fetch().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_session_cancels_ends() {
    let world = World::new(Habit::Hangs, &[]).await;
    let (ends, asked) = (Arc::new(Ends::default()), Arc::clone(&world.network.asked));
    let sink = Arc::clone(&ends) as Arc<dyn Sink>;
    let fetching = world.plugin.get(world.wants.clone(), &world.context, sink);
    let cancelling = async {
        tokio::task::spawn_blocking(move || asked.wait_for(1)).await.unwrap();
        let tags: Vec<_> = world.wants.iter().map(|want| want.tag).collect();
        world.plugin.cancel(&tags);
    };
    tokio::time::timeout(LIMIT, async { tokio::join!(fetching, cancelling) }).await.expect("it does not end");
    let ends = ends.ended.lock().unwrap();
    assert!(ends.len() == world.wants.len() && ends.values().all(|end| *end == Err(Outcome::Cancelled)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_with_a_search_passes() {
    conformance::run(async |fixture: Fixture| {
        let base = tempfile::tempdir().unwrap();
        let context = fixture.context();
        let network = crate::conformance::local(&fixture, 0, 1);
        let disk = search(base.path());
        let wrap = move |inner| Adaptive::new(inner, disk.clone()) as Arc<dyn Source>;
        Subject::new(wrap(network), context).wrapping(wrap).keeping(base)
    })
    .await;
}
