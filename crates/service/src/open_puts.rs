//! The puts in parts that are open, and what each needs until it is committed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use towpath_api::{Event, Progress};
use towpath_content::Oid;
use towpath_content::lock::lock;
use towpath_content::ticket::BoundSecret;
use towpath_store::{About, Holder};

use crate::admission::Admitted;
use crate::transfers::Transfer;
use crate::tree_put::TreePut;

/// A put on which nothing happened for so long is given up: its application forgot it.
const IDLE: Duration = Duration::from_secs(60 * 60);

/// The open puts of a service.
#[derive(Default)]
pub(crate) struct OpenPuts(Mutex<HashMap<Oid, OpenEntry>>);

/// A put and its place among the transfers, which it has until it is committed or given up: its
/// parts need none of their own, so that one that was let begin can always end.
pub(crate) struct OpenEntry {
    pub(crate) put: OpenPut,
    pub(crate) admitted: Admitted,
}

#[derive(Clone)]
pub(crate) struct OpenPut {
    pub(crate) secret: BoundSecret,
    pub(crate) about: About,
    pub(crate) holder: Holder,
    /// Its content so far; held by the part that is coming.
    pub(crate) filled: Arc<tokio::sync::Mutex<Filled>>,
    pub(crate) touched: Arc<Mutex<Instant>>,
    pub(crate) transfer: Arc<Transfer>,
}

/// Content of a put so far.
#[derive(Default)]
pub(crate) struct Filled {
    pub(crate) size: u64,
    /// Reader of the descriptor if it is to be a tree.
    pub(crate) tree: Option<TreePut>,
}

impl OpenPut {
    pub(crate) fn touch(&self) {
        *lock(&self.touched) = Instant::now();
    }

    pub(crate) fn is_idle(&self, now: Instant) -> bool {
        now.saturating_duration_since(*lock(&self.touched)) > IDLE && self.filled.try_lock().is_ok()
    }
}

impl OpenPuts {
    /// Number of open puts.
    pub(crate) fn len(&self) -> usize {
        lock(&self.0).len()
    }

    pub(crate) fn find(&self, live: &Oid) -> Option<OpenPut> {
        lock(&self.0).get(live).map(|entry| entry.put.clone())
    }

    pub(crate) fn remove(&self, live: &Oid) -> Option<OpenEntry> {
        lock(&self.0).remove(live)
    }

    pub(crate) fn add(&self, live: Oid, entry: OpenEntry) {
        lock(&self.0).insert(live, entry);
    }

    pub(crate) fn idle(&self) -> Vec<Oid> {
        let now = Instant::now();
        let puts = lock(&self.0);
        puts.iter().filter(|(_, entry)| entry.put.is_idle(now)).map(|(live, _)| *live).collect()
    }

    /// Those that `holder` holds.
    pub(crate) fn held(&self, holder: &Holder) -> Vec<Oid> {
        let puts = lock(&self.0);
        puts.iter().filter(|(_, entry)| entry.put.holder == *holder).map(|(live, _)| *live).collect()
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Oid> {
        lock(&self.0).keys().copied().collect()
    }
}

impl OpenPut {
    pub(crate) fn report(&self, size: u64) {
        self.transfer.report(&Event::Transfer(Progress {
            done: size,
            expected: size,
            ..Progress::default()
        }));
    }
}
