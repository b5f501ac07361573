//! The links that stand: a finder brings them to those who deal wants out, and takes them away.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use towpath_content::lock::lock;
use towpath_store::About;
use towpath_transfer::finder::{Finder, SourceChange};
use towpath_transfer::source::{Query, Sink, SourceState};
use towpath_transfer::{BoxFuture, Context, Description, Metadata, Outcome, Source, Want};

use super::shares::LinkKey;
use super::silence::LinkSilence;
use crate::direct::Direct;

/// Interval at which it is looked whether a link that was asked for something is quiet.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Links are looked at no more often than this: states are asked for often.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Links that stand, and what is heard by them.
#[derive(Default)]
pub(super) struct HeardLinks(Mutex<LookedLinks>);

#[derive(Default)]
struct LookedLinks {
    links: BTreeMap<LinkKey, HeardLink>,
    looked: Option<Instant>,
}

struct HeardLink {
    way: Arc<Direct>,
    silence: LinkSilence,
    /// It was in no trouble when it was looked at.
    is_well: bool,
}

impl HeardLink {
    fn new(way: Arc<Direct>) -> Self {
        Self { way, silence: LinkSilence::default(), is_well: true }
    }
}

impl LookedLinks {
    fn look(&mut self, now: Instant) {
        if self.looked.is_some_and(|looked| now.saturating_duration_since(looked) < LOOK_AGAIN) {
            return;
        }
        self.looked = Some(now);
        for link in self.links.values_mut() {
            let heard = link.way.heard();
            link.silence.look(now, heard.bytes, heard.listens);
            link.is_well = link.way.state().trouble.is_none();
        }
    }

    /// True if this one is quiet, and another one speaks.
    fn is_outdone(&self, this: &HeardLink, now: Instant) -> bool {
        let mut well = self.links.values().filter(|other| other.is_well);
        well.any(|other| this.silence.is_outdone_by(&other.silence, now))
    }
}

impl HeardLinks {
    /// All of them, in the order in which they came.
    pub(super) fn all(&self) -> Vec<(LinkKey, Arc<Direct>)> {
        lock(&self.0).links.iter().map(|(key, link)| (*key, Arc::clone(&link.way))).collect()
    }

    /// Those that are in no trouble, but for those that are outdone.
    pub(super) fn best(&self) -> Vec<(LinkKey, Arc<Direct>)> {
        let (mut looked, now) = (lock(&self.0), Instant::now());
        looked.look(now);
        let may = |link: &HeardLink| link.way.state().trouble.is_none() && !looked.is_outdone(link, now);
        let best = looked.links.iter().filter(|(_, link)| may(link));
        best.map(|(key, link)| (*key, Arc::clone(&link.way))).collect()
    }

    /// Number of all.
    pub(super) fn count(&self) -> usize {
        lock(&self.0).links.len()
    }

    /// True if this one is quiet, and another one speaks.
    fn is_outdone(&self, key: LinkKey) -> bool {
        let (mut looked, now) = (lock(&self.0), Instant::now());
        looked.look(now);
        looked.links.get(&key).is_some_and(|link| looked.is_outdone(link, now))
    }

    /// Completes once this one is quiet, and another one speaks.
    pub(super) async fn until_outdone(&self, key: LinkKey) {
        while !self.is_outdone(key) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// See the head of this module.
pub(super) struct StandingLinks {
    links: Arc<HeardLinks>,
    /// The next one's key; told whenever one comes or goes.
    next: watch::Sender<LinkKey>,
}

impl StandingLinks {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { links: Arc::default(), next: watch::Sender::new(0) })
    }

    /// One more.
    pub(super) fn add(&self, way: Arc<Direct>) -> LinkKey {
        let mut looked = lock(&self.links.0);
        let key = *self.next.borrow();
        looked.links.insert(key, HeardLink::new(way));
        drop(looked);
        self.next.send_modify(|next| *next = key + 1);
        key
    }

    /// One is gone.
    pub(super) fn remove(&self, key: LinkKey) {
        let link = lock(&self.links.0).links.remove(&key);
        if link.is_some() {
            self.next.send_modify(|_| ());
        }
    }

    /// Told whenever one comes or goes.
    pub(super) fn changes(&self) -> watch::Receiver<LinkKey> {
        self.next.subscribe()
    }

    /// The links.
    pub(super) const fn links(&self) -> &Arc<HeardLinks> {
        &self.links
    }
}

impl Finder for StandingLinks {
    fn find<'a>(&'a self, _context: &'a Context, changes: mpsc::Sender<SourceChange>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let (mut next, mut known) = (self.next.subscribe(), Vec::new());
            loop {
                next.mark_unchanged();
                let links = self.links.all();
                let gone = known.iter().filter(|key| !links.iter().any(|(link, _)| link == *key));
                for key in gone {
                    let _ = changes.send(SourceChange::Removed(*key)).await;
                }
                for (key, link) in links.iter().filter(|(key, _)| !known.contains(key)) {
                    let (link, all) = (Arc::clone(link), Arc::clone(&self.links));
                    let source = Arc::new(LinkSource { key: *key, link, all });
                    let added = SourceChange::Added { key: *key, source, priority: 0, weight: 0 };
                    let _ = changes.send(added).await;
                }
                known = links.into_iter().map(|(key, _)| key).collect();
                let _ = changes.send(SourceChange::Looked).await;
                if next.changed().await.is_err() {
                    return;
                }
            }
        })
    }
}

/// One link. Whether it has the root need not be asked: all lead to the same peer. What a quiet one was asked for ends as that of a
/// lost one does, so that it goes to another.
struct LinkSource {
    key: LinkKey,
    link: Arc<Direct>,
    all: Arc<HeardLinks>,
}

impl Source for LinkSource {
    fn name(&self) -> &str {
        self.link.name()
    }

    fn inner(&self) -> Option<&dyn Source> {
        Some(&*self.link)
    }

    fn state(&self) -> SourceState {
        let state = self.link.state();
        let quiet = || self.all.is_outdone(self.key).then(|| "nothing comes by this link".into());
        SourceState { trouble: state.trouble.or_else(quiet), ..state }
    }

    fn describe<'a>(
        &'a self,
        query: Query,
        context: &'a Context,
        answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        Box::pin(async move {
            if query.oid == context.root {
                let (about, metadata) = (About::default(), Metadata::default());
                let _ = answers.send(Description::Object { about, layout: None, metadata }).await;
                return Ok(());
            }
            tokio::select! {
                biased;
                result = self.link.describe(query, context, answers) => result,
                () = self.all.until_outdone(self.key) => Err(Outcome::RetryLater(Duration::ZERO)),
            }
        })
    }

    fn get<'a>(&'a self, wants: Vec<Want>, context: &'a Context, sink: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        self.link.get(wants, context, sink)
    }
}
