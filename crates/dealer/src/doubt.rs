//! Whether a source adds anything to the sum: two interfaces on one link, two paths through one relay, ssh's pipe beside TLS
//! on the same line add nothing. It shows when periods without the source and with it alternate, as in
//! `direct/widening.rs`. Pure: handed the time and the bytes that came.
//!
//! A test costs what the source would have brought meanwhile. So one source is tested at a time, ever more seldom, and only
//! while the cost is small beside what is left.

use super::event::SourceNumber;

/// The first test comes so many seconds after the begin.
const FIRST: f64 = 4.0;
/// The next one comes so many times later than this one did, and no later than after so many seconds.
const SELDOM: f64 = 1.5;
const LONGEST: f64 = 300.0;
/// Seconds of a period at least, and runs that come in one.
const PERIOD: f64 = 0.4;
const RUNS: f64 = 24.0;
/// A source whose share of the sum is below this or above that is not tested: nothing would show, or too much would be lost.
const LEAST_SHARE: f64 = 0.04;
const LARGEST_SHARE: f64 = 0.7;
/// A test may cost this share of what is left.
const COST: f64 = 0.004;
/// A source that adds less than this share of its own rate, twice in a row, adds nothing.
const ADDS: f64 = 0.3;
/// Pairs of periods of a test.
const PAIRS: usize = 2;
/// What was asked before may take so many periods to come.
const DRAINING: f64 = 8.0;

/// What is to be done about a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DoubtStep {
    /// It gets nothing for now.
    Pause(SourceNumber),
    /// It is asked as before.
    GoOn(SourceNumber),
    /// It adds nothing.
    Doubt(SourceNumber),
}

/// A source that may be tested.
#[derive(Debug, Clone, Copy)]
pub struct Suspect {
    /// The source.
    pub source: SourceNumber,
    /// Its bytes a second.
    pub rate: f64,
    /// Those of all.
    pub sum: f64,
    /// Bytes of a run.
    pub run: f64,
    /// Bytes that are left, of all.
    pub remaining: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum DoubtPhase {
    /// What was asked before is still coming, since then.
    Draining(f64),
    /// It comes into its stride again, since then.
    Settling(f64),
    /// The sum is measured since then, from so many bytes on.
    Measuring(f64, u64),
}

#[derive(Debug)]
struct DoubtTest {
    suspect: Suspect,
    period: f64,
    phase: DoubtPhase,
    /// True while it is paused.
    is_without: bool,
    without: Option<f64>,
    pairs: usize,
}

/// Tests sources in turn.
#[derive(Debug)]
pub struct SourceDoubt {
    test: Option<DoubtTest>,
    due: f64,
    interval: f64,
}

impl Default for SourceDoubt {
    fn default() -> Self {
        Self { test: None, due: FIRST, interval: FIRST }
    }
}

impl SourceDoubt {
    /// True if a source may be tested now.
    pub fn is_due(&self, now: f64) -> bool {
        self.test.is_none() && now >= self.due
    }

    /// The source that is being tested.
    pub fn suspect(&self) -> Option<SourceNumber> {
        self.test.as_ref().map(|test| test.suspect.source)
    }

    /// Begins to test this source, if that is worth its cost.
    pub fn begin(&mut self, now: f64, suspect: Suspect) -> Option<DoubtStep> {
        let Suspect { source, rate, sum, run, remaining } = suspect;
        let period = PERIOD.max(RUNS * run / sum);
        let share = rate / sum;
        let cost = rate * period * (PAIRS + 1) as f64;
        if !(LEAST_SHARE..LARGEST_SHARE).contains(&share) || cost > COST * remaining {
            return None;
        }
        let phase = DoubtPhase::Draining(now);
        self.test = Some(DoubtTest { suspect, period, phase, is_without: true, without: None, pairs: 0 });
        Some(DoubtStep::Pause(source))
    }

    /// Other sources came or went, so that nothing can be compared.
    pub fn void(&mut self, now: f64) -> Option<DoubtStep> {
        let test = self.test.take()?;
        self.due = now + self.interval;
        test.is_without.then_some(DoubtStep::GoOn(test.suspect.source))
    }

    /// So much time passed, and so many bytes came of all sources since the begin. `owes` says that the suspect still has
    /// something to bring.
    pub fn step(&mut self, now: f64, came: u64, owes: bool) -> Option<DoubtStep> {
        let test = self.test.as_mut()?;
        match test.phase {
            DoubtPhase::Draining(since) if owes => {
                if now > since + DRAINING * test.period {
                    self.void(now)
                } else {
                    None
                }
            }
            DoubtPhase::Draining(_) => {
                test.phase = DoubtPhase::Measuring(now, came);
                None
            }
            DoubtPhase::Settling(since) => {
                if now >= since + test.period {
                    test.phase = DoubtPhase::Measuring(now, came);
                }
                None
            }
            DoubtPhase::Measuring(since, _) if now < since + test.period => None,
            DoubtPhase::Measuring(since, before) => {
                let rate = (came - before) as f64 / (now - since);
                self.measured(now, rate)
            }
        }
    }

    fn measured(&mut self, now: f64, rate: f64) -> Option<DoubtStep> {
        let test = self.test.as_mut()?;
        let source = test.suspect.source;
        let Some(without) = test.without.take() else {
            test.without = Some(rate);
            test.is_without = false;
            test.phase = DoubtPhase::Settling(now);
            return Some(DoubtStep::GoOn(source));
        };
        if rate - without >= ADDS * test.suspect.rate {
            self.end(now);
            return None;
        }
        test.pairs += 1;
        if test.pairs == PAIRS {
            self.end(now);
            return Some(DoubtStep::Doubt(source));
        }
        test.is_without = true;
        test.phase = DoubtPhase::Draining(now);
        Some(DoubtStep::Pause(source))
    }

    fn end(&mut self, now: f64) {
        self.test = None;
        self.interval = (self.interval * SELDOM).min(LONGEST);
        self.due = now + self.interval;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUSPECT: Suspect = Suspect { source: 7, rate: 4e6, sum: 1e7, run: 262_144.0, remaining: 1e10 };

    /// What a test of a source comes to that brings `own` beside the others, who bring `without` it and `with` it.
    fn test(with: f64, without: f64) -> Vec<DoubtStep> {
        let mut doubt = SourceDoubt::default();
        let (mut now, mut came) = (4.0, 0.0);
        let mut steps: Vec<_> = doubt.begin(now, SUSPECT).into_iter().collect();
        for _ in 0..2000 {
            let is_paused = matches!(steps.last(), Some(DoubtStep::Pause(_)));
            now += 0.01;
            came += 0.01 * if is_paused { without } else { with };
            steps.extend(doubt.step(now, came as u64, false));
        }
        steps
    }

    #[test]
    fn who_adds_nothing_twice_is_doubted() {
        use DoubtStep::{Doubt, GoOn, Pause};
        for (what, with, without, steps) in [
            ("a link of its own", 1e7, 6e6, vec![Pause(7), GoOn(7)]),
            ("the same link", 1e7, 1e7, vec![Pause(7), GoOn(7), Pause(7), GoOn(7), Doubt(7)]),
            ("mostly the same", 1e7, 9e6, vec![Pause(7), GoOn(7), Pause(7), GoOn(7), Doubt(7)]),
            ("partly the same", 1e7, 8e6, vec![Pause(7), GoOn(7)]),
            ("it harms", 8e6, 1e7, vec![Pause(7), GoOn(7), Pause(7), GoOn(7), Doubt(7)]),
        ] {
            assert_eq!(test(with, without), steps, "{what}");
        }
    }

    #[test]
    fn a_test_that_costs_too_much_or_shows_nothing_is_left_out() {
        for (what, suspect, begins) in [
            ("all is well", SUSPECT, true),
            ("the end is near", Suspect { remaining: 1e9, ..SUSPECT }, false),
            ("nearly all comes from it", Suspect { rate: 9e6, ..SUSPECT }, false),
            ("next to nothing does", Suspect { rate: 1e5, ..SUSPECT }, false),
        ] {
            assert_eq!(SourceDoubt::default().begin(4.0, suspect).is_some(), begins, "{what}");
        }
    }

    #[test]
    fn tests_become_seldom() {
        let mut doubt = SourceDoubt::default();
        let mut begun = Vec::new();
        for second in 0..200 {
            let now = f64::from(second);
            if doubt.is_due(now) {
                begun.push(second);
                doubt.begin(now, SUSPECT);
            }
            doubt.step(now, u64::from(second % 2 == 0) + 10_000_000 * second as u64, false);
        }
        assert!(begun.len() > 3 && begun.windows(3).all(|at| at[2] - at[1] >= at[1] - at[0]), "{begun:?}");
    }

    #[test]
    fn a_test_that_others_disturb_is_void() {
        let mut doubt = SourceDoubt::default();
        doubt.begin(4.0, SUSPECT);
        assert_eq!(doubt.void(5.0), Some(DoubtStep::GoOn(7)));
        assert!(doubt.suspect().is_none() && !doubt.is_due(8.0) && doubt.is_due(9.0));
    }
}
