//! The finder of mirrors: those that a person named, and those that the hints of a ticket name.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::mpsc;
use towpath_content::Hint;
use towpath_protocol::Pace;
use towpath_transfer::finder::{Finder, SourceChange};
use towpath_transfer::{BoxFuture, Context, Source};

use crate::mirror::Mirror;
use crate::place::MirrorPlace;
use crate::web::NamedBy;

/// Mirrors of one transfer, at most.
const MOST: usize = 64;

/// See the head of this module.
pub struct MirrorFinder {
    named: Vec<MirrorPlace>,
    further: Vec<Arc<dyn Source>>,
    pace: Arc<Pace>,
}

impl MirrorFinder {
    /// Finds these places, which a person named, `further` sources, and what hints name. Mirrors are taken from at this pace.
    pub fn new(named: Vec<MirrorPlace>, further: Vec<Arc<dyn Source>>, pace: Arc<Pace>) -> Self {
        Self { named, further, pace }
    }

    fn mirror(&self, place: MirrorPlace, named_by: NamedBy) -> Arc<dyn Source> {
        Arc::new(Mirror::new(place, named_by, Arc::clone(&self.pace)))
    }
}

impl Finder for MirrorFinder {
    fn find<'a>(&'a self, context: &'a Context, changes: mpsc::Sender<SourceChange>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let named = self.named.iter().map(|place| self.mirror(place.clone(), NamedBy::Person));
            let mut next = 0;
            for source in named.chain(self.further.iter().cloned()) {
                next += 1;
                let added = SourceChange::Added { key: next, source, priority: 0, weight: 1 };
                let _ = changes.send(added).await;
            }
            let (mut hints, mut known) = (context.hints.clone(), BTreeMap::new());
            loop {
                let told = places(&hints.borrow_and_update(), &self.named);
                let gone: Vec<String> =
                    known.keys().filter(|place| !told.contains_key(*place)).cloned().collect();
                for key in gone.iter().filter_map(|place| known.remove(place)) {
                    let _ = changes.send(SourceChange::Removed(key)).await;
                }
                for (text, (place, priority, weight)) in told {
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
        })
    }
}

/// Places that hints name, with the priority and weight of each; not those that a person named, too.
fn places(hints: &[Hint], named: &[MirrorPlace]) -> BTreeMap<String, (MirrorPlace, u16, u16)> {
    let ours = hints.iter().filter(|hint| matches!(hint.scheme(), "http" | "https"));
    let place = |hint: &Hint| {
        let place = MirrorPlace::new(&hint.method).ok().filter(|place| !named.contains(place))?;
        Some((hint.method.clone(), (place, hint.priority, hint.weight)))
    };
    ours.filter_map(place).collect()
}
