//! Comparison of what lies in an object's place with the values of its pieces, while the network brings
//! others: the disk from the front, the network from the end where that is of use. Pure: handed the time.
//!
//! The disk goes on as long as it brings good pieces at a rate that counts beside the network's. Else it only
//! looks at a place here and there: of a file in which something was inserted nothing behind that is good, but of
//! one that was written over in part the rest is. The network is kept from what most likely is here already, unless
//! the disk is so slow that waiting for it would take longer than the network alone.

use std::ops::Range;
use std::time::Duration;

use crate::intervals::Intervals;
use crate::rate::Rate;
use crate::source::is_near;

/// Pieces that wait to be read or are, at most, and before it is known how fast that is.
const MOST_READS: f64 = 8.0;
const FIRST_READS: u64 = 2;
/// Seconds that they take together, at most: a slow disk is needed for other things, too.
const QUEUED: f64 = 0.1;
/// Weight of the newest piece in the share of good ones.
const WEIGHT: f64 = 1.0 / 8.0;
/// From this share on the next piece is taken for good.
const LIKELY: f64 = 0.5;
/// Bytes a second that comparing brings, as a share of the network's, below which it only looks here and there.
const LEAST_SHARE: f64 = 0.1;
/// Interval at which it does.
const PAUSE: Duration = Duration::from_millis(100);
/// Time that the network waits for the first samples, by which shifted pieces are found.
const HELD: Duration = Duration::from_millis(100);
/// Distance between such looks, as a share of what is left (the golden ratio): anywhere soon.
const STEP: f64 = 0.618_033_988_749_894_9;
/// A disk faster than this share of the network is waited for where pieces are likely good: what is fetched once more
/// has to save time.
const FAST_DISK: f64 = 0.5;
/// A near network is most likely fast. For what such a one brings in a tenth of a second it is tried before the disk, so
/// long, and the disk rests while it does bring the rest that soon: a slow disk would take longer for what it has begun.
const MOST_TRIED: u64 = 12 << 20;
const TRIED: Duration = Duration::from_millis(50);
const SOON: f64 = 0.1;
/// One piece shows no more than a third of a fast network's rate.
const SOON_AT_FIRST: f64 = 3.0 * SOON;
/// Seconds that the disk still needs above which it is helped by any network that is faster.
const SHORT: f64 = 1.0;
/// Seconds that the disk still needs above which a network that nobody knows is tried with a piece, and one that may
/// be faster by now, having shown this share of the disk's rate at least.
const LONG: f64 = 2.0;
const LEAST_KNOWN: f64 = 0.25;

/// The pieces of one object that may be here. See the head of this module.
#[derive(Debug)]
pub(super) struct Comparison {
    /// Those that nobody looked at.
    left: Intervals,
    /// Piece at which the disk goes on.
    next: u64,
    /// The share of pieces that are good, of late.
    good: f64,
    reading: u64,
    /// Number of pieces that are read at once.
    reads: u64,
    rate: Rate,
    /// Bytes that were good.
    kept: u64,
    looks: u32,
    last_look: Duration,
    /// True if a piece was not in its place.
    has_missed: bool,
    /// Before which piece the disk stops, while what comes behind cannot be found yet.
    end: Option<u64>,
    /// Until when nothing is requested of the network that may be found then.
    held_until: Duration,
    /// Until when the network is tried first, and bytes of a piece; none before it began, and if that is not so.
    trial: Option<(Duration, u64)>,
    has_begun: bool,
    /// True if it came in an interrupted transfer: it is most likely good, and not to come again to save a moment.
    came_before: bool,
}

/// State of the network at the moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct NetworkRate {
    /// Bytes a second; 0 if nothing came yet.
    pub(super) rate: f64,
    /// True if more could be requested of it.
    pub(super) has_room: bool,
    /// True if nothing is requested of it.
    pub(super) is_idle: bool,
    /// Bytes that are requested of it and have not come.
    pub(super) requested: u64,
}

impl Default for Comparison {
    fn default() -> Self {
        Self {
            left: Intervals::default(),
            next: 0,
            good: 1.0,
            reading: 0,
            reads: FIRST_READS,
            rate: Rate::default(),
            kept: 0,
            looks: 0,
            last_look: Duration::ZERO,
            has_missed: false,
            end: None,
            held_until: Duration::ZERO,
            trial: None,
            has_begun: false,
            came_before: false,
        }
    }
}

impl Comparison {
    /// Piece `index` may be here.
    pub(super) fn add(&mut self, index: u64) {
        self.left.insert(index..index + 1);
    }

    /// Pieces of so many bytes are about to be compared; `round_trip` is that of the network that may be tried first, zero
    /// if nobody knows. Only the first such word counts.
    pub(super) fn begin(&mut self, bytes: u64, round_trip: impl FnOnce() -> Option<Duration>, now: Duration) {
        let is_little = self.left.len().saturating_mul(bytes) <= MOST_TRIED;
        if !std::mem::replace(&mut self.has_begun, true) && is_little {
            let near = round_trip().filter(|far| is_near(*far));
            self.trial = near.map(|_| (now + TRIED, bytes));
        }
    }

    /// Takes note that what is compared came in an interrupted transfer.
    pub(super) const fn has_come_before(&mut self) {
        self.came_before = true;
    }

    /// Until when a network of which nothing is known is tried first, if it is.
    pub(super) fn trial_end(&self) -> Option<Duration> {
        self.trial.map(|(until, _)| until).filter(|until| !until.is_zero())
    }

    /// Ends the trial; what is known of the network by now decides.
    pub(super) fn trial_is_over(&mut self) {
        self.trial = self.trial.map(|(_, bytes)| (Duration::ZERO, bytes));
    }

    /// The network has others to bring, too: nothing is left to it.
    pub(super) const fn give_way(&mut self) {
        self.trial = None;
    }

    /// True if the network is tried first, or brings the rest so soon that the disk is left alone.
    fn is_tried(&self, network: NetworkRate, now: Duration) -> bool {
        self.trial.is_some_and(|(until, bytes)| {
            let soon = if now < until { SOON_AT_FIRST } else { SOON };
            let rest = (self.left.len() * bytes + network.requested) as f64;
            if network.rate > 0.0 { rest / network.rate < soon } else { now < until }
        })
    }

    /// True if nobody looked at piece `index`.
    pub(super) fn is_left(&self, index: u64) -> bool {
        self.left.covers(&(index..index + 1))
    }

    /// True if nothing is left to look at.
    pub(super) fn is_over(&self) -> bool {
        self.left.is_empty()
    }

    /// Expected number of good pieces among those that are left.
    pub(super) fn expected_good(&self) -> f64 {
        self.left.len() as f64 * self.good
    }

    /// Bytes a second that were read and hashed, 0 if nothing was yet.
    pub(super) fn rate(&self, now: Duration) -> f64 {
        self.rate.get(now, u64::MAX)
    }

    /// True if a piece was not where it should be.
    pub(super) const fn has_missed(&self) -> bool {
        self.has_missed
    }

    /// From now on pieces are found that are shifted: those before `end`, and nothing is read behind it.
    pub(super) fn follow(&mut self, end: Option<u64>, now: Duration) {
        let is_more = end.is_some_and(|end| end > 0) && self.end == Some(0);
        self.good = if is_more { 1.0 } else { self.good };
        self.held_until = if end == Some(0) { now + HELD } else { Duration::ZERO };
        self.end = end;
    }

    /// Bytes that were good.
    pub(super) const fn kept(&self) -> u64 {
        self.kept
    }

    /// True if pieces are likely good.
    pub(super) const fn is_likely(&self) -> bool {
        self.good >= LIKELY
    }

    /// True if chunks, which are sought on disk and network at once, have to wait for what is left: it is likely
    /// good, and soon read.
    pub(super) fn is_worth_waiting_for(&self, network: f64, now: Duration) -> bool {
        let disk = self.rate(now);
        self.is_likely() && (disk <= 0.0 || disk >= FAST_DISK * network)
    }

    /// Leaves to others what is left; returns which pieces.
    pub(super) fn give_up(&mut self) -> Vec<Range<u64>> {
        let left = std::mem::take(&mut self.left);
        left.iter().collect()
    }

    /// The next piece to read, if one should be read now; with `in_any_case` however the network does.
    pub(super) fn next(&mut self, network: NetworkRate, in_any_case: bool, now: Duration) -> Option<u64> {
        if self.reading >= self.reads || !in_any_case && self.is_tried(network, now) {
            return None;
        }
        if !in_any_case && !self.goes_on(network.rate, now) {
            if now.saturating_sub(self.last_look) < PAUSE || self.reading > 0 {
                return None;
            }
            self.next = self.somewhere()?;
            (self.looks, self.last_look) = (self.looks + 1, now);
        }
        let end = self.end.unwrap_or(u64::MAX);
        let before_end = |index: &u64| *index < end;
        let next = self.left.first_from(self.next).filter(before_end);
        let index = next.or_else(|| self.left.first_from(0).filter(before_end))?;
        self.left.remove(index..index + 1);
        (self.next, self.reading) = (index + 1, self.reading + 1);
        self.rate.requested(now);
        Some(index)
    }

    /// True if comparing brings enough beside the network.
    fn goes_on(&self, network: f64, now: Duration) -> bool {
        let disk = self.rate(now);
        disk <= 0.0 || self.good * disk >= LEAST_SHARE * network
    }

    fn somewhere(&self) -> Option<u64> {
        let (first, last) = (self.left.first_from(0)?, self.left.last()?);
        let share = (f64::from(self.looks + 1) * STEP).fract();
        Some(first + ((last + 1 - first) as f64 * share) as u64)
    }

    /// A piece of so many bytes was read, of which `good` are right or likely so.
    pub(super) fn compared(&mut self, bytes: u64, good: u64, now: Duration) {
        self.reading = self.reading.saturating_sub(1);
        self.rate.arrived(now, bytes, self.reading == 0);
        let rate = self.rate(now);
        if rate > 0.0 {
            self.reads = (QUEUED * rate / bytes.max(1) as f64).clamp(1.0, MOST_READS) as u64;
        }
        self.kept += good;
        self.has_missed |= good < bytes;
        self.good += WEIGHT * (good as f64 / bytes.max(1) as f64 - self.good);
    }

    /// A piece that the network should bring, though it may be here; pieces have about `bytes` bytes.
    pub(super) fn for_network(&mut self, network: NetworkRate, bytes: u64, now: Duration) -> Option<u64> {
        let last = self.left.last().filter(|_| network.has_room && self.leaves_to(network, bytes, now))?;
        self.left.remove(last..last + 1);
        Some(last)
    }

    fn leaves_to(&self, network: NetworkRate, bytes: u64, now: Duration) -> bool {
        if now < self.held_until {
            return false;
        }
        if self.is_tried(network, now) {
            return network.rate > 0.0 || network.is_idle;
        }
        let disk = self.rate(now);
        if !self.is_likely() {
            return true;
        }
        if disk <= 0.0 {
            return false;
        }
        let seconds = (self.left.len() * bytes) as f64 / disk;
        let is_much_slower = disk < FAST_DISK * network.rate && !self.came_before;
        let is_slow = is_much_slower || disk < network.rate && seconds > SHORT;
        // A rate measured of a network that is hardly used may be wrong by now.
        let is_unknown = network.rate <= 0.0 || network.rate > LEAST_KNOWN * disk;
        is_slow || is_unknown && network.is_idle && seconds > LONG
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 256 << 10;

    /// Result of a comparison: pieces the disk found good, pieces that the network brought, and when it was over.
    struct Came {
        good: u64,
        fetched: u64,
        seconds: f64,
    }

    /// Disk and network bring bytes at these rates, until all of `count` pieces are here.
    fn run(disk: f64, network: f64, count: u64, is_good: impl Fn(u64) -> bool) -> Came {
        let mut it = Comparison::default();
        (0..count).for_each(|index| it.add(index));
        let (mut good, mut fetched, mut wanted, mut reading) = (0, 0, 0, Vec::new());
        let (mut read_until, mut brought_until, mut measured) = (0.0, 0.0, 0.0);
        let mut outstanding = 0;
        for tick in 0u32.. {
            let now = Duration::from_micros(50 * u64::from(tick));
            let seconds = now.as_secs_f64();
            while let Some(&index) = reading.first().filter(|_| read_until <= seconds) {
                reading.remove(0);
                read_until += BYTES as f64 / disk;
                it.compared(BYTES, if is_good(index) { BYTES } else { 0 }, now);
                if is_good(index) { good += 1 } else { wanted += 1 }
            }
            while outstanding > 0 && brought_until <= seconds {
                (outstanding, fetched, measured) = (outstanding - 1, fetched + 1, network);
                brought_until += BYTES as f64 / network;
            }
            if good + fetched == count {
                return Came { good, fetched, seconds };
            }
            if outstanding == 0 {
                brought_until = seconds + BYTES as f64 / network;
            }
            while outstanding < 2 && wanted > 0 {
                (outstanding, wanted) = (outstanding + 1, wanted - 1);
            }
            let state = |outstanding| NetworkRate {
                rate: measured,
                has_room: outstanding < 2,
                is_idle: outstanding == 0,
                requested: outstanding * BYTES,
            };
            while it.for_network(state(outstanding), BYTES, now).is_some() {
                outstanding += 1;
            }
            if reading.is_empty() {
                read_until = seconds + BYTES as f64 / disk;
            }
            while let Some(index) = it.next(state(outstanding), false, now) {
                reading.push(index);
            }
            assert!(tick < 10_000_000, "it does not end");
        }
        unreachable!()
    }

    #[test]
    fn what_is_here_is_not_fetched_over_a_network_slower_than_the_disk() {
        let came = run(500e6, 1e6, 400, |_| true);
        assert_eq!((came.good, came.fetched), (400, 0));
        let came = run(500e6, 1e6, 400, |index| index % 100 != 7);
        assert_eq!((came.good, came.fetched), (396, 4));
    }

    #[test]
    fn with_a_slow_disk_the_network_brings_the_end_meanwhile() {
        let came = run(40e6, 120e6, 4000, |_| true);
        assert!(came.seconds < 4000.0 * BYTES as f64 / 160e6 * 1.1, "{}", came.seconds);
        assert!(came.good > 900, "{}", came.good);
    }

    /// An interrupted get's rest was hashed slower than the network brings more, and half of it came again.
    #[test]
    fn what_came_before_does_not_come_again_to_save_a_moment() {
        let network = NetworkRate { rate: 200e6, has_room: true, is_idle: false, requested: 0 };
        let asks = |came_before, count: u64, good| {
            let mut it = Comparison { came_before, ..Comparison::default() };
            (0..count).for_each(|index| it.add(index));
            let at = |index: u32| Duration::from_secs_f64(BYTES as f64 / 60e6) * index;
            for index in 0..20 {
                it.next(network, true, at(index));
                it.compared(BYTES, if good { BYTES } else { 0 }, at(index + 1));
            }
            it.for_network(network, BYTES, at(20)).is_some()
        };
        let (little, much) = (160, 8000);
        assert!(!asks(true, little, true) && asks(false, little, true));
        assert!(asks(true, much, true), "it would take seconds");
        assert!(asks(true, little, false), "nothing was kept of it");
    }

    #[test]
    fn behind_an_insertion_the_network_waits_for_nothing_and_the_disk_hardly_reads() {
        for (disk, network) in [(40e6, 120e6), (1e9, 1e9)] {
            let came = run(disk, network, 4000, |index| index < 5);
            assert!(came.good <= 5);
            assert!(came.seconds < 4000.0 * BYTES as f64 / network * 1.03, "{}", came.seconds);
        }
    }

    #[test]
    fn what_is_the_same_behind_a_long_change_is_found_by_looking_here_and_there() {
        let came = run(500e6, 60e6, 8000, |index| index >= 1000);
        assert!(came.good > 5500, "{}", came.good);
    }

    /// A network that was measured while TCP began was taken for slower than it is, and was idle for the 25 seconds
    /// that the disk took.
    #[test]
    fn a_network_that_was_measured_too_slow_is_tried_again() {
        let mut it = Comparison::default();
        (0..4000).for_each(|index| it.add(index));
        let at = |ms: u64| Duration::from_millis(ms);
        let unknown = NetworkRate { rate: 0.0, has_room: true, is_idle: true, requested: 0 };
        for ms in 0..100 {
            it.next(unknown, true, at(ms * 6));
            it.compared(BYTES, BYTES, at(ms * 6 + 6));
        }
        let network = |rate, is_idle| NetworkRate { rate, has_room: true, is_idle, requested: 0 };
        let mut asks = |rate, is_idle| it.for_network(network(rate, is_idle), BYTES, at(600)).is_some();
        assert!(asks(119e6, false), "faster than the disk");
        assert!(asks(60e6, false), "a little faster, and the disk takes long");
        assert!(asks(30e6, true) && !asks(30e6, false), "tried a piece at a time");
        assert!(!asks(1e6, true), "slower in any case");
    }

    /// Of 10 MB the disk had begun 14 pieces before the network was known, and the last two took it 0.14 s.
    #[test]
    fn a_near_network_is_tried_first_for_what_it_brings_soon() {
        let at = Duration::from_millis;
        let network = |rate, is_idle| NetworkRate { rate, has_room: true, is_idle, requested: 0 };
        let begun = |count: u64, round_trip: Option<u64>| {
            let mut it = Comparison::default();
            (0..count).for_each(|index| it.add(index));
            it.begin(BYTES, || round_trip.map(Duration::from_micros), at(10));
            it
        };
        let mut near = begun(40, Some(200));
        assert_eq!(near.next(network(0.0, true), false, at(10)), None, "the disk rests");
        assert_eq!(near.for_network(network(0.0, true), BYTES, at(10)), Some(39));
        assert_eq!(near.for_network(network(0.0, false), BYTES, at(11)), None, "one piece tells");
        assert_eq!(
            near.for_network(network(40e6, false), BYTES, at(15)),
            Some(38),
            "likely faster than that"
        );
        assert_eq!(near.next(network(119e6, false), false, at(100)), None, "the rest is here soon");
        assert_eq!(near.for_network(network(40e6, false), BYTES, at(100)), None, "it is not faster");
        assert_eq!(near.for_network(network(12e6, false), BYTES, at(20)), None, "it is slow");
        assert_eq!(near.next(network(12e6, false), false, at(20)), Some(0));
        let busy = NetworkRate { requested: 64 << 20, ..network(119e6, false) };
        assert_eq!(begun(40, Some(200)).next(busy, false, at(20)), Some(0), "it has others to bring");
        let mut alone_no_more = begun(40, Some(200));
        alone_no_more.give_way();
        assert_eq!(alone_no_more.next(network(0.0, true), false, at(10)), Some(0));
        assert_eq!(begun(40, Some(200)).next(network(0.0, true), false, at(60)), Some(0), "nothing came");
        for (count, round_trip) in [(40, None), (40, Some(0)), (40, Some(5000)), (80, Some(200))] {
            assert_eq!(
                begun(count, round_trip).next(network(0.0, true), false, at(10)),
                Some(0),
                "{count} {round_trip:?}"
            );
        }
        let mut with_recipe = begun(40, Some(200));
        assert_eq!(
            with_recipe.next(network(0.0, true), true, at(10)),
            Some(0),
            "what waits for chunks is compared in any case"
        );
    }

    #[test]
    fn no_piece_is_lost_and_none_comes_twice() {
        let mut it = Comparison::default();
        (0..50).for_each(|index| it.add(index));
        let (mut seen, mut now) = (Vec::new(), Duration::ZERO);
        let network = NetworkRate { rate: 1e9, has_room: true, is_idle: false, requested: 0 };
        while !it.is_over() {
            now += PAUSE;
            seen.extend(it.next(network, false, now).inspect(|_| it.compared(BYTES, 0, now)));
            seen.extend(it.for_network(network, BYTES, now));
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..50).collect::<Vec<_>>());
    }
}
