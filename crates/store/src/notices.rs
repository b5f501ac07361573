//! Waiters and listeners: versions to wait for, announced partials, listeners to new objects.
//!
//! Versions are kept per stripe of names, not per name, so that they take the same memory for ten
//! objects as for ten million. Two names in one stripe wake each other's waiters now and then, who
//! look, find nothing new and wait again. All of this is known to one process only.

use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use towpath_content::Oid;

use crate::seam::{Listener, Partial, StoreChange};
use towpath_content::lock::lock;

const STRIPES: usize = 1024;

#[derive(Debug, Default)]
struct Stripe(Mutex<StripeState>);

#[derive(Debug, Default)]
struct StripeState {
    version: u64,
    /// Those who wait for another version, each under a number of its own.
    waiting: BTreeMap<u64, Waker>,
    last: u64,
}

impl Stripe {
    fn change(&self) {
        let mut state = lock(&self.0);
        state.version += 1;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_values().for_each(Waker::wake);
    }
}

/// One who waits until a stripe's version is not the one that was seen.
struct StripeWait {
    stripe: Arc<Stripe>,
    seen: u64,
    /// The number under which it waits.
    number: Option<u64>,
}

impl Future for StripeWait {
    type Output = u64;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<u64> {
        let stripe = Arc::clone(&self.stripe);
        let mut state = lock(&stripe.0);
        if state.version != self.seen {
            return Poll::Ready(state.version);
        }
        let number = *self.number.get_or_insert_with(|| {
            state.last += 1;
            state.last
        });
        state.waiting.insert(number, cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for StripeWait {
    fn drop(&mut self) {
        self.number.iter().for_each(|number| drop(lock(&self.stripe.0).waiting.remove(number)));
    }
}

/// The registry that both stores share.
pub(crate) struct Notices {
    stripes: Vec<Arc<Stripe>>,
    announced: Mutex<HashMap<Oid, Arc<dyn Partial>>>,
    listeners: Mutex<Vec<Arc<Listener>>>,
}

impl Notices {
    /// Nobody waits, nothing is announced.
    pub(crate) fn new() -> Self {
        let stripes = std::iter::repeat_with(Arc::<Stripe>::default).take(STRIPES).collect();
        Self { stripes, announced: Mutex::default(), listeners: Mutex::default() }
    }

    fn stripe(&self, oid: &Oid) -> &Arc<Stripe> {
        let [a, b, ..] = *oid.digest();
        &self.stripes[usize::from(u16::from_le_bytes([a, b])) % STRIPES]
    }

    /// Wakes those who wait for `oid`.
    pub(crate) fn changed(&self, oid: &Oid) {
        self.stripe(oid).change();
    }

    /// The version of `oid`.
    pub(crate) fn version(&self, oid: &Oid) -> u64 {
        lock(&self.stripe(oid).0).version
    }

    /// Completes once the version of `oid` is not `seen`.
    pub(crate) fn change(&self, oid: &Oid, seen: u64) -> StoreChange {
        Box::pin(StripeWait { stripe: Arc::clone(self.stripe(oid)), seen, number: None })
    }

    /// Makes a partial known.
    pub(crate) fn announce(&self, oid: &Oid, partial: Arc<dyn Partial>) {
        lock(&self.announced).insert(*oid, partial);
        self.changed(oid);
    }

    /// The partial of `oid`, if one is announced.
    pub(crate) fn partial(&self, oid: &Oid) -> Option<Arc<dyn Partial>> {
        lock(&self.announced).get(oid).cloned()
    }

    /// Ends an announcement.
    pub(crate) fn withdraw(&self, oid: &Oid) {
        if lock(&self.announced).remove(oid).is_some() {
            self.changed(oid);
        }
    }

    /// Adds a listener.
    pub(crate) fn listen(&self, listener: Listener) {
        lock(&self.listeners).push(Arc::new(listener));
    }

    /// True if somebody listens for new objects.
    pub(crate) fn has_listeners(&self) -> bool {
        !lock(&self.listeners).is_empty()
    }

    /// `oid` can be read here whole: its announcement ends, and those who wait look again.
    pub(crate) fn complete(&self, oid: &Oid) {
        lock(&self.announced).remove(oid);
        self.changed(oid);
    }

    /// Tells the listeners of an object that was not complete here before.
    pub(crate) fn tell(&self, oid: &Oid) {
        let listeners = lock(&self.listeners).clone();
        for listener in listeners {
            listener(oid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_is_woken_when_its_object_changes_and_leaves_nothing_when_it_goes() {
        let notices = Notices::new();
        let (oid, other) = (Oid::Live([1; 32]), Oid::Live([2; 32]));
        let mut cx = Context::from_waker(Waker::noop());
        let waiting = || lock(&notices.stripe(&oid).0).waiting.len();
        let seen = notices.version(&oid);
        let [mut stays, mut goes] = [(); 2].map(|()| notices.change(&oid, seen));
        for _ in 0..3 {
            assert!(stays.as_mut().poll(&mut cx).is_pending() && goes.as_mut().poll(&mut cx).is_pending());
        }
        assert_eq!(waiting(), 2);
        drop(goes);
        notices.changed(&other);
        assert!(stays.as_mut().poll(&mut cx).is_pending());
        assert_eq!(waiting(), 1);
        notices.changed(&oid);
        assert!(matches!(stays.as_mut().poll(&mut cx), Poll::Ready(version) if version != seen));
        assert_eq!(waiting(), 0);
    }
}
