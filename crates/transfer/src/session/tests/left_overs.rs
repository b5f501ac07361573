//! Left-over bytes of an interrupted transfer are read back and checked; only what is missing is requested.

use super::*;

#[tokio::test]
async fn good_left_overs_are_not_fetched_again() {
    let data = pattern(5 * PIECE + 9, 1);
    // Not even from a near source.
    let source = Arc::new(Scripted::new(&[&data]).with_round_trip(Duration::from_micros(100)));
    let left = vec![0..2 * PIECE as u64, 4 * PIECE as u64..data.len() as u64];
    let mut there = data.clone();
    there[2 * PIECE..4 * PIECE].fill(0);
    let target = Memory::with_left_overs(there, left);
    let session = session(&source);
    fetch(&session, request(Oid::of(&data), &target)).await.unwrap();
    target.expect(&data);
    assert_eq!(source.pieces_asked(), [2, 3]);
    let counters = session.progress().snapshot();
    assert_eq!((counters.done, counters.kept), (data.len() as u64, (3 * PIECE + 9) as u64));
}

#[tokio::test]
async fn of_spoilt_left_overs_only_the_bad_pieces_are_fetched() {
    let data = pattern(6 * PIECE, 1);
    let source = Arc::new(Scripted::new(&[&data]));
    let mut there = data.clone();
    there[PIECE] ^= 1;
    there[5 * PIECE - 1] ^= 1;
    let target = Memory::with_left_overs(there, std::iter::once(0..data.len() as u64).collect());
    fetch(&session(&source), request(Oid::of(&data), &target)).await.unwrap();
    target.expect(&data);
    assert_eq!(source.pieces_asked(), [1, 4]);
    assert!(source.blamed.lock().unwrap().is_empty(), "nobody sent these");
}

#[tokio::test]
async fn left_overs_that_cannot_be_read_or_end_early_are_fetched() {
    let data = pattern(4 * PIECE, 1);
    let source = Arc::new(Scripted::new(&[&data]));
    // Said to be all there, but cut short; and another with a piece there in part.
    let short =
        Memory::with_left_overs(data[..2 * PIECE].to_vec(), std::iter::once(0..4 * PIECE as u64).collect());
    fetch(&session(&source), request(Oid::of(&data), &short)).await.unwrap();
    short.expect(&data);
    assert_eq!(source.pieces_asked(), [2, 3]);
    let partly = Memory::with_left_overs(data.clone(), std::iter::once(7..4 * PIECE as u64 - 7).collect());
    fetch(&session(&source), request(Oid::of(&data), &partly)).await.unwrap();
    partly.expect(&data);
    assert_eq!(source.pieces_asked(), [0, 2, 3, 3]);
}

#[tokio::test]
async fn without_proofs_left_overs_count_for_nothing() {
    let data = pattern(3 * PIECE, 1);
    let layout = tree(&data).layout();
    let bare = move |_: &crate::Query| {
        let about = About::default();
        (
            vec![crate::Description::Object {
                about,
                layout: Some(layout),
                metadata: crate::Metadata::default(),
            }],
            Ok(()),
        )
    };
    let source = Arc::new(Scripted::new(&[&data]).answers(bare));
    let target = Memory::with_left_overs(data.clone(), std::iter::once(0..data.len() as u64).collect());
    fetch(&session(&source), request(Oid::of(&data), &target)).await.unwrap();
    target.expect(&data);
    assert_eq!(source.pieces_asked(), [0, 1, 2]);
}

#[tokio::test]
async fn what_is_right_of_an_older_version_elsewhere_is_taken_over() {
    let data = pattern(20 * PIECE + 9, 1);
    let mut older = data.clone();
    older[7 * PIECE] ^= 1;
    let (source, target) = (Arc::new(Scripted::new(&[&data])), Memory::with_older(older));
    let session = session(&source);
    fetch(&session, request(Oid::of(&data), &target)).await.unwrap();
    target.expect(&data);
    assert_eq!(source.pieces_asked(), [7]);
    assert_eq!(session.progress().snapshot().kept, (19 * PIECE + 9) as u64);
}

/// As behind an insertion. How much of it the network brings before the disk has looked is a matter of speed.
#[tokio::test]
async fn an_older_version_with_nothing_right_changes_nothing() {
    let (data, older) = (pattern(100 * PIECE + 9, 1), pattern(100 * PIECE, 2));
    let (source, target) = (Arc::new(Scripted::new(&[&data])), Memory::with_older(older));
    let session = session(&source);
    fetch(&session, request(Oid::of(&data), &target)).await.unwrap();
    target.expect(&data);
    assert_eq!(source.pieces_asked(), (0..=100).collect::<Vec<_>>(), "each once");
    assert_eq!(session.progress().snapshot().kept, 0);
}

#[tokio::test]
async fn an_older_version_that_cannot_be_taken_over_is_fetched_and_tells_why() {
    let data = pattern(3 * PIECE, 1);
    let (source, target) = (Arc::new(Scripted::new(&[&data])), Memory::full_with_older(data.clone()));
    let result = fetch(&session(&source), request(Oid::of(&data), &target)).await;
    assert!(matches!(result, Err(FetchError::Write(_))), "{result:?}");
}

/// Each time that nobody asks for what a slow disk was to bring costs half a second until the session looks around.
#[tokio::test]
async fn what_was_left_to_a_network_that_others_had_is_asked_for_once_it_is_idle() {
    let (small, large) = (pattern(8 * PIECE, 1), pattern(70 * PIECE, 2));
    let many = async {
        for _ in 0..50 {
            let source = Arc::new(Scripted::new(&[&small, &large]).with_window(2 * PIECE as u64));
            let slow = Memory::with_older_on_slow_disk(small.clone(), Duration::from_millis(20));
            let (session, target) = (session(&source), Memory::new());
            let (one, other) = tokio::join!(
                session.fetch(request(Oid::of(&large), &target)),
                session.fetch(request(Oid::of(&small), &slow))
            );
            one.and(other).unwrap();
            slow.expect(&small);
        }
    };
    tokio::time::timeout(LIMIT, many).await.expect("the network stands idle");
}
