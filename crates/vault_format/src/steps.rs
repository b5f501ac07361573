//! Steps of an update: how long they are, and how they are kept short.

use crate::update::{MAX_ACTIONS, MAX_UPDATE};
use crate::{Tuple, UpdateAction};

/// Bytes of steps of the content of an entry in one update, about, and of each of two files that describe it: together below what a server
/// takes.
pub const CONTENT_STEPS: usize = 23 << 18;
/// The same of a file that describes others.
pub const DESCRIBING_STEPS: usize = 1 << 20;
const _: () = assert!(CONTENT_STEPS + 2 * DESCRIBING_STEPS < MAX_UPDATE);
/// The most steps of one file in one update.
const MOST_ACTIONS: usize = MAX_ACTIONS - MAX_ACTIONS / 8;
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

/// True if steps and the list of their blocks are at most so many bytes, about, and not too many.
pub fn are_few(actions: &[UpdateAction], bytes: usize) -> bool {
    let cost: usize = actions.iter().map(cost_of).sum();
    cost <= bytes && actions.len() <= MOST_ACTIONS
}

fn cost_of(action: &UpdateAction) -> usize {
    match action {
        UpdateAction::Insert { tuples, .. } | UpdateAction::Replace { tuples } => {
            16 + tuples.iter().map(cost_of_run).sum::<usize>()
        }
        UpdateAction::Delete { .. } | UpdateAction::Remove | UpdateAction::Patch { .. } => {
            16 + 96 * action.blocks().count()
        }
    }
}

/// Bytes that a run adds to a step and to the list of blocks, about.
pub fn cost_of_run(tuple: &Tuple) -> usize {
    48 + 56 * tuple.chain.len()
}
