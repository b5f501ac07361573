//! What several sources have between them.

use std::ops::Range;
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::mpsc;
use towpath_content::Oid;
use towpath_transfer::intervals::Intervals;
use towpath_transfer::{Context, Source};

/// Lists of one source that wait to be joined with the others'.
const WAITING: usize = 1;

/// Tells what any of `sources` has of an object, whenever one of them tells something new, until nobody listens or none of them
/// tells any more.
pub(crate) async fn have(
    sources: &[Arc<dyn Source>],
    oid: Oid,
    context: &Context,
    ranges: mpsc::Sender<Vec<Range<u64>>>,
) {
    let (told, mut inbox) = mpsc::channel(WAITING);
    let telling = sources.iter().map(|source| {
        let told = told.clone();
        let (own, mut lists) = mpsc::channel(WAITING);
        let passing = async move {
            while let Some(list) = lists.recv().await {
                // Whoever joins them outlives this.
                let _ = told.send(list).await;
            }
        };
        async move { tokio::join!(source.have(oid, context, own), passing) }
    });
    let telling = join_all(telling.collect::<Vec<_>>());
    drop(told);
    let joining = async {
        let mut known = Intervals::default();
        let mut is_first = true;
        while let Some(list) = inbox.recv().await {
            let added = new_of(&mut known, list);
            if is_first || !added.is_empty() {
                let _ = ranges.send(added).await;
            }
            is_first = false;
        }
    };
    tokio::select! {
        _ = async { tokio::join!(telling, joining) } => {}
        () = ranges.closed() => {}
    }
}

/// The parts of a list that were not known; now they are.
fn new_of(known: &mut Intervals, list: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let added: Vec<_> = list.iter().flat_map(|run| known.gaps(run)).collect();
    list.into_iter().for_each(|run| known.insert(run));
    added
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_have_is_told_once() {
        let mut known = Intervals::default();
        let runs = |of: &[(u64, u64)]| of.iter().map(|(start, end)| *start..*end).collect::<Vec<_>>();
        let cases = [
            ([(0, 2), (5, 6)], vec![(0, 2), (5, 6)]),
            ([(1, 4), (4, 4)], vec![(2, 4)]),
            ([(0, 6), (9, 9)], vec![(4, 5)]),
            ([(3, 3), (0, 1)], vec![]),
        ];
        for (list, added) in cases {
            assert_eq!(new_of(&mut known, runs(&list)), runs(&added), "{list:?}");
        }
    }
}
