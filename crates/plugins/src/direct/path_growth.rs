//! Growth of what comes, by round trips: a connection that begins doubles it with each, until it or the path is full. Pure: handed the
//! time, the bytes that came and the round trip.

use std::time::{Duration, Instant};

/// Growth in a round trip that counts as doubling: what comes is not looked at to the moment.
const DOUBLES: f64 = 1.6;

/// A path at a moment.
#[derive(Debug, Clone, Copy)]
pub struct PathLook {
    /// The shortest round trip; zero is unknown.
    pub round_trip: Duration,
    /// Bytes that came by all connections, from their beginning.
    pub heard: u64,
}

/// What came in a round trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundTripGrowth {
    /// Bytes.
    pub under_way: u64,
    /// About twice as many as in the one before.
    pub doubles: bool,
}

/// See the head of this module.
#[derive(Debug)]
pub struct PathGrowth {
    /// Begin of this round trip, and the bytes that had come then.
    since: Option<(Instant, u64)>,
    /// Bytes of the one before.
    before: Option<u64>,
    round_trip: Duration,
    least: Duration,
}

impl PathGrowth {
    /// Looks no more often than this.
    pub const fn new(least: Duration) -> Self {
        Self { since: None, before: None, round_trip: Duration::ZERO, least }
    }

    /// True if a round trip is over.
    pub fn is_due(&self, now: Instant) -> bool {
        let length = self.round_trip.max(self.least);
        self.since.is_none_or(|(since, _)| now.saturating_duration_since(since) >= length)
    }

    /// The path is like this; returns what came in the round trip that is over, if one is.
    pub fn look(&mut self, path: PathLook, now: Instant) -> Option<RoundTripGrowth> {
        self.round_trip = path.round_trip;
        if !self.is_due(now) {
            return None;
        }
        let (since, heard) = self.since.replace((now, path.heard))?;
        let elapsed = now.saturating_duration_since(since).as_secs_f64();
        let share = path.round_trip.as_secs_f64() / elapsed.max(f64::MIN_POSITIVE);
        let under_way = (path.heard.saturating_sub(heard) as f64 * share) as u64;
        let before = self.before.replace(under_way);
        let doubles = before.is_some_and(|before| under_way as f64 >= before as f64 * DOUBLES);
        Some(RoundTripGrowth { under_way, doubles })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_in_each_round_trip_is_compared_with_the_one_before() {
        let (mut growth, start) = (PathGrowth::new(Duration::from_millis(30)), Instant::now());
        for (what, at, heard, expected) in [
            ("the first look", 0, 1000, None),
            ("too soon", 99, 1500, None),
            ("a round trip", 100, 2000, Some((1000, false))),
            ("twice as much", 200, 4000, Some((2000, true))),
            ("half as much again", 300, 7000, Some((3000, false))),
            ("twice as much in two", 500, 19_000, Some((6000, true))),
            ("a connection was closed", 600, 400, Some((0, false))),
        ] {
            let look = PathLook { round_trip: Duration::from_millis(100), heard };
            let looked = growth.look(look, start + Duration::from_millis(at));
            assert_eq!(looked.map(|looked| (looked.under_way, looked.doubles)), expected, "{what}");
        }
    }

    #[test]
    fn an_unknown_round_trip_has_nothing_under_way() {
        let (mut growth, start) = (PathGrowth::new(Duration::from_millis(30)), Instant::now());
        let mut look = |at, heard| {
            let path = PathLook { round_trip: Duration::ZERO, heard };
            growth.look(path, start + Duration::from_millis(at)).map(|looked| looked.under_way)
        };
        assert_eq!([look(0, 0), look(40, 1000), look(80, 2000)], [None, Some(0), Some(0)]);
    }
}
