//! Cancellations: what they may name, and what is said at once.

use towpath_store::MemoryStore;

use super::super::super::service::{Service, Serving};
use super::*;

fn cancel(answering: &mut Answering, request: u32, pieces: &[u32]) -> Result<Vec<u32>, String> {
    let cancel = WireCancel { request, pieces: pieces.to_vec() };
    match answering.take(Body::Cancel(cancel), &Keys)? {
        Taken::Nothing => Ok(Vec::new()),
        Taken::Cancelled(Body::Outcome(outcome)) => {
            assert_eq!((outcome.request, outcome.want, outcome.code), (request, None, 6));
            Ok(outcome.pieces)
        }
        _ => panic!("neither an outcome nor nothing"),
    }
}

/// Wants of two pieces, of a run of bytes, of a chunk, and of three pieces.
fn wants() -> Vec<WireWant> {
    let run = |count| WireWant { count, ..piece(&ROOT, 7) };
    let bytes = WireWant { offset: Some(0), len: 1, count: 0, first: 0, ..piece(&ROOT, 0) };
    let chunk = WireWant { chunk: Bytes::copy_from_slice(OFFERED.digest()), count: 1, ..WireWant::default() };
    vec![run(2), bytes, chunk, run(3)]
}

/// A guest, and the answer to its `Get` of these.
fn asked() -> (Answering, Answer) {
    let mut answering = guest();
    let Taken::Answer(answer) = answering.take(get(1, wants()), &Keys).unwrap() else { panic!() };
    (answering, *answer)
}

#[test]
fn pieces_that_were_not_read_are_cancelled_at_once() {
    let (mut answering, _answer) = asked();
    assert_eq!(cancel(&mut answering, 1, &[0, 1, 1, 0, 3, 2]), Ok(vec![0, 1, 1, 0, 3, 2]));
    assert_eq!(cancel(&mut answering, 1, &[2, 0]), Ok(vec![2, 0]));
    assert!(!answering.is_over(1));
    assert_eq!(cancel(&mut answering, 1, &[]), Ok(Vec::new()));
    assert!(answering.is_over(1));
}

#[test]
fn what_was_read_or_passed_over_is_not_cancelled_any_more() {
    let (mut answering, mut answer) = asked();
    let service = Arc::new(Service::new(Arc::new(MemoryStore::new()), Arc::new(Keys)));
    let (mut serving, mut sent) = (Serving::new(service, NODE), Vec::new());
    // Nothing of it is here: each want ends with an outcome, and the next one is looked at.
    while sent.len() < 3 {
        answer.step(&mut serving, &mut |frame| sent.push(frame));
    }
    assert_eq!(cancel(&mut answering, 1, &[1, 0, 2, 0, 3, 0]), Ok(vec![3, 0]));
}

#[test]
fn whoever_cancels_what_it_did_not_ask_for_or_twice_has_to_leave() {
    for pieces in
        [&[4, 0][..], &[0, 2], &[1, 1], &[2, 1], &[3, 3], &[0], &[0, 0, 1], &[0, 0, 0, 0], &[u32::MAX; 2]]
    {
        let (mut answering, _answer) = asked();
        let error = cancel(&mut answering, 1, pieces).unwrap_err();
        assert!(error.contains("cancelled what it had not asked for, or twice"), "{error}: {pieces:?}");
    }
    let (mut answering, _answer) = asked();
    cancel(&mut answering, 1, &[0, 0]).unwrap();
    assert!(cancel(&mut answering, 1, &[0, 0]).is_err());
    for question in &questions(2)[1..] {
        answering.take(question.clone(), &Keys).unwrap();
        assert!(cancel(&mut answering, 2, &[0, 0]).is_err(), "a question has no pieces");
        answering.end(2);
    }
}

#[test]
fn cancelling_what_has_ended_is_no_violation() {
    let (mut answering, _answer) = asked();
    answering.end(1);
    for pieces in [&[0, 0][..], &[0, 0], &[99, 99], &[]] {
        assert_eq!(cancel(&mut answering, 1, pieces), Ok(Vec::new()));
    }
}

#[test]
fn what_is_kept_of_the_pieces_is_counted() {
    let mut answering = guest();
    for request in 0..64 {
        let many = WireWant { count: MAX_PIECES as u32, ..piece(&ROOT, 0) };
        answering.take(get(request, vec![many]), &Keys).unwrap();
    }
    assert!((64 * MAX_PIECES..64 * 5000).contains(&answering.kept()), "{}", answering.kept());
}
