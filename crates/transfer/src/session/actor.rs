//! The session's one task: it owns every state and talks to plugins and workers by messages.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::sync::CancellationToken;
use towpath_content::pieces::Layout;
use towpath_store::About;

use super::asked::{Front, RecipeRequest, Rounds, Sampled};
use super::comparing::Comparison;
use super::events::{Checked, SessionEvent};
use super::jobs::Jobs;
use super::sink::SessionSink;
use super::work::{Job, WriteTarget};
use super::workers;
use super::{FetchError, Fetched, OnDone, RecipeClaim, SessionConfig, Submission, cancel};
use crate::intervals::Intervals;
use crate::ledger::{Ledger, WantFate};
use crate::object::ObjectInFlight;
use crate::plugin::{Context, Description, TransferPlugin};
use crate::progress::Progress;
use crate::rate::Rate;
use crate::want::{Delivery, ObjectKey, Outcome, Tag, Want, WantId};

/// How often stalls are looked for.
const TICK: Duration = Duration::from_millis(500);
/// Events handled before new wants are asked for.
const EVENTS_PER_ROUND: usize = 256;

/// An object in flight.
pub(super) struct Active {
    pub(super) object: Arc<ObjectInFlight>,
    pub(super) recipe: Option<RecipeClaim>,
    /// Whether its recipe was asked for.
    pub(super) asked: RecipeRequest,
    /// Whether its samples were asked for.
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
    /// Of pieces that did not come whole.
    pub(super) fronts: Vec<Front>,
    /// Pieces that may be here and that nobody looked at.
    pub(super) comparison: Comparison,
    /// Pieces being read back, and whether something was written to them since.
    pub(super) rechecking: HashMap<u64, bool>,
    /// Pieces being checked and written, and whether a chunk was written to them meanwhile.
    pub(super) writing_pieces: HashMap<u64, bool>,
    /// Deliveries being checked and written.
    writing: usize,
    /// What the target was last told to have from its front on.
    prefix: u64,
    /// Pieces of a live object whose values are signed.
    pub(super) signed: u64,
    pub(super) generation: Option<u64>,
    pub(super) phase: ObjectPhase,
    on_done: OnDone,
    pub(super) question: CancellationToken,
    _permit: OwnedSemaphorePermit,
}

/// How far an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ObjectPhase {
    /// Its source is asked what it is.
    Describing,
    /// Its target is being opened.
    Beginning,
    /// Values are asked for, to check what an earlier transfer left.
    Proving,
    /// Wants are out.
    Fetching,
    /// Everything is here; its target is being closed.
    Completing,
}

pub(super) struct Actor {
    pub(super) root: Arc<dyn TransferPlugin>,
    pub(super) context: Context,
    pub(super) config: SessionConfig,
    pub(super) ledger: Ledger,
    pub(super) objects: HashMap<ObjectKey, Active>,
    pub(super) jobs: Jobs,
    /// For what may be here already: a slow disk must not keep what the network brings waiting.
    pub(super) reading: Option<Jobs>,
    pub(super) events: mpsc::UnboundedSender<SessionEvent>,
    sink: Arc<SessionSink>,
    pub(super) progress: Progress,
    token: CancellationToken,
    next_key: ObjectKey,
    /// Plugin calls under way that bring batches.
    calls: usize,
    /// Of which objects the root plugin was asked whether it wants their recipes.
    pub(super) rounds: Rounds,
    /// How fast pieces come.
    pub(super) piece_rate: Rate,
    pub(super) start: Instant,
    /// Since when objects wait for others to leave them the network, if some do.
    pub(super) waiting_since: Option<Instant>,
}

impl Actor {
    pub(super) fn new(
        root: Arc<dyn TransferPlugin>,
        context: Context,
        config: SessionConfig,
        events: mpsc::UnboundedSender<SessionEvent>,
        progress: Progress,
        token: CancellationToken,
    ) -> Self {
        let sink = Arc::new(SessionSink::new(events.clone(), config.buffer_bytes));
        let jobs = workers::start(config.workers, &events);
        let ledger = Ledger::new(config.ledger, Instant::now());
        let objects = HashMap::new();
        Self {
            root,
            context,
            config,
            ledger,
            objects,
            jobs,
            reading: None,
            events,
            sink,
            progress,
            token,
            next_key: 1,
            calls: 0,
            rounds: Rounds::new(Instant::now()),
            piece_rate: Rate::default(),
            start: Instant::now(),
            waiting_since: None,
        }
    }

    pub(super) async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<SessionEvent>) {
        let token = self.token.clone();
        let mut tick = tokio::time::interval(TICK);
        let mut batch = Vec::new();
        loop {
            let (trial_end, idle_end) = (self.trial_end(), self.idle_end());
            let wakes = [self.ledger.next_wake(), self.rounds.next_wake(), trial_end, idle_end];
            let wake = wakes.into_iter().flatten().min().map(tokio::time::Instant::from_std);
            tokio::select! {
                () = token.cancelled() => break,
                _ = inbox.recv_many(&mut batch, EVENTS_PER_ROUND) => {}
                _ = tick.tick() => {
                    self.look_for_stall();
                    self.go_on_comparing();
                }
                () = sleep_until(wake), if wake.is_some() => {}
            }
            for event in batch.drain(..) {
                self.handle(event);
            }
            if trial_end.is_some_and(|end| Instant::now() >= end) {
                self.trial_is_over();
            }
            if idle_end.is_some_and(|end| Instant::now() >= end) {
                self.go_on_comparing();
            }
            self.look_for_recipes(Instant::now());
            self.ask();
            if self.ledger.asked_whole() == 0 {
                self.piece_rate.arrived(self.now(), 0, true);
            }
        }
        self.cancel_all(inbox);
    }

    /// Since the session began.
    pub(super) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn cancel_all(mut self, mut inbox: mpsc::UnboundedReceiver<SessionEvent>) {
        for (_, active) in self.objects.drain() {
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
            SessionEvent::Answered { key, for_proofs: true, .. } => self.proofs_ended(key),
            SessionEvent::Answered { key, for_proofs: false, result } => self.answered(key, result),
            SessionEvent::Began { key, result } => self.began(key, result),
            SessionEvent::Delivery { delivery, room } => self.delivery(delivery, room),
            SessionEvent::Front(front) => self.front(front),
            SessionEvent::Outcome { tag, outcome } => self.outcome(tag, &outcome),
            SessionEvent::CallEnded { tags, batch, counted } => {
                self.calls -= usize::from(counted);
                self.call_ended(tags, batch);
            }
            SessionEvent::Recipe { key, answer } => self.recipe_answered(key, answer),
            SessionEvent::Checked { want, source, result } => self.checked(want, source, result),
            SessionEvent::Compared { key, index, found } => self.compared(key, index, found),
            SessionEvent::Sampled { key } => self.sampled(key),
            SessionEvent::Rechecked { key, index, good } => self.rechecked(key, index, good),
            SessionEvent::Completed { key, result } => self.finish(key, result),
        }
    }

    fn submitted(&mut self, submission: Submission) {
        let Submission { request, on_done, permit } = submission;
        let key = self.next_key;
        self.next_key += 1;
        let object = Arc::new(ObjectInFlight::new(key, request.oid, request.group, request.target));
        // A recipe is of a complete object, and of all of it.
        let early = object.target.is_read_early() || object.target.part().is_some();
        let recipe = request.recipe.filter(|_| !object.oid.is_live() && !early);
        let active = Active {
            object: Arc::clone(&object),
            asked: if early || recipe.is_some() { RecipeRequest::Over } else { RecipeRequest::No },
            recipe,
            sampled: Sampled::No,
            cursor: 0,
            part: None,
            next_chunk: 0,
            switched: 0,
            existing: Intervals::default(),
            fronts: Vec::new(),
            comparison: Comparison::default(),
            rechecking: HashMap::new(),
            writing_pieces: HashMap::new(),
            writing: 0,
            prefix: 0,
            signed: 0,
            generation: None,
            phase: ObjectPhase::Describing,
            on_done,
            question: self.token.child_token(),
            _permit: permit,
        };
        self.objects.insert(key, active);
        match request.size.filter(|_| !object.oid.is_live()) {
            Some(size) => self.sized(key, size),
            None => self.question(key, None),
        }
    }

    /// The size of a content object is known.
    fn sized(&mut self, key: ObjectKey, size: u64) {
        let Some(active) = self.objects.get_mut(&key) else { return };
        let layout = match Layout::of(size) {
            Ok(layout) => layout,
            Err(why) => return self.finish(key, Err(FetchError::TooLarge(why))),
        };
        active.object.set_layout(layout);
        // An object of one piece is quicker had as such.
        if let Some(recipe) = active.recipe.take_if(|recipe| layout.count() == 1 || !recipe.builds(size))
            && layout.count() > 1
        {
            tracing::warn!(maker = %recipe.maker, "a recipe does not make up an object of this size");
            self.root.blame(&recipe.maker);
        }
        active.narrow(&layout);
        let wanted = active.wanted(&layout);
        self.progress.with(|snapshot| snapshot.expected += wanted.end - wanted.start);
        self.begin(key, Some(layout));
    }

    fn begin(&mut self, key: ObjectKey, layout: Option<Layout>) {
        let Some(active) = self.objects.get_mut(&key) else { return };
        let is_single = layout.is_some_and(|layout| layout.count() == 1);
        if is_single && active.recipe.is_none() && !active.object.oid.is_live() {
            // Its worker opens, writes and closes it in one go.
            active.phase = ObjectPhase::Fetching;
            return self.plan(key);
        }
        active.phase = ObjectPhase::Beginning;
        let object = Arc::clone(&active.object);
        self.jobs.send(Job::Begin { object, size: layout.map(|layout| layout.size()) });
    }

    fn answer(&mut self, key: ObjectKey, answer: Description) {
        match answer {
            Description::Object { about, layout, .. } => self.described(key, about, layout),
            Description::Proof(proof) => {
                let Some(active) = self.objects.get(&key) else { return };
                if let Err(why) = active.object.learn_proof(&proof) {
                    tracing::warn!(%why, "a source sent a wrong proof");
                }
            }
            Description::Live { statement, signature } => {
                if let Err(why) = self.stated(key, statement, &signature) {
                    self.finish(key, Err(why));
                }
            }
            // Whoever asks for one takes it from there.
            Description::Samples { first, bytes } => self.samples(key, first, &bytes),
            Description::Recipe(part) => tracing::warn!(maker = %part.maker, "a recipe was not asked for"),
        }
    }

    fn described(&mut self, key: ObjectKey, about: About, layout: Option<Layout>) {
        let Some(active) = self.objects.get_mut(&key) else { return };
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
        let Some(active) = self.objects.get_mut(&key) else { return };
        match (active.phase, result) {
            (_, Ok(())) if active.object.content().is_none() => self.finish(key, Err(FetchError::Abandoned)),
            (ObjectPhase::Describing, Ok(())) => self.finish(key, Err(FetchError::Ended(Outcome::NotHere))),
            (_, Ok(())) => {}
            (_, Err(Outcome::RetryLater(waited))) => {
                let trouble = self.root.trouble();
                self.finish(key, Err(FetchError::Stalled { waited, trouble }));
            }
            (ObjectPhase::Describing, Err(outcome)) => self.finish(key, Err(FetchError::Ended(outcome))),
            (_, Err(outcome)) if active.object.content().is_none() => {
                self.finish(key, Err(FetchError::Ended(outcome)));
            }
            (_, Err(_)) => {}
        }
    }

    /// Whatever came of it: without proofs what an earlier transfer left cannot be checked, and is
    /// fetched again.
    fn proofs_ended(&mut self, key: ObjectKey) {
        if let Some(active) = self.objects.get_mut(&key).filter(|active| active.phase == ObjectPhase::Proving)
        {
            active.phase = ObjectPhase::Fetching;
            self.advance(key);
        }
    }

    fn began(&mut self, key: ObjectKey, result: io::Result<Vec<Range<u64>>>) {
        let Some(active) = self.objects.get_mut(&key) else { return };
        let existing = match result {
            Ok(existing) => existing,
            Err(why) => return self.finish(key, Err(FetchError::Write(why))),
        };
        existing.into_iter().for_each(|range| active.existing.insert(range));
        let count = active.object.layout().map_or(0, |layout| layout.count());
        if count > 1 && (!active.existing.is_empty() || active.recipe.is_some()) {
            active.phase = ObjectPhase::Proving;
            return self.question(key, Some(0..count));
        }
        active.phase = ObjectPhase::Fetching;
        self.plan(key);
    }

    pub(super) fn delivery(&mut self, delivery: Delivery, room: Option<OwnedSemaphorePermit>) {
        // What is not wanted any more came another way.
        let Some(want) = self.ledger.delivered(delivery.tag) else { return };
        let want = Box::new(want.clone());
        let mut destinations = Vec::with_capacity(want.places.len());
        for place in &want.places {
            let Some(active) = self.objects.get_mut(&place.object) else { return };
            active.writing += 1;
            let range = place.offset..place.offset + want.id.len();
            let parts = match want.id {
                // What is here already is no claim: it stays.
                WantId::Chunk { .. } => self.ledger.gaps(place.object, &range),
                WantId::Piece { index, .. } => {
                    active.writing_pieces.entry(index).or_insert(false);
                    vec![range]
                }
                WantId::Block { .. } => vec![range],
            };
            destinations.push(WriteTarget { object: Arc::clone(&active.object), parts });
        }
        self.jobs.send(Job::Check { want, delivery, destinations, room });
    }

    fn outcome(&mut self, tag: Tag, outcome: &Outcome) {
        if matches!(outcome, Outcome::RetryLater(_)) && self.gives_way(tag) {
            return;
        }
        if let WantFate::Failed(want) = self.ledger.ended(tag, outcome, Instant::now()) {
            self.failed(&want, || FetchError::Ended(outcome.clone()));
        }
    }

    /// A want cannot be had. A chunk's place is filled by pieces, a piece's object has failed.
    fn failed(&mut self, want: &Want, why: impl Fn() -> FetchError) {
        for &place in &want.places {
            match want.id {
                WantId::Piece { .. } => self.finish(place.object, Err(why())),
                WantId::Chunk { .. } | WantId::Block { .. } => self.fall_back(place, want.id.len()),
            }
        }
    }

    /// A plugin that keeps the contract ended each want before it returned. One that does not
    /// must not hang the session.
    fn call_ended(&mut self, tags: Vec<Tag>, batch: u64) {
        for tag in tags {
            if self.ledger.is_waiting(tag, batch) {
                tracing::warn!(tag, plugin = self.root.name(), "a want was left without an outcome");
                self.outcome(tag, &Outcome::RetryLater(TICK));
            }
        }
    }

    fn checked(&mut self, want: Box<Want>, source: Arc<str>, result: Checked) {
        let mut spoilt = Vec::new();
        for place in &want.places {
            let Some(active) = self.objects.get_mut(&place.object) else { continue };
            active.writing -= 1;
            if let WantId::Piece { index, .. } = want.id
                && active.writing_pieces.remove(&index) == Some(true)
            {
                spoilt.push((place.object, index));
            }
        }
        match result {
            Checked::Written { whole, zeros, failed } => {
                for (key, why) in failed {
                    self.finish(key, Err(FetchError::Write(why)));
                }
                self.written(&want, &source, whole, zeros);
                spoilt.into_iter().for_each(|(key, index)| self.recheck(key, index));
            }
            Checked::BadPart => self.ledger.widen(want.tag),
            Checked::Bad(what) => {
                tracing::warn!(%source, %what, "refused a delivery");
                self.root.blame(&source);
                if let WantFate::Failed(want) = self.ledger.bad(want.tag) {
                    let bad = || FetchError::Bad { source_name: Arc::clone(&source), what: what.clone() };
                    self.failed(&want, bad);
                }
            }
        }
        for place in &want.places {
            self.advance(place.object);
        }
    }

    fn written(&mut self, want: &Want, source: &Arc<str>, whole: bool, zeros: bool) {
        let done = self.ledger.done(want.tag, &want.places, Instant::now());
        self.root.cancel_chunks(&done.cancelled);
        if !done.filled.is_empty() {
            let once = done.fresh.min(want.id.len());
            let came = once.min(want.missing_len());
            self.count(source, came, done.fresh - (once - came), zeros);
            self.progress.with(|snapshot| (snapshot.done += once - came, snapshot.kept += once - came));
        }
        if matches!(want.id, WantId::Piece { .. }) && want.part.is_none() {
            self.piece_rate.arrived(self.now(), want.id.len(), false);
        }
        if whole {
            done.filled.iter().for_each(|place| self.whole(place.object, want.id.len()));
        }
        if matches!(want.id, WantId::Chunk { .. }) {
            // Also where a piece came first: the chunk may just have spoilt it.
            want.places.iter().for_each(|&place| self.check_filled_pieces(place, want.id.len()));
        }
    }

    /// Counts bytes that came once and fill `fresh` ones in all places together.
    fn count(&self, source: &Arc<str>, once: u64, fresh: u64, zeros: bool) {
        match zeros {
            true => self.progress.with(|snapshot| (snapshot.done += once, snapshot.zeros += once)),
            false => (self.progress.brought(source, once), ()),
        };
        self.progress.with(|snapshot| snapshot.done += fresh - once);
    }

    /// An object of one piece is written and closed.
    fn whole(&mut self, key: ObjectKey, size: u64) {
        let Some(active) = self.objects.get(&key) else { return };
        active.object.target.prefix(size);
        let Some(oid) = active.object.content() else { return };
        let about = active.object.about();
        self.finish(key, Ok(Fetched { oid, size, about }));
    }

    /// After bytes of an object came in: report its prefix, plan further wants, close it.
    pub(super) fn advance(&mut self, key: ObjectKey) {
        self.look_for_samples(key);
        self.plan(key);
        let prefix = self.ledger.prefix(key);
        let Some(active) = self.objects.get_mut(&key) else { return };
        // What chunks make up is a claim until all of it is checked.
        if active.recipe.is_none() && active.part.is_none() {
            active.report_prefix(prefix);
        }
        let Some(layout) = active.object.layout() else { return };
        let planned = active.planned_all(&layout);
        let is_quiet = active.rechecking.is_empty() && active.writing == 0;
        let is_there = planned && is_quiet && self.ledger.is_complete(key, &active.wanted(&layout));
        let Some(oid) = active.object.content().filter(|_| is_there && active.phase == ObjectPhase::Fetching)
        else {
            return;
        };
        if active.part.is_some() {
            let (size, about) = (layout.size(), active.object.about());
            return self.finish(key, Ok(Fetched { oid, size, about }));
        }
        active.phase = ObjectPhase::Completing;
        active.report_prefix(layout.size());
        self.jobs.send(Job::Complete { object: Arc::clone(&active.object) });
    }

    pub(super) fn finish(&mut self, key: ObjectKey, result: Result<Fetched, FetchError>) {
        let Some(active) = self.objects.remove(&key) else { return };
        active.question.cancel();
        let cancelled = self.ledger.forget(key);
        self.root.cancel_chunks(&cancelled);
        if result.is_ok() {
            self.progress.with(|snapshot| snapshot.objects += 1);
        }
        (active.on_done)(result);
    }

    fn look_for_stall(&mut self) {
        let trouble = self.root.trouble();
        self.progress.with(|snapshot| snapshot.trouble.clone_from(&trouble));
        if let Some(waited) = self.ledger.stalled(Instant::now()) {
            let keys: Vec<_> = self.objects.keys().copied().collect();
            for key in keys {
                self.finish(key, Err(FetchError::Stalled { waited, trouble: trouble.clone() }));
            }
        }
    }

    /// Hands wants to the root plugin: chunks at once if it likes that, the rest as long as its
    /// window has room.
    fn ask(&mut self) {
        if self.ledger.has_due_chunks(Instant::now()) && self.root.takes_all_chunks() {
            let chunks = self.ledger.next_chunks(Instant::now());
            self.call(chunks, false);
        }
        // With enough calls under way further wants gather, so that small files go out in batches.
        // Wants that are due leave the delayed ones in any case: those wake the loop until they do.
        while self.ledger.has_due(Instant::now()) && self.calls < self.config.calls {
            let window = self.root.window();
            if window == 0 {
                return;
            }
            let room = window.saturating_sub(self.ledger.asked_cost());
            // Small rooms are left to grow, so that wants go out in batches.
            if self.ledger.asked_cost() > 0 && room < self.config.batch_bytes.min(window / 4) {
                return;
            }
            let room = room.min(self.config.batch_bytes);
            let wants = self.ledger.next_batch(room, self.config.batch_wants, Instant::now());
            if wants.is_empty() {
                return;
            }
            self.calls += 1;
            if self.ledger.asked_whole() > 0 {
                self.piece_rate.asked(self.now());
            }
            self.call(wants, true);
        }
    }

    fn call(&self, mut wants: Vec<Want>, counted: bool) {
        if wants.is_empty() {
            return;
        }
        wants.iter_mut().for_each(|want| self.locate(want));
        let batch = self.ledger.last_batch();
        let tags = wants.iter().map(|want| want.tag).collect();
        let (root, context, token) = (Arc::clone(&self.root), self.context.clone(), self.token.clone());
        let (sink, events) = (Arc::clone(&self.sink), self.events.clone());
        tokio::spawn(async move {
            let call = root.get_chunks(wants, &context, sink);
            token.run_until_cancelled(call).await;
            let _ = events.send(SessionEvent::CallEnded { tags, batch, counted });
        });
    }
}

impl Active {
    fn report_prefix(&mut self, prefix: u64) {
        if prefix > self.prefix {
            self.prefix = prefix;
            self.object.target.prefix(prefix);
        }
    }
}

async fn sleep_until(when: Option<tokio::time::Instant>) {
    if let Some(when) = when {
        tokio::time::sleep_until(when).await;
    }
}
