//! The network as an object's pieces show it, before anything is searched: how fast it is, how much to
//! keep outstanding, and whether a recipe is worth asking for.
//!
//! On a slow network each byte that was asked for before the disk is looked at may be asked for in
//! vain, so little is asked at first; with each byte that comes two more are asked for, which is as fast
//! as TCP itself begins. From when a recipe is asked for, pieces have no more than the network
//! carries.

use std::collections::HashMap;
use std::time::Duration;

use towpath_content::Oid;
use towpath_transfer::ObjectFacts;
use towpath_transfer::rate::Rate;
use towpath_transfer::source::PathState;

use super::backpressure::{Backpressure, Queues};
use super::benefit::{RecipePolicy, RecipeProgress, samples_pay};
use super::costs::Costs;
use super::slow_start::SlowStart;
use crate::policy::network::Network;

/// Bytes outstanding at first: two pieces, so that TCP never waits for a question.
const FIRST_WINDOW: u64 = 512 << 10;
/// Bytes to keep outstanding at least.
const LEAST_WINDOW: u64 = 64 << 10;
/// With this and twice the round trip more than the rate needs, a network that gets faster shows it.
const SLACK: f64 = 0.05;
/// So many times as much for several sources.
const SEVERAL: f64 = 2.0;
/// Longest time for a session to read a recipe that has come.
const SWITCHING: Duration = Duration::from_millis(300);
/// Objects whose progress is known; what is asked for beyond them is only a little late.
const OBJECTS: usize = 4096;

/// Measurements of one object.
#[derive(Debug, Clone, Copy)]
struct MeteredObject {
    since: Duration,
    arrived: u64,
    policy: RecipePolicy,
    is_promising: Option<bool>,
}

impl MeteredObject {
    fn begun(now: Duration) -> Self {
        Self { since: now, arrived: 0, policy: RecipePolicy::default(), is_promising: None }
    }
}

/// See the head of this module. Times count from the transfer's begin.
#[derive(Debug)]
pub struct Meter {
    rate: Rate,
    slow_start: SlowStart,
    /// The same of all bytes that come, also of pieces that are not whole yet, and how many those were.
    coming: SlowStart,
    heard: u64,
    outstanding: u64,
    backpressure: Backpressure,
    costs: Costs,
    objects: HashMap<Oid, MeteredObject>,
    window: u64,
    /// Until when a recipe that was asked for is waited for, rather than more pieces asked for.
    held_until: Option<Duration>,
    /// The network's round trip, as it was known last.
    round_trip: Duration,
}

/// A recipe is worth asking for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeteredWant {
    /// Number of the object's pieces that are requested already and left to come, of the first ones.
    pub kept: usize,
}

impl Meter {
    /// Nothing was asked yet; what the disk costs is assumed to be this.
    pub fn new(costs: Costs) -> Self {
        Self {
            rate: Rate::default(),
            slow_start: SlowStart::default(),
            coming: SlowStart::default(),
            heard: 0,
            outstanding: 0,
            backpressure: Backpressure::default(),
            costs,
            objects: HashMap::new(),
            window: FIRST_WINDOW,
            held_until: None,
            round_trip: Duration::ZERO,
        }
    }

    /// So many bytes of an object's pieces are asked for.
    pub fn requested(&mut self, oid: Oid, bytes: u64, now: Duration) {
        self.rate.requested(now);
        self.slow_start.requested(now);
        self.outstanding += bytes;
        if self.objects.len() < OBJECTS {
            self.objects.entry(oid).or_insert(MeteredObject::begun(now));
        }
    }

    /// They came, or did not.
    pub fn ended(&mut self, oid: &Oid, bytes: u64, has_come: bool, now: Duration) {
        self.outstanding = self.outstanding.saturating_sub(bytes);
        let (came, is_idle) = (if has_come { bytes } else { 0 }, self.outstanding == 0);
        self.rate.arrived(now, came, is_idle);
        self.slow_start.arrived(now, came, self.round_trip, is_idle);
        self.grow(came);
        if let Some(object) = self.objects.get_mut(oid) {
            object.arrived += came;
        }
    }

    /// So many bytes are here of a piece that was asked for as a delta. They tell nothing of the network's rate: hardly any
    /// of them came.
    pub const fn grow(&mut self, bytes: u64) {
        self.window = self.window.saturating_add(bytes);
    }

    /// The queues as they stand.
    pub fn look(&mut self, queues: Queues) {
        self.backpressure.look(queues);
    }

    /// The network as its pieces show it; 0 before any came.
    pub fn network(&self, path: &PathState, now: Duration) -> Network {
        Network::measured(self.rate.get(now, u64::MAX), path)
    }

    /// Rate of the network, as measured so far.
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Bytes of pieces to keep outstanding on a network that would take `most`; none while a recipe is
    /// waited for.
    pub fn window(&self, most: u64, now: Duration) -> u64 {
        if self.held_until.is_some_and(|until| now < until) { 0 } else { self.window.min(most) }
    }

    /// A question for a recipe has ended. If it came, no more pieces are asked for until the session had
    /// time to ask for chunks instead.
    pub fn recipe_ended(&mut self, has_come: bool, now: Duration) {
        self.held_until = self.held_until.filter(|_| has_come).map(|until| until.min(now + SWITCHING));
    }

    /// Chunks are asked for: pieces have nothing to wait for.
    pub const fn switched(&mut self) {
        self.held_until = None;
    }

    /// True if the samples of an object, of which an older version is here, are worth asking for now.
    pub fn wants_samples(&self, facts: &ObjectFacts<'_>, now: Duration) -> bool {
        let names = [Some(facts.asked_as), Some(facts.oid).filter(|oid| *oid != facts.asked_as)];
        let known = names.iter().flatten().filter_map(|name| self.objects.get(name));
        let arrived = known.clone().map(|object| object.arrived).sum();
        let since = known.map(|object| object.since).min();
        since.is_some_and(|since| samples_pay(now.saturating_sub(since), arrived, facts))
    }

    /// True if the recipe of an object is worth asking for now; `is_promising` tells, once for each
    /// object, whether something like it is known to be here; `path` is what the pieces come by.
    pub fn wants_recipe(
        &mut self,
        facts: &ObjectFacts<'_>,
        is_promising: impl FnOnce(&ObjectFacts<'_>) -> bool,
        path: &PathState,
        now: Duration,
    ) -> Option<MeteredWant> {
        let network = Network::measured(self.rate.get(now, self.outstanding), path);
        self.round_trip = network.round_trip;
        // Fewer than before if some came by a connection that is closed.
        let came = path.arrived.saturating_sub(std::mem::replace(&mut self.heard, path.arrived));
        self.coming.requested(now);
        self.coming.arrived(now, came, self.round_trip, false);
        let disk_rate = self.costs.hoped_rate();
        // Reads in passing show how slow the disk is, but not how fast.
        let disk_rate = if facts.read_rate > 0.0 { disk_rate.min(facts.read_rate) } else { disk_rate };
        let disk_is_free = self.backpressure.disk_is_free();
        if self.objects.len() >= OBJECTS && !self.objects.contains_key(&facts.asked_as) {
            return None;
        }
        let bound = self.objects.get(&facts.oid).filter(|_| facts.asked_as != facts.oid);
        let bound = bound.map_or(0, |object| object.arrived);
        let object = self.objects.entry(facts.asked_as).or_insert(MeteredObject::begun(now));
        let is_promising = *object.is_promising.get_or_insert_with(|| is_promising(facts));
        let progress = RecipeProgress {
            elapsed: now.saturating_sub(object.since),
            arrived: object.arrived + bound,
            rest: facts.missing,
            size: facts.size,
            network,
            hoped_rate: self.slow_start.hoped(),
            is_growing: self.coming.is_growing(),
            disk_rate,
            disk_is_free,
            is_promising,
            is_alike: facts.kept > 0,
            processors_are_short: self.backpressure.processors_are_short(),
        };
        if !object.policy.wants(&progress) {
            return None;
        }
        let hold = progress.hold();
        self.held_until = hold.map(|time| now + time);
        if progress.is_early() && hold.is_none() {
            // The recipe overtakes pieces that wait, and they fill the time until it is made.
            return Some(MeteredWant { kept: usize::MAX });
        }
        // The recipe comes behind what is outstanding, and most of that will be here already.
        self.window = chunk_window(network.rate, network.round_trip, 1, self.window);
        // The one that is coming in fills the time until the recipe is made, if that takes as long.
        Some(MeteredWant { kept: usize::from(hold.is_none()) })
    }
}

/// Bytes of chunks to keep outstanding: what a network of this rate carries, and room for it to get
/// faster. More would be asked for before the disk had its turn. Of several `sources` each is to have some waiting: one that has nothing to do
/// borrows from the others, and then what they bring comes twice.
pub fn chunk_window(rate: f64, round_trip: Duration, sources: usize, most: u64) -> u64 {
    let times = if sources > 1 { SEVERAL } else { 1.0 };
    let carried = times * 2.0 * rate * (round_trip.as_secs_f64() + SLACK);
    (carried as u64).max(LEAST_WINDOW).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_transfer::{Group, OpenWays};

    const MIB: u64 = 1 << 20;

    /// A path of this round trip, behind data that are in its way.
    fn over(shortest: Duration) -> PathState {
        PathState { shortest, round_trip: 3 * shortest, ..PathState::default() }
    }

    fn wants(rate: f64, size: u64, is_promising: bool, round_trip: Duration) -> Option<u64> {
        wants_on(|_| rate, size, is_promising, round_trip)
    }

    /// On a network of so many bytes a second after so many ms.
    fn wants_on(
        rate: impl Fn(u64) -> f64,
        size: u64,
        is_promising: bool,
        round_trip: Duration,
    ) -> Option<u64> {
        let (oid, group) = (Oid::of(b"it"), Group::default());
        let mut meter = Meter::new(Costs::new(16384));
        let at = Duration::from_millis;
        meter.requested(oid, FIRST_WINDOW, at(0));
        let (mut credit, mut missing, mut heard) = (0.0, size, 0.0);
        for now in 1..=4000 {
            credit += rate(now) / 1000.0;
            heard += rate(now) / 1000.0;
            while credit >= 65536.0 {
                credit -= 65536.0;
                missing = missing.saturating_sub(65536);
                meter.ended(&oid, 65536, true, at(now));
                meter.requested(oid, 65536, at(now));
            }
            let facts = ObjectFacts {
                oid,
                asked_as: oid,
                size,
                missing,
                read_rate: 0.0,
                kept: 0,
                group: &group,
                open: OpenWays::RECIPE,
            };
            let path = PathState { arrived: heard as u64, ..over(round_trip) };
            if meter.wants_recipe(&facts, |_| is_promising, &path, at(now)).is_some() {
                return Some(now);
            }
        }
        None
    }

    #[test]
    fn a_slow_network_asks_for_a_recipe_soon_and_a_fast_one_never() {
        let near = Duration::from_millis(1);
        for is_promising in [false, true] {
            assert!(wants(190e3, 50 * MIB, is_promising, near).is_some_and(|ms| ms <= 260));
            assert_eq!(wants(1.2e9, 1024 * MIB, is_promising, near), None);
            assert_eq!(wants(119e6, 4 * MIB, is_promising, near), None);
        }
        // At 1 Gbit/s it depends on whether there is something to find.
        assert!(wants(119e6, 1024 * MIB, true, near).is_some());
        assert_eq!(wants(119e6, 1024 * MIB, false, near), None);
    }

    #[test]
    fn far_away_what_is_likely_is_asked_for_at_once_and_the_rest_when_tcp_has_shown_its_rate() {
        for (is_promising, earliest, latest) in [(true, 0, 10), (false, 320, 340)] {
            let asked = wants(190e3, 50 * MIB, is_promising, Duration::from_millis(40));
            assert!(asked.is_some_and(|ms| (earliest..=latest).contains(&ms)), "{asked:?}");
        }
    }

    #[test]
    fn a_far_network_is_not_slow_before_tcp_has_found_its_rate() {
        for round_trip in [5, 20, 50, 100, 200] {
            let tcp = |most: f64| {
                let initial = 14_600.0 / f64::from(round_trip) * 1000.0;
                move |now: u64| most.min(initial * 2.0_f64.powi((now / round_trip as u64) as i32))
            };
            let far = Duration::from_millis(round_trip as u64);
            for (rate, is_slow) in
                [(119e6, false), (1.2e9, false), (12e6, true), (1.2e6, true), (190e3, true)]
            {
                let asked = wants_on(tcp(rate), 1024 * MIB, false, far);
                assert_eq!(asked.is_some(), is_slow, "{rate} at {far:?}: {asked:?}");
                let latest = 250.max(11 * round_trip as u64);
                assert!(asked.is_none_or(|asked| asked <= latest), "{rate} at {far:?}: {asked:?}");
            }
        }
    }

    /// Copies begin by ssh's pipe, and go on by a connection of their own.
    #[test]
    fn a_path_that_begins_anew_is_not_slow_while_it_grows() {
        let doubled = |now: u64| f64::min(12e6, 146e3 * 2.0_f64.powi((now / 100) as i32));
        let tcp = |now: u64| doubled(if now < 400 { now } else { now - 400 });
        let asked = wants_on(tcp, 1024 * MIB, false, Duration::from_millis(100));
        assert!(asked.is_some_and(|ms| (1000..1600).contains(&ms)), "{asked:?}");
    }

    #[test]
    fn the_window_doubles_with_each_one_that_comes() {
        let (oid, mut meter) = (Oid::of(b"it"), Meter::new(Costs::new(16384)));
        let now = Duration::ZERO;
        assert_eq!(meter.window(64 * MIB, now), FIRST_WINDOW);
        for _ in 0..14 {
            meter.ended(&oid, MIB / 4, true, Duration::ZERO);
        }
        assert_eq!(meter.window(64 * MIB, now), 8 * FIRST_WINDOW);
        assert_eq!(meter.window(MIB / 2, now), MIB / 2);
    }

    #[test]
    fn a_slow_network_brings_a_recipe_before_more_pieces_but_not_for_long() {
        let (oid, group, mut meter) = (Oid::of(b"it"), Group::default(), Meter::new(Costs::new(16384)));
        let at = Duration::from_millis;
        meter.requested(oid, FIRST_WINDOW, at(0));
        let facts = ObjectFacts {
            oid,
            asked_as: oid,
            size: 50 * MIB,
            missing: 50 * MIB,
            read_rate: 0.0,
            kept: 0,
            open: OpenWays::RECIPE,
            group: &group,
        };
        assert_eq!(
            meter.wants_recipe(&facts, |_| true, &over(at(40)), at(10)),
            Some(MeteredWant { kept: 0 })
        );
        assert_eq!(meter.window(MIB, at(400)), 0);
        assert!(meter.window(MIB, at(6000)) > 0, "it does not come");
        meter.recipe_ended(true, at(400));
        assert_eq!(meter.window(MIB, at(401)), 0, "the session reads it");
        assert!(meter.window(MIB, at(701)) > 0);
        meter.switched();
        assert!(meter.window(MIB, at(401)) > 0);
        assert!(meter.wants_recipe(&facts, |_| true, &over(at(40)), at(800)).is_some());
        meter.recipe_ended(false, at(900));
        assert!(meter.window(MIB, at(901)) > 0, "there is none");
    }

    #[test]
    fn pieces_fill_the_time_until_a_recipe_is_made_that_takes_long() {
        let (oid, group, mut meter) = (Oid::of(b"it"), Group::default(), Meter::new(Costs::new(16384)));
        let at = Duration::from_millis;
        meter.requested(oid, FIRST_WINDOW, at(0));
        let size = 4096 * MIB;
        let facts = ObjectFacts {
            oid,
            asked_as: oid,
            size,
            missing: size,
            read_rate: 0.0,
            kept: 0,
            group: &group,
            open: OpenWays::RECIPE,
        };
        assert_eq!(
            meter.wants_recipe(&facts, |_| true, &over(at(40)), at(10)),
            Some(MeteredWant { kept: usize::MAX })
        );
        assert_eq!(meter.window(64 * MIB, at(11)), FIRST_WINDOW);
    }

    #[test]
    fn chunks_keep_no_more_outstanding_than_the_network_carries() {
        let ms = Duration::from_millis;
        assert_eq!(chunk_window(193e3, ms(40), 1, 4 * MIB), LEAST_WINDOW);
        assert_eq!(chunk_window(12.5e6, ms(33), 1, 4 * MIB), 2_075_000);
        assert_eq!(chunk_window(12.5e6, ms(33), 2, 4 * MIB), 4_150_000, "by two links 7 of 49 MB came twice");
        assert_eq!(chunk_window(1e9, ms(1), 2, 4 * MIB), 4 * MIB);
    }
}
