//! Worth of asking the disk: when an object's recipe is wanted, when the search goes on, and how
//! long the network may wait for the disk.
//!
//! All three compare what is left for the network with what the other way would take. Nothing is
//! known of what the disk holds, so a search is taken for worth it if it *could* pay: unused
//! resources are free (the paper's third assumption), and back-pressure sees to it that they are unused.
//! Costs are the recipe's bytes, and a network that waits in vain.

use std::time::Duration;

use towpath_transfer::ObjectFacts;
use towpath_transfer::source::is_near;

use crate::policy::network::Network;
use crate::policy::table::*;

/// Bytes that TCP sends in the first round trip (RFC 6928).
const INITIAL_WINDOW: f64 = 14_600.0;
/// Bytes of most objects' pieces.
const PIECE: f64 = 262_144.0;

/// Progress of an object's transfer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RecipeProgress {
    /// Since the object's first bytes were asked for.
    pub elapsed: Duration,
    /// Bytes of it that have come.
    pub arrived: u64,
    /// Bytes of it that have not.
    pub rest: u64,
    /// All of its bytes.
    pub size: u64,
    /// The network as it is known.
    pub network: Network,
    /// Bytes a second that it may soon be found to carry ([`super::slow_start::SlowStart::hoped`]).
    pub hoped_rate: f64,
    /// Bytes a second that the disk reads and hashes.
    pub disk_rate: f64,
    /// True if the disk is free ([`super::backpressure::Backpressure::disk_is_free`]).
    pub disk_is_free: bool,
    /// True if what comes still grows from one round trip to the next.
    pub is_growing: bool,
    /// True if something like it is known to be here: a file in its place.
    pub is_promising: bool,
    /// True if some of what lies in its place was right: much else of it will be found there.
    pub is_alike: bool,
    /// True if whatever is done keeps something else waiting for a processor.
    pub processors_are_short: bool,
}

impl RecipeProgress {
    /// Seconds that the network needs for the rest.
    pub fn network_time(&self) -> f64 {
        self.rest as f64 / self.likely_rate()
    }

    /// Bytes a second, measured or not.
    fn likely_rate(&self) -> f64 {
        if self.network.rate > 0.0 { self.network.rate } else { self.first_rate() }
    }

    /// Before it was measured: less than a piece more than came in all this time, and while nothing came
    /// no faster than TCP begins.
    fn first_rate(&self) -> f64 {
        let coming = PIECE.min(self.rest as f64);
        let rate = (self.arrived as f64 + coming) / self.elapsed.as_secs_f64().max(0.001);
        if !self.network.is_far() || self.arrived > 0 {
            return rate;
        }
        rate.min(INITIAL_WINDOW / self.network.round_trip.as_secs_f64())
    }

    /// Seconds until the recipe is here, and a file of the object's rest is read and hashed.
    pub fn disk_time(&self) -> f64 {
        let size = self.size as f64;
        let recipe = self.network.round_trip.as_secs_f64() + size / SENDER_RATE;
        let bytes = if self.network.rate > 0.0 { RECIPE_SHARE * size / self.network.rate } else { 0.0 };
        recipe + bytes + self.rest as f64 / self.disk_rate.max(1.0)
    }

    /// Time for which a requested recipe should be waited for, before more pieces are asked for. What
    /// comes meanwhile may lie on the disk; so that is for networks on which a piece takes longer than
    /// the recipe takes to be made, and where pieces that likely lie here keep it from being made.
    pub fn hold(&self) -> Option<Duration> {
        let made = self.network.round_trip.as_secs_f64() + self.size as f64 / SENDER_RATE;
        let piece = self.network_time() * PIECE / self.rest.max(1) as f64;
        if self.is_alike && self.processors_are_short {
            return Some(Duration::from_secs_f64((2.0 * made).min(MOST_HELD)));
        }
        (piece > 2.0 * made)
            .then(|| Duration::from_secs_f64((HELD_SHARE * self.network_time()).min(MOST_HELD)))
    }

    /// True if the network is slow enough to be asked for a recipe.
    fn is_slow_enough(&self) -> bool {
        match (self.is_promising, self.processors_are_short) {
            (false, _) => self.stays_below(SPECULATIVE_BELOW) && !self.may_become_fast(),
            (true, true) => self.likely_rate() < BUSY_BELOW,
            (true, false) => true,
        }
    }

    /// True if the network carries less than this, and does not look as if it would soon be found to carry more.
    fn stays_below(&self, rate: f64) -> bool {
        self.likely_rate().max(self.hoped_rate) < rate
    }

    /// True of a network that brings more with each round trip, for twice as long as slow start is likely to take.
    fn may_become_fast(&self) -> bool {
        self.is_growing && self.elapsed < self.network.round_trip * WARM_UP_ROUND_TRIPS * 2
    }

    fn is_warm(&self) -> bool {
        let slow_start = self.network.round_trip * WARM_UP_ROUND_TRIPS;
        let knows_early = self.arrived >= TELLING_BYTES
            && self.elapsed >= TELLING_TIME.max(slow_start)
            && self.stays_below(SPECULATIVE_BELOW);
        let is_late = is_near(self.network.round_trip) && self.arrived == 0 && self.elapsed >= NEAR_WARM_UP;
        knows_early || is_late || self.elapsed >= WARM_UP.max(slow_start)
    }

    /// True if the network is not known yet, but the object likely and far enough to ask all the same.
    pub fn is_early(&self) -> bool {
        self.is_promising && self.network.is_far() && !self.is_warm()
    }
}

/// Decision whether one object's recipe is wanted; asked again and again while it is transferred.
#[derive(Debug, Clone, Copy, Default)]
pub struct RecipePolicy {
    is_wanted: bool,
}

impl RecipePolicy {
    /// True if the recipe is worth having now.
    pub fn wants(&mut self, progress: &RecipeProgress) -> bool {
        let (network, disk) = (progress.network_time(), progress.disk_time());
        let factor = if self.is_wanted { RECIPE_KEPT_ABOVE } else { RECIPE_ABOVE };
        self.is_wanted = (progress.is_warm() || progress.is_early())
            && (self.is_wanted || progress.is_slow_enough())
            && (progress.disk_is_free || self.is_wanted)
            && network > factor * disk
            && network > disk + LEAST_GAIN;
        self.is_wanted
    }
}

/// Decision whether the search goes on, by the rates of network and disk.
#[derive(Debug, Clone, Copy, Default)]
pub struct SearchPolicy {
    rests: bool,
}

impl SearchPolicy {
    /// False while the network is so much faster than the disk that searching gains less than it is in the way.
    pub fn goes_on(&mut self, network_rate: f64, disk_rate: f64) -> bool {
        let limit = if self.rests { SEARCH_RESUMES_BELOW } else { SEARCH_RESTS_ABOVE };
        self.rests = network_rate > limit * disk_rate;
        !self.rests
    }
}

/// True if an operation can still pay: the network takes a good part of the time that it does. A file is read from
/// its front while the network brings the end, and what it had until then was worth it.
pub fn can_pay(operation: f64, network_time: f64) -> bool {
    operation < MEETING * network_time
}

/// Seconds that the network may idle in all, for the disk is about to find what could be asked: a small
/// part of the time the transfer takes, and half of what the disk has saved already.
pub fn wait_limit(elapsed: f64, network_time: f64, saved: f64) -> f64 {
    IDLE_SHARE * (elapsed + network_time.min(1e6)) + saved / 2.0
}

/// True if an object's samples are worth having, of which so many bytes came in this time, and so many are still
/// missing though an older version is here. On a slower network its recipe finds more, and elsewhere, too; on one that
/// is faster than the disk the network alone is.
pub fn samples_pay(elapsed: Duration, arrived: u64, facts: &ObjectFacts<'_>) -> bool {
    let rate = arrived as f64 / elapsed.as_secs_f64().max(0.001);
    let is_long = facts.missing as f64 / rate > LEAST_GAIN;
    let is_fast = facts.read_rate >= rate.clamp(SLOWEST_DISK, FAST_DISK);
    arrived >= TELLING_BYTES && rate >= SLOW_BELOW && is_long && is_fast
}

/// True if asking for `len` bytes as a delta of a region pays, on a network of this rate, 0 if nothing came
/// yet. It costs no round trip, for the signature goes with the question.
pub fn delta_pays(rate: f64, len: u64, region: u64) -> bool {
    if len < LEAST_DELTA || region < LEAST_DELTA {
        return false;
    }
    let work = (len + region) as f64 / DELTA_RATE;
    rate <= 0.0 || LIKENESS * len.min(region) as f64 / rate > DELTA_MARGIN * work
}

#[cfg(test)]
mod tests {
    use towpath_transfer::OpenWays;

    use super::*;

    fn progress(rate: f64, size: u64) -> RecipeProgress {
        let elapsed = Duration::from_millis(300);
        let arrived = ((rate * 0.3) as u64).min(size);
        RecipeProgress {
            elapsed,
            arrived,
            rest: size - arrived,
            size,
            network: Network { rate, round_trip: Duration::from_millis(10) },
            hoped_rate: rate,
            disk_rate: 1e9,
            disk_is_free: true,
            is_growing: false,
            is_promising: true,
            is_alike: false,
            processors_are_short: false,
        }
    }

    /// The same from a sender that is so many microseconds away.
    fn far(round_trip: u64, progress: RecipeProgress) -> RecipeProgress {
        let network = Network { round_trip: Duration::from_micros(round_trip), ..progress.network };
        RecipeProgress { network, ..progress }
    }

    #[test]
    fn pieces_wait_for_a_recipe_that_they_would_keep_from_being_made_if_most_of_them_likely_lie_here() {
        let fast = far(1000, progress(119e6, 1 << 30));
        let alike = RecipeProgress { is_alike: true, ..fast };
        let short = RecipeProgress { processors_are_short: true, ..fast };
        let both = RecipeProgress { is_alike: true, ..short };
        assert_eq!([fast, alike, short].map(|it| it.hold()), [None; 3]);
        assert!(both.hold().is_some_and(|time| time < Duration::from_secs(3)));
    }

    #[test]
    fn a_table_of_networks() {
        for (rate, size, is_wanted) in [
            (190e3, 50 << 20, true),
            (190e3, 100 << 10, true),
            (119e6, 1 << 30, true),
            (119e6, 40 << 20, false),
            (1.2e9, 1 << 30, false),
            (600e6, 1 << 30, false),
            (0.0, 50 << 20, true),
        ] {
            let found = RecipePolicy::default().wants(&progress(rate, size));
            assert_eq!(found, is_wanted, "{rate} {size}");
        }
    }

    /// Two of 3,000 machines of the replay took up to 1.49 times as long as the disk alone.
    #[test]
    fn a_fast_network_is_left_alone_only_where_its_bytes_and_the_search_want_the_same_processors() {
        let fast = RecipeProgress { disk_rate: 3e9, ..progress(360e6, 1 << 31) };
        assert!(RecipePolicy::default().wants(&fast));
        assert!(!RecipePolicy::default().wants(&RecipeProgress { processors_are_short: true, ..fast }));
    }

    #[test]
    fn nothing_is_asked_in_the_first_moments_or_of_a_busy_disk() {
        let slow = progress(190e3, 50 << 20);
        let early = RecipeProgress { elapsed: Duration::from_millis(100), ..slow };
        let unlikely = RecipeProgress { is_promising: false, ..early };
        assert!(!RecipePolicy::default().wants(&unlikely));
        assert!(RecipePolicy::default().wants(&early), "likely and far");
        assert!(!RecipePolicy::default().wants(&far(1000, early)));
        let near = RecipeProgress { arrived: 0, ..far(100, early) };
        assert!(RecipePolicy::default().wants(&near), "a near sender would have sent a piece");
        assert!(
            !RecipePolicy::default().wants(&RecipeProgress { elapsed: Duration::from_millis(90), ..near })
        );
        assert!(!RecipePolicy::default().wants(&RecipeProgress { arrived: 1 << 18, ..near }));
        assert!(!RecipePolicy::default().wants(&RecipeProgress { disk_is_free: false, ..slow }));
        let (round_trip, elapsed) = (Duration::from_millis(100), Duration::from_millis(900));
        let unsought = RecipeProgress { is_promising: false, elapsed, ..far(100_000, slow) };
        for (is_growing, elapsed, wants) in [
            (false, elapsed, true),
            (true, elapsed, false),
            (true, round_trip * 2 * WARM_UP_ROUND_TRIPS, true),
        ] {
            let unsought = RecipeProgress { is_growing, elapsed, ..unsought };
            assert_eq!(RecipePolicy::default().wants(&unsought), wants, "{is_growing} {elapsed:?}");
        }
        let known_early = RecipeProgress { elapsed: Duration::from_millis(100), arrived: 9 << 20, ..slow };
        assert!(RecipePolicy::default().wants(&known_early));
    }

    /// It took as long as a piece would have, though it is smaller: the network was thought to be that fast.
    #[test]
    fn an_object_smaller_than_a_piece_of_which_nothing_came_is_slow() {
        let elapsed = Duration::from_millis(260);
        let small = RecipeProgress { elapsed, arrived: 0, rest: 100_000, ..progress(0.0, 100_000) };
        assert!((small.network_time() - 0.26).abs() < 0.001, "{}", small.network_time());
    }

    #[test]
    fn pieces_wait_for_a_recipe_where_they_take_longer() {
        let held = |rate, size| progress(rate, size).hold().map(|time| time.as_secs());
        assert_eq!(held(190e3, 50 << 20), Some(5));
        assert_eq!(held(1.25e6, 50 << 20), Some(2));
        assert_eq!(held(12.5e6, 50 << 20), None);
        assert_eq!(held(190e3, 100 << 30), None, "making it takes long");
    }

    #[test]
    fn deltas_are_for_slow_networks_and_regions_of_some_length() {
        const K: u64 = 1 << 10;
        for (rate, len, region, pays) in [
            (0.0, 32 * K, 32 * K, true),
            (193e3, 32 * K, 32 * K, true),
            (1.25e6, 16 * K, 48 * K, true),
            (12.5e6, 32 * K, 32 * K, true),
            (12.5e6, 16 * K, 120 * K, false),
            (30e6, 32 * K, 32 * K, false),
            (119e6, 32 * K, 32 * K, false),
            (193e3, 32 * K, K / 2, false),
            (193e3, K / 2, 32 * K, false),
        ] {
            assert_eq!(delta_pays(rate, len, region), pays, "{rate} {len} {region}");
        }
    }

    #[test]
    fn samples_are_for_fast_networks_on_which_much_is_missing() {
        const M: u64 = 1 << 20;
        let oid = towpath_content::Oid::of(b"");
        let group = towpath_transfer::Group::default();
        let facts = |missing, read_rate| ObjectFacts {
            oid,
            asked_as: oid,
            size: 1 << 30,
            missing,
            read_rate,
            kept: 0,
            open: OpenWays::RECIPE,
            group: &group,
        };
        for (name, rate, arrived, missing, disk, pays) in [
            ("1 Gbit/s", 119e6, 2 * M, 1000 * M, 1e9, true),
            ("a disk that is not known yet", 119e6, 2 * M, 1000 * M, 0.0, false),
            ("a disk that is no faster", 119e6, 2 * M, 1000 * M, 110e6, false),
            ("a slow disk, before TCP is at its rate", 35e6, 2 * M, 1000 * M, 40e6, false),
            ("10 Gbit/s and a disk that helps", 1.2e9, 2 * M, 1000 * M, 500e6, true),
            ("10 Gbit/s", 1.2e9, 2 * M, 1000 * M, 2e9, true),
            ("not known yet", 119e6, M / 2, 1000 * M, 1e9, false),
            ("100 Mbit/s: a recipe finds more", 12.5e6, 20 * M, 1000 * M, 1e9, false),
            ("hardly anything is missing", 119e6, 2 * M, 4 * M, 1e9, false),
        ] {
            let elapsed = Duration::from_secs_f64(arrived as f64 / rate);
            assert_eq!(samples_pay(elapsed, arrived, &facts(missing, disk)), pays, "{name}");
        }
        assert!(!samples_pay(Duration::ZERO, 0, &facts(1000 * M, 0.0)));
    }

    #[test]
    fn it_changes_its_mind_when_the_rate_falls_and_does_not_flutter() {
        let mut policy = RecipePolicy::default();
        assert!(!policy.wants(&progress(600e6, 1 << 30)));
        assert!(policy.wants(&progress(60e6, 1 << 30)));
        let between = progress(400e6, 1 << 30);
        let share = between.network_time() / between.disk_time();
        assert!(share > RECIPE_KEPT_ABOVE && share < RECIPE_ABOVE, "{share}");
        assert!(policy.wants(&between));
        assert!(!RecipePolicy::default().wants(&between));
    }

    #[test]
    fn a_fast_network_rests_the_search() {
        let mut policy = SearchPolicy::default();
        for (rate, goes_on) in [(0.0, true), (2.5, true), (3.5, false), (2.5, false), (1.5, true)] {
            assert_eq!(policy.goes_on(rate, 1.0), goes_on, "{rate}");
        }
        assert!(can_pay(7.0, 1.0) && !can_pay(9.0, 1.0));
        assert!(wait_limit(10.0, 90.0, 0.0) < 2.01);
    }
}
