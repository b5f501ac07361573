//! Runs of wants: what is asked for at a time. A run is contiguous in the root's space, or was before parts of it came.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use towpath_transfer::Tag;

use super::event::{DealtPart, SourceNumber, WantedRange};

/// Bytes of a run. A want that is larger is a run of its own.
pub const RUN: u64 = 256 << 10;
/// Sources that are asked for the same at once.
pub const ASKERS: usize = 2;
/// Sources of a run that are remembered not to have it. One more, and the first is forgotten.
const MISSING: usize = 8;

/// Names a run; never used twice.
pub type RunId = u64;

/// A want or a part of one, with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedPart {
    /// The want, and its bytes.
    pub dealt: DealtPart,
    /// First byte of the want in the root's space.
    pub begin: u64,
}

impl PlacedPart {
    /// Its bytes in the root's space.
    pub const fn range(&self) -> Range<u64> {
        self.begin + self.dealt.part.start..self.begin + self.dealt.part.end
    }

    const fn len(&self) -> u64 {
        self.dealt.part.end - self.dealt.part.start
    }

    const fn key(&self) -> (Tag, u64) {
        (self.dealt.tag, self.dealt.part.start)
    }
}

/// A source that is asked for a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunAsker {
    /// The source.
    pub source: SourceNumber,
    /// Place in its queue.
    pub place: u64,
}

/// Wants that are asked for together.
#[derive(Debug, Clone, Default)]
pub struct DealtRun {
    /// Those that have not come, in order.
    pub parts: Vec<PlacedPart>,
    /// Who is asked, the first one first; at most [`ASKERS`].
    pub askers: Vec<RunAsker>,
    /// Sources that turned out not to have it, or brought what was wrong.
    pub not_at: Vec<SourceNumber>,
}

impl DealtRun {
    /// Bytes that have to come.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(PlacedPart::len).sum()
    }

    /// From its first byte to its last.
    pub fn range(&self) -> Range<u64> {
        match (self.parts.first(), self.parts.last()) {
            (Some(first), Some(last)) => first.range().start..last.range().end,
            _ => 0..0,
        }
    }

    /// As sources are asked for it.
    pub fn dealt(&self) -> Vec<DealtPart> {
        self.parts.iter().map(|part| part.dealt.clone()).collect()
    }

    /// True if this source is asked for it.
    pub fn is_asked_of(&self, source: SourceNumber) -> bool {
        self.askers.iter().any(|asker| asker.source == source)
    }

    /// The source turned out not to have it.
    pub fn misses(&mut self, source: SourceNumber) {
        if self.not_at.len() == MISSING {
            self.not_at.remove(0);
        }
        self.not_at.push(source);
    }

    /// Takes out what lies from `at` on.
    fn split_off(&mut self, at: u64) -> Vec<PlacedPart> {
        let index = self.parts.partition_point(|part| part.range().end <= at);
        let mut rest = self.parts.split_off(index);
        let Some(crossing) = rest.first_mut().filter(|part| part.range().start < at) else { return rest };
        let mut left = crossing.clone();
        left.dealt.part.end = at - left.begin;
        crossing.dealt.part.start = left.dealt.part.end;
        self.parts.push(left);
        rest
    }
}

/// All runs that have not come.
#[derive(Debug, Default)]
pub struct DealtRuns {
    runs: BTreeMap<RunId, DealtRun>,
    /// Run of each part, by want and begin.
    by_part: BTreeMap<(Tag, u64), RunId>,
    /// All wants.
    wants: BTreeSet<Tag>,
    next: RunId,
}

impl DealtRuns {
    /// Makes runs of wants: what follows each other, up to [`RUN`] bytes. A want that is there already is left out.
    pub fn add(&mut self, wants: &[WantedRange]) -> Vec<RunId> {
        let (mut made, mut run) = (Vec::new(), DealtRun::default());
        for want in wants {
            let len = want.range.end.saturating_sub(want.range.start);
            if !self.wants.insert(want.tag) {
                continue;
            }
            let follows = run.parts.last().is_none_or(|last| last.range().end == want.range.start);
            if !follows || (!run.parts.is_empty() && run.bytes() + len > RUN) {
                made.push(self.insert(std::mem::take(&mut run)));
            }
            let dealt = DealtPart { tag: want.tag, part: 0..len };
            run.parts.push(PlacedPart { dealt, begin: want.range.start });
        }
        if !run.parts.is_empty() {
            made.push(self.insert(run));
        }
        made
    }

    fn insert(&mut self, run: DealtRun) -> RunId {
        let id = self.next;
        self.next += 1;
        self.by_part.extend(run.parts.iter().map(|part| (part.key(), id)));
        self.runs.insert(id, run);
        id
    }

    /// A run.
    pub fn get(&self, id: RunId) -> Option<&DealtRun> {
        self.runs.get(&id)
    }

    /// A run; its parts are changed by [`Self::split`] and [`Self::take`] only.
    pub fn get_mut(&mut self, id: RunId) -> Option<&mut DealtRun> {
        self.runs.get_mut(&id)
    }

    /// True if nothing is missing.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Runs with parts of a want.
    pub fn of_want(&self, tag: Tag) -> Vec<RunId> {
        let runs = self.by_part.range((tag, 0)..=(tag, u64::MAX)).map(|(_, &run)| run);
        let mut runs: Vec<_> = runs.collect();
        runs.dedup();
        runs
    }

    /// Runs that miss something of these bytes, each with what it misses.
    pub fn within(&self, part: &DealtPart) -> Vec<(RunId, DealtPart)> {
        let from = (part.tag, part.part.start);
        let found = self.by_part.range(from..=(part.tag, part.part.end)).filter_map(|(key, &id)| {
            let missing = self.runs.get(&id)?.parts.iter().find(|missing| missing.key() == *key)?;
            (missing.dealt.part.end <= part.part.end).then(|| (id, missing.dealt.clone()))
        });
        found.collect()
    }

    /// Cuts a run; what lies from `at` on is a run of its own. None if it can't be cut there.
    pub fn split(&mut self, id: RunId, at: u64) -> Option<RunId> {
        let run = self.runs.get_mut(&id).filter(|run| run.range().start < at)?;
        let parts = run.split_off(at);
        let not_at = run.not_at.clone();
        (!parts.is_empty()).then(|| self.insert(DealtRun { parts, askers: Vec::new(), not_at }))
    }

    /// Takes a part out of a run, and the run away if it was its last. The part, and the run if it is no more.
    pub fn take(&mut self, id: RunId, part: &DealtPart) -> Option<(PlacedPart, Option<DealtRun>)> {
        let run = self.runs.get_mut(&id)?;
        let index = run.parts.iter().position(|missing| missing.dealt == *part)?;
        let taken = run.parts.remove(index);
        self.by_part.remove(&taken.key());
        let ended = if run.parts.is_empty() { self.runs.remove(&id) } else { None };
        Some((taken, ended))
    }

    /// Puts a part that was taken back as a run of its own.
    pub fn put_back(&mut self, part: PlacedPart, not_at: Vec<SourceNumber>) -> RunId {
        self.insert(DealtRun { parts: vec![part], askers: Vec::new(), not_at })
    }

    /// The want is there, or nobody wants it any more.
    pub fn forget(&mut self, tag: Tag) {
        if self.by_part.range((tag, 0)..=(tag, u64::MAX)).next().is_none() {
            self.wants.remove(&tag);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(ranges: &[(u64, u64)]) -> Vec<WantedRange> {
        let wants = ranges.iter().enumerate();
        wants.map(|(tag, &(start, end))| WantedRange { tag: tag as Tag, range: start..end }).collect()
    }

    #[test]
    fn wants_that_follow_each_other_are_runs() {
        let mut runs = DealtRuns::default();
        let wants =
            wanted(&[(0, 100_000), (100_000, 200_000), (200_000, 300_000), (400_000, 400_000), (9, 10)]);
        let made = runs.add(&wants);
        let ranges: Vec<_> = made.iter().map(|id| runs.get(*id).unwrap().range()).collect();
        assert_eq!(ranges, [0..200_000, 200_000..300_000, 400_000..400_000, 9..10]);
        assert_eq!(runs.add(&wants), [], "they are there already");
    }

    #[test]
    fn a_want_is_cut_anywhere_between_its_ends() {
        for (at, cut) in [(0, None), (1, Some(1)), (RUN - 1, Some(RUN - 1)), (RUN, None)] {
            let mut runs = DealtRuns::default();
            let id = runs.add(&wanted(&[(0, RUN)]))[0];
            let other = runs.split(id, at);
            assert_eq!(other.map(|other| runs.get(other).unwrap().range().start), cut, "{at}");
            assert_eq!(runs.get(id).unwrap().range(), 0..cut.unwrap_or(RUN));
        }
    }

    #[test]
    fn a_part_that_comes_whole_brings_all_that_it_was_cut_into() {
        let mut runs = DealtRuns::default();
        let id = runs.add(&wanted(&[(0, RUN)]))[0];
        let other = runs.split(id, RUN / 2).unwrap();
        let whole = DealtPart { tag: 0, part: 0..RUN };
        let within: Vec<_> = runs.within(&whole).into_iter().map(|(run, _)| run).collect();
        assert_eq!(within, [id, other]);
        assert_eq!(runs.within(&DealtPart { tag: 0, part: 0..RUN / 2 }).len(), 1);
        for (run, part) in runs.within(&whole) {
            assert!(runs.take(run, &part).unwrap().1.is_some());
        }
        assert!(runs.is_empty());
    }
}
