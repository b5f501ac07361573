//! Other ends of requests: full disks, shared content, bounded memory, a session dropped.

use std::sync::Mutex;
use std::sync::atomic::Ordering;

use super::*;

#[tokio::test]
async fn a_full_disk_fails_its_own_object_and_no_other() {
    let shared = pattern(10, 3);
    for data in [pattern(10, 1), pattern(3 * PIECE, 1), shared.clone()] {
        let source = Arc::new(Scripted::new(&[&data, &shared]));
        let (full, good) = (Memory::full(), Memory::new());
        let session = session(&source);
        let (failed, fetched) = tokio::join!(
            fetch(&session, request(Oid::of(&data), &full)),
            fetch(&session, request(Oid::of(&shared), &good)),
        );
        assert!(matches!(failed, Err(FetchError::Write(why)) if why.kind() == io::ErrorKind::StorageFull));
        fetched.unwrap();
        full.expect_incomplete();
        good.expect(&shared);
    }
}

#[tokio::test]
async fn the_same_content_wanted_twice_is_fetched_once() {
    for len in [0, 7, 3 * PIECE] {
        let data = pattern(len, 1);
        // The first answer leaves time for the second request.
        let later = Act::End(Outcome::RetryLater(Duration::from_millis(200)));
        let script = move |_: &crate::Want, before| if before == 0 { later.clone() } else { Act::Good };
        let source = Arc::new(Scripted::new(&[&data]).script(script));
        let (one, two) = (Memory::new(), Memory::new());
        let session = session(&source);
        let (first, second) = tokio::join!(
            fetch(&session, ObjectRequest { size: Some(len as u64), ..request(Oid::of(&data), &one) }),
            fetch(&session, ObjectRequest { size: Some(len as u64), ..request(Oid::of(&data), &two) }),
        );
        first.unwrap();
        second.unwrap();
        one.expect(&data);
        two.expect(&data);
        assert_eq!(source.requested.lock().unwrap().len(), 2 * len.div_ceil(PIECE).max(1));
        let counters = session.progress().snapshot();
        assert_eq!((counters.done, counters.expected), (2 * len as u64, 2 * len as u64));
        assert_eq!(counters.by_source.values().sum::<u64>(), len as u64);
    }
}

/// The second request came while the first one's bytes were being written; it was then told that
/// it was complete, with nothing in its target.
#[tokio::test]
async fn content_wanted_again_while_it_is_being_written_reaches_both_targets() {
    for len in [7, 3 * PIECE] {
        let data = pattern(len, 1);
        let source = Arc::new(Scripted::new(&[&data]));
        let (slow, late) = (Memory::held(), Memory::new());
        let session = session(&source);
        let expected = || session.progress().snapshot().expected;
        let sized = |target| ObjectRequest { size: Some(len as u64), ..request(Oid::of(&data), target) };
        let writing = async {
            // The first delivery is at the target that waits.
            until("a write", || slow.writes.load(Ordering::SeqCst) > 0).await;
            let late_one = fetch(&session, sized(&late));
            let release = async {
                until("the second request", || expected() == 2 * len as u64).await;
                slow.release();
            };
            tokio::join!(late_one, release).0
        };
        let (first, second) = tokio::join!(fetch(&session, sized(&slow)), writing);
        first.unwrap();
        second.unwrap();
        slow.expect(&data);
        late.expect(&data);
    }
}

#[tokio::test]
async fn no_more_is_delivered_than_the_buffer_holds() {
    let data = pattern(40 * PIECE, 1);
    let source = Arc::new(Scripted::new(&[&data]));
    let target = Memory::held();
    let config =
        SessionConfig { buffer_bytes: 4 * PIECE as u32, batch_bytes: PIECE as u64, calls: 40, ..config() };
    let session = Session::start(source.clone(), context(Oid::of(&data)), config);
    let watching = async {
        let waiting = || source.in_delivery.load(Ordering::SeqCst);
        until("a full buffer", || source.requested.lock().unwrap().len() == 40 && waiting() == 36).await;
        let more = until("a change", || waiting() != 36);
        assert!(
            tokio::time::timeout(Duration::from_millis(50), more).await.is_err(),
            "the sink took no more"
        );
        target.release();
    };
    let (fetched, ()) = tokio::join!(fetch(&session, request(Oid::of(&data), &target)), watching);
    fetched.unwrap();
    target.expect(&data);
}

#[tokio::test]
async fn more_objects_than_may_be_in_flight_wait_their_turn() {
    let objects: Vec<_> = (0..100u8).map(|seed| pattern(3, seed)).collect();
    let source = Arc::new(Scripted::new(&objects.iter().map(|data| &data[..]).collect::<Vec<_>>()));
    let session = Session::start(source, context(Oid::of(b"")), SessionConfig { objects: 3, ..config() });
    let targets: Vec<_> = objects.iter().map(|_| Memory::new()).collect();
    let ended = Arc::new(Mutex::new(0));
    for (data, target) in objects.iter().zip(&targets) {
        let ended = Arc::clone(&ended);
        let on_done = move |result: Result<Fetched, FetchError>| {
            result.unwrap();
            *ended.lock().unwrap() += 1;
        };
        session.submit(request(Oid::of(data), target), Box::new(on_done)).await;
    }
    until("all of them", || *ended.lock().unwrap() == 100).await;
    objects.iter().zip(&targets).for_each(|(data, target)| target.expect(data));
}

#[tokio::test]
async fn many_objects_at_once_wait_their_turn_too() {
    for objects in [1, 3, 2048] {
        let data: Vec<_> = (0..200u8).map(|seed| pattern(3, seed)).collect();
        let source = Arc::new(Scripted::new(&data.iter().map(|data| &data[..]).collect::<Vec<_>>()));
        let session = Session::start(source, context(Oid::of(b"")), SessionConfig { objects, ..config() });
        let targets: Vec<_> = data.iter().map(|_| Memory::new()).collect();
        let ended = Arc::new(Mutex::new(0));
        let requests = data.iter().zip(&targets).map(|(data, target)| {
            let ended = Arc::clone(&ended);
            let on_done: OnDone = Box::new(move |result| {
                result.unwrap();
                *ended.lock().unwrap() += 1;
            });
            (ObjectRequest { size: Some(3), ..request(Oid::of(data), target) }, on_done)
        });
        session.submit_all(requests.collect::<Vec<_>>()).await;
        until("all of them", || *ended.lock().unwrap() == 200).await;
        data.iter().zip(&targets).for_each(|(data, target)| target.expect(data));
    }
}

#[tokio::test]
async fn dropping_the_session_ends_its_requests_calls_and_workers() {
    let data = pattern(3 * PIECE, 1);
    let source = Arc::new(Scripted::new(&[&data]).script(|_, _| Act::Hang));
    let (target, session) = (Memory::new(), session(&source));
    let results = Arc::new(Mutex::new(Vec::new()));
    let note = || {
        let results = Arc::clone(&results);
        Box::new(move |result| results.lock().unwrap().push(result))
    };
    session.submit(request(Oid::of(&data), &target), note()).await;
    until("a call", || !source.requested.lock().unwrap().is_empty()).await;
    // One that the actor has not even seen.
    session.submit(request(Oid::of(&data), &target), note()).await;
    drop(session);
    until("both ends", || results.lock().unwrap().len() == 2).await;
    assert!(results.lock().unwrap().iter().all(|result| matches!(result, Err(FetchError::Cancelled))));
    until("nobody holds the target or the source", || {
        Arc::strong_count(&target) == 1 && Arc::strong_count(&source) == 1
    })
    .await;
}
