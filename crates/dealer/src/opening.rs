//! Which places are opened, as DNS SRV records say: all of the best priority, and those of the next one when no source that is
//! open can be counted on.

use std::collections::BTreeSet;

use super::event::HintId;

/// Places that are opened at a time.
const AT_ONCE: usize = 16;
/// Places of the next priority are opened so many seconds after those of this one.
const PATIENCE: f64 = 3.0;
/// Places that are kept; more are left out.
const PLACES: usize = 4096;

/// Places that are not open.
#[derive(Debug, Default)]
pub struct ClosedPlaces {
    /// By priority and seeded chance, in which the weight counts.
    places: BTreeSet<(u16, u64, HintId)>,
    /// Priority that was opened last, and when.
    opened: Option<(u16, f64)>,
}

impl ClosedPlaces {
    /// A place that can be opened. `chance` is a number that only looks like chance.
    pub fn add(&mut self, hint: HintId, priority: u16, weight: u16, chance: u64) {
        if self.places.len() < PLACES {
            // Of two exponential clocks the one with twice the rate is first twice as often.
            let uniform = (chance as f64 / u64::MAX as f64).max(1e-18);
            let order = -uniform.ln() / (f64::from(weight) + 0.01) * 1e6;
            self.places.insert((priority, order as u64, hint));
        }
    }

    /// The next to be opened. `is_served` says that some source can be counted on.
    pub fn open(&mut self, now: f64, is_served: bool) -> Vec<HintId> {
        let Some(&(priority, ..)) = self.places.first() else { return Vec::new() };
        let is_next = match self.opened {
            None => true,
            Some((opened, _)) if priority <= opened => true,
            Some((_, since)) => !is_served && now >= since + PATIENCE,
        };
        if !is_next {
            return Vec::new();
        }
        self.opened = Some((self.opened.map_or(priority, |(opened, _)| opened.max(priority)), now));
        let mut opened = Vec::new();
        while opened.len() < AT_ONCE
            && let Some(&first) = self.places.first().filter(|first| first.0 == priority)
        {
            self.places.remove(&first);
            opened.push(first.2);
        }
        opened
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_priority_is_for_when_the_first_is_in_trouble() {
        let mut places = ClosedPlaces::default();
        for (hint, priority) in [(1, 10), (2, 0), (3, 0), (4, 10)] {
            places.add(hint, priority, 1, u64::from(hint) << 60);
        }
        let mut open = |now, is_served| {
            let mut opened = places.open(now, is_served);
            opened.sort_unstable();
            opened
        };
        assert_eq!(open(0.0, false), [2, 3]);
        assert_eq!(open(1.0, false), [], "they were opened just now");
        assert_eq!(open(9.0, true), [], "one of them serves");
        assert_eq!(open(9.0, false), [1, 4]);
    }

    #[test]
    fn a_heavier_place_is_mostly_first() {
        let is_first = |seed: u64| {
            let mut places = ClosedPlaces::default();
            places.add(1, 0, 1, seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            places.add(2, 0, 9, seed.wrapping_mul(0xbf58_476d_1ce4_e5b9));
            places.open(0.0, false)[0] == 2
        };
        let first = (1..1000).filter(|&seed| is_first(seed)).count();
        assert!((850..950).contains(&first), "{first}");
    }
}
