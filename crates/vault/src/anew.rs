//! Which old chunks a put writes anew, though they are as they were: their blocks have patches, or bytes that nobody needs.
//!
//! They are read from what is put, which this machine has, so nothing is fetched for it.

use std::collections::BTreeSet;

use towpath_vault_difference::difference::ChangedRun;
use towpath_vault_format::defragmentation::{DefragmentationPlan, LinkCosts, plan};
use towpath_vault_format::tree::TupleWalk;
use towpath_vault_format::{FileRoot, Tuple};

use crate::reader::{CachedNodes, FileReader};
use towpath_vault_difference::chunk_list::ChunkList;

/// Longer files are not looked through.
const MOST_RUNS: u64 = 1 << 16;

/// A run of chunks that is not as it was, or is to be written anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedRun {
    /// Old chunks, and new ones in their place.
    pub run: ChangedRun,
    /// True if they are the same.
    pub is_anew: bool,
}

/// What is to be written anew of a file, of which this machine has the tree; `None`: it has not, or the file is too long.
pub fn defragmentation(
    reader: &FileReader<'_>,
    root: &FileRoot,
    costs: &LinkCosts,
) -> Option<DefragmentationPlan> {
    let source = CachedNodes(reader.nodes);
    let walk = TupleWalk::new(&source, reader.degree, root, 0..root.length, MOST_RUNS);
    let is_wasteful = |(_, run): &(u64, Tuple)| run.chain.len() > 1 || run.excess() > 0;
    let wasteful = walk.filter(|run| run.as_ref().map_or(true, is_wasteful));
    Some(plan(&wasteful.collect::<Result<Vec<_>, _>>().ok()?, costs))
}

/// The changes, and between them those of the old `chunks` that are to be written anew.
pub fn with_rewrites(
    changes: Vec<ChangedRun>,
    chunks: &ChunkList,
    planned: &DefragmentationPlan,
) -> Vec<PlannedRun> {
    let mut chosen = chosen(chunks, planned);
    let (mut runs, mut behind) = (Vec::with_capacity(changes.len() + chosen.len()), (0, 0));
    let rewrite = |at: usize, (old, new): (usize, usize)| {
        let new = new + at - old;
        PlannedRun { run: ChangedRun { old: at..at + 1, new: new..new + 1 }, is_anew: true }
    };
    for run in changes {
        let later = chosen.split_off(&run.old.start);
        runs.extend(chosen.into_iter().map(|at| rewrite(at, behind)));
        chosen = later;
        chosen.retain(|at| *at >= run.old.end);
        behind = (run.old.end, run.new.end);
        runs.push(PlannedRun { run, is_anew: false });
    }
    runs.extend(chosen.into_iter().map(|at| rewrite(at, behind)));
    runs
}

/// Numbers of the chunks that lie in what is to be written anew.
fn chosen(chunks: &ChunkList, planned: &DefragmentationPlan) -> BTreeSet<usize> {
    let within = |at: u64, end: u64| {
        let last = starts_before(chunks, end.saturating_add(1)).saturating_sub(1);
        starts_before(chunks, at)..last
    };
    planned.rewrites.iter().flat_map(|stretch| within(stretch.at, stretch.at + stretch.length)).collect()
}

/// How many of the places where chunks begin, and the end of the last one, lie before `at`.
fn starts_before(chunks: &ChunkList, at: u64) -> usize {
    let (mut low, mut high) = (0, chunks.chunks().len() + 1);
    while low < high {
        let middle = low.midpoint(high);
        match chunks.start(middle) < at {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use towpath_vault_difference::chunk_list::{ChunkSummary, PlainHash};
    use towpath_vault_format::RewrittenStretch;

    fn list(hashes: &[u8], length: u32) -> ChunkList {
        hashes.iter().map(|hash| ChunkSummary { hash: PlainHash([*hash; 16]), length }).collect()
    }

    fn planned(stretches: &[(u64, u64)]) -> DefragmentationPlan {
        let rewrites = stretches.iter().map(|(at, length)| RewrittenStretch { at: *at, length: *length });
        DefragmentationPlan { rewrites: rewrites.collect(), ..DefragmentationPlan::default() }
    }

    #[test]
    fn chunks_that_stay_are_written_anew_where_they_are_now() {
        let chunks = list(&[1, 2, 3, 4, 5], 10);
        // One chunk comes in front, the third goes.
        let changes = vec![ChangedRun { old: 0..0, new: 0..1 }, ChangedRun { old: 2..3, new: 3..3 }];
        let runs = with_rewrites(changes.clone(), &chunks, &planned(&[(10, 20), (40, 10)]));
        let rewritten = |old: usize, new: usize| PlannedRun {
            run: ChangedRun { old: old..old + 1, new: new..new + 1 },
            is_anew: true,
        };
        let changed = |run: &ChangedRun| PlannedRun { run: run.clone(), is_anew: false };
        let expected = [changed(&changes[0]), rewritten(1, 2), changed(&changes[1]), rewritten(4, 4)];
        assert_eq!(runs, expected);
        assert_eq!(
            with_rewrites(Vec::new(), &chunks, &planned(&[(5, 10), (45, 100)])),
            [],
            "parts of chunks stay"
        );
    }

    proptest! {
        #[test]
        fn the_new_sequence_is_the_same(
            old in prop::collection::vec(0..6u8, 0..30),
            new in prop::collection::vec(0..6u8, 0..30),
            chosen in prop::collection::btree_set(0..30u64, 0..10),
        ) {
            let changes = towpath_vault_difference::difference::difference(&old, &new);
            let chunks = list(&old, 1);
            let stretches: Vec<_> = chosen.into_iter().filter(|at| *at < old.len() as u64).map(|at| (at, 1)).collect();
            let (mut made, mut at) = (Vec::new(), 0);
            for PlannedRun { run, is_anew } in with_rewrites(changes, &chunks, &planned(&stretches)) {
                prop_assert!(run.old.start >= at && (!is_anew || old[run.old.clone()] == new[run.new.clone()]));
                made.extend_from_slice(&old[at..run.old.start]);
                prop_assert_eq!(made.len(), run.new.start);
                made.extend_from_slice(&new[run.new]);
                at = run.old.end;
            }
            made.extend_from_slice(&old[at..]);
            prop_assert_eq!(made, new);
        }
    }
}
