//! Stalls of a connection that stands: how long nothing came though something was due. Pure: handed the time.

use std::time::{Duration, Instant};

/// Nothing for this long is a stall.
pub const QUIET: Duration = Duration::from_secs(2);
/// Gaps up to this long are the network's way, if they come again and again.
const LONGEST_GAP: Duration = Duration::from_secs(5);

/// Amounts that came on a connection so far, and what is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Arrived {
    /// Bytes, also of a frame that is not whole yet.
    pub bytes: u64,
    /// This side waits for more; it is not busy with what came.
    pub listens: bool,
    /// The same, and the peer owes data that were asked for.
    pub awaits_data: bool,
}

impl Arrived {
    /// The same of two connections of one transfer together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self {
            bytes: self.bytes + other.bytes,
            listens: self.listens || other.listens,
            awaits_data: self.awaits_data || other.awaits_data,
        }
    }
}

/// Looks at a connection several times a second.
#[derive(Debug, Default)]
pub struct Stall {
    bytes: u64,
    /// Since when nothing came.
    since: Option<Instant>,
    /// The longest gap that ended soon.
    gap: Duration,
}

impl Stall {
    /// Time that nothing came, if that is a stall. Up to `idle` bytes between two looks are nothing.
    pub fn look(&mut self, now: Instant, bytes: u64, idle: u64, is_due: bool) -> Option<Duration> {
        let came = bytes.saturating_sub(self.bytes);
        self.bytes = bytes;
        let since = *self.since.get_or_insert(now);
        let quiet = now.duration_since(since);
        if !is_due {
            self.since = None;
            return None;
        }
        if came > idle {
            if quiet <= LONGEST_GAP {
                self.gap = self.gap.max(quiet);
            }
            self.since = Some(now);
            return None;
        }
        (quiet >= QUIET.max(2 * self.gap)).then_some(quiet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_stall_is_seen_after_two_seconds_and_ends_with_the_next_byte() {
        let (mut stall, start) = (Stall::default(), Instant::now());
        let mut look = |at: u32, bytes| stall.look(start + at * SECOND / 10, bytes, 0, true);
        assert_eq!((look(0, 0), look(1, 900), look(19, 900)), (None, None, None));
        assert_eq!(look(21, 900), Some(2 * SECOND));
        assert_eq!(look(90, 900), Some(89 * SECOND / 10));
        assert_eq!((look(91, 901), look(110, 901)), (None, None));
        assert_eq!(look(111, 901), Some(2 * SECOND), "such a stall is nothing to get used to");
    }

    #[test]
    fn what_is_not_due_or_not_read_does_not_stall() {
        let (mut stall, start) = (Stall::default(), Instant::now());
        assert_eq!(stall.look(start, 0, 0, true), None);
        assert_eq!(stall.look(start + 9 * SECOND, 0, 0, false), None);
        assert_eq!(stall.look(start + 10 * SECOND, 0, 0, true), None, "it is due only now");
        assert!(stall.look(start + 12 * SECOND, 0, 0, true).is_some());
    }

    #[test]
    fn a_slow_network_is_taken_for_a_stall_once_at_most() {
        let (mut stall, start) = (Stall::default(), Instant::now());
        let mut seen = Vec::new();
        // A packet each three seconds.
        for tick in 0..600 {
            let bytes = u64::from(tick / 30) * 32_000;
            let looked = stall.look(start + tick * SECOND / 10, bytes, 0, true);
            seen.extend(looked.map(|_| tick / 30));
        }
        seen.dedup();
        assert_eq!(seen, [0]);
    }

    #[test]
    fn pings_are_no_data() {
        let (mut stall, start) = (Stall::default(), Instant::now());
        let looks: Vec<_> =
            (0..4).map(|at| stall.look(start + at * SECOND, u64::from(at) * 20, 64, true)).collect();
        assert_eq!(looks, [None, None, Some(2 * SECOND), Some(3 * SECOND)]);
    }
}
