//! Requests about an object in flight, and what is kept of the answers.

use std::time::Instant;

use crate::claim::WrongRecipe;
use crate::source_id::SourceId;
use crate::want::ObjectKey;

/// State of the request for an object's recipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecipeRequest {
    /// Not yet.
    No,
    /// The answer is awaited.
    Now,
    /// It was given, or there is none.
    Over,
}

/// Time at which the root was last asked, and of which object.
#[derive(Debug)]
pub(super) struct Rounds {
    pub(super) next: Instant,
    pub(super) last: ObjectKey,
    /// There may be something to ask at that time, whether or not anything happens until then.
    pub(super) is_due: bool,
}

impl Rounds {
    pub(super) const fn new(now: Instant) -> Self {
        Self { next: now, last: 0, is_due: false }
    }

    /// Time at which it is to be asked again.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.is_due.then_some(self.next)
    }
}

/// A recipe that is not one, and who sent it.
#[derive(Debug)]
pub(super) struct Wrong {
    /// Nobody if not even a first part came.
    pub(super) maker: Option<SourceId>,
    pub(super) why: WrongRecipe,
}

/// State of the question for the values of an object's pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValuesRequest {
    /// Not yet.
    No,
    /// The answer is awaited.
    Now,
    /// The same, and some came already.
    Coming,
    /// All came that will.
    Over,
}

/// State of the request for an object's samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sampled {
    /// Not yet.
    No,
    /// They come.
    Now,
    /// All came that will.
    Over,
}
