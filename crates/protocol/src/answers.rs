//! Answers a question about an object: what it is, which values prove it, and, while it is live,
//! what its node states of it; its recipe; or which of its pieces can be had.

use std::ops::Range;

use bytes::Bytes;
use towpath_content::Oid;
use towpath_content::live::{MAX_VALUES, Statement};
use towpath_content::pieces::Layout;
use towpath_store::{Descriptors, ObjectKind, State, StoreError};
use towpath_transfer::intervals::Intervals;
use towpath_transfer::root_space::space_of;
use towpath_transfer::{Metadata, Outcome, following};

use super::access::Holding;
use super::outgoing::Outgoing;
use super::recipes::RecipeSending;
use super::service::{NOT_BOUND_WAIT, RECIPE_WAIT, RelayedBinding, Serving, outcome_of};
use super::step::Step;
use super::wire::{self, Body, Description, ProofOf, Stated, WireOutcome};

/// Values in one `Proof` message that answers a `Describe`.
const PROOF_RUN: u64 = 4096;

/// Pieces whose samples go in one message.
const SAMPLED: usize = 32;

type Out<'a> = &'a mut dyn FnMut(Outgoing);

/// The bytes of a run of pieces.
fn bytes_of(layout: &Layout, run: &Range<u64>) -> Range<u64> {
    layout.range(run.start).start..layout.range(run.end.saturating_sub(1)).end
}

/// The answer to one `Describe` or `Watch`.
pub struct QuestionAnswer {
    /// Without its names, which share memory with all that was received with it.
    question: wire::Describe,
    subject: QuestionSubject,
    watch: bool,
    stage: AnswerStage,
}

/// The subject of a question.
#[derive(Clone, Copy)]
pub(super) struct QuestionSubject {
    pub(super) root: Oid,
    pub(super) oid: Oid,
    /// How this node came to its root, if the secret of that was shown.
    pub(super) holding: Option<Holding>,
    /// Too many of its kind are under way.
    pub(super) is_busy: bool,
}

enum AnswerStage {
    /// Nothing was said yet.
    Begin,
    /// Proves values of a content object.
    Values { oid: Oid, left: Range<u64> },
    /// Gets the recipe.
    Recipe { oid: Oid },
    /// Sends what is left of the recipe.
    Nodes(RecipeSending),
    /// Sends samples of what is left of its pieces.
    Samples { oid: Oid, left: Range<u64> },
    /// Looks what is new of a live object, of which values before `first` were stated.
    Look { oid: Oid, first: u64 },
    /// States the values of a live object that are there in version `seen`.
    State { oid: Oid, generation: u64, left: Range<u64>, seen: u64 },
    /// Sends which bytes can be had, if others than were `told`.
    Watch { oid: Oid, told: Intervals },
}

impl QuestionAnswer {
    pub(super) fn new(question: wire::Describe, watch: bool, subject: QuestionSubject) -> Self {
        let question = wire::Describe { root: Bytes::new(), oid: Bytes::new(), ..question };
        Self { question, subject, watch, stage: AnswerStage::Begin }
    }

    pub(super) const fn request(&self) -> u32 {
        self.question.request
    }

    pub(super) const fn takes_long(&self) -> bool {
        self.watch || self.question.follow || self.is_heavy()
    }

    pub(super) const fn is_heavy(&self) -> bool {
        (self.question.recipe || self.question.samples) && !self.subject.is_busy
    }

    pub(super) fn step(&mut self, serving: &mut Serving, out: Out<'_>) -> Step {
        let stepped = match std::mem::replace(&mut self.stage, AnswerStage::Begin) {
            AnswerStage::Begin => self.begin(serving, out),
            AnswerStage::Values { oid, left } => self.prove_values(serving, oid, left, out),
            AnswerStage::Recipe { oid } => self.find_recipe(serving, &oid),
            AnswerStage::Nodes(sending) => self.send_nodes(sending, out),
            AnswerStage::Samples { oid, left } => self.send_samples(serving, oid, left, out),
            AnswerStage::Look { oid, first } => self.look(serving, oid, first, out),
            AnswerStage::State { oid, generation, left, seen } => {
                self.state_values(serving, oid, generation, left, seen, out)
            }
            AnswerStage::Watch { oid, told } => Ok(self.send_have(serving, oid, told, out)),
        };
        stepped.unwrap_or_else(|outcome| {
            let outcome = WireOutcome::new(self.question.request, None, &outcome);
            out(Outgoing::control(Body::Outcome(outcome)));
            Step::Over
        })
    }

    fn go_on(&mut self, stage: AnswerStage) -> Result<Step, Outcome> {
        self.stage = stage;
        Ok(Step::More)
    }

    fn begin(&mut self, serving: &mut Serving, out: Out<'_>) -> Result<Step, Outcome> {
        let oid = self.decide(serving)?;
        if self.subject.is_busy {
            return Err(Outcome::RetryLater(RECIPE_WAIT));
        }
        if self.watch {
            return self.go_on(AnswerStage::Watch { oid, told: Intervals::default() });
        }
        let outcome = |error| serving.outcome_of_put(self.subject.holding, &oid, &error);
        if let Some(binding) = serving.relayed(&oid) {
            return self.hand_on(serving, &binding, out);
        }
        let have = serving.store().have(&oid).map_err(outcome)?;
        if have.state == State::Partial && oid.is_live() && self.question.values_from.is_some() {
            // It signs nothing, and its issuer has not said yet what it became.
            return Err(Outcome::RetryLater(NOT_BOUND_WAIT));
        }
        let seen = serving.see(&oid).map_err(outcome)?;
        if let Some(seen) = &seen {
            serving.processors().admit(&seen.object(&oid))?;
        }
        let metadata = seen.map(|seen| seen.metadata).unwrap_or_default();
        let size = (!oid.is_live()).then(|| have.layout.size());
        let description = Description::new(self.question.request, &have.about, size, &metadata);
        out(Outgoing::control(Body::Description(description)));
        match (oid.is_live(), self.question.values_from) {
            (true, Some(first)) => self.go_on(AnswerStage::Look { oid, first }),
            (false, Some(from)) => {
                let left = from..self.question.values_to.min(have.layout.count());
                self.go_on(AnswerStage::Values { oid, left })
            }
            (false, None) if self.question.recipe => self.go_on(AnswerStage::Recipe { oid }),
            // Objects for processors go through them piece by piece, and so not like this.
            (false, None) if self.question.samples && !serving.processors().inspect_any() => {
                self.go_on(AnswerStage::Samples { oid, left: 0..have.layout.count() })
            }
            (_, None) => Ok(Step::Over),
        }
    }

    /// Tells what a live object became that another node signed for.
    fn hand_on(
        &mut self,
        serving: &Serving,
        binding: &RelayedBinding,
        out: Out<'_>,
    ) -> Result<Step, Outcome> {
        let content = binding.content;
        let outcome = |error| serving.outcome_of_put(self.subject.holding, &content, &error);
        let have = serving.store().have(&content).map_err(outcome)?;
        let (request, metadata) = (self.question.request, Metadata::default());
        out(Outgoing::control(Body::Description(Description::new(request, &have.about, None, &metadata))));
        if self.question.values_from.is_some() {
            let (statement, signature) = (binding.statement.clone(), binding.signature.clone());
            out(Outgoing::control(Body::Stated(Stated { request, statement, signature })));
        }
        Ok(Step::Over)
    }

    fn decide(&self, serving: &mut Serving) -> Result<Oid, Outcome> {
        let QuestionSubject { root, oid, holding, .. } = self.subject;
        serving.allow(holding, &root, &oid, self.question.block).map(|()| oid)
    }

    fn prove_values(
        &mut self,
        serving: &Serving,
        oid: Oid,
        left: Range<u64>,
        out: Out<'_>,
    ) -> Result<Step, Outcome> {
        if left.is_empty() {
            return match self.question.recipe {
                true => self.go_on(AnswerStage::Recipe { oid }),
                false => Ok(Step::Over),
            };
        }
        let run = left.start..left.end.min(left.start + PROOF_RUN);
        let found = serving.store().get_descriptors(&oid, run.clone()).map_err(|error| outcome_of(&error))?;
        let Descriptors::Proof(nodes) = found else { return Err(Outcome::NotHere) };
        let (request, first, count) = (self.question.request, run.start, run.end - run.start);
        out(Outgoing::control(Body::Proof(ProofOf {
            request,
            want: None,
            first,
            count,
            nodes: nodes.into(),
        })));
        self.go_on(AnswerStage::Values { oid, left: run.end..left.end })
    }

    fn send_samples(
        &mut self,
        serving: &Serving,
        oid: Oid,
        mut left: Range<u64>,
        out: Out<'_>,
    ) -> Result<Step, Outcome> {
        let (first, mut samples) = (left.start, Vec::new());
        for index in left.by_ref().take(SAMPLED) {
            let mut buffer = serving.buffers().take();
            let front = buffer.len();
            serving.store().read_piece(&oid, index, &mut buffer).map_err(|error| outcome_of(&error))?;
            following::sample(&buffer[front..], &mut samples);
            serving.buffers().give_back(buffer);
        }
        if samples.is_empty() {
            return Ok(Step::Over);
        }
        let (request, bytes) = (self.question.request, samples.into());
        out(Outgoing::control(Body::Samples(wire::Samples { request, first, bytes })));
        self.go_on(AnswerStage::Samples { oid, left })
    }

    fn find_recipe(&mut self, serving: &Serving, oid: &Oid) -> Result<Step, Outcome> {
        let sending = RecipeSending::new(serving.recipe(oid)?);
        self.go_on(AnswerStage::Nodes(sending))
    }

    fn send_nodes(&mut self, mut sending: RecipeSending, out: Out<'_>) -> Result<Step, Outcome> {
        let Some((root, nodes)) = sending.next_part()? else { return Ok(Step::Over) };
        out(Outgoing::control(Body::Recipe(wire::Recipe { request: self.question.request, root, nodes })));
        self.go_on(AnswerStage::Nodes(sending))
    }

    /// Finds signed values of a live object as they come, and its binding at the end.
    fn look(&mut self, serving: &Serving, oid: Oid, first: u64, out: Out<'_>) -> Result<Step, Outcome> {
        let store = serving.store();
        let seen = store.version(&oid);
        let have = store.have(&oid).map_err(|error| outcome_of(&error))?;
        match have.state {
            State::Live { generation } => {
                let end = have.pieces.first().filter(|run| run.start == 0).map_or(0, |run| run.end);
                self.go_on(AnswerStage::State { oid, generation, left: first..end.max(first), seen })
            }
            State::Bound(content) => {
                let bound = store.have(&content).map_err(|error| outcome_of(&error))?;
                let size = bound.layout.size();
                self.sign_and_send(serving, &Statement::Bound { object: oid, content, size }, out);
                Ok(Step::Over)
            }
            _ => Ok(Step::Over),
        }
    }

    fn state_values(
        &mut self,
        serving: &Serving,
        oid: Oid,
        generation: u64,
        left: Range<u64>,
        seen: u64,
        out: Out<'_>,
    ) -> Result<Step, Outcome> {
        if left.is_empty() {
            self.stage = AnswerStage::Look { oid, first: left.start };
            return Ok(if self.question.follow { Step::Wait { oid, seen } } else { Step::Over });
        }
        let run = left.start..left.end.min(left.start + MAX_VALUES as u64);
        match serving.store().get_descriptors(&oid, run.clone()) {
            Ok(Descriptors::Values(values)) => {
                let statement = Statement::Values { object: oid, generation, first: run.start, values };
                self.sign_and_send(serving, &statement, out);
            }
            // Bound in this very moment: the next look sees it.
            Ok(Descriptors::Proof(_)) | Err(StoreError::NotYet) => {}
            Err(error) => return Err(outcome_of(&error)),
        }
        self.go_on(AnswerStage::State { oid, generation, left: run.end..left.end, seen })
    }

    fn sign_and_send(&self, serving: &Serving, statement: &Statement, out: Out<'_>) {
        let signature = Bytes::copy_from_slice(&serving.sign(&statement.message()));
        let (request, statement) = (self.question.request, statement.to_bytes().into());
        out(Outgoing::control(Body::Stated(Stated { request, statement, signature })));
    }

    fn send_have(&mut self, serving: &Serving, oid: Oid, mut told: Intervals, out: Out<'_>) -> Step {
        // Of a tree that comes it is told where in the root's space there are files. Of one that is here, nothing: that is all.
        let space = space_of(&oid);
        let seen = serving.store().version(&space);
        let (watched, seen, have) = match serving.store().have(&space) {
            Ok(have) => (space, seen, have),
            Err(_) => {
                let seen = serving.store().version(&oid);
                let Ok(have) = serving.store().have(&oid) else { return Step::Over };
                if have.about.kind == ObjectKind::Tree {
                    return Step::Over;
                }
                (oid, seen, have)
            }
        };
        let is_first = told.is_empty();
        let runs = have.pieces.iter().map(|run| bytes_of(&have.layout, run)).chain(have.spans);
        let added: Vec<_> = runs.flat_map(|run| told.gaps(&run)).take(wire::MAX_RANGES).collect();
        let is_all = added.len() < wire::MAX_RANGES;
        if is_first || !added.is_empty() {
            let bounds = added.iter().flat_map(|run| [run.start, run.end]).collect();
            out(Outgoing::control(Body::Have(wire::Have { request: self.question.request, bounds })));
        }
        added.into_iter().for_each(|run| told.insert(run));
        self.stage = AnswerStage::Watch { oid, told };
        if !is_all {
            return Step::More;
        }
        if self.question.follow { Step::Wait { oid: watched, seen } } else { Step::Over }
    }
}
