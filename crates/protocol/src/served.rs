//! Fetches of a peer from this side over one connection, for whoever watches: by which roots, how many
//! bytes went, what was wrong with it here, and how each ended. There may be several at once.

use std::collections::BTreeMap;
use std::sync::Mutex;

use tokio::sync::watch;
use towpath_content::Oid;
use towpath_content::lock::lock;
use towpath_transfer::{FetchError, Outcome};

use super::wire::{MAX_ROOTS, WireFinished};
use super::{HAS_ALL, HAS_THE_REST};

/// Fetches over one connection so far.
#[derive(Debug)]
pub struct Served {
    /// The last one by each root; of more roots than can be proved the oldest are forgotten.
    fetches: Mutex<BTreeMap<Oid, ServedFetch>>,
    is_in_use: watch::Sender<bool>,
}

/// What a peer fetches, or fetched, by one root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedFetch {
    /// The mark of the ticket whose secret the peer proved; none if it needed none.
    pub ticket: Option<u64>,
    /// Its number among those of the connection.
    pub number: u64,
    /// Bytes of objects on their way, as they are sent.
    pub bytes: u64,
    /// Reason why something of it could not be sent.
    pub last_error: Option<String>,
    /// The peer needs nothing more of it, and said why if it did not give up.
    pub ended: Option<Option<&'static str>>,
}

impl Default for Served {
    fn default() -> Self {
        Self { fetches: Mutex::default(), is_in_use: watch::Sender::new(false) }
    }
}

impl Served {
    /// The last fetch by each root.
    pub fn fetches(&self) -> BTreeMap<Oid, ServedFetch> {
        lock(&self.fetches).clone()
    }

    /// Bytes of objects on their way, of all of these.
    pub fn bytes(&self) -> u64 {
        lock(&self.fetches).values().map(|fetch| fetch.bytes).sum()
    }

    /// Tells whether the peer fetches: it asked for data, and did not say that it needs nothing more of them.
    pub fn use_changes(&self) -> watch::Receiver<bool> {
        self.is_in_use.subscribe()
    }

    /// From now on it counts as not fetching, until it asks again.
    pub fn forget_use(&self) {
        self.is_in_use.send_replace(false);
    }

    pub(super) fn requested(&self, root: &Oid, ticket: Option<u64>) {
        let mut fetches = lock(&self.fetches);
        let goes_on = |fetch: &ServedFetch| fetch.ticket == ticket && fetch.ended.is_none();
        if !fetches.get(root).is_some_and(goes_on) {
            let number = fetches.values().map(|fetch| fetch.number + 1).max().unwrap_or(0);
            let (bytes, last_error, ended) = (0, None, None);
            fetches.insert(*root, ServedFetch { ticket, number, bytes, last_error, ended });
            let oldest = fetches.iter().min_by_key(|(_, fetch)| fetch.number).map(|(root, _)| *root);
            if fetches.len() > MAX_ROOTS {
                oldest.and_then(|oldest| fetches.remove(&oldest));
            }
        }
        drop(fetches);
        self.is_in_use.send_if_modified(|is_in_use| !std::mem::replace(is_in_use, true));
    }

    /// The peer says that it needs nothing more under a root.
    pub(super) fn finished(&self, finished: &WireFinished) {
        let mut fetches = lock(&self.fetches);
        let root = Oid::from_bytes(&finished.root).ok();
        let Some(fetch) = root.and_then(|root| fetches.get_mut(&root)) else { return };
        let said = [None, Some(HAS_ALL), Some(HAS_THE_REST)];
        fetch.ended = Some(said.get(finished.how as usize).copied().flatten());
        let is_used = fetches.values().any(|fetch| fetch.ended.is_none());
        drop(fetches);
        if !is_used {
            self.forget_use();
        }
    }

    pub(super) fn sent(&self, root: &Oid, bytes: u64) {
        self.note(root, |fetch| fetch.bytes += bytes);
    }

    /// Only what is wrong for good.
    pub(super) fn refused(&self, root: &Oid, outcome: &Outcome) {
        if matches!(outcome, Outcome::SourceChanged | Outcome::Refused(_)) {
            let why = || FetchError::Ended(outcome.clone()).to_string();
            self.note(root, |fetch| fetch.last_error = fetch.last_error.take().or_else(|| Some(why())));
        }
    }

    fn note(&self, root: &Oid, change: impl FnOnce(&mut ServedFetch)) {
        if let Some(fetch) = lock(&self.fetches).get_mut(root) {
            change(fetch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::oid_field;
    use super::*;

    fn finish(served: &Served, root: Oid, how: u32) {
        served.finished(&WireFinished { root: oid_field(&root), how });
    }

    #[test]
    fn each_fetch_of_a_connection_ends_as_the_peer_says_and_no_other_one_does() {
        let (served, roots) = (Served::default(), [Oid::of(b"one"), Oid::of(b"other")]);
        let in_use = served.use_changes();
        let state = |root| served.fetches().get(&root).map(|fetch| (fetch.number, fetch.ended));
        finish(&served, roots[0], 1);
        assert_eq!((state(roots[0]), *in_use.borrow()), (None, false), "nothing was begun");
        for (number, how, said) in
            [(0, 1, Some(HAS_ALL)), (1, 2, Some(HAS_THE_REST)), (2, 0, None), (3, 9, None)]
        {
            served.requested(&roots[0], Some(7));
            served.requested(&roots[0], Some(7));
            finish(&served, roots[1], how);
            assert_eq!((state(roots[0]), *in_use.borrow()), (Some((number, None)), true));
            finish(&served, roots[0], how);
            assert_eq!((state(roots[0]), *in_use.borrow()), (Some((number, Some(said))), false));
        }
        served.requested(&roots[1], None);
        assert_eq!(state(roots[1]), Some((4, None)), "another root");
        served.forget_use();
        assert!(!*in_use.borrow());
        served.requested(&roots[1], None);
        assert!(*in_use.borrow(), "it asks again");
    }

    /// What was fetched by one root counted for that which was asked for last.
    #[test]
    fn several_fetches_at_once_have_each_their_own_bytes_errors_and_end() {
        let (served, roots) = (Served::default(), [b"a", b"b", b"c"].map(|data| Oid::of(data)));
        let in_use = served.use_changes();
        roots.iter().for_each(|root| served.requested(root, None));
        for (bytes, root) in (1..).zip(&roots) {
            served.sent(root, bytes);
            served.sent(root, 10 * bytes);
        }
        served.sent(&Oid::of(b"never asked for"), 1000);
        served.refused(&roots[1], &Outcome::SourceChanged);
        served.refused(&roots[2], &Outcome::NotHere);
        finish(&served, roots[1], 2);
        let fetches = served.fetches();
        let of = |root| &fetches[root];
        assert_eq!(roots.each_ref().map(|root| of(root).bytes), [11, 22, 33]);
        assert_eq!(served.bytes(), 66);
        assert_eq!(roots.each_ref().map(|root| of(root).last_error.is_some()), [false, true, false]);
        assert_eq!(roots.each_ref().map(|root| of(root).ended), [None, Some(Some(HAS_THE_REST)), None]);
        assert!(*in_use.borrow(), "two go on");
        finish(&served, roots[0], 1);
        finish(&served, roots[2], 1);
        assert!(!*in_use.borrow());
    }

    #[test]
    fn no_more_roots_are_remembered_than_can_be_proved() {
        let served = Served::default();
        let root = |number: usize| Oid::of(&number.to_le_bytes());
        (0..3 * MAX_ROOTS).for_each(|number| served.requested(&root(number), None));
        let fetches = served.fetches();
        assert_eq!(fetches.len(), MAX_ROOTS);
        assert!((2 * MAX_ROOTS..3 * MAX_ROOTS).all(|number| fetches.contains_key(&root(number))));
    }
}
