use bytes::Bytes;
use towpath_content::Oid;
use towpath_content::pieces::Layout;

use super::wants::WANT_COST;
use super::*;
use crate::gathering;
use crate::want::{Group, PiecePart};

const PIECE: u64 = 1 << 18;

struct Fixture {
    ledger: Ledger,
    now: Instant,
    group: Arc<Group>,
    layout: Layout,
}

impl Fixture {
    fn new(size: u64) -> Self {
        let now = Instant::now();
        let ledger = Ledger::new(LedgerConfig::default(), now);
        Self { ledger, now, group: Arc::default(), layout: Layout::of(size).unwrap() }
    }

    fn piece(&mut self, object: ObjectKey, index: u64) -> Tag {
        let id = WantId::Piece { oid: Oid::of(b"x"), layout: self.layout, index };
        let position = ObjectOffset { object, offset: index * PIECE };
        self.ledger.add(id, position, &self.group, self.now)
    }

    fn chunk(&mut self, object: ObjectKey, name: u8, offset: u64, len: u32) -> Tag {
        let id = WantId::Chunk { hash: [name; 32], len };
        self.ledger.add(id, ObjectOffset { object, offset }, &self.group, self.now)
    }

    /// Its bytes came and were written to every position it has now.
    fn done(&mut self, tag: Tag) -> (Vec<ObjectOffset>, Vec<Tag>) {
        let positions = self.ledger.get(tag).map(|want| want.positions.clone()).unwrap_or_default();
        let done = self.ledger.done(tag, &positions, self.now);
        (done.filled, done.cancelled)
    }

    fn ask(&mut self) -> Vec<Tag> {
        self.ledger.next_batch(u64::MAX, 100, self.now).iter().map(|want| want.tag).collect()
    }
}

/// The objects that a failed want belongs to.
fn liar() -> SourceId {
    SourceId::other("liar", None)
}

fn failed(result: WantResult) -> Vec<ObjectKey> {
    let WantResult::Failed(want) = result else { panic!("{result:?}") };
    want.positions.iter().map(|position| position.object).collect()
}

#[test]
fn a_batch_keeps_to_the_room_but_never_starves() {
    let mut f = Fixture::new(4 * PIECE);
    let tags: Vec<_> = (0..4).map(|i| f.piece(1, i)).collect();
    assert_eq!(f.ledger.next_batch(1, 100, f.now).len(), 1);
    assert_eq!(f.ledger.next_batch(2 * (PIECE + WANT_COST), 100, f.now).len(), 2);
    assert_eq!(f.ledger.requested().all, 3 * (PIECE + WANT_COST));
    f.done(tags[0]);
    assert_eq!(f.ledger.requested().all, 2 * (PIECE + WANT_COST));
    assert_eq!(f.ask(), [tags[3]]);
}

#[test]
fn a_piece_that_arrives_cancels_the_chunks_inside_it() {
    let mut f = Fixture::new(2 * PIECE);
    let piece = f.piece(1, 0);
    let inside = f.chunk(1, 1, 10, 100);
    let across = f.chunk(1, 2, PIECE - 10, 20);
    f.ask();
    let (positions, cancelled) = f.done(piece);
    assert_eq!(positions, [ObjectOffset { object: 1, offset: 0 }]);
    assert_eq!(cancelled, [inside]);
    assert!(f.ledger.get(across).is_some());
}

#[test]
fn chunks_that_fill_a_piece_cancel_it() {
    let mut f = Fixture::new(2 * PIECE);
    let piece = f.piece(1, 1);
    let first = f.chunk(1, 1, PIECE - 5, 1005);
    let second = f.chunk(1, 2, PIECE + 1000, (PIECE - 1000) as u32);
    f.ask();
    assert_eq!(f.done(first).1, []);
    assert_eq!(f.done(second).1, [piece]);
    assert_eq!(f.ledger.requested().all, 0);
}

#[test]
fn the_same_content_in_two_places_is_asked_for_once() {
    let mut f = Fixture::new(PIECE);
    let tag = f.chunk(1, 7, 0, 50);
    assert_eq!(f.chunk(2, 7, 400, 50), tag);
    assert_eq!(f.ask(), [tag]);
    let (positions, _) = f.done(tag);
    assert_eq!(positions.len(), 2);
    assert!(f.ledger.coverage().have(2).unwrap().covers(&(400..450)));
}

#[test]
fn a_chunk_needed_elsewhere_is_not_cancelled_when_one_place_is_filled() {
    let mut f = Fixture::new(PIECE);
    let tag = f.chunk(1, 7, 0, 50);
    f.chunk(2, 7, 400, 50);
    assert_eq!(f.ledger.cover(1, 0..50), []);
    assert!(f.ledger.get(tag).is_some());
    f.ask();
    assert_eq!(f.ledger.cover(2, 400..450), [tag]);
}

#[test]
fn retry_later_waits_its_time() {
    let mut f = Fixture::new(PIECE);
    let tag = f.piece(1, 0);
    f.ask();
    let result = f.ledger.ended(tag, &Outcome::RetryLater(Duration::from_secs(2)), f.now);
    assert_eq!(result, WantResult::Again);
    assert_eq!(f.ask(), []);
    assert_eq!(f.ledger.next_wake(), Some(f.now + Duration::from_secs(2)));
    assert!(!f.ledger.has_due(f.now));
    f.now += Duration::from_secs(2);
    assert!(f.ledger.has_due(f.now), "when its time has come it is to be asked");
    assert_eq!(f.ask(), [tag]);
}

#[test]
fn a_final_outcome_fails_every_object_that_needs_the_want() {
    for outcome in [Outcome::NotHere, Outcome::Gone, Outcome::SourceChanged, Outcome::Refused("no".into())] {
        let mut f = Fixture::new(PIECE);
        let tag = f.chunk(1, 7, 0, 50);
        f.chunk(2, 7, 400, 50);
        f.ask();
        assert_eq!(failed(f.ledger.ended(tag, &outcome, f.now)), [1, 2]);
        assert_eq!(f.ledger.requested().all, 0);
        assert_eq!(f.ledger.ended(tag, &outcome, f.now), WantResult::Unknown);
    }
}

#[test]
fn wrong_bytes_are_asked_for_again_a_few_times() {
    let mut f = Fixture::new(PIECE);
    let tag = f.piece(1, 0);
    for _ in 1..LedgerConfig::default().max_bad {
        assert_eq!(f.ask(), [tag]);
        assert_eq!(f.ledger.bad(tag, &liar()), WantResult::Again);
    }
    assert_eq!(f.ask(), [tag]);
    assert_eq!(failed(f.ledger.bad(tag, &liar())), [1]);
}

#[test]
fn what_each_of_many_sources_brought_wrong_once_is_wanted_on() {
    let mut f = Fixture::new(PIECE);
    let tag = f.piece(1, 0);
    for number in 0..3 * LedgerConfig::default().max_bad {
        assert_eq!(f.ask(), [tag]);
        let source = SourceId::other("source", Some(&number.to_string()));
        assert_eq!(f.ledger.bad(tag, &source), WantResult::Again);
    }
}

#[test]
fn a_second_delivery_of_the_same_want_changes_nothing() {
    let mut f = Fixture::new(PIECE);
    let tag = f.piece(1, 0);
    f.ask();
    assert_eq!(f.done(tag).0.len(), 1);
    assert_eq!(f.done(tag), (vec![], vec![]));
    assert!(f.ledger.coverage().is_complete(1, &(0..PIECE)));
}

#[test]
fn forgetting_an_object_leaves_what_others_need() {
    let mut f = Fixture::new(PIECE);
    let shared = f.chunk(1, 7, 0, 50);
    f.chunk(2, 7, 400, 50);
    let own = f.chunk(1, 8, 50, 50);
    f.ask();
    assert_eq!(f.ledger.forget(1), [own]);
    assert_eq!(f.ledger.get(shared).unwrap().positions, [ObjectOffset { object: 2, offset: 400 }]);
}

#[test]
fn nothing_for_too_long_is_a_stall_but_idleness_is_not() {
    let mut f = Fixture::new(PIECE);
    let wait_limit = LedgerConfig::default().wait_limit;
    assert_eq!(f.ledger.stalled(f.now + wait_limit * 2), None);
    f.now += wait_limit * 2;
    let tag = f.piece(1, 0);
    assert_eq!(f.ledger.stalled(f.now), None, "waiting begins with the want");
    assert_eq!(f.ledger.stalled(f.now + wait_limit), Some(wait_limit));
    f.now += wait_limit;
    f.done(tag);
    assert_eq!(f.ledger.stalled(f.now + wait_limit * 2), None);
}

#[test]
fn wrong_bytes_found_later_are_wanted_again() {
    let mut f = Fixture::new(2 * PIECE);
    f.ledger.cover(1, 0..2 * PIECE);
    assert!(f.ledger.coverage().is_complete(1, &(0..2 * PIECE)));
    f.ledger.uncover(1, PIECE..2 * PIECE);
    assert!(!f.ledger.coverage().is_complete(1, &(0..2 * PIECE)));
    assert_eq!(f.ledger.coverage().prefix(1), PIECE);
}

#[test]
fn a_place_that_was_not_written_is_still_to_be_filled() {
    let mut f = Fixture::new(PIECE);
    let tag = f.piece(1, 0);
    f.ask();
    let written = f.ledger.delivered(tag).unwrap().positions.clone();
    f.piece(2, 0);
    assert_eq!(f.ledger.done(tag, &written, f.now).filled, written);
    assert!(f.ledger.coverage().is_complete(1, &(0..PIECE)));
    assert!(!f.ledger.coverage().is_complete(2, &(0..PIECE)));
    assert_eq!(f.ledger.requested().all, 0);
    assert_eq!(f.ask(), [tag]);
    f.done(tag);
    assert!(f.ledger.coverage().is_complete(2, &(0..PIECE)));
}

#[test]
fn while_bytes_are_checked_neither_duplicates_nor_outcomes_count() {
    let mut f = Fixture::new(PIECE);
    let tag = f.piece(1, 0);
    f.ask();
    assert!(f.ledger.delivered(tag).is_some());
    assert!(f.ledger.delivered(tag).is_none());
    assert_eq!(f.ledger.ended(tag, &Outcome::NotHere, f.now), WantResult::Unknown);
    f.ledger.bad(tag, &liar());
    assert!(f.ledger.delivered(tag).is_some(), "late, but they may be good");
}

#[test]
fn a_call_that_ends_has_nothing_to_say_of_wants_asked_again_meanwhile() {
    let mut f = Fixture::new(PIECE);
    let tag = f.piece(1, 0);
    f.ask();
    let first = f.ledger.last_batch();
    assert!(f.ledger.is_waiting(tag, first));
    f.ledger.bad(tag, &liar());
    f.ask();
    assert!(!f.ledger.is_waiting(tag, first));
    assert!(f.ledger.is_waiting(tag, f.ledger.last_batch()));
}

#[test]
fn the_same_place_wanted_twice_is_one() {
    let mut f = Fixture::new(PIECE);
    let tag = f.piece(1, 0);
    assert_eq!(f.piece(1, 0), tag);
    assert_eq!(f.ledger.get(tag).unwrap().positions.len(), 1);
}

#[test]
fn pieces_that_nobody_is_asked_for_can_be_taken_back() {
    let mut f = Fixture::new(6 * PIECE);
    let requested = f.piece(1, 0);
    f.ask();
    let [queued, shared, delayed] = [1, 2, 3].map(|index| f.piece(1, index));
    f.piece(2, 2);
    f.ledger.next_batch(u64::MAX, 1, f.now);
    f.ledger.ended(queued, &Outcome::RetryLater(Duration::from_secs(5)), f.now);
    let chunk = f.chunk(1, 9, 5 * PIECE, 100);
    f.ledger.take_back_pieces(1);
    assert!(f.ledger.get(requested).is_some() && f.ledger.get(chunk).is_some());
    assert!(f.ledger.get(queued).is_none() && f.ledger.get(delayed).is_none());
    assert_eq!(f.ledger.get(shared).unwrap().positions, [ObjectOffset { object: 2, offset: 2 * PIECE }]);
    assert_eq!(f.ledger.coverage().open_wants(1), 2);
    assert_eq!(f.ask(), [shared, chunk], "the others are not asked any more");
    f.done(requested);
    f.done(chunk);
    f.done(shared);
    assert_eq!(f.ledger.requested().all, 0);
    assert!(f.ledger.next_batch(u64::MAX, 100, f.now + Duration::from_secs(10)).is_empty());
}

#[test]
fn gaps_are_what_neither_is_here_nor_comes_as_a_piece() {
    let mut f = Fixture::new(4 * PIECE);
    f.piece(1, 1);
    f.ledger.cover(1, 0..100);
    f.chunk(1, 1, 200, 300);
    let bounds = |gaps: Vec<Range<u64>>| gaps.iter().map(|gap| (gap.start, gap.end)).collect::<Vec<_>>();
    assert_eq!(bounds(f.ledger.coverage().gaps(1, &(50..300))), [(100, 300)]);
    let gaps = |object, range| bounds(f.ledger.gaps_beside_pieces(object, &range));
    assert_eq!(gaps(1, 50..PIECE + 5), [(100, PIECE)]);
    assert_eq!(gaps(1, PIECE..2 * PIECE), []);
    assert_eq!(gaps(1, PIECE - 1..2 * PIECE + 1), [(PIECE - 1, PIECE), (2 * PIECE, 2 * PIECE + 1)]);
    assert_eq!(gaps(7, 0..5), [(0, 5)], "of nothing that is known");
}

#[test]
fn chunks_taken_all_at_once_do_not_count_against_the_window() {
    let mut f = Fixture::new(4 * PIECE);
    let chunks: Vec<_> = (0..50).map(|i| f.chunk(1, i, u64::from(i) * 1000, 1000)).collect();
    let piece = f.piece(1, 3);
    assert!(f.ledger.has_due_chunks(f.now));
    let all: Vec<_> = f.ledger.next_chunks(f.now).iter().map(|want| want.tag).collect();
    assert_eq!(all, chunks);
    assert!(!f.ledger.has_due_chunks(f.now));
    assert_eq!((f.ledger.requested().all, f.ledger.requested_bytes(1)), (0, 50_000));
    assert_eq!(f.ask(), [piece]);
    // One comes back and goes the usual way, one ends.
    f.ledger.ended(chunks[0], &Outcome::Cancelled, f.now);
    f.done(chunks[1]);
    assert_eq!(f.ask(), [chunks[0]]);
    assert_eq!(f.ledger.requested().all, PIECE + WANT_COST + 1000 + WANT_COST);
    f.done(piece);
    f.done(chunks[0]);
    assert_eq!(f.ledger.requested().all, 0);
    f.ledger.forget(1);
    assert_eq!(f.ledger.requested().all, 0);
}

#[test]
fn chunks_and_pieces_are_asked_in_the_order_in_which_they_were_wanted() {
    let mut f = Fixture::new(4 * PIECE);
    let order = [f.piece(1, 0), f.chunk(1, 1, PIECE, 10), f.piece(1, 2), f.chunk(1, 2, 3 * PIECE, 10)];
    assert_eq!(f.ask(), order);
}

#[test]
fn only_bytes_that_were_not_there_count_as_fresh() {
    let mut f = Fixture::new(4 * PIECE);
    f.ledger.cover(1, 0..600);
    let chunk = f.chunk(1, 1, 0, 1000);
    f.chunk(1, 1, 5000, 1000);
    f.ask();
    let positions = f.ledger.get(chunk).unwrap().positions.clone();
    assert_eq!(f.ledger.done(chunk, &positions, f.now).fresh, 400 + 1000);
}

#[test]
fn what_several_brought_wrong_is_wanted_of_one_and_not_for_ever() {
    let mut f = Fixture::new(2 * PIECE);
    let tag = f.piece(1, 0);
    let part = |start, who: &str| PiecePart {
        start,
        bytes: Bytes::from_static(b"a part"),
        source: SourceId::other(who, None),
    };
    let parts = gathering::doubt(&[part(0, "one"), part(6, "two")]);
    assert!(!f.ledger.get(tag).unwrap().undivided && f.ledger.doubted(tag).is_empty());
    for round in 0..3 {
        assert_eq!(f.ask(), [tag], "round {round}");
        f.ledger.delivered(tag);
        assert_eq!(f.ledger.doubt(tag, parts.clone()), WantResult::Again);
        assert!(f.ledger.get(tag).unwrap().undivided);
        assert_eq!(f.ledger.doubted(tag), parts);
    }
    f.ask();
    assert_eq!(failed(f.ledger.doubt(tag, parts)), [1]);
    assert!(f.ledger.doubted(tag).is_empty(), "nothing is kept of a want that has ended");
}

#[test]
fn what_is_dropped_unchecked_is_wanted_again_unless_nobody_does() {
    let mut f = Fixture::new(2 * PIECE);
    let tag = f.piece(1, 0);
    f.ask();
    f.ledger.delivered(tag);
    f.ledger.widen(tag);
    assert_eq!(f.ask(), [tag]);
    f.ledger.forget(1);
    f.ledger.widen(tag);
    assert_eq!(f.ask(), [] as [Tag; 0]);
}
