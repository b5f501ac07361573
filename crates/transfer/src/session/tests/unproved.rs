//! Sources that prove nothing: their bytes are checked by values that others tell.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::sync::watch;

use super::*;
use crate::root::Single;
use crate::source::{BoxFuture, Description, Query, Sink, Source, SourceState};
use crate::source_id::SourceId;
use crate::want::{Payload, Proof, Want, WantId};

const MIRROR: &str = "a mirror";

/// A plain copy beside a source that knows the object: questions go to that one, wants to the copy until it is reported.
struct Beside {
    copy: Arc<Scripted>,
    knows: Arc<Scripted>,
    /// Pieces that are wanted of the copy.
    of_copy: fn(u64) -> bool,
    /// Runs of values that were asked for, with how many pieces had been asked for by then.
    values_asked: Mutex<Vec<(std::ops::Range<u64>, usize)>>,
}

impl Beside {
    fn new(copy: Scripted, knows: Scripted, of_copy: fn(u64) -> bool) -> Arc<Self> {
        let (copy, knows) = (Arc::new(copy), Arc::new(knows));
        Arc::new(Self { copy, knows, of_copy, values_asked: Mutex::default() })
    }

    fn session(self: &Arc<Self>) -> Session {
        Session::start(Single::root(self.clone()), context(Oid::of(b"")), config())
    }

    fn asked_of_copy(&self) -> Vec<u64> {
        self.copy.pieces_asked()
    }

    fn blamed(&self) -> Vec<String> {
        self.copy.blamed.lock().unwrap().clone()
    }
}

impl Source for Beside {
    fn name(&self) -> &str {
        "beside"
    }

    fn state(&self) -> SourceState {
        SourceState { proves: self.copy.state().proves && self.knows.state().proves, ..self.copy.state() }
    }

    fn report_corrupt(&self, source: &SourceId) {
        self.copy.report_corrupt(source);
    }

    fn describe<'a>(
        &'a self,
        query: Query,
        context: &'a Context,
        answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        let pieces = self.copy.pieces_asked().len() + self.knows.pieces_asked().len();
        self.values_asked.lock().unwrap().extend(query.proofs.clone().map(|run| (run, pieces)));
        self.knows.describe(query, context, answers)
    }

    fn get<'a>(&'a self, wants: Vec<Want>, context: &'a Context, sink: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        let is_reported = !self.blamed().is_empty();
        let is_for_copy = |want: &Want| match want.id {
            WantId::Piece { index, .. } => !is_reported && (self.of_copy)(index),
            _ => false,
        };
        let (of_copy, others) = wants.into_iter().partition(is_for_copy);
        Box::pin(async move {
            let copy = self.copy.get(of_copy, context, Arc::clone(&sink));
            tokio::join!(copy, self.knows.get(others, context, sink));
        })
    }
}

/// A source that knows the object and has none of its bytes.
fn describing(data: &[u8]) -> Scripted {
    Scripted::new(&[data]).script(|_, _| Act::End(Outcome::NotHere))
}

async fn fetch_beside(root: &Arc<Beside>, data: &[u8]) -> Session {
    let (session, target) = (root.session(), Memory::new());
    fetch(&session, request(Oid::of(data), &target)).await.unwrap();
    target.expect(data);
    session
}

#[tokio::test]
async fn a_plain_copy_beside_one_who_knows_the_object_brings_it() {
    for len in [0, 1, PIECE, PIECE + 1, 9 * PIECE + 5] {
        let data = pattern(len, 1);
        let root = Beside::new(Scripted::new(&[&data]).bare(MIRROR), describing(&data), |_| true);
        let session = fetch_beside(&root, &data).await;
        let count = len.div_ceil(PIECE).max(1);
        assert!(root.asked_of_copy().into_iter().eq(0..count as u64), "{len}: each piece once");
        assert_eq!(root.blamed(), [] as [&str; 0]);
        // What is one piece is checked by its name.
        let asked = if count > 1 { vec![(0..count as u64, 0)] } else { vec![] };
        assert_eq!(*root.values_asked.lock().unwrap(), asked, "values come once, and before the first piece");
        let by_source = session.progress().snapshot().by_source;
        assert_eq!(by_source.get(&SourceId::other(MIRROR, None)).copied().unwrap_or(0), len as u64);
    }
}

#[tokio::test]
async fn a_plain_copy_that_lies_is_named_and_the_other_brings_the_piece() {
    let data = pattern(6 * PIECE, 1);
    let lies = |want: &Want, _: u32| match want.id {
        WantId::Piece { index: 3, .. } => Act::Bytes(pattern(PIECE, 9)),
        _ => Act::Good,
    };
    let copy = Scripted::new(&[&data]).bare(MIRROR).script(lies);
    let root = Beside::new(copy, Scripted::new(&[&data]), |index| index > 1);
    fetch_beside(&root, &data).await;
    assert_eq!(root.blamed(), [MIRROR]);
    assert!(root.knows.pieces_asked().contains(&3));
}

#[tokio::test]
async fn a_plain_copy_alone_ends_with_a_clear_error_before_any_byte_is_asked_for() {
    let data = pattern(6 * PIECE, 1);
    let (copy, target) = (Arc::new(Scripted::new(&[&data]).bare(MIRROR)), Memory::new());
    let error = fetch(&session(&copy), request(Oid::of(&data), &target)).await.unwrap_err();
    assert_eq!(error.to_string(), "it came without proofs, and no source tells how to check it");
    target.expect_incomplete();
    assert!(target.bytes.lock().unwrap().is_empty());
    assert_eq!(copy.pieces_asked(), [] as [u64; 0]);
    assert!(copy.blamed.lock().unwrap().is_empty());
}

#[tokio::test]
async fn values_that_cannot_be_had_for_now_are_a_stall() {
    let data = pattern(3 * PIECE, 1);
    let knows = describing(&data).answers(|_| (vec![], Err(Outcome::RetryLater(Duration::from_secs(1)))));
    let root = Beside::new(Scripted::new(&[&data]).bare(MIRROR), knows, |_| true);
    let request = ObjectRequest { size: Some(data.len() as u64), ..request(Oid::of(&data), &Memory::new()) };
    let error = fetch(&root.session(), request).await.unwrap_err();
    assert!(matches!(error, FetchError::Stalled { .. }), "{error}");
}

#[tokio::test]
async fn of_a_part_only_the_values_of_its_pieces_are_asked_for() {
    let data = pattern(9 * PIECE, 1);
    let root = Beside::new(Scripted::new(&[&data]).bare(MIRROR), describing(&data), |_| true);
    let target = Memory::part(2 * PIECE as u64..4 * PIECE as u64);
    fetch(&root.session(), request(Oid::of(&data), &target)).await.unwrap();
    assert_eq!(*root.values_asked.lock().unwrap(), [(2..4, 0)]);
    assert_eq!(root.asked_of_copy(), [2, 3]);
}

#[tokio::test]
async fn wrong_values_of_one_do_not_keep_from_what_another_proves() {
    let data = pattern(6 * PIECE, 1);
    let lie = pattern(6 * PIECE, 2);
    let answers = move |query: &Query| {
        let (about, layout) = (About::default(), Some(tree(&lie).layout()));
        let mut answers = vec![Description::Object { about, layout, metadata: crate::Metadata::default() }];
        if let Some(run) = query.proofs.clone() {
            let nodes = tree(&lie).proof(run.clone()).unwrap().into();
            answers.push(Description::Proof(Proof { run, nodes }));
        }
        (answers, Ok(()))
    };
    let knows = Scripted::new(&[&data]).answers(answers);
    let root = Beside::new(Scripted::new(&[&data]).bare(MIRROR), knows, |_| false);
    fetch_beside(&root, &data).await;
}

#[tokio::test]
async fn a_piece_without_its_proof_is_kept_until_its_value_has_come() {
    let data = pattern(3 * PIECE, 1);
    for lies in [false, true] {
        // Nothing says before it is wanted that its proof may be missing.
        let script = move |want: &Want, before: u32| match (want.id, before) {
            (WantId::Piece { index: 1, .. }, 0) if lies => {
                Act::Bare(Payload::Bytes(pattern(PIECE, 9).into()))
            }
            (WantId::Piece { index: 1, .. }, 0) => Act::WithProof(None),
            _ => Act::Good,
        };
        let source = fetch_good(Scripted::new(&[&data]).turning_bare().script(script), &data).await;
        let (pieces, blamed) = if lies { (vec![0, 1, 1, 2], vec![SOURCE]) } else { (vec![0, 1, 2], vec![]) };
        assert_eq!(source.pieces_asked(), pieces);
        assert_eq!(*source.blamed.lock().unwrap(), blamed, "whoever lies is blamed, and only then");
    }
}

#[tokio::test]
async fn what_nobody_can_check_is_nobodys_fault_and_is_not_written() {
    let data = pattern(3 * PIECE, 1);
    let layout = tree(&data).layout();
    let sizes = move |_: &Query| {
        let (about, metadata) = (About::default(), crate::Metadata::default());
        (vec![Description::Object { about, layout: Some(layout), metadata }], Ok(()))
    };
    let source = Scripted::new(&[&data]).turning_bare().script(|_, _| Act::WithProof(None)).answers(sizes);
    let (source, target) = (Arc::new(source), Memory::new());
    let error = fetch(&session(&source), request(Oid::of(&data), &target)).await.unwrap_err();
    assert!(matches!(error, FetchError::NoValues), "{error}");
    assert!(target.bytes.lock().unwrap().is_empty() && source.blamed.lock().unwrap().is_empty());
}

/// Of two objects that want the same piece one leaves while the piece waits for its value.
#[tokio::test]
async fn a_piece_that_is_kept_for_one_object_comes_for_the_other_when_that_leaves() {
    let data = pattern(3 * PIECE, 1);
    let bare_at_first = |want: &Want, before: u32| match (want.id, before) {
        (WantId::Piece { index: 0, .. }, 0) => Act::WithProof(None),
        _ => Act::Good,
    };
    let (open, gate) = watch::channel(false);
    let copy = Scripted::new(&[&data]).turning_bare().script(bare_at_first);
    let root = Arc::new(Late { copy, knows: Scripted::new(&[&data]), gate });
    let session = Session::start(Single::root(root), context(Oid::of(b"")), config());
    let (full, target) = (Memory::full(), Memory::new());
    let leaves = async {
        let error = fetch(&session, request(Oid::of(&data), &full)).await.unwrap_err();
        assert!(matches!(error, FetchError::Write(_)), "{error}");
        open.send(true).unwrap();
    };
    let stays = async { fetch(&session, request(Oid::of(&data), &target)).await.unwrap() };
    tokio::join!(leaves, stays);
    target.expect(&data);
}

/// Bytes that are counted while anybody keeps them.
struct Counted(Vec<u8>, Arc<AtomicUsize>);

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn no_more_pieces_are_kept_than_there_is_room_for_while_their_values_do_not_come() {
    const PIECES: usize = 200;
    const ROOM: usize = 4;
    let data = pattern(PIECES * PIECE, 1);
    let (live, most, came) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), watch::channel(0).0);
    let (counted, seen, asked, bytes) = (Arc::clone(&live), Arc::clone(&most), came.clone(), data.clone());
    let script = move |want: &Want, _: u32| {
        let WantId::Piece { index, .. } = want.id else { unreachable!("only pieces are wanted") };
        seen.fetch_max(counted.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        asked.send_modify(|count| *count += 1);
        let piece = bytes[index as usize * PIECE..][..PIECE].to_vec();
        Act::Payload(Payload::Bytes(Bytes::from_owner(Counted(piece, Arc::clone(&counted)))))
    };
    let (open, gate) = watch::channel(false);
    let root = Arc::new(Late {
        copy: Scripted::new(&[&data]).bare(MIRROR).script(script),
        knows: describing(&data),
        gate,
    });
    let config = SessionConfig { buffer_bytes: (ROOM * PIECE) as u32, ..config() };
    let session = Session::start(Single::root(root), context(Oid::of(b"")), config);
    let target = Memory::new();
    let fetching = fetch(&session, request(Oid::of(&data), &target));
    let opening = async {
        // All were asked for, and those without room once more.
        came.subscribe().wait_for(|count| *count > PIECES + 50).await.unwrap();
        open.send(true).unwrap();
    };
    tokio::join!(async { fetching.await.unwrap() }, opening);
    target.expect(&data);
    let (most, bound) =
        (most.load(Ordering::SeqCst), super::super::unproved::MOST_PIECES + ROOM + config.calls);
    assert!(most <= bound, "{most} pieces were in memory at once");
    assert!(most >= super::super::unproved::MOST_PIECES, "{most}: what fits is kept");
}

/// A source that joins late with a plain copy, and one who tells values when a gate opens.
struct Late {
    copy: Scripted,
    knows: Scripted,
    gate: watch::Receiver<bool>,
}

impl Source for Late {
    fn name(&self) -> &str {
        "late"
    }

    fn state(&self) -> SourceState {
        SourceState { proves: self.copy.pieces_asked().is_empty(), ..self.knows.state() }
    }

    fn describe<'a>(
        &'a self,
        query: Query,
        context: &'a Context,
        answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        let mut gate = self.gate.clone();
        Box::pin(async move {
            if query.proofs.is_some() {
                gate.wait_for(|is_open| *is_open).await.map_err(|_| Outcome::NotHere)?;
            }
            self.knows.describe(query, context, answers).await
        })
    }

    fn get<'a>(&'a self, wants: Vec<Want>, context: &'a Context, sink: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        self.copy.get(wants, context, sink)
    }
}
