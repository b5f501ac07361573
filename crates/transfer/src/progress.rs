//! Bytes by source: what a person watching and a program reading want to know.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::source_id::SourceId;

/// Results of a transfer so far. Bytes are those of objects, checked and written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Bytes of all objects requested so far, as far as their sizes are known.
    pub expected: u64,
    /// Bytes that are there.
    pub done: u64,
    /// Of these, bytes that a source brought, by source.
    pub by_source: BTreeMap<SourceId, u64>,
    /// Bytes of what sources brought and that was wrong: others have to bring it.
    pub wrong: BTreeMap<SourceId, u64>,
    /// Of those that are there, bytes that an earlier, interrupted transfer had left.
    pub kept: u64,
    /// Of those that are there, zeros of holes, which cost nothing.
    pub zeros: u64,
    /// Objects complete.
    pub objects: u64,
    /// Trouble that keeps the transfer from going on, if anything does.
    pub last_error: Option<String>,
}

/// Shared counters of one session.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<Mutex<Snapshot>>);

impl Progress {
    /// The counters now.
    pub fn snapshot(&self) -> Snapshot {
        self.with(|snapshot| snapshot.clone())
    }

    /// Reads or changes the counters under their lock; `change` must be quick.
    pub fn with<T>(&self, change: impl FnOnce(&mut Snapshot) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts bytes that `source` brought.
    pub fn brought(&self, source: &SourceId, bytes: u64) {
        self.with(|snapshot| {
            snapshot.done += bytes;
            match snapshot.by_source.get_mut(source) {
                Some(sum) => *sum += bytes,
                None => drop(snapshot.by_source.insert(source.clone(), bytes)),
            }
        });
    }

    /// Counts bytes of a want for which `source` brought something else.
    pub(crate) fn was_wrong(&self, source: &SourceId, bytes: u64) {
        self.with(|snapshot| *snapshot.wrong.entry(source.clone()).or_default() += bytes);
    }

    /// Counts bytes that came once and fill `fresh` ones in all positions together; of `shares` the first ones, if not all are
    /// counted.
    pub(crate) fn came(&self, shares: &[(SourceId, u64)], once: u64, fresh: u64, zeros: bool) {
        if zeros {
            self.with(|snapshot| (snapshot.done += once, snapshot.zeros += once));
        } else {
            let mut left = once;
            for (source, bytes) in shares {
                self.brought(source, left.min(*bytes));
                left -= left.min(*bytes);
            }
        }
        self.with(|snapshot| snapshot.done += fresh - once);
    }

    /// Counts bytes that were here.
    pub(crate) fn kept(&self, bytes: u64) {
        self.with(|snapshot| (snapshot.done += bytes, snapshot.kept += bytes));
    }

    /// Counts bytes of an object whose size is known now.
    pub(crate) fn expected(&self, bytes: u64) {
        self.with(|snapshot| snapshot.expected += bytes);
    }

    /// Counts an object that is complete.
    pub(crate) fn completed(&self) {
        self.with(|snapshot| snapshot.objects += 1);
    }
}
