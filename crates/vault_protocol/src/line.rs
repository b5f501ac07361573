//! How many bytes a second a line carries up and down, by what went over it. Pure: who sends and receives tells how long it took.
//!
//! What a transfer takes is a round trip and the bytes' own time; a short one tells of the round trip alone and does not count.

use std::time::Duration;

/// Transfers of so many bytes count.
const LEAST: u64 = 64 << 10;
/// Shorter ones do if they took so long, ...
const LONG: Duration = Duration::from_secs(1);
/// ... and have so many bytes.
const LEAST_OF_LONG: u64 = 2 << 10;
/// Of a transfer at most all but this part is the round trip.
const OWN_PART: u32 = 8;

/// A line, as far as it was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MeasuredLine {
    /// Bytes a second to the server; 0: not known.
    pub up: u64,
    /// Bytes a second from the server; 0: not known.
    pub down: u64,
    /// The shortest round trip; zero: not known.
    pub round_trip: Duration,
}

/// What went over a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LineMeter {
    up: LineFlow,
    down: LineFlow,
    shortest: Option<Duration>,
}

/// One direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct LineFlow {
    bytes: u64,
    time: Duration,
}

impl LineMeter {
    /// A short question was answered after so long.
    pub fn answered(&mut self, after: Duration) {
        self.shortest = Some(self.shortest.map_or(after, |shortest| shortest.min(after)));
    }

    /// So many bytes were sent, and an answer to them came after so long.
    pub fn sent(&mut self, bytes: u64, after: Duration) {
        self.up.add(bytes, after, self.shortest);
    }

    /// So many bytes came within so long after they were asked for.
    pub fn received(&mut self, bytes: u64, after: Duration) {
        self.down.add(bytes, after, self.shortest);
    }

    /// What that tells.
    pub fn line(&self) -> MeasuredLine {
        let round_trip = self.shortest.unwrap_or_default();
        MeasuredLine { up: self.up.rate(), down: self.down.rate(), round_trip }
    }
}

impl LineFlow {
    fn add(&mut self, bytes: u64, after: Duration, shortest: Option<Duration>) {
        if bytes >= LEAST || bytes >= LEAST_OF_LONG && after >= LONG {
            let own = after.saturating_sub(shortest.unwrap_or_default());
            self.time = self.time.saturating_add(own.max(after / OWN_PART));
            self.bytes = self.bytes.saturating_add(bytes);
        }
    }

    fn rate(&self) -> u64 {
        let rate = u128::from(self.bytes) * 1_000_000_000 / self.time.as_nanos().max(1);
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(time: u64) -> Duration {
        Duration::from_millis(time)
    }

    #[test]
    fn both_directions_are_measured_without_the_round_trip() {
        let mut meter = LineMeter::default();
        assert_eq!(meter.line(), MeasuredLine::default());
        [90, 60, 70].into_iter().for_each(|after| meter.answered(ms(after)));
        meter.sent(160_000, ms(10_060));
        meter.received(480_000, ms(10_060));
        assert_eq!(meter.line(), MeasuredLine { up: 16_000, down: 48_000, round_trip: ms(60) });
        meter.sent(320_000, ms(10_060));
        assert_eq!(meter.line().up, 24_000, "what took longest weighs most");
    }

    #[test]
    fn what_is_short_does_not_count_unless_the_line_is_slow() {
        let mut meter = LineMeter::default();
        meter.answered(ms(100));
        meter.sent(10_000, ms(110));
        meter.received(1000, ms(3000));
        assert_eq!(meter.line(), MeasuredLine { round_trip: ms(100), ..MeasuredLine::default() });
        meter.sent(7000, ms(1100));
        assert_eq!(meter.line().up, 7000);
    }

    #[test]
    fn however_short_or_long_something_took_there_is_a_rate() {
        let mut meter = LineMeter::default();
        meter.answered(ms(100));
        meter.received(1 << 20, Duration::ZERO);
        meter.sent(80_000, ms(80));
        assert_eq!((meter.line().down, meter.line().up), (1_048_576_000_000_000, 8_000_000));
        meter.sent(u64::MAX, Duration::MAX);
        meter.received(u64::MAX, Duration::MAX);
        assert!(meter.line().down < 10);
    }
}
