//! A source that keeps the contract, but for one fault.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc, watch};
use towpath_content::live::Statement;
use towpath_content::lock::lock;
use towpath_content::pieces::{MIN_LOG2, inner_value};

use super::*;
use crate::inmost::Inmost;
use towpath_transfer::metadata::Metadata;
use towpath_transfer::source::{Backlog, BoxFuture, Description, PathState, Query, Sink, SourceState};
use towpath_transfer::source_id::SourceId;
use towpath_transfer::want::{Delivery, Outcome, Payload, PiecePart, Proof};

/// What is wrong with a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    OtherPart,
    WrongChunks,
    OneTag,
    Divides,
    NoEmptyObject,
    TagsOnce,
    KeepsCancelled,
    NoTimeToWait,
    OneCall,
    OneRoot,
    MindsHints,
    ReportEndsAll,
    ReportForgetsAll,
    WindowShuts,
    Boasts,
    TellsForEver,
    TellsLess,
    EndsUnbound,
    OldBytes,
    TellsMore,
    NoProofs,
    /// The same, and tells wrong values.
    WrongValues,
    LeavesOut,
    EndsTwice,
}

/// A live object in memory.
pub(super) struct GrowingBytes(watch::Sender<(Vec<u8>, bool)>);

impl Default for GrowingBytes {
    fn default() -> Self {
        Self(watch::channel(Default::default()).0)
    }
}

impl GrowingFixture for GrowingBytes {
    fn oid(&self) -> Oid {
        Oid::Live([3; 32])
    }

    fn append(&self, bytes: &[u8]) {
        self.0.send_modify(|(known, _)| known.extend_from_slice(bytes));
    }

    fn complete(&self) {
        self.0.send_modify(|(_, is_complete)| *is_complete = true);
    }
}

/// See the head of this module.
pub(super) struct Faulty {
    inmost: Inmost,
    growing: Arc<GrowingBytes>,
    fault: Option<Fault>,
    known_root: Mutex<Option<Oid>>,
    tags: Mutex<HashSet<Tag>>,
    cancelled: Mutex<HashSet<Tag>>,
    was_asked: AtomicBool,
    was_reported: AtomicBool,
    turn: Semaphore,
}

impl Faulty {
    pub(super) fn new(objects: Vec<Vec<u8>>, growing: Arc<GrowingBytes>, fault: Option<Fault>) -> Self {
        Self {
            inmost: Inmost::new(objects),
            growing,
            fault,
            known_root: Mutex::default(),
            tags: Mutex::default(),
            cancelled: Mutex::default(),
            was_asked: AtomicBool::new(false),
            was_reported: AtomicBool::new(false),
            turn: Semaphore::new(1),
        }
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// True if it proves nothing.
    fn is_bare(&self) -> bool {
        self.has(Fault::NoProofs) || self.has(Fault::WrongValues)
    }

    /// Answers of a live object, until it is bound.
    async fn follow(&self, answers: &mpsc::Sender<Description>) {
        let (about, metadata) = (Default::default(), Metadata::default());
        let _ = answers.send(Description::Object { about, layout: None, metadata }).await;
        let (object, mut growth) = (self.growing.oid(), self.growing.0.subscribe());
        let mut first = 0;
        loop {
            let (known, is_complete) = growth.borrow_and_update().clone();
            let whole = known.chunks_exact(PIECE).zip(0..).skip(first as usize);
            let values: Vec<_> = whole.map(|(piece, index)| inner_value(index, MIN_LOG2, piece)).collect();
            let count = values.len() as u64;
            let statement = Statement::Values { object, generation: 1, first, values };
            let _ = answers.send(Description::Live { statement, signature: Vec::new() }).await;
            first += count;
            if is_complete && !self.has(Fault::EndsUnbound) {
                let (content, size) = (Oid::of(&known), known.len() as u64);
                let statement = Statement::Bound { object, content, size };
                let _ = answers.send(Description::Live { statement, signature: Vec::new() }).await;
            }
            if is_complete || growth.changed().await.is_err() {
                return;
            }
        }
    }

    /// What becomes of a want before it is looked for, if something does.
    fn outcome(&self, want: &Want, context: &Context, is_first: bool) -> Option<Outcome> {
        let root = *lock(&self.known_root).get_or_insert(context.root);
        let is_again = !lock(&self.tags).insert(want.tag);
        let is_reported = self.was_reported.load(Ordering::Relaxed);
        match self.fault? {
            Fault::NoEmptyObject if want.id.is_empty() => Some(Outcome::NotHere),
            Fault::OneRoot if root != context.root => Some(Outcome::NotHere),
            Fault::TagsOnce if is_again => Some(Outcome::NotHere),
            Fault::KeepsCancelled if lock(&self.cancelled).contains(&want.tag) => Some(Outcome::Cancelled),
            Fault::NoTimeToWait if is_first => Some(Outcome::RetryLater(Duration::ZERO)),
            Fault::MindsHints if context.hints.has_changed().unwrap_or(true) => Some(Outcome::NotHere),
            Fault::ReportEndsAll if is_reported => Some(Outcome::Refused("it was reported".into())),
            _ => None,
        }
    }

    /// Delivers something else than the wanted piece, or nothing; whether it did.
    async fn serve_otherwise(&self, want: &Want, is_twin: bool, sink: &Arc<dyn Sink>) -> bool {
        if self.has(Fault::OneTag) && is_twin || self.has(Fault::ReportForgetsAll) && self.reported() {
            return true;
        }
        let payload = match want.id {
            WantId::Piece { oid, index, .. } if oid.is_live() => self.live_piece(index),
            WantId::Piece { .. } => {
                let part = want.part.as_ref().filter(|_| self.has(Fault::OtherPart));
                part.map(|part| vec![1; (part.end - part.start) as usize])
            }
            _ => self.has(Fault::WrongChunks).then(|| vec![1; want.id.len() as usize]),
        };
        let Some(payload) = payload else { return false };
        let (payload, source) = (Payload::Bytes(Bytes::from(payload)), SourceId::other("faulty", None));
        let now = std::time::Instant::now();
        sink.deliver(Delivery { tag: want.tag, payload, proof: None, source, timing: (now, now), saved: 0 })
            .await;
        true
    }

    fn reported(&self) -> bool {
        self.was_reported.load(Ordering::Relaxed)
    }

    /// A whole piece of the live object.
    fn live_piece(&self, index: u64) -> Option<Vec<u8>> {
        let index = if self.has(Fault::OldBytes) { 0 } else { index };
        self.growing.0.borrow().0.chunks_exact(PIECE).nth(index as usize).map(<[u8]>::to_vec)
    }

    async fn serve(&self, wants: Vec<Want>, context: &Context, sink: Arc<dyn Sink>) {
        let sink = Arc::new(FaultySink {
            inner: sink,
            has_no_proofs: self.is_bare(),
            divides: self.has(Fault::Divides),
        }) as Arc<dyn Sink>;
        let mut served = HashSet::new();
        for (want, number) in wants.into_iter().zip(0..) {
            let is_twin = !served.insert(want.id);
            match self.outcome(&want, context, number == 0) {
                Some(outcome) => sink.outcome(want.tag, outcome),
                None if self.serve_otherwise(&want, is_twin, &sink).await => {}
                None => self.inmost.get(vec![want], context, Arc::clone(&sink)).await,
            }
        }
    }
}

impl Source for Faulty {
    fn name(&self) -> &str {
        "faulty"
    }

    fn state(&self) -> SourceState {
        let is_shut = self.has(Fault::WindowShuts) && self.was_asked.load(Ordering::Relaxed);
        let path = PathState { is_due: self.has(Fault::Boasts), ..PathState::default() };
        let proves = !self.is_bare();
        SourceState { path, proves, ..SourceState::of_window(if is_shut { 0 } else { Inmost::WINDOW }) }
    }

    fn report_corrupt(&self, _: &SourceId) {
        self.was_reported.store(true, Ordering::Relaxed);
    }

    fn cancel(&self, tags: &[Tag]) {
        lock(&self.cancelled).extend(tags);
    }

    fn describe<'a>(
        &'a self,
        query: Query,
        context: &'a Context,
        answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        Box::pin(async move {
            match query.oid == self.growing.oid() {
                true => {
                    self.follow(&answers).await;
                    Ok(())
                }
                false if self.has(Fault::WrongValues) && query.proofs.is_some() => {
                    let wrong = Proof { run: 0..1, nodes: Bytes::from_static(&[7; 96]) };
                    let query = Query { proofs: None, ..query };
                    self.inmost.describe(query, context, answers.clone()).await?;
                    answers.send(Description::Proof(wrong)).await.map_err(|_| Outcome::Cancelled)
                }
                false => self.inmost.describe(query, context, answers).await,
            }
        })
    }

    fn get<'a>(&'a self, wants: Vec<Want>, context: &'a Context, sink: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.was_asked.store(true, Ordering::Relaxed);
            if !self.has(Fault::OneCall) {
                return self.serve(wants, context, sink).await;
            }
            // Whoever gives up in its turn never hands it on.
            self.turn.acquire().await.unwrap().forget();
            self.serve(wants, context, sink).await;
            self.turn.add_permits(1);
        })
    }

    fn have<'a>(
        &'a self,
        oid: Oid,
        _: &'a Context,
        ranges: mpsc::Sender<Vec<Range<u64>>>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if self.has(Fault::TellsForEver) {
                return std::future::pending().await;
            }
            if let Some(size) = self.inmost.size_of(&oid) {
                let end = if self.has(Fault::TellsLess) { size / 2 } else { size };
                let _ = ranges.send(std::iter::once(0..end).collect()).await;
            }
            let mut growth = self.growing.0.subscribe();
            while oid == self.growing.oid() {
                let more = if self.has(Fault::TellsMore) { PIECE } else { 0 };
                let there = growth.borrow_and_update().0.len() + more;
                let _ = ranges.send(std::iter::once(0..there as u64).collect()).await;
                tokio::select! {
                    _ = growth.changed() => {}
                    () = ranges.closed() => return,
                }
            }
        })
    }
}

/// Takes proofs away, or divides what comes.
struct FaultySink {
    inner: Arc<dyn Sink>,
    has_no_proofs: bool,
    divides: bool,
}

/// The same bytes as if two sources had brought them.
fn divided(delivery: &Delivery) -> Option<Payload> {
    let Payload::Bytes(bytes) = &delivery.payload else { return None };
    let part = |range: Range<usize>| PiecePart {
        start: range.start as u64,
        bytes: bytes.slice(range),
        source: delivery.source.clone(),
    };
    Some(Payload::Gathered(vec![part(0..bytes.len() / 2), part(bytes.len() / 2..bytes.len())]))
}

impl Sink for FaultySink {
    fn deliver(&self, delivery: Delivery) -> BoxFuture<'_, ()> {
        let proof = delivery.proof.clone().filter(|_| !self.has_no_proofs);
        let payload = divided(&delivery).filter(|_| self.divides).unwrap_or(delivery.payload);
        self.inner.deliver(Delivery { proof, payload, ..delivery })
    }

    fn outcome(&self, tag: Tag, outcome: Outcome) {
        self.inner.outcome(tag, outcome);
    }

    fn backpressure(&self) -> Backlog {
        self.inner.backpressure()
    }
}

/// A wrapper that does nothing, and perhaps ends wants that came.
pub(super) struct Transparent {
    pub(super) inner: Arc<dyn Source>,
    pub(super) ends_twice: bool,
}

impl Source for Transparent {
    fn name(&self) -> &str {
        "transparent"
    }

    fn inner(&self) -> Option<&dyn Source> {
        Some(&*self.inner)
    }

    fn state(&self) -> SourceState {
        self.inner.state()
    }

    fn describe<'a>(
        &'a self,
        query: Query,
        context: &'a Context,
        answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        self.inner.describe(query, context, answers)
    }

    fn get<'a>(&'a self, wants: Vec<Want>, context: &'a Context, sink: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let last = wants.last().map(|want| want.tag).filter(|_| self.ends_twice);
            self.inner.get(wants, context, Arc::clone(&sink)).await;
            last.into_iter().for_each(|tag| sink.outcome(tag, Outcome::NotHere));
        })
    }
}

/// A wrapper that hands nothing on.
pub(super) struct Forgetful;

impl Source for Forgetful {
    fn name(&self) -> &str {
        "forgetful"
    }

    fn state(&self) -> SourceState {
        SourceState::of_window(Inmost::WINDOW)
    }

    fn describe<'a>(
        &'a self,
        _: Query,
        _: &'a Context,
        _: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        Box::pin(async { Err(Outcome::NotHere) })
    }

    fn get<'a>(&'a self, wants: Vec<Want>, _: &'a Context, sink: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        wants.iter().for_each(|want| sink.outcome(want.tag, Outcome::NotHere));
        Box::pin(async {})
    }
}
