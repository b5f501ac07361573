//! Choice of deltas for changed files, of what lies in their place, and how hard what comes
//! besides is packed: by what is known of the network. Pure.
//!
//! Both take both sides' processors and, of the receiver, a reading of the old file. Where the network is
//! fast, nothing of it runs.

use std::time::Duration;

use towpath_content::delta::exchange::MAX_OUTLINES;
use towpath_transfer::source::PathState;

use super::table::*;

/// State of the network to the sender, as far as known: the one measure that all decisions here are handed. It is filled by
/// [`Adaptive::network`](crate::adaptive::Adaptive::network), and where nothing is searched by [`Network::measured`] alone.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Network {
    /// Bytes a second; 0 before anything was measured.
    pub rate: f64,
    /// The shortest round trip seen, as a machine that is busy answers late, however near it is; zero if it is not known.
    pub round_trip: Duration,
}

impl Network {
    /// As what came over `path` shows it; a rate of 0 if nothing came.
    pub const fn measured(rate: f64, path: &PathState) -> Self {
        Self { rate, round_trip: path.shortest }
    }

    /// With the person's limit to its rate, 0 if there is none, until that is measured.
    pub fn or_limit(self, limit: f64) -> Self {
        Self { rate: if self.rate > 0.0 { self.rate } else { limit }, ..self }
    }

    /// With the person's limit to its rate, 0 if there is none: what little came at first may seem to have come faster.
    pub fn at_most(self, limit: f64) -> Self {
        let is_faster = limit > 0.0 && (self.rate <= 0.0 || self.rate > limit);
        Self { rate: if is_faster { limit } else { self.rate }, ..self }
    }

    /// True if the sender is so far that the network is slow unless it is known to be fast.
    pub fn is_far(&self) -> bool {
        self.round_trip >= FAR
    }

    /// True if bytes are dearer than the work of saving them.
    pub fn is_slow(&self) -> bool {
        match self.rate > 0.0 {
            true if self.is_far() => self.rate < SLOW_BELOW,
            true => self.rate < NEAR_SLOW_BELOW,
            false => self.is_far(),
        }
    }

    /// True if what is known does not tell whether it is slow: at most that it is near, or hardly far. That may be a near machine
    /// that is busy, of which the next look shows a shorter round trip.
    pub fn may_be_either(&self) -> bool {
        self.rate <= 0.0 && self.round_trip < FAR * 2
    }

    /// Bytes a second that a near network has at most, if the bytes of a probe were so long under way; 0: they show no limit.
    pub fn probed(elapsed: Duration, bytes: usize) -> f64 {
        if elapsed < PROBE_LATE { 0.0 } else { bytes as f64 / elapsed.as_secs_f64() }
    }

    /// True if nothing is known of it yet.
    pub fn is_unknown(&self) -> bool {
        *self == Self::default()
    }

    /// Time that the first request may wait for the network to be known, if deltas could save so many bytes.
    pub fn first_wait(bytes: u64) -> Duration {
        Self::shortest_for(bytes).clamp(FIRST_WAIT, MOST_FIRST_WAIT)
    }

    /// Time that so many bytes take on a network that is just too fast for deltas.
    pub fn shortest_for(bytes: u64) -> Duration {
        Duration::from_secs_f64(bytes as f64 / SLOW_BELOW)
    }

    /// zstd's level for what is packed as it goes; none where packing would be the slower part.
    pub fn pack_level(&self) -> Option<i32> {
        let level = match self.rate {
            PACKED_LITTLE_FROM.. => QUICK_LEVEL,
            PACKED_LESS_FROM.. => MEDIUM_LEVEL,
            _ => HARDEST_LEVEL,
        };
        self.is_slow().then_some(level)
    }

    /// True if a round trip more is cheaper than bytes that it saves, unless these are few.
    pub fn likes_outlines(&self) -> bool {
        self.is_slow() && self.rate < OUTLINES_BELOW
    }

    /// Outlines of a part that are liked, at most.
    pub fn outlines(&self) -> usize {
        if self.likes_outlines() { MAX_OUTLINES } else { 0 }
    }

    /// Number of signatures of a file's `parts` that are sent before anything comes of the first: the next ones are on
    /// their way when that is answered, but its answer has to wait for few. All of them if the file is not alone: then
    /// signatures of others wait.
    pub fn signatures_ahead(&self, parts: u32, is_alone: bool) -> u32 {
        let round_trips = self.round_trip.as_millis() / SIGNATURE_TIME.as_millis();
        let few = u32::try_from(round_trips).unwrap_or(u32::MAX).saturating_add(2);
        if is_alone { few.min(parts) } else { parts }
    }

    /// True if a file of `new` bytes should be asked for as a delta of one of `base_len`.
    pub fn likes_delta(&self, base_len: u64, new: u64) -> bool {
        self.likes_name(base_len, new) && base_len.min(new) >= LEAST_SIGNED
    }

    /// True if the sender should get the name of what lies in a file's place: that may be the same.
    pub fn likes_name(&self, base_len: u64, new: u64) -> bool {
        let is_alike =
            base_len.min(new) >= LEAST_NAMED && base_len.max(new) / MOST_GROWN <= base_len.min(new);
        is_alike && self.is_slow()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_networks() {
        let ms = Duration::from_millis;
        for (what, rate, round_trip, level) in [
            ("nothing is known", 0.0, ms(0), None),
            ("far", 0.0, ms(20), Some(9)),
            ("near", 0.0, ms(1), None),
            ("DSL", 193e3, ms(40), Some(9)),
            ("10 Mbit/s", 1.2e6, ms(20), Some(9)),
            ("10 Mbit/s, near", 1.2e6, ms(0), Some(9)),
            ("50 Mbit/s", 6e6, ms(20), Some(5)),
            ("200 Mbit/s", 24e6, ms(20), Some(1)),
            ("200 Mbit/s, near", 24e6, ms(1), None),
            ("1 Gbit/s", 119e6, ms(1), None),
            ("1 Gbit/s, far", 119e6, ms(80), None),
        ] {
            let network = Network { rate, round_trip };
            assert_eq!(network.pack_level(), level, "{what}");
            assert_eq!(network.likes_delta(10_000, 10_000), level.is_some(), "{what}");
            assert_eq!(network.likes_outlines(), level == Some(9), "{what}");
        }
    }

    #[test]
    fn the_persons_limit_counts_until_something_is_measured() {
        let path = PathState { round_trip: Duration::from_secs(1), shortest: FAR, ..PathState::default() };
        for (measured, limit, rate, most) in [
            (0.0, 0.0, 0.0, 0.0),
            (0.0, 5e6, 5e6, 5e6),
            (1e6, 5e6, 1e6, 1e6),
            (9e6, 5e6, 9e6, 5e6),
            (9e6, 0.0, 9e6, 9e6),
        ] {
            let network = Network::measured(measured, &path);
            let limited = [network.or_limit(limit), network.at_most(limit)];
            assert_eq!(limited.map(|it| it.rate), [rate, most], "{measured} {limit}");
            assert!(limited.iter().all(|it| it.round_trip == FAR));
        }
    }

    #[test]
    fn a_probe_that_is_late_makes_a_near_network_slow() {
        let near = Network { rate: 0.0, round_trip: Duration::from_millis(1) };
        for (network, may_be_either) in [
            (near, true),
            (Network { rate: 1e6, ..near }, false),
            (Network { round_trip: FAR, ..near }, true),
            (Network { round_trip: FAR * 2, ..near }, false),
            (Network::default(), true),
        ] {
            assert_eq!(network.may_be_either(), may_be_either, "{network:?}");
        }
        for (elapsed, is_slow) in
            [(Duration::ZERO, false), (PROBE_LATE / 2, false), (PROBE_LATE, true), (PROBE_LATE * 10, true)]
        {
            let network = near.or_limit(Network::probed(elapsed, 32 << 10));
            assert_eq!((network.is_slow(), network.likes_outlines()), (is_slow, is_slow), "{elapsed:?}");
        }
    }

    #[test]
    fn more_signatures_go_ahead_the_longer_an_answer_takes() {
        for (round_trip, ahead) in [(0, 2), (40, 2), (50, 3), (200, 6), (10_000, 16)] {
            let network = Network { rate: 1e6, round_trip: Duration::from_millis(round_trip) };
            assert_eq!(network.signatures_ahead(16, true), ahead, "{round_trip}");
            assert_eq!(network.signatures_ahead(16, false), 16, "{round_trip}");
            assert_eq!(network.signatures_ahead(2, true), 2, "{round_trip}");
        }
    }

    #[test]
    fn a_table_of_files() {
        let slow = Network { rate: 1e6, round_trip: Duration::ZERO };
        for (base_len, new, named, signed) in [
            (10_000, 10_000, true, true),
            (0, 10_000, false, false),
            (10_000, 0, false, false),
            (1000, 1000, true, false),
            (200, 200, false, false),
            (10_000, 79_000, true, true),
            (10_000, 100_000, false, false),
            (100_000, 10_000, false, false),
            (u64::MAX, u64::MAX, true, true),
        ] {
            assert_eq!(slow.likes_name(base_len, new), named, "{base_len} {new}");
            assert_eq!(slow.likes_delta(base_len, new), signed, "{base_len} {new}");
        }
    }
}
