//! When nothing is left that nobody is asked for: a source borrows from the one that will need longest for what it owes. What
//! comes first counts, and the other's want alone is cancelled.
//!
//! Never slower than the best alone: as long as the best of those that have everything could be asked for something that
//! nobody is asked for, nothing is asked for twice.

use super::event::SourceNumber;
use super::runs::{ASKERS, DealtRun, RunId};
use super::sources::DealtSource;
use super::standing::SourceStanding;
use super::state::DealerState;

/// A run is borrowed if it takes less than so many times as long here as it will take there.
const WORTH: f64 = 0.7;
/// The same of a run that two are asked for: the slower one of them is given up.
const WORTH_OF_TWO: f64 = 0.4;
/// Sources that are looked at, and runs of each.
const LENDERS: usize = 4;
const RUNS: usize = 8;
/// Runs that are looked at of those that two are asked for.
const TWICE: usize = 4;

/// A run to borrow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BorrowedRun {
    /// The run.
    pub run: RunId,
    /// Who is given up for it.
    pub instead_of: Option<SourceNumber>,
}

/// The run that a source may borrow.
pub fn borrow(state: &mut DealerState, id: SourceNumber, now: f64) -> Option<BorrowedRun> {
    let borrower = state.sources.get(id)?;
    // Nothing may wait that a new one could be tried with: one run that another brings, too, is no risk.
    let may = match borrower.record.standing() {
        SourceStanding::Good => true,
        SourceStanding::Trying => borrower.outstanding == 0,
        _ => false,
    };
    // What those of a better rank bring is not paid for twice.
    if !may || state.sources.is_behind(id) || is_best_in_want(state, id) {
        return None;
    }
    let mut steps = 0;
    let lenders = state.sources.slowest(LENDERS).filter_map(|lender| state.sources.get(lender));
    let lenders = lenders.inspect(|_| steps += 1).filter(|lender| may_lend(state, lender, borrower, now));
    let lenders: Vec<_> = lenders.collect();
    let runs = lenders.into_iter().flat_map(|lender| lent(lender).take(RUNS));
    // Of those that two are asked for some in turn: both may have become slow.
    let from = state.lots.chance(state.steps) % state.twice.last().map_or(1, |last| last + 1);
    let twice = state.twice.range(from..).chain(state.twice.range(..from)).take(TWICE);
    let found = runs.chain(twice.copied()).find_map(|run| {
        steps += 1;
        let instead_of = worth(state, (id, borrower), state.runs.get(run)?, now)?;
        Some(BorrowedRun { run, instead_of })
    });
    state.steps += steps;
    found
}

/// True if the best of those that have everything could be asked for something, and this is another one.
fn is_best_in_want(state: &DealerState, id: SourceNumber) -> bool {
    let best = state.sources.best_complete().filter(|&best| best != id);
    let best = best.and_then(|best| state.sources.get(best));
    state.lots.has_waiting() && best.is_some_and(|best| best.has_room(1))
}

/// Runs that a source alone is asked for, the last one first.
fn lent(lender: &DealtSource) -> impl Iterator<Item = RunId> + '_ {
    lender.alone.iter().rev().filter_map(|place| lender.queue.get(place)).copied()
}

/// False if the last run of a source would come no sooner here: none of its runs is looked at then, as most are of one size.
fn may_lend(state: &DealerState, lender: &DealtSource, borrower: &DealtSource, now: f64) -> bool {
    let last = lent(lender).next().and_then(|run| state.runs.get(run));
    last.is_some_and(|last| borrower.time_for(now, last.bytes()) < WORTH * lender.left(now))
}

/// Who is given up, if it is worth it: nobody, unless two are asked already.
fn worth(
    state: &DealerState,
    (id, borrower): (SourceNumber, &DealtSource),
    run: &DealtRun,
    now: f64,
) -> Option<Option<SourceNumber>> {
    let is_for_it = borrower.has(&run.range()) && !run.not_at.contains(&id) && !run.is_asked_of(id);
    if !is_for_it || !borrower.has_room(run.bytes()) {
        return None;
    }
    let here = borrower.time_for(now, run.bytes());
    let left =
        |asker: SourceNumber| state.sources.get(asker).map_or(f64::INFINITY, |source| source.left(now));
    let askers = run.askers.iter().map(|asker| (left(asker.source), asker.source));
    let (first, _) = askers.clone().min_by(|a, b| a.0.total_cmp(&b.0))?;
    let (_, slowest) = askers.max_by(|a, b| a.0.total_cmp(&b.0))?;
    if run.askers.len() < ASKERS {
        return (here < WORTH * first).then_some(None);
    }
    (here < WORTH_OF_TWO * first).then_some(Some(slowest))
}
