//! Rules of what happens beside a call: other calls, other roots, hints that change, reports of what was wrong.

use tokio::sync::watch;
use towpath_content::{Hint, NodeId};

use super::ending::{first, join_all};
use super::sinks::SinkRecord;
use super::*;
use towpath_transfer::source_id::SourceId;

/// Long enough for a source to notice something.
const MOMENT: Duration = Duration::from_millis(20);

pub(super) fn rules() -> Vec<SeamRule> {
    vec![
        SeamRule {
            words: "a call whose sink blocks does not hold up another one",
            sizes: &[6 * PIECE, 3 * PIECE],
            needs: Some(Ability::PartCalls),
            check: |bench| Box::pin(slow_call(bench)),
        },
        SeamRule {
            words: "a call that is given up leaves other calls alone",
            sizes: &[8 * PIECE, 8 * PIECE],
            needs: None,
            check: |bench| Box::pin(given_up(bench)),
        },
        SeamRule {
            words: "transfers with roots of their own are served at once",
            sizes: &[3 * PIECE, 2 * PIECE + 1, PIECE],
            needs: None,
            check: |bench| Box::pin(roots(bench)),
        },
        SeamRule {
            words: "hints that change while a call is under way do not end it",
            sizes: &[8 * PIECE],
            needs: None,
            check: |bench| Box::pin(hints(bench)),
        },
        SeamRule {
            words: "a report about a source that the source never had ends no call",
            sizes: &[8 * PIECE],
            needs: None,
            check: |bench| Box::pin(strange_report(bench)),
        },
        SeamRule {
            words: "after a report about its own source each want still ends, under way and asked anew",
            sizes: &[8 * PIECE],
            needs: None,
            check: |bench| Box::pin(own_report(bench)),
        },
    ]
}

async fn slow_call(bench: Bench) {
    let (slow, quick) = (wants(&bench.objects[..1], 1), wants(&bench.objects[1..], 100));
    let record = SinkRecord::with_room(1);
    let beside = async {
        first(&record).await;
        let other = bench.get(quick.clone()).await;
        bench.expect_all(&other, &quick);
        record.release();
    };
    tokio::join!(bench.get_into(slow.clone(), &record), beside);
    bench.expect_all(&record, &slow);
}

async fn given_up(bench: Bench) {
    let (mine, others) = (wants(&bench.objects[..1], 1), wants(&bench.objects[1..], 100));
    let (record, other) = (SinkRecord::with_room(1), SinkRecord::open());
    let giving_up = async {
        tokio::select! {
            () = bench.get_into(mine, &record) => panic!("it cannot be done, the sink blocks"),
            () = first(&record) => {}
        }
    };
    tokio::join!(giving_up, bench.get_into(others.clone(), &other));
    bench.expect_all(&other, &others);
}

async fn roots(bench: Bench) {
    let asking = bench.objects.iter().zip((1..).step_by(100)).map(|(data, tag)| {
        let bench = &bench;
        async move {
            let context = Context { root: Oid::of(data), ..bench.subject.context.clone() };
            let wants = wants(std::slice::from_ref(data), tag);
            let record = SinkRecord::open();
            bench.get_by(&context, wants.clone(), &record).await;
            bench.expect_all(&record, &wants);
        }
    });
    join_all(asking.collect()).await;
}

async fn hints(bench: Bench) {
    let known = bench.subject.context.hints.borrow().clone();
    let (changing, hints) = watch::channel(known.clone());
    let context = Context { hints, ..bench.subject.context.clone() };
    let strange = Hint::new("x-nobody-knows:this", 0, 0).expect("it has a scheme");
    let lists =
        [[vec![strange], known.clone()].concat(), Vec::new(), [known.clone(), known.clone()].concat(), known];
    let all = wants(&bench.objects, 1);
    let record = SinkRecord::with_room(1);
    let changes = async {
        first(&record).await;
        for list in lists {
            changing.send_replace(list);
            tokio::time::sleep(MOMENT).await;
        }
        record.release();
    };
    tokio::join!(bench.get_by(&context, all.clone(), &record), changes);
    bench.expect_all(&record, &all);
    // The list is the last one.
    drop(changing);
    let again = wants(&bench.objects, 100);
    let record = SinkRecord::open();
    bench.get_by(&context, again.clone(), &record).await;
    bench.expect_all(&record, &again);
}

async fn strange_report(bench: Bench) {
    let strangers = [
        SourceId::other("somebody else", None),
        SourceId::other("somebody else", Some("/somewhere")),
        SourceId::peer(NodeId([0xee; 32])),
    ];
    let report = || strangers.iter().for_each(|source| bench.subject.source.report_corrupt(source));
    report();
    let all = wants(&bench.objects, 1);
    let record = SinkRecord::with_room(1);
    let reporting = async {
        first(&record).await;
        report();
        tokio::time::sleep(MOMENT).await;
        record.release();
    };
    tokio::join!(bench.get_into(all.clone(), &record), reporting);
    bench.expect_all(&record, &all);
}

async fn own_report(bench: Bench) {
    let record = bench.get(vec![want(1, &bench.objects[0], 0)]).await;
    let delivery = record.deliveries_of(1).into_iter().next().expect("a piece that is there comes");
    let report = || bench.subject.source.report_corrupt(&delivery.source);
    let all = wants(&bench.objects, 100);
    let record = SinkRecord::with_room(1);
    let reporting = async {
        first(&record).await;
        report();
        // Whoever is blamed twice is no worse.
        report();
        record.release();
    };
    tokio::join!(bench.get_into(all.clone(), &record), reporting);
    let again = wants(&bench.objects, 200);
    let later = bench.get(again.clone()).await;
    for (record, wants) in [(record, all), (later, again)] {
        for want in wants {
            let outcomes = record.outcomes_of(want.tag);
            assert_eq!(record.ends(want.tag), 1, "want {} ended so: {outcomes:?}", want.tag);
        }
    }
}
