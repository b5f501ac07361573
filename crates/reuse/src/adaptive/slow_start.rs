//! Slow start: a connection still finds its rate. TCP begins with a few packets and sends twice as many with each
//! round trip, until the network carries no more (RFC 5681, 3.1; RFC 6928). An average is far behind that. Pure: handed the time.

use std::time::Duration;

/// Least time for which bytes are counted; else it is a round trip.
const SHORTEST: Duration = Duration::from_millis(50);
/// Most that a rate grows from one such time to the next, and is taken to grow in the next two.
const MOST_GROWTH: f64 = 2.0;

/// Rates of the last two round trips.
#[derive(Debug, Clone, Copy, Default)]
pub struct SlowStart {
    /// Since when bytes are counted.
    since: Option<Duration>,
    bytes: u64,
    newest: f64,
    before: f64,
}

impl SlowStart {
    /// Something was asked for.
    pub fn requested(&mut self, now: Duration) {
        self.since.get_or_insert(now);
    }

    /// Bytes came; `is_idle` if nothing is asked for any more: that time does not count.
    pub fn arrived(&mut self, now: Duration, bytes: u64, round_trip: Duration, is_idle: bool) {
        let Some(since) = self.since else { return };
        self.bytes += bytes;
        let passed = now.saturating_sub(since);
        if passed >= round_trip.max(SHORTEST) {
            (self.before, self.newest) = (self.newest, self.bytes as f64 / passed.as_secs_f64());
            (self.bytes, self.since) = (0, Some(now));
        }
        if is_idle {
            (self.bytes, self.since) = (0, None);
        }
    }

    /// True if the last round trip brought so much more than the one before that it is no chance: half as much again.
    pub fn is_growing(&self) -> bool {
        self.before > 0.0 && self.newest >= 1.5 * self.before
    }

    /// Bytes a second that the network may carry, two round trips from now: what it carried in the last one, and while that
    /// grew as much more as if it went on so.
    pub fn hoped(&self) -> f64 {
        let growth = if self.before > 0.0 { self.newest / self.before } else { 1.0 };
        self.newest * growth.clamp(1.0, MOST_GROWTH).powi(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_that_grows_is_hoped_to_grow_further() {
        let (mut slow_start, at) = (SlowStart::default(), Duration::from_millis);
        slow_start.requested(at(0));
        for (now, bytes, hoped) in [
            (99, 500, 0.0),
            (100, 500, 10_000.0),
            (200, 2_000, 80_000.0),
            (300, 4_000, 160_000.0),
            (400, 4_000, 40_000.0),
            (500, 400, 4_000.0),
        ] {
            slow_start.arrived(at(now), bytes, at(100), false);
            assert!((slow_start.hoped() - hoped).abs() < 1.0, "{now}: {}", slow_start.hoped());
            assert_eq!(slow_start.is_growing(), [200, 300].contains(&now), "{now}");
        }
    }

    #[test]
    fn time_in_which_nothing_is_asked_does_not_count() {
        let (mut slow_start, at) = (SlowStart::default(), Duration::from_millis);
        slow_start.requested(at(0));
        slow_start.arrived(at(100), 1_000, at(20), true);
        slow_start.requested(at(5_000));
        slow_start.arrived(at(5_100), 1_000, at(20), false);
        assert!((slow_start.hoped() - 10_000.0).abs() < 1.0, "{}", slow_start.hoped());
    }
}
