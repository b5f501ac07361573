//! The links that stand: a finder brings them to those who deal wants out, and takes them away.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::{mpsc, watch};
use towpath_content::lock::lock;
use towpath_store::About;
use towpath_transfer::finder::{Finder, SourceChange};
use towpath_transfer::source::{Query, Sink, SourceState};
use towpath_transfer::{BoxFuture, Context, Description, Metadata, Outcome, Source, Want};

use super::shares::LinkKey;
use crate::direct::Direct;

/// See the head of this module.
pub(super) struct StandingLinks {
    links: Mutex<BTreeMap<LinkKey, Arc<Direct>>>,
    /// The next one's key; told whenever one comes or goes.
    next: watch::Sender<LinkKey>,
}

impl StandingLinks {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { links: Mutex::default(), next: watch::Sender::new(0) })
    }

    /// One more.
    pub(super) fn add(&self, link: Arc<Direct>) -> LinkKey {
        let mut links = lock(&self.links);
        let key = *self.next.borrow();
        links.insert(key, link);
        drop(links);
        self.next.send_modify(|next| *next = key + 1);
        key
    }

    /// One is gone.
    pub(super) fn remove(&self, key: LinkKey) {
        let link = lock(&self.links).remove(&key);
        if link.is_some() {
            self.next.send_modify(|_| ());
        }
    }

    /// All of them, in the order in which they came.
    pub(super) fn all(&self) -> Vec<(LinkKey, Arc<Direct>)> {
        lock(&self.links).iter().map(|(key, link)| (*key, Arc::clone(link))).collect()
    }
}

impl Finder for StandingLinks {
    fn find<'a>(&'a self, _context: &'a Context, changes: mpsc::Sender<SourceChange>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let (mut next, mut known) = (self.next.subscribe(), Vec::new());
            loop {
                next.mark_unchanged();
                let links = self.all();
                let gone = known.iter().filter(|key| !links.iter().any(|(link, _)| link == *key));
                for key in gone {
                    let _ = changes.send(SourceChange::Removed(*key)).await;
                }
                for (key, link) in links.iter().filter(|(key, _)| !known.contains(key)) {
                    let source = Arc::new(LinkSource(Arc::clone(link)));
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

/// One link. Whether it has the root need not be asked: all lead to the same peer.
struct LinkSource(Arc<Direct>);

impl Source for LinkSource {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn inner(&self) -> Option<&dyn Source> {
        Some(&*self.0)
    }

    fn state(&self) -> SourceState {
        self.0.state()
    }

    fn describe<'a>(
        &'a self,
        query: Query,
        context: &'a Context,
        answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        if query.oid != context.root {
            return self.0.describe(query, context, answers);
        }
        Box::pin(async move {
            let (about, metadata) = (About::default(), Metadata::default());
            let _ = answers.send(Description::Object { about, layout: None, metadata }).await;
            Ok(())
        })
    }

    fn get<'a>(&'a self, wants: Vec<Want>, context: &'a Context, sink: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        self.0.get(wants, context, sink)
    }
}
