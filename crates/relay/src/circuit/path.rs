//! What acknowledgements tell of the path: its round trip, its rate, and so how much may be under way. Pure.
//!
//! As BBR does it: the highest rate of late, times the shortest round trip, is what the path holds; twice that may be
//! under way, and what a relay's two sockets hold while a hop waits for a packet that was lost. So little is sent again after
//! a loss, and the path never runs dry.

use std::time::{Duration, Instant};

use towpath_link::PathInfo;

use crate::message::MAX_BLOCK;

/// Bytes that may be under way on a path that is hardly measured yet.
pub const FIRST_WINDOW: usize = 3 << 20;
/// The fewest later on.
pub const MIN_WINDOW: usize = 256 << 10;
/// The most, and what the other end must be ready to hold: the product of 1 Gbit/s and 40 ms passes, with half as much
/// again.
pub const MAX_WINDOW: usize = 8 << 20;
/// So many times the product of rate and round trip.
const GAIN: u64 = 2;
/// So long a hop stands still for a lost packet: what comes behind it waits at the relay, and is to keep the next hop busy
/// the next time.
const HELD: Duration = Duration::from_millis(80);
/// The most bytes that a relay's sockets are to hold so.
pub const MAX_HELD: usize = 1 << 20;
/// An acknowledgement is late after so many times the time that it takes.
const LATE: u32 = 4;
/// Rates are forgotten after one to two of these, if there was enough to send.
const PERIOD: Duration = Duration::from_secs(1);
/// ... or of so many round trips.
const PERIOD_ROUND_TRIPS: u32 = 10;
/// A block is to take the path less than this part of a second: one over it. After a relay was lost TCP begins slowly, and what was under
/// way goes again as it was cut: a hop begins when the one before has brought it a whole block.
const BLOCKS_PER_SECOND: u64 = 512;
/// The same once no relay was lost for [`CALM`]: each block costs a relay as much as its bytes.
const CALM_BLOCKS_PER_SECOND: u64 = 128;
pub(super) const CALM: Duration = Duration::from_secs(3);
/// The fewest bytes that a block is cut to if there is more.
const MIN_BLOCK: usize = 16 << 10;

/// State of a path when a block was sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct SentMark {
    at: Instant,
    /// Bytes acknowledged by then, and when the last of them were.
    delivered: u64,
    delivered_at: Instant,
    /// There was not enough to send.
    is_starved: bool,
}

/// Measurements of one circuit's path.
#[derive(Debug, Default)]
pub(super) struct PathEstimate {
    delivered: u64,
    delivered_at: Option<Instant>,
    rtt: Option<Duration>,
    min_rtt: Option<Duration>,
    /// The highest rates, in bytes a second, of this period and the one before it.
    rates: [u64; 2],
    /// There was enough to send once: they tell what the path passes, not what there was to pass.
    was_filled: bool,
    period_began: Option<Instant>,
    /// Time of the first block since a relay was lost, and whether that is long ago.
    calm_since: Option<Instant>,
    is_calm: bool,
}

impl PathEstimate {
    /// A block leaves at `now`; `is_starved` if more might be under way and there is no more.
    pub(super) fn sent(&mut self, now: Instant, is_idle: bool, is_starved: bool) -> SentMark {
        if is_idle {
            self.delivered_at = Some(now);
        }
        let delivered_at = self.delivered_at.unwrap_or(now);
        self.calm_since.get_or_insert(now);
        SentMark { at: now, delivered: self.delivered, delivered_at, is_starved }
    }

    /// A block of `len` bytes that left at `mark` was acknowledged; `is_last` of those that were acknowledged together.
    pub(super) fn acked(&mut self, len: usize, mark: SentMark, is_last: bool, now: Instant) {
        self.delivered += len as u64;
        self.delivered_at = Some(now);
        if !is_last {
            return;
        }
        self.is_calm = self.calm_since.is_some_and(|since| now.saturating_duration_since(since) >= CALM);
        let rtt = now.saturating_duration_since(mark.at);
        self.min_rtt = Some(self.min_rtt.map_or(rtt, |least| least.min(rtt)));
        self.rtt = Some(self.rtt.map_or(rtt, |smooth| (smooth * 7 + rtt) / 8));
        let time = now.saturating_duration_since(mark.delivered_at).max(rtt).max(Duration::from_micros(1));
        let rate = (self.delivered - mark.delivered) as f64 / time.as_secs_f64();
        self.note_rate(rate as u64, mark.is_starved, now);
    }

    fn note_rate(&mut self, rate: u64, is_starved: bool, now: Instant) {
        let period = PERIOD.max(self.rtt.unwrap_or_default() * PERIOD_ROUND_TRIPS);
        let began = *self.period_began.get_or_insert(now);
        self.was_filled |= !is_starved;
        if !is_starved && now.saturating_duration_since(began) >= period {
            self.rates = [rate, self.rates[0]];
            self.period_began = Some(now);
        } else if !is_starved || rate > self.rate() {
            self.rates[0] = self.rates[0].max(rate);
        }
    }

    /// What was under way is lost. If the way is another one from now on, it is measured anew.
    pub(super) const fn lost(&mut self, is_other_way: bool) {
        self.delivered_at = None;
        (self.calm_since, self.is_calm) = (None, false);
        if is_other_way {
            self.min_rtt = None;
            (self.rates, self.was_filled) = ([0; 2], false);
        }
    }

    fn rate(&self) -> u64 {
        self.rates[0].max(self.rates[1])
    }

    /// Bytes that may be under way.
    pub(super) fn window(&self) -> usize {
        let rtt = self.min_rtt.unwrap_or_default();
        let product = u128::from(self.rate()) * rtt.as_micros() / 1_000_000;
        let window = usize::try_from(product).unwrap_or(usize::MAX).saturating_mul(GAIN as usize);
        let held = (self.rate() as f64 * HELD.as_secs_f64()) as usize;
        // In its first period a path is as wide as TCP has found it to be so far.
        let least = if self.rates[1] == 0 { FIRST_WINDOW } else { MIN_WINDOW };
        window.saturating_add(held.min(MAX_HELD)).clamp(least, MAX_WINDOW)
    }

    /// Time after which an acknowledgement is late where so many bytes are under way.
    pub(super) fn patience(&self, in_flight: usize) -> Option<Duration> {
        let rate = Some(self.rate()).filter(|&rate| rate > 0)?;
        if !self.was_filled {
            // Of little that is sent now and then acknowledgements tell no rate, but how long they take.
            return Some(self.rtt?.saturating_mul(LATE));
        }
        let passing = Duration::from_secs_f64(in_flight as f64 / rate as f64);
        // The round trip without what is under way, which is counted already.
        Some((passing + self.min_rtt.unwrap_or_default()).saturating_mul(LATE))
    }

    /// Bytes of a block, if there is so much. A relay passes on whole blocks, so the first are small: TCP begins slowly.
    pub(super) fn block_len(&self) -> usize {
        let blocks = if self.is_calm { CALM_BLOCKS_PER_SECOND } else { BLOCKS_PER_SECOND };
        usize::try_from(self.rate() / blocks).unwrap_or(MAX_BLOCK).clamp(MIN_BLOCK, MAX_BLOCK)
    }

    /// The figures, where so many bytes are not acknowledged, and so many of them not sent.
    pub(super) fn info(&self, kept: usize, unsent: usize) -> PathInfo {
        PathInfo {
            rtt: self.rtt.unwrap_or_default(),
            min_rtt: self.min_rtt.unwrap_or_default(),
            congestion_window_bytes: self.window() as u64,
            delivery_rate_bytes_per_s: Some(self.rate()).filter(|&rate| rate > 0),
            unsent_bytes: unsent as u64,
            send_queue_bytes: kept as u64,
            ..PathInfo::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends windows over a path of this rate and round trip for a while.
    fn measured(rate: u64, rtt: Duration) -> PathEstimate {
        let (mut path, start) = (PathEstimate::default(), Instant::now());
        let clocking = |bytes: usize| Duration::from_secs_f64(bytes as f64 / rate as f64);
        let (mut now, mut free) = (start, start);
        let mut under_way = std::collections::VecDeque::new();
        for _ in 0..20_000 {
            while under_way.len() * MAX_BLOCK < path.window() {
                let mark = path.sent(now, under_way.is_empty(), false);
                free = free.max(now + rtt / 2) + clocking(MAX_BLOCK);
                under_way.push_back((mark, free + rtt / 2));
            }
            let (mark, arrives) = under_way.pop_front().unwrap();
            now = arrives;
            path.acked(MAX_BLOCK, mark, true, now);
        }
        path
    }

    #[test]
    fn the_window_is_twice_what_the_path_holds_and_what_a_relay_does() {
        let table = [
            ("a LAN", 125_000_000, 1, 1_200_000, 1_500_000),
            ("100 Mbit/s, 40 ms", 12_500_000, 40, 1_900_000, 2_300_000),
            ("1 Gbit/s, 40 ms", 125_000_000, 40, MAX_WINDOW, MAX_WINDOW),
            ("DSL", 193_000, 40, MIN_WINDOW, MIN_WINDOW),
        ];
        for (name, rate, rtt, least, most) in table {
            let path = measured(rate, Duration::from_millis(rtt));
            assert!((least..=most).contains(&path.window()), "{name}: {}", path.window());
            let found = path.rate() as f64 / rate as f64;
            assert!((0.9..1.1).contains(&found), "{name}: {found}");
        }
    }

    #[test]
    fn an_acknowledgement_is_late_by_what_the_path_takes() {
        assert_eq!(PathEstimate::default().patience(1), None);
        for (rate, rtt, in_flight, least, most) in [
            (12_500_000, 40, 1_000_000, 400, 900),
            (12_500_000, 40, 300, 150, 450),
            (7_000, 100, 256 << 10, 60_000, 1_000_000),
        ] {
            let path = measured(rate, Duration::from_millis(rtt));
            let late = path.patience(in_flight).unwrap().as_millis();
            assert!((least..most).contains(&late), "{rate} {in_flight}: {late} ms");
        }
    }

    #[test]
    fn who_has_little_to_say_waits_no_longer_for_more_at_once() {
        let (mut path, mut now) = (PathEstimate::default(), Instant::now());
        for _ in 0..10 {
            let mark = path.sent(now, true, true);
            now += Duration::from_millis(80);
            path.acked(100, mark, true, now);
        }
        let late = path.patience(20_000).unwrap();
        assert!(late < Duration::from_secs(1), "{late:?}");
    }

    #[test]
    fn who_has_little_to_say_makes_the_path_no_slower() {
        let mut path = measured(12_500_000, Duration::from_millis(40));
        let (rate, mut now) = (path.rate(), Instant::now() + Duration::from_secs(3600));
        for _ in 0..100 {
            let mark = path.sent(now, true, true);
            now += Duration::from_millis(40);
            path.acked(100, mark, true, now);
        }
        assert_eq!(path.rate(), rate);
        assert_eq!(path.block_len(), MAX_BLOCK, "no relay was lost");
        path.lost(false);
        assert_eq!(path.block_len() as u64, rate / BLOCKS_PER_SECOND);
        assert_eq!(measured(125_000_000, Duration::from_millis(40)).block_len(), MAX_BLOCK);
        assert_eq!(measured(193_000, Duration::from_millis(40)).block_len(), MIN_BLOCK);
    }
}
