//! Places that finders found: sources that are not open yet, and which finders have not looked once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use towpath_transfer::Source;

/// Sources that finders may have found at a time.
const MOST_FOUND: usize = 1024;
/// Time that finders have for their first look.
const FIRST_LOOK: Duration = Duration::from_secs(2);

/// A source among those of all finders: the finder, and its key there.
pub(super) type FoundKey = (usize, u64);

/// A source that is not open yet: asked about the root, or waiting for that.
pub(super) struct FoundPlace {
    pub(super) source: Arc<dyn Source>,
    pub(super) priority: u16,
    is_asked: bool,
}

/// See the head of this module.
#[derive(Default)]
pub(super) struct FoundPlaces {
    closed: BTreeMap<u32, FoundPlace>,
    /// All that were found and not taken away, also those that are open.
    found: BTreeMap<FoundKey, u32>,
    /// Finders that have not looked once, and how long they are waited for.
    looking: (BTreeSet<usize>, Duration),
}

impl FoundPlaces {
    /// So many finders begin to look.
    pub(super) fn look(&mut self, now: Duration, finders: usize) {
        self.looking = ((0..finders).collect(), now + FIRST_LOOK);
    }

    /// A finder has looked once. Returns true if it was waited for.
    pub(super) fn looked(&mut self, finder: usize) -> bool {
        self.looking.0.remove(&finder)
    }

    /// Waits no longer for finders whose time is over. Returns true if there were any.
    pub(super) fn is_over(&mut self, now: Duration) -> bool {
        let is_over = !self.looking.0.is_empty() && now >= self.looking.1;
        if is_over {
            self.looking.0.clear();
        }
        is_over
    }

    /// True while a source may come soon that nobody has asked yet.
    pub(super) fn may_find(&self, now: Duration) -> bool {
        let (looking, until) = &self.looking;
        !self.closed.is_empty() || (!looking.is_empty() && now < *until)
    }

    /// True if all have looked and no place waits.
    pub(super) fn is_settled(&self) -> bool {
        self.closed.is_empty() && self.looking.0.is_empty()
    }

    /// A source that was found, if it is a new one and there are not too many.
    pub(super) fn add(&mut self, key: FoundKey, number: u32, source: Arc<dyn Source>, priority: u16) -> bool {
        let is_new = self.found.len() < MOST_FOUND && !self.found.contains_key(&key);
        if is_new {
            self.found.insert(key, number);
            self.closed.insert(number, FoundPlace { source, priority, is_asked: false });
        }
        is_new
    }

    /// Forgets a source that was taken away; returns its number.
    pub(super) fn remove(&mut self, key: FoundKey) -> Option<u32> {
        let number = self.found.remove(&key)?;
        self.closed.remove(&number);
        Some(number)
    }

    /// True if a finder found it, and so may take it away.
    pub(super) fn may_go(&self, number: u32) -> bool {
        self.found.values().any(|found| *found == number)
    }

    /// The source of a place that is to be asked about the root, if it was not yet.
    pub(super) fn ask(&mut self, number: u32) -> Option<Arc<dyn Source>> {
        let place = self.closed.get_mut(&number).filter(|place| !place.is_asked)?;
        place.is_asked = true;
        Some(Arc::clone(&place.source))
    }

    /// The same of all places.
    pub(super) fn ask_all(&mut self) -> Vec<(u32, Arc<dyn Source>)> {
        let numbers: Vec<u32> = self.closed.keys().copied().collect();
        numbers.into_iter().filter_map(|number| Some((number, self.ask(number)?))).collect()
    }

    /// Those that were asked and have not answered.
    pub(super) fn asked(&self) -> impl Iterator<Item = (u32, Arc<dyn Source>)> + '_ {
        let asked = self.closed.iter().filter(|(_, place)| place.is_asked);
        asked.map(|(number, place)| (*number, Arc::clone(&place.source)))
    }

    /// Takes out a place that answered.
    pub(super) fn take(&mut self, number: u32) -> Option<FoundPlace> {
        self.closed.remove(&number)
    }
}
