//! State that a session keeps of an object in flight.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use towpath_content::live::Statement;

use super::announced::Announcement;
use super::comparing::Comparison;
use super::requests::{RecipeRequest, Sampled, ValuesRequest};
use super::{OnDone, RecipeClaim};
use crate::intervals::Intervals;
use crate::object::ObjectInFlight;

/// An object in flight.
pub(super) struct Active {
    pub(super) object: Arc<ObjectInFlight>,
    pub(super) recipe: Option<RecipeClaim>,
    /// It was wanted as one run.
    pub(super) tried_whole: bool,
    /// State of the request for its recipe.
    pub(super) request: RecipeRequest,
    /// State of the question for the values of its pieces.
    pub(super) values: ValuesRequest,
    /// State of the request for its samples.
    pub(super) sampled: Sampled,
    /// The next piece to plan; with a recipe, of those that may be here.
    pub(super) cursor: u64,
    /// The pieces that are wanted, if not all are.
    pub(super) part: Option<Range<u64>>,
    /// The next chunk of the recipe to plan.
    pub(super) next_chunk: usize,
    /// The last batch of wants before the recipe was used.
    pub(super) switched: u64,
    /// Bytes in the target that may be good.
    pub(super) existing: Intervals,
    /// Pieces that may be here and that nobody looked at.
    pub(super) comparison: Comparison,
    /// Pieces being read back, and whether something was written to them since.
    pub(super) rechecking: HashMap<u64, bool>,
    /// Pieces being checked and written, and whether a chunk was written to them meanwhile.
    pub(super) writing_pieces: HashMap<u64, bool>,
    /// Deliveries being checked and written.
    pub(super) writing: usize,
    /// Length from its front on that the target was last told to have.
    prefix: u64,
    /// Pieces of a live object whose values are signed.
    pub(super) signed: u64,
    pub(super) generation: Option<u64>,
    /// What it became, and the signature of its issuer.
    pub(super) binding: Option<(Statement, Vec<u8>)>,
    pub(super) phase: ObjectPhase,
    pub(super) on_done: OnDone,
    pub(super) question: CancellationToken,
    /// The pieces that are there are announced, if others may read them.
    pub(super) announced: Option<Announcement>,
    _permit: OwnedSemaphorePermit,
}

/// Phase that an object is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ObjectPhase {
    /// Its source is asked what it is.
    Describing,
    /// Its target is being opened.
    Beginning,
    /// Values are requested, to check what an earlier transfer left, or what comes of a source that proves nothing.
    Proving,
    /// Wants are out.
    Fetching,
    /// Everything is here; its target is being closed.
    Completing,
}

impl Active {
    /// Of an object that was just submitted.
    pub(super) fn new(
        object: &Arc<ObjectInFlight>,
        recipe: Option<RecipeClaim>,
        question: CancellationToken,
        on_done: OnDone,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        // A recipe is of a complete object, and of all of it.
        let early = object.target.is_read_early() || object.target.part().is_some();
        let recipe = recipe.filter(|_| !object.oid.is_live() && !early);
        Self {
            object: Arc::clone(object),
            request: if early || recipe.is_some() { RecipeRequest::Over } else { RecipeRequest::No },
            recipe,
            tried_whole: false,
            values: ValuesRequest::No,
            sampled: Sampled::No,
            cursor: 0,
            part: None,
            next_chunk: 0,
            switched: 0,
            existing: Intervals::default(),
            comparison: Comparison::default(),
            rechecking: HashMap::new(),
            writing_pieces: HashMap::new(),
            writing: 0,
            prefix: 0,
            signed: 0,
            generation: None,
            binding: None,
            phase: ObjectPhase::Describing,
            on_done,
            question,
            announced: None,
            _permit: permit,
        }
    }

    /// A piece is there, checked.
    pub(super) fn has_piece(&self, index: u64) {
        self.announced.iter().for_each(|announced| announced.grew(index));
    }

    /// A chunk is there that a peer brought, checked by its hash.
    pub(super) fn has_chunk(&self, range: Range<u64>) {
        self.announced.iter().for_each(|announced| announced.filled(range.clone()));
    }

    /// Tells the target of bytes that are there from its front on.
    pub(super) fn report_prefix(&mut self, prefix: u64) {
        if prefix > self.prefix {
            self.prefix = prefix;
            self.object.target.prefix(prefix);
        }
    }
}
