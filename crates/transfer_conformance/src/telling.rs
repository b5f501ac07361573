//! Rules of what a source says of itself: its window, its path, and what it has.

use std::ops::Range;

use tokio::sync::mpsc;

use super::sinks::SinkRecord;
use super::*;
use towpath_transfer::intervals::Intervals;
use towpath_transfer::source::PathState;

/// Pause between looks at something that nobody tells.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

pub(super) fn rules() -> Vec<SeamRule> {
    vec![
        SeamRule {
            words: "the window opens again after every call, however it ended",
            sizes: &[8 * PIECE],
            needs: None,
            check: |bench| Box::pin(window(bench)),
        },
        SeamRule {
            words: "its state says whether it proves what it brings, and goes on saying so",
            sizes: &[4 * PIECE],
            needs: None,
            check: |bench| Box::pin(proving(bench)),
        },
        SeamRule {
            words: "the path claims nothing before anything came, and counts no less than it did",
            sizes: &[4 * PIECE],
            needs: None,
            check: |bench| Box::pin(path(bench)),
        },
        SeamRule {
            words: "telling what can be had ends when nobody listens; of what is unknown nothing can be had",
            sizes: &[2 * PIECE],
            needs: None,
            check: |bench| Box::pin(unheard(bench)),
        },
        SeamRule {
            words: "of a whole object all bytes can be had, and none beyond its end",
            sizes: &[5 * PIECE + 1, 0, PIECE],
            needs: Some(Ability::Tell),
            check: |bench| Box::pin(whole(bench)),
        },
    ]
}

impl Bench {
    /// Waits until the source takes more.
    async fn opens(&self) {
        while self.subject.source.state().window == 0 {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// The first list of what can be had of an object, if there is any; then nobody listens.
    pub(super) async fn first_told(&self, oid: Oid) -> Option<Vec<Range<u64>>> {
        let (ranges, mut inbox) = mpsc::channel(1);
        let listening = async {
            let told = inbox.recv().await;
            drop(inbox);
            told
        };
        let telling = self.subject.source.have(oid, &self.subject.context, ranges);
        tokio::join!(telling, listening).1
    }
}

async fn proving(bench: Bench) {
    let (source, proves) = (&bench.subject.source, bench.subject.can(Ability::Prove));
    assert_eq!(source.state().proves, proves, "before anything was asked for");
    let record = bench.get(wants(&bench.objects, 1)).await;
    assert_eq!(source.state().proves, proves, "after it brought something");
    let came: Vec<_> = (1..=4).flat_map(|tag| record.deliveries_of(tag)).collect();
    assert!(came.iter().all(|delivery| delivery.proof.is_some() || !proves), "a piece came without a proof");
}

async fn window(bench: Bench) {
    let source = &bench.subject.source;
    bench.opens().await;
    bench.get(wants(&bench.objects, 1)).await;
    bench.opens().await;
    bench.get(vec![want(50, b"nobody ever put this", 0)]).await;
    bench.opens().await;
    let all = wants(&bench.objects, 100);
    let tags: Vec<Tag> = all.iter().map(|want| want.tag).collect();
    let record = SinkRecord::with_room(1);
    let cancelling = async {
        ending::first(&record).await;
        source.cancel(&tags);
        record.release();
    };
    tokio::join!(bench.get_into(all, &record), cancelling);
    bench.opens().await;
    let record = SinkRecord::with_room(1);
    tokio::select! {
        () = bench.get_into(wants(&bench.objects, 200), &record) => panic!("it cannot be done, the sink blocks"),
        () = ending::first(&record) => {}
    }
    bench.opens().await;
}

async fn path(bench: Bench) {
    let source = &bench.subject.source;
    let PathState { receive_queue, arrived, is_due, .. } = source.state().path;
    assert_eq!((receive_queue, arrived, is_due), (0, 0, false), "nothing was asked for");
    let mut before = 0;
    for first in [1, 100] {
        bench.get(wants(&bench.objects, first)).await;
        let path = source.state().path;
        assert!(path.arrived >= before, "{} bytes arrived after {before}", path.arrived);
        assert!(!path.is_due, "nothing is asked for any more");
        before = path.arrived;
    }
}

async fn unheard(bench: Bench) {
    let (ranges, inbox) = mpsc::channel(1);
    drop(inbox);
    bench.subject.source.have(Oid::of(&bench.objects[0]), &bench.subject.context, ranges).await;
    let told = bench.first_told(Oid::of(b"nobody ever put this")).await;
    assert!(told.iter().flatten().all(Range::is_empty), "{told:?} of what is unknown");
}

/// Adds runs that can be had as well, of an object that is no longer than `most`.
pub(super) fn add_runs(known: &mut Intervals, runs: Vec<Range<u64>>, most: u64) {
    let is_within = runs.iter().all(|run| run.start <= run.end && run.end <= most);
    assert!(is_within, "{runs:?} of {most} bytes");
    runs.into_iter().for_each(|run| known.insert(run));
}

async fn whole(bench: Bench) {
    for data in &bench.objects {
        let (ranges, mut inbox) = mpsc::channel(1);
        let telling = bench.subject.source.have(Oid::of(data), &bench.subject.context, ranges);
        let size = data.len() as u64;
        let listening = async {
            let mut known = Intervals::default();
            loop {
                let told = inbox.recv().await.expect("it tells all that it has");
                add_runs(&mut known, told, size);
                if known.covers(&(0..size)) {
                    return drop(inbox);
                }
            }
        };
        tokio::join!(telling, listening);
    }
}
