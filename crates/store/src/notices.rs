//! Waiters and listeners: versions to wait for, announced partials, listeners to new objects.
//!
//! Versions are kept per stripe of names, not per name, so that they take the same memory for ten
//! objects as for ten million. Two names in one stripe wake each other's waiters now and then, who
//! look, find nothing new and wait again. All of this is known to one process only.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use towpath_content::Oid;

use crate::seam::{Listener, Partial};
use towpath_content::lock::lock;

const STRIPES: usize = 1024;

#[derive(Debug, Default)]
struct Stripe {
    version: Mutex<u64>,
    changed: Condvar,
}

/// The registry that both stores share.
pub(crate) struct Notices {
    stripes: Vec<Stripe>,
    announced: Mutex<HashMap<Oid, Arc<dyn Partial>>>,
    listeners: Mutex<Vec<Arc<Listener>>>,
}

impl Notices {
    /// Nobody waits, nothing is announced.
    pub(crate) fn new() -> Self {
        let stripes = std::iter::repeat_with(Stripe::default).take(STRIPES).collect();
        Self { stripes, announced: Mutex::default(), listeners: Mutex::default() }
    }

    fn stripe(&self, oid: &Oid) -> &Stripe {
        let [a, b, ..] = *oid.digest();
        &self.stripes[usize::from(u16::from_le_bytes([a, b])) % STRIPES]
    }

    /// Wakes those who wait for `oid`.
    pub(crate) fn changed(&self, oid: &Oid) {
        let stripe = self.stripe(oid);
        *lock(&stripe.version) += 1;
        stripe.changed.notify_all();
    }

    /// The version of `oid`.
    pub(crate) fn version(&self, oid: &Oid) -> u64 {
        *lock(&self.stripe(oid).version)
    }

    /// Waits until the version of `oid` is not `seen`.
    pub(crate) fn wait(&self, oid: &Oid, seen: u64, timeout: Duration) -> u64 {
        let stripe = self.stripe(oid);
        let guard = lock(&stripe.version);
        let waited = stripe.changed.wait_timeout_while(guard, timeout, |version| *version == seen);
        *waited.unwrap_or_else(PoisonError::into_inner).0
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
    fn a_waiter_wakes_when_its_object_changes_and_not_before_the_timeout_otherwise() {
        let notices = Arc::new(Notices::new());
        let (oid, other) = (Oid::Live([1; 32]), Oid::Live([2; 32]));
        let seen = notices.version(&oid);
        let waiter = std::thread::spawn({
            let notices = Arc::clone(&notices);
            move || notices.wait(&oid, seen, Duration::from_secs(60))
        });
        notices.changed(&other);
        notices.changed(&oid);
        assert_ne!(waiter.join().unwrap(), seen);
        let seen = notices.version(&oid);
        assert_eq!(notices.wait(&oid, seen, Duration::from_millis(1)), seen);
    }
}
