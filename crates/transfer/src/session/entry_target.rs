//! Targets of entries: they take what comes of one, and say how it goes on.

use bytes::Bytes;
use towpath_content::delta::exchange::NextSignature;

use super::{ObjectRequest, OnDone};
use crate::offer::{EntryContent, EntryQuery};
use crate::source_id::SourceId;
use crate::want::Outcome;

/// What becomes of an entry after something came of it.
pub enum EntryNext {
    /// Nothing more is needed.
    Over,
    /// Runs are awaited.
    More,
    /// It is fetched by its name.
    Fetch(Box<(ObjectRequest, OnDone)>),
    /// It is asked for once more.
    Again(EntryQuery),
}

/// Takes what comes of one entry, on a session's workers, one call at a time: it may block.
pub trait EntryTarget: Send {
    /// It was asked for: the signatures that its base promised follow at once, by `send`. Not called if it promised none.
    fn asked(&mut self, _send: &mut dyn FnMut(&NextSignature)) {}

    /// What follows comes from this source.
    fn comes_from(&mut self, _source: &SourceId) {}

    /// Its content.
    fn content(&mut self, content: EntryContent) -> EntryNext;

    /// A run of what makes it of its base. Signatures that it wants go by `send`.
    fn run(&mut self, run: Bytes, send: &mut dyn FnMut(&NextSignature)) -> EntryNext;

    /// No content comes, or no more runs. [`EntryNext::More`] is taken for [`EntryNext::Over`].
    fn ended(&mut self, outcome: Outcome) -> EntryNext;
}

/// An entry to ask for.
pub struct EntryRequest {
    /// The question.
    pub query: EntryQuery,
    /// Who takes the answer.
    pub target: Box<dyn EntryTarget>,
}
