//! Which run a source is asked for: of what waits and it has, that which would otherwise come last.
//!
//! With many equal sources this is what the fewest have. With one that has everything and others it is what it alone has, and
//! of the rest that which a slow one would bring.

use super::event::SourceNumber;
use super::rarity::{Lot, RARITIES};
use super::runs::{DealtRun, RUN, RunId};
use super::sources::DealtSource;
use super::state::DealerState;

/// Runs of a lot that are looked at for one that the source has.
const RUNS_LOOKED_AT: usize = 8;
/// What can be expected elsewhere after so many times as long as all is expected to take is as late as what can't be expected.
const LATE: f64 = 8.0;

/// A run that a source may be asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChosenRun {
    /// The run.
    pub run: RunId,
    /// Seconds until others would have brought it, when each is busy until the end.
    pub elsewhere: f64,
}

/// Time at which a lot's bytes can be expected without a certain source.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Elsewhere {
    /// Seconds by what its holders owe and will have to bring: decides which lot comes first.
    queue: f64,
    /// The same, no sooner than the end of the whole: decides who need not be asked at all.
    end: f64,
}

/// A lot in which something waits.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    elsewhere: Elsewhere,
    /// Seconds until it can be expected elsewhere, as far as they decide.
    lateness: f64,
    /// Among lots as late: how many others have it.
    rarity: usize,
    /// Share of it that waits.
    waiting: f64,
}

const NEVER: Elsewhere = Elsewhere { queue: f64::INFINITY, end: f64::INFINITY };

impl Elsewhere {
    fn or(self, other: Self) -> Self {
        Self { queue: self.queue.min(other.queue), end: self.end.min(other.end) }
    }
}

/// The run that would come last without this source. None if there is none that it has and that is for it.
///
/// Of lots that would come as late, that of which most waits: so all of a kind are brought evenly, and whoever comes later finds some
/// of each left. Of these, runs that nobody who went away had: it may come back.
pub fn choose(state: &mut DealerState, id: SourceNumber, now: f64) -> Option<ChosenRun> {
    let mut lots = candidates(state, id, now);
    state.steps += lots.len() as u64;
    // What will be late by far has no order of its own: slow holders are hardly holders. Else the rarer one comes first.
    let latest = LATE * state.end();
    for (_, lot) in &mut lots {
        lot.lateness = lot.elsewhere.queue.min(latest);
        if lot.lateness >= latest {
            lot.rarity = 0;
        }
    }
    lots.sort_by(|(_, a), (_, b)| {
        let by_rarity = || a.rarity.cmp(&b.rarity);
        b.lateness.total_cmp(&a.lateness).then_with(by_rarity).then_with(|| b.waiting.total_cmp(&a.waiting))
    });
    let (begin, chosen) = first_of(state, id, &lots)?;
    if let Some(source) = state.sources.get_mut(id) {
        source.last_lot = begin;
    }
    Some(chosen)
}

/// The first of these lots in which there is a run for this source, and the run.
fn first_of(state: &DealerState, id: SourceNumber, lots: &[(u64, Candidate)]) -> Option<(u64, ChosenRun)> {
    let mut second: Option<(f64, (u64, ChosenRun))> = None;
    for &(begin, lot) in lots {
        if second.is_some_and(|(lateness, _)| lot.lateness < lateness) {
            break;
        }
        let Some((run, is_away)) = run_of(state, id, begin, lot.elsewhere) else { continue };
        let chosen = (begin, ChosenRun { run, elsewhere: lot.elsewhere.end });
        if !is_away {
            return Some(chosen);
        }
        second.get_or_insert((lot.lateness, chosen));
    }
    second.map(|(_, chosen)| chosen)
}

/// A run of a lot for this source, and whether one who went away had it.
fn run_of(state: &DealerState, id: SourceNumber, begin: u64, elsewhere: Elsewhere) -> Option<(RunId, bool)> {
    let source = state.sources.get(id)?;
    let (is_in_front, is_behind) = (state.sources.is_in_front(id), state.sources.is_behind(id));
    let is_for_others = !is_in_front && (elsewhere.queue.is_finite() || state.sources.is_promised(begin));
    if is_for_others && !is_behind {
        return None;
    }
    let in_order = source.has.is_none() && state.lots.get(begin).is_some_and(|lot| lot.named().is_empty());
    let from = if in_order { begin } else { state.lots.seeded_place(id, begin) };
    // What one in front lacked after all is for those behind it.
    let is_free = |run: &DealtRun| !is_for_others || !run.not_at.is_empty();
    let may = |run: &DealtRun| source.has(&run.range()) && !run.not_at.contains(&id) && is_free(run);
    let runs = state.lots.runs_from(begin, from).take(RUNS_LOOKED_AT);
    let mut runs = runs.filter_map(|id| Some((id, state.runs.get(id).filter(|run| may(run))?)));
    let (first, run) = runs.next()?;
    let is_away = |run: &DealtRun| state.had_by_one_away(run.range().start);
    if in_order || !is_away(run) {
        return Some((first, false));
    }
    let other = runs.find(|(_, run)| !is_away(run));
    Some(other.map_or((first, true), |(other, _)| (other, false)))
}

/// Lots in which something waits that the source may have.
fn candidates(state: &mut DealerState, id: SourceNumber, now: f64) -> Vec<(u64, Candidate)> {
    let Some(source) = state.sources.get(id) else { return Vec::new() };
    let chance = state.lots.chance(state.steps);
    let mut begins: Vec<u64> = match source.has {
        None => state.lots.for_complete(chance).collect(),
        Some(_) => state.lots.for_holder(id, chance).collect(),
    };
    begins.push(source.last_lot);
    if let Some(has) = &source.has {
        let (common, cursor, steps) = state.lots.common_from(source.cursor, |at| has.first_from(at));
        begins.extend(common);
        state.steps += steps as u64;
        if let Some(source) = state.sources.get_mut(id) {
            source.cursor = cursor;
        }
    }
    let complete = complete_elsewhere(state, id, now);
    let candidate = |begin: u64| {
        let lot = state.lots.get(begin)?;
        let elsewhere = elsewhere(state, lot, id, now).or(complete);
        let (lateness, rarity, waiting) = (elsewhere.queue, lot.rarity(), lot.share_waiting(begin));
        Some((begin, Candidate { elsewhere, lateness, rarity, waiting }))
    };
    begins.into_iter().filter_map(candidate).collect()
}

/// Expected of those holders of a lot that are in front.
fn elsewhere(state: &DealerState, lot: &Lot, except: SourceNumber, now: f64) -> Elsewhere {
    let (end, has_complete) = (state.end(), state.sources.best_complete().is_some());
    let others = lot.named().iter().filter(|&&id| id != except && state.sources.is_in_front(id));
    let expected = others.filter_map(|&id| {
        let source = state.sources.get(id)?;
        let rate = source.rate(now);
        let load = source.outstanding as f64 + share(&state.lots.bytes_of(id), usize::from(has_complete));
        Some(expected(source, rate, load / rate, end))
    });
    expected.fold(NEVER, Elsewhere::or)
}

/// Expected of those together that have everything.
fn complete_elsewhere(state: &DealerState, except: SourceNumber, now: f64) -> Elsewhere {
    let Some((_, sums)) = state.sources.front() else { return NEVER };
    let fastest = sums.complete.iter().rev().map(|&(_, id)| id).find(|&id| id != except);
    let Some(source) = fastest.and_then(|id| state.sources.get(id)) else { return NEVER };
    let load = sums.complete_outstanding as f64 + share(&state.lots.complete_bytes(), 1);
    expected(source, source.rate(now), load / sums.complete_rate.max(1) as f64, state.end())
}

fn expected(source: &DealtSource, rate: f64, queue: f64, end: f64) -> Elsewhere {
    let run = RUN as f64 / rate + source.facts.round_trip.as_secs_f64();
    Elsewhere { queue: queue + run, end: queue.max(end) + run }
}

/// Bytes that a holder will have to bring of what waits, if all holders bring as many. `with` is how many others there
/// are beside those that the bytes are sorted by; of what many have, the bytes are a share already.
fn share(bytes: &[u64; RARITIES], with: usize) -> f64 {
    let (more, few) = bytes.split_last().unwrap_or((&0, &[]));
    let few = few.iter().enumerate();
    *more as f64 + few.map(|(rarity, &bytes)| bytes as f64 / (rarity + with).max(1) as f64).sum::<f64>()
}

/// Seconds until this byte can be expected, wherever it comes from. None if nobody has it.
pub fn expected_at(state: &DealerState, at: u64, now: f64) -> Option<f64> {
    let lot = state.lots.get(state.lots.begin(at))?;
    // No source has this number: it would be the last of four billion.
    let nobody = SourceNumber::MAX;
    let soonest = elsewhere(state, lot, nobody, now).or(complete_elsewhere(state, nobody, now));
    soonest.queue.is_finite().then_some(soonest.queue)
}
