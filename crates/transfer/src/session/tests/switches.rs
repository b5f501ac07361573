//! From pieces to chunks in mid-transfer, and what becomes of recipes that are not to be had, not
//! right, or lies.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{OnceLock, Weak};

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::watch;
use towpath_content::chunking::{ChunkHash, Parameters};
use towpath_content::recipe::{RecipeBuilder, walk};

use super::*;
use crate::source::{Description, RecipePart};
use crate::source_id::SourceId;
use crate::want::{Origin, Payload, Want, WantId};

/// Bytes of a chunk here: some lie across two pieces.
const CHUNK: usize = 100_000;
const MAKER: &str = "the maker";

/// The recipe that claims `data` to be the object `oid`, in parts.
fn recipe_of(oid: Oid, data: &[u8]) -> Vec<RecipePart> {
    let mut kept = HashMap::new();
    let mut builder = RecipeBuilder::new(Parameters::Fixed { len: CHUNK as u32 }, |hash, bytes| {
        kept.insert(hash, bytes);
        Ok::<_, Infallible>(())
    })
    .unwrap();
    for chunk in data.chunks(CHUNK) {
        builder.push(ChunkHash(*Oid::of(chunk).digest()), chunk.len() as u32).unwrap();
    }
    let root = builder.finish(oid).unwrap();
    let mut nodes = Vec::new();
    walk(&root, |hash| {
        nodes.push(Bytes::from(kept[hash].clone()));
        Ok::<_, Infallible>(Some(kept[hash].clone()))
    })
    .for_each(|extent| assert!(extent.is_ok()));
    let part = |nodes: &[Bytes]| RecipePart {
        maker: SourceId::other(MAKER, None),
        root: None,
        nodes: nodes.to_vec(),
    };
    let mut parts: Vec<_> = nodes.chunks(2).map(part).collect();
    parts[0].root = Some(root.to_bytes().into());
    parts
}

/// A source that asks for the recipe once so many pieces were requested of it. With a window of four
/// pieces there are always some that are not requested of anybody.
pub fn switching(data: &[u8], lie: &[u8], pieces: usize) -> Scripted {
    Scripted::new(&[data])
        .chunks(lie.chunks(CHUNK))
        .recipe(recipe_of(Oid::of(data), lie))
        .wanting_recipes(move |source, _| source.pieces_asked().len() >= pieces)
}

/// A session that asks for a few pieces at a time, each batch on its own.
fn slow_session(source: &Arc<Scripted>) -> Session {
    let config = SessionConfig { batch_bytes: PIECE as u64, calls: 1, ..config() };
    Session::start(source.clone(), context(Oid::of(b"")), config)
}

/// Fetches `data` by pieces that take a moment each; they are there in the end.
async fn fetch_slowly(source: Scripted, data: &[u8]) -> Arc<Scripted> {
    let (source, target) = (Arc::new(source.slowly()), Memory::new());
    let session = slow_session(&source);
    let request = ObjectRequest { size: Some(data.len() as u64), ..request(Oid::of(data), &target) };
    fetch(&session, request).await.unwrap();
    target.expect(data);
    let done = session.progress().snapshot().done;
    assert!(done >= data.len() as u64, "{done}");
    source
}

/// Delivers these bytes, and says that their hash was computed.
fn hashed(bytes: Vec<u8>) -> Act {
    Act::Payload(Payload::Hashed(bytes.into()))
}

/// Progress of a chunk and the pieces before it.
struct Progressing {
    /// Pieces that are written.
    pieces: watch::Sender<usize>,
    /// 1 when the chunk is written.
    chunk: watch::Sender<usize>,
    /// 1 when the session got it.
    sent: watch::Sender<usize>,
}

impl Progressing {
    fn new() -> Arc<Self> {
        let none = || watch::channel(0).0;
        Arc::new(Self { pieces: none(), chunk: none(), sent: none() })
    }

    fn told_of_something(&self) {
        if *self.chunk.borrow() > 0 {
            self.sent.send_replace(1);
        }
    }
}

/// Bytes that signal when their worker lets go of them, which is just before the session gets its result. With a piece's it
/// waits until the session has the chunk's result.
struct Worked {
    bytes: Vec<u8>,
    is_piece: bool,
    progressing: Arc<Progressing>,
}

impl AsRef<[u8]> for Worked {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Worked {
    fn drop(&mut self) {
        let Progressing { pieces, chunk, sent } = &*self.progressing;
        if !self.is_piece {
            chunk.send_replace(1);
            return;
        }
        pieces.send_modify(|pieces| *pieces += 1);
        if *sent.borrow() == 0 {
            let (mut sent, limit) = (sent.subscribe(), Duration::from_secs(5));
            let is_sent = async { drop(tokio::time::timeout(limit, sent.wait_for(|sent| *sent > 0)).await) };
            Handle::current().block_on(is_sent);
        }
    }
}

/// Pieces are written, then a false chunk over the end of the last one, and the session gets the chunk's result first.
/// Its place was once looked at only if the piece counted as here already, and the file was spoilt.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_chunk_that_is_written_over_a_piece_is_found_out_whoever_tells_first() {
    const MOST: usize = 5;
    let data = pattern(15 * PIECE + 7, 1);
    let (all, progressing) = (data.clone(), Progressing::new());
    let telling = Arc::clone(&progressing);
    let (chunks, here) = (AtomicUsize::new(0), Arc::new(OnceLock::<Weak<Scripted>>::new()));
    let requested = Arc::clone(&here);
    let script = move |want: &Want, _| {
        let worked = |bytes, is_piece| {
            let progressing = Arc::clone(&progressing);
            Bytes::from_owner(Worked { bytes, is_piece, progressing })
        };
        match want.id {
            // On a busy machine the recipe may take its time, and no more workers than these are to wait.
            WantId::Piece { index, .. } if index >= MOST as u64 => {
                Act::Once(progressing.sent.subscribe(), 1, Box::new(Act::Good))
            }
            WantId::Piece { index, .. } if *progressing.chunk.borrow() == 0 => {
                let start = index as usize * PIECE;
                Act::Payload(Payload::Bytes(worked(all[start..start + PIECE].to_vec(), true)))
            }
            // The first one lies across the end of the last piece that was requested, and comes when that is written.
            WantId::Chunk { .. } if chunks.fetch_add(1, Ordering::SeqCst) == 0 => {
                let pieces = requested.get().and_then(Weak::upgrade).map_or(0, |source| piece_wants(&source));
                let lie = Act::Payload(Payload::Hashed(worked(vec![0; CHUNK], false)));
                Act::Once(progressing.pieces.subscribe(), pieces.min(MOST), Box::new(lie))
            }
            // Nothing else is told before.
            WantId::Chunk { .. } => Act::Once(progressing.sent.subscribe(), 1, Box::new(Act::Good)),
            _ => Act::Good,
        }
    };
    let source = switching(&data, &data, 2).taking_all_chunks().script(script).slowly();
    let source = Arc::new(source.on_chunks_over(move || telling.told_of_something()));
    here.set(Arc::downgrade(&source)).unwrap();
    let config = SessionConfig { batch_bytes: PIECE as u64, calls: 1, workers: 8, ..config() };
    let (session, target) = (Session::start(source.clone(), context(Oid::of(b"")), config), Memory::new());
    let request = ObjectRequest { size: Some(data.len() as u64), ..request(Oid::of(&data), &target) };
    fetch(&session, request).await.unwrap();
    target.expect(&data);
    assert!(!source.blamed.lock().unwrap().is_empty(), "it was found out");
}

fn piece_wants(source: &Scripted) -> usize {
    let calls = source.calls.lock().unwrap();
    calls.iter().flatten().filter(|want| matches!(want.id, WantId::Piece { .. })).count()
}

fn chunk_wants(source: &Scripted) -> Vec<Want> {
    let calls = source.calls.lock().unwrap();
    calls.iter().flatten().filter(|want| matches!(want.id, WantId::Chunk { .. })).cloned().collect()
}

#[tokio::test]
async fn the_rest_of_an_object_comes_as_chunks() {
    let data = pattern(20 * PIECE + 5, 1);
    for source in [switching(&data, &data, 3), switching(&data, &data, 3).taking_all_chunks()] {
        let source = fetch_slowly(source, &data).await;
        let pieces = source.pieces_asked().len();
        assert!((3..15).contains(&pieces), "{pieces} pieces");
        // No chunk is requested that the pieces hold, but for one at their end.
        let chunks = (data.len() - pieces * PIECE).div_ceil(CHUNK);
        assert!((chunks..=chunks + 1).contains(&source.chunks_asked()), "{} chunks", source.chunks_asked());
        assert_eq!(source.recipes_asked.load(Ordering::SeqCst), 1);
        assert!(source.blamed.lock().unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_piece_that_is_put_off_when_the_recipe_is_here_comes_as_chunks() {
    let data = pattern(20 * PIECE + 5, 1);
    let put_off = |want: &Want, _| match want.id {
        WantId::Piece { index: 3.., .. } => Act::End(Outcome::RetryLater(Duration::from_millis(1))),
        _ => Act::Good,
    };
    let source = switching(&data, &data, 2).taking_all_chunks().script(put_off);
    let source = fetch_slowly(source, &data).await;
    let chunks = (data.len() - 3 * PIECE).div_ceil(CHUNK);
    assert!((chunks..=chunks + 1).contains(&source.chunks_asked()), "{} chunks", source.chunks_asked());
}

/// Fetches five megabytes; piece 3 is given up for the recipe when these bytes of its front are here. Returns
/// whether each of the two chunks in these was requested.
async fn fetch_beside_a_front(front: impl Fn(&[u8]) -> Vec<u8>) -> (Arc<Scripted>, [bool; 2]) {
    let data = pattern(20 * PIECE + 5, 1);
    let front = front(&data[3 * PIECE..3 * PIECE + 220_000]);
    let give_up = move |want: &Want, _| match want.id {
        WantId::Piece { index: 3, .. } => {
            Act::PartialPiece(front.clone(), Outcome::RetryLater(Duration::from_millis(300)))
        }
        _ => Act::Good,
    };
    let source = switching(&data, &data, 4).taking_all_chunks().script(give_up);
    let source = fetch_slowly(source, &data).await;
    let requested = source.requested.lock().unwrap();
    let was_requested = [8, 9].map(|index| {
        let chunk = &data[index * CHUNK..(index + 1) * CHUNK];
        requested.contains(&WantId::Chunk { hash: *Oid::of(chunk).digest(), len: CHUNK as u32 })
    });
    drop(requested);
    (source, was_requested)
}

#[tokio::test]
async fn what_came_of_a_piece_that_gave_way_does_not_come_again() {
    let (source, requested) = fetch_beside_a_front(<[u8]>::to_vec).await;
    assert_eq!(requested, [false, false]);
    assert!(source.blamed.lock().unwrap().is_empty());
}

#[tokio::test]
async fn the_front_of_a_piece_that_lies_is_found_out_and_comes_again() {
    let (source, requested) = fetch_beside_a_front(|front| vec![7; front.len()]).await;
    assert_eq!(requested, [true, true]);
    assert_eq!(source.blamed.lock().unwrap().as_slice(), [SOURCE, SOURCE]);
}

#[tokio::test]
async fn more_than_a_piece_is_no_front() {
    let (source, _) = fetch_beside_a_front(|front| [front, &vec![7; 2 * PIECE]].concat()).await;
    assert!(source.blamed.lock().unwrap().is_empty());
}

/// Behind the first change nothing of an older version is where it was: chunks are sought at once, and a slow disk
/// is not read to its end for nothing.
#[tokio::test]
async fn with_a_recipe_nothing_waits_for_an_older_version_that_is_hardly_the_same() {
    let data = pattern(200 * PIECE, 1);
    let older = [&data[..2 * PIECE], &pattern(198 * PIECE, 2)[..]].concat();
    let target = Memory::with_older_on_slow_disk(older, Duration::from_millis(20));
    let source = Arc::new(switching(&data, &data, 2).taking_all_chunks());
    let request = ObjectRequest { size: Some(data.len() as u64), ..request(Oid::of(&data), &target) };
    fetch(&slow_session(&source), request).await.unwrap();
    target.expect(&data);
    assert!(source.chunks_asked() > 0);
    let reads = target.reads.load(Ordering::SeqCst);
    assert!(reads < 60, "{reads} of 200 were read");
}

#[tokio::test]
async fn chunks_tell_where_they_can_be_asked_for() {
    let data = pattern(6 * PIECE, 1);
    let source = fetch_slowly(switching(&data, &data, 1), &data).await;
    let wants = chunk_wants(&source);
    assert!(!wants.is_empty());
    for want in wants {
        let position = want.positions[0];
        assert_eq!(want.origin, Some(Origin { oid: Oid::of(&data), offset: position.offset }));
    }
}

#[tokio::test]
async fn a_source_that_takes_all_chunks_gets_them_in_one_call() {
    let data = pattern(40 * PIECE, 1);
    let source = fetch_slowly(switching(&data, &data, 2).taking_all_chunks(), &data).await;
    let calls = source.calls.lock().unwrap();
    let with_chunks: Vec<usize> = calls
        .iter()
        .filter(|wants| wants.iter().any(|want| matches!(want.id, WantId::Chunk { .. })))
        .map(Vec::len)
        .collect();
    assert_eq!(with_chunks, [source.chunks_asked()]);
}

#[tokio::test]
async fn the_source_is_told_what_is_missing() {
    let data = pattern(10 * PIECE, 1);
    let source = fetch_slowly(switching(&data, &data, usize::MAX), &data).await;
    let facts = source.facts.lock().unwrap();
    assert!(facts.len() > 1, "{facts:?}");
    assert!(facts.iter().all(|&(size, missing)| size == data.len() as u64 && missing < size), "{facts:?}");
    assert!(facts.is_sorted_by_key(|&(_, missing)| std::cmp::Reverse(missing)), "{facts:?}");
    assert_eq!(source.recipes_asked.load(Ordering::SeqCst), 0, "it never wanted one");
}

#[tokio::test]
async fn the_source_is_asked_though_nothing_comes() {
    let data = pattern(10 * PIECE, 1);
    let (look, mut looks) = mpsc::unbounded_channel();
    let source = Scripted::new(&[&data]).script(|_, _| Act::Hang);
    let source = source.wanting_recipes(move |_, _| look.send(()).is_err());
    let (source, target) = (Arc::new(source), Memory::new());
    let session = slow_session(&source);
    let request = ObjectRequest { size: Some(data.len() as u64), ..request(Oid::of(&data), &target) };
    session.submit(request, Box::new(|_| ())).await;
    // Ten times in half a second, which is one tick of the session.
    let ten = async {
        for _ in 0..10 {
            looks.recv().await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(3), ten).await.unwrap();
}

#[tokio::test]
async fn without_a_recipe_pieces_go_on_and_nobody_asks_again() {
    let data = pattern(10 * PIECE, 1);
    let oid = Oid::of(&data);
    let none = || Scripted::new(&[&data]).wanting_recipes(|_, _| true);
    let layout = towpath_content::pieces::Layout::of(data.len() as u64).unwrap();
    let refusing = none().answers(move |query| {
        assert!(query.recipe && query.oid == oid && query.proofs == Some(0..layout.count()));
        (vec![], Err(Outcome::Refused("no".into())))
    });
    for source in [none(), none().answers(|_| (vec![], Err(Outcome::NotHere))), refusing] {
        let source = fetch_slowly(source, &data).await;
        assert_eq!(source.pieces_asked(), (0..10).collect::<Vec<_>>());
        assert_eq!(source.recipes_asked.load(Ordering::SeqCst), 1);
        assert!(source.blamed.lock().unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_source_that_is_busy_is_asked_again() {
    let data = pattern(12 * PIECE, 1);
    let (requested, parts, whole) = (AtomicUsize::new(0), recipe_of(Oid::of(&data), &data), tree(&data));
    let source = Scripted::new(&[&data]).chunks(data.chunks(CHUNK)).wanting_recipes(|_, _| true);
    let source = source.answers(move |query| {
        // Some of it had come already.
        let some = parts[..1].iter().cloned().map(Description::Recipe).collect();
        if requested.fetch_add(1, Ordering::SeqCst) == 0 {
            return (some, Err(Outcome::RetryLater(Duration::from_millis(1))));
        }
        let run = query.proofs.clone().unwrap();
        let proof = crate::want::Proof { nodes: whole.proof(run.clone()).unwrap().into(), run };
        let recipe = parts.iter().cloned().map(Description::Recipe);
        ([Description::Proof(proof)].into_iter().chain(recipe).collect(), Ok(()))
    });
    let source = fetch_slowly(source, &data).await;
    assert_eq!(source.recipes_asked.load(Ordering::SeqCst), 2);
    assert!(source.chunks_asked() > 0);
}

#[tokio::test]
async fn without_proofs_of_all_pieces_a_recipe_is_of_no_use() {
    let data = pattern(10 * PIECE, 1);
    let parts = recipe_of(Oid::of(&data), &data);
    let source = Scripted::new(&[&data]).wanting_recipes(|_, _| true);
    let source = source.answers(move |_| (parts.iter().cloned().map(Description::Recipe).collect(), Ok(())));
    let source = fetch_slowly(source, &data).await;
    assert_eq!((source.pieces_asked().len(), source.chunks_asked()), (10, 0));
}

#[tokio::test]
async fn a_wrong_recipe_blames_its_maker_and_pieces_go_on() {
    let data = pattern(10 * PIECE, 1);
    let good = recipe_of(Oid::of(&data), &data);
    let mut cut = good.clone();
    cut.last_mut().unwrap().nodes.pop();
    let mut endless = good.clone();
    (0..100).for_each(|_| endless.push(good.last().unwrap().clone()));
    let mut garbage = good.clone();
    garbage[0].nodes[0] = Bytes::from_static(b"?");
    for wrong in [cut, endless, garbage, good[1..].to_vec(), recipe_of(Oid::of(b"another"), &data)] {
        if wrong.is_empty() {
            continue;
        }
        let source = Scripted::new(&[&data]).recipe(wrong).wanting_recipes(|_, _| true);
        let source = fetch_slowly(source, &data).await;
        assert_eq!(source.pieces_asked().len(), 10);
        assert_eq!(*source.blamed.lock().unwrap(), [MAKER]);
        assert_eq!(source.recipes_asked.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn a_recipe_that_lies_costs_no_correctness() {
    for seed in 1..5 {
        let data = pattern(15 * PIECE + 7, 0);
        let mut lie = data.clone();
        lie.iter_mut().skip(seed * 77_777).step_by(seed * 400_000).for_each(|byte| *byte ^= 1);
        for source in [switching(&data, &lie, 2), switching(&data, &lie, 2).taking_all_chunks()] {
            let source = fetch_slowly(source, &data).await;
            assert!(source.chunks_asked() > 0);
            assert!(source.blamed.lock().unwrap().iter().all(|who| who == MAKER));
        }
    }
}

#[tokio::test]
async fn a_chunk_that_was_said_to_be_hashed_still_has_its_length_and_is_checked_with_its_pieces() {
    let data = pattern(15 * PIECE + 7, 1);
    for wrong in [CHUNK, CHUNK - 1] {
        let script = move |want: &Want, before| match want.id {
            WantId::Chunk { len, .. } if before == 0 && len as usize == CHUNK => hashed(vec![0; wrong]),
            _ => Act::Good,
        };
        let source = fetch_slowly(switching(&data, &data, 2).script(script), &data).await;
        assert!(!source.blamed.lock().unwrap().is_empty());
    }
    let all = data.clone();
    let right = move |want: &Want, _| match (want.id, want.origin) {
        (WantId::Chunk { len, .. }, Some(Origin { offset, .. })) => {
            hashed(all[offset as usize..offset as usize + len as usize].to_vec())
        }
        _ => Act::Good,
    };
    let source = fetch_slowly(switching(&data, &data, 2).script(right), &data).await;
    assert!(source.chunks_asked() > 0 && source.blamed.lock().unwrap().is_empty());
}

#[tokio::test]
async fn bytes_that_were_checked_are_never_overwritten_by_a_claim() {
    // Every chunk is a lie, also those across the borders of what is here.
    let (data, lie) = (pattern(15 * PIECE + 7, 0), pattern(15 * PIECE + 7, 9));
    let here = 9 * PIECE..11 * PIECE;
    let mut left = vec![0xee; data.len()];
    left[here.clone()].copy_from_slice(&data[here.clone()]);
    let ranges = std::iter::once(here.start as u64..here.end as u64).collect();
    let target = Memory::with_left_overs(left, ranges);
    target.guard(here);
    let source = Arc::new(switching(&data, &lie, 3).slowly());
    let request = ObjectRequest { size: Some(data.len() as u64), ..request(Oid::of(&data), &target) };
    fetch(&slow_session(&source), request).await.unwrap();
    assert!(source.chunks_asked() > 0);
    target.expect(&data);
}

#[tokio::test]
async fn what_an_earlier_transfer_left_is_not_asked_as_chunks() {
    let data = pattern(20 * PIECE, 1);
    let mut left = vec![0xee; data.len()];
    left[10 * PIECE..].copy_from_slice(&data[10 * PIECE..]);
    let second_half = std::iter::once(10 * PIECE as u64..20 * PIECE as u64);
    let target = Memory::with_left_overs(left, second_half.collect());
    let source = Arc::new(switching(&data, &data, 2).slowly());
    let request = ObjectRequest { size: Some(data.len() as u64), ..request(Oid::of(&data), &target) };
    fetch(&slow_session(&source), request).await.unwrap();
    target.expect(&data);
    let beyond =
        chunk_wants(&source).iter().filter(|want| want.positions[0].offset >= 10 * PIECE as u64).count();
    assert_eq!(beyond, 0);
    assert!(source.chunks_asked() > 0);
}

#[tokio::test]
async fn many_objects_with_the_same_chunks_ask_for_each_once() {
    let shared = pattern(8 * PIECE, 1);
    let objects: Vec<Vec<u8>> =
        (0..6u8).map(|i| [&shared[..], &pattern(3 * PIECE, 50 + i)].concat()).collect();
    let all: Vec<&[u8]> = objects.iter().map(Vec::as_slice).collect();
    let source = all.iter().fold(Scripted::new(&all), |source, data| source.chunks(data.chunks(CHUNK)));
    let recipes: HashMap<Oid, Vec<RecipePart>> =
        all.iter().map(|data| (Oid::of(data), recipe_of(Oid::of(data), data))).collect();
    let trees: HashMap<Oid, _> = all.iter().map(|data| (Oid::of(data), tree(data))).collect();
    let source = source.wanting_recipes(|_, _| true).taking_all_chunks().slowly().answers(move |query| {
        let run = query.proofs.clone().unwrap();
        let nodes = trees[&query.oid].proof(run.clone()).unwrap().into();
        let proof = Description::Proof(crate::want::Proof { run, nodes });
        let recipe = recipes[&query.oid].iter().cloned().map(Description::Recipe);
        ([proof].into_iter().chain(recipe).collect(), Ok(()))
    });
    let (source, targets) = (Arc::new(source), objects.iter().map(|_| Memory::new()).collect::<Vec<_>>());
    let session = slow_session(&source);
    let mut fetches = Vec::new();
    for (data, target) in objects.iter().zip(&targets) {
        let (done, end) = oneshot::channel();
        let request = ObjectRequest { size: Some(data.len() as u64), ..request(Oid::of(data), target) };
        session.submit(request, Box::new(|result| drop(done.send(result)))).await;
        fetches.push(end);
    }
    for end in fetches {
        tokio::time::timeout(LIMIT, end).await.unwrap().unwrap().unwrap();
    }
    objects.iter().zip(&targets).for_each(|(data, target)| target.expect(data));
    let wants = chunk_wants(&source);
    assert!(wants.iter().any(|want| want.positions.len() > 1));
    assert!(
        wants.iter().all(|want| want.origin.is_some_and(|origin| origin.offset == want.positions[0].offset))
    );
}
