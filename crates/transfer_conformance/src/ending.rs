//! Rules of ending: cancellation, calls at once, calls given up.

use super::sinks::SinkRecord;
use super::*;
use towpath_transfer::want::Outcome;

pub(super) fn rules() -> Vec<SeamRule> {
    vec![
        SeamRule {
            words: "after a cancellation each want still ends once, delivered or cancelled",
            sizes: &[12 * PIECE],
            needs: None,
            check: |bench| Box::pin(cancelled(bench)),
        },
        SeamRule {
            words: "others than those named are not cancelled",
            sizes: &[12 * PIECE],
            needs: None,
            check: |bench| Box::pin(others_of_a_call_go_on(bench)),
        },
        SeamRule {
            words: "a cancellation leaves other calls alone",
            sizes: &[8 * PIECE, 8 * PIECE],
            needs: None,
            check: |bench| Box::pin(others_go_on(bench)),
        },
        SeamRule {
            words: "calls run at once",
            sizes: &[4 * PIECE, 3 * PIECE + 1, 0, 17],
            needs: None,
            check: |bench| Box::pin(at_once(bench)),
        },
        SeamRule {
            words: "dropping a call gives it up: no deliveries after, and the source goes on",
            sizes: &[12 * PIECE],
            needs: None,
            check: |bench| Box::pin(dropped(bench)),
        },
        SeamRule {
            words: "tags that have ended can be used again, delivered or cancelled",
            sizes: &[6 * PIECE],
            needs: None,
            check: |bench| Box::pin(again(bench)),
        },
        SeamRule {
            words: "cancelling what has ended, or was never asked for, does nothing",
            sizes: &[4 * PIECE, PIECE],
            needs: None,
            check: |bench| Box::pin(cancelled_late(bench)),
        },
        SeamRule {
            words: "what is postponed says for how long, and comes when it is asked for again",
            sizes: &[12 * PIECE],
            needs: Some(Ability::Postpone),
            check: |bench| Box::pin(postponed(bench)),
        },
    ]
}

/// Waits until something came into `record`.
pub(super) async fn first(record: &SinkRecord) {
    while record.count() == 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn cancelled(bench: Bench) {
    let wants = wants(&bench.objects, 1);
    let tags: Vec<Tag> = wants.iter().map(|want| want.tag).collect();
    let record = SinkRecord::with_room(1);
    let cancelling = async {
        first(&record).await;
        bench.subject.source.cancel(&tags);
        // Again, and of what nobody requested.
        bench.subject.source.cancel(&tags);
        bench.subject.source.cancel(&[u64::MAX]);
        record.release();
    };
    tokio::join!(bench.get_into(wants.clone(), &record), cancelling);
    for want in &wants {
        let outcomes = record.outcomes_of(want.tag);
        assert_eq!(record.ends(want.tag), 1, "want {} ended so: {outcomes:?}", want.tag);
        assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Cancelled), "{outcomes:?}");
    }
}

/// Every other want of a call is cancelled, one after the other.
async fn others_of_a_call_go_on(bench: Bench) {
    let wants = wants(&bench.objects, 1);
    let record = SinkRecord::with_room(1);
    let cancelling = async {
        first(&record).await;
        for want in wants.iter().rev().step_by(2) {
            bench.subject.source.cancel(&[want.tag]);
        }
        record.release();
    };
    tokio::join!(bench.get_into(wants.clone(), &record), cancelling);
    let others: Vec<Want> = wants.iter().rev().skip(1).step_by(2).cloned().collect();
    bench.expect_all(&record, &others);
    for want in &others {
        assert_eq!(record.outcomes_of(want.tag), [], "want {} was not named", want.tag);
    }
}

async fn others_go_on(bench: Bench) {
    let (mine, others) = (wants(&bench.objects[..1], 1), wants(&bench.objects[1..], 100));
    let tags: Vec<Tag> = mine.iter().map(|want| want.tag).collect();
    let (record, other) = (SinkRecord::open(), SinkRecord::open());
    let cancelling = async { bench.subject.source.cancel(&tags) };
    tokio::join!(bench.get_into(mine, &record), bench.get_into(others.clone(), &other), cancelling);
    bench.expect_all(&other, &others);
}

async fn at_once(bench: Bench) {
    let calls = (0..8).map(|call| wants(&bench.objects, 1 + call * 100));
    let asking = calls.map(|wants| {
        let bench = &bench;
        async move {
            let record = bench.get(wants.clone()).await;
            bench.expect_all(&record, &wants);
        }
    });
    join_all(asking.collect()).await;
}

/// Runs futures at once in one task.
pub(super) async fn join_all<F: Future<Output = ()>>(futures: Vec<F>) {
    let mut futures: Vec<_> = futures.into_iter().map(Box::pin).collect();
    std::future::poll_fn(|cx| {
        futures.retain_mut(|future| future.as_mut().poll(cx).is_pending());
        if futures.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

async fn dropped(bench: Bench) {
    let record = SinkRecord::with_room(1);
    tokio::select! {
        () = bench.get_into(wants(&bench.objects, 1), &record) => panic!("it cannot be done, the sink blocks"),
        () = first(&record) => {}
    }
    record.release();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let before = record.count();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(record.count(), before, "deliveries after the call was given up");
    let again = wants(&bench.objects, 1000);
    let record = bench.get(again.clone()).await;
    bench.expect_all(&record, &again);
}

async fn again(bench: Bench) {
    let wants = wants(&bench.objects, 1);
    let tags: Vec<Tag> = wants.iter().map(|want| want.tag).collect();
    for _ in 0..2 {
        let record = bench.get(wants.clone()).await;
        bench.expect_all(&record, &wants);
    }
    let record = SinkRecord::with_room(1);
    let cancelling = async {
        first(&record).await;
        bench.subject.source.cancel(&tags);
        record.release();
    };
    tokio::join!(bench.get_into(wants.clone(), &record), cancelling);
    let record = bench.get(wants.clone()).await;
    bench.expect_all(&record, &wants);
}

async fn cancelled_late(bench: Bench) {
    let (ended, others) = (wants(&bench.objects[..1], 1), wants(&bench.objects[1..], 100));
    // Never asked for, and asked for after it.
    let tags: Vec<Tag> = ended.iter().chain(&others).map(|want| want.tag).chain([0, u64::MAX]).collect();
    bench.subject.source.cancel(&tags);
    let record = bench.get(ended.clone()).await;
    bench.subject.source.cancel(&tags);
    bench.expect_all(&record, &ended);
    let after = bench.get(others.clone()).await;
    bench.expect_all(&after, &others);
    bench.expect_all(&record, &ended);
    for want in &ended {
        assert_eq!(record.ends(want.tag), 1, "want {} has ended before", want.tag);
    }
}

async fn postponed(bench: Bench) {
    let all = wants(&bench.objects, 1);
    let record = SinkRecord::open();
    bench.get_once(&bench.subject.context, all.clone(), &record).await;
    let mut left = all;
    left.retain(|want| match record.outcomes_of(want.tag)[..] {
        [] => false,
        [Outcome::RetryLater(delay)] => {
            assert!(!delay.is_zero() && delay < LIMIT, "{delay:?} is no time to wait");
            true
        }
        ref other => panic!("want {} ended so: {other:?}", want.tag),
    });
    assert!(!left.is_empty(), "it is said to postpone some of them");
    let record = bench.get(left.clone()).await;
    bench.expect_all(&record, &left);
}
