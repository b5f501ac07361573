//! Who brings what, when one transfer draws from several sources (`docs/design/sources.md`). Pure: no I/O, no clock, no
//! async. A driver tells it events and the time, and does what it answers.
//!
//! | module | story |
//! |---|---|
//! | [`event`] | its events and its actions |
//! | [`dealing`] | [`Dealer`]: events and time in, actions out |
//! | [`state`] | what is known, and how the three tables below change together |
//! | [`sources`] | all sources, with sums and orders of them |
//! | [`runs`] | runs of wants: what is asked for at a time |
//! | [`rarity`] | who has what, in lots; queues by rarity |
//! | [`standing`] | how far a source is trusted |
//! | [`pace`] | how fast it is |
//! | [`choosing`] | of what waits, that which would come last |
//! | [`borrowing`] | of what others are asked for, that which is worth asking for twice |
//! | [`ending`] | near the end nobody is asked for more than it finishes with the others |
//! | [`doubt`] | whether a source adds anything |
//! | [`opening`] | which places are opened |
//!
//! **Promises.** Nothing is asked of more than two sources at once. Work for each event is bounded, whatever the number of
//! sources; [`Dealer::steps`] counts it. What a source says is kept in at most [`rarity::LOTS`] lots. The same events at
//! the same times bring the same actions.
//!
//! **Duties of a driver.** Numbers of sources and tags are never used twice. Each want that it was told to ask for ends with one event
//! of that source, also after it was cancelled; only a source that is gone owes none. It tells `Tick` when [`Dealer::wake`] says.

pub mod borrowing;
pub mod choosing;
pub mod dealing;
pub mod doubt;
pub mod ending;
pub mod event;
pub mod opening;
pub mod pace;
pub mod rarity;
pub mod runs;
pub mod sources;
pub mod standing;
pub mod state;

#[cfg(test)]
mod tests;

pub use dealing::{Dealer, DealerSum};
pub use event::{
    DealerAction, DealerEvent, DealtPart, HintId, SourceFacts, SourceHolding, SourceNumber, WantedRange,
};
