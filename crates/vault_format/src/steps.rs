//! Steps of an update: how long they are, and how they are kept short.

use crate::{Tuple, UpdateAction};

/// Bytes of steps of one file in one update, about: with those of others below what a server takes.
pub const STEPS: usize = 3 << 20;
/// Runs of one step, so that steps are not too long either.
const RUNS: usize = 16_384;

/// A step that puts runs at `at`, as several that do the same.
pub fn insertions(mut at: u64, tuples: &[Tuple]) -> Vec<UpdateAction> {
    let steps = tuples.chunks(RUNS).map(|some| {
        let step = UpdateAction::Insert { at, tuples: some.to_vec() };
        at += some.iter().map(|tuple| tuple.length).sum::<u64>();
        step
    });
    steps.collect()
}

/// Bytes of steps and of the list of their blocks, about.
pub fn cost_of(actions: &[UpdateAction]) -> usize {
    actions.iter().map(|action| 32 + tuples_of(action).iter().map(cost_of_run).sum::<usize>()).sum()
}

/// Bytes that a run adds to a step and to the list of blocks, about.
pub fn cost_of_run(tuple: &Tuple) -> usize {
    16 + 96 * tuple.chain.len()
}

fn tuples_of(action: &UpdateAction) -> &[Tuple] {
    match action {
        UpdateAction::Insert { tuples, .. } | UpdateAction::Replace { tuples } => tuples,
        UpdateAction::Delete { .. } | UpdateAction::Remove => &[],
    }
}
