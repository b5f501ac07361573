//! Fate of a packet on one direction of a link: a state machine handed the time.
//!
//! A packet arrives. It is dropped if the bytes still waiting for the link would exceed the queue.
//! It leaves when the link is free and has clocked it out. It may be lost. It is delivered one
//! delay later. The virtual clock of this crate and the lab's emulator run the same code.

use std::time::Duration;

use fastrand::Rng;

/// The smallest queue a link has by default.
const SMALLEST_QUEUE: u64 = 64 << 10;
/// A default queue holds what the link carries in this time, at least.
const SHORTEST_QUEUE: Duration = Duration::from_millis(20);

/// Length of a queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LinkQueue {
    /// Bytes.
    Bytes(u64),
    /// Bytes that the link carries in this time.
    Time(Duration),
}

/// One direction of a link. The default has no limit, no delay and loses nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkConfig {
    /// Bits per second; `None` for no limit.
    pub rate: Option<u64>,
    /// From leaving the queue to arriving at the other end.
    pub delay: Duration,
    /// The part of the packets that is lost, 0 to 1.
    pub loss: f64,
    /// Mean packets lost in a row: 1 for independent losses, more for bursts (the two-state model
    /// of Gilbert, 1960).
    pub burst: f64,
    /// The queue in front of the link; by default the larger of 64 KiB and what the link carries
    /// in 20 ms or in two delays.
    pub queue: Option<LinkQueue>,
    /// Bytes that each packet takes on the link besides its own (Ethernet: 14).
    pub overhead: u64,
    /// Nothing gets through.
    pub cut: bool,
}

impl Default for LinkConfig {
    fn default() -> Self {
        let delay = Duration::ZERO;
        Self { rate: None, delay, loss: 0.0, burst: 1.0, queue: None, overhead: 0, cut: false }
    }
}

impl LinkConfig {
    /// Time that the link takes to clock out `bytes`.
    pub fn clocking(&self, bytes: u64) -> Duration {
        let Some(rate) = self.rate.filter(|&rate| rate > 0) else { return Duration::ZERO };
        let nanos = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(rate);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Time that the last byte of a full queue waits.
    fn longest_wait(&self) -> Duration {
        match self.queue {
            Some(LinkQueue::Time(time)) => time,
            Some(LinkQueue::Bytes(bytes)) => self.clocking(bytes),
            None => self.clocking(SMALLEST_QUEUE).max(SHORTEST_QUEUE).max(self.delay * 2),
        }
    }
}

/// Result for a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketFate {
    /// It arrives at this time.
    Arrives(Duration),
    /// The queue was full.
    Overflow,
    /// It was lost on the way, or the link is cut.
    Lost,
}

/// Packets and bytes, without overhead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Packets that came to the link.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that the queue had no room for.
    pub overflows: u64,
    /// Packets lost on the way.
    pub lost: u64,
    /// Bytes of the packets that get through.
    pub delivered: u64,
}

/// One direction of a link. Times count from any moment that its caller chose.
#[derive(Debug, Clone)]
pub struct Link {
    config: LinkConfig,
    /// Time at which all that was queued has been clocked out.
    free: Duration,
    /// No packet arrives before one that came earlier, also when the delay shrinks.
    last_arrival: Duration,
    is_losing: bool,
    random: Rng,
    counters: Counters,
}

impl Link {
    /// An idle link; its losses follow from `seed`.
    pub fn new(config: LinkConfig, seed: u64) -> Self {
        let (free, last_arrival) = (Duration::ZERO, Duration::ZERO);
        let random = Rng::with_seed(seed);
        Self { config, free, last_arrival, is_losing: false, random, counters: Counters::default() }
    }

    /// The parameters now.
    pub const fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// New parameters, for packets that come from now on.
    pub fn set(&mut self, config: LinkConfig) {
        self.config = config;
    }

    /// Counters of what went over it so far.
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Time at which a packet of `len` bytes would find room in the queue: `now`, or later. An idle link has
    /// room for any packet.
    pub fn room_at(&self, now: Duration, len: u64) -> Duration {
        if self.config.rate.is_none() || self.config.cut || self.free <= now {
            return now;
        }
        let left = self.free + self.config.clocking(len + self.config.overhead);
        left.saturating_sub(self.config.longest_wait()).min(self.free).max(now)
    }

    /// A packet of `len` bytes comes at `now`, not before an earlier one.
    pub fn offer(&mut self, now: Duration, len: u64) -> PacketFate {
        self.counters.packets += 1;
        self.counters.bytes += len;
        if self.config.cut {
            self.counters.lost += 1;
            return PacketFate::Lost;
        }
        let size = len + self.config.overhead;
        let left = self.free.max(now) + self.config.clocking(size);
        if self.room_at(now, len) > now {
            self.counters.overflows += 1;
            return PacketFate::Overflow;
        }
        self.free = left;
        if self.loses() {
            self.counters.lost += 1;
            return PacketFate::Lost;
        }
        self.counters.delivered += len;
        self.last_arrival = self.last_arrival.max(left + self.config.delay);
        PacketFate::Arrives(self.last_arrival)
    }

    /// Draws whether this packet is lost. In bursts the link changes between a state that loses
    /// everything and one that loses nothing, so that runs have the mean length asked for and all
    /// losses make up the share asked for.
    fn loses(&mut self) -> bool {
        let LinkConfig { loss, burst, .. } = self.config;
        if loss <= 0.0 {
            return false;
        }
        if loss >= 1.0 {
            return true;
        }
        if burst <= 1.0 {
            return self.random.f64() < loss;
        }
        let change = match self.is_losing {
            true => 1.0 / burst,
            false => loss / (burst * (1.0 - loss)),
        };
        if self.random.f64() < change {
            self.is_losing = !self.is_losing;
        }
        self.is_losing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    fn megabit(rate: u64) -> LinkConfig {
        LinkConfig { rate: Some(rate * 1_000_000), ..LinkConfig::default() }
    }

    fn arrival(fate: PacketFate) -> Duration {
        match fate {
            PacketFate::Arrives(at) => at,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_packet_is_clocked_out_and_then_delayed() {
        let mut link = Link::new(LinkConfig { delay: 5 * MILLI, ..megabit(8) }, 0);
        assert_eq!(arrival(link.offer(MILLI, 1000)), 7 * MILLI, "1000 bytes take 1 ms at 8 Mbit/s");
        assert_eq!(arrival(link.offer(MILLI, 1000)), 8 * MILLI, "the next one waits for it");
        assert_eq!(arrival(link.offer(100 * MILLI, 1000)), 106 * MILLI, "an idle link saves nothing up");
    }

    #[test]
    fn overhead_takes_time_and_is_not_counted_as_bytes() {
        let mut link = Link::new(LinkConfig { overhead: 1000, ..megabit(8) }, 0);
        assert_eq!(arrival(link.offer(Duration::ZERO, 1000)), 2 * MILLI);
        assert_eq!(link.counters().bytes, 1000);
    }

    #[test]
    fn a_full_queue_drops_and_an_empty_one_takes_any_packet() {
        let config = LinkConfig { queue: Some(LinkQueue::Bytes(2500)), ..megabit(8) };
        let mut link = Link::new(config, 0);
        let fates: Vec<PacketFate> = (0..4).map(|_| link.offer(Duration::ZERO, 1000)).collect();
        assert_eq!(fates[2..], [PacketFate::Overflow, PacketFate::Overflow]);
        assert_eq!(link.counters().overflows, 2);
        let at = arrival(link.offer(10 * MILLI, 64_000));
        assert_eq!(at, 74 * MILLI, "longer than the queue, but nothing is in its way");
    }

    #[test]
    fn a_queue_may_be_given_as_time() {
        let config = LinkConfig { queue: Some(LinkQueue::Time(3 * MILLI)), ..megabit(8) };
        let mut link = Link::new(config, 0);
        let through = (0..10).filter(|_| matches!(link.offer(Duration::ZERO, 1000), PacketFate::Arrives(_)));
        assert_eq!(through.count(), 3);
    }

    #[test]
    fn losses_have_the_share_and_the_burst_length_asked_for() {
        for (loss, burst) in [(0.01, 1.0), (0.05, 1.0), (0.05, 4.0), (0.2, 10.0)] {
            let mut link = Link::new(LinkConfig { loss, burst, ..LinkConfig::default() }, 7);
            let lost: Vec<bool> =
                (0..400_000).map(|_| link.offer(Duration::ZERO, 1) == PacketFate::Lost).collect();
            let count = lost.iter().filter(|&&lost| lost).count() as f64;
            let runs = lost.windows(2).filter(|pair| pair[0] && !pair[1]).count() as f64;
            let share = count / lost.len() as f64;
            assert!((share / loss - 1.0).abs() < 0.1, "{share} lost of {loss}");
            let expected = if burst > 1.0 { burst } else { 1.0 / (1.0 - loss) };
            assert!((count / runs / expected - 1.0).abs() < 0.1, "{} in a row of {expected}", count / runs);
        }
    }

    #[test]
    fn a_cut_link_lets_nothing_through_and_a_shorter_delay_keeps_the_order() {
        let slow = LinkConfig { delay: 50 * MILLI, ..LinkConfig::default() };
        let mut link = Link::new(slow.clone(), 0);
        assert_eq!(arrival(link.offer(Duration::ZERO, 1)), 50 * MILLI);
        link.set(LinkConfig { cut: true, ..slow });
        assert_eq!(link.offer(MILLI, 1), PacketFate::Lost);
        link.set(LinkConfig::default());
        assert_eq!(arrival(link.offer(2 * MILLI, 1)), 50 * MILLI, "not before the first");
    }

    #[test]
    fn the_same_seed_loses_the_same_packets() {
        let fates = |seed| {
            let mut link = Link::new(LinkConfig { loss: 0.3, ..megabit(10) }, seed);
            (0..500).map(|at| link.offer(MILLI * at, 100)).collect::<Vec<_>>()
        };
        assert_eq!(fates(1), fates(1));
        assert_ne!(fates(1), fates(2));
    }
}
