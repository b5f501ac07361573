//! The rate at which the peer takes messages of the control stream, and its delay: whether the network, or the peer, is
//! behind. Pure: handed the time.
//!
//! Credit that the peer gives back tells what it took. The bytes that it took soonest show how long that takes
//! where nobody has to wait; what is under way for longer than that waits.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Credit is given back in steps of this size, bytes: so soon it shows whether the network is behind.
pub(super) const GIVE_BACK: usize = 128 << 10;
/// Bytes between two of those whose time is kept: as many as are given back at once.
const SPACE: u64 = GIVE_BACK as u64;
/// Time for which taken bytes are counted: a connection over a usual round trip takes as long to find its rate, and in less
/// time machines that are busy let come together what did not.
const WINDOW: Duration = Duration::from_millis(200);

/// Delivery of the messages sent so far.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Delivered {
    /// Delay of the oldest bytes on their way, beyond the shortest seen. Zero before the peer took enough to tell.
    pub late: Duration,
    /// The most bytes a second that the peer took during a fifth of a second, as far as acknowledged: the network carries no
    /// less. `None` before so long had passed since there was something to tell.
    pub fastest: Option<f64>,
}

/// Messages on their way to the peer.
#[derive(Debug, Default)]
pub(super) struct ControlDelivery {
    sent: u64,
    taken: u64,
    /// Bytes that were sent by a time, from the oldest of which the peer has not taken all.
    marks: VecDeque<(u64, Instant)>,
    /// The least that a mark took to be taken.
    shortest: Option<Duration>,
    /// Since when, and from which byte on, the peer's taking is counted.
    counted: Option<(Instant, u64)>,
    fastest: Option<f64>,
}

impl ControlDelivery {
    /// So many bytes were sent.
    pub fn sent(&mut self, bytes: usize, now: Instant) {
        let before = self.sent;
        self.sent += bytes as u64;
        if before / SPACE < self.sent / SPACE {
            self.marks.push_back((self.sent, now));
            self.counted.get_or_insert((now, self.taken));
        }
    }

    /// Bytes that the peer did not take yet, as far as it acknowledged.
    pub const fn under_way(&self) -> usize {
        (self.sent - self.taken) as usize
    }

    /// The peer took so many, of those under way.
    pub fn taken(&mut self, bytes: usize, now: Instant) {
        self.taken += bytes as u64;
        // Of the last bytes that it took it tells with the next.
        while let Some((_, since)) = self.marks.pop_front_if(|(sent, _)| *sent < self.taken + SPACE) {
            let took = now.saturating_duration_since(since);
            self.shortest = Some(self.shortest.map_or(took, |shortest| shortest.min(took)));
        }
        self.count(now);
    }

    fn count(&mut self, now: Instant) {
        let Some((since, from)) = self.counted else { return };
        let passed = now.saturating_duration_since(since);
        if passed >= WINDOW {
            let rate = (self.taken - from) as f64 / passed.as_secs_f64();
            self.fastest = Some(self.fastest.map_or(rate, |fastest| fastest.max(rate)));
            self.counted = Some((now, self.taken));
        }
    }

    /// See there.
    pub fn delivered(&mut self, now: Instant) -> Delivered {
        self.count(now);
        let under_way = |(_, since): &(u64, Instant)| now.saturating_duration_since(*since);
        let oldest = self.marks.front().map_or(Duration::ZERO, under_way);
        let late = self.shortest.map_or(Duration::ZERO, |shortest| oldest.saturating_sub(shortest));
        Delivered { late, fastest: self.fastest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: usize = SPACE as usize;

    /// Delivery of 12 MiB in runs of 128 KiB, one every `every` ms, on a network of so many bytes a ms and a round trip
    /// of `round_trip` ms.
    fn delivered(every: u64, rate: u64, round_trip: u64) -> Delivered {
        let (start, mut delivery) = (Instant::now(), ControlDelivery::default());
        let (mut busy, mut on_the_way) = (0, VecDeque::new());
        let at = |ms| start + Duration::from_millis(ms);
        let last = 95 * every;
        for ms in 0..=last {
            if ms % every == 0 {
                delivery.sent(SIZE, at(ms));
                busy = busy.max(ms) + SPACE / rate;
                on_the_way.push_back(busy + round_trip);
            }
            while on_the_way.pop_front_if(|due| *due <= ms).is_some() {
                delivery.taken(SIZE, at(ms));
            }
        }
        delivery.delivered(at(last))
    }

    #[test]
    fn only_a_network_that_is_slower_than_what_is_sent_is_late() {
        let (fast, slow) = (120_000, 1_200);
        for (what, every, rate, round_trip, is_late, fastest) in [
            ("1 Gbit/s", 10, fast, 20, false, 13.1e6),
            ("1 Gbit/s, far", 10, fast, 100, false, 13.1e6),
            ("10 Mbit/s", 10, slow, 20, true, 1.2e6),
            ("10 Mbit/s, far", 10, slow, 100, true, 1.2e6),
            ("10 Mbit/s, little to say", 120, slow, 20, false, 1.1e6),
        ] {
            let delivered = delivered(every, rate, round_trip);
            assert_eq!(delivered.late > Duration::from_millis(20), is_late, "{what}: {delivered:?}");
            assert!((0.85..1.05).contains(&(delivered.fastest.unwrap() / fastest)), "{what}: {delivered:?}");
        }
    }

    #[test]
    fn few_bytes_tell_nothing() {
        let (now, mut delivery) = (Instant::now(), ControlDelivery::default());
        let later = now + Duration::from_secs(1);
        delivery.sent(SIZE - 1, now);
        assert_eq!(delivery.delivered(later), Delivered::default());
        delivery.sent(SIZE, now);
        assert_eq!(delivery.delivered(now), Delivered::default(), "no time has passed");
        delivery.taken(SIZE, later);
        assert_eq!(delivery.delivered(later).fastest, Some(SIZE as f64));
    }
}
