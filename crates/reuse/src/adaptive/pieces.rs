//! Pieces that the network was asked for and has not brought, so that they can be taken back when an
//! object's recipe is the better way. Pure.
//!
//! Pieces taken back end as "retry later" for the session: if a recipe comes, it wants chunks by then;
//! if none comes, the pieces again.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use towpath_content::Oid;
use towpath_transfer::{Outcome, Tag};

/// Delay before pieces that were taken back are requested again, if no recipe comes.
const AGAIN: Duration = Duration::from_millis(300);

/// See the head of this module.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// Of each object, in the order in which they were asked for.
    under_way: HashMap<Oid, Vec<Tag>>,
    /// Those that may come back as cancelled though the session did not cancel them.
    taken_back: HashSet<Tag>,
    /// Of objects whose recipes are asked for, the names that they had before their content was known.
    names: HashMap<Oid, Oid>,
}

impl Pieces {
    /// A piece is asked for.
    pub(super) fn requested(&mut self, oid: Oid, tag: Tag) {
        self.under_way.entry(oid).or_default().push(tag);
    }

    /// An object's recipe is asked for, whose pieces may have been asked for by another name.
    pub(super) fn question(&mut self, oid: Oid, asked_as: Oid) {
        if oid != asked_as {
            self.names.insert(oid, asked_as);
        }
    }

    /// The question has ended.
    pub(super) fn answered(&mut self, oid: &Oid) {
        self.names.remove(oid);
    }

    /// Takes back pieces of an object, all but the first `kept`. Returns what is to be cancelled.
    pub(super) fn take_back(&mut self, oid: &Oid, kept: usize) -> Vec<Tag> {
        let names = self.names.get(oid).into_iter().chain([oid]);
        let tags: Vec<Tag> = names.filter_map(|oid| self.under_way.get(oid)).flatten().copied().collect();
        let cancelled = tags.get(kept..).unwrap_or_default().to_vec();
        if !cancelled.is_empty() {
            // A network may cancel what was asked together: then the others end so too.
            self.taken_back.extend(tags);
        }
        cancelled
    }

    /// The session does not want these any more.
    pub(super) fn withdrawn(&mut self, tags: &[Tag]) {
        self.taken_back.retain(|tag| !tags.contains(tag));
    }

    /// A piece came or will not come: whether it was taken back.
    pub(super) fn ended(&mut self, oid: &Oid, tag: Tag) -> bool {
        if let Some(tags) = self.under_way.get_mut(oid) {
            tags.retain(|other| *other != tag);
            if tags.is_empty() {
                self.under_way.remove(oid);
            }
        }
        self.taken_back.remove(&tag)
    }
}

/// Outcome to report to the session for a piece that ended like this.
pub(super) fn outcome_for_session(outcome: Outcome, was_taken_back: bool) -> Outcome {
    match outcome {
        Outcome::Cancelled if was_taken_back => Outcome::RetryLater(AGAIN),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_one_object_are_taken_back_but_the_one_that_comes_in() {
        let (mut pieces, it, other) = (Pieces::default(), Oid::of(b"it"), Oid::of(b"other"));
        [5, 3, 9].into_iter().for_each(|tag| pieces.requested(it, tag));
        pieces.requested(other, 4);
        assert_eq!(pieces.take_back(&it, 1), [3, 9]);
        assert_eq!(pieces.take_back(&Oid::of(b"unknown"), 0), []);
        pieces.withdrawn(&[9]);
        assert_eq!([5, 3, 9].map(|tag| pieces.ended(&it, tag)), [true, true, false]);
        assert!(!pieces.ended(&other, 4));
        assert!(pieces.under_way.is_empty() && pieces.taken_back.is_empty());
    }

    #[test]
    fn pieces_of_a_live_object_are_taken_back_by_either_name() {
        let (mut pieces, live, bound) = (Pieces::default(), Oid::of(b"live"), Oid::of(b"bound"));
        pieces.requested(live, 1);
        pieces.requested(bound, 2);
        pieces.question(bound, live);
        assert_eq!(pieces.take_back(&bound, 0), [1, 2]);
        assert!(pieces.ended(&live, 1) && pieces.ended(&bound, 2));
        pieces.answered(&bound);
        assert!(pieces.names.is_empty());
    }

    #[test]
    fn one_that_is_alone_is_left_to_come() {
        let (mut pieces, it) = (Pieces::default(), Oid::of(b"it"));
        pieces.requested(it, 1);
        assert_eq!(pieces.take_back(&it, 1), []);
        assert!(!pieces.ended(&it, 1));
    }

    #[test]
    fn only_what_was_taken_back_is_asked_for_again_a_little_later() {
        assert_eq!(outcome_for_session(Outcome::Cancelled, true), Outcome::RetryLater(AGAIN));
        assert_eq!(outcome_for_session(Outcome::Cancelled, false), Outcome::Cancelled);
        assert_eq!(outcome_for_session(Outcome::Gone, true), Outcome::Gone);
    }
}
