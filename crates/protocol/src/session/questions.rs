//! The questions under way on a connection, by their numbers. Pure.

use std::collections::BTreeMap;

use towpath_transfer::{Description, Outcome, RecipePart, SourceId};

use super::effect::{Effect, Question};
use super::outbox::SessionOutbox;
use crate::wire::{self, Body};

/// The parts of a question beside what the object is.
#[derive(Debug, Clone, Copy, Default)]
struct PendingQuestion {
    recipe: bool,
    samples: bool,
}

/// Questions of this side that the peer answers.
#[derive(Default)]
pub(super) struct OpenQuestions {
    open: BTreeMap<u32, PendingQuestion>,
}

impl OpenQuestions {
    /// A question gets its number; the message that puts it.
    pub(super) fn begin(&mut self, request: u32, question: Question) -> Body {
        let pending = match &question {
            Question::Describe(question) => {
                PendingQuestion { recipe: question.recipe, samples: question.samples }
            }
            Question::Watch(_) | Question::Bring(_) => PendingQuestion::default(),
        };
        self.open.insert(request, pending);
        match question {
            Question::Describe(question) => Body::Describe(wire::Describe { request, ..question }),
            Question::Watch(question) => Body::Watch(wire::Describe { request, ..question }),
            Question::Bring(ticket) => Body::Bring(wire::WireBring { request, ticket }),
        }
    }

    /// True if one is under way.
    pub(super) fn contains(&self, request: u32) -> bool {
        self.open.contains_key(&request)
    }

    /// The numbers of all.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.open.keys().copied()
    }

    /// Ends one with this result; false if it is not under way.
    pub(super) fn finish(
        &mut self,
        request: u32,
        result: Result<(), Outcome>,
        outbox: &mut SessionOutbox,
    ) -> bool {
        let was_open = self.open.remove(&request).is_some();
        if was_open {
            outbox.push(Effect::Ended { request, result });
        }
        was_open
    }

    /// Hands an answer to its question; a question given up meanwhile needs none.
    pub(super) fn answer(
        &self,
        request: u32,
        answer: Effect,
        outbox: &mut SessionOutbox,
    ) -> Result<(), String> {
        outbox.was_put(request).map_err(|violation| violation.to_string())?;
        if self.contains(request) {
            outbox.push(answer);
        }
        Ok(())
    }

    /// Samples of an object.
    pub(super) fn samples(&self, samples: wire::Samples, outbox: &mut SessionOutbox) -> Result<(), String> {
        let wire::Samples { request, first, bytes } = samples;
        if self.open.get(&request).is_some_and(|question| !question.samples) {
            return Err("sent samples that were not asked for".into());
        }
        if bytes.is_empty() || bytes.len() > wire::MAX_SAMPLES {
            return Err("sent too many or no samples at once".into());
        }
        let answer = Description::Samples { first, bytes };
        self.answer(request, Effect::Answer { request, answer }, outbox)
    }

    /// A part of a recipe that `maker` made.
    pub(super) fn recipe(
        &self,
        part: wire::Recipe,
        maker: &SourceId,
        outbox: &mut SessionOutbox,
    ) -> Result<(), String> {
        let wire::Recipe { request, root, nodes } = part;
        if self.open.get(&request).is_some_and(|question| !question.recipe) {
            return Err("sent a recipe that was not asked for".into());
        }
        let answer = Description::Recipe(RecipePart { maker: maker.clone(), root, nodes });
        self.answer(request, Effect::Answer { request, answer }, outbox)
    }
}
