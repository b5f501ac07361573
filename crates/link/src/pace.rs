//! A limit on bytes per second, shared by everything it is handed to.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time whose bytes may be sent at once after a pause: about as late as a sleep may end on a busy machine. Nothing is
/// saved up before the first byte.
const BURST: Duration = Duration::from_millis(20);

/// A token bucket that hands out waits.
#[derive(Debug, Default)]
pub struct Pace {
    bytes_per_second: AtomicU64,
    /// Time at which everything let through so far is paid for.
    paid: Mutex<Option<Instant>>,
}

impl Pace {
    /// A limit; 0 means none.
    pub const fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second: AtomicU64::new(bytes_per_second), paid: Mutex::new(None) }
    }

    /// From now on this is the limit, for all who share it.
    pub fn set(&self, bytes_per_second: u64) {
        self.bytes_per_second.store(bytes_per_second, Ordering::Relaxed);
    }

    /// Bytes per second, if there is a limit.
    pub fn limit(&self) -> Option<u64> {
        Some(self.bytes_per_second.load(Ordering::Relaxed)).filter(|rate| *rate > 0)
    }

    /// True if there is a limit.
    pub fn is_limited(&self) -> bool {
        self.limit().is_some()
    }

    /// Time to wait before `bytes` more may pass.
    pub fn wait(&self, bytes: u64, now: Instant) -> Duration {
        let Some(rate) = self.limit() else { return Duration::ZERO };
        let cost = Duration::from_secs_f64(bytes as f64 / rate as f64);
        let mut paid = self.paid.lock().unwrap_or_else(PoisonError::into_inner);
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        let until = paid.unwrap_or(now).max(earliest) + cost;
        *paid = Some(until);
        until.saturating_duration_since(now)
    }

    /// Waits until `bytes` more may pass.
    pub async fn pass(&self, bytes: u64) {
        let wait = self.wait(bytes, Instant::now());
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_pass_at_the_rate_from_the_first_on() {
        let (pace, start) = (Pace::new(1000), Instant::now());
        assert_eq!(pace.wait(100, start), Duration::from_millis(100));
        assert_eq!(pace.wait(1000, start), Duration::from_millis(1100));
        assert_eq!(pace.wait(1000, start + Duration::from_secs(1)), Duration::from_millis(1100));
    }

    #[test]
    fn an_idle_time_is_not_saved_up() {
        let (pace, start) = (Pace::new(1000), Instant::now());
        pace.wait(100, start);
        let later = start + Duration::from_secs(60);
        assert_eq!(pace.wait(20, later), Duration::ZERO, "a sleep that ends late is made up for");
        assert_eq!(pace.wait(1000, later), Duration::from_secs(1));
    }

    #[test]
    fn a_new_limit_holds_for_what_comes_next() {
        let (pace, start) = (Pace::new(0), Instant::now());
        assert_eq!(pace.wait(1 << 30, start), Duration::ZERO);
        pace.set(1000);
        assert_eq!(pace.wait(1000, start), Duration::from_secs(1));
        pace.set(0);
        assert_eq!(pace.wait(1 << 30, start), Duration::ZERO);
    }

    #[test]
    fn zero_is_no_limit() {
        assert_eq!(Pace::new(0).wait(u64::MAX, Instant::now()), Duration::ZERO);
    }
}
