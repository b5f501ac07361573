//! Events for the actor: its inbox.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;

use super::entries::EntryKey;
use super::entry_target::{EntryNext, EntryTarget};
use super::requests::Wrong;
use super::{EntrySubmission, FetchError, Fetched, RecipeClaim, Submission};
use crate::gathering::DoubtedPart;
use crate::object::CheckError;
use crate::offer::{EntryContent, EntryWant, SignatureWay};
use crate::source::Description;
use crate::source_id::SourceId;
use crate::want::{Delivery, ObjectKey, Outcome, Tag, Want};

/// The actor's inbox.
pub(super) enum SessionEvent {
    /// Objects to fetch.
    Submit(Vec<Submission>),
    /// Results of jobs that a worker took at once.
    Performed(Vec<SessionEvent>),
    /// A source answered a question.
    Answer {
        key: ObjectKey,
        answer: Description,
    },
    /// A question has ended: the first one about the object, or the one for its values.
    Answered {
        key: ObjectKey,
        for_proofs: bool,
        result: Result<(), Outcome>,
    },
    Began {
        key: ObjectKey,
        result: io::Result<Vec<Range<u64>>>,
    },
    Delivery {
        delivery: Delivery,
        room: Option<OwnedSemaphorePermit>,
    },
    /// The first bytes of a piece, of which no more come.
    PartialPiece(Delivery),
    Outcome {
        tag: Tag,
        outcome: Outcome,
    },
    /// The call for a batch returned.
    CallEnded {
        tags: Vec<Tag>,
        batch: u64,
        /// It is one of the limited number of calls.
        counted: bool,
    },
    /// Result of the request for an object's recipe.
    Recipe {
        key: ObjectKey,
        answer: Result<Option<RecipeClaim>, Wrong>,
    },
    Checked {
        want: Box<Want>,
        brought: Brought,
        result: Checked,
    },
    /// A piece that may have been here was read.
    Compared {
        key: ObjectKey,
        index: u64,
        found: RecipeFound,
    },
    /// Nothing more comes of an object's samples.
    Sampled {
        key: ObjectKey,
    },
    /// A piece that chunks filled was read back.
    Rechecked {
        key: ObjectKey,
        index: u64,
        good: bool,
    },
    Completed {
        key: ObjectKey,
        result: Result<Fetched, FetchError>,
    },
    Entry(EntryMessage),
}

/// Messages about entries.
pub(super) enum EntryMessage {
    /// Entries to ask for.
    Submit(Vec<EntrySubmission>),
    /// These were asked for.
    Asked { tags: Vec<Tag>, way: Arc<dyn SignatureWay> },
    /// Contents came, with the room that they take together.
    Contents { contents: Vec<(Tag, EntryContent)>, room: Option<Arc<OwnedSemaphorePermit>> },
    /// A run came.
    Run { tag: Tag, run: Bytes, room: Option<Arc<OwnedSemaphorePermit>> },
    /// No content comes.
    Outcome { tag: Tag, outcome: Outcome },
    /// The call for these returned, with those that it could not ask for.
    CallEnded { tags: Vec<Tag>, unasked: Vec<EntryWant> },
    /// A target took an event. It comes back if more may come.
    Done { key: EntryKey, target: Option<Box<dyn EntryTarget>>, next: EntryNext },
}

/// Result of looking for a piece that may be here.
pub(super) enum RecipeFound {
    /// All: it is where it belongs.
    All,
    /// Likely all but a part of it.
    AllBut(Range<u64>),
    /// Nothing.
    Nothing,
}

/// Who brought a want.
pub(super) struct Brought {
    pub(super) source: SourceId,
    /// Bytes of each of several sources that brought it in parts; none if one did.
    pub(super) shares: Vec<(SourceId, u64)>,
    /// Bytes that did not have to come.
    pub(super) saved: u64,
}

/// Result of checking a delivery.
pub(super) enum Checked {
    /// Written to every position.
    Written {
        /// True if that was all of the objects: their targets are complete.
        whole: bool,
        /// It was a hole.
        zeros: bool,
        /// Objects whose targets could not take it.
        failed: Vec<(ObjectKey, io::Error)>,
        /// Sources whose parts, which came before, were wrong.
        liars: Vec<SourceId>,
    },
    /// Not what was wanted.
    Bad(CheckError),
    /// Not what was wanted, and brought by several sources: any of these parts may be wrong.
    Doubtful(Vec<DoubtedPart>),
    /// Part of a piece, which with the rest that lies here does not make up the piece.
    BadPart,
}
