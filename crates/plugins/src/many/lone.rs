//! A call of the only source there is: nothing is dealt out as long as it is alone. When another joins, what it owes
//! becomes the dealer's, which may have the other bring it sooner.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::Notify;
use towpath_content::lock::lock;
use towpath_transfer::source::{Backlog, Sink};
use towpath_transfer::{BoxFuture, Context, Delivery, Outcome, Source, Tag, Want};

use super::asking::SourceSink;
use super::{GivesUp, SourceCalls};

/// See the head of this module. It is the sink of the source, too.
pub(super) struct LoneCall {
    shared: Arc<SourceCalls>,
    number: u32,
    source: Arc<dyn Source>,
    context: Context,
    sink: Arc<dyn Sink>,
    state: Mutex<LoneState>,
    /// Told when what the source owes has become the dealer's.
    joined: Notify,
}

struct LoneState {
    /// Wants that the source owes while it is alone, by their tags.
    owed: HashMap<Tag, Want>,
    /// Time at which it was asked, or brought something last.
    since: Duration,
    adopted: Option<AdoptedWants>,
}

/// Wants of a source that is not alone any more.
struct AdoptedWants {
    /// Where they go now, by the tags that they have there.
    sink: Arc<SourceSink>,
    tags: HashMap<Tag, Tag>,
    /// Taken by whoever waits for them.
    call: Option<GivesUp>,
}

impl LoneCall {
    pub(super) fn new(
        shared: &Arc<SourceCalls>,
        (number, source): (u32, Arc<dyn Source>),
        wants: &[Want],
        context: &Context,
        sink: Arc<dyn Sink>,
    ) -> Arc<Self> {
        let owed = wants.iter().map(|want| (want.tag, want.clone())).collect();
        let state = Mutex::new(LoneState { owed, since: shared.now(), adopted: None });
        let (shared, context, joined) = (Arc::clone(shared), context.clone(), Notify::new());
        Arc::new(Self { shared, number, source, context, sink, state, joined })
    }

    /// Asks the source; returns when each want has ended, wherever it came from.
    pub(super) async fn get(self: Arc<Self>, wants: Vec<Want>) {
        let _end = LoneEnd(Arc::clone(&self));
        let call = Arc::clone(&self);
        let mut asking = Box::pin(async move {
            call.source.get(wants, &call.context, Arc::clone(&call) as Arc<dyn Sink>).await;
            if let Some(adopted) = &lock(&call.state).adopted {
                adopted.sink.end_what_was_left();
            }
        });
        tokio::select! {
            () = &mut asking => {}
            // What others bring is not waited for twice.
            () = self.joined.notified() => self.shared.spawn(asking),
        }
        let call = lock(&self.state).adopted.as_mut().and_then(|adopted| adopted.call.take());
        if let Some(call) = call {
            call.call.ended().await;
        }
    }

    /// Another source joins: what this one owes is the dealer's from now on.
    fn adopt(&self) {
        let mut state = lock(&self.state);
        if state.adopted.is_some() {
            return;
        }
        let mut owed: Vec<Want> = std::mem::take(&mut state.owed).into_values().collect();
        owed.sort_unstable_by_key(|want| want.tag);
        let (named, bytes): (Vec<Tag>, Vec<u64>) =
            owed.iter().map(|want| (want.tag, want.missing_len())).unzip();
        let (now, owed) = (self.shared.now(), (self.number, owed, state.since));
        let call = lock(&self.shared.table).adopt(now, &self.context.root, owed, &self.sink);
        let owed = call.tags.iter().copied().zip(bytes).collect();
        let sink = Arc::new(SourceSink::new(&self.shared, self.number, owed, &self.context));
        let tags = named.into_iter().zip(call.tags.iter().copied()).collect();
        let call = Some(GivesUp { shared: Arc::clone(&self.shared), call });
        state.adopted = Some(AdoptedWants { sink, tags, call });
        drop(state);
        self.joined.notify_one();
    }

    /// These are not wanted any more.
    fn forget(&self, tags: &[Tag]) {
        let mut state = lock(&self.state);
        tags.iter().for_each(|tag| drop(state.owed.remove(tag)));
    }

    /// Where an adopted want's end goes, and the tag that it has there.
    fn adopted(&self, tag: Tag) -> Option<(Arc<SourceSink>, Tag)> {
        let mut state = lock(&self.state);
        state.owed.remove(&tag);
        state.since = self.shared.now();
        let adopted = state.adopted.as_ref()?;
        Some((Arc::clone(&adopted.sink), *adopted.tags.get(&tag)?))
    }
}

impl Sink for LoneCall {
    fn deliver(&self, delivery: Delivery) -> BoxFuture<'_, ()> {
        match self.adopted(delivery.tag) {
            Some((sink, tag)) => Box::pin(async move { sink.deliver(Delivery { tag, ..delivery }).await }),
            None => self.sink.deliver(delivery),
        }
    }

    fn partial_piece(&self, delivery: Delivery) {
        self.sink.partial_piece(delivery);
    }

    fn outcome(&self, tag: Tag, outcome: Outcome) {
        match self.adopted(tag) {
            Some((sink, tag)) => sink.outcome(tag, outcome),
            None => self.sink.outcome(tag, outcome),
        }
    }

    fn backpressure(&self) -> Backlog {
        self.sink.backpressure()
    }
}

/// The end of a call: nobody waits for it any more.
struct LoneEnd(Arc<LoneCall>);

impl Drop for LoneEnd {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.owed.clear();
        let call = state.adopted.as_mut().and_then(|adopted| adopted.call.take());
        drop(state);
        // What is adopted and not there yet is given up.
        drop(call);
    }
}

/// Calls under way that were made of a source while it was alone.
#[derive(Default)]
pub(super) struct LoneCalls(Mutex<Vec<Weak<LoneCall>>>);

impl LoneCalls {
    /// One more.
    pub(super) fn add(&self, call: &Arc<LoneCall>) {
        let mut calls = lock(&self.0);
        calls.retain(|call| call.strong_count() > 0);
        calls.push(Arc::downgrade(call));
    }

    /// The source is not alone any more.
    pub(super) fn adopt(&self) {
        self.all().iter().for_each(|call| call.adopt());
    }

    /// These are not wanted any more.
    pub(super) fn forget(&self, tags: &[Tag]) {
        self.all().iter().for_each(|call| call.forget(tags));
    }

    fn all(&self) -> Vec<Arc<LoneCall>> {
        lock(&self.0).iter().filter_map(Weak::upgrade).collect()
    }
}

/// Wants that a source was asked for while it was alone, and the tags that they have there.
#[derive(Default)]
pub(super) struct AdoptedTags(HashMap<Tag, (u32, Tag)>);

impl AdoptedTags {
    /// Wants of a source: the tag that each has now, and the one that it has there.
    pub(super) fn add(&mut self, number: u32, tags: impl Iterator<Item = (Tag, Tag)>) {
        self.0.extend(tags.map(|(tag, there)| (tag, (number, there))));
    }

    /// The tag that a want has at this source, if it has another one there. It is needed once: the want has ended there, or is
    /// cancelled.
    pub(super) fn take(&mut self, number: u32, tag: Tag) -> Option<Tag> {
        let (_, there) = *self.0.get(&tag).filter(|(source, _)| *source == number)?;
        self.0.remove(&tag);
        Some(there)
    }
}
