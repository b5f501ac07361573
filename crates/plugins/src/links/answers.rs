//! Answers to one call for entries, some of which two links may be asked for: the first one counts. Pure.

use std::collections::HashMap;

use towpath_transfer::Tag;

/// Links that owe an answer to each entry that has none.
#[derive(Default)]
pub(super) struct AwaitedAnswers(HashMap<Tag, usize>);

impl AwaitedAnswers {
    /// One more link is asked for it.
    pub(super) fn asked(&mut self, tag: Tag) {
        *self.0.entry(tag).or_default() += 1;
    }

    /// An answer came; true if it is the first one.
    pub(super) fn answered(&mut self, tag: Tag) -> bool {
        self.0.remove(&tag).is_some()
    }

    /// A link that was asked does not answer; true if no other one will, which ends it.
    pub(super) fn not_answered(&mut self, tag: Tag) -> bool {
        let Some(links) = self.0.get_mut(&tag) else { return false };
        *links -= 1;
        let is_last = *links == 0;
        if is_last {
            self.0.remove(&tag);
        }
        is_last
    }

    /// True if somebody waits for it.
    pub(super) fn awaits(&self, tag: Tag) -> bool {
        self.0.contains_key(&tag)
    }

    /// True if one link alone is asked for it.
    pub(super) fn is_lone(&self, tag: Tag) -> bool {
        self.0.get(&tag) == Some(&1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_answer_counts_and_the_last_link_that_has_none_ends_it() {
        let mut answers = AwaitedAnswers::default();
        [1, 2, 2, 3, 3].into_iter().for_each(|tag| answers.asked(tag));
        assert_eq!([1, 2, 4].map(|tag| answers.is_lone(tag)), [true, false, false]);
        assert_eq!([answers.answered(2), answers.answered(2), answers.not_answered(2)], [true, false, false]);
        assert_eq!([answers.not_answered(3), answers.awaits(3)], [false, true], "the other one may answer");
        assert_eq!([answers.not_answered(3), answers.awaits(3), answers.answered(3)], [true, false, false]);
    }
}
