//! A set of bytes as disjoint intervals: which part of an object is there.

use std::collections::BTreeMap;
use std::ops::Range;

/// Disjoint, non-touching, non-empty intervals in ascending order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Intervals {
    /// Start to end.
    map: BTreeMap<u64, u64>,
}

impl Intervals {
    /// Adds `range`; intervals that overlap or touch become one.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        while let Some((&s, &e)) = self.map.range(..=end).next_back() {
            if e < start {
                break;
            }
            start = start.min(s);
            end = end.max(e);
            self.map.remove(&s);
        }
        self.map.insert(start, end);
    }

    /// Takes `range` out.
    pub fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        while let Some((&s, &e)) = self.map.range(..range.end).next_back() {
            if e <= range.start {
                break;
            }
            self.map.remove(&s);
            if range.end < e {
                self.map.insert(range.end, e);
            }
            if s < range.start {
                self.map.insert(s, range.start);
            }
        }
    }

    /// True if all of `range` is in; the empty range always is.
    pub fn covers(&self, range: &Range<u64>) -> bool {
        range.is_empty()
            || self.map.range(..=range.start).next_back().is_some_and(|(_, &end)| range.end <= end)
    }

    /// The parts of `range` that are not in, ascending.
    pub fn gaps(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = range.start;
        let before = self.map.range(..=range.start).next_back();
        let inside = self.map.range(range.start.saturating_add(1)..range.end.max(range.start + 1));
        for (&start, &end) in before.into_iter().chain(inside) {
            if start > at {
                gaps.push(at..start.min(range.end));
            }
            at = at.max(end);
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        gaps
    }

    /// End of the interval that begins at 0.
    pub fn prefix(&self) -> u64 {
        self.map.get(&0).copied().unwrap_or(0)
    }

    /// End of the interval that holds the byte `at`; `at` itself if none does.
    pub fn end_of(&self, at: u64) -> u64 {
        self.map.range(..=at).next_back().map_or(at, |(_, &end)| end.max(at))
    }

    /// The first that is in and not below `at`.
    pub fn first_from(&self, at: u64) -> Option<u64> {
        let holds_it = self.map.range(..=at).next_back().is_some_and(|(_, &end)| at < end);
        if holds_it { Some(at) } else { self.map.range(at..).next().map(|(&start, _)| start) }
    }

    /// The last that is in.
    pub fn last(&self) -> Option<u64> {
        self.map.last_key_value().map(|(_, &end)| end - 1)
    }

    /// Number of bytes that are in.
    pub fn len(&self) -> u64 {
        self.map.iter().map(|(start, end)| end - start).sum()
    }

    /// True if nothing is in.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// The intervals.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.map.iter().map(|(&start, &end)| start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn behaves_like_a_set_of_bytes(steps in prop::collection::vec((any::<bool>(), 0u64..60, 0u64..20), 0..40)) {
            let mut intervals = Intervals::default();
            let mut set = [false; 80];
            for (add, start, len) in steps {
                let range = start..start + len;
                if add { intervals.insert(range.clone()) } else { intervals.remove(range.clone()) }
                set[range.start as usize..range.end as usize].fill(add);
                prop_assert_eq!(intervals.len(), set.iter().filter(|&&bit| bit).count() as u64);
                prop_assert_eq!(intervals.prefix(), set.iter().take_while(|&&bit| bit).count() as u64);
                prop_assert_eq!(intervals.covers(&(5..15)), set[5..15].iter().all(|&bit| bit));
                let mut missing = [true; 80];
                intervals.gaps(&(5..60)).into_iter().for_each(|gap| missing[gap.start as usize..gap.end as usize].fill(false));
                prop_assert!((5..60).all(|at| missing[at] == set[at]));
                prop_assert_eq!(intervals.gaps(&(7..7)), vec![]);
                let ends: Vec<_> = intervals.iter().collect();
                prop_assert!(ends.windows(2).all(|pair| pair[0].end < pair[1].start), "{:?}", ends);
            }
        }
    }
}
