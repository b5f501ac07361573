//! The wide search within its budget: what may be spent now, and whether that held anything back.

use std::time::Duration;

use super::budget::{Budget, BudgetLeft, BudgetUse, Effort, Standing};
use super::costs::Costs;
use super::operations::Candidate;

/// Budget of the wide search, as it was looked up last.
pub struct WideSearch {
    budget: Budget,
    /// Of the budget, now.
    left: BudgetLeft,
    /// A file was too large for the budget.
    has_passed_over: bool,
}

impl WideSearch {
    /// Nothing was spent, and nothing is known of the transfer.
    pub fn new(effort: Effort) -> Self {
        let budget = Budget::new(effort);
        let unknown = Standing { now: Duration::ZERO, network_time: f64::INFINITY, rate: 0.0, wanted: 0 };
        Self { budget, left: budget.left(&unknown), has_passed_over: false }
    }

    /// Looks up what may be spent; true if there was something and is no more, or the other way round.
    pub fn look(&mut self, standing: &Standing) -> bool {
        let had_some = self.has_some();
        self.left = self.budget.left(standing);
        self.has_some() != had_some
    }

    /// True if something may be spent.
    pub fn has_some(&self) -> bool {
        self.left.is_some()
    }

    /// True if all was spent.
    pub fn is_spent(&self, standing: &Standing) -> bool {
        self.budget.is_spent(standing)
    }

    /// True if the budget holds something back; `has_wide` tells whether there are candidates that need it.
    pub fn limits(&self, has_wide: bool) -> bool {
        self.has_passed_over || !self.has_some() && has_wide
    }

    /// A wide operation found so many bytes.
    pub fn found(&mut self, bytes: u64) {
        self.budget.found(bytes);
    }

    /// A wide operation is over; others may be waiting for what it used.
    pub fn spent(&mut self, now: Duration, looked: BudgetUse, others_wait: bool) {
        self.budget.spent(now, looked, others_wait);
    }

    /// True if there is enough for a candidate, or it needs none.
    pub fn allows(&self, candidate: &Candidate, costs: &Costs) -> bool {
        let (seconds, bytes) = candidate.own_cost(costs);
        !candidate.is_wide || self.left.allows(seconds, bytes)
    }

    /// True if a candidate reads more than may be read.
    pub fn is_too_large(&self, candidate: &Candidate, costs: &Costs) -> bool {
        candidate.is_wide && !self.left.has_bytes(candidate.own_cost(costs).1)
    }

    /// Files were too large.
    pub fn pass_over(&mut self) {
        self.has_passed_over = true;
    }
}
