//! How much of what was fetched may be passed on now: a rate, and what was let through. Pure: it is handed the time.

use std::time::{Duration, Instant};

/// Time whose bytes may be promised ahead: a request may be of many pieces, and the next one then waits.
const AHEAD: Duration = Duration::from_secs(1);

/// What was let through, by the time at which it is paid for.
#[derive(Debug, Default)]
pub struct UploadBudget {
    paid: Option<Instant>,
}

impl UploadBudget {
    /// Lets `bytes` through at `rate` bytes per second, 0 for no limit; or says how long to wait.
    pub fn take(&mut self, bytes: u64, rate: u64, now: Instant) -> Result<(), Duration> {
        if rate == 0 {
            return Ok(());
        }
        let paid = self.paid.unwrap_or(now).max(now);
        let owed = paid.saturating_duration_since(now);
        if owed > AHEAD {
            return Err(owed - AHEAD);
        }
        // A request has at most a gigabyte.
        self.paid = Some(paid + Duration::from_secs_f64(bytes as f64 / rate as f64));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_pass_at_the_rate_and_no_more_than_a_request_ahead() {
        let (mut budget, start) = (UploadBudget::default(), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!(budget.take(1000, 1000, at(0)), Ok(()));
        assert_eq!(budget.take(2000, 1000, at(0)), Ok(()), "a second is promised ahead");
        assert_eq!(budget.take(1, 1000, at(0)), Err(Duration::from_secs(2)));
        assert_eq!(budget.take(1, 1000, at(1500)), Err(Duration::from_millis(500)));
        assert_eq!(budget.take(1000, 1000, at(2000)), Ok(()));
        assert!(budget.take(1, 1000, at(2000)).is_err());
        assert_eq!(budget.take(u64::MAX, 0, at(2000)), Ok(()), "without a limit");
    }

    #[test]
    fn in_any_time_no_more_passes_than_the_rate_allows() {
        let (mut budget, start) = (UploadBudget::default(), Instant::now());
        let passed = (0..100_000)
            .filter(|millis| budget.take(10_000, 100_000, start + Duration::from_millis(*millis)).is_ok());
        // Ten a second for a hundred seconds, and what is promised ahead.
        assert_eq!(passed.count(), 1010);
    }
}
