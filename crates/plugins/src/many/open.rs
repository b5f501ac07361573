//! Sources that count: they answered about the root, and nobody has dropped them.

use std::collections::BTreeMap;
use std::sync::Arc;

use towpath_transfer::source::UNREACHED_PRICE;
use towpath_transfer::{Source, SourceState};

use towpath_dealer::SourceFacts;

/// A source that counts.
struct OpenSource {
    source: Arc<dyn Source>,
    priority: u16,
    /// Those with a larger one are in reserve.
    rank: u16,
    window: u64,
    price: u32,
}

/// See the head of this module. Each has a number that is never used again.
#[derive(Default)]
pub(super) struct OpenSources(BTreeMap<u32, OpenSource>);

impl OpenSources {
    /// One more. Returns the facts that it tells of itself.
    pub(super) fn add(
        &mut self,
        number: u32,
        source: Arc<dyn Source>,
        (rank, priority): (u16, u16),
    ) -> SourceFacts {
        let state = source.state();
        let (window, price) = (state.window, state.price);
        self.0.insert(number, OpenSource { source, priority, rank, window, price });
        facts(&state, rank)
    }

    /// The one of this number.
    pub(super) fn get(&self, number: u32) -> Option<Arc<dyn Source>> {
        self.0.get(&number).map(|open| Arc::clone(&open.source))
    }

    /// Takes one away.
    pub(super) fn remove(&mut self, number: u32) -> Option<Arc<dyn Source>> {
        self.0.remove(&number).map(|open| open.source)
    }

    /// Count of them.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Their numbers.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.keys().copied()
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<Arc<dyn Source>> {
        self.0.values().map(|open| Arc::clone(&open.source)).collect()
    }

    /// The same, those first that should be asked first: the ones that were there from the start. A question to one that is not
    /// reached would wait for it, though another could answer.
    pub(super) fn by_standing(&self) -> Vec<Arc<dyn Source>> {
        let mut sources: Vec<_> = self.0.iter().collect();
        sources.sort_by_key(|(number, open)| {
            let state = open.source.state();
            let is_late = state.trouble.is_some() || state.price == UNREACHED_PRICE;
            (is_late, open.rank, open.priority, **number)
        });
        sources.into_iter().map(|(_, open)| Arc::clone(&open.source)).collect()
    }

    /// The only one, with its number.
    pub(super) fn only(&self) -> Option<(u32, Arc<dyn Source>)> {
        let (number, open) = self.0.first_key_value().filter(|_| self.0.len() == 1)?;
        Some((*number, Arc::clone(&open.source)))
    }

    /// New facts of those that like other amounts under way than before, or cost something else.
    pub(super) fn changed(&mut self) -> Vec<(u32, SourceFacts)> {
        let mut changed = Vec::new();
        for (number, open) in &mut self.0 {
            let state = open.source.state();
            if (state.window, state.price) != (open.window, open.price) {
                (open.window, open.price) = (state.window, state.price);
                changed.push((*number, facts(&state, open.rank)));
            }
        }
        changed
    }
}

/// Facts of a source. Near the end pieces are not cut for it: a part comes without a proof, and to ask for the values would
/// take a round trip just then.
const fn facts(state: &SourceState, rank: u16) -> SourceFacts {
    let (window, round_trip) = (state.window, state.path.round_trip);
    SourceFacts { window, round_trip, priority: rank, price: state.price, proves: false }
}
