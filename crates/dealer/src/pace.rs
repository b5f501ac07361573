//! How fast a source brings bytes, and how evenly. Only the time in which it had something to bring counts.

use super::runs::RUN;

/// Measurements fade after so long, seconds, or after so many runs if they take longer.
const FADING: f64 = 1.0;
const FADING_RUNS: f64 = 6.0;
/// Rate of a source as long as no source's is known, bytes a second.
pub const GUESS: f64 = 1e6;
/// Weight of the newest measurement in the spread.
const NEWEST: f64 = 0.1;
/// A source that brings nothing for so many times as long as a run takes is slower than it was.
const PATIENCE: f64 = 2.0;
/// It is silent, which is worse than slow, after twice as many times, and so many seconds.
const SILENCE: f64 = 2.0;

/// Rate of a source as it shows.
#[derive(Debug, Clone, Default)]
pub struct SourcePace {
    bytes: f64,
    seconds: f64,
    /// Relative deviation of single measurements.
    spread: f64,
    /// Time from which on the next bytes take their time.
    mark: f64,
}

impl SourcePace {
    /// It had nothing to bring, and was asked for something whose first byte can be here at `from`.
    pub const fn begins(&mut self, from: f64) {
        self.mark = from;
    }

    /// It brought so many bytes.
    pub fn brought(&mut self, now: f64, bytes: u64) {
        let took = (now - self.mark).max(0.0);
        self.mark = self.mark.max(now);
        if let Some(rate) = self.measured().filter(|_| took > 0.0) {
            let deviation = (bytes as f64 / took / rate - 1.0).abs().min(1.0);
            self.spread += NEWEST * (deviation - self.spread);
        }
        let lasting = FADING.max(FADING_RUNS * RUN as f64 / self.measured().unwrap_or(GUESS));
        let left = (-took / lasting).exp();
        self.bytes = self.bytes * left + bytes as f64;
        self.seconds = self.seconds * left + took;
    }

    /// True if it brought something.
    pub fn is_known(&self) -> bool {
        self.bytes > 0.0
    }

    fn measured(&self) -> Option<f64> {
        self.is_known().then(|| self.bytes / self.seconds.max(1e-4))
    }

    /// Bytes a second; `guess` if nothing is known. Of one that owes something and brings nothing it falls.
    pub fn rate(&self, now: f64, owes: bool, guess: f64) -> f64 {
        let rate = self.measured().unwrap_or(guess);
        let silent = now - self.mark;
        let patience = PATIENCE * (1.0 + self.spread) * RUN as f64 / rate;
        let rate = if owes && silent > patience { rate.min(PATIENCE * RUN as f64 / silent) } else { rate };
        rate.max(1.0)
    }

    /// True if it owes something and has brought nothing for so long that something is amiss.
    pub fn is_silent(&self, now: f64) -> bool {
        let usual = RUN as f64 / self.measured().unwrap_or(GUESS);
        now - self.mark > SILENCE + 2.0 * PATIENCE * (1.0 + self.spread) * usual
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_time_in_which_it_has_something_to_bring_counts() {
        let mut pace = SourcePace::default();
        assert!(!pace.is_known());
        pace.begins(0.1);
        (1..=10).for_each(|at| pace.brought(0.1 + 0.1 * f64::from(at), 100_000));
        assert!((pace.rate(1.1, true, GUESS) - 1e6).abs() < 1.0);
        pace.begins(50.0);
        pace.brought(50.1, 100_000);
        assert!((pace.rate(50.1, true, GUESS) - 1e6).abs() < 1.0);
    }

    #[test]
    fn who_owes_and_brings_nothing_becomes_slower_and_then_silent() {
        let mut pace = SourcePace::default();
        pace.begins(0.0);
        (1..=100).for_each(|at| pace.brought(0.01 * f64::from(at), 100_000));
        assert!((pace.rate(9.0, false, GUESS) - 1e7).abs() < 1.0, "it owes nothing");
        assert!(pace.rate(1.01, true, GUESS) > 9e6);
        assert!(pace.rate(2.0, true, GUESS) < 1e6);
        assert!(!pace.is_silent(2.0) && pace.is_silent(4.0));
    }
}
