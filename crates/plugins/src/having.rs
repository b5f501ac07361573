//! What several plugins have between them.

use std::ops::Range;
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::mpsc;
use towpath_content::Oid;
use towpath_transfer::intervals::Intervals;
use towpath_transfer::{Context, TransferPlugin};

/// Lists of one plugin that wait to be joined with the others'.
const WAITING: usize = 1;

/// Tells what any of `plugins` has of an object, whenever one of them tells something new, until nobody listens or none of them
/// tells any more.
pub(crate) async fn have(
    plugins: &[Arc<dyn TransferPlugin>],
    oid: Oid,
    context: &Context,
    ranges: mpsc::Sender<Vec<Range<u64>>>,
) {
    let (told, mut inbox) = mpsc::channel(WAITING);
    let telling = plugins.iter().enumerate().map(|(number, plugin)| {
        let told = told.clone();
        let (own, mut lists) = mpsc::channel(WAITING);
        let passing = async move {
            while let Some(list) = lists.recv().await {
                // Whoever joins them outlives this.
                let _ = told.send((number, list)).await;
            }
        };
        async move { tokio::join!(plugin.have(oid, context, own), passing) }
    });
    let telling = join_all(telling.collect::<Vec<_>>());
    drop(told);
    let joining = async {
        let mut lists = vec![Vec::new(); plugins.len()];
        let mut last = None;
        while let Some((number, list)) = inbox.recv().await {
            lists[number] = list;
            let all = joined(&lists);
            if last.as_ref() != Some(&all) {
                last = Some(all.clone());
                let _ = ranges.send(all).await;
            }
        }
    };
    tokio::select! {
        _ = async { tokio::join!(telling, joining) } => {}
        () = ranges.closed() => {}
    }
}

/// The runs that lie in any of the lists.
fn joined(lists: &[Vec<Range<u64>>]) -> Vec<Range<u64>> {
    let mut all = Intervals::default();
    lists.iter().flatten().for_each(|run| all.insert(run.clone()));
    all.iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_any_has_is_had_once() {
        assert_eq!(joined(&[vec![0..2, 5..6], vec![1..4], Vec::new()]), [0..4, 5..6]);
        assert_eq!(joined(&[vec![3..3], vec![0..1, 1..2]]), [0..2]);
        assert!(joined(&[]).is_empty());
    }
}
