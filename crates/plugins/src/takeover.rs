//! Two ways to one peer: requests go the first way until a better one is offered, and back to the
//! first while the better one is in trouble.
//!
//! A request that is under way when ways change ends where it was put, and takes nothing of the other way's window. Only what a lost way says
//! it does not have is asked again, of the first way, at once: it knows nothing. So are entries that it could not ask for.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use towpath_content::Oid;
use towpath_transfer::offer::{EntrySink, EntryWant, OfferSource};
use towpath_transfer::source::{Query, Sink, SourceState};
use towpath_transfer::{BoxFuture, Context, Description, Outcome, Source, SourceId, Tag, Want};

use crate::fallback_sink::FallbackSink;
use crate::links::EntriesAhead;

/// Delay before asking again while there is no connection at all.
const WAIT: Duration = Duration::from_millis(200);
/// Longest time without a look for a better way while entries wait for room: nobody tells when its trouble ends.
const LOOK: Duration = Duration::from_millis(50);
/// Any window will do for a plugin that brings nothing.
const WAITING_WINDOW: u64 = 4 << 20;

/// Names of the two connections, for people: `ssh` and `tls`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Names {
    /// The first way.
    pub first: &'static str,
    /// The better one.
    pub better: &'static str,
}

/// A plugin as one of two ways. Of one that asks for objects alone, it is made of an `Arc<dyn Source>`.
#[derive(Clone)]
pub struct TransferWay {
    plugin: Arc<dyn Source>,
    /// The same plugin, if entries can be asked for that way.
    offers: Option<Arc<dyn OfferSource>>,
}

impl From<Arc<dyn Source>> for TransferWay {
    fn from(plugin: Arc<dyn Source>) -> Self {
        Self { plugin, offers: None }
    }
}

impl<P: Source + OfferSource + 'static> From<Arc<P>> for TransferWay {
    fn from(plugin: Arc<P>) -> Self {
        Self { offers: Some(Arc::clone(&plugin) as _), plugin }
    }
}

impl TransferWay {
    /// Asks for entries; returns those that it could not ask for.
    async fn get_entries(&self, wants: Vec<EntryWant>, sink: Arc<dyn EntrySink>) -> Vec<EntryWant> {
        match self.offers.as_ref().filter(|_| !wants.is_empty()) {
            Some(offers) => offers.get_entries(wants, sink).await,
            None => wants,
        }
    }
}

/// Wraps a plugin, and a better one when there is one.
pub struct Takeover {
    first: TransferWay,
    /// Bytes that were asked of the first way, until their calls have ended.
    asked_first: AtomicU64,
    ahead: EntriesAhead,
    /// Several links are to come.
    gives_way: AtomicBool,
    better: Mutex<Option<TransferWay>>,
    names: Names,
}

impl Takeover {
    /// Begins with `first`.
    pub fn new(first: impl Into<TransferWay>, names: Names) -> Arc<Self> {
        let (asked_first, ahead, better) = (AtomicU64::new(0), EntriesAhead::default(), Mutex::default());
        let gives_way = AtomicBool::new(false);
        Arc::new(Self { first: first.into(), asked_first, ahead, gives_way, better, names })
    }

    /// Uses nothing but what is offered: until then, and while that is in trouble, requests are
    /// told to come back, and the trouble is `waiting`.
    pub fn only_better(waiting: &'static str, names: Names) -> Arc<Self> {
        let first: Arc<dyn Source> = Arc::new(WaitingWants { trouble: waiting });
        Self::new(first, names)
    }

    /// Several links are to come: the first way is asked for no more entries than it answers in a second, so that the rest is theirs. One
    /// connection in the place of another would not be worth it: on a long path that one has to become fast first.
    pub fn give_way(&self) {
        self.gives_way.store(true, Ordering::Relaxed);
    }

    /// True if several links are to come.
    pub fn gives_way(&self) -> bool {
        self.gives_way.load(Ordering::Relaxed)
    }

    /// From now on requests go to `better`, instead of any that was offered before.
    pub fn offer(&self, better: impl Into<TransferWay>) {
        *self.better.lock().unwrap_or_else(PoisonError::into_inner) = Some(better.into());
        self.ahead.tell();
    }

    /// The name of the way that requests go now.
    pub fn active(&self) -> &'static str {
        if self.better().is_some() { self.names.better } else { self.names.first }
    }

    /// The way that was offered, if it is not in trouble.
    fn better(&self) -> Option<TransferWay> {
        self.offered().filter(|better| better.plugin.state().trouble.is_none())
    }

    fn offered(&self) -> Option<TransferWay> {
        self.better.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn current(&self) -> Arc<dyn Source> {
        self.better().map_or_else(|| Arc::clone(&self.first.plugin), |better| better.plugin)
    }

    /// Asks the first way, and the better one for what still waits once there is one; returns what neither could ask for.
    async fn ask_first(&self, mut wants: Vec<EntryWant>, sink: &Arc<dyn EntrySink>) -> Vec<EntryWant> {
        let call = self.ahead.call(sink);
        let (mut calls, mut unasked) = (FuturesUnordered::new(), Vec::new());
        loop {
            let mut told = pin!(self.ahead.told());
            told.as_mut().enable();
            let next = match self.better().filter(|_| !wants.is_empty()) {
                Some(better) => Some((better, (std::mem::take(&mut wants), Arc::clone(sink)))),
                None => call.take(&mut wants).map(|taken| (self.first.clone(), taken)),
            };
            calls.extend(next.map(|(way, (wants, sink))| async move { way.get_entries(wants, sink).await }));
            if calls.is_empty() && wants.is_empty() {
                return unasked;
            }
            tokio::select! {
                Some(left) = calls.next() => unasked.extend(left),
                () = told, if !wants.is_empty() => {}
                () = tokio::time::sleep(LOOK), if !wants.is_empty() => {}
            }
        }
    }

    fn all(&self) -> impl Iterator<Item = Arc<dyn Source>> {
        [Some(self.first.clone()), self.offered()].into_iter().flatten().map(|way| way.plugin)
    }
}

impl Source for Takeover {
    fn name(&self) -> &str {
        "takeover"
    }

    fn state(&self) -> SourceState {
        let is_encrypted = self.all().all(|way| way.state().is_encrypted);
        let better = self.better().map(|better| better.plugin.state());
        // The better one is not to wait for what still comes the first way: on a long path that is for seconds.
        let beside = self.asked_first.load(Ordering::Relaxed);
        let better = better.map(|state| SourceState {
            window: state.window + beside,
            beside: state.beside + beside,
            ..state
        });
        SourceState { is_encrypted, ..better.unwrap_or_else(|| self.first.plugin.state()) }
    }

    fn describe<'a>(
        &'a self,
        query: Query,
        context: &'a Context,
        answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        Box::pin(async move {
            if let Some(TransferWay { plugin: better, .. }) = self.better() {
                let result = better.describe(query.clone(), context, answers.clone()).await;
                if result != Err(Outcome::NotHere) || better.state().trouble.is_none() {
                    return result;
                }
            }
            self.first.plugin.describe(query, context, answers).await
        })
    }

    fn get<'a>(&'a self, wants: Vec<Want>, context: &'a Context, sink: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let mut wants = wants;
            if let Some(TransferWay { plugin: better, .. }) = self.better() {
                let is_not_here = |outcome: &Outcome| *outcome == Outcome::NotHere;
                let kept = Arc::new(FallbackSink::new(&wants, Arc::clone(&sink), is_not_here));
                better.get(wants, context, Arc::clone(&kept) as Arc<dyn Sink>).await;
                wants = kept.left();
                if better.state().trouble.is_none() {
                    wants.drain(..).for_each(|want| sink.outcome(want.tag, Outcome::NotHere));
                }
                if wants.is_empty() {
                    return;
                }
            }
            let _asked = AskedBytes::new(&self.asked_first, &wants);
            self.first.plugin.get(wants, context, sink).await;
        })
    }

    fn cancel(&self, tags: &[Tag]) {
        self.all().for_each(|plugin| plugin.cancel(tags));
    }

    fn report_corrupt(&self, source: &SourceId) {
        self.all().for_each(|plugin| plugin.report_corrupt(source));
    }

    fn finish<'a>(&'a self, how: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let all: Vec<_> = self.all().collect();
            join_all(all.iter().map(|way| way.finish(how))).await;
        })
    }

    fn have<'a>(
        &'a self,
        oid: Oid,
        context: &'a Context,
        ranges: mpsc::Sender<Vec<std::ops::Range<u64>>>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move { self.current().have(oid, context, ranges).await })
    }
}

impl OfferSource for Takeover {
    fn get_entries(&self, wants: Vec<EntryWant>, sink: Arc<dyn EntrySink>) -> BoxFuture<'_, Vec<EntryWant>> {
        Box::pin(async move {
            let mut wants = wants;
            if let Some(better) = self.better() {
                wants = better.get_entries(wants, Arc::clone(&sink)).await;
            }
            match self.gives_way() {
                true => self.ask_first(wants, &sink).await,
                false => self.first.get_entries(wants, sink).await,
            }
        })
    }
}

/// Bytes of a call, which count until it has ended.
struct AskedBytes<'a> {
    all: &'a AtomicU64,
    bytes: u64,
}

impl<'a> AskedBytes<'a> {
    fn new(all: &'a AtomicU64, wants: &[Want]) -> Self {
        let bytes = wants.iter().map(|want| want.missing_len()).sum();
        all.fetch_add(bytes, Ordering::Relaxed);
        Self { all, bytes }
    }
}

impl Drop for AskedBytes<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// In the place of a way that must not be used.
struct WaitingWants {
    trouble: &'static str,
}

impl Source for WaitingWants {
    fn name(&self) -> &str {
        "waiting"
    }

    fn state(&self) -> SourceState {
        SourceState { trouble: Some(self.trouble.into()), ..SourceState::of_window(WAITING_WINDOW) }
    }

    fn describe<'a>(
        &'a self,
        _query: Query,
        _context: &'a Context,
        _answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        Box::pin(async { Err(Outcome::RetryLater(WAIT)) })
    }

    fn get<'a>(&'a self, wants: Vec<Want>, _context: &'a Context, sink: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            wants.iter().for_each(|want| sink.outcome(want.tag, Outcome::RetryLater(WAIT)));
        })
    }
}
