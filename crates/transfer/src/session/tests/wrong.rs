//! Sources that send something else.

use super::*;
use crate::root::Single;
use crate::source::Description;
use crate::want::WantId;

const fn index(id: &WantId) -> u64 {
    match id {
        WantId::Piece { index, .. } => *index,
        _ => u64::MAX,
    }
}

/// Does `act` the first time piece 1 is requested.
fn once(act: Act) -> impl Fn(&crate::Want, u32) -> Act {
    move |want, before| if before == 0 && index(&want.id) == 1 { act.clone() } else { Act::Good }
}

#[tokio::test]
async fn objects_of_every_shape_arrive() {
    for len in [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 9 * PIECE + 5] {
        let data = pattern(len, 1);
        let source = fetch_good(Scripted::new(&[&data]), &data).await;
        assert_eq!(source.pieces_asked().len(), len.div_ceil(PIECE).max(1), "each piece once");
        assert!(source.blamed.lock().unwrap().is_empty());
    }
}

#[tokio::test]
async fn one_wrong_piece_is_asked_for_again_and_its_source_blamed() {
    let data = pattern(3 * PIECE, 1);
    let wrong = [
        Act::Bytes(pattern(PIECE, 2)),
        Act::Bytes(pattern(PIECE - 1, 1)),
        Act::Bytes(Vec::new()),
        Act::WithProof(Some(vec![7; 96])),
        Act::WithProof(Some(Vec::new())),
        Act::Zeros,
    ];
    for act in wrong {
        // Without the proofs that come with their neighbours nothing of piece 1 is known.
        let source = fetch_good(Scripted::new(&[&data]).script(once(act.clone())), &data).await;
        assert_eq!(source.pieces_asked(), [0, 1, 1, 2], "{act:?}");
        assert_eq!(*source.blamed.lock().unwrap(), [SOURCE], "{act:?}");
    }
}

#[tokio::test]
async fn nothing_but_wrong_bytes_fails_with_the_sources_name() {
    for (len, act, words) in [
        (PIECE, Act::Bytes(pattern(PIECE, 9)), "the source sent bytes that do not match their hash"),
        (10, Act::Bytes(pattern(11, 1)), "the source sent 11 bytes instead of 10"),
        (2 * PIECE, Act::WithProof(Some(vec![0; 64])), "the source sent a wrong proof"),
    ] {
        let data = pattern(len, 1);
        let error = fetch_bad(Scripted::new(&[&data]).script(move |_, _| act.clone()), &data).await;
        assert!(error.starts_with(words), "{error}");
    }
}

#[tokio::test]
async fn holes_are_checked_like_bytes() {
    let data = vec![0; 2 * PIECE + 3];
    fetch_good(Scripted::new(&[&data]).script(|_, _| Act::Zeros), &data).await;
    let not_zero = pattern(PIECE, 1);
    let error = fetch_bad(Scripted::new(&[&not_zero]).script(|_, _| Act::Zeros), &not_zero).await;
    assert!(error.contains("do not match"), "{error}");
}

#[tokio::test]
async fn duplicates_change_nothing() {
    for len in [0, 5, 4 * PIECE] {
        let data = pattern(len, 1);
        fetch_good(Scripted::new(&[&data]).script(|_, _| Act::Twice), &data).await;
    }
}

#[tokio::test]
async fn retry_later_is_tried_later() {
    let data = pattern(3 * PIECE, 1);
    let later = Act::End(Outcome::RetryLater(Duration::from_millis(20)));
    let source =
        Scripted::new(&[&data]).script(move |_, before| if before < 2 { later.clone() } else { Act::Good });
    let source = fetch_good(source, &data).await;
    assert_eq!(source.pieces_asked(), [0, 0, 0, 1, 1, 1, 2, 2, 2]);
}

#[tokio::test]
async fn a_source_that_forgets_wants_does_not_hang_the_session() {
    let data = pattern(3 * PIECE, 1);
    fetch_good(Scripted::new(&[&data]).script(once(Act::Forget)), &data).await;
}

#[tokio::test]
async fn final_outcomes_end_the_object_in_words() {
    let data = pattern(2 * PIECE, 1);
    for (outcome, words) in [
        (Outcome::NotHere, "no source has it"),
        (Outcome::Gone, "its source has removed it"),
        (Outcome::SourceChanged, "it was changed or removed at its source after it was put"),
        (Outcome::Refused("not for you".into()), "refused: not for you"),
    ] {
        let act = Act::End(outcome);
        let error = fetch_bad(Scripted::new(&[&data]).script(move |_, _| act.clone()), &data).await;
        assert_eq!(error, words);
    }
}

#[tokio::test]
async fn a_source_that_vanishes_in_mid_transfer_is_a_stall_in_the_end() {
    let data = pattern(6 * PIECE, 1);
    let vanish = |want: &crate::Want, _| if index(&want.id) > 2 { Act::Hang } else { Act::Good };
    let error = fetch_bad(Scripted::new(&[&data]).script(vanish), &data).await;
    assert_eq!(error, "nothing came for 3 seconds");
}

#[tokio::test]
async fn an_object_unknown_to_the_source_fails_at_once() {
    let error = fetch_bad(Scripted::new(&[]), b"never put").await;
    assert_eq!(error, "no source has it");
}

#[tokio::test]
async fn a_description_that_says_nothing_useful_does_not_hang_the_session() {
    let nothing = Scripted::new(&[]).answers(|_| (vec![], Ok(())));
    assert_eq!(fetch_bad(nothing, b"x").await, "no source has it");
    let no_size = || Description::Object {
        about: About::default(),
        layout: None,
        metadata: crate::Metadata::default(),
    };
    let sizeless = Scripted::new(&[]).answers(move |_| (vec![no_size()], Ok(())));
    assert_eq!(fetch_bad(sizeless, b"x").await, "no source has it");
}

#[tokio::test]
async fn a_source_that_never_answers_is_a_stall() {
    let config =
        SessionConfig { ledger: LedgerConfig { wait_limit: Duration::from_secs(1), max_bad: 3 }, ..config() };
    let session = Session::start(Single::root(Arc::new(Silent)), context(Oid::of(b"x")), config);
    for size in [None, Some(1)] {
        let request = ObjectRequest { size, ..request(Oid::of(b"x"), &Memory::new()) };
        let error = fetch(&session, request).await.unwrap_err().to_string();
        assert_eq!(error, "nothing came for 1 second: the line is dead");
    }
    let live = fetch(&session, request(Oid::Live([1; 32]), &Memory::new())).await.unwrap_err().to_string();
    assert_eq!(live, "nothing came for 1 second: the line is dead");
}

#[tokio::test]
async fn a_wrong_size_from_a_tree_descriptor_is_not_believed() {
    let data = pattern(2 * PIECE, 1);
    let source = Arc::new(Scripted::new(&[&data]));
    for size in [0, 1, PIECE as u64, 2 * PIECE as u64 - 1, 2 * PIECE as u64 + 1, u64::MAX] {
        let target = Memory::new();
        let wrong = ObjectRequest { size: Some(size), ..request(Oid::of(&data), &target) };
        assert!(fetch(&session(&source), wrong).await.is_err(), "{size}");
        target.expect_incomplete();
    }
}

#[tokio::test]
async fn the_early_end_of_one_call_does_not_disturb_another() {
    // Piece 1 is wrong at first, so it is requested again while the first call still has piece 2.
    let data = pattern(3 * PIECE, 1);
    let source = Scripted::new(&[&data]).script(|want, before| match (index(&want.id), before) {
        (1, 0) => Act::Bytes(vec![1; PIECE]),
        (2, 0) => Act::End(Outcome::RetryLater(Duration::from_millis(50))),
        _ => Act::Good,
    });
    let source = fetch_good(source, &data).await;
    assert_eq!(source.pieces_asked(), [0, 1, 1, 2, 2]);
}
