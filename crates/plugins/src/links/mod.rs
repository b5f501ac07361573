//! Several links to one peer as one way, in a transfer whose root is no object: a copy. Each link is one of a machine's ways out,
//! and has a connection of its own, which whoever dials or accepts it brings ([`LinkWays::join`]).
//!
//! | module | story |
//! |---|---|
//! | this one | [`LinkWays`]: the way |
//! | `source` | the links that stand, as sources that come and go |
//! | `silence` | when a link is quiet: pure |
//! | `shares` | how many entries each is asked for: pure |
//! | `ahead` | the same of one way that another may take over from |
//! | `answers` | which answer counts of what two links are asked for: pure |
//! | `counting` | the sink of what a link answers |
//!
//! Wants are dealt out by [`Many`], each link a source of its own. Entries have no sizes that could be dealt with, and are shared
//! out. What is used while no link stands is not this one's affair: [`Takeover`](crate::Takeover) has two ways.

mod ahead;
mod answers;
mod counting;
#[cfg(test)]
mod cuts;
mod shares;
mod silence;
mod source;

use std::ops::Range;
use std::pin::pin;
use std::sync::{Arc, Mutex, Weak};
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

pub(crate) use self::ahead::EntriesAhead;
use self::counting::{CountingSink, EntryCallSink, may_be_lent};
use self::shares::{AskNumber, EntryShares, LateEntries, LinkKey};
use self::source::StandingLinks;
use crate::direct::Direct;
use crate::many::{Many, joined};

/// Longest time without a look at how fast the links are, while entries wait for several.
const TICK: Duration = Duration::from_millis(50);
/// Any window will do for a way that brings nothing.
const WINDOW: u64 = 4 << 20;

/// See the head of this module.
pub struct LinkWays {
    standing: Arc<StandingLinks>,
    pieces: Many,
    entries: Arc<Mutex<EntryShares>>,
    /// Told when a link answers.
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
        self.standing.add(link)
    }

    /// A link does not stand any more: what it owes goes to the others.
    pub fn leave(&self, key: u64) {
        self.standing.remove(key);
        lock(&self.entries).gone(key);
    }

    /// The way of wants, if any link stands.
    fn pieces(&self) -> Option<&Many> {
        (!self.standing.links().best().is_empty()).then_some(&self.pieces)
    }

    /// Deals some of `wants` out, as many as the links have room for.
    fn deal(
        &self,
        links: &[LinkKey],
        wants: &mut Vec<EntryWant>,
        call: &EntryCallSink,
    ) -> Vec<Arc<CountingSink>> {
        let mut shares = lock(&self.entries);
        let dealt = shares.deal(links, wants.len(), Instant::now()).into_iter();
        let asked = dealt.map(|(key, numbers)| {
            let own: Vec<EntryWant> = wants.drain(..numbers.clone().count().min(wants.len())).collect();
            let kept = own.iter().zip(numbers.clone()).filter(|(want, _)| !may_be_lent(want));
            shares.keep(key, &kept.map(|(_, number)| number).collect::<Vec<AskNumber>>());
            CountingSink::new(call, key, own, numbers)
        });
        asked.collect()
    }

    /// What links owe of a call and another one would answer sooner is asked of that one, too.
    fn lend(
        &self,
        links: &[LinkKey],
        asked: &[Weak<CountingSink>],
        call: &EntryCallSink,
    ) -> Vec<Arc<CountingSink>> {
        // The last one to let go of a sink takes the lock: these are let go of behind it.
        let asked: Vec<Arc<CountingSink>> = asked.iter().filter_map(Weak::upgrade).collect();
        let (mut shares, now, mut lent) = (lock(&self.entries), Instant::now(), Vec::new());
        for asked in &asked {
            let Some(LateEntries { from, sooner }) = shares.late(asked.link(), links, now) else { continue };
            let (wants, numbers): (Vec<EntryWant>, Vec<AskNumber>) = asked.late(from).into_iter().unzip();
            if !wants.is_empty() {
                tracing::debug!(
                    link = asked.link(),
                    count = wants.len(),
                    "entries are late: {sooner} is asked"
                );
                let numbers = shares.lend(&numbers, (asked.link(), sooner), now);
                lent.push(CountingSink::new(call, sooner, wants, numbers));
            }
        }
        lent
    }

    /// Asks one link. What it has not answered once it is quiet ends, and is asked for anew; once others have answered all of that,
    /// nobody waits for it.
    async fn ask_link(&self, link: Arc<Direct>, counting: Arc<CountingSink>) -> Vec<EntryWant> {
        let wants = counting.wants().to_vec();
        let mut asking = pin!(link.get_entries(wants, Arc::clone(&counting) as _));
        tokio::select! {
            biased;
            unasked = &mut asking => return counting.unasked(unasked),
            () = counting.until_needless() => {
                tracing::debug!(link = counting.link(), "others answered all that it owed");
                return Vec::new();
            }
            () = self.standing.links().until_outdone(counting.link()) => {}
        }
        tracing::debug!(link = counting.link(), "a link is quiet: others are asked");
        if counting.give_up() {
            asking.await;
        }
        Vec::new()
    }

    /// Asks for entries by the links as long as any stands; returns those that are left.
    async fn ask(&self, mut wants: Vec<EntryWant>, sink: &Arc<dyn EntrySink>) -> Vec<EntryWant> {
        let call = EntryCallSink::new(sink, &self.entries, &self.room);
        let (mut calls, mut asked) = (FuturesUnordered::new(), Vec::new());
        let mut standing = self.standing.changes();
        loop {
            let mut room = pin!(self.room.notified());
            room.as_mut().enable();
            standing.mark_unchanged();
            let links = self.standing.links().best();
            let keys: Vec<LinkKey> = links.iter().map(|(key, _)| *key).collect();
            let new = match wants.is_empty() {
                false if keys.is_empty() => Vec::new(),
                false => self.deal(&keys, &mut wants, &call),
                true => self.lend(&keys, &asked, &call),
            };
            asked.retain(|asked: &Weak<CountingSink>| asked.strong_count() > 0);
            asked.extend(new.iter().map(Arc::downgrade));
            calls.extend(new.into_iter().map(|counting| {
                let link = links.iter().find(|(key, _)| *key == counting.link());
                let (_, link) = link.expect("no other ones are dealt or lent anything");
                self.ask_link(Arc::clone(link), counting)
            }));
            // One that stands alone needs no look: it is asked for more when it answers, and nobody is there to lend to.
            let is_alone = !links.is_empty() && self.standing.links().count() == 1;
            if calls.is_empty() && (wants.is_empty() || links.is_empty()) {
                return wants;
            }
            tokio::select! {
                // Those of a link that was just lost go to the others.
                Some(unasked) = calls.next() => wants.extend(unasked),
                () = room, if !wants.is_empty() => {}
                Ok(()) = standing.changed() => {}
                () = tokio::time::sleep(TICK), if !is_alone => {}
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
