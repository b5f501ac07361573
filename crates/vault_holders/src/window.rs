//! How much a holder is asked for ahead: so much that its line is never idle, and not much more, since what is asked of a slow one comes last. Pure.

use std::time::Duration;

/// Bytes at first, and at least.
pub const LEAST: u64 = 512 << 10;
/// Bytes at most.
pub const MOST: u64 = 8 << 20;
/// A window that comes sooner, beside round trips, is doubled, ...
const SOON: Duration = Duration::from_millis(250);
/// ... and one that comes later is halved.
const LATE: Duration = Duration::from_secs(1);

/// The window of one holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HolderWindow {
    bytes: u64,
    round_trip: Duration,
    came: u64,
    since: Duration,
}

impl HolderWindow {
    /// Of a holder with this round trip.
    pub const fn new(round_trip: Duration) -> Self {
        Self { bytes: LEAST, round_trip, came: 0, since: Duration::ZERO }
    }

    /// Bytes that it is asked for ahead.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// It had nothing to bring, and is asked for something at `now`.
    pub const fn begins(&mut self, now: Duration) {
        (self.came, self.since) = (0, now);
    }

    /// It brought so many bytes. The new window, if it is another one.
    pub fn brought(&mut self, now: Duration, bytes: u64) -> Option<u64> {
        self.came += bytes;
        if self.came < self.bytes {
            return None;
        }
        let took = now.saturating_sub(self.since);
        let before = self.bytes;
        if took < SOON + 2 * self.round_trip {
            self.bytes = (self.bytes * 2).min(MOST);
        } else if took > LATE + 4 * self.round_trip {
            self.bytes = (self.bytes / 2).max(LEAST);
        }
        self.begins(now);
        (self.bytes != before).then_some(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The window after five seconds of a line that carries so many bytes a second, with so many milliseconds' round trip.
    fn after(rate: u64, round_trip: u64) -> u64 {
        let mut window = HolderWindow::new(Duration::from_millis(round_trip));
        window.begins(Duration::ZERO);
        let pieces = 5 * rate / 8192;
        for piece in 1..=pieces {
            // What the window does not allow waits for a round trip.
            let carried = rate.min(window.bytes() * 1000 / round_trip.max(1)).max(1);
            let now = Duration::from_secs_f64(piece as f64 * 8192.0 / carried as f64);
            window.brought(now, 8192);
        }
        window.bytes()
    }

    #[test]
    fn a_fast_line_has_a_long_window_and_a_slow_one_a_short_one() {
        for (rate, round_trip, least, most) in [
            (100_000_000, 1, MOST, MOST),
            (10_000_000, 100, 2 << 20, MOST),
            (1_000_000, 20, LEAST, LEAST),
            (20_000, 500, LEAST, LEAST),
        ] {
            let window = after(rate, round_trip);
            assert!((least..=most).contains(&window), "{rate} B/s, {round_trip} ms: {window}");
        }
    }

    #[test]
    fn one_that_becomes_slow_is_asked_for_less() {
        let mut window = HolderWindow::new(Duration::ZERO);
        let mut now = Duration::ZERO;
        while window.brought(now, LEAST) != Some(MOST) {}
        for _ in 0..1000 {
            now += Duration::from_millis(500);
            window.brought(now, LEAST);
        }
        assert_eq!(window.bytes(), LEAST * 2, "half a megabyte takes half a second");
    }
}
