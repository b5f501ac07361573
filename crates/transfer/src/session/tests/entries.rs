//! Entries that are asked for by their numbers: which are asked for together, what comes of a call that is lost, and what their
//! targets get, one thing after the other.

use std::sync::Mutex;
use std::sync::mpsc as threads;

use bytes::Bytes;
use tokio::sync::watch;
use towpath_content::delta::exchange::{Base, DeltaRun, DeltaStep, MAX_SIGNATURE_LEN, NextSignature};

use super::entry_doubles::*;
use super::*;
use crate::offer::{EntryBody, EntryQuery, EntrySink};
use crate::session::EntryNext;
use crate::want::Tag;

/// Two ends: a script that waits, and what lets it go on.
fn gate() -> (threads::Sender<()>, impl Fn() + Send) {
    let (open, opened) = threads::channel();
    (open, move || opened.recv_timeout(LIMIT).expect("a gate stays closed"))
}

#[tokio::test]
async fn entries_are_asked_for_in_their_order_as_many_together_as_a_call_takes() {
    let mut bench = Bench::new();
    bench.submit((0..600).map(query)).await;
    for entries in [0..256, 256..512, 512..600] {
        assert_eq!(bench.call().await.entries(), entries.collect::<Vec<_>>());
    }
    let signed = |entry, len| based(entry, Base::Signature(vec![0; len]));
    let mixed = [
        query(0),
        EntryQuery { compare: true, ..query(1) },
        EntryQuery { inline: 7, ..query(2) },
        EntryQuery { inline: 7, pack: 3, ..query(3) },
        EntryQuery { inline: 7, pack: 3, ..query(4) },
        signed(5, MAX_SIGNATURE_LEN),
        query(6),
        signed(7, 100 << 10),
        signed(8, 92 << 10),
        signed(9, 1),
    ];
    bench.submit(mixed).await;
    for entries in [&[0, 1][..], &[2], &[3, 4], &[5], &[6, 7, 8], &[9]] {
        assert_eq!(bench.call().await.entries(), entries);
    }
}

#[tokio::test]
async fn no_more_calls_are_under_way_than_a_source_should_bear() {
    let mut bench = Bench::new();
    // Each needs a call of its own.
    bench.submit((0..60).map(|entry| EntryQuery { pack: entry as u32 % 2, ..query(entry) })).await;
    let mut calls = Vec::new();
    while calls.len() < 40 {
        calls.push(bench.call().await);
    }
    calls[5].outcome(0, Outcome::NotHere);
    bench.expect(5, Came::Ended(Outcome::NotHere)).await;
    bench.expect_no_call();
    calls.swap_remove(5).end.send(Vec::new()).unwrap();
    assert_eq!(bench.call().await.entries(), [40]);
}

#[tokio::test]
async fn an_entry_is_over_when_its_target_says_so() {
    let mut bench = Bench::new();
    bench.submit((0..3).map(query)).await;
    let call = bench.call().await;
    call.sink.outcome(call.tags()[1], Outcome::Gone);
    bench.expect(1, Came::Ended(Outcome::Gone)).await;
    let whole = || EntryBody::Whole(Bytes::from_static(b"whole"));
    let contents = [0, 2].map(|at| (call.tags()[at], content(at as u64 + 10, whole())));
    call.sink.contents(contents.to_vec(), 10).await;
    let mut came = [bench.came().await, bench.came().await];
    came.sort_by_key(|(entry, _)| *entry);
    assert_eq!(came, [(0, Came::Content(10)), (2, Came::Content(12))]);
    assert!(call.end.send(Vec::new()).is_ok(), "the call goes on until its source ends it");
}

#[tokio::test]
async fn what_a_lost_way_did_not_answer_is_asked_again_and_what_comes_late_is_left() {
    let mut bench = Bench::new();
    bench.submit([query(0)]).await;
    let lost = bench.call().await;
    lost.asked();
    lost.outcome(0, Outcome::RetryLater(Duration::ZERO));
    lost.content(0, 1, EntryBody::Named).await;
    let call = bench.call().await;
    assert_eq!(call.entries(), [0]);
    assert_ne!(call.tags(), lost.tags());
    // Neither a content nor an end of the call before is this one's.
    lost.content(0, 2, EntryBody::Named).await;
    lost.outcome(0, Outcome::Gone);
    let (tag, sink) = (lost.tags()[0], Arc::clone(&lost.sink));
    lost.end.send(Vec::new()).unwrap();
    sink.contents(vec![(tag, content(3, EntryBody::Named))], 0).await;
    call.content(0, 4, EntryBody::Named).await;
    bench.expect(0, Came::Content(4)).await;
}

#[tokio::test]
async fn one_content_comes_of_each_want() {
    let mut bench = Bench::new();
    let request = bench.request(query(0), |came, _| match came {
        Came::Content(_) => EntryNext::More,
        _ => EntryNext::Over,
    });
    bench.session.submit_entries(vec![request]).await;
    let call = bench.call().await;
    // No run comes before it.
    call.run(0, &DeltaRun::More(b"early")).await;
    call.content(0, 1, in_parts()).await;
    call.content(0, 2, in_parts()).await;
    call.run(0, &DeltaRun::GivenUp).await;
    bench.expect(0, Came::Content(1)).await;
    bench.expect(0, Came::Run(DeltaRun::GivenUp.to_bytes().into())).await;
}

#[tokio::test]
async fn those_that_could_not_be_asked_for_are_asked_for_again_in_their_order() {
    let mut bench = Bench::new();
    bench.submit((0..4).map(query)).await;
    let Call { mut wants, sink, end } = bench.call().await;
    sink.outcome(wants[2].tag, Outcome::NotHere);
    bench.expect(2, Came::Ended(Outcome::NotHere)).await;
    wants.reverse();
    end.send(wants).unwrap();
    assert_eq!(bench.call().await.entries(), [0, 1, 3]);
}

#[tokio::test]
async fn entries_end_when_there_was_no_way_to_ask_for_too_long() {
    let wait_limit = Duration::from_millis(300);
    let ledger = LedgerConfig { wait_limit, ..config().ledger };
    let mut bench = Bench::with(Arc::new(Scripted::new(&[])), SessionConfig { ledger, ..config() });
    bench.submit([query(1), query(2)]).await;
    let waited = loop {
        tokio::select! {
            Some(call) = bench.calls.recv() => drop(call.end.send(call.wants)),
            Some((_, Came::Ended(Outcome::RetryLater(waited)))) = bench.came.recv() => break waited,
        }
    };
    assert!(waited >= wait_limit, "{waited:?}");
    assert!(matches!(bench.came().await, (2, Came::Ended(Outcome::RetryLater(_)))));
}

#[tokio::test]
async fn a_source_that_forgets_entries_does_not_hang_the_session() {
    let mut bench = Bench::new();
    bench.submit((0..2).map(query)).await;
    let call = bench.call().await;
    call.content(0, 5, EntryBody::Named).await;
    bench.expect(0, Came::Content(5)).await;
    call.end.send(Vec::new()).unwrap();
    assert_eq!(bench.call().await.entries(), [1]);
}

#[tokio::test]
async fn runs_come_in_their_order_however_long_a_target_takes() {
    let mut bench = Bench::new();
    let (open, wait) = gate();
    let last = DeltaRun::Last(DeltaStep::Patch, b"end").to_bytes();
    let request = bench.request(query(0), move |came, _| match came {
        Came::Content(_) => {
            wait();
            EntryNext::More
        }
        Came::Run(run) if **run == *last => EntryNext::Over,
        _ => EntryNext::More,
    });
    bench.session.submit_entries(vec![request]).await;
    let call = bench.call().await;
    call.content(0, 9, in_parts()).await;
    for number in 0..50 {
        call.run(0, &DeltaRun::More(&[number])).await;
    }
    call.run(0, &DeltaRun::Last(DeltaStep::Patch, b"end")).await;
    open.send(()).unwrap();
    bench.expect(0, Came::Content(9)).await;
    for number in 0..50 {
        bench.expect(0, Came::Run(DeltaRun::More(&[number]).to_bytes().into())).await;
    }
    bench.expect(0, Came::Run(DeltaRun::Last(DeltaStep::Patch, b"end").to_bytes().into())).await;
}

#[tokio::test]
async fn a_target_is_told_when_no_more_runs_come() {
    for (outcome, expected) in [
        (Some(Outcome::SourceChanged), Outcome::SourceChanged),
        (Some(Outcome::RetryLater(LIMIT)), Outcome::RetryLater(LIMIT)),
        (None, Outcome::RetryLater(Duration::ZERO)),
    ] {
        let mut bench = Bench::new();
        // One that still waits for more is over all the same, and leaves its slot.
        let request = bench.request(query(0), |_, _| EntryNext::More);
        bench.session.submit_entries(vec![request]).await;
        let call = bench.call().await;
        call.content(0, 9, in_parts()).await;
        bench.expect(0, Came::Content(9)).await;
        outcome.into_iter().for_each(|outcome| call.outcome(0, outcome));
        call.end.send(Vec::new()).unwrap();
        bench.expect(0, Came::Ended(expected)).await;
        until("its slot is free", || bench.session.slots.available_permits() == config().objects).await;
    }
}

#[tokio::test]
async fn signatures_that_were_promised_follow_the_question() {
    let mut bench = Bench::new();
    let parts = |ahead| Base::Parts { count: 9, ahead };
    let queries = [query(0), based(1, parts(2)), based(2, Base::Named(Oid::of(b"")))];
    let requests = queries.map(|query| {
        bench.request(query, |came, send| {
            let mut signed = |byte| send(&NextSignature::Signed(vec![byte]));
            match came {
                Came::Asked => [1, 2].into_iter().for_each(&mut signed),
                Came::Content(_) => return EntryNext::More,
                Came::Run(_) => [3, 4].into_iter().for_each(&mut signed),
                Came::Ended(_) => {}
            }
            EntryNext::Over
        })
    });
    bench.session.submit_entries(requests.into()).await;
    let call = bench.call().await;
    let mut signatures = call.asked();
    bench.expect(1, Came::Asked).await;
    for at in 0..3 {
        call.content(at, at as u64, in_parts()).await;
        bench.expect(at as u64, Came::Content(at as u64)).await;
    }
    call.run(2, &WANTS_TWO).await;
    bench.expect(2, Came::Run(WANTS_TWO.to_bytes().into())).await;
    for (at, byte) in [(1, 1), (1, 2), (2, 3), (2, 4)] {
        assert_eq!(signature(&mut signatures).await, (call.tags()[at], NextSignature::Signed(vec![byte])));
    }
    assert!(signatures.try_recv().is_err());
}

#[tokio::test]
async fn signatures_that_runs_of_one_that_is_gone_want_are_given_up() {
    let mut bench = Bench::new();
    let (open, wait) = gate();
    let request = bench.request(query(0), move |_, _| {
        wait();
        EntryNext::Over
    });
    bench.session.submit_entries(vec![request]).await;
    let call = bench.call().await;
    let mut signatures = call.asked();
    call.content(0, 9, in_parts()).await;
    // One that waits for the target, and one for nobody.
    call.run(0, &WANTS_TWO).await;
    call.run(0, &DeltaRun::More(b"")).await;
    open.send(()).unwrap();
    bench.expect(0, Came::Content(9)).await;
    for _ in 0..2 {
        assert_eq!(signature(&mut signatures).await, (call.tags()[0], NextSignature::GivenUp));
    }
    call.run(0, &WANTS_TWO).await;
    for _ in 0..2 {
        assert_eq!(signature(&mut signatures).await, (call.tags()[0], NextSignature::GivenUp));
    }
    assert!(signatures.try_recv().is_err());
}

#[tokio::test]
async fn signatures_that_were_promised_are_given_up_when_their_question_is_refused_first() {
    let mut bench = Bench::new();
    let (open, wait) = gate();
    let parts = |ahead| based(0, Base::Parts { count: 9, ahead });
    let request = bench.request(parts(1), move |_, _| {
        wait();
        EntryNext::More
    });
    bench.session.submit_entries(vec![request]).await;
    let retry = Outcome::RetryLater(Duration::ZERO);
    // The target is still at the first question when the second one is refused.
    let first = bench.call().await;
    first.asked();
    first.outcome(0, retry.clone());
    let second = bench.call().await;
    let mut signatures = second.asked();
    second.outcome(0, retry);
    assert_eq!(signature(&mut signatures).await, (second.tags()[0], NextSignature::GivenUp));
    open.send(()).unwrap();
    bench.expect(0, Came::Asked).await;
}

#[tokio::test]
async fn an_entry_that_is_fetched_by_its_name_leaves_its_slot_to_the_object() {
    let data = pattern(3 * PIECE, 1);
    let (go, held) = watch::channel(0);
    let script = move |_: &crate::Want, _| Act::Once(held.clone(), 1, Box::new(Act::Good));
    let source = Arc::new(Scripted::new(&[&data]).script(script));
    let mut bench = Bench::with(source.clone(), SessionConfig { objects: 1, ..config() });
    let (target, (done, mut fetched)) = (Memory::new(), oneshot::channel());
    let object = request(Oid::of(&data), &target);
    let on_done: OnDone = Box::new(move |result| drop(done.send(result)));
    let mut fetch = Some(Box::new((object, on_done)));
    let fetching = bench.request(query(0), move |_, _| EntryNext::Fetch(fetch.take().unwrap()));
    let last = bench.request(query(1), |_, _| EntryNext::Over);
    bench.session.submit_entries(vec![fetching]).await;
    let call = bench.call().await;
    call.content(0, data.len() as u64, EntryBody::Named).await;
    bench.expect(0, Came::Content(data.len() as u64)).await;
    until("a piece is asked for", || !source.requested.lock().unwrap().is_empty()).await;
    let waiting = tokio::time::timeout(Duration::ZERO, bench.session.submit_entries(vec![last]));
    assert!(waiting.await.is_err(), "there is one slot");
    go.send_replace(1);
    tokio::time::timeout(LIMIT, &mut fetched).await.unwrap().unwrap().unwrap();
    target.expect(&data);
    bench.submit([query(2)]).await;
    assert_eq!(bench.call().await.entries(), [2]);
}

#[tokio::test]
async fn an_entry_may_be_asked_for_once_more_with_another_question() {
    let mut bench = Bench::with(Arc::new(Scripted::new(&[])), SessionConfig { objects: 1, ..config() });
    let request = bench.request(query(7), |came, _| match came {
        Came::Content(1) => EntryNext::Again(EntryQuery { compare: true, pack: 3, ..query(7) }),
        _ => EntryNext::Over,
    });
    bench.session.submit_entries(vec![request]).await;
    let first = bench.call().await;
    let mut signatures = first.asked();
    first.content(0, 1, in_parts()).await;
    bench.expect(7, Came::Content(1)).await;
    let again = bench.call().await;
    assert_eq!(*again.wants[0].query, EntryQuery { compare: true, pack: 3, ..query(7) });
    // What the first question still brings is nobody's.
    first.run(0, &WANTS_TWO).await;
    assert_eq!(signature(&mut signatures).await, (first.tags()[0], NextSignature::GivenUp));
    first.end.send(Vec::new()).unwrap();
    again.content(0, 2, EntryBody::Named).await;
    bench.expect(7, Came::Content(2)).await;
    bench.submit([query(8)]).await;
    assert_eq!(bench.call().await.entries(), [8]);
}

/// Which of two messages the sink has taken.
async fn takes(sink: &Arc<dyn EntrySink>, tag: Tag, kept: usize) -> tokio::task::JoinHandle<()> {
    let sink = Arc::clone(sink);
    let task = tokio::spawn(async move {
        sink.contents(vec![(tag, content(kept as u64, EntryBody::Named))], kept).await;
    });
    tokio::task::yield_now().await;
    task
}

#[tokio::test]
async fn no_more_is_taken_of_a_source_than_there_is_room_for() {
    const ROOM: usize = 8 << 20;
    let mut bench = Bench::new();
    let (open, wait) = gate();
    let wait = Arc::new(Mutex::new(wait));
    let requests = (0..4).map(|entry| {
        let wait = Arc::clone(&wait);
        bench.request(query(entry), move |_, _| {
            wait.lock().unwrap()();
            EntryNext::Over
        })
    });
    bench.session.submit_entries(requests.collect()).await;
    let call = bench.call().await;
    // The two share the room of their message.
    let two = [0, 1].map(|at| (call.tags()[at], content(at as u64, EntryBody::Named)));
    call.sink.contents(two.to_vec(), ROOM - 10).await;
    let small = takes(&call.sink, call.tags()[2], 10).await;
    assert!(small.is_finished());
    let large = takes(&call.sink, call.tags()[3], 10 * ROOM).await;
    for _ in 0..3 {
        assert!(!large.is_finished(), "it needs all of the room");
        open.send(()).unwrap();
        bench.came().await;
    }
    open.send(()).unwrap();
    bench.expect(3, Came::Content(10 * ROOM as u64)).await;
    assert!(large.is_finished());
}

#[tokio::test]
async fn without_anybody_who_offers_nothing_is_here() {
    let mut bench = Bench::new();
    bench.session = session(&Arc::new(Scripted::new(&[])));
    bench.submit([query(3)]).await;
    bench.expect(3, Came::Ended(Outcome::NotHere)).await;
}

#[tokio::test]
async fn a_session_that_ends_drops_its_entries_and_its_calls() {
    let mut bench = Bench::new();
    bench.submit((0..3).map(query)).await;
    let mut call = bench.call().await;
    drop((bench.session, bench.notes));
    let ended = async {
        call.end.closed().await;
        assert_eq!(bench.came.recv().await, None, "the targets are gone, and were told nothing");
    };
    tokio::time::timeout(LIMIT, ended).await.unwrap();
}
