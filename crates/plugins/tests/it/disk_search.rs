//! Disk operations pass the examination of the seam: a plugin that has nothing but them. What it is asked for as
//! pieces it looks for as chunks, in the index and then in the files of a directory.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use tempfile::TempDir;
use tokio::sync::mpsc;
use towpath_content::Oid;
use towpath_content::chunking::{ChunkHash, Parameters};
use towpath_plugins::disk_search::{
    Directory, Event, Executor, Finished, FoundChunk, Limits, Occasion, Operation, Rules,
};
use towpath_store::disk::chunk_index::{CutChunk, CutFile};
use towpath_store::{DiskStore, Stamp};
use towpath_transfer::conformance::{self, Fixture, Subject};
use towpath_transfer::want::{Payload, Proof};
use towpath_transfer::{
    BoxFuture, Context, Delivery, Description, Outcome, Query, Sink, Tag, TransferPlugin, Want, WantId,
};

use crate::support::PIECE;

/// Pieces are chunks.
const CUT_BY: Parameters = Parameters::Fixed { len: PIECE as u32 };
/// Two pieces may be on their way.
const LIMITS: Limits = Limits { threads: 1, operations: 64, bytes: 2 * PIECE as u64 };

/// Brings what lies in the files of a directory.
struct OnDisk {
    store: Arc<DiskStore>,
    files: PathBuf,
    objects: HashMap<Oid, Vec<u8>>,
    /// Has the proofs that chunks come without, and what has no bytes.
    pieces: Arc<dyn TransferPlugin>,
    calls: Mutex<Vec<Weak<Call>>>,
    from_disk: Arc<AtomicU64>,
}

/// A chunk that is wanted under these tags.
struct Open {
    len: u32,
    wants: Vec<(Tag, Option<Arc<Proof>>)>,
}

/// What a call has not brought yet.
#[derive(Default)]
struct Call {
    open: Mutex<HashMap<ChunkHash, Open>>,
    cancelled: Mutex<Vec<Tag>>,
}

impl Call {
    fn wanted(&self, hash: &ChunkHash) -> Option<u32> {
        self.open.lock().unwrap().get(hash).map(|open| open.len)
    }

    /// Whoever takes a want out is who ends it.
    fn cancel(&self, tags: &[Tag]) {
        let mut open = self.open.lock().unwrap();
        for chunk in open.values_mut() {
            let (over, left) =
                std::mem::take(&mut chunk.wants).into_iter().partition(|it| tags.contains(&it.0));
            let over: Vec<_> = over;
            chunk.wants = left;
            self.cancelled.lock().unwrap().extend(over.into_iter().map(|(tag, _)| tag));
        }
        open.retain(|_, chunk| !chunk.wants.is_empty());
    }
}

impl TransferPlugin for OnDisk {
    fn name(&self) -> &str {
        "disk_search"
    }

    fn inner(&self) -> Option<&dyn TransferPlugin> {
        Some(&*self.pieces)
    }

    fn window(&self) -> u64 {
        LIMITS.bytes
    }

    fn get_descriptors<'a>(
        &'a self,
        query: Query,
        context: &'a Context,
        answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        self.pieces.get_descriptors(query, context, answers)
    }

    fn get_chunks<'a>(
        &'a self,
        wants: Vec<Want>,
        context: &'a Context,
        sink: Arc<dyn Sink>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let (call, mut others) = (Arc::new(Call::default()), Vec::new());
            self.calls.lock().unwrap().push(Arc::downgrade(&call));
            for want in wants {
                let Some((hash, len, proof)) = self.as_chunk(&want, context).await else {
                    others.push(want);
                    continue;
                };
                let mut open = call.open.lock().unwrap();
                let chunk = open.entry(hash).or_insert(Open { len, wants: Vec::new() });
                chunk.wants.push((want.tag, proof));
            }
            let searching = self.search(&call, &*sink);
            tokio::join!(searching, self.pieces.get_chunks(others, context, Arc::clone(&sink)));
        })
    }

    fn cancel_chunks(&self, tags: &[Tag]) {
        self.calls.lock().unwrap().iter().filter_map(Weak::upgrade).for_each(|call| call.cancel(tags));
    }
}

impl OnDisk {
    /// The chunk that a want is, and the proof that comes with a piece.
    async fn as_chunk(&self, want: &Want, context: &Context) -> Option<(ChunkHash, u32, Option<Arc<Proof>>)> {
        let (oid, layout, index) = match want.id {
            WantId::Piece { oid, layout, index } => (oid, layout, index),
            WantId::Chunk { hash, len } => return Some((ChunkHash(hash), len, None)),
            WantId::Block { .. } => return None,
        };
        let data = self.objects.get(&oid).filter(|data| data.len() as u64 == layout.size())?;
        let range = layout.range(index);
        let bytes = data.get(range.start as usize..range.end as usize).filter(|bytes| !bytes.is_empty())?;
        let (answers, mut inbox) = mpsc::channel(4);
        let proofs = Some(index..index + 1);
        let query = Query { oid, coverage: None, proofs, follow: false, recipe: false };
        self.pieces.get_descriptors(query, context, answers).await.unwrap();
        let mut proof = None;
        while let Some(answer) = inbox.recv().await {
            if let Description::Proof(found) = answer {
                proof = Some(Arc::new(found));
            }
        }
        Some((ChunkHash::of(bytes), bytes.len() as u32, proof))
    }

    /// CACHE-CHECK and CACHE-READ, then STAT, then HASH of each file. Dropping this ends the operations.
    async fn search(&self, call: &Arc<Call>, sink: &dyn Sink) {
        let hashes: Vec<_> = call.open.lock().unwrap().keys().copied().collect();
        let wanted = Arc::clone(call);
        let rules = Rules {
            wanted: Arc::new(move |hash| wanted.wanted(hash)),
            may_use: Arc::new(|_| true),
            leave_out: Arc::new(|_| false),
        };
        let (executor, mut events) = Executor::start(Arc::clone(&self.store), rules, LIMITS).unwrap();
        let mut left = 0;
        let submit = |operation| {
            executor.submit(operation).unwrap();
            1
        };
        left += submit(Operation::CacheCheck(hashes.clone()));
        while left > 0 {
            let event = events.recv().await.unwrap();
            match event {
                Event::Listed { listing, .. } => {
                    for candidate in listing.files {
                        // Another call may have read it since the index was asked.
                        let occasion = Occasion::Again;
                        left += submit(Operation::Hash { candidate, parameters: CUT_BY, occasion });
                    }
                }
                // Held until it is taken, which is what bounds them.
                Event::Found { chunks, held: _held, .. } => {
                    for chunk in chunks {
                        self.deliver(call, chunk, sink).await;
                    }
                }
                Event::Ended { result, .. } => {
                    left -= 1;
                    left += match result.unwrap() {
                        Finished::CacheCheck(places) => {
                            let places = hashes.iter().copied().zip(places);
                            let known = places.filter_map(|(hash, place)| Some((hash, place?))).collect();
                            submit(Operation::CacheRead(known))
                        }
                        Finished::CacheRead(_) if !call.open.lock().unwrap().is_empty() => {
                            submit(Operation::Stat(Directory::start(&self.files)))
                        }
                        Finished::CacheRead(_) | Finished::Stat | Finished::Hash(_) => 0,
                    };
                }
            }
        }
        let left = std::mem::take(&mut *call.open.lock().unwrap());
        let left = left.into_values().flat_map(|chunk| chunk.wants);
        left.for_each(|(tag, _)| sink.outcome(tag, Outcome::NotHere));
        let cancelled = std::mem::take(&mut *call.cancelled.lock().unwrap());
        cancelled.into_iter().for_each(|tag| sink.outcome(tag, Outcome::Cancelled));
    }

    async fn deliver(&self, call: &Call, chunk: FoundChunk, sink: &dyn Sink) {
        let found = call.open.lock().unwrap().remove(&chunk.hash);
        for (tag, proof) in found.into_iter().flat_map(|open| open.wants) {
            self.from_disk.fetch_add(chunk.bytes.len() as u64, Ordering::Relaxed);
            let (now, payload) = (Instant::now(), Payload::Hashed(chunk.bytes.clone()));
            let source = "disk_search".into();
            sink.deliver(Delivery { tag, payload, proof, source, timing: (now, now), saved: 0 }).await;
        }
    }
}

/// A disk with a file for each object; with `is_indexed` the index knows their chunks.
fn disk(fixture: &Fixture, is_indexed: bool) -> (TempDir, Arc<DiskStore>, PathBuf) {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().canonicalize().unwrap();
    let files = root.join("files");
    fs::create_dir(&files).unwrap();
    let store = Arc::new(DiskStore::open(&root.join("state"), &root.join("data")).unwrap());
    for (number, data) in fixture.objects.iter().enumerate().filter(|(_, data)| !data.is_empty()) {
        let path = files.join(number.to_string());
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
    (base, store, files)
}

/// Examines searches of such disks; bytes that came from them.
async fn examine(is_indexed: bool) -> u64 {
    let from_disk = Arc::new(AtomicU64::new(0));
    conformance::run(async |fixture: Fixture| {
        let (base, store, files) = disk(&fixture, is_indexed);
        let objects = fixture.objects.iter().map(|data| (Oid::of(data), data.clone())).collect();
        let pieces = crate::conformance::local(&fixture, 0, 1);
        let (calls, from_disk) = (Mutex::default(), Arc::clone(&from_disk));
        let plugin = OnDisk { store, files, objects, pieces, calls, from_disk };
        Subject::new(Arc::new(plugin), fixture.context()).keeping(base)
    })
    .await;
    from_disk.load(Ordering::Relaxed)
}

#[tokio::test(flavor = "multi_thread")]
async fn searching_files_passes() {
    assert!(examine(false).await > 50 * PIECE as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_from_where_the_index_says_passes() {
    assert!(examine(true).await > 50 * PIECE as u64);
}
