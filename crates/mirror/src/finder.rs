//! The finder of mirrors: those that a person named, and those that the hints of a ticket name.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::mpsc;
use towpath_content::Hint;
use towpath_transfer::finder::{Finder, SourceChange};
use towpath_transfer::{BoxFuture, Context, Source};

use crate::mirror::Mirror;
use crate::place::MirrorPlace;
use crate::values::ToldValues;
use crate::web::{NamedBy, WebRules};
use crate::web_url::is_web;

/// Mirrors of one transfer, at most.
const MOST: usize = 64;

/// Mirrors of a transfer that are known before it begins.
#[derive(Clone, Default)]
pub struct KnownMirrors {
    /// Places, and who named each.
    pub places: Vec<(MirrorPlace, NamedBy)>,
    /// What a `.tow` tells. An older version, of which this knows, is found once there is one.
    pub told: Option<Arc<ToldValues>>,
    /// What holds for all web servers.
    pub rules: WebRules,
}

/// See the head of this module.
pub struct MirrorFinder(KnownMirrors);

impl MirrorFinder {
    /// Finds these, and what hints name.
    pub fn new(mut known: KnownMirrors) -> Self {
        known.places.retain(|(place, _)| known.rules.allow(place));
        Self(known)
    }

    fn mirror(&self, place: MirrorPlace, named_by: NamedBy) -> Arc<dyn Source> {
        Arc::new(Mirror::new(place, named_by, self.0.rules.clone()))
    }

    /// Tells of an older version once one is known.
    async fn similar(&self, changes: mpsc::Sender<SourceChange>) {
        if let Some(similar) = self.0.told.as_ref().map(|told| told.similar()) {
            similar.known().await;
            let source = Arc::clone(similar) as Arc<dyn Source>;
            let _ = changes.send(SourceChange::Added { key: u64::MAX, source, priority: 0, weight: 1 }).await;
        }
    }

    /// Places that hints name, with the priority and weight of each; not those that are known, too.
    fn hinted(&self, hints: &[Hint]) -> BTreeMap<String, (MirrorPlace, u16, u16)> {
        let ours = hints.iter().filter(|hint| is_web(&hint.method));
        let is_known = |place: &MirrorPlace| self.0.places.iter().any(|(known, _)| known == place);
        let is_used = |place: &MirrorPlace| !is_known(place) && self.0.rules.allow(place);
        let place = |hint: &Hint| {
            let place = MirrorPlace::new(&hint.method).ok().filter(is_used)?;
            Some((hint.method.clone(), (place, hint.priority, hint.weight)))
        };
        ours.filter_map(place).collect()
    }
}

impl Finder for MirrorFinder {
    fn find<'a>(&'a self, context: &'a Context, changes: mpsc::Sender<SourceChange>) -> BoxFuture<'a, ()> {
        let similar = self.similar(changes.clone());
        let mirrors = async move {
            // What can tell comes first: the others can't.
            let told = self.0.told.iter().map(|told| Arc::clone(told) as Arc<dyn Source>);
            let places = self.0.places.iter().map(|(place, by)| self.mirror(place.clone(), *by));
            let mut next = 0;
            for source in told.chain(places) {
                next += 1;
                let added = SourceChange::Added { key: next, source, priority: 0, weight: 1 };
                let _ = changes.send(added).await;
            }
            let (mut hints, mut known) = (context.hints.clone(), BTreeMap::new());
            loop {
                let hinted = self.hinted(&hints.borrow_and_update());
                let gone: Vec<String> =
                    known.keys().filter(|place| !hinted.contains_key(*place)).cloned().collect();
                for key in gone.iter().filter_map(|place| known.remove(place)) {
                    let _ = changes.send(SourceChange::Removed(key)).await;
                }
                for (text, (place, priority, weight)) in hinted {
                    if known.len() < MOST && !known.contains_key(&text) {
                        next += 1;
                        known.insert(text, next);
                        let source = self.mirror(place, NamedBy::Stranger);
                        let added = SourceChange::Added { key: next, source, priority, weight };
                        let _ = changes.send(added).await;
                    }
                }
                let _ = changes.send(SourceChange::Looked).await;
                if hints.changed().await.is_err() {
                    return;
                }
            }
        };
        Box::pin(async move {
            tokio::join!(mirrors, similar);
        })
    }
}
