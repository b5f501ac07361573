//! Preferences of an application for a transfer: its precedence over the others of this host, and that
//! nothing of it crosses a network in the clear (`papers/dot.txt` §7).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;
use towpath_transfer::source::{Query, Sink, SourceState};
use towpath_transfer::{Advice, BoxFuture, Context, Description, ObjectFacts, Outcome, Root, Source, Want};

/// Bytes that a transfer that gives way may still have under way: it goes on, a little at a time.
const LEAST: u64 = 256 << 10;

/// The transfers of a host that are under way, by priority.
#[derive(Debug, Default)]
pub struct Precedence(Mutex<BTreeMap<i8, usize>>);

/// One transfer's place among them, until it is dropped.
#[derive(Debug)]
pub struct Turn {
    precedence: Arc<Precedence>,
    priority: i8,
}

impl Precedence {
    /// A transfer of this priority begins; higher ones go first.
    pub fn enter(self: &Arc<Self>, priority: i8) -> Turn {
        *self.lock().entry(priority).or_default() += 1;
        Turn { precedence: Arc::clone(self), priority }
    }

    fn highest(&self) -> Option<i8> {
        self.lock().last_key_value().map(|(priority, _)| *priority)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<i8, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut under_way = self.precedence.lock();
        if let Some(count) = under_way.get_mut(&self.priority) {
            *count -= 1;
            if *count == 0 {
                under_way.remove(&self.priority);
            }
        }
    }
}

/// Number of bytes of wants that a transfer may have under way: all that its sources like, unless one of a
/// higher priority is under way. Pure.
pub fn window_of(priority: i8, highest: Option<i8>, window: u64) -> u64 {
    match highest.is_some_and(|highest| highest > priority) {
        true => window.min(LEAST),
        false => window,
    }
}

/// Wraps the root of one transfer.
pub struct Preferred {
    inner: Arc<dyn Root>,
    turn: Arc<Turn>,
    require_encryption: bool,
}

impl Preferred {
    /// Asks `inner` when it is this transfer's `turn`; if encryption is required, only while `inner`
    /// can tell that all it brings crosses networks encrypted.
    pub const fn new(inner: Arc<dyn Root>, turn: Arc<Turn>, require_encryption: bool) -> Self {
        Self { inner, turn, require_encryption }
    }

    fn check(&self) -> Result<(), Outcome> {
        match self.require_encryption && !self.inner.state().is_encrypted {
            true => Err(Outcome::Refused(
                "by preference: encryption is required, and of this way it can't be confirmed".into(),
            )),
            false => Ok(()),
        }
    }
}

impl Root for Preferred {
    fn advise(&self, facts: &ObjectFacts<'_>) -> Advice {
        self.inner.advise(facts)
    }
}

impl Source for Preferred {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn inner(&self) -> Option<&dyn Source> {
        Some(&*self.inner)
    }

    fn state(&self) -> SourceState {
        let state = self.inner.state();
        SourceState {
            window: window_of(self.turn.priority, self.turn.precedence.highest(), state.window),
            ..state
        }
    }

    fn describe<'a>(
        &'a self,
        query: Query,
        context: &'a Context,
        answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        match self.check() {
            Ok(()) => self.inner.describe(query, context, answers),
            Err(outcome) => Box::pin(async { Err(outcome) }),
        }
    }

    fn get<'a>(&'a self, wants: Vec<Want>, context: &'a Context, sink: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        match self.check() {
            Ok(()) => self.inner.get(wants, context, sink),
            Err(outcome) => {
                wants.iter().for_each(|want| sink.outcome(want.tag, outcome.clone()));
                Box::pin(async {})
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_gives_way_to_those_of_a_higher_priority_and_to_no_others() {
        const WINDOW: u64 = 4 << 20;
        for (priority, highest, window) in [
            (0, None, WINDOW),
            (0, Some(0), WINDOW),
            (0, Some(-1), WINDOW),
            (0, Some(1), LEAST),
            (i8::MIN, Some(i8::MAX), LEAST),
            (5, Some(5), WINDOW),
        ] {
            assert_eq!(window_of(priority, highest, WINDOW), window, "{priority} beside {highest:?}");
        }
        assert_eq!(window_of(0, Some(1), 1000), 1000, "never more than its sources like");
    }

    #[test]
    fn a_turn_ends_when_it_is_dropped() {
        let precedence = Arc::new(Precedence::default());
        let usual = precedence.enter(0);
        let (first, second) = (precedence.enter(7), precedence.enter(7));
        assert_eq!(precedence.highest(), Some(7));
        drop(first);
        assert_eq!(precedence.highest(), Some(7));
        drop(second);
        assert_eq!(precedence.highest(), Some(0));
        drop(usual);
        assert_eq!(precedence.highest(), None);
    }
}
