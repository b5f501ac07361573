//! What progress was told of a file that comes in parts. A part that is made again after its connection was lost counts once,
//! and nothing counts of a file that is fetched after all: the session counts that.

use towpath_transfer::SourceId;
use towpath_transfer::progress::Progress;

/// See the head of this module.
#[derive(Debug, Default)]
pub(super) struct ToldProgress {
    /// Bytes that it was told to expect.
    expected: u64,
    /// Bytes that were counted: those that came over the network, and those that were here.
    came: u64,
    here: u64,
}

impl ToldProgress {
    /// The file has so many bytes, of which so many are here.
    pub fn begin(&mut self, size: u64, here: u64, progress: &Progress) {
        let before = std::mem::replace(&mut self.expected, size);
        progress.with(|progress| progress.expected = progress.expected.saturating_sub(before) + size);
        self.count_here(here.saturating_sub(self.came + self.here), progress);
    }

    /// Bytes of those that were counted that came over the network.
    pub const fn came(&self) -> u64 {
        self.came
    }

    /// So many more bytes of the file are here, for which `came` bytes came over the network.
    pub fn count(&mut self, new: u64, came: u64, (source, progress): (&SourceId, &Progress)) {
        let came = came.min(new);
        self.came += came;
        progress.brought(source, came);
        self.count_here(new - came, progress);
    }

    fn count_here(&mut self, here: u64, progress: &Progress) {
        self.here += here;
        progress.brought(&SourceId::this_machine(), here);
    }

    /// The file comes in another way. What a source brought stays its own.
    pub fn take_back(&mut self, progress: &Progress) {
        let Self { expected, came, here } = std::mem::take(self);
        progress.with(|progress| {
            progress.expected = progress.expected.saturating_sub(expected);
            progress.done = progress.done.saturating_sub(came + here);
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
    fn parts_count_once_and_not_at_all_if_the_file_comes_otherwise() {
        let (sender, progress) = (SourceId::other("sender", None), Progress::default());
        let mut told = ToldProgress::default();
        told.begin(30, 0, &progress);
        for (new, came, all) in [(10, 4, 4), (5, 10, 9), (0, 3, 9)] {
            told.count(new, came, (&sender, &progress));
            assert_eq!(told.came(), all, "{new} {came}");
        }
        told.begin(30, 20, &progress);
        told.count(10, 9, (&sender, &progress));
        let all = progress.snapshot();
        assert_eq!((all.expected, all.done, all.by_source[&sender]), (30, 30, 18));
        told.take_back(&progress);
        let none = progress.snapshot();
        assert_eq!((none.expected, none.done, none.by_source[&sender]), (0, 0, 18));
        assert_eq!(none.by_source[&SourceId::this_machine()], 0);
    }
}
