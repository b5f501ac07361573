//! A call of one source, and the sink of what it brings.

use std::collections::HashMap;
use std::future::ready;
use std::ops::Range;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc;
use towpath_content::lock::lock;
use towpath_transfer::source::{Backlog, Query, Sink, UNREACHED_PRICE};
use towpath_transfer::{BoxFuture, Context, Delivery, Description, Outcome, Source, Tag, Want};

use super::SourceCalls;
use super::call::DealtCall;
use super::table::Awaited;
use towpath_dealer::SourceHolding;

/// Delay before a want is tried again that a source left without an end.
const FORGOTTEN: Duration = Duration::from_millis(500);
/// The shortest time after which a source that was not reached is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// Interval at which it is looked whether a source has to be reached.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// Time that a source has to tell what it has.
const PATIENCE: Duration = Duration::from_secs(2);

/// Asks a source for wants as soon as the sink of the call `after` keeps up, and waits until each has ended.
pub(super) async fn ask(
    shared: &Arc<SourceCalls>,
    number: u32,
    source: &Arc<dyn Source>,
    mut wants: Vec<Want>,
    after: Option<Arc<DealtCall>>,
    context: &Context,
) {
    let owed = wants.iter().map(|want| (want.tag, want.missing_len())).collect();
    let sink = Arc::new(SourceSink::new(shared, number, owed, context));
    if let Some(call) = after {
        call.keeps_up().await;
        let (wanted, cancelled) = lock(&shared.table).held_back.let_go(number, wants);
        cancelled.iter().for_each(|want| sink.outcome(want.tag, Outcome::Cancelled));
        wants = wanted;
    }
    if !wants.is_empty() {
        source.get(wants, &sink.context, Arc::clone(&sink) as Arc<dyn Sink>).await;
    }
    sink.end_what_was_left();
}

/// Asks a source whether it has the root: then it counts. What it has of it is asked in the same breath.
pub(super) async fn open(
    shared: &Arc<SourceCalls>,
    number: u32,
    source: &Arc<dyn Source>,
    context: &Context,
) {
    let (answers, mut inbox) = mpsc::channel(1);
    let asking = source.describe(Query::about(context.root), context, answers);
    let (told, ranges) = mpsc::channel(4);
    let mut telling = source.have(context.root, context, told);
    let mut asked = pin!(async { tokio::join!(asking, inbox.recv()).1 });
    let (first, telling) = tokio::select! {
        biased;
        first = &mut asked => (first, telling),
        () = &mut telling => (asked.await, Box::pin(ready(())) as BoxFuture<'_, _>),
    };
    match first {
        Some(Description::Object { .. }) => follow(shared, number, (telling, ranges), context).await,
        _ => answered(shared, number, None, context),
    }
}

/// Keeps the way of a source open that counts already, also while others bring everything: asked about the root it is tried
/// again until it is reached.
pub(super) async fn keep_warm(source: &Arc<dyn Source>, context: &Context) {
    loop {
        let (answers, mut inbox) = mpsc::channel(1);
        let asking = source.describe(Query::about(context.root), context, answers);
        let (result, _) = tokio::join!(asking, inbox.recv());
        tracing::debug!(source = source.name(), ?result, "a source was asked about the root");
        if let Err(Outcome::RetryLater(delay)) = result {
            tokio::time::sleep(delay.max(ASK_AGAIN)).await;
            continue;
        }
        until_lost(source).await;
    }
}

/// Completes when a source is not reached, or no more.
pub(super) async fn until_lost(source: &Arc<dyn Source>) {
    while source.state().price != UNREACHED_PRICE {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// A place answered, and has so much of the root; or nothing.
fn answered(shared: &Arc<SourceCalls>, number: u32, holding: Option<SourceHolding>, context: &Context) {
    let joins = holding.is_some();
    lock(&shared.table).answered(shared.now(), number, holding);
    if joins {
        shared.lone.adopt();
    }
    shared.found.notify_waiters();
    shared.perform(context);
}

/// Hears what a source has of the root, as long as it tells. One that tells nothing has all of it.
async fn follow(
    shared: &Arc<SourceCalls>,
    number: u32,
    (telling, mut inbox): (BoxFuture<'_, ()>, mpsc::Receiver<Vec<Range<u64>>>),
    context: &Context,
) {
    let hearing = async {
        let mut holding = tokio::time::timeout(PATIENCE, inbox.recv()).await.ok().flatten();
        let first = holding.take().map_or(SourceHolding::Everything, SourceHolding::Parts);
        answered(shared, number, Some(first), context);
        while let Some(added) = inbox.recv().await {
            lock(&shared.table).has_more(shared.now(), number, added);
            shared.perform(context);
        }
    };
    tokio::join!(telling, hearing);
}

/// Where a source's deliveries go: each to the sink of whoever wanted it, if that still waits.
pub(super) struct SourceSink {
    shared: Arc<SourceCalls>,
    number: u32,
    context: Context,
    /// Wants that have not ended here, with their bytes.
    owed: Mutex<HashMap<Tag, u64>>,
}

impl SourceSink {
    /// For a source that owes these wants of so many bytes.
    pub(super) fn new(
        shared: &Arc<SourceCalls>,
        number: u32,
        owed: HashMap<Tag, u64>,
        context: &Context,
    ) -> Self {
        let (shared, context) = (Arc::clone(shared), context.clone());
        Self { shared, number, context, owed: Mutex::new(owed) }
    }

    /// The source's call returned: what it did not end is tried again.
    pub(super) fn end_what_was_left(&self) {
        let forgotten: Vec<Tag> = lock(&self.owed).keys().copied().collect();
        for tag in forgotten {
            tracing::warn!(tag, source = self.number, "a want was left without an outcome");
            self.outcome(tag, Outcome::RetryLater(FORGOTTEN));
        }
    }
}

impl Sink for SourceSink {
    fn deliver(&self, delivery: Delivery) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let Some(len) = lock(&self.owed).remove(&delivery.tag) else { return };
            let arrived = lock(&self.shared.table).arrived(self.shared.now(), self.number, delivery, len);
            self.shared.perform(&self.context);
            if let Some((Awaited { sink, call }, delivery)) = arrived {
                call.deliver(&*sink, delivery).await;
            }
        })
    }

    fn partial_piece(&self, delivery: Delivery) {
        let wanted = lock(&self.shared.table).sink_of(delivery.tag);
        if let Some((sink, tag)) = wanted {
            sink.partial_piece(Delivery { tag, ..delivery });
        }
    }

    fn outcome(&self, tag: Tag, outcome: Outcome) {
        let Some(len) = lock(&self.owed).remove(&tag) else { return };
        lock(&self.shared.table).not_brought(self.shared.now(), self.number, tag, len, outcome);
        self.shared.perform(&self.context);
    }

    fn backpressure(&self) -> Backlog {
        let mut owed = lock(&self.owed).keys().copied().collect::<Vec<_>>().into_iter();
        let sink = owed.find_map(|tag| lock(&self.shared.table).sink_of(tag));
        sink.map(|(sink, _)| sink.backpressure()).unwrap_or_default()
    }
}
