//! Entries that this side offers, and how the other side's questions for them are answered. Entries have no names that the
//! asking side knows: they are asked for by their numbers, and an answer may hold all of a content, or begin a delta of what
//! the asking side has ([`towpath_transfer::offer`] is its side).

use std::sync::Arc;

pub use super::asks::{EntryAsk, EntryTag};
use super::replies::Replies;

/// Answers questions for entries.
pub trait Offer: Send + Sync {
    /// Answers those of one `Get`, on a thread of its connection, one call after the other: it blocks. Each ask ends by a
    /// content that does not come in parts, by [`Replies::end`] or by [`Replies::refuse`], now or later.
    fn answer(&self, asks: Vec<EntryAsk>, replies: &Arc<Replies>);
}
