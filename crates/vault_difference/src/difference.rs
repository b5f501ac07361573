//! The difference of two sequences, of a file's chunks or runs: which of them go, and which come in their place.
//!
//! Myers' algorithm on the sequences of chunk hashes, as the paper has it (§3.2), by a kept crate that bounds its work.

use std::hash::Hash;
use std::ops::Range;

use imara_diff::{Algorithm, Diff, InternedInput};

/// A run of old chunks in whose place a run of new ones comes. Either may be empty, not both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedRun {
    /// Numbers of the chunks that go.
    pub old: Range<usize>,
    /// Numbers of those that come.
    pub new: Range<usize>,
}

/// The runs that differ, in order; what lies between is equal. What is equal at both ends takes no memory.
pub fn difference<T: Copy + Default + Eq + Hash>(old: &[T], new: &[T]) -> Vec<ChangedRun> {
    let front = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let (old, new) = (&old[front..], &new[front..]);
    let back = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();
    let runs = middle(&old[..old.len() - back], &new[..new.len() - back]);
    let behind = |run: Range<usize>| run.start + front..run.end + front;
    runs.into_iter().map(|run| ChangedRun { old: behind(run.old), new: behind(run.new) }).collect()
}

/// The runs that differ between two sequences that may begin or end with nothing equal.
fn middle<T: Copy + Default + Eq + Hash>(old: &[T], new: &[T]) -> Vec<ChangedRun> {
    if old.is_empty() || new.is_empty() {
        let is_none = old.is_empty() && new.is_empty();
        let all = ChangedRun { old: 0..old.len(), new: 0..new.len() };
        return if is_none { Vec::new() } else { vec![all] };
    }
    let mut input = InternedInput::default();
    input.update_before(old.iter().copied());
    input.update_after(new.iter().copied());
    let diff = Diff::compute(Algorithm::Myers, &input);
    let wide = |run: Range<u32>| run.start as usize..run.end as usize;
    diff.hunks().map(|hunk| ChangedRun { old: wide(hunk.before), new: wide(hunk.after) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn applied(old: &[u8], new: &[u8]) -> Vec<u8> {
        let (mut result, mut at) = (Vec::new(), 0);
        for run in difference(old, new) {
            result.extend_from_slice(&old[at..run.old.start]);
            result.extend_from_slice(&new[run.new]);
            at = run.old.end;
        }
        result.extend_from_slice(&old[at..]);
        result
    }

    #[test]
    fn an_insert_in_the_middle_is_one_run() {
        let runs = difference(b"abcdef", b"abcxdef");
        assert_eq!(runs, [ChangedRun { old: 3..3, new: 3..4 }]);
        assert_eq!(difference(b"abc", b"abc"), []);
        assert_eq!(difference(b"", b"ab"), [ChangedRun { old: 0..0, new: 0..2 }]);
    }

    proptest! {
        #[test]
        fn applied_it_gives_the_new(old in prop::collection::vec(0..6u8, 0..40), new in prop::collection::vec(0..6u8, 0..40)) {
            prop_assert_eq!(applied(&old, &new), new);
        }
    }
}
