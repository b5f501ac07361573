//! Live objects: signed values first, the binding at the end, and what is wrong with either.

use ring::signature::{Ed25519KeyPair, KeyPair};
use towpath_content::NodeId;
use towpath_content::live::Statement;
use towpath_content::pieces::{MIN_LOG2, inner_value};

use std::sync::Mutex;

use towpath_store::{MemoryStore, State, Store};

use super::*;
use crate::source::Description;
use crate::target::{Announcing, BoundSink};

const LIVE: Oid = Oid::Live([9; 32]);

fn key() -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[5; 32]).unwrap()
}

fn signed(statement: Statement) -> Description {
    let signature = key().sign(&statement.message()).as_ref().to_vec();
    Description::Live { statement, signature }
}

/// Signed values of pieces of `data`.
fn values(data: &[u8], generation: u64, run: std::ops::Range<u64>) -> Description {
    let value = |index: u64| {
        inner_value(index, MIN_LOG2, &data[index as usize * PIECE..(index as usize + 1) * PIECE])
    };
    let values = run.clone().map(value).collect();
    signed(Statement::Values { object: LIVE, generation, first: run.start, values })
}

fn bound(data: &[u8]) -> Description {
    signed(Statement::Bound { object: LIVE, content: Oid::of(data), size: data.len() as u64 })
}

fn growing() -> Description {
    Description::Object { about: About::default(), layout: None, metadata: crate::Metadata::default() }
}

/// A source of a live object that is to become `data`.
fn source(data: &[u8]) -> Scripted {
    let mut source = Scripted::new(&[data]);
    source.also_as(LIVE, data);
    source.send(growing());
    source
}

fn live_session(source: &Arc<Scripted>) -> Session {
    let node = NodeId(key().public_key().as_ref().try_into().unwrap());
    Session::start(source.clone(), Context { node: Some(node), ..context(LIVE) }, config())
}

async fn fetch_live(source: Scripted, target: &Arc<Memory>) -> Result<Fetched, FetchError> {
    let source = Arc::new(source);
    fetch(&live_session(&source), request(LIVE, target)).await
}

#[tokio::test]
async fn a_live_object_arrives_piece_by_piece_and_is_complete_once_bound() {
    let data = pattern(3 * PIECE + 100, 1);
    let source = Arc::new(source(&data));
    let (target, session) = (Memory::new(), live_session(&source));
    let telling = async {
        source.send(values(&data, 1, 0..1));
        until("the first piece", || target.prefixes.lock().unwrap().last() == Some(&(PIECE as u64))).await;
        source.send(values(&data, 1, 1..3));
        until("two more", || target.prefixes.lock().unwrap().last() == Some(&(3 * PIECE as u64))).await;
        target.expect_incomplete();
        source.send(bound(&data));
    };
    let (fetched, ()) = tokio::join!(fetch(&session, request(LIVE, &target)), telling);
    assert_eq!(fetched.unwrap().oid, Oid::of(&data));
    target.expect(&data);
    assert_eq!(source.pieces_asked(), [0, 1, 2, 3]);
}

#[tokio::test]
async fn a_live_object_is_announced_by_its_own_name_and_once_bound_by_that_of_its_content() {
    let data = pattern(3 * PIECE + 100, 1);
    let (store, content) = (Arc::new(MemoryStore::new()), Oid::of(&data));
    let told = Arc::new(Mutex::new(Vec::new()));
    let (seen, stated) = (Arc::clone(&store), Arc::clone(&told));
    let bound_sink: BoundSink = Arc::new(move |statement, signature| {
        let is_announced = seen.have(&content).is_ok_and(|have| have.state == State::Partial);
        stated.lock().unwrap().push((statement.clone(), signature.len(), is_announced));
    });
    let how = Announcing { bound: Some(bound_sink), ..Announcing::until_whole(Arc::clone(&store) as _) };
    let (source, target) = (Arc::new(source(&data)), Memory::announced(how));
    let session = live_session(&source);
    let telling = async {
        source.send(values(&data, 1, 0..1));
        let is_there = || store.have(&LIVE).is_ok_and(|have| have.pieces.iter().any(|run| run.contains(&0)));
        until("the first piece", is_there).await;
        let mut piece = Vec::new();
        store.read_piece(&LIVE, 0, &mut piece).unwrap();
        assert!(piece == data[..PIECE] && store.have(&content).is_err(), "nobody knows what it becomes");
        source.send(bound(&data));
    };
    let (fetched, ()) = tokio::join!(fetch(&session, request(LIVE, &target)), telling);
    assert_eq!(fetched.unwrap().oid, content);
    let statement = Statement::Bound { object: LIVE, content, size: data.len() as u64 };
    assert_eq!(*told.lock().unwrap(), [(statement, 64, true)]);
    assert!(store.have(&LIVE).is_err() && store.have(&content).is_err(), "it ends with the get");
}

/// Once a get of a stream hung whose length was a multiple of a piece's: the last piece came before
/// the binding, and nothing came after it.
#[tokio::test]
async fn a_live_object_of_whole_pieces_is_complete_when_it_is_bound_after_the_last_one() {
    let data = pattern(2 * PIECE, 1);
    let source = Arc::new(source(&data));
    let (target, session) = (Memory::new(), live_session(&source));
    let telling = async {
        source.send(values(&data, 1, 0..2));
        until("both pieces", || target.prefixes.lock().unwrap().last() == Some(&(2 * PIECE as u64))).await;
        target.expect_incomplete();
        source.send(bound(&data));
    };
    let (fetched, ()) = tokio::join!(fetch(&session, request(LIVE, &target)), telling);
    assert_eq!(fetched.unwrap().oid, Oid::of(&data));
    target.expect(&data);
}

#[tokio::test]
async fn live_objects_of_every_shape_are_fetched_after_they_were_bound() {
    for len in [0, 1, PIECE, PIECE + 1, 4 * PIECE] {
        let data = pattern(len, 1);
        let (source, target) = (source(&data), Memory::new());
        source.send(bound(&data));
        fetch_live(source, &target).await.unwrap();
        target.expect(&data);
    }
}

/// The want was cut when one piece was known, so its bytes were taken for all of the object.
#[tokio::test]
async fn a_first_piece_that_comes_after_the_binding_is_good() {
    let data = pattern(2 * PIECE + 5, 1);
    let later = Act::End(Outcome::RetryLater(Duration::from_millis(100)));
    let (source, target) =
        (source(&data).script(move |_, n| if n == 0 { later.clone() } else { Act::Good }), Memory::new());
    let source = Arc::new(source);
    let session = live_session(&source);
    let telling = async {
        source.send(values(&data, 1, 0..1));
        until("the first want", || !source.requested.lock().unwrap().is_empty()).await;
        source.send(bound(&data));
    };
    let (fetched, ()) = tokio::join!(fetch(&session, request(LIVE, &target)), telling);
    fetched.unwrap();
    target.expect(&data);
    assert!(source.blamed.lock().unwrap().is_empty());
}

#[tokio::test]
async fn another_generation_or_other_values_mean_that_the_producer_started_over() {
    let data = pattern(3 * PIECE, 1);
    for second in [values(&data, 2, 1..2), values(&pattern(3 * PIECE, 8), 1, 0..1)] {
        let (source, target) = (source(&data), Memory::new());
        source.send(values(&data, 1, 0..1));
        source.send(second);
        let error = fetch_live(source, &target).await.unwrap_err();
        assert!(matches!(error, FetchError::StartedOver), "{error}");
        target.expect_incomplete();
    }
}

#[tokio::test]
async fn statements_not_signed_by_the_tickets_node_end_the_request() {
    let data = pattern(2 * PIECE, 1);
    let Description::Live { statement, mut signature } = values(&data, 1, 0..1) else { panic!() };
    signature[0] ^= 1;
    let (forged, target) = (source(&data), Memory::new());
    forged.send(Description::Live { statement, signature });
    let error = fetch_live(forged, &target).await.unwrap_err().to_string();
    assert!(error.contains("is not signed by the ticket's node"), "{error}");
    // A bare OID names no node, so nothing can be believed.
    let source = Arc::new(source(&data));
    source.send(bound(&data));
    let error = fetch(&session(&source), request(LIVE, &target)).await.unwrap_err().to_string();
    assert!(error.contains("the node that signs it is not known"), "{error}");
}

#[tokio::test]
async fn a_statement_about_another_object_says_nothing() {
    let data = pattern(2 * PIECE, 1);
    let (source, target) = (source(&data), Memory::new());
    let object = Oid::Live([8; 32]);
    source.send(signed(Statement::Values { object, generation: 5, first: 0, values: vec![[1; 32]; 9] }));
    source.send(bound(&data));
    fetch_live(source, &target).await.unwrap();
    target.expect(&data);
}

#[tokio::test]
async fn a_binding_that_the_signed_pieces_do_not_make_up_is_wrong() {
    let (data, other) = (pattern(3 * PIECE, 1), pattern(3 * PIECE, 2));
    let mut source = source(&data);
    source.also_as(Oid::of(&other), &other);
    source.send(values(&data, 1, 0..2));
    let (source, target) = (Arc::new(source), Memory::new());
    let session = live_session(&source);
    let telling = async {
        until("two pieces", || target.prefixes.lock().unwrap().last() == Some(&(2 * PIECE as u64))).await;
        source.send(bound(&other));
    };
    let (result, ()) = tokio::join!(fetch(&session, request(LIVE, &target)), telling);
    assert!(matches!(result, Err(FetchError::BindingWrong)), "{result:?}");
    target.expect_incomplete();
}

/// A binding to a shorter object was believed without comparing a byte.
#[tokio::test]
async fn a_binding_to_less_than_was_signed_is_wrong() {
    let data = pattern(3 * PIECE, 1);
    for size in [10, PIECE, 2 * PIECE - 1] {
        let (source, target) = (source(&data), Memory::new());
        source.send(values(&data, 1, 0..2));
        source.send(bound(&data[..size]));
        let result = fetch_live(source, &target).await;
        assert!(matches!(result, Err(FetchError::BindingWrong)), "{size}: {result:?}");
        target.expect_incomplete();
    }
}

#[tokio::test]
async fn a_producer_that_gives_up_is_said_to_have() {
    let data = pattern(PIECE, 1);
    let answers = |_: &crate::Query| (vec![growing()], Ok(()));
    let error = fetch_live(source(&data).answers(answers), &Memory::new()).await.unwrap_err();
    assert!(matches!(error, FetchError::Abandoned), "{error}");
}

/// The end of the question that told the binding was taken for the end of the one for proofs.
#[tokio::test]
async fn left_overs_of_an_object_bound_meanwhile_are_used() {
    let data = pattern(4 * PIECE + 1, 1);
    let source = source(&data);
    source.send(bound(&data));
    let mut there = data.clone();
    there[0] ^= 1;
    let target = Memory::with_left_overs(there, std::iter::once(0..3 * PIECE as u64).collect());
    let source = Arc::new(source);
    fetch(&live_session(&source), request(LIVE, &target)).await.unwrap();
    target.expect(&data);
    assert_eq!(source.pieces_asked(), [0, 3, 4]);
}

#[tokio::test]
async fn left_overs_of_an_object_that_still_grows_are_checked_against_signed_values() {
    let data = pattern(4 * PIECE, 1);
    let source = source(&data);
    source.send(values(&data, 7, 0..3));
    let mut there = data.clone();
    there[PIECE + 5] ^= 1;
    let target = Memory::with_left_overs(there, std::iter::once(0..3 * PIECE as u64).collect());
    let source = Arc::new(source);
    let session = live_session(&source);
    let telling = async {
        until("three pieces", || target.prefixes.lock().unwrap().last() == Some(&(3 * PIECE as u64))).await;
        source.send(bound(&data));
    };
    let (fetched, ()) = tokio::join!(fetch(&session, request(LIVE, &target)), telling);
    fetched.unwrap();
    target.expect(&data);
    assert_eq!(source.pieces_asked(), [1, 3]);
}
