//! Several links to one peer as one way, in a transfer whose root is no object: a copy. Each link is one of a machine's ways out,
//! and has a connection of its own, which whoever dials or accepts it brings ([`LinkWays::join`]).
//!
//! | module | story |
//! |---|---|
//! | this one | [`LinkWays`]: the way |
//! | `source` | the links that stand, as sources that come and go |
//! | `silence` | when a link is quiet: pure |
//! | `shares` | how many entries each is asked for: pure |
//! | `counting` | the sink of what a link answers |
//!
//! Wants are dealt out by [`Many`], each link a source of its own. Entries have no sizes that could be dealt with, and are shared
//! out. What is used while no link stands is not this one's affair: [`Takeover`](crate::Takeover) has two ways.

mod counting;
#[cfg(test)]
mod cuts;
mod shares;
mod silence;
mod source;

use std::ops::Range;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Notify, mpsc};
use towpath_content::Oid;
use towpath_content::lock::lock;
use towpath_transfer::offer::{EntrySink, EntryWant, OfferSource};
use towpath_transfer::source::{Query, Sink, SourceState};
use towpath_transfer::{BoxFuture, Context, Description, Outcome, Source, SourceId, Tag, Want};

use self::counting::CountingSink;
use self::shares::{EntryShares, LinkKey};
use self::source::StandingLinks;
use crate::direct::Direct;
use crate::many::{Many, joined};

/// Longest time without a look at how fast the links are, while entries wait for them.
const TICK: Duration = Duration::from_millis(50);
/// Any window will do for a way that brings nothing.
const WINDOW: u64 = 4 << 20;

/// See the head of this module.
pub struct LinkWays {
    standing: Arc<StandingLinks>,
    pieces: Many,
    entries: Arc<Mutex<EntryShares>>,
    /// Told when a link answers, comes or goes.
    room: Arc<Notify>,
}

impl LinkWays {
    /// No link stands yet.
    pub fn new() -> Arc<Self> {
        let standing = StandingLinks::new();
        let pieces = Many::new(Vec::new(), vec![Arc::clone(&standing) as _]);
        let (entries, room) = (Arc::default(), Arc::default());
        Arc::new(Self { standing, pieces, entries, room })
    }

    /// One more link stands, by a connection of its own. Returns its key.
    pub fn join(&self, link: Arc<Direct>) -> u64 {
        let key = self.standing.add(link);
        self.room.notify_waiters();
        key
    }

    /// A link does not stand any more: what it owes goes to the others.
    pub fn leave(&self, key: u64) {
        self.standing.remove(key);
        lock(&self.entries).gone(key);
        self.room.notify_waiters();
    }

    /// The way of wants, if any link stands.
    fn pieces(&self) -> Option<&Many> {
        (!self.standing.links().best().is_empty()).then_some(&self.pieces)
    }

    /// Deals some of `wants` out, as many as the links have room for, and begins to ask for them.
    fn deal<'a>(
        &'a self,
        links: &[(LinkKey, Arc<Direct>)],
        wants: &mut Vec<EntryWant>,
        sink: &Arc<dyn EntrySink>,
    ) -> Vec<BoxFuture<'a, Vec<EntryWant>>> {
        let keys: Vec<LinkKey> = links.iter().map(|(key, _)| *key).collect();
        let shares = lock(&self.entries).deal(&keys, wants.len(), Instant::now());
        let mut calls: Vec<BoxFuture<'a, Vec<EntryWant>>> = Vec::with_capacity(shares.len());
        for (key, share) in shares {
            let own: Vec<EntryWant> = wants.drain(..share.min(wants.len())).collect();
            if let Some((_, link)) = links.iter().find(|(link, _)| *link == key) {
                calls.push(Box::pin(self.ask_link((key, Arc::clone(link)), own, sink)));
            }
        }
        calls
    }

    /// Asks one link. What it has not answered once it is quiet ends, and is asked for anew.
    fn ask_link<'a>(
        &'a self,
        (key, link): (LinkKey, Arc<Direct>),
        wants: Vec<EntryWant>,
        sink: &Arc<dyn EntrySink>,
    ) -> impl Future<Output = Vec<EntryWant>> + Send + use<'a> {
        let to = (Arc::clone(&self.entries), Arc::clone(&self.room));
        let counting = CountingSink::new(Arc::clone(sink), to, key, &wants);
        async move {
            let mut asking = pin!(link.get_entries(wants, Arc::clone(&counting) as _));
            tokio::select! {
                biased;
                unasked = &mut asking => return unasked,
                () = self.standing.links().until_outdone(key) => {}
            }
            tracing::debug!(link = key, "a link is quiet: others are asked");
            if counting.give_up() {
                asking.await;
            }
            Vec::new()
        }
    }

    /// Asks for entries by the links as long as any stands; returns those that are left.
    async fn ask(&self, mut wants: Vec<EntryWant>, sink: &Arc<dyn EntrySink>) -> Vec<EntryWant> {
        let mut calls = FuturesUnordered::new();
        loop {
            let mut room = pin!(self.room.notified());
            room.as_mut().enable();
            let links = self.standing.links().best();
            if !wants.is_empty() && !links.is_empty() {
                calls.extend(self.deal(&links, &mut wants, sink));
            }
            if calls.is_empty() && (wants.is_empty() || links.is_empty()) {
                return wants;
            }
            tokio::select! {
                // Those of a link that was just lost go to the others.
                Some(unasked) = calls.next() => wants.extend(unasked),
                () = room, if !wants.is_empty() => {}
                () = tokio::time::sleep(TICK), if !wants.is_empty() => {}
            }
        }
    }
}

impl Source for LinkWays {
    fn name(&self) -> &str {
        "links"
    }

    fn state(&self) -> SourceState {
        let states = self.standing.links().all().into_iter().map(|(_, link)| link.state());
        match states.reduce(joined).filter(|all| all.trouble.is_none()) {
            Some(all) => SourceState { window: self.pieces.state().window, ..all },
            None => none_stands(),
        }
    }

    fn describe<'a>(
        &'a self,
        query: Query,
        context: &'a Context,
        answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        Box::pin(async move {
            match self.pieces() {
                Some(links) => links.describe(query, context, answers).await,
                None => Err(Outcome::NotHere),
            }
        })
    }

    fn get<'a>(&'a self, wants: Vec<Want>, context: &'a Context, sink: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            match self.pieces() {
                Some(links) => links.get(wants, context, sink).await,
                None => wants.iter().for_each(|want| sink.outcome(want.tag, Outcome::NotHere)),
            }
        })
    }

    fn cancel(&self, tags: &[Tag]) {
        self.pieces.cancel(tags);
    }

    fn report_corrupt(&self, source: &SourceId) {
        self.pieces.report_corrupt(source);
    }

    fn finish<'a>(&'a self, how: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let links = self.standing.links().all();
            join_all(links.iter().map(|(_, link)| link.finish(how))).await;
        })
    }

    fn have<'a>(
        &'a self,
        oid: Oid,
        context: &'a Context,
        ranges: mpsc::Sender<Vec<Range<u64>>>,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if let Some(links) = self.pieces() {
                links.have(oid, context, ranges).await;
            }
        })
    }
}

fn none_stands() -> SourceState {
    SourceState { trouble: Some("no link stands".into()), ..SourceState::of_window(WINDOW) }
}

impl OfferSource for LinkWays {
    fn get_entries(&self, wants: Vec<EntryWant>, sink: Arc<dyn EntrySink>) -> BoxFuture<'_, Vec<EntryWant>> {
        Box::pin(async move { self.ask(wants, &sink).await })
    }
}
