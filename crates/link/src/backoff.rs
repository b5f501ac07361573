//! Waits before the next attempt: exponential, with full jitter.
//!
//! A state machine without clock or dice. The wait is drawn evenly from zero to a ceiling which
//! doubles with each failure, so that many who failed together don't come back together.

use std::time::{Duration, Instant};

/// Growth of waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackoffConfig {
    /// The ceiling after the first failure. Default: 500 ms.
    pub first: Duration,
    /// No ceiling is higher than this. Default: 60 s.
    pub longest: Duration,
    /// No wait is shorter than this, whatever was drawn. Default: 50 ms.
    pub shortest: Duration,
    /// Failures are forgotten once an attempt was due this long ago and nobody asked again, that
    /// is, when the last attempt held for so long. Default: 5 min.
    pub forget_after: Duration,
}

impl Default for BackoffConfig {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(500),
            longest: Duration::from_secs(60),
            shortest: Duration::from_millis(50),
            forget_after: Duration::from_secs(300),
        }
    }
}

/// Failures so far, and what they mean for the next attempt.
#[derive(Debug, Clone)]
pub struct Backoff {
    config: BackoffConfig,
    failures: u32,
    due: Option<Instant>,
}

impl Backoff {
    /// No failures yet.
    pub const fn new(config: BackoffConfig) -> Self {
        Self { config, failures: 0, due: None }
    }

    /// An attempt failed at `now`: how long to wait before the next. `random` is evenly
    /// distributed over all of `u64`.
    pub fn next(&mut self, now: Instant, random: u64) -> Duration {
        if self.due.is_some_and(|due| now.saturating_duration_since(due) >= self.config.forget_after) {
            self.failures = 0;
        }
        let wait = share(self.ceiling(), random).max(self.config.shortest);
        self.failures = self.failures.saturating_add(1);
        self.due = now.checked_add(wait);
        wait
    }

    /// An attempt succeeded, and the peer proved useful: the next failure is a first one.
    ///
    /// To be called when there was real progress: a peer that accepts connections only to drop
    /// them has not succeeded.
    pub const fn succeeded(&mut self) {
        self.failures = 0;
        self.due = None;
    }

    fn ceiling(&self) -> Duration {
        let factor = 1u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        self.config.first.saturating_mul(factor).min(self.config.longest)
    }
}

/// `random` / 2^64 of `whole`.
fn share(whole: Duration, random: u64) -> Duration {
    let nanos = u64::try_from(whole.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(((u128::from(nanos) * u128::from(random)) >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HALF: u64 = 1 << 63;

    fn millis(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn ceilings_double_up_to_the_longest() {
        let (mut backoff, now) = (Backoff::new(BackoffConfig::default()), Instant::now());
        for wanted in [250, 500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000] {
            assert_eq!(backoff.next(now, HALF), millis(wanted));
        }
        for _ in 0..100 {
            assert_eq!(backoff.next(now, HALF), millis(30_000), "also after very many failures");
        }
    }

    #[test]
    fn the_dice_decide_within_the_bounds() {
        let now = Instant::now();
        for (random, wanted) in [(0, 50_000), (HALF / 2, 125_000), (HALF, 250_000), (u64::MAX, 499_999)] {
            let wait = Backoff::new(BackoffConfig::default()).next(now, random);
            assert_eq!(wait.as_micros(), wanted, "{random}");
        }
    }

    #[test]
    fn success_and_long_quiet_make_the_next_failure_a_first_one() {
        let (mut backoff, now) = (Backoff::new(BackoffConfig::default()), Instant::now());
        for _ in 0..5 {
            backoff.next(now, HALF);
        }
        backoff.succeeded();
        assert_eq!(backoff.next(now, HALF), millis(250));
        assert_eq!(backoff.next(now, HALF), millis(500));
        let soon = now + millis(500) + Duration::from_secs(299);
        assert_eq!(backoff.next(soon, HALF), millis(1000), "not long enough");
        let late = soon + millis(1000) + Duration::from_secs(300);
        assert_eq!(backoff.next(late, HALF), millis(250));
    }

    proptest! {
        #[test]
        fn no_wait_is_out_of_bounds(waits in proptest::collection::vec((any::<u64>(), any::<u32>()), 1..80)) {
            let config = BackoffConfig::default();
            let (mut backoff, mut now) = (Backoff::new(config), Instant::now());
            for (random, pause) in waits {
                let wait = backoff.next(now, random);
                prop_assert!(wait >= config.shortest && wait <= config.longest);
                now += Duration::from_micros(u64::from(pause));
            }
        }
    }
}
