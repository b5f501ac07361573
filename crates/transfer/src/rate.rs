//! Rates at which something brings bytes: moving averages of what was measured (dsync §6.2.1).
//! Pure: handed the time.

use std::time::Duration;

/// Weight of the newest measurement: smooths single hiccups, follows a change of load in a few
/// operations (the paper's α).
const ALPHA: f64 = 0.2;
/// Arrivals are gathered for so long, seconds, before they count as one measurement.
const INTERVAL: f64 = 0.05;
/// Shortest time, in seconds, that a measurement needs to be of use.
const SHORTEST: f64 = 0.005;

/// An exponentially weighted moving average that begins with an assumption.
#[derive(Debug, Clone, Copy)]
pub struct Average {
    value: f64,
    is_measured: bool,
}

impl Average {
    /// Stands for `value` until the first measurement.
    pub const fn assumed(value: f64) -> Self {
        Self { value, is_measured: false }
    }

    /// One more measurement.
    pub fn add(&mut self, sample: f64) {
        self.value = if self.is_measured { self.value + ALPHA * (sample - self.value) } else { sample };
        self.is_measured = true;
    }

    /// True if there was a measurement.
    pub const fn is_measured(&self) -> bool {
        self.is_measured
    }

    /// The average, or the assumption.
    pub fn get(&self) -> f64 {
        self.value
    }
}

/// Bytes a second that a network or a disk brings while something is requested of it.
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    average: Average,
    /// Since when something is requested and nothing came.
    since: Option<f64>,
    /// Bytes and seconds of the open interval. Time in which nothing was requested does not count.
    gathered: (u64, f64),
}

impl Default for Rate {
    fn default() -> Self {
        Self { average: Average::assumed(0.0), since: None, gathered: (0, 0.0) }
    }
}

impl Rate {
    /// Something was asked of a network that was idle: measuring goes on.
    pub fn requested(&mut self, now: Duration) {
        self.since.get_or_insert(now.as_secs_f64());
    }

    /// Bytes came; `is_idle` if nothing is requested any more.
    pub fn arrived(&mut self, now: Duration, bytes: u64, is_idle: bool) {
        let now = now.as_secs_f64();
        let Some(since) = self.since else { return };
        self.since = (!is_idle).then_some(now);
        let (total, elapsed) = (self.gathered.0 + bytes, self.gathered.1 + now - since);
        self.gathered = (total, elapsed);
        if elapsed >= INTERVAL {
            self.average.add(total as f64 / elapsed);
            self.gathered = (0, 0.0);
        }
    }

    /// Bytes a second before there was a measurement, as far as any came; 0 after that.
    pub fn so_far(&self) -> f64 {
        let (bytes, seconds) = self.gathered;
        if self.average.is_measured() || seconds < SHORTEST { 0.0 } else { bytes as f64 / seconds }
    }

    /// Bytes a second, 0 before the first measurement. While nothing comes it falls, as no more
    /// than `expected` bytes can have been on their way.
    pub fn get(&self, now: Duration, expected: u64) -> f64 {
        let average = self.average.get();
        let elapsed = self.gathered.1 + self.since.map_or(0.0, |since| now.as_secs_f64() - since);
        match elapsed > 4.0 * INTERVAL {
            true => average.min(self.gathered.0.saturating_add(expected) as f64 / elapsed),
            false => average,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_average_follows_by_a_fifth() {
        let mut average = Average::assumed(9.0);
        assert_eq!(average.get(), 9.0);
        average.add(1.0);
        average.add(2.0);
        assert!((average.get() - 1.2).abs() < 1e-9);
    }

    #[test]
    fn a_rate_falls_while_nothing_comes() {
        let mut rate = Rate::default();
        let at = Duration::from_millis;
        rate.requested(at(0));
        for now in 1..=10 {
            rate.arrived(at(now * 100), 1000, false);
        }
        assert!((rate.get(at(1000), 500) - 10_000.0).abs() < 1.0);
        assert!(rate.get(at(11_000), 500) < 60.0);
    }

    #[test]
    fn idle_time_is_not_slowness() {
        let mut rate = Rate::default();
        let at = Duration::from_millis;
        rate.requested(at(0));
        rate.arrived(at(100), 1000, true);
        rate.requested(at(60_000));
        rate.arrived(at(60_100), 1000, true);
        assert!((rate.get(at(90_000), 0) - 10_000.0).abs() < 1.0);
    }
}
