//! Budget of a search: how long it may look in vain, and at how much. Pure.
//!
//! Near places need no budget: what lies where a file goes, what the person named, what the index knows, and a file that
//! is most likely the one. All else is the *wide* search. Nothing is known of what it will find, and mostly it finds
//! nothing. So it has a tenth of one core's time, for as long as the transfer takes at the network's rate, and may
//! look at eight bytes for each byte that is wanted:
//!
//! ```text
//!   seconds = 0.1 x (elapsed + rest / rate) x (1 - looked at in vain / (8 x (wanted + found)))
//!             + 0.25 x found / rate - 2.4 x spent in vain - 0.0025 x operations in vain
//! ```
//!
//! Finds make it larger, looks in vain make it smaller. It is spent at once, as what is found early
//! saves most; but while something else on the machine waits for the disk or a processor, the search works for no more
//! than a tenth of the time.

use std::time::Duration;

use crate::policy::table::{EARNED, JUDGED, LOOKED_AT, REST, SEARCH_SHARE, UNKNOWN_TIME, WOKEN};

/// Effort of the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Effort {
    /// As much as the budget has.
    #[default]
    Some,
    /// All that may be searched.
    All,
}

/// The transfer as it stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Standing {
    /// Since it began.
    pub now: Duration,
    /// Seconds that the network needs for what is missing; endless if nobody knows.
    pub network_time: f64,
    /// Bytes a second of the network, 0 if nobody knows.
    pub rate: f64,
    /// Bytes that were wanted so far, here already or not.
    pub wanted: u64,
}

/// A wide operation that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetUse {
    /// Time that it worked.
    pub took: Duration,
    /// Bytes that it read.
    pub bytes: u64,
    /// Bytes that it brought of what was wanted.
    pub brought: u64,
}

/// Rest of the budget at some moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BudgetLeft {
    seconds: f64,
    bytes: f64,
}

/// Spent part of the budget.
#[derive(Debug, Clone, Copy, Default)]
pub struct Budget {
    effort: Effort,
    seconds: f64,
    bytes: f64,
    found: u64,
    rests_until: Duration,
}

impl Budget {
    /// Nothing was spent yet.
    pub fn new(effort: Effort) -> Self {
        Self { effort, ..Self::default() }
    }

    /// A wide operation found so many bytes.
    pub fn found(&mut self, bytes: u64) {
        self.found += bytes;
    }

    /// A wide operation is over; others may be waiting for what it used.
    pub fn spent(&mut self, now: Duration, looked: BudgetUse, others_wait: bool) {
        let in_vain = match looked.bytes {
            0 => 1.0,
            bytes => 1.0 - (looked.brought as f64 / bytes as f64).min(1.0),
        };
        self.seconds += in_vain * (JUDGED * looked.took.as_secs_f64() + WOKEN);
        self.bytes += in_vain * looked.bytes as f64;
        if others_wait {
            self.rests_until = now + looked.took * REST;
        }
    }

    /// True if it is at its end, rather than resting.
    pub fn is_spent(&self, standing: &Standing) -> bool {
        let awake = Self { rests_until: Duration::ZERO, ..*self };
        !awake.left(standing).is_some()
    }

    /// Rest that may be spent now.
    pub fn left(&self, standing: &Standing) -> BudgetLeft {
        if self.effort == Effort::All {
            return BudgetLeft { seconds: f64::INFINITY, bytes: f64::INFINITY };
        }
        if standing.now < self.rests_until {
            return BudgetLeft { seconds: 0.0, bytes: 0.0 };
        }
        let most = LOOKED_AT * (standing.wanted + self.found) as f64;
        let hope = (1.0 - self.bytes / most.max(1.0)).max(0.0);
        let rest = if standing.network_time.is_finite() { standing.network_time } else { UNKNOWN_TIME };
        let lasts = standing.now.as_secs_f64() + rest;
        let earned = if standing.rate > 0.0 { EARNED * self.found as f64 / standing.rate } else { 0.0 };
        BudgetLeft { seconds: SEARCH_SHARE * hope * lasts + earned - self.seconds, bytes: most - self.bytes }
    }
}

impl BudgetLeft {
    /// True if there is enough of it for an operation of so many seconds that reads so many bytes.
    pub fn allows(&self, seconds: f64, bytes: u64) -> bool {
        seconds <= self.seconds && self.has_bytes(bytes)
    }

    /// True if so many bytes may be read, however long that takes.
    pub fn has_bytes(&self, bytes: u64) -> bool {
        bytes as f64 <= self.bytes
    }

    /// True if there is any of it.
    pub fn is_some(&self) -> bool {
        self.seconds > 0.0 && self.bytes > 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    fn at(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    /// After so many seconds, with so many bytes to come of 40 MB, at so many a second.
    fn standing(now: f64, missing: u64, rate: f64) -> Standing {
        let network_time = if rate > 0.0 { missing as f64 / rate } else { f64::INFINITY };
        Standing { now: at(now), network_time, rate, wanted: 40 * MB }
    }

    fn looked(took: f64, bytes: u64, brought: u64) -> BudgetUse {
        BudgetUse { took: at(took), bytes, brought }
    }

    fn left(budget: &Budget, standing: Standing) -> (f64, f64) {
        let BudgetLeft { seconds, bytes } = budget.left(&standing);
        ((seconds * 1e6).round() / 1e6, bytes / 1e6)
    }

    #[test]
    fn it_begins_with_a_tenth_of_the_transfers_time_and_eight_times_its_bytes() {
        let budget = Budget::default();
        for (standing, expected) in [
            (standing(0.0, 40 * MB, 12.5e6), (0.32, 320.0)),
            (standing(2.0, 15 * MB, 12.5e6), (0.32, 320.0)),
            (standing(0.0, 40 * MB, 0.2e6), (20.0, 320.0)),
            (standing(0.0, 40 * MB, 0.0), (6.0, 320.0)),
            (standing(0.0, 40 * MB, 400e6), (0.01, 320.0)),
        ] {
            assert_eq!(left(&budget, standing), expected, "{standing:?}");
        }
    }

    #[test]
    fn what_is_looked_at_in_vain_makes_it_less_than_it_cost() {
        let mut budget = Budget::default();
        budget.spent(at(0.1), looked(0.1, 80 * MB, 0), false);
        assert_eq!(
            left(&budget, standing(0.0, 40 * MB, 12.5e6)),
            (-0.0025, 240.0),
            "0.24 - 2.4 x 0.1 - WOKEN"
        );
        budget.spent(at(0.2), looked(0.1, 80 * MB, 0), false);
        assert!(!budget.left(&standing(0.0, 40 * MB, 12.5e6)).is_some());
        budget.spent(at(0.2), looked(0.0, 200 * MB, 0), false);
        let all_bytes = budget.left(&standing(0.0, 40 * MB, 1.0));
        assert!(!all_bytes.is_some() && !all_bytes.has_bytes(1), "on a slow network, too");
    }

    #[test]
    fn what_it_finds_costs_nothing_and_makes_it_more() {
        let mut budget = Budget::default();
        budget.found(10 * MB);
        budget.spent(at(1.0), looked(1.0, 10 * MB, 10 * MB), false);
        assert_eq!(left(&budget, standing(1.0, 20 * MB, 1e6)), (2.1 + 2.5, 400.0));
        budget.spent(at(1.0), looked(1.0, 40 * MB, 30 * MB), false);
        let quarter = left(&budget, standing(1.0, 20 * MB, 1e6));
        assert_eq!(
            quarter,
            (3.946875, 390.0),
            "2.1 x (1 - 10 / 400) + 2.5 - (2.4 + WOKEN) x 0.25: a quarter was in vain"
        );
    }

    #[test]
    fn while_others_wait_it_works_for_a_tenth_of_the_time() {
        let mut budget = Budget::default();
        let (mut now, mut worked) = (0.0, 0.0);
        while now < 10.0 {
            let may = budget.left(&standing(now, 40 * MB, 0.1e6)).is_some();
            if may {
                budget.spent(at(now + 0.01), looked(0.01, 0, 0), true);
                worked += 0.01;
            }
            now += 0.01;
        }
        assert!((0.9..1.2).contains(&worked), "{worked}");
    }

    #[test]
    fn an_operation_that_is_too_large_for_what_is_left_is_not_begun() {
        let left = Budget::default().left(&standing(0.0, 40 * MB, 12.5e6));
        assert!(left.allows(0.3, 300 * MB) && !left.allows(0.33, MB) && !left.allows(0.0, 321 * MB));
    }

    #[test]
    fn all_effort_knows_no_budget() {
        let mut budget = Budget::new(Effort::All);
        budget.spent(at(1.0), looked(1e6, 1 << 50, 0), true);
        let left = budget.left(&standing(1.0, MB, 1e9));
        assert!(left.is_some() && left.allows(1e9, u64::MAX));
    }
}
