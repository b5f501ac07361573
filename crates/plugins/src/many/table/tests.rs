use std::time::Instant;

use bytes::Bytes;
use tokio::sync::mpsc;
use towpath_content::delta::exchange::{Base, Request};
use towpath_transfer::source::{Backlog, Query};
use towpath_transfer::want::{Origin, SignedBase};
use towpath_transfer::{BoxFuture, Context, Description, SourceState};

use super::super::call::MOST_UNDELIVERED;
use super::super::to_come::tests::want;
use super::*;

struct Nobody;

impl Sink for Nobody {
    fn deliver(&self, _delivery: Delivery) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn outcome(&self, _tag: Tag, _outcome: Outcome) {}

    fn backpressure(&self) -> Backlog {
        Backlog::default()
    }
}

#[test]
fn without_any_source_a_want_ends_at_once() {
    let mut table = SourceTable::new(0);
    table.want(Duration::ZERO, &Oid::of(b""), vec![want(1, 1 << 20, 3)], Arc::new(Nobody));
    let orders = table.take_orders();
    assert!(matches!(&orders[..], [SourceOrder::End { tag: 3, outcome: Outcome::NotHere, .. }]));
    assert!(table.wants.is_empty() && table.tags.is_empty());
}

/// Its sender changed the file, and a holder that never got it never will.
#[test]
fn a_file_that_its_sender_lacks_is_not_waited_for_at_who_has_parts() {
    for has_it in [false, true] {
        let (mut table, now) = (SourceTable::new(0), Duration::ZERO);
        let sender = table.add(now, Arc::new(Idle), None);
        let holder = table.number();
        let has = if has_it { vec![0..1 << 62, 1 << 62..1 << 63] } else { Vec::new() };
        table.opened(now, holder, Arc::new(Idle), 0, SourceHolding::Parts(has));
        table.want(now, &Oid::of(b"tree"), vec![want(1, 1 << 20, 3)], Arc::new(Nobody));
        let asked = table.take_orders().into_iter().find_map(|order| match order {
            SourceOrder::Ask { number, wants, .. } => Some((number, wants[0].tag, wants[0].missing_len())),
            _ => None,
        });
        let (number, tag, len) = asked.unwrap();
        assert_eq!(number, sender);
        table.not_brought(now, number, tag, len, Outcome::SourceChanged);
        let ends = table.take_orders().iter().any(|order| matches!(order, SourceOrder::End { tag: 3, .. }));
        assert_eq!(ends, !has_it);
    }
}

/// Notes whether its call had ended already when it was told of an end.
struct Hearing {
    call: std::sync::OnceLock<Arc<DealtCall>>,
    had_ended: std::sync::Mutex<Vec<bool>>,
}

impl Sink for Hearing {
    fn deliver(&self, _delivery: Delivery) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn outcome(&self, _tag: Tag, _outcome: Outcome) {
        self.had_ended.lock().unwrap().push(has_ended(self.call.get().unwrap()));
    }

    fn backpressure(&self) -> Backlog {
        Backlog::default()
    }
}

fn has_ended(call: &DealtCall) -> bool {
    futures_util::FutureExt::now_or_never(call.ended()).is_some()
}

#[test]
fn a_call_ends_once_its_sink_was_told_of_each_want() {
    for is_cancelled in [false, true] {
        let (mut table, now) = (SourceTable::new(0), Duration::ZERO);
        let sink = Arc::new(Hearing { call: Default::default(), had_ended: Default::default() });
        if is_cancelled {
            table.add(now, Arc::new(Idle), None);
        }
        let call =
            table.want(now, &Oid::of(b""), vec![want(1, 1 << 20, 3)], Arc::clone(&sink) as Arc<dyn Sink>);
        sink.call.set(Arc::clone(&call)).ok();
        let ends: Vec<(Awaited, Tag)> = match is_cancelled {
            true => table.cancel(now, &[3]),
            false => {
                let end = |order| match order {
                    SourceOrder::End { awaited, tag, .. } => Some((awaited, tag)),
                    _ => None,
                };
                table.take_orders().into_iter().filter_map(end).collect()
            }
        };
        assert!(ends.len() == 1 && !has_ended(&call), "it is not told yet");
        ends.into_iter().for_each(|(awaited, tag)| awaited.end(tag, Outcome::NotHere));
        assert_eq!((sink.had_ended.lock().unwrap().as_slice(), has_ended(&call)), (&[false][..], true));
    }
}

/// A source of which nothing is asked here.
struct Idle;

impl Source for Idle {
    fn name(&self) -> &str {
        "idle"
    }

    fn state(&self) -> SourceState {
        SourceState::of_window(1 << 20)
    }

    fn describe<'a>(
        &'a self,
        _query: Query,
        _context: &'a Context,
        _answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        Box::pin(async { Ok(()) })
    }

    fn get<'a>(&'a self, _: Vec<Want>, _: &'a Context, _: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }
}

/// Ends, openings and questions among orders.
fn told(table: &mut SourceTable) -> (Vec<Outcome>, Vec<u32>, Vec<u32>) {
    let (mut ends, mut opened, mut asked) = (Vec::new(), Vec::new(), Vec::new());
    for order in table.take_orders() {
        match order {
            SourceOrder::End { outcome, .. } => ends.push(outcome),
            SourceOrder::Open { number, .. } => opened.push(number),
            SourceOrder::Ask { number, .. } => asked.push(number),
            SourceOrder::Cancel { .. } | SourceOrder::Close { .. } => {}
        }
    }
    (ends, opened, asked)
}

#[test]
fn what_may_still_be_found_is_waited_for() {
    let (mut table, second) = (SourceTable::new(0), Duration::from_secs(1));
    table.places.look(Duration::ZERO, 2);
    let root = Oid::of(b"");
    table.want(Duration::ZERO, &root, vec![want(1, 1 << 20, 0)], Arc::new(Nobody));
    assert_eq!(told(&mut table), (vec![], vec![], vec![]));
    table.places.looked(0);
    table.end_what_nobody_brings(Duration::ZERO);
    assert_eq!(told(&mut table).0, [], "the other one looks");
    table.places.looked(1);
    table.end_what_nobody_brings(Duration::ZERO);
    assert_eq!(told(&mut table).0, [Outcome::NotHere]);
    table.places.look(second, 1);
    table.want(second, &root, vec![want(1, 1 << 20, 0)], Arc::new(Nobody));
    table.tick(2 * second);
    assert_eq!(told(&mut table).0, []);
    table.tick(3 * second);
    assert_eq!(told(&mut table).0, [Outcome::NotHere], "a finder that says nothing");
}

#[test]
fn a_place_is_opened_before_its_turn_if_those_that_are_open_lack_what_is_wanted() {
    let (mut table, now) = (SourceTable::new(0), Duration::ZERO);
    table.add(now, Arc::new(Idle), None);
    table.found(now, (0, 1), Arc::new(Idle), (0, 1));
    table.found(now, (0, 2), Arc::new(Idle), (9, 1));
    assert_eq!(told(&mut table).1, [2], "the better priority");
    table.answered(now, 2, None);
    table.want(now, &Oid::of(b""), vec![want(1, 1 << 20, 0)], Arc::new(Nobody));
    assert_eq!(told(&mut table), (vec![], vec![], vec![1]));
    table.not_brought(now, 1, FIRST_TAG, 256 << 10, Outcome::NotHere);
    assert_eq!(told(&mut table).1, [3]);
    table.answered(now, 3, Some(SourceHolding::Everything));
    assert_eq!(told(&mut table).2, [3]);
    table.not_brought(now, 3, FIRST_TAG, 256 << 10, Outcome::NotHere);
    assert_eq!(told(&mut table).0, [Outcome::NotHere]);
}

#[test]
fn a_source_of_a_tree_of_which_one_file_changed_is_not_dropped() {
    let (mut table, now) = (SourceTable::new(0), Duration::ZERO);
    table.add(now, Arc::new(Idle), None);
    table.want(now, &Oid::of(b"tree"), vec![want(1, 1 << 20, 0)], Arc::new(Nobody));
    table.take_orders();
    table.not_brought(now, 1, FIRST_TAG, 256 << 10, Outcome::SourceChanged);
    let orders = table.take_orders();
    assert!(!orders.iter().any(|order| matches!(order, SourceOrder::Close { .. })));
    let ends = orders.iter().filter_map(|order| match order {
        SourceOrder::End { outcome, .. } => Some(outcome),
        _ => None,
    });
    assert_eq!(ends.collect::<Vec<_>>(), [&Outcome::SourceChanged], "it is said as it was");
    assert_eq!(table.open.len(), 1);
}

#[test]
fn one_that_is_taken_away_is_told_that_parts_need_not_come() {
    let (mut table, now) = (SourceTable::new(0), Duration::ZERO);
    table.found(now, (0, 1), Arc::new(Idle), (0, 1));
    let all = want(1, 1 << 20, 0);
    let WantId::Piece { oid, .. } = all.id else { panic!("it is a piece") };
    table.answered(now, 1, Some(SourceHolding::Parts(iter::once(0..100 << 10).collect())));
    table.want(now, &oid, vec![all], Arc::new(Nobody));
    let asked = |order| match order {
        SourceOrder::Ask { number: 1, wants, .. } => Some(wants),
        _ => None,
    };
    let wants: Vec<Want> = table.take_orders().into_iter().filter_map(asked).flatten().collect();
    assert_eq!(wants.iter().map(|want| want.part.clone()).collect::<Vec<_>>(), [Some(0..100 << 10)]);
    table.removed(now, (0, 1));
    let cancelled = table.take_cancellations().into_iter().flat_map(|(_, tags)| tags);
    assert!(cancelled.into_iter().any(|tag| tag == wants[0].tag));
}

#[test]
fn what_a_source_was_asked_for_goes_elsewhere_when_it_is_taken_away() {
    let (mut table, now) = (SourceTable::new(0), Duration::ZERO);
    for key in [1, 2] {
        table.found(now, (0, key), Arc::new(Idle), (0, 1));
    }
    table.answered(now, 1, Some(SourceHolding::Everything));
    table.want(now, &Oid::of(b""), vec![want(1, 1 << 20, 0)], Arc::new(Nobody));
    assert_eq!(told(&mut table).2, [1]);
    table.removed(now, (0, 1));
    assert_eq!(told(&mut table), (vec![], vec![], vec![]), "the other one is asked about the root");
    table.answered(now, 2, Some(SourceHolding::Everything));
    assert_eq!(told(&mut table).2, [2]);
    table.removed(now, (0, 2));
    assert_eq!(told(&mut table).0, [Outcome::NotHere]);
    assert!(table.places.is_settled() && table.wants.is_empty());
}

/// The wants that source 1 is asked for at once, and those that wait for a sink.
fn asked_of_first(table: &mut SourceTable) -> (Vec<Want>, Vec<Want>) {
    let (mut at_once, mut later) = (Vec::new(), Vec::new());
    for order in table.take_orders() {
        match order {
            SourceOrder::Ask { number: 1, wants, after: None, .. } => at_once.extend(wants),
            SourceOrder::Ask { number: 1, wants, .. } => later.extend(wants),
            _ => {}
        }
    }
    (at_once, later)
}

#[test]
fn of_a_call_whose_sink_does_not_keep_up_nothing_more_is_asked() {
    let (mut table, now, root) = (SourceTable::new(0), Duration::ZERO, Oid::of(b"tree"));
    table.add(now, Arc::new(Idle), None);
    let call = table.want(now, &root, vec![want(1, 1 << 20, 0)], Arc::new(Nobody));
    assert_eq!(asked_of_first(&mut table).0.len(), 1);
    let waiting: Vec<_> = (0..MOST_UNDELIVERED).map(|_| call.one_waits()).collect();
    // The source lost its want: it is asked for it again. Another call is asked for beside it.
    table.not_brought(now, 1, FIRST_TAG, 256 << 10, Outcome::Cancelled);
    let (at_once, held_back) = asked_of_first(&mut table);
    assert_eq!((at_once.len(), held_back.len()), (0, 1));
    table.want(now, &root, vec![want(2, 1 << 20, 1)], Arc::new(Nobody));
    let (at_once, later) = asked_of_first(&mut table);
    assert_eq!((at_once.len(), later.len()), (1, 0), "its sink keeps up");
    drop(waiting);
    let (wanted, cancelled) = table.held_back.let_go(1, held_back);
    assert_eq!((wanted.len(), cancelled.len()), (1, 0));

    let _waiting: Vec<_> = (0..MOST_UNDELIVERED).map(|_| call.one_waits()).collect();
    table.not_brought(now, 1, FIRST_TAG, 256 << 10, Outcome::Cancelled);
    let (_, held_back) = asked_of_first(&mut table);
    table.cancel(now, &[0]);
    let (wanted, cancelled) = table.held_back.let_go(1, held_back);
    assert_eq!((wanted.len(), cancelled.len()), (0, 1), "nobody wants it any more");
}

/// One has the first part of a chunk and another one the rest: neither could bring it, both together can.
#[test]
fn a_chunk_whose_place_is_known_is_put_together_of_what_two_have() {
    let (mut table, now, cut) = (SourceTable::new(0), Duration::ZERO, 100 << 10);
    let data: Vec<u8> = (0..256 << 10).map(|at: u32| (at % 251) as u8).collect();
    let (oid, len) = (Oid::of(b"root"), data.len() as u64);
    for (key, has) in [(1, 0..cut), (2, cut..len)] {
        table.found(now, (0, key), Arc::new(Idle), (0, 1));
        table.answered(now, key as u32, Some(SourceHolding::Parts(vec![has])));
    }
    let id = WantId::Chunk { hash: *Oid::of(&data).digest(), len: len as u32 };
    let request = Request { base: Base::Signature(Vec::new()), is_guess: false, outlines: 0 };
    let base = Some(Arc::new(SignedBase { bytes: Bytes::new(), request }));
    let origin = Some(Origin { oid, offset: 0 });
    table.want(now, &oid, vec![Want { origin, base, ..Want::new(7, id) }], Arc::new(Nobody));
    let asked = |order| match order {
        SourceOrder::Ask { number, wants, .. } => Some((number, wants)),
        _ => None,
    };
    let mut asked: Vec<_> = table.take_orders().into_iter().filter_map(asked).collect();
    asked.sort_by_key(|(number, _)| *number);
    let shape = |(number, wants): &(u32, Vec<Want>)| (*number, wants[0].part.clone(), wants.len());
    assert_eq!(asked.iter().map(shape).collect::<Vec<_>>(), [(1, Some(0..cut), 1), (2, Some(cut..len), 1)]);
    assert!(asked.iter().all(|(_, wants)| wants[0].base.is_none()), "a base is of no use to a part");
    let delivery = |wants: &[Want]| {
        let part = wants[0].part.clone().unwrap();
        let bytes = Bytes::copy_from_slice(&data[part.start as usize..part.end as usize]);
        let (source, timing) = (SourceId::other("one", None), (Instant::now(), Instant::now()));
        Delivery { tag: wants[0].tag, payload: Payload::Bytes(bytes), proof: None, source, timing, saved: 0 }
    };
    assert!(table.arrived(now, 2, delivery(&asked[1].1), len - cut).is_none(), "the rest is missing");
    let (_, whole) = table.arrived(now, 1, delivery(&asked[0].1), cut).unwrap();
    assert!(whole.tag == 7 && *whole.payload.to_bytes(len) == data[..], "all of it");
}

/// Nothing tells where it lies, or it must come from one source: it is asked for whole.
#[test]
fn a_chunk_without_a_place_is_not_cut() {
    let oid = Oid::of(b"root");
    let origin = Some(Origin { oid, offset: 0 });
    for (origin, undivided, asked_of_part) in [(None, false, 0), (origin, true, 0), (origin, false, 1)] {
        let (mut table, now) = (SourceTable::new(0), Duration::ZERO);
        table.found(now, (0, 1), Arc::new(Idle), (0, 1));
        table.answered(now, 1, Some(SourceHolding::Parts(iter::once(0..100 << 10).collect())));
        let id = WantId::Chunk { hash: [1; 32], len: 256 << 10 };
        table.want(now, &oid, vec![Want { origin, undivided, ..Want::new(7, id) }], Arc::new(Nobody));
        assert_eq!(asked_of_first(&mut table).0.len(), asked_of_part, "{origin:?} {undivided}");
    }
}
