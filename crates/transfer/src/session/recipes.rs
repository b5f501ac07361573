//! From pieces to chunks in mid-transfer: when the root finds that the rest of an object is
//! better drawn by its recipe, the recipe is requested and checked, and what is still missing is
//! wanted as chunks.
//!
//! Pieces go on meanwhile, so nothing waits for a recipe. If none is to be had, pieces bring the
//! rest, and it is not requested again. How many recipes are requested and kept at once is limited.
//!
//! Where the root finds that an object is best had as one run, as a delta of its older version, no recipe is needed: one chunk is all
//! of it. If nobody makes a delta of little, the object goes on as ever.

use std::time::{Duration, Instant};

use towpath_content::Oid;
use towpath_content::chunking::MAX_CHUNK_LEN;

use super::RecipeClaim;
use super::active::{Active, ObjectPhase};
use super::questions::Questions;
use super::requests::{RecipeRequest, Rounds, Sampled, Wrong};
use super::table::ObjectTable;
use crate::claim::MAX_CHUNKS;
use crate::root::{OpenWays, RestWay};
use crate::source::Query;
use crate::want::{ObjectKey, ObjectOffset, Tag};

/// Shortest interval between questions to the root which way it advises.
const PAUSE: Duration = Duration::from_millis(50);
/// Objects that it is asked of at a time: others have their turn the next time.
const OBJECTS_PER_ROUND: usize = 32;
/// Recipes requested at once.
const QUESTIONS: usize = 4;
/// Chunks in recipes that are used or requested. With all that is kept of a want each takes some 300
/// bytes, so 150 MiB.
const CHUNKS: usize = 1 << 19;
/// Hardly an object has more chunks than one for so many bytes.
const LEAST_CHUNK: u64 = 4 << 10;

impl Rounds {
    /// Asks the root, now and then, for its advice, and for the recipes of those that it advises.
    /// Returns those that are wanted as one run from now on.
    pub(super) fn look(
        &mut self,
        table: &mut ObjectTable,
        questions: &Questions,
        now: Instant,
    ) -> Vec<ObjectKey> {
        let mut whole = Vec::new();
        if now < self.next {
            self.is_due = true;
            return whole;
        }
        self.next = now + PAUSE;
        let mut requested =
            table.objects.values().filter(|active| active.request == RecipeRequest::Now).count();
        let mut chunks: usize = table.objects.values().map(Active::chunks_in_use).sum();
        let round = self.round(table);
        // A network may be so slow that nothing else happens for a second.
        self.is_due = !round.is_empty();
        for key in round {
            if table.want_whole(key) {
                whole.push(key);
                continue;
            }
            let more = table.objects.get(&key).map_or(0, Active::chunks_at_most);
            if requested < QUESTIONS && chunks + more <= CHUNKS && is_wanted(table, key) {
                (requested, chunks) = (requested + 1, chunks + more);
                ask_for_recipe(table, questions, key);
            }
        }
        whole
    }

    /// The objects whose turn it is.
    fn round(&mut self, table: &ObjectTable) -> Vec<ObjectKey> {
        let objects = table.objects.iter().filter(|(_, active)| active.may_be_switched());
        let mut keys: Vec<ObjectKey> = objects.map(|(&key, _)| key).collect();
        keys.sort_unstable();
        let after_last = keys.partition_point(|&key| key <= self.last);
        keys.rotate_left(after_last);
        keys.truncate(OBJECTS_PER_ROUND);
        self.last = keys.last().copied().unwrap_or(0);
        keys
    }
}

fn is_wanted(table: &ObjectTable, key: ObjectKey) -> bool {
    let is_followed = table.objects.get(&key).is_some_and(Active::is_followed);
    let facts = table.facts(key, OpenWays::RECIPE).filter(|facts| facts.missing > 0 && !is_followed);
    facts.is_some_and(|facts| table.root.advise(&facts).way == RestWay::Recipe)
}

fn ask_for_recipe(table: &mut ObjectTable, questions: &Questions, key: ObjectKey) {
    let Some(active) = table.objects.get_mut(&key) else { return };
    let (Some(oid), Some(layout)) = (active.object.content(), active.object.layout()) else { return };
    active.request = RecipeRequest::Now;
    let query = Query {
        coverage: active.object.group.coverage,
        // Chunks' bytes are compared with these.
        proofs: active.object.all_values().is_none().then_some(0..layout.count()),
        recipe: true,
        ..Query::about(oid)
    };
    questions.recipe(key, layout.size(), query, active.question.clone());
}

impl ObjectTable {
    /// Takes the result of asking for an object's recipe; true if the object goes on by it.
    pub(super) fn recipe_answered(
        &mut self,
        key: ObjectKey,
        answer: Result<Option<RecipeClaim>, Wrong>,
    ) -> bool {
        let Some(active) = self.objects.get_mut(&key) else { return false };
        active.request = RecipeRequest::Over;
        match answer {
            Ok(Some(claim)) => return self.switch(key, claim),
            Ok(None) => tracing::debug!(oid = %active.object.oid, "no recipe is to be had"),
            Err(Wrong { maker, why }) => {
                tracing::warn!(?maker, %why, "refused a recipe");
                if let (Some(maker), true) = (maker, why.blames_maker()) {
                    self.root.report_corrupt(&maker);
                }
            }
        }
        false
    }

    /// If the root likes an object as one run, it is wanted so from now on; true if so.
    pub(super) fn want_whole(&mut self, key: ObjectKey) -> bool {
        if !self.objects.get(&key).is_some_and(Active::may_be_whole) {
            return false;
        }
        let Some(facts) = self.facts(key, OpenWays::WHOLE) else { return false };
        let claim = RecipeClaim::whole(&facts.oid, facts.size);
        let claim = claim.filter(|_| self.root.advise(&facts).way == RestWay::Whole);
        let (Some(claim), Some(active)) = (claim, self.objects.get_mut(&key)) else { return false };
        (active.tried_whole, active.request) = (true, RecipeRequest::Over);
        self.switch(key, claim)
    }

    /// Before chunks are wanted: whether the root likes them all at once.
    pub(super) fn learn_how_chunks_come(&mut self, key: ObjectKey) {
        if let Some(facts) = self.facts(key, OpenWays::default()) {
            self.chunks_at_once = self.root.advise(&facts).chunks_at_once;
        }
    }

    /// From now on chunks are wanted where nothing is here and no piece is asked.
    fn switch(&mut self, key: ObjectKey, claim: RecipeClaim) -> bool {
        let Some(active) = self.objects.get_mut(&key) else { return false };
        // Without all values chunks could not be checked where they meet.
        if active.phase != ObjectPhase::Fetching || active.object.all_values().is_none() {
            return false;
        }
        active.recipe = Some(claim);
        active.switched = self.ledger.last_batch();
        self.learn_how_chunks_come(key);
        self.ledger.take_back_pieces(key);
        self.give_up_comparing(key);
        true
    }

    /// A piece that was requested before the recipe came, and that the root does not bring now, gives way
    /// to chunks: the positions that are to be planned anew, and its length.
    pub(super) fn give_way(&mut self, tag: Tag) -> Option<(Vec<ObjectOffset>, u64)> {
        let want = self.ledger.get(tag)?;
        let switched = want.positions.iter().map(|position| {
            let active = self.objects.get(&position.object).filter(|active| active.recipe.is_some());
            active.map(|active| active.switched)
        });
        // Of several objects with the same piece each must have its recipe.
        let batch = switched.collect::<Option<Vec<u64>>>()?.into_iter().min()?;
        let len = want.id.len();
        let positions = self.ledger.take_back_piece(tag, batch);
        (!positions.is_empty()).then_some((positions, len))
    }
}

impl Active {
    /// True if it may be wanted as one run.
    fn may_be_whole(&self) -> bool {
        let is_untried = !self.tried_whole && self.recipe.is_none() && self.part.is_none();
        let is_short = self.object.layout().is_some_and(|it| it.size() <= MAX_CHUNK_LEN.into());
        is_untried && is_short && self.may_be_switched() && self.object.all_values().is_some()
    }

    /// Nobody brings it as one run: it goes on as ever.
    pub(super) fn give_up_whole(&mut self) {
        let is_whole = |oid: Oid| self.recipe.as_ref().is_some_and(|recipe| recipe.is_whole(&oid));
        if self.object.content().is_some_and(is_whole) {
            (self.recipe, self.next_chunk, self.request) = (None, 0, RecipeRequest::No);
        }
    }

    /// Chunks of its recipe, or of the one that may come.
    fn chunks_in_use(&self) -> usize {
        match (&self.recipe, self.request) {
            (Some(recipe), _) => recipe.chunks.len(),
            (None, RecipeRequest::Now) => self.chunks_at_most(),
            (None, _) => 0,
        }
    }

    fn chunks_at_most(&self) -> usize {
        let size = self.object.layout().map_or(0, |layout| layout.size());
        size.div_ceil(LEAST_CHUNK).min(MAX_CHUNKS as u64) as usize
    }

    /// True if it is drawn from an older version that is followed, and that brings most of it.
    const fn is_followed(&self) -> bool {
        match self.sampled {
            Sampled::No => false,
            Sampled::Now => true,
            Sampled::Over => self.comparison.is_likely(),
        }
    }

    /// True if it is of use to ask for its recipe: an object of one piece is quicker had as such.
    fn may_be_switched(&self) -> bool {
        let is_large = self.object.layout().is_some_and(|layout| layout.count() > 1);
        self.request == RecipeRequest::No
            && self.phase == ObjectPhase::Fetching
            && is_large
            && self.object.content().is_some()
    }
}
