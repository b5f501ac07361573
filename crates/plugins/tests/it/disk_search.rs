//! Disk operations pass the examination of the seam: all pieces that it asks for are asked of the adaptive
//! plugin as chunks, which files on the disk hold, while its network is late.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;
use tokio::sync::mpsc;
use towpath_content::Oid;
use towpath_content::chunking::{ChunkHash, Parameters};
use towpath_content::recipe::RecipeBuilder;
use towpath_disk_search::Scope;
use towpath_reuse::adaptive::{Adaptive, Effort, Search};
use towpath_store::disk::chunk_index::{CutChunk, CutFile};
use towpath_store::{DiskStore, Stamp};
use towpath_transfer::SourceId;
use towpath_transfer::source::{Backlog, RecipePart};
use towpath_transfer::want::{Origin, Payload, Proof};
use towpath_transfer::{
    BoxFuture, Context, Delivery, Description, Outcome, Query, Sink, Source, SourceState, Tag, Want, WantId,
};
use towpath_transfer_conformance::{self as conformance, Fixture, Subject};

use crate::support::PIECE;

/// Pieces are chunks.
const CUT_BY: Parameters = Parameters::Fixed { len: PIECE as u32 };
/// Time that the network takes longer than the disk.
const LATE: Duration = Duration::from_millis(500);

/// The objects that chunks are of.
type Objects = Arc<HashMap<Oid, Vec<u8>>>;

/// A network that tells how objects are cut, and takes long for what is asked as chunks.
struct Late {
    inner: Arc<dyn Source>,
    objects: Objects,
}

impl Source for Late {
    fn name(&self) -> &str {
        "late"
    }

    fn inner(&self) -> Option<&dyn Source> {
        Some(&*self.inner)
    }

    fn state(&self) -> SourceState {
        self.inner.state()
    }

    fn describe<'a>(
        &'a self,
        query: Query,
        context: &'a Context,
        answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        let Some(data) = self.objects.get(&query.oid).filter(|_| query.recipe) else {
            return self.inner.describe(query, context, answers);
        };
        let part = recipe(query.oid, data);
        Box::pin(async move {
            let query = Query { recipe: false, ..query };
            self.inner.describe(query, context, answers.clone()).await?;
            let _ = answers.send(Description::Recipe(part)).await;
            Ok(())
        })
    }

    fn get<'a>(&'a self, wants: Vec<Want>, context: &'a Context, sink: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        let (chunks, pieces): (Vec<_>, Vec<_>) =
            wants.into_iter().partition(|want| matches!(want.id, WantId::Chunk { .. }));
        Box::pin(async move {
            let soon = self.inner.get(pieces, context, Arc::clone(&sink));
            let late = async {
                tokio::time::sleep(if chunks.is_empty() { Duration::ZERO } else { LATE }).await;
                for want in chunks {
                    self.bring(&want, &sink).await;
                }
            };
            tokio::join!(soon, late);
        })
    }
}

/// So short that it has one node at most.
fn recipe(oid: Oid, data: &[u8]) -> RecipePart {
    let mut nodes = Vec::new();
    let keep = |_, node: Vec<u8>| {
        nodes.push(Bytes::from(node));
        Ok::<_, std::convert::Infallible>(())
    };
    let mut builder = RecipeBuilder::new(CUT_BY, keep).unwrap();
    data.chunks(PIECE).for_each(|chunk| builder.push(ChunkHash::of(chunk), chunk.len() as u32).unwrap());
    let root = builder.finish(oid).unwrap().to_bytes();
    RecipePart { maker: SourceId::other("late", None), root: Some(root.into()), nodes }
}

impl Late {
    async fn bring(&self, want: &Want, sink: &Arc<dyn Sink>) {
        let len = want.id.len() as usize;
        let bytes = want
            .origin
            .and_then(|Origin { oid, offset }| self.objects.get(&oid)?.get(offset as usize..)?.get(..len));
        let Some(bytes) = bytes else { return sink.outcome(want.tag, Outcome::NotHere) };
        let now = std::time::Instant::now();
        let payload = Payload::Bytes(Bytes::copy_from_slice(bytes));
        let (source, timing) = (SourceId::other("late", None), (now, now));
        sink.deliver(Delivery { tag: want.tag, payload, proof: None, source, timing, saved: 0 }).await;
    }
}

/// Asks for pieces as chunks.
struct AsChunks {
    adaptive: Arc<Adaptive>,
    objects: Objects,
    /// Has the proofs that chunks come without.
    pieces: Arc<dyn Source>,
    from_disk: Arc<AtomicU64>,
}

impl Source for AsChunks {
    fn name(&self) -> &str {
        "disk_search"
    }

    fn inner(&self) -> Option<&dyn Source> {
        Some(&*self.adaptive)
    }

    fn state(&self) -> SourceState {
        self.adaptive.state()
    }

    fn describe<'a>(
        &'a self,
        query: Query,
        context: &'a Context,
        answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        self.adaptive.describe(query, context, answers)
    }

    fn get<'a>(
        &'a self,
        mut wants: Vec<Want>,
        context: &'a Context,
        sink: Arc<dyn Sink>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let mut proofs = HashMap::new();
            for want in &mut wants {
                let proof = self.turn_into_chunk(want, context).await;
                proofs.extend(proof.map(|proof| (want.tag, proof)));
            }
            let sink = Proving { inner: sink, proofs, from_disk: Arc::clone(&self.from_disk) };
            self.adaptive.get(wants, context, Arc::new(sink)).await;
        })
    }
}

impl AsChunks {
    /// The proof that comes with the piece, if it is one that an object has.
    async fn turn_into_chunk(&self, want: &mut Want, context: &Context) -> Option<Arc<Proof>> {
        let WantId::Piece { oid, layout, index } = want.id else { return None };
        let data = self.objects.get(&oid).filter(|data| data.len() as u64 == layout.size())?;
        let range = layout.range(index);
        let bytes = data.get(range.start as usize..range.end as usize).filter(|bytes| !bytes.is_empty())?;
        let (answers, mut inbox) = mpsc::channel(4);
        let proofs = Some(index..index + 1);
        let query = Query { proofs, ..Query::about(oid) };
        self.pieces.describe(query, context, answers).await.unwrap();
        let mut proof = None;
        while let Some(answer) = inbox.recv().await {
            if let Description::Proof(found) = answer {
                proof = Some(Arc::new(found));
            }
        }
        want.id = WantId::Chunk { hash: ChunkHash::of(bytes).0, len: bytes.len() as u32 };
        want.origin = Some(Origin { oid, offset: range.start });
        proof
    }
}

/// Adds proofs to what comes, and counts what the disk brought.
struct Proving {
    inner: Arc<dyn Sink>,
    proofs: HashMap<Tag, Arc<Proof>>,
    from_disk: Arc<AtomicU64>,
}

impl Sink for Proving {
    fn deliver(&self, delivery: Delivery) -> BoxFuture<'_, ()> {
        if delivery.source.is_this_machine()
            && let Payload::Bytes(bytes) | Payload::Hashed(bytes) = &delivery.payload
        {
            self.from_disk.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
        let proof = self.proofs.get(&delivery.tag).cloned().or(delivery.proof);
        self.inner.deliver(Delivery { proof, ..delivery })
    }

    fn outcome(&self, tag: Tag, outcome: Outcome) {
        self.inner.outcome(tag, outcome);
    }

    fn backpressure(&self) -> Backlog {
        self.inner.backpressure()
    }
}

/// A disk with a file for each object; with `is_indexed` the index knows their chunks.
fn disk(fixture: &Fixture, is_indexed: bool) -> (TempDir, Search) {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().canonicalize().unwrap();
    let start = root.join("files");
    fs::create_dir(&start).unwrap();
    let store = Arc::new(DiskStore::open(&root.join("state"), &root.join("data")).unwrap());
    for (number, data) in fixture.objects.iter().enumerate().filter(|(_, data)| !data.is_empty()) {
        let path = start.join(number.to_string());
        fs::write(&path, data).unwrap();
        let chunk = |(at, bytes): (usize, &[u8])| CutChunk {
            hash: ChunkHash::of(bytes),
            offset: (at * PIECE) as u64,
            len: bytes.len() as u32,
        };
        let chunks: Vec<_> = data.chunks(PIECE).enumerate().map(chunk).collect();
        let stamp = Stamp::of_path(&path).unwrap();
        let cut = CutFile { path: &path, stamp, settled: true, parameters: CUT_BY, chunks: &chunks };
        if is_indexed {
            store.chunk_index().record_chunks(&cut).unwrap();
        }
    }
    (
        base,
        Search {
            store,
            scope: Scope { start, ..Scope::default() },
            leave_out: Arc::new(|_| false),
            effort: Effort::Some,
            limit_rate: 0,
        },
    )
}

/// Examines a search of such disks; bytes that came from them.
async fn examine(is_indexed: bool) -> u64 {
    let from_disk = Arc::new(AtomicU64::new(0));
    conformance::run(async |fixture: Fixture| {
        let context = fixture.context();
        let objects: Objects =
            Arc::new(fixture.objects.iter().map(|data| (Oid::of(data), data.clone())).collect());
        let pieces = crate::conformance::local(&fixture, 0, 1);
        let network = Late { inner: Arc::clone(&pieces), objects: Arc::clone(&objects) };
        let (base, search) = disk(&fixture, is_indexed);
        let adaptive = Adaptive::new(Arc::new(network), search);
        for oid in objects.keys() {
            let (answers, mut inbox) = mpsc::channel(4);
            let query = Query { recipe: true, ..Query::about(*oid) };
            adaptive.describe(query, &context, answers).await.unwrap();
            while inbox.recv().await.is_some() {}
        }
        let from_disk = Arc::clone(&from_disk);
        let plugin = AsChunks { adaptive, objects, pieces, from_disk };
        // What is found goes through one queue.
        Subject::new(Arc::new(plugin), context).sharing_a_stream().keeping(base)
    })
    .await;
    from_disk.load(Ordering::Relaxed)
}

#[tokio::test(flavor = "multi_thread")]
async fn searching_files_passes() {
    assert!(examine(false).await > 10 * PIECE as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_from_where_the_index_says_passes() {
    assert!(examine(true).await > 10 * PIECE as u64);
}
