//! From pieces to chunks in mid-transfer: when the root plugin finds that the rest of an object is
//! better drawn by its recipe, the recipe is asked for and checked, and what is still missing is
//! wanted as chunks.
//!
//! Pieces go on meanwhile, so nothing waits for a recipe. If none is to be had, pieces bring the
//! rest, and it is not asked for again. How many recipes are asked for and kept at once is limited.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::RecipeClaim;
use super::actor::{Active, Actor, ObjectPhase};
use super::asked::Sampled;
use super::asked::{RecipeRequest, Wrong};
use super::events::SessionEvent;
use crate::claim::{MAX_CHUNKS, RecipeReader};
use crate::plugin::{Context, Description, ObjectFacts, Query, TransferPlugin};
use crate::want::{ObjectKey, Outcome, Tag};

/// How often the root plugin is asked whether it wants recipes, at most.
const PAUSE: Duration = Duration::from_millis(50);
/// Objects that it is asked of at a time: others have their turn the next time.
const OBJECTS_PER_ROUND: usize = 32;
/// Recipes asked for at once.
const QUESTIONS: usize = 4;
/// Chunks in recipes that are used or asked for. With all that is kept of a want each takes some 300
/// bytes, so 150 MiB.
const CHUNKS: usize = 1 << 19;
/// Hardly an object has more chunks than one for so many bytes.
const LEAST_CHUNK: u64 = 4 << 10;

impl Actor {
    /// Asks the root plugin, now and then, of which objects it wants the recipes.
    pub(super) fn look_for_recipes(&mut self, now: Instant) {
        if now < self.rounds.next {
            self.rounds.is_due = true;
            return;
        }
        self.rounds.next = now + PAUSE;
        let mut questions = self.objects.values().filter(|active| active.asked == RecipeRequest::Now).count();
        let mut chunks: usize = self.objects.values().map(Active::chunks_in_use).sum();
        let round = self.round();
        // A network may be so slow that nothing else happens for a second.
        self.rounds.is_due = !round.is_empty();
        for key in round {
            let more = self.objects.get(&key).map_or(0, Active::chunks_at_most);
            if questions < QUESTIONS && chunks + more <= CHUNKS && self.is_wanted(key) {
                (questions, chunks) = (questions + 1, chunks + more);
                self.ask_for_recipe(key);
            }
        }
    }

    /// The objects whose turn it is.
    fn round(&mut self) -> Vec<ObjectKey> {
        let objects = self.objects.iter().filter(|(_, active)| active.may_be_switched());
        let mut keys: Vec<ObjectKey> = objects.map(|(&key, _)| key).collect();
        keys.sort_unstable();
        let after_last = keys.partition_point(|&key| key <= self.rounds.last);
        keys.rotate_left(after_last);
        keys.truncate(OBJECTS_PER_ROUND);
        self.rounds.last = keys.last().copied().unwrap_or(0);
        keys
    }

    fn is_wanted(&self, key: ObjectKey) -> bool {
        let is_followed = self.objects.get(&key).is_some_and(Active::is_followed);
        let facts = self.facts(key).filter(|facts| facts.missing > 0 && !is_followed);
        facts.is_some_and(|facts| self.root.wants_recipe(&facts))
    }

    /// What the root plugin is told of an object.
    pub(super) fn facts(&self, key: ObjectKey) -> Option<ObjectFacts<'_>> {
        let active = self.objects.get(&key)?;
        let (oid, layout) = (active.object.content()?, active.object.layout()?);
        let size = layout.size();
        let piece = layout.piece_len();
        let mut here = active.existing.clone();
        here.remove(0..active.cursor * piece);
        self.ledger.have(key).into_iter().flat_map(|have| have.iter()).for_each(|range| here.insert(range));
        let likely = (active.comparison.expected_good() * piece as f64) as u64;
        let accounted = here.len() + likely + self.ledger.asked_bytes(key);
        let missing = size.saturating_sub(accounted);
        Some(ObjectFacts {
            oid,
            asked_as: active.object.oid,
            size,
            missing,
            read_rate: active.comparison.rate(self.now()),
            kept: active.comparison.kept(),
            group: &active.object.group,
        })
    }

    fn ask_for_recipe(&mut self, key: ObjectKey) {
        let Some(active) = self.objects.get_mut(&key) else { return };
        let (Some(oid), Some(layout)) = (active.object.content(), active.object.layout()) else { return };
        active.asked = RecipeRequest::Now;
        let question = RecipeQuestion {
            key,
            size: layout.size(),
            query: Query {
                coverage: active.object.group.coverage,
                // What chunks make up is compared with these.
                proofs: active.object.all_values().is_none().then_some(0..layout.count()),
                recipe: true,
                ..Query::about(oid)
            },
            events: self.events.clone(),
            patience: self.config.ledger.patience,
        };
        let (root, context, token) = (Arc::clone(&self.root), self.context.clone(), active.question.clone());
        tokio::spawn(async move {
            let asked = question.put(&*root, &context);
            if let Some(answer) = token.run_until_cancelled(asked).await {
                let _ = question.events.send(SessionEvent::Recipe { key, answer });
            }
        });
    }

    pub(super) fn recipe_answered(&mut self, key: ObjectKey, answer: Result<Option<RecipeClaim>, Wrong>) {
        let Some(active) = self.objects.get_mut(&key) else { return };
        active.asked = RecipeRequest::Over;
        match answer {
            Ok(Some(claim)) => self.switch(key, claim),
            Ok(None) => tracing::debug!(oid = %active.object.oid, "no recipe is to be had"),
            Err(Wrong { maker, why }) => {
                tracing::warn!(%maker, %why, "refused a recipe");
                if why.blames_maker() {
                    self.root.blame(&maker);
                }
            }
        }
    }

    /// From now on chunks are wanted where nothing is here and no piece is asked.
    fn switch(&mut self, key: ObjectKey, claim: RecipeClaim) {
        let Some(active) = self.objects.get_mut(&key) else { return };
        // Without all values chunks could not be checked where they meet.
        if active.phase != ObjectPhase::Fetching || active.object.all_values().is_none() {
            return;
        }
        active.recipe = Some(claim);
        active.switched = self.ledger.last_batch();
        self.ledger.take_back_pieces(key);
        self.give_up_comparing(key);
        self.advance(key);
    }

    /// Whether a piece that was asked for before the recipe came, and that the root plugin does not bring
    /// now, gives way to chunks.
    pub(super) fn gives_way(&mut self, tag: Tag) -> bool {
        let Some(want) = self.ledger.get(tag) else { return false };
        let switched = want.places.iter().map(|place| {
            let active = self.objects.get(&place.object).filter(|active| active.recipe.is_some());
            active.map(|active| active.switched)
        });
        // Of several objects with the same piece each must have its recipe.
        let Some(batch) = switched.collect::<Option<Vec<u64>>>().and_then(|all| all.into_iter().min()) else {
            return false;
        };
        let len = want.id.len();
        let places = self.ledger.take_back_piece(tag, batch);
        for place in &places {
            self.plan_chunks_in(place.object, &(place.offset..place.offset + len));
            self.advance(place.object);
        }
        !places.is_empty()
    }
}

impl Active {
    /// Chunks of its recipe, or of the one that may come.
    fn chunks_in_use(&self) -> usize {
        match (&self.recipe, self.asked) {
            (Some(recipe), _) => recipe.chunks.len(),
            (None, RecipeRequest::Now) => self.chunks_at_most(),
            (None, _) => 0,
        }
    }

    fn chunks_at_most(&self) -> usize {
        let size = self.object.layout().map_or(0, |layout| layout.size());
        size.div_ceil(LEAST_CHUNK).min(MAX_CHUNKS as u64) as usize
    }

    /// Whether it is drawn from an older version that is followed, and that brings most of it.
    const fn is_followed(&self) -> bool {
        match self.sampled {
            Sampled::No => false,
            Sampled::Now => true,
            Sampled::Over => self.comparison.is_likely(),
        }
    }

    /// Whether it is of use to ask for its recipe: an object of one piece is quicker had as such.
    fn may_be_switched(&self) -> bool {
        let is_large = self.object.layout().is_some_and(|layout| layout.count() > 1);
        self.asked == RecipeRequest::No
            && self.phase == ObjectPhase::Fetching
            && is_large
            && self.object.content().is_some()
    }
}

/// The question for one object's recipe.
struct RecipeQuestion {
    key: ObjectKey,
    size: u64,
    query: Query,
    events: mpsc::UnboundedSender<SessionEvent>,
    patience: Duration,
}

/// Why the answers are not read to their end.
enum Stop {
    Silent,
    Wrong(Wrong),
}

impl RecipeQuestion {
    /// Asks until there is an answer or the patience is over.
    async fn put(&self, root: &dyn TransferPlugin, context: &Context) -> Result<Option<RecipeClaim>, Wrong> {
        let since = Instant::now();
        loop {
            let mut reader = RecipeReader::new(self.query.oid, self.size);
            let (answers, inbox) = mpsc::channel(4);
            let asking = async { Ok(root.get_descriptors(self.query.clone(), context, answers).await) };
            let result = match tokio::try_join!(asking, self.read(inbox, &mut reader)) {
                Ok((result, ())) => result,
                Err(Stop::Silent) => return Ok(None),
                Err(Stop::Wrong(wrong)) => return Err(wrong),
            };
            match result {
                Ok(()) => {
                    let maker = reader.maker().cloned().unwrap_or_default();
                    return reader.finish().map_err(|why| Wrong { maker, why });
                }
                Err(Outcome::RetryLater(delay)) if since.elapsed() < self.patience => {
                    tokio::time::sleep(delay).await;
                }
                Err(_) => return Ok(None),
            }
        }
    }

    async fn read(
        &self,
        mut inbox: mpsc::Receiver<Description>,
        reader: &mut RecipeReader,
    ) -> Result<(), Stop> {
        loop {
            match tokio::time::timeout(self.patience, inbox.recv()).await {
                Ok(Some(Description::Recipe(part))) => {
                    let maker = Arc::clone(&part.maker);
                    reader.take(part).map_err(|why| Stop::Wrong(Wrong { maker, why }))?;
                }
                Ok(Some(answer)) => {
                    let _ = self.events.send(SessionEvent::Answer { key: self.key, answer });
                }
                Ok(None) => return Ok(()),
                Err(_) => return Err(Stop::Silent),
            }
        }
    }
}
