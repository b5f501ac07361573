//! The session's one task: it owns every state and talks to sources and workers by messages.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use towpath_content::NodeId;
use towpath_content::pieces::Layout;
use towpath_store::About;

use super::active::{Active, ObjectPhase};
use super::announced::Announcement;
use super::calls::RootCalls;
use super::entries::EntryLedger;
use super::entry_calls::EntryCalls;
use super::events::{Brought, Checked, SessionEvent};
use super::existing::DiskComparer;
use super::meter::NetworkMeter;
use super::partial_pieces::PartialPieces;
use super::questions::Questions;
use super::requests::Rounds;
use super::table::ObjectTable;
use super::unproved::UnprovedPieces;
use super::work::Job;
use super::{FetchError, SessionConfig, Submission, cancel, workers};
use crate::ledger::{Ledger, WantResult};
use crate::object::{CheckError, ObjectInFlight};
use crate::offer::OfferSource;
use crate::progress::Progress;
use crate::root::Root;
use crate::source::{Context, Description};
use crate::want::{ObjectKey, Outcome, Tag, Want, WantId};

/// Interval of looks for stalls.
const TICK: Duration = Duration::from_millis(500);
/// Events handled before new wants are requested.
const EVENTS_PER_ROUND: usize = 256;

/// The task's state, each part with one job.
pub(super) struct Actor {
    pub(super) table: ObjectTable,
    pub(super) questions: Questions,
    comparer: DiskComparer,
    calls: RootCalls,
    entries: EntryLedger,
    entry_calls: EntryCalls,
    /// Rounds in which the root is asked whether it wants recipes.
    rounds: Rounds,
    /// Node that signs what is said of live objects.
    pub(super) node: Option<NodeId>,
    token: CancellationToken,
    next_key: ObjectKey,
}

impl Actor {
    pub(super) fn new(
        root: Arc<dyn Root>,
        offers: Arc<dyn OfferSource>,
        context: Context,
        config: SessionConfig,
        events: mpsc::UnboundedSender<SessionEvent>,
        progress: Progress,
        token: CancellationToken,
    ) -> Self {
        let now = Instant::now();
        let table = ObjectTable {
            root: Arc::clone(&root),
            chunks_at_once: false,
            objects: HashMap::new(),
            ledger: Ledger::new(config.ledger, now),
            meter: NetworkMeter::new(now),
            partial_pieces: PartialPieces::default(),
            unproved: UnprovedPieces::default(),
            jobs: workers::start(config.workers, &events),
            progress,
        };
        Self {
            table,
            node: context.node,
            questions: Questions::new(root, context.clone(), events.clone(), config.ledger.wait_limit),
            comparer: DiskComparer::new(config.workers, events.clone()),
            entries: EntryLedger::new(config.ledger.wait_limit),
            entry_calls: EntryCalls::new(offers, events.clone(), token.clone()),
            calls: RootCalls::new(context, config, events, token.clone()),
            rounds: Rounds::new(now),
            token,
            next_key: 1,
        }
    }

    pub(super) async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<SessionEvent>) {
        let token = self.token.clone();
        let mut tick = tokio::time::interval(TICK);
        let mut batch = Vec::new();
        loop {
            let table = &self.table;
            let (trial_end, idle_end) = (DiskComparer::trial_end(table), self.comparer.idle_end(table));
            let retries = [table.ledger.next_wake(), self.entries.next_wake()];
            let wakes = retries.into_iter().chain([self.rounds.next_wake(), trial_end, idle_end]);
            let wake = wakes.flatten().min().map(tokio::time::Instant::from_std);
            tokio::select! {
                () = token.cancelled() => break,
                _ = inbox.recv_many(&mut batch, EVENTS_PER_ROUND) => {}
                _ = tick.tick() => {
                    self.table.look_for_stall();
                    self.entries.look_for_stall(&self.table.jobs, Instant::now());
                    self.go_on_comparing();
                }
                () = sleep_until(wake), if wake.is_some() => {}
            }
            for event in batch.drain(..) {
                self.handle(event);
            }
            if trial_end.is_some_and(|end| Instant::now() >= end) {
                self.table.objects.values_mut().for_each(|active| active.comparison.trial_is_over());
                self.go_on_comparing();
            }
            if idle_end.is_some_and(|end| Instant::now() >= end) {
                self.go_on_comparing();
            }
            let whole = self.rounds.look(&mut self.table, &self.questions, Instant::now());
            whole.into_iter().for_each(|key| self.advance(key));
            self.calls.ask(&mut self.table);
            self.entry_calls.ask(&mut self.entries);
            if self.table.ledger.requested().whole == 0 {
                self.table.meter.rests();
            }
        }
        self.cancel_all(inbox);
    }

    fn cancel_all(mut self, mut inbox: mpsc::UnboundedReceiver<SessionEvent>) {
        for (_, active) in self.table.objects.drain() {
            active.question.cancel();
            (active.on_done)(Err(FetchError::Cancelled));
        }
        inbox.close();
        while let Ok(event) = inbox.try_recv() {
            if let SessionEvent::Submit(submissions) = event {
                cancel(submissions);
            }
        }
    }

    fn handle(&mut self, event: SessionEvent) {
        match event {
            SessionEvent::Submit(submissions) => submissions.into_iter().for_each(|one| self.submitted(one)),
            SessionEvent::Performed(events) => events.into_iter().for_each(|event| self.handle(event)),
            SessionEvent::Answer { key, answer } => self.answer(key, answer),
            SessionEvent::Answered { key, for_proofs: true, result } => self.values_ended(key, result),
            SessionEvent::Answered { key, for_proofs: false, result } => self.answered(key, result),
            SessionEvent::Began { key, result } => self.began(key, result),
            SessionEvent::Delivery { delivery, room } => self.delivered(delivery, room),
            SessionEvent::PartialPiece(delivery) => {
                if let Some(want) = self.table.ledger.get(delivery.tag) {
                    self.table.partial_pieces.keep(want, &delivery);
                }
            }
            SessionEvent::Outcome { tag, outcome } => self.outcome(tag, &outcome),
            SessionEvent::CallEnded { tags, batch, counted } => {
                if counted {
                    self.calls.ended();
                }
                self.call_ended(tags, batch);
            }
            SessionEvent::Recipe { key, answer } => {
                if self.table.recipe_answered(key, answer) {
                    self.advance(key);
                }
            }
            SessionEvent::Checked { want, brought, result } => {
                self.checked(want, brought, result);
            }
            SessionEvent::Compared { key, index, found } => {
                self.table.compared(key, index, found);
                self.advance(key);
            }
            SessionEvent::Sampled { key } => {
                self.table.sampled(key);
                self.advance(key);
            }
            SessionEvent::Rechecked { key, index, good } => {
                if self.table.rechecked(key, index, good) {
                    self.advance(key);
                }
            }
            SessionEvent::Completed { key, result } => self.table.finish(key, result),
            SessionEvent::Entry(message) => {
                let fetch = self.entries.take(message, &self.table.jobs, Instant::now());
                fetch.into_iter().for_each(|submission| self.submitted(submission));
            }
        }
    }

    fn submitted(&mut self, submission: Submission) {
        let Submission { request, on_done, permit } = submission;
        let key = self.next_key;
        self.next_key += 1;
        let object = Arc::new(ObjectInFlight::new(key, request.oid, request.group, request.target));
        let active = Active::new(&object, request.recipe, self.token.child_token(), on_done, permit);
        self.table.objects.insert(key, active);
        match request.size.filter(|_| !object.oid.is_live()) {
            Some(size) => self.sized(key, size),
            None => self.ask_about(key),
        }
    }

    /// The size of a content object is known.
    fn sized(&mut self, key: ObjectKey, size: u64) {
        let Some(active) = self.table.objects.get_mut(&key) else { return };
        let layout = match Layout::of(size) {
            Ok(layout) => layout,
            Err(why) => return self.table.finish(key, Err(FetchError::TooLarge(why))),
        };
        active.object.set_layout(layout);
        // An object of one piece is quicker had as such.
        if let Some(recipe) = active.recipe.take_if(|recipe| layout.count() == 1 || !recipe.builds(size))
            && layout.count() > 1
        {
            tracing::warn!(maker = %recipe.maker, "a recipe does not make up an object of this size");
            self.table.root.report_corrupt(&recipe.maker);
        }
        active.narrow(&layout);
        let (wanted, has_recipe) = (active.wanted(&layout), active.recipe.is_some());
        self.table.progress.expected(wanted.end - wanted.start);
        if has_recipe {
            self.table.learn_how_chunks_come(key);
        }
        self.begin(key, Some(layout));
    }

    fn begin(&mut self, key: ObjectKey, layout: Option<Layout>) {
        let Some(active) = self.table.objects.get_mut(&key) else { return };
        let is_single = layout.is_some_and(|layout| layout.count() == 1);
        if is_single && active.recipe.is_none() && !active.object.oid.is_live() {
            // Its worker opens, writes and closes it in one go.
            active.phase = ObjectPhase::Fetching;
            return self.plan(key);
        }
        active.phase = ObjectPhase::Beginning;
        let object = Arc::clone(&active.object);
        self.table.jobs.send(Job::Begin { object, size: layout.map(|layout| layout.size()) });
    }

    fn answer(&mut self, key: ObjectKey, answer: Description) {
        match answer {
            Description::Object { about, layout, .. } => self.described(key, about, layout),
            Description::Proof(proof) => {
                self.told_values(key, &proof);
            }
            Description::Live { statement, signature } => {
                if let Err(why) = self.stated(key, statement, &signature) {
                    self.table.finish(key, Err(why));
                }
            }
            // The one who requests it takes it from there.
            Description::Samples { first, bytes } => {
                if self.table.samples(key, first, &bytes) {
                    self.advance(key);
                }
            }
            Description::Recipe(part) => tracing::warn!(maker = %part.maker, "a recipe was not asked for"),
        }
    }

    fn described(&mut self, key: ObjectKey, about: About, layout: Option<Layout>) {
        let Some(active) = self.table.objects.get_mut(&key) else { return };
        if active.phase != ObjectPhase::Describing {
            return;
        }
        active.object.set_about(about);
        match layout {
            _ if active.object.oid.is_live() => self.begin(key, None),
            Some(layout) => self.sized(key, layout.size()),
            None => tracing::warn!("a source does not say how large a complete object is"),
        }
    }

    fn answered(&mut self, key: ObjectKey, result: Result<(), Outcome>) {
        let Some(active) = self.table.objects.get_mut(&key) else { return };
        match (active.phase, result) {
            (_, Ok(())) if active.object.content().is_none() => {
                self.table.finish(key, Err(FetchError::Abandoned))
            }
            (ObjectPhase::Describing, Ok(())) => {
                self.table.finish(key, Err(FetchError::Ended(Outcome::NotHere)))
            }
            (_, Ok(())) => {}
            (_, Err(Outcome::RetryLater(waited))) => {
                let last_error = self.table.root.state().trouble;
                self.table.finish(key, Err(FetchError::Stalled { waited, last_error }));
            }
            (ObjectPhase::Describing, Err(outcome)) => {
                self.table.finish(key, Err(FetchError::Ended(outcome)))
            }
            (_, Err(outcome)) if active.object.content().is_none() => {
                self.table.finish(key, Err(FetchError::Ended(outcome)));
            }
            (_, Err(_)) => {}
        }
    }

    fn began(&mut self, key: ObjectKey, result: io::Result<Vec<Range<u64>>>) {
        let Some(active) = self.table.objects.get_mut(&key) else { return };
        let existing = match result {
            Ok(existing) => existing,
            Err(why) => return self.table.finish(key, Err(FetchError::Write(why))),
        };
        existing.into_iter().for_each(|range| active.existing.insert(range));
        active.announced = Announcement::new(&active.object);
        active.tell_binding();
        let is_announced = active.announced.is_some();
        let count = active.object.layout().map_or(0, |layout| layout.count());
        let proves = self.table.root.state().proves;
        if count > 1 && (!proves || !active.existing.is_empty() || active.recipe.is_some()) {
            active.phase = ObjectPhase::Proving;
            return self.ask_for_values(key);
        }
        active.phase = ObjectPhase::Fetching;
        if is_announced {
            // Whoever reads a piece needs its proof, which takes all values.
            self.ask_for_values(key);
        }
        self.plan(key);
    }

    fn outcome(&mut self, tag: Tag, outcome: &Outcome) {
        if matches!(outcome, Outcome::RetryLater(_))
            && let Some((positions, len)) = self.table.give_way(tag)
        {
            for position in positions {
                self.table.plan_chunks_in(position.object, &(position.offset..position.offset + len));
                self.advance(position.object);
            }
            return;
        }
        if let WantResult::Failed(want) = self.table.ledger.ended(tag, outcome, Instant::now()) {
            self.failed(&want, || FetchError::Ended(outcome.clone()));
        }
    }

    /// A want cannot be had. A chunk's place is filled by pieces, a piece's object has failed.
    pub(super) fn failed(&mut self, want: &Want, why: impl Fn() -> FetchError) {
        for &position in &want.positions {
            match want.id {
                WantId::Piece { .. } => self.table.finish(position.object, Err(why())),
                WantId::Chunk { .. } | WantId::Block { .. } => {
                    let active = self.table.objects.get_mut(&position.object);
                    active.into_iter().for_each(Active::give_up_whole);
                    self.table.fall_back(position, want.id.len());
                    self.plan(position.object);
                }
            }
        }
    }

    /// A source that keeps the contract ended each want before it returned. One that does not
    /// must not hang the session.
    fn call_ended(&mut self, tags: Vec<Tag>, batch: u64) {
        for tag in tags {
            if self.table.ledger.is_waiting(tag, batch) {
                tracing::warn!(tag, source = self.table.root.name(), "a want was left without an outcome");
                self.outcome(tag, &Outcome::RetryLater(TICK));
            }
        }
    }

    fn checked(&mut self, want: Box<Want>, brought: Brought, result: Checked) {
        let mut spoilt = Vec::new();
        for position in &want.positions {
            let Some(active) = self.table.objects.get_mut(&position.object) else { continue };
            active.writing -= 1;
            if let WantId::Piece { index, .. } = want.id
                && active.writing_pieces.remove(&index) == Some(true)
            {
                spoilt.push((position.object, index));
            }
        }
        match result {
            Checked::Written { whole, zeros, failed, liars } => {
                for (key, why) in failed {
                    self.table.finish(key, Err(FetchError::Write(why)));
                }
                self.table.written(&want, &brought, whole, zeros);
                spoilt.into_iter().for_each(|(key, index)| self.table.recheck(key, index));
                for liar in liars {
                    tracing::warn!(source = %liar, "its part of a piece was wrong");
                    self.table.progress.was_wrong(&liar, want.missing_len());
                    self.table.root.report_corrupt(&liar);
                }
            }
            Checked::Doubtful(parts) => {
                let source = &brought.source;
                if let WantResult::Failed(want) = self.table.ledger.doubt(want.tag, parts) {
                    let bad =
                        || FetchError::Bad { source_name: source.clone(), what: CheckError::WrongBytes };
                    self.failed(&want, bad);
                }
            }
            Checked::BadPart => self.table.ledger.widen(want.tag),
            Checked::Bad(what) => {
                let source = &brought.source;
                tracing::warn!(%source, %what, "refused a delivery");
                self.table.progress.was_wrong(source, want.missing_len());
                self.table.root.report_corrupt(source);
                if let WantResult::Failed(want) = self.table.ledger.bad(want.tag, source) {
                    let bad = || FetchError::Bad { source_name: source.clone(), what: what.clone() };
                    self.failed(&want, bad);
                }
            }
        }
        for position in &want.positions {
            // The piece may have brought the values of others.
            self.check_unproved(position.object);
            self.advance(position.object);
        }
    }

    /// After bytes of an object came in: report its prefix, plan further wants, close it.
    pub(super) fn advance(&mut self, key: ObjectKey) {
        self.table.look_for_samples(key, &self.questions);
        self.plan(key);
        self.table.close_if_complete(key);
    }

    /// Adds wants for an object until enough are out, and has what may be here compared.
    fn plan(&mut self, key: ObjectKey) {
        self.table.plan_ahead(key);
        self.comparer.compare(&mut self.table, key);
    }

    /// Objects of which pieces wait for the network may go on without an event of their own.
    fn go_on_comparing(&mut self) {
        self.comparer.go_on(&self.table).into_iter().for_each(|key| self.advance(key));
    }

    /// Asks the root about an object.
    fn ask_about(&self, key: ObjectKey) {
        if let Some(active) = self.table.objects.get(&key) {
            self.questions.about(active, None);
        }
    }
}

async fn sleep_until(when: Option<tokio::time::Instant>) {
    if let Some(when) = when {
        tokio::time::sleep_until(when).await;
    }
}
