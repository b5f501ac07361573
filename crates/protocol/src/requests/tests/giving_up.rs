//! Wants that are given up: which of them the peer is told of, and what ends how.

use std::collections::HashSet;

use super::*;

fn tags<const N: usize>(tags: [Tag; N]) -> HashSet<Tag> {
    tags.into()
}

fn ends(get: &mut GetUnderWay, message: &WireOutcome) -> Vec<(Tag, Outcome)> {
    let mut ends = Vec::new();
    get.outcome(message, |tag, outcome| ends.push((tag, outcome))).unwrap();
    ends
}

/// Pieces 3, 4 and 6 of an object, and a chunk of another one.
fn some() -> GetUnderWay {
    let pieces = [(1, 3), (2, 4), (3, 6)].map(|(tag, index)| piece(tag, 1, 9 * PIECE, index));
    under_way([&pieces[..], &[chunk(4, 8, 100, origin(2, 0))]].concat())
}

#[test]
fn each_piece_is_named_once_and_what_ended_is_not() {
    let mut get = some();
    get.data(Instant::now(), header(1, 0, 0), Bytes::from(vec![1; PIECE as usize])).unwrap();
    assert_eq!(get.give_up(&tags([2, 3, 99])), ToCancel::Pieces(vec![0, 1]), "3 has come");
    assert_eq!(get.give_up(&tags([2, 3])), ToCancel::Nothing);
    assert_eq!(get.give_up(&tags([2, 4])), ToCancel::Pieces(vec![2, 0]));
    assert_eq!(get.give_up(&tags([1])), ToCancel::All);
    assert!(get.is_cancelled() && get.give_up(&tags([1, 2, 3, 4])) == ToCancel::Nothing);
}

#[test]
fn only_what_was_given_up_ends_as_cancelled_whoever_says_so() {
    let again = Outcome::RetryLater(Duration::ZERO);
    let mut get = some();
    get.give_up(&tags([1, 4]));
    let named = WireOutcome::cancelled(1, vec![0, 0, 0, 1]);
    assert_eq!(ends(&mut get, &named), [(1, Outcome::Cancelled), (2, again.clone())]);
    assert!(ends(&mut get, &named).is_empty(), "they have ended");
    let all = WireOutcome::new(1, None, &Outcome::Cancelled);
    assert_eq!(ends(&mut get, &all), [(3, again), (4, Outcome::Cancelled)]);
    let late = get.data(Instant::now(), header(0, 0, 0), Bytes::from(vec![1; PIECE as usize]));
    assert_eq!(late.unwrap_err(), Violation::Unasked);
}

#[test]
fn what_was_on_its_way_is_taken() {
    let mut get = some();
    get.give_up(&tags([1]));
    let came = get.data(Instant::now(), header(0, 0, 0), Bytes::from(vec![1; PIECE as usize])).unwrap();
    assert_eq!(came[0].tag, 1);
}

#[test]
fn a_run_of_bytes_is_cancelled_when_none_of_its_chunks_is_needed() {
    let (data, chunks) = similar();
    let last = chunks.len() as Tag - 1;
    let mut get = under_way([&chunks[..], &[piece(99, 1, 9 * PIECE, 3)]].concat());
    let all_but_one: HashSet<Tag> = (0..last).collect();
    assert_eq!(get.give_up(&all_but_one), ToCancel::Nothing);
    assert_eq!(get.give_up(&tags([last])), ToCancel::Pieces(vec![0, 0]));
    let mut ended = ends(&mut get, &WireOutcome::cancelled(1, vec![0, 0]));
    assert!(ended.iter().all(|(_, outcome)| *outcome == Outcome::Cancelled));
    ended.sort_by_key(|(tag, _)| *tag);
    assert_eq!(ended.iter().map(|(tag, _)| *tag).collect::<Vec<_>>(), (0..=last).collect::<Vec<_>>());

    let mut get = under_way(chunks.clone());
    get.give_up(&all_but_one);
    let came = get.delta(Instant::now(), &delta_of(&data, &chunks), |_, _| panic!()).unwrap();
    assert_eq!(came.len(), chunks.len(), "all of them, for the sake of one");
}

#[test]
fn the_front_of_a_piece_that_breaks_off_is_given_out_and_of_others_not() {
    let begun = || {
        let mut get = some();
        get.data(Instant::now(), header(0, 1, 0), Bytes::from(vec![3; 1000])).unwrap();
        get.give_up(&tags([2, 3]));
        get
    };
    let front = begun().take_front(&WireOutcome::cancelled(1, vec![1, 0, 0, 1])).unwrap();
    assert_eq!((front.tag, front.payload.bytes().len()), (2, 1000));
    for pieces in [vec![1, 0], vec![0, 0], vec![0, 1, 0], Vec::new()] {
        assert!(begun().take_front(&WireOutcome::cancelled(1, pieces)).is_none());
    }
}

#[test]
fn what_was_not_sent_yet_asks_for_the_rest() {
    let mut get = some();
    let shape = |get: &GetUnderWay| {
        get.wire_wants().iter().map(|want| (want.first, want.count, want.len)).collect::<Vec<_>>()
    };
    assert!(get.leave_out(&tags([99])).is_empty());
    assert_eq!(shape(&get), [(3, 2, 0), (6, 1, 0), (0, 0, 100)]);
    assert_eq!(get.leave_out(&tags([1, 3])), [1, 3]);
    assert_eq!(shape(&get), [(4, 1, 0), (0, 0, 100)]);
    let came = get.data(Instant::now(), header(1, 0, 0), Bytes::from(vec![1; 100])).unwrap();
    assert_eq!(came[0].tag, 4);
    assert_eq!(get.leave_out(&tags([2, 4])), [2, 4]);
    assert!(get.wire_wants().is_empty());
}

#[test]
fn pieces_that_were_not_asked_for_are_a_violation() {
    for pieces in [vec![3, 0], vec![0, 2], vec![2, 1], vec![0], vec![0, 0, u32::MAX, u32::MAX]] {
        let taken = some().outcome(&WireOutcome::cancelled(1, pieces), |_, _| {});
        assert_eq!(taken, Err(Violation::Unasked));
    }
}
