//! Fetches of a peer from this side over one connection, for whoever watches: by which root, how many
//! bytes went, what was wrong with it here, and how it ended.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;
use towpath_content::Oid;
use towpath_content::lock::lock;
use towpath_transfer::{FetchError, Outcome};

use super::wire::WireFinished;
use super::{HAS_ALL, HAS_THE_REST};

/// Fetches over one connection so far.
#[derive(Debug)]
pub struct Served {
    /// The root by which data were asked for last, and how that ended, once it has.
    last: Mutex<Option<LastServed>>,
    bytes: AtomicU64,
    last_error: Mutex<Option<String>>,
    is_in_use: watch::Sender<bool>,
}

/// A fetch that was the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastServed {
    /// The root by which data were asked for.
    pub root: Oid,
    /// The mark of the ticket whose secret the peer proved; none if it needed none.
    pub ticket: Option<u64>,
    /// Its number among those of the connection.
    pub number: u64,
    /// The peer needs nothing more of it, and said why if it did not give up.
    pub ended: Option<Option<&'static str>>,
}

impl Default for Served {
    fn default() -> Self {
        let (last, last_error, is_in_use) = (Mutex::default(), Mutex::default(), watch::Sender::new(false));
        Self { last, bytes: AtomicU64::new(0), last_error, is_in_use }
    }
}

impl Served {
    /// The fetch that was begun last; none if none was.
    pub fn last(&self) -> Option<LastServed> {
        *lock(&self.last)
    }

    /// Bytes of objects on their way, as they are sent.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Reason why something of it could not be sent.
    pub fn last_error(&self) -> Option<String> {
        lock(&self.last_error).clone()
    }

    /// Tells whether the peer fetches: it asked for data, and did not say that it needs nothing more of them.
    pub fn use_changes(&self) -> watch::Receiver<bool> {
        self.is_in_use.subscribe()
    }

    /// True if the peer fetches now.
    pub fn is_in_use(&self) -> bool {
        *self.is_in_use.borrow()
    }

    /// From now on it counts as not fetching, until it asks again.
    pub fn forget_use(&self) {
        self.is_in_use.send_replace(false);
    }

    pub(super) fn requested(&self, root: &Oid, ticket: Option<u64>) {
        let mut last = lock(&self.last);
        let number = match *last {
            Some(last) if (last.root, last.ticket, last.ended) == (*root, ticket, None) => None,
            known => Some(known.map_or(0, |last| last.number + 1)),
        };
        if let Some(number) = number {
            *last = Some(LastServed { root: *root, ticket, number, ended: None });
            *lock(&self.last_error) = None;
        }
        drop(last);
        self.is_in_use.send_if_modified(|is_in_use| !std::mem::replace(is_in_use, true));
    }

    /// The peer says that it needs nothing more under a root.
    pub(super) fn finished(&self, finished: &WireFinished) {
        let mut last = lock(&self.last);
        let Some(of_it) = last.as_mut().filter(|last| last.root.to_bytes()[..] == finished.root[..]) else {
            return;
        };
        let said = [None, Some(HAS_ALL), Some(HAS_THE_REST)];
        of_it.ended = Some(said.get(finished.how as usize).copied().flatten());
        drop(last);
        self.forget_use();
    }

    pub(super) fn sent(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Only what is wrong for good.
    pub(super) fn refused(&self, outcome: &Outcome) {
        if matches!(outcome, Outcome::SourceChanged | Outcome::Refused(_)) {
            let mut last_error = lock(&self.last_error);
            last_error.get_or_insert_with(|| FetchError::Ended(outcome.clone()).to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::oid_field;
    use super::*;

    #[test]
    fn each_fetch_of_a_connection_ends_as_the_peer_says_and_no_other_one_does() {
        let (served, roots) = (Served::default(), [Oid::of(b"one"), Oid::of(b"other")]);
        let finish = |root: Oid, how| served.finished(&WireFinished { root: oid_field(&root), how });
        let in_use = served.use_changes();
        let last = || served.last().map(|last| (last.root, last.number, last.ended));
        finish(roots[0], 1);
        assert_eq!((last(), *in_use.borrow()), (None, false), "nothing was begun");
        for (number, how, said) in
            [(0, 1, Some(HAS_ALL)), (1, 2, Some(HAS_THE_REST)), (2, 0, None), (3, 9, None)]
        {
            served.requested(&roots[0], Some(7));
            served.requested(&roots[0], Some(7));
            finish(roots[1], how);
            assert_eq!((last(), *in_use.borrow()), (Some((roots[0], number, None)), true));
            finish(roots[0], how);
            assert_eq!((last(), *in_use.borrow()), (Some((roots[0], number, Some(said))), false));
        }
        served.requested(&roots[1], None);
        assert_eq!(last(), Some((roots[1], 4, None)), "another root");
        served.forget_use();
        assert!(!*in_use.borrow());
        served.requested(&roots[1], None);
        assert!(*in_use.borrow(), "it asks again");
    }
}
