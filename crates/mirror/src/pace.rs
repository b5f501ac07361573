//! How much a mirror likes to be asked for at once, by how fast it is. Pure: handed the time.

use std::time::Duration;

use towpath_transfer::rate::Rate;

/// Bytes under way before anything is known, and at least.
const LEAST: u64 = 1 << 20;
/// The most.
const MOST: u64 = 64 << 20;
/// What it brings in so long is under way, if it answers at once: a question in front costs little then.
const AHEAD: Duration = Duration::from_millis(500);
/// Questions that share what is under way, on connections of their own.
pub(crate) const QUESTIONS: usize = 6;
/// Bytes that are asked for by one question if so many wait and lie together, at least.
const SHORTEST: u64 = 256 << 10;

/// Rate and nearness of a mirror.
#[derive(Debug, Default)]
pub(crate) struct WebPace {
    rate: Rate,
    nearest: Duration,
    arrived: u64,
}

impl WebPace {
    /// A question goes out.
    pub(crate) fn asked(&mut self, now: Duration) {
        self.rate.requested(now);
    }

    /// The head of an answer came after so long.
    pub(crate) fn answered(&mut self, waited: Duration) {
        self.nearest = if self.nearest.is_zero() { waited } else { self.nearest.min(waited) };
    }

    /// Bytes came; `is_idle` if nothing more is asked for.
    pub(crate) fn arrived(&mut self, now: Duration, bytes: u64, is_idle: bool) {
        self.arrived += bytes;
        self.rate.arrived(now, bytes, is_idle);
    }

    /// All bytes that came.
    pub(crate) const fn total(&self) -> u64 {
        self.arrived
    }

    /// The shortest time until an answer came; zero before the first.
    pub(crate) const fn nearest(&self) -> Duration {
        self.nearest
    }

    /// Bytes that it likes to have under way.
    pub(crate) fn window(&self, now: Duration) -> u64 {
        let ahead = AHEAD + 4 * self.nearest;
        let bytes = self.rate.get(now, MOST) * ahead.as_secs_f64();
        (bytes as u64).clamp(LEAST, MOST)
    }

    /// Bytes that are asked for by one question, at most, when so many wait: a share of them, so that at the end no connection is
    /// left alone with a long one.
    pub(crate) fn run(&self, now: Duration, waiting: u64) -> u64 {
        let most = self.window(now) / QUESTIONS as u64;
        (waiting / QUESTIONS as u64).min(most).max(SHORTEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_under_way_grows_with_rate_and_distance() {
        for (megabytes_per_second, waited, window) in
            [(0, 0, LEAST), (1, 20, LEAST), (40, 0, 20_000_000), (40, 100, 36_000_000), (125, 200, MOST)]
        {
            let mut pace = WebPace::default();
            let at = Duration::from_millis;
            pace.asked(at(0));
            pace.answered(at(waited));
            for step in 1..=20 {
                pace.arrived(at(step * 100), megabytes_per_second * 100_000, false);
            }
            let found = pace.window(at(2000));
            let is_near = found.abs_diff(window) <= window / 50;
            assert!(is_near, "{megabytes_per_second} MB/s, {waited} ms: {found}");
        }
    }
    #[test]
    fn a_question_is_for_a_share_of_what_waits() {
        let mut pace = WebPace::default();
        let second = Duration::from_secs(1);
        pace.asked(Duration::ZERO);
        pace.arrived(second, 48_000_000, false);
        let most = pace.window(second) / QUESTIONS as u64;
        for (waiting, run) in [(0, SHORTEST), (6_000_000, 1_000_000), (u64::MAX, most)] {
            assert_eq!(pace.run(second, waiting), run, "{waiting}");
        }
    }
}
