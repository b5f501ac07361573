//! Bytes of each object that are there, and the positions of the others' wants.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use crate::intervals::Intervals;
use crate::want::{ObjectKey, ObjectOffset, Tag};

/// Of all objects of a ledger.
#[derive(Debug, Default)]
pub struct ByteCoverage {
    objects: HashMap<ObjectKey, ObjectCoverage>,
}

#[derive(Debug, Default)]
struct ObjectCoverage {
    have: Intervals,
    /// Wants by the byte they begin at.
    wants: BTreeSet<(u64, Tag)>,
    /// Bytes of the longest want so far: none that begins further ahead of a range reaches it.
    longest: u64,
}

impl ObjectCoverage {
    /// Wants that may reach into `range`.
    fn near(&self, range: &Range<u64>) -> impl Iterator<Item = &(u64, Tag)> {
        let from = range.start.saturating_sub(self.longest);
        self.wants.range((from, 0)..(range.end, 0))
    }
}

impl ByteCoverage {
    /// The parts of `range` that are not there.
    pub fn gaps(&self, object: ObjectKey, range: &Range<u64>) -> Vec<Range<u64>> {
        let have = self.have(object);
        have.map_or_else(|| vec![range.clone()], |have| have.gaps(range))
    }

    /// Bytes of `object` that are there from its front on.
    pub fn prefix(&self, object: ObjectKey) -> u64 {
        self.have(object).map_or(0, Intervals::prefix)
    }

    /// Number of wants of `object` that have not ended.
    pub fn open_wants(&self, object: ObjectKey) -> usize {
        self.objects.get(&object).map_or(0, |coverage| coverage.wants.len())
    }

    /// True if the `wanted` bytes of `object` are there, and nothing else of it is requested.
    pub fn is_complete(&self, object: ObjectKey, wanted: &Range<u64>) -> bool {
        let Some(coverage) = self.objects.get(&object) else { return wanted.is_empty() };
        coverage.have.covers(wanted) && coverage.wants.is_empty()
    }

    /// True if the `len` bytes of a want, if it has any, are there at each of its positions.
    pub(super) fn covers(&self, positions: &[ObjectOffset], len: u64) -> bool {
        len > 0
            && positions.iter().all(|position| {
                let have = self.have(position.object);
                have.is_some_and(|have| have.covers(&(position.offset..position.offset + len)))
            })
    }

    /// Bytes of `object` that are there.
    pub fn have(&self, object: ObjectKey) -> Option<&Intervals> {
        self.objects.get(&object).map(|coverage| &coverage.have)
    }

    /// The wants of `object`, in the order of the bytes they begin at.
    pub(super) fn wants(&self, object: ObjectKey) -> impl Iterator<Item = (u64, Tag)> {
        self.objects.get(&object).into_iter().flat_map(|coverage| coverage.wants.iter().copied())
    }

    /// Those that may reach into `range`.
    pub(super) fn near(&self, object: ObjectKey, range: &Range<u64>) -> impl Iterator<Item = (u64, Tag)> {
        self.objects.get(&object).into_iter().flat_map(|coverage| coverage.near(range).copied())
    }

    /// A want of `len` bytes has this position; false if that is known.
    pub(super) fn add(&mut self, position: ObjectOffset, tag: Tag, len: u64) -> bool {
        let coverage = self.objects.entry(position.object).or_default();
        coverage.longest = coverage.longest.max(len);
        coverage.wants.insert((position.offset, tag))
    }

    /// A want has this position no more.
    pub(super) fn remove(&mut self, position: &ObjectOffset, tag: Tag) {
        if let Some(coverage) = self.objects.get_mut(&position.object) {
            coverage.wants.remove(&(position.offset, tag));
        }
    }

    /// Bytes are there.
    pub(super) fn cover(&mut self, object: ObjectKey, range: Range<u64>) {
        self.objects.entry(object).or_default().have.insert(range);
    }

    /// Bytes are not there after all.
    pub(super) fn uncover(&mut self, object: ObjectKey, range: Range<u64>) {
        if let Some(coverage) = self.objects.get_mut(&object) {
            coverage.have.remove(range);
        }
    }

    /// Forgets an object; returns its wants.
    pub(super) fn forget(&mut self, object: ObjectKey) -> BTreeSet<(u64, Tag)> {
        self.objects.remove(&object).map(|coverage| coverage.wants).unwrap_or_default()
    }
}
