//! The first moments of a search on a slow network: it is not asked while something is looked at that is over soon.

use std::time::Duration;

use super::running::RunningOperations;
use crate::policy::table::{GLANCE, GLANCE_SHARE, LONG_RUN};

/// The first look around.
#[derive(Debug, Clone, Copy, Default)]
pub struct FirstGlance {
    /// Time at which the first chunks were wanted.
    begun: Option<Duration>,
}

impl FirstGlance {
    /// Chunks are wanted.
    pub fn begin(&mut self, now: Duration) {
        self.begun.get_or_insert(now);
    }

    /// True while the network waits, which needs `network_time` seconds for what is missing, and `run_time` for a run.
    pub fn lasts(
        &self,
        now: Duration,
        network_time: f64,
        run_time: f64,
        running: &RunningOperations,
    ) -> bool {
        let glance = self.seconds(network_time);
        let elapsed = self.begun.map_or(glance, |begun| now.saturating_sub(begun).as_secs_f64());
        elapsed < glance && run_time > LONG_RUN && running.are_over_before(glance, elapsed, now)
    }

    /// Seconds that the network waits for the first look around. While nothing came it takes longer than it was
    /// asked, and that is all that is known of it.
    fn seconds(&self, network_time: f64) -> f64 {
        let asked = self.begun.unwrap_or_default().as_secs_f64();
        match network_time {
            time if time.is_infinite() => GLANCE.min(asked),
            time => GLANCE.min(GLANCE_SHARE * time),
        }
    }
}
