//! What progress was told of a file that comes in parts. A part that is made again after its connection was lost counts once,
//! and nothing counts of a file that is fetched after all: the session counts that.

use std::ops::Range;

use towpath_transfer::SourceId;
use towpath_transfer::intervals::Intervals;
use towpath_transfer::progress::Progress;

/// See the head of this module.
#[derive(Debug, Default)]
pub(super) struct ToldProgress {
    /// Bytes that it was told to expect.
    expected: u64,
    /// Bytes of the file that were counted.
    counted: Intervals,
    /// Of these, as many as were here.
    here: u64,
}

impl ToldProgress {
    /// True if no bytes were counted.
    pub fn is_nothing(&self) -> bool {
        self.counted.is_empty()
    }

    /// The file has so many bytes.
    pub fn expect(&mut self, size: u64, progress: &Progress) {
        let before = std::mem::replace(&mut self.expected, size);
        progress.with(|progress| progress.expected = progress.expected.saturating_sub(before) + size);
    }

    /// Bytes of those that were counted that came over the network.
    pub fn came(&self) -> u64 {
        self.counted.len().saturating_sub(self.here)
    }

    /// These bytes of the file are here, of which `came` over the network.
    pub fn count(&mut self, range: Range<u64>, came: u64, (source, progress): (&SourceId, &Progress)) {
        let new = self.counted.gaps(&range).iter().map(|gap| gap.end - gap.start).sum();
        self.counted.insert(range);
        let came = came.min(new);
        self.here += new - came;
        progress.brought(source, came);
        progress.brought(&SourceId::this_machine(), new - came);
    }

    /// The file comes in another way. What a source brought stays its own.
    pub fn take_back(&mut self, progress: &Progress) {
        let Self { expected, counted, here } = std::mem::take(self);
        progress.with(|progress| {
            progress.expected = progress.expected.saturating_sub(expected);
            progress.done = progress.done.saturating_sub(counted.len());
            if let Some(sum) = progress.by_source.get_mut(&SourceId::this_machine()) {
                *sum = sum.saturating_sub(here);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_count_once_in_any_order_and_not_at_all_if_the_file_comes_otherwise() {
        let (sender, progress) = (SourceId::other("sender", None), Progress::default());
        let mut told = ToldProgress::default();
        (0..2).for_each(|_| told.expect(30, &progress));
        for (range, came, all) in [(20..30, 4, 4), (0..10, 10, 14), (0..15, 3, 17), (15..30, 9, 22)] {
            told.count(range.clone(), came, (&sender, &progress));
            assert_eq!(told.came(), all, "{range:?}");
        }
        let all = progress.snapshot();
        assert_eq!((all.expected, all.done, all.by_source[&sender]), (30, 30, 22));
        told.take_back(&progress);
        let none = progress.snapshot();
        assert_eq!((none.expected, none.done, none.by_source[&sender]), (0, 0, 22));
        assert_eq!(none.by_source[&SourceId::this_machine()], 0);
        assert!(told.is_nothing());
    }
}
