//! What the line to a vault's server carries: as it is measured now, or else as it was lately, if it seems to be the same line.
//!
//! A put has to choose before it sends anything, so what the last one measured counts for a day. Who comes by another line, from home in the
//! place of the office, is known by its round trip.

use std::time::{Duration, SystemTime};

use towpath_content::DecodeError;
use towpath_content::codec::{Reader, Writer, invalid};

pub use crate::line::MeasuredLine;

/// So long a measurement counts.
const COUNTS: u64 = 24 * 3600;
/// Round trips that differ less than so many times are of one line, ...
const ALIKE: u32 = 4;
/// ... and those that are shorter than this: there the machines matter more.
const SHORT: Duration = Duration::from_millis(20);
/// A rate that is off by less than one part in so many is not written down again.
const NEAR: u64 = 4;

/// A measurement, and when it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptLine {
    /// What was measured.
    pub line: MeasuredLine,
    /// Seconds since 1970.
    pub time: u64,
}

impl KeptLine {
    /// The encoding.
    pub fn to_bytes(&self) -> Vec<u8> {
        let MeasuredLine { up, down, round_trip } = self.line;
        let micros = u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX);
        let mut out = Writer::new();
        out.u8(1).varint(up).varint(down).varint(micros).varint(self.time);
        out.into_bytes()
    }

    /// Reads an encoding.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        if reader.u8("line")? != 1 {
            return Err(invalid("line", "is of another version"));
        }
        let (up, down) = (reader.varint("rate up")?, reader.varint("rate down")?);
        let round_trip = Duration::from_micros(reader.varint("round trip")?);
        let time = reader.varint("time")?;
        reader.finish().map(|()| Self { line: MeasuredLine { up, down, round_trip }, time })
    }
}

/// What counts at `now`, in seconds since 1970: each direction as it is measured, or else as it was kept.
pub fn counting(measured: MeasuredLine, kept: Option<KeptLine>, now: u64) -> MeasuredLine {
    let is_fresh = |kept: &KeptLine| kept.time <= now && now - kept.time <= COUNTS;
    let is_it = |kept: &KeptLine| are_alike(measured.round_trip, kept.line.round_trip);
    let kept = kept.filter(|kept| is_fresh(kept) && is_it(kept)).map(|kept| kept.line).unwrap_or_default();
    let or = |rate: u64, kept: u64| if rate > 0 { rate } else { kept };
    MeasuredLine { up: or(measured.up, kept.up), down: or(measured.down, kept.down), ..measured }
}

fn are_alike(one: Duration, other: Duration) -> bool {
    let (short, long) = (one.min(other).max(SHORT), one.max(other).max(SHORT));
    long <= short * ALIKE
}

/// What is to be written down at `time` of what was measured, if that is new.
pub fn to_keep(measured: MeasuredLine, kept: Option<KeptLine>, time: u64) -> Option<KeptLine> {
    let line = counting(measured, kept, time);
    let is_known = kept.is_some_and(|kept| {
        let is_near = |one: u64, other: u64| one.abs_diff(other) <= other / NEAR;
        let is_fresh = time >= kept.time && time - kept.time < COUNTS / 2;
        is_fresh && is_near(line.up, kept.line.up) && is_near(line.down, kept.line.down)
    });
    let is_measured = measured.up > 0 || measured.down > 0;
    (is_measured && !is_known).then_some(KeptLine { line, time })
}

/// Seconds since 1970.
pub fn seconds() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn line(up: u64, down: u64, millis: u64) -> MeasuredLine {
        MeasuredLine { up, down, round_trip: Duration::from_millis(millis) }
    }

    #[test]
    fn what_is_measured_now_counts_or_what_was_lately_on_the_same_line() {
        let kept = Some(KeptLine { line: line(10, 20, 100), time: 1_000_000 });
        let day = COUNTS;
        let table = [
            (line(0, 0, 90), kept, 1_000_000, (10, 20)),
            (line(0, 0, 399), kept, 1_000_000 + day, (10, 20)),
            (line(7, 0, 90), kept, 1_000_000, (7, 20)),
            (line(7, 8, 90), kept, 1_000_000, (7, 8)),
            (line(0, 0, 90), kept, 1_000_001 + day, (0, 0)),
            (line(0, 0, 90), kept, 999_999, (0, 0)),
            (line(0, 8, 401), kept, 1_000_000, (0, 8)),
            (line(0, 0, 24), kept, 1_000_000, (0, 0)),
            (line(0, 0, 25), kept, 1_000_000, (10, 20)),
            (line(3, 0, 1), None, 1_000_000, (3, 0)),
        ];
        for (measured, kept, now, expected) in table {
            let counts = counting(measured, kept, now);
            assert_eq!((counts.up, counts.down), expected, "{measured:?} at {now}");
        }
        assert!(are_alike(Duration::ZERO, Duration::from_millis(80)));
    }

    #[test]
    fn what_is_hardly_new_is_not_written_down_again() {
        let kept = Some(KeptLine { line: line(100, 200, 50), time: 1000 });
        let written = |up, down, time| {
            to_keep(line(up, down, 50), kept, time).map(|kept| (kept.line.up, kept.line.down))
        };
        assert_eq!(written(0, 0, 1000), None);
        assert_eq!(written(110, 190, 1000), None);
        assert_eq!(written(0, 190, 1000), None);
        assert_eq!(written(150, 0, 1000), Some((150, 200)));
        assert_eq!(written(110, 190, 1000 + COUNTS), Some((110, 190)), "it is old");
        assert_eq!(to_keep(line(5, 0, 50), None, 7), Some(KeptLine { line: line(5, 0, 50), time: 7 }));
    }

    #[test]
    fn a_measurement_comes_back_and_never_cut_short() {
        let kept = KeptLine { line: line(16_000, 48_000, 60), time: 1_900_000_000 };
        let bytes = kept.to_bytes();
        assert_eq!(KeptLine::from_bytes(&bytes), Ok(kept));
        assert!((0..bytes.len()).all(|end| KeptLine::from_bytes(&bytes[..end]).is_err()));
    }
}
