//! How many connections to keep to one peer: more as long as each step brings more bytes, else as
//! many as before. Pure: handed the time and the bytes that came.
//!
//! One connection is all that most networks need. Where packets are lost at random, a loss-based
//! congestion control (cubic) takes each loss for a full queue and leaves most of the link idle;
//! several connections lose their packets one by one and together keep it busy. Whether that is so
//! shows only when it is tried: the number is doubled, and stays if the rate went up by a quarter.

use std::time::{Duration, Instant};

/// A rate is measured over so long.
const PERIOD: Duration = Duration::from_millis(400);
/// After a change the rate settles for so long: dialling, TLS, and the congestion window's growth.
const SETTLING: Duration = Duration::from_millis(400);
/// A step is worth it if the rate grows by so much at least.
const WORTH: f64 = 1.25;
/// A step that was not worth it is tried again after so long, and then after twice that, ...
const FIRST_REST: Duration = Duration::from_secs(15);
/// ... but no later than after this.
const LONGEST_REST: Duration = Duration::from_secs(240);

/// What is going on.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// Nothing came yet.
    Idle,
    /// The rate settles until then.
    Settling(Instant),
    /// The rate is measured since then, from this many bytes on.
    Measuring(Instant, u64),
    /// Enough connections, until then.
    Resting(Instant),
}

/// How many connections to use now, and what is being tried.
#[derive(Debug)]
pub struct Widening {
    most: usize,
    width: usize,
    /// The width before the step that is being tried, and the rate then in bytes a second.
    before: Option<(usize, f64)>,
    phase: Phase,
    rest: Duration,
    arrived: u64,
}

impl Widening {
    /// Begins with `first` connections, and goes up to `most`.
    pub fn new(first: usize, most: usize) -> Self {
        let width = first.max(1);
        Self { most: most.max(width), width, before: None, phase: Phase::Idle, rest: FIRST_REST, arrived: 0 }
    }

    /// Connections to use now.
    pub const fn width(&self) -> usize {
        self.width
    }

    /// So many bytes came at `now`. `is_waiting` says that the receiving side waits for the network,
    /// not the network for it: only then can more connections help.
    pub fn arrived(&mut self, bytes: u64, is_waiting: bool, now: Instant) {
        self.arrived += bytes;
        match self.phase {
            Phase::Idle => self.phase = Phase::Settling(now + SETTLING),
            Phase::Settling(until) | Phase::Resting(until) if now >= until => {
                self.phase = Phase::Measuring(now, self.arrived);
            }
            Phase::Measuring(since, _) if !is_waiting => {
                // What is measured now is this machine, not the network.
                self.phase = Phase::Settling(now.max(since) + SETTLING);
            }
            Phase::Measuring(since, from) => {
                let elapsed = now.saturating_duration_since(since);
                if elapsed >= PERIOD {
                    self.judge((self.arrived - from) as f64 / elapsed.as_secs_f64(), now);
                }
            }
            Phase::Settling(_) | Phase::Resting(_) => {}
        }
    }

    fn judge(&mut self, rate: f64, now: Instant) {
        if let Some((width, old)) = self.before.take()
            && rate < old * WORTH
        {
            self.width = width;
            self.phase = Phase::Resting(now + self.rest);
            self.rest = (self.rest * 2).min(LONGEST_REST);
            return;
        }
        if self.width == self.most {
            self.phase = Phase::Resting(now + LONGEST_REST);
            return;
        }
        self.before = Some((self.width, rate));
        self.width = (self.width * 2).min(self.most);
        self.phase = Phase::Settling(now + SETTLING);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs for `seconds` with a rate that follows from the width; returns the widths, each once.
    fn widths(widening: &mut Widening, seconds: u64, rate: impl Fn(usize) -> u64) -> Vec<usize> {
        let start = Instant::now();
        let mut seen = vec![widening.width()];
        for tick in 0..seconds * 100 {
            let bytes = rate(widening.width()) / 100;
            widening.arrived(bytes, true, start + Duration::from_millis(10 * tick));
            if seen.last() != Some(&widening.width()) {
                seen.push(widening.width());
            }
        }
        seen
    }

    #[test]
    fn connections_are_added_while_each_step_brings_more() {
        let lossy = |width| 500_000 * width as u64;
        assert_eq!(widths(&mut Widening::new(1, 16), 10, lossy), [1, 2, 4, 8, 16]);
    }

    #[test]
    fn a_link_that_one_connection_fills_gets_a_second_one_for_a_moment_only() {
        assert_eq!(widths(&mut Widening::new(1, 16), 10, |_| 12_500_000), [1, 2, 1]);
    }

    #[test]
    fn what_four_connections_fill_gets_four() {
        let rate = |width: usize| 1_000_000 * width.min(4) as u64;
        assert_eq!(widths(&mut Widening::new(1, 16), 10, rate), [1, 2, 4, 8, 4]);
    }

    #[test]
    fn a_step_that_did_not_help_is_tried_ever_more_seldom() {
        let seen = widths(&mut Widening::new(1, 16), 200, |_| 1_000_000);
        assert_eq!(seen.iter().filter(|&&width| width == 2).count(), 4, "at 1, 17, 49, 110 s or so");
    }

    #[test]
    fn a_receiver_that_is_behind_tries_nothing() {
        let (mut widening, start) = (Widening::new(1, 16), Instant::now());
        for tick in 0..1000 {
            widening.arrived(1 << 20, false, start + Duration::from_millis(10 * tick));
        }
        assert_eq!(widening.width(), 1);
    }

    #[test]
    fn a_configured_number_is_where_it_begins() {
        assert_eq!(widths(&mut Widening::new(4, 4), 10, |_| 1_000_000), [4]);
        assert_eq!(Widening::new(0, 0).width(), 1);
    }
}
